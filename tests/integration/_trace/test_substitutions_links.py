# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a twin has in the place of links, addresses and neighbours: a trace that is certain agrees with the real packet."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import Any, NamedTuple

import pytest
import yaml

from lab import Lab, Node
from lab.node import NamespaceNode

from . import tracing
from .random_nodes import PASTED
from .test_cures import apply

# machine NAME LINK: a network namespace behind a link of the node. pod NAME LINK ADDRESS: as Calico makes one. router: a machine
# that answers for all of the internet.
PRELUDE = """set -e
machine() {
 ip netns add $1; ip link add $2 type veth peer name eth0 netns $1
 ip netns exec $1 sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv4.conf.all.rp_filter=0
 ip -n $1 link set lo up; ip -n $1 link set eth0 up; ip link set $2 up
}
pod() {
 machine $1 $2; ip -n $1 addr add $3/32 dev eth0; ip -n $1 route add 169.254.9.9 dev eth0
 ip -n $1 route add default via 169.254.9.9 dev eth0
 ip route add $3 dev $2 scope link; sysctl -qw net.ipv4.conf.$2.proxy_arp=1 net.ipv4.neigh.$2.proxy_delay=0
}
router() {
 machine $1 $2; ip -n $1 addr add $3/24 dev eth0; ip -n $1 addr add 198.51.100.7/32 dev lo
 ip -n $1 route add default via $4
}
dual() {
 ip -n $1 addr add 2001:db8:5::$1/128 dev eth0 nodad; ip -n $1 route add default via fe80::1 dev eth0
 ip route add 2001:db8:5::$1 dev $2
}
ip link del eth0; router r eth1 192.0.2.254 192.0.2.11
ip addr add 192.0.2.11/24 dev eth1; ip route add default via 192.0.2.254
pod a v1 10.60.5.4; pod b v2 10.60.5.5
"""
DIAL = """import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET
with socket.socket(family) as sock:
    sock.settimeout(0.7 if family == socket.AF_INET else 2.5)  # a neighbour of IPv6 may be asked again, a second later
    if sys.argv[1]:
        sock.bind((sys.argv[1], 0))
    sock.connect((sys.argv[2], int(sys.argv[3])))
"""
ARRIVES, REPLY_LOST, LOST = ("forwarded", "delivered"), "reply", "lost"


class Scene(NamedTuple):
    """lines: for the shell, behind PRELUDE. packet: as text for the option. sender: the namespace that sends it; empty: the node.

    arrives: whether the sender gets an answer. culprit: its kind and text, of the live trace. ids: facts on which that depends;
    it is certain if there are none. cure: which the live trace offers.
    """

    lines: str
    packet: str
    sender: str
    arrives: bool
    culprit: tuple[str, str] | None = None
    ids: tuple[str, ...] = ()
    cure: str = ""


