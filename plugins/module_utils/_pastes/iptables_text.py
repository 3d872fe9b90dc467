# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What iptables-save, ``iptables -S`` and ``iptables -L`` print, as tables."""

from __future__ import annotations

import collections
import re
import shlex

from .._snapshot import assumption
from .._snapshot.assumption import Assumption
from . import iptables_list
from .commands import Ignore, Part
from .iptables_tables import ANY_BUILT_IN, BUILT_IN, Table, Tables, likely_table

FAMILIES = {"ipv4": "ip", "ipv6": "ip6", "": "ip"}
HEADER = re.compile(r"\*(\w+)")
CHAIN = re.compile(r":(\S+) (\S+)(?: \[(\d+):\d+\])?")
RULE = re.compile(r"(?:\[\d+:\d+\] )?-A (\S+) ?(.*)")
_QUOTED = re.compile(r'(?<=\s)"[^"\\]*"(?=\s|$)')
_PACKETS = re.compile(r"\[(\d+):\d+\] -A")
_POLICY = re.compile(r"-([PN]) (\S+)(?: (\S+))?(?: .*)?")
_LISTED_CHAIN = re.compile(r"Chain (\S+)(?: \((?:policy (\w+)(?: (\d+[KMGTPE]?) packets)?|\d+ references?).*\)|\s*$)")
_COUNTED = re.compile(r"\s*(?:\d+ +)?(\d+[KMGTPE]?) +\d+[KMGTPE]? ")  # a line of iptables -v
Counts = collections.Counter[tuple[str, str]]  # packets by chain and rule; the rule is empty for the policy
_UNITS = {unit: 1000**power for power, unit in enumerate(" KMGTPE")}


def saved(part: Part, tables: Tables, ignore: Ignore) -> None:
    """Adds the rules that iptables-save or ``iptables -S`` printed, whole or through grep."""
    family, name = FAMILIES[part.family], part.table
    is_all = part.is_whole and not part.chain
    counts: dict[str, Counts] = collections.defaultdict(collections.Counter)  # of each table
    for line in part.lines:
        text = line.strip()
        header, chain, rule, policy = (one.fullmatch(text) for one in (HEADER, CHAIN, RULE, _POLICY))
        if header:
            name = header[1]
        if header or rule or policy or (chain and (name or chain[2] != "-")):  # a chain without its table tells nothing
            table = tables.setdefault((family, name), Table())
        if header:
            table.is_whole = True
        elif text == "COMMIT" and name:
            tables.setdefault((family, name), Table()).is_complete |= is_all
        elif rule and _is_whole(rule[2]):
            table.add(rule[1], rule[2])
            packets = _PACKETS.match(text)
            if packets:
                counts[name][rule[1], rule[2]] += int(packets[1])
        elif rule:
            ignore("is cut in the middle", line)
        elif chain:
            if name or chain[2] != "-":
                table.policies[chain[1]] = chain[2]
                if chain[3]:
                    counts[name][chain[1], ""] += int(chain[3])
        elif policy:
            table.policies[policy[2]] = policy[3] if policy[1] == "P" else "-"
        elif text not in ("", "COMMIT") and not text.startswith("#"):
            ignore("is no rule of iptables", line)
    for of_table, own in counts.items():
        _count(tables[family, of_table], own)
    if part.table and is_all and any(map(_POLICY.fullmatch, map(str.strip, part.lines))):  # of iptables -S
        tables.setdefault((family, part.table), Table()).is_complete = True


def is_of_all_tables(part: Part) -> bool:
    """Whether a part has the rules of all tables of its family: those without a line have no rules."""
    heads = [line for line in part.lines if HEADER.fullmatch(line.strip())]
    ends = [line for line in part.lines if line.strip() == "COMMIT"]
    is_empty = part.is_save and not any(map(str.strip, part.lines))
    is_closed = bool(heads) and len(heads) == len(ends)
    return part.is_whole and (is_empty or (is_closed and (part.is_save or len(heads) > 1)))


