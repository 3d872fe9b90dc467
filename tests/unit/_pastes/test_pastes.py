# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pasted outputs of old and new tools, damaged ones too, give the snapshot that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import commands, iptables_list, pastes

CASES = Path(__file__).parents[2] / "integration/_trace/cases"


def read(**texts: str) -> dict[str, Any]:
    return pastes.read({name.replace("_", "-"): text for name, text in texts.items()}).snapshot


def by_name(snapshot: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in snapshot["links"]}


def table(snapshot: dict[str, Any], name: str, family: str = "ip") -> list[str]:
    found = [one["save"] for one in snapshot["iptables"] if (one["family"], one["table"]) == (family, name)]
    assert len(found) == 1
    return str(found[0]).splitlines()


@pytest.mark.parametrize(
    ("name", "kind", "family", "of"),
    [
        ("ip-rule", commands.RULE, "", ""),
        ("ip-6-rule", commands.RULE, "ipv6", ""),
        ("ip -6 route show table 100", commands.ROUTE, "ipv6", "100"),
        ("ip-route-show-table-main.txt", commands.ROUTE, "", "main"),
        ("ip-route-table-1003", commands.ROUTE, "", "1003"),
        ("ip r s", commands.ROUTE, "", ""),
        ("ip ru l", commands.RULE, "", ""),
        ("ip -d link", commands.LINK, "", ""),
        ("ip-neigh", commands.NEIGHBOUR, "", ""),
        ("iptables-save", commands.IPTABLES, "ipv4", ""),
        ("ip6tables-save", commands.IPTABLES, "ipv6", ""),
        ("iptables-save -t nat", commands.IPTABLES, "ipv4", "nat"),
        ("iptables -t nat -L -n -v", commands.IPTABLES_LIST, "ipv4", "nat"),
        ("iptables -nvL", commands.IPTABLES_LIST, "ipv4", ""),
        ("iptables -S", commands.IPTABLES, "ipv4", "filter"),
        ("iptables --list-rules", commands.IPTABLES, "ipv4", "filter"),
        ("iptables -t raw -xvnL cali-PREROUTING --line-numbers", commands.IPTABLES_LIST, "ipv4", "raw"),
        ("iptables -L cali-tw-cali1 -t filter -n", commands.IPTABLES_LIST, "ipv4", "filter"),
        ("ip6tables -nvt mangle -L", commands.IPTABLES_LIST, "ipv6", "mangle"),
        ("iptables-t-nat-nvL", commands.IPTABLES_LIST, "ipv4", "nat"),
        ("iptables --table=nat --list", commands.IPTABLES_LIST, "ipv4", "nat"),
        ("ip r get 10.0.0.5 from 10.0.0.4 iif eth0", commands.ROUTE_GET, "", ""),
        ("ebtables-save", commands.EBTABLES, "", ""),
        ("ebtables -t nat -L", commands.EBTABLES_LIST, "", "nat"),
        ("ipset-list", commands.IPSET, "", ""),
        ("ipvsadm-ln", commands.IPVS, "", ""),
        ("nft-list-ruleset", commands.NFT, "", ""),
        ("nft -j list ruleset", commands.NFT_JSON, "", ""),
        ("sysctl--a", commands.SYSCTL, "", ""),
        ("route -n", commands.ROUTE_N, "", ""),
    ],
)
def test_a_name_tells_its_command(name: str, kind: str, family: str, of: str) -> None:
    (part,) = commands.parts(name, "x")
    assert (part.kind, part.family, part.table) == (kind, family, of)


@pytest.mark.parametrize(
    "prompt",
    [
        "$ ",
        "# ",
        "[root@node-1 ~]# ",
        "root@node:/# ",
        "admin@ip-10-0-0-1:~$ ",
        "> $ ",
        "$ sudo ",
        "core@node ~ $ ",
        "gke-node ~ # ",
        "\u276f ",
        "~/code \u276f ",
        "\u279c  ~ sudo ",
        "",
    ],
)
def test_prompts_divide_a_text(prompt: str) -> None:
    text = f"{prompt}ip rule\n0:\tfrom all lookup local\n{prompt}ip route show table 100 | grep eth1\n"
    text += "default via 10.0.1.1 dev eth1\n"
    snapshot = read(report=text)
    assert [one["priority"] for one in snapshot["rules"]] == [0]
    assert [(one["table"], one["dev"]) for one in snapshot["routes"]] == [("100", "eth1")]


def test_the_time_before_each_line_of_a_console_is_left_out() -> None:
    lines = ["Chain INPUT (policy DROP)", "target prot opt source destination", "DROP all -- anywhere anywhere"]
    for before in ("[ 14.414142] : ", "[   14.414142] cloud-init[77]: "):
        (table,) = read(report="\n".join(before + line for line in lines))["iptables"]
        assert (table["save"].count("-A INPUT -j DROP"), table["save"].count(":INPUT DROP")) == (1, 1)


def test_a_text_that_nothing_names_is_told_by_its_look() -> None:
    snapshot = read(
        note="my node cannot reach it:\n0: from all lookup local\n32766: from all lookup main\n"
        "2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500\n    link/ether 00:0d:3a:00:00:01 brd ff:ff:ff:ff:ff:ff\n"
        "default via 10.0.0.1 dev eth0\n10.0.0.1 dev eth0 lladdr 12:34:56:78:9a:bc REACHABLE\n"
        "net.ipv4.conf.eth0.rp_filter = 1\n*nat\n-A POSTROUTING -o eth0 -j MASQUERADE\nCOMMIT\n"
    )
    assert len(snapshot["rules"]) == 2 and len(snapshot["routes"]) == 1 and len(snapshot["neighbors"]) == 1
    assert snapshot["settings"]["ipv4"] == {"eth0": {"rp_filter": 1}}
    assert by_name(snapshot)["eth0"]["mac"] == "00:0d:3a:00:00:01"
    assert "-A POSTROUTING -o eth0 -j MASQUERADE" in table(snapshot, "nat")


