# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A snapshot as the texts that build its twin."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.assumption import Concern
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot, VirtualServer
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import assumptions, blueprint, virtual_servers
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.assumptions import Ends

ETH0 = {"name": "eth0", "index": 2, "kind": "", "mac": "00:0d:3a:00:00:01", "flags": ["UP", "LOWER_UP"]}


def drawn_of(snapshot: dict[str, Any]) -> blueprint.Blueprint:
    return blueprint.draw(Snapshot.of(snapshot))


def draw(**subsets: Any) -> blueprint.Blueprint:
    return drawn_of({"links": [ETH0], **subsets})


def test_bridges_are_built_before_their_ports() -> None:
    drawn = drawn_of({"links": [{**ETH0, "master": "br0"}, {"name": "br0", "index": 7, "kind": "bridge", "flags": ["UP"]}]})
    assert [(link.name, link.kind, link.master) for link in drawn.links] == [("br0", "bridge", 0), ("eth0", "veth", 7)]


@pytest.mark.parametrize(
    ("kind", "fact"),
    [("bridge", []), ("bond", []), ("vrf", []), ("openvswitch", ["switch:ovs-system"]), ("", ["link-kind:ovs-system"])],
)
def test_what_another_link_than_a_bridge_does_with_the_packets_of_its_ports_is_open(kind: str, fact: list[str]) -> None:
    master = {"name": "ovs-system", "index": 7, "kind": kind, "flags": ["UP"], "settings": {"table": 10} if kind == "vrf" else {}}
    notes = drawn_of({"links": [{**ETH0, "master": "ovs-system"}, master]}).notes
    assert [note.fact for note in notes if note.fact.endswith(":ovs-system")] == fact


def test_a_bridge_stands_behind_the_links_that_the_node_has_before_it() -> None:
    """The kernel takes the source of a packet by a pod's link, which has no address, from the first link that has one."""
    further = [{"name": "br0", "index": 7, "kind": "bridge"}, {"name": "veth1", "index": 8, "kind": "veth", "master": "br0"}]
    drawn = drawn_of({"links": [ETH0, *further]})
    assert [link.name for link in drawn.links] == ["eth0", "br0", "veth1"]


def test_links_without_an_index_or_a_mac_get_ones() -> None:
    drawn = drawn_of({"links": [{"name": "a", "flags": []}, {"name": "b", "index": 1, "flags": ["UP"]}]})
    assert len({link.number for link in drawn.links}) == 2 and all(link.number > 1 and link.mac[0] == 2 for link in drawn.links)
    assert [link.is_up for link in drawn.links] == [False, True]


def test_rules_that_the_snapshot_lacks_are_removed() -> None:
    rules = [
        {"priority": 0, "family": "ipv4", "table": "255"},
        {"priority": 9, "family": "ipv4", "from": "10.0.0.1", "table": "100", "protocol": "bird"},
    ]
    assert draw(rules=rules).commands == [
        "-4 rule del priority 32766",
        "-4 rule del priority 32767",
        "-4 rule add priority 9 from 10.0.0.1 lookup 100 protocol 12",
    ]
    assert draw(rules=None).commands == []


RED = {"name": "red", "index": 3, "kind": "vrf", "flags": ["UP", "LOWER_UP"], "settings": {"table": 10}}


def test_rules_for_the_ports_of_a_vrf_stand_for_the_rule_that_all_share() -> None:
    rules = [
        {"priority": 7, "family": "ipv4", "iif": "red", "table": "11"},
        {"priority": 1000, "family": "ipv4", "l3mdev": True},
        {"priority": 2000, "family": "ipv6", "l3mdev": True, "action": "unreachable", "iif": "eth0"},
    ]
    address = {"address": "10.0.0.4/24", "scope": "global", "flags": []}
    drawn = drawn_of({"links": [{**ETH0, "master": "red", "addresses": [address]}, RED], "rules": rules})
    assert [line for line in drawn.commands if " del priority " not in line] == [
        "address add 10.0.0.4/24 dev eth0 scope global noprefixroute",
        "route del local 10.0.0.4 dev eth0 table 255",
        "-4 rule add priority 7 from all iif red lookup 11",
        "-4 rule add priority 7 from all iif eth0 lookup 11",
        *(f"-4 rule add priority 1000 from all {key} {link} lookup 10" for link in ("red", "eth0") for key in ("iif", "oif")),
        "-6 rule add priority 2000 from all iif eth0 unreachable",
        "-6 rule add priority 2000 from all oif eth0 unreachable",
    ]
    (note,) = drawn.notes
    assert "red is a VRF." in note.sentence and "table 10" in note.sentence and "eth0" in note.sentence and not note.fact


