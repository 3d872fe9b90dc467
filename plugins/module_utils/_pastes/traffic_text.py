# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What conntrack, tcpdump and the kernel's log print, and the counters of rules, as evidence of packets that passed the node."""

from __future__ import annotations

import collections
import re
import typing as t

from .._core import fields
from .._core.fields import Unfit
from .._snapshot.evidence import (
    ASSURED,
    COUNTER,
    LOGGED,
    PROTOCOLS,
    REFUSED,
    REPORTED,
    SYN,
    SYN_ACK,
    TRACED,
    UNREPLIED,
    Evidence,
    without_counter,
)
from .commands import Part
from .iptables_tables import Tables
from .netfilter_text import CHAIN_OF_NFT, TABLE_OF_NFT

MOST = 1024  # entries
APART = (
    0.5  # seconds between a segment and its repetition: the kernel repeats the first after one, and a tool shows copies at once
)
_CONNECTION = re.compile(
    rf"(?:ipv[46]\s+\d+\s+)?(?P<protocol>{'|'.join(PROTOCOLS)})\s+\d+\s+(?:\d+\s+)?(?:[A-Z_\d]+\s+)?"
    r"src=(?P<source>\S+) dst=(?P<destination>\S+) (?:sport=\d+ dport=(?P<port>\d{1,5}) )?"
    r"(?:.*?\bsrc=(?P<answers>\S+) dst=(?P<answered>\S+) (?:sport=(?P<from_port>\d{1,5}) )?)?.*"
)
_SEGMENT = re.compile(
    r"(?:\d{4}-\d\d-\d\d )?(?P<time>\d\d:\d\d:\d\d\.\d+) (?:(?P<link>\S+) +(?P<direction>In|Out|[BMP]) +)?IP6? "
    r"(?P<source>[\da-f.:]+)\.(?P<sport>\d{1,5}) > (?P<destination>[\da-f.:]+)\.(?P<dport>\d{1,5}): Flags \[(?P<flags>S\.?)\].*"
)
# What tcpdump -v prints on a line before the ends of the packet.
_HEAD = re.compile(r"(?P<head>(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d+ (?:\S+ +(?:In|Out|[BMP]) +)?IP6? )\(.*\)")
# What LOG of iptables and log of nft write, with the prefix of the rule before it. TRACE logs each rule.
_LOGGED = re.compile(r"\bIN=(?P<entrance>\S*) OUT=(?P<exit>\S*) (?P<fields>.*)")
_OF_LOG = re.compile(r"\b(SRC|DST|PROTO|DPT)=(\S+)")
_OF_SYSLOG = re.compile(r"(?:.*\bkernel: )?(?:\[ *\d+\.\d+\] ?)?")
LONGEST = 1000  # characters of a line of the kernel's log
# What the kernel itself logs of a lost packet (net/ipv4/route.c, drivers/net/wireguard/receive.c,
# net/netfilter/nf_conntrack_core.c and net/core/neighbour.c).
_REPORTED = re.compile(
    r"\b(?:(?P<martian>martian source) (?P<to>[\d.]+) from (?P<martians>[\d.]+), on dev (?P<dev>[\w.@-]{1,15})"
    r"|wireguard: (?P<link>[\w.@-]{1,15}): Packet has (?P<unallowed>unallowed src IP) \((?P<source>[\da-f.:]+)\) from peer \d+"
    r"|nf_conntrack: (?P<full>table full), dropping packet|(?P<overflow>neighbour: \w+_cache: neighbor table overflow)!)"
)
_DROPS = re.compile(r"-j (?:DROP|REJECT)\b")
_NFT_DROP = re.compile(r"\bcounter packets (\d{1,20}) bytes \d+ (?:drop|reject)\b")
# What nft monitor trace prints: the packet, and the rule or the policy that drops it (src/netlink.c, trace_print_rule).
_TRACED = re.compile(
    r"trace id (?P<id>\w+) (?P<table>(?:ip|ip6|inet|bridge|arp|netdev) \S+) (?P<chain>\S+) "
    r"(?:packet: (?P<packet>.*)|rule (?P<rule>.*) \(verdict (?P<verdict>[^()]*)\)|(?:verdict|policy) .*)"
)
_DROPPING_POLICY = re.compile(r" policy drop ?$")
_OF_TRACE = re.compile(r"\b(ip6? [sd]addr|dport|ip protocol|ip6 nexthdr) (\S+)")
# A question to the kernel's routing, and the error with which the kernel refuses. One of a pod or another machine is no question.
_QUESTION = re.compile(
    r"(?!.*\b(?:exec|nsenter|ssh)\b).*\b(?P<command>ip(?: +-\S+)* +r\w* +get +(?:to +)?|ping6? +(?:-\w+ +(?:[\d.]+ +)?)*)"
    r"[\"']?(?P<to>[\da-f.:]+)[\"']?(?: +from +(?P<source>[\da-f.:]+))?(?: +iif +(?P<link>[\w.@-]{1,15}))?"
)
_REFUSED = re.compile(r"(?:RTNETLINK answers|connect|ping: (?:connect|sendmsg)): (?P<message>[A-Z][\w -]+)")
Flow = tuple[str, int, str, int]  # source and destination of a segment


