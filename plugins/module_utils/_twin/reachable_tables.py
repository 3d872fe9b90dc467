# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Tables as iptables-save prints them, reduced to what the packets of a trace can reach."""

from __future__ import annotations

import re
import typing as t

from .._netfilter.rule_words import IPTABLES
from .reachable import ADDRESS, PORT, PROTOCOL, Chain, Part, Reach, Rule, Table, packed

# Targets that change neither the addresses nor the ports of a packet, besides chains.
HARMLESS = frozenset(
    (
        "ACCEPT", "CHECKSUM", "CLASSIFY", "CONNMARK", "CONNSECMARK", "DROP", "DSCP", "ECN", "HL", "LOG", "MARK", "MASQUERADE",
        "NFLOG", "NFQUEUE", "RATEEST", "REJECT", "RETURN", "SECMARK", "SET", "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS", "TPROXY",
        "TRACE", "TTL",
    )
)  # fmt: skip
_TRANSLATING, _UNTRACKING = ("DNAT", "SNAT", "REDIRECT"), ("CT", "NOTRACK")
_OPEN = frozenset(IPTABLES.targets).difference(HARMLESS, _TRANSLATING, _UNTRACKING)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?$)|(?<=--comment )-\S+|(?<=-prefix )-\S+')
_TARGET = re.compile(r" (?:-j|-g|--jump|--goto) (\S+)")
_NEEDS = (
    (ADDRESS, re.compile(r"(?<! !) -[sd] ([\d.]+(?=(?:/32)? )|[\da-f:]+(?=(?:/128)? ))")),
    (PROTOCOL, re.compile(r"(?<! !) -p (\w+) ")),
    (PORT, re.compile(r"(?<! !) --dport (\d+) ")),
)
_NEW = re.compile(r" --(?:ctstate|state) NEW ")
_NOT_NEW = re.compile(r" ! --(?:ctstate|state) ")
# A rule that matches by chance counts where packets choose among rules, and one with a set where the set is open.
_COUNTED = re.compile(r" --mode | --match-set ")
_TO = re.compile(r" --to-(?:destination|source) (?:([\d.]+)|\[([\da-f:]+)\]|([\da-f:]+))(?::(\d+))? ")
_TO_PORT = re.compile(r" --to-ports (\d+) ")


def tables(text: str) -> list[Table] | None:
    """The tables of a text that was read word for word; None if a table has several parts."""
    result: dict[str, Table] = {}
    chains: dict[str, Chain] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("*"):
            chains, name = {}, line[1:]
            if name in result:
                return None
            result[name] = Table(chains, {}, _rule)
        elif line.startswith(":"):
            chain, policy, *_counters = line[1:].split(" ")
            chains[chain] = Chain(policy != "-", name == "nat", [])
        elif line != "COMMIT":
            chain = _chain(line)
            chains.setdefault(chain, Chain(True, False, [])).rules.append(line)
    return [*result.values()]


def _chain(line: str) -> str:
    """The chain to which a line adds a rule. Counters may come first."""
    words = line.split(" ", 3)
    return words[2] if words[0].startswith("[") else words[1]


def reduced(text: str, first: int, reach: Reach) -> str:
    """The lines that can be reached. first: number of the first table of the text in the reach."""
    lines, number, places = list[str](), first - 1, dict[str, int]()
    for line in text.splitlines():
        if line.startswith("*"):
            number, places = number + 1, {}
        elif line.startswith(":"):
            if line[1:].split(" ", 1)[0] not in reach.chains[number]:
                continue
        elif line != "COMMIT":
            chain = _chain(line)
            place = places[chain] = places.get(chain, -1) + 1
            if not reach.may_match(number, chain, place):
                continue
        lines.append(line)
    return "\n".join([*lines, ""])


def _rule(line: str) -> Rule:
    text = f"{_TEXT.sub('text', line)} "
    target = _TARGET.search(text)
    name = target[1] if target else ""
    is_new = bool(_NEW.search(text)) and not _NOT_NEW.search(text)
    needs = () if _COUNTED.search(text) else tuple(_parts(text))
    if name in _TRANSLATING:
        return _translation(text, name)._replace(needs=needs, is_new=is_new)
    return Rule(needs, (name,), is_new=is_new, is_untracked=name in _UNTRACKING, is_open=name in _OPEN)


def _parts(text: str) -> t.Iterator[Part]:
    for kind, pattern in _NEEDS:
        yield from ((kind, value) for value in pattern.findall(text))


def _translation(text: str, name: str) -> Rule:
    """The effect of a rule that translates. Ranges are not understood."""
    if name == "REDIRECT":
        port = _TO_PORT.search(text)
        return Rule(ports=(port[1],)) if port else Rule(is_open=" --to-ports " in text)
    to = _TO.search(text)
    address = packed(to[1] or to[2] or to[3]) if to else b""
    return Rule(addresses=(address,), ports=(to[4],) if to and to[4] else ()) if address else Rule(is_open=True)
