# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ebtables_cleanup on the controller: copies pyroute2 to a node that has none."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _library


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        result.update(_library.execute(self, dict(self._task.args), task_vars or {}))
        return result
