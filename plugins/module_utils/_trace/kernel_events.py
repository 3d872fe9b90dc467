# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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
QUEUE, VERDICT_MASK = "queue", 0xFF  # NF_VERDICT_MASK: above it, a queue has its number and a flag
# Counters that show where a packet ended (net/ipv4/proc.c, net/ipv6/proc.c), by the ends of their names.
TELLING = (
    "IPReversePathFilter", "InNoRoutes", "OutNoRoutes", "InAddrErrors", "InHdrErrors", "InDiscards", "OutDiscards", "FragFails",
    "InTooBigErrors", "InDelivers",
)  # fmt: skip
_SOLICITED = bytes.fromhex("ff0200000000000000000001ff")
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


class Solicitation(t.NamedTuple):
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
    solicitations: tuple[Solicitation, ...]
    events: tuple[Event, ...]
    counters: t.Mapping[str, int]
    error: str = ""


def of_packet(observation: Observation) -> list[Event]:
    """Return the events of the packet that was sent, without those of others, such as multicast reports.

    Each event has a packet's header.
    """
    sent = observation.sent
    # The number of a packet changes when a bridge hands it to the node, because it is made from the interface as well
    # (nf_tables_trace.c, trace_fill_id). By then its addresses may be translated.
    numbers, pairs = set[int](), set[tuple[bytes, bytes]]()
    events, iif, oif, network, transport = list[Event](), 0, 0, b"", b""
    for event in observation.events:
        pair = ends(event.network) if event.network else None
        # A packet without a source has the one that the node chooses.
        is_sent = pair is not None and pair[1] == sent.destination and sent.source in (b"", pair[0])
        if pair is not None and (is_sent or pair in pairs or event.number in numbers):
            numbers.add(event.number)
            pairs.add(pair)
        if event.number in numbers:
            if event.network:
                iif, oif, network, transport = event.iif, event.oif, event.network, event.transport
            event = event._replace(network=event.network or network, transport=event.transport or transport)
            events.append(event._replace(iif=event.iif or iif, oif=event.oif or oif))
    return [event._replace(following=(after.network, after.transport)) for event, after in zip(events, events[1:])] + events[-1:]


def drop_of(events: t.Iterable[Event], source: bytes) -> Event | None:
    """Return the event that drops a packet from ``source``, such as the answer of a neighbour; None if there is none."""
    numbers: set[int] = set()
    for event in events:
        if event.network and ends(event.network)[0] == source:
            numbers.add(event.number)
        if event.number in numbers and event.verdict in DROPS:
            return event
    return None


def drop_of_request(events: t.Iterable[Event]) -> Event | None:
    """Return the event that drops a request for a MAC address at a bridge, or of the node itself; None if there is none."""
    requests: set[int] = set()
    for step in events:
        if (step.family == "bridge" or not step.iif) and _asks_for_mac(step.network):
            requests.add(step.number)
        if step.number in requests and step.verdict in DROPS:
            return step
    return None


def _asks_for_mac(header: bytes) -> bool:
    """Return whether a network header is that of ARP, or of a neighbour solicitation to many (RFC 4291, section 2.7.1)."""
    version = header[0] >> 4 if header else 4
    return version not in (4, 6) or (version == 6 and header[24:37] == _SOLICITED)


def packet_of(headers: tuple[bytes, bytes], sent: Packet) -> Packet:
    """Return the packet that was sent, with the addresses and ports of a network and a transport header."""
    source, destination = ends(headers[0])
    has_ports = sent.protocol in PORTS and len(headers[1]) >= PORT_PAIR.size
    ports = PORT_PAIR.unpack_from(headers[1]) if has_ports else (sent.source_port, sent.destination_port)
    return sent._replace(source=source, destination=destination, source_port=ports[0], destination_port=ports[1])


def is_ip(header: bytes) -> bool:
    """Return whether a network header is a whole one of IP. Behind a VLAN tag, the kernel shows another one."""
    return len(header) >= IP_LENGTHS.get(header[0] >> 4 if header else 0, sys.maxsize)


def ends(header: bytes) -> tuple[bytes, bytes]:
    """Return the source and the destination in an IP header."""
    return (header[8:24], header[24:40]) if header[0] >> 4 == 6 else (header[12:16], header[16:20])


def event(body: bytes) -> Event:
    """Return the event of a message of the kernel. body: the message without its header."""
    values = attributes(body, 4)
    kind = _number(values, TYPE)
    code = struct.unpack("!i", values[POLICY])[0] if kind == OF_POLICY and POLICY in values else None
    verdict = VERDICTS.get(code, "") if code is not None else _verdict(attributes(values.get(VERDICT, b"")))
    family = body[0] or _number(values, PROTOCOL)  # of the table, and of the packet: they differ in tables of inet
    return Event(
        FAMILIES.get(family, str(family)),
        text(values, TABLE),
        text(values, CHAIN),
        int.from_bytes(values.get(HANDLE, b""), "big") if kind == OF_RULE else 0,
        verdict if kind != OF_POLICY else f"policy {verdict}",
        _number(values, ID),
        values.get(LL_HEADER, b"")[:6],
        values.get(NETWORK_HEADER, b""),
        _number(values, IIF),
        _number(values, OIF),
        _number(values, MARK),
        values.get(TRANSPORT_HEADER, b""),
    )


def _verdict(values: dict[int, bytes]) -> str:
    code = struct.unpack("!i", values[VERDICT_CODE])[0] if VERDICT_CODE in values else -1
    name = VERDICTS.get(code & VERDICT_MASK if code > 0 else code, str(code))
    return f"{name} {text(values, VERDICT_CHAIN)}" if VERDICT_CHAIN in values else name


def _number(values: t.Mapping[int, bytes], kind: int) -> int:
    return int.from_bytes(values.get(kind, b""), "big")


def moved(before: t.Mapping[str, int], after: t.Mapping[str, int]) -> dict[str, int]:
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
