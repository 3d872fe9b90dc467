# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The paths that a node is built for: those of its pods, of its Services and of itself, each as a packet."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import typing as t

from .._cni import cni
from .._core import fields
from .._routing.route import LOCAL
from .._ruleset.ruleset import TRANSLATES_SOURCE
from .._snapshot.values import MAIN, Route, holds, is_host
from .._trace import entrance
from .._trace.answer import LOST, Met, Way
from .._trace.culprit import BRIDGE, ChainRule, Object, VirtualServer, is_forwarding, is_of_network
from .._trace.packet import OUTSIDE, TCP
from .._twin.blueprint import LOOPBACK
from . import purpose
from .finding import check
from .node import FAMILIES, IPV4, IPV6, TABLES_OF, Node, is_link_local, setting_line
from .suspicion import ERROR, NOTE, RISK, Miss, Suspicion, Trial, Unobserved

Judge = t.Callable[[Way], t.Optional[Miss]]
KUBE_PROXY, OF_SERVICES = "kube-proxy", "KUBE-"  # its table of nft, and how the names of its chains of iptables begin
UNTRANSLATED = "cluster-ips-check"  # its chain of nft that stops packets to addresses of Services
MARKING = ("KUBE-MARK-MASQ", "mark-for-masquerade")  # its chains from which packets come back
POD_PORT, KUBELET, HTTPS, DNS, SSH = 8080, 10250, 443, 53, 22
OPEN_VSWITCH = "openvswitch"  # the kind of the datapath's link, whose flows no rule of the kernel shows
IP_FORWARD = "net.ipv4.ip_forward"
NO_ADDRESS = 8  # of arp_ignore: no request is answered (Documentation/networking/ip-sysctl.rst)
DUMMY = "dummy"  # the kind of a link behind which nothing is
MOST_SERVICES, MOST_NODE_PORTS, MOST_SHAPES, MOST_REMOTE = 6, 2, 8, 2


@check(
    "path-lost",
    ERROR,
    "A packet that the node is built for is lost: one of its pods, of a Service or of the node itself, or the answer to it.",
    "A packet for each pod and family through a twin: from the node and from outside to the pod, from the pod to the outside, to"
    " the node, to another pod, to pods of other nodes and to Services, and from outside to node ports.",
    "What the trace of the packet offers.",
    "https://kubernetes.io/docs/concepts/cluster-administration/networking/",
    "A pod of the node is not reached, or reaches nothing, and no other check says why",
)
def paths(node: Node) -> t.Iterator[Suspicion]:
    """Yield each path. The subject, which is what stops the packet, is known after the trial."""
    switched = {link.name for link in node.links() if node.link(link.master).kind == OPEN_VSWITCH}.intersection(
        node.pods.values()
    )
    for family in FAMILIES:
        addresses = {**_recorded(node, family), **_learned(node, family), **node.pods_of(family)}
        own = node.links_by_address(family)
        inner = {
            pod: link for pod, link in addresses.items() if link not in switched and not _is_own_end(node, link, own.get(pod))
        }
        pods = {pod: link for pod, link in inner.items() if not _is_leftover(node, pod, link)}
        internal = _internal(node, family, pods)
        shapes = _shapes(node, family, {pod: link for pod, link in pods.items() if pod not in internal})
        yield from _of_each(node, family, pods, internal)
        for pod in shapes:
            yield from _to_others(node, family, pod, pods[pod])
        if pods:
            yield from _to_node_ports(node, family)
        yield from _to_lost_addresses(node, family, pods)
        yield from _to_cards(node, family)
        yield from _by_bare_tunnels(node, family, pods)
        yield from _between_tunnels(node, family, pods)
        yield from _by_bare_tables(node, family, pods)
    if switched:
        what = f"What Open vSwitch does with the packets of {min(switched)} is in no snapshot."
        raise Unobserved(what, "ovs-appctl ofproto/trace BRIDGE FLOW")
    node.demand_pod_sides()


