# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first sentences about a report with few outputs name what is likely, its line, and one command; none is certain."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, packet, packet_text, trace_backend

from . import random_nodes


def answer(text: str, line: str) -> dict[str, Any]:
    described = packet_text.options(line)
    interface = str(described["interface"] or "")
    snapshot = pastes.read({"report.txt": text}, "" if interface == packet.AUTO else interface).snapshot
    sent = entrance.packet(described, snapshot)
    return trace_backend.judge(trace_backend.Question(snapshot, sent, {}), random_nodes.run).with_likelihood().answer.plain()


FROM, TO = "192.0.2.9:40000", "192.0.2.20"
ROUTES, RULES_OF_FILTER = "ip route show table all", "iptables-save -t filter"
OTHER = "9.9.9.9:443"
NFT = """\
table inet gate {
    chain pass {
        type filter hook forward priority 0; policy drop;
        iifname "lan0" oifname "wan0" accept
    }
}
"""
NODE_PORT = """\
Chain KUBE-NODEPORTS (1 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 KUBE-XLB-AB12CD34EF56GH78 tcp -- * *  0.0.0.0/0  0.0.0.0/0  /* shop/front: */ tcp dpt:30444

Chain KUBE-XLB-AB12CD34EF56GH78 (1 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 KUBE-MARK-DROP all -- * *  0.0.0.0/0  0.0.0.0/0  /* shop/front: has no local endpoints */
"""
HALF = NODE_PORT[NODE_PORT.index("Chain KUBE-XLB") :]
REFUSED = """\
# iptables-save | grep 30455
-A KUBE-SERVICES -p tcp -m comment --comment "shop/back has no endpoints" -m addrtype --dst-type LOCAL --dport 30455 -j REJECT
-A KUBE-NODEPORTS -p tcp -m comment --comment "shop/back" -m tcp --dport 30455 -j KUBE-SVC-ZZ11YY22XX33WW44
"""
TUNNELS = """\
# ip route
default via 192.0.2.1 dev ens9
192.0.2.0/24 dev ens9 proto kernel scope link src 192.0.2.20
10.77.8.0/26 via 192.0.2.30 dev ens9 proto bird
10.77.9.4 dev cali77aa88bb99c scope link
"""
TABLE = "# ip route show table 77\ndefault dev tun9\nthrow 192.0.2.0/24\n"
RULES = """\
# ip rule
0:      from all lookup local
512:    from all to 10.88.1.5 lookup main
1536:   from 10.88.1.5 to 10.88.0.0/16 lookup 4
32766:  from all lookup main
32767:  from all lookup default
"""
CHAIN = """\
Chain vpn-input (1 references)
 pkts bytes target     prot opt in     out     source               destination
    0     0 ACCEPT     all  --  lo     *       100.70.1.2           0.0.0.0/0
   21  1500 DROP       all  --  !vpn0  *       100.64.0.0/10        0.0.0.0/0    <------
"""
OF_A_LINK = """\
chain vpn-forward {
    iifname "vpn0" counter packets 0 bytes 0 accept
    oifname "vpn0" ct state != established,related counter packets 70 bytes 4200 drop
}
"""
SENTENCE = "A route is there that nobody added: `blackhole 10.99.3.0/26 proto bird`, and it comes back.\n"
SPANNING = (
    "the route is like this:\n`blackhole 10.99.3.0/26  proto bird\n\n10.99.3.0/24 via 192.0.2.9 dev tunl0 proto bird onlink`\n"
)
LOG = (
    "Nov  3 10:00:01 node7 kernel: [ 77.100001] Guard-drop: IN=br9 OUT=ens9 MAC=02:00 SRC=10.66.0.9 DST=198.51.100.53 LEN=60"
    " TOS=0x00 PREC=0x00 TTL=63 ID=1 DF PROTO=UDP SPT=40001 DPT=53 LEN=40\n"
)
WITHOUT_LINKS = """\
Chain FORWARD (policy DROP)
target     prot opt source               destination
DOCKER-USER  all  --  anywhere             anywhere
ACCEPT     all  --  anywhere             anywhere             ctstate RELATED,ESTABLISHED
DOCKER     all  --  anywhere             anywhere
ACCEPT     all  --  anywhere             anywhere
ACCEPT     all  --  anywhere             anywhere
"""
OF_CALICO = (
    "# iptables-save | grep cali:abcd\n"
    '-A cali-tw-cali0123456789a -m comment --comment "cali:abcd" -m comment --comment "Drop if no policies passed packet"'
    " -m mark --mark 0x0/0x20000 -j DROP\n"
)
DOWN = (
    "flannel.1: <BROADCAST,MULTICAST> mtu 1450 qdisc noqueue state DOWN\n    link/ether 02:7f:1d:28:02:42 brd ff:ff:ff:ff:ff:ff\n"
)
GET = '# ip route get "10.55.6.7"\n10.55.6.7 via 192.0.2.1 dev ens9 src 192.0.2.20 uid 0\n    cache\n'
BRIDGE = "# ip route\ndefault via 192.0.2.1 dev ens9\n172.31.0.0/16 dev br-0123456789ab proto kernel scope link src 172.31.0.1\n"
NEAR = "# ip route\ndefault via 192.0.2.1 dev ens9\n192.0.2.0/24 dev ens9 proto kernel scope link src 192.0.2.20\n"
ONLINK = "10.77.8.0/26 via 192.0.2.30 dev tunl0  proto bird onlink\n"
HEAD = NEAR.replace("ip route", "ip route | head -2")
TO_SERVICES = (
    f"{NEAR}10.96.0.0/12 dev wg7 scope link src 10.9.0.1\n10.9.0.0/24 dev wg7 proto kernel scope link src 10.9.0.1\n10.8.0.0/16"
)
IPVS = """\
# ipvsadm -Ln
Prot LocalAddress:Port Scheduler Flags
TCP  10.97.0.1:443 rr
  -> 192.0.2.41:6443              Masq    1      0          0
  -> 192.0.2.42:6443              Masq    1      0          0
# ip a
6: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default
    link/ether 02:9a:7b:1c:5d:3e brd ff:ff:ff:ff:ff:ff
    inet 10.97.0.1/32 scope global kube-ipvs0
"""
CUT = """\
table inet gate {
    chain entry {
        type filter hook input priority 0; policy drop;
        iifname "lo" accept
        tcp dport 22 ac"""
