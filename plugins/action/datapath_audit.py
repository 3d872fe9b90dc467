# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""datapath_audit on the controller: reads pasted outputs, lends pyroute2 to a node that lacks it, and prints the findings."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._render import terminal
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _library, _pastes, _stdout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._changes import is_true
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction


class ActionModule(NodeAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        arguments, variables = {**self._task.args}, task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        result.update(_pastes.execute("datapath_audit", arguments, lambda options: _library.lend(self, options, variables)))
        if "findings" in result:
            text = _stdout.written(terminal.audit, result)
            if is_true(arguments.get("print")):
                bundle = os.path.basename(str(arguments.get("dump") or ""))
                _stdout.show(self, text, bundle or _stdout.heading(variables))
        return result
