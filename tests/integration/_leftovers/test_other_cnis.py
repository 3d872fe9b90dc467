# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other CNIs left on a node: what it does to packets, and that the commands of cni_info end it and touch nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab import Lab
from lab.node import NamespaceNode
from lab.prober import Prober
from lab.steps import Steps, warnings
from lab.waiting import until

from .azure_rules import BACKENDS, apply, saved

PORT = 8080
CONFIGURATIONS = "/etc/cni/net.d"
CHAINS = ("-N KUBE-ROUTER-FORWARD", "-N KUBE-POD-FW-GZC4KGHVT2P5XBVA", "-N KUBE-NWPLCY-DEFAULT")
# The pod with the address is gone, and with it the policies that set the mark.
KUBE_ROUTER = [
    *CHAINS,
    '-I FORWARD -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-FORWARD',
    '-A KUBE-ROUTER-FORWARD -d {pod} -m comment --comment "rule to jump traffic destined to POD" -j KUBE-POD-FW-GZC4KGHVT2P5XBVA',
    '-A KUBE-POD-FW-GZC4KGHVT2P5XBVA -m mark ! --mark 0x10000/0x10000 -m comment --comment "rule to REJECT" -j REJECT',
    "-A KUBE-NWPLCY-DEFAULT -j MARK --set-xmark 0x10000/0x10000",
]
FLANNEL = [
    "-t nat -N FLANNEL-POSTRTG",
    '-t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG',
    '-t nat -A FLANNEL-POSTRTG -s {pods} ! -d ff00::/8 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully',
]
WEAVE = ["-N WEAVE-NPC", "-I FORWARD -o veth-pod1 -j WEAVE-NPC", "-A WEAVE-NPC -p tcp -j DROP"]
CALICO = [
    "-N cali-FORWARD",
    '-I FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD',
    '-A cali-FORWARD -d {pod} -m comment --comment "cali:8ZoYfO5HKXWbB3pk" -j DROP',
]
KUBENET = ['-t nat -A POSTROUTING -s {pods} -m comment --comment "kubenet: SNAT for outbound traffic from cluster" -j MASQUERADE']


def look(node: NamespaceNode) -> dict[str, Any]:
    before = node.snapshot()
    result = Steps(node, "cni_info").run()
    assert not result["changed"] and node.snapshot() == before
    return result


def remove(node: NamespaceNode, leftovers: list[dict[str, Any]]) -> None:
    for leftover in leftovers:
        node.run(["sh", "-e", "-c", leftover["command"]])


@contextmanager
def process(node: NamespaceNode, name: str) -> Iterator[None]:
    node.run(["sh", "-ec", f"mkdir -p /run/programs; cp /bin/sleep /run/programs/{name}"])
    pid = node.run(["sh", "-c", f"/run/programs/{name} 60 > /dev/null 2>&1 & echo $!"]).stdout.strip()
    try:
        yield
    finally:
        node.run(["kill", pid])


@pytest.fixture
def to_pod(lab: Lab) -> Callable[[], bool]:
    """Asks the pod from a pod of another node."""
    return lambda: Prober(lab.pod("pod2")).http(lab.pod("pod1").address, PORT, timeout=0.5, tries=1) is not None


@pytest.fixture
def from_pod(lab: Lab) -> Callable[[], str]:
    """Asks a pod of another node from the pod, and returns the address that it sees."""

    def ask() -> str:
        answer = Prober(lab.pod("pod1")).http(lab.pod("pod2").address, PORT, timeout=0.5, tries=1)
        return answer.peer if answer else ""

    return ask


def load(lab: Lab, rules: list[str], backend: str = "nft") -> None:
    pod = lab.pod("pod1").address
    pods = f"{pod.rpartition(':')[0]}:0/112"
    apply(lab.node("node1"), f"ip6tables-{backend}", [rule.format(pod=pod, pods=pods) for rule in rules])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("owner", "rules", "effect", "program"),
    [
        ("kube-router", KUBE_ROUTER, "rejects packets to {pod}/128", "kube-router"),
        ("kube-router", KUBE_ROUTER, "rejects packets to {pod}/128", "k3s-server"),
        ("weave", WEAVE, "drops packets in WEAVE-NPC", "weave-npc"),
        ("calico", CALICO, "drops packets to {pod}/128", "calico-node"),
    ],
)
def test_rules_that_stop_the_next_pod_with_the_address(
    lab: Lab,
    node: NamespaceNode,
    to_pod: Callable[[], bool],
    owner: str,
    rules: list[str],
    effect: str,
    program: str,
    backend: str,
) -> None:
    foreign = saved(node)
    assert to_pod() and look(node)["leftovers"] == []
    load(lab, rules, backend)
    assert not to_pod()
    with process(node, program):
        assert look(node)["leftovers"] == [], "its program runs"
    leftovers = look(node)["leftovers"]
    assert {each["owner"] for each in leftovers} == {owner} and all(each["certain"] for each in leftovers)
    assert effect.format(pod=lab.pod("pod1").address) in [each["effect"] for each in leftovers]
    remove(node, leftovers)
    assert to_pod() and look(node)["leftovers"] == []
    assert [line for line in saved(node) if line.startswith("-A")] == [line for line in foreign if line.startswith("-A")]