class Traffic:
    """The connections and segments in outputs, line by line."""

    def __init__(self) -> None:
        self._connections: dict[Evidence, None] = {}
        self._times: dict[tuple[str, Flow], dict[str, list[float]]] = {}  # of segments, by flags and flow, and by link
        self._exits: dict[tuple[str, Flow], str] = {}  # the last link by which they leave
        self._head = ""  # of the packet whose ends the next line has
        self._packets: dict[str, dict[str, str]] = {}  # of nft's trace, by id

    def read(self, line: str) -> bool:
        """Read a line. Return whether it is one of conntrack, tcpdump or the kernel's log of packets."""
        text = line.strip()
        connection, segment = _CONNECTION.fullmatch(text), _SEGMENT.fullmatch(self._head + text)
        head, logged = _HEAD.fullmatch(text), _LOGGED.search(text) if len(text) < LONGEST else None
        self._head = head["head"] if head else ""
        traced, reported = _TRACED.fullmatch(text), _REPORTED.search(text) if len(text) < LONGEST else None
        try:
            if connection:
                self._add_connection(text, connection)
            elif segment:
                self._add_segment(segment)
            elif logged:
                return self._add_logged(text[: logged.start()], logged)
            elif traced:
                self._add_traced(text, traced)
            elif reported:
                self._add_reported(reported)
        except Unfit:
            return False
        return bool(connection or segment or head or traced or reported)

    def _add_reported(self, match: re.Match[str]) -> None:
        """Add a loss that the kernel reports. Raises Unfit."""
        source, to = match["martians"] or match["source"], match["to"]
        message = match["martian"] or match["unallowed"] or match["full"] or match["overflow"].rpartition(": ")[2]
        ends = _address(source) if source else "", _address(to) if to else ""
        self._connections[Evidence(REPORTED, f"{match['dev'] or match['link'] or '-'} {message}", "", *ends)] = None

    def _add_traced(self, text: str, match: re.Match[str]) -> None:
        """Add a packet that nft's trace shows to be dropped. Raises Unfit."""
        packet = self._packets.setdefault(match["id"], {})
        packet.update((key.split()[-1], value) for key, value in _OF_TRACE.findall(match["packet"] or ""))
        if match["verdict"] == "drop" or _DROPPING_POLICY.search(text):
            rule = f"{match['table']} {match['chain']}: {match['rule'] or 'policy drop'}"
            ends = _end(packet, "saddr"), _end(packet, "daddr")
            port = int(packet["dport"]) if packet.get("dport", "").isdigit() else 0
            self._connections[Evidence(TRACED, rule, packet.get("protocol", packet.get("nexthdr", "")), *ends, port)] = None

    def _add_logged(self, before: str, match: re.Match[str]) -> bool:
        """Add a packet of the kernel's log. Return whether it is one. before: the text before it. Raises Unfit."""
        values = dict(reversed(_OF_LOG.findall(match["fields"])))  # those of a packet in an ICMP error come later
        if "TRACE: " in before or not {"SRC", "DST"} <= {*values}:
            return False
        hook = "OUTPUT" if not match["entrance"] else "FORWARD" if match["exit"] else "INPUT"
        rule = f"{hook} {_OF_SYSLOG.sub('', before, 1)}".strip()
        ends, port = (_address(values["SRC"]), _address(values["DST"])), fields.number(values.get("DPT", "0"), 0, 65535)
        self._connections[Evidence(LOGGED, rule, values.get("PROTO", "").lower(), *ends, port)] = None
        return True

    def _add_connection(self, text: str, match: re.Match[str]) -> None:
        kind = UNREPLIED if "[UNREPLIED]" in text else ASSURED if "[ASSURED]" in text else ""
        ends = (_address(match["source"]), _address(match["destination"]))
        left = (_address(match["answered"]), _address(match["answers"])) if match["answers"] else ("", "")
        if kind:
            entry = Evidence(kind, "", match["protocol"], *ends, int(match["port"] or 0))
            entry = entry._replace(left_source=left[0], left_destination=left[1], left_port=int(match["from_port"] or 0))
            self._connections[entry] = None

    def _add_segment(self, match: re.Match[str]) -> None:
        hours, minutes, seconds = match["time"].split(":")
        time = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        flow = (_address(match["source"]), int(match["sport"]), _address(match["destination"]), int(match["dport"]))
        key = match["flags"], flow
        if match["direction"] == "Out":
            self._exits[key] = match["link"]
        times = self._times.setdefault(key, {}).setdefault(match["link"] or "", [])
        if not times or time - times[-1] >= APART:
            times.append(time)

    def evidence(self) -> list[Evidence]:
        answered = {flow[2:] + flow[:2] for flags, flow in self._times if flags == "S."}
        entries = dict(self._connections)
        for (flags, flow), of_link in self._times.items():
            source, _sport, destination, port = flow if flags == "S" else flow[2:] + flow[:2]
            count = max(map(len, of_link.values()))
            if count > 1 and not (flags == "S" and flow in answered):
                kind, exit_link = (SYN, self._exits.get((flags, flow), "")) if flags == "S" else (SYN_ACK, "")
                entry = Evidence(kind, "", "tcp", str(source), str(destination), int(port), (count,), link=exit_link)
                entries[entry] = None
        return [*entries][:MOST]


