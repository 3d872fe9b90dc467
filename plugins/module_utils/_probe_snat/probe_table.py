# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Health-probe source NAT: the table that translates a load balancer's link-local probes on their way through a node.

A probe has a link-local source address. A router must not forward such a packet (RFC 4291 section 2.5.6), and a
Kubernetes node is a router. So a service whose pod is not in the node's own network namespace fails its probes. The table
gives each probe a global source address before routing, and restores the link-local address in the reply on its way out.
The table is stateless: no NAT chain, no connection tracking.
"""

from __future__ import annotations

import ipaddress
import typing as t

from .._core import names
from .._core.errors import Invalid
from .._core.option import PATH, Check, Option, Options, Values, applied, permitted, texts
from .._kubelet import kubelet_units
from .._nftables import table_names
from .._nftables.nft_table import Chain, Counter, Mangle, Rule, Table, Verdict, match

# Azure's load balancer: Azure/AgentBaker, parts/linux/cloud-init/artifacts/ipv6_nftables. The translated address is
# Microsoft's own and assigned for this purpose (AgentBaker pull request 2334).
AZURE_SOURCE = "fe80::1234:5678:9abc"
AZURE_TRANSLATED = "2603:1062:0:1:fe80:1234:5678:9abc"

# Azure's probe source is also the node's IPv6 default router. If the table translated its router advertisements and
# neighbour discovery, the node would drop them (RFC 4861 sections 6.1.2 and 7.1 require a link-local source), and the node
# would lose IPv6 when the default route expires after 9000 s.
NEIGHBOUR_DISCOVERY = ("nd-neighbor-solicit", "nd-router-advert", "nd-neighbor-advert")

# The load balancer probes front-end and node addresses, never these. What the router's address sends here is the link's own
# traffic, and the node accepts it only from a link-local source: DHCPv6 replies (a firewall's rule for UDP port 546, such as
# ufw's, names fe80::/10), multicast listener queries (RFC 3810 section 5.1.14).
NOT_PROBED = ("fe80::/10", "ff00::/8")

# nf_tables keeps a priority in a signed 32-bit integer; connection tracking hooks in at -200
# (NF_IP6_PRI_CONNTRACK, include/uapi/linux/netfilter_ipv6.h).
PRIORITY_RANGE = (-(2**31), 2**31 - 1)
CONNTRACK_PRIORITY = -200


class Probe(t.NamedTuple):
    """A probe's ``source`` address on the wire, and the address that replaces it inside the node, ``translated``."""

    source: ipaddress.IPv6Address
    translated: ipaddress.IPv6Address


AZURE_PROBE = Probe(ipaddress.IPv6Address(AZURE_SOURCE), ipaddress.IPv6Address(AZURE_TRANSLATED))


class ProbeSnat(t.NamedTuple):
    """The desired state: the ip6 table ``name`` translates probes that enter and leave by ``interface``."""

    name: str = "azureSLBProbe"
    interface: str = "eth0"
    priority: int = -300
    probes: tuple[Probe, ...] = (AZURE_PROBE,)
    comment: str = ""

    @classmethod
    def from_options(cls, options: t.Mapping[str, t.Any]) -> ProbeSnat:
        """Return the desired state from a module's options. Raises Invalid for the first option that is not valid."""
        low, high = PRIORITY_RANGE
        if isinstance(options["priority"], bool) or not low <= options["priority"] <= high:
            raise Invalid("priority", options["priority"], f"an integer from {low} to {high}")
        return cls(
            table_names.table("table", options["table"]),
            names.network_interface("interface", options["interface"]),
            options["priority"],
            _probes(options["probes"]),
            table_names.comment("comment", options["comment"]),
        )

    def table(self, not_probed: tuple[str, ...] = NOT_PROBED) -> Table:
        """Return the desired table. Probes are sorted, so that the order of the option's list does not matter.

        not_probed: packets to these prefixes are not translated. AgentBaker's table has none.
        """
        keep: Rule = (
            match("iifname", self.interface),
            match("icmpv6 type", *NEIGHBOUR_DISCOVERY),
            Counter(),
            Verdict("accept"),
        )
        # A match each: nft 0.9.8 lists a prefix that ends the address space otherwise in a set than alone.
        spared = tuple(match("ip6 daddr !=", prefix) for prefix in not_probed)
        inward = (
            (match("iifname", self.interface), match("ip6 saddr", str(source)), *spared, *_rewrite("ip6 saddr", translated))
            for source, translated in self.probes
        )
        outward = (
            (match("oifname", self.interface), match("ip6 daddr", str(translated)), *_rewrite("ip6 daddr", source))
            for source, translated in self.probes
        )
        prerouting = Chain("prerouting", "filter", "prerouting", self.priority, (keep, *inward))
        postrouting = Chain("postrouting", "filter", "postrouting", self.priority, tuple(outward))
        return Table("ip6", self.name, frozenset({prerouting, postrouting}), comment=self.comment)

    def summary(self) -> str:
        """Return the desired table as a phrase for messages."""
        pairs = ", ".join(f"{probe.source} as {probe.translated}" for probe in self.probes)
        return f"table {self.name} (interface {self.interface}, priority {self.priority}, {pairs})"