def of_operators(node: Node) -> t.Iterator[Trial]:
    """Yield packets from the outside to each address of an uplink, and from the node to the outside. An operator who has another
    way may do without one of them, but no remedy may end it.
    """
    for family in FAMILIES:
        for uplink in sorted(node.every_uplink()):
            for own in node.addresses(uplink, family):
                yield Trial(_of(OUTSIDE[family], uplink, own, SSH))
        if node.own_addresses(family):
            yield Trial({"destination": OUTSIDE[family], "destination_port": HTTPS})


def _of_each(node: Node, family: str, pods: t.Mapping[str, str], internal: t.Container[str]) -> t.Iterator[Suspicion]:
    """Yield the paths whose objects each pod has of its own: its link, its addresses, routes and rules.

    internal: the pods that need not leave their bridge.
    """
    next_pods = _next_pods(node, pods)
    outside = OUTSIDE[family]
    down = _lost_uplinks(node)
    there = f"the outside by {', '.join(down)}, which is down," if down else "the outside"
    leading = {
        route.table for route in node.every_route() if (route.family, route.to) == (family, "default") and _leads_out(node, route)
    }
    # A pod with a table of its own, which a cloud's network is to see, need not reach the node directly.
    apart = {route.address for route in node.every_route() if route.table != MAIN}
    addresses, uplinks = node.own_addresses(family)[:1] if pods else [], _uplinks(node, family, pods)
    bare = _lost_gateway(node, family, MAIN) if pods and node.uplinks(family) else ""
    missed = functools.partial(_missed_uplink, bare, family) if bare else None
    for pod, link in pods.items():
        near = NOTE if pod in apart else ERROR
        yield _path("the node", f"the pod {pod}", {"destination": pod, "destination_port": POD_PORT}, near)
        # Without a default route the node or the network of containers may be meant to have none.
        is_led = bool(down or leading & _tables(node, family, pod)) and pod not in internal
        yield _path(f"the pod {pod}", there, _of(pod, link, outside, HTTPS), ERROR if is_led else NOTE, missed)
        size = _too_large(node, link, node.largest(link))
        if size:
            yield _path(f"the pod {pod}", "the outside", {**_of(pod, link, outside, HTTPS), "length": size, "df": True})
        if next_pods[pod] != pod:
            yield _path(f"the pod {pod}", f"the pod {next_pods[pod]}", _of(pod, link, next_pods[pod], POD_PORT), near)
        for address in addresses:
            severity = NOTE if pod in internal else near
            yield _path(f"the pod {pod}", "the node", _of(pod, link, address, KUBELET), severity)
        if uplinks.get(pod):
            packet = _of(outside, uplinks[pod], pod, POD_PORT)
            size = _too_large(node, uplinks[pod], min(node.largest(link), node.link(uplinks[pod]).peer.mtu))
            yield _path("the outside", f"the pod {pod}", packet)
            if size:
                yield _path("the outside", f"the pod {pod}", {**packet, "length": size, "df": True})


def _tables(node: Node, family: str, pod: str) -> set[str]:
    """Return the tables to which rules may lead the packets of a pod."""
    return {MAIN, *(rule.table for rule in node.rules(family) if not rule.source or holds(rule.source, pod))}


def _internal(node: Node, family: str, pods: t.Mapping[str, str]) -> set[str]:
    """Return the pods of bridges none of whose pods has a default route, and whose packets no rule masquerades, such as those of
    an internal network of Docker.
    """
    bridges = {node.link(link).master for link in pods.values()} - {""}
    led = {bridge for link in pods.values() if (bridge := node.link(link).master) and node.pod_has_default(link, family)}
    inner = {pod for pod, link in pods.items() if node.link(link).master in bridges - led}
    rules = (rule for table in (node.tables([family], "nat") if inner else ()) for rule in table.rules(TRANSLATES_SOURCE))
    sources = {rule.value(f"{TABLES_OF[family]} saddr") for rule in rules if rule.translates_source()}
    return {pod for pod in inner if not any(holds(source, pod) for source in sources)}


def _is_own_end(node: Node, link: str, other: str | None) -> bool:
    """Return whether the node has both ends of a veth. other: its link with the address behind the first one."""
    peer = node.link(link).peer
    return other is not None and not peer.namespace and peer.name in ("", other)