def _is_whole(rule: str) -> bool:
    """False if the rule ends in the middle. Long options are not checked: iptables refuses one that lacks its value."""
    words = _QUOTED.sub("quoted", rule).split()
    if any(sign in word for word in words for sign in "\"'\\"):
        try:
            words = shlex.split(rule)  # which is slow for the rules of a large cluster
        except ValueError:
            return False
    return not words or words[-1] not in ("-j", "-g", "-m", "-s", "-d", "-p", "-i", "-o", "!") and not words[-1].endswith("...")


def listed(part: Part, tables: Tables, assumed: list[Assumption], ignore: Ignore) -> None:
    """Adds the rules that ``iptables -L`` printed, with or without -v and -n."""
    chain, has_interfaces = part.chain, False
    shown: list[dict[str, list[str]]] = [{}]  # of each table, the rules by chain
    counts: list[Counts] = [collections.Counter()]  # of each table
    policies: list[dict[str, str]] = [{}]
    for line in part.lines:
        words, head = line.split(), _LISTED_CHAIN.match(line.strip())
        if head:
            chain = head[1]
            if chain in policies[-1]:  # the listing of another table, without its command
                shown.append({})
                policies.append({})
                counts.append(collections.Counter())
            policies[-1][chain] = head[2] or _usual_policy(chain)
            if head[3]:
                counts[-1][chain, ""] += _number(head[3])
        elif "target" in words[:4]:
            has_interfaces = "in" in words
        elif words and chain:
            rule = iptables_list.rule(line)
            if rule is None:
                ignore("has a match that is not read from iptables -L, or a host's name", line)
            else:
                shown[-1].setdefault(chain, []).append(rule)
                policies[-1].setdefault(chain, _usual_policy(chain))
                counted = _COUNTED.match(line)
                has_interfaces |= bool(counted)
                if counted:
                    counts[-1][chain, rule] += _number(counted[1])
    if not policies[-1]:
        return
    family = FAMILIES[part.family]
    for of_chain, rules, of_rule in zip(policies, shown, counts):
        name = part.table or likely_table(of_chain, [rule for own in rules.values() for rule in own])
        if not has_interfaces:
            sentence = "iptables -L without -v does not show interfaces. Each rule is assumed to match all of them."
            assumed.append(assumption.about(sentence, assumption.CHAIN, *(f"{family} {name} {chain}" for chain in of_chain)))
            rules = {chain: _for_loopback(f"{family} {name}", chain, own, assumed) for chain, own in rules.items()}
        found = tables.setdefault((family, name), Table())
        found.policies.update({own: policy for own, policy in of_chain.items() if policy})
        is_all = part.is_whole and not part.chain and {*BUILT_IN.get(name, ())} <= {*of_chain, "INPUT"}
        found.is_complete |= is_all and has_interfaces
        for own, lines in rules.items():
            for rule in lines:
                found.add(own, rule)
        _count(found, of_rule)


def _count(table: Table, counts: Counts) -> None:
    for place, packets in counts.items():
        table.counts.setdefault(place, []).append(packets)


def _number(text: str) -> int:
    """Return the number of packets that iptables shows, which it rounds without -x."""
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


def _usual_policy(chain: str) -> str:
    """That of a chain whose head does not show it: a built-in chain has one that is not known, others have none."""
    return "" if chain in ANY_BUILT_IN else "-"


ACCEPT = "-j ACCEPT"
_LOOPBACK = {"INPUT": "-i lo", "OUTPUT": "-o lo"}


def _for_loopback(table: str, chain: str, rules: list[str], assumed: list[Assumption]) -> list[str]:
    """Rules of a listing without interfaces. One that would make later ones useless is assumed to be for the loopback."""
    found = []
    for number, rule in enumerate(rules, 1):
        if rule == ACCEPT and chain in _LOOPBACK and number < len(rules):
            rule = f"{_LOOPBACK[chain]} {ACCEPT}"
            sentence = f"Rule {number} of chain {chain} accepts all packets, although others follow. It is assumed to be {rule}."
            assumed.append(assumption.about(sentence, assumption.CHAIN, f"{table} {chain}"))
        found.append(rule)
    return found
