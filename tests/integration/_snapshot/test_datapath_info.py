# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datapath_info reads every object that affects a node's packets, names what it could not read, and changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import instructions
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import probe_programs
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.snapshot import SUBSETS
from lab import Lab, bpf
from lab.node import NamespaceNode
from lab.steps import Steps

CONFIGURATIONS = "/etc/cni/net.d"
SECRET = "7c0b5e2d"


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node: NamespaceNode = lab.node("node1")
    node.remove(CONFIGURATIONS)  # the host may have podman's
    return node


def look(node: NamespaceNode, *subsets: str) -> dict[str, Any]:
    """The snapshot of these subsets, or of all. Reading it leaves the node as it was."""
    before = node.snapshot()
    result = Steps(node, "datapath_info", {"gather": [*subsets]} if subsets else {}).run()
    assert not result["changed"] and node.snapshot() == before
    found: dict[str, Any] = result["snapshot"]
    node_and_time = found.pop("node")
    assert node_and_time["name"] and node_and_time["time"].endswith(" UTC")
    assert {*found} == {"format", "unread", *(subsets or SUBSETS)}
    return found


def by(key: str, entries: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {entry[key]: entry for entry in entries}


def unread(found: dict[str, Any]) -> dict[str, str]:
    return {one["object"]: one["reason"] for one in found["unread"]}


def test_a_bare_node_is_read_in_full_without_a_program_that_lists_rules(node: NamespaceNode) -> None:
    with node.count_processes() as calls:
        found = look(node)
    assert found["unread"] == []
    empty = ("nftables", "iptables", "ipsets", "ebtables", "bpf", "ipvs", "cni", "units")
    assert [found[subset] for subset in empty] == [[]] * len(empty)
    assert {call[-1] for call in calls} <= {"--version", "ruleset"}, calls


def test_nft_lists_no_table_that_iptables_prints(node: NamespaceNode) -> None:
    """nft needs seconds for the chains of thousands of Services."""
    node.run(["iptables-nft", "-A", "FORWARD", "-j", "ACCEPT"])
    node.run(["nft", "add table inet kept { chain c { ip saddr 192.0.2.1 drop ; } ; }"])
    with node.count_processes() as calls:
        found = look(node, "nftables", "iptables")
    assert [*map(set, found["nftables"])] == [{"table"}, {"chain"}, {"rule"}]
    assert [entry["table"] for entry in found["iptables"]] == ["filter"]
    assert [call[1:] for call in calls if call[0].endswith("nft")] == [["-j", "list", "table", "inet", "kept"]]
    every = look(node, "nftables")["nftables"]
    assert {entry["table"]["name"] for entry in every if "table" in entry} == {"filter", "kept"}


def test_links_have_their_settings_addresses_and_other_ends(node: NamespaceNode) -> None:
    node.ip(
        [
            "link add br0 type bridge",
            "link add pod2 type veth peer name pod2-end",
            "link set pod2 master br0 up mtu 1400",
            "link add mac0 link eth0 type macvlan mode private",
            "address add 10.9.0.1 peer 10.9.0.2/32 dev pod2-end",
        ]
    )
    node.run(["bridge", "link", "set", "dev", "pod2", "hairpin", "on"])
    found = look(node, "links")
    links = by("name", found["links"])
    assert found["unread"] == []
    (pod,) = node.pods
    assert {key: links[pod.link]["peer"][key] for key in ("name", "namespace")} == {
        "name": "eth0", "namespace": f"process {pod.pid}"
    }  # fmt: skip
    assert pod.address in links[pod.link]["peer"]["addresses"]
    assert (links["pod2"]["peer"]["name"], links["pod2"]["peer"]["namespace"]) == ("pod2-end", "")
    assert (links["pod2"]["master"], links["pod2"]["mtu"], links["pod2"]["settings"]["hairpin"]) == ("br0", 1400, 1)
    assert (links["br0"]["kind"], links["br0"]["settings"]["vlan_filtering"]) == ("bridge", 0)
    assert (links["mac0"]["parent"], links["mac0"]["settings"], links["mac0"]["peer"]) == ("eth0", {"mode": 1}, None)
    assert "UP" in links["pod2"]["flags"] and "UP" not in links["pod2-end"]["flags"]
    (address,) = links["pod2-end"]["addresses"]
    assert (address["address"], address["peer"], address["scope"]) == ("10.9.0.1/32", "10.9.0.2", "global")


def test_rules_and_routes_are_all_there_and_what_they_lack_is_named(node: NamespaceNode) -> None:
    node.ip(
        [
            "rule add priority 100 from 10.9.0.0/16 fwmark 0x80/0x80 lookup 100 protocol 75",
            "rule add priority 101 to 10.9.0.1 prohibit",
            "rule add priority 102 from 10.8.0.1 realms 5 lookup 100",
            "route add 10.9.0.0/24 via inet6 fe80::9 dev eth0 table 100",
            "route add unreachable 10.8.0.0/24 table 100 metric 7",
            "route add 2001:db8:9::/64 via fe80::9 dev eth0 table 100 protocol 75",
        ]
    )
    found = look(node, "rules", "routes")
    rules = by("priority", [rule for rule in found["rules"] if rule["family"] == "ipv4"])
    assert rules[100] == {
        "priority": 100, "family": "ipv4", "from": "10.9.0.0/16", "fwmark": "0x80/0x80", "table": "100", "protocol": "75"
    }  # fmt: skip
    assert rules[101]["action"] == "prohibit"
    assert rules[102]["unread"] == ["realms"]
    assert [rule["priority"] for rule in found["rules"]] == [0, 100, 101, 102, 32766, 32767, 0, 32766]
    routes = by("to", [route for route in found["routes"] if route["table"] == "100"])
    assert routes["10.9.0.0/24"]["unread"] == ["via inet6"]
    assert (routes["10.8.0.0/24"]["type"], routes["10.8.0.0/24"]["metric"]) == ("unreachable", 7)
    assert (routes["2001:db8:9::/64"]["via"], routes["2001:db8:9::/64"]["protocol"]) == ("fe80::9", "75")
    broadcast = [route for route in found["routes"] if route.get("type") == "broadcast"]
    assert broadcast and not any("unread" in route for route in broadcast)
    listed = node.run(["ip", "-4", "-o", "route", "show", "table", "all"]).stdout.splitlines()
    assert len([route for route in found["routes"] if route["family"] == "ipv4"]) == len(listed)
    assert [name.partition(" with ")[0] for name in unread(found)] == [
        "ip rule 102: from 10.8.0.1 lookup 100", "ip route 10.9.0.0/24 dev eth0 table 100"
    ]  # fmt: skip


def test_neighbours_are_there_and_addresses_for_which_the_node_answers(node: NamespaceNode) -> None:
    node.ip(
        [
            "neighbour add 192.0.2.99 lladdr 12:34:56:78:9a:bc nud permanent dev eth0",
            "neighbour add proxy 192.0.2.98 dev eth0",
            "neighbour add proxy 2001:db8::98 dev eth0",
        ]
    )
    found = by("address", look(node, "neighbors")["neighbors"])
    assert found["192.0.2.99"] == {"address": "192.0.2.99", "dev": "eth0", "mac": "12:34:56:78:9a:bc", "state": "PERMANENT"}
    for address in ("192.0.2.98", "2001:db8::98"):
        assert found[address] == {"address": address, "dev": "eth0", "mac": "", "state": "PROXY"}


def test_settings_are_raw_and_as_they_take_effect(node: NamespaceNode) -> None:
    link = "ve.th0"  # a name with a dot
    node.ip([f"link add {link} type veth peer name other"])
    node.set_sysctls(
        {
            "net/ipv4/conf/all/rp_filter": 1,
            "net/ipv4/conf/eth0/rp_filter": 2,
            f"net/ipv4/conf/{link}/rp_filter": 0,
            f"net/ipv4/conf/{link}/proxy_arp": 1,
            f"net/ipv6/conf/{link}/accept_ra": 1,
            f"net/ipv6/conf/{link}/forwarding": 1,
            "net/ipv6/conf/other/accept_ra": 2,
        }
    )
    settings = look(node, "settings")["settings"]
    assert [settings["ipv4"][name]["rp_filter"] for name in ("all", "eth0", link)] == [1, 2, 0]
    effective = settings["effective"]
    assert [effective["ipv4"][name]["rp_filter"] for name in ("eth0", link)] == [2, 1]
    assert [effective["ipv4"][name]["proxy_arp"] for name in ("eth0", link)] == [0, 1]
    assert (settings["ipv6"][link]["accept_ra"], effective["ipv6"][link]["accept_ra"]) == (1, 0)
    assert effective["ipv6"]["other"]["accept_ra"] == 1
    assert {"all", "default"} <= settings["ipv6"].keys() and "all" not in effective["ipv6"]
    assert settings["node"]["net.ipv4.ip_forward"] == 1


RULESET = """table inet own {
    set blocked { type ipv4_addr; elements = { 192.0.2.1 }; }
    chain forward { type filter hook forward priority 0; policy drop; ip saddr @blocked drop; }
}
"""


def _rules(node: NamespaceNode) -> None:
    node.run(["nft", "-f", "-"], RULESET)
    for program in ("iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"):
        node.run([program, "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment", f"by {program}", "-j", "MASQUERADE"])
    node.run(["ebtables-nft", "-A", "FORWARD", "-p", "IPv4", "-j", "DROP"])
    node.run(["ebtables-nft", "-P", "FORWARD", "DROP"])
    for words in ("create blocked hash:ip", "add blocked 192.0.2.1", "create in_order list:set", "add in_order blocked"):
        node.run(["ipset", *words.split()])


def test_each_table_is_there_once_as_the_program_that_owns_it_prints_it(node: NamespaceNode) -> None:
    _rules(node)
    found = look(node, "nftables", "iptables", "ipsets", "ebtables")
    assert found["unread"] == []
    of_nft = {one["table"]["name"] for one in found["nftables"] if "table" in one}
    assert of_nft == {"own"}
    assert {kind for one in found["nftables"] for kind in one} == {"table", "set", "chain", "rule"}
    saved = {(one["family"], one["backend"]): one["save"] for one in found["iptables"]}
    assert {*saved} == {("ip", "nft"), ("ip", "legacy"), ("ip6", "nft"), ("ip6", "legacy")}
    for (family, backend), text in saved.items():
        assert text.startswith("*nat\n") and text.endswith("\nCOMMIT\n")
        assert f'--comment "by {family}tables-{backend}" -j MASQUERADE\n' in text
        node.run([f"{family}tables-{backend}-restore"], text)
    assert by("name", found["ipsets"])["blocked"]["save"].splitlines()[1:] == ["add blocked 192.0.2.1"]
    assert [one["name"] for one in found["ipsets"]] == ["blocked", "in_order"]
    (forward,) = [one for one in found["ebtables"] if one["chain"] == "FORWARD"]
    assert forward == {
        "backend": "nft", "table": "filter", "chain": "FORWARD", "policy": "DROP", "rules": ["-p IPv4 -j DROP"]
    }  # fmt: skip
    again = look(node, "nftables", "iptables", "ipsets", "ebtables")
    assert again == found


def test_a_table_is_in_nft_s_listing_unless_its_own_program_prints_it(node: NamespaceNode) -> None:
    node.run(["iptables-nft", "-t", "nat", "-N", "OWN"])
    tables = [one["table"]["name"] for one in look(node, "nftables")["nftables"] if "table" in one]
    assert tables == ["nat"]
    node.run(["nft", "add rule ip nat OWN ct state vmap { established : accept }"])
    found = look(node, "nftables", "iptables")
    assert [one["table"]["name"] for one in found["nftables"] if "table" in one] == ["nat"]
    assert found["iptables"] == [] and "rules of nft" in unread(found)["ip nat (nft)"]


@pytest.mark.parametrize(
    ("program", "subset", "names"),
    [
        ("/usr/sbin/nft", "nftables", {""}),
        ("/usr/sbin/iptables-nft-save", "iptables", {"ip nat (nft)"}),
        ("/usr/sbin/iptables-legacy-save", "iptables", {"ip nat (legacy)"}),
        ("/usr/sbin/ipset", "ipsets", {"blocked", "in_order"}),
        ("/usr/sbin/ebtables-nft-save", "ebtables", {""}),
    ],
)
def test_what_a_broken_program_should_have_listed_is_named(
    node: NamespaceNode, program: str, subset: str, names: set[str]
) -> None:
    _rules(node)
    with node.replace_program(program, _without_its_name(program)):
        found = look(node, subset)
    assert {*unread(found)} >= names and all("broken" in reason for reason in unread(found).values())
    assert {one["subset"] for one in found["unread"]} == {subset}


def _without_its_name(program: str) -> str:
    """A program that fails under this name only: the tools of a backend are one program, called by several names."""
    return (
        f"#!/bin/bash\ncase ${{0##*/}} in {program.rpartition('/')[2]}) echo broken >&2; exit 1;; esac\n"
        + 'exec -a "$0" @REAL@ "$@"\n'
    )


def test_programs_of_links_are_named_and_other_filters_too(node: NamespaceNode) -> None:
    node.ip(["link add veth1 type veth peer name veth1-end", "link add veth2 type veth peer name veth2-end"])
    hooks: tuple[tuple[bpf.Hook, str], ...] = (("XDP", "eth0"), ("tcx", "eth0"), ("ingress", "veth1"), ("egress", "veth1"))
    for hook, link in hooks:
        bpf.attach(node, hook, f"p_{hook}", link)
    u32 = "tc filter add dev veth2 ingress protocol all prio 1 u32 match u32 0 0 classid 1:1"
    node.run(["sh", "-ec", f"tc qdisc add dev veth2 ingress; {u32}"])
    found = look(node, "bpf")
    assert [tuple(one.values()) for one in found["bpf"]] == [
        ("eth0", "XDP", "ingress", "p_XDP"),
        ("eth0", "tcx", "ingress", "p_tcx"),
        ("veth1", "tc", "ingress", "p_ingress"),
        ("veth1", "tc", "egress", "p_egress"),
    ]
    redirect = "tc filter add dev veth2 ingress protocol ip prio 2 u32 match u32 0 0 action mirred egress redirect dev veth1"
    node.run(["sh", "-ec", redirect])
    assert [tuple(one.values()) for one in look(node, "filters")["filters"]] == [
        ("veth2", "ingress", "u32", "all", "all", ""),
        ("veth2", "ingress", "u32", "ip", "all", "redirect veth1"),
    ]


def test_of_ipsec_policies_the_prefixes_are_noted(node: NamespaceNode) -> None:
    ends = [("192.0.2.0/24", "198.51.100.0/24", "out", "action block"), ("::/0", "2001:db8:9::/64", "fwd", "")]
    for source, destination, direction, more in ends:
        node.ip([f"xfrm policy add src {source} dst {destination} dir {direction} {more}"])
    assert sorted((entry["object"], entry["reason"]) for entry in look(node, "filters")["unread"]) == [
        ("xfrm 192.0.2.0/24 198.51.100.0/24", "Of an IPsec policy (out, block), only its prefixes are read."),
        ("xfrm ::/0 2001:db8:9::/64", "Of an IPsec policy (fwd, allow), only its prefixes are read."),
    ]


def test_a_table_that_is_dormant_says_so(node: NamespaceNode) -> None:
    node.run(["nft", "-f", "-"], "table ip t { flags dormant; }\ntable ip u { }\n")
    tables = [entry["table"] for entry in look(node, "nftables")["nftables"] if "table" in entry]
    assert [(table["name"], table.get("flags")) for table in tables] == [("t", ["dormant"]), ("u", None)]


def test_programs_of_this_collection_tell_what_they_translate(node: NamespaceNode) -> None:
    bpf.attach(node, "tcx", "cil_from_netdev")
    probes = [{"source": f"fe80::{number}", "translated": f"2001:db8::{number}"} for number in (1, 2)]
    Steps(node, "nftables_probe_snat", {"backend": "bpf", "permanent": False, "probes": probes}).run()
    ingress, foreign, egress = look(node, "bpf")["bpf"]
    assert foreign == {"link": "eth0", "hook": "tcx", "direction": "ingress", "name": "cil_from_netdev"}
    for entry, direction in ((ingress, "ingress"), (egress, "egress")):
        tag = entry.pop("tag")
        assert tag in instructions.tags(probe_programs.program(direction, 2))
        assert entry.pop("name").startswith("kubenode_")
        assert entry == {"link": "eth0", "hook": "tcx", "direction": direction, "probes": probes}


def test_who_manages_the_node_is_there_and_no_secret(node: NamespaceNode) -> None:
    plugins = [{"type": "calico", "kubeconfig": SECRET, "etcd_key": SECRET}, {"type": "portmap"}]
    node.write(f"{CONFIGURATIONS}/10-calico.conflist", json.dumps({"name": "k8s", "token": SECRET, "plugins": plugins}))
    node.write(f"{CONFIGURATIONS}/11-broken.conf", f"{{ {SECRET}")
    node.write(f"{CONFIGURATIONS}/calico-kubeconfig", f"token: {SECRET}")
    node.run(["sh", "-c", "echo 7c0b:5e2d::1 > /proc/sys/net/ipv6/conf/eth0/stable_secret"])
    Steps(node, "nftables_probe_snat").run()
    found = look(node)
    path = f"{CONFIGURATIONS}/10-calico.conflist"
    assert found["cni"] == [{"path": path, "name": "k8s", "plugins": ["calico", "portmap"], "is_inert": False}]
    assert unread(found).keys() == {f"{CONFIGURATIONS}/11-broken.conf", "kubenode-nft-ip6-azureSLBProbe.service"}
    assert SECRET not in json.dumps(found) and "7c0b:5e2d" not in json.dumps(found)
    (unit,) = found["units"]
    assert unit == {"name": "kubenode-nft-ip6-azureSLBProbe.service", "is_enabled": True, "active": "", "sub": "", "result": ""}
    assert found["versions"]["kernel"] == node.run(["uname", "-r"]).stdout.strip()
    assert found["versions"]["nft"].startswith("nftables v")


def test_what_the_next_boot_sets_is_there_with_its_files(node: NamespaceNode) -> None:
    texts = {
        "/etc/sysctl.d/50-lab.conf": "".join(
            ["net.ipv4.conf.all.rp_filter = 1\n", "net.ipv4.conf.*.rp_filter = 2\n", "-net.ipv4.conf.eth9.rp_filter\n"]
        ),
        "/run/sysctl.d/60-lab.conf": "net/ipv4/conf/all/rp_filter=0\nnet.ipv4.ip_forward=yes\nkernel.panic=1\n",
        "/run/sysctl.d/50-lab.conf": "net.ipv4.ip_forward=0\n",  # which that in /etc replaces
        "/etc/systemd/networkd.conf.d/lab.conf": "[Network]\nManageForeignRoutes=no\n",
    }
    for path, text in texts.items():
        node.write(path, text)
    try:
        boot = look(node, "boot")["boot"]
    finally:
        for path in texts:
            node.remove(path)
    settings = {key: value for key, value in boot["settings"].items() if "-lab" in value["file"]}
    assert settings == {
        "net.ipv4.conf.*.rp_filter": {"value": 2, "file": "/etc/sysctl.d/50-lab.conf"},
        "net.ipv4.conf.eth9.rp_filter": {"value": None, "file": "/etc/sysctl.d/50-lab.conf"},
        "net.ipv4.conf.all.rp_filter": {"value": 0, "file": "/run/sysctl.d/60-lab.conf"},
        "net.ipv4.ip_forward": {"value": None, "file": "/run/sysctl.d/60-lab.conf"},
    }
    assert [*settings][2:] == ["net.ipv4.conf.all.rp_filter", "net.ipv4.ip_forward"]
    assert boot["networkd"]["ManageForeignRoutes"] == {"value": False, "file": "/etc/systemd/networkd.conf.d/lab.conf"}


def test_options_that_cannot_be_used_are_refused(node: NamespaceNode) -> None:
    steps = Steps(node, "datapath_info")
    error = steps.refused(gather=["links", "sockets"])
    assert "gather" in error and "sockets" in error and "neighbors" in error
    assert "gather must be a list of at least one of links, neighbors" in steps.refused(gather=[])
    reading = "+dac_override,+dac_read_search"  # this Python may be in root's home
    user = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps", reading, "--ambient-caps", reading]
    assert "root is needed on the node" in Steps(node, "datapath_info", through=user).refused()


def test_dropped_packets_and_tracked_connections_are_counted(node: NamespaceNode) -> None:
    (pod,) = node.pods
    node.run(["sysctl", "-qw", f"net.ipv4.conf.{pod.link}.rp_filter=1"])
    found = look(node, "links", "counters")
    before, mac = found["counters"], by("name", found["links"])[pod.link]["mac"]
    pod.ip(
        [
            "address add 203.0.113.9/32 dev lo",
            f"route add {node.ipv4} dev eth0 src 203.0.113.9",
            f"neighbour add {node.ipv4} lladdr {mac} dev eth0 nud permanent",
        ]
    )
    send = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('{node.ipv4}', 9))"
    pod.run(["python3", "-c", send])
    after = look(node, "counters")["counters"]
    dropped = "TcpExt.IPReversePathFilter"
    assert after["packets"][dropped] == before["packets"][dropped] + 1
    assert after["packets"].keys() == before["packets"].keys() > {dropped, "Ip6InNoRoutes"}


def test_services_that_flush_rulesets_are_read_with_their_configuration(node: NamespaceNode) -> None:
    assert look(node, "firewalls")["firewalls"] == {}
    node.write("/etc/systemd/system/nftables.service", "[Service]\nExecStart=/usr/sbin/nft -f /etc/nftables.conf\n")
    node.write("/etc/nftables.conf", "flush ruleset\n")
    state = look(node, "firewalls")["firewalls"]["nftables.service"]
    of_file = {"file": "/etc/nftables.conf", "flushes": True}
    assert state == {"is_enabled": False, "is_active": False, "is_masked": False, **of_file}
    node.run(["ln", "-sf", "/dev/null", "/etc/systemd/system/nftables.service"])
    assert look(node, "firewalls")["firewalls"]["nftables.service"]["is_masked"]
