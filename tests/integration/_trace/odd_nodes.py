# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random nodes with pods, routers and tunnels that are machines of their own, some of them broken, and their connections."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from lab.network import PORT, Cable, Connection, Network

# Two machines beyond the routers, which reach the node by its first and by its second link.
FAR = {"eth0": {4: "198.51.100.7", 6: "2001:db8:9::7"}, "eth1": {4: "198.51.100.8", 6: "2001:db8:9::8"}}
NODE = {4: "192.0.2.11", 6: "2001:db8:5::11"}
NODE2 = {4: "203.0.113.11", 6: "2001:db8:6::11"}
NEAR2 = {4: "192.0.2.12", 6: "2001:db8:5::12"}  # of the second link, where that is in the network of the first one
PODS = {name: {4: f"10.60.1.{number}", 6: f"fd00:60::{number}"} for number, name in ((5, "pod1"), (6, "pod2"))}
GATEWAYS = {"eth0": {4: "192.0.2.1", 6: "2001:db8:5::1"}, "eth1": {4: "203.0.113.1", 6: "2001:db8:6::1"}}
SERVICE = {4: "10.96.0.10", 6: "fd00:96::10"}
TAP = {4: "10.60.1.77", 6: "fd00:60::77"}  # of a virtual machine that is not running
WIREGUARD = 51820  # the mark and the table of wg-quick(8)
UPLINKS = (Cable("node", "eth0", "world", "up0"), Cable("node", "eth1", "world", "up1"))


class OddNode(Network):
    """A node that is made from a seed.

    broken: what was done to a healthy node.
    """

    def __init__(self, seed: int) -> None:
        super().__init__([*UPLINKS, *(Cable("node", f"v{name}", name, "eth0") for name in PODS)])
        self.chance = random.Random(seed)
        self.seed = seed
        self.layout = self.chance.choice(["routes", "routes", "bridge", "bridge", "switch"])
        self.second = self.chance.choice([NODE2, NODE2, NEAR2])
        self.length = self.chance.choice([0, 1280, 1500])
        self.further: list[Connection] = []
        self.absent: set[str] = set()  # addresses that the kernel has removed: a question about them names no machine
        self.broken: list[str] = []
        self._outside()
        self._pods()
        self._services()
        for break_it in self.chance.sample(BREAKS, self.chance.choice([0, 1, 1, 1, 2])):
            break_it(self)

    def _outside(self) -> None:
        clusters = ["10.96.0.0/16", "fd00:96::/64", *(["10.60.1.0/24", "fd00:60::/64"] if self.layout != "switch" else [])]
        for number, (link, own) in enumerate((("eth0", NODE), ("eth1", self.second))):
            is_near = own is NEAR2
            if self.second is NEAR2:
                self.lines["world"] += [] if number else ["link add lan type bridge forward_delay 0", "link set lan up"]
                self.lines["world"] += [f"link set up{number} master lan"]
            connect_uplink(self, number, own, "lan" if self.second is NEAR2 else "", "eth0" if is_near else "")
            gateway = GATEWAYS["eth0" if is_near else link]
            if number == 0 or self.chance.random() < 0.5:
                metric = f" metric {100 * number}" if number else ""
                self.lines["node"] += [f"route add default via {gateway[4]} dev {link}{metric}"]
                self.lines["node"] += [f"route add default via {gateway[6]} dev {link} metric {1024 + number}"]
        # A router asks for a MAC address from its own address on the link, and not from that of a far machine, which it has here.
        self.settings["world"]["net.ipv4.conf.all.arp_announce"] = 2
        if self.second is NEAR2:  # so that each link answers for its own address
            self.settings["node"] |= {"net.ipv4.conf.all.arp_ignore": 1, "net.ipv4.conf.all.arp_announce": 2}
            self.broken.append("two uplinks of one network")
        self.lines["world"] += [f"route add {cluster} via {NODE[6 if ':' in cluster else 4]}" for cluster in clusters]

    def _pods(self) -> None:
        if self.layout == "bridge":
            add_bridge(self, "node")
        if self.layout == "switch":
            self._add_switch()
        for name, addresses in PODS.items():
            if self.layout == "routes":
                connect_by_routes(self, name, f"v{name}", addresses)
            else:
                connect_to_bridge(self, name, f"v{name}", addresses)

    def _add_switch(self) -> None:
        """Add a bridge without an address, which leads the pods to a router beyond the node."""
        self.cables.append(Cable("node", "eth2", "world", "up2"))
        self.lines["node"] += ["link add cni0 type bridge forward_delay 0", "link set cni0 up", "link set eth2 master cni0"]
        self.lines["world"] += ["addr add 10.60.1.1/24 dev up2", "addr add fd00:60::1/64 dev up2 nodad"]

    def _services(self) -> None:
        self.rules = [
            "add table inet kube",
            "add chain inet kube services { type nat hook prerouting priority -100; }",
            "add chain inet kube local { type nat hook output priority -100; }",
            "add chain inet kube post { type nat hook postrouting priority 100; }",
            "add chain inet kube forward { type filter hook forward priority 0; }",
            *(
                f"add rule inet kube {chain} {family} daddr {SERVICE[number]} tcp dport 80 dnat {family} to {target}"
                for chain in ("services", "local")
                for number, family, target in ((4, "ip", f"10.60.1.6:{PORT}"), (6, "ip6", f"[fd00:60::6]:{PORT}"))
            ),
            "add rule inet kube post ip saddr 10.60.1.0/24 ip daddr != 10.60.0.0/16 masquerade",
            "add rule inet kube post ip6 saddr fd00:60::/64 ip6 daddr != fd00:60::/64 masquerade",
        ]

    def connections(self) -> Iterator[Connection]:
        """Yield the connections that a cluster's users make."""
        yield from self.further
        for family in (4, 6):
            pods, far, service = [PODS[name][family] for name in PODS], FAR["eth0"][family], SERVICE[family]
            for name in PODS:
                targets = [*pods, NODE[family], self.second[family], service, far]
                yield from self._sent(name, PODS[name][family], f"v{name}", targets)
            # A router beyond the node leads to the pods of a switch.
            inside = [*pods, service] if self.layout != "switch" else []
            for link, target in zip(FAR, (NODE, self.second)):
                yield from self._sent("world", FAR[link][family], link, [*inside, target[family]])
            yield from self._sent("node", "", "", [*inside, far])

    def _sent(self, sender: str, source: str, link: str, targets: Sequence[str]) -> Iterator[Connection]:
        for target in targets:
            if target != source and target not in self.absent:
                is_service = target in SERVICE.values()
                yield Connection(sender, source, target, 80 if is_service else PORT, link)
                if self.length and not is_service:
                    yield Connection(sender, source, target, 0, link, self.length)


