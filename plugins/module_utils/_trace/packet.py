# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A packet as the operator describes it, and its reply."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import IPV4, IPV6, UINT32, Unfit
from .._core.option import Option, Options
from .._routing.rule import IP_PROTOCOLS, protocol_name

ICMP, TCP, UDP, ICMPV6 = (IP_PROTOCOLS[name] for name in ("icmp", "tcp", "udp", "ipv6-icmp"))
PORTS = (TCP, UDP, IP_PROTOCOLS["sctp"])  # protocols whose header begins with two ports
OPTIONS: Options = {
    "source": Option("str"),
    "destination": Option("str", is_required=True),
    "protocol": Option("str", "tcp"),
    "source_port": Option("int"),
    "destination_port": Option("int"),
    "interface": Option("str"),
    "mark": Option("str"),
    "length": Option("int"),
    "df": Option("bool"),
}
LENGTHS = (40, 65535)  # bytes; a shorter packet is built as long as its headers and a few bytes are
OUTSIDE = {"ipv4": "198.51.100.7", "ipv6": "2001:db8:ffff::7"}  # TEST-NET-2 (RFC 5737), documentation (RFC 3849)
MULTICAST = 224  # the first byte of an address that is not one node's (RFC 5771, RFC 1112)
NODE = "the node"  # in place of a source that the node itself chooses
AUTO = "auto"  # in place of a link: the one behind which the source is
SOURCE_PORT = 40000  # of the range from which the kernel chooses ports (net.ipv4.ip_local_port_range)


class Packet(t.NamedTuple):
    """The first packet of a connection, or its reply.

    source, destination: addresses in network order; source is empty if the node itself chooses it. protocol: IANA's number.
    interface: the link by which it comes in; empty if the node itself sends it. is_reply: an answer, such as a SYN-ACK.
    sequence: the number of TCP; of a packet that the node sends, the kernel chooses it. acknowledged: by an answer. Connection
    tracking takes an answer that acknowledges another number for invalid (net/netfilter/nf_conntrack_proto_tcp.c). length: of the
    IP packet in bytes; 0 for a small one. is_whole: whether no router may divide it (the flag DF of IPv4).
    """

    source: bytes
    destination: bytes
    protocol: int = TCP
    source_port: int = 0
    destination_port: int = 0
    interface: str = ""
    mark: int = 0
    is_reply: bool = False
    sequence: int = 1000
    acknowledged: int = 0
    length: int = 0
    is_whole: bool = False

    @property
    def family(self) -> int:
        return IPV6 if len(self.destination) == 16 else IPV4

    @property
    def flow(self) -> tuple[t.Any, ...]:
        """Return the fields that distinguish the packet's connection from others."""
        return self.source, self.destination, self.protocol, self.source_port, self.destination_port

    def replied(self, interface: str) -> Packet:
        """Return the answer to the packet, which comes in by ``interface``."""
        ports = (self.destination_port, self.source_port)
        if self.protocol in (ICMP, ICMPV6):  # the source port stands for the identifier, which an answer repeats
            ports = (self.source_port, self.destination_port)
        is_reply, acknowledged = not self.is_reply, (self.sequence + 1) % 2**32 if self.protocol == TCP else 0
        answer = Packet(self.destination, self.source, self.protocol, *ports, interface, 0, is_reply, acknowledged=acknowledged)
        # An answer to an echo request repeats its data. Those of other protocols are small.
        return answer._replace(length=self.length) if self.protocol in (ICMP, ICMPV6) else answer

    def report(self) -> dict[str, t.Any]:
        """Return the packet as the module returns it."""
        shown: dict[str, t.Any] = {
            "source": fields.show(self.source) if self.source else "",
            "destination": fields.show(self.destination),
            "protocol": protocol_name(self.protocol),
        }
        if self.protocol in PORTS:
            shown.update(source_port=self.source_port, destination_port=self.destination_port)
        if self.length:
            shown.update(length=self.length, df=self.is_whole)
        return shown

    @property
    def size(self) -> str:
        """Return the length as a line of text has it; empty for a small packet."""
        return f" length {self.length}{' df' if self.is_whole else ''}" if self.length else ""

    @property
    def line(self) -> str:
        """Return the packet as the text of the option ``packet``."""
        link, mark = self.interface and f" in {self.interface}", self.mark and f" mark {self.mark:#x}"
        return f"{self}{link}{mark or ''}{self.size}"

    def __str__(self) -> str:
        has_ports = self.protocol in PORTS
        ends = ((self.source, self.source_port), (self.destination, self.destination_port))
        shown = ((fields.show(address) if address else NODE, port if address and has_ports else 0) for address, port in ends)
        source, destination = (fields.endpoint(*end) for end in shown)
        return f"{protocol_name(self.protocol)} {source} > {destination}"


