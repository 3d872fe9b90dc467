# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The traces of a packet: frames, the rules of nf_tables that it met, and the kernel's counters of dropped packets."""

from __future__ import annotations

import struct
import sys
import typing as t

from .._netlink.attributes import attributes, text
from .frame import Frame, Request
from .packet import PORTS, Packet

# include/uapi/linux/netfilter/nf_tables.h
TABLE, CHAIN, HANDLE, TYPE, VERDICT, ID, LL_HEADER, NETWORK_HEADER, TRANSPORT_HEADER = 1, 2, 3, 4, 5, 6, 7, 8, 9
IIF, OIF, MARK, PROTOCOL, POLICY = 10, 12, 14, 15, 16
OF_POLICY, OF_RULE = 1, 3
VERDICT_CODE, VERDICT_CHAIN = 1, 2
VERDICTS = {0: "drop", 1: "accept", 2: "stolen", 3: "queue", -1: "continue", -2: "break", -3: "jump", -4: "goto", -5: "return"}
DROPS = ("drop", "policy drop")
# Counters that show where a packet ended (net/ipv4/proc.c, net/ipv6/proc.c), by the ends of their names.
TELLING = (
    "IPReversePathFilter", "InNoRoutes", "OutNoRoutes", "InAddrErrors", "InHdrErrors", "InDiscards", "OutDiscards", "FragFails",
    "InDelivers",
)  # fmt: skip
_SOLICITED = bytes.fromhex("ff0200000000000000000000000001ff")[:13]
IP_LENGTHS = {4: 20, 6: 40}  # of a header without options, by the version
PORT_PAIR = struct.Struct("!HH")
FAMILIES = {1: "inet", 2: "ip", 5: "netdev", 7: "bridge", 10: "ip6"}


class Event(t.NamedTuple):
    """A rule that the packet matched, or the end of a chain. handle: of the rule, 0 for the end of a chain.

    verdict: "accept", "jump KUBE-SERVICES"... destination_mac: at this place. iif, oif: indexes, 0 if the place has none.
    network, transport: the packet's headers at this place. following: the same of the next place; empty if there is none.
    """

    family: str
    table: str
    chain: str
    handle: int
    verdict: str
    number: int
    destination_mac: bytes = b""
    network: bytes = b""
    iif: int = 0
    oif: int = 0
    mark: int = 0
    transport: bytes = b""
    following: tuple[bytes, bytes] = (b"", b"")


class Asked(t.NamedTuple):
    """A request for a MAC address that came out by ``link``."""

    link: str
    request: Request
    is_answered: bool


class Observation(t.NamedTuple):
    """What became of a packet. frames: with the link by which each came out, in order.

    events: of the rules that it met. counters: that have changed. error: why the node itself could not send it.
    """

    sent: Packet
    frames: tuple[tuple[str, Frame], ...]
    asked: tuple[Asked, ...]
    events: tuple[Event, ...]
    counters: t.Mapping[str, int]
    error: str = ""


def of_packet(seen: Observation) -> list[Event]:
    """The events of the packet that was sent, without those of others, such as multicast reports. Each event has a packet's
    header."""
    sent = seen.sent
    # The number of a packet changes when a bridge hands it to the node, because it is made from the interface as well
    # (nf_tables_trace.c, trace_fill_id). By then its addresses may be translated.
    numbers, pairs = set[int](), set[tuple[bytes, bytes]]()
    found, iif, oif, network, transport = list[Event](), 0, 0, b"", b""
    for one in seen.events:
        pair = ends(one.network) if one.network else None
        # A packet without a source has the one that the node chooses.
        is_sent = pair is not None and pair[1] == sent.destination and sent.source in (b"", pair[0])
        if pair is not None and (is_sent or pair in pairs or one.number in numbers):
            numbers.add(one.number)
            pairs.add(pair)
        if one.number in numbers:
            if one.network:
                iif, oif, network, transport = one.iif, one.oif, one.network, one.transport
            one = one._replace(network=one.network or network, transport=one.transport or transport)
            found.append(one._replace(iif=one.iif or iif, oif=one.oif or oif))
    return [event._replace(following=(after.network, after.transport)) for event, after in zip(found, found[1:])] + found[-1:]