def test_rules_have_what_policy_routes_calls_them() -> None:
    text = "0:\tfrom all lookup local\n512:\tfrom all to 10.1.0.5 lookup main\n"
    text += "1024:\tnot from all fwmark 0x80/0x80 iif eth0 lookup eni-1\n"
    text += "2000: from 10.0.0.0/8 unreachable\n3000: from all lookup [l3mdev-table]\n"
    assert [
        {key: one.get(key) for key in ("priority", "to", "fwmark", "not", "action", "l3mdev", "from")}
        for one in read(ip_rule=text)["rules"]
    ][1:] == [
        {"priority": 512, "to": "10.1.0.5", "fwmark": None, "not": None, "action": None, "l3mdev": None, "from": None},
        {"priority": 1024, "to": None, "fwmark": "0x80/0x80", "not": True, "action": None, "l3mdev": None, "from": None},
        {
            "priority": 2000,
            "to": None,
            "fwmark": None,
            "not": None,
            "action": "unreachable",
            "l3mdev": None,
            "from": "10.0.0.0/8",
        },
        {"priority": 3000, "to": None, "fwmark": None, "not": None, "action": None, "l3mdev": True, "from": None},
    ]


def test_a_table_with_a_name_is_the_same_table_in_rules_and_routes() -> None:
    snapshot = read(ip_rule="100: from all lookup blue\n", report="$ ip route show table blue\ndefault via 10.0.0.1 dev eth0\n")
    assert next(rule for rule in snapshot["rules"] if rule["priority"] == 100)["table"] == snapshot["routes"][0]["table"]


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("default via 10.0.0.1 dev eth0 proto dhcp src 10.0.0.4 metric 100", {"to": "default", "via": "10.0.0.1", "metric": 100}),
        ("10.1.0.5 dev veth1 scope link", {"to": "10.1.0.5", "scope": "link"}),
        ("unreachable 10.9.0.0/16 metric 4278198272", {"type": "unreachable", "metric": 4278198272}),
        ("blackhole 10.8.0.0/24", {"type": "blackhole"}),
        ("blackhole fd00::6 dev lo metric 5 pref medium", {"type": "blackhole", "to": "fd00::6", "dev": None, "metric": 5}),
        ("unreachable default dev lo metric 4294967295 error -101 pref medium", {"type": "unreachable", "dev": None}),
        ("default via fe80::1 dev eth0 proto ra metric 100 expires 1799sec pref medium", {"family": "ipv6", "via": "fe80::1"}),
        ("default nexthop via 10.0.0.1 dev eth0 weight 1 nexthop via 10.0.0.2 dev eth0 weight 2", {"to": "default"}),
        ("10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.4   <--- this one", {"src": "10.0.0.4"}),
    ],
)
def test_routes(line: str, entry: dict[str, Any]) -> None:
    (found,) = read(ip_route=f"{line}\n")["routes"]
    assert {key: found.get(key) for key in entry} == entry


def test_links_of_brief_lists() -> None:
    text = (
        "lo               UNKNOWN        127.0.0.1/8 ::1/128 \n"
        "eth0             UP             172.16.0.9/24 metric 100 fe80::216:3eff:fe00:1/64 \n"
        "vethbc3a89d1@if3 UP             \neth1             DOWN           \n"
    )
    links = by_name(read(ip__br_addr=text))
    assert [one["address"] for one in links["eth0"]["addresses"]] == ["172.16.0.9/24", "fe80::216:3eff:fe00:1/64"]
    assert links["vethbc3a89d1"]["kind"] == "veth" and ("UP" in links["eth0"]["flags"], links["eth1"]["flags"]) == (True, [])
    line = "cni0             DOWN           0a:58:0a:f4:01:01 <NO-CARRIER,BROADCAST,MULTICAST,UP> \n"
    (bridge,) = read(ip__br_link=line)["links"]
    assert (bridge["mac"], bridge["flags"]) == ("0a:58:0a:f4:01:01", ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"])


def test_chains_that_a_grep_lost_are_connected_up_to_the_first() -> None:
    found = read(iptables_save=":KUBE-SVC-A - [0:0]\n-A KUBE-NODEPORTS -p tcp -m tcp --dport 31234 -j KUBE-SVC-A\n")
    rules = table(found, "nat")
    assert (
        "-A PREROUTING -j KUBE-SERVICES" in rules and "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS" in rules
    )


@pytest.mark.parametrize("end", ["MASQUERADE --random-fully", "CONNMARK --restore-mark", "SNAT --to-source 10.0.0.4 --random"])
def test_a_rule_may_end_with_an_option_that_takes_no_value(end: str) -> None:
    rule = f"-A POSTROUTING -j {end}"
    assert rule in table(read(iptables_save=f"*nat\n:POSTROUTING ACCEPT [0:0]\n{rule}\nCOMMIT\n"), "nat")


def test_next_hops_may_be_on_lines_of_their_own() -> None:
    text = "default proto static\n\tnexthop via 10.0.0.1 dev eth0 weight 1\n\tnexthop via 10.0.1.1 dev eth1 weight 1\n"
    assert [hop["dev"] for hop in read(ip_route=text)["routes"][0]["nexthops"]] == ["eth0", "eth1"]


@pytest.mark.parametrize(("detail", "settings"), [("    vrf table 10 addrgenmode eui64\n", {"table": 10}), ("", {})])
def test_a_vrf_is_known_by_its_details_or_its_flags(detail: str, settings: dict[str, int]) -> None:
    found = read(
        ip_addr=f"3: red: <NOARP,MASTER,UP,LOWER_UP> mtu 65575 qdisc noqueue state UP group default\n{detail}"
        "4: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq master red state UP group default\n",
        ip_rule="1000:\tfrom all lookup [l3mdev-table]\n",
    )
    links = by_name(found)
    assert (links["red"]["kind"], links["red"]["settings"], links["eth1"]["master"]) == ("vrf", settings, "red")
    (rule,) = (one for one in found["rules"] if one.get("l3mdev"))
    assert rule["priority"] == 1000 and "table" not in rule


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("vxlan id 7 local 10.0.0.5 dev eth0 srcport 0 0 dstport 4789", ("vxlan", "eth0", "10.0.0.5", None)),
        ("geneve id 7 remote fd00::9 ttl auto dstport 6081", ("geneve", "", None, "fd00::9")),
        ("ipip any remote any local 10.0.0.5 ttl inherit nopmtudisc", ("ipip", "", "10.0.0.5", None)),
        ("sit ip6ip remote 10.0.0.9 local 10.0.0.5 ttl 64", ("sit", "", "10.0.0.5", "10.0.0.9")),
    ],
)
def test_a_tunnel_shows_its_ends(line: str, ends: tuple[str | None, ...]) -> None:
    head = "7: tun7: <NOARP,UP,LOWER_UP> mtu 1480 qdisc noqueue state UNKNOWN\n    link/none promiscuity 0\n"
    (link,) = read(ip_d_link=f"{head}    {line}\n")["links"]
    assert tuple(map(link.get, ("kind", "parent", "local", "remote"))) == ends


