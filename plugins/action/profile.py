# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""profile on the controller: checks options, recognises an image, rehearses, audits, confirms the checkpoint, and reports.

The node also gets pyroute2 if it lacks that.
"""

from __future__ import annotations

import typing as t
from functools import partial
from pathlib import Path
from types import MappingProxyType

import jinja2
from ansible.errors import AnsibleActionFail

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line, printable
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.node_mode import ModeVerdict
from ansible_collections.kubenode.datapath.plugins.plugin_utils import (
    _changes,
    _checkpoint,
    _library,
    _profiles,
    _report_callback,
    _stdout,
    _vault,
    _waits,
)
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

Result = dict[str, t.Any]
NAMED = ("name", "options", "rehearse_packets", "rehearse_checks", "identity")
# The option identity by the variables of the inventory plugin nodes.
IDENTITY = {"name": "kubenode_name", "machine_id": "kubenode_machine_id", "system_uuid": "kubenode_system_uuid"}
CHECKS = "__kubenode_checks"  # the connections that a playbook checks


class Missing(jinja2.ChainableUndefined, jinja2.StrictUndefined):
    """A value that the result lacks. Where a report uses it without a default, that is an error, as in Ansible's templates."""

    @property
    def _undefined_message(self) -> str:
        return f"{self._undefined_name} is missing"


# Jinja2 itself renders the reports: Ansible's templates would take 50 to 120 ms for each node. What a node says is escaped, so
# that it cannot pretend to be another line.
ROLES = Path(__file__).parents[2] / "roles"
JINJA = jinja2.Environment(
    loader=jinja2.FileSystemLoader(ROLES),
    auto_reload=False,
    trim_blocks=True,
    undefined=Missing,
    finalize=lambda value: in_one_line(value) if isinstance(value, str) else value,
)
TEMPLATES = {path.parts[-3:]: JINJA.get_template("/".join(path.parts[-3:])) for path in ROLES.glob("*/templates/*_report.j2")}
REPORTS = {role: template for (role, _folder, name), template in TEMPLATES.items() if name == "profile_report.j2"}


class Call(t.NamedTuple):
    """A module to run on the node.

    change: the same as a change for datapath_rehearsal. packets: None without a rehearsal. audited: the role whose profile is
    audited; empty for none. profile: the name of a role's profile, and its variables by their names without the role's prefix.
    reported: the values of all variables for the report of the role; None without a report.
    """

    module: str
    arguments: dict[str, t.Any]
    change: dict[str, t.Any]
    packets: t.Sequence[t.Any] | None
    verdict: ModeVerdict | None
    audited: str = ""
    profile: t.Mapping[str, t.Any] = MappingProxyType({})
    reported: t.Mapping[str, t.Any] | None = None

    @property
    def is_image(self) -> bool:
        return bool(self.verdict and self.verdict.is_image)


