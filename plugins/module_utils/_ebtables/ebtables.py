# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ebtables rules as text and as meaning, independent of the tool that printed them.

The tools print the same rule in different ways. ebtables-nft, ebtables-legacy, their -L and their -save differ in leading
zeros of MAC addresses, letter case of names, default targets, full masks, counters and blanks. A ListedRule keeps the text as it
was printed; ``meaning`` is the same for all of these texts.
"""

from __future__ import annotations

import functools
import re
import typing as t

from .._core import fields
from .._core.fields import Prefix, Unfit
from .._netfilter.chain import ListedRule, Place

BACKENDS = NFT, LEGACY = "nft", "legacy"
TABLES = ("filter", "nat", "broute")

Meaning = frozenset[tuple[str, bool, str]]  # options: name, whether negated, value in its normal form


# Long and older names of options (ebtables(8), and extensions' sources), to the names that listings use.
_NAMES = {
    "--protocol": "-p", "--proto": "-p", "--in-interface": "-i", "--in-if": "-i", "--out-interface": "-o", "--out-if": "-o",
    "--source": "-s", "--src": "-s", "--destination": "-d", "--dst": "-d", "--jump": "-j",
    "--arp-opcode": "--arp-op", "--ip-source": "--ip-src", "--ip-destination": "--ip-dst", "--ip-protocol": "--ip-proto",
    "--ip6-source": "--ip6-src", "--ip6-destination": "--ip6-dst", "--ip6-protocol": "--ip6-proto",
    "--to-destination": "--to-dst", "--to-source": "--to-src",
}  # fmt: skip
# Each target's default verdict. Some listings print it, others omit it.
_DEFAULT_TARGETS = {
    "arpreply": ("--arpreply-target", "DROP"),
    "dnat": ("--dnat-target", "ACCEPT"),
    "snat": ("--snat-target", "ACCEPT"),
    "redirect": ("--redirect-target", "ACCEPT"),
}
_PROTOCOLS = {"800": "ipv4", "806": "arp", "86dd": "ipv6", "ip": "ipv4", "ip6": "ipv6"}  # RFC 9542, Linux' ethertypes
_SYNONYMS = {
    "--arp-op": {"1": "request", "2": "reply"},
    "--ip6-proto": {"58": "ipv6-icmp", "icmpv6": "ipv6-icmp", "icmp6": "ipv6-icmp"},
    "--ip6-icmp-type": dict.fromkeys(
        ("135", "135/0", "135/0:0", "neighbor-solicitation"), "neighbour-solicitation"
    ),
}  # fmt: skip
_MACS = {"00:00:00:00:00:00/01:00:00:00:00:00": "unicast", "01:00:00:00:00:00/01:00:00:00:00:00": "multicast"}
_MAC_OPTIONS = frozenset(("-s", "-d", "--to-dst", "--to-src", "--arpreply-mac", "--arp-mac-src", "--arp-mac-dst"))
_IP_OPTIONS = frozenset(("--ip-src", "--ip-dst", "--ip6-src", "--ip6-dst", "--arp-ip-src", "--arp-ip-dst"))
_LINK_OPTIONS = frozenset(("-i", "-o"))

_WORD = re.compile(r'"[^"]*"|\S+')
_MAC = re.compile(r"[0-9a-f]{1,2}(:[0-9a-f]{1,2}){5}")
_LISTED_COUNTERS = re.compile(r", pcnt = (\d{1,20}) -- bcnt = (\d{1,20})\s*$")
_SAVED_COUNTERS = re.compile(r"^\[(\d{1,20}):(\d{1,20})\] ")
# The line that begins a table, or a chain with its policy, of ebtables-save and of ebtables -L.
_HEADING = re.compile(r"^(?:(?:\*|Bridge table: )(\S+)|(?::|Bridge chain: )([^\s,]+)(?:, entries: \d+, policy:)? (\S+))", re.M)
_OPTION_COUNTERS = re.compile(r"-c (\d{1,20}) (\d{1,20})\s*$")  # glued to the target by ebtables-legacy


def from_save(backend: str, text: str) -> dict[Place, tuple[ListedRule, ...]]:
    """Parse what ``ebtables-save`` prints, or ``ebtables -L`` for one or more tables, with or without counters."""
    chains: dict[Place, list[ListedRule]] = {}
    table = chain = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith("Bridge table:"):
            table = line.partition(":")[2].strip()
        elif line.startswith("Bridge chain:"):
            chain = line.partition(":")[2].split(",")[0].strip()
            chains.setdefault(Place(backend, table, chain), [])
        elif line.startswith(":"):
            chains.setdefault(Place(backend, table, line[1:].split()[0]), [])
        elif line.startswith(("-A ", "[")):
            name, rule = _appended(line)
            chains.setdefault(Place(backend, table, name), []).append(rule)
        elif table and chain and line.strip() and not line.startswith("#"):
            chains[Place(backend, table, chain)].append(_rule(line))
    return {place: tuple(rules) for place, rules in chains.items()}


def policies(backend: str, text: str) -> dict[Place, str]:
    """Return the policies of all chains in a text as from_save() parses it."""
    by_place = {}
    table = ""
    for next_table, chain, policy in _HEADING.findall(text):
        table = next_table or table
        if chain:
            by_place[Place(backend, table, chain)] = policy
    return by_place


def _appended(line: str) -> tuple[str, ListedRule]:
    counters = _SAVED_COUNTERS.match(line)
    _verb, chain, *rest = line[counters.end() if counters else 0 :].split(" ", 2)
    text = rest[0] if rest else ""
    return chain, ListedRule(text.rstrip(), (int(counters[1]), int(counters[2]))) if counters else _rule(text)


def _rule(text: str) -> ListedRule:
    for pattern in (_LISTED_COUNTERS, _OPTION_COUNTERS):
        match = pattern.search(text)
        if match:
            return ListedRule(text[: match.start()].rstrip(), (int(match[1]), int(match[2])))
    return ListedRule(text.rstrip())


def inserted(chain: str, position: int, rule: ListedRule) -> str:
    """Return the line of a restore script that inserts a rule with its counters. position: 1 is the first."""
    packets, octets = rule.counters
    return f"-I {chain} {position} {rule.text} -c {packets} {octets}"


@functools.cache
def meaning(text: str) -> Meaning:
    """Return a rule's options in their normal form. Rules whose meanings are equal match the same frames and act alike."""
    options = [(name, negated, _value(name, value)) for name, negated, value in _options(text)]
    present = {name for name, _negated, _value in options}
    for name, negated, target in list(options):
        default = _DEFAULT_TARGETS.get(target) if name == "-j" and not negated else None
        if default and default[0] not in present:
            options.append((default[0], False, default[1].lower()))
    return frozenset(options)


