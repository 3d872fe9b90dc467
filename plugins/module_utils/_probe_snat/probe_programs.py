# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The BPF programs that do what the probe table does, on a link whose packets other BPF programs take before nftables sees them.

The program at ingress gives each probe its translated source, the one at egress gives the reply its link-local destination. Both
then leave the packet to the next program. They treat a packet as the table does, with two exceptions, which they do not touch:
one with a VLAN tag, which nftables sees on another link, and one with extension headers, which no probe has.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import typing as t
import zlib

from .._bpf import instructions as i
from .._bpf.instructions import R0, R1, R2, R3, R4, R5, R6, R7, R8, R10, Instruction, Label, Line, Register
from .probe_table import NEIGHBOUR_DISCOVERY, Probe

OWN = "kubenode_"  # how the names of this collection's programs begin
INGRESS, EGRESS = "ingress", "egress"
PROBES, COUNTS = "probes", "counts"  # the maps
PAIR = struct.Struct("=16s16s")  # what PROBES has of a probe: source and translated
COUNTED = struct.Struct("=QQ")  # what COUNTS has of a probe and a direction: packets and bytes, as a counter of nft has them

# include/uapi/linux/bpf.h: offsets in __sk_buff, functions, and their flags
LENGTH, PROTOCOL, VLAN_PRESENT = 0, 16, 20
STORE_BYTES, REPLACE_CHECKSUM, LOAD_BYTES, DIFFERENCE, UPDATE_SUM = 9, 11, 26, 28, 40
PSEUDO_HEADER, NEVER_ZERO, EVEN_IF_ZERO = 1 << 4, 1 << 5, 1 << 6  # BPF_F_PSEUDO_HDR, BPF_F_MARK_MANGLED_0, BPF_F_MARK_ENFORCE
TC_ACT_UNSPEC, TC_ACT_SHOT = -1, 2  # the next program decides; drop
ETH_P_IPV6, ETHERNET, IPV6 = 0x86DD, 14, 40  # the type of frames, and the lengths of the headers
# RFC 8200, section 3: offsets in the header of IPv6
PAYLOAD_LENGTH, NEXT_HEADER, SOURCE, DESTINATION = 4, 6, 8, 24
HOP_BY_HOP, TCP, UDP, ROUTING, FRAGMENT, AUTHENTICATION, ICMPV6, OPTIONS, UDP_LITE = 0, 6, 17, 43, 44, 51, 58, 60, 136
ND_TYPES = {"nd-router-advert": 134, "nd-neighbor-solicit": 135, "nd-neighbor-advert": 136}  # RFC 4861, section 4
# By protocol: the length that nft reads before it corrects the checksum, the checksum's place, and flags.
CHECKSUMS = {
    TCP: (18, 16, NEVER_ZERO | EVEN_IF_ZERO),
    UDP: (8, 6, NEVER_ZERO),
    UDP_LITE: (8, 6, NEVER_ZERO | EVEN_IF_ZERO),
    ICMPV6: (4, 2, NEVER_ZERO | EVEN_IF_ZERO),
}
# On the stack: a copy of the header, and its address before and after.
HEADER = -40
TYPE = -48  # of ICMPv6


class SetPrograms(t.NamedTuple):
    """Give a link the programs that translate these probes, each as its source and its translated address; none: detach them.

    table: the name by which the programs are told from others of this collection.
    """

    table: str
    link: str
    probes: tuple[tuple[str, str], ...]


class AttachedPrograms(t.NamedTuple):
    """The programs of a table's name on a link.

    probes: what they translate. faults: why they do not do that as this version does it, as sentences. tags: of the programs.
    """

    probes: tuple[Probe, ...]
    faults: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def name(table: str, direction: str) -> str:
    """Return the name of a program, which has 15 characters at most."""
    return f"{OWN}{zlib.crc32(table.encode()) & 0xFFFF:04x}_{direction[0]}"


def maps(probes: t.Sequence[Probe]) -> dict[str, bytes]:
    """Return what the maps have at first, by name. PROBES is never changed."""
    pairs = b"".join(PAIR.pack(source.packed, translated.packed) for source, translated in probes)
    return {PROBES: pairs, COUNTS: bytes(2 * len(probes) * COUNTED.size)}


def probes_of(pairs: bytes) -> tuple[Probe, ...]:
    """Return the probes that a map PROBES has."""
    return tuple(Probe(*map(ipaddress.IPv6Address, PAIR.unpack_from(pairs, place))) for place in range(0, len(pairs), PAIR.size))


def counts_of(counts: bytes) -> list[tuple[int, int]]:
    """Return packets and bytes by probe at ingress, and then by probe at egress."""
    return [COUNTED.unpack_from(counts, place) for place in range(0, len(counts), COUNTED.size)]