def refusals(text: str) -> t.Iterator[Evidence]:
    """Yield the routes that the kernel refused to ``ip route get`` or ping."""
    lines = [line.strip() if len(line) < LONGEST else "" for line in text.splitlines()]
    for number, refused in ((number, _REFUSED.fullmatch(line)) for number, line in enumerate(lines)):
        # ping prints a line before the error.
        asked = [_QUESTION.match(line) for line in lines[max(0, number - 2) : number]] if refused else []
        question = next(filter(None, reversed(asked)), None)
        if not (refused and question):
            continue
        try:
            source, to = _address(question["source"]) if question["source"] else "", _address(question["to"])
        except Unfit:
            continue
        link = "ping" if question["command"].startswith("ping") else question["link"] or "lo"
        yield Evidence(REFUSED, f"{link} {refused['message']}", source=source, destination=to)


def _end(packet: t.Mapping[str, str], name: str) -> str:
    return _address(packet[name]) if name in packet else ""


def _address(text: str) -> str:
    return fields.show(fields.address(text)[1])


def of_tables(tables: Tables) -> list[Evidence]:
    """Return the counters of rules and policies of iptables that dropped packets."""
    result = []
    for (family, name), table in sorted(tables.items()):
        for (chain, rule), counts in table.counts.items():
            is_drop = bool(_DROPS.search(rule)) if rule else table.policies.get(chain) == "DROP"
            text = f"-A {chain} {rule}" if rule else f"-P {chain} DROP"
            result += [Evidence(COUNTER, f"{family} {name}: {text}", counts=tuple(counts))] if is_drop else []
    return [entry for entry in result if any(entry.counts)][:MOST]


def of_rulesets(parts: t.Iterable[Part]) -> list[Evidence]:
    """Return the counters of rules of nft that dropped packets."""
    counts: dict[str, list[int]] = {}
    for part in parts:
        of_part: collections.Counter[str] = collections.Counter()
        table = chain = ""
        for line in part.lines:
            of_table, of_chain, rule = TABLE_OF_NFT.match(line.strip()), CHAIN_OF_NFT.match(line), _NFT_DROP.search(line)
            table = f"{of_table[1] or 'ip'} {of_table[2]}" if of_table else table
            chain = of_chain[1] if of_chain else chain
            if rule and table and chain:
                of_part[f"{table} {chain}: {without_counter(line.strip())}"] += int(rule[1])
        for text, packets in of_part.items():
            counts.setdefault(text, []).append(packets)
    return [Evidence(COUNTER, rule, counts=tuple(of_rule)) for rule, of_rule in counts.items() if any(of_rule)][:MOST]
