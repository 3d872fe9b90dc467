# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A composition: modules with their options as a playbook lists them, in the order in which it is safe to apply them."""

from __future__ import annotations

import typing as t

from .._core.errors import Invalid
from .._core.option import Options, Values

COLLECTION = "kubenode.datapath."
Step = tuple[str, dict[str, t.Any]]  # a module, and its options for the module's argument spec

# The order in which the modules are applied. Modules that undo their changes follow in the reverse order.
# Network daemons come first, so that they do not remove the rules that follow; a table needs nft. A filter is loosened before the
# kernel routes replies differently, and tightened once replies are marked.
TIGHTENED = "rp_filter strict"
ORDER = (
    "network_daemons",
    "nftables_package",
    "rp_filter",
    "link_addresses",
    "policy_routes",
    "nftables_connmark",
    "nftables_probe_snat",
    TIGHTENED,
    "ebtables_cleanup",
    "azure_vnet_bridge",
)
MODULES = tuple(name for name in ORDER if name != TIGHTENED)

UNDO = {"ebtables_cleanup": "restored"}  # the state in which the module undoes its changes, if it is not absent
INTERFACES = {
    "rp_filter": "interfaces",
    "nftables_connmark": "primary_interface",
    "nftables_probe_snat": "interface",
}
PATTERN = frozenset("*?[")
WITHOUT_UNDO = ("azure_vnet_bridge",)


class Facts(t.Protocol):
    """What the plan of a profile depends on, besides the options."""

    def report(self) -> dict[str, t.Any]: ...

    def warnings(self) -> list[str]: ...


class Model(t.Protocol):
    """A pure file of _profiles."""

    OPTIONS: Options
    UNDO: str

    def checkpoint_of(self, options: Values) -> tuple[int, str]:
        """Return the seconds and the command of the checkpoint."""

    def conflicts(self, options: Values, is_image: bool | None) -> t.Iterable[str]:
        """Return a sentence for each requirement on several options that they do not meet. Raises Invalid."""

    def facts(self, options: Values, observed: t.Any) -> t.Any:
        """Return the Facts, from an observation of the node. Raises Invalid."""

    def plan(self, options: Values, facts: t.Any) -> list[Step]:
        """Return the modules with their options, in the order in which they are applied."""


def steps(entries: t.Sequence[object], place: str = "modules") -> list[Step]:
    """Return the modules of the option ``modules``. Raises Invalid."""
    listed: list[Step] = []
    for number, entry in enumerate(entries):
        at = f"{place}[{number}]"
        if entry == {}:
            continue
        if not isinstance(entry, dict) or len(entry) != 1:
            raise Invalid(at, entry, "a dictionary with one key, the name of a module, whose value are the module's options")
        ((name, options),) = entry.items()
        module = str(name).removeprefix(COLLECTION)
        if module not in MODULES:
            raise Invalid(at, name, f"one of {', '.join(sorted(MODULES))}")
        if any(module == other for other, _options in listed):
            raise Invalid(at, name, "another module: a profile has each module at most once")
        if not isinstance(options or {}, dict):
            raise Invalid(f"{at}.{module}", options, "a dictionary of the module's options")
        for option in ("checkpoint", "checkpoint_command"):
            if option in (options or {}):
                raise Invalid(f"{at}.{module}.{option}", options[option], f"left out: set the profile's {option}")
        listed.append((module, dict(options or {})))
    if not listed:
        raise Invalid(place, entries, "a list of at least one module")
    return listed


def undoing(listed: t.Iterable[Step]) -> list[Step]:
    """Return the modules, each in the state in which it undoes its changes. Raises Invalid."""
    undone = []
    for module, options in listed:
        if module in WITHOUT_UNDO:
            raise Invalid("modules", module, "left out if state is absent: its change cannot be undone")
        undone.append((module, {**options, "state": UNDO.get(module, "absent")}))
    return undone


def undoes(module: str, options: t.Mapping[str, t.Any]) -> bool:
    """Return whether the module undoes its earlier changes."""
    return module not in WITHOUT_UNDO and options.get("state") == UNDO.get(module, "absent")


def ordered(listed: t.Iterable[Step]) -> list[Step]:
    """Return the modules in the order in which they are applied."""
    ranked = sorted(listed, key=_rank)
    return [step for step in ranked if not undoes(*step)] + [step for step in reversed(ranked) if undoes(*step)]


def _rank(step: Step) -> int:
    module, options = step
    return ORDER.index(TIGHTENED if module == "rp_filter" and options.get("mode") == "strict" else module)


def interfaces(module: str, options: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return the names of interfaces in a module's options, by option.

    Patterns are left out, and links of pods, which come and go.
    """
    option = INTERFACES.get(module, "")
    value = options.get(option)
    if isinstance(value, list):
        places = {f"{option}[{number}]": name for number, name in enumerate(value)}
    else:
        places = {option: value} if value else {}
    return {place: name for place, name in places.items() if not PATTERN.intersection(name)}
