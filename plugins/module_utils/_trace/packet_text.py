# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A packet as a line of text: in a plain form, or in those of tcpdump, conntrack and the LOG target of iptables."""

from __future__ import annotations

import re
import socket
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from . import names
from .packet import AUTO, NODE, OPTIONS

Options = dict[str, t.Any]
FORMS = (
    "a line such as tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0, tcp > 10.96.0.1:443 of the node itself or default/web-0 ->"
    " default/api:80, or one of tcpdump, of conntrack -L or of the kernel's log of iptables' LOG"
)
LONGEST = 1000  # characters; a line of tcpdump -v has about 300
FIRST = (
    "the first packet of a connection: a SYN without ACK, such as Flags [S], an INIT of SCTP, a datagram of UDP or an echo"
    " request of ICMP. An answer or an ICMP error begins no connection"
)
PORTS_OR_ECHO = (
    "a packet of TCP, UDP or SCTP with its ports, or an echo request of ICMP. For another protocol, write a line such as"
    " gre 10.0.0.1 > 10.0.0.2 in eth0"
)
_ECHO_TYPES = {"icmp": "8", "icmp6": "128", "icmpv6": "128"}  # by the name of the protocol (RFC 792, RFC 4443)
_WITH_PORTS = ("tcp", "udp", "sctp")
_NAMED = (*_WITH_PORTS, *_ECHO_TYPES)
_PLAIN = re.compile(
    rf"(?:(?P<protocol>(?!the )[\w-]+)\s+)?(?P<source>{NODE}|[\w\[:][^\s>]*?)\s*(?:->|>)\s*(?P<destination>\S+?)"
    r"(?:\s+in\s+(?P<interface>\S+))?(?:\s+mark\s+(?P<mark>\S+))?(?:\s+length\s+(?P<length>\S+)(?P<df>\s+df)?)?"
)
_BRACKETED = re.compile(r"\[([^\]]+)\](?::(\S+))?")
# tcpdump prints the port behind a dot, and the link and the direction before the protocol with -i any. Of a tunnel or an ICMP
# error, it prints the inner packet behind the outer one.
_TCPDUMP = re.compile(
    r"(?:(?P<link>[\w.@-]+)\s+(?P<direction>In|Out|P|B|M)\s+)?(?:.*?\b)?(?:IP6?|length \d+:)\s(?:\(.*?\)\s+)?"
    r"(?P<source>[\w.:-]+)\s>\s(?P<destination>[\w.:-]+):\s(?:\[[^\]]*\]\s)*(?P<rest>.*)"
)
_PROTOCOLS = (  # by what tcpdump prints behind the ends; the first that fits
    ("tcp", re.compile(r"Flags \[|tcp\b")),
    ("sctp", re.compile(r"sctp\b")),
    ("icmp", re.compile(r"ICMP")),
    ("", re.compile(r"dccp|udp-?lite|\[\|(?:tcp|sctp)", re.IGNORECASE)),
    ("udp", re.compile(r"")),
)
_LATER = re.compile(r"Flags \[(?!S[^.\]]*\])|sctp\b[^\[]*\[(?!INIT\])|ICMP(?!6?,? echo request\b)")
_TIME = re.compile(r"^(?:\d{4}-\d\d-\d\d\s+)?\d\d:\d\d:\d\d(?:\.\d+)?\s+")
_PAIR = re.compile(r"(\w+)=(\S*)")
_LOG = re.compile(r"\bIN=\S* OUT=.*")  # behind the prefix of the rule


def options(text: str) -> Options:
    """Return the option ``packet`` as a dictionary. Raises Invalid for a line of another form.

    ``interface`` is AUTO if the line does not say by which link the packet comes in, and "" if the node itself sends it.
    """
    line = " ".join(text.split())
    if len(line) > LONGEST:
        raise Invalid("packet", f"{line[:80]}...", f"{FORMS}, of at most {LONGEST} characters")
    if not line.isprintable():
        raise Invalid("packet", line, f"{FORMS}, of printable characters")
    for read in (_log, _conntrack, _tcpdump, _plain):
        described = read(line)
        if described:
            return described
    raise Invalid("packet", text, FORMS)


def _plain(line: str) -> Options | None:
    match = _PLAIN.fullmatch(line)
    if not match:
        return None
    is_named = not match["protocol"] and match["source"].lower() in _NAMED  # such as tcp > 10.0.0.1:80
    is_of_node = is_named or match["source"] == NODE
    protocol = (match["source"] if is_named else match["protocol"] or OPTIONS["protocol"].default).lower()
    described: Options = {"protocol": "icmp" if protocol in _ECHO_TYPES else protocol}
    if protocol in _WITH_PORTS and _is_address(match["destination"]) and ":" in match["destination"]:
        raise Invalid("packet", line, "a destination with a port, an address of IPv6 in brackets: [2001:db8::1]:443")
    for name in ("destination",) if is_of_node else ("source", "destination"):
        address, port = _end(match[name])
        described[name] = address
        if port:
            is_service = name == "destination" and names.is_name(address)  # whose ports may have other names
            described[f"{name}_port"] = port if is_service else _port(port, protocol)
    mark = {"mark": match["mark"]} if match["mark"] else {}
    size = {"length": match["length"], "df": bool(match["df"])} if match["length"] else {}
    return {**described, "interface": match["interface"] or ("" if is_of_node else AUTO), **mark, **size}


