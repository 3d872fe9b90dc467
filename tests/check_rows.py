# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of nodes with the troubles that checks of the audit find, of which tests/unit/_audit/test_checks.py makes a running
node, a bundle and a paste. A new check has a row in ROWS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Outputs = Mapping[str, str]


class Row(NamedTuple):
    """outputs: of a node with the trouble, by command. mended: those that the remedy changes.

    subject, evidence: of the finding.
    """

    outputs: Outputs
    mended: Outputs
    subject: str
    evidence: list[str]


BRIDGE = "net.bridge.bridge-nf-call-iptables"
SERVICE = "-d 10.96.0.10/32 -p udp -m udp --dport 53 -j"
_LOOPBACK = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
"""
_UPLINK = """2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0
    inet 10.0.0.5/24 scope global eth0
"""
_TUNNEL = """3: vxlan.calico: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1480 qdisc noqueue state UNKNOWN
    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff promiscuity 0
    vxlan id 4096 local 10.0.0.5 dev eth0 srcport 0 0 dstport 4789 nolearning ttl auto
    inet 10.244.1.0/32 scope global vxlan.calico
"""
_ROUTED = {
    "sysctl -a": "net.ipv4.ip_forward = 1\n",
    "ip route show table all": "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.5\n",
    "ip -6 route show table all": "fe80::/64 dev eth0 proto kernel metric 256\n",
}
_FULL = "net.ipv4.neigh.default.gc_thresh3"
_THRESHOLDS = f"net.ipv4.ip_forward = 1\n{_FULL} = 128\nnet.ipv6.neigh.default.gc_thresh3 = 1024\n"
_FILTER = "*filter\n:INPUT ACCEPT\n{}COMMIT\n"
_ACCEPT, _DROP = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n", "-A INPUT -p icmp -j DROP\n"
ROWS = {
    "tunnel-mtu": Row(
        {"ip -d addr": _LOOPBACK + _UPLINK + _TUNNEL, **_ROUTED},
        {"ip -d addr": _LOOPBACK + _UPLINK + _TUNNEL.replace("mtu 1480", "mtu 1450")},
        "vxlan.calico",
        ["vxlan.calico vxlan mtu 1480", "eth0 mtu 1500"],
    ),
    "neighbours-near-full": Row(
        {
            "sysctl -a": _THRESHOLDS,
            "ip neigh": "".join(f"10.0.0.{n} dev eth0 lladdr 02:00:00:00:01:{n:02x} STALE\n" for n in range(10, 126)),
        },
        {"sysctl -a": _THRESHOLDS.replace("= 128\n", "= 1024\n")},
        _FULL,
        ["116 ipv4 neighbours", f"{_FULL} = 128"],
    ),
    "pmtu-filtered": Row(
        {
            "ip -d addr": _LOOPBACK + _UPLINK,
            **_ROUTED,
            "iptables-save": _FILTER.format(_DROP + _ACCEPT),
            "nft list ruleset": "",
        },
        {"iptables-save": _FILTER.format(_ACCEPT + _DROP)},
        "ipv4 input",
        [_DROP.strip()],
    ),
    "bridge-netfilter-off": Row(
        {
            "sysctl -a": f"{BRIDGE} = 0\nnet.ipv4.ip_forward = 1\n",
            "ip -d addr": """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
2: b0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0
    bridge forward_delay 1500 hello_time 200
    inet 10.60.1.1/24 scope global b0
3: v5@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master b0 state UP
    link/ether 02:00:00:00:00:05 brd ff:ff:ff:ff:ff:ff link-netns p5 promiscuity 1
    veth
    bridge_slave state forwarding
4: v6@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master b0 state UP
    link/ether 02:00:00:00:00:06 brd ff:ff:ff:ff:ff:ff link-netns p6 promiscuity 1
    veth
    bridge_slave state forwarding
""",
            "ip route show table all": "10.60.1.0/24 dev b0 proto kernel scope link src 10.60.1.1\n",
            "ip -6 route show table all": "fe80::/64 dev b0 proto kernel metric 256\n",
            "ip rule": "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n",
            "ip neigh": "",
            "iptables-save": f"*nat\n:PREROUTING ACCEPT\n-A PREROUTING {SERVICE} DNAT --to-destination 10.60.1.6:53\nCOMMIT\n",
            "nft list ruleset": "",
        },
        {"sysctl -a": f"{BRIDGE} = 1\nnet.ipv4.ip_forward = 1\n"},
        BRIDGE,
        [f"{BRIDGE} = 0", "v6 master b0"],
    ),
}
