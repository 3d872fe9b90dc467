# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""node_report: prints the report of a role or of audits, or checks one connection after the change of the node."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings, fleet_text, terminal
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _connection_checks, _report_callback, _stdout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

Result = dict[str, t.Any]
SPEC = {
    "lines": {"type": "list", "elements": "str", "default": []},
    "connection": {"type": "dict", "default": {}},
    "answered": {"type": "list", "elements": "dict", "default": []},
    "silent": {"type": "list", "elements": "dict", "default": []},
    "audits": {"type": "dict", "default": {}},
    "page": {"type": "str", "default": ""},
    "required": {"type": "dict", "default": {}},
}


class ActionModule(NodeAction):
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        result: Result = {**super().run(tmp, task_vars), "changed": False}
        _validated, arguments = self.validate_argument_spec(argument_spec=SPEC)
        check = arguments["connection"]
        if check:
            before = _connection_checks.Before(arguments["answered"], arguments["silent"])
            checked = _connection_checks.connected(self, _connection_checks.AFTER, check, task_vars or {}, before)
            return {**result, **checked}
        if arguments["required"]:
            return {**result, **_verdict(arguments["required"])}
        if arguments["audits"]:
            self._show(arguments["audits"], arguments["page"])
            return {**result, "page": arguments["page"]}
        if _report_callback.is_running():  # it prints the lines of equal nodes once
            return {**result, "report": arguments["lines"]}
        return {**result, "msg": arguments["lines"], "_ansible_verbose_always": bool(arguments["lines"])}

    def _show(self, audits: Result, page: str) -> None:
        """Print all of one audit, or those of several nodes together, unless the callback does that at the end of the run."""
        answers = {name: findings.answer(result) for name, result in audits.items()}
        (first, *others) = answers.values()
        if not others and not isinstance(first, str):
            _stdout.show(self, _stdout.written(terminal.audit, first))
        elif not _report_callback.is_running():
            _stdout.show(self, _stdout.written(fleet_text.of_results, answers))
        if page and not _report_callback.is_running():
            _stdout.show(self, fleet_text.place(page))


def _verdict(required: Result) -> Result:
    """Return why nodes were not audited, as the result of a task: one out of reach is unreachable at the end, too."""
    lost = {name: result for name, result in required.items() if "findings" not in result}
    if not lost:
        return {}
    sentences = (f"{name} was not audited: {findings.answer(result)}" for name, result in lost.items())
    state = "unreachable" if all(result.get("unreachable") for result in lost.values()) else "failed"
    return {state: True, "msg": " ".join(sentences)}