def test_a_link_on_another_one_is_on_it_where_its_kind_is_shown_too() -> None:
    vlan = "5: eth0.7@eth0: <UP,LOWER_UP> mtu 1500\n    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n    vlan id 7\n"
    (link,) = read(ip_d_link=vlan)["links"]
    assert (link["kind"], link["parent"]) == ("vlan", "eth0")
    (link,) = read(ip_d_link=vlan.replace("@eth0", "@if4"))["links"]  # in another namespace
    assert (link["kind"], link["parent"]) == ("vlan", "")


def test_links_of_ip_ifconfig_and_route() -> None:
    new = read(
        ip_addr="1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n"
        "3: veth1@if2: <BROADCAST,UP,LOWER_UP> mtu 1450 qdisc noqueue master cni0 state UP group default\n"
        "    link/ether 0a:58:0a:f4:00:01 brd ff:ff:ff:ff:ff:ff link-netnsid 0\n    inet6 fe80::1/64 scope link\n"
        "4: cni0: <NO-CARRIER,BROADCAST,UP> mtu 1500\n5: eth0.100@eth0: <UP,LOWER_UP> mtu 1500\n"
    )
    links = by_name(new)
    assert {name: one["kind"] for name, one in links.items()} == {"lo": "", "veth1": "veth", "cni0": "bridge", "eth0.100": "vlan"}
    assert links["veth1"]["master"] == "cni0" and links["eth0.100"]["parent"] == "eth0"
    assert links["veth1"]["addresses"] == [{"address": "fe80::1/64", "peer": "", "scope": "link", "flags": []}]
    old = read(
        ifconfig="eth0      Link encap:Ethernet  HWaddr 00:0D:3A:00:00:01\n"
        "          inet addr:10.0.0.4  Bcast:10.0.0.255  Mask:255.255.255.0\n"
        "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n",
        route="Kernel IP routing table\nDestination     Gateway         Genmask         Flags Metric Ref    Use Iface\n"
        "0.0.0.0         10.0.0.1        0.0.0.0         UG    0      0        0 eth0\n",
    )
    eth0 = by_name(old)["eth0"]
    assert (eth0["mac"], eth0["mtu"], eth0["addresses"][0]["address"]) == ("00:0d:3a:00:00:01", 1500, "10.0.0.4/24")
    assert old["routes"][0]["via"] == "10.0.0.1"


def test_settings_that_are_no_number_are_no_damaged_lines() -> None:
    told = "net.ipv4.tcp_rmem = 4096 131072 33554432\nnet.ipv4.tcp_fastopen_key = 00000000-00000000-00000000-00000000\n"
    assert pastes.read({"sysctl-a": f"{told}net.ipv4.ip_forward = 1\nnet.ipv4.conf.eth0.rp_filter\n"}).ignored == [
        "Not understood, because it is no setting: net.ipv4.conf.eth0.rp_filter"
    ]


def test_a_host_route_by_the_uplink_of_a_node_that_is_a_container_tells_no_pod() -> None:
    link = "2: eth0@if9: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500\n    link/ether 02:42:ac:12:00:02 brd ff:ff:ff:ff:ff:ff\n"
    routes = "default via 172.18.0.1 dev eth0\n172.18.0.9 dev eth0 scope link\n10.244.0.5 dev veth1 scope host\n"
    links = by_name(read(ip_link=link, ip_route=routes))
    assert links["eth0"]["peer"] is None and links["veth1"]["peer"]["addresses"] == ["10.244.0.5"]


def test_a_pods_paste_and_a_host_route_tell_the_other_end_of_a_link() -> None:
    snapshot = read(
        ip_link="7: veth7@if3: <UP,LOWER_UP> mtu 1500\n    link/ether 0a:00:00:00:00:07 link-netnsid 1\n"
        "8: cali8@if4: <UP,LOWER_UP> mtu 1500\n",
        report="$ kubectl exec -it web -- ip a\n3: eth0@if7: <UP,LOWER_UP> mtu 1500\n    link/ether 0a:00:00:00:00:99\n"
        "    inet 10.1.0.7/32 scope global eth0\n",
        ip_route="10.1.0.8 dev cali8 scope link\n",
    )
    links = by_name(snapshot)
    assert links["veth7"]["peer"] == {"namespace": "pod", "name": "eth0", "mac": "0a:00:00:00:00:99", "addresses": ["10.1.0.7"]}
    assert links["cali8"]["peer"]["addresses"] == ["10.1.0.8"] and "10.1.0.7" not in str(links["cali8"])


@pytest.mark.parametrize("kind", ["blackhole", "unreachable", "prohibit"])
def test_a_route_that_stops_packets_is_read_with_the_loopback_that_ipv6_shows(kind: str) -> None:
    snapshot = read(ip_6_route=f"{kind} fd00:1::/64 dev lo proto bird metric 1024 pref medium\n")
    (route,) = snapshot["routes"]
    assert (route["type"], route["to"]) == (kind, "fd00:1::/64") and "dev" not in route


def test_a_route_whose_gateway_is_hidden_still_tells_its_link() -> None:
    found = pastes.read(
        {"ip route": "default via 10.xx.xx.1 dev eth0 proto dhcp src 10.x.x.9\nfd00::/8 via fe80::xxx dev eth1\n"}
    )
    assert [(one["to"], one["dev"], one.get("via")) for one in found.snapshot["routes"]] == [
        ("default", "eth0", None),
        ("fd00::/8", "eth1", None),
    ]
    assert len(found.ignored) == 2 and "hidden" in found.ignored[0]


def test_an_arrow_to_a_line_is_no_part_of_it() -> None:
    text = f"Chain FORWARD (policy ACCEPT)\n{HEAD}DROP all -- 10.0.0.0/8 0.0.0.0/0    <------- this one!\n"
    assert "-A FORWARD -s 10.0.0.0/8 -j DROP" in table(pastes.read({"iptables -L -n": text}).snapshot, "filter")


