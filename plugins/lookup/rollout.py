# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rollout
short_description: The hosts, the batches and the name of a play of this collection's playbooks
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - For the playbooks of this collection, which use it in the keywords C(name), C(hosts) and C(serial) of their play. Ansible
    evaluates these before it connects to the first host.
  - A run ends with an error, and no host is touched, if an extra variable looks like a variable of the playbook and is none, if
    a variable has a value that cannot be used, or if no host of the inventory matches.
options:
  _terms:
    description:
      - V(hosts) is the pattern of the hosts, V(batches) the value for C(serial), and V(summary) what the run will touch, such as
        V(3 of 3 nodes (pattern nodes\), batches 1, 25 %, present).
    type: list
    elements: str
    choices: [hosts, batches, summary]
    required: true
  playbook:
    description: The name of the playbook, which for a profile is the name of the profile.
    type: str
    required: true
seealso:
  - plugin: kubenode.datapath.batches
    plugin_type: filter
"""

EXAMPLES = r"""
- name: "Audit {{ lookup('kubenode.datapath.rollout', 'summary', playbook='audit') }}"
  hosts: "{{ lookup('kubenode.datapath.rollout', 'hosts', playbook='audit') }}"
"""

RETURN = r"""
_value:
  description: One value for each term.
  type: list
  elements: raw
