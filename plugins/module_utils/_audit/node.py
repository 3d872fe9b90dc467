# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What checks read of a snapshot. To read what was not observed raises Unobserved, so that no check takes it for absent."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
import typing as t

from .._cni import cni
from .._routing import policy
from .._ruleset import observed, service_rules
from .._ruleset.ruleset import PROTOCOL, Chain, Table
from .._ruleset.service_rules import NODE_PORTS, NODE_PORTS_CHAIN, Entrance
from .._snapshot import open_facts, values
from .._snapshot.open_facts import OpenFact
from .._snapshot.snapshot import PACKET_PATH, POD_ADDRESSES
from .._snapshot.values import MAIN, Entry, Link, PolicyRule, Route, Value, entries, has_interface_name, holds, is_host
from .._trace import entrance, uplinks
from .._trace.packet import Packet
from .._trace.uplinks import Uplinks
from .._twin import pod_links
from .._twin.blueprint import LOOPBACK
from .._twin.pod_links import Network
from .context import CILIUM, Context
from .suspicion import Unobserved

IPV4, IPV6 = FAMILIES = ("ipv4", "ipv6")
TABLES_OF = {IPV4: "ip", IPV6: "ip6"}  # as iptables and nft name the families
# Of a snapshot, which checks read.
SUBSETS = (
    *(*PACKET_PATH, "network_daemons", "firewalls", "boot", "cni", "units", "policies", "listeners", "pod_neighbors"),
    "counters",
)
_OF_PODS = ("-d addr", "rule", "-6 rule", "route show table all", "-6 route show table all", "neigh", "-6 neigh")
# By subset, the commands whose output would tell.
ASK = {
    "links": "ip addr",
    "neighbors": "ip neigh; ip -6 neigh",
    "rules": "ip rule; ip -6 rule",
    "routes": "ip route show table all; ip -6 route show table all",
    "settings": "sysctl -a",
    "nftables": "nft list ruleset",
    "iptables": "iptables-save; ip6tables-save",
    "ipsets": "ipset save",
    "ebtables": "ebtables-save",
    "bpf": "bpftool net",
    "filters": "tc filter show dev LINK ingress",
    "ipvs": "ipvsadm -Ln",
    "network_daemons": "systemctl is-active systemd-networkd NetworkManager nm-cloud-setup.timer; networkctl status -a",
    "boot": "systemd-analyze cat-config sysctl.d; systemd-analyze cat-config systemd/networkd.conf",
    "cni": "head -v -n 999 /etc/cni/net.d/*",
    "firewalls": "systemctl show nftables.service firewalld.service;"
    " head -v -n 9999 /etc/nftables.conf /etc/sysconfig/nftables.conf /etc/firewalld/firewalld.conf",
    "counters": "head -v -n 999 /proc/net/snmp /proc/net/netstat /proc/net/snmp6 /proc/net/stat/rt_cache"
    " /proc/net/stat/nf_conntrack; sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
    "units": "systemctl show 'kubenode-*'",
    "policies": "head -v -n 9999 /run/kubenode/policy-routes-*.json /etc/kubenode/policy-routes-*.json",
    "listeners": "head -v -n 9999 /proc/net/tcp /proc/net/tcp6",
    "pods": "; ".join(f"ip -all netns exec ip {words}" for words in _OF_PODS),
    "pod_neighbors": "ip -all netns exec ip neigh; ip -all netns exec ip -6 neigh",
}
TCP = "tcp"
_TO_NODE_PORTS = re.compile(re.escape(NODE_PORTS_CHAIN))
NODE_PORT_ADDRESSES = "nodeport-ips"  # of kube-proxy, its set of nft
SERVICES_CHAIN = "KUBE-SERVICES"  # of kube-proxy, its chain of iptables
IPVS_LINK = "kube-ipvs0"  # that has the addresses of all Services
AZURE_PEER = "12:34:56:78:9a:bc"  # the MAC address of each gateway in Azure
OF_OTHER_CLOUDS = ("aws_vpc_cni", "terway")  # layouts of policy routing by CNIs that serve one cloud alone
AZURE_SERVER = "168.63.129.16"  # Azure's DHCP server gives each node a route to it


