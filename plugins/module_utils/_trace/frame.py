# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ethernet frames: a packet built into one, and one read back. Also requests for a neighbour's MAC address, and answers."""

from __future__ import annotations

import struct
import typing as t

from .._core.fields import IPV6
from .packet import ICMP, ICMPV6, PORTS, TCP, UDP, Packet

ETHERNET = struct.Struct("!6s6sH")  # destination, source, ethertype
IP, IP6, ARP = 0x0800, 0x86DD, 0x0806
IPV4_HEADER = struct.Struct("!BBHHHBBH4s4s")
IPV6_HEADER = struct.Struct("!IHBB16s16s")
ARP_PACKET = struct.Struct("!HHBBH6s4s6s4s")
DONT_FRAGMENT, OFFSET = 0x4000, 0x1FFF  # in the header of IPv4
FRAGMENT = 44  # the header of a fragment of IPv6
TTL = 61  # of a packet that has passed three routers
SYN, ACK, RST = 0x02, 0x10, 0x04
ECHO = {ICMP: (8, 0), ICMPV6: (128, 129)}  # type of request and of reply
ERRORS = {ICMP: (3, 11, 12), ICMPV6: (1, 2, 3, 4)}  # types of errors about another packet
SOLICITATION, ADVERTISEMENT = 135, 136
SOLICITED_OVERRIDE = 0x60000000
SOURCE_MAC, TARGET_MAC = 1, 2  # options: the link-layer address of the source, and of the target
SOLICITED_NODE = bytes.fromhex("ff0200000000000000000001ff")  # RFC 4291, section 2.7.1; the last three bytes are the address's


class Frame(t.NamedTuple):
    """A frame with an IP packet. reject: the rejection of another packet that it carries, such as "a TCP reset"; empty for
    none."""

    packet: Packet
    source_mac: bytes
    destination_mac: bytes
    reject: str = ""

    def report(self) -> dict[str, t.Any]:
        """Return the packet with its MAC addresses as the module returns it."""
        macs = {"source_mac": self.source_mac.hex(":"), "destination_mac": self.destination_mac.hex(":")}
        return {**self.packet.report(), **macs}


class Request(t.NamedTuple):
    """A request for the MAC address of ``target``, by ``sender`` with ``mac``."""

    target: bytes
    sender: bytes
    mac: bytes


class Resolution(t.NamedTuple):
    """An answer to a request: ``target`` has ``mac``. to: the MAC address to which it is sent."""

    target: bytes
    mac: bytes
    to: bytes

    def is_for(self, mac: bytes) -> bool:
        """Return whether the machine with a MAC address takes it: it is sent to that one, or to all, as azure-vnet does."""
        return self.to == mac or is_group(self.to)


def build(packet: Packet, source_mac: bytes, destination_mac: bytes) -> bytes:
    kind = IP6 if packet.family == IPV6 else IP
    return ETHERNET.pack(destination_mac, source_mac, kind) + ip_packet(packet)


def ip_packet(packet: Packet) -> bytes:
    content = payload(packet)
    if packet.family == IPV6:
        header = IPV6_HEADER.pack(6 << 28, len(content), packet.protocol, TTL, packet.source, packet.destination)
        return header + content
    flags = DONT_FRAGMENT if packet.is_whole or not packet.length else 0
    fields = [0x45, 0, IPV4_HEADER.size + len(content), 1, flags, TTL, packet.protocol, 0, packet.source, packet.destination]
    fields[7] = _checksum(IPV4_HEADER.pack(*fields))
    return IPV4_HEADER.pack(*fields) + content


