# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each cure that datapath_trace offers is applied on the node, behind a router that checks sources, and the packet arrives."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from sampling import sampled

from lab import Eni, EniLab, Lab, Node, place, playbook
from lab.azure_vnet import ebtables
from lab.eni import BACKEND, CLIENT, LOAD_BALANCER, PRIMARY
from lab.load_balancer import PROBE_SOURCE
from lab.machine import Machine
from lab.node import POD_PORT, NamespaceNode
from lab.steps import Steps
from lab.theft import Theft
from lab.uplinks import SERVER, V4, UplinkLab

ENIS = [Eni("eth1", pods=["pod1"], has_address=True), Eni("eth2", pods=["pod2"], has_address=True)]
OFF, STRICT = 0, 1
NODE_PORT = 30080
MARKS = "manage: [filters, mark_rule, connmark]"
UNDO = {"cilium_migration": "restored"}
POD = ENIS[0].pod_address(0)
TO_BACKEND = f"ip route add 10.0.100.0/24 via {ENIS[0].gateway} dev eth1 onlink table 1001"
FROM_POD = {"source": POD, "destination": BACKEND, "destination_port": POD_PORT, "interface": "veth-pod1"}


class Scene(NamedTuple):
    """A node with a trouble.

    packet: that is lost. arrives: whether a real one and its reply arrive. trouble: commands on the node that make the trouble
    again, after a cure by a command.
    """

    node: NamespaceNode
    packet: dict[str, Any]
    arrives: Callable[[], bool]
    trouble: list[str]


@contextmanager
def shared_enis(filter_mode: int, *trouble: str) -> Iterator[tuple[EniLab, NamespaceNode]]:
    with EniLab("cures", ENIS) as lab:
        node: NamespaceNode = lab.node("node1")
        lab.node("node1").filter_reverse_path(filter_mode)
        for command in trouble:
            node.run(shlex.split(command))
        yield lab, node


@contextmanager
def node_port(filter_mode: int, pod: str, address: str, interface: str) -> Iterator[Scene]:
    """A client asks for a node port, whose pod's packets leave by the pod's ENI."""
    with shared_enis(filter_mode) as (lab, node):
        node.service(NODE_PORT, [lab.pod(pod).address], "Local", backend="iptables")  # which serves all addresses of the node
        packet = {"source": CLIENT, "destination": address, "destination_port": NODE_PORT, "interface": interface}
        yield Scene(node, packet, lambda: lab.client.fetch(address, NODE_PORT, 0.3) is not None, [])


@contextmanager
def marks_of_cni() -> Iterator[Scene]:
    """The CNI marks requests and routes replies by the mark, but the filter does not look up the source with it."""
    comment = '-m comment --comment "AWS, primary ENI"'
    for_request = f"-A PREROUTING -i eth0 {comment} -m addrtype --dst-type LOCAL -j CONNMARK --set-xmark 0x80/0x80"
    for_reply = f"-A PREROUTING -i veth+ {comment} -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80"
    rules = [f"iptables -t mangle {rule}" for rule in (for_request, for_reply)]
    with node_port(STRICT, "pod1", PRIMARY.address, "eth0") as scene:
        for command in (*rules, "ip rule add fwmark 0x80/0x80 lookup main priority 1024"):
            scene.node.run(shlex.split(command))
        yield scene


@contextmanager
def server_of_node() -> Iterator[Scene]:
    """A client asks a server of the node itself for an address of another ENI."""
    with shared_enis(OFF) as (lab, node):
        node.serve(NODE_PORT)
        address = ENIS[0].address
        packet = {"source": CLIENT, "destination": address, "destination_port": NODE_PORT, "interface": "eth1"}
        yield Scene(node, packet, lambda: lab.client.fetch(address, NODE_PORT, 0.3) is not None, [])


@contextmanager
def load_balancer_address() -> Iterator[Scene]:
    """The request has the address of a load balancer, which no link of the node has, and which the cloud sends to eth0."""
    with shared_enis(STRICT) as (lab, node):
        lab.router.ip([f"route add {LOAD_BALANCER} via {PRIMARY.address}"])
        permitted = f"insert rule ip cloud prerouting iifname {PRIMARY.port} ip saddr {LOAD_BALANCER} accept"
        lab.router.run_from_host(["nft", *permitted.split()])
        node.service(NODE_PORT, [POD], "Local", load_balancer_ip=LOAD_BALANCER)
        packet = {"source": CLIENT, "destination": LOAD_BALANCER, "destination_port": 80, "interface": "eth0"}
        yield Scene(node, packet, lambda: lab.client.fetch(LOAD_BALANCER, 80, 0.3) is not None, [])