def _is_leftover(node: Node, pod: str, link: str) -> bool:
    """Return whether a route leads an address to a pod that has another one in its place."""
    addresses = [each for each in node.link(link).peer.addresses if (":" in each) == (":" in pod) and not is_link_local(each)]
    return bool(addresses) and pod not in addresses and not any(holds(each, pod) for each in node.pod_networks(link))


def _leads_out(node: Node, route: Route) -> bool:
    """Return whether a default route leads packets out. One that stops them, or that leads by a dummy link, does not."""
    return not route.is_unreachable and node.link(route.dev).kind != DUMMY


def _learned(node: Node, family: str) -> dict[str, str]:
    """Return the addresses that the node has learned of pods without any, by their MAC addresses: a pod may have lost them."""
    try:
        with_address = {*node.pods_of(family).values()}
        pods = (link for link in node.pod_links() if link.peer.mac and link.name not in with_address)
        links = {(link.master or link.name, link.peer.mac): link.name for link in pods}
        known = [(entry.address, links.get((entry.dev, entry.mac))) for entry in node.neighbors()]
    except Unobserved:  # what the links show of pods is enough
        return {}
    addresses = ((address, link) for address, link in known if link and not is_link_local(address))
    return {address: link for address, link in addresses if (":" in address) == (family == IPV6)}


def _recorded(node: Node, family: str) -> dict[str, str]:
    """Return the addresses that a CNI gave to pods and that none has, by the link of the pod that has another one of the same
    interface.
    """
    records = node.records()
    links = {address: link.name for link in (node.pod_links() if records else ()) for address in link.peer.addresses}
    of_links = ((record, next((links[each] for each in record if each in links), "")) for record in records)
    lacking = {each: link for record, link in of_links for each in record if link and each not in links}
    return {address: link for address, link in lacking.items() if (":" in address) == (family == IPV6)}


def _too_large(node: Node, link: str, largest: int) -> int:
    """Return the size of the largest packets from the other end of a link, if the link drops these as too large; otherwise 0."""
    return largest if 0 < node.link(link).mtu < largest else 0


def _lost_uplinks(node: Node) -> list[str]:
    """Return the interfaces with addresses, if all are down and no other link leads out. The kernel removes their routes."""
    cards = [link for link in purpose.cards(node) if link.addresses and not link.master]
    down = [link.name for link in cards if "UP" not in link.flags]
    return [] if node.every_uplink() or len(down) < len(cards) else down


def _next_pods(node: Node, pods: t.Mapping[str, str]) -> dict[str, str]:
    """Return another pod for each: of those on a bridge the next one there, as containers of another runtime may be cut off, and
    itself for one whose port is isolated from others.
    """
    of_bridge: dict[str, list[str]] = {}
    for pod, link in pods.items():
        port = node.link(link)
        of_bridge.setdefault(pod if port.is_isolated else port.master, []).append(pod)
    return {pod: group[(place + 1) % len(group)] for group in of_bridge.values() for place, pod in enumerate(group)}


def _to_others(node: Node, family: str, pod: str, link: str) -> t.Iterator[Suspicion]:
    """Yield the paths of one pod of a shape to what all pods share."""
    for own in node.own_addresses(family)[1:]:  # of a network for management, perhaps, from which pods are to be kept
        there = f"the node's address {own}"
        yield _path(f"the pod {pod}", there, _of(pod, link, own, KUBELET), NOTE)
        yield _path(there, f"the pod {pod}", {"source": own, "destination": pod, "destination_port": POD_PORT}, NOTE)
    for address, protocol, port in _services(node, family):
        packet = {**_of(pod, link, address, port), "protocol": protocol}
        # A cache of DNS on the node may have the address itself.
        missed = None if address in node.links_by_address(family) else _at_endpoint(node, family, address)
        yield _path(f"the pod {pod}", f"the Service {address}:{port}", packet, missed=missed)
        of_node = {"destination": address, "protocol": protocol, "destination_port": port}
        yield _path("the node", f"the Service {address}:{port}", of_node, missed=missed)
    tunnels = purpose.behind_tunnels(node, family)
    for address, route in [*purpose.remote_pods(node, family).items()][:MOST_REMOTE]:
        there, missed = f"the pod {address} of another node", _by_tunnel(node, route)
        yield _path(f"the pod {pod}", there, _of(pod, link, address, POD_PORT), missed=missed)
        if tunnels.get(address, route.dev) != route.dev:  # by which the other node sends, whatever leads there
            yield _path(there, f"the pod {pod}", _of(address, tunnels[address], pod, POD_PORT), RISK)