def payload(packet: Packet) -> bytes:
    ports, data = (packet.source_port, packet.destination_port), b""
    room = packet.length - (IPV6_HEADER if packet.family == IPV6 else IPV4_HEADER).size
    if packet.protocol == TCP:
        flags, acknowledged = (SYN | ACK, packet.acknowledged) if packet.is_reply else (SYN, 0)
        data = struct.pack("!HHIIBBHHH", *ports, packet.sequence, acknowledged, 5 << 4, flags, 64240, 0, 0)
        data += bytes(max(0, room - len(data)))
        return _with_checksum(packet, data, 16)
    if packet.protocol == UDP:
        data = b"data".ljust(room - 8, b"\0")
        return _with_checksum(packet, struct.pack("!HHHH", *ports, 8 + len(data), 0) + data, 6)
    if packet.protocol in ECHO:
        data = struct.pack("!BBHHH", ECHO[packet.protocol][packet.is_reply], 0, 0, packet.source_port, 1)
        data += b"datadata".ljust(room - len(data), b"\0")
        return _with_checksum(packet, data, 2)
    return (struct.pack("!HHI", *ports, 0) + b"data" if packet.protocol in PORTS else b"datadata").ljust(room, b"\0")


def _with_checksum(packet: Packet, data: bytes, place: int) -> bytes:
    summed = data if packet.protocol == ICMP else _pseudo_header(packet, len(data)) + data
    return data[:place] + struct.pack("!H", _checksum(summed) or 0xFFFF) + data[place + 2 :]


def _pseudo_header(packet: Packet, length: int) -> bytes:
    return packet.source + packet.destination + struct.pack("!II", length, packet.protocol)


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def read(data: bytes) -> Frame | Request | Resolution | None:
    """Return the packet, the request or the answer in a frame; None for other frames, such as a multicast report."""
    if len(data) < ETHERNET.size:
        return None
    destination, source, kind = ETHERNET.unpack_from(data)
    body = data[ETHERNET.size :]
    if kind == ARP and len(body) >= ARP_PACKET.size:
        _hardware, _protocol, _hlen, _plen, operation, mac, sender, _target_mac, target = ARP_PACKET.unpack_from(body)
        return Request(target, sender, mac) if operation == 1 else Resolution(sender, mac, destination)
    if kind not in (IP, IP6):
        return None
    decoded = _ip(body)
    if decoded is None:
        return None
    packet, payload = decoded
    if packet.protocol == ICMPV6 and payload[:1] == bytes([SOLICITATION]) and len(payload) >= 24:
        return Request(payload[8:24], packet.source, source)
    if packet.protocol == ICMPV6 and payload[:1] == bytes([ADVERTISEMENT]) and len(payload) >= 24:
        return Resolution(payload[8:24], source, destination)
    reject = _reject(packet, payload)
    if packet.protocol in ECHO and not reject and payload[:1] not in map(bytes, zip(ECHO[packet.protocol])):
        return None  # a multicast report, a redirect or an advertisement
    return Frame(packet, source, destination, reject)


def _ip(body: bytes) -> tuple[Packet, bytes] | None:
    """Return the packet, and the bytes after its IP header."""
    if len(body) >= 20 and body[0] >> 4 == 4:
        length = (body[0] & 15) * 4
        _version, _tos, _total, _number, place, _ttl, protocol, _sum, source, destination = IPV4_HEADER.unpack_from(body)
        if place & OFFSET:  # a fragment without the header behind that of IP
            return None
        payload = body[length:]
    elif len(body) >= 40 and body[0] >> 4 == 6:
        _flow, _length, protocol, _ttl, source, destination = IPV6_HEADER.unpack_from(body)
        payload = body[40:]
        if protocol == 0 and len(payload) >= 8:  # a hop-by-hop header, as multicast reports have
            protocol, payload = payload[0], payload[(payload[1] + 1) * 8 :]
        elif protocol == FRAGMENT and len(payload) >= 8:
            if int.from_bytes(payload[2:4], "big") >> 3:
                return None
            protocol, payload = payload[0], payload[8:]
    else:
        return None
    packet = Packet(source, destination, protocol)
    if protocol in PORTS and len(payload) >= 4:
        source_port, destination_port = struct.unpack_from("!HH", payload)
        packet = packet._replace(source_port=source_port, destination_port=destination_port)
        if protocol == TCP and len(payload) > 13:
            (sequence,) = struct.unpack_from("!I", payload, 4)
            packet = packet._replace(is_reply=bool(payload[13] & ACK), sequence=sequence)
    elif protocol in ECHO and len(payload) >= 6 and payload[0] in ECHO[protocol]:
        (identifier,) = struct.unpack_from("!H", payload, 4)
        packet = packet._replace(source_port=identifier, is_reply=payload[0] == ECHO[protocol][1])
    return packet, payload