LOOSE = """\
```
        chain pass {
                type filter hook forward priority filter; policy drop;
                counter packets 3 bytes 180 jump nowhere
        }
```
```
table ip6 gate {
        chain other {
        }
}
```
"""
LOOSE_MAP = """\
        map closed {
                type ipv4_addr . inet_proto . inet_service : verdict
                elements = { 198.51.100.8 . tcp . 80 : drop,
"""
ROWS = """\
6322K 4565M shop-77  all  --  pod77 *       0.0.0.0/0            0.0.0.0/0           [goto]
1774K  132M DROP       all  --  *      *       0.0.0.0/0            0.0.0.0/0
"""
LINK = """\
# iptables -nvL
Chain GATE (1 references)
 pkts bytes target     prot opt in     out     source               destination
   77  4620 DROP       0    --  !br-shop br-shop  0.0.0.0/0            0.0.0.0/0
    0     0 DROP       0    --  !br-mail br-mail  0.0.0.0/0            0.0.0.0/0
"""
INVALID = """\
Chain cali-tw-cali0123456789a (1 references)
 pkts bytes target     prot opt in     out     source               destination
    1    84 ACCEPT     all  --  any    any     anywhere             anywhere             ctstate RELATED,ESTABLISHED
   20  1200 DROP       all  --  any    any     anywhere             anywhere             ctstate INVALID
    0     0 DROP       all  --  any    any     anywhere             anywhere
"""
TRACE = (
    "trace id 7a0b11ff inet gate pass rule jump pass_lan (verdict jump pass_lan)\n"
    "trace id 7a0b11ff inet gate pass rule reject with icmpx type admin-prohibited (verdict drop)\n"
)
LACKING = f"-A cali-INPUT -i cali+ -g cali-wl-to-host\n{LOG.replace('OUT=ens9', 'OUT=').replace('IN=br9', 'IN=cali77')}"
BOTH_REJECT = """\
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -j REJECT --reject-with icmp-host-prohibited
-A FORWARD -j REJECT --reject-with icmp-host-prohibited
"""
TRACKED = (
    "tcp 6 99 SYN_SENT src=192.0.2.9 dst=10.97.0.9 sport=40000 dport=80 [UNREPLIED]"
    " src=10.77.9.4 dst=192.0.2.9 sport=80 dport=40000\n"
)
REFUSED_ROUTE = "# ip route get 10.77.9.4 from 10.77.8.9 iif tun9\nRTNETLINK answers: Invalid cross-device link\n"
ALLOWED = "# iptables-save | grep br7\n-A INPUT -i br7 -p udp -m udp --dport 53 -j ACCEPT\n"
CAPTURED = "".join(
    f"12:00:0{second}.1 ens9  Out IP 192.0.2.9.40000 > 10.77.9.4.80: Flags [S], seq 1, win 64240, length 0\n"
    for second in (1, 2, 4)
)
UNANSWERED = (
    "udp 17 29 src=10.77.8.9 dst=10.97.0.9 sport=40000 dport=53 [UNREPLIED] src=10.97.0.9 dst=10.77.8.9 sport=53 dport=40000\n"
)
MARTIAN = "[ 77.1] IPv4: martian source 10.77.9.4 from 10.77.8.9, on dev tun9\n"
BY_FORWARD = "-P FORWARD DROP"
ROW_OF_NAT = "It is this rule:\n```\nMASQUERADE  all  --  10.66.0.0/24        !10.66.0.0/16         /* not for pods */\n```\n"
TWO_STATES = "".join(
    f"```\n$ sudo iptables -S\n-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n{rules}```\n"
    for rules in (
        "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT\n-A FORWARD -i docker0 -o docker0 -j ACCEPT\n",
        "-A FORWARD -i docker0 -o docker0 -j DROP\n-A FORWARD -i docker0 ! -o docker0 -j ACCEPT\n",
    )
)
LONE_RULE = (
    "```\n-A vpn-input -s 100.64.0.0/10 ! -i vpn0 -j DROP\n```\n$ ip route | grep 100\n100.70.9.9 via <GATEWAY> dev ens9\n"
)
REJECTING_ROW = (
    "   13   780 REJECT     0    --  *      *       0.0.0.0/0            0.0.0.0/0            /* no policy permits it */"
    " mark match ! 0x10000/0x10000 reject-with icmp-port-unreachable\n"
)
MASQUERADE = "-A POSTROUTING -s 172.31.0.0/16 ! -o docker0 -j MASQUERADE\n"
OF_DOCKER = (
    f"{NEAR}172.31.0.0/16 dev docker0 proto kernel scope link src 172.31.0.1\n# iptables -t nat -S POSTROUTING\n{MASQUERADE}"
)
SERVICE = (
    "Chain KUBE-SEP-AB12CD34EF56GH78\n"
    "KUBE-MARK-MASQ  all  --  192.0.2.41           0.0.0.0/0            /* default/kubernetes:https */\n"
    "DNAT       tcp  --  0.0.0.0/0            0.0.0.0/0            /* default/kubernetes:https */ tcp to:192.0.2.41:6443\n"
    "```\nThe routes are simple:\n```\n"
    "0.0.0.0         198.51.100.1    0.0.0.0           UG        0 0          0 wan0\n"
    "192.0.2.0       0.0.0.0         255.255.255.0     U         0 0          0 lan0\n"
)
CONNMARK = "-A PREROUTING -i ens9 -m addrtype --dst-type LOCAL -j CONNMARK --set-xmark 0x80/0x80\n"


