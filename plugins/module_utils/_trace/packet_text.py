# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A packet as a line of text: our own form, and those of tcpdump, conntrack and the LOG target of iptables."""

from __future__ import annotations

import re
import socket
import typing as t

from .._core.errors import Invalid
from .packet import AUTO

Options = dict[str, t.Any]
FORMS = (
    "a line such as tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0, or one of tcpdump, of conntrack -L or of the kernel's log of"
    " iptables' LOG"
)
LONGEST = 1000  # characters; a line of tcpdump -v has about 300
FIRST = "the first packet of a connection: a line with Flags [S], and not an answer to it"
_ICMP_WORDS = ("icmp", "icmp6", "icmpv6")
_OWN = re.compile(
    r"(?P<protocol>[\w-]+)\s+(?P<source>\S+)\s*(?:>|->)\s*(?P<destination>\S+?)"
    r"(?:\s+in\s+(?P<interface>\S+))?(?:\s+mark\s+(?P<mark>\S+))?"
)
_BRACKETED = re.compile(r"\[([^\]]+)\](?::(\S+))?")
# tcpdump prints the port behind a dot, and the link and the direction before the protocol with -i any.
_TCPDUMP = re.compile(
    r"(?:(?P<link>[\w.@-]+)\s+(?P<direction>In|Out|P|B|M)\s+)?(?:.*\b)?(?:IP6?|length \d+:)\s(?:\(.*\)\s+)?"
    r"(?P<source>[\w.:-]+)\s>\s(?P<destination>[\w.:-]+):\s(?P<rest>.*)"
)
_TIME = re.compile(r"^(?:\d{4}-\d\d-\d\d\s+)?\d\d:\d\d:\d\d(?:\.\d+)?\s+")
_PAIR = re.compile(r"(\w+)=(\S*)")


def options(text: str) -> Options:
    """Return the option ``packet`` as a dictionary. Raises Invalid for a line of another form.

    ``interface`` is AUTO if the line does not say by which link the packet comes in, and "" if the node itself sends it.
    """
    line = " ".join(text.split())
    if len(line) > LONGEST:
        raise Invalid("packet", f"{line[:80]}...", f"{FORMS}, of at most {LONGEST} characters")
    for read in (_log, _conntrack, _tcpdump, _own):
        described = read(line)
        if described:
            return described
    raise Invalid("packet", text, FORMS)


def _own(line: str) -> Options | None:
    found = _OWN.fullmatch(line)
    if not found:
        return None
    protocol = found["protocol"].lower()
    ends = {name: _end(found[name]) for name in ("source", "destination")}
    described: Options = {"protocol": "icmp" if protocol in _ICMP_WORDS else protocol}
    for name, (address, port) in ends.items():
        described[name] = address
        if port:
            described[f"{name}_port"] = _port(port, protocol)
    mark = {"mark": found["mark"]} if found["mark"] else {}
    return {**described, "interface": found["interface"] or AUTO, **mark}


def _end(text: str) -> tuple[str, str]:
    """The address and the port of one end; IPv6 with a port is in brackets."""
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed:
        return bracketed[1], bracketed[2] or ""
    if text.count(":") == 1:
        address, _colon, port = text.partition(":")
        return address, port
    return text, ""


def _port(text: str, protocol: str) -> int | str:
    """A port, which tcpdump prints by the name of its service where it is called without -n."""
    if text.isdigit():
        return int(text)
    try:
        return socket.getservbyname(text, protocol)
    except OSError:
        raise Invalid("packet", text, f"a port as a number: {text} is no service of {protocol}") from None


def _tcpdump(line: str) -> Options | None:
    found = _TCPDUMP.search(_TIME.sub("", line))
    if not found:
        return None
    rest = found["rest"]
    if re.match(r"Flags \[(?:S\.|R)|ICMP6?,? echo reply", rest):
        raise Invalid("packet", line, FIRST)
    protocol = "icmp" if rest.startswith("ICMP") else "tcp" if rest.startswith("Flags [") else "udp"
    described: Options = {"protocol": protocol}
    for name in ("source", "destination"):
        address, port = found[name], ""
        if protocol != "icmp":
            address, _dot, port = address.rpartition(".")
            described[f"{name}_port"] = _port(port, protocol)
        described[name] = address
    return {**described, "interface": found["link"].partition("@")[0] if found["direction"] == "In" else AUTO}


def _conntrack(line: str) -> Options | None:
    """The first of the two tuples of an entry, which is that of the connection's first packet."""
    if not re.match(r"(?:\[\w+\]\s+)?(?:ipv[46]\s+\d+\s+)?\w+\s+\d+ ", line) or " src=" not in line or " dst=" not in line:
        return None
    values: dict[str, str] = {}
    for name, value in _PAIR.findall(line):
        values.setdefault(name, value)
    words = re.sub(r"^(?:\[\w+\]\s+)?(?:ipv[46]\s+\d+\s+)?", "", line).split()
    protocol = "icmp" if words[0] in _ICMP_WORDS else words[0]
    ports = {f"{name}_port": int(values[key]) for name, key in (("source", "sport"), ("destination", "dport")) if key in values}
    return {"protocol": protocol, "source": values["src"], "destination": values["dst"], "interface": AUTO, **ports}


def _log(line: str) -> Options | None:
    """A packet that iptables' LOG or nft's log wrote to the kernel's log. On a bridge, PHYSIN is the port."""
    values = dict(_PAIR.findall(line))
    if not {"IN", "OUT", "SRC", "DST", "PROTO"} <= {*values}:
        return None
    protocol = values["PROTO"].lower()
    described: Options = {
        "protocol": "icmp" if protocol in _ICMP_WORDS else protocol,
        "source": values["SRC"],
        "destination": values["DST"],
        "interface": values.get("PHYSIN") or values["IN"],
    }
    ports = {f"{name}_port": int(values[key]) for name, key in (("source", "SPT"), ("destination", "DPT")) if key in values}
    return {**described, **ports, **({"mark": values["MARK"]} if values.get("MARK") else {})}