"""

import re
import typing as t

import yaml
from ansible import context
from ansible.errors import AnsibleError, AnsibleLookupError, AnsibleUndefinedVariable
from ansible.inventory.manager import InventoryManager
from ansible.plugins.lookup import LookupBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit import context as audit_context
from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.plugin_utils import (
    _batches,
    _connection_checks,
    _playbook_variables,
    _profiles,
    _report_callback,
    _vault,
)

CONTEXT = Option("dict", entries=audit_context.OPTIONS)
LOCAL = {"audit": "audit_bundles", "trace": "trace_dump"}  # the variable with which no node is read
OURS = "kubenode.datapath."  # before the names of the collection's playbooks
OF_ANSIBLE = ("all", "always", "never", "tagged", "untagged")  # tags that each playbook has
TERMS = ("hosts", "batches", "summary")


class Rollout(t.NamedTuple):
    """pattern: of the hosts. selected, total: numbers of hosts. batches: for serial. state: of the profile; empty without one."""

    pattern: str
    selected: int
    total: int
    batches: list[str]
    state: str

    def summary(self) -> str:
        limit = f", limit {context.CLIARGS['subset']}" if context.CLIARGS.get("subset") else ""
        nodes = f"{self.selected} of {self.total} node{'s' * (self.total != 1)} (pattern {self.pattern}{limit})"
        return printable(", ".join(filter(None, (nodes, self._batches(), self.state))))

    def _batches(self) -> str:
        if context.CLIARGS.get("check"):
            return "one batch, because of check mode" if self.batches else "check mode"
        return f"batches {_batches.text(self.batches)}" if self.batches else ""


class LookupModule(LookupBase):
    def run(self, terms: list[t.Any], variables: t.Any = None, playbook: str = "", **kwargs: t.Any) -> list[t.Any]:
        if unknown := [str(term) for term in terms if term not in TERMS]:
            raise AnsibleLookupError(f"rollout: the terms are {', '.join(TERMS)}; {', '.join(unknown)} was given")
        if context.CLIARGS.get("syntax"):  # which needs no inventory
            return [{"hosts": "all", "batches": ["100%"], "summary": ""}[term] for term in terms]
        _check_tags()
        self._names = _playbook_variables.names(playbook)
        extra = load_extra_vars(self._loader)
        if sentences := _playbook_variables.unknown(playbook, extra):
            raise _refused(*sentences)
        rollout = self._rollout(playbook, variables, extra)
        values = {"hosts": rollout.pattern, "batches": rollout.batches or ["100%"], "summary": rollout.summary()}
        return [values[term] for term in terms]

    def _rollout(self, playbook: str, variables: t.Mapping[str, t.Any], extra: t.Container[str]) -> Rollout:
        values = {name: self._value(name, variables) for name in self._names}
        if values["kubenode_report"] and not _report_callback.is_enabled():
            raise _refused(
                f"kubenode_report is {values['kubenode_report']}, and the callback that writes it is not enabled. Set"
                f" callbacks_enabled to {_report_callback.NAME} in ansible.cfg, or ANSIBLE_CALLBACKS_ENABLED in the environment."
            )
        _check_audit(values)
        if LOCAL.get(playbook) in variables:
            return Rollout("localhost", 1, 1, [], "")
        pattern = _pattern(values["kubenode_target"])
        every = {host for hosts in variables["groups"].values() for host in hosts}
        selected = self._matching(pattern, variables["groups"])
        if not selected:
            raise _refused(_no_hosts(pattern, len(every)))
        if playbook not in _profiles.PROFILES:
            return Rollout(pattern, len(selected), len({*every, *selected}), [], "")
        batches = _sizes(values, len(selected), every)
        return Rollout(pattern, len(selected), len({*every, *selected}), batches, self._state(playbook, variables, extra))

    def _value(self, name: str, variables: t.Mapping[str, t.Any]) -> t.Any:
        """Return a variable of the play; None if it needs a variable of a node. Raises AnsibleLookupError."""
        try:
            return _vault.templated(self._templar, variables.get(name))
        except AnsibleError as error:
            if isinstance(error, AnsibleUndefinedVariable) and name in _playbook_variables.OF_NODE:
                return None
            raise _refused(f"{name} must have a value that can be computed: {error}.") from None

    def _state(self, playbook: str, variables: t.Mapping[str, t.Any], extra: t.Container[str]) -> str:
        """Return the state of the profile. The variables of the hosts are not known before the play."""
        name = f"{playbook}_state"
        try:
            value = _vault.templated(self._templar, variables.get(name))
        except AnsibleError:
            return f"{name} of each node"
        default = _profiles.options_of(playbook)["state"].default
        if name in extra or value not in (None, default):
            return str(value)
        return f"{default} unless the inventory says otherwise"  # the default of the role is a variable of the play, too

    def _matching(self, pattern: str, groups: t.Mapping[str, t.Sequence[str]]) -> list[str]:
        manager = InventoryManager(self._loader, parse=False)
        for group, hosts in groups.items():
            manager.add_group(group)
            for host in hosts:
                manager.add_host(host, group=group)
        manager.subset(context.CLIARGS.get("subset"))
        return [host.name for host in manager.get_hosts(pattern)]


def _check_audit(values: t.Mapping[str, t.Any]) -> None:
    """Check the variables of an audit that are options of its module. Raises AnsibleLookupError."""
    checks, facts = values.get("audit_checks"), _parsed(values.get("audit_context"))
    try:
        catalogue.chosen(checks.split(",") if isinstance(checks, str) else checks)
        if facts is not None:
            audit_context.Context.from_options(option.typed("context", CONTEXT, facts))
    except Invalid as error:
        raise _refused(f"audit_{error}.") from None


def _parsed(value: t.Any) -> t.Any:
    """Return a dictionary that is given as text, as the playbook reads it."""
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError:
        return value


def _check_tags() -> None:
    """Refuse tags that select no task of the collection's playbooks. Raises AnsibleLookupError.

    A playbook that imports one of these may have further tags.
    """
    places = context.CLIARGS.get("args") or ()
    started = [re.sub(r"\.ya?ml$", "", place).rpartition("/")[2].removeprefix(OURS) for place in places]
    tags = {*(context.CLIARGS.get("tags") or ())} - {*OF_ANSIBLE}
    if not tags or not {*started}.issubset((*LOCAL, *_profiles.PROFILES)):
        return
    of_profiles = [name for name in started if name in _profiles.PROFILES]
    if tags.isdisjoint(of_profiles):
        has = f"its tags are {', '.join(of_profiles)}" if of_profiles else "it has no tags"
        raise _refused(f"--tags {','.join(sorted(tags))} selects no task of {', '.join(started)}: {has}.")


def _pattern(target: t.Any) -> str:
    """Return the pattern of the hosts. Raises AnsibleLookupError for an empty one, such as an unset variable of a shell."""
    if target is None:
        return "nodes"
    pattern = ",".join(map(str, target)) if isinstance(target, (list, tuple)) else str(target)
    if not pattern.strip():
        raise _refused("kubenode_target must be a pattern of hosts; it is empty.")
    return pattern


def _sizes(values: t.Mapping[str, t.Any], total: int, hosts: t.Collection[str]) -> list[str]:
    """Return the batches of a rollout, whose variables are checked. Raises AnsibleLookupError."""
    try:
        _connection_checks.read(values["kubenode_checks"], hosts)
        _playbook_variables.typed("kubenode_checks_timeout", values["kubenode_checks_timeout"])
        may_lose = _playbook_variables.lost_percentage(values["kubenode_max_failed_percentage"]) > 0
        batches = _batches.parse(values["kubenode_batches"] or _batches.DEFAULT, "kubenode_batches")
    except (Invalid, _batches.Unusable) as error:
        raise _refused(f"{error}.") from None
    if context.CLIARGS.get("check"):
        return ["100%"]
    if may_lose and not values["kubenode_batches"]:
        return _batches.in_pairs(batches, total)
    if may_lose and (number := _batches.lonely(batches, total)):
        raise _refused(
            f"kubenode_max_failed_percentage needs batches of two nodes or more: batch {number} of kubenode_batches has one"
            " node, and Ansible ends a run in which all nodes of a batch are lost."
        )
    return batches


def _no_hosts(pattern: str, total: int) -> str:
    if not total:
        return "The inventory has no hosts. The warnings above say which of its sources could not be read."
    limit = f" within --limit {context.CLIARGS['subset']}" if context.CLIARGS.get("subset") else ""
    return f"kubenode_target is {pattern}, and of the {total} hosts of the inventory none matches{limit}."


def _refused(*sentences: str) -> AnsibleLookupError:
    return AnsibleLookupError(printable("\n".join([*sentences, "Nothing was changed."])))
