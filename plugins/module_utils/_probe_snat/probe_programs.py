# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The BPF programs that do what the probe table does, on a link whose packets other BPF programs take before nftables sees them.

The program at ingress gives each probe its translated source, and leaves it to the next program. The one at egress gives the
reply its link-local destination, and no other program sees it then: Cilium's would find no connection of that address.

They treat a packet as the table does, with two exceptions, which they do not touch: one with a VLAN tag, which nftables sees on
another link, and one with extension headers, which no probe has. And they do what the table need not do: Cilium's program at
egress gives the reply of a pod the address of its Service (bpf/lib/nodeport_egress.h). As it does not see the reply any more,
ours does so, by what the one at ingress has noted of the probe.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import typing as t
import zlib

from .._bpf import instructions as i
from .._bpf.instructions import OWN_PROGRAMS, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Instruction, Label, Line
from .probe_table import NEIGHBOUR_DISCOVERY, Probe

INGRESS, EGRESS = "ingress", "egress"
PROBES, COUNTS = "probes", "counts"  # the maps with one entry
# The maps of connections by TCP. STARTS: the destination and port of a probe's first packet, by the acknowledgement that answers
# it. FLOWS: the same, by the address and port of what has answered. Of each the kernel forgets the oldest.
STARTS, FLOWS = "starts", "flows"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MOST_PROBES = 1024  # of a program, whose jumps reach that far
CONNECTIONS = {STARTS: (12, 20, 1024), FLOWS: (24, 20, 4096)}  # lengths of a key and a value, and entries
PAIR = struct.Struct("=16s16s")  # what PROBES has of a probe: source and translated
COUNTED = struct.Struct("=QQ")  # what COUNTS has of a probe and a direction: packets and bytes, as a counter of nft has them

# include/uapi/linux/bpf.h: offsets in __sk_buff, functions, and their flags
LENGTH, PROTOCOL, VLAN_PRESENT = 0, 16, 20
LOOK_UP, UPDATE, STORE_BYTES, REPLACE_CHECKSUM, LOAD_BYTES, DIFFERENCE, PULL, UPDATE_SUM = 1, 2, 9, 11, 26, 28, 39, 40
DATA, DATA_END = 76, 80
PSEUDO_HEADER, NEVER_ZERO, EVEN_IF_ZERO = 1 << 4, 1 << 5, 1 << 6  # BPF_F_PSEUDO_HDR, BPF_F_MARK_MANGLED_0, BPF_F_MARK_ENFORCE
TC_ACT_UNSPEC, TC_ACT_OK, TC_ACT_SHOT = -1, 0, 2  # the next program decides; pass without the next ones; drop
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
# RFC 9293, section 3.1: offsets in the header of TCP, its length, and flags
PORTS, ANSWERED_PORT, SEQUENCE, ACKNOWLEDGEMENT, FLAGS, TCP_LENGTH = 0, 2, 4, 8, 13, 20
SYN, SYN_AND_ACK = 0x02, 0x12
# On the stack: copies of both headers, the type of ICMPv6, and the entries of STARTS and FLOWS.
HEADER, TCP_HEADER, TYPE = -40, -64, -66
START, FLOW, VALUE = -80, -128, -104  # number, port, acknowledgement; address, ports, number; address, ports


class SetPrograms(t.NamedTuple):
    """Give a link the programs that translate these probes, each as its source and its translated address; none: detach them.

    table: the name by which the programs are told from others of this collection.
    """

    table: str
    link: str
    probes: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, table: str, link: str, probes: t.Iterable[Probe]) -> SetPrograms:
        return cls(table, link, tuple((str(source), str(translated)) for source, translated in probes))

    def read(self) -> tuple[Probe, ...]:
        """Return the probes as values."""
        return tuple(Probe(*map(ipaddress.IPv6Address, pair)) for pair in self.probes)