@pytest.mark.parametrize(
    ("owner", "rules", "configuration"),
    [
        ("flannel", FLANNEL, '{"name": "cbr0", "plugins": [{"type": "flannel"}]}'),
        ("kubenet", KUBENET, '{"name": "kubenet", "plugins": [{"type": "bridge", "bridge": "cbr0"}]}'),  # as on AKS
    ],
)
def test_rules_that_hide_the_address_of_a_pod(
    lab: Lab, node: NamespaceNode, from_pod: Callable[[], str], owner: str, rules: list[str], configuration: str
) -> None:
    node.ip(["link add cbr0 type bridge"] if owner == "kubenet" else [])
    load(lab, rules)
    assert from_pod() not in ("", lab.pod("pod1").address)
    node.write(f"{CONFIGURATIONS}/10-x.conflist", configuration)
    assert look(node)["leftovers"] == [], "its configuration is that of the runtime"
    node.write(f"{CONFIGURATIONS}/05-cilium.conflist", '{"plugins": [{"type": "cilium-cni"}]}')
    leftovers = look(node)["leftovers"]
    assert "gives the node's address to packets from" in str([each["effect"] for each in leftovers])
    remove(node, leftovers)
    assert from_pod() == lab.pod("pod1").address and look(node)["leftovers"] == []


def test_a_route_that_drops_the_packets_to_another_node(lab: Lab, node: NamespaceNode, from_pod: Callable[[], str]) -> None:
    pod = lab.pod("pod2").address
    network = f"{':'.join(pod.split(':')[:2])}::/32"
    for prefix in (f"{pod}/128", "2001:dead::/64"):
        node.run(["ip", "-6", "route", "add", "blackhole", prefix])
    assert from_pod() == "" and look(node)["leftovers"] == [], "nothing tells whose they are"
    node.write("/run/flannel/subnet.env", f"FLANNEL_IPV6_NETWORK={network}\nFLANNEL_MTU=1450\n")
    (route,) = look(node)["leftovers"]
    assert (route["owner"], route["kind"], route["effect"]) == (
        "flannel", "route", f"drops packets to {pod}, whichever node has them now"
    )  # fmt: skip
    remove(node, [route])
    assert from_pod() and look(node)["leftovers"] == []


def test_a_bridge_with_ports_is_in_use(node: NamespaceNode) -> None:
    node.ip(["link add cni0 type bridge", "address add 10.244.1.1/24 dev cni0", "link set cni0 up"])
    node.ip(["link add vethx type veth peer name p0", "link set vethx master cni0"])
    until("the bridge has no carrier", lambda: "NO-CARRIER" in node.run(["ip", "link", "show", "cni0"]).stdout)
    (bridge,) = look(node)["leftovers"]
    assert not bridge["certain"] and bridge["evidence"].endswith("links of pods are in it")
    assert bridge["effect"] == "takes packets to 10.244.1.0/24"
    node.ip(["link del vethx"])
    (bridge,) = look(node)["leftovers"]
    assert bridge["certain"]
    remove(node, [bridge])
    assert look(node)["leftovers"] == []


def test_rules_that_no_packet_reaches_have_no_effect(lab: Lab, node: NamespaceNode) -> None:
    load(lab, [*CHAINS, KUBE_ROUTER[-2]])
    leftovers = look(node)["leftovers"]
    assert len(leftovers) == len(CHAINS) + 1 and {each["effect"] for each in leftovers} == {""}
    assert Steps(node, "ebtables_cleanup", {"iptables": True}).run()["changed"] is False


PROXY = ["-t nat -N KUBE-SERVICES", "-t nat -N KUBE-MARK-MASQ", "-t nat -A PREROUTING -j KUBE-SERVICES"]
PROXY += ["-t nat -N KUBE-SVC-ABCDEFGHIJKLMN27", "-t nat -A KUBE-SERVICES -d 10.96.0.1 -j KUBE-SVC-ABCDEFGHIJKLMN27"]


