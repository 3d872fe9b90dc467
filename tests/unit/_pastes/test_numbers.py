# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A number of an output that no field of the kernel holds is left out or refused by name. It ends no reading by another error."""

from __future__ import annotations

import re

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import snapshot_form

NUMBERS = (
    "1e999",
    "Infinity",
    "NaN",
    "true",
    "1" * 400,
    "1" * 5000,
    "007",
    "1_000",
    "\u0661\u0662",
    "\u00b2",
    "-1",
    "0x",
    "99999999999",
)
OUTPUTS = {
    "ip rule": "0:\tfrom all lookup local\n1024:\tfrom all fwmark 0x80/0x80 lookup 1002 suppress_prefixlength 0\n"
    "7:\tfrom all goto 99\n",
    "ip -d addr": "2: eth0@if9: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 1000\n"
    "    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff link-netnsid 0\n    vlan protocol 802.1Q id 7\n"
    "    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0\n3: red: <UP> mtu 1500\n"
    "    link/ether 02:00:00:00:00:02\n    vrf table 10\n",
    "ip -br addr": "eth0@if9  UP  10.0.0.4/24 \n",
    "ifconfig": "eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 1500\n        inet 10.0.0.4  netmask 255.255.255.0\n"
    "eth1      Link encap:Ethernet  HWaddr 02:00:00:00:00:03\n          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n",
    "ip route show table all": "default via 10.0.0.1 dev eth0 table 1002 proto dhcp metric 100 mtu 1400\n"
    "10.9.0.0/16 proto 75 nexthop via 10.0.0.1 dev eth0 weight 1 nexthop via 10.0.0.2 dev eth0 weight 2\n",
    "route -n": "0.0.0.0 10.0.0.1 0.0.0.0 UG 100 0 0 eth0\n",
    "ip -j rule": '[{"priority": 1024, "src": "all", "fwmark": "0x80", "table": "1002"}]',
    "ip -j -d addr": '[{"ifindex": 2, "ifname": "eth0", "flags": ["UP"], "mtu": 1500, "link_type": "ether", "address": '
    '"02:00:00:00:00:01", "linkinfo": {"info_kind": "vlan", "info_data": {"id": 7}}, "addr_info": [{"family": "inet", "local": '
    '"10.0.0.4", "prefixlen": 24, "scope": "global"}]}]',
    "ip -j route": '[{"dst": "default", "gateway": "10.0.0.1", "dev": "eth0", "metric": 100, "protocol": "dhcp", "flags": []}]',
    "iptables-save -c": "*filter\n:INPUT DROP [7:420]\n[3:180] -A INPUT -p tcp --dport 80 -j DROP\nCOMMIT\n",
    "iptables -nvL": "Chain INPUT (policy DROP 7 packets, 420 bytes)\n pkts bytes target prot opt in out source destination\n"
    "    3   180 DROP  6    --  *   *   0.0.0.0/0  0.0.0.0/0  tcp dpt:80 mark match 0x80/0x80\n",
    "nft list ruleset": "table ip t {\n\tset s {\n\t\ttype ipv4_addr\n\t\tsize 64\n\t\telements = { 10.0.0.9 }\n\t}\n"
    "\tchain c {\n\t\ttype filter hook input priority 10; policy accept;\n\t\ttcp dport 80 counter packets 3 bytes 180 drop\n"
    "\t\tmeta mark set 128\n\t}\n}\n",
    "nft -j list ruleset": '{"nftables": [{"metainfo": {"json_schema_version": 1}},'
    ' {"table": {"family": "ip", "name": "t"}}, '
    '{"chain": {"family": "ip", "table": "t", "name": "c", "type": "filter", "hook": "input", "prio": 10, "policy":'
    ' "accept"}}, {"set": {"family": "ip", "table": "t", "name": "s", "type": "ipv4_addr", "size": 64}}]}',
    "ipset save": "create s hash:ip family inet hashsize 1024 maxelem 65536\nadd s 10.0.0.9\n",
    "ipset list": "Name: s\nType: hash:net\nRevision: 7\nHeader: hashsize 1024 maxelem 65536\nMembers:\n10.0.0.9\n",
    "ipvsadm -Ln": "TCP  10.0.0.4:80 rr\n  -> 10.1.0.5:80 Masq 1 0 0\nFWM  7 rr\n",
    "sysctl -a": "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = 2\n",
    "ebtables-save": "*nat\n:PREROUTING ACCEPT\n-A PREROUTING -p IPv4 --ip-dst 10.0.0.9 -j dnat --to-dst 2:0:0:0:9:9 -c 7 420\n",
    "conntrack -L": "tcp 6 115 SYN_SENT src=10.0.0.4 dst=10.0.0.9 sport=40000 dport=80 [UNREPLIED] src=10.0.0.9 dst=10.0.0.4\n",
    "tcpdump": "12:00:00.5 IP 10.0.0.4.40000 > 10.0.0.9.80: Flags [S]\n12:00:02.5 IP 10.0.0.4.40000 > 10.0.0.9.80: Flags [S]",
    "nstat -asz": "#kernel\nTcpExtIPReversePathFilter       7                  0.0\n",
}


NUMBER = re.compile(r"(?<![\w.:])[0-9]+(?![\w.:])|(?<=[:/=@])[0-9]+\b|(?<=0x)[0-9]+")


def snapshot_of(command: str, output: str) -> object:
    """The snapshot, or the error that names what is wrong."""
    try:
        snapshot = pastes.read({command: output}).snapshot
        snapshot_form.check(snapshot)
    except Invalid as error:
        return str(error)
    return snapshot


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_number_that_no_field_holds_is_left_out_or_named(command: str) -> None:
    output = OUTPUTS[command]
    for place in NUMBER.finditer(output):
        for number in NUMBERS:
            snapshot_of(command, output[: place.start()] + number + output[place.end() :])


@pytest.mark.parametrize("command", OUTPUTS)
@pytest.mark.parametrize("number", ["\u0661\u0662", "1_2", "+12"])
def test_what_only_python_takes_for_a_number_is_none(command: str, number: str) -> None:
    output = OUTPUTS[command]
    for place in NUMBER.finditer(output):
        plain, other, hostile = (
            snapshot_of(command, output[: place.start()] + text + output[place.end() :]) for text in ("12", "13", number)
        )
        assert plain != hostile or plain == other, output[: place.end()]


@pytest.mark.parametrize("value", ["1e999", "Infinity", "NaN", "true", "True", "0x1", "[1]", "-"])
def test_a_setting_that_is_no_number_is_named(value: str) -> None:
    pasted = pastes.read({"sysctl -a": f"net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = {value}\n"})
    assert pasted.ignored == [f"Not understood, because it is no setting: net.ipv4.conf.all.rp_filter = {value}"]
    assert pasted.snapshot["settings"]["node"] == {"net.ipv4.ip_forward": 1} and "ipv4" not in pasted.snapshot["settings"]
