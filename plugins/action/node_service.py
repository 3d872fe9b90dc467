# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""node_service: takes a node out of service, or back into it, by kubectl on the controller."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_service, _waits
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_service import Failure, Kubectl, NodeService, Outcome, Waits

Result = dict[str, t.Any]
SPEC = {
    "state": {"type": "str", "choices": ["in", "out"], "required": True},
    "name": {"type": "str", "required": True},
    "options": {"type": "dict", "required": True},
    "cni": {"type": "dict"},
    "is_due": {"type": "bool", "default": False},
    "outcome": {"type": "dict", "default": {}},
}


class ActionModule(NodeAction):
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(argument_spec=SPEC, required_if=[("state", "out", ("cni",))])
        host = str((task_vars or {}).get("inventory_hostname"))
        fields = {field.name for field in dataclasses.fields(Outcome)} - {"changed"}
        outcome = Outcome(**{key: value for key, value in arguments["outcome"].items() if key in fields})
        # As ansible.builtin.command reads its words.
        words = [os.path.expanduser(os.path.expandvars(word)) for word in arguments["options"]["kubectl"]]
        kubectl = Kubectl(words, self._run_command, self._task.check_mode)
        pods = self._command([*kubectl.words, *_node_service.pods_command(arguments["name"])])
        waits = Waits(lambda text: _waits.note(host, text), _waits.Watch(self, host, pods, _node_service.evictions))
        try:
            service = NodeService(kubectl, arguments["name"], waits, outcome)
            if arguments["state"] == "in":
                service.take_in()
            else:
                service.take_out(arguments["options"], arguments["cni"], arguments["is_due"])
        except Failure as failure:
            return {**result, **dataclasses.asdict(outcome), "failed": True, "msg": printable(str(failure))}
        finally:
            _waits.note(host, "")
        return {**result, **dataclasses.asdict(outcome)}

    def _run_command(self, command: t.Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command on the controller, as a child that ends with the task: at its timeout, too."""
        environment: Result = {}
        self._compute_environment_string(environment)
        try:
            return subprocess.run(
                command,
                cwd=self._loader.get_basedir(),  # where a task on the controller begins
                env={**os.environ, **{name: str(value) for name, value in environment.items()}},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            return subprocess.CompletedProcess(command, 127, "", f"{command[0]}: {error.strerror}")

    def _command(self, words: t.Sequence[str]) -> str:
        """Return a command of a shell, with the task's environment, such as KUBECONFIG."""
        return f"{self._compute_environment_string()} {shlex.join(words)}".strip()