@pytest.mark.parametrize(
    ("text", "line", "named", "ask"),
    [
        (NFT, f"tcp 10.5.0.5:40000 > {OTHER} in pod7", "inet gate pass: type filter hook forward", ROUTES),
        (NODE_PORT, f"tcp {FROM} > {TO}:30444 in ens9", "shop/front: has no local endpoints", ROUTES),
        (HALF, f"tcp {FROM} > {TO}:30444 in ens9", "shop/front: has no local endpoints", "iptables-save -t nat"),
        (REFUSED, f"tcp {FROM} > {TO}:30455 in ens9", "shop/back has no endpoints", ROUTES),
        (
            TUNNELS,
            "icmp 10.77.8.9 > 10.77.9.4 in tunl0",
            "is dev ens9 (32766: from all lookup main), by ip route 10.77.8.0/26 via 192.0.2.30 dev ens9",
            "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.tunl0.rp_filter",
        ),
        (TABLE, f"tcp {FROM} > 10.77.9.4:80 in ens9", "ip route default dev tun9 table 77", "ip rule"),
        (
            RULES,
            "tcp 10.88.1.5:40000 > 10.88.1.6:80 in eniaabbccdd001",
            "1536: from 10.88.1.5 to 10.88.0.0/16 lookup 4",
            "ip route show table 4",
        ),
        (CHAIN, f"tcp 100.71.0.9:40000 > {TO}:22 in ens9", "-A vpn-input -s 100.64.0.0/10 ! -i vpn0 -j DROP", RULES_OF_FILTER),
        (
            CHAIN,
            "tcp the node > 100.71.0.9:22",
            "its reply is dropped (ip filter: -A vpn-input -s 100.64.0.0/10",
            RULES_OF_FILTER,
        ),
        (ROW_OF_NAT, "tcp 10.66.0.9 > 10.99.0.7:80", "translated (ip nat: -A UNNAMED -s 10.66.0.0/24 ! -d 10.66.0.0/16", ROUTES),
        (MASQUERADE, "tcp 172.31.0.2 > 10.66.0.7:80 in docker0", "translated (ip nat: -A POSTROUTING -s 172.31.0.0/16", ROUTES),
        (RULES, "tcp 10.88.1.5 > 10.88.1.6:80", "and its reply arrives, because table 4 leads", "ip route show table 4"),
        (TWO_STATES, "tcp 172.31.0.2 > 172.31.0.3:6379 in docker0", "-A FORWARD -i docker0 -o docker0 -j DROP", ROUTES),
        (LONE_RULE, "udp the node > 100.70.9.9:53", "its reply is dropped (ip filter: -A vpn-input", RULES_OF_FILTER),
        (REJECTING_ROW, "tcp 10.66.0.9 > 10.77.9.4:80", "the packet is rejected (ip filter: -A UNNAMED", RULES_OF_FILTER),
        (MASQUERADE, f"tcp 172.31.0.2 > {OTHER}", "forwarded by assumed-link (ip route 9.9.9.9 dev assumed-link", ROUTES),
        (
            SERVICE,
            "tcp the node > 10.96.0.1:443",
            "scope link) with the source of wan0, translated (ip nat: -A KUBE-SEP-",
            "iptables-save -t nat",
        ),
        (OF_A_LINK, "tcp 172.31.0.2:40000 > 100.71.0.9:443 in docker0", 'oifname "vpn0" ct state', ROUTES),
        (WITHOUT_LINKS, f"tcp 10.66.0.9:40000 > {OTHER} in virbr7", BY_FORWARD, ROUTES),
        (OF_CALICO, "tcp 10.77.8.9:40000 > 10.77.9.4:81 in tunl0", "Drop if no policies passed packet", ROUTES),
        (LOG, "udp 10.66.0.9:40001 > 198.51.100.53:53 in br9", "in FORWARD with the prefix 'Guard-drop:'", "iptables-save"),
        (
            LOG.replace("Guard-drop", "filter_FWD_public_REJECT"),
            "udp 10.66.0.9:40001 > 198.51.100.53:53 in br9",
            "with the prefix 'filter_FWD_public_REJECT:'",
            "nft list ruleset",
        ),
        (CUT, f"tcp {FROM} > {TO}:8080 in ens9", "inet gate entry: type filter hook input", ROUTES),
        (LOOSE, "tcp [fd00:1::9]:40000 > [fd00:2::9]:443 in ens9", "ip6 gate pass: type filter", "ip -6 route show table all"),
        (LOOSE_MAP, "tcp 10.66.0.9:40000 > 198.51.100.8:80 in br9", "198.51.100.8 . tcp . 80 : drop", "nft list ruleset"),
        (ROWS, f"tcp 10.66.0.9:40000 > {OTHER} in pod78", "-A UNNAMED -j DROP has 1774000 packets", RULES_OF_FILTER),
        (LINK, f"tcp {FROM} > 172.31.0.3:80 in ens9", "-A GATE ! -i br-shop -o br-shop -j DROP", RULES_OF_FILTER),
        (INVALID, "tcp 10.77.8.9:40000 > 10.77.9.4:53 in ens9", "--ctstate INVALID -j DROP has 20 packets", "conntrack -S"),
        (TRACE, f"tcp {FROM} > {OTHER} in lan0", "inet gate pass: reject with icmpx type admin-prohibited", "nft list ruleset"),
        (LACKING, "udp 10.66.0.9:40001 > 198.51.100.53:53 in cali77", "one of chain cali-wl-to-host", "iptables-save"),
        (
            REFUSED_ROUTE,
            "tcp 10.77.8.9:40000 > 10.77.9.4:80 in tun9",
            "net.ipv4.conf.tun9.rp_filter",
            "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.tun9.rp_filter",
        ),
        (
            MARTIAN,
            "tcp 10.77.8.9:40000 > 10.77.9.4:80 in tun9",
            "net.ipv4.conf.tun9.rp_filter",
            "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.tun9.rp_filter",
        ),
        (
            UNANSWERED,
            "udp 10.77.8.9:40000 > 10.97.0.9:53 in ens9",
            "no answer comes back: conntrack",
            "tcpdump -ni any host 10.97.0.9",
        ),
        (CAPTURED, "tcp the node > 10.77.9.4:80", "the packet leaves by ens9", "ip route get 10.77.9.4"),
        (
            TRACKED,
            f"tcp {FROM} > 10.97.0.9:80 in ens9",
            "the node sends it to 10.77.9.4 port 80, which does not answer",
            "iptables-save -t nat",
        ),
    ],
)
def test_what_is_likely_is_named_with_its_line_and_one_command(text: str, line: str, named: str, ask: str) -> None:
    found = answer(text, line)
    assert (found["verdict"], found["certain"]) == ("unknown", False)
    likely, _next, _rest = found["reason"].partition(f" `{ask}` shows wh")
    assert _next and "is likely that" in likely.partition(".")[0] and named in likely, found["reason"]


