# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules that lead packets to chains and verdict maps of a report to which none of its rules refers.

Who reports a loss pastes what is guilty, and seldom what refers to it.
"""

from __future__ import annotations

import re
import typing as t

from .._ruleset import ruleset
from .._ruleset.ruleset import BaseChain, Rule, Statement, Table
from .._snapshot.values import Snapshot, network

Change = t.Callable[[Snapshot], Snapshot]
HOOKS = ("prerouting", "input", "forward", "output", "postrouting")
_NAMED = re.compile(rf"(?:.*[-_])?({'|'.join(HOOKS)})", re.IGNORECASE)
_AT_START, _AT_END = (ruleset.DNAT, ruleset.REDIRECT), (ruleset.SNAT, ruleset.MASQUERADE)
_OF_TRANSLATION = {_AT_START: ("prerouting", "output"), _AT_END: ("postrouting",)}
_PRIORITIES = {_AT_START: -100, _AT_END: 100}  # of chains of nat (include/uapi/linux/netfilter_ipv4.h, NF_IP_PRI_NAT_*)
_STOPPING = (ruleset.DROP, ruleset.REJECT)
_ENDS = (("ip saddr", "ip6 saddr"), ("ip daddr", "ip6 daddr"))
_FILTERING = ("input", "forward", "output")
_DROP_MARK = 0x8000  # of kube-proxy's KUBE-MARK-DROP


class Referred(t.NamedTuple):
    """change: adds rules that lead all packets to a chain, or look them up in a map. where: words about an element of a map that
    the packet meets then."""

    change: Change
    where: str = ""


def referring(
    snapshot: Snapshot, place: tuple[str, str], name: str, ends: t.Sequence[str], comes_in: bool = False
) -> Referred | None:
    """Return what lets packets come to a chain or a map; None if nothing there can stop or translate a packet between two
    addresses, or its reply, or if no element of the map is for the address to which the packet goes.

    place: family and name of the table, of iptables or of nft. ends: an empty one may be any address. comes_in: whether the
    packet does, so that a chain for it does not stop the error that the node sends back.
    """
    tables = (table for table in snapshot.tables() if (table.family, table.name) == place)
    for table in (table for table in tables if name in table.chains or table.program == ruleset.NFT):
        if name in table.chains:
            rules = [rule for rule in table.walk(name) if _decides(rule) and _may_meet(rule, ends)]
            hooks = [hook for hook in _hooks(name, rules) if not comes_in or hook != "output"] or ["output"]
            is_nft = table.program == ruleset.NFT
            added = _base_chains(table, f"jump {name}", hooks, rules) if is_nft else _jumps(table, name, hooks)
            return Referred(added) if rules else None
        elements = [each for each in table.sets.get(name, ()) if each.statement and each.statement.kind in _STOPPING]
        met = [each for each in elements if _is_of(each.key, ends)]
        if met:
            words = [f", which has {' . '.join(each.key)} : {each.statement.kind}" for each in met if each.statement]
            statement = f"{ruleset.looked_up(elements)} vmap @{name}"
            return Referred(_base_chains(table, statement, _FILTERING, ()), words[0] if len(words) == 1 else "")
    return None


def _decides(rule: Rule) -> bool:
    kinds = (*_STOPPING, *_AT_START, *_AT_END)
    return any(each.kind in kinds or _marks_for_a_drop(each) for each in rule.statements)


def _marks_for_a_drop(statement: Statement) -> bool:
    """Return whether a statement gives a packet the mark by which kube-proxy has it dropped in a further chain."""
    return statement.bits is not None and statement.bits.constant == _DROP_MARK


def _may_meet(rule: Rule, ends: t.Sequence[str]) -> bool:
    """Return whether the addresses of a rule may be those of a packet or of its reply."""
    of_ends = [(place, match) for match in rule.matches for place, pair in enumerate(_ENDS) if match.field in pair]
    return any(
        all(
            match.is_negated or not order[place] or any(_holds(value, order[place]) for value in match.values)
            for place, match in of_ends
        )
        for order in (ends, ends[::-1])
    )


def _holds(prefix: str, address: str) -> bool:
    """Return whether an address is in a prefix; also for what is none, such as the name of a set."""
    within, host = network(prefix), network(address)
    return within is None or host is None or host.network_address in within


def _hooks(name: str, rules: t.Iterable[Rule]) -> t.Sequence[str]:
    """Return the hooks that may lead to a chain: the one in its name, or all that permit what its rules do."""
    match = _NAMED.fullmatch(name)
    if match:
        return (match[1].lower(),)
    statements = [each for rule in rules for each in rule.statements]
    kinds = {each.kind for each in statements}
    usual = _OF_TRANSLATION[_AT_START] if any(map(_marks_for_a_drop, statements)) else _FILTERING
    return next((hooks for verbs, hooks in _OF_TRANSLATION.items() if not kinds.isdisjoint(verbs)), usual)


def _jumps(table: Table, name: str, hooks: t.Sequence[str]) -> Change:
    """Return what adds jumps before all other rules of chains of iptables."""
    rules = [f"-A {hook.upper()} -j {name}" for hook in hooks]
    return lambda snapshot: snapshot.with_table(table.family, table.name, lambda saved: saved.with_rules(rules))


def _base_chains(table: Table, statement: str, hooks: t.Iterable[str], rules: t.Iterable[Rule]) -> Change:
    kinds = {each.kind for rule in rules for each in rule.statements}
    priority = next((number for verbs, number in _PRIORITIES.items() if not kinds.isdisjoint(verbs)), None)
    kind = "filter" if priority is None else "nat"
    chains = [BaseChain(table.family, table.name, hook, kind, priority or 0, statement) for hook in hooks]
    return lambda snapshot: snapshot._replace(base_chains=(*snapshot.base_chains, *chains))


def _is_of(key: t.Sequence[str], ends: t.Sequence[str]) -> bool:
    """Return whether the addresses in a key are those to which a packet may go."""
    addresses = [part for part in key if ruleset.field_of(part).endswith("daddr")]
    return all(not end or _holds(address, end) for address in addresses for end in ends[1:])
