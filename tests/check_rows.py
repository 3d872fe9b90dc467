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
ROWS = {
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