def test_a_vrf_whose_table_is_not_known_is_named() -> None:
    drawn = drawn_of({"links": [ETH0, {**RED, "settings": {}}], "rules": [{"priority": 1000, "l3mdev": True}]})
    assert not [line for line in drawn.commands if "add" in line]
    assert any("red is a VRF whose table is not known" in note.sentence for note in drawn.notes)


def test_what_the_kernel_adds_is_left_to_it() -> None:
    own = {"table": "255", "to": "10.0.0.4", "type": "local", "dev": "eth0", "protocol": "kernel"}
    other = {"table": "254", "to": "10.1.0.0/16", "dev": "eth0", "protocol": "bird"}
    drawn = draw(routes=[own, other])
    assert [blueprint.route_line(*one) for one in drawn.routes] == [
        "-4 route append 10.1.0.0/16 dev eth0 table main scope link protocol 12"
    ]


def test_the_protocol_of_a_route_stands_before_its_next_hops() -> None:
    """Behind them, ip(8) refuses it, and the lines after it, too."""
    hops = [{"via": "10.0.0.1", "dev": "eth0"}, {"via": "10.0.1.1", "dev": "eth1"}]
    links = [{"name": f"eth{number}", "index": number + 2, "flags": ["UP"]} for number in range(2)]
    several = {"table": "254", "family": "ipv4", "to": "172.16.0.0/16", "nexthops": hops, "protocol": "static"}
    (line,) = (blueprint.route_line(*each) for each in drawn_of({"links": links, "routes": [several]}).routes)
    assert line.endswith(" protocol 4 nexthop via 10.0.0.1 dev eth0 nexthop via 10.0.1.1 dev eth1")


@pytest.mark.parametrize(
    "line",
    [
        "-A FORWARD --modprobe=/x -j DROP",
        "-A FORWARD -M /x",
        "-A FORWARD --modp /x -j DROP",
        "!touch /x",
        "-A FORWARD -m bpf --object-pinned /x",
        "-A FORWARD -j LED --led-trigger-id x",
        "-A FORWARD -j  IDLETIMER --timeout 5 --label Sx",
        "-A FORWARD --jump IDLETIMER --timeout 5 --label Sx",
        "-A FORWARD --jum DROP",
        '-A FORWARD "-M" /x -j DROP',
        '-A FORWARD "--modprobe" /x -j DROP',
        '-A FORWARD -m comment --comment "" --comment "-M" /x',
        "-A FORWARD -t nat -j DROP",
        "-A FORWARD -m cgroup --path /x -j DROP",
        ":IDLETIMER - [0:0]",
        "-D FORWARD 1",
        "-A FORWARD -j DROP; touch /x",
        "*bogus",
    ],
)
def test_a_line_that_would_start_a_program_is_left_out(line: str) -> None:
    save = f"*filter\n:FORWARD ACCEPT [0:0]\n{line}\n-A FORWARD -m statistic --mode random --probability 0.5 -j DROP\nCOMMIT\n"
    drawn = draw(iptables=[{"family": "ip", "backend": "nft", "table": "filter", "save": save}])
    assert drawn.restores == [("iptables-nft-restore", save.replace(f"{line}\n", ""))]
    assert any(line in note.sentence and note.fact for note in drawn.notes)


@pytest.mark.parametrize("line", ["-f /x", "save", "create s hash:bogus", "add s 10.0.0.1 -f /x", "destroy", "add s -f"])
def test_a_line_that_ipset_does_not_save_is_left_out(line: str) -> None:
    drawn = draw(ipsets=[{"name": "s", "save": f'create s hash:ip family inet comment\n{line}\nadd s 10.0.0.1 comment "a b"\n'}])
    assert drawn.restores == [("ipset", 'create s hash:ip family inet comment\nadd s 10.0.0.1 comment "a b"\n')]
    assert any(line in note.sentence and note.fact for note in drawn.notes)


def test_settings_of_all_links_come_before_those_of_one() -> None:
    settings = {
        "node": {"net.ipv4.ip_forward": 1},
        "ipv4": {"eth0": {"rp_filter": 1}, "all": {"rp_filter": 2}, "gone": {"rp_filter": 1}},
    }
    assert draw(settings=settings).settings == [
        ("net/ipv4/ip_forward", 1),
        ("net/ipv4/conf/all/rp_filter", 2),
        ("net/ipv4/conf/eth0/rp_filter", 1),
    ]