class AttachedPrograms(t.NamedTuple):
    """The programs of a table's name on a link.

    probes: what they translate. faults: why they do not do that as this version does it, as sentences. tags: of the programs.
    """

    probes: tuple[Probe, ...]
    faults: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def name(table: str, direction: str) -> str:
    """Return the name of a program, which has 15 characters at most: four of them stand for the table."""
    number, digits = zlib.crc32(table.encode()), ""
    for _digit in range(4):
        number, digit = divmod(number, len(DIGITS))
        digits += DIGITS[digit]
    return f"{OWN_PROGRAMS}{digits}_{direction[0]}"


def maps(probes: t.Sequence[Probe]) -> dict[str, bytes]:
    """Return what the maps have at first, by name. PROBES is never changed."""
    pairs = b"".join(PAIR.pack(source.packed, translated.packed) for source, translated in probes)
    return {PROBES: pairs, COUNTS: bytes(2 * len(probes) * COUNTED.size)}


def probes_of(pairs: bytes) -> tuple[Probe, ...]:
    """Return the probes that a map PROBES has; none if another version, or another program, has made it."""
    if len(pairs) % PAIR.size or len(pairs) > MOST_PROBES * PAIR.size:
        return ()
    return tuple(Probe(*map(ipaddress.IPv6Address, PAIR.unpack_from(pairs, place))) for place in range(0, len(pairs), PAIR.size))


def program(direction: str, probes: int) -> list[Line]:
    """Return the program of a direction. It is the same for all addresses. probes: how many there are."""
    address, first, second = (SOURCE, 0, 16) if direction == INGRESS else (DESTINATION, 16, 0)
    lines: list[Line] = [
        i.move(R6, R1),
        i.load(R0, 4, R6, PROTOCOL),
        i.jump_if(R0, "!=", socket.htons(ETH_P_IPV6), "next"),
        i.load(R0, 4, R6, VLAN_PRESENT),
        i.jump_if(R0, "!=", 0, "next"),
        *_with_header(),
    ]
    for number in range(probes):
        other = f"probe {number + 1}" if number + 1 < probes else "next"
        lines += [
            *([Label(f"probe {number}")] if number else []),
            i.address(R7, PROBES, number * PAIR.size),
            *_differs(ETHERNET + address, first, other),
            i.address(R8, COUNTS, (number + (0 if direction == INGRESS else probes)) * COUNTED.size),
            i.store(4, R10, START, number),
            *([i.jump("found")] if number + 1 < probes else []),
        ]
    lines += [Label("found"), *_copied(HEADER, ETHERNET, IPV6), i.jump_if(R0, "!=", 0, "next")]
    lines += [i.load(R0, 1, R10, HEADER + NEXT_HEADER)]
    lines += [i.jump_if(R0, "==", kind, "next") for kind in (HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, OPTIONS)]
    lines += [*_not_probed(), *_neighbour_discovery()] if direction == INGRESS else _answered_address()
    lines += [
        # r9 is the difference of the checksums
        i.move(R1, R7), i.add(R1, first), i.move(R2, 16), i.move(R3, R7), i.add(R3, second), i.move(R4, 16), i.move(R5, 0),
        i.call(DIFFERENCE, "csum_diff"),
        i.move(R9, R0),
        *_checksum(),
        Label("translate"),
        i.move(R1, R6), i.move(R2, ETHERNET + address), i.move(R3, R7), i.add(R3, second), i.move(R4, 16), i.move(R5, 0),
        i.call(STORE_BYTES, "skb_store_bytes"),
        i.jump_if(R0, "!=", 0, "drop"),
        # The kernel takes the change of a checksum for one of the sum of the packet (CHECKSUM_COMPLETE), which stays the same.
        i.move(R1, R6), i.move(R2, R9),
        i.call(UPDATE_SUM, "csum_update"),
        i.move(R1, 1),
        i.count(R8, 0, R1),
        i.load(R1, 4, R6, LENGTH),
        i.add(R1, -ETHERNET),
        i.count(R8, 8, R1),
        *(_noted() if direction == INGRESS else [i.move(R0, TC_ACT_OK), i.leave()]),
        Label("next"),
        i.move(R0, TC_ACT_UNSPEC),
        i.leave(),
        Label("drop"),
        i.move(R0, TC_ACT_SHOT),
        i.leave(),
    ]  # fmt: skip
    return lines


