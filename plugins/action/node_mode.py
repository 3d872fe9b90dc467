# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""node_mode: decides on the controller, or asks the node by one shell command. No module is run."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

LONGEST = 4000  # characters of what the node prints


class ActionModule(NodeAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        spec = {"mode": node_mode.MODE.spec()}
        _validated, options = self.validate_argument_spec(argument_spec=spec)
        transport = self._connection.transport
        verdict = node_mode.by_controller(options["mode"], transport, task_vars or {})
        if verdict is None:
            verdict = node_mode.by_node(self._look(), transport)
        # Shows the reason without -v.
        return {**result, "changed": False, **verdict._asdict(), "_ansible_verbose_always": True}

    def _look(self) -> node_mode.Answer:
        completed = self._low_level_execute_command(node_mode.ASK)
        if completed["rc"] != 0:
            said = completed["stderr"].strip() or completed["stdout"].strip() or f"exit status {completed['rc']}"
            raise AnsibleActionFail(
                f"node_mode: the node could not be asked whether it is a running node or an image: {printable(said)[:LONGEST]}."
                " Set mode to runtime or image"
            )
        return node_mode.parse(completed["stdout"][-LONGEST:])