@pytest.mark.parametrize("key", ["net.//.kernel.panic", "net/../kernel/panic", "net", "kernel.panic", "net..x", "net././x"])
def test_a_setting_outside_of_the_network_is_not_written(key: str) -> None:
    assert draw(settings={"node": {key: 1}}).settings == []


HOSTILE_RULESETS = (
    'include "/x"',
    'table ip x { }; include "/x"',
    'table ip x { }; include include "a""/x"',
    'include \\\n "/x"',
    'include\t"/x',
    'table ip x {\n\tinclude "/x"\n}',
    'table ip x { chain c { include "/x"; }; }',
    'table ip x { chain c { ip saddr 10.0.0.1 include "/x"; }; }',
    'table ip x { set s { type ipv4_addr; elements = { include "/x" } ; } ; }',
    'table ip include { }\ninclude "/x"',
    'define x = "/x"\ntable ip x { }',
    "table ip x { chain $x { } ; }",
    'table ip x { }\r include "/x"',
    'table ip x { } # \\\n include "/x"',
    'table ip x { comment "a\ninclude \\"/x\\" " }',
)


@pytest.mark.parametrize("text", HOSTILE_RULESETS)
def test_a_ruleset_includes_no_file(text: str) -> None:
    try:
        drawn = draw(nftables_text=text)
    except Invalid as error:
        assert error.option == "snapshot.nftables_text"
        return
    assert "include" not in drawn.ruleset_text and "/x" not in drawn.ruleset_text
    assert any("x" in note.sentence for note in drawn.notes)


def test_a_ruleset_without_a_table_is_refused_and_part_of_one_is_named() -> None:
    with pytest.raises(Invalid, match="snapshot.nftables_text must be tables"):
        draw(nftables_text='include "/dev/zero"')
    drawn = draw(nftables_text='table ip x {\n\tchain y {\n\t\tfoo bar\n\t\taccept\n\t}\n}\ninclude "/x"\n')
    assert drawn.ruleset_text.splitlines()[:6] == ["table ip x {", "chain y {", "", "accept", "}", "}"]
    left_out = [note.sentence.rpartition(": ")[2] for note in drawn.notes if note.fact]
    assert left_out == ["foo bar", 'include "/x"']


def test_the_tables_of_the_twin_itself_are_not_in_a_snapshot() -> None:
    objects = [{"table": {"family": "inet", "name": name}} for name in (blueprint.OWN_TABLE, "a")] + [
        {"flush": {"ruleset": None}}
    ]
    drawn = draw(nftables_text=f"table inet {blueprint.OWN_TABLE} {{ }}\ntable ip a {{ }}\n", nftables=objects)
    assert blueprint.OWN_TABLE not in drawn.ruleset_text and [one["table"]["name"] for one in drawn.ruleset] == ["a"]
    assert len(drawn.notes) == 3


@pytest.mark.parametrize(
    ("snapshot", "option"),
    [
        ({"links": "x"}, "snapshot.links"),
        ({"links": [{"name": "a/b"}]}, "snapshot.links[0].name"),
        ({"links": [ETH0, ETH0]}, "snapshot.links[1].name"),
        ({"links": [{**ETH0, "addresses": [{"address": "x"}]}]}, "snapshot.links[0].addresses"),
        ({"neighbors": [{"address": "x"}]}, "snapshot.neighbors[0].address"),
    ],
)
def test_a_snapshot_that_is_none_is_named(snapshot: dict[str, Any], option: str) -> None:
    with pytest.raises(Invalid) as error:
        drawn_of(snapshot)
    assert error.value.option == option


