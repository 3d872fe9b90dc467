# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""rollout_check: checks a node's variables on the controller, or one connection, before the change of the node."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _connection_checks, _playbook_variables, _profiles
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

Result = dict[str, t.Any]
SPEC = {
    "role": {"type": "str", "choices": [*_profiles.PROFILES], "required": True},
    "connection": {"type": "dict", "default": {}},
}


class ActionModule(NodeAction):
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(argument_spec=SPEC)
        variables = task_vars or {}
        if arguments["connection"]:
            checked = _connection_checks.connected(self, _connection_checks.BEFORE, arguments["connection"], variables)
            return {**result, **checked}
        errors = self._errors(arguments["role"], variables)
        excess = "" if errors else self._excess(variables)
        if errors or excess:
            # Returned instead of raised, so that nothing precedes the variable's name.
            message = printable("\n".join(filter(None, (*errors, excess, "Nothing was changed."))))
            return {**result, "failed": True, "changed": False, "is_kept_back": bool(excess), "msg": message}
        return {**result, "changed": False}

    def _errors(self, role: str, variables: Result) -> list[str]:
        errors = list(_profiles.check_variables(role, self, variables).errors)
        for name in _playbook_variables.OF_NODE[1:]:  # the filter checks has checked the first
            try:
                _connection_checks.variable(self, name, variables)
            except Invalid as error:
                errors.append(f"{error}.")
        return errors

    def _excess(self, variables: Result) -> str:
        """Return a sentence if more nodes of the run are lost than the limit permits; else empty."""
        name = "kubenode_max_failed_percentage"
        limit = float(_connection_checks.variable(self, name, variables).removesuffix("%"))
        every = set(variables.get("ansible_play_hosts_all") or ())
        lost = len(every.difference(variables.get("ansible_play_hosts") or ()))
        if lost * 100 <= limit * len(every):
            return ""
        return f"{lost} of {len(every)} nodes are lost, and {name} is {limit:g}, so that the rollout ends before this node."