HOLD = "import fcntl, signal, struct; tun = open('/dev/net/tun', 'rb+', 0)\n"
HOLD += "fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22x', b'vpn0', 1))"
TUN = f"""setsid python3 -c "{HOLD}
open('/run/held', 'w').close(); signal.pause()" > /dev/null 2>&1 &
until [ -e /run/held ]; do sleep 0.02; done
ip addr add 100.99.1.2/32 dev vpn0; ip link set vpn0 up
"""
SIX = "ip addr add 2001:db8:5::11/64 dev eth1 nodad; ip -n r addr add 2001:db8:5::7/64 dev eth0 nodad\n"
BACK = "ip -n r addr add 2001:db8:9::5/128 dev lo; ip route replace default via 2001:db8:5::7 dev eth1\n"
DUAL = f"""{SIX}dual a v1; dual b v2; sysctl -qw net.ipv6.conf.all.forwarding=1
for link in v1 v2; do ip -6 addr add fe80::1/64 dev $link nodad; done
ip -n r addr add 2001:db8:9::5/128 dev lo; ip -6 route replace default via 2001:db8:5::7 dev eth1
ip6tables -t nat -A POSTROUTING -o eth1 -j MASQUERADE
"""
LAN = """ip -n r addr flush dev eth0; ip -n r link add sw type bridge; ip -n r link set eth0 master sw; ip -n r link set sw up
ip -n r addr add 192.0.2.254/24 dev sw; ip netns add m; ip -n r link add pm type veth peer name eth0 netns m
ip -n r link set pm master sw up; ip -n m link set eth0 up
ip -n m addr add 192.0.2.50/24 dev eth0; ip -n m route add default via 192.0.2.254
"""
TO_B, OUT = "tcp 10.60.5.4:40000 > 10.60.5.5:80 in v1", "tcp 10.60.5.4:40000 > 198.51.100.7:80 in v1"
OUT6 = "tcp [2001:db8:5::a]:40000 > [2001:db8:9::5]:80 in v1"
MASQUERADE = "iptables -t nat -A POSTROUTING -s 10.60.5.0/24 -o eth1 -j MASQUERADE\n"
SCENES = {
    "healthy pods": Scene("", TO_B, "a", True),
    "a pod and the internet": Scene(MASQUERADE, OUT, "a", True),
    "a pod without its address": Scene(
        "ip -n b addr del 10.60.5.5/32 dev eth0", TO_B, "a", False, ("address", "no address 10.60.5.5 in the pod at v2")
    ),
    "a sender without its address": Scene(
        "ip -n a addr del 10.60.5.4/32 dev eth0; ip -n a route replace default via 169.254.9.9 dev eth0 onlink",
        TO_B, "a", False, ("address", "no address 10.60.5.4 in the pod at v1")
    ),
    "an address on the pod's loopback": Scene(
        "ip -n b addr del 10.60.5.5/32 dev eth0; ip -n b addr add 10.60.5.5/32 dev lo\n"
        "ip -n b route replace 169.254.9.9 dev eth0; ip -n b route replace default via 169.254.9.9 dev eth0",
        TO_B, "a", True,
    ),
    "a pod without a default route": Scene(
        "ip -n a route del default", TO_B, "a", False, ("missing", "no route to 10.60.5.5 in the pod")
    ),
    "a pod that cannot answer": Scene(
        "ip -n b route del default", TO_B, "a", False, ("missing", "no route to 10.60.5.4 in the pod")
    ),
    "a pod that stops its answer": Scene(
        "ip -n b route add unreachable 10.60.5.4", TO_B, "a", False,
        ("route", "ip route unreachable 10.60.5.4 table main"),
    ),
    "a route to a pod that was deleted": Scene("ip route del 10.60.5.5; ip route del default", TO_B, "a", False),
    "a gateway for which no route lets the node answer": Scene(
        "ip route del default; ip route add 10.60.7.0/26 via 192.0.2.254; ip -n r addr add 10.60.7.9/32 dev lo",
        "tcp 10.60.5.4:40000 > 10.60.7.9:80 in v1", "a", False,
        ("missing", "no route to 169.254.9.9, for proxy ARP on v1"),
    ),
    "a gateway to which a rule lets no packet": Scene(
        "ip rule add from 10.60.5.4 to 169.254.0.0/16 blackhole priority 9", TO_B, "a", False,
        ("rule", "ip rule 9: from 10.60.5.4 to 169.254.0.0/16 blackhole"),
        cure="ip rule del priority 9 from 10.60.5.4 to 169.254.0.0/16 blackhole",
    ),
    "a gateway to which a route lets no packet": Scene(
        "ip route add blackhole 169.254.0.0/16", TO_B, "a", False, ("route", "ip route blackhole 169.254.0.0/16 table main")
    ),
    "a gateway to which the route leads back": Scene(
        "ip route add 169.254.9.9 dev v1", TO_B, "a", False, ("route", "ip route 169.254.9.9 dev v1 table main scope link")
    ),
    "proxy ARP off": Scene(
        "sysctl -qw net.ipv4.conf.v1.proxy_arp=0", TO_B, "a", False, ("sysctl", "net.ipv4.conf.v1.proxy_arp = 0"),
        cure="sysctl -w net.ipv4.conf.v1.proxy_arp=1",
    ),
    "proxy ARP off at the pod that answers": Scene(
        "sysctl -qw net.ipv4.conf.v2.proxy_arp=0", TO_B, "a", False, ("sysctl", "net.ipv4.conf.v2.proxy_arp = 0")
    ),
    "a node that does not forward, and so answers for no gateway": Scene(
        "sysctl -qw net.ipv4.conf.v1.forwarding=0", TO_B, "a", False, ("sysctl", "net.ipv4.conf.v1.forwarding = 0")
    ),
    "a strict filter, which drops requests for a MAC address too": Scene(
        "sysctl -qw net.ipv4.conf.v1.rp_filter=1; ip route replace 10.60.5.4 dev v2 scope link", TO_B, "a", False,
        ("sysctl", "net.ipv4.conf.v1.rp_filter = 1"),
    ),
    "the node has the gateway's address": Scene(
        "sysctl -qw net.ipv4.conf.v1.proxy_arp=0; ip addr add 169.254.9.9/32 dev v1", TO_B, "a", True
    ),
    "the node ignores requests for its address": Scene(
        "sysctl -qw net.ipv4.conf.v1.proxy_arp=0 net.ipv4.conf.v1.arp_ignore=1; ip addr add 169.254.9.9/32 dev lo",
        TO_B, "a", False, ("sysctl", "net.ipv4.conf.v1.arp_ignore = 1"),
    ),
    "a proxy for one address": Scene(
        "sysctl -qw net.ipv4.conf.v1.proxy_arp=0; ip neigh add proxy 169.254.9.9 dev v1", TO_B, "a", True
    ),
    "a permanent neighbour of the pod": Scene(
        "sysctl -qw net.ipv4.conf.v1.proxy_arp=0; mac=$(cat /sys/class/net/v1/address)\n"
        "ip -n a neigh add 169.254.9.9 lladdr $mac dev eth0 nud permanent", TO_B, "a", True,
    ),
    "a permanent neighbour with a MAC of before": Scene(
        "ip -n a neigh add 169.254.9.9 lladdr 02:00:00:00:00:99 dev eth0 nud permanent", TO_B, "a", False,
        ("neighbor", "169.254.9.9 dev v1 lladdr 02:00:00:00:00:99"),
    ),
    "IPv6 by the link-local address of the node": Scene(
        "ip addr add fe80::1/64 dev v1 nodad; ip addr add fe80::1/64 dev v2 nodad\n"
        "dual a v1; dual b v2",
        "tcp [2001:db8:5::a]:40000 > [2001:db8:5::b]:80 in v1", "a", True,
    ),
    "IPv6 by a proxy for the gateway": Scene(
        "ip addr add fe80::1/64 dev v2 nodad; dual b v2\n"
        "sysctl -qw net.ipv6.conf.v1.proxy_ndp=1 net.ipv6.neigh.v1.proxy_delay=0\n"
        "ip -n a addr add 2001:db8:5::a/128 dev eth0 nodad; ip -n a route add 2001:db8:6::1 dev eth0\n"
        "ip -n a route add default via 2001:db8:6::1; ip route add 2001:db8:5::a dev v1; ip neigh add proxy 2001:db8:6::1 dev v1",
        "tcp [2001:db8:5::a]:40000 > [2001:db8:5::b]:80 in v1", "a", True,
    ),
    "IPv6 by an address that the node lacks": Scene(
        "ip addr add fe80::1/64 dev v2 nodad\n"
        "dual a v1; dual b v2",
        "tcp [2001:db8:5::a]:40000 > [2001:db8:5::b]:80 in v1", "a", False, ("neighbor", "fe80::1 dev v1 FAILED"),
    ),
    "a reply by a tunnel, to a neighbour on another link": Scene(
        f"{TUN}ip rule add priority 5300 lookup 60; ip route add 192.0.2.0/24 dev vpn0 table 60",
        "tcp 192.0.2.254:40000 > 192.0.2.11:22 in eth1", "r", False, ("rule", "ip rule 5300: from all lookup 60"),
        cure='policy_routes: {rules: [{priority: 5299, to: "192.0.2.0/24", table: main}]}',  # the tunnel keeps its rule
    ),
    "a packet by a tunnel": Scene(
        f"{TUN}ip route add 10.99.0.0/16 dev vpn0", "tcp 10.60.5.4:40000 > 10.99.1.1:80 in v1", "a", False, None, ("tunnel:vpn0",)
    ),
    "an address whose detection failed": Scene(
        f"{SIX}sysctl -qw net.ipv6.conf.eth1.accept_dad=1 net.ipv6.conf.all.accept_dad=1\n"
        "ip -n r addr add 2001:db8:5::80/128 dev eth0 nodad; ip addr add 2001:db8:5::80/128 dev eth1\n"
        f"until ip addr show dev eth1 | grep -q dadfailed; do sleep 0.05; done\n"
        f"ip -n r addr del 2001:db8:5::80/128 dev eth0; {BACK}",
        "tcp [2001:db8:5::7]:40000 > [2001:db8:5::80]:6443 in eth1", "r", False,
        ("address", "2001:db8:5::80 dev eth1 dadfailed"),
    ),
    "the later of two addresses": Scene(
        f"{SIX}ip addr add 2001:db8:5::80/128 dev eth1 nodad; {BACK}"
        "ip6tables -A OUTPUT -s 2001:db8:5::80 -j DROP",
        "tcp > [2001:db8:9::5]:2379", "", False, ("rule", "ip6 filter: -A OUTPUT -s 2001:db8:5::80/128 -j DROP"),
    ),
    "the earlier of two addresses, as the later one is deprecated": Scene(
        f"{SIX}ip addr add 2001:db8:5::80/128 dev eth1 nodad preferred_lft 0; {BACK}"
        "ip6tables -A OUTPUT -s 2001:db8:5::11 -j DROP",
        "tcp > [2001:db8:9::5]:2379", "", False, ("rule", "ip6 filter: -A OUTPUT -s 2001:db8:5::11/128 -j DROP"),
    ),
    "a translation alone, to a machine of the link by which the packet came": Scene(
        f"{LAN}iptables -t nat -A PREROUTING -p tcp --dport 30080 -j DNAT --to-destination 192.0.2.50:8080",
        "tcp 198.51.100.7:40000 > 192.0.2.11:30080 in eth1", "r", False,
        ("rule", "ip nat: -A PREROUTING -p tcp -m tcp --dport 30080 -j DNAT --to-destination 192.0.2.50:8080"),
    ),
    "the same with a masquerade": Scene(
        f"{LAN}iptables -t nat -A PREROUTING -p tcp --dport 30080 -j DNAT --to-destination 192.0.2.50:8080\n"
        "iptables -t nat -A POSTROUTING -o eth1 -j MASQUERADE",
        "tcp 198.51.100.7:40000 > 192.0.2.11:30080 in eth1", "r", True,
    ),
    "a packet that goes back to the router from which it came": Scene(
        "", "tcp 198.51.100.7:40000 > 203.0.113.10:443 in eth1", "r", False,
        ("route", "ip route default via 192.0.2.254 dev eth1 table main"),
    ),
    "a pod's own address in the internet": Scene("", OUT, "a", True, None, ("answer:10.60.5.4",)),
    "a metadata service": Scene(
        f"{MASQUERADE}ip -n r addr add 169.254.169.254/32 dev lo",
        "tcp 10.60.5.4:40000 > 169.254.169.254:80 in v1", "a", True, None, ("hop-limit:169.254.169.254",),
    ),
    "a link-local source": Scene(
        "ip -n r route replace default dev lo; ip -n r route add 10.60.5.0/24 via 192.0.2.11\n"
        "iptables -t nat -A POSTROUTING -o eth1 -j SNAT --to-source 169.254.7.7", OUT, "a", False,
        ("rule", "ip nat: -A POSTROUTING -o eth1 -j SNAT --to-source 169.254.7.7"),
    ),
    "IPv6 from an address of the node": Scene(
        f"{SIX}{BACK}ip addr add 2001:db8:5::99/128 dev eth1 nodad; ip -n r addr add 2001:db8:5::99/128 dev lo nodad",
        "tcp [2001:db8:5::99]:61362 > [2001:db8:5::11]:21450 in eth1", "r", False, ("address", "2001:db8:5::99 dev eth1"),
    ),
    "a pod that learns its gateway from a request of the node": Scene(
        "sysctl -qw net.ipv4.conf.v2.proxy_arp=0 net.ipv4.conf.v2.arp_ignore=8; ip addr add 169.254.9.9/32 dev v2",
        "tcp > 10.60.5.5:80", "", True,
    ),
    "a router to which the kernel answers for no address": Scene(
        "sysctl -qw net.ipv4.conf.eth1.arp_ignore=8; ip -n r route replace default via 192.0.2.11 src 198.51.100.7",
        "tcp 198.51.100.7:40000 > 10.60.5.5:80 in eth1", "r", False, None, ("announced:192.0.2.11",),
    ),
    "a packet by a tunnel that no program holds": Scene(
        "ip tuntap add vpn0 mode tun; ip addr add 100.99.1.2/32 dev vpn0; ip link set vpn0 up\n"
        "ip route add 10.99.0.0/16 dev vpn0",
        "tcp 10.60.5.4:40000 > 10.99.1.1:80 in v1", "a", False, ("link", "vpn0 has no carrier"),
    ),
    "a Service of which a bridge without an address shows no packet to rules": Scene(
        "ip link add b1 type bridge mcast_snooping 0; ip link set b1 up; machine q u1; machine t t7\n"
        "ip link set u1 name eth7 master b1; ip link set eth7 up; ip link set t7 master b1\n"
        "sysctl -qw net.bridge.bridge-nf-call-iptables=0 || true\n"
        "ip -n q addr add 192.168.9.1/24 dev eth0; ip -n t addr add 192.168.9.2/24 dev eth0\n"
        "ip -n t route add default via 192.168.9.1\n"
        "iptables -t nat -A PREROUTING -d 10.96.0.10 -j DNAT --to-destination 10.60.5.5",
        "tcp 192.168.9.2:40000 > 10.96.0.10:443 in t7", "t", False, None, ("answer:10.96.0.10",),
    ),
    "a route without a gateway to the internet": Scene(
        f"{LAN}{MASQUERADE}ip netns exec r sysctl -qw net.ipv4.conf.all.arp_ignore=1; ip route replace default dev eth1",
        OUT, "a", False, None, ("answer:198.51.100.7",),
    ),
    "an address for which the kernel does not answer": Scene(
        "ip addr add 192.0.2.80/32 dev lo; sysctl -qw net.ipv4.conf.eth1.arp_ignore=1",
        "tcp 192.0.2.254:40000 > 192.0.2.80:443 in eth1", "r", False, None, ("announced:192.0.2.80",),
    ),
    "two bridges that a pair of links joins": Scene(
        "ip link add pa type veth peer name pb; ip link add b1 type bridge; ip link add b2 type bridge\n"
        "machine q u1; machine w u2\nip link set pa master b1; ip link set u1 master b1\n"
        "ip link set pb master b2; ip link set u2 master b2\n"
        "for link in pa pb b1 b2; do ip link set $link up; done; ip addr add 10.70.0.1/24 dev b1\n"
        "ip -n w addr add 10.70.0.9/24 dev eth0; ip -n w route add default via 10.70.0.1",
        "tcp 10.60.5.4:40000 > 10.70.0.9:80 in v1", "a", True, None, ("pair:pa",),
    ),
    "an IPsec policy that blocks": Scene(
        "ip xfrm policy add src 10.60.5.4/32 dst 10.60.5.5/32 dir fwd action block", TO_B, "a", False, None,
        ("ipsec:10.60.5.4/32 10.60.5.5/32",),
    ),
    "an IPsec policy without a key": Scene(
        "ip xfrm policy add src 0.0.0.0/0 dst 10.60.5.0/24 dir out tmpl src 192.0.2.11 dst 192.0.2.254 proto esp mode tunnel",
        TO_B, "a", False, None, ("ipsec:0.0.0.0/0 10.60.5.0/24",),
    ),
    "an IPsec policy for other packets": Scene(
        "ip xfrm policy add src 10.60.5.9/32 dst 10.60.5.0/24 dir fwd action block", TO_B, "a", True
    ),
    "a rule that looks at the length": Scene(
        "iptables -A FORWARD -d 10.60.5.5 -m length --length 0:59 -j DROP", TO_B, "a", True, None, ("line:1",)
    ),
    "a translation that untracked packets do not get": Scene(
        "iptables -t nat -A PREROUTING -d 10.96.0.1 -j DNAT --to-destination 10.60.5.5\n"
        "iptables -t raw -A PREROUTING -d 10.96.0.1 -j CT --notrack",
        "tcp 10.60.5.4:40000 > 10.96.0.1:80 in v1", "a", False, None, ("answer:10.96.0.1",),
    ),
    "a translation to an address of the network that no machine has": Scene(
        "iptables -t nat -A POSTROUTING -o eth1 -j SNAT --to-source 192.0.2.60", OUT, "a", False, None, ("answer:192.0.2.60",)
    ),
    "a dormant table": Scene(
        "nft 'table ip t { flags dormant; chain f { type filter hook forward priority 0; policy drop; }; }'", TO_B, "a", True
    ),
    "a pod and the internet of IPv6": Scene(DUAL, OUT6, "a", True),
    "a rule that drops the node's own requests for neighbours": Scene(
        f"{DUAL}ip6tables -A OUTPUT -o eth1 -p icmpv6 -j DROP", OUT6, "a", False,
        ("rule", "ip6 filter: -A OUTPUT -o eth1 -p ipv6-icmp -j DROP"),
    ),
    "a rule that sends a copy elsewhere": Scene(
        "iptables -t mangle -A PREROUTING -i v1 -j TEE --gateway 192.0.2.254", TO_B, "a", True
    ),
    "a pod with rules of its own": Scene(
        "ip netns exec b iptables -A INPUT -p tcp --dport 80 -j DROP", TO_B, "a", False, None, ("pod-rules:v2",)
    ),
    "a pod whose tables are empty": Scene("ip netns exec b iptables -S", TO_B, "a", True),
    "a queue that takes no packet": Scene("tc qdisc add dev v2 root bfifo limit 10", TO_B, "a", False, None, ("queue:v2",)),
    "a queue that takes packets": Scene("tc qdisc add dev v2 root pfifo limit 10", TO_B, "a", True),
    "an address of a load balancer, as Google's agent adds it": Scene(
        "ip route add local 10.66.0.9 dev eth1 proto 66 scope host; ip -n r route add 10.66.0.9 via 192.0.2.11",
        "tcp 198.51.100.7:40000 > 10.66.0.9:80 in eth1", "r", True,
    ),
    "a bridge without an address": Scene(
        "ip link add b1 type bridge mcast_snooping 0; ip link set b1 up; machine q u1; machine t t7\n"
        "ip link set u1 master b1; ip link set t7 master b1; sysctl -qw net.bridge.bridge-nf-call-iptables=0 || true\n"
        "ip -n q addr add 192.168.9.1/24 dev eth0; ip -n q addr add 203.0.113.9/32 dev lo\n"
        "ip -n t addr add 192.168.9.2/24 dev eth0; ip -n t route add default via 192.168.9.1\n"
        "iptables -t nat -A PREROUTING -d 203.0.113.9 -j DNAT --to-destination 10.60.5.9",
        "tcp 192.168.9.2:40000 > 203.0.113.9:443 in t7", "t", True,
    ),
}  # fmt: skip