def _options(text: str) -> t.Iterator[tuple[str, bool, str]]:
    """Return names, whether negated (``-p ! ARP`` and ``! -p ARP`` are the same), and values as written."""
    words = _WORD.findall(text)
    name, negated = "", False
    values: list[str] = []
    for position, word in enumerate(words):
        if word == "!":
            negates_next = position + 1 < len(words) and words[position + 1].startswith("-")
            if negates_next and name:
                yield name, negated, " ".join(values)
                name, negated, values = "", False, []
            negated = True
        elif word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            if name:
                yield name, negated, " ".join(values)
                negated = False
            name, values = _NAMES.get(word, word), []
        else:
            values.append(word)
    if name:
        yield name, negated, " ".join(values)


@functools.cache  # thousands of rules share few values
def _value(name: str, value: str) -> str:
    if name in _MAC_OPTIONS:
        mac = "/".join(_mac(part) for part in value.lower().split("/"))
        return _MACS.get(mac, mac)
    if name in _IP_OPTIONS:
        return _prefix(value)
    if name == "-p":
        number = value.lower().removeprefix("0x").lstrip("0") if value[:1].isdigit() else value.lower()
        return _PROTOCOLS.get(number, number)
    if name in _SYNONYMS:
        return _SYNONYMS[name].get(value.lower(), value.lower())
    return value.lower() if name.endswith("-target") else value