def program(direction: str, probes: int) -> list[Line]:
    """Return the program of a direction. It is the same for all addresses. probes: how many there are."""
    address, first, second = (SOURCE, 0, 16) if direction == INGRESS else (DESTINATION, 16, 0)
    lines: list[Line] = [
        i.move(R6, R1),
        i.load(R0, 4, R6, PROTOCOL),
        i.jump_if(R0, "!=", socket.htons(ETH_P_IPV6), "next"),
        i.load(R0, 4, R6, VLAN_PRESENT),
        i.jump_if(R0, "!=", 0, "next"),
        *_copied(HEADER, ETHERNET, IPV6),
        i.jump_if(R0, "!=", 0, "next"),
    ]
    for number in range(probes):
        other = f"probe {number + 1}" if number + 1 < probes else "next"
        lines += [
            *([Label(f"probe {number}")] if number else []),
            i.address(R7, PROBES, number * PAIR.size),
            *_differs(HEADER + address, R7, first, other),
            i.address(R8, COUNTS, (number + (0 if direction == INGRESS else probes)) * COUNTED.size),
            *([i.jump("found")] if number + 1 < probes else []),
        ]
    lines += [Label("found"), i.load(R0, 1, R10, HEADER + NEXT_HEADER)]
    lines += [i.jump_if(R0, "==", kind, "next") for kind in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, OPTIONS)]
    if direction == INGRESS:
        lines += [*_not_probed(), *_neighbour_discovery()]
    lines += [
        # r9 is the difference of the checksums
        i.move(R1, R7), i.add(R1, first), i.move(R2, 16), i.move(R3, R7), i.add(R3, second), i.move(R4, 16), i.move(R5, 0),
        i.call(DIFFERENCE, "csum_diff"),
        i.move(i.R9, R0),
        *_checksum(),
        Label("translate"),
        i.move(R1, R6), i.move(R2, ETHERNET + address), i.move(R3, R7), i.add(R3, second), i.move(R4, 16), i.move(R5, 0),
        i.call(STORE_BYTES, "skb_store_bytes"),
        i.jump_if(R0, "!=", 0, "drop"),
        # The kernel takes the change of a checksum for one of the sum of the packet (CHECKSUM_COMPLETE), which stays the same.
        i.move(R1, R6), i.move(R2, i.R9),
        i.call(UPDATE_SUM, "csum_update"),
        i.move(R1, 1),
        i.count(R8, 0, R1),
        i.load(R1, 4, R6, LENGTH),
        i.add(R1, -ETHERNET),
        i.count(R8, 8, R1),
        Label("next"),
        i.move(R0, TC_ACT_UNSPEC),
        i.leave(),
        Label("drop"),
        i.move(R0, TC_ACT_SHOT),
        i.leave(),
    ]  # fmt: skip
    return lines


def _copied(place: int, offset: int, length: int) -> list[Instruction]:
    """Copy bytes of the packet to the stack. r0 is 0 then."""
    return [
        i.move(R1, R6),
        i.move(R2, offset),
        i.move(R3, R10),
        i.add(R3, place),
        i.move(R4, length),
        i.call(LOAD_BYTES, "skb_load_bytes"),
    ]


def _differs(place: int, base: Register, offset: int, target: str) -> list[Instruction]:
    """Jump if an address on the stack is not the one at an offset from a register."""
    halves = (0, 8)
    return [
        line
        for half in halves
        for line in (
            i.load(R1, 8, R10, place + half),
            i.load(R2, 8, base, offset + half),
            i.jump_if(R1, "!=", R2, target),
        )
    ]


def _not_probed() -> list[Instruction]:
    """Leave out packets to NOT_PROBED: fe80::/10 and ff00::/8."""
    return [
        i.load(R1, 2, R10, HEADER + DESTINATION),
        i.from_network_order(R1),
        i.move(R2, R1),
        i.keep_bits(R2, 0xFFC0),
        i.jump_if(R2, "==", 0xFE80, "next"),
        i.keep_bits(R1, 0xFF00),
        i.jump_if(R1, "==", 0xFF00, "next"),
    ]


def _neighbour_discovery() -> list[Line]:
    types = [ND_TYPES[name] for name in NEIGHBOUR_DISCOVERY]
    return [
        i.jump_if(R0, "!=", ICMPV6, "no discovery"),
        *_copied(TYPE, ETHERNET + IPV6, 1),
        i.jump_if(R0, "!=", 0, "next"),
        i.load(R1, 1, R10, TYPE),
        *(i.jump_if(R1, "==", number, "next") for number in types),
        Label("no discovery"),
    ]


def _checksum() -> list[Line]:
    """Correct the checksum of the packet's protocol, or go to ``next`` if the packet ends before it, as nft does.

    nft translates UDP without its header all the same.
    """
    lines: list[Line] = [
        i.load(R0, 1, R10, HEADER + NEXT_HEADER),
        i.load(R3, 2, R10, HEADER + PAYLOAD_LENGTH),
        i.from_network_order(R3),
    ]
    for protocol, (length, offset, flags) in CHECKSUMS.items():
        lines += [
            i.jump_if(R0, "!=", protocol, f"not {protocol}"),
            i.jump_if(R3, "<", length, "translate" if protocol == UDP else "next"),
            i.move(R2, ETHERNET + IPV6 + offset),
            i.move(R5, PSEUDO_HEADER | flags),
            i.jump("correct"),
            Label(f"not {protocol}"),
        ]
    return [
        *lines,
        i.jump("translate"),
        Label("correct"),
        i.move(R1, R6),
        i.move(R3, 0),
        i.move(R4, i.R9),
        i.call(REPLACE_CHECKSUM, "l4_csum_replace"),
        i.jump_if(R0, "!=", 0, "next"),
    ]
