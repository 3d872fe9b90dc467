# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The most that a snapshot may contain, so that its twin does not exhaust the memory of the machine or hold its locks.

A node with 5,000 Services has 78,000 lines of nft, and one with 100,000 rules of iptables is the largest known.
"""

from __future__ import annotations

import ipaddress
import typing as t

from .._core.errors import Invalid

Entry = t.Mapping[str, t.Any]
# Entries by subset. A link takes 107 KiB of the kernel's memory, and the removal of 2,000 holds its lock for a second. The kernel
# looks through all rules for each that it adds.
MOST = {
    "links": 2048, "rules": 16384, "routes": 65536, "neighbors": 16384, "nftables": 262144, "ipsets": 4096, "bpf": 4096,
    "ipvs": 16384,
}  # fmt: skip
MOST_ADDRESSES = 16384
MOST_LINES, MOST_BYTES = 262144, 64 << 20  # of all rules as text
MOST_ELEMENTS = 524288  # of all sets of nft, or of all ipsets, whose ranges count with each of their addresses and ports
MOST_HASHED = 4194304  # slots of the hash tables of all ipsets, of 8 bytes
MOST_IN_A_SET = 1048576  # elements that an ipset is created for
MOST_OF_A_SET = {"hashsize": MOST_HASHED, "maxelem": MOST_IN_A_SET}


def check(snapshot: Entry) -> None:
    """Raises Invalid for the first part that is larger than its bound."""
    for subset, most in MOST.items():
        _at_most(f"snapshot.{subset}", len(snapshot.get(subset) or ()), most, "entries")
    addresses = sum(len(one.get("addresses") or ()) for one in snapshot.get("links") or ())
    _at_most("snapshot.links", addresses, MOST_ADDRESSES, "addresses")
    _check_texts(snapshot)
    _check_sets(snapshot.get("ipsets") or ())


def _at_most(option: str, found: int, most: int, what: str) -> None:
    if found > most:
        raise Invalid(option, found, f"at most {most} {what}")


def _check_texts(snapshot: Entry) -> None:
    texts = {
        f"snapshot.{subset}": "\n".join(str(one.get("save") or "") for one in snapshot.get(subset) or ())
        for subset in ("iptables", "ipsets")
    }
    texts["snapshot.ebtables"] = "\n".join(str(line) for one in snapshot.get("ebtables") or () for line in one.get("rules") or ())
    texts["snapshot.nftables_text"] = str(snapshot.get("nftables_text") or "")
    for option, text in texts.items():
        _at_most(option, len(text), MOST_BYTES, "bytes")
        if option != "snapshot.ipsets":
            _at_most(option, text.count("\n"), MOST_LINES, "lines")
    _at_most("snapshot.nftables_text", texts["snapshot.nftables_text"].count(","), MOST_ELEMENTS, "elements of sets")
    elements = sum(
        len(body.get("elem") or ())
        for one in snapshot.get("nftables") or ()
        for body in one.values()
        if isinstance(body, dict) and isinstance(body.get("elem") or (), (list, tuple))
    )
    _at_most("snapshot.nftables", elements, MOST_ELEMENTS, "elements of sets")


def _check_sets(sets: t.Iterable[Entry]) -> None:
    kinds, slots, elements = dict[str, str](), 0, 0
    for number, one in enumerate(sets):
        for line in str(one.get("save") or "").splitlines():
            option, words = f"snapshot.ipsets[{number}].save", line.split()
            if words[:1] == ["create"] and len(words) > 2:
                kinds[words[1]] = words[2]
                slots += _created(option, line, words)
            elif words[:1] == ["add"] and len(words) > 2:
                elements += members(kinds.get(words[1], ""), words[2])
            if slots > MOST_HASHED:
                raise Invalid(option, line[:120], f"sets with a hashsize of at most {MOST_HASHED} together")
            if elements > MOST_ELEMENTS:
                allowed = f"sets of at most {MOST_ELEMENTS} elements together, with each address of a range counted"
                raise Invalid(option, line[:120], allowed)


def _created(option: str, line: str, words: t.Sequence[str]) -> int:
    """The slots of a new set."""
    given = {"hashsize": 1024, "maxelem": 65536}
    for name, most in MOST_OF_A_SET.items():
        for value in (value for key, value in zip(words, words[1:]) if key == name):
            if not value.isdigit() or int(value) > most:
                raise Invalid(option, line[:120], f"a set with {name} of at most {most}")
            given[name] = int(value)
    return given["hashsize"] if words[2].startswith("hash:") else 0


def members(kind: str, element: str) -> int:
    """How many elements the kernel adds for one of a text: it adds each address and each port of a range.

    kind: of the set, such as hash:ip,port.
    """
    fields = kind.partition(":")[2].split(",")
    found = 1
    for number, part in enumerate(element.split(",")):
        field = fields[number] if number < len(fields) else ""
        found *= _ports(part) if field == "port" else _addresses(part, field)
    return found


def _ports(part: str) -> int:
    low, dash, high = part.rpartition(":")[2].partition("-")
    return int(high) - int(low) + 1 if dash and low.isdigit() and high.isdigit() and int(high) > int(low) else 1


def _addresses(part: str, field: str) -> int:
    """The addresses of a prefix or a range of IPv4. A set of networks stores a prefix as one, and a range as few of them."""
    low, dash, high = part.partition("-")
    try:
        if dash:
            first, last = int(ipaddress.IPv4Address(low)), int(ipaddress.IPv4Address(high))
            return 1 if field == "net" else max(1, last - first + 1)
        return 1 if field == "net" or "/" not in part else ipaddress.IPv4Network(part, strict=False).num_addresses
    except ValueError:
        return 1