def _reject(packet: Packet, payload: bytes) -> str:
    if packet.protocol == TCP and len(payload) > 13 and payload[13] & RST:
        return "a TCP reset"
    if packet.protocol in ERRORS and len(payload) >= 8 and payload[0] in ERRORS[packet.protocol]:
        name = "ICMPv6" if packet.protocol == ICMPV6 else "ICMP"
        return f"{name} type {payload[0]} code {payload[1]}{_meaning(packet.protocol, payload)}"
    return ""


# RFC 792, RFC 1812, RFC 4443
_MEANINGS = {
    (ICMP, 3, 0): "network unreachable", (ICMP, 3, 1): "host unreachable", (ICMP, 3, 3): "port unreachable",
    (ICMP, 3, 4): "fragmentation needed", (ICMP, 3, 9): "network prohibited", (ICMP, 3, 10): "host prohibited",
    (ICMP, 3, 13): "administratively prohibited", (ICMP, 11, 0): "time to live exceeded",
    (ICMPV6, 1, 0): "no route to destination", (ICMPV6, 1, 1): "administratively prohibited",
    (ICMPV6, 1, 2): "beyond scope of source address", (ICMPV6, 1, 3): "address unreachable",
    (ICMPV6, 1, 4): "port unreachable", (ICMPV6, 2, 0): "packet too big",
    (ICMPV6, 1, 5): "source address failed policy", (ICMPV6, 3, 0): "hop limit exceeded",
}  # fmt: skip


def _meaning(protocol: int, payload: bytes) -> str:
    meaning = _MEANINGS.get((protocol, payload[0], payload[1]))
    return f", {meaning}" if meaning else ""


def requests(request: Request, mac: bytes) -> list[bytes]:
    """Return the frames that ask for a MAC address: to all, and to ``mac`` alone, to which proxies answer at once."""
    if len(request.target) == 4:
        body = ARP_PACKET.pack(1, IP, 6, 4, 1, request.mac, request.sender, bytes(6), request.target)
        return [ETHERNET.pack(to, request.mac, ARP) + body for to in (b"\xff" * 6, mac)]
    group = SOLICITED_NODE + request.target[-3:]
    data = struct.pack("!BBHI", SOLICITATION, 0, 0, 0) + request.target + bytes([SOURCE_MAC, 1]) + request.mac
    data = _with_checksum(Packet(request.sender, group, ICMPV6), data, 2)
    header = IPV6_HEADER.pack(6 << 28, len(data), ICMPV6, 255, request.sender, group)
    return [ETHERNET.pack(to, request.mac, IP6) + header + data for to in (b"\x33\x33" + group[-4:], mac)]


def answer(request: Request, mac: bytes, to: bytes) -> bytes:
    """Return the frame that answers a request for a MAC address. to: the MAC address to which it is sent."""
    if len(request.target) == 4:
        body = ARP_PACKET.pack(1, IP, 6, 4, 2, mac, request.target, request.mac, request.sender)
        return ETHERNET.pack(to, mac, ARP) + body
    data = struct.pack("!BBHI", ADVERTISEMENT, 0, 0, SOLICITED_OVERRIDE) + request.target + bytes([TARGET_MAC, 1]) + mac
    answering = Packet(request.target, request.sender, ICMPV6)
    data = _with_checksum(answering, data, 2)
    header = IPV6_HEADER.pack(6 << 28, len(data), ICMPV6, 255, request.target, request.sender)
    return ETHERNET.pack(to, mac, IP6) + header + data


def is_group(mac: bytes) -> bool:
    """Return True for a broadcast or multicast address."""
    return bool(mac[0] & 1)