_PORT = "a port from 1 to 65535, for tcp, udp and sctp"


def from_options(options: t.Mapping[str, t.Any]) -> Packet:
    """Return the packet of the option ``packet``. Raises Invalid."""
    options = {**options, "protocol": options.get("protocol") or OPTIONS["protocol"].default}
    destination_family, destination = _address(options, "destination")
    source_family, source = _address(options, "source") if options.get("source") else (destination_family, b"")
    interface = _parsed(options, "interface", fields.link) if options.get("interface") else ""
    if not source and interface:
        raise Invalid("packet.source", None, "given, because the packet comes in by an interface")
    if source_family != destination_family:
        raise Invalid("packet.source", options["source"], "an address of the same family as packet.destination")
    if str(options.get("protocol")) == "icmpv6" or (destination_family == IPV6 and str(options.get("protocol")) == "icmp"):
        options = {**options, "protocol": ICMPV6}
    protocol = _parsed(options, "protocol", lambda value: fields.name_or_number(value, IP_PROTOCOLS, "a protocol", 1, 255))
    ports = {name: _port(options, name, protocol) for name in ("source_port", "destination_port")}
    if protocol in PORTS and not ports["destination_port"]:
        raise Invalid("packet.destination_port", options.get("destination_port"), _PORT)
    source_port = ports["source_port"] or (SOURCE_PORT if protocol in (*PORTS, ICMP, ICMPV6) else 0)
    mark = _parsed(options, "mark", lambda value: fields.number(value, 0, UINT32)) if options.get("mark") else 0
    length = _parsed(options, "length", lambda value: fields.number(value, *LENGTHS)) if options.get("length") else 0
    if length and protocol == TCP and not interface:
        raise Invalid(
            "packet.length", length, "left out for TCP of the node itself, whose kernel divides data by the MTU of the route"
        )
    is_whole = bool(length and options.get("df"))
    ends = source, destination, protocol, source_port, ports["destination_port"], interface, mark
    return Packet(*ends, length=length, is_whole=is_whole)


def from_list(option: str, entries: t.Iterable[t.Mapping[str, t.Any]]) -> list[Packet]:
    """Return the packets of a list. Raises Invalid, whose option is the place in the list."""
    packets = []
    for number, entry in enumerate(entries):
        try:
            packets.append(from_options(entry))
        except Invalid as error:
            raise error.renamed(f"{option}[{number}]{error.option.removeprefix('packet')}") from None
    return packets


def _port(options: t.Mapping[str, t.Any], name: str, protocol: int) -> int:
    value = options.get(name)
    if value is None:
        return 0
    if protocol not in PORTS:
        raise Invalid(f"packet.{name}", value, f"left out for protocol {protocol_name(protocol)}")
    try:
        return fields.number(value, 1, 65535)
    except Unfit:
        raise Invalid(f"packet.{name}", value, _PORT) from None


def _address(options: t.Mapping[str, t.Any], name: str) -> tuple[int, bytes]:
    family, packed = _parsed(options, name, fields.node)
    if family == IPV4 and packed[0] >= MULTICAST:
        raise Invalid(f"packet.{name}", options[name], "an IP address of one node")
    return family, packed


def _parsed(options: t.Mapping[str, t.Any], name: str, parse: t.Callable[[t.Any], t.Any]) -> t.Any:
    try:
        return parse(options[name])
    except Unfit as unfit:
        raise Invalid(f"packet.{name}", options[name], str(unfit)) from None