@contextlib.contextmanager
def built(lines: str) -> Any:
    with Lab("links", nodes=[Node("node1")]) as lab:
        node: NamespaceNode = lab.node("node1")
        node.run(["sh", "-c", f"{PRELUDE}{lines}\n"])
        yield node


def is_answered(node: NamespaceNode, sender: str, source: str, destination: str, port: str) -> bool:
    """Whether a connection is refused: nothing listens on the port."""
    within = ["ip", "netns", "exec", sender] if sender else []
    done = node.run([*within, sys.executable, "-c", DIAL, source, destination, port], check=False)
    return "ConnectionRefusedError" in done.stderr


def trace(node: NamespaceNode, packet: str, **options: Any) -> dict[str, Any]:
    source, destination, port = ends(packet)
    sent = packet if source else {"destination": destination, "destination_port": port}
    return tracing.trace(node, sent, **options)


def arrives(result: dict[str, Any]) -> bool:
    return result["verdict"] in ARRIVES and bool(result["reply"]) and result["reply"]["verdict"] in ARRIVES


def ends(packet: str) -> tuple[str, str, str]:
    """The source, the destination and its port."""
    source, destination = packet.split(" in ")[0].removeprefix("tcp ").split("> ")
    (client, _port), (host, port) = (end.strip().rsplit(":", 1) if ":" in end else ("", "") for end in (source, destination))
    return client.strip("[]"), host.strip("[]"), port


