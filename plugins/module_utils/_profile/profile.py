# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A profile: modules with their options, in the order in which it is safe to apply them.

An option may be a reference, ``{"node": NAME}``, which the run replaces by a fact of the node.
"""

from __future__ import annotations

import typing as t

from .._core.errors import Invalid

COLLECTION = "kubenode.datapath."
REFERENCE = "node"

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

WAYS_BACK = {"ebtables_cleanup": "restored"}  # the state that undoes the module, if it is not absent
INTERFACES = {
    "rp_filter": "interfaces",
    "nftables_connmark": "primary_interface",
    "nftables_probe_snat": "interface",
}
PATTERN = frozenset("*?[")
WITHOUT_A_WAY_BACK = ("azure_vnet_bridge",)


class Entry(t.NamedTuple):
    """option: where it stands in the list, for errors. options: as they were given, for the module's argument spec."""

    option: str
    module: str
    options: dict[str, t.Any]

    @property
    def undoes(self) -> bool:
        """Whether the module undoes its earlier changes."""
        return bool(self.options.get("state") == WAYS_BACK.get(self.module, "absent"))

    @property
    def tightens(self) -> bool:
        return bool(self.module == "rp_filter" and self.options.get("mode") == "strict")

    @property
    def loosens(self) -> bool:
        """Whether the module undoes strict reverse-path filtering, or sets another mode."""
        return self.module == "rp_filter" and (self.undoes or not self.tightens)

    @property
    def rank(self) -> int:
        return ORDER.index(TIGHTENED if self.tightens else self.module)


def entries(given: t.Sequence[object], option: str = "modules") -> list[Entry]:
    """The entries of the option ``modules``. Raises Invalid."""
    found: list[Entry] = []
    for number, one in enumerate(given):
        at = f"{option}[{number}]"
        if one == {}:
            continue
        if not isinstance(one, dict) or len(one) != 1:
            raise Invalid(at, one, "a dictionary with one key, the name of a module, whose value are the module's options")
        ((name, options),) = one.items()
        module = str(name).removeprefix(COLLECTION)
        if module not in MODULES:
            raise Invalid(at, name, f"one of {', '.join(sorted(MODULES))}")
        if any(other.module == module for other in found):
            raise Invalid(at, name, "another module: a profile has each module at most once")
        if not isinstance(options or {}, dict):
            raise Invalid(f"{at}.{module}", options, "a dictionary of the module's options")
        found.append(Entry(at, module, dict(options or {})))
    if not found:
        raise Invalid(option, given, "a list of at least one module")
    return found


def undoing(found: t.Iterable[Entry]) -> list[Entry]:
    """The entries that undo the whole profile, without references. Raises Invalid."""
    for entry in found:
        if entry.module in WITHOUT_A_WAY_BACK:
            raise Invalid(entry.option, entry.module, "left out if state is absent: its change cannot be undone")
    return [
        entry._replace(
            options={
                **{name: value for name, value in entry.options.items() if not _refers(value)},
                "state": WAYS_BACK.get(entry.module, "absent"),
            }
        )
        for entry in found
    ]


def learned(found: t.Iterable[Entry], known: t.Mapping[str, t.Any]) -> list[Entry]:
    """The entries with the facts in ``known`` in place of the references. Raises Invalid.

    If the fact is None, the option is left out. For ``state``, true means present, and false absent.
    """
    return [entry._replace(options=dict(_options(entry, known))) for entry in found]


def ordered(found: t.Iterable[Entry]) -> list[Entry]:
    """The entries in the order in which they are applied."""
    ranked = sorted(found, key=lambda entry: entry.rank)
    return [one for one in ranked if not one.undoes] + [one for one in reversed(ranked) if one.undoes]


def interfaces(module: str, options: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The names of interfaces in a module's options, by option. Patterns are left out, and links of pods, which come and go."""
    option = INTERFACES.get(module, "")
    given = options.get(option)
    if isinstance(given, list):
        named = {f"{option}[{number}]": one for number, one in enumerate(given)}
    else:
        named = {option: given} if given else {}
    return {where: name for where, name in named.items() if not PATTERN.intersection(name)}


def _refers(value: object) -> bool:
    """Whether a value is a reference or contains one."""
    if isinstance(value, dict):
        return list(value) == [REFERENCE] or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _options(entry: Entry, known: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, t.Any]]:
    for name, given in entry.options.items():
        value = _value(f"{entry.option}.{entry.module}.{name}", given, known)
        if name == "state" and isinstance(value, bool):
            value = "present" if value else "absent"
        if value is not None:
            yield name, value


def _value(option: str, given: object, known: t.Mapping[str, t.Any]) -> t.Any:
    if isinstance(given, list):
        return [_value(f"{option}[{number}]", one, known) for number, one in enumerate(given)]
    if not isinstance(given, dict):
        return given
    if list(given) != [REFERENCE]:
        return {key: _value(f"{option}.{key}", one, known) for key, one in given.items()}
    if given[REFERENCE] not in known:
        raise Invalid(f"{option}.{REFERENCE}", given[REFERENCE], f"one of {', '.join(sorted(known))}")
    return known[given[REFERENCE]]