@contextmanager
def from_pod(*trouble: str) -> Iterator[Scene]:
    """A pod asks a server behind the router."""
    with shared_enis(OFF, *trouble) as (lab, node):
        yield Scene(node, FROM_POD, lambda: lab.fetch_from("pod1", BACKEND, POD_PORT, 0.3) is not None, [*trouble])


@contextmanager
def stolen() -> Iterator[Scene]:
    """A rule of azure-vnet sends the frames for a pod of Cilium to a MAC address that no interface has."""
    with Lab("cures", nodes=[Node("node1"), Node("node2")]) as lab:
        node: NamespaceNode = lab.node("node1")
        theft = Theft(node, lab.node("node2"))
        ebtables(node, theft.live + theft.stale, "ebtables-nft")
        packet = {"source": lab.node("node2").ipv4, "destination": theft.moved.address, "protocol": "icmp", "interface": "eth0"}
        stale = [f"ebtables-nft {rule}" for rule in theft.stale]
        yield Scene(node, packet, lambda: theft.reaches(theft.moved), stale)


@contextmanager
def filtered_frames() -> Iterator[Scene]:
    """A rule of ebtables drops the frames for a pod behind a bridge. It is none of azure-vnet's."""
    with Lab("cures", nodes=[Node("node1"), Node("node2")]) as lab:
        node: NamespaceNode = lab.node("node1")
        theft = Theft(node, lab.node("node2"))
        trouble = f"ebtables -t filter -A FORWARD -p IPv4 --ip-dst {theft.kept.address} -j DROP"
        node.run(shlex.split(trouble))
        packet = {"source": lab.node("node2").ipv4, "destination": theft.kept.address, "protocol": "icmp", "interface": "eth0"}
        yield Scene(node, packet, lambda: theft.reaches(theft.kept), [trouble])


@contextmanager
def probe() -> Iterator[Scene]:
    """Azure's load balancer sends its probe from a link-local address."""
    with Lab("cures", nodes=[Node("node1", pods=["pod1"])]) as lab:
        node: NamespaceNode = lab.node("node1")
        node.service(NODE_PORT, [lab.pod("pod1").address])
        packet = {"source": PROBE_SOURCE, "destination": node.address, "destination_port": NODE_PORT, "interface": "eth0"}
        yield Scene(node, packet, lambda: lab.load_balancer.probe_tcp(node.address, NODE_PORT, 0.3), [])