# By subset, the kinds of facts that say what a snapshot of outputs may lack of it.
KINDS_OF = {
    "nftables": (open_facts.NFT,),
    "iptables": (open_facts.TABLE, open_facts.CUT, open_facts.LEGACY),
    "ipvs": (open_facts.IPVS, open_facts.ADDRESSES),  # one of its links shows that kube-proxy uses it
}


def open_entries(snapshot: Entry) -> list[OpenFact]:
    """Return the facts that a snapshot leaves open."""
    return [OpenFact.from_plain(entry) for entry in entries(snapshot, "open")]


def likely(snapshot: Entry) -> list[OpenFact]:
    """Return the open facts of which one value is much likelier than the others: few nodes whose rules of iptables are shown have
    further ones of nft, or of the other backend.
    """
    kinds = (open_facts.NFT, open_facts.LEGACY) if any(table.get("save") for table in entries(snapshot, "iptables")) else ()
    return [entry for entry in open_entries(snapshot) if entry.fact.kind in kinds and not entry.is_cut]


def without_facts(snapshot: Entry, facts: t.Collection[OpenFact]) -> Entry:
    """Return the snapshot of a world in which there is no more than it has of facts."""
    if not facts:
        return snapshot
    ids = {entry.fact.fact for entry in facts}
    return {**snapshot, "open": [entry for entry in entries(snapshot, "open") if entry.get("fact") not in ids]}


class FrameRule(t.NamedTuple):
    """A rule of ebtables. text: as ebtables prints it, without its chain."""

    table: str
    chain: str
    text: str


