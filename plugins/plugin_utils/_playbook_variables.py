# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The public variables of the playbooks, and the check of a run's extra variables against them."""

from __future__ import annotations

import difflib
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option, Options
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles

PREFIX = "kubenode_"
NEAR = 0.82  # of difflib: "batch" is near "batches", and "port" is not near "report"


def _port(value: t.Any, is_applied: bool) -> None:
    for number, check in enumerate(value):
        option.within(f"{PREFIX}checks[{number}].port", 1, 65535)(check["port"], is_applied)


def _percentage(value: t.Any, is_applied: bool) -> None:
    option.within(f"{PREFIX}max_failed_percentage", 0, 100)(value.removesuffix("%"), is_applied)


ROLLOUT: Options = {
    f"{PREFIX}target": Option("str", "nodes"),
    f"{PREFIX}batches": Option("list", elements="str", is_words=True),
    f"{PREFIX}max_failed_percentage": Option("str", "0", check=_percentage),
    f"{PREFIX}checks": Option(
        "list",
        [],
        elements="dict",
        entries={
            "address": Option("str", is_required=True),
            "port": Option("int", is_required=True),
            "from": Option("str"),
            "before": Option("bool"),
        },
        check=_port,
    ),
    f"{PREFIX}checks_timeout": Option("int", 10, check=option.within("kubenode_checks_timeout", 0, 86400)),
    f"{PREFIX}report": Option("path"),
}
# That the inventory may set for a node, and that may need a variable of a node.
OF_NODE = (f"{PREFIX}checks", f"{PREFIX}checks_timeout", f"{PREFIX}max_failed_percentage")
COMMON = (f"{PREFIX}target", f"{PREFIX}report")
# The modules check the values of these. The variables of a rollout are checked here.
NAMES: dict[str, tuple[str, ...]] = {
    "audit": (
        *(*COMMON, "audit_folder", "audit_earlier", "audit_bundles", "audit_on_controller", "audit_print"),
        *("audit_checks", "audit_prove", "audit_context", "audit_assume"),
    ),
    "trace": (
        *(*COMMON, "trace_packet", "trace_dump", "trace_node", "trace_on_controller", "trace_text", "trace_html"),
        *("trace_mermaid", "trace_print", "trace_assume", "trace_changes", "trace_commands", "trace_reply"),
        *("trace_finding", "trace_context", "trace_earlier"),
    ),
}


def names(playbook: str) -> tuple[str, ...]:
    """Return the public variables of a playbook. A profile's playbook, which has its name, has those of a rollout."""
    return NAMES.get(playbook, tuple(ROLLOUT))


def _of_role(playbook: str) -> list[str]:
    return [f"{playbook}_{name}" for name in _profiles.options_of(playbook)] if playbook in _profiles.PROFILES else []


def unknown(playbook: str, extra: t.Iterable[t.Any]) -> list[str]:
    """Return a sentence for each extra variable that looks like a variable of the playbook and is none.

    Those of the other playbooks pass, because a playbook that imports several has one set of extra variables.
    """
    public = {name for other in (*NAMES, *_profiles.PROFILES) for name in (*names(other), *_of_role(other))}
    variables = [*names(playbook), *_of_role(playbook)]
    prefixes = (PREFIX, f"{playbook}_")
    # A key of YAML may be a number.
    sentences = (_sentence(name, variables, prefixes) for name in sorted({*map(str, extra)} - public))
    return [sentence for sentence in sentences if sentence]


def _sentence(name: str, variables: t.Sequence[str], prefixes: tuple[str, ...]) -> str:
    """Compare with and without the prefix, which a name that is typed from memory may lack."""
    full = {text: name for name in variables for text in (name, name.removeprefix(PREFIX))}
    near = difflib.get_close_matches(name, full, n=1, cutoff=NEAR)
    if not near and not name.startswith(prefixes):
        return ""
    closest = near or difflib.get_close_matches(name, full, n=1, cutoff=0)
    return f"{name} is not a variable of this playbook. Did you mean {full[closest[0]]}?"


def typed(name: str, raw: t.Any) -> t.Any:
    """Return the value of a rollout's variable with its type, or its default for None. Raises Invalid."""
    values, errors = option.read({name: ROLLOUT[name]}, {name: raw}, undo="")
    if errors:
        raise errors[0]
    return values[name]


def lost_percentage(raw: t.Any) -> float:
    """Return the percentage of nodes that may be lost. Raises Invalid."""
    return float(typed(f"{PREFIX}max_failed_percentage", raw).removesuffix("%"))
