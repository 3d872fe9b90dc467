# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Virtual servers of IPVS as rules of nft that send a packet to the same destinations.

IPVS translates a packet for a local address after the chains of INPUT, and sends it on without the chains of FORWARD. These rules
translate it before routing. For each virtual server they choose among the destinations by weight. A packet is first sent
while this table is dormant, to see the verdict of INPUT. The chains of FORWARD begin with a rule that accepts packets that this
table translated.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import typing as t

from .._core import fields
from .._core.fields import IPV6, Unfit
from .._snapshot.assumption import ADDRESS, Assumption, Concern
from .._snapshot.values import Destination, VirtualServer
from .substitutions import IPVS, SCHEDULER, gap, replaced

TOKEN = secrets.token_hex(4)  # of the tables of a twin, so that no table of a snapshot has the same name
TABLE = f"kubenodeTwinIPVS-{TOKEN}"
PRIORITY = -99  # after kube-proxy's chain in the nat table, which marks packets to masquerade (-100)
REFUSING = 98  # where IPVS refuses what it has no destination for (ip_vs_core.c, LOCAL_IN)
REJECTION = {"ip": "icmp port-unreachable", "ip6": "icmpv6 port-unreachable"}
HASHING = ("sh", "dh", "mh")


def ruleset(servers: t.Iterable[VirtualServer]) -> tuple[str, list[Assumption]]:
    """Return the text for nft, empty if there are no servers, and the differences from IPVS."""
    rules: dict[str, list[str]] = {"ip": [], "ip6": []}
    refused: dict[str, list[str]] = {"ip": [], "ip6": []}
    notes: list[Assumption] = []
    for server in servers:
        try:
            ends = [end for end in server.destinations if fields.number(end.weight, 0, fields.UINT32, is_decimal=True)]
            family, selector = _selector(server, ends)
            rules[family] += _rules(family, selector, ends)
            refused[family] += [] if ends else [f'{selector} reject with {REJECTION[family]} comment "{_listed(server)}"']
        except Unfit as error:
            notes.append(gap(f"A virtual server of IPVS is not in the twin ({error}): {dict(server.plain)}."))
        if server.scheduler in HASHING:
            sentence = f"Virtual server {server.address}: scheduler {server.scheduler} chooses by address."
            place = Concern(ADDRESS, server.address.partition("/")[0])
            notes.append(replaced(SCHEDULER, f"{sentence} The twin chooses by chance.", place, subject=server.address))
    used = [family for family in rules if rules[family] or refused[family]]
    if not used:
        return "", notes
    notes.append(replaced(IPVS, "The twin translates packets to virtual servers of IPVS by rules of nft, and before routing."))
    return "".join(_table(family, rules[family], refused[family]) for family in used), notes


def addresses(servers: t.Iterable[VirtualServer]) -> dict[str, list[str]]:
    """Return the addresses of virtual servers, by family of nft."""
    by_family: dict[str, list[str]] = {"ip": [], "ip6": []}
    for server in servers:
        with contextlib.suppress(Unfit):
            family, packed = fields.address(server.address)
            by_family["ip6" if family == IPV6 else "ip"].append(fields.show(packed))
    return {family: [*dict.fromkeys(hosts)] for family, hosts in by_family.items() if hosts}


def _listed(server: VirtualServer) -> str:
    """Return a virtual server as ipvsadm -Ln prints it."""
    place = f"{server.protocol.upper()}  {fields.endpoint(server.address, str(server.port))}"
    if server.fwmark:
        place = f"FWM  {fields.number(server.fwmark, 1, fields.UINT32)}"
    return re.sub(r"[^\w .:\[\]]", "", f"{place} {server.scheduler}").strip()


def _table(family: str, rules: list[str], refused: list[str]) -> str:
    hooks = (("prerouting", "prerouting"), ("output", "output"))
    chains = [
        f"  chain {name} {{\n    type nat hook {hook} priority {PRIORITY};\n    fib daddr type local jump servers\n  }}\n"
        for name, hook in hooks
    ]
    lines, last = ("".join(f"    {rule}\n" for rule in statements) for statements in (rules, refused))
    refusing = f"  chain refusing {{\n    type filter hook input priority {REFUSING};\n{last}  }}\n"
    return f"table {family} {TABLE} {{\n  chain servers {{\n{lines}  }}\n{''.join(chains)}{refusing}}}\n"


def _selector(server: VirtualServer, ends: t.Sequence[Destination]) -> tuple[str, str]:
    if server.fwmark:
        mark = fields.number(server.fwmark, 1, fields.UINT32)
        return "ip6" if any(":" in end.address for end in ends) else "ip", f"meta mark {mark:#x}"
    family, packed = fields.address(server.address)
    name = "ip6" if family == IPV6 else "ip"
    if server.protocol not in ("tcp", "udp", "sctp"):
        raise Unfit(f"protocol {server.protocol}")
    return name, f"{name} daddr {fields.show(packed)} {server.protocol} dport {fields.number(server.port, 1, 65535)}"


def _rules(family: str, selector: str, ends: t.Sequence[Destination]) -> t.Iterator[str]:
    rest = sum(int(end.weight) for end in ends)
    for end in ends:
        _family, packed = fields.address(end.address)
        place = f"[{fields.show(packed)}]" if family == "ip6" else fields.show(packed)
        port = f":{fields.number(end.port, 1, 65535)}" if end.port not in ("", "0") else ""
        chance = f"numgen random mod {rest} < {end.weight} " if rest > int(end.weight) else ""
        yield f"{selector} {chance}dnat to {place}{port}"
        rest -= int(end.weight)