@pytest.mark.parametrize(
    ("snapshot", "option", "concern"),
    [
        ({"rules": [{"priority": 1, "table": "nope"}]}, "rules[0].table", Concern("family", "ipv4")),
        ({"rules": [{"priority": 1, "to": "fd00::/8", "action": "nop"}]}, "rules[0].action", Concern("prefix", "fd00::/8")),
        ({"rules": [{"priority": 0, "from": "10.0.0.1"}]}, "rules[0].priority", Concern("prefix", "10.0.0.1/32")),
        ({"rules": [{"priority": 1, "from": "10.0.0.1", "not": True, "x": 1}]}, "rules[0].x", Concern("family", "ipv4")),
        ({"routes": [{"to": "x", "table": "254"}]}, "routes[0].to", Concern("routes", "254")),
        ({"routes": [{"to": "default", "table": "main", "x": 1}]}, "routes[0].x", Concern("route", "254 0.0.0.0/0")),
    ],
)
def test_a_rule_or_a_route_that_no_twin_can_have_concerns_what_may_meet_it(
    snapshot: dict[str, Any], option: str, concern: Concern
) -> None:
    (note,) = drawn_of(snapshot).notes
    assert note.fact and note.concerns == {concern} and f"snapshot.{option} must be " in note.sentence


def test_chains_are_loaded_before_the_maps_whose_elements_name_them() -> None:
    """nft lists them the other way round, as in the tables of kube-proxy."""
    kinds = ("table", "map", "set", "chain", "rule", "counter", "element")
    loaded = draw(nftables=[{kind: {"family": "ip", "table": "kube-proxy", "name": "a"}} for kind in kinds]).ruleset
    assert [next(iter(one)) for one in loaded] == ["table", "chain", "counter", "map", "set", "element", "rule"]


def test_addresses_are_added_in_the_order_in_which_the_node_has_them() -> None:
    """The kernel lists the latest address of IPv6 first, and takes the first one that fits as the source."""
    flags = {"2001:db8::1": ["deprecated"], "2001:db8::2": ["secondary"], "2001:db8::3": ["dadfailed", "tentative"]}
    listed = ["192.0.2.1", "192.0.2.2", "2001:db8::4", *flags]
    addresses = [{"address": f"{address}/{128 if ':' in address else 24}", "flags": flags.get(address, [])} for address in listed]
    lines = draw(links=[{"name": "eth0", "index": 2, "flags": ["UP"], "addresses": addresses}]).commands
    added = [line.split()[2].partition("/")[0] for line in lines if line.startswith("address add")]
    assert added == ["192.0.2.1", "192.0.2.2", "2001:db8::2", "2001:db8::1", "2001:db8::4"]
    assert [line.split()[2] for line in lines if line.endswith("preferred_lft 0")] == ["2001:db8::2/128", "2001:db8::1/128"]


def test_ports_of_a_bridge_pass_frames_on_as_on_the_node() -> None:
    settings = {"hairpin": 1, "isolated": 0, "learning": 1}
    links = [{"name": "cni0", "kind": "bridge"}, {"name": "veth1", "kind": "veth", "master": "cni0", "settings": settings}]
    assert "link set dev veth1 type bridge_slave hairpin on" in drawn_of({"links": links}).commands


def test_a_table_is_not_tied_to_the_process_that_loads_it() -> None:
    text = "table inet firewalld {\n\tflags owner,persist\n\n\tset s {\n\t\tflags interval\n\t}\n}\n"
    objects = [
        {"table": {"family": "inet", "name": name, "flags": flags}}
        for name, flags in (("a", "owner"), ("b", ["persist", "owner"]), ("c", ["dormant"]))
    ]
    drawn = drawn_of({"nftables_text": text, "nftables": objects})
    assert "owner" not in drawn.ruleset_text and "flags interval" in drawn.ruleset_text
    assert [one["table"].get("flags") for one in drawn.ruleset] == [None, None]


def test_a_virtual_server_without_a_destination_refuses() -> None:
    ends = [{"address": "10.1.0.1", "port": 80, "weight": 0}]
    plain = {"protocol": "tcp", "address": "10.96.0.1", "port": 80, "scheduler": "rr", "destinations": ends}
    server = VirtualServer.of(plain)
    text, _notes = virtual_servers.ruleset([server])
    assert 'ip daddr 10.96.0.1 tcp dport 80 reject with icmp port-unreachable comment "TCP  10.96.0.1:80 rr"\n' in text
    assert "dnat" not in text and virtual_servers.addresses([server]) == {"ip": ["10.96.0.1"]}


def test_virtual_servers_choose_by_weight() -> None:
    ends = [{"address": f"10.1.0.{number}", "port": 80, "weight": weight} for number, weight in ((1, 1), (2, 3), (3, 0))]
    text, notes = virtual_servers.ruleset(
        [VirtualServer.of({"protocol": "tcp", "address": "10.96.0.1", "port": 80, "scheduler": "sh", "destinations": ends})]
    )
    assert "ip daddr 10.96.0.1 tcp dport 80 numgen random mod 4 < 1 dnat to 10.1.0.1:80\n" in text
    assert "ip daddr 10.96.0.1 tcp dport 80 dnat to 10.1.0.2:80\n" in text and "10.1.0.3" not in text
    assert len(notes) == 2
    assert virtual_servers.ruleset([]) == ("", [])


