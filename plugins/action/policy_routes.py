# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""policy_routes on the controller: carries pyroute2 to a node that lacks it, and confirms the checkpoint."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _checkpoint, _library
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction


class ActionModule(NodeAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        result.update(_checkpoint.execute(self, lambda args: _library.execute(self, args, task_vars or {})))
        return result