def _with_header() -> list[Line]:
    """Let r9 be where the packet begins, and go on if both of its headers are there: no function is called for most packets."""
    edges = [i.load(R9, 4, R6, DATA), i.load(R2, 4, R6, DATA_END), i.move(R1, R9), i.add(R1, ETHERNET + IPV6)]
    pull = [i.move(R1, R6), i.move(R2, ETHERNET + IPV6), i.call(PULL, "skb_pull_data"), *edges, i.jump_if(R1, ">", R2, "next")]
    return [*edges, i.jump_if(R1, ">", R2, "pull"), i.jump("whole"), Label("pull"), *pull, Label("whole")]


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


def _differs(place: int, offset: int, target: str) -> list[Instruction]:
    """Jump if an address of the packet is not the one at an offset of the probe."""
    halves = (0, 8)
    return [
        line
        for half in halves
        for line in (
            i.load(R1, 8, R9, place + half),
            i.load(R2, 8, R7, offset + half),
            i.jump_if(R1, "!=", R2, target),
        )
    ]


def _not_probed() -> list[Instruction]:
    """Leave out packets to NOT_PROBED: fe80::/10 and ff00::/8."""
    return [
        i.load(R1, 2, R10, HEADER + DESTINATION),
        i.swap(R1, 16),
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
        i.swap(R3, 16),
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
        i.move(R4, R9),
        i.call(REPLACE_CHECKSUM, "l4_csum_replace"),
        i.jump_if(R0, "!=", 0, "next"),
    ]


def _moved(size: int, to: int, base: i.Register, offset: int) -> list[Instruction]:
    """Copy 2, 4 or 8 bytes to the stack."""
    return [i.load(R1, size, base, offset), i.store(size, R10, to, R1)]


def _of_map(name: str, key: int) -> list[Instruction]:
    """Give a function the map, and the key at a place of the stack."""
    return [i.reference(R1, name), i.move(R2, R10), i.add(R2, key)]


def _updated(name: str, key: int) -> list[Instruction]:
    return [*_of_map(name, key), i.move(R3, R10), i.add(R3, VALUE), i.move(R4, 0), i.call(UPDATE, "map_update_elem")]


def _noted() -> list[Instruction]:
    """Note where the first packet of a connection by TCP goes, before others translate that."""
    return [
        i.load(R0, 1, R10, HEADER + NEXT_HEADER),
        i.jump_if(R0, "!=", TCP, "next"),
        *_copied(TCP_HEADER, ETHERNET + IPV6, TCP_LENGTH),
        i.jump_if(R0, "!=", 0, "next"),
        i.load(R1, 1, R10, TCP_HEADER + FLAGS),
        i.keep_bits(R1, SYN_AND_ACK),
        i.jump_if(R1, "!=", SYN, "next"),
        *_moved(2, START + 4, R10, TCP_HEADER + PORTS),
        i.store(2, R10, START + 6, 0),
        i.load(R1, 4, R10, TCP_HEADER + SEQUENCE),
        i.swap(R1, 32),
        i.add(R1, 1),
        i.swap(R1, 32),
        i.store(4, R10, START + 8, R1),
        *_moved(8, VALUE, R10, HEADER + DESTINATION),
        *_moved(8, VALUE + 8, R10, HEADER + DESTINATION + 8),
        *_moved(2, VALUE + 16, R10, TCP_HEADER + ANSWERED_PORT),
        *_moved(2, VALUE + 18, R10, TCP_HEADER + PORTS),
        *_updated(STARTS, START),
    ]