SCENES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "node port of strict nodes": (
        lambda: node_port(STRICT, "pod1", PRIMARY.address, "eth0"),
        [f"eni_policy_routing: {{remedy: {remedy}, {MARKS}}}" for remedy in ("loose", "strict")]
        + ["eni_policy_routing: {remedy: symmetric, manage: [own_addresses, filters, mark_rule, connmark]}"],
    ),
    "node port of strict nodes with the marks of a CNI": (
        marks_of_cni,
        [
            "eni_policy_routing: {remedy: loose, manage: [filters]}",
            f"eni_policy_routing: {{remedy: strict, {MARKS}}}",
            "eni_policy_routing: {remedy: symmetric, manage: [own_addresses, filters, mark_rule, connmark]}",
        ],
    ),
    "node port of nodes without filters": (
        lambda: node_port(OFF, "pod1", PRIMARY.address, "eth0"),
        ["eni_policy_routing: {remedy: loose, manage: [mark_rule, connmark]}"],
    ),
    "node port on another ENI": (
        lambda: node_port(STRICT, "pod2", ENIS[0].address, "eth1"),
        [f'eni_policy_routing: {{remedy: loose, {MARKS}, interface_marks: [{{name: eth1, mark: "0x2"}}]}}'],
    ),
    "server of the node on another ENI": (
        server_of_node,
        ['eni_policy_routing: {remedy: loose, manage: [mark_rule, connmark], interface_marks: [{name: eth1, mark: "0x2"}]}'],
    ),
    "address of a load balancer": (
        load_balancer_address,
        [
            f'eni_policy_routing: {{remedy: {remedy}, {MARKS}, service_addresses: ["{LOAD_BALANCER}"]}}'
            for remedy in ("loose", "strict")
        ]
        + [
            "eni_policy_routing: {remedy: symmetric, manage: [own_addresses, filters, mark_rule, connmark],"
            f' service_addresses: ["{LOAD_BALANCER}"]}}'
        ],
    ),
    "a rule of azure-vnet": (stolen, ["cilium_migration"]),
    "a rule of ebtables": (
        filtered_frames,
        [f"ebtables -t filter -D FORWARD -p IPv4 --ip-dst {place.NODES_IPV4}129 -j DROP"],
    ),
    "probe of a load balancer": (probe, ["aks_dual_stack: {interface: eth0}"]),
    "policy of FORWARD": (lambda: from_pod("iptables -P FORWARD DROP"), ["iptables -P FORWARD ACCEPT"]),
    "policy of FORWARD beside Docker": (
        lambda: from_pod(
            "iptables -N DOCKER-USER", "iptables -F DOCKER-USER", "iptables -A FORWARD -j DOCKER-USER", "iptables -P FORWARD DROP"
        ),
        ["iptables -I DOCKER-USER -i veth-pod1 -j ACCEPT; iptables -I DOCKER-USER -o veth-pod1 -j ACCEPT"],
    ),
    "setting of forwarding": (
        # 1 first: 0 where it is 0 already changes no link.
        lambda: from_pod("sysctl -w net.ipv4.ip_forward=1", "sysctl -w net.ipv4.ip_forward=0"),
        ["sysctl -w net.ipv4.conf.veth-pod1.forwarding=1 net.ipv4.conf.eth1.forwarding=1"],
    ),
    "setting of forwarding of a link": (
        lambda: from_pod("sysctl -w net.ipv4.conf.veth-pod1.forwarding=0"),
        ["sysctl -w net.ipv4.conf.veth-pod1.forwarding=1"],
    ),
    "link of the pod that is down": (
        lambda: from_pod("ip link set veth-pod1 down"),
        [f"ip link set dev veth-pod1 up; ip route add {POD} dev veth-pod1"],
    ),
    "rule of FORWARD": (
        lambda: from_pod(f"iptables -A FORWARD -s {POD} -m comment --comment 'no way' -j DROP"),
        [f"iptables -t filter -D FORWARD -s {POD}/32 -m comment --comment 'no way' -j DROP"],
    ),
    "blackhole route": (
        lambda: from_pod(TO_BACKEND, f"ip route add blackhole {BACKEND} table 1001"),
        [f"ip route del blackhole {BACKEND} table 1001"],
    ),
    "policy rule that drops": (
        lambda: from_pod(f"ip rule add from {POD} prohibit priority 100"),
        [f"ip rule del priority 100 from {POD} prohibit"],
    ),
    "policy rule that misleads": (
        lambda: from_pod("ip route add unreachable default table 99", f"ip rule add from {POD} lookup 99 priority 100"),
        [f"ip rule del priority 100 from {POD} lookup 99"],  # without the route, another default route decides
    ),
}


@pytest.mark.parametrize("name", sampled(SCENES, lambda name: name in [*SCENES][::2]))
def test_a_cure_that_is_offered_cures_the_node(name: str) -> None:
    make, changes = SCENES[name]
    with make() as scene:
        cures = cures_of(scene)
        assert [cure["change"] for cure in cures] == changes
        assert not scene.arrives()
        for cure in cures:
            tasks = yaml.safe_load(cure["task"])
            assert all(apply(scene.node, task) for task in tasks)
            assert scene.arrives(), cure
            undo(scene, tasks[0])
            assert not scene.arrives(), cure


OPPOSITES = {"add": "del", "-A": "-D", "-N": "-X"}
NOT_REMOVED = {
    "a route without which a default route decides": [f"ip route add blackhole {BACKEND} table 1001"],
    "a route of a routing daemon": [TO_BACKEND, f"ip route add blackhole {BACKEND} table 1001 proto bird"],
    "a rule of a routing daemon": [f"ip rule add from {POD} prohibit priority 100 proto bird"],
    "a rule that packets for the node meet": [f"iptables -t raw -A PREROUTING -p tcp --dport {POD_PORT} -j DROP"],
    "a rule that the node has twice": [f"iptables -A FORWARD -s {POD} -j DROP"] * 2,
    "a rule of a chain of a program": [
        "iptables -N cali-x", "iptables -A FORWARD -j cali-x", f"iptables -A cali-x -s {POD} -j DROP",
    ],
}  # fmt: skip