def drop_of(events: t.Iterable[Event], source: bytes) -> Event | None:
    """The event that drops a packet from ``source``, such as the answer of a neighbour; None if there is none."""
    own: set[int] = set()
    for one in events:
        if one.network and ends(one.network)[0] == source:
            own.add(one.number)
        if one.number in own and one.verdict in DROPS:
            return one
    return None


def drop_of_request(events: t.Iterable[Event]) -> Event | None:
    """Return the event by which a bridge drops a request for a MAC address; None if there is none."""
    requests: set[int] = set()
    for step in events:
        if step.family == "bridge" and _asks_for_mac(step.network):
            requests.add(step.number)
        if step.number in requests and step.verdict in DROPS:
            return step
    return None


def _asks_for_mac(header: bytes) -> bool:
    """Whether a network header is that of ARP, or of a neighbour solicitation to many (RFC 4291, section 2.7.1)."""
    version = header[0] >> 4 if header else 4
    return version not in (4, 6) or (version == 6 and header[24:37] == _SOLICITED)


def packet_of(headers: tuple[bytes, bytes], sent: Packet) -> Packet:
    """Return the packet that was sent, with the addresses and ports of a network and a transport header."""
    source, destination = ends(headers[0])
    has_ports = sent.protocol in PORTS and len(headers[1]) >= PORT_PAIR.size
    ports = PORT_PAIR.unpack_from(headers[1]) if has_ports else (sent.source_port, sent.destination_port)
    return sent._replace(source=source, destination=destination, source_port=ports[0], destination_port=ports[1])


def is_ip(header: bytes) -> bool:
    """Whether a network header is a whole one of IP. Behind a VLAN tag, the kernel shows another one."""
    return len(header) >= IP_LENGTHS.get(header[0] >> 4 if header else 0, sys.maxsize)


def ends(header: bytes) -> tuple[bytes, bytes]:
    """Source and destination in an IP header."""
    return (header[8:24], header[24:40]) if header[0] >> 4 == 6 else (header[12:16], header[16:20])


def event(body: bytes) -> Event:
    """A message of the kernel without its header."""
    found = attributes(body, 4)
    kind = _number(found, TYPE)
    code = struct.unpack("!i", found[POLICY])[0] if kind == OF_POLICY and POLICY in found else None
    verdict = VERDICTS.get(code, "") if code is not None else _verdict(attributes(found.get(VERDICT, b"")))
    family = body[0] or _number(found, PROTOCOL)  # of the table, and of the packet: they differ in tables of inet
    return Event(
        FAMILIES.get(family, str(family)),
        text(found, TABLE),
        text(found, CHAIN),
        int.from_bytes(found.get(HANDLE, b""), "big") if kind == OF_RULE else 0,
        verdict if kind != OF_POLICY else f"policy {verdict}",
        _number(found, ID),
        found.get(LL_HEADER, b"")[:6],
        found.get(NETWORK_HEADER, b""),
        _number(found, IIF),
        _number(found, OIF),
        _number(found, MARK),
        found.get(TRANSPORT_HEADER, b""),
    )


def _verdict(found: dict[int, bytes]) -> str:
    code = struct.unpack("!i", found[VERDICT_CODE])[0] if VERDICT_CODE in found else -1
    name = VERDICTS.get(code, str(code))
    return f"{name} {text(found, VERDICT_CHAIN)}" if VERDICT_CHAIN in found else name


def _number(found: t.Mapping[int, bytes], kind: int) -> int:
    return int.from_bytes(found.get(kind, b""), "big")


def counters(*texts: str) -> dict[str, int]:
    """The counters of /proc/net/snmp, netstat and snmp6, as "Ip.InNoRoutes" and "Ip6InNoRoutes"."""
    found: dict[str, int] = {}
    for content in texts:
        names: dict[str, list[str]] = {}
        for line in content.splitlines():
            kind, colon, rest = line.partition(": ")
            words = rest.split() if colon else line.split()
            if colon and kind in names:
                found.update((f"{kind}.{name}", int(value)) for name, value in zip(names[kind], words))
            elif colon:
                names[kind] = words
            elif len(words) == 2:
                found[words[0]] = int(words[1])
    return found


def moved(before: t.Mapping[str, int], after: t.Mapping[str, int]) -> dict[str, int]:
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
