# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cures that are tried for a culprit, and the ENIs of a node by its snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import probe_table
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import BLACKHOLE, UNREACHABLE, Hop, Route
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import cures, packet, removals, uplinks
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.changes_backend import Call
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.culprit import (
    DOWN,
    LINK_LOCAL,
    NO_CARRIER,
    NO_HAIRPIN,
    Address,
    ChainRule,
    Link,
    Neighbor,
    NoRoute,
    Object,
    Setting,
    VirtualServer,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.removals import Loss
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import legacy_half

Entry = dict[str, Any]
STRICT = Setting("net/ipv4/conf/eth0/rp_filter", 1)
REQUEST = {"source": "198.51.100.2", "destination": "10.0.0.10", "destination_port": 30080, "interface": "eth0"}
MANGLE = """\
*mangle
-A PREROUTING -i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
COMMIT
"""


def link(name: str, *addresses: str) -> Entry:
    return {"name": name, "kind": "veth", "addresses": [{"address": address} for address in addresses]}


def route(to: str, dev: str, table: int = 254, via: str = "") -> Entry:
    return {"family": "ipv4", "to": to, "dev": dev, "table": str(table), "via": via}


def rule(priority: int, **fields: str) -> Entry:
    return {"priority": priority, "family": "ipv4", **fields}


def with_enis(*rules: Entry, table: int = 1001, address: str = "10.0.1.10/24", **more: Any) -> Entry:
    """A snapshot of a node with an ENI beside the primary one, and a pod on it."""
    return {
        "links": [link("eth0", "10.0.0.10/24"), link("eth1", *filter(None, [address])), link("cali1a2b")],
        "routes": [
            route("default", "eth0", via="10.0.0.1"),
            route("default", "eth1", table, "10.0.1.1"),
            route("10.0.1.11", "cali1a2b"),
        ],
        "rules": list(rules)
        or [rule(512, to="10.0.1.11", table="254"), rule(2048, **{"from": "10.0.1.11", "table": str(table)})],
        **more,
    }  # fmt: skip


def candidates_for(culprit: Object | None, snapshot: Entry, came_in_by: str = "eth0", **request: Any) -> list[cures.Candidate]:
    return list(cures.candidates(packet.from_options({**REQUEST, **request}), Loss(culprit, came_in_by), snapshot))


def test_the_enis_are_those_with_tables_of_their_own() -> None:
    enis = uplinks.of(with_enis())
    assert enis and enis.enis == [
        {"name": "eth0", "primary": True, "ipv4": ["10.0.0.10"]},
        {"name": "eth1", "table": 1001, "gateway": {"ipv4": "10.0.1.1"}, "ipv4": ["10.0.1.10"]},
    ]
    assert (enis.pod_interfaces, enis.layout, enis.priorities, enis.lacks_addresses) == (["cali*"], "custom", {}, False)
    assert uplinks.of({"routes": [route("default", "eth0", via="10.0.0.1")]}) is None
    assert uplinks.of({}) is None


@pytest.mark.parametrize(
    ("to_pod", "from_pod", "priorities"),
    [
        (512, 2048, {}),
        (20, 111, {"to_pod": 20, "mark": 110, "from_pod": 111}),
        (1250, 1300, {"to_pod": 1250, "mark": 1299, "from_pod": 1300}),
        (110, 111, None),
    ],
)
def test_the_rule_for_marks_comes_before_the_rules_for_pods(to_pod: int, from_pod: int, priorities: Entry | None) -> None:
    rules = (rule(to_pod, to="10.0.1.11", table="254"), rule(from_pod, **{"from": "10.0.1.11", "table": "1001"}))
    enis = uplinks.of(with_enis(*rules))
    assert (enis and enis.priorities) == priorities


def test_a_cni_that_marks_connections_has_its_layout() -> None:
    saved = [{"family": "ip", "table": "mangle", "save": MANGLE}]
    enis = uplinks.of(with_enis(table=2, iptables=saved))
    assert enis and (enis.layout, enis.enis[1]["device_number"], "table" in enis.enis[1]) == ("aws_vpc_cni", 1, False)
    assert len(candidates_for(STRICT, with_enis(table=2, iptables=saved))) == 5
    other = uplinks.of(with_enis(table=1001, iptables=saved))
    assert other and other.layout == "custom"  # its table has no number of that layout
    broken = uplinks.of(with_enis(table=2, iptables=[{"family": "ip", "table": "mangle", "save": '*mangle\n-A "\nCOMMIT\n'}]))
    assert broken and broken.layout == "custom"


MARKING = "manage: [filters, mark_rule, connmark]"
EVERY = "manage: [own_addresses, filters, mark_rule, connmark]"


def changes(tried: list[cures.Candidate]) -> list[str]:
    return [cure.change for cure in tried]


@pytest.mark.parametrize(
    ("culprit", "request_", "tried"),
    [
        (
            STRICT,
            {},
            [
                "eni_policy_routing: {remedy: loose, manage: [filters]}",
                "eni_policy_routing: {remedy: loose, manage: [mark_rule, connmark]}",
                f"eni_policy_routing: {{remedy: loose, {MARKING}}}",
                f"eni_policy_routing: {{remedy: strict, {MARKING}}}",
                f"eni_policy_routing: {{remedy: symmetric, {EVERY}}}",
            ],
        ),
        (None, {}, ["eni_policy_routing: {remedy: loose, manage: [mark_rule, connmark]}"]),
        (
            None,
            {"interface": "eth1", "destination": "10.0.1.10"},
            ['eni_policy_routing: {remedy: loose, manage: [mark_rule, connmark], interface_marks: [{name: eth1, mark: "0x2"}]}'],
        ),
        (
            None,
            {"destination": "203.0.113.80"},
            ['eni_policy_routing: {remedy: loose, manage: [mark_rule, connmark], service_addresses: ["203.0.113.80"]}'],
        ),
    ],
)
def test_a_node_with_enis_tries_the_remedies_of_its_profile(culprit: Object | None, request_: Entry, tried: list[str]) -> None:
    assert changes(candidates_for(culprit, with_enis(), **request_)) == tried


def test_an_eni_whose_address_only_the_metadata_has_gets_none() -> None:
    assert not any("symmetric" in change for change in changes(candidates_for(STRICT, with_enis(address=""))))


STOLEN = "-p IPv4 --ip-dst 10.0.0.10 -j dnat --to-dst 02:00:00:00:00:01"
ONE_UPLINK = {
    "routes": [route("default", "eth0", via="10.0.0.1")],
    "links": [link("eth0", "10.0.0.10/24")],
    "ebtables": [{"table": "nat", "chain": "PREROUTING", "rules": [STOLEN]}],
}
PROBE = Address(probe_table.AZURE_SOURCE, LINK_LOCAL)
BRIDGED = ChainRule("bridge", "nat", "PREROUTING", f"-A PREROUTING {STOLEN}", 7)


@pytest.mark.parametrize(
    ("culprit", "tried"),
    [
        (None, []),
        (STRICT, ["rp_filter: {interfaces: [eth0], mode: loose}"]),
        (NoRoute("10.0.0.9"), []),
        (PROBE, ["aks_dual_stack: {interface: eth0}"]),
        (
            BRIDGED,
            [
                "cilium_migration",
                'cilium_migration: {addresses: ["10.0.0.10"]}',
                'cilium_migration: {addresses: ["10.0.0.10"], bridge: true}',
                "ebtables -t nat -D PREROUTING -p IPv4 --ip-dst 10.0.0.10 -j dnat --to-dst 02:00:00:00:00:01",
            ],
        ),
    ],
)
def test_cures_fit_the_culprit(culprit: Object | None, tried: list[str]) -> None:
    assert changes(candidates_for(culprit, ONE_UPLINK)) == tried


OF_OPERATOR = {
    "routes": [
        {"family": "ipv4", "to": "203.0.113.0/24", "type": "unreachable", "table": "254"},
        {"family": "ipv6", "to": "fd01::/64", "dev": "eth1", "table": "100"},
    ],
    "rules": [rule(100), {**rule(100), "family": "ipv6"}],
    "neighbors": [{"dev": "br0", "address": address, "state": "FAILED"} for address in ("10.0.0.9", "fd00::9")],
}


def rule_of(text: str) -> ChainRule:
    """The rule or the policy, written as in a culprit's text."""
    place, _colon, line = text.partition(": ")
    family, table, *chain = place.split(" ")
    return ChainRule(family, table, chain[0] if chain else line.split(" ")[1], line, 0 if line.startswith("-P") else 7)


def to(prefix: str, length: int, **fields_: Any) -> Route:
    family, packed = fields.address(prefix)
    return Route(family, fields_.pop("table", 254), (packed, length), **fields_)


TEN = (bytes([10, 0, 0, 0]), 8)


@pytest.mark.parametrize(
    ("culprit", "commands"),
    [
        (
            Setting("net/ipv4/conf/eth0/forwarding", 0),
            ["sysctl -w net.ipv4.conf.eth0.forwarding=1", "sysctl -w net.ipv4.ip_forward=1"],
        ),
        (Setting("net/ipv6/conf/all/forwarding", 0), ["sysctl -w net.ipv6.conf.all.forwarding=1"]),
        (Setting("net/ipv4/conf/eth0/route_localnet", 0), []),
        (Neighbor("br0", "10.0.0.9", "02:00:00:00:00:01"), ["ip neigh del 10.0.0.9 dev br0"]),
        (Neighbor("br0", "fd00::9"), ["ip -6 neigh del fd00::9 dev br0"]),
        (Neighbor("br0", "fd00::1"), []),  # of a pod, and not of the node
        (Link("veth1", NO_HAIRPIN), ["bridge link set dev veth1 hairpin on"]),
        (Link("eth0", DOWN), ["ip link set dev eth0 up"]),
        (Link("eth0", NO_CARRIER), []),
        (to("203.0.113.0", 24, type=UNREACHABLE), ["ip route del unreachable 203.0.113.0/24 table main"]),
        (to("fd01::", 64, table=100, hops=(Hop("eth1"),)), ["ip -6 route del fd01::/64 dev eth1 table 100"]),
        (to("203.0.113.0", 24, unread=("encap",)), []),
        (
            Rule(fields.IPV4, 100, TEN, invert=True, action=BLACKHOLE),
            ["ip rule del priority 100 not from 10.0.0.0/8 blackhole"],
        ),
        (Rule(fields.IPV6, 100, table=7), ["ip -6 rule del priority 100 from all lookup 7"]),
        (Rule(fields.IPV4, 100, l3mdev=True), []),
        (rule_of("ip filter: -P FORWARD DROP"), ["iptables -P FORWARD ACCEPT"]),
        (rule_of("ip filter: -P INPUT DROP"), []),
        (rule_of("ip filter: -P OUTPUT DROP"), []),
        (rule_of("inet own in: type filter hook forward priority filter; policy drop;"), []),
        (VirtualServer("TCP 10.43.7.7:80"), []),
    ],
)
def test_a_command_removes_the_culprit_and_a_twin_permits_it(culprit: Object, commands: list[str]) -> None:
    tried = candidates_for(culprit, OF_OPERATOR)
    assert changes(tried) == commands
    assert all(cure.takes_along.endswith(".") and cure.kind == cures.OPERATOR for cure in tried)


@pytest.mark.parametrize(
    ("backends", "commands"),
    [
        ([], ["iptables -P FORWARD ACCEPT"]),
        (["nft"], ["iptables -P FORWARD ACCEPT"]),
        (["legacy"], ["iptables-legacy -P FORWARD ACCEPT"]),
        (["legacy", "nft"], ["iptables-nft -P FORWARD ACCEPT"]),
    ],
)
def test_a_policy_is_of_the_backend_that_has_the_table(backends: list[str], commands: list[str]) -> None:
    others = [{"family": "ip6", "backend": "legacy", "table": "filter"}, {"family": "ip", "backend": "legacy", "table": "nat"}]
    tables = [*others, *({"family": "ip", "backend": backend, "table": "filter"} for backend in backends)]
    tried = candidates_for(rule_of("ip filter: -P FORWARD DROP"), {"iptables": tables})
    assert changes(tried) == commands


def test_of_both_halves_a_rule_is_of_the_one_whose_chain_it_has() -> None:
    save = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -s 192.0.2.9/32 -j DROP\nCOMMIT\n"
    tables = [{"family": "ip", "backend": backend, "table": "filter", "save": save} for backend in ("nft", "legacy")]
    for name, program in (("FORWARD", "iptables-nft"), (legacy_half.of_legacy("FORWARD"), "iptables-legacy")):
        tried = candidates_for(rule_of(f"ip filter: -A {name} -s 192.0.2.9/32 -j DROP"), {"iptables": tables})
        assert f"{program} -t filter -D FORWARD -s 192.0.2.9/32 -j DROP" in changes(tried)


@pytest.mark.parametrize(("backend", "program"), [("nft", "ebtables"), ("legacy", "ebtables-legacy")])
def test_a_command_is_of_the_backend_that_has_the_table(backend: str, program: str) -> None:
    table = {"backend": backend, "table": "filter", "chain": "FORWARD", "rules": ["-p IPv4 -j DROP"]}
    tried = candidates_for(rule_of("bridge filter: -A FORWARD -p IPv4 -j DROP"), {"ebtables": [table]})
    assert changes(tried)[-1] == f"{program} -t filter -D FORWARD -p IPv4 -j DROP"


def test_the_smaller_remedy_comes_first() -> None:
    """For Docker's policy its own chain for others, and of forwarding the settings of the links that the packets use."""
    loss = Loss(rule_of("ip filter: -P FORWARD DROP"), "veth1", bridge="br0", leaves_by="eth0")
    save = "*filter\n:FORWARD DROP [0:0]\n:DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER\nCOMMIT\n"
    sent = packet.from_options(REQUEST)
    tables = {"iptables": [{"family": "ip", "table": "filter", "backend": "nft", "save": save}]}
    of_docker = [*cures.candidates(sent, loss, tables)]
    assert changes(of_docker) == [
        "iptables -I DOCKER-USER -i br0 -o eth0 -j ACCEPT",
        "iptables -I DOCKER-USER -i br0 -j ACCEPT; iptables -I DOCKER-USER -o br0 -j ACCEPT",
        "iptables -P FORWARD ACCEPT",
    ]
    assert sum(line.startswith("- ") for line in of_docker[1].task.splitlines()) == 2, "tasks"
    of_forwarding = [*cures.candidates(sent, loss._replace(decider=Setting("net/ipv4/conf/br0/forwarding", 0)), {})]
    assert changes(of_forwarding) == [
        "sysctl -w net.ipv4.conf.br0.forwarding=1",
        "sysctl -w net.ipv4.conf.br0.forwarding=1 net.ipv4.conf.eth0.forwarding=1",
        "sysctl -w net.ipv4.ip_forward=1",
    ]
    for candidates in (of_docker, of_forwarding):
        assert len({cure.group for cure in candidates}) == 1


TWO_UPLINKS = {
    "links": [link("eth0", "10.20.0.11/24"), link("eth1", "10.30.0.11/24")],
    "routes": [
        route("default", "eth0", via="10.20.0.1"),
        route("10.20.0.0/24", "eth0"),
        route("10.30.0.0/24", "eth1"),
    ],
}  # fmt: skip
BY_ETH1 = {"interface": "eth1", "destination": "10.30.0.11"}


def test_a_node_with_two_uplinks_and_no_cloud_tries_symmetric_routing() -> None:
    second = {**route("default", "eth1", via="10.30.0.1"), "metric": 200}
    loss = Loss(None, "eth1")
    (cure,) = cures.candidates(
        packet.from_options({**REQUEST, **BY_ETH1}), loss, {**TWO_UPLINKS, "routes": [*TWO_UPLINKS["routes"], second]}
    )
    assert (cure.change, [change.name for change in cure.changes if isinstance(change, Call)]) == (
        "symmetric_routing",
        ["rp_filter", "policy_routes", "nftables_connmark"],
    )
    (refused,) = cures.candidates(packet.from_options({**REQUEST, **BY_ETH1}), loss, TWO_UPLINKS)
    assert refused.change == "symmetric_routing: {uplinks: [{name: eth0}, {name: eth1}]}"
    assert refused.refusal.startswith(
        "symmetric_routing_uplinks[1].gateway must be given, because no default route, DHCP lease or"
    )


def with_rule(text: str, count: int = 1) -> Entry:
    """A snapshot of a node that has the rule of a culprit, perhaps several times."""
    place, _colon, rule = text.partition(": ")
    family, table = place.split(" ")
    if family == "bridge":
        _add, chain, words = rule.split(" ", 2)
        return {"ebtables": [{"table": table, "chain": chain, "rules": [words] * count}]}
    save = "\n".join([f"*{table}", ":FORWARD ACCEPT [0:0]", *[f"[7:420] {rule}"] * count, "COMMIT", ""])
    return {"iptables": [{"family": family, "table": table, "save": save}]}


def of_rule(text: str, snapshot: Entry) -> list[str]:
    return [removal.command for removal in removals.of_loss(Loss(rule_of(text)), snapshot)]


@pytest.mark.parametrize(
    "text",
    [
        "ip filter: -A FORWARD -d 10.0.0.9/32 -j DROP",
        'ip filter: -A FORWARD -s 10.0.0.9/32 -m comment --comment "no -j way" -j REJECT --reject-with icmp-port-unreachable',
        "ip mangle: -A FORWARD ! -d 169.254.169.254/32 -j DROP",
        "ip6 filter: -A FORWARD -d fd00::1/128 -j DROP",
        "bridge filter: -A FORWARD -p IPv4 --ip-dst 10.0.0.9 -j DROP",
        "bridge nat: -A PREROUTING -p IPv4 --ip-dst 10.0.0.9 -j dnat --to-dst 02:00:00:00:00:01",
    ],
)
def test_a_rule_is_removed_if_the_node_has_it_once(text: str) -> None:
    place, _colon, rule = text.partition(": ")
    (command,) = of_rule(text, with_rule(text))
    assert command.partition(" ")[2] == f"-t {place.split(' ')[1]} -D {rule[3:]}"
    assert of_rule(text, with_rule(text, 2)) == [] and of_rule(text, {}) == []


@pytest.mark.parametrize(
    "text",
    [
        "ip filter: -A INPUT -j DROP",
        "ip filter: -A OUTPUT -j DROP",
        "ip raw: -A PREROUTING -i eth0 -p tcp -m tcp --dport 10250 -j DROP",
        "ip mangle: -A PREROUTING -m rpfilter --invert -j DROP",
        "ip nat: -A KUBE-FW-X -j KUBE-MARK-DROP",
        "ip filter: -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP",
        "ip filter: -A cali-tw-cali1 -j DROP",
        "ip filter: -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP",
        "ip mangle: -A FORWARD -j MARK --set-xmark 0x8000/0x8000",
        'ip filter: -A FORWARD -m comment --comment "cali:x" -j DROP',
        "ip filter: -A FORWARD -o weave -j DROP",
        "ip filter: -A FORWARD -s 10.0.0.9/32 -d 169.254.169.254/32 -j DROP",
        "ip filter: -A FORWARD -p tcp -d 168.63.129.16 -j DROP",
        "ip filter: -A FORWARD -d 169.254.0.0/16 -j DROP",
        "bridge filter: -A INPUT -p IPv4 -j DROP",
        "bridge nat: -A PREROUTING -p IPv4 -j DROP",
    ],
)
def test_a_rule_that_protects_the_node_or_belongs_to_a_program_is_not_removed(text: str) -> None:
    assert of_rule(text, with_rule(text)) == []


def test_what_keeps_a_packet_from_the_metadata_of_a_cloud_is_not_removed() -> None:
    text = "ip filter: -A FORWARD -s 10.0.0.9/32 -j DROP"
    culprit = rule_of(text)
    assert changes(candidates_for(culprit, with_rule(text), destination="10.0.0.7")) != []
    assert changes(candidates_for(culprit, with_rule(text), destination="169.254.169.254")) == []


@pytest.mark.parametrize("protocol", ["boot", "static", "unspec", "", "bird", "ra", "dhcp", "kernel"])
def test_a_route_or_policy_rule_of_a_program_is_not_removed(protocol: str) -> None:
    stopping = {"family": "ipv4", "to": "10.42.0.0/26", "type": "blackhole", "table": "254", "protocol": protocol}
    for culprit, entries in (
        (to("10.42.0.0", 26, type=BLACKHOLE), {"routes": [stopping]}),
        (Rule(fields.IPV4, 100, action=BLACKHOLE), {"rules": [rule(100, protocol=protocol)]}),
    ):
        assert len(candidates_for(culprit, entries)) == (protocol in ("boot", "static", "unspec", ""))
        assert candidates_for(culprit, {}) == []  # which the node does not have


@pytest.mark.parametrize("name", ["*", "eth?", "[a]"])
def test_a_name_that_options_take_for_a_pattern_is_in_no_remedy(name: str) -> None:
    assert candidates_for(STRICT, ONE_UPLINK, name) == [] != candidates_for(STRICT, ONE_UPLINK, "eth1")
    renamed: Entry = json.loads(json.dumps(with_enis()).replace("eth1", name))
    of_pod: Entry = json.loads(json.dumps(with_enis()).replace("cali1a2b", name))
    assert candidates_for(STRICT, renamed) == candidates_for(STRICT, of_pod) == []
    assert candidates_for(STRICT, with_enis()) != []


def test_a_policy_rule_that_misleads_is_removed_unless_it_leads_to_an_eni() -> None:
    pod = fields.address("10.0.1.11")[1], 32
    misleading, of_cni = Rule(fields.IPV4, 100, pod, table=99), Rule(fields.IPV4, 2048, pod, table=1001)
    unreachable = Route(fields.IPV4, 99, type=UNREACHABLE)
    command = "ip rule del priority 100 from 10.0.1.11 lookup 99"
    snapshot = {"routes": [{"to": "default", "type": "unreachable", "table": "99"}], "rules": [rule(100), rule(2048)]}
    for culprit, rules, commands in (
        (STRICT, (None, misleading), [command]),
        (STRICT, (misleading, of_cni), []),
        (STRICT, (misleading, None), []),
        (unreachable, (misleading, of_cni), ["ip route del unreachable default table 99", command]),
    ):
        tried = list(removals.of_loss(Loss(culprit, "eth0", rules), snapshot, {1001}))
        assert [removal.command for removal in tried] == commands
    assert tried[-1].takes_along == "The rules after it decide about all packets that it selects: from 10.0.1.11."


@pytest.mark.parametrize("kind", ["wireguard", "ipip", ""])
def test_a_policy_rule_that_leads_into_a_tunnel_is_not_removed(kind: str) -> None:
    """Calico leads packets for other nodes to WireGuard by a rule of the operators' protocol. Its route for IPv6 is as it was."""
    stopping = {"family": "ipv4", "to": "10.0.2.0/24", "type": "blackhole", "table": "1", "protocol": "bird"}
    leading = {"family": "ipv6", "to": "fd00:2::/64", "dev": "wireguard.cali", "table": "1"}
    snapshot = {
        "links": [{"name": "wireguard.cali", "kind": kind, "addresses": []}],
        "routes": [stopping, leading],
        "rules": [rule(99, table="1")],
    }
    culprit = to("10.0.2.0", 24, type=BLACKHOLE)._replace(table=1)
    tried = removals.of_loss(Loss(culprit, "eth0", (Rule(fields.IPV4, 99, table=1), None)), snapshot)
    assert [removal.command for removal in tried] == ([] if kind else ["ip rule del priority 99 from all lookup 1"])