def test_links_on_one_line_each() -> None:
    links = by_name(
        read(
            ip__o_addr="1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever\n"
            "2: eth0    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever\n"
            "2: eth0    inet6 fd00::4/64 scope global \\       valid_lft forever\n",
            ip__o_link="2: eth0: <UP,LOWER_UP> mtu 1500 qdisc mq state UP \\    link/ether 00:0d:3a:00:00:01\n",
        )
    )
    assert [one["address"] for one in links["eth0"]["addresses"]] == ["10.0.0.4/24", "fd00::4/64"]
    assert links["eth0"]["mac"] == "00:0d:3a:00:00:01"


@pytest.mark.parametrize(
    "evidence",
    [
        "[91228.4] IPv4: martian source 10.1.0.5 from 10.0.0.9, on dev eth0\n",
        "$ ip route get 10.1.0.5 from 10.0.0.9 iif eth0\nRTNETLINK answers: Invalid cross-device link\n",
    ],
)
def test_martians_show_that_packets_are_filtered_by_their_way_back(evidence: str) -> None:
    found = pastes.read({"report": evidence, "ip-route": "default via 10.0.0.1 dev eth0\n"})
    assert found.snapshot["settings"]["ipv4"] == {"eth0": {"rp_filter": 1}}
    assert any("net.ipv4.conf.eth0.rp_filter is not in the paste. It is assumed to be 1" in one for one in found.assumed)
    told = pastes.read({"report": evidence, "sysctl": "net.ipv4.conf.all.rp_filter = 0\n"})
    assert "eth0" not in told.snapshot["settings"]["ipv4"]


def test_a_setting_that_a_command_names_is_read_from_its_number() -> None:
    text = "# cat /proc/sys/net/ipv4/conf/eth0/rp_filter\n1\n# sysctl -n net.ipv4.ip_forward\n0\n"
    text += "# sysctl net.ipv4.conf.all.rp_filter\nnet.ipv4.conf.all.rp_filter = 2\n"
    settings = read(report=text)["settings"]
    assert settings["ipv4"] == {"eth0": {"rp_filter": 1}, "all": {"rp_filter": 2}}
    assert settings["node"] == {"net.ipv4.ip_forward": 0}


def test_settings_of_links_that_decide_nothing_about_packets_are_left_out() -> None:
    text = "net.core.somaxconn = 4096\nnet.ipv4.ip_forward = 1\nnet.ipv4.tcp_fastopen_key = 00000000-00000000\n"
    text += "net.ipv4.neigh.default.gc_thresh1 = 128\nnet.ipv4.conf.all.rp_filter = 2\nnet.ipv4.conf.eth0.tag = 0\n"
    found = pastes.read({"sysctl -a": text})
    assert found.snapshot["settings"]["node"] == {"net.core.somaxconn": 4096, "net.ipv4.ip_forward": 1}
    assert found.snapshot["settings"]["ipv4"] == {"all": {"rp_filter": 2}} and found.ignored == []


def test_routing_tables_that_are_half_told_are_named() -> None:
    main, other = "default via 10.0.0.1 dev eth0\n", "default via 10.1.0.1 dev eth1\n"
    found = pastes.read({"ip-route": main, "ip-route-show-table-52": other})
    assert any("No output has the rules." in one and "table 52" in one for one in found.assumed)
    found = pastes.read({"ip-route": main, "ip-rule": "512: from 10.0.0.9 lookup eth1_rt\n32766: from all lookup main\n"})
    assert "No output has the routes of table eth1_rt. It is assumed to be empty." in found.assumed
    found = pastes.read({"ip-route": main, "ip-rule": "32766: from all lookup main\n32767: from all lookup default\n"})
    assert not [one for one in found.assumed if "No output" in one]


def test_settings_of_one_family_tell_nothing_about_the_other() -> None:
    assert {*read(sysctl="net.ipv4.conf.all.rp_filter = 1\n")["settings"]} == {"node", "ipv4", "effective"}


def test_a_grep_of_iptables_save_is_completed() -> None:
    found = pastes.read(
        {
            "iptables-save | grep web": "-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp --dport 80 -j KUBE-SVC-A\n"
            "-A KUBE-SVC-A -j KUBE-MARK-MASQ\n"
        }
    )
    lines = table(found.snapshot, "nat")
    assert ":KUBE-SVC-A - [0:0]" in lines and "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000" in lines
    assert any("KUBE-MARK-MASQ" in sentence for sentence in found.assumed)


def test_a_rule_that_two_greps_show_is_one() -> None:
    snapshot = read(a="$ iptables-save | grep X\n-A FORWARD -j DROP\n$ iptables-save | grep Y\n-A FORWARD -j DROP\n")
    assert table(snapshot, "filter").count("-A FORWARD -j DROP") == 1


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (
            "  100  6000 KUBE-SVC-A tcp  --  *  *  0.0.0.0/0  10.96.0.1  /* web */ tcp dpt:80",
            "-d 10.96.0.1 -p tcp -m comment --comment web -m tcp --dport 80 -j KUBE-SVC-A",
        ),
        (
            "    0     0 DROP  all  --  eth0 !eth1 10.0.0.0/8 0.0.0.0/0 ctstate INVALID,NEW",
            "-s 10.0.0.0/8 -i eth0 ! -o eth1 -m conntrack --ctstate INVALID,NEW -j DROP",
        ),
        (
            "    0     0 DNAT  tcp  --  *  *  0.0.0.0/0  0.0.0.0/0  tcp to:10.1.0.5:8080",
            "-p tcp -m tcp -j DNAT --to-destination 10.1.0.5:8080",
        ),
        (
            "RETURN  all  --  !ip-10-0-3-4.eu-west-1.compute.internal  ip-10-0-0-0.eu-west-1.compute.internal/16",
            "! -s 10.0.3.4 -d 10.0.0.0/16 -j RETURN",
        ),
        ("1   0     0 MARK  all  --  *  *  0.0.0.0/0  0.0.0.0/0  MARK or 0x4000", "-j MARK --or-mark 0x4000"),
        (
            "    0     0 KUBE-SEP-B all -- * * 0.0.0.0/0 0.0.0.0/0 statistic mode random probability 0.33333",
            "-m statistic --mode random --probability 0.33333 -j KUBE-SEP-B",
        ),
    ],
)
def test_iptables_list(line: str, rule: str) -> None:
    text = f"Chain PREROUTING (policy ACCEPT 0 packets, 0 bytes)\n pkts bytes target prot opt in out source destination\n{line}\n"
    lines = table(pastes.read({"iptables -t nat -L -n -v": text}).snapshot, "nat")
    assert f"-A PREROUTING {rule}" in lines


