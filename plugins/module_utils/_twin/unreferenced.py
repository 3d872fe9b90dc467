# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules that lead packets to chains and verdict maps of a report to which none of its rules refers.

Who reports a loss pastes what is guilty, and seldom what refers to it.
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._ruleset import observed, references
from .._ruleset.ruleset import (
    DNAT,
    DROP,
    MASQUERADE,
    REDIRECT,
    REJECT,
    SNAT,
    Rule,
    Table,
)
from .._snapshot.values import Entry

HOOKS = ("prerouting", "input", "forward", "output", "postrouting")
_NAMED = re.compile(rf"(?:.*[-_])?({'|'.join(HOOKS)})", re.IGNORECASE)
_AT_START, _AT_END = (DNAT, REDIRECT), (SNAT, MASQUERADE)
_OF_TRANSLATION = {_AT_START: ("prerouting", "output"), _AT_END: ("postrouting",)}
_PRIORITIES = {_AT_START: -100, _AT_END: 100}  # of chains of nat (include/uapi/linux/netfilter_ipv4.h, NF_IP_PRI_NAT_*)
_ENDS = (("ip saddr", "ip6 saddr"), ("ip daddr", "ip6 daddr"))
_FILTERING = ("input", "forward", "output")


class Referred(t.NamedTuple):
    """snapshot: with rules that lead all packets to a chain, or look them up in a map. where: words about an element of a map
    that the packet meets then."""

    snapshot: dict[str, t.Any]
    where: str = ""


def referring(snapshot: Entry, place: tuple[str, str], name: str, ends: t.Sequence[str]) -> Referred | None:
    """Return what lets packets come to a chain or a map; None if nothing there can stop or translate a packet between two
    addresses, or its reply, or if no element of the map is for the address to which the packet goes.

    place: family and name of the table, of iptables or of nft. ends: an empty one may be any address.
    """
    for table in (each for each in observed.of_iptables(snapshot) if (each.family, each.name) == place and name in each.chains):
        rules = [rule for rule in table.walk(name) if _decides(rule) and _may_meet(rule, ends)]
        return Referred(_with_jumps(snapshot, place, name, _hooks(name, rules))) if rules else None
    for table in (each for each in observed.of_nft(snapshot) if (each.family, each.name) == place):
        if name in table.chains:
            rules = [rule for rule in table.walk(name) if _decides(rule) and _may_meet(rule, ends)]
            changed = _with_base_chains(snapshot, table, f"jump {name}", _hooks(name, rules), rules) if rules else None
            return Referred(changed) if changed else None
        elements = [each for each in table.sets.get(name, ()) if each.statement and each.statement.kind in (DROP, REJECT)]
        met = [each for each in elements if _is_of(each.key, ends)]
        if met:
            changed = _with_base_chains(snapshot, table, f"{references.lookup(elements)} vmap @{name}", _FILTERING, ())
            shown = [f", which has {' . '.join(each.key)} : {each.statement.kind}" for each in met if each.statement]
            return Referred(changed, shown[0] if len(shown) == 1 else "")
    return None


def _decides(rule: Rule) -> bool:
    return any(each.kind in (DROP, REJECT, *_AT_START, *_AT_END) for each in rule.statements)


def _may_meet(rule: Rule, ends: t.Sequence[str]) -> bool:
    """Return whether the addresses of a rule may be those of a packet or of its reply."""
    named = [(place, match) for match in rule.matches for place, pair in enumerate(_ENDS) if match.field in pair]
    return any(
        all(
            match.is_negated or not order[place] or any(_holds(value, order[place]) for value in match.values)
            for place, match in named
        )
        for order in (ends, ends[::-1])
    )


def _holds(prefix: str, address: str) -> bool:
    """Return whether an address is in a prefix; also for what is none, such as the name of a set."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(prefix, strict=False)
    except ValueError:
        return True


def _hooks(name: str, rules: t.Iterable[Rule]) -> t.Sequence[str]:
    """Return the hooks that may lead to a chain: the one in its name, or all that permit what its rules do."""
    named = _NAMED.fullmatch(name)
    if named:
        return (named[1].lower(),)
    kinds = {each.kind for rule in rules for each in rule.statements}
    return next((hooks for verbs, hooks in _OF_TRANSLATION.items() if not kinds.isdisjoint(verbs)), _FILTERING)


def _with_jumps(snapshot: Entry, place: tuple[str, str], name: str, hooks: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the snapshot with jumps before all other rules of chains of iptables."""
    tables = [dict(entry) for entry in snapshot["iptables"]]
    chains = [hook.upper() for hook in hooks]
    for entry in (each for each in tables if (each.get("family"), each.get("table")) == place):
        head, _line, others = str(entry["save"]).partition("\n")
        declared = "".join(f":{chain} ACCEPT [0:0]\n" for chain in chains if f"\n:{chain} " not in f"\n{others}")
        entry["save"] = before_others(f"{head}\n{declared}{others}", [f"-A {chain} -j {name}" for chain in chains])
    return {**snapshot, "iptables": tables}


def before_others(save: str, rules: t.Sequence[str]) -> str:
    """Return a table as iptables-save prints it, with rules before all others."""
    head, dash, others = save.partition("\n-A ")
    added = "".join(f"{rule}\n" for rule in rules)
    return f"{head}\n{added}-A {others}" if dash else head.replace("COMMIT", f"{added}COMMIT")


def _with_base_chains(
    snapshot: Entry, table: Table, statement: str, hooks: t.Iterable[str], rules: t.Iterable[Rule]
) -> dict[str, t.Any]:
    kinds = {each.kind for rule in rules for each in rule.statements}
    priority = next((number for verbs, number in _PRIORITIES.items() if not kinds.isdisjoint(verbs)), None)
    kind = "filter" if priority is None else "nat"
    blocks = [
        f"chain reached-at-{hook} {{ type {kind} hook {hook} priority {priority or 0}; policy accept; {statement}; }}"
        for hook in hooks
    ]
    text = "\n".join([str(snapshot.get("nftables_text") or ""), f"table {table} {{", *blocks, "}", ""])
    return {**snapshot, "nftables_text": text}


def _is_of(key: t.Sequence[str], ends: t.Sequence[str]) -> bool:
    """Return whether the addresses in a key are those to which a packet may go."""
    addresses = [part for part in key if references.field(part).endswith("daddr")]
    return all(not end or _holds(address, end) for address in addresses for end in ends[1:])