def connect_uplink(network: Network, number: int, own: Mapping[int, str], port: str = "", first: str = "") -> None:
    """Give the node's uplink its addresses, and the world a gateway, a far machine and a table with the routes back to that.

    port: the world's link that has the gateway's address. first: the uplink that has this gateway already.
    """
    link, up, table = f"eth{number}", port or f"up{number}", 100 + number
    gateway, far = GATEWAYS[link], FAR[link]
    network.lines["node"] += [f"addr add {own[4]}/24 dev {link}", f"addr add {own[6]}/64 dev {link} nodad"]
    if not first:
        network.lines["world"] += [f"addr add {gateway[4]}/24 dev {up}", f"addr add {gateway[6]}/64 dev {up} nodad"]
    network.lines["world"] += [f"addr add {far[4]}/32 dev lo", f"addr add {far[6]}/128 dev lo nodad"]
    for family in (4, 6):
        words = "-6 " * (family == 6)
        network.lines["world"] += [
            f"{words}route add {own[family]} dev {up} table {table}",
            f"{words}route add default via {own[family]} dev {up} table {table}",
            f"{words}rule add priority {1000 + number} from {far[family]} lookup {table}",
        ]


def add_bridge(network: Network, machine: str, net: int = 1) -> None:
    """Add the bridge of the pods of a node. net: the number in its addresses."""
    network.lines[machine] += ["link add cni0 type bridge forward_delay 0", "link set cni0 up"]
    network.lines[machine] += [f"addr add 10.60.{net}.1/24 dev cni0", f"addr add {_prefix(net)}::1/64 dev cni0 nodad"]


def connect_to_bridge(
    network: Network, pod: str, link: str, addresses: Mapping[int, str], machine: str = "node", net: int = 1
) -> None:
    network.lines[machine] += [f"link set {link} master cni0"]
    network.lines[pod] += [f"addr add {addresses[4]}/24 dev eth0", f"addr add {addresses[6]}/64 dev eth0 nodad"]
    network.lines[pod] += [f"route add default via 10.60.{net}.1", f"route add default via {_prefix(net)}::1"]


def _prefix(net: int) -> str:
    return "fd00:60" if net == 1 else f"fd00:60:0:{net}"