@pytest.mark.parametrize(
    "line",
    [
        "DROP all -- bastion.example.com anywhere",
        "DROP all -- anywhere anywhere a match of tomorrow",
        "DROP all -- anywhere anywhere ctstate",
        "DROP all",
        "and then I tried to restart it",
    ],
)
def test_a_line_of_iptables_list_is_read_as_a_whole_or_not_at_all(line: str) -> None:
    assert iptables_list.rule(line) is None


LISTED = "Chain {chain} (1 references)\nnum  target     prot opt source               destination\n{line}\n"


@pytest.mark.parametrize(
    ("chain", "entries"),
    [
        ("cali-tw-cali123", ["-A FORWARD -o cali123 -j cali-tw-cali123", "-A OUTPUT -o cali123 -j cali-tw-cali123"]),
        ("cali-fw-cali123", ["-A FORWARD -i cali123 -j cali-fw-cali123", "-A INPUT -i cali123 -j cali-fw-cali123"]),
        ("cali-FORWARD", ["-A FORWARD -j cali-FORWARD"]),
        ("KUBE-EXTERNAL-SERVICES", ["-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES"]),
        ("of-a-program-that-is-not-known", []),
    ],
)
def test_a_chain_that_was_listed_alone_is_entered_as_its_program_does(chain: str, entries: list[str]) -> None:
    text = LISTED.format(chain=chain, line="7    DROP       all  --  0.0.0.0/0            0.0.0.0/0")
    found = pastes.read({"report": f"$ iptables -L {chain} -t filter -n --line-number\n{text}"})
    lines = table(found.snapshot, "filter")
    assert f"-A {chain} -j DROP" in lines and not found.ignored
    assert all(entry in lines for entry in entries)
    assert sum(line.endswith(f"-j {chain}") for line in lines) >= len(entries)
    assert sum(f"jumps to chain {chain}." in one for one in found.assumed) == sum(f"-j {chain}" in line for line in lines)


GREP = "$ iptables-save | grep -v comment\n"


@pytest.mark.parametrize(
    ("rules", "table_name"),
    [
        (["-A POSTROUTING -j OWN", "-A OWN -d 10.0.0.0/8 -j NEXT", "-A NEXT -j RETURN"], "nat"),
        (["-A FORWARD -j OWN", "-A OWN -j DROP"], "filter"),
        (["-A OUTPUT -j OWN", "-A OWN -j NEXT", "-A NEXT -j DNAT --to-destination 10.0.0.1"], "nat"),
        (["-A OUTPUT -j OWN", "-A OWN -j DROP"], "filter"),
        (["-A PREROUTING -j OWN", "-A OWN -m rpfilter --invert -j DROP"], "raw"),
        (["-A PREROUTING -i eth0 -j CONNMARK --set-xmark 0x80/0x80"], "mangle"),
        (["-A PREROUTING -j OWN", "-A OWN -p tcp -j TPROXY --on-port 1"], "mangle"),
        (["-A KUBE-EXTERNAL-SERVICES -p tcp -m tcp --dport 30080 -j DROP"], "filter"),
        (["-A KUBE-SERVICES -d 10.96.0.9/32 -j DROP"], "filter"),
        (["-A PREROUTING -d 10.1.0.7/32 ! -i br-1 -j DROP"], "mangle"),
    ],
)
def test_chains_that_jump_to_each_other_are_in_one_table(rules: list[str], table_name: str) -> None:
    (entry,) = pastes.read({"report": GREP + "\n".join(rules)}).snapshot["iptables"]
    assert entry["table"] == table_name and all(rule in entry["save"].splitlines() for rule in rules)


def test_kube_proxys_chains_in_two_tables_are_told_apart_by_their_rules() -> None:
    rules = {
        "filter": ["-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES", "-A KUBE-SERVICES -d 10.96.0.9/32 -j REJECT"],
        "nat": [
            "-A PREROUTING -j KUBE-SERVICES",
            "-A KUBE-SERVICES -j KUBE-SVC-A",
            "-A KUBE-SVC-A -j DNAT --to-destination 10.1.1.1",
        ],
    }
    snapshot = read(a=GREP + "\n".join([*rules["nat"], *rules["filter"]]))
    assert all(rule in table(snapshot, name) for name, own in rules.items() for rule in own)


def test_what_kube_proxy_marks_to_drop_is_dropped() -> None:
    rules = ["-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-XLB-A", "-A KUBE-XLB-A -j KUBE-MARK-DROP"]
    found = pastes.read({"report": GREP + "\n".join(rules)})
    lines = table(found.snapshot, "filter")
    assert "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP" in lines and "-A INPUT -j KUBE-FIREWALL" in lines
    assert any(sentence.startswith("Chain KUBE-FIREWALL (ip filter) is not in the paste") for sentence in found.assumed)
    whole = pastes.read({"report": GREP + "\n".join(rules), "iptables-save": "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"})
    assert "KUBE-FIREWALL" not in "".join(table(whole.snapshot, "filter"))


HEAD = "target     prot opt source               destination\n"


@pytest.mark.parametrize(
    ("chains", "line", "name"),
    [
        (["POSTROUTING"], "MASQUERADE  all  --  0.0.0.0/0  0.0.0.0/0", "nat"),
        (["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"], "X  all  --  0.0.0.0/0  0.0.0.0/0", "nat"),
        (["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"], "X  all  --  0.0.0.0/0  0.0.0.0/0", "mangle"),
        (["PREROUTING", "OUTPUT"], "CT  all  --  0.0.0.0/0  0.0.0.0/0  CT notrack", "raw"),
        (["INPUT", "FORWARD", "OUTPUT"], "DROP  all  --  0.0.0.0/0  0.0.0.0/0", "filter"),
    ],
)
def test_a_listing_without_its_command_is_of_the_table_that_has_its_chains(chains: list[str], line: str, name: str) -> None:
    text = "\n".join(f"Chain {chain} (policy ACCEPT)\n{HEAD}{line}\n" for chain in chains)
    (entry,) = pastes.read({"report": text}).snapshot["iptables"]
    assert entry["table"] == name


