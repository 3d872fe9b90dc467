# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings, rules and sizes that a twin once had of its own: a real packet goes as the trace says, of a node and of its outputs.

A host behind `left` sends to one behind `right`, and the node is a router between them.
"""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import PACKET_PATH
from lab import Lab
from lab.inner_pods import InnerPod, batch
from lab.node import NamespaceNode
from lab.steps import Steps

from .tracing import trace

LEFT, RIGHT = "10.60.1.9", "10.60.2.9"
COMMANDS = (
    *("ip -d addr", "ip rule", "ip route show table all", "ip neigh", "iptables-save", "iptables-legacy-save"),
    *("nft list ruleset", "ebtables-save", "sysctl -a", "ip nexthop", "tc filter show dev left ingress"),
)
SAVE, NFT = "/usr/sbin/iptables-nft-save", "/usr/sbin/nft"
ARRIVES = ("forwarded", "delivered")
NOTHING = 7  # what PING ends with if no answer comes
# Sends an echo request of a length, with the option that forbids fragments or without it.
PING = f"""
import socket, struct, sys
destination, length, df = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
sock.setsockopt(socket.IPPROTO_IP, 10, 3 if df else 0)  # IP_MTU_DISCOVER: IP_PMTUDISC_PROBE, IP_PMTUDISC_DONT
sock.settimeout(0.7)
data = bytearray(struct.pack("!BBHHH", 8, 0, 0, 7, 1) + bytes(length - 28))
data[2:4] = struct.pack("!H", ~(0x0800 + 7 + 1) & 0xFFFF)
sock.sendto(data, (destination, 0))
try:
    answer, sender = b"", ""
    while answer[20:21] != bytes(1) or sender != destination:  # an error about the packet is none
        answer, (sender, _port) = sock.recvfrom(65535)
except TimeoutError:
    sys.exit({NOTHING})
