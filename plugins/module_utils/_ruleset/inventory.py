# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares what the kernel lists with the listings of nft, iptables and ebtables, without decoding a rule or an element.

The kernel tells how often a chain is used: once by each of its rules, and once by each jump to it, from a rule or from an element
of a map (net/netfilter/nf_tables_api.c, nft_use_inc). No rule may jump to a base chain, so there it is the number of rules.
"""

from __future__ import annotations

import re
import typing as t

from . import nft_json, nft_text

Entry = t.Mapping[str, t.Any]
Place = tuple[str, str]  # family and name of a table
NameOfSet = tuple[str, str, str]  # with family and table
FAMILIES = ("ip", "ip6", "inet", "bridge", "netdev")  # whose chains an IP packet may meet
_OF_SAVE = re.compile(r"^(?::(\S+) (\S+)|(?:\[\d+:\d+\] )?-[AI] (\S+)(?:.* -[jg] (\S+))?)", re.MULTILINE)


class Chain(t.NamedTuple):
    """A chain as the kernel lists it. has_hook: a base chain. policy: empty for another one. use: of rules and of jumps to it."""

    family: str
    table: str
    name: str
    has_hook: bool
    policy: str
    use: int


class Listing(t.NamedTuple):
    """A table as programs listed it. rules: their number by chain. policies: of base chains. jumps: the number of jumps."""

    rules: dict[str, int]
    policies: dict[str, str]
    jumps: int = 0


def differences(
    kernel: t.Iterable[Chain],
    sizes: t.Mapping[NameOfSet, int],
    iptables: t.Iterable[Entry],
    ebtables: t.Iterable[Entry],
    objects: t.Sequence[Entry],
    text: str = "",
    proved: t.Container[Place] = (),
) -> t.Iterator[tuple[str, str]]:
    """Yield each table of which the listings show something else than the kernel has, with a sentence.

    sizes: the kernel's number of elements of each set that is to be compared. iptables, ebtables, objects, text: of a snapshot;
    objects and text are what nft lists. proved: tables of the text that are not to be compared.
    """
    listings = _listed(iptables, ebtables, objects, nft_text.counted(text, proved))
    by_table: dict[Place, list[Chain]] = {}
    for chain in kernel:
        by_table.setdefault((chain.family, chain.table), []).append(chain)
    for place, chains in by_table.items():
        difference = _difference(chains, listings.get(place, Listing({}, {}))) if place[0] in FAMILIES else ""
        if difference:
            yield " ".join(place), difference
    for place, listing in listings.items():
        if place not in by_table and any(listing.rules.values()):
            yield " ".join(place), "The kernel has no chain of it."
    for name, size in {**nft_json.sizes(objects), **nft_text.sizes(text, proved)}.items():
        if sizes.get(name, size) != size:
            yield " ".join(name[:2]), f"The kernel has {sizes[name]} elements in the set {name[2]}, and {size} are listed."


def _difference(chains: t.Sequence[Chain], listing: Listing) -> str:
    for chain in chains:
        if chain.name not in listing.rules:
            return f"No program lists the chain {chain.name}."
        if chain.has_hook and chain.use != listing.rules[chain.name]:
            return f"The kernel has {chain.use} rules in the chain {chain.name}, and {listing.rules[chain.name]} are listed."
        policy = listing.policies.get(chain.name, "").lower() or "accept"
        if chain.has_hook and chain.policy != policy:
            return f"The kernel has the policy {chain.policy} in the chain {chain.name}, and {policy} is listed."
    # ebtables has the policy of a chain that is no base chain as a last rule, which it does not print.
    last = sum(not chain.has_hook and listing.policies.get(chain.name) in ("ACCEPT", "DROP") for chain in chains)
    uses, seen = sum(chain.use for chain in chains), sum(listing.rules.values()) + listing.jumps + last
    return "" if uses == seen else f"The kernel has {uses} rules and jumps, and {seen} are listed."


def _listed(
    iptables: t.Iterable[Entry],
    ebtables: t.Iterable[Entry],
    objects: t.Sequence[Entry],
    of_text: t.Mapping[Place, tuple[dict[str, int], dict[str, str], int]],
) -> dict[Place, Listing]:
    listings: dict[Place, Listing] = {}

    def add(place: Place, rules: t.Mapping[str, int], policies: t.Mapping[str, str], jumps: int) -> None:
        former = listings.get(place, Listing({}, {}))
        counts = {name: former.rules.get(name, 0) + rules.get(name, 0) for name in {**former.rules, **rules}}
        listings[place] = Listing(counts, {**former.policies, **policies}, former.jumps + jumps)

    for table in iptables:
        if table.get("backend") == "nft":
            add((str(table["family"]), str(table["table"])), *_of_save(str(table["save"])))
    texts: dict[str, list[str]] = {}
    for chain in ebtables:
        if chain.get("backend") == "nft":
            lines = texts.setdefault(str(chain["table"]), [])
            lines += [f":{chain['chain']} {chain['policy']}", *(f"-A {chain['chain']} {rule}" for rule in chain["rules"])]
    for name, lines in texts.items():
        add(("bridge", name), *_of_save("\n".join(lines)))
    for place, counted in (*nft_json.counted(objects).items(), *of_text.items()):
        add(place, *counted)
    return listings


def _of_save(text: str) -> tuple[dict[str, int], dict[str, str], int]:
    rules, policies, targets = dict[str, int](), dict[str, str](), list[str]()
    for chain, policy, of_rule, target in _OF_SAVE.findall(text):
        if chain:
            rules.setdefault(chain, 0)
            policies[chain] = policy
        else:
            rules[of_rule] = rules.get(of_rule, 0) + 1
            targets.append(target)
    return rules, policies, sum(target in rules for target in targets)
