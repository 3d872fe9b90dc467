# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datapath_trace names what stops a packet, tries cures in twins, and changes nothing on the node."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import far_ends_backend, trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet as packets
from lab.node import NamespaceNode
from lab.steps import Steps

from . import random_nodes, tracing
from .tracing import call

CASES = Path(__file__).parent / "cases"
NAT6 = """\
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -d fd00::4/128 -p tcp -m tcp --dport 30080 -j DNAT --to-destination [fd01::5]:80
COMMIT
"""
UPLINK_OUTPUT = "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.11/24 scope global eth0\n"
UPLINK = {"name": "eth0", "index": 2, "kind": "", "mac": "00:0d:3a:00:00:01", "flags": ["UP", "LOWER_UP"]}
POD = {"name": "pod1", "index": 5, "kind": "veth", "flags": ["UP", "LOWER_UP"], "peer": {"mac": "0a:00:00:00:00:05"}}
FORWARDING = {"node": {"net.ipv4.ip_forward": 1}, "ipv6": {"all": {"forwarding": 1}}, "ipv4": {}}


def case(name: str) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """The packet, the texts, and the settings that are not in the texts."""
    told = yaml.safe_load((CASES / name / "case.yml").read_text())
    packet = {**told["packet"], "interface": told["packet"].pop("in_interface")}
    packet.pop("in_interface", None)
    dump = {path.stem: path.read_text() for path in sorted((CASES / name).glob("*.txt"))}
    return packet, dump, told.get("sysctls_not_in_the_dump", {})


def trace(node: NamespaceNode, packet: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The result. Fails if the node has changed."""
    before = node.snapshot()
    result = tracing.trace(node, packet, **options)
    assert not result["changed"] and node.snapshot() == before
    return result


def test_a_reply_that_strict_filtering_drops_is_found_in_a_report_and_its_cure_has_the_caveat_of_the_packet(
    node: NamespaceNode,
) -> None:
    packet, dump, settings = case("eni-loadbalancer")
    found = trace(node, packet, dump=dump, assume=settings)
    assert (found["verdict"], found["interface"], found["packet"]["source"]) == ("forwarded", "eth1", "10.12.97.49")
    assert found["reply"]["verdict"] == "dropped" and found["reply"]["came_in_by"] == "eth0"
    assert found["culprit"] == {"kind": "sysctl", "text": "net.ipv4.conf.eth0.rp_filter = 1"}
    assert "2000: from 10.12.192.44 lookup 1003" in found["reply"]["reason"]
    # The packet leaves by eth1 with eth0's address, as the report does not show an address of eth1.
    cure = found["cures"][0]
    assert (cure["change"], cure["certain"]) == ("eni_policy_routing: {remedy: loose, manage: [filters]}", False)
    assert "an address of eth0: a cloud that checks the sources" in cure["takes_along"]
    assert any("KUBE-CLUSTER-IP" in sentence for sentence in found["assumed"])
    # The endpoints of the virtual server are equally likely.
    assert sorted(one["packet"]["destination"] for one in found["branches"]) == ["10.253.1.139", "10.253.3.5", "10.253.4.194"]
    assert sum(one["share"] for one in found["branches"]) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"changes": [{"rp_filter": {"interfaces": ["eth0"], "mode": "loose"}}]},
        {"commands": ["sudo sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=2"]},
        {"commands": ["ip rule del priority 2000 from 10.12.192.44"]},
        {"commands": ["ip addr add 10.12.192.2/24 dev eth1"]},
    ],
    ids=["rp_filter", "sysctl", "ip rule", "an address on eth1"],
)
def test_what_if_tells_before_and_after(node: NamespaceNode, change: dict[str, Any]) -> None:
    packet, dump, settings = case("eni-loadbalancer")
    found = trace(node, packet, dump=dump, assume=settings, **change)
    assert found["before"]["reply"]["verdict"] == "dropped"
    assert (found["reply"]["verdict"], found["culprit"], found["cures"]) == ("delivered", None, [])


def test_an_earlier_state_tells_which_change_is_guilty(node: NamespaceNode) -> None:
    packet = {"destination": "203.0.113.5", "destination_port": 443}
    earlier = {"ip route": "default via 192.0.2.1 dev eth0\n", "ip addr": UPLINK_OUTPUT}
    later = {**earlier, "ip route": "default via 192.0.2.1 dev eth0\nunreachable 203.0.113.0/24\nblackhole 198.51.100.0/24\n"}
    found = trace(node, packet, dump=later, earlier=earlier)["explanation"]
    assert [change["text"] for change in found["guilty"]] == ["route unreachable 203.0.113.0/24 is new"]
    assert (found["changes"], found["guilty"][0]["undo"]) == (2, "ip route del unreachable 203.0.113.0/24")
    assert found["verdict"]["after"] == "dropped"


def test_a_rule_of_ebtables_that_diverts_a_frame_is_found_and_cured(node: NamespaceNode) -> None:
    packet, dump, _settings = case("azure-vnet-leftovers")
    found = trace(node, packet, dump=dump)
    assert found["verdict"] == "dropped" and found["culprit"]["kind"] == "rule"
    assert "--ip-dst 10.240.0.32 -j dnat --to-dst a2:96:88:20:cb:c6" in found["culprit"]["text"]
    # The report has no table of nftables, which may drop the packet as well.
    assert [(cure["change"], cure["certain"]) for cure in found["cures"]] == [("cilium_migration", False)]


def test_how_a_packet_ends_is_known_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No counter and no rule tells that the bridge has no port for the frame. A look that no frame ends takes too long."""
    told, dump, _settings = case("azure-vnet-leftovers")
    pasted = pastes.read(dump, told["interface"])
    monkeypatch.setattr(far_ends_backend, "LOOK", 600_000)
    started = time.monotonic()
    question = trace_backend.Question(pasted.snapshot, packets.from_options(told), {})
    assert trace_backend.in_one_world(question, random_nodes.run).way.verdict == "dropped"
    assert time.monotonic() - started < 300


def test_a_probe_from_a_link_local_address_is_cured_by_the_probe_table(node: NamespaceNode) -> None:
    snapshot = {
        "links": [
            {**UPLINK, "addresses": [{"address": "fd00::4/64"}]},
            {**POD, "peer": {"mac": "0a:00:00:00:00:05", "addresses": ["fd01::5"]}},
        ],
        "routes": [
            {"table": "254", "family": "ipv6", "to": "fd01::5", "dev": "pod1"},
            {"table": "254", "family": "ipv6", "to": "default", "dev": "eth0"},
        ],
        "settings": FORWARDING,
        "iptables": [{"family": "ip6", "backend": "nft", "table": "nat", "save": NAT6}],
    }
    probe = {"source": "fe80::1234:5678:9abc", "destination": "fd00::4", "destination_port": 30080, "interface": "eth0"}
    found = trace(node, probe, snapshot=snapshot)
    assert (found["verdict"], found["culprit"]["kind"]) == ("rejected", "address")
    assert "beyond scope of source address" in found["reason"]
    assert [cure["change"] for cure in found["cures"]] == ["aks_dual_stack: {interface: eth0}"]


OF_A_POD = {
    "ip rule": "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n",
    "ip route": "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0 scope link src 10.0.0.4\n10.1.0.5 dev pod1 scope link\n",
    "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 10.0.0.4/24 scope global eth0\n3: pod1: <UP,LOWER_UP> mtu 1500\n",
    "iptables-save -t filter": "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n",
    "sysctl": "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = 2\n",
}


@pytest.mark.parametrize(
    ("destination", "port", "verdict", "decisive"),
    [
        ("10.96.0.10", 53, "unknown", ["table:ip nat", "nft"]),
        ("10.0.0.4", 30080, "unknown", ["table:ip nat", "nft"]),
        ("10.0.0.4", 22, "delivered", []),
        ("10.0.0.9", 80, "forwarded", []),
        ("198.51.100.1", 80, "forwarded", []),
    ],
    ids=["a cluster address", "a node port", "the node itself", "a neighbour", "the internet"],
)
def test_a_packet_that_may_be_for_a_service_depends_on_the_tables_that_translate(
    node: NamespaceNode, destination: str, port: int, verdict: str, decisive: list[str]
) -> None:
    packet = {"source": "10.1.0.5", "destination": destination, "destination_port": port, "interface": "pod1"}
    found = trace(node, packet, dump=OF_A_POD)
    assert (found["verdict"], found["certain"]) == (verdict, False)
    deciding = [fact for fact in found["depends_on"] if fact["outcomes"]]
    assert [fact["fact"] for fact in deciding] == decisive
    for fact in deciding:
        assert [outcome["verdict"] for outcome in fact["outcomes"]][1:] == ["unknown"], fact
        assert fact["ask"] == "iptables-save; nft list ruleset"
    told = trace(node, packet, dump=OF_A_POD, assume={"table:ip nat": "shown", "nft": "shown"})
    assert told["verdict"] != "unknown" and not [fact for fact in told["depends_on"] if fact["outcomes"]]
    with_nat = {**OF_A_POD, "iptables-save -t nat": NAT_OF_A_SERVICE}
    translated = trace(node, {**packet, "destination": "10.96.0.1"}, dump=with_nat)
    assert (translated["verdict"], translated["packet"]["destination"]) == ("forwarded", "10.0.0.9")


NAT_OF_A_SERVICE = """*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -d 10.96.0.1/32 -j DNAT --to-destination 10.0.0.9
COMMIT
"""


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ("-A FORWARD -m limit --limit 5/min -j ACCEPT", True),
        ("-A FORWARD -m time --timestart 00:00:00 --timestop 12:00:00 -j DROP", True),
        ("-A FORWARD -m limit --limit 5/min -j LOG", False),
        ("", False),
    ],
    ids=["limit", "time", "limit of a log", "no rule"],
)
def test_what_earlier_packets_or_the_clock_decide_is_never_certain(node: NamespaceNode, rule: str, is_open: bool) -> None:
    saved = OF_A_POD["iptables-save -t filter"].replace("COMMIT", f"{rule}\nCOMMIT")
    packet = {"source": "10.1.0.5", "destination": "198.51.100.1", "destination_port": 80, "interface": "pod1"}
    lines = [fact["what"] for fact in trace(node, packet, dump={**OF_A_POD, "iptables-save -t filter": saved})["depends_on"]]
    assert any(line.endswith(f"which a twin does not have: {rule}") for line in lines) == is_open, lines


@pytest.mark.parametrize(
    ("default", "is_certain"),
    [
        ({"nexthops": [{"via": "10.0.0.1", "dev": "eth0"}, {"via": "10.0.0.2", "dev": "eth0"}]}, False),
        ({"via": "10.0.0.1"}, True),
    ],
    ids=["two", "one"],
)
def test_a_route_with_several_next_hops_is_never_certain(node: NamespaceNode, default: dict[str, Any], is_certain: bool) -> None:
    links = [{**UPLINK, "addresses": [{"address": "10.0.0.4/24"}]}, {**POD, "peer": {"addresses": ["10.1.0.5"]}}]
    routes = [
        {"table": "254", "to": "10.0.0.0/24", "dev": "eth0", "scope": "link", "protocol": "kernel"},
        {"table": "254", "to": "10.1.0.5", "dev": POD["name"], "scope": "link"},
        {"table": "254", "to": "default", "dev": None if "nexthops" in default else "eth0", **default},
    ]
    packet = {"source": "10.1.0.5", "destination": "198.51.100.1", "destination_port": 80, "interface": POD["name"]}
    beyond = {"pod": "shown", "answer": "shown"}
    found = trace(node, packet, snapshot={"links": links, "routes": routes, "settings": FORWARDING}, assume=beyond)
    assert (found["verdict"], found["certain"]) == ("forwarded", is_certain)
    lines = [fact["what"] for fact in found["depends_on"]]
    assert is_certain or any("chooses the next hop of a route: ip route default" in line for line in lines)


def test_the_running_node_is_traced(node: NamespaceNode) -> None:
    node.run(["ip", "route", "add", "unreachable", "203.0.113.0/24"])
    found = trace(node, {"destination": "203.0.113.9", "destination_port": 443})
    assert found["verdict"] == "dropped" and found["culprit"] == {
        "kind": "route",
        "text": "ip route unreachable 203.0.113.0/24 table main",
    }
    node.run(["nft", "add table inet own"])
    node.run(["nft", "add chain inet own out { type filter hook output priority 0; }"])
    node.run(["nft", "add rule inet own out ip daddr 198.51.100.7 counter drop"])
    node.run(["ip", "route", "add", "198.51.100.0/24", "dev", "lo", "table", "main"])
    found = trace(node, {"destination": "198.51.100.7", "protocol": "udp", "destination_port": 53})
    assert found["verdict"] == "dropped" and found["culprit"]["kind"] == "rule"
    assert "ip daddr 198.51.100.7 counter" in found["culprit"]["text"]