"""


class Scene(NamedTuple):
    """lines: of a shell on the node. culprit: a part of its text; empty where the packet and its answer arrive.

    cure: a part of the one that is offered. packet: what differs. leave_out: a pattern of lines of the outputs that the report
    lacks. fact: a part of the id of what is open then; empty if the report is certain, too.
    """

    lines: str
    culprit: str = ""
    cure: str = ""
    packet: dict[str, Any] = {}
    leave_out: str = ""
    fact: str = ""


# Two pods on a bridge, of which the second is behind a Service.
ON_BRIDGE = """
ip link add b0 type bridge mcast_snooping 0; ip addr flush dev left; ip link set left master b0; ip link set b0 up
ip addr add 10.60.1.1/24 dev b0; ip netns add second; ip link add second type veth peer name eth0 netns second
ip link set second master b0 up; ip -n second link set eth0 up; ip -n second addr add 10.60.1.8/24 dev eth0
ip -n second route add default via 10.60.1.1; iptables -t nat -A PREROUTING -d 10.96.0.10 -j DNAT --to-destination 10.60.1.8
sysctl -qw net.bridge.bridge-nf-call-iptables="""
BRIDGED = {"destination": "10.96.0.10"}
# A network behind the host at the right, by a route that the kernel lists with the number of an object alone.
BY_OBJECT = "ip -n host-right addr add 10.70.0.1/32 dev eth0; ip route add 10.70.0.0/24 nhid"
BEHIND = {"destination": "10.70.0.1"}
# As the bandwidth plugin of CNI limits what a pod sends.
BY_IFB = (
    "ip link add ifb0 type ifb; tc qdisc add dev left ingress;"
    " tc filter add dev left parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0"
)

SCENES = {
    "a link that does not forward": Scene(
        "sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.right.forwarding=1",
        "net.ipv4.conf.left.forwarding = 0",
        "sysctl -w net.ipv4.conf.left.forwarding=1",
        leave_out=r"conf\.left\.forwarding",
        fact="net.ipv4.conf.left.forwarding",
    ),
    "links that forward though the node does not": Scene(
        "sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.right.forwarding=1 net.ipv4.conf.left.forwarding=1",
        leave_out=r"conf\.\w+\.forwarding",
        fact="net.ipv4.conf.left.forwarding",
    ),
    "a link whose answers are not forwarded": Scene(
        "sysctl -qw net.ipv4.conf.right.forwarding=0",
        "net.ipv4.conf.right.forwarding = 0",
        "sysctl -w net.ipv4.conf.right.forwarding=1",
        leave_out=r"conf\.\w+\.forwarding",
        fact="net.ipv4.conf.right.forwarding",
    ),
    "a chain at ingress that drops": Scene(
        "nft add table netdev f; nft add chain netdev f i '{ type filter hook ingress device left priority -500; }'\n"
        f"nft add rule netdev f i ip daddr {RIGHT} drop",
        f"netdev f i: ip daddr {RIGHT} drop",
    ),
    "a chain at ingress of several links that drops answers": Scene(
        "nft add table inet f\n"
        "nft add chain inet f i '{ type filter hook ingress devices = { left, right, eth0 } priority -500; }'\n"
        f"nft add rule inet f i ip saddr {RIGHT} drop",
        f"inet f i: ip saddr {RIGHT} drop",
    ),
    "a chain at ingress that passes packets": Scene(
        "nft add table netdev f; nft add chain netdev f i '{ type filter hook ingress device left priority -500; }'\n"
        "nft add rule netdev f i counter"
    ),
    "a rule of a user, as whom no packet is routed": Scene("ip rule add priority 900 uidrange 1000-2000 prohibit"),
    "a rule of root, as whom packets are routed": Scene("ip rule add priority 900 uidrange 0-99 prohibit", "uidrange 0-0"),
    "a bridge that shows no frame to rules": Scene(
        f"{ON_BRIDGE}0",
        "net.bridge.bridge-nf-call-iptables = 0",
        "sysctl -w net.bridge.bridge-nf-call-iptables=1",
        BRIDGED,
        leave_out="bridge-nf-call-iptables",
        fact="net.bridge.bridge-nf-call-iptables",
    ),
    "a bridge that shows frames to rules": Scene(
        f"{ON_BRIDGE}1", packet=BRIDGED, leave_out="bridge-nf-call-iptables", fact="net.bridge.bridge-nf-call-iptables"
    ),
    "a link that is too small": Scene("ip link set right mtu 1400", "right mtu 1400", packet={"length": 1500, "df": True}),
    "a link for which a packet is divided": Scene(
        "ip link set right mtu 1400; ip -n host-right link set eth0 mtu 1400", packet={"length": 1500}
    ),
    "a link that is large enough": Scene("ip link set right mtu 1400", packet={"length": 1400, "df": True}),
    "a route that is too small": Scene(
        "ip route change 10.60.2.0/24 dev right mtu 1300",
        "ip route 10.60.2.0/24 dev right table main scope link mtu 1300",
        packet={"length": 1400, "df": True},
    ),
    "a bridge that is smaller than its ports": Scene(
        "ip link add b0 type bridge mcast_snooping 0; ip addr flush dev right; ip link set right master b0\n"
        "ip link set b0 up mtu 1400; ip addr add 10.60.2.1/24 dev b0",
        "b0 mtu 1400",
        packet={"length": 1500, "df": True},
    ),
    "a smaller port by which a packet to the node does not leave": Scene(
        f"{ON_BRIDGE}1; ip link set second mtu 1400", packet={"destination": "10.60.1.1", "length": 1500, "df": True}
    ),
    "a link that takes no larger packet": Scene(
        "ip link set left mtu 1400", "left mtu 1400", packet={"length": 1500, "df": True}
    ),
    "a route to a nexthop object": Scene(f"{BY_OBJECT} 22", packet=BEHIND, leave_out="^id 22", fact="next-hops:254 10.70.0.0/24"),
    "a route to a group of nexthop objects": Scene(f"ip nexthop add id 7 group 22; {BY_OBJECT} 7", packet=BEHIND),
    "a route to a nexthop object without a link": Scene(
        f"ip nexthop add id 7 blackhole; {BY_OBJECT} 7", "blackhole 10.70.0.0/24", packet=BEHIND
    ),
    "a filter that leads packets by a link that is down": Scene(BY_IFB, "ifb0 is down", "ip link set dev ifb0 up"),
    "a filter that leads packets by a link that is up": Scene(f"{BY_IFB}; ip link set ifb0 up"),
    "no link that forwards": Scene(
        "sysctl -qw net.ipv4.ip_forward=0",
        "net.ipv4.conf.left.forwarding = 0",
        "sysctl -w net.ipv4.conf.left.forwarding=1 net.ipv4.conf.right.forwarding=1",
    ),
}


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    for number, (link, address) in enumerate((("left", LEFT), ("right", RIGHT)), 1):
        host = InnerPod(node, f"host-{link}", address, f"0a:00:00:00:00:0{number}", link)
        gateway = address.replace(".9", ".1")
        batch(node, [f"address add {gateway}/24 dev {link}", f"link set {link} up"])
        host.ip(["link set lo up", "link set eth0 up", f"address add {address}/24 dev eth0", f"route add default via {gateway}"])
    return node


def arrives(node: NamespaceNode, packet: dict[str, Any]) -> bool:
    """Send a real packet, and return whether its answer comes back."""
    words = [packet["destination"], str(packet.get("length", 60)), "1" if packet.get("df") else "0"]
    done = node.run(["ip", "netns", "exec", "host-left", sys.executable, "-c", PING, *words], check=False)
    assert done.returncode in (0, NOTHING), done.stderr
    return not done.returncode


def outputs(node: NamespaceNode) -> dict[str, str]:
    """Return what an operator pastes, with the output of a command that is not there."""
    return {command: (done := node.run(command.split(), check=False)).stdout + done.stderr for command in COMMANDS}


def without(text: str, pattern: str) -> str:
    return "\n".join(line for line in text.splitlines() if not re.search(pattern, line))


def fate(result: dict[str, Any]) -> bool | None:
    """Return whether the packet and its answer arrive; None for an answer that is not certain."""
    verdicts = [result["verdict"], (result["reply"] or {}).get("verdict", "delivered")]
    return all(verdict in ARRIVES for verdict in verdicts) if result["certain"] else None


@pytest.mark.parametrize("name", SCENES)
def test_a_real_packet_goes_as_the_trace_says(node: NamespaceNode, name: str) -> None:
    scene = SCENES[name]
    before = "sysctl -qw net.ipv4.nexthop_compat_mode=0; ip nexthop add id 22 via 10.60.2.9 dev right\n"
    node.run(["sh", "-ec", (before if BY_OBJECT in scene.lines else "") + scene.lines])
    packet = {"source": LEFT, "destination": RIGHT, "protocol": "icmp", "interface": "left", **scene.packet}
    dump = outputs(node)
    # No output of the node shows what its pods have.
    live, pasted = trace(node, packet), trace(node, packet, dump=dump, assume={"pod": "shown"})
    is_well = arrives(node, packet)
    assert is_well == (not scene.culprit)
    for result in (live, pasted):
        assert fate(result) == is_well, (result["verdict"], result["reason"], result["depends_on"])
        assert scene.culprit in (result["culprit"] or {"text": ""})["text"], result["culprit"]
        assert scene.cure in "; ".join(cure["change"] for cure in result["cures"]), result["cures"]
    if scene.leave_out:
        cut = {command: without(text, scene.leave_out) for command, text in dump.items()}
        result = trace(node, packet, dump=cut)
        assert not result["certain"] and scene.fact in "; ".join(each["fact"] for each in result["depends_on"]), result


def test_a_packet_without_a_length_is_a_small_one_where_a_larger_one_may_be_lost(node: NamespaceNode) -> None:
    packet = f"udp {LEFT}:9 > {RIGHT}:9 in left"
    assert "small" not in str(trace(node, packet)["assumed"])
    node.run(["sh", "-ec", "ip link set right mtu 1400"])
    result = trace(node, packet)
    said = "A small packet was sent. One of more than 1400 bytes may not pass: right mtu 1400."
    assert result["certain"] and said in result["assumed"], result["assumed"]
    lost = trace(node, f"{packet} length 1401 df")
    assert (lost["verdict"], lost["culprit"]["text"], lost["certain"]) == ("rejected", "right mtu 1400", True)
    own = trace(node, {"destination": RIGHT, "destination_port": 9, "protocol": "udp", "length": 1500, "df": True})
    assert (own["culprit"]["text"], own["certain"]) == ("right mtu 1400", True), own["reason"]


@pytest.mark.parametrize("sender", ["left", "node"])
def test_what_the_other_end_of_a_link_takes_counts(node: NamespaceNode, sender: str) -> None:
    node.run(["sh", "-ec", "ip -n host-right link set eth0 mtu 1400"])
    # The kernel leaves room for the tag of a VLAN (include/linux/netdevice.h, is_skb_forwardable).
    for length, takes in ((1404, True), (1405, False)):
        packet = {"destination": RIGHT, "protocol": "icmp", "length": length, "df": True}
        result = trace(node, packet if sender == "node" else {**packet, "source": LEFT, "interface": "left"})
        assert sender == "node" or arrives(node, packet) == takes
        assert fate(result) == takes, (result["reason"], result["depends_on"])
        assert takes or result["culprit"]["text"] == "the other end of right mtu 1400"
    node.run(["sh", "-ec", "ip -n host-right link set eth0 mtu 1500; ip -n host-left link set eth0 mtu 1400"])
    packet = {"source": LEFT, "destination": RIGHT, "protocol": "icmp", "interface": "left", "df": True}
    result = trace(node, {**packet, "length": 1401})
    assert (result["culprit"]["text"], fate(result)) == ("the other end of left mtu 1400", False)
    node.run(["ip", "link", "set", "left", "mtu", "1396"])
    assert arrives(node, {**packet, "length": 1400}) and fate(trace(node, {**packet, "length": 1400}))


def test_a_setting_that_sysctl_does_not_find_is_that_of_a_bridge_that_shows_nothing(node: NamespaceNode) -> None:
    node.run(["sh", "-ec", f"{ON_BRIDGE}1"])
    dump = outputs(node)
    dump["sysctl -a"] = without(dump["sysctl -a"], "bridge-nf-call-iptables")
    key = "net/bridge/bridge-nf-call-iptables"
    dump[f"sysctl {key}"] = f"sysctl: cannot stat /proc/sys/{key}: No such file or directory\n"
    packet = {"source": LEFT, "protocol": "icmp", "interface": "left", **BRIDGED}
    result = trace(node, packet, dump=dump)
    assert (result["reply"]["verdict"], result["certain"]) == ("dropped", True), result["depends_on"]
    assert result["culprit"]["text"] == "net.bridge.bridge-nf-call-iptables = 0"


def test_a_filter_that_is_not_understood_is_open(node: NamespaceNode) -> None:
    node.run(["tc", "qdisc", "add", "dev", "right", "ingress"])
    match = "protocol ip u32 match ip sport 9 0xffff action mirred egress redirect dev right"
    node.run(["sh", "-ec", f"tc filter add dev right parent ffff: {match}"])
    packet = f"udp {LEFT}:9 > {RIGHT}:9 in left"
    for result in (
        trace(node, packet),
        trace(
            node,
            packet,
            dump={
                **outputs(node),
                "tc filter show dev right ingress": node.run(["tc", "filter", "show", "dev", "right", "ingress"]).stdout,
            },
        ),
    ):
        assert [each["fact"] for each in result["depends_on"]] == ["filter:right ingress"], result["depends_on"]
    assert trace(node, packet, assume={"filter:right ingress": "shown"})["certain"]


@pytest.mark.parametrize(
    ("program", "setup", "hidden"),
    [
        (SAVE, "iptables -A FORWARD -p tcp --dport 80 -j DROP", "dport 80"),
        (
            SAVE,
            "iptables -N OWN; iptables -A OWN -p tcp --dport 80 -j DROP; iptables -A FORWARD -j OWN",
            "A OWN",
        ),
        (
            NFT,
            "nft add table ip t; nft add chain ip t f '{ type filter hook forward priority 0; policy drop; }'",
            "policy",
        ),
    ],
    ids=["rule", "rule of another chain", "policy"],
)
def test_what_a_program_does_not_print_is_open(node: NamespaceNode, program: str, setup: str, hidden: str) -> None:
    node.run(["sh", "-ec", setup])
    packet = {"source": LEFT, "destination": RIGHT, "destination_port": 80, "interface": "left"}
    assert trace(node, packet)["certain"]
    shown = """sed 's/"policy": "drop"/"policy": "accept"/'""" if hidden == "policy" else f"grep -v -e '{hidden}'"
    # The programs of iptables are links to one, which takes its name as an argument, too.
    script = f'name=$(basename "$0")\ncase $name in\nnft) @REAL@ "$@" | {shown};;\n*-save) @REAL@ $name "$@" | {shown};;\n'
    with node.replace_program(program, f'#!/bin/sh\n{script}*) exec @REAL@ $name "$@";;\nesac\n'):
        snapshot = Steps(node, "datapath_info", {"gather": [*PACKET_PATH]}).run()["snapshot"]
    result = trace(node, packet, snapshot=snapshot)
    facts = [each for each in result["depends_on"] if each["fact"].startswith("unread:nftables ip ")]
    assert not result["certain"] and facts and "listed" in facts[0]["what"], result["depends_on"]


# Of each kind of object, one or more that a node can have. A kernel may refuse some of them.
KINDS = r"""
nft add table netdev k; nft add chain netdev k in '{ type filter hook ingress device left priority 5; }'
nft add chain netdev k out '{ type filter hook egress device right priority 5; }'
nft add rule netdev k in ip saddr 192.0.2.0/24 ip dscp set cs1
nft add rule netdev k in ip daddr 192.0.2.1 fwd to right
nft add rule netdev k in ip daddr 192.0.2.2 dup to right
nft add table arp k; nft add chain arp k in '{ type filter hook input priority 0; }'
nft add rule arp k in arp operation request counter
nft add table bridge k; nft add chain bridge k f '{ type filter hook forward priority 0; }'
nft add rule bridge k f vlan id 7 drop
nft add table inet k; nft add chain inet k f '{ type filter hook forward priority 7; }'; nft add chain inet k g
nft add flowtable inet k ft '{ hook ingress priority 0; devices = { left, right }; }'
nft add rule inet k f tcp dport 9 flow add @ft
nft add counter inet k c; nft add rule inet k f udp dport 9 counter name c
nft add quota inet k q '{ over 9 mbytes }'; nft add rule inet k f udp dport 10 quota name q drop
nft add limit inet k l '{ rate 9/second }'; nft add rule inet k f udp dport 11 limit name l
nft add ct helper inet k h '{ type "ftp" protocol tcp; }'; nft add rule inet k f tcp dport 21 ct helper set h
nft add ct timeout inet k t '{ protocol tcp; policy = { established: 9 }; }'
nft add ct expectation inet k e '{ protocol udp; dport 9; timeout 9m; size 9; }'
nft add synproxy inet k s '{ mss 1460; wscale 7; }'; nft add rule inet k f tcp dport 22 synproxy name s
nft add secmark inet k s '{ "system_u:object_r:x_t:s0"; }'
nft add map inet k m '{ type ipv4_addr . inet_service : verdict; flags interval; }'
nft add element inet k m '{ 192.0.2.0/24 . 9-10 : jump g }'
nft add rule inet k f ip saddr . tcp dport vmap @m
nft add set inet k d '{ type ipv4_addr; flags dynamic,timeout; timeout 9s; size 99; }'
nft add rule inet k f update @d '{ ip saddr limit rate over 9/second }' drop
nft add set inet k n '{ typeof ip6 saddr . meta l4proto; }'
nft add rule inet k f meta nfproto ipv6 exthdr rt exists drop
nft add rule inet k f udp dport 12 queue num 3 bypass
nft add rule inet k f numgen inc mod 2 vmap '{ 0 : continue, 1 : continue }'
nft add rule inet k f jhash ip saddr mod 2 seed 0xa vmap '{ 0 : continue, 1 : continue }'
nft add rule inet k f tcp option maxseg size set rt mtu
nft add rule inet k f socket transparent 1 accept
nft add rule inet k f meta hour "01:00"-"02:00" udp dport 13 drop
nft add rule inet k f @nh,0,8 0x44 drop
nft add rule inet k f rt ip nexthop 192.0.2.1 udp dport 14 drop
nft add rule inet k f osf name "Linux" udp dport 14 drop
nft add rule inet k f meta ipsec exists drop
nft add rule inet k f udp dport 15 tproxy to :9
ip rule add priority 901 uidrange 5-9 lookup 77
ip rule add priority 902 tun_id 5 lookup 77
ip rule add priority 903 iif left suppress_ifgroup 3 lookup main
ip rule add priority 904 realms 3 lookup 77
ip rule add priority 905 nop
ip rule add priority 906 goto 32766
ip rule add priority 907 l3mdev
ip rule add priority 908 not from 192.0.2.0/24 iif left ipproto udp sport 1-9 dport 2-8 tos 0x10 blackhole
ip rule add priority 909 oif right lookup 77 suppress_prefixlength 0
ip route add 192.0.2.0/25 dev right mtu lock 1400 advmss 1300 initcwnd 9 quickack 1 rto_min 9 congctl cubic table 77
ip route add 192.0.2.128/25 nexthop via 10.60.2.9 weight 2 nexthop dev left weight 3 table 77
ip route add 192.0.3.0/24 via inet6 fe80::9 dev right
ip route add 192.0.4.0/24 encap ip id 7 dst 10.60.2.9 dev right
ip route add 192.0.5.0/24 encap seg6 mode encap segs fd00::1 dev right
ip route add throw 192.0.6.0/24; ip route add prohibit 192.0.7.0/24; ip route add local 192.0.8.0/24 dev lo
ip route add 192.0.9.0/24 dev right tos 0x10 src 10.60.2.1 realms 3 scope link proto 77 metric 9
ip route add multicast 239.1.1.1 dev right; ip route add broadcast 192.0.10.255 dev right
ip nexthop add id 9 via 10.60.2.9 dev right; ip nexthop add id 10 group 9; ip nexthop add id 11 blackhole
ip route add 192.0.11.0/24 nhid 10; ip route add 192.0.12.0/24 nhid 11
ip -6 route add fd00:9::/64 dev right expires 9 pref high; ip -6 route add fd00:8::/64 via fe80::9 dev right onlink
ip -6 rule add priority 901 flowlabel 0x9 lookup 77
ip neigh add 10.60.2.77 dev right nud failed; ip neigh add proxy 10.60.1.77 dev left; ip neigh add 10.60.2.78 dev right nud noarp
ip link add k0 type bridge vlan_filtering 1 stp_state 1; ip link add k1 type veth peer name k2; ip link set k1 master k0
bridge vlan add vid 7 dev k1; bridge fdb add 0a:00:00:00:00:77 dev k1 master static
ip link add k3 link left type macvlan mode bridge; ip link add k4 link left type vlan id 9; ip link add k5 type ifb
ip link add k6 type gre local 10.60.1.1 remote 10.60.1.9; ip link add k7 type sit local 10.60.1.1
ip link add k8 type vxlan id 9 local 10.60.1.1 dstport 4789; ip link add k9 type geneve id 9 remote 10.60.1.9
ip link add k10 type dummy; ip link add k11 type wireguard; ip link add k12 type bond; ip link add k13 type vrf table 77
ip tuntap add k14 mode tun; ip tuntap add k15 mode tap; ip link add k16 type xfrm if_id 9; ip link add k17 type ip6tnl
ip link add name "k.18@x" type veth peer name "k:19"; ip link property add dev left altname k20
ip addr add 10.60.1.78 peer 10.60.1.79 dev left; ip addr add fd00:7::1/64 dev left preferred_lft 0
ip addr add 10.60.1.80/24 dev left label left:1
tc qdisc add dev left clsact; tc filter add dev left ingress matchall action pass; tc qdisc add dev right root netem delay 1ms
tc filter add dev left ingress prio 9 protocol ip u32 match ip dport 9 0xffff action drop
tc filter add dev left ingress prio 10 protocol ip flower ip_proto udp dst_port 9 action drop
iptables -A FORWARD -p udp -m udp --dport 9 -m hashlimit --hashlimit-name k --hashlimit-upto 9/s -j ACCEPT
iptables -A FORWARD -p udp -m recent --name k --set -j RETURN; iptables -t raw -A PREROUTING -p udp --dport 9 -j NOTRACK
iptables -A FORWARD -m time --timestart 01:00 -p udp --dport 10 -j DROP; iptables -A FORWARD -p udp -m owner --uid-owner 9 -j DROP
ip xfrm policy add src 192.0.2.0/24 dst 192.0.3.0/24 dir fwd tmpl src 10.60.1.1 dst 10.60.1.9 proto esp mode tunnel
ip maddress add 01:00:5e:00:00:09 dev left; ip token set ::9 dev left; ip mptcp endpoint add 10.60.1.1 dev left
"""


def test_no_kind_of_object_keeps_a_node_from_being_traced(node: NamespaceNode) -> None:
    for line in KINDS.strip().splitlines():
        for command in line.split("; ") if "nft" not in line else [line]:
            node.run(["sh", "-c", command], check=False)
    packet = {"source": LEFT, "destination": RIGHT, "destination_port": 80, "interface": "left"}
    result = trace(node, packet)
    assert result["verdict"] == "forwarded" and result["steps"], result
    assert trace(node, packet, dump=outputs(node))["steps"]
