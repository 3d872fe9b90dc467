# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""datapath_audit on the controller: reads pasted outputs, and lends pyroute2 to a node that lacks it."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _library, _pastes


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        lent = _pastes.execute(
            "datapath_audit", {**self._task.args}, lambda options: _library.lend(self, options, task_vars or {})
        )
        result.update(lent)
        return result