def test_two_listings_without_their_commands_are_of_two_tables() -> None:
    chains = ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING", "INPUT", "FORWARD", "OUTPUT")
    text = "".join(f"Chain {chain} (policy ACCEPT)\n{HEAD}\n" for chain in chains)
    assert [entry["table"] for entry in pastes.read({"report": text}).snapshot["iptables"]] == ["filter", "nat"]


def test_chains_that_the_paste_names_and_does_not_show_are_lacking() -> None:
    text = LISTED.format(chain="FORWARD", line="1  X all -- 0.0.0.0/0 0.0.0.0/0\n2  KUBE-MARK-MASQ all -- 0.0.0.0/0 0.0.0.0/0")
    (entry,) = pastes.read({"iptables -L": text}).snapshot["iptables"]
    assert entry["lacking"] == ["X"]


GET = "$ ip r get 10.244.0.5\n10.244.0.5 dev cali1 src 172.16.1.144 uid 0 \n    cache \n"


def test_the_answer_of_ip_route_get_is_the_route_where_no_output_has_it() -> None:
    found = pastes.read({"report": GET})
    (route,) = found.snapshot["routes"]
    assert (route["to"], route["dev"]) == ("10.244.0.5", "cali1") and not found.ignored
    assert "172.16.1.144/32" in [address["address"] for link in found.snapshot["links"] for address in link["addresses"]]
    assert any("What ip route get answered is assumed" in sentence for sentence in found.assumed)
    both = pastes.read({"report": f"{GET}$ ip route\ndefault via 10.0.0.1 dev eth0\n"})
    assert [one["to"] for one in both.snapshot["routes"]] == ["default"]


def test_an_address_of_table_local_is_in_the_network_to_which_the_kernel_has_a_route() -> None:
    text = (
        "fd00:1::/64 dev eth1 proto kernel metric 256 pref medium\n"
        "fd00:2::/48 dev eth1 proto static metric 1024 pref medium\n"
        "local fd00:1::4 dev eth1 table local proto kernel metric 0 pref medium\n"
        "local fd00:2::4 dev eth1 table local proto kernel metric 0 pref medium\n"
        "local fd00:1::5 dev eth2 table local proto kernel metric 0 pref medium\n"
    )
    links = by_name(pastes.read({"ip -6 route show table all": text}).snapshot)
    found = {name: [one["address"] for one in links[name]["addresses"]] for name in ("eth1", "eth2")}
    assert found == {"eth1": ["fd00:1::4/64", "fd00:2::4/128"], "eth2": ["fd00:1::5/128"]}


def test_the_source_of_a_route_is_an_address_of_the_node() -> None:
    text = "10.0.1.0/24 via 10.0.1.32 dev cilium_host src 10.0.1.32\n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.4\n"
    text += "default via 10.0.0.1 dev eth0 proto dhcp src 10.0.0.4 metric 100\n"
    found = pastes.read({"ip route": text})
    links = {link["name"]: [one["address"] for one in link["addresses"]] for link in found.snapshot["links"]}
    assert (links["eth0"], links["cilium_host"]) == (["10.0.0.4/24"], ["10.0.1.32/32"])
    assert [one for one in found.assumed if "10.0.0.4" in one] == []
    assert "10.0.1.32 is on no link of the paste. It is assumed to be on cilium_host." in found.assumed


def test_iptables_list_without_interfaces_says_so() -> None:
    text = "Chain FORWARD (policy DROP)\ntarget     prot opt source               destination\n"
    text += "ACCEPT     all  --  anywhere             10.0.0.0/8\n"
    found = pastes.read({"iptables -L": text})
    assert "-A FORWARD -d 10.0.0.0/8 -j ACCEPT" in table(found.snapshot, "filter")
    assert any("does not show interfaces" in sentence for sentence in found.assumed)


def test_a_rule_that_accepts_all_before_others_is_for_the_loopback_if_no_interface_is_shown() -> None:
    rules = "ACCEPT all -- anywhere anywhere\nACCEPT tcp -- anywhere anywhere tcp dpt:22\nREJECT all -- anywhere anywhere\n"
    text = "".join(f"Chain {chain} (policy ACCEPT)\n{HEAD}{rules}\n" for chain in ("INPUT", "FORWARD", "OUTPUT"))
    found = pastes.read({"iptables -L": text})
    lines = table(found.snapshot, "filter")
    assert "-A INPUT -i lo -j ACCEPT" in lines and "-A OUTPUT -o lo -j ACCEPT" in lines and "-A FORWARD -j ACCEPT" in lines
    assert sum("It is assumed to be -" in sentence for sentence in found.assumed) == 2
    last = f"Chain INPUT (policy DROP)\n{HEAD}ACCEPT all -- anywhere anywhere\n"
    assert "-A INPUT -j ACCEPT" in table(pastes.read({"iptables -L": last}).snapshot, "filter")


def test_the_links_of_cilium_have_programs_that_no_paste_shows() -> None:
    snapshot = read(ip_route="10.0.1.0/24 via 10.0.1.9 dev cilium_host src 10.0.1.9\n10.0.1.9 dev cilium_host scope link\n")
    assert [one["object"] for one in snapshot["unread"]] == ["cilium_host"]
    assert by_name(snapshot)["cilium_host"]["peer"] is None  # the host route is to an address of the node


def test_sets_that_no_paste_has_are_empty() -> None:
    found = pastes.read({"iptables-save": "*filter\n-A FORWARD -m set --match-set S dst,dst,src -j DROP\nCOMMIT\n"})
    assert found.snapshot["ipsets"] == [{"name": "S", "save": "create S hash:ip,port,ip family inet\n"}]
    assert "Set S is not in the paste. It is assumed to be empty." in found.assumed