@pytest.mark.parametrize("name", SCENES)
def test_what_is_certain_is_what_happens(name: str) -> None:
    scene = SCENES[name]
    with built(scene.lines) as node:
        live = trace(node, scene.packet)
        assert is_answered(node, scene.sender, *ends(scene.packet)) == scene.arrives
        assert live["certain"] == (not scene.ids), (live["reason"], live["depends_on"])
        assert scene.ids or arrives(live) == scene.arrives, live["reason"]
        assert {*scene.ids} <= {entry["fact"] for entry in live["depends_on"]}, live["depends_on"]
        if scene.culprit:
            assert live["culprit"] == dict(zip(("kind", "text"), scene.culprit)), live["reason"]
        changes = [cure["change"] for cure in live["cures"] if cure["certain"]]
        assert scene.cure in ("", *changes), live["cures"]
        for cure in live["cures"] if scene.cure else ():
            if cure["change"] == scene.cure:
                assert all(apply(node, task) for task in yaml.safe_load(cure["task"]))
        if scene.cure:
            assert is_answered(node, scene.sender, *ends(scene.packet))
        dump = {command: node.run(shlex.split(command), check=False).stdout for command in PASTED}
        pasted = trace(node, scene.packet, dump=dump)
        assert not pasted["certain"] or arrives(pasted) == (scene.arrives or bool(scene.cure)), pasted["reason"]