def test_programs_on_the_path_make_the_verdict_unknown(node: NamespaceNode) -> None:
    snapshot = {
        "links": [{**UPLINK, "addresses": [{"address": "10.0.0.4/24"}]}],
        "settings": FORWARDING,
        "bpf": [{"link": "eth0", "hook": "tc", "direction": "ingress", "name": "cil_from_netdev"}],
    }
    packet = {"source": "10.0.0.9", "destination": "10.0.0.4", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, snapshot=snapshot)
    assert (found["verdict"], found["culprit"]) == ("unknown", {"kind": "bpf", "text": "cil_from_netdev (tc of eth0)"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"packet": {"destination": "10.0.0.1"}}, "packet.destination_port must be a port from 1 to 65535"),
        ({"packet": {"destination": "10.1", "destination_port": 1}}, "packet.destination must be an IP address; '10.1'"),
        ({"packet": {"destination": "ten"}}, "must be an IP address, because no name of a pod or a Service is known; 'ten'"),
        ({"packet": {"destination": "10.0.0.1", "source": "::1", "destination_port": 1}}, "packet.source must be"),
        (
            {"packet": {"destination": "10.0.0.1", "protocol": "icmp", "interface": "nope", "source": "10.0.0.2"}},
            "packet.interface must be a link",
        ),
        ({"dump": {"x": "hello"}}, "dump must be outputs of ip"),
        ({"dump": "/nowhere"}, "dump must be a folder"),
        ({"node": "node1"}, "node must be left out without dump"),
        ({"dump": {"a": "b"}, "snapshot": {"links": []}}, "dump must be left out"),
        ({"snapshot": {"links": [{"name": "a b"}]}}, "snapshot.links[0].name must be a link's name"),
        ({"snapshot": {"rules": [{"priority": "x"}]}}, "snapshot.rules[0].priority must be a number"),
        ({"snapshot": {"format": 99}}, "snapshot must be a snapshot of format 1. Read the node again"),
        (
            {"assume": {"kernel.panic": 1}},
            "assume must be a setting of a network that decides what happens to a packet, or a fact, such as addresses",
        ),
        ({"changes": [{"copy": {}}]}, "changes[0] must be a call of one of"),
        ({"commands": ["rm -rf /"]}, "commands[0] must be a command of one of ip"),
        ({"commands": ["ip addr flush eth0", "ip netns exec x sh"]}, "commands[1] must be a command of ip with one of address"),
        ({"commands": ["iptables -M /tmp/x -L"]}, "commands[0] must be a command of iptables with one of -A"),
        ({"commands": ["nft -f /etc/shadow"]}, "commands[0] must be a command of nft with one of add"),
        ({"commands": ["sysctl -w kernel.panic=1"]}, "commands[0] must be sysctl -w"),
        ({"earlier": {"format": 1, "unread": []}, "commands": ["ip route flush"]}, "earlier must be left out with a finding"),
        ({"earlier": {"format": 99, "unread": []}}, "earlier must be a snapshot of format 1"),
        ({"dump": ""}, "dump must be a folder, an archive or a file, a dictionary of texts by command, a text with commands"),
        ({"dump": {"ip rule": {"rc": 0}}}, "dump.ip rule must be the output of a command: a text or a list of its lines"),
        ({"snapshot": {"links": {"eth0": 1}}}, "snapshot.links must be a list of dictionaries"),
        ({"snapshot": {"links": [UPLINK], "settings": {"node": {"net.ipv4.ip_forward": "on"}}}}, "ip_forward must be a number"),
        (
            {"assume": {"net/../kernel/panic": 1}},
            "assume must be a setting of a network that decides what happens to a packet, or a fact, such as addresses",
        ),
        (
            {"changes": [{"rp_filter": {"interface": "eth0"}}]},
            "changes.rp_filter.interface must be left out; known here are state",
        ),
        ({"packet": {"destination": "10.0.0.1", "source": "10.0.0.2", "destination_port": 1, "interface": "lo"}}, "Leave it out"),
    ],
)
def test_wrong_options_are_named(node: NamespaceNode, options: dict[str, Any], told: str) -> None:
    packet = {"destination": "10.0.0.1", "destination_port": 80}
    given = {"packet": packet, **({} if {"dump", "snapshot"} & {*options} else {"snapshot": {"links": [UPLINK]}}), **options}
    assert told in call(node, **given)["msg"]


@pytest.mark.parametrize(
    "dump",
    [
        '{"ip route": "default via 10.0.0.1 dev eth0"}',
        "$ ip route\ndefault via 10.0.0.1 dev eth0\n",
        {"ip route": ["default via 10.0.0.1 dev eth0"], "ip rule": None},
    ],
    ids=["as templates give it", "the text itself", "lines"],
)
def test_a_report_may_be_a_text_and_numbers_may_be_strings(node: NamespaceNode, dump: Any) -> None:
    packet = {"source": "10.0.0.9", "destination": "192.0.2.1", "destination_port": "80", "interface": "eth0", "mark": "0x1"}
    found = trace(node, packet, dump=dump, assume='{"net.ipv4.conf.eth7.rp_filter": "1", "addresses": "other"}', reply="yes")
    assert (found["verdict"], found["reply"]["verdict"], found["interface"]) == ("forwarded", "forwarded", "eth0")
    assert "net.ipv4.conf.eth7.rp_filter has no effect: the node has no link eth7." in found["assumed"]


def test_a_packet_of_a_protocol_without_ports_has_a_reply(node: NamespaceNode) -> None:
    packet = {"source": "10.0.0.9", "destination": "192.0.2.1", "protocol": "gre", "interface": "eth0"}
    found = trace(node, packet, dump={"ip route": "default via 10.0.0.1 dev eth0\n"}, assume={"addresses": "other"})
    assert (found["verdict"], found["reply"]["verdict"], found["culprit"]) == ("forwarded", "forwarded", None)


def test_commands_start_no_program_that_is_not_permitted(node: NamespaceNode, tmp_path: Path) -> None:
    """The tools take abbreviations: these two commands were a root shell."""
    packet = {"source": "10.0.0.9", "destination": "192.0.2.1", "destination_port": 80, "interface": "eth0"}
    commands = ["ip net a kubenode-x", f"ip net e kubenode-x sh -c 'touch {tmp_path}/ran'"]
    given = {"packet": packet, "snapshot": {"links": [UPLINK]}, "commands": commands}
    assert "in place of 'net'" in Steps(node, "datapath_trace", given).call()["msg"]
    assert not (tmp_path / "ran").exists() and not Path("/run/netns/kubenode-x").exists()


def test_a_hostile_report_is_data(node: NamespaceNode, tmp_path: Path) -> None:
    dump = {
        "nft list ruleset": f'include "{tmp_path}/secret"\ntable ip x {{\n}}\n',
        "iptables-save": f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD --modprobe={tmp_path}/run -m nope -j DROP\nCOMMIT\n",
        "ip link": "2: eth0: <UP,LOWER_UP> mtu 99999999999 qdisc x\n3: $(touch x): <UP>\n4: a;reboot: <UP,LOWER_UP> mtu 1500\n",
        "ip rule": "4294967296: from all lookup main\n0:\tfrom all lookup local\n32766:\tfrom all lookup main\n",
        "ip route": "default via 10.0.0.1 dev eth0\n" + "10.0.0.0/8 dev " + "x" * 300 + "\n",
    }
    (tmp_path / "run").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "secret").write_text("table ip secret { }")
    packet = {"source": "10.0.0.9", "destination": "192.0.2.1", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump=dump)
    assert not (tmp_path / "ran").exists()
    assert found["ignored"]


HOSTILE = "\x1b]0;gone\x07\x9b2J\u202e"