def _end(text: str) -> tuple[str, str]:
    """Divide one end into address and port; IPv6 with a port is in brackets."""
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed:
        return bracketed[1], bracketed[2] or ""
    if text.count(":") == 1:
        address, _colon, port = text.partition(":")
        return address, port
    return text, ""


def _port(text: str, protocol: str) -> int:
    """Read a port, which tcpdump prints by the name of its service where it is called without -n."""
    if _is_number(text):
        return int(text)
    try:
        return socket.getservbyname(text, protocol)
    except OSError:
        raise Invalid("packet", text, f"a port as a number: {text} is no service of {protocol}") from None


def _is_number(text: str) -> bool:
    return bool(re.fullmatch("[0-9]{1,10}", text))


def _tcpdump(line: str) -> Options | None:
    match = _TCPDUMP.match(_TIME.sub("", line))
    if not match:
        return None
    rest = match["rest"]
    if _LATER.match(rest):
        raise Invalid("packet", line, FIRST)
    protocol = next(name for name, pattern in _PROTOCOLS if pattern.match(rest))
    described: Options = {"protocol": protocol}
    for name in ("source", "destination"):
        address, port = match[name], ""
        if not protocol or (protocol != "icmp" and _is_address(address)):
            raise Invalid("packet", line, PORTS_OR_ECHO)
        if protocol != "icmp":
            address, _dot, port = address.rpartition(".")
            described[f"{name}_port"] = _port(port, protocol)
        described[name] = address
    return {**described, "interface": match["link"].partition("@")[0] if match["direction"] == "In" else AUTO}


def _is_address(text: str) -> bool:
    try:
        return bool(fields.address(text))
    except Unfit:
        return False


def _conntrack(line: str) -> Options | None:
    """Read the first of the two tuples of an entry, which is that of the connection's first packet."""
    if not re.match(r"(?:\[\w+\]\s+)?(?:ipv[46]\s+\d+\s+)?\w+\s+\d+ ", line) or " src=" not in line or " dst=" not in line:
        return None
    values = _pairs(line)
    words = re.sub(r"^(?:\[\w+\]\s+)?(?:ipv[46]\s+\d+\s+)?", "", line).split()
    protocol = _protocol(line, words[0], values.get("type"))
    ports = _ports(values, "sport", "dport")
    return {"protocol": protocol, "source": values["src"], "destination": values["dst"], "interface": AUTO, **ports}


def _log(line: str) -> Options | None:
    """Read a packet that iptables' LOG or nft's log wrote to the kernel's log. On a bridge, PHYSIN is the port."""
    match = _LOG.search(line)
    values = _pairs(match[0]) if match else {}
    if not match or not {"SRC", "DST", "PROTO"} <= {*values}:
        return None
    words = match[0].split()
    if values["PROTO"] == "TCP" and ("SYN" not in words or "ACK" in words):
        raise Invalid("packet", line, FIRST)
    described: Options = {
        "protocol": _protocol(line, values["PROTO"].lower(), values.get("TYPE")),
        "source": values["SRC"],
        "destination": values["DST"],
        "interface": values.get("PHYSIN") or values["IN"],
    }
    ports = _ports(values, "SPT", "DPT")
    return {**described, **ports, **({"mark": values["MARK"]} if values.get("MARK") else {})}


def _pairs(line: str) -> dict[str, str]:
    """Return the values by name, of each name the first: those of an answer, or of the packet in an ICMP error, come later."""
    values: dict[str, str] = {}
    for name, value in _PAIR.findall(line):
        values.setdefault(name, value)
    return values


def _protocol(line: str, name: str, icmp_type: str | None) -> str:
    """Return the name of a protocol as the option has it. Raises Invalid for a packet of ICMP that is no echo request."""
    if name not in _ECHO_TYPES:
        return name
    if icmp_type != _ECHO_TYPES.get(name):
        raise Invalid("packet", line, FIRST)
    return "icmp"


def _ports(values: t.Mapping[str, str], source: str, destination: str) -> dict[str, int]:
    """Return the ports of a tool that prints them as numbers. source, destination: names of the values."""
    ports = {}
    for option, name in (("source_port", source), ("destination_port", destination)):
        if name in values:
            if not _is_number(values[name]):
                raise Invalid("packet", f"{name}={values[name]}", "a line with ports as numbers")
            ports[option] = int(values[name])
    return ports