def _mac(text: str) -> str:
    return ":".join(f"{int(part, 16):02x}" for part in text.split(":")) if _MAC.fullmatch(text) else text


def _prefix(value: str) -> str:
    """Return the normal form of a prefix with a length, with a mask, or with neither; any other value stays as it is."""
    host, _slash, mask = value.partition("/")
    try:
        family, packed = fields.address(host)
        length = _length(mask, family)
    except Unfit:
        return value
    rest = len(packed) * 8 - length
    network = (int.from_bytes(packed, "big") >> rest << rest).to_bytes(len(packed), "big")
    return f"{fields.show(network)}/{length}"


def _length(mask: str, family: int) -> int:
    bits = fields.BITS[family]
    if not mask:
        return bits
    if mask.isdigit():
        return fields.number(mask, 0, bits)
    number = int.from_bytes(fields.address(mask)[1], "big")
    length = bin(number).count("1")
    if number != ((1 << length) - 1) << (bits - length):
        raise Unfit("a mask without gaps")
    return length


def normal_prefix(value: str) -> str:
    """Return a prefix in its normal form, which always has a length; a value that is not a prefix stays as it is."""
    return _prefix(value)


def prefix(value: str) -> Prefix:
    """Return the normal form of an IP option's value, as packed bytes and a length. Raises Unfit."""
    return fields.prefix(value)[1]


def needles(text: str) -> tuple[bytes, ...]:
    """Return byte strings that the kernel's encoding of the rule contains, whichever version of the tool encoded it.

    They are addresses without masks, in network order, and names of links. An ebtables extension, a comparison of nf_tables
    and a header rewrite all store them in this form.
    """
    encoded = []
    for name, _negated, value in meaning(text):
        if name in _MAC_OPTIONS and _MAC.fullmatch(value):
            encoded.append(bytes.fromhex(value.replace(":", "")))
        elif name in _IP_OPTIONS and value.endswith("/128" if ":" in value else "/32"):
            encoded.append(fields.address(value.partition("/")[0])[1])
        elif name in _LINK_OPTIONS and value:
            encoded.append(value.rstrip("+").encode())
    return tuple(encoded)


class Owned(t.NamedTuple):
    """A rule in nf_tables. handle: a number that the kernel never gives to another rule of the table."""

    handle: int
    encoding: bytes


def pair(rules: t.Sequence[ListedRule], current: t.Sequence[Owned]) -> list[int | None]:
    """Return the handle of each listed rule; None where the handle is not certain.

    current: the rules of the chain that existed both before and after it was listed, in order. The listing contains all of
        them in the same order, perhaps with other rules between them that were added or deleted meanwhile. A handle is
        certain if the first and the last way to find all of ``current`` in the listing agree on it.
    """
    handles: list[int | None] = [None] * len(rules)
    sought = [needles(rule.text) for rule in rules]
    first = _embed(sought, current)
    last = [len(rules) - 1 - place for place in reversed(_embed(sought[::-1], current[::-1]))]
    if len(first) == len(last) == len(current):
        for rule, place, other in zip(current, first, last):
            if place == other:
                handles[place] = rule.handle
    return handles


def has_each_once(rules: t.Sequence[ListedRule], current: t.Sequence[Owned]) -> bool:
    """Return whether the listing has each of the kernel's rules once. The arguments are those of pair()."""
    return sum(handle is not None for handle in pair(rules, current)) == len(current)


def _embed(sought: t.Sequence[tuple[bytes, ...]], current: t.Sequence[Owned]) -> list[int]:
    """Return the first positions at which the kernel's rules fit the listing, in order; fewer than ``current`` if some do not
    fit."""
    places: list[int] = []
    position = 0
    for rule in current:
        while position < len(sought) and not all(needle in rule.encoding for needle in sought[position]):
            position += 1
        if position == len(sought):
            break
        places.append(position)
        position += 1
    return places