@pytest.mark.parametrize(
    "dump",
    [
        {"nft list ruleset": f"table ip x {{\n\tchain y {{\n\t\t{HOSTILE} drop\n\t}}\n}}\n"},
        {"iptables-save": f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m {HOSTILE} -j DROP\nCOMMIT\n"},
        {"ip link": f"2: eth0: <UP,LOWER_UP> mtu 1500\n3: e{HOSTILE}: <UP,LOWER_UP> mtu 1500 qdisc x\n"},
        {"ip route": f"default via 10.0.0.1 dev eth0\n10.0.0.0/8 dev e{HOSTILE}\n", HOSTILE: HOSTILE},
    ],
    ids=["nft", "iptables", "link", "route"],
)
def test_control_characters_of_a_report_are_not_printed(node: NamespaceNode, dump: dict[str, str]) -> None:
    packet = {"source": "10.0.0.9", "destination": "192.0.2.1", "destination_port": 80, "interface": "eth0"}
    answer = call(node, packet, dump=dump)
    answer.pop("invocation", None)
    assert all(text.replace("\n", "").replace("\t", "").isprintable() for text in texts(answer))


def texts(value: Any) -> Iterator[str]:
    """The texts inside of a result."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize(
    "text",
    [
        'table ip x {{ }}; include include "a""{file}"',
        'table ip x {{ chain y {{ include "{file}"; }}; }}',
        'table ip x {{ }}\ninclude "{file}"\ninclude "/dev/zero"\n',
    ],
)
def test_a_ruleset_of_a_report_prints_no_file(node: NamespaceNode, tmp_path: Path, text: str) -> None:
    (tmp_path / "secret").write_text("client-key-data: c2VjcmV0\n")
    snapshot = {"links": [UPLINK], "settings": FORWARDING, "nftables_text": text.format(file=tmp_path / "secret")}
    packet = {"source": "10.0.0.9", "destination": "192.0.2.1", "destination_port": 80, "interface": "eth0"}
    found = Steps(node, "datapath_trace", {"packet": packet, "snapshot": snapshot}).call()
    assert "c2VjcmV0" not in str(found) and found["verdict"] == "delivered"
    assert any("include" in one and "is not in the twin" in one for one in found["assumed"])


def test_a_twin_needs_no_root_where_user_namespaces_are_permitted() -> None:
    program = f"""
import ctypes, os
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet, trace_backend
snapshot = {{"links": [{UPLINK!r}], "settings": {FORWARDING!r}, "routes": [{{"table": "254", "to": "default", "dev": "eth0"}}]}}
asked = packet.from_options({{"destination": "192.0.2.1", "source": "10.0.0.4", "protocol": "icmp", "interface": "eth0"}})
run = lambda argv, stdin=None, *_more: process.run(argv, stdin, {{"PATH": process.SEARCH_PATH}})
os.setgid(65534), os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: otherwise /proc/self belongs to root
print(trace_backend.answer(trace_backend.Question(snapshot, asked, {{}}), run).way.verdict)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "forwarded\n", done.stderr


def test_ten_thousand_rules_and_five_hundred_links_are_no_burden() -> None:
    """Measured: 0.7 s with a packet and its reply. The limit is for a busy machine."""
    rules = [
        f"-A SERVICES -d 10.96.{number // 250}.{number % 250 + 1}/32 -p tcp -m tcp --dport 80 -j DROP" for number in range(10_000)
    ]
    save = "\n".join(["*filter", ":FORWARD ACCEPT [0:0]", ":SERVICES - [0:0]", "-A FORWARD -j SERVICES", *rules, "COMMIT", ""])
    pods = [{**POD, "name": f"pod{number}", "index": 10 + number, "peer": None} for number in range(500)]
    snapshot = {
        "links": [UPLINK, *pods],
        "settings": FORWARDING,
        "routes": [{"table": "254", "to": "default", "dev": "eth0"}, {"table": "254", "to": "10.244.0.0/16", "dev": "pod1"}],
        "iptables": [{"family": "ip", "backend": "nft", "table": "filter", "save": save}],
    }
    packet = packets.from_options(
        {"destination": "10.96.39.250", "source": "10.0.0.9", "destination_port": 80, "interface": "pod1", "protocol": "tcp"}
    )
    started = time.monotonic()
    found = trace_backend.answer(trace_backend.Question(snapshot, packet, {}), random_nodes.run)
    assert time.monotonic() - started < 15
    assert found.way.culprit and found.way.culprit.text == f"ip filter: {rules[-1]}"


def test_a_line_that_a_program_refuses_is_named_and_the_rest_holds(node: NamespaceNode) -> None:
    rules = [
        "-A FORWARD -m nonsense -j ACCEPT",
        "-A FORWARD -p tcp --dport 99999 -j ACCEPT",
        "-A FORWARD -d 192.0.2.1/32 -j DROP",
    ]
    dump = {
        "iptables-save": "\n".join(["*filter", ":FORWARD ACCEPT [0:0]", *rules, "COMMIT", ""]),
        "ip-route": "default via 10.0.0.1 dev eth0",
    }
    packet = {"source": "10.0.0.9", "destination": "192.0.2.1", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump=dump)
    assert found["culprit"] == {"kind": "rule", "text": f"ip filter: {rules[2]}"}
    assert all(any(rule in sentence for sentence in found["assumed"]) for rule in rules[:2])


@pytest.mark.parametrize("bypass", ["", " --queue-bypass"])
def test_a_program_that_reads_a_queue_makes_the_verdict_unknown(node: NamespaceNode, bypass: str) -> None:
    """In a twin no program reads it: the kernel drops the packet, or accepts it with --queue-bypass."""
    packet, dump, settings = case("eni-loadbalancer")
    rule = f"-A PREROUTING -j NFQUEUE --queue-num 1{bypass}"
    dump["iptables-save"] = f"*mangle\n:PREROUTING ACCEPT [0:0]\n{rule}\nCOMMIT\n"
    answer = trace(node, packet, dump=dump, assume=settings)
    assert (answer["verdict"], answer["certain"], answer["cures"]) == ("unknown", False, [])
    assert answer["culprit"] == {"kind": "rule", "text": f"ip mangle: {rule}"}


def test_what_counts_outside_of_the_ruleset_decides_nothing_and_what_the_kernel_lacks_is_said_once(node: NamespaceNode) -> None:
    """kube-proxy has a line with nfacct for each node port. A kernel may lack the match ipvs."""
    ports = [f"-A PREROUTING -d 192.0.2.4/32 -p tcp -m tcp --dport {30000 + number}" for number in range(60)]
    lines = [f"{port} -m nfacct --nfacct-name localhost_nps_accepted_pkts -j DNAT --to-destination 10.1.0.5:80" for port in ports]
    lines.insert(
        0, '-A PREROUTING -d 192.0.2.4/32 -m comment --comment "as -m ipvs and -m recent --rcheck --name x" -j MARK --set-mark 1'
    )
    lines += [f"-A PREROUTING -d 192.0.2.4/32 -m ipvs --vport {number} -j ACCEPT" for number in range(60)]
    dump = {
        "iptables-save": "\n".join(["*nat", ":PREROUTING ACCEPT [0:0]", *lines, "COMMIT", ""]),
        "ip route": "default via 192.0.2.1 dev eth0\n10.1.0.5 dev veth1 scope link",
        "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.4/24 scope global eth0",
    }
    packet = {"source": "198.51.100.7", "destination": "192.0.2.4", "destination_port": 30059, "interface": "eth0"}
    result = trace(node, packet, dump=dump)
    assert (result["verdict"], result["packet"]["destination"]) == ("delivered", "10.1.0.5")
    assert not [note for note in result["assumed"] if "nfacct" in note]
    assert any("-j MARK" in step["text"] for step in result["steps"])  # the names stand in a comment
    refused = [note for note in result["assumed"] if "ipvs" in note]
    assert len(refused) < 2 and all("refused 60 lines" in note and "this kernel lacks ipvs" in note for note in refused)


POD_OF_BRIDGE = {
    "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.4/24 scope global eth0\n"
    "3: cni0: <UP,LOWER_UP> mtu 1500\n    inet 10.244.2.1/24 scope global cni0\n"
    "4: veth1@if2: <UP,LOWER_UP> mtu 1500 master cni0\n5: veth2@if2: <UP,LOWER_UP> mtu 1500 master cni0\n",
    "ip route": "default via 192.0.2.1 dev eth0\n10.244.2.0/24 dev cni0 scope link\n10.244.3.0/24 via 192.0.2.3 dev eth0\n",
    "sysctl -a": "net.bridge.bridge-nf-call-iptables = 1\nnet.ipv4.ip_forward = 1\n",
}


def test_a_packet_by_a_port_is_filtered_and_routed_as_one_by_its_bridge(node: NamespaceNode) -> None:
    packet = {"source": "198.51.100.7", "destination": "10.244.3.9", "destination_port": 80, "interface": "veth1"}
    settings = {"net.ipv4.conf.cni0.rp_filter": 1, "net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.veth1.rp_filter": 0}
    result = trace(node, packet, dump=POD_OF_BRIDGE, assume=settings)
    assert (result["verdict"], result["culprit"]["text"]) == ("dropped", "net.ipv4.conf.cni0.rp_filter = 1")
    assert "comes in by cni0" in result["reason"]
    kernels = "0: from all lookup local\n32766: from all lookup main\n32767: from all lookup default\n"
    rules = f"{kernels}9: from all iif cni0 prohibit\n"
    result = trace(node, {**packet, "source": "10.244.2.5"}, dump={**POD_OF_BRIDGE, "ip rule": rules}, assume=settings)
    assert (result["verdict"], result["culprit"]["text"]) == ("rejected", "ip rule 9: from all iif cni0 prohibit")


@pytest.mark.parametrize("endpoint", ["10.244.2.9", "10.244.3.9"], ids=["behind the bridge", "on another node"])
def test_a_packet_that_is_translated_on_a_bridge_is_followed_to_the_rule_that_drops_it(
    node: NamespaceNode, endpoint: str
) -> None:
    """The kernel gives the packet another number when the bridge hands it up, and it has another destination by then."""
    lines = [
        *("*nat", ":PREROUTING ACCEPT", f"-A PREROUTING -d 10.96.0.9/32 -j DNAT --to-destination {endpoint}", "COMMIT"),
        *("*filter", ":FORWARD DROP", "-A FORWARD -d 192.0.2.99/32 -j ACCEPT", "COMMIT", ""),
    ]
    packet = {"source": "10.244.2.5", "destination": "10.96.0.9", "destination_port": 80, "interface": "veth1"}
    result = trace(node, packet, dump={**POD_OF_BRIDGE, "iptables-save": "\n".join(lines)})
    assert (result["verdict"], result["culprit"]) == ("dropped", {"kind": "rule", "text": "ip filter: -P FORWARD DROP"})
    places = [(step["where"], step["verdict"].split()[0]) for step in result["steps"] if step["kind"] in ("rule", "policy")]
    assert places.index(("ip nat PREROUTING", "accept")) < places.index(("ip filter FORWARD", "policy"))


@pytest.mark.parametrize(
    "rules",
    [
        {"iptables-save": "*filter\n:OUTPUT ACCEPT\n-A OUTPUT -d 192.0.2.9/32 -j REJECT\nCOMMIT\n"},
        {
            "nft list ruleset": "table ip x {\n chain y {\n  type filter hook output priority 0; policy accept;\n"
            "  ip daddr 192.0.2.9 reject\n }\n}\n"
        },
    ],
    ids=["iptables", "nft"],
)
def test_what_the_node_itself_sends_is_rejected_where_the_program_is_told(node: NamespaceNode, rules: dict[str, str]) -> None:
    result = trace(node, {"destination": "192.0.2.9", "destination_port": 80}, dump={**POD_OF_BRIDGE, **rules})
    assert result["verdict"] == "rejected" and result["culprit"]["kind"] == "rule", result


AFFINITY = """table ip kube-proxy {
 set affinity-a { type ipv4_addr; flags dynamic,timeout; timeout 3h; }
 set affinity-b { type ipv4_addr; flags dynamic,timeout; timeout 3h; ELEMENTS }
 chain a { update @affinity-a { ip saddr } ; meta l4proto tcp dnat to 10.244.2.9:80 }
 chain b { update @affinity-b { ip saddr } ; meta l4proto tcp dnat to 10.244.3.9:80 }
 chain service {
  ip saddr @affinity-a goto a
  ip saddr @affinity-b goto b
  numgen random mod 2 vmap { 0 : goto a, 1 : goto b }
 }
 chain prerouting { type nat hook prerouting priority -100; policy accept; ip daddr 10.96.0.9 tcp dport 80 goto service }
}
"""
RECENT = """*nat
:PREROUTING ACCEPT
:SVC -
:SEP-A -
:SEP-B -
-A PREROUTING -d 10.96.0.9/32 -p tcp -m tcp --dport 80 -j SVC
-A SVC -m recent --rcheck --seconds 10800 --reap --name SEP-A --mask 255.255.255.255 --rsource -j SEP-A
-A SVC -m recent --rcheck --seconds 10800 --reap --name SEP-B --mask 255.255.255.255 --rsource -j SEP-B
-A SVC -m statistic --mode random --probability 0.50000000000 -j SEP-A
-A SVC -j SEP-B
-A SEP-A -p tcp -m recent --set --name SEP-A --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.2.9:80
-A SEP-B -p tcp -m recent --set --name SEP-B --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.3.9:80
COMMIT
"""


@pytest.mark.parametrize(
    "rules",
    [
        {"nft list ruleset": AFFINITY.replace("ELEMENTS", "elements = { 192.0.2.77 timeout 3h expires 1h }")},
        {"iptables-save": RECENT},
    ],
    ids=["nft", "iptables"],
)
def test_each_packet_is_the_first_of_its_source(node: NamespaceNode, rules: dict[str, str]) -> None:
    """Session affinity: without that, all packets of a trace would go where the first one went."""
    packet = {"source": "192.0.2.50", "destination": "10.96.0.9", "destination_port": 80, "interface": "eth0"}
    result = trace(node, packet, dump={**POD_OF_BRIDGE, **rules})
    shares = {branch["packet"]["destination"]: branch["share"] for branch in result["branches"]}
    assert shares.keys() == {"10.244.2.9", "10.244.3.9"} and shares["10.244.2.9"] == pytest.approx(0.5, abs=0.3)
    changed = trace(node, packet, dump={**POD_OF_BRIDGE, **rules}, commands=["ip route add 203.0.113.0/24 dev eth0"])
    assert {branch["packet"]["destination"] for branch in changed["branches"]} == shares.keys()
    if "nft list ruleset" in rules:
        result = trace(node, {**packet, "source": "192.0.2.77"}, dump={**POD_OF_BRIDGE, **rules})
        assert (result["branches"], result["packet"]["destination"]) == ([], "10.244.3.9")
    else:
        recorded = trace(node, packet, dump={**POD_OF_BRIDGE, **rules}, assume={"recent:SEP-B": "with"})
        assert (recorded["branches"], recorded["packet"]["destination"]) == ([], "10.244.3.9")


def test_a_record_that_keeps_a_client_at_its_endpoint_is_an_open_fact(node: NamespaceNode) -> None:
    packet = {"source": "192.0.2.50", "destination": "10.96.0.9", "destination_port": 80, "interface": "eth0"}
    drop = "*filter\n:FORWARD ACCEPT\n-A FORWARD -d 10.244.3.9/32 -j DROP\nCOMMIT\n"
    dump = {**POD_OF_BRIDGE, "iptables-save": RECENT + drop, "sysctl": "net.ipv4.conf.all.rp_filter = 2\n"}
    result = trace(node, packet, dump=dump)
    first = result["depends_on"][0]
    assert (result["verdict"], first["fact"]) == ("unknown", "recent:SEP-A"), result["depends_on"]
    assert [outcome["verdict"] for outcome in first["outcomes"]] == ["dropped", "delivered"]
    given = {"recent:SEP-A": "without", "recent:SEP-B": "without"}
    result = trace(node, packet, dump=dump, assume=given)
    assert (result["verdict"], len(result["branches"])) == ("dropped", 2)


def test_the_records_of_the_running_node_are_read(node: NamespaceNode) -> None:
    node.run(["iptables", "-A", "OUTPUT", "-p", "udp", "-m", "recent", "--set", "--rdest", "--name", "KEPT"])
    node.run(["iptables", "-A", "OUTPUT", "-m", "recent", "--rcheck", "--rdest", "--name", "KEPT", "-j", "ACCEPT"])
    assert call(node, {"destination": "192.0.2.1", "destination_port": 53})["depends_on"] == []
    snapshot = Steps(node, "datapath_info", {"gather": ["recent"]}).run()["snapshot"]
    assert (snapshot["recent"], snapshot["unread"]) == ([], [])
    node.run(["bash", "-c", "echo x > /dev/udp/192.0.2.1/53"])
    snapshot = Steps(node, "datapath_info", {"gather": ["recent"]}).run()["snapshot"]
    assert snapshot["recent"] == [{"name": "KEPT", "addresses": ["192.0.2.1"]}]


MARKED = """table ip kube-proxy {
 chain mark { meta mark set meta mark | 0x4000 }
 chain a { meta l4proto tcp dnat to 10.244.2.9:80 }
 chain b { meta l4proto tcp dnat to 10.244.3.9:80 }
 chain c { meta l4proto tcp dnat to 10.244.4.9:80 }
 chain service {
  ip saddr != 10.244.0.0/16 jump mark
  numgen random mod 3 vmap { 0 : goto a, 1 : goto b, 2 : goto c }
 }
 chain prerouting { type nat hook prerouting priority -100; policy accept; ip daddr 10.96.0.9 tcp dport 80 jump service }
}
"""
MARKED_BY_IPTABLES = """*nat
:PREROUTING ACCEPT
:MASQ -
:SVC -
:SEP-A -
-A PREROUTING -d 10.96.0.9/32 -p tcp -m tcp --dport 80 -j SVC
-A MASQ -j MARK --set-xmark 0x4000/0x4000
-A SVC ! -s 10.244.0.0/16 -j MASQ
-A SVC -m statistic --mode random --probability 0.33333333333 -j SEP-A
-A SVC -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.3.9:80
-A SVC -p tcp -j DNAT --to-destination 10.244.4.9:80
-A SEP-A -p tcp -j DNAT --to-destination 10.244.2.9:80
COMMIT
"""


@pytest.mark.parametrize("rules", [{"nft list ruleset": MARKED}, {"iptables-save": MARKED_BY_IPTABLES}], ids=["nft", "iptables"])
def test_chance_decides_behind_a_chain_that_returns(node: NamespaceNode, rules: dict[str, str]) -> None:
    """kube-proxy marks a packet in another chain before it chooses an endpoint."""
    packet = {"source": "192.0.2.50", "destination": "10.96.0.9", "destination_port": 80, "interface": "eth0"}
    result = trace(node, packet, dump={**POD_OF_BRIDGE, **rules})
    shares = {branch["packet"]["destination"]: branch["share"] for branch in result["branches"]}
    assert shares == {f"10.244.{number}.9": pytest.approx(1 / 3, abs=0.001) for number in (2, 3, 4)}


ENDPOINTS = [f"10.244.2.{number}" for number in range(2, 102)]


def service_of_many(backend: str) -> dict[str, str]:
    """Rules of a Service, and one that drops the packets for one of its endpoints."""
    drop, last = f"-A FORWARD -d {ENDPOINTS[70]}/32 -j DROP", len(ENDPOINTS) - 1
    if backend == "nft":
        chains = "".join(f" chain e{number} {{ tcp dport 80 dnat to {end} }}\n" for number, end in enumerate(ENDPOINTS))
        elements = ", ".join(f"{number} : goto e{number}" for number in range(len(ENDPOINTS)))
        hook = "type nat hook prerouting priority -100; policy accept; ip daddr 10.96.0.9 tcp dport 80"
        service = f" chain service {{ numgen random mod {len(ENDPOINTS)} vmap {{ {elements} }} }}\n"
        table = f"table ip kube-proxy {{\n{chains}{service} chain prerouting {{ {hook} jump service; }}\n}}\n"
        return {"nft list ruleset": table, "iptables-save": f"*filter\n:FORWARD ACCEPT\n{drop}\nCOMMIT\n"}
    chances = [f"-m statistic --mode random --probability {1 / (last + 1 - number):.11f} " for number in range(last)]
    rules = [f"-A SVC -p tcp {chance}-j DNAT --to-destination {end}:80" for chance, end in zip([*chances, ""], ENDPOINTS)]
    lines = ["*nat", ":PREROUTING ACCEPT", ":SVC -", "-A PREROUTING -d 10.96.0.9/32 -p tcp -m tcp --dport 80 -j SVC", *rules]
    return {"iptables-save": "\n".join([*lines, "COMMIT", "*filter", ":FORWARD ACCEPT", drop, "COMMIT", ""])}


@pytest.mark.parametrize("backend", ["nft", "iptables"])
def test_each_endpoint_of_a_large_service_is_tried_and_the_answer_stays_short(node: NamespaceNode, backend: str) -> None:
    """By chance, 100 endpoints take hundreds of packets; each took a chain of its own, with the whole map, in the answer."""
    packet = {"source": "192.0.2.50", "destination": "10.96.0.9", "destination_port": 80, "interface": "eth0"}
    settings = f"{POD_OF_BRIDGE['sysctl -a']}net.ipv4.conf.all.rp_filter = 2\n"
    result = trace(node, packet, dump={**POD_OF_BRIDGE, "sysctl -a": settings, **service_of_many(backend)})
    branches = result["branches"]
    assert result["verdict"] == "dropped" and ENDPOINTS[70] in result["culprit"]["text"], result["reason"]
    assert sum(branch["count"] for branch in branches) == len(ENDPOINTS) and len(branches) <= 22
    assert sum(branch["share"] for branch in branches) == pytest.approx(1, abs=0.01)
    assert [branch["count"] for branch in branches if branch["verdict"] == "dropped"] == [1]
    assert "random" in (text := json.dumps(branches)) and " nth" not in text and "numgen inc" not in text
    assert len(text) < 100_000


@pytest.mark.parametrize("port", ["30080", "30081"])
def test_a_node_port_without_endpoints_is_named_by_its_service(node: NamespaceNode, port: str) -> None:
    ruleset = """table ip kube-proxy {
 set nodeport-ips { type ipv4_addr; elements = { 192.0.2.4 } }
 map no-endpoint-nodeports { type inet_proto . inet_service : verdict
  elements = { tcp . 30080 comment "ns1/svc1:p80" : goto reject-chain, tcp . 30081 comment "ns2/svc2:p80" : goto reject-chain } }
 chain reject-chain { reject }
 chain check { ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports }
 chain input { type filter hook input priority -110; policy accept; ct state new jump check }
}
"""
    packet = {"source": "192.0.2.50", "destination": "192.0.2.4", "destination_port": port, "interface": "eth0"}
    result = trace(node, packet, dump={**POD_OF_BRIDGE, "nft list ruleset": ruleset})
    assert result["verdict"] == "rejected" and f"ns{int(port) - 30079}/svc" in result["reason"], result["reason"]


def test_an_answer_to_a_pod_that_leaves_the_node_is_lost(node: NamespaceNode) -> None:
    dump = {
        "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.4/24 scope global eth0\n"
        "3: eth1: <UP,LOWER_UP> mtu 1500\n4: veth1@if2: <UP,LOWER_UP> mtu 1500\n",
        "ip route show table all": "default via 192.0.2.1 dev eth0\n10.1.0.5 dev veth1 scope link\n"
        "default via 10.9.0.1 dev eth1 table 7 onlink\n",
        "ip rule": "0:\tfrom all lookup local\n100:\tfrom 192.0.2.4 lookup 7\n32766:\tfrom all lookup main\n",
        "sysctl": "net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.conf.veth1.rp_filter = 0\n",
    }
    packet = {"source": "10.1.0.5", "destination": "192.0.2.4", "destination_port": 22, "interface": "veth1"}
    result = trace(node, packet, dump=dump)
    assert (result["verdict"], result["reply"]["verdict"]) == ("delivered", "dropped")
    assert "The packet is from the pod at veth1, and its reply leaves the node by eth1." in result["reason"]
    assert result["culprit"] == {"kind": "rule", "text": "ip rule 100: from 192.0.2.4 lookup 7"}


def test_a_reply_with_the_source_of_another_interface_is_named(node: NamespaceNode) -> None:
    dump = {
        "ip addr": "2: eth0: <UP,LOWER_UP> mtu 9001\n inet 10.0.0.4/24 scope global eth0\n"
        "3: eth1: <UP,LOWER_UP> mtu 9001\n inet 10.0.1.4/24 scope global eth1\n"
        "9: eniabc@if3: <UP,LOWER_UP> mtu 9001\n",
        "ip rule": "0: from all lookup local\n512: from all to 10.0.1.20 lookup main\n1536: from 10.0.1.20 lookup 2\n"
        "32766: from all lookup main\n",
        "ip route show table all": "default via 10.0.1.1 dev eth1 table 2\n10.0.1.1 dev eth1 table 2 scope link\n"
        "default via 10.0.0.1 dev eth0\n10.0.1.20 dev eniabc scope link\n",
        "iptables-save": "*nat\n:PREROUTING ACCEPT [0:0]\n"
        "-A PREROUTING -p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.0.1.20:80\nCOMMIT\n",
        "sysctl": "net.ipv4.conf.all.rp_filter = 2\n",
    }
    packet = {"source": "192.168.1.1", "destination": "10.0.0.4", "destination_port": 30080, "interface": "eth0"}
    found = trace(node, packet, dump=dump)
    assert (found["verdict"], found["reply"]["verdict"], found["reply"]["interface"]) == ("delivered", "forwarded", "eth1")
    assert "Its source is an address of eth0" in found["reason"]


@pytest.mark.parametrize("kind", ["kube-ipvs0", "lo", "cni0", ""])
@pytest.mark.parametrize(("came_in_by", "is_alone"), [("eth0", True), ("eth1", False)])
def test_a_reply_under_a_services_address_by_another_uplink_is_named(
    node: NamespaceNode, kind: str, came_in_by: str, is_alone: bool
) -> None:
    """The pod answers by its own uplink, eth1, whichever link has the address of the Service, if one has it."""
    service = f"9: {kind}: <UP,LOWER_UP> mtu 1500\n inet 203.0.113.5/32 scope global {kind}\n" if kind else ""
    dump = {
        "ip addr": "2: eth0: <UP,LOWER_UP> mtu 9001\n inet 10.0.0.4/24 scope global eth0\n"
        "3: eth1: <UP,LOWER_UP> mtu 9001\n inet 10.0.1.4/24 scope global eth1\n"
        f"7: eniabc@if3: <UP,LOWER_UP> mtu 9001\n{service}",
        "ip rule": "0: from all lookup local\n1536: from 10.0.1.20 lookup 2\n32766: from all lookup main\n",
        "ip route show table all": "default via 10.0.1.1 dev eth1 table 2\n10.0.1.1 dev eth1 table 2 scope link\n"
        "default via 10.0.0.1 dev eth0\n10.0.1.20 dev eniabc scope link\n",
        "iptables-save": "*nat\n:PREROUTING ACCEPT [0:0]\n"
        "-A PREROUTING -d 203.0.113.5/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.1.20:80\nCOMMIT\n",
        "sysctl": "net.ipv4.conf.all.rp_filter = 2\n",
    }
    packet = {"source": "192.168.1.1", "destination": "203.0.113.5", "destination_port": 80, "interface": came_in_by}
    found = trace(node, packet, dump=dump, assume={"ipvs": "none"} if kind == "kube-ipvs0" else {})
    assert (found["verdict"], found["reply"]["verdict"], found["reply"]["interface"]) == ("delivered", "forwarded", "eth1")
    caveat = f"Packets to its source come in by {came_in_by}: a cloud that checks the sources"
    assert (caveat in found["reason"]) == is_alone, found["reason"]
    assert ("source-check:eth1" in [entry["fact"] for entry in found["depends_on"]]) == is_alone


TUNNELS = {  # the last words of a link, and the match of rules for what carries its packets
    "vxlan": (
        "vxlan id 1 local 10.0.0.4 remote 10.0.0.5 dev eth0 dstport 4789 ttl auto",
        "-p udp -m udp --dport 4789",
    ),
    "geneve": ("geneve id 1 remote 10.0.0.5 dstport 6081 ttl auto", "-p udp -m udp --dport 6081"),
    "ipip": ("ipip remote 10.0.0.5 local 10.0.0.4 ttl inherit", "-p 4"),
}


@pytest.mark.parametrize("kind", TUNNELS)
@pytest.mark.parametrize("chain", ["INPUT", "OUTPUT", ""])
@pytest.mark.parametrize("passes_answers", [True, False])
def test_a_rule_that_stops_what_carries_the_packets_of_a_tunnel_stops_them(
    node: NamespaceNode, kind: str, chain: str, passes_answers: bool
) -> None:
    """Tunnels over UDP take another port for each packet, so that none is an answer for connection tracking."""
    words, match = TUNNELS[kind]
    answers = f"-A {chain or 'INPUT'} -m conntrack --ctstate ESTABLISHED -j ACCEPT\n" if passes_answers else ""
    stopping = f"-A {chain} {match} -j DROP\n" if chain else ""
    found = trace(node, TO_REMOTE_POD, dump=_with_tunnel(words, f"{answers}{stopping}"))
    stopped = found["verdict"] == "dropped", found["reply"] is not None and found["reply"]["verdict"] == "dropped"
    is_answer = passes_answers and kind == "ipip" and chain == "INPUT"
    assert stopped == (chain == "OUTPUT", chain == "INPUT" and not is_answer), found["reason"]
    if any(stopped):
        assert match in found["culprit"]["text"] and "tun0 carries" in found["reason"]


def test_a_tunnel_whose_own_address_the_node_lacks_carries_no_reply(node: NamespaceNode) -> None:
    found = trace(node, TO_REMOTE_POD, dump=_with_tunnel(TUNNELS["vxlan"][0].replace("10.0.0.4", "10.0.0.6"), ""))
    assert (found["verdict"], found["reply"]["verdict"]) == ("forwarded", "dropped")
    assert found["culprit"]["text"] == "no address 10.0.0.6 on the node" and "tun0 carries its reply as udp " in found["reason"]


TO_REMOTE_POD = {"source": "10.60.1.5", "destination": "10.60.2.5", "destination_port": 80, "interface": "veth1"}


def _with_tunnel(words: str, rules: str) -> dict[str, str]:
    """Return the outputs of a node with a tunnel to another one. words: the last ones of the link. rules: of table filter."""
    return {
        "ip -d addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n link/ether 02:00:00:00:00:04\n inet 10.0.0.4/24 scope global eth0\n"
        f"5: tun0: <UP,LOWER_UP> mtu 1450\n link/ether 02:00:00:00:01:04\n {words}\n inet 10.60.1.0/32 scope global tun0\n"
        "7: veth1@if3: <UP,LOWER_UP> mtu 1450\n veth\n",
        "ip rule": "0: from all lookup local\n32766: from all lookup main\n32767: from all lookup default\n",
        "ip route show table all": "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.4\n"
        "10.60.1.5 dev veth1 scope link\n10.60.2.0/24 via 10.60.2.0 dev tun0 onlink\n",
        "ip neigh": "10.60.2.0 dev tun0 lladdr 02:00:00:00:01:05 PERMANENT\n"
        "10.0.0.5 dev eth0 lladdr 02:00:00:00:00:05 REACHABLE\n",
        "iptables-save": f"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{rules}COMMIT\n",
        "nft list ruleset": "",
        "sysctl": "net.ipv4.conf.all.rp_filter = 0\nnet.ipv4.ip_forward = 1\n",
    }


def test_a_packet_to_a_service_that_no_rule_translates_is_not_certain_to_arrive(node: NamespaceNode) -> None:
    """No chain of a hook leads to the chain of Services, and the packet leaves as it came."""
    dump = {
        "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n inet 10.0.0.4/24 scope global eth0\n",
        "ip rule": "0: from all lookup local\n32766: from all lookup main\n32767: from all lookup default\n",
        "ip route show table all": "default via 10.0.0.1 dev eth0\n",
        "ip neigh": "10.0.0.1 dev eth0 lladdr 02:00:00:00:00:01 REACHABLE\n",
        "iptables-save": "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-A - [0:0]\n"
        "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 53 -j KUBE-SVC-A\n"
        "-A KUBE-SVC-A -j DNAT --to-destination 10.0.0.9:53\nCOMMIT\n",
        "nft list ruleset": "",
        "sysctl": "net.ipv4.conf.all.rp_filter = 0\n",
    }
    facts = {
        port: [
            entry["fact"]
            for entry in trace(node, {"destination": "10.96.0.10", "destination_port": port}, dump=dump)["depends_on"]
        ]
        for port in (53, 54)
    }
    assert ("answer:10.96.0.10" in facts[53], "answer:10.96.0.10" in facts[54]) == (True, False), facts


def test_a_mark_that_takes_a_pods_request_off_its_own_eni_is_named(node: NamespaceNode) -> None:
    """A Service's address is not in the VPC: the CNI's rules treat it as the internet's, before kube-proxy translates it.

    https://github.com/aws/amazon-vpc-cni-k8s/issues/3800 has the case; the texts are made for this test.
    """
    dump = {
        "ip addr": "2: ens5: <UP,LOWER_UP> mtu 9001\n inet 10.0.0.5/20 scope global ens5\n"
        "3: ens6: <UP,LOWER_UP> mtu 9001\n inet 10.0.0.77/20 scope global ens6\n"
        "7: eniabc@if3: <UP,LOWER_UP> mtu 9001\n",
        "ip rule": "0: from all lookup local\n512: from all to 10.0.1.55 lookup main\n"
        "1024: from all fwmark 0x80/0x80 lookup main\n1536: from 10.0.1.55 lookup 2\n32766: from all lookup main\n",
        "ip route show table all": "default via 10.0.0.1 dev ens6 table 2\n10.0.0.1 dev ens6 table 2 scope link\n"
        "default via 10.0.0.1 dev ens5\n10.0.0.0/20 dev ens5 scope link\n10.0.1.55 dev eniabc scope link\n",
        "iptables-save": "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:OUTBOUND - [0:0]\n"
        "-A PREROUTING -i eni+ -j OUTBOUND\n-A PREROUTING -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80\n"
        "-A PREROUTING -d 172.20.0.10/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.0.9.9:53\n"
        "-A POSTROUTING ! -d 10.0.0.0/16 -m addrtype ! --dst-type LOCAL -j MASQUERADE --random-fully\n"
        "-A OUTBOUND -d 10.0.0.0/16 -j RETURN\n-A OUTBOUND -j CONNMARK --set-xmark 0x80/0x80\nCOMMIT\n",
        "sysctl": "net.ipv4.ip_forward = 1\nnet.ipv4.conf.all.rp_filter = 2\n",
    }
    packet = {
        "source": "10.0.1.55",
        "destination": "172.20.0.10",
        "protocol": "udp",
        "destination_port": 53,
        "interface": "eniabc",
    }
    found = trace(node, packet, dump=dump)
    assert (found["verdict"], found["interface"], found["ignored"]) == ("forwarded", "ens5", [])
    assert "Its source belongs to ens6 (1536: from 10.0.1.55 lookup 2): a cloud" in found["reason"]
    assert "-A OUTBOUND -j CONNMARK --set-xmark 0x80/0x80" in [step["text"] for step in found["steps"]]
    direct = trace(node, {**packet, "destination": "10.0.9.9"}, dump=dump)
    assert (direct["verdict"], direct["interface"]) == ("forwarded", "ens6") and "belongs to" not in direct["reason"]


def test_the_way_back_is_told_by_the_rule_for_the_link_by_which_an_answer_comes_in(node: NamespaceNode) -> None:
    """Such as Terway's rules, which name the pod's link."""
    dump = {
        "ip rule": "0: from all lookup local\n512: from all to 10.0.1.20 lookup main\n"
        "2048: from 10.0.1.20 iif cali1 lookup 1003\n32766: from all lookup main\n",
        "ip route show table all": "default via 10.0.1.1 dev eth1 table 1003 onlink\ndefault via 10.0.0.1 dev eth0\n"
        "10.0.1.20 dev cali1 scope link\n",
        "sysctl": "".join(
            f"net.ipv4.conf.{name}.rp_filter = {int(name == 'all')}\n" for name in ("all", "eth0", "eth1", "cali1")
        ),
    }
    packet = {"source": "10.0.9.9", "destination": "10.0.1.20", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump=dump)
    assert found["culprit"] == {"kind": "sysctl", "text": "net.ipv4.conf.all.rp_filter = 1"}
    assert "to 10.0.9.9 is dev eth1 (2048: from 10.0.1.20 iif cali1 lookup 1003)" in found["reason"]
    found = trace(node, {**packet, "interface": "eth1"}, dump=dump)
    assert (found["verdict"], found["reply"]["interface"], found["culprit"]) == ("delivered", "eth1", None)


BRIDGED = {
    "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n inet 10.0.0.5/24 scope global eth0\n"
    "3: cni0: <UP,LOWER_UP> mtu 1450\n inet 10.244.1.1/24 scope global cni0\n",
    "ip route": "default via 10.0.0.1 dev eth0\n",
}
FROM_POD = {"source": "10.244.1.9", "destination": "192.0.2.1", "destination_port": 80, "interface": "cni0"}


def test_the_rules_that_a_packet_from_behind_a_bridge_meets_are_named(node: NamespaceNode) -> None:
    """The bridge hands the packet to the node, and the kernel traces it as a new packet after that."""
    drop = "-A FORWARD -s 10.244.1.0/24 -j DROP"
    found = trace(node, FROM_POD, dump={**BRIDGED, "iptables-save": f"*filter\n:FORWARD ACCEPT [0:0]\n{drop}\nCOMMIT\n"})
    assert found["culprit"] == {"kind": "rule", "text": f"ip filter: {drop}"}
    masquerade = "-A POSTROUTING -s 10.244.1.0/24 -j MASQUERADE"
    found = trace(node, FROM_POD, dump={**BRIDGED, "iptables-save": f"*nat\n:POSTROUTING ACCEPT [0:0]\n{masquerade}\nCOMMIT\n"})
    assert masquerade in [step["text"] for step in found["steps"]]


def test_a_packet_from_a_pod_leaves_a_bridge_by_its_uplink_or_is_dropped_there(node: NamespaceNode) -> None:
    dump = {
        "ip a": "2: eth0: <UP,LOWER_UP> mtu 1500 master azure0\n    link/ether 00:0d:3a:30:47:42\n"
        "3: azure0: <UP,LOWER_UP> mtu 1500\n    link/ether 00:0d:3a:30:47:42\n    inet 10.240.0.34/16 scope global azure0\n"
        "7: azv1@if6: <UP,LOWER_UP> mtu 1500 master azure0\n    link/ether be:ef:00:00:00:07\n",
        "ip r": "default via 10.240.0.1 dev azure0\n10.240.0.0/16 dev azure0 proto kernel scope link src 10.240.0.34\n",
    }
    packet = {"source": "10.240.0.45", "destination": "192.0.2.1", "protocol": "udp", "destination_port": 53, "interface": "azv1"}
    found = trace(node, packet, dump=dump)
    assert (found["verdict"], found["interface"], found["culprit"]) == ("forwarded", "eth0", None)
    assert (found["reply"]["verdict"], found["reply"]["interface"]) == ("delivered", "azv1")
    rule = "-p IPv4 -o eth0 --ip-proto udp --ip-dport 53 -j DROP"
    rules = f"Bridge table: filter\n\nBridge chain: OUTPUT, entries: 1, policy: ACCEPT\n{rule}\n"
    found = trace(node, packet, dump={**dump, "ebtables -L": rules})
    assert found["culprit"] == {"kind": "rule", "text": f"bridge filter: -A OUTPUT {rule}"}


def test_an_address_that_two_tables_lead_to_is_behind_both_links(node: NamespaceNode) -> None:
    """The error of a rule that rejects comes back only if the sender answers where a neighbour's entry is not known."""
    dump = {
        "ip link": "2: eth0@if2: <UP,LOWER_UP> mtu 1500\n3: pod1@if3: <UP,LOWER_UP> mtu 1500\n"
        "4: pod2@if4: <UP,LOWER_UP> mtu 1500\n",
        "ip -6 route show table all": "fd00:10:1::5 dev pod2 table 100\ndefault via fd00:10::1 dev eth0 table 100\n"
        "fd00:10:1::5 dev pod1\nfd00:10::/64 dev eth0 proto kernel\ndefault via fd00:10::1 dev eth0\n"
        "local fd00:10::4 dev eth0 table local proto kernel\n",
        "ip -6 rule": "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n",
        "nft list ruleset": "table inet own {\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n"
        "\t\ticmpv6 type echo-request reject\n\t}\n}\n",
    }
    packet = {"source": "fd00:10:1::5", "destination": "2001:db8::9", "protocol": "icmpv6", "interface": "pod1"}
    assert trace(node, packet, dump=dump)["verdict"] == "rejected"


def test_a_table_that_a_rule_of_the_protocol_leads_the_answer_to_is_open(node: NamespaceNode) -> None:
    dump = {
        "ip addr": "2: eth0@if2: <UP,LOWER_UP> mtu 1500\n    inet 10.0.0.4/24 scope global eth0\n"
        "3: pod1@if3: <UP,LOWER_UP> mtu 1500\n",
        "ip rule": "0:\tfrom all lookup local\n100:\tfrom all ipproto tcp lookup 100\n32766:\tfrom all lookup main\n",
        "ip route": "10.1.0.5 dev pod1\n10.0.0.0/24 dev eth0 proto kernel\ndefault via 10.0.0.1 dev eth0\n",
        "iptables-save; nft list ruleset": "",
    }
    packet = {"source": "10.1.0.5", "destination": "10.0.0.4", "destination_port": 80, "interface": "pod1"}
    for protocol, is_met in (("tcp", True), ("udp", False)):
        facts = trace(node, {**packet, "protocol": protocol}, dump=dump)["depends_on"]
        assert ("routes:100" in [fact["fact"] for fact in facts]) is is_met, protocol


def test_the_error_of_an_unreachable_rule_takes_a_way_that_may_be_open(node: NamespaceNode) -> None:
    dump = {
        "ip addr": "2: eth0@if2: <UP,LOWER_UP> mtu 1500\n    inet 10.0.0.4/24 scope global eth0\n",
        "ip rule": "0:\tfrom all lookup local\n100:\tfrom all ipproto tcp unreachable\n32766:\tfrom all lookup main\n",
        "ip route show table 100": "10.1.0.0/24 dev eth0\n",
    }
    packet = {"source": "192.0.2.9", "destination": "10.1.0.7", "destination_port": 80, "interface": "eth0"}
    answer = trace(node, packet, dump=dump)
    assert not answer["certain"] and "routes:main" in [fact["fact"] for fact in answer["depends_on"]], answer["depends_on"]


# Questions in public reports, with new texts in the form of the pasted ones: paste, packet, culprit, words of the reason.
REPORTS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "https://github.com/rancher-archives/rke/issues/485": (
        "$ sudo iptables -t filter -v --line-numbers -L FORWARD\nChain FORWARD (policy DROP 3 packets, 188 bytes)\n"
        "num   pkts bytes target     prot opt in     out     source               destination\n"
        "1       15   936 KUBE-FORWARD  all  --  any    any     anywhere             anywhere             /* rules */\n"
        "2        0     0 ACCEPT     all  --  any    docker0  anywhere             anywhere             ctstate RELATED\n"
        "$ ip route\ndefault via 10.0.0.1 dev eth0\n10.42.2.0/24 via 10.42.2.0 dev flannel.1 onlink\n",
        {"source": "10.9.9.9", "destination": "10.42.2.7", "destination_port": 80, "interface": "eth0"},
        "ip filter: -P FORWARD DROP",
        "ip filter FORWARD drops the packet: -P FORWARD DROP.",
    ),
    "https://github.com/Azure/AKS/issues/2225": (
        "$ iptables --list\nChain FORWARD (policy ACCEPT)\ntarget     prot opt source               destination\n"
        "AZURE-NPM  all  --  anywhere             anywhere\n\nChain AZURE-NPM (1 references)\n"
        "target     prot opt source               destination\n"
        "DROP       all  --  anywhere             anywhere             match-set azure-npm-39 dst /* DROP-ALL */\n"
        "$ ipset list azure-npm-39\nName: azure-npm-39\nType: hash:net\nHeader: family inet hashsize 1024 maxelem 65536\n"
        "Members:\n10.240.0.17\n$ ip route\ndefault via 10.240.0.1 dev eth0\n10.240.0.17 dev azv123 scope link\n",
        {"source": "10.9.9.9", "destination": "10.240.0.17", "destination_port": 80, "interface": "eth0"},
        "ip filter: -A AZURE-NPM -m comment --comment DROP-ALL -m set --match-set azure-npm-39 dst -j DROP",
        "drops the packet",
    ),
    # A DNS cache on the node; pods behind azure-vnet's bridge do not reach its address.
    "https://github.com/Azure/AKS/issues/1642": (
        "nodelocaldns: <BROADCAST,NOARP,UP,LOWER_UP> mtu 1500 qdisc noqueue state UNKNOWN group default\n"
        "    inet 10.0.0.10/32 brd 10.0.0.10 scope global nodelocaldns\n"
        "$ ip a\n2: eth0: <UP,LOWER_UP> mtu 1500 master azure0\n    link/ether 00:0d:3a:30:47:42\n"
        "3: azure0: <UP,LOWER_UP> mtu 1500\n    link/ether 00:0d:3a:30:47:42\n    inet 10.240.0.34/12 scope global azure0\n"
        "7: azv9be2a3f1c07@if6: <UP,LOWER_UP> mtu 1500 master azure0\n    link/ether be:ef:00:00:00:07\n"
        "$ ip route\ndefault via 10.240.0.1 dev azure0\n"
        "$ ebtables -t nat -L\nBridge table: nat\n\nBridge chain: PREROUTING, entries: 1, policy: ACCEPT\n"
        "-i az+ -j dnat --to-dst 12:34:56:78:9a:bc --dnat-target ACCEPT\n\n"
        "Bridge chain: POSTROUTING, entries: 1, policy: ACCEPT\n"
        "-s Unicast -o eth0 -j snat --to-src 0:d:3a:30:47:42 --snat-arp --snat-target ACCEPT\n",
        {
            "source": "10.240.0.45",
            "destination": "10.0.0.10",
            "protocol": "udp",
            "destination_port": 53,
            "interface": "azv9be2a3f1c07",
        },
        "bridge nat: -A PREROUTING -i az+ -j dnat --to-dst 12:34:56:78:9a:bc --dnat-target ACCEPT",
        "the node itself has 10.0.0.10, on nodelocaldns",
    ),
    "https://github.com/weaveworks/weave/issues/3568": (
        "```\nsudo iptables-save | grep shop-front\n"
        '-A KUBE-NODEPORTS -p tcp -m comment --comment "web/shop-front:" -m tcp --dport 31204 -j KUBE-XLB-SHOP\n'
        '-A KUBE-XLB-SHOP -m comment --comment "web/shop-front: has no local endpoints" -j KUBE-MARK-DROP\n```\n'
        "ip a:\n```\n2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.61/24 scope global eth0\n```\n",
        {"source": "192.0.2.5", "destination": "192.0.2.61", "destination_port": 31204, "interface": "eth0"},
        'ip nat: -A KUBE-XLB-SHOP -m comment --comment "web/shop-front: has no local endpoints" -j KUBE-MARK-DROP',
        "ip filter KUBE-FIREWALL drops the packet: -A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP. It has the mark",
    ),
    "https://github.com/flannel-io/flannel/issues/2055": (
        "[root@n1 ~]# nft list table inet firewalld\ntable inet firewalld { # progname firewalld\n\tflags owner,persist\n\n"
        "\tchain filter_FORWARD {\n\t\ttype filter hook forward priority filter + 10; policy accept;\n"
        "\t\tct state { established, related } accept\n\t\tgoto filter_FWD_public\n\t}\n\n\tchain filter_FWD_public {\n"
        '\t\toifname "enp1s0" accept\n\t\treject with icmpx admin-prohibited\n\t}\n}\n'
        "[root@n1 ~]# ip r\ndefault via 192.0.2.1 dev enp1s0\n10.42.0.0/24 dev cni0 proto kernel scope link src 10.42.0.1\n"
        "10.42.1.0/24 via 10.42.1.0 dev flannel.1 onlink\n",
        {"source": "10.42.1.5", "destination": "10.42.0.2", "destination_port": 53, "protocol": "udp", "interface": "flannel.1"},
        "inet firewalld filter_FWD_public: reject with icmpx admin-prohibited",
        "inet firewalld filter_FWD_public rejects the packet",
    ),
    "https://github.com/kubernetes/kubernetes/issues/75262": (
        "$ ipvsadm -Ln\nTCP  192.0.2.187:443 rr\nTCP  192.0.2.188:443 rr\n  -> 10.42.0.9:8443  Masq 1 0 0\n",
        {"source": "10.42.0.7", "destination": "192.0.2.187", "destination_port": 443, "interface": "cali123"},
        "ipvs: TCP  192.0.2.187:443 rr",
        "IPVS has no destination for the virtual server TCP  192.0.2.187:443 rr. The node answers with ICMP type 3 code 3",
    ),
}