def _to_lost_addresses(node: Node, family: str, pods: t.Container[str]) -> t.Iterator[Suspicion]:
    """Yield paths to addresses that the node had: a rule leads their answers to a gateway that its link does not reach any more.

    The kernel takes no route by such a gateway, unless it is to be taken as on the link.
    """
    own = node.links_by_address(family)
    lost = functools.cache(functools.partial(_lost_gateway, node, family))  # a node has thousands of rules and few tables
    # A rule by itself may be left of an interface that is gone.
    led = {route.table for route in node.every_route() if route.to == "default"}
    led.update(rule.table for rule in node.rules(family) if rule.pod in pods)
    for rule in node.rules(family):
        address, link = rule.pod, "" if rule.is_inverted or not rule.source else lost(rule.table)
        if not link or address in own or address in pods or not is_host(rule.source):
            continue
        by = _disabling(node, link) if family == IPV6 else ""
        missed = functools.partial(_missed_address, address, link, str(rule), by, RISK if rule.table in led else NOTE)
        yield _path("the outside", f"the address {address}", _of(OUTSIDE[family], link, address, SSH), missed=missed)


def _lost_gateway(node: Node, family: str, table: str) -> str:
    """Return the link that has lost its address in the network of the gateway of a table's default route; empty for none.

    With the last address of IPv4, and where IPv6 is disabled, the kernel removes the routes of a link, but not those of the other
    family: of a table without any, the only interface without an address is meant.
    """
    defaults = {route.family: route for route in reversed(node.every_route()) if (route.table, route.to) == (table, "default")}
    route = defaults.get(family) or next(iter(defaults.values()), None)
    cards = {card.name: card for card in purpose.cards(node)}
    if route and route.family == family:
        if not route.via or route.is_onlink or is_link_local(route.via):
            return ""
        networks = [each.to for each in node.every_route() if each.dev == route.dev and not each.via]
        if any(is_host(network) and holds(network, route.via) for network in networks):
            return ""  # an address that is elsewhere, as on the loopback link, is enough
        is_near = any(holds(network, route.via) for network in (*networks, *map(str, node.networks(route.dev))))
        is_bare = route.dev in cards and not node.addresses(route.dev, family)
        return route.dev if is_bare or not is_near else ""
    if node.routes(family, table):
        return ""
    bare = [name for name, card in cards.items() if "UP" in card.flags and not card.master and not node.addresses(name, family)]
    of_table = [name for name in bare if (route and name == route.dev) or not (route or any(node.networks(name)))]
    return of_table[0] if len(of_table) == 1 else ""


def _disabling(node: Node, link: str) -> str:
    """Return the setting by which a link has no address of IPv6; empty if it may have one, or that is open."""
    with contextlib.suppress(Unobserved):
        return setting_line(IPV6, link, "disable_ipv6", 1) if node.setting(IPV6, link, "disable_ipv6") else ""
    return ""


def _missed_address(address: str, link: str, rule: str, by: str, severity: str, _way: Way) -> Miss:
    return Miss(by or f"{address} dev {link}", f"No link has {address}, for whose answers there is rule {rule}.", severity)


def _missed_uplink(link: str, family: str, way: Way) -> Miss | None:
    what = f"The gateway is in no network of {link}: the kernel took the route while {link} had an address there."
    return Miss(f"no address of {family} on {link}", what) if way.interface == link else None