def _answered_address() -> list[Line]:
    """Let a reply by TCP come from where its probe went to, unless it does already."""
    ports = FLOW + 16
    replaced = [i.move(R1, R6), i.move(R5, PSEUDO_HEADER | NEVER_ZERO | EVEN_IF_ZERO), i.move(R2, ETHERNET + IPV6 + 16)]
    return [
        i.jump_if(R0, "!=", TCP, "answered"),
        i.load(R1, 2, R10, HEADER + PAYLOAD_LENGTH),
        i.swap(R1, 16),
        i.jump_if(R1, "<", TCP_LENGTH, "answered"),
        *_copied(TCP_HEADER, ETHERNET + IPV6, TCP_LENGTH),
        i.jump_if(R0, "!=", 0, "answered"),
        *_moved(8, FLOW, R10, HEADER + SOURCE),
        *_moved(8, FLOW + 8, R10, HEADER + SOURCE + 8),
        *_moved(4, ports, R10, TCP_HEADER + PORTS),
        *_moved(4, FLOW + 20, R10, START),
        *_moved(2, START + 4, R10, TCP_HEADER + ANSWERED_PORT),
        i.store(2, R10, START + 6, 0),
        *_moved(4, START + 8, R10, TCP_HEADER + ACKNOWLEDGEMENT),
        *_of_map(STARTS, START),
        i.call(LOOK_UP, "map_lookup_elem"),
        i.jump_if(R0, "==", 0, "later"),
        *_value(),
        *_updated(FLOWS, FLOW),
        i.jump("compare"),
        Label("later"),
        *_of_map(FLOWS, FLOW),
        i.call(LOOK_UP, "map_lookup_elem"),
        i.jump_if(R0, "==", 0, "answered"),
        *_value(),
        Label("compare"),
        i.load(R1, 8, R10, VALUE), i.load(R2, 8, R10, FLOW), i.jump_if(R1, "!=", R2, "restore"),
        i.load(R1, 8, R10, VALUE + 8), i.load(R2, 8, R10, FLOW + 8), i.jump_if(R1, "!=", R2, "restore"),
        i.load(R1, 2, R10, VALUE + 16), i.load(R2, 2, R10, ports), i.jump_if(R1, "==", R2, "answered"),
        Label("restore"),
        i.move(R1, R10), i.add(R1, FLOW), i.move(R2, 16), i.move(R3, R10), i.add(R3, VALUE), i.move(R4, 16), i.move(R5, 0),
        i.call(DIFFERENCE, "csum_diff"),
        i.move(R4, R0), i.move(R3, 0), *replaced,
        i.call(REPLACE_CHECKSUM, "l4_csum_replace"),
        i.jump_if(R0, "!=", 0, "drop"),
        i.load(R3, 2, R10, ports), i.load(R4, 2, R10, VALUE + 16), *replaced, i.move(R5, NEVER_ZERO | EVEN_IF_ZERO | 2),
        i.call(REPLACE_CHECKSUM, "l4_csum_replace"),
        i.jump_if(R0, "!=", 0, "drop"),
        *_stored(ETHERNET + SOURCE, VALUE, 16),
        *_stored(ETHERNET + IPV6 + PORTS, VALUE + 16, 2),
        Label("answered"),
    ]  # fmt: skip


def _value() -> list[Instruction]:
    """Copy what a map has to the stack."""
    return [*_moved(8, VALUE, R0, 0), *_moved(8, VALUE + 8, R0, 8), *_moved(4, VALUE + 16, R0, 16)]


def _stored(offset: int, place: int, length: int) -> list[Instruction]:
    """Write bytes of the stack into the packet."""
    return [
        *(i.move(R1, R6), i.move(R2, offset), i.move(R3, R10), i.add(R3, place), i.move(R4, length), i.move(R5, 0)),
        i.call(STORE_BYTES, "skb_store_bytes"),
        i.jump_if(R0, "!=", 0, "drop"),
    ]