@pytest.mark.parametrize(
    ("destination", "reply", "left"),
    [
        ("10.13.100.10", "src=10.13.100.10 dst=10.13.76.4 sport=8080", ("10.13.76.4", "10.13.100.10", 8080)),
        ("203.0.113.9", "src=10.244.1.5 dst=10.13.76.17 sport=80", ("10.13.76.17", "10.244.1.5", 80)),
    ],
)
def test_a_tracked_connection_shows_what_an_open_chain_translates(
    node: NamespaceNode, destination: str, reply: str, left: tuple[str, str, int]
) -> None:
    text = (
        "$ ip route\ndefault via 10.13.76.1 dev eth0\n10.13.76.17 dev azv1 scope link\n"
        "$ iptables-save -t nat\n*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j cali-PREROUTING\nCOMMIT\n$ conntrack -L\n"
        f"tcp 6 117 TIME_WAIT src=10.13.76.17 dst={destination} sport=59850 dport=8080 {reply} dport=59850 [ASSURED] use=1\n"
    )
    packet = {"source": "10.13.76.17", "destination": destination, "destination_port": 8080, "interface": "azv1"}
    found = trace(node, packet, dump={"report": text})
    assert tuple(found["packet"][key] for key in ("source", "destination", "destination_port")) == left
    assert "becomes" in found["reason"] and not found["certain"]
    lets, translates = found["depends_on"][0]["outcomes"]
    assert lets["contradicted_by"] and translates["evidence"]