def test_nft_without_the_tables_that_iptables_has() -> None:
    text = "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat {\n chain x {\n }\n}\n"
    text += "table inet own {\n chain y {\n }\n}\n"
    found = read(nft_list_ruleset=text, iptables_save="*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")["nftables_text"]
    assert "table inet own" in found and "nat" not in found


def test_a_chain_of_nft_that_was_cut_out_of_its_table_is_met_where_its_name_tells() -> None:
    text = 'Here is the chain:\nchain own-forward {\n  oifname "tun0" ct state new drop\n}\nIt drops.\n'
    found = pastes.read({"report": text})
    assert found.snapshot["nftables_text"].splitlines() == [
        "table ip filter {",
        "chain own-forward {",
        '  oifname "tun0" ct state new drop',
        "}",
        "chain forward-of-own-forward { type filter hook forward priority 0; jump own-forward; }",
        "}",
    ]
    assert len(found.assumed) == 2


PASS = 'table inet gate {\n chain pass {\n  iifname "lan0" accept\n }\n}\n'
HALF_CHAIN = "table ip last {\n chain whole {\n  tcp dport 80 drop\n }\n chain half {\n  tcp dport 81 drop\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (HALF_CHAIN, [*HALF_CHAIN.splitlines(), "}", "}"]),
        # The rules that are missing may accept what the policy of a half chain drops.
        (PASS + HALF_CHAIN, [*PASS.splitlines(), *HALF_CHAIN.splitlines()[:4], "}"]),
        (f"```\nchain loose {{\n drop\n}}\n```\n```\n{PASS}```\n", ["table inet gate {", "chain loose {", " drop", "}", "}"]),
        (
            "map ends {\n type ipv4_addr . inet_service : verdict\n elements = { 192.0.2.8 . 80 : drop,\n",
            [
                "table ip unnamed {",
                "map ends {",
                " type ipv4_addr . inet_service : verdict",
                " elements = { 192.0.2.8 . 80 : drop,",
            ],
        ),
    ],
    ids=["alone", "beside a whole table", "a chain of the only table", "a map"],
)
def test_an_output_of_nft_without_its_end_or_its_beginning_is_read(text: str, lines: list[str]) -> None:
    found = pastes.read({"report": text})
    assert found.snapshot["nftables_text"].splitlines()[: len(lines)] == lines
    assert found.snapshot["nftables_text"].count("{") == found.snapshot["nftables_text"].count("}")
    assert any(entry["fact"] == "nft" for entry in found.snapshot["open"])


@pytest.mark.parametrize(
    "text",
    [
        "The rule `DROP       tcp  --  198.51.100.0/24      anywhere` is there.\n",
        "   12  720 DROP       tcp  --  *      *       198.51.100.0/24      0.0.0.0/0\n",
    ],
)
def test_rows_of_iptables_without_the_name_of_their_chain_are_a_chain_to_which_a_rule_may_lead(text: str) -> None:
    found = pastes.read({"report": text})
    assert "-A UNNAMED -s 198.51.100.0/24 -p tcp -j DROP" in table(found.snapshot, "filter")
    assert any(entry["fact"] == "jump:ip filter UNNAMED" for entry in found.snapshot["open"])
    assert any("It is named UNNAMED here." in sentence for sentence in found.assumed)


def test_rules_of_iptables_that_nft_prints_keep_what_decides() -> None:
    text = 'table ip nat {\n chain x {\n  ip daddr 10.96.0.1 xt match "comment" tcp dport 443 counter packets 1 bytes 60 jump y\n'
    text += '  xt match "statistic" jump y\n  xt match "comment" counter packets 0 bytes 0 xt target "MASQUERADE"\n }\n}\n'
    found = pastes.read({"nft": text})
    rules = [" ".join(line.split()) for line in found.snapshot["nftables_text"].splitlines()[2:-2]]
    first = "ip daddr 10.96.0.1 tcp dport 443 counter packets 1 bytes 60 jump y"
    assert rules == [first, "counter packets 0 bytes 0 masquerade"]
    assert len(found.ignored) == 1 and "statistic" in found.ignored[0]


def test_settings_of_links_with_dots() -> None:
    settings = read(
        sysctl="net.ipv4.conf.eth0/100.rp_filter = 1\nnet.ipv4.ip_forward=1\n/proc/sys/net/ipv4/conf/all/rp_filter: 2\n"
    )["settings"]
    assert settings["ipv4"] == {"eth0.100": {"rp_filter": 1}, "all": {"rp_filter": 2}} and settings["node"] == {
        "net.ipv4.ip_forward": 1
    }


def test_the_same_command_twice_counts_once_and_the_last_time() -> None:
    text = "$ ip route\ndefault via 10.0.0.1 dev eth0\n$ ip route\ndefault via 10.0.0.2 dev eth0\n"
    found = pastes.read({"report": text})
    assert [one["via"] for one in found.snapshot["routes"]] == ["10.0.0.2"]
    assert any("The last one is taken" in sentence for sentence in found.assumed)


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_public_reports_are_understood_line_by_line(name: str) -> None:
    found = pastes.read({path.stem: path.read_text() for path in (CASES / name).glob("*.txt")})
    assert found.ignored == []


ARTICLE = """\
In this part we look at how the packet is sent to a pod. The node has these routes:

```
$ ip route
default via 192.0.2.1 dev eth0
10.1.0.9 dev veth1 scope link
```

Nothing to see there, and the rules say that all of it is in table main.
The chains are more of a surprise, because the policy of FORWARD is DROP:

```
Chain FORWARD (policy DROP)
target     prot opt source               destination
```

    $ tcpdump -ni eth0 port 80
    12:00:01.000000 IP 198.51.100.1.40000 > 10.1.0.9.80: Flags [S], seq 1, win 64240, length 0
gw 192.0.2.1 dev eth0 src 192.0.2.4
"""


def test_an_article_reads_as_its_outputs_and_its_prose_is_counted() -> None:
    found = pastes.read({"report": ARTICLE})
    assert [route["to"] for route in found.snapshot["routes"]] == ["default", "10.1.0.9"]
    assert ":FORWARD DROP [0:0]" in table(found.snapshot, "filter")
    assert found.ignored == [
        "Not understood, because it belongs to no command that is known: gw 192.0.2.1 dev eth0 src 192.0.2.4",
        "3 lines are prose, or the output of another command, and left out.",
    ]


