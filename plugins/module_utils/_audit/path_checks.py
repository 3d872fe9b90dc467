# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The paths that a node is built for: those of its pods, of its Services and of itself, each as a packet."""

from __future__ import annotations

import typing as t

from .._cni import cni
from .._snapshot.values import MAIN, Route
from .._trace.culprit import ChainRule, Object, VirtualServer
from .._trace.packet import OUTSIDE
from .._twin import pod_links
from .._twin.blueprint import LOOPBACK
from .finding import check
from .node import FAMILIES, IPV6, Node, is_link_local
from .suspicion import ERROR, NOTE, Suspicion, Trial, Unobserved

POD_PORT, KUBELET, HTTPS, DNS = 8080, 10250, 443, 53
OPEN_VSWITCH = "openvswitch"  # the kind of the datapath's link, whose flows no rule of the kernel shows
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
        own = node.links_by_address(family)  # those of a veth both of whose ends the node has
        addresses = {**_learned(node, family), **node.pods_of(family)}
        pods = {pod: link for pod, link in addresses.items() if pod not in own and link not in switched}
        shapes = _shapes(node, family, pods)
        yield from _of_each(node, family, pods)
        for pod in shapes:
            yield from _to_others(node, family, pod, pods[pod])
        if pods:
            yield from _to_node_ports(node, family)
    if switched:
        what = f"What Open vSwitch does with the packets of {min(switched)} is in no snapshot."
        raise Unobserved(what, "ovs-appctl ofproto/trace BRIDGE FLOW")


def _of_each(node: Node, family: str, pods: t.Mapping[str, str]) -> t.Iterator[Suspicion]:
    """Yield the paths whose objects each pod has of its own: its link, its addresses, routes and rules."""
    next_pods = _next_pods(node, pods)
    outside = OUTSIDE[family]
    down = _lost_uplinks(node)
    there = f"the outside by {', '.join(down)}, which is down," if down else "the outside"
    defaults = (route for route in node.every_route() if (route.family, route.to) == (family, "default"))
    has_default = bool(down) or any(_leads_out(node, route) for route in defaults)
    # A pod with a table of its own, which a cloud's network is to see, need not reach the node directly.
    apart = {route.address for route in node.every_route() if route.table != MAIN}
    addresses, uplinks = node.own_addresses(family)[:1] if pods else [], _uplinks(node, family, pods)
    for pod, link in pods.items():
        near = NOTE if pod in apart else ERROR
        yield _path("the node", f"the pod {pod}", {"destination": pod, "destination_port": POD_PORT}, near)
        # Without a default route the node may be meant to have none.
        yield _path(f"the pod {pod}", there, _of(pod, link, outside, HTTPS), ERROR if has_default else NOTE)
        if next_pods[pod] != pod:
            yield _path(f"the pod {pod}", f"the pod {next_pods[pod]}", _of(pod, link, next_pods[pod], POD_PORT), near)
        for address in addresses:
            yield _path(f"the pod {pod}", "the node", _of(pod, link, address, KUBELET), near)
        if uplinks.get(pod):
            yield _path("the outside", f"the pod {pod}", _of(outside, uplinks[pod], pod, POD_PORT))


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


def _lost_uplinks(node: Node) -> list[str]:
    """Return interfaces with addresses that are down, if no other link leads out: the kernel removes the routes of a link."""
    links = (link for link in node.links() if link.name != LOOPBACK and not link.master)
    cards = [link for link in links if not link.kind or pod_links.has_interface_name(link.name)]
    down = [link.name for link in cards if link.addresses and "UP" not in link.flags]
    return [] if node.every_uplink() else down


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
        yield _path(f"the pod {pod}", f"the Service {address}:{port}", packet)
        of_node = {"destination": address, "protocol": protocol, "destination_port": port}
        yield _path("the node", f"the Service {address}:{port}", of_node)
    for address in node.remote_pods(family)[:MOST_REMOTE]:
        yield _path(f"the pod {pod}", f"the pod {address} of another node", _of(pod, link, address, POD_PORT))


def _to_node_ports(node: Node, family: str) -> t.Iterator[Suspicion]:
    ports = [(protocol, port) for protocol, port in dict.fromkeys(node.node_ports()) if port.isdigit() and protocol == "tcp"]
    for uplink in (name for name in node.uplinks(family) if node.link(name).kind != DUMMY):
        for own in node.addresses(uplink, family)[:1]:
            for _protocol, port in ports[:MOST_NODE_PORTS]:
                yield _path("the outside", f"the node port {port}", _of(OUTSIDE[family], uplink, own, int(port)))


def _path(sender: str, receiver: str, packet: t.Mapping[str, t.Any], severity: str = ERROR) -> Suspicion:
    return Suspicion("", f"Packets from {sender} to {receiver} are lost.", (), trial=Trial(packet), severity=severity)


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
    """Return a pod of each shape: those whose links belong to one bridge, and whose rules lead to the same tables, have one."""
    tables: dict[str, list[str]] = {}
    for rule in node.rules(family):
        tables.setdefault(rule.pod, []).append(rule.table)
    of_shape: dict[t.Any, str] = {}
    for pod, name in pods.items():
        link = node.link(name)
        of_shape.setdefault((link.kind, link.master, link.mtu, *tables.get(pod, ())), pod)
    return [*of_shape.values()][:MOST_SHAPES]


def _services(node: Node, family: str) -> list[tuple[str, str, int]]:
    """Return the Services to try: those of DNS and of the API first."""
    of_family = [entry for entry in node.services() if (":" in entry[0]) == (family == IPV6)]
    return sorted(of_family, key=lambda entry: (entry[2] != DNS, entry[2] != HTTPS))[:MOST_SERVICES]


def is_meant(node: Node, decider: Object | None, entered: t.Collection[str]) -> bool:
    """Return whether a rule is there to stop packets: that of a policy or of kube-proxy, one of a firewall for new connections
    to the node, or a virtual server, which stops packets without an endpoint.

    entered: families, tables and chains that a new connection entered; empty for a reply.
    """
    if not isinstance(decider, ChainRule):
        return isinstance(decider, VirtualServer)
    is_of_firewall = any(chain.endswith(" INPUT") for chain in entered) or not _input_chains(node).isdisjoint(entered)
    return is_of_firewall or cni.decides_about_pods(decider.chain, decider.table, lambda owner: _serves(node, owner))


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
