# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The Services that kube-proxy's rules name, with their cluster addresses.

From the source of kubernetes (pkg/proxy/iptables/proxier.go, pkg/proxy/nftables/proxier.go). In the mode ipvs, no rule names a
Service.
"""

from __future__ import annotations

import re
import typing as t

from .._core import fields
from .._core.fields import Unfit
from .._netfilter import rule_words
from .._twin.blueprint import Entry, entries

_NAME = r"(?P<name>[\w.-]+/[\w.-]+)"
_COMMENT = re.compile(rf"{_NAME}(?::(?P<port_name>[\w-]+))? (?:cluster IP|has no endpoints)")  # of a rule of iptables
_CHAIN = re.compile(rf"(?:service|local)-[A-Z\d]{{8}}-{_NAME}/\w+/(?P<port_name>[\w-]*)")  # to which a map of nft sends
_PORT = re.compile(rf"{_NAME}(?::(?P<port_name>[\w-]+))?")  # the comment of an element for a Service without endpoints
_ELEMENT = re.compile(  # of a map, in nft's text
    r'(?<![\da-f.:])([\da-f.:]+) \. (\w+) \. (\d{1,5})(?: comment "([^"]*)")? : goto ([^\s,]+)'
)
_REJECTING = "reject-chain"
_MAPS = ("service-ips", "no-endpoint-services")


class Service(t.NamedTuple):
    """A port of a Service. name: NAMESPACE/NAME. port_name: empty if the port has none."""

    name: str
    address: str
    protocol: str
    port: int
    port_name: str


def services(snapshot: Entry) -> list[Service]:
    """Return the ports of the Services, sorted."""
    return sorted({*_of_iptables(snapshot), *_of_nft(snapshot)})


def translated(snapshot: Entry) -> list[tuple[str, str, int]]:
    """Return the addresses, protocols and ports of Services, sorted, those of load balancers as well."""
    of_rules = ((address, protocol, port) for address, protocol, port, _comment in _rules(snapshot))
    of_maps = ((address, protocol, int(port)) for address, protocol, port, _comment, _chain in _all_elements(snapshot))
    of_ipvs = (
        (str(server.get("address")), str(server.get("protocol")), int(server.get("port") or 0))
        for server in entries(snapshot, "ipvs")
    )
    return sorted(end for end in {*of_rules, *of_maps, *of_ipvs} if _is_end(*end))


def _is_end(address: str, _protocol: str, port: int) -> bool:
    try:
        fields.address(address)
    except Unfit:
        return False
    return 0 < port <= 65535


def _of_iptables(snapshot: Entry) -> t.Iterator[Service]:
    for address, protocol, port, text in _rules(snapshot):
        comment = _COMMENT.fullmatch(text)
        if comment:
            yield Service(comment["name"], address, protocol, port, comment["port_name"] or "")


def _rules(snapshot: Entry) -> t.Iterator[tuple[str, str, int, str]]:
    """Yield the address, protocol, port and comment of each rule of kube-proxy for a Service."""
    for table in entries(snapshot, "iptables"):
        for line in str(table.get("save")).splitlines():
            if line.startswith("-A KUBE-SERVICES "):
                yield from _of_rule(line)


def _of_rule(line: str) -> t.Iterator[tuple[str, str, int, str]]:
    try:
        words = rule_words.split(line)
    except Unfit:
        return
    values = dict(zip(words, words[1:]))
    if {"-d", "-p"} <= values.keys() and re.fullmatch(r"\d{1,5}", values.get("--dport", "")):
        yield values["-d"].partition("/")[0], values["-p"], int(values["--dport"]), values.get("--comment", "")


def _of_nft(snapshot: Entry) -> t.Iterator[Service]:
    for address, protocol, port, comment, chain in _all_elements(snapshot):
        named = _CHAIN.fullmatch(chain) or (_PORT.fullmatch(comment) if chain == _REJECTING else None)
        if named:
            yield Service(named["name"], address, protocol, int(port), named["port_name"] or "")


def _all_elements(snapshot: Entry) -> list[tuple[str, str, str, str, str]]:
    return [*_elements(snapshot), *_ELEMENT.findall(str(snapshot.get("nftables_text")))]


def _elements(snapshot: Entry) -> t.Iterator[tuple[str, str, str, str, str]]:
    """Yield the address, protocol, port, comment and chain of each element of kube-proxy's maps, as nft lists them in JSON."""
    maps = (entry["map"] for entry in entries(snapshot, "nftables") if isinstance(entry.get("map"), dict))
    for element in (element for each in maps if each.get("name") in _MAPS for element in each.get("elem") or ()):
        try:
            key, verdict = element
            about = key.get("elem") or {"val": key}
            address, protocol, port = about["val"]["concat"]
            yield str(address), str(protocol), str(int(port)), str(about.get("comment")), str(verdict["goto"]["target"])
        except (AttributeError, KeyError, TypeError, ValueError):  # of a form that kube-proxy does not write
            continue