class Node:
    """snapshot: as datapath_info returns it. context: what no node shows. guesses: the facts that the snapshot leaves open and
    that have their likely value here.
    """

    def __init__(self, snapshot: Entry, context: Context, guesses: t.Sequence[OpenFact] = ()) -> None:
        self.snapshot = without_facts(snapshot, guesses)
        self.context = context
        self._guesses = guesses
        self._open = open_entries(self.snapshot)

    def demand(self, subset: str) -> t.Any:
        """Return a subset of the snapshot. Raises Unobserved if it was not read.

        A snapshot of outputs says by its facts what may be there that it lacks: without such a fact, there is nothing.
        """
        value = self.snapshot.get(subset)
        if value is not None:
            return value
        kinds = KINDS_OF.get(subset) if "open" in self.snapshot else None
        for entry in self._open:
            if entry.fact.kind in (kinds or ()):
                raise Unobserved(entry.fact.what, entry.fact.ask)
        if kinds:
            return []
        reasons = (str(entry["reason"]) for entry in entries(self.snapshot, "unread") if entry.get("subset") == subset)
        raise Unobserved(next(reasons, f"The subset {subset} was not read."), ASK[subset])

    def demand_fact(self, family: str, *kinds: str, subject: str = "") -> None:
        """Raise Unobserved if a fact of one of the kinds is open. subject: of a fact about a part; empty for any."""
        for entry in self._open:
            is_of_part = not (subject and entry.fact.subject) or entry.fact.subject == subject
            if entry.family in ("", family) and entry.fact.kind in kinds and is_of_part:
                raise Unobserved(entry.fact.what, entry.fact.ask)

    def demand_whole(self, subset: str) -> None:
        """Raise Unobserved if a part of a subset was not read."""
        for entry in entries(self.snapshot, "unread"):
            if entry.get("subset") == subset:
                raise Unobserved(str(entry.get("reason")), ASK[subset])

    def _values(self, kind: t.Callable[..., Value], subset: str) -> list[Value]:
        return [values.of_entry(kind, entry) for entry in self.demand(subset)]

    def links(self) -> list[Link]:
        """Return the links that have addresses or routes, with all of their addresses. The kinds of links may be open."""
        for family in FAMILIES:
            self.demand_fact(family, open_facts.ADDRESSES)
        self.demand("links")
        return self._links

    @functools.cached_property
    def _links(self) -> list[Link]:
        return values.links(self.snapshot)

    def all_links(self) -> list[Link]:
        """Return all links, with their kinds and the bridges whose ports they are, which outputs such as routes do not show."""
        for family in FAMILIES:
            self.demand_fact(family, open_facts.BRIDGE_PORTS)
        return self.links()

    def pod_links(self) -> list[Link]:
        """Return the links at whose other end is a pod."""
        inner = pod_links.pod_links(values.links(self.snapshot), values.routes(self.snapshot))
        return [link for link in self.all_links() if link.name in inner]

    def link(self, name: str) -> Link:
        self.links()
        return self._by_name.get(name, Link())

    @functools.cached_property
    def _by_name(self) -> dict[str, Link]:
        return {link.name: link for link in reversed(self._links)}  # the first of a name counts

    def mtu(self, name: str) -> int:
        """Return the MTU of a link. Raises Unobserved."""
        size = self.link(name).mtu
        if not size:
            raise Unobserved(f"The MTU of {name} is open.", "ip -d addr")
        return size

    def largest(self, link: str) -> int:
        """Return the size of the largest packets of the pod at a link: that of its end and of its default routes, as far as its
        side is known; 0 for none.
        """
        routes = (Route.of(route) for side in self.pod_sides(link) for route in side.get("routes") or ())
        sizes = (route.mtu for route in routes if route.to == "default")
        return min(filter(None, (self.link(link).peer.mtu or self.link(link).mtu, *sizes)), default=0)

    def pod_sides(self, link: str) -> list[Entry]:
        """Return what the pod at a link has itself; empty if that is not known."""
        return self._pod_sides.get(self.link(link).peer.namespace, [])

    def demand_pod_sides(self) -> None:
        """Raise Unobserved if outputs do not show what each pod has itself: few pods lack what they need."""
        if "open" in self.snapshot and not all(map(self.pod_sides, self.pods.values())):
            raise Unobserved("What pods have of their own, such as routes, is open.", ASK["pods"], is_unlikely=True)

    @functools.cached_property
    def _pod_sides(self) -> dict[str, list[Entry]]:
        named = ((str(entry.get("namespace") or ""), entry) for entry in entries(self.snapshot, "pods"))
        return {namespace: [entry] for namespace, entry in named if namespace}

    def pod_has_default(self, link: str, family: str) -> bool:
        """Return whether the pod at a link has a default route, or its side is not known."""
        sides = self.pod_sides(link)
        routes = (Route.of(route) for side in sides for route in side.get("routes") or ())
        return not sides or any((route.family, route.to) == (family, "default") for route in routes)

    def pod_networks(self, link: str) -> list[str]:
        """Return the addresses and networks that are local in the pod at a link, as far as its side is known."""
        return [str(each) for side in self.pod_sides(link) for each in side.get("addresses") or ()]

    def records(self) -> list[list[str]]:
        """Return the addresses that CNIs gave to interfaces of pods."""
        return [[*map(str, entry.get("addresses") or ())] for entry in entries(self.snapshot, POD_ADDRESSES)]

    def neighbors(self) -> list[values.Neighbour]:
        for family in FAMILIES:
            self.demand_fact(family, open_facts.NEIGHBORS)
        return self._values(values.Neighbour, "neighbors")

    def pod_neighbors(self) -> list[values.PodNeighbour]:
        """Return the permanent neighbours of pods. A twin has them only with the pods' own sides."""
        self.demand("pods")
        return self._values(values.PodNeighbour, "pod_neighbors")

    def programs(self) -> list[values.Program]:
        self.demand("bpf")
        return values.read(self.snapshot, "bpf")

    def listeners(self) -> list[values.Listener]:
        return self._values(values.Listener, "listeners")

    def units(self) -> list[values.Unit]:
        return self._values(values.Unit, "units")

    def daemons(self) -> values.Daemons:
        return values.Daemons.of(self.demand("network_daemons"))

    def managed_links(self) -> frozenset[str]:
        """Return the links that systemd-networkd configures."""
        managed = self.daemons().managed
        if managed is None:
            raise Unobserved("Which links systemd-networkd configures is open.", "networkctl status -a")
        return managed

    def demand_all_daemons(self) -> None:
        """Raise Unobserved if there may be daemons and agents that are no units: files of udev and cloud-init let them run."""
        if not self.daemons().is_whole:
            what = "Whether files of cloud-init, amazon-ec2-net-utils or ifupdown let these configure links is open."
            raise Unobserved(what, "a snapshot of the node", is_unlikely=True)

    def firewall(self, name: str) -> values.Firewall:
        return values.of_entry(values.Firewall, self.demand("firewalls").get(name) or {"is_enabled": False})

    def count(self, kind: str, name: str) -> int | None:
        """Return what the kernel counted; None if it does not count it."""
        of_kind = self.demand("counters").get(kind)
        if of_kind is None:
            raise Unobserved(f"What the kernel counted of {kind} was not read.", ASK["counters"])
        return None if of_kind.get(name) is None else int(of_kind[name])

    def plugins(self) -> set[str]:
        """Return the plugins in the configurations of CNIs."""
        return {plugin for entry in self.demand("cni") for plugin in entry.get("plugins") or ()}

    def services(self) -> list[tuple[str, str, int]]:
        """Return the addresses, protocols and ports that kube-proxy translates."""
        tuple(self.tables(FAMILIES, "nat"))
        self.demand("ipvs")
        return self._services

    @functools.cached_property
    def _services(self) -> list[tuple[str, str, int]]:
        servers = (server.end for server in values.read(self.snapshot, "ipvs"))
        ends = service_rules.translated(observed.tables(self.snapshot), servers)
        return [end for end in ends if end[1] in ("tcp", "udp")]

    def sets(self) -> str:
        """Return the sets as ``ipset save`` prints them."""
        return "\n".join(str(entry.get("save")) for entry in self.demand("ipsets"))

    def tables_of_nft(self) -> list[Table]:
        """Return the tables that nft lists, without those of iptables and ebtables."""
        self.demand_fact("", open_facts.NFT)
        self.demand("nftables")
        return self._tables_of_nft

    def listed_tables(self) -> list[Table]:
        """Return the same for a check that these tables alone decide."""
        self.demand_no_guess(open_facts.NFT)
        return self.tables_of_nft()

    def demand_no_guess(self, kind: str) -> None:
        """Raise Unobserved if a fact of a kind, which alone decides, is guessed."""
        for entry in self._guesses:
            if entry.fact.kind == kind:
                raise Unobserved(entry.fact.what, entry.fact.ask)

    @functools.cached_property
    def _tables_of_nft(self) -> list[Table]:
        return observed.of_nft(self.snapshot)

    def rules(self, family: str) -> list[PolicyRule]:
        """Return the rules of a family, in the kernel's order."""
        self.demand_fact(family, open_facts.RULES)
        self.demand("rules")
        return [rule for rule in self._rules if rule.family == family]

    @property
    def protocol_for_rules(self) -> dict[str, int]:
        """Return the option ``protocol`` with which policy_routes removes no rule of the node; empty if the default does."""
        return policy.beside({rule.protocol for family in FAMILIES for rule in self.rules(family)})

    @functools.cached_property
    def _rules(self) -> list[PolicyRule]:
        return values.rules(self.snapshot)

    def routes(self, family: str, table: str = MAIN) -> list[Route]:
        """Return the routes of a family in a table. table: its number."""
        for entry in self._open:
            is_of_table = not entry.fact.subject or entry.table == table
            if entry.family in ("", family) and entry.fact.kind == open_facts.ROUTES and is_of_table:
                raise Unobserved(entry.fact.what, entry.fact.ask)
        return self._routes.get((family, table), [])

    def every_route(self) -> list[Route]:
        """Return the routes that the snapshot has; further ones may be open."""
        self.demand("routes")
        return values.routes(self.snapshot)

    @functools.cached_property
    def _routes(self) -> dict[tuple[str, str], list[Route]]:
        """Return the routes by family and table."""
        routes: dict[tuple[str, str], list[Route]] = {}
        for route in self.every_route():
            routes.setdefault((route.family, route.table), []).append(route)
        return routes

    def links_with_settings(self, family: str) -> t.Collection[str]:
        """Return the links whose settings were read, or the settings of the whole node. family: ipv4 or ipv6, or node."""
        return self.demand("settings").get(family) or ()

    def policies(self) -> list[tuple[str, t.Any, list[Entry], list[Entry]]]:
        """Return the path, protocol, rules and routes of each record of policy_routes."""
        records = self.demand("policies")
        return [
            (str(each.get("path")), each.get("protocol"), each.get("rules") or [], each.get("routes") or []) for each in records
        ]

    def setting(self, family: str, link: str, key: str) -> int:
        """Return a setting of a link, of ``all`` or of ``default``."""
        value = ((self.demand("settings").get(family) or {}).get(link) or {}).get(key)
        if value is None:
            setting = f"net.{family}.conf.{link.replace('.', '/')}.{key}"
            raise Unobserved(f"The setting {setting} is open.", f"sysctl {setting}")
        return int(value)

    def sysctl(self, key: str) -> int:
        """Return a setting of the whole node. key: with dots, as sysctl prints it."""
        value = (self.demand("settings").get("node") or {}).get(key)
        if value is None:
            raise Unobserved(f"The setting {key} is open.", f"sysctl {key}")
        return int(value)

    def filter_mode(self, link: str) -> int:
        """Return the mode of a link's reverse-path filter, the larger one of its own and of all."""
        return max(self.setting(IPV4, name, "rp_filter") for name in ("all", link))

    def iptables(self, family: str, table: str) -> list[Table]:
        """Return a table of iptables, once for each backend that has it."""
        place = f"{TABLES_OF[family]} {table}"
        self.demand_fact(family, open_facts.TABLE, open_facts.CUT, open_facts.LEGACY, subject=place)
        self.demand("iptables")
        return [each for each in self._tables_of_iptables if (each.family, each.name) == (TABLES_OF[family], table)]

    @functools.cached_property
    def _tables_of_iptables(self) -> list[Table]:
        return observed.of_iptables(self.snapshot)

    def tables(self, families: t.Iterable[str], *names: str) -> t.Iterator[Table]:
        """Yield the tables that packets of the families may meet. names: of those of iptables."""
        yield from (table for family in families for name in names for table in self.iptables(family, name))
        yield from (table for table in self.tables_of_nft() if not {*families}.isdisjoint(table.families))

    def filled_tables(self) -> list[Table]:
        """Return the tables of iptables that have a rule, of both families and backends."""
        self.demand("iptables")
        return [table for table in self._tables_of_iptables if any(table.rules())]

    def frame_rules(self) -> list[FrameRule]:
        """Return the rules of ebtables, in the order of the listing."""
        self.demand("ebtables")
        return [FrameRule(each.table, each.chain, text) for each in values.frame_chains(self.snapshot) for text in each.rules]

    def boot(self, part: str) -> dict[str, values.BootSetting]:
        """Return what the next boot sets. part: ``settings`` or ``networkd``."""
        value = self.demand("boot").get(part)
        if value is None:
            raise Unobserved(f"What the next boot sets ({part}) was not read.", ASK["boot"])
        return {key: values.BootSetting(entry.get("value"), str(entry.get("file") or "")) for key, entry in value.items()}

    @functools.cached_property
    def pods(self) -> dict[str, str]:
        """Return the links of pods by the addresses of the pods behind them, of both families."""
        links = self.all_links() if self._may_have_bridge() else self.links()
        inner = pod_links.pod_links(values.links(self.snapshot), values.routes(self.snapshot))
        routes = [route for family in FAMILIES for route in self.routes(family) if is_host(route.to) and not route.via]
        pods = {route.address: route.dev for route in routes if route.dev in inner}
        unclear = {route.dev for route in routes}.difference(inner) if "open" in self.snapshot else set[str]()
        for link in (each for each in links if each.name in unclear):
            if not (link.kind or any(_addresses(link, family) for family in FAMILIES) or has_interface_name(link.name)):
                raise Unobserved(f"Whether a pod is behind {link.name} is open.", "ip -d link")
        for link in (link for link in links if link.name in inner):
            pods.update((address, link.name) for address in link.peer.addresses)
            # A report has no route to a pod behind a bridge. Behind a tap is a virtual machine, if not a program of the node.
            if link.master and link.kind != pod_links.TAP and not any(link.peer):
                raise Unobserved(f"Which address the pod behind {link.name} has is open.", "kubectl exec POD -- ip addr")
        return {address: link for address, link in pods.items() if is_host(address) and not is_link_local(address)}

    def pods_of(self, family: str) -> dict[str, str]:
        """Return the pods whose addresses are of a family."""
        return {pod: link for pod, link in self.pods.items() if (":" in pod) == (family == IPV6)}

    def _may_have_bridge(self) -> bool:
        """Return whether table main has a network on a link that may be a bridge of pods, to which no routes lead."""
        routes = (route for family in FAMILIES for route in self.routes(family) if route.dev and not route.via)
        networks = (route for route in routes if not is_host(route.to) and not is_link_local(route.address))
        return any(not has_interface_name(route.dev) for route in networks)

    @functools.cached_property
    def enis(self) -> Uplinks | None:
        """Return the interfaces that pods share by policy routing; None for a node without such routing."""
        self.links()
        self.rules(IPV4)
        for table in {rule.table or MAIN for rule in self.rules(IPV4)}:
            self.routes(IPV4, table)
        return uplinks.of(self.snapshot)

    def tables_of_enis(self) -> dict[str, str]:
        """Return the names of secondary interfaces by the numbers of their routing tables."""
        enis = self.enis
        return dict(zip(map(str, enis.tables), enis.secondary)) if enis else {}

    def pods_of_enis(self) -> dict[str, str]:
        """Return a pod behind each secondary interface. One without any may be for management, with a table of its own."""
        tables = self.tables_of_enis()
        return {tables[rule.table]: rule.pod for rule in self.rules(IPV4) if rule.table in tables and rule.pod in self.pods}

    def addresses(self, link: str, family: str) -> list[str]:
        """Return the addresses of a link, without link-local ones."""
        return _addresses(self.link(link), family)

    def networks(self, link: str) -> list[Network]:
        """Return the networks of a link's addresses, which outputs such as routes do not show."""
        self.all_links()
        return pod_links.networks(self.link(link))

    def links_by_address(self, family: str) -> dict[str, str]:
        """Return the names of the links by their addresses, without link-local ones."""
        return {address: link.name for link in self.links() for address in _addresses(link, family)}

    def best_defaults(self, family: str) -> list[Route]:
        """Return the default routes of table main that packets take: those with the least metric."""
        routes = [route for route in self.routes(family) if route.to == "default" and route.dev]
        least = min((_metric(route) for route in routes), default=0)
        return [route for route in routes if _metric(route) == least]

    def uplinks(self, family: str) -> list[str]:
        """Return the links by which the default routes of table main lead."""
        return list(dict.fromkeys(route.dev for route in self.routes(family) if route.to == "default" and route.dev))

    def every_uplink(self) -> set[str]:
        """Return the links by which the default routes of any table and family lead out of the node."""
        return pod_links.outer_links(values.links(self.snapshot), values.routes(self.snapshot))

    def own_addresses(self, family: str) -> list[str]:
        """Return the addresses of the links by which default routes of any table lead, those of table main first."""
        names = dict.fromkeys([*self.uplinks(family), *sorted(self.every_uplink())])
        return [address for name in names if name != LOOPBACK for address in self.addresses(name, family)]

    def carriers(self, link: Link) -> list[Packet]:
        """Return a packet in which a tunnel carries others, to its other end and from there; none where an end is not known."""
        return entrance.between_ends(self.snapshot, link) if link.kind in entrance.TUNNELS else []

    def entrance(self, link: str) -> str:
        """Return the link by whose settings packets of a link come in: the bridge of a port."""
        self.all_links()
        master = self.link(self.link(link).master)
        if master.name and not master.kind and "open" in self.snapshot:
            raise Unobserved(f"Whether {master.name} is a bridge is open.", "ip -d link")
        return master.name if master.kind == "bridge" else link

    def probed_links(self) -> list[str]:
        """Return the links by which Azure's IPv6 probe comes in, which a node without a default route of IPv6 has too."""
        return self.uplinks(IPV6) or self.uplinks(IPV4)

    def has_node_ports(self) -> bool:
        """Return whether kube-proxy, in any of its modes, serves a node port."""
        return any(self.node_ports())

    def shows_node_port(self) -> bool:
        """Return whether a rule of iptables serves a node port, among those that the snapshot has."""
        entrances = (each for table in self._tables_of_iptables for each in service_rules.entrances(table))
        return any(not each.address for each in entrances)

    def ports_of(self, family: str) -> list[int]:
        """Return the node ports of TCP that kube-proxy serves in a family: those to whose chains the rules of either family lead,
        as far as the family has these chains, and those of elements.
        """
        chains = {name for table in self.iptables(family, "nat") for name in table.chains}
        of_rules = [
            rule.value("th dport")
            for each in FAMILIES
            for table in self.iptables(each, "nat")
            for rule in table.chains.get(NODE_PORTS_CHAIN, Chain()).rules
            if rule.value(PROTOCOL) == "tcp" and (each == family or (rule.verdict and rule.verdict.target in chains))
        ]
        tables = (table for table in self.tables_of_nft() if family in table.families)
        elements = (element for table in tables for element in table.sets.get(NODE_PORTS, ()) if element.key[0] == "tcp")
        return [int(port) for port in dict.fromkeys([*of_rules, *(each.key[-1] for each in elements)]) if port.isdigit()]

    def serves_node_ports(self, family: str, address: str) -> bool:
        """Return whether kube-proxy is to serve node ports at an address of the node, as far as it names addresses."""
        field = f"{TABLES_OF[family]} daddr"
        rules = (rule for table in self.iptables(family, "nat") for rule in table.rules(_TO_NODE_PORTS))
        named = {rule.value(field) for rule in rules if rule.verdict and rule.verdict.target == NODE_PORTS_CHAIN}
        tables = (table for table in self.tables_of_nft() if family in table.families)
        named |= {each.key[0] for table in tables for each in table.sets.get(NODE_PORT_ADDRESSES, ())}
        return "" in named or not named or any(holds(prefix, address) for prefix in named)

    def may_listen(self, port: int) -> bool:
        """Return whether a program of the node may listen at a port."""
        return self.snapshot.get("listeners") is None or any(listener.port == str(port) for listener in self.listeners())

    def pod_ports(self, link: str) -> set[int]:
        """Return the ports at which programs of the pod at a link listen; empty if that is not known."""
        listed = (str(each.get("port")) for side in self.pod_sides(link) for each in entries(side, "listeners"))
        return {int(port) for port in listed if port.isdigit()}

    def node_ports(self) -> t.Iterator[tuple[str, str]]:
        """Yield the protocols and ports of kube-proxy's node ports; empty for one that a rule does not name alone."""
        has_kube_proxy = False
        for table in (each for family in FAMILIES for each in self.iptables(family, "nat")):
            has_kube_proxy |= SERVICES_CHAIN in table.chains
            yield from (each[1:3] for each in service_rules.entrances(table) if not each.address)
        for table in () if has_kube_proxy else self.tables_of_nft():  # in each mode, it removes the rules of the others
            yield from (each[1:3] for each in service_rules.entrances(table) if not each.address)
        yield from ((str(server.get("protocol")), str(server.get("port"))) for server in self._node_ports_of_ipvs())

    def _node_ports_of_ipvs(self) -> list[Entry]:
        """Return the virtual servers of addresses of the node, without those of the link of all Services."""
        of_node = {address for link in self.links() if link.name != IPVS_LINK for address in link.addresses}
        return [server for server in entries(self.snapshot, "ipvs") if str(server.get("address")) in of_node]

    def entrances(self, family: str) -> dict[str, Entrance]:
        """Return the entrances by which requests of TCP from outside are for pods, by the addresses of pods, as far as known."""
        of_pods: dict[str, Entrance] = {}
        of_iptables = (each for each in self._tables_of_iptables if (each.family, each.name) == (TABLES_OF[family], "nat"))
        for table in (*of_iptables, *(each for each in self._tables_of_nft if family in each.families)):
            for pod, port in service_rules.for_pods(table, self.pods):
                if port.protocol == TCP and port.port.isdecimal():
                    of_pods.setdefault(pod, port)
        for server in self._node_ports_of_ipvs():
            for destination in server.get("destinations") or () if server.get("protocol") == TCP else ():
                of_pods.setdefault(str(destination.get("address")), Entrance("", TCP, str(server.get("port"))))
        return of_pods

    def has_cilium(self) -> bool:
        """Return whether Cilium serves the node, by the context, or by its configuration or its links."""
        if self.context.cni:
            return self.context.cni == CILIUM
        is_configured = bool(self.snapshot.get("cni")) and cni.CILIUM_PLUGIN in self.plugins()
        with_settings = self.links_with_settings(IPV4) if self.snapshot.get("settings") else ()
        names = [*with_settings, *(link.name for link in self.links())]
        return is_configured or any(map(_is_of_cilium, names)) or any(_is_of_cilium(link.name) for link in self.all_links())

    def is_azure(self) -> bool:
        """Return whether the node is in Azure, by the context, or by what Azure's network gives each node."""
        if self.context.cloud:
            return self.context.cloud == "azure"
        if any(route.to.startswith(AZURE_SERVER) for route in self.routes(IPV4)):
            return True
        with contextlib.suppress(Unobserved):
            if self.enis and self.enis.layout in OF_OTHER_CLOUDS:
                return False
        try:
            return any(entry.mac == AZURE_PEER for entry in self.neighbors())
        except Unobserved as lack:  # Azure's DHCP server would have given the node the route
            raise Unobserved(lack.what, lack.ask, is_unlikely=True) from None


def _is_of_cilium(link: str) -> bool:
    return link.startswith(("cilium_", "lxc"))


def _metric(route: Route) -> int:
    """Return the metric of a route. One of IPv6 without any has 1024 (include/uapi/linux/ipv6_route.h, IP6_RT_PRIO_USER)."""
    return int(route.metric or (1024 if route.family == IPV6 else 0))


def is_link_local(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_link_local
    except ValueError:
        return False


def _addresses(link: Link, family: str) -> list[str]:
    return [text for text in link.addresses if (":" in text) == (family == IPV6) and not is_link_local(text)]


def setting_line(family: str, link: str, key: str, value: object) -> str:
    """Return a setting as ``sysctl`` prints it."""
    return f"net.{family}.conf.{link.replace('.', '/')}.{key} = {value}"