@pytest.mark.parametrize(
    ("text", "line", "verdict", "named"),
    [
        (SENTENCE, "icmp the node > 10.99.3.7", "dropped", "blackhole 10.99.3.0/26"),
        (SPANNING, "icmp the node > 10.99.3.7", "dropped", "blackhole 10.99.3.0/26"),
        (DOWN, "icmp the node > 10.99.4.7", "dropped", "flannel.1 is down"),
        (GET, f"tcp {OTHER} > 10.55.6.7:40000 in ens9", "forwarded", "by which it came in, by ip route 10.55.6.7 via"),
        (BRIDGE, "tcp the node > 172.31.4.4:443", "delivered", "by ip route 172.31.0.0/16 dev br-0123456789ab"),
        (ALLOWED, "udp 10.66.0.9:40001 > 10.66.0.1:53 in br7", "unknown", "or its reply: `nft list ruleset`"),
        (CONNMARK, f"tcp {FROM} > {TO}:30444 in ens9", "unknown", "`ip route show table all` shows which."),
        (OF_DOCKER, f"tcp 172.31.0.2 > {OTHER} in docker0", "forwarded", "-o docker0 -j MASQUERADE translates it."),
        (HEAD, f"tcp 10.66.0.9:40000 > {OTHER} in cni7", "forwarded", "leaves by ens9. Nothing in the outputs stops the packet"),
        (ONLINK, "tcp the node > 10.77.8.7:443", "forwarded", "It takes ip route 10.77.8.0/26 via 192.0.2.30 dev tunl0 onlink"),
        (TO_SERVICES, "tcp the node > 10.96.0.1:443", "forwarded", "It takes ip route 10.96.0.0/12 dev wg7"),
        (NEAR, "tcp the node > 192.0.2.77:443", "forwarded", "It takes ip route 192.0.2.0/24 dev ens9"),
        (SENTENCE, "icmp the node > 10.99.3.7", "dropped", "`ip route show table all` shows whether it is so."),
        (f"-A INPUT -j OWN\n{BOTH_REJECT}", f"tcp {FROM} > 10.77.9.4:80 in ens9", "rejected", "-A FORWARD -j REJECT"),
        (BOTH_REJECT, f"tcp {FROM} > {TO}:6443 in ens9", "rejected", "(ip filter: -A INPUT -j REJECT --reject-with"),
        (
            "# ipvsadm -Ln\nTCP  127.0.0.1:30444 rr\n  -> 10.77.9.4:80  Masq 1 0 0\n",
            "tcp the node > 127.0.0.1:30444",
            "dropped",
            "do not pass lo: 127.0.0.1:30444 is translated to 10.77.9.4",
        ),
    ],
)
def test_the_first_sentences_name_the_line_that_decides(text: str, line: str, verdict: str, named: str) -> None:
    found = answer(text, line)
    assert (found["verdict"], found["certain"]) == (verdict, False)
    assert named in found["reason"][:300], found["reason"]


def test_a_link_that_a_cut_listing_lacks_is_assumed() -> None:
    found = answer(IPVS, "tcp 10.244.7.5:40000 > 10.97.0.1:443 in ens9")
    assert not found["certain"] and "ens9 is not known. It is assumed to be a network interface that is up." in found["assumed"]


def test_a_rule_that_a_sentence_quotes_is_not_added_to_those_of_an_output() -> None:
    rules = "# iptables-save\n*filter\n:FORWARD DROP [0:0]\nCOMMIT\nIt helps to add `-A FORWARD -j ACCEPT` by hand.\n"
    found = answer(rules, "tcp 10.66.0.9:40000 > 9.9.9.9:443 in virbr7")
    assert BY_FORWARD in found["reason"].partition(".")[0]