def _rewrite(field: str, address: ipaddress.IPv6Address) -> Rule:
    return (Mangle(field, str(address)), Counter())


def _probes(entries: t.Sequence[t.Mapping[str, t.Any]]) -> tuple[Probe, ...]:
    if not entries:
        raise Invalid("probes", entries, "a list of at least one probe with source and translated")
    users: dict[ipaddress.IPv6Address, str] = {}
    probes: set[Probe] = set()
    for index, entry in enumerate(entries):
        addresses = {key: _address(f"probes[{index}].{key}", entry[key]) for key in ("source", "translated")}
        if Probe(**addresses) in probes:
            continue
        for key, address in addresses.items():
            option = f"probes[{index}].{key}"
            if address in users:
                why = f"or replies could not be translated; {users[address]} has it"
                raise Invalid(option, entry[key], f"an address that no other entry uses, {why}")
            users[address] = option
        if addresses["translated"].is_link_local:
            allowed = "an address that routers forward, not link-local"
            raise Invalid(f"probes[{index}].translated", entry["translated"], allowed)
        probes.add(Probe(**addresses))
    return tuple(sorted(probes))


def _address(option: str, value: object) -> ipaddress.IPv6Address:
    allowed = "an IPv6 unicast address without prefix length and zone"
    try:
        address = ipaddress.IPv6Address(str(value))
    except ValueError:
        raise Invalid(option, value, allowed) from None
    is_host = not (address.is_multicast or address.is_unspecified or address.is_loopback or address.ipv4_mapped)
    if not is_host or "%" in str(value):
        raise Invalid(option, value, allowed)
    return address


def _checked(name: str) -> Check:
    """Return a check of an option by the table that it gives."""
    default: Values = {"table": ProbeSnat().name, "interface": "eth0", "priority": 0, "comment": ""}
    probes = [{"source": "fe80::1", "translated": "2001:db8::1"}]
    return applied(lambda _option, value: ProbeSnat.from_options({**default, "probes": probes, name: value}), name)


# Of nftables_probe_snat, and of its profile.
OPTIONS: Options = {
    "table": permitted("str", ProbeSnat().name, check=lambda value, is_applied: table_names.table("table", value, is_applied)),
    "interface": permitted("str", ProbeSnat().interface, check=_checked("interface")),
    "priority": permitted("int", ProbeSnat().priority, check=_checked("priority")),
    "probes": permitted(
        "list",
        [{"source": AZURE_SOURCE, "translated": AZURE_TRANSLATED}],
        elements="dict",
        entries=texts("source", "translated"),
        check=_checked("probes"),
    ),
    "comment": permitted("str", "", check=applied(table_names.comment, "comment")),
    "path": Option("path", "/etc/kubenode/probe-snat.nft", refused=PATH, check=names.boot_path),
    "before": kubelet_units.BEFORE,
    "backend": permitted("str", "nftables", choices=("auto", "nftables", "bpf")),
    "agentbaker": permitted("str", "report", choices=("report", "take_over")),
}
