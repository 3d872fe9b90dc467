# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""node_task: runs a module of ansible.builtin on the node. Its answer is checked as that of a module of the collection."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_answer
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

MODULES = ("command", "copy", "file", "find")
SPEC = {
    "name": {"type": "str", "choices": MODULES, "required": True},
    "arguments": {"type": "dict", "required": True},
    "content": {"type": "str"},
}


class ActionModule(NodeAction):
    TRANSFERS_FILES = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        required = [("name", "copy", ("content",))]
        _validated, task = self.validate_argument_spec(argument_spec=SPEC, required_if=required)
        arguments = dict(task["arguments"])
        if task["name"] == "copy":
            arguments["src"] = self._transferred(task["content"])
        return {**result, **_node_answer.run(self, task_vars or {}, arguments, f"ansible.builtin.{task['name']}")}

    def _transferred(self, content: str) -> str:
        """Return the path of a file with the content, in the task's temporary folder on the node."""
        shell = self._connection._shell
        if shell.tmpdir is None:
            self._make_tmp_path()
        path: str = self._transfer_data(shell.join_path(shell.tmpdir, "content"), content)
        return path
