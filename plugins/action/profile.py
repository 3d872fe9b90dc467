# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""profile on the controller: recognises an image, rehearses, carries pyroute2 to a node, and confirms the checkpoint."""

from __future__ import annotations

import typing as t
from functools import partial

from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _changes, _checkpoint, _library


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        arguments, variables = dict(self._task.args), task_vars or {}
        verdict = node_mode.by_controller(str(arguments.get("mode", "auto")), self._connection.transport, variables)
        if verdict:
            arguments["mode"] = verdict.mode
        rehearsal = _changes.rehearsed(self, arguments, variables)
        if rehearsal.get("failed"):
            return {**result, **rehearsal}
        is_runtime = not (verdict and verdict.is_image)
        carrying = partial(_library.execute, self, task_vars=variables)
        result.update(_checkpoint.execute(self, carrying, arguments, is_runtime))
        if rehearsal and not result.get("failed"):
            result["rehearsed"] = rehearsal["rehearsed"]
            result["warnings"] = [*rehearsal.get("warnings", ()), *result.get("warnings", ())]
        if "node" in result:
            own = result["node"]["reason"]
            result["node"]["reason"] = verdict.reason if verdict else node_mode.told(own, self._connection.transport)
        return result