def test_a_failure_that_a_command_prints_is_no_prose() -> None:
    failure = "iptables v1.8.7 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)"
    found = pastes.read({"report": f"$ ip route\ndefault dev eth0\n$ iptables-save\n{failure}\nand that is all there is\n"})
    assert failure in found.ignored[0] and found.ignored[1].startswith("1 line is prose")
    assert "table:ip filter" in [fact["fact"] for fact in found.snapshot["open"]]


def test_the_comment_of_a_rule_is_no_prose() -> None:
    rule = "DROP all -- pod.example.com 0.0.0.0/0 /* this is to be dropped */"
    (sentence,) = pastes.read({"iptables -L": f"Chain FORWARD (policy ACCEPT)\n{HEAD}{rule}\n"}).ignored
    assert sentence.endswith(rule)


def test_the_lines_that_came_nearest_to_an_output_are_named() -> None:
    text = (
        "It does not work, and we do not know why.\nx -s 10.0.0.0/8 -j DROP\ngw 10.0.0.1 dev eth0 metric 5\nrp_filter\n10.0.0.9\n"
    )
    with pytest.raises(Invalid) as error:
        pastes.read({"report": text})
    assert (
        "nearest, each with the command that it may be of: x -s 10.0.0.0/8 -j DROP (iptables-save);"
        " gw 10.0.0.1 dev eth0 metric 5 (ip route); rp_filter (sysctl);"
    ) in str(error.value)


def test_nothing_understood_is_an_error() -> None:
    with pytest.raises(Invalid, match="dump must be outputs of ip"):
        pastes.read({"report": "it does not work\n"})


LINES = [
    "0: from all lookup local",
    "512: from all to 10.1.0.5 lookup main",
    "default via 10.0.0.1 dev eth0",
    "10.1.0.5 dev veth1 scope link",
    "2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500",
    "    link/ether 00:0d:3a:00:00:01 brd ff:ff:ff:ff:ff:ff",
    "    inet 10.0.0.4/24 scope global eth0",
    "*nat",
    ":PREROUTING ACCEPT [0:0]",
    "-A PREROUTING -d 10.96.0.1/32 -j DNAT --to-destination 10.1.0.5",
    "COMMIT",
    "Name: S",
    "Type: hash:ip",
    "Header: family inet",
    "Members:",
    "10.0.0.1,tcp:80",
    "TCP  10.96.0.1:80 rr",
    "  -> 10.1.0.5:80  Masq  1  0  0",
    "table ip x {",
    "}",
    "net.ipv4.conf.eth0.rp_filter = 1",
    "Chain FORWARD (policy DROP)",
    "ACCEPT tcp -- anywhere anywhere",
    "$ ip rule",
    "# iptables-save",
    "...",
    '{"nftables": []}',
    "10.0.0.1 dev eth0 lladdr 12:34:56:78:9a:bc STALE",
    "nexthop via 10.0.0.1 dev eth0",
]


@hypothesis.given(
    st.dictionaries(
        st.sampled_from(
            [
                "report",
                "ip-rule",
                "ip-route",
                "ip-addr",
                "iptables-save",
                "ipset-list",
                "ipvsadm-ln",
                "nft",
                "sysctl",
                "ip-addr-pod",
                "ebtables",
                "iptables -L",
            ]
        ),
        st.lists(
            st.one_of(
                st.sampled_from(LINES),
                st.sampled_from(LINES).flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end])),
                st.text(max_size=40),
            ),
            max_size=12,
        ).map("\n".join),
        max_size=4,
    )
)
def test_no_text_is_an_error_of_ours(dump: dict[str, str]) -> None:
    try:
        pastes.read(dump)
    except Invalid as error:
        assert error.option == "dump"


@pytest.mark.parametrize(
    "line",
    [
        "sysctl: cannot stat /proc/sys/net/bridge/bridge-nf-call-iptables: No such file or directory",
        "cat: /proc/sys/net/bridge/bridge-nf-call-iptables: No such file or directory",
        "cat: can't open '/proc/sys/net/bridge/bridge-nf-call-iptables': No such file or directory",
        "sysctl: error: 'net.bridge.bridge-nf-call-iptables' is an unknown key",
    ],
)
def test_a_kernel_without_the_setting_shows_no_frames_of_bridges_to_rules(line: str) -> None:
    settings = pastes.read({"report": f"$ sysctl net.bridge.bridge-nf-call-iptables\n{line}\n"}).snapshot["settings"]
    assert settings["node"] == {"net.bridge.bridge-nf-call-iptables": 0}


def test_rules_are_whole_if_the_kernels_first_one_has_another_place() -> None:
    """Cilium and VPNs give it a later priority."""
    moved = "$ ip rule\n9: from all fwmark 0x200/0xf00 lookup 2004\n100: from all lookup local\n32766: from all lookup main\n"
    found = pastes.read({"report": moved})
    assert [rule["priority"] for rule in found.snapshot["rules"]] == [9, 100, 32766]
    assert {(entry["fact"], entry["family"]) for entry in found.snapshot["open"] if entry["fact"] == "rules"} == {
        ("rules", "ipv6")
    }


def test_what_stands_behind_the_members_of_a_set_is_no_member() -> None:
    members = '10.0.0.1\n10.0.0.2 timeout 7 comment "of web 1"\n'
    text = (
        f"$ ipset list s\nName: s\nType: hash:ip\nHeader: family inet\nMembers:\n{members}\nThanks\nThese are blocked, I think.\n"
    )
    (found,) = pastes.read({"report": text}).snapshot["ipsets"]
    assert found["save"].splitlines()[1:] == [f"add s {member}" for member in members.splitlines()]


def test_counters_of_ipvsadm_show_the_servers_without_schedulers_and_weights() -> None:
    counted = (
        "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes\n  -> RemoteAddress:Port\n"
        "TCP  10.97.0.9:80                        1        2        0      12K        0\n"
        "  -> 10.244.1.7:8080                     1        2        0      12K        0\n"
    )
    plain = "TCP  10.97.0.9:80 rr\n  -> 10.244.1.7:8080 Masq 1 0 0\n"
    both = [read(a=f"# ipvsadm -Ln{options}\n{text}")["ipvs"] for options, text in ((" --stats", counted), ("", plain))]
    assert both[0] == both[1] != []
