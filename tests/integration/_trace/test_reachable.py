# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer from a twin that has only what a packet can reach is that from a twin with the whole ruleset and all routes."""

from __future__ import annotations

import functools
import ipaddress
import json
import random
import re
from collections.abc import Sequence
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import sweep_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import netfilter_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import changes_backend, exchange_backend, trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet as packets
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, full_table, isolation_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.isolation_backend import Isolated
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.work_backend import Work
from lab import kube_proxy

from . import random_nodes

MODES = ("nft", "text of nft", "iptables")
SERVICES = kube_proxy.services(60)
LINKS = [
    {"name": "eth0", "index": 2, "flags": ["UP", "LOWER_UP"], "addresses": [{"address": f"{kube_proxy.NODE}/24"}]},
    {"name": "pod1", "index": 3, "kind": "veth", "flags": ["UP", "LOWER_UP"], "peer": {"addresses": ["10.244.0.1"]}},
]
ROUTES = [
    {"family": "ipv4", "table": "254", "to": "default", "via": "10.0.0.1", "dev": "eth0"},
    {"family": "ipv4", "table": "254", "to": "10.244.0.1", "dev": "pod1", "scope": "link"},
]
# Otherwise the node asks for a MAC address when it sends the first packet, whose way is by chance.
NEIGHBORS = [
    {"address": address, "dev": dev, "mac": f"02:00:00:00:01:0{number}", "state": "REACHABLE"}
    for number, (address, dev) in enumerate([("10.0.0.1", "eth0"), ("10.244.0.1", "pod1")])
]
SETTINGS = {"node": {"net.ipv4.ip_forward": 1}, "ipv4": {link: {"rp_filter": 0} for link in ("all", "eth0", "pod1")}}
# Addresses and ports that masquerading chooses by chance.
_BY_CHANCE = re.compile(r'(\b10\.0\.0\.4:|\]:|"(?:source|destination)_port": )\d{4,5}')


def listed(isolated: Isolated, program: str, text: str) -> dict[str, Any]:
    """What the programs of a node list of rules, after one of them has loaded a text."""
    del isolated
    done = random_nodes.run([program, *(["-f", "-"] if program == "nft" else [])], text)
    assert not done.rc, done.stderr
    unread: list[str] = []
    found = {
        "nftables": netfilter_backend.nftables(random_nodes.run, lambda *words: unread.append(str(words))),
        "iptables": netfilter_backend.iptables(random_nodes.run, lambda *words: unread.append(str(words))),
        "nftables_text": random_nodes.run(["nft", "list", "ruleset"]).stdout,
    }
    assert not unread
    return found


# Rules for pods, which packets to Services reach by translation alone.
GUARDED = [service.endpoints[-1] for service in SERVICES if service.endpoints and service.number % 2]
POLICY = (
    "table ip guard {\n map pods { type ipv4_addr : verdict; elements = { "
    f"{', '.join(f'{address} : goto guarded' for address in GUARDED)} }} }}\n chain guarded {{ drop; }}\n"
    " chain forward { type filter hook forward priority 0; ip daddr vmap @pods; }\n}\n"
)

BY_PREFIX = (
    "table ip nat {\n chain prerouting { type nat hook prerouting priority -100;"
    " dnat ip prefix to ip daddr map { 10.96.0.1/32 : 10.244.0.1/32 }; }\n}\n"
    "table ip guard {\n map pods { type ipv4_addr : verdict; elements = { 10.244.0.1 : drop } }\n"
    " chain forward { type filter hook forward priority 0; ip daddr vmap @pods; }\n}\n"
)