def test_a_command_that_may_open_what_should_be_closed_is_not_offered() -> None:
    with from_pod() as scene:
        for name, trouble in NOT_REMOVED.items():
            for command in trouble:
                scene.node.run(shlex.split(command))
            found = Steps(scene.node, "datapath_trace", {"packet": scene.packet}).run()
            assert (found["certain"], found["culprit"]["kind"], found["cures"]) == (True, name.split(" ", 2)[1], []), name
            for command in reversed(trouble):
                for word, opposite in OPPOSITES.items():
                    command = command.replace(f" {word} ", f" {opposite} ")
                scene.node.run(shlex.split(command))
        assert scene.arrives()


def cures_of(scene: Scene) -> list[dict[str, Any]]:
    found = Steps(scene.node, "datapath_trace", {"packet": scene.packet}).run()
    # What a cloud may drop is open, with and without a cure.
    assert found["unknown"] == [] and all(entry["fact"].startswith("source-check:") for entry in found["depends_on"]), found
    assert {cure["reply_verdict"] for cure in found["cures"]} <= {"forwarded", "delivered"}
    assert all(cure["certain"] for cure in found["cures"])
    return list(found["cures"])


def apply(node: NamespaceNode, task: dict[str, Any], **options: Any) -> bool:
    """Execute a task by its module; whether it changed the node. options: of a profile, besides those of the task."""
    action = next(key for key in task if key.startswith(("ansible.builtin.", "kubenode.datapath.")))
    if action == "ansible.builtin.command":
        node.run(task[action]["argv"])
        return True
    if action != "ansible.builtin.include_role":
        return bool(Steps(node, action.rpartition(".")[2], {**task[action], "permanent": False}).run()["changed"])
    role = task[action]["name"].rpartition(".")[2]
    given = {key.removeprefix(f"{role}_"): value for key, value in task.get("vars", {}).items()}
    # The namespace node has no systemd of its own, and would be taken for an image.
    done = Steps(node, "profile", {"name": role, "options": {**given, "mode": "runtime", **options}}).run()
    return bool(done["changed"])


def undo(scene: Scene, task: dict[str, Any]) -> None:
    for command in scene.trouble:
        scene.node.run(shlex.split(command), check=False)
    if not scene.trouble:
        role = task["ansible.builtin.include_role"]["name"].rpartition(".")[2]
        apply(scene.node, task, state=UNDO.get(role, "absent"))


def test_a_task_is_pasted_into_a_playbook(tmp_path: Path) -> None:
    with EniLab("cures", ENIS) as lab:
        node: NamespaceNode = lab.node("node1")
        lab.node("node1").filter_reverse_path(STRICT)
        node.service(NODE_PORT, [POD], "Local")
        packet = {"source": CLIENT, "destination": PRIMARY.address, "destination_port": NODE_PORT, "interface": "eth0"}
        found = Steps(node, "datapath_trace", {"packet": packet}).run()
        play = tmp_path / "cure.yml"
        tasks = "".join(f"    {line}\n" for line in found["cures"][0]["task"].splitlines())
        play.write_text(f"- hosts: node1\n  gather_facts: false\n  tasks:\n{tasks}")
        inventory = lab.write_inventory(tmp_path / "inventory.json")
        playbook.play(inventory, play, variables={"eni_policy_routing_mode": "runtime"}).well()
        assert lab.client.fetch(PRIMARY.address, NODE_PORT) is not None