def connect_by_routes(network: Network, pod: str, link: str, addresses: Mapping[int, str]) -> None:
    """Connect a pod as Calico does: by a route, and a gateway for which the node answers by proxy_arp."""
    near = f"fe80::1:{link[-1]}"
    network.lines["node"] += [f"route add {addresses[4]} dev {link} scope link", f"route add {addresses[6]} dev {link}"]
    network.settings["node"] |= {f"net.ipv4.conf.{link}.proxy_arp": 1, f"net.ipv4.neigh.{link}.proxy_delay": 0}
    network.lines["node"] += [f"addr add {near}/64 dev {link} nodad"]
    network.lines[pod] += [f"addr add {addresses[4]}/32 dev eth0", f"addr add {addresses[6]}/128 dev eth0 nodad"]
    network.lines[pod] += ["route add 169.254.1.1 dev eth0 scope link", "route add default via 169.254.1.1"]
    network.lines[pod] += [f"route add default via {near} dev eth0"]


def _pod(node: OddNode) -> str:
    return node.chance.choice([*PODS])


def _family(node: OddNode) -> int:
    return node.chance.choice([4, 6])


def no_route_to_a_pod(node: OddNode) -> None:
    if node.layout == "routes":
        name, family = _pod(node), _family(node)
        address = PODS[name][family]
        node.late["node"].append(f"route del {address} dev v{name}")
        node.broken.append(f"the node has no route to {address}")


def no_default_route_in_a_pod(node: OddNode) -> None:
    name, family = _pod(node), _family(node)
    node.late[name].append(f"-{family} route del default")
    node.broken.append(f"{name} has no default route of IPv{family}")


def no_address_in_a_pod(node: OddNode) -> None:
    name, family = _pod(node), _family(node)
    length = {("routes", 4): 32, ("routes", 6): 128, ("bridge", 4): 24, ("bridge", 6): 64}[
        "routes" if node.layout == "routes" else "bridge", family
    ]
    node.late[name].append(f"addr del {PODS[name][family]}/{length} dev eth0")
    node.broken.append(f"{name} has no address of IPv{family}")


def no_proxy_arp(node: OddNode) -> None:
    if node.layout == "routes":
        name = _pod(node)
        node.settings["node"][f"net.ipv4.conf.v{name}.proxy_arp"] = 0
        node.broken.append(f"v{name} answers no ARP for the gateway")


def no_default_route(node: OddNode) -> None:
    family = _family(node)
    for link in ("eth0", "eth1"):
        node.late["node"].append(f"-{family} route del default dev {link}")
    node.broken.append(f"the node has no default route of IPv{family}")