def test_a_chain_that_no_output_has_decides(node: NamespaceNode) -> None:
    """https://github.com/projectcalico/calico/issues/9290."""
    text = (
        "$ ip route\ndefault via 10.0.0.1 dev eth0\n10.0.3.5 dev cali11239 scope link\n"
        "iptables -L cali-tw-cali11239 -t filter -n --line-number\nChain cali-tw-cali11239 (1 references)\n"
        "num  target     prot opt source               destination\n"
        "1    ACCEPT     all  --  0.0.0.0/0            0.0.0.0/0            /* cali:6 */ ctstate RELATED,ESTABLISHED\n"
        "2    MARK       all  --  0.0.0.0/0            0.0.0.0/0            /* cali:7 */ /* Start */ MARK and 0xfffdffff\n"
        "3    cali-pi-_D  all  --  0.0.0.0/0            0.0.0.0/0            /* cali:c */ mark match 0x0/0x20000\n"
        "4    DROP       all  --  0.0.0.0/0            0.0.0.0/0            /* cali:D */ mark match 0x0/0x20000\n"
    )
    packet = {"source": "10.9.9.9", "destination": "10.0.3.5", "protocol": "icmp", "interface": "eth0"}
    found = trace(node, packet, dump={"report": text})
    fact, *_others = found["depends_on"]
    assert (found["verdict"], found["culprit"], found["certain"]) == ("unknown", None, False)
    assert fact["fact"] == "chain:ip filter cali-pi-_D" and fact["ask"] == "iptables-save -t filter"
    assert [outcome["verdict"] for outcome in fact["outcomes"]] == ["dropped", "delivered", "dropped"]
    told = trace(node, packet, dump={"report": text}, assume={fact["fact"]: "returns"})
    rule = 'ip filter: -A cali-tw-cali11239 -m comment --comment "cali:D" -m mark --mark 0x0/0x20000 -j DROP'
    assert told["culprit"] == {"kind": "rule", "text": rule}