@pytest.mark.parametrize("source_check", [True, False])
def test_a_filter_behind_a_packet_that_a_cloud_may_drop_is_offered_with_the_doubt(source_check: bool) -> None:
    """The node's address masquerades the pod, as the ENI has none. Whether the cloud lets the packet pass, no node shows."""
    with EniLab("cures", [Eni("eth1", pods=["pod1"])], source_check=source_check) as lab:
        node: NamespaceNode = lab.node("node1")
        lab.node("node1").filter_reverse_path(STRICT)
        node.service(NODE_PORT, [BACKEND], load_balancer_ip=LOAD_BALANCER)
        packet = {"source": POD, "destination": LOAD_BALANCER, "destination_port": 80, "interface": "veth-pod1"}
        found = Steps(node, "datapath_trace", {"packet": packet}).run()
        first, *_others = found["cures"]
        assert found["culprit"]["text"] == "net.ipv4.conf.eth0.rp_filter = 1"
        assert first["change"] == "eni_policy_routing: {remedy: loose, manage: [filters]}"
        assert not first["certain"] and "an address of eth0: a cloud that checks the sources" in first["takes_along"]
        checks = [] if source_check else ["rp-strict-asymmetric", "reply-by-other-interface"]
        audited = Steps(node, "datapath_audit", {"checks": checks}).run()["findings"] if checks else []
        assert all(finding["remedy"] for finding in audited) and bool(audited) is not source_check, audited
        (task,) = yaml.safe_load(first["task"])
        assert apply(node, task)
        assert (lab.fetch_from("pod1", LOAD_BALANCER, 80, 0.3) is None) is source_check
        assert not source_check or lab.router.refused()


def test_replies_by_the_default_route_are_cured_by_symmetric_routing() -> None:
    """An uplink is the link by which the packet came in, also without a default route of its own."""
    with UplinkLab("cures") as lab:
        node: NamespaceNode = lab.node("node1")
        node.serve(SERVER)
        packet = {"source": V4.client, "destination": V4.node(1), "destination_port": SERVER, "interface": "eth1"}
        found = Steps(node, "datapath_trace", {"packet": packet}).run()
        assert "an address of eth1: a cloud that checks the sources of an interface would drop it" in found["reason"]
        (tried,) = found["tried"]
        assert found["cures"] == [] and tried["change"] == "symmetric_routing: {uplinks: [{name: eth0}, {name: eth1}]}"
        assert tried["reason"].startswith("symmetric_routing_uplinks[1].gateway must be given, because no default route")
        node.ip([f"route add default via {V4.gateway(1)} dev eth1 metric 200"])
        (cure,) = Steps(node, "datapath_trace", {"packet": packet}).run()["cures"]
        assert (cure["change"], cure["certain"]) == ("symmetric_routing", True)
        assert lab.fetch(V4.node(1), SERVER) is None
        (task,) = yaml.safe_load(cure["task"])
        assert apply(node, task) and lab.fetch(V4.node(1), SERVER) is not None


def test_a_filter_that_lets_the_answer_leave_by_another_uplink_is_not_offered() -> None:
    """A route to the client leads by an uplink without a default route."""
    with EniLab("cures", ENIS[:1], cni=False) as lab:
        node: NamespaceNode = lab.node("node1")
        lab.node("node1").filter_reverse_path(STRICT)
        node.ip([f"route add {CLIENT} via {ENIS[0].gateway} dev eth1 onlink"])
        node.serve(NODE_PORT)
        packet = {"source": CLIENT, "destination": PRIMARY.address, "destination_port": NODE_PORT, "interface": "eth0"}
        found = Steps(node, "datapath_trace", {"packet": packet}).run()
        assert (found["culprit"]["text"], found["cures"]) == ("net.ipv4.conf.eth0.rp_filter = 1", [])
        Steps(node, "rp_filter", {"interfaces": ["eth0"], "mode": "loose"}).run()
        assert lab.client.fetch(PRIMARY.address, NODE_PORT, 0.3) is None and lab.router.refused()
        assert "an address of eth0: a cloud" in Steps(node, "datapath_trace", {"packet": packet}).run()["reason"]


def test_a_policy_that_protects_the_node_is_not_removed(lab: Lab, node: Machine) -> None:
    for command in ("iptables -P INPUT DROP", "iptables -N own", "iptables -A INPUT -j own", "iptables -A own -p udp -j DROP"):
        node.run(shlex.split(command))
    packet = {"source": "192.0.2.1", "destination": lab.node("node1").ipv4, "destination_port": 9, "interface": "eth0"}
    for protocol, culprit in (("tcp", "ip filter: -P INPUT DROP"), ("udp", "ip filter: -A own -p udp -j DROP")):
        found = Steps(lab.node("node1"), "datapath_trace", {"packet": {**packet, "protocol": protocol}}).run()
        assert (found["culprit"]["text"], found["cures"]) == (culprit, [])