def another_gateway_in_a_pod(node: OddNode) -> None:
    if node.layout == "routes":
        name = _pod(node)
        node.late[name].append("neigh replace 169.254.1.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
        node.broken.append(f"{name} has another MAC address for its gateway")


def link_does_not_forward(node: OddNode) -> None:
    link = node.chance.choice(["eth0", "eth1", *((f"v{name}" for name in PODS) if node.layout == "routes" else ["cni0"])])
    node.settings["node"][f"net.ipv4.conf.{link}.forwarding"] = 0
    node.broken.append(f"{link} does not forward IPv4")


def node_does_not_forward_by_its_own_setting(node: OddNode) -> None:
    others = {"net.ipv4.ip_forward": 0}
    for link in ("eth0", "eth1", *(f"v{name}" for name in PODS), *(["cni0"] if node.layout != "routes" else [])):
        if node.chance.random() < 0.8:
            others[f"net.ipv4.conf.{link}.forwarding"] = 1
    node.settings["node"] |= others
    node.broken.append(f"ip_forward is 0, and some links forward: {others}")


def strict_filter(node: OddNode) -> None:
    link = node.chance.choice(["all", "eth0", "eth1", *(f"v{name}" for name in PODS)])
    node.settings["node"][f"net.ipv4.conf.{link}.rp_filter"] = node.chance.choice([1, 1, 2])
    node.broken.append(f"rp_filter of {link}")


def no_masquerade(node: OddNode) -> None:
    node.rules = [rule for rule in node.rules if "masquerade" not in rule]
    node.broken.append("pods are not masqueraded")


def tunnel_takes_a_network(node: OddNode) -> None:
    kind = node.chance.choice(["tuntap add tun0 mode tun", "link add tun0 type wireguard"])
    to = node.chance.choice(["192.0.2.0/24", "198.51.100.0/24", "10.60.1.5/32"])
    node.late["node"] += [kind, "addr add 100.99.1.2/32 dev tun0", "link set tun0 up"]
    node.late["node"] += [f"route add {to} dev tun0 table 60", "rule add priority 5300 lookup 60"]
    node.broken.append(f"a tunnel takes {to}")


def rule_to_nowhere(node: OddNode) -> None:
    family = _family(node)
    selector = node.chance.choice([f"from {PODS['pod1'][family]}", f"to {PODS['pod2'][family]}", f"from {NODE[family]}"])
    action = node.chance.choice(["blackhole", "unreachable", "lookup 77"])
    node.late["node"].append(f"-{family} rule add priority 900 {selector} {action}")
    node.late["node"].append(f"-{family} route add default dev eth1 table 77 metric 5")
    node.broken.append(f"rule 900 {selector} {action}")


def forwarding_policy(node: OddNode) -> None:
    selector = node.chance.choice(["ct state new", "iifname vpod1", "oifname vpod2", "ip daddr 10.60.1.6", "iifname eth0"])
    node.rules.append(f"add rule inet kube forward {selector} drop")
    node.broken.append(f"forwarding drops {selector}")


def dead_neighbour(node: OddNode) -> None:
    name = _pod(node)
    link = f"v{name}" if node.layout == "routes" else "cni0"
    node.late["node"].append(f"neigh replace {PODS[name][4]} lladdr 02:00:00:00:00:98 dev {link} nud permanent")
    node.broken.append(f"the node has another MAC address for {name}")


def link_is_down(node: OddNode) -> None:
    link = node.chance.choice(["eth1", "vpod1", "vpod2"])
    node.late["node"].append(f"link set {link} down")
    node.absent |= {node.second[6]} if link == "eth1" else set[str]()
    node.broken.append(f"{link} is down")


def filter_in_tc(node: OddNode) -> None:
    link = node.chance.choice(["eth0", "vpod1"])
    node.late["node"] += ["link add ifb0 type ifb", *([] if node.chance.random() < 0.7 else ["link set ifb0 up"])]
    node.tc = [
        f"qdisc add dev {link} ingress",
        f"filter add dev {link} parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0",
    ]
    node.broken.append(f"tc sends what comes in by {link} to ifb0")


def chain_of_a_device(node: OddNode) -> None:
    link = node.chance.choice(["eth0", "vpod1"])
    node.rules += ["add table netdev f", f"add chain netdev f i {{ type filter hook ingress device {link} priority -500; }}"]
    node.rules += [f"add rule netdev f i tcp dport {node.chance.choice([PORT, 9])} drop"]
    node.broken.append(f"a chain of family netdev at {link}")


def nexthop_objects(node: OddNode) -> None:
    node.settings["node"]["net.ipv4.nexthop_compat_mode"] = node.chance.choice([0, 1])
    node.late["node"] += ["route del default dev eth0", "nexthop add id 22 via 192.0.2.1 dev eth0", "route add default nhid 22"]
    node.broken.append("the default route has a nexthop object")


def arp_is_ignored(node: OddNode) -> None:
    link = node.chance.choice(["all", "eth0", "vpod1" if node.layout == "routes" else "cni0"])
    node.settings["node"][f"net.ipv4.conf.{link}.arp_ignore"] = node.chance.choice([1, 2, 8])
    node.broken.append(f"arp_ignore of {link}")


def bridged_frames_are_not_seen(node: OddNode) -> None:
    if node.layout != "routes":
        node.settings["node"] |= {f"net.bridge.bridge-nf-call-{name}": 0 for name in ("iptables", "ip6tables")}
        node.broken.append("bridge-nf-call-iptables is 0")


def deprecated_address(node: OddNode) -> None:
    node.late["node"] += ["addr add 2001:db8:5::80/128 dev eth0 nodad", "addr add 192.0.2.80/24 dev eth0"]
    if node.chance.random() < 0.5:
        node.late["node"] += ["addr change 2001:db8:5::80/128 dev eth0 preferred_lft 0 valid_lft forever nodad"]
    node.broken.append("eth0 has two addresses of each family")


def tap(node: OddNode) -> None:
    node.late["node"] += ["tuntap add tap0 mode tap", "link set tap0 up"]
    if node.layout == "routes":
        node.late["node"] += [f"route add {address} dev tap0" for address in TAP.values()]
    else:
        node.late["node"] += ["link set tap0 master cni0"]
    for family in (4, 6):
        node.further += node._sent("pod1", PODS["pod1"][family], "vpod1", [TAP[family]])
        node.further += node._sent("node", "", "", [TAP[family]] if node.layout != "switch" else [])
    node.broken.append("a tap")


def small_link(node: OddNode) -> None:
    link = node.chance.choice(["eth0", "eth1", *([] if node.layout == "routes" else ["cni0"]), *(f"v{name}" for name in PODS)])
    node.late["node"].append(f"link set {link} mtu {node.chance.choice([1280, 1400, 1499])}")
    node.length = 1500
    node.broken.append(f"{link} is small")


def small_link_of_a_pod(node: OddNode) -> None:
    name = _pod(node)
    node.late[name].append(f"link set eth0 mtu {node.chance.choice([1280, 1400, 1490, 1499])}")
    node.length = 1500
    node.broken.append(f"the link of {name} is small")


def small_route(node: OddNode) -> None:
    words = node.chance.choice(["mtu 1400", "mtu lock 1400"])
    name, family = _pod(node), _family(node)
    to, by = node.chance.choice([(PODS[name][family], f"dev v{name}"), ("default", f"via {GATEWAYS['eth0'][family]} dev eth0")])
    node.late["node"].append(f"-{family} route change {to} {by} {words}")
    node.length = 1500
    node.broken.append(f"the route to {to} has {words}")


def wireguard(node: OddNode) -> None:
    """Add the tunnel, the rules, the routes and the marks of wg-quick, with a tun where the kernel has no WireGuard."""
    node.late["node"] += ["link add wg0 type wireguard", "tuntap add wg0 mode tun", "addr add 10.200.0.2/32 dev wg0"]
    node.late["node"] += ["link set wg0 mtu 1420 up"]
    node.settings["node"]["net.ipv4.conf.all.src_valid_mark"] = 1
    for family in node.chance.choice([(4,), (6,), (4, 6)]):
        node.late["node"] += [f"-{family} route add default dev wg0 table {WIREGUARD}"]
        node.late["node"] += [f"-{family} rule add not fwmark {WIREGUARD} table {WIREGUARD}"]
        node.late["node"] += [f"-{family} rule add table main suppress_prefixlength 0"]
        node.further += [Connection("node", "", FAR["eth0"][family], PORT, "", mark=mark) for mark in (WIREGUARD, 0)]
    node.rules += [
        "add table ip wg-quick-wg0",
        "add chain ip wg-quick-wg0 preraw { type filter hook prerouting priority -300; }",
        "add chain ip wg-quick-wg0 premangle { type filter hook prerouting priority -150; }",
        "add chain ip wg-quick-wg0 postmangle { type filter hook postrouting priority -150; }",
        'add rule ip wg-quick-wg0 preraw iifname != "wg0" ip daddr 10.200.0.2 fib saddr type != local drop',
        f"add rule ip wg-quick-wg0 postmangle meta l4proto udp mark {WIREGUARD} ct mark set mark",
        "add rule ip wg-quick-wg0 premangle meta l4proto udp meta mark set ct mark",
    ]
    node.broken.append("WireGuard")


def pod_is_down(node: OddNode) -> None:
    name = _pod(node)
    node.late[name].append("link set eth0 down")
    node.broken.append(f"the link of {name} is down")


def stray_route_in_a_pod(node: OddNode) -> None:
    name, family = _pod(node), _family(node)
    other = next(addresses[family] for pod, addresses in PODS.items() if pod != name)
    to = node.chance.choice([other, FAR["eth0"][family], NODE[family]])
    kind = node.chance.choice(["blackhole", "unreachable", "throw"])
    node.late[name].append(f"-{family} route add {kind} {to}")
    node.broken.append(f"{name} has a route {kind} {to}")


def rule_in_a_pod(node: OddNode) -> None:
    name, family = _pod(node), _family(node)
    selector = node.chance.choice([f"from {PODS[name][family]}", f"to {FAR['eth0'][family]}", "ipproto tcp", "dport 80"])
    node.late[name] += [f"-{family} rule add priority 900 {selector} {node.chance.choice(['blackhole', 'lookup 77'])}"]
    node.late[name] += [f"-{family} route add default dev eth0 table 77"]
    node.broken.append(f"{name} has a rule {selector}")


BREAKS = (
    no_route_to_a_pod, no_default_route_in_a_pod, no_address_in_a_pod, no_proxy_arp, no_default_route, another_gateway_in_a_pod,
    link_does_not_forward, node_does_not_forward_by_its_own_setting, strict_filter, no_masquerade, tunnel_takes_a_network,
    rule_to_nowhere, forwarding_policy, dead_neighbour, link_is_down, filter_in_tc, chain_of_a_device, nexthop_objects,
    arp_is_ignored, bridged_frames_are_not_seen, deprecated_address, tap, small_link, small_link_of_a_pod, small_route,
    wireguard, pod_is_down, stray_route_in_a_pod, rule_in_a_pod,
)  # fmt: skip