@functools.cache
def snapshot(mode: str) -> dict[str, Any]:
    is_iptables = mode == "iptables"
    text = kube_proxy.iptables(SERVICES) if is_iptables else f"{kube_proxy.nft(SERVICES)}{POLICY}"
    if is_iptables:
        guards = "".join(f"-A FORWARD -d {address}/32 -j DROP\n" for address in GUARDED)
        text = text.replace("-A FORWARD -j KUBE-FORWARD\n", f"{guards}-A FORWARD -j KUBE-FORWARD\n")
    program = "iptables-nft-restore" if is_iptables else "nft"
    found = isolation_backend.run(lambda isolated: listed(isolated, program, text), 60)
    key = {"nft": "nftables", "text of nft": "nftables_text", "iptables": "iptables"}[mode]
    return {"links": LINKS, "routes": ROUTES, "neighbors": NEIGHBORS, "settings": SETTINGS, key: found[key]}


def answers(
    monkeypatch: pytest.MonkeyPatch,
    of_node: dict[str, Any],
    packet: dict[str, Any],
    commands: Sequence[str] = (),
    calls: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The answers from the whole node, and from what can be reached."""
    changes = changes_backend.read(calls, commands)
    asked = trace_backend.Question(of_node, packets.from_options(packet), {}, changes)
    found = [answer(asked)]
    with monkeypatch.context() as patched:
        patched.setattr(exchange_backend, "reached", lambda drawn, *_asked: drawn)
        return [answer(asked), *found]


def answer(asked: trace_backend.Question) -> dict[str, Any]:
    try:
        return trace_backend.judge(asked, random_nodes.run).answer.plain()
    except DatapathError as error:
        return {"error": str(error)}


def comparable(found: dict[str, Any]) -> Any:
    """The answer without what is different from packet to packet: the first of several ways, and ports of masquerading.

    Counters are of all packets of the twin, some of which the kernel sends by itself.
    """
    if "error" in found:
        return found
    ways = found["branches"] or [found]
    kept = ("verdict", "interface", "packet", "reason", "culprit", "steps", "reply", "share")
    texts = [json.dumps(without_counters({key: way[key] for key in kept if key in way}), sort_keys=True) for way in ways]
    rest = {key: found[key] for key in ("certain", "depends_on", "assumed", "unknown")}
    return sorted(_BY_CHANCE.sub(r"\1N", text) for text in texts), rest


def without_counters(way: dict[str, Any]) -> dict[str, Any]:
    reply = way["reply"] and without_counters({"reply": None, **way["reply"]})
    return {**way, "steps": [step for step in way["steps"] if step["kind"] != "counter"], "reply": reply}


def places() -> st.SearchStrategy[tuple[str, int]]:
    services = st.sampled_from([*SERVICES, *SERVICES[:10], *SERVICES[-10:] * 2])  # more often those at an end of a map
    own = services.map(lambda service: (service.address, kube_proxy.PORT))
    balanced = services.filter(lambda service: service.balancer).map(lambda service: (service.balancer, kube_proxy.PORT))
    ports = services.filter(lambda service: service.node_port).map(lambda service: (kube_proxy.NODE, service.node_port))
    pods = services.filter(lambda service: service.endpoints).map(lambda service: (service.endpoints[-1], kube_proxy.TARGET))
    others = st.tuples(
        st.sampled_from([kube_proxy.NODE, "10.96.0.3", "10.96.77.7", "192.0.2.9", "10.0.0.1"]), st.sampled_from([80, 443, 30002])
    )
    return st.one_of(own, own, own, balanced, ports, pods, others)


COMMANDS = [
    [],
    [f"ip addr add {SERVICES[1].address}/32 dev eth0"],
    ["ip addr add 10.0.0.77/24 dev eth0", "ip route replace default via 10.0.0.1 dev eth0 onlink src 10.0.0.77"],
    ["ip rule add from 192.0.2.9 lookup 77 priority 9", "ip route add local 10.96.0.0/16 dev lo table 77"],
]
SOURCES = {"eth0": ["192.0.2.9", "203.0.113.7", "10.244.0.5", "10.0.0.1"], "pod1": ["10.244.0.1"], "": [""]}


@pytest.mark.parametrize("mode", sampled(MODES, lambda mode: mode == "text of nft"))
@hypothesis.given(data=st.data())
@hypothesis.settings(
    max_examples=14,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
def test_a_packet_to_a_service_has_the_same_fate(mode: str, data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    interface = data.draw(st.sampled_from(sorted(SOURCES)))
    destination, port = data.draw(places())
    packet = {
        "interface": interface,
        "source": data.draw(st.sampled_from(SOURCES[interface])),
        "destination": destination,
        "destination_port": port,
        "protocol": data.draw(st.sampled_from(["tcp", "tcp", "tcp", "udp"])),
    }
    commands = data.draw(st.sampled_from(COMMANDS))
    whole, part = answers(monkeypatch, snapshot(mode), packet, commands)
    assert comparable(part) == comparable(whole), (packet, commands)


@pytest.mark.parametrize("mode", MODES)
def test_rules_for_the_pod_behind_a_service_are_met(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packet = {"interface": "eth0", "source": "192.0.2.9", "destination": SERVICES[1].address, "destination_port": kube_proxy.PORT}
    whole, part = answers(monkeypatch, snapshot(mode), packet)
    assert comparable(part) == comparable(whole)
    assert sorted(way["verdict"] for way in part["branches"]) == ["dropped", "forwarded", "forwarded"]


@pytest.mark.parametrize("key", ["nftables", "nftables_text"])
def test_a_rule_for_an_address_of_a_map_is_met(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = isolation_backend.run(lambda isolated: listed(isolated, "nft", BY_PREFIX), 60)[key]
    of_node = {"links": LINKS, "routes": ROUTES, "neighbors": NEIGHBORS, "settings": SETTINGS, key: listing}
    packet = {"interface": "eth0", "source": "192.0.2.9", "destination": "10.96.0.1", "destination_port": 80}
    whole, part = answers(monkeypatch, of_node, packet)
    assert (part["verdict"], comparable(part)) == ("dropped", comparable(whole))


@hypothesis.given(seed=st.integers(0, 2**32), is_ipv6=st.booleans())
@hypothesis.settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
def test_a_packet_through_a_random_node_has_the_same_fate(seed: int, is_ipv6: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    node = random_nodes.Node(seed, is_ipv6)
    whole, part = answers(monkeypatch, random_nodes.through_the_node(node)["snapshot"], node.packet)
    assert comparable(part) == comparable(whole), node.packet


CLIENT, FAR_CLIENT, POD, OTHER_POD, SERVICE, ENDPOINT, BEYOND = ENDS = (
    *("192.0.2.9", "203.0.113.7", "10.244.0.1", "10.244.0.2", "10.96.0.1", "10.20.30.40", "10.20.99.9"),
)
GATEWAYS = {"eth0": "10.0.0.1", "eth1": "10.0.1.1"}
ROUTER = "10.5.5.5"  # of routes, in no network of a link
OWN = {"eth0": "10.0.0.4", "eth1": "10.0.1.4"}


class Routing:
    """A node with more routes, policy rules and neighbours than a packet meets, at random, and a packet with changes."""

    def __init__(self, seed: int, is_ipv6: bool) -> None:
        self._chance, self._is_ipv6 = random.Random(seed), is_ipv6
        chance, family = self._chance, "ipv6" if is_ipv6 else "ipv4"
        pods = {"pod1": POD, "pod2": OTHER_POD}
        links: list[dict[str, Any]] = [
            *({"name": name, "addresses": [{"address": self._prefix(own, 24, False)}]} for name, own in OWN.items()),
            *({"name": name, "kind": "veth", "peer": {"addresses": [self._address(pod)]}} for name, pod in pods.items()),
        ]
        near = [
            {"to": "default", "via": self._address(GATEWAYS["eth0"]), "dev": "eth0"},
            *({"to": self._prefix(own, 24), "dev": name, "protocol": "kernel"} for name, own in OWN.items()),
            *({"to": self._address(pod), "dev": name} for name, pod in pods.items()),
        ]
        routes = [{"table": "254", **each} for each in near] + [self._route() for _number in range(160)]
        keys = {(each["to"], each["table"], each.get("metric")): each for each in reversed(routes)}
        self.routes = [{"family": family, **each} for each in reversed(keys.values())]
        self.rules = [self._rule(number) for number in range(chance.randrange(40))]
        rules = [{"priority": 0, "table": "255"}, *self.rules, {"priority": 32766, "table": "254"}]
        resolved = [(GATEWAYS[name], name) for name in OWN] + [(pod, name) for name, pod in pods.items()]
        resolved += [(self._any(), chance.choice([*OWN])) for _number in range(8)]
        self.snapshot = {
            "links": [{"index": 2 + number, "flags": ["UP", "LOWER_UP"], **link} for number, link in enumerate(links)],
            "routes": self.routes,
            "rules": [{"family": family, **each} for each in rules],
            "neighbors": [
                {"address": self._address(address), "dev": dev, "mac": f"02:00:00:00:02:{number:02x}", "state": "REACHABLE"}
                for number, (address, dev) in enumerate(dict.fromkeys(resolved))
            ],
            "settings": {
                "node": {f"net.{family}.{'conf.all.forwarding' if is_ipv6 else 'ip_forward'}": 1},
                "ipv4": {link: {"rp_filter": chance.choice([0, 0, 1, 2])} for link in ("all", *OWN, *pods)},
            },
            "nftables_text": self._ruleset(),
        }
        source, interface = chance.choice([(CLIENT, "eth0"), (FAR_CLIENT, "eth1"), (POD, "pod1"), (BEYOND, "eth0"), ("", "")])
        destination = chance.choice([*[SERVICE] * 5, ENDPOINT, BEYOND, CLIENT, OTHER_POD, OWN["eth0"]])
        self.packet = {
            "interface": interface,
            "source": source and self._address(source),
            "destination": self._address(destination),
            "destination_port": 80,
            "protocol": chance.choice(["tcp", "udp"]),
        }
        self.commands, self.calls = chance.choice([([], []), ([], []), *self._changes()])

    def _address(self, text: str) -> str:
        """An address of the node's family, in as many networks as that of IPv4."""
        groups = ":".join(f"{int(part):x}" for part in text.split("."))
        return str(ipaddress.ip_address(f"2001:db8:{groups}::" if self._is_ipv6 else text))

    def _prefix(self, text: str, length: int, is_network: bool = True) -> str:
        of_ipv6 = 128 if length == 32 else 32 + 16 * (length // 8) + (8 + length % 8 if length % 8 else 0)
        interface = ipaddress.ip_interface(f"{self._address(text)}/{of_ipv6 if self._is_ipv6 else length}")
        return str(interface.network if is_network else interface)

    def _any(self) -> str:
        """An address of the packets, or one that shares a part of it."""
        parts = self._chance.choice([*ENDS, *OWN.values(), "10.7.7.7", "172.16.5.5"]).split(".")
        place = self._chance.choice([0, 2, 3, None, None, None])
        return ".".join(str(self._chance.randrange(1, 250)) if number == place else part for number, part in enumerate(parts))

    def _route(self) -> dict[str, Any]:
        chance = self._chance
        dev, network = chance.choice([*OWN]), self._prefix(self._any(), chance.choice([8, 16, 20, 24, 24, 27, 30, 32, 32, 32]))
        hops: list[dict[str, Any]] = [{"dev": dev, "via": self._address(GATEWAYS[dev])}] * 9
        hops += [{"dev": "eth1", "via": self._address(ROUTER), "onlink": True}, {"dev": chance.choice(["eth1", "pod1"])}]
        hop = chance.choice([*hops, {"type": chance.choice(["unreachable", "throw"])}])
        metric = {"metric": 50} if chance.random() < 0.1 else {}
        return {"to": network, "table": chance.choice(["254", "254", "254", "100"]), "protocol": "bird", **metric, **hop}

    def _rule(self, number: int) -> dict[str, Any]:
        chance, table = self._chance, {"table": self._chance.choice(["100", "254"])}
        prefix = self._prefix(self._any(), chance.choice([16, 24, 32, 32]))
        selectors: list[dict[str, Any]] = [{"from": prefix}, {"from": prefix}, {"to": prefix}, {"fwmark": "0x80/0x80"}]
        selectors += [{"from": prefix, "to": self._prefix(self._any(), 16)}]
        selectors += [{"from": prefix, "iif": chance.choice(["eth0", "pod1"])}]
        decisions: list[dict[str, Any]] = [table, table, table, {**table, "suppress_prefixlength": 0}]
        decisions += [{"action": "goto", "goto": 100 + 10 * (number + 2)}]
        if number % 8 == 0:  # they select nearly all packets
            selectors, decisions = [*selectors, {"from": prefix, "not": True}], [*decisions, {"action": "prohibit"}]
        return {"priority": 100 + 10 * number, **chance.choice(selectors), **chance.choice(decisions)}

    def _ruleset(self) -> str:
        chance, header = self._chance, "ip6" if self._is_ipv6 else "ip"
        to = self._address(chance.choice([POD, OTHER_POD, *[ENDPOINT] * 3, BEYOND]))
        translated = f"{header} daddr {self._address(SERVICE)} dnat to {to}"
        sources = ["masquerade", f"snat to {self._address(OWN['eth1'])}", f"snat to {self._address('10.77.7.7')}", "counter"]
        marks = f"{header} saddr {self._address(CLIENT)} meta mark set 0x80" if chance.random() < 0.4 else "counter"
        rejects = f"{header} daddr {self._address(ENDPOINT)} reject" if chance.random() < 0.1 else "counter"
        chains = [
            ("nat", "prerouting", -100, translated),
            ("nat", "output", -100, translated),
            ("nat", "postrouting", 100, chance.choice(sources)),
            ("filter", "prerouting", -150, marks),
            ("filter", "forward", 0, rejects),
        ]
        texts = (
            f"\tchain {kind}-{hook} {{\n\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n\t\t{rule}\n\t}}\n"
            for kind, hook, priority, rule in chains
        )
        return f"table {header} t {{\n{''.join(texts)}}}\n"

    def _changes(self) -> list[tuple[list[str], list[dict[str, Any]]]]:
        """Changes that name routes and rules of the node, and add addresses and routes that it does not have."""
        chance, words = self._chance, "ip -6" if self._is_ipv6 else "ip"
        far = [route for route in self.routes if route["table"] != "254" or route.get("protocol") != "kernel"]
        route, gateway = chance.choice(far), self._address(GATEWAYS["eth1"])
        kind, metric = route.get("type", ""), f"metric {route['metric']}" if "metric" in route else ""
        removal = f"{words} route del {kind} {route['to']} table {route['table']} {metric}".replace("  ", " ").strip()
        rules = [f"{words} rule del priority {chance.choice(self.rules)['priority']}"] if self.rules else []
        new = self._prefix(self._any(), 24)
        own = {"priority": 40, "from": self._address(chance.choice(ENDS)), "table": "300"}
        further = {"table": "300", "to": new, "via": gateway, "dev": "eth1"}
        policy = {"rules": [own], "routes": [further, {**further, "to": "default"}], "protocol": "91"}
        return [
            ([f"{words} addr add {self._prefix(self._any(), 32)} dev eth1"], []),
            ([removal], []),
            (rules, []),
            ([f"{words} route replace {new} via {gateway} dev eth1"], []),
            ([f"{words} route flush table 100"], []),
            ([f"ip link set dev {chance.choice([*OWN])} down"], []),
            ([], [{"policy_routes": policy}]),
            ([], [{"rp_filter": {"interfaces": ["eth*"], "mode": "loose"}}]),
        ]


@hypothesis.given(seed=st.integers(0, 2**32), is_ipv6=st.booleans())
@hypothesis.settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
def test_a_packet_among_many_routes_has_the_same_fate(seed: int, is_ipv6: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Routing(seed, is_ipv6)
    whole, part = answers(monkeypatch, node.snapshot, node.packet, node.commands, node.calls)
    assert comparable(part) == comparable(whole), (node.packet, node.commands, node.calls)
    monkeypatch.setattr(full_table, "FEW", 0)
    changes = changes_backend.read(node.calls, node.commands)
    few = trace_backend.about(node.snapshot, changes, node.packet)
    assert len(few["routes"]) < len(node.routes)
    of_few = answer(trace_backend.Question(few, packets.from_options(node.packet), {}, changes))
    assert comparable(of_few) == comparable(whole), (node.packet, node.commands, node.calls)


@hypothesis.given(seed=st.integers(0, 2**32), is_ipv6=st.booleans())
@hypothesis.settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
def test_packets_of_one_sweep_have_the_same_fates(seed: int, is_ipv6: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Routing(seed, is_ipv6)
    sent: list[sweep_backend.Sent] = [
        (packets.from_options(Routing(seed + further, is_ipv6).packet), None) for further in range(8)
    ]

    def fates() -> list[sweep_backend.Fate]:
        return sweep_backend.fates(node.snapshot, sent, {}, random_nodes.run, False, Work())

    part = fates()
    with monkeypatch.context() as patched:
        patched.setattr(exchange_backend, "reached", lambda drawn, *_asked: drawn)
        assert part == fates(), [str(packet) for packet, _missed in sent]


def test_the_twin_has_a_few_of_a_hundred_thousand_routes() -> None:
    far = [f"{20 + number // 65536}.{number // 256 % 256}.{number % 256}.0/24" for number in range(100_000)]
    by_router = [{**ROUTES[0], "to": to, "via": f"10.0.0.{1 + number % 3}"} for number, to in enumerate(far)]
    rules = [{"priority": 9, "family": "ipv4", "from": to, "table": "254"} for to in far[:20_000]]
    hosts = [f"10.0.{number // 256}.{number % 256}" for number in range(20_000)]
    near = [{"address": host, "dev": "eth0", "mac": "02:00:00:00:02:00"} for host in hosts]
    given = Snapshot.of({"links": LINKS, "routes": [*ROUTES, *by_router], "rules": rules, "neighbors": near})
    asked = packets.from_options({"source": "20.9.9.9", "interface": "eth0", "destination": "10.244.0.1", "destination_port": 80})
    planned = exchange_backend.plan(given, [asked])
    assert [blueprint.route_line(*each).split()[3] for each in planned.drawn.routes] == [
        *("default", "10.244.0.1", "20.0.0.0/24", "20.0.1.0/24", "20.0.2.0/24", "20.9.9.0/24"),
    ]
    assert (len(planned.drawn.rules), len(planned.drawn.neighbours)) == (5, 4)
    with pytest.raises(Invalid, match="snapshot.rules must be at most 16384 entries that packets can meet; 20003 was given"):
        exchange_backend.plan(given, [asked], changes_backend.read((), ["iptables -A FORWARD -j DROP"]))


@pytest.mark.parametrize("mode", MODES)
def test_the_twin_has_no_translation_but_those_of_the_service(mode: str) -> None:
    packet = packets.from_options(
        {"source": "192.0.2.9", "interface": "eth0", "destination": "10.96.0.2", "destination_port": 80}
    )
    asked = trace_backend.Question(snapshot(mode), packet, {})
    given = Snapshot.of(asked.snapshot)
    drawn = exchange_backend.reached(blueprint.draw(given), given, [packet])
    text = "\n".join([json.dumps(drawn.ruleset), drawn.ruleset_text, *(text for _program, text in drawn.restores)])
    assert len(re.findall(r'"dnat"|\bdnat to\b|-j DNAT\b', text)) == len(SERVICES[1].endpoints) == 3