def _to_cards(node: Node, family: str) -> t.Iterator[Suspicion]:
    """Yield paths to addresses of interfaces: from their networks, to which a rule or a route may stop the answers, and from
    outside to one that is down, or that answers no request of ARP, beside one that is up.
    """
    cards = [card for card in purpose.cards(node) if not card.master] if node.every_uplink() else []
    for card in cards:
        mute = _mute(node, card.name) if family != IPV6 else ""
        for own in node.addresses(card.name, family):
            there = f"the address {own}"
            networks = (net for net in node.networks(card.name) if net.num_addresses > 2 and holds(str(net), own))
            near_network = next(networks, None)
            near = str(near_network[-2]) if near_network else own
            if near_network and near != own and "UP" in card.flags:
                culprit = functools.partial(is_of_network, near_network.prefixlen)  # one for a part may keep machines away
                yield _path(f"the network of {card.name}", there, _of(near, card.name, own, SSH), culprit=culprit)
            if mute or "UP" not in card.flags:
                missed = functools.partial(_missed_request, mute) if mute else None
                # One that no rule names may be meant to be down. A router learns the MAC address when the node asks for its own.
                is_used = any(rule.pod == own or rule.iif == card.name for rule in node.rules(family))
                is_meant = card.name in node.uplinks(family) if mute else not is_used
                severity = NOTE if is_meant else RISK
                yield _path("the outside", there, _of(OUTSIDE[family], card.name, own, SSH), severity, missed)


def _mute(node: Node, link: str) -> str:
    """Return the setting by which a link answers no request of ARP; empty if it answers, or that is open."""
    with contextlib.suppress(Unobserved):
        for name in ("all", link):
            if node.setting(IPV4, name, "arp_ignore") == NO_ADDRESS:
                return setting_line(IPV4, name, "arp_ignore", NO_ADDRESS)
    return ""


def _missed_request(mute: str, way: Way) -> Miss | None:
    effect = f"With {mute} the node answers no request of ARP, by which its neighbours learn its MAC address."
    return None if way.verdict in LOST else Miss(mute, effect)


def _between_tunnels(node: Node, family: str, pods: t.Container[str]) -> t.Iterator[Suspicion]:
    """Yield the paths of the packets in which tunnels carry those of pods. No firewall is to stop these."""
    remote = purpose.remote_pods(node, family).values() if pods else ()
    used = {route.dev for route in remote if not is_host(route.to)}  # without those of neighbours to which no route leads
    for link in (link for link in node.all_links() if link.name in used):
        for packet in node.carriers(link):
            missed = functools.partial(_missed_carrier, link.name)
            ends = ("the other nodes", "the node") if packet.interface else ("the node", "the other nodes")
            yield _path(*ends, {**packet.report(), "interface": packet.interface}, missed=missed)


def _missed_carrier(tunnel: str, way: Way) -> Miss | None:
    way = entrance.received(way)
    culprit = way.culprit if way.verdict in LOST else None
    return Miss(culprit.text, f"The packets of pods by {tunnel} are carried in it.") if culprit else None


def _by_bare_tunnels(node: Node, family: str, pods: t.Mapping[str, str]) -> t.Iterator[Suspicion]:
    """Yield a path from another node by each tunnel of a CNI that is down, or has no address of its family: the kernel has
    removed its routes, so that nothing shows which pods are behind it.
    """
    leading = {route.dev for route in node.every_route() if route.family == family and not is_link_local(route.address)}
    # Where pods of other nodes are reached by another link, the tunnel may be left of another CNI.
    severity = NOTE if purpose.remote_pods(node, family) else RISK
    for link in node.links() if pods else ():
        is_bare = link.name not in leading and not node.addresses(link.name, family)
        if purpose.family_of_tunnel(link.name) == family and (is_bare or "UP" not in link.flags):
            pod = min(pods)
            far = _far_pod(family, pod)
            missed = functools.partial(_missed_answer, link.name, family)
            yield _path("pods of other nodes", f"the pod {pod}", _of(far, link.name, pod, POD_PORT), severity, missed)


def _far_pod(family: str, pod: str) -> str:
    """Return the last address that is like a pod's, which one of another node may have."""
    return str(purpose.cluster_of(pod, family)[-2])


def _missed_answer(link: str, family: str, way: Way) -> Miss | None:
    if way.verdict in LOST or (way.reply and way.reply.interface == link):
        return None
    return Miss(f"no address of {family} on {link}", f"The answer does not leave by {link}, to which no route of {family} leads.")


