# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The most that a snapshot may contain, so that its twin does not exhaust the memory of the machine or hold its locks.

A node with 5,000 Services has 78,000 lines of nft, and one with 100,000 rules of iptables is the largest known.
"""

from __future__ import annotations

import collections
import ipaddress
import typing as t

from .._core.errors import Invalid
from .._probe_snat.probe_programs import MOST_PROBES
from .._ruleset import nft_objects

Entry = t.Mapping[str, t.Any]
# Entries by subset. A link takes 107 KiB of the kernel's memory, and the removal of 2,000 holds its lock for a second. A full
# table of the internet has 1.3 million routes of both families.
MOST = {
    "links": 2048, "rules": 131072, "routes": 2097152, "neighbors": 131072, "nftables": 262144, "ipsets": 4096, "bpf": 4096,
    "filters": 4096, "ipvs": 16384, "evidence": 4096, "assumed": 65536,
}  # fmt: skip
# Of those that the packets of a twin can meet. The kernel looks through all rules for each that it adds.
MOST_OF_TWIN = {"rules": 16384, "routes": 65536, "neighbors": 16384}
MOST_ADDRESSES = 16384
MOST_LINES, MOST_BYTES = 262144, 64 << 20  # of all rules as text
LINES_OF_NFT = 2 * MOST_LINES  # where a chain with two rules takes five lines, and three of its JSON's objects
MOST_COMMANDS, MOST_COMMAND_BYTES = 1024, 1 << 20  # of the option commands
MOST_ELEMENTS = 524288  # of all sets of nft, or of all ipsets, whose ranges count with each of their addresses and ports
MOST_HASHED = 4194304  # slots of the hash tables of all sets, of 8 bytes in ipset and 21 at most in nft
MOST_IN_A_SET = 1048576  # elements that an ipset is created for
MOST_OF_A_SET = {"hashsize": MOST_HASHED, "maxelem": MOST_IN_A_SET}


def check(snapshot: Entry) -> None:
    """Raise Invalid for the first part that is larger than its bound."""
    for subset, most in MOST.items():
        at_most(f"snapshot.{subset}", len(snapshot.get(subset) or ()), most, "entries")
    addresses = sum(len(link.get("addresses") or ()) for link in snapshot.get("links") or ())
    at_most("snapshot.links", addresses, MOST_ADDRESSES, "addresses")
    at_most("snapshot.bpf", sum(len(each.get("probes") or ()) for each in snapshot.get("bpf") or ()), MOST_PROBES, "probes")
    _check_texts(snapshot)


def check_twin(*counts: int) -> None:
    """Raise Invalid for the first of the counts, in the order of MOST_OF_TWIN, that is larger than its bound."""
    for (subset, most), count in zip(MOST_OF_TWIN.items(), counts):
        at_most(f"snapshot.{subset}", count, most, "entries that packets can meet")


def at_most(option: str, count: int, most: int, unit: str) -> None:
    """Raise Invalid if there are more than ``most``."""
    if count > most:
        raise Invalid(option, count, f"at most {most} {unit}")


def _check_texts(snapshot: Entry) -> None:
    texts = {subset: [str(entry.get("save") or "") for entry in snapshot.get(subset) or ()] for subset in ("iptables", "ipsets")}
    texts["ebtables"] = [str(line) for chain in snapshot.get("ebtables") or () for line in chain.get("rules") or ()]
    texts["nftables_text"] = [str(snapshot.get("nftables_text") or "")]
    for subset, parts in texts.items():
        at_most(f"snapshot.{subset}", sum(map(len, parts)), MOST_BYTES, "bytes")
        if subset != "ipsets":
            lines = sum(part.count("\n") for part in parts) + len(parts)
            at_most(f"snapshot.{subset}", lines, LINES_OF_NFT if subset == "nftables_text" else MOST_LINES, "lines")
    at_most("snapshot.nftables_text", texts["nftables_text"][0].count(","), MOST_ELEMENTS, "elements of sets")
    at_most("snapshot.nftables", nft_objects.elements(snapshot.get("nftables") or ()), MOST_ELEMENTS, "elements of sets")


class Sets:
    """The memory of all sets of a twin, added up while they are created and filled. Raises Invalid where it exceeds a bound.

    The memory of a set that is removed is still counted.
    """

    def __init__(self) -> None:
        # All that a name may stand for: a command that the kernel refuses leaves the former set.
        self._kinds = collections.defaultdict[str, set[str]](set)
        self._slots = self._elements = 0

    def ipset(self, option: str, command: t.Sequence[str]) -> None:
        """Count a command of ipset, as ipset_text reads it. option: the name of the option that contains it."""
        verb, name, *rest = command
        if verb == "create":
            self._kinds[name].add(rest[0])
            self._allocate(option, _hashed(option, command) if rest[0].startswith("hash:") else 0, " ".join(command))
        elif verb in ("rename", "swap"):
            self._kinds[name] = self._kinds[rest[0]] = self._kinds[name] | self._kinds[rest[0]]
        elif verb == "add":
            self._elements += max(members(kind, rest[0]) for kind in self._kinds[name] or ("",))
            if self._elements > MOST_ELEMENTS:
                allowed = f"sets of at most {MOST_ELEMENTS} elements together, with each address of a range counted"
                raise Invalid(option, " ".join(command)[:120], allowed)

    def nft(self, option: str, size: int) -> None:
        """Count a set of nft. size: as nft_listing.allocated() returns it."""
        self._allocate(option, size, f"size {size}")

    def _allocate(self, option: str, slots: int, given: str) -> None:
        self._slots += slots
        if self._slots > MOST_HASHED:
            raise Invalid(option, given[:120], f"sets with a hashsize or a size of at most {MOST_HASHED} together")


def _hashed(option: str, command: t.Sequence[str]) -> int:
    """Return the number of slots of the hash table of a new ipset."""
    sizes = {"hashsize": 1024, "maxelem": 65536}
    for name, most in MOST_OF_A_SET.items():
        for value in (value for key, value in zip(command, command[1:]) if key == name):
            if int(value) > most:
                raise Invalid(option, " ".join(command)[:120], f"a set with {name} of at most {most}")
            sizes[name] = int(value)
    return sizes["hashsize"]


def members(kind: str, element: str) -> int:
    """Return how many elements the kernel adds for an element as text: it adds each address and each port of a range.

    kind: of the set, such as hash:ip,port.
    """
    fields = kind.partition(":")[2].split(",")
    count = 1
    for number, part in enumerate(element.split(",")):
        field = fields[number] if number < len(fields) else ""
        count *= _ports(part) if field == "port" else _addresses(part, field)
    return count


def _ports(part: str) -> int:
    low, dash, high = part.rpartition(":")[2].partition("-")
    return int(high) - int(low) + 1 if dash and low.isdigit() and high.isdigit() and int(high) > int(low) else 1


def _addresses(part: str, field: str) -> int:
    """Return the number of addresses of a prefix or a range of IPv4.

    A set of networks stores a prefix as one element, and a range as few.
    """
    low, dash, high = part.partition("-")
    try:
        if dash:
            first, last = int(ipaddress.IPv4Address(low)), int(ipaddress.IPv4Address(high))
            return 1 if field == "net" else max(1, last - first + 1)
        return 1 if field == "net" or "/" not in part else ipaddress.IPv4Network(part, strict=False).num_addresses
    except ValueError:
        return 1