def test_a_virtual_server_that_is_none_is_left_out_and_named() -> None:
    server = VirtualServer.of({"protocol": "tcp", "address": "x;y", "port": 80, "destinations": []})
    text, notes = virtual_servers.ruleset([server])
    assert text == "" and "x;y" in notes[0].sentence


def test_each_assumption_is_told() -> None:
    empty = Snapshot.of({"links": [], "routes": None})
    found, told = assumptions.complete(empty, {"net.ipv4.conf.eth0.rp_filter": "1"}, Ends("10.1.0.5", "eth0"))
    assert found.settings.by_link("ipv4") == {"eth0": {"rp_filter": 1}, "all": {"forwarding": 1}}
    assert [link.name for link in found.links] == ["eth0", "assumed-pod"]
    assert len(told) == 5


def test_a_snapshot_that_tells_all_needs_no_assumption() -> None:
    settings = {"node": {"net.ipv4.ip_forward": 0}, "ipv4": {"eth0": {"forwarding": 0}}, "ipv6": {"all": {"forwarding": 0}}}
    snapshot = Snapshot.of({"links": [ETH0], "routes": [], "settings": settings})
    found, told = assumptions.complete(snapshot, {}, Ends("10.1.0.5", "eth0"))
    assert told == [] and found.settings.plain == settings
    with pytest.raises(Invalid, match="packet.interface"):
        assumptions.complete(snapshot, {}, Ends("10.1.0.5", "eth7"))
    with pytest.raises(Invalid, match="assume.net.ipv4.ip_forward"):
        assumptions.complete(snapshot, {"net.ipv4.ip_forward": "on"}, Ends("10.1.0.5", ""))


@pytest.mark.parametrize("statement", ["meta nftrace set 0", "meta  nftrace set 1"])
def test_a_statement_that_ends_the_trace_is_not_in_the_twin(statement: str) -> None:
    tracing = {"mangle": {"key": {"meta": {"key": "nftrace"}}, "value": 0}}
    place = {"family": "ip", "table": "x", "chain": "y"}
    drawn = drawn_of(
        {
            "nftables_text": f"table ip x {{ chain y {{ ip daddr 192.0.2.1 {statement}\n counter drop\n }} }}",
            "nftables": [{"rule": {**place, "expr": [tracing, {"drop": None}]}}, {"rule": {**place, "expr": [tracing]}}],
        }
    )
    assert "nftrace" not in drawn.ruleset_text and "ip daddr 192.0.2.1\ncounter drop" in drawn.ruleset_text
    assert drawn.ruleset == [{"rule": {**place, "expr": [{"drop": None}]}}]
    assert sum("nftrace" in note.sentence for note in drawn.notes) == 1


NFTRACE = {"meta": {"key": "nftrace"}}


@pytest.mark.parametrize("key", [NFTRACE, {"meta": {"key": "nftrace", "x": 1}}, {**NFTRACE, "x": {}}])
def test_no_form_of_the_statement_ends_the_trace(key: dict[str, Any]) -> None:
    """nft overlooks further keys of an expression."""
    rule = {"family": "ip", "table": "x", "chain": "y", "expr": [{"mangle": {"key": key, "value": 0}}, {"accept": None}]}
    assert drawn_of({"nftables": [{"rule": rule}]}).ruleset == [{"rule": {**rule, "expr": [{"accept": None}]}}]


@pytest.mark.parametrize(
    "statement",
    [
        {"match": {"op": "==", "left": NFTRACE, "right": 0}},
        {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [NFTRACE, 1]}}},
        {"mangle": {"key": NFTRACE, "value": {"map": {"key": NFTRACE, "data": {"set": [[1, 0]]}}}}},
    ],
)
def test_a_rule_that_depends_on_the_trace_is_left_out_and_named(statement: dict[str, Any]) -> None:
    rule = {"family": "ip", "table": "x", "chain": "y", "expr": [statement, {"drop": None}]}
    drawn = drawn_of({"nftables": [{"rule": rule}]})
    assert not drawn.ruleset and ["depends on nftrace" in note.sentence for note in drawn.notes] == [True]