def _by_bare_tables(node: Node, family: str, pods: t.Container[str]) -> t.Iterator[Suspicion]:
    """Yield a path to each pod for whose packets a rule names a table that leads by one interface to its gateway alone: the first
    address of its network, as clouds have it.
    """
    cards = {card.name for card in purpose.cards(node)}
    for rule in (each for each in node.rules(family) if each.pod in pods and not (each.to or each.is_inverted)):
        routes = node.routes(family, rule.table)
        link = routes[0].dev if len({route.dev for route in routes}) == 1 else ""
        gateways = {str(network[1]) for network in node.networks(link) if network.num_addresses > 2} if link in cards else set()
        if gateways and all(is_host(route.to) and not route.via and route.address in gateways for route in routes):
            missed = functools.partial(_missed_table, rule.table, link, str(rule))
            there = f"the pod {rule.pod} by {link}"
            yield _path("the outside", there, _of(OUTSIDE[family], link, rule.pod, POD_PORT), RISK, missed)


def _missed_table(table: str, link: str, rule: str, way: Way) -> Miss | None:
    if way.verdict in LOST or (way.reply and way.reply.interface == link):
        return None
    what = f"The answer does not leave by {link}: rule {rule} leads to a table without a default route."
    return Miss(f"no default route in table {table}", what)


def _to_node_ports(node: Node, family: str) -> t.Iterator[Suspicion]:
    ports = node.ports_of(family)[:MOST_NODE_PORTS]
    most = max((node.largest(link) for link in node.pods_of(family).values()), default=0)
    marked = {rule.table for rule in node.rules(family) if rule.fwmark and not rule.is_inverted}
    tables = (route for table in marked - {MAIN} for route in node.routes(family, table) if route.to == "default")
    # A rule by a mark leads the answers of pods to a further interface.
    further = {route.dev for route in tables}.intersection(card.name for card in purpose.cards(node))
    for uplink in (name for name in dict.fromkeys([*node.uplinks(family), *sorted(further)]) if node.link(name).kind != DUMMY):
        # By that of its MTU a pod tells a client how large a packet it takes.
        size = _too_large(node, uplink, min(most, node.link(uplink).peer.mtu))
        for own in node.addresses(uplink, family)[:1]:
            for port in ports if ports and node.serves_node_ports(family, own) else ():
                missed = None if node.may_listen(port) else _at_endpoint(node, family, own)
                packet, there = _of(OUTSIDE[family], uplink, own, port), f"the node port {port}"
                yield _path("the outside", there, packet, missed=missed)
                if size:
                    yield _path("the outside", there, {**packet, "length": size, "df": True})


def _path(
    sender: str,
    receiver: str,
    packet: t.Mapping[str, t.Any],
    severity: str = ERROR,
    missed: Judge | None = None,
    culprit: t.Callable[[Object | None], bool] | None = None,
) -> Suspicion:
    what = f"Packets from {sender} to {receiver} are lost."
    return Suspicion("", what, (), trial=Trial(packet, missed=missed, culprit=culprit), severity=severity)


def _of(source: str, link: str, destination: str, port: int) -> dict[str, t.Any]:
    return {"source": source, "interface": link, "destination": destination, "destination_port": port}


def _uplinks(node: Node, family: str, pods: t.Mapping[str, str]) -> dict[str, str]:
    """Return the interfaces of a cloud by which packets from outside come in to pods that have a route, without those of pods
    that the node's address stands for.
    """
    enis = node.enis if pods and family != IPV6 else None
    if enis is None:
        return {}
    tables, by_rule = node.tables_of_enis(), dict[str, str]()
    for rule in node.rules(family):
        if rule.table in tables:
            by_rule.setdefault(rule.pod, tables[rule.table])
    routed = {(route.address, route.dev) for route in node.routes(family)}
    return {pod: by_rule.get(pod, enis.primary) for pod, link in pods.items() if (pod, link) in routed}