class ActionModule(NodeAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        variables = task_vars or {}
        call: Call | None = None
        if "name" in self._task.args:
            call, errors = self._profile_call(variables)
            if errors:
                # Returned instead of raised, so that nothing precedes the variable's name.
                return {**result, "failed": True, "changed": False, "msg": printable("\n".join(errors))}
        call = call or self._composed(variables)
        return {**result, **self._reported(call, self._executed(call, variables), variables)}

    def _profile_call(self, variables: t.Mapping[str, t.Any]) -> tuple[Call | None, list[str]]:
        """Return the module of a role's profile, or the errors in its options."""
        arguments = self._task.args
        name = str(arguments["name"])
        if name not in _profiles.PROFILES:
            raise AnsibleActionFail(f"name must be one of {', '.join(_profiles.PROFILES)}; {name!r} was given")
        if extra := sorted({*arguments} - {*NAMED}):
            raise AnsibleActionFail(
                f"{', '.join(extra)} must be left out if name is given: what a role's profile takes is in options"
            )
        raw = arguments.get("options")
        if raw is None:
            values, errors = _profiles.check_variables(name, self, variables)
        elif isinstance(raw, t.Mapping):
            values, errors = _profiles.check_options(name, raw, self, variables)
        else:
            raise AnsibleActionFail(f"options must be a dictionary; {raw!r} was given")
        if errors:
            return None, errors
        verdict = self._verdict(values["mode"], variables)
        if raw is None and values["rehearse"] and CHECKS in variables:
            arguments = {"rehearse_checks": _vault.templated(self._templar, variables[CHECKS]), **arguments}
        further = self._packets(arguments, variables)
        packets = [*values["rehearse_packets"], *further] if values["rehearse"] else None
        options = {option: value for option, value in values.items() if option not in _profiles.CONTROLLER and value is not None}
        options["mode"] = verdict.mode if verdict else "auto"
        change = {"name": name, "options": options}
        module_arguments: dict[str, t.Any] = {**change, **self._identity(variables)}
        seconds, command = _profiles.PROFILES[name].checkpoint_of(values)
        if seconds:
            module_arguments.update(checkpoint=seconds, checkpoint_command=command)
        audited = name if values["audit"] and values["state"] != _profiles.PROFILES[name].UNDO else ""
        profile = {"profile": name, "variables": _profiles.reported(name, values, variables)}
        reported = values if raw is None and name in REPORTS else None
        return Call("kubenode.datapath.profile", module_arguments, change, packets, verdict, audited, profile, reported), []

    def _composed(self, variables: t.Mapping[str, t.Any]) -> Call:
        """Return the module for a list of modules."""
        arguments = {**self._task.args, **self._identity(variables)}
        verdict = self._verdict(str(arguments.get("mode", "auto")), variables)
        if verdict:
            arguments["mode"] = verdict.mode
        packets = self._packets(self._task.args, variables)
        for option in ("rehearse_packets", "rehearse_checks"):
            arguments.pop(option, None)
        is_rehearsed = _changes.is_true(arguments.pop("rehearse", False))
        change = {option: value for option, value in arguments.items() if option != "identity"}
        return Call("kubenode.datapath.profile", arguments, change, packets if is_rehearsed else None, verdict)

    def _identity(self, variables: t.Mapping[str, t.Any]) -> Result:
        """Return the option identity of the task, or the one that the inventory knows; empty without both."""
        given = {option: variables[name] for option, name in IDENTITY.items() if name in variables}
        identity = self._task.args.get("identity") or _vault.templated(self._templar, given)
        return {"identity": identity} if identity else {}

    def _packets(self, arguments: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any]) -> list[t.Any]:
        try:
            return _changes.packets(arguments, str(variables.get("inventory_hostname")))
        except Invalid as error:
            raise AnsibleActionFail(str(error)) from None

    def _verdict(self, mode: str, variables: t.Mapping[str, t.Any]) -> ModeVerdict | None:
        return node_mode.by_controller(mode, self._connection.transport, variables)

    def _executed(self, call: Call, variables: dict[str, t.Any]) -> Result:
        rehearsal: Result = {}
        if call.packets is not None:
            rehearsal = _changes.rehearsed(self, call.change, call.packets, variables)
            if rehearsal.get("failed"):
                return rehearsal
        result = self._audited(call, variables) if call.audited and not call.is_image else self._applied(call, variables)
        if rehearsal and not result.get("failed"):
            result["rehearsed"] = rehearsal["rehearsed"]
            result["warnings"] = [*rehearsal.get("warnings", ()), *result.get("warnings", ())]
        if not result.get("failed"):
            result.update(call.profile)
        # The callback prints the diff of equal nodes once. A program that reads stdout has it where Ansible has it.
        if "diff" in result and _report_callback.is_running() and _stdout.is_for_people():
            result["differences"] = result.pop("diff")
        if "reason" in result.get("node", ()):  # the answer of a failed module may have less
            reason, transport = result["node"]["reason"], self._connection.transport
            result["node"]["reason"] = call.verdict.reason if call.verdict else node_mode.with_transport(reason, transport)
        return result

    def _reported(self, call: Call, result: Result, variables: t.Mapping[str, t.Any]) -> Result:
        """Add the report of a role to the result of its profile, and print it, unless the callback does at the end of the run."""
        if call.reported is None or result.get("failed") or "summary" not in result:
            return result
        template = REPORTS[call.profile["profile"]]
        try:
            text = template.render(profile=result, options=call.reported, check_mode=self._task.check_mode)
        except (AttributeError, LookupError, TypeError, ValueError, jinja2.TemplateError) as error:
            reason = str(error) if isinstance(error, jinja2.UndefinedError) else "a value has another type"
            message = f"profile: the report of the role cannot be made of the answer of the node, in which {reason}"
            return {**result, "failed": True, "msg": message}
        if not _report_callback.is_running():
            _stdout.show(self, text.rstrip(), _stdout.heading(variables))
        return {**result, "report": text.splitlines()}

    def _audited(self, call: Call, variables: dict[str, t.Any]) -> Result:
        # Only for an audit, because Ansible compiles all that it imports of a collection for each run: two thirds of this action.
        from ansible_collections.kubenode.datapath.plugins.plugin_utils import _audits

        auditing = partial(_library.lend, self, task_vars=variables, module=_audits.MODULE)
        audits = _audits.Audits(call.audited, auditing)
        return audits.around(lambda: self._applied(call, variables), bool(self._task.check_mode))

    def _applied(self, call: Call, variables: dict[str, t.Any]) -> Result:
        carrying = partial(_library.execute, self, task_vars=variables, module=call.module)
        with _waits.Watch(self, str(variables.get("inventory_hostname"))):
            return _checkpoint.execute(self, carrying, call.arguments, not call.is_image)