TO_POD = {"source": "203.0.113.7", "destination": "10.20.0.5", "destination_port": 8080, "interface": "eth0"}
TO_POD6 = {**TO_POD, "source": "2001:db8:7::1", "destination": "2001:db8:20::5"}
ROUTES = "default via 192.0.2.1 dev eth0\n10.20.0.0/24 via 192.0.2.9 dev eth0\n"
POD_ROUTES = "default via 192.0.2.1 dev eth0\n10.20.0.5 dev veth1 scope link\n"
RULES = (
    "0:\tfrom all lookup local\n50:\tfrom 203.0.113.7 lookup 60\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n"
)
OPEN_FILTER = "*filter\n:INPUT {}\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{}COMMIT\n"
LINKS = "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.4/24 scope global eth0\n"
NFT_CHAIN = (
    "\tchain gate {\n\t\ttype filter hook prerouting priority raw; policy accept;\n"
    "\t\tmeta nfproto ipv6 ip6 saddr 2001:db8:7::/64 drop\n\t}\n"
)
# Pastes that lack an output: packet, outputs, verdict, the fact that decides first, and the verdicts with its values.
PARTS: dict[str, tuple[dict[str, Any], dict[str, str], str, str, list[str]]] = {
    "a set": (
        TO_POD,
        {"iptables-save": OPEN_FILTER.format("ACCEPT", "-A FORWARD -m set --match-set bad src -j DROP\n"), "ip-route": ROUTES},
        "unknown", "set:bad", ["forwarded", "dropped"],
    ),
    "a chain": (
        TO_POD, {"iptables-S": "-P FORWARD ACCEPT\n-A FORWARD -j CUSTOM\n", "ip-route": ROUTES},
        "unknown", "chain:ip filter CUSTOM", ["forwarded", "forwarded", "dropped"],
    ),
    "a chain that the answer of the node enters": (
        {**TO_POD, "destination": "192.0.2.4"},
        {"iptables-S": "-P INPUT ACCEPT\n-P OUTPUT ACCEPT\n-A OUTPUT -j ANSWERS\n", "ip-addr": LINKS, "ip-route": ROUTES},
        "unknown", "chain:ip filter ANSWERS", ["delivered", "delivered", "delivered"],
    ),
    "the routes": (
        TO_POD, {"iptables-save": OPEN_FILTER.format("DROP", "")},
        "unknown", "routes", ["delivered", "dropped", "forwarded"],
    ),
    "the routes of a table": (TO_POD, {"ip-rule": RULES}, "unknown", "routes:60", ["delivered", "forwarded"]),
    "the filter of a link": (
        {**TO_POD, "interface": "eth1"}, {"ip-route": POD_ROUTES, "sysctl": "net.ipv4.conf.all.rp_filter = 1\n"},
        "unknown", "rp_filter:eth1", ["dropped", "delivered"],
    ),
    "the servers of IPVS": (
        {"destination": "10.96.0.9", "destination_port": 53, "protocol": "udp"},
        {"ip-addr": f"{LINKS}3: kube-ipvs0: <BROADCAST,NOARP> mtu 1500\n    inet 10.96.0.9/32 scope global kube-ipvs0\n"},
        "unknown", "ipvs", ["delivered", "unknown"],
    ),
    "an IPv6 route": (
        TO_POD6, {"ip6tables-save": OPEN_FILTER.format("ACCEPT", "")},
        "unknown", "routes", ["delivered", "delivered", "forwarded"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("packet", "dump", "verdict", "fact", "verdicts"), PARTS.values(), ids=PARTS)
def test_what_a_paste_lacks_decides_or_does_not(
    node: NamespaceNode, packet: dict[str, Any], dump: dict[str, str], verdict: str, fact: str, verdicts: list[str]
) -> None:
    found = trace(node, packet, dump=dump)
    first = found["depends_on"][0]
    assert (found["verdict"], found["certain"], first["fact"]) == (verdict, False, fact), found["reason"]
    assert [outcome["verdict"] for outcome in first["outcomes"]] == verdicts


@pytest.mark.parametrize(
    ("packet", "text", "culprit"),
    [
        (TO_POD, "$ iptables -nvL FORWARD | grep eth0\n   3  180 DROP  0  --  eth0  *  0.0.0.0/0  0.0.0.0/0\n", "-i eth0"),
        (TO_POD, "$ sudo iptables -t filter --list-rule FORWARD\n-P FORWARD DROP\n", "-P FORWARD DROP"),
        (TO_POD, "$ iptables -L -n\nChain FORWARD\nDROP       all  --  0.0.0.0/0            0.0.0.0/0\n", "-A FORWARD -j DROP"),
        (TO_POD6, f"$ nft list ruleset\n{NFT_CHAIN}", "ip6 saddr 2001:db8:7::/64 drop"),
    ],
    ids=["a line without its head", "list-rule", "a head without references", "a chain of nft without its table"],
)  # fmt: skip
def test_a_rule_that_a_part_of_an_output_shows_drops_the_packet(
    node: NamespaceNode, packet: dict[str, Any], text: str, culprit: str
) -> None:
    routes = "2001:db8:20::/64 dev eth1 metric 256\n" if packet is TO_POD6 else ROUTES
    found = trace(node, packet, dump={"report": text, "ip-route": routes})
    assert (found["verdict"], found["certain"]) == ("dropped", False), found["reason"]
    assert culprit in found["culprit"]["text"]


COUNTED = """\
$ iptables -nvL FORWARD
Chain FORWARD (policy ACCEPT 5 packets, 300 bytes)
 pkts bytes target     prot opt in     out     source               destination
    9   540 DROP       0    --  eth0   *       0.0.0.0/0            0.0.0.0/0            match-set blocked src
$ ip route
default via 192.0.2.1 dev eth0
10.1.0.0/24 via 192.0.2.2 dev eth0
"""


def test_a_counter_and_a_capture_make_an_outcome_likelier_and_none_certain(node: NamespaceNode) -> None:
    packet = {"source": "198.51.100.1", "destination": "10.1.0.9", "destination_port": 80, "interface": "eth0"}
    segment = "IP 198.51.100.1.40000 > 10.1.0.9.80: Flags [S], seq 1, win 64240, length 0"
    capture = f"# tcpdump -nni eth0\n12:00:01.000 {segment}\n12:00:02.010 {segment}\n"
    found = trace(node, packet, dump={"report": COUNTED + capture}, assume={"addresses": "other"})
    (fact,) = [fact for fact in found["depends_on"] if fact["fact"] == "set:blocked"]
    without, included = fact["outcomes"]
    rule = "ip filter: -A FORWARD -i eth0 -m set --match-set blocked src -j DROP has 9 packets"
    again = "tcpdump shows the SYN from 198.51.100.1 to 10.1.0.9 port 80 2 times, and no answer"
    assert (found["verdict"], found["certain"]) == ("unknown", False)
    assert (included["verdict"], included["evidence"], included["contradicted_by"]) == (
        "dropped",
        [rule, again, "an output has what stops it"],
        [],
    )
    assert (without["verdict"], without["evidence"], without["contradicted_by"]) == ("forwarded", [], [again])
    likely = f"because the set blocked has the packet's addresses: {rule}; {again}; an output has what stops it."
    assert found["reason"].startswith("It is likely that the packet is dropped (") and likely in found["reason"]
    told = trace(node, packet, dump={"report": COUNTED + capture}, assume={"addresses": "other", "set:blocked": "without"})
    assert told["verdict"] == "forwarded" and f"The answer does not fit what an output shows: {again}." in told["unknown"]


def test_of_what_the_outputs_lack_only_what_the_packet_met_is_assumed(node: NamespaceNode) -> None:
    pods = range(1, 8)
    rules = "".join(f"-A cali-tw-cali{pod} -p tcp -j cali-pri-{pod}\n" for pod in pods)
    routes = "".join(f"10.1.0.{pod} dev cali{pod} scope link\n" for pod in pods)
    dump = {"report": f"$ iptables-save -t filter | grep cali\n{rules}$ ip route\ndefault via 192.0.2.1 dev eth0\n{routes}"}
    packet = {"source": "198.51.100.1", "destination": "10.1.0.5", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump=dump)
    assert [one for one in found["assumed"] if "hain cali" in one] == [
        "No rule of the paste jumps to chain cali-tw-cali5. `-A FORWARD -o cali5 -j cali-tw-cali5` (ip filter) is assumed.",
        "Chain cali-pri-5 (ip filter) is not in the paste. It is assumed to be empty.",
    ]
    assert "The policy of chain FORWARD (ip filter) is not in the paste. It is assumed to be ACCEPT." in found["assumed"]
    assert not any("OUTPUT" in one or "ipv6" in one for one in found["assumed"])


@pytest.mark.parametrize(("text", "packet", "culprit", "reason"), REPORTS.values(), ids=REPORTS)
def test_the_culprit_of_a_public_report_is_named(
    node: NamespaceNode, text: str, packet: dict[str, Any], culprit: str, reason: str
) -> None:
    found = trace(node, packet, dump={"report": text})
    assert found["culprit"] == {"kind": "rule", "text": culprit} and reason in found["reason"] and found["ignored"] == []


IPVS = (
    "# ipvsadm -Ln\nTCP  10.43.7.7:80 rr\n  -> 10.42.3.9:80  Masq 1 0 0\n"
    "# ip route\ndefault via 192.0.2.1 dev eth0\n10.42.3.0/24 dev cbr0 proto kernel scope link src 10.42.3.1\n"
    "192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.4\n"
    "# iptables-save -t filter\n*filter\n"
)
TO_SERVER = {"source": "192.0.2.10", "destination": "10.43.7.7", "destination_port": 80, "interface": "eth0"}


@pytest.mark.parametrize(
    ("rules", "verdict", "reply", "culprit"),
    [
        (":INPUT ACCEPT\n:FORWARD DROP\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT", "delivered", "forwarded", None),
        (":INPUT ACCEPT\n:FORWARD DROP", "delivered", "dropped", "ip filter: -P FORWARD DROP"),
        (":INPUT DROP\n:FORWARD ACCEPT\n-A INPUT -p tcp --dport 22 -j ACCEPT", "dropped", None, "ip filter: -P INPUT DROP"),
        (
            ":INPUT ACCEPT\n:FORWARD ACCEPT\n-A FORWARD -s 10.42.3.9/32 -j DROP",
            "delivered",
            "dropped",
            "ip filter: -A FORWARD -s",
        ),
    ],
    ids=["the reply is accepted", "the reply is not", "INPUT is first", "a rule for the reply"],
)
def test_a_packet_to_a_virtual_server_meets_input_and_its_reply_forward(
    node: NamespaceNode, rules: str, verdict: str, reply: str | None, culprit: str | None
) -> None:
    """https://github.com/kubernetes/kubernetes/issues/68194 has the second case."""
    found = trace(node, TO_SERVER, dump={"report": f"{IPVS}{rules}\nCOMMIT\n"})
    assert (found["verdict"], (found["reply"] or {}).get("verdict")) == (verdict, reply)
    assert (found["culprit"] or {}).get("text", "").startswith(culprit or "") and bool(found["culprit"]) == bool(culprit)
    assert all("ct status dnat" not in step["text"] for step in found["steps"])
    assert found["cures"] == []


def test_a_translated_packet_from_the_loopback_does_not_leave_by_a_link_that_refuses_it(node: NamespaceNode) -> None:
    dump = {
        "iptables-save": "*nat\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s 127.0.0.0/8 -j MASQUERADE\n"
        "-A OUTPUT -p tcp -m tcp --dport 30080 -j DNAT --to-destination 10.244.0.9:80\nCOMMIT\n",
        "ip-route": "default via 10.0.0.1 dev eth0\n10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.4\n"
        "10.244.0.9 dev cali77 scope link\n",
        "sysctl": "net.ipv4.conf.all.route_localnet = 0\n",
    }
    found = trace(node, {"source": "127.0.0.1", "destination": "127.0.0.1", "destination_port": 30080}, dump=dump)
    assert found["culprit"] == {"kind": "sysctl", "text": "net.ipv4.conf.cali77.route_localnet = 0"}
    assert found["cures"] == []  # the setting protects the loopback of the node


@pytest.mark.parametrize("source", [None, "192.0.2.4"])
def test_a_node_whose_addresses_are_not_pasted_has_one(node: NamespaceNode, source: str | None) -> None:
    nat = "-A OUTPUT -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 172.18.0.2:6443\n"
    dump = {"iptables-save -t nat": nat, "ip route": "default via 172.18.0.1 dev eth0\n"}
    found = trace(node, {"source": source, "destination": "10.96.0.1", "destination_port": 443}, dump=dump)
    assert (found["verdict"], found["reply"]["verdict"], found["culprit"]) == ("forwarded", "delivered", None)
    assert found["packet"]["source"] == (source or "198.18.0.1")
    assert any("The address from which the node sends is not known." in one for one in found["assumed"])


def test_a_pods_link_without_a_carrier_is_named(node: NamespaceNode) -> None:
    dump = {
        "ip link": "2: eth0: <UP,LOWER_UP> mtu 1500\n9: cali1234@if4: <NO-CARRIER,UP> mtu 1500 state LOWERLAYERDOWN\n",
        "ip route": "default via 10.0.0.1 dev eth0\n10.1.0.5 dev cali1234 scope link linkdown\n",
    }
    packet = {"source": "10.0.0.9", "destination": "10.1.0.5", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump=dump)
    assert found["culprit"] == {"kind": "link", "text": "cali1234 has no carrier"}
    found = trace(node, {**packet, "source": "10.1.0.5", "destination": "10.0.0.9", "interface": "cali1234"}, dump=dump)
    assert found["culprit"] == {"kind": "link", "text": "cali1234 has no carrier"}


def test_a_node_that_does_not_forward_is_told_by_the_setting_that_an_operator_knows(node: NamespaceNode) -> None:
    text = "# cat /proc/sys/net/ipv4/ip_forward\n0\n# ip r\ndefault via 10.0.0.1 dev eth0\n10.1.0.5 dev cali1234 scope link\n"
    packet = {"source": "10.0.0.9", "destination": "10.1.0.5", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump=text)
    (first,) = [each for each in found["depends_on"] if each["fact"] == "net.ipv4.conf.eth0.forwarding"]
    culprit = {"kind": "sysctl", "text": "net.ipv4.conf.eth0.forwarding = 0"}
    assert [each["verdict"] for each in first["outcomes"]] == ["dropped", "delivered"]
    assert first["outcomes"][0]["culprit"] == culprit and found["verdict"] == "unknown"
    assert (found["certain"], found["cures"]) == (False, [])  # a command is offered only if nothing is open


@pytest.mark.parametrize("hairpin", ["on", "off"])
def test_a_pod_reaches_itself_by_its_service_if_its_port_lets_it(node: NamespaceNode, hairpin: str) -> None:
    dump = {
        "ip -d link": "4: cni0: <UP,LOWER_UP> mtu 1450\n    link/ether 66:91:4a:53:80:dc\n    bridge stp_state 0\n"
        "5: veth01@if3: <UP,LOWER_UP> mtu 1450 master cni0\n    link/ether b2:ee:a1:30:8f:8e\n    veth\n"
        f"    bridge_slave state forwarding priority 32 cost 2 hairpin {hairpin} guard off\n",
        "ip addr": "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n"
        "4: cni0: <UP,LOWER_UP> mtu 1450\n    link/ether 66:91:4a:53:80:dc\n    inet 10.42.0.1/24 scope global cni0\n"
        "5: veth01@if3: <UP,LOWER_UP> mtu 1450 master cni0\n    link/ether b2:ee:a1:30:8f:8e\n",
        "ip rule": "0: from all lookup local\n32766: from all lookup main\n32767: from all lookup default\n",
        "ip -6 rule": "0: from all lookup local\n32766: from all lookup main\n",
        "nft list ruleset": "",
        "ebtables-save": "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n"
        "*nat\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\n",
        "sysctl": "net.bridge.bridge-nf-call-iptables = 1\nnet.ipv4.ip_forward = 1\n",
        "ip route": "10.42.0.0/24 dev cni0 proto kernel scope link src 10.42.0.1\n",
        "ip neigh": "10.42.0.10 dev cni0 lladdr 0a:58:0a:2a:00:0a REACHABLE\n",
        "iptables-save": "*nat\n:PREROUTING ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n"
        "-A PREROUTING -d 10.43.1.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.42.0.10:80\n"
        "-A POSTROUTING -s 10.42.0.10/32 -d 10.42.0.10/32 -j MASQUERADE\nCOMMIT\n",
    }
    packet = {"source": "10.42.0.10", "destination": "10.43.1.1", "destination_port": 80, "interface": "veth01"}
    found = trace(node, packet, dump=dump)
    if hairpin == "on":
        assert (found["verdict"], found["interface"], found["reply"]["verdict"]) == ("delivered", "veth01", "delivered")
    else:
        assert found["culprit"] == {"kind": "link", "text": "veth01 hairpin off"}
        assert [cure["change"] for cure in found["cures"]] == ["bridge link set dev veth01 hairpin on"]


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_pod_reaches_itself_by_the_node_port_of_its_service(node: NamespaceNode, protocol: str) -> None:
    """The packet comes back from the address that the pod called: the node's own, by which it is masqueraded."""
    nat = NAT6.replace("tcp", protocol).replace("COMMIT", "-A POSTROUTING -j MASQUERADE --random-fully\nCOMMIT")
    snapshot = {
        "links": [
            {**UPLINK, "addresses": [{"address": "fd00::4/64"}]},
            {**POD, "peer": {"mac": "0a:00:00:00:00:05", "addresses": ["fd01::5"]}},
        ],
        "routes": [{"table": "254", "family": "ipv6", "to": "fd01::5", "dev": "pod1"}],
        "settings": FORWARDING,
        "iptables": [{"family": "ip6", "backend": "nft", "table": "nat", "save": nat}],
    }
    packet = {"source": "fd01::5", "destination": "fd00::4", "destination_port": 30080, "protocol": protocol, "interface": "pod1"}
    found = trace(node, packet, snapshot=snapshot)
    assert (found["verdict"], found["interface"], found["reply"]["verdict"]) == ("delivered", "pod1", "delivered")
    assert (found["packet"]["source"], found["packet"]["destination"]) == ("fd00::4", "fd01::5")


def test_behind_a_bridge_whose_ports_are_not_pasted_pods_reach_each_other(node: NamespaceNode) -> None:
    nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.9/32 -p tcp -j DNAT --to-destination 10.244.1.8:80\nCOMMIT\n"
    routes = f"{BRIDGED['ip route']}10.244.1.0/24 dev cni0 proto kernel scope link src 10.244.1.1\n"
    dump = {**BRIDGED, "ip route": routes, "iptables-save": nat}
    dump["sysctl net.bridge.bridge-nf-call-iptables"] = "net.bridge.bridge-nf-call-iptables = 1\n"
    found = trace(node, {**FROM_POD, "destination": "10.96.0.9"}, dump=dump)
    assert (found["verdict"], found["reply"]["verdict"], found["culprit"]) == ("delivered", "delivered", None)


NFT_PROXY = """\
table ip kube-proxy {
  map no-endpoint-services {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 10.96.88.1 . tcp . 80 comment "web/shop:http" : goto reject-chain }
  }
  chain filter-forward {
    type filter hook forward priority -110; policy accept;
    ct state new jump service-endpoints-check
    a rule of a version to come
    ip saddr version accept
  }
  chain reject-chain {
    reject
  }
  chain service-endpoints-check {
    ip daddr . meta l4proto . th dport vmap @no-endpoint-services
  }
}
"""


def test_the_map_that_sends_a_packet_to_a_chain_that_rejects_is_named_and_a_line_that_nft_refuses(node: NamespaceNode) -> None:
    routes = "default via 192.0.2.1 dev eth0\n10.244.1.9 dev veth01 scope link\n"
    packet = {"source": "10.244.1.9", "destination": "10.96.88.1", "destination_port": 80, "interface": "veth01"}
    found = trace(node, packet, dump={"nft list ruleset": NFT_PROXY, "ip-route": routes})
    text = "ip kube-proxy service-endpoints-check: ip daddr . meta l4proto . th dport vmap @no-endpoint-services"
    assert (found["verdict"], found["culprit"]) == ("rejected", {"kind": "rule", "text": text})
    assert 'The element is 10.96.88.1 . tcp . 80 comment "web/shop:http" : goto reject-chain.' in found["reason"]
    assert any("nft refused" in one and "a line: ip saddr version accept (" in one for one in found["assumed"])
    assert any("in place of 'a': a rule of a version to come" in one for one in found["assumed"])
    broken = "table ip other {\n  object_to_come x {\n  }\n}\n"
    found = trace(node, packet, dump={"nft list ruleset": broken + NFT_PROXY, "ip-route": routes})
    assert found["culprit"] == {"kind": "rule", "text": text}
    (line,) = [one for one in found["assumed"] if one.startswith("nft: line 2 of the ruleset")]
    assert line.endswith("object_to_come x {")
    assert line in [fact["what"] for fact in found["depends_on"] if fact["fact"].startswith("line:")]


def test_the_policy_of_a_chain_is_quoted_as_nft_prints_it(node: NamespaceNode) -> None:
    text = "table inet own {\n chain in {\n  type filter hook input priority 0; policy drop;\n  tcp dport 22 accept\n }\n}\n"
    dump = {"nft list ruleset": text, "ip addr": "2: eth0: <UP,LOWER_UP> mtu 1500\n inet 10.0.0.4/24 scope global eth0\n"}
    packet = {"source": "10.0.0.9", "destination": "10.0.0.4", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump=dump)
    assert found["culprit"] == {"kind": "rule", "text": "inet own in: type filter hook input priority filter; policy drop;"}


def test_rules_without_their_tables_are_of_the_table_of_their_chains(node: NamespaceNode) -> None:
    """A pod's packet gets another ENI's address, and leaves by its own: https://github.com/antrea-io/antrea/pull/3975."""
    text = (
        '-A PREROUTING -i eni+ -m comment --comment "AWS, outbound connections" -m state --state NEW -j AWS-CONNMARK-CHAIN-0\n'
        '-A PREROUTING -m comment --comment "AWS, CONNMARK" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80\n'
        "-A POSTROUTING -j AWS-SNAT-CHAIN-0\n-A AWS-CONNMARK-CHAIN-0 ! -d 192.168.0.0/16 -j AWS-CONNMARK-CHAIN-1\n"
        "-A AWS-CONNMARK-CHAIN-1 -j CONNMARK --set-xmark 0x80/0x80\n-A AWS-SNAT-CHAIN-0 ! -d 192.168.0.0/16 -j AWS-SNAT-CHAIN-1\n"
        "-A AWS-SNAT-CHAIN-1 ! -o vlan+ -m addrtype ! --dst-type LOCAL -j SNAT --to-source 192.168.19.187 --random-fully\n\n"
        "$ ip rule\n0: from all lookup local\n1024: from all fwmark 0x80/0x80 lookup main\n1536: from 192.168.7.118 lookup 2\n"
        "32766: from all lookup main\n"
        "$ ip route show table 2\ndefault via 192.168.0.1 dev eth1\n192.168.0.1 dev eth1 scope link\n"
        "$ ip route\ndefault via 192.168.0.1 dev eth0\n192.168.0.0/19 dev eth0 proto kernel scope link src 192.168.19.187\n"
        "192.168.7.118 dev gw0 scope link\n"
    )
    packet = {"source": "192.168.7.118", "destination": "203.0.113.8", "destination_port": 443, "interface": "gw0"}
    loose = {"net.ipv4.conf.all.rp_filter": 2}
    found = trace(node, packet, dump={"report": text}, assume=loose)
    assert (found["verdict"], found["interface"], found["packet"]["source"]) == ("forwarded", "eth1", "192.168.19.187")
    assert "Its source is an address of eth0: a cloud" in found["reason"]
    marked = trace(node, packet, dump={"report": text.replace("-i eni+", "-i gw+")}, assume=loose)  # the remedy in the report
    assert (marked["interface"], "a cloud" in marked["reason"]) == ("eth0", False)


def test_a_ruleset_that_ends_traces_or_has_a_table_of_a_twins_name_is_followed(node: NamespaceNode) -> None:
    text = (
        "table inet kubenodeTwin {\n chain prerouting {\n  type filter hook prerouting priority -500; policy accept;\n"
        "  meta nftrace set 0\n }\n chain forward {\n  type filter hook forward priority 0; policy accept;\n"
        "  ip daddr 192.0.2.1 counter drop\n }\n}\n"
    )
    found = trace(node, FROM_POD, dump={**BRIDGED, "nft list ruleset": text})
    assert found["culprit"] == {"kind": "rule", "text": "inet kubenodeTwin forward: ip daddr 192.0.2.1 counter drop"}, found


COUNTER = {"counter": {"packets": 0, "bytes": 0}}
NFTRACE, DESTINATION = {"meta": {"key": "nftrace"}}, {"payload": {"protocol": "ip", "field": "daddr"}}


@pytest.mark.parametrize(
    "rules",
    [
        [{"mangle": {"key": NFTRACE, "value": 0}}],
        [{"mangle": {"key": {"meta": {"key": "nftrace", "x": 1}}, "value": 0}}],
        [COUNTER, {"mangle": {"key": {**NFTRACE, "x": {}}, "value": 0}}, {"accept": None}],
        [{"match": {"op": "==", "left": NFTRACE, "right": 1}}, {"drop": None}],
    ],
)
@pytest.mark.parametrize("priority", [-2147483648, 0])
def test_a_list_of_rules_ends_no_trace(node: NamespaceNode, rules: list[dict[str, Any]], priority: int) -> None:
    """Neither by a rule of its own, nor by a chain before that of the trace."""
    drop = [{"match": {"op": "==", "left": DESTINATION, "right": "192.0.2.1"}}, COUNTER, {"drop": None}]
    listed = [
        {"table": {"family": "inet", "name": "x"}},
        *(chain("x", "early", "prerouting", priority), chain("x", "late", "forward", 0)),
        *(
            {"rule": {"family": "inet", "table": "x", "chain": name, "expr": expr}}
            for name, expr in (("early", rules), ("late", drop))
        ),
    ]
    found = trace(node, FROM_POD, dump={**BRIDGED, "nft -j list ruleset": json.dumps({"nftables": listed})})
    assert found["culprit"] == {"kind": "rule", "text": "inet x late: ip daddr 192.0.2.1 counter drop"}, found


def test_a_chain_before_all_others_drops_in_sight(node: NamespaceNode) -> None:
    text = "table ip x {\n chain y {\n  type filter hook prerouting priority -2147483648; policy accept;\n  counter drop\n }\n}\n"
    packet = {"source": "192.0.2.1", "destination": "10.0.0.5", "destination_port": 80, "interface": "eth0"}
    found = trace(node, packet, dump={**BRIDGED, "nft list ruleset": text})
    assert found["culprit"] == {"kind": "rule", "text": "ip x y: counter drop"}, found


def chain(table: str, name: str, hook: str, priority: int) -> dict[str, Any]:
    place = {"family": "inet", "table": table, "name": name, "type": "filter", "hook": hook, "prio": priority}
    return {"chain": {**place, "policy": "accept"}}


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        (["ipset create t hash:ip hashsize 134217728"], "commands[0] must be a set with hashsize of at most 4194304"),
        (["ip link set eth0 up", "ipset add s 10.0.0.0/9"], "commands[1] must be sets of at most 524288 elements together"),
        (
            ["nft 'add set ip x y { type ipv4_addr ; size 50000000 ; }'"],
            "commands[0] must be sets with a hashsize or a size of at",
        ),
    ],
)
def test_commands_take_no_more_memory_than_a_snapshot(node: NamespaceNode, commands: list[str], error: str) -> None:
    packet = {**FROM_POD, "interface": "eth0"}
    snapshot = {"links": [UPLINK], "ipsets": [{"save": "create s hash:ip\n"}]}
    assert error in Steps(node, "datapath_trace", {"packet": packet, "snapshot": snapshot, "commands": commands}).refused()