def _shapes(node: Node, family: str, pods: t.Mapping[str, str]) -> list[str]:
    """Return a pod of each shape."""
    of_shape: dict[t.Any, str] = {}
    for pod, shape in shapes(node, family, pods).items():
        of_shape.setdefault(shape, pod)
    return [*of_shape.values()][:MOST_SHAPES]


def shapes(node: Node, family: str, pods: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return the shapes of pods: those whose links belong to one bridge, and whose rules lead to the same tables, have one."""
    tables: dict[str, list[str]] = {}
    for rule in node.rules(family):
        tables.setdefault(rule.pod, []).append(rule.table)
    links = {pod: node.link(name) for pod, name in pods.items()}
    return {pod: (link.kind, link.master, link.mtu, *tables.get(pod, ())) for pod, link in links.items()}


def _services(node: Node, family: str) -> list[tuple[str, str, int]]:
    """Return the Services to try: those of DNS and of the API first."""
    of_family = [entry for entry in node.services() if (":" in entry[0]) == (family == IPV6)]
    return sorted(of_family, key=lambda entry: (entry[2] != DNS, entry[2] != HTTPS))[:MOST_SERVICES]


def _at_endpoint(node: Node, family: str, address: str) -> Judge:
    """Return what judges packets to an address of Services, which must be translated to a port where a program listens."""
    return functools.partial(_missed_endpoint, node, family, address)


def _missed_endpoint(node: Node, family: str, address: str, way: Way) -> Miss | None:
    to, frame = fields.show(way.met.query.destination) if way.met.query else address, way.met.frame
    if way.verdict in LOST and not _is_untranslated(way):
        return None
    if to == address:
        chain = _last_chain(node, family, way)
        return Miss(chain, f"No rule translates it: of the chains of Services, it enters {chain} last.")
    ports = node.pod_ports(node.pods.get(to, "")) if frame and frame.packet.protocol == TCP else set()
    if frame is None or not ports or frame.packet.destination_port in ports:
        return None
    ends = (f"> {to}:", f"> [{to}]:")
    step = next((step for step in way.steps if step.object and any(end in (step.packet or "") for end in ends)), None)
    by, port = str(step.object) if step else address, frame.packet.destination_port
    listed = ", ".join(map(str, sorted(ports)))
    what = f"{by} translates it to port {port} of the pod {to}, in which programs listen at {listed} alone."
    return Miss(by, f"{what} Rules in the pod, which no snapshot has, may translate it once more.", RISK)


def _is_untranslated(way: Way) -> bool:
    """Return whether kube-proxy's mode nftables stops a packet as one for a Service's address that no rule has translated."""
    decider = way.decider.object if way.decider else None
    return isinstance(decider, ChainRule) and (decider.table, decider.chain) == (KUBE_PROXY, UNTRANSLATED)


def _last_chain(node: Node, family: str, way: Way) -> str:
    """Return the last chain of kube-proxy that a packet entered where destinations are translated, or that of the hook."""
    starts = [
        f"{table} {name}"
        for table in node.tables([family], "nat")
        for name, chain in table.chains.items()
        if chain.kind == "nat" and chain.hook in ("prerouting", "output")
    ]
    reached = [chain for chain in starts if chain in way.met.chains]
    for chain in way.met.chains:
        if chain not in reached and any((before, chain) in way.met.jumps for before in reached):
            reached.append(chain)
    ours = [
        chain for chain in reached if (f" {OF_SERVICES}" in chain or f" {KUBE_PROXY} " in chain) and not chain.endswith(MARKING)
    ]
    return (ours or reached or starts or [KUBE_PROXY])[-1]


def _by_tunnel(node: Node, route: Route) -> Judge | None:
    """Return what judges packets to a network to which a route leads by a tunnel, and no default route may."""
    judge = _missed_tunnel if route.to != "default" and not is_host(route.to) else _missed_neighbour
    return functools.partial(judge, node, route) if purpose.is_tunnel(node, route.dev) else None


def _missed_neighbour(_node: Node, route: Route, way: Way) -> Miss | None:
    """Judge packets to a network of which a permanent neighbour of a tunnel is left alone. route: to the address behind it."""
    if way.verdict in LOST or way.interface == route.dev:
        return None
    end = ipaddress.ip_address(route.to) - 1
    what = f"It leaves by {way.interface}: a CNI has made {end} a neighbour of {route.dev}, and no route leads there."
    return Miss(f"no route to {end} dev {route.dev}", what)


def _missed_tunnel(node: Node, route: Route, way: Way) -> Miss | None:
    is_astray = way.verdict not in LOST and way.interface != route.dev and way.met.has_default_route
    leading = {family: [rule for rule in node.rules(family) if rule.table == route.table] for family in FAMILIES}
    if not is_astray or leading[route.family]:
        return None
    # A rule that leads to a table without routes may have led here, and that of the other family shows what it was like.
    empty = [rule for rule in node.rules(route.family) if not (rule.action or node.routes(route.family, rule.table))]
    shown = [rule for rule in (*empty, *(each for rules in leading.values() for each in rules)) if rule.priority < 32766]
    by = f"{shown[0].family} rule {shown[0]}" if shown else f"table {route.table}"
    like = f", and there is {by}" if shown else ""
    return Miss(by, f"It leaves by {way.interface}, as no rule leads to the table of the route {route}{like}.")


def is_meant(node: Node, decider: Object | None, met: Met) -> bool:
    """Return whether a rule is there to stop packets: that of a policy or of kube-proxy, one of a firewall for new connections
    to the node, or a virtual server, which stops packets without an endpoint.

    met: by a new connection. That to another machine, or of a pod, needs answers of neighbours, which no firewall is to stop.
    """
    if not isinstance(decider, ChainRule):
        return isinstance(decider, VirtualServer)
    is_for_node = not met.is_unresolved and (met.route is None or met.route.type == LOCAL)
    is_of_firewall = any(chain.endswith(" INPUT") for chain in met.chains) or not _input_chains(node).isdisjoint(met.chains)
    return (is_for_node and is_of_firewall) or cni.decides_about_pods(
        decider.chain, decider.table, lambda owner: _serves(node, owner)
    )


def of_all_links(node: Node, decider: Object | None) -> str:
    """Return the setting of the node by which no link forwards, in place of that of one link; empty for another object."""
    try:
        if not is_forwarding(decider) or IPV6 in str(decider) or node.sysctl(IP_FORWARD):
            return ""
        links = (link.name for link in node.links() if link.name != LOOPBACK)
        return "" if any(node.setting(IPV4, name, "forwarding") for name in links) else f"{IP_FORWARD} = 0"
    except Unobserved:
        return ""


def restricts(decider: Object | None, paths: t.Iterable[Suspicion]) -> bool:
    """Return whether a rule of an administrator keeps pods from the outside alone, or from each other alone, which may be meant.

    paths: that it stops. One to a Service, or from the node to a pod, is in use.
    """
    is_of_cluster = isinstance(decider, ChainRule) and cni.decides_about_pods(decider.chain, decider.table, lambda _owner: True)
    if not isinstance(decider, ChainRule) or not decider.handle or decider.family == BRIDGE or is_of_cluster:
        return False
    apart: dict[str, set[bool]] = {}
    for trial in (path.trial for path in paths if path.trial):
        if trial.missed or not trial.client:
            return False
        is_in = trial.client in OUTSIDE.values()
        pod, other = (trial.server, trial.client)[:: 1 if is_in else -1]
        apart.setdefault(pod, set()).add(other in OUTSIDE.values())
    return all(len(ends) == 1 for ends in apart.values())


def _input_chains(node: Node) -> set[str]:
    tables = node.tables_of_nft()
    return {f"{table} {name}" for table in tables for name, chain in table.chains.items() if chain.hook == "input"}


def _serves(node: Node, owner: cni.Owner) -> bool:
    """Return whether a CNI or agent serves the node, as far as that is known: by its plugin or by its links."""
    if not owner.plugins or any(owner.has_link(link.name) for link in node.links()):
        return True
    try:
        plugins = node.plugins()
    except Unobserved:
        return True
    return not plugins or not plugins.isdisjoint(owner.plugins) or any(name.startswith("k3s") for name in owner.processes)
