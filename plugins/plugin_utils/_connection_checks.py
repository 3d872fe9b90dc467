# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connections that a rollout checks before the change of a node and after it."""

from __future__ import annotations

import typing as t

import yaml
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_answer, _playbook_variables, _vault

Result = dict[str, t.Any]
NAME = "kubenode_checks"
BEFORE, AFTER = "before", "after"
_SHOWN = {"_ansible_verbose_always": True}  # Ansible prints the result, which says more than "ok"
PATIENCE = 2  # seconds to wait for a connection before the change


def read(value: t.Any, hosts: t.Collection[str]) -> list[Result]:
    """Return the checks from kubenode_checks. hosts: those of the inventory. Raises Invalid."""
    checks: list[Result] = _playbook_variables.typed(NAME, _parsed(value) or None)
    for number, check in enumerate(checks):
        if check.get("from", "localhost") not in {*hosts, "localhost"}:
            raise Invalid(f"{NAME}[{number}].from", check["from"], "a host of the inventory, or localhost")
    return checks


def _parsed(value: t.Any) -> t.Any:
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


def variable(action: ActionBase, name: str, variables: Result) -> t.Any:
    """Return a rollout's variable of the node. Raises Invalid."""
    return _playbook_variables.typed(name, _vault.templated(action._templar, variables.get(name)))


class Before(t.NamedTuple):
    """The checks that were answered before the change, and those that were not; neither has one that was not made."""

    answered: t.Container[Result] = ()
    silent: t.Container[Result] = ()


NO_CHECK = Before()


def connected(action: ActionBase, moment: str, check: Result, variables: Result, before: Before = NO_CHECK) -> Result:
    """Connect from the host that the task is delegated to, and return the task's result.

    check: with the keys of kubenode_checks.
    """
    timeout = PATIENCE if moment == BEFORE else variable(action, "kubenode_checks_timeout", variables)
    options = {"host": check["address"], "port": check["port"], "timeout": timeout}
    reply: Result = _node_answer.run(action, variables, options, _node_answer.WAIT_FOR)
    if "elapsed" not in reply:  # no connection was tried
        return reply
    answers = not reply.get("failed")
    result = {"changed": False, "moment": moment, "connection": check, "answers": answers}
    if moment == BEFORE and not answers and not check.get("before"):
        return {**result, "msg": "no answer before the change", **_SHOWN}
    if answers:
        return {
            **result,
            **({"msg": "an answer after the change, and none before it", **_SHOWN} if check in before.silent else {}),
        }
    source = check.get("from", variables.get("inventory_hostname"))
    lost = ", and did before the change" * (check in before.answered) + ", nor did it before the change" * (
        check in before.silent
    )
    nothing = " Nothing was changed." * (moment == BEFORE)
    sentence = f"{check['address']} port {check['port']} accepts no connection from {source}{lost}.{nothing}"
    return {**result, "failed": True, "msg": sentence}