def test_chains_of_another_mode_or_backend_of_kube_proxy(node: NamespaceNode) -> None:
    apply(node, "iptables-nft", ["-t nat -A PREROUTING -d 192.0.2.9 -j ACCEPT", *PROXY])
    with process(node, "kube-proxy"):
        assert look(node)["leftovers"] == [], "it has one mode"
        node.run(["nft", "add table ip kube-proxy; add chain ip kube-proxy services"])
        leftovers = look(node)["leftovers"]
        assert [each["place"] for each in leftovers] == ["ip kube-proxy (nft)", "ip nat (nft)"]
        assert {each["evidence"] for each in leftovers} == {"kube-proxy runs, and uses one of nft and nftables"}
        assert not any(each["certain"] for each in leftovers)
        remove(node, leftovers[1:])
        rules = node.run(["iptables-nft-save", "-t", "nat"]).stdout
        assert "KUBE-S" not in rules and "KUBE-MARK-MASQ" in rules and "192.0.2.9" in rules
        assert look(node)["leftovers"] == []


@pytest.mark.parametrize(("former", "current"), [BACKENDS, BACKENDS[::-1]])
def test_chains_of_kube_proxy_in_two_backends_of_iptables(node: NamespaceNode, former: str, current: str) -> None:
    """As after an upgrade of kube-proxy's image, whose iptables chose the other backend. Which of them it uses nothing tells."""
    for backend in (former, current):
        apply(node, f"iptables-{backend}", ["-t nat -A PREROUTING -d 192.0.2.9 -j ACCEPT", *PROXY])
    with process(node, "kube-proxy"):
        leftovers = look(node)["leftovers"]
        assert {each["place"] for each in leftovers} == {"ip nat (nft)", "ip nat (legacy)"}
        assert {each["evidence"] for each in leftovers} == {"kube-proxy runs, and uses one of legacy and nft"}
        assert not any(each["certain"] for each in leftovers)
        current_rules = node.run([f"iptables-{current}-save", "-t", "nat"]).stdout
        remove(node, [each for each in leftovers if f"({former})" in each["place"]])
        rules = node.run([f"iptables-{former}-save", "-t", "nat"]).stdout
        assert "KUBE-S" not in rules and "192.0.2.9" in rules
        unchanged = [line for line in current_rules.splitlines() if line.startswith(("-A", ":KUBE"))]
        after = node.run([f"iptables-{current}-save", "-t", "nat"]).stdout
        assert [line for line in after.splitlines() if line.startswith(("-A", ":KUBE"))] == unchanged
        assert look(node)["leftovers"] == []


MULTUS = '{"type": "multus", "name": "multus", "clusterNetwork": "/etc/cni/net.d/10-x.conflist"}'


@pytest.mark.parametrize(
    ("bridge", "configuration"),
    [
        ("cni0", '{"name": "crio", "plugins": [{"type": "bridge", "isGateway": true}]}'),
        ("cni0", '{"name": "crio", "type": "bridge", "bridge": "cni0"}'),
        ("kube-bridge", '{"name": "mynet", "type": "bridge", "bridge": "kube-bridge"}'),
    ],
)
@pytest.mark.parametrize("first", [None, MULTUS])
def test_a_bridge_that_the_runtime_uses_is_no_leftover(
    node: NamespaceNode, bridge: str, configuration: str, first: str | None
) -> None:
    """As on a node of CRI-O or kube-router that has no pods yet."""
    node.ip([f"link add {bridge} type bridge", f"address add 10.88.0.1/16 dev {bridge}"])
    assert [each["text"] for each in look(node)["leftovers"]] == [bridge]
    if first:
        node.write(f"{CONFIGURATIONS}/00-multus.conf", first)
    node.write(f"{CONFIGURATIONS}/10-x.conflist", configuration)
    assert look(node)["leftovers"] == []
    node.write(f"{CONFIGURATIONS}/00-cilium.conflist", '{"plugins": [{"type": "cilium-cni"}]}')
    assert [each["text"] for each in look(node)["leftovers"]] == [bridge]


def test_the_migration_warns_of_what_harms(lab: Lab, node: NamespaceNode) -> None:
    load(lab, KUBE_ROUTER)
    result = Steps(node, "ebtables_cleanup", {"iptables": True}).run()
    (warning,) = warnings(result)
    assert warning.startswith("ebtables_cleanup: kube-router is gone") or warning.startswith("kube-router is gone")
    assert f"rejects packets to {lab.pod('pod1').address}/128" in warning and "cni_info lists them" in warning
