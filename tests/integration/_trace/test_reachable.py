# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer from a twin that has only what a packet can reach is that from a twin with the whole ruleset."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import netfilter_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import changes_backend, exchange_backend, trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet as packets
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, isolation_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._twin.isolation_backend import Isolated
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
_BY_CHANCE = re.compile(r'(\b10\.0\.0\.4:|"(?:source|destination)_port": )\d{4,5}')


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
    monkeypatch: pytest.MonkeyPatch, of_node: dict[str, Any], packet: dict[str, Any], commands: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The answers from the whole ruleset, and from what can be reached."""
    changes = changes_backend.read((), commands)
    asked = trace_backend.Question(of_node, packets.from_options(packet), {}, changes)
    found = [trace_backend.judge(asked, random_nodes.run).answer.plain()]
    with monkeypatch.context() as patched:
        patched.setattr(exchange_backend, "reached", lambda drawn, *_asked: drawn)
        return [trace_backend.judge(asked, random_nodes.run).answer.plain(), *found]


def comparable(found: dict[str, Any]) -> Any:
    """The answer without what is different from packet to packet: the first of several ways, and ports of masquerading.

    Counters are of all packets of the twin, some of which the kernel sends by itself.
    """
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


@pytest.mark.parametrize("mode", MODES)
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
