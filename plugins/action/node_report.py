# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""node_report: prints the report of a role, or checks one connection after the change of the node."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _connection_checks, _report_callback
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

Result = dict[str, t.Any]
SPEC = {
    "lines": {"type": "list", "elements": "str", "default": []},
    "connection": {"type": "dict", "default": {}},
    "answered": {"type": "list", "elements": "dict", "default": []},
}


class ActionModule(NodeAction):
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        result: Result = {**super().run(tmp, task_vars), "changed": False}
        _validated, arguments = self.validate_argument_spec(argument_spec=SPEC)
        check, answered = arguments["connection"], arguments["answered"]
        if check:
            checked = _connection_checks.connected(self, _connection_checks.AFTER, check, task_vars or {}, answered)
            return {**result, **checked}
        if _report_callback.is_running():  # it prints the lines of equal nodes once
            return {**result, "report": arguments["lines"]}
        return {**result, "msg": arguments["lines"], "_ansible_verbose_always": bool(arguments["lines"])}
