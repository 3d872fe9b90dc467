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
from . import observed
from .observed import Snapshot
from .ruleset import PROTOCOL, Chain

_NAME = r"(?P<name>[\w.-]+/[\w.-]+)"
_COMMENT = re.compile(rf"{_NAME}(?::(?P<port_name>[\w-]+))? (?:cluster IP|has no endpoints)")  # of a rule of iptables
_CHAIN = re.compile(rf"(?:service|local)-[A-Z\d]{{8}}-{_NAME}/\w+/(?P<port_name>[\w-]*)")  # to which a map of nft sends
_PORT = re.compile(rf"{_NAME}(?::(?P<port_name>[\w-]+))?")  # the comment of an element for a Service without endpoints
_REJECTING = "reject-chain"
_MAPS = ("service-ips", "no-endpoint-services")
_OF_SERVICES = "KUBE-SERVICES"  # the chain of iptables


class Service(t.NamedTuple):
    """A port of a Service. name: NAMESPACE/NAME. port_name: empty if the port has none."""

    name: str
    address: str
    protocol: str
    port: int
    port_name: str


class _End(t.NamedTuple):
    """A rule or an element of kube-proxy for a port of a Service. named: by which it names the Service; None if it does not."""

    address: str
    protocol: str
    port: int
    named: re.Match[str] | None


def services(snapshot: Snapshot) -> list[Service]:
    """Return the ports of the Services, sorted."""
    ends = (end for end in _ends(snapshot) if end.named)
    return sorted({Service(end.named["name"], *end[:3], end.named["port_name"] or "") for end in ends if end.named})


def translated(snapshot: Snapshot, servers: t.Iterable[Snapshot]) -> list[tuple[str, str, int]]:
    """Return the addresses, protocols and ports of Services, sorted, those of load balancers as well. servers: of IPVS."""
    of_ipvs = ((str(each.get("address")), str(each.get("protocol")), int(each.get("port") or 0)) for each in servers)
    return sorted(end for end in {*(end[:3] for end in _ends(snapshot)), *of_ipvs} if _is_end(*end))


def _is_end(address: str, _protocol: str, port: int) -> bool:
    try:
        fields.address(address)
    except Unfit:
        return False
    return 0 < port <= 65535


def _ends(snapshot: Snapshot) -> t.Iterator[_End]:
    for table in observed.of_iptables(snapshot):
        for rule in table.chains.get(_OF_SERVICES, Chain()).rules:
            words = (rule.value(f"{table.family} daddr"), rule.value(PROTOCOL), rule.value("th dport"))
            yield from _end(words, _COMMENT.fullmatch(rule.comment))
    for table in observed.of_nft(snapshot):
        for element in (element for name in _MAPS for element in table.sets.get(name, ())):
            chain = element.statement.target if element.statement else ""
            named = _CHAIN.fullmatch(chain) or (_PORT.fullmatch(element.comment) if chain == _REJECTING else None)
            yield from _end(element.key, named)


def _end(words: t.Sequence[str], named: re.Match[str] | None) -> t.Iterator[_End]:
    """Yield the end that an address, a protocol and a port name; nothing for other words."""
    if len(words) == 3 and all(words) and re.fullmatch(r"\d{1,5}", words[2], re.ASCII):
        yield _End(words[0].partition("/")[0], words[1], int(words[2]), named)
