# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets on a node whose pods share ENIs: pod -> load balancer and client -> node port.

Each problem is shown with a table loaded by hand, then solved by nftables_connmark.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, get_args

import pytest
from sampling import sampled

from lab import Eni, EniLab
from lab.eni import BACKEND, LOAD_BALANCER, PRIMARY, EniNamespaceNode, EniNode
from lab.node import POD_PORT
from lab.prober import Answer, Prober
from lab.service import Backend, Policy
from lab.steps import Steps

QUICK = 0.3  # seconds to wait for an answer that must not come; one that comes takes a millisecond
NODE_PORT = 30080
SERVER_PORT = 9000  # of a server on the node itself
OFF, STRICT, LOOSE = 0, 1, 2
POD_LINKS = "veth-*"
FROM_OUTSIDE = 'iifname "eth0" fib daddr . iif type local'
FROM_POD = f'iifname "{POD_LINKS}" ct mark & 0x80 == 0x80 meta mark set meta mark | 0x80'
MARK_RULE = "fwmark 0x80/0x80 lookup main priority 1024"
EACH_BACKEND = pytest.mark.parametrize("backend", get_args(Backend))
# What packets meet without the module does not depend on the backend that translates them.
EACH_BY_HAND = pytest.mark.parametrize("backend", sampled(get_args(Backend), lambda backend: backend == "nftables"))
EACH_POLICY = pytest.mark.parametrize("policy", get_args(Policy))


@pytest.fixture
def lab() -> Iterator[EniLab]:
    with EniLab("eni", [Eni("eth1", pods=["pod1"])]) as running:
        yield running


@pytest.fixture
def unchecked() -> Iterator[EniLab]:
    """A cloud that lets an ENI send from any address: a pod's packet that leaves its ENI with the node's address arrives."""
    with EniLab("unchecked", [Eni("eth1", pods=["pod1"])], source_check=False) as running:
        yield running


def load(node: EniNode, *rules: str, priority: int = -150) -> None:
    """Load a table by hand."""
    text = "\n".join([f"type filter hook prerouting priority {priority};", *rules])
    node.run(["nft", "-f", "-"], f"table inet by_hand {{\nchain prerouting {{\n{text}\n}}\n}}\n")


MARK_REQUESTED = f"{FROM_OUTSIDE} ct direction original ct mark set ct mark | 0x80"
MARK_PACKETS = f"{FROM_OUTSIDE} meta mark set meta mark | 0x80"


def mark_by_hand(node: EniNode, *rules: str) -> None:
    """The marks and the rule without the module."""
    load(node, *rules, FROM_POD)
    node.ip([f"rule add {MARK_RULE}"])


def call_node_port(lab: EniLab, timeout: float = 1.0) -> Answer | None:
    return lab.client.fetch(PRIMARY.address, NODE_PORT, timeout)


def serve_node_port(lab: EniLab, policy: Policy = "Local", backend: Backend = "nftables") -> EniNamespaceNode:
    node: EniNamespaceNode = lab.node("node1")
    node.service(NODE_PORT, [lab.pod("pod1").address], policy, backend=backend)
    return node


def call_load_balancer(lab: EniLab, timeout: float = 1.0) -> Answer | None:
    return lab.fetch_from("pod1", LOAD_BALANCER, 80, timeout)


def serve_load_balancer(lab: EniLab, backend: Backend = "nftables") -> EniNamespaceNode:
    node: EniNamespaceNode = lab.node("node1")
    node.service(NODE_PORT, [BACKEND], "Cluster", backend=backend, load_balancer_ip=LOAD_BALANCER)
    return node


class Drops(NamedTuple):
    """Packets dropped meanwhile: by the node's reverse-path filter, and by the router because of their source."""

    reverse_path: int
    source: int


@contextmanager
def counting_drops(lab: EniLab) -> Iterator[Callable[[], Drops]]:
    node: EniNode = lab.node("node1")

    def dropped() -> Drops:
        return Drops(node.dropped_by_reverse_path(), lab.router.refused())

    before = dropped()
    yield lambda: Drops(*(now - then for now, then in zip(dropped(), before, strict=True)))


def assert_unanswered(lab: EniLab, call: Callable[[EniLab, float], Answer | None], cause: str) -> None:
    """``cause`` of the drops: "reverse path", "source" or "neither"."""
    with counting_drops(lab) as drops:
        assert call(lab, QUICK) is None
    assert (drops().reverse_path > 0, drops().source > 0) == (cause == "reverse path", cause == "source"), drops()


# pod -> load balancer -> remote backend, masqueraded to the node's address as its ENI has none


POD_TO_LOAD_BALANCER: list[tuple[str, int, dict[str, int], bool]] = [
    ("all strict", STRICT, {}, False),
    ("only the ENI loose", STRICT, {"eth1": LOOSE}, False),
    ("only the primary loose", STRICT, {"eth0": LOOSE}, True),
    ("only the primary off", STRICT, {"eth0": OFF}, True),
    ("the primary off, but conf/all strict", STRICT, {"eth0": OFF, "all": STRICT}, False),
    ("the primary loose, conf/all strict", STRICT, {"eth0": LOOSE, "all": STRICT}, True),
]
EACH_FILTER = pytest.mark.parametrize(
    ("mode", "exceptions", "works"),
    [scene[1:] for scene in POD_TO_LOAD_BALANCER],
    ids=[scene[0] for scene in POD_TO_LOAD_BALANCER],
)


@EACH_BY_HAND
@EACH_FILTER
def test_a_pods_load_balancer_answers_where_the_primary_does_not_filter_strictly(
    unchecked: EniLab, backend: Backend, mode: int, exceptions: dict[str, int], works: bool
) -> None:
    node = serve_load_balancer(unchecked, backend)
    node.filter_reverse_path(mode, **exceptions)
    if works:
        answer = call_load_balancer(unchecked)
        assert answer and answer.peer == PRIMARY.address
    else:
        assert_unanswered(unchecked, call_load_balancer, "reverse path")


# client -> node port -> pod on an ENI


class NodePort(NamedTuple):
    """``cause`` of dropped packets, "" if none are dropped."""

    exceptions: dict[str, int]
    cause: str
    marks: bool = True
    packets: bool = False
    src_valid_mark: str = ""


NODE_PORTS = {
    "strict, no marks": NodePort({}, "reverse path", marks=False),
    "primary loose, no marks": NodePort({"eth0": LOOSE}, "source", marks=False),
    "primary off, no marks": NodePort({"eth0": OFF}, "source", marks=False),
    "primary off but conf/all strict": NodePort({"eth0": OFF, "all": STRICT}, "reverse path"),
    "primary loose": NodePort({"eth0": LOOSE}, ""),
    "primary loose, conf/all strict": NodePort({"eth0": LOOSE, "all": STRICT}, ""),
    "strict": NodePort({}, "reverse path"),
    "strict, packets marked": NodePort({}, "reverse path", packets=True),
    "strict, marks valid": NodePort({}, "reverse path", src_valid_mark="eth0"),
    "strict, marks valid, packets marked": NodePort({}, "", packets=True, src_valid_mark="eth0"),
    "strict, marks valid by conf/all, packets marked": NodePort({}, "", packets=True, src_valid_mark="all"),
    "strict, marks valid on the ENI, packets marked": NodePort({}, "reverse path", packets=True, src_valid_mark="eth1"),
}


@EACH_BY_HAND
@pytest.mark.parametrize("scene", NODE_PORTS.values(), ids=NODE_PORTS.keys())
def test_a_node_port_answers_where_its_reply_leaves_by_the_primary(lab: EniLab, scene: NodePort, backend: Backend) -> None:
    node = serve_node_port(lab, backend=backend)
    node.filter_reverse_path(STRICT, **scene.exceptions)
    if scene.src_valid_mark:
        node.set_sysctls({f"net.ipv4.conf.{scene.src_valid_mark}.src_valid_mark": 1})
    if scene.marks:
        mark_by_hand(node, MARK_REQUESTED, MARK_PACKETS if scene.packets else "")
    if scene.cause:
        assert_unanswered(lab, call_node_port, scene.cause)
    else:
        answer = call_node_port(lab)
        assert answer and answer.peer == lab.client.address


# With the module


def run(node: EniNode, **options: Any) -> None:
    """Run the module alone; the rule is another module's."""
    given = {"primary_interface": "eth0", "pod_interfaces": [POD_LINKS], "permanent": False, **options}
    result = node.module("nftables_connmark", given)
    assert not result["failed"], result
    assert result["changed"]


def filter_for(node: EniNode, strict: bool) -> None:
    """Filter strictly everywhere, or loosely on the primary, with the rule that routes marked packets."""
    node.filter_reverse_path(STRICT, **({} if strict else {"eth0": LOOSE}))
    node.ip([f"rule add {MARK_RULE}"])


EACH_STRICTNESS = pytest.mark.parametrize("strict", [True, False], ids=["strict", "loose"])


@EACH_STRICTNESS
@EACH_BACKEND
@EACH_POLICY
def test_a_node_port_answers_with_the_module_only(lab: EniLab, policy: Policy, backend: Backend, strict: bool) -> None:
    cause = "reverse path" if strict else "source"
    node = serve_node_port(lab, policy, backend)
    filter_for(node, strict)
    assert_unanswered(lab, call_node_port, cause)
    run(node, strict=strict)
    answer = call_node_port(lab)
    assert answer and (answer.peer == lab.client.address) == (policy == "Local")
    assert Prober(lab.client).udp(PRIMARY.address, NODE_PORT, timeout=1.0, tries=1)
    run(node, state="absent")
    assert_unanswered(lab, call_node_port, cause)


# Of amazon-vpc-cni-k8s 1.23 in its nftables mode (pkg/networkutils/nftables_connmark.go). The last rule overwrites a packet's
# mark; a chain of type nat sees first packets only, and none that a chain before it has translated.
AWS_CNI = f"""
table ip aws-cni {{
  chain snat-mark {{ ct mark set ct mark | 0x80; }}
  chain nat-prerouting {{
    type nat hook prerouting priority -90;
    fib daddr type local return
    iifname "{POD_LINKS}" jump snat-mark
    counter meta mark set ct mark & 0x80
  }}
}}
"""


def restored(node: EniNode) -> int:
    """The packets whose mark AWS's rule has overwritten."""
    listing = node.run(["nft", "list", "chain", "ip", "aws-cni", "nat-prerouting"]).stdout
    return int(re.findall(r"counter packets (\d+)", listing)[0])


@EACH_STRICTNESS
@EACH_BACKEND
@EACH_POLICY
def test_a_node_port_answers_beside_the_rule_by_which_awss_cni_restores_marks(
    lab: EniLab, policy: Policy, backend: Backend, strict: bool
) -> None:
    node = serve_node_port(lab, policy, backend)
    filter_for(node, strict)
    node.run(["nft", "-f", "-"], AWS_CNI)
    assert_unanswered(lab, call_node_port, "reverse path" if strict else "source")
    run(node, strict=strict)
    assert call_node_port(lab)
    options = {"primary_interface": "eth0", "pod_interfaces": [POD_LINKS], "permanent": False, "strict": strict}
    assert not Steps(node, "nftables_connmark", options).run()["changed"] and call_node_port(lab)
    run(node, state="absent")
    assert_unanswered(lab, call_node_port, "reverse path" if strict else "source")


@EACH_STRICTNESS
@EACH_BACKEND
def test_a_pods_load_balancer_answers_with_the_module(unchecked: EniLab, backend: Backend, strict: bool) -> None:
    """Under loose, it answers without the module too."""
    node = serve_load_balancer(unchecked, backend)
    filter_for(node, strict)
    if strict:
        assert_unanswered(unchecked, call_load_balancer, "reverse path")
    run(node, strict=strict)
    assert call_load_balancer(unchecked)
    run(node, state="absent")
    if strict:
        assert_unanswered(unchecked, call_load_balancer, "reverse path")
    else:
        assert call_load_balancer(unchecked)


def test_a_pods_load_balancer_answers_with_the_enis_address_alone(lab: EniLab) -> None:
    """Strict filtering everywhere, and a cloud that checks sources."""
    node, (eni,) = serve_load_balancer(lab), lab.node("node1").enis
    node.filter_reverse_path(STRICT)
    given = Steps(node, "link_addresses", {"addresses": [{"dev": eni.name, "address": eni.address}], "permanent": False})
    assert_unanswered(lab, call_load_balancer, "source")
    assert given.run()["changed"]
    answer = call_load_balancer(lab)
    assert answer and answer.peer == eni.address
    given.run(state="absent")
    assert_unanswered(lab, call_load_balancer, "source")


@pytest.mark.parametrize("cause", ["reverse path", ""], ids=["address alone", "marks as well"])
def test_a_node_port_wants_marks_also_where_the_eni_has_an_address(lab: EniLab, cause: str) -> None:
    node, (eni,) = serve_node_port(lab), lab.node("node1").enis
    filter_for(node, strict=True)
    Steps(node, "link_addresses", {"addresses": [{"dev": eni.name, "address": eni.address}], "permanent": False}).run()
    if cause:
        assert_unanswered(lab, call_node_port, cause)
    else:
        run(node, strict=True)
        assert call_node_port(lab)


@EACH_STRICTNESS
def test_both_scenes_answer_at_once_where_the_eni_has_an_address(strict: bool) -> None:
    with EniLab("addressed", [Eni("eth1", pods=["pod1"], has_address=True)]) as lab:
        node = serve_node_port(lab)
        node.service(NODE_PORT + 1, [BACKEND], "Cluster", load_balancer_ip=LOAD_BALANCER)
        filter_for(node, strict)
        run(node, strict=strict)
        assert call_node_port(lab) and call_load_balancer(lab)


@EACH_STRICTNESS
@EACH_POLICY
def test_a_connection_that_was_there_before_the_module_goes_on_by_the_primary(
    unchecked: EniLab, policy: Policy, strict: bool
) -> None:
    """The connection's next packet marks it, so that a node need not be drained."""
    node = serve_node_port(unchecked, policy)
    node.filter_reverse_path(OFF)
    with unchecked.client.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(3.0)
        connection.connect((PRIMARY.address, NODE_PORT))
        unchecked.router.check_sources([PRIMARY, *node.enis])
        filter_for(node, strict)
        run(node, strict=strict)
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(65535).startswith(b"HTTP/1.0 200")


@EACH_STRICTNESS
def test_what_a_pod_sends_by_itself_leaves_by_its_eni_unmarked(lab: EniLab, node: EniNamespaceNode, strict: bool) -> None:
    filter_for(node, strict)
    run(node, strict=strict)
    answer = lab.fetch_from("pod1", BACKEND, POD_PORT)
    assert answer and answer.peer == lab.pod("pod1").address
    (connection,) = node.tracked()
    assert "mark=0 " in connection


@EACH_STRICTNESS
def test_a_pod_on_another_eni_gets_its_requests_as_well(strict: bool) -> None:
    with EniLab("two", [Eni("eth1", pods=["pod1"]), Eni("eth2", pods=["pod2", "pod3"])]) as lab:
        node = lab.node("node1")
        for number, pod in enumerate(lab.pods):
            node.service(NODE_PORT + number, [pod.address], "Local")
        filter_for(node, strict)
        run(node, strict=strict)
        assert all(lab.client.fetch(PRIMARY.address, NODE_PORT + number) for number in range(3))


@EACH_STRICTNESS
def test_a_server_of_the_node_itself_answers_with_and_without(lab: EniLab, node: EniNamespaceNode, strict: bool) -> None:
    node.serve(SERVER_PORT)
    filter_for(node, strict)
    assert lab.client.fetch(PRIMARY.address, SERVER_PORT)
    run(node, strict=strict)
    assert lab.client.fetch(PRIMARY.address, SERVER_PORT)


# A Service's address that is on no interface of the node


EACH_PREFIX = pytest.mark.parametrize(
    "prefixes", [[LOAD_BALANCER], ["203.0.113.0/24", "198.51.100.128/25"]], ids=["address", "prefixes"]
)


@EACH_STRICTNESS
@EACH_BACKEND
@EACH_PREFIX
def test_a_service_address_that_no_interface_has_answers_if_it_is_listed(
    unchecked: EniLab, prefixes: list[str], backend: Backend, strict: bool
) -> None:
    node = unchecked.node("node1")
    node.service(NODE_PORT, [unchecked.pod("pod1").address], "Local", backend=backend, load_balancer_ip=LOAD_BALANCER)
    unchecked.router.ip([f"route add {LOAD_BALANCER} via {PRIMARY.address}"])
    unchecked.router.check_sources(node.enis)
    filter_for(node, strict)
    run(node, strict=strict)
    assert_unanswered(unchecked, call_service_address, "reverse path" if strict else "source")
    run(node, strict=strict, service_addresses=prefixes)
    answer = call_service_address(unchecked)
    assert answer and answer.peer == unchecked.client.address
    assert call_node_port(unchecked)


def call_service_address(lab: EniLab, timeout: float = 1.0) -> Answer | None:
    return lab.client.fetch(LOAD_BALANCER, 80, timeout)


# Requests that come in by another ENI


TWO = [Eni("eth1", pods=["pod1"], has_address=True), Eni("eth2", pods=["pod2"])]
WAYS = [{"name": "eth1", "mark": "0x100"}, {"name": "eth2", "mark": "0x200"}]
WAY_RULES = [{"priority": 1024, "fwmark": f"{way['mark']}/0x380", "table": eni.table} for way, eni in zip(WAYS, TWO, strict=True)]


@pytest.fixture
def two() -> Iterator[EniLab]:
    with EniLab("two", TWO) as running:
        running.node("node1").filter_reverse_path(STRICT, eth0=LOOSE, eth1=LOOSE, eth2=LOOSE)
        yield running


def steps_of(node: EniNamespaceNode, **options: Any) -> list[Steps]:
    given = {"primary_interface": "eth0", "pod_interfaces": [POD_LINKS], "interfaces": WAYS, **options}
    rules = [{"priority": 1024, "fwmark": "0x80/0x80", "table": "main"}, *WAY_RULES]
    return [Steps(node, "nftables_connmark", given), Steps(node, "policy_routes", {"rules": rules})]


def call_by_eth1(lab: EniLab, timeout: float = 1.0) -> Answer | None:
    return lab.client.fetch(TWO[0].address, NODE_PORT, timeout)


def call_pod_of_eth1(lab: EniLab, timeout: float = 1.0) -> Answer | None:
    return lab.client.fetch(lab.pod("pod1").address, POD_PORT, timeout)


def test_each_request_is_answered_by_the_eni_that_it_came_in_by(two: EniLab) -> None:
    """The pod is on eth2, and its node port is called by the addresses of eth0 and eth1."""
    node = two.node("node1")
    node.service(NODE_PORT, [two.pod("pod2").address], "Local", backend="iptables")
    clean = node.snapshot()
    steps = steps_of(node)
    for call in (call_node_port, call_by_eth1):
        assert_unanswered(two, call, "source")
    for one in steps:
        assert one.run()["changed"]
    assert not any(one.run()["changed"] for one in steps)
    for call in (call_node_port, call_by_eth1, call_node_port):
        answer = call(two)
        assert answer and answer.peer == two.client.address
    assert Prober(two.client).udp(TWO[0].address, NODE_PORT, timeout=1.0, tries=1)
    for one in reversed(steps):
        assert one.run(state="absent")["changed"]
    assert_unanswered(two, call_by_eth1, "source")
    assert node.snapshot() == clean


def test_a_request_to_a_pod_is_answered_by_its_eni_beside_the_rule_of_awss_cni(two: EniLab) -> None:
    """The rule takes the first packet's mark, and not the connection's, which the replies get theirs from."""
    node = two.node("node1")
    node.run(["nft", "-f", "-"], AWS_CNI)
    for each in steps_of(node):
        assert each.run()["changed"]
    before = restored(node)
    assert call_pod_of_eth1(two) and restored(node) > before
    assert not any(each.run()["changed"] for each in steps_of(node)) and call_pod_of_eth1(two)


@EACH_POLICY
def test_enis_have_marks_beside_strict_filtering_of_the_primary(two: EniLab, policy: Policy) -> None:
    node = two.node("node1")
    node.service(NODE_PORT, [two.pod("pod2").address], policy, backend="iptables")
    node.filter_reverse_path(STRICT, eth1=LOOSE)
    for one in steps_of(node, strict=True):
        one.run()
    for call in (call_node_port, call_by_eth1):
        answer = call(two)
        assert answer and (answer.peer == two.client.address) == (policy == "Local")


def call_server_by_eth1(lab: EniLab, timeout: float = 1.0) -> Answer | None:
    return lab.client.fetch(TWO[0].address, SERVER_PORT, timeout)


def test_a_pod_on_another_node_is_answered_for_by_the_eni_too(two: EniLab) -> None:
    """kube-proxy masquerades the request to the primary interface's address, so the pod's reply comes in there."""
    node = two.node("node1")
    node.service(NODE_PORT, [BACKEND], "Cluster", backend="iptables")
    assert_unanswered(two, call_by_eth1, "source")
    for one in steps_of(node):
        one.run()
    for call in (call_by_eth1, call_node_port):
        assert call(two)
    assert Prober(two.client).udp(TWO[0].address, NODE_PORT, timeout=1.0, tries=1)


@EACH_STRICTNESS
def test_a_server_of_the_node_itself_is_answered_for_by_the_eni_too(two: EniLab, strict: bool) -> None:
    """A pod with hostNetwork, for example."""
    node = two.node("node1")
    node.serve(SERVER_PORT)
    if strict:
        node.filter_reverse_path(STRICT, eth1=LOOSE)
    assert_unanswered(two, call_server_by_eth1, "source")
    for one in steps_of(node, strict=strict):
        one.run()
    answer = call_server_by_eth1(two)
    assert answer and answer.peer == two.client.address
    assert two.client.fetch(PRIMARY.address, SERVER_PORT)


DATAGRAM = f"""
import socket
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("", 4000))
datagrams.sendto(b"again", ("{LOAD_BALANCER}", 80))
"""


@EACH_STRICTNESS
def test_replies_follow_the_last_request_of_a_connection_that_changes_its_way_in(two: EniLab, strict: bool) -> None:
    node = two.node("node1")
    node.service(NODE_PORT, [two.pod("pod2").address], "Local", backend="iptables", load_balancer_ip=LOAD_BALANCER)
    for one in steps_of(node, strict=strict, service_addresses=[LOAD_BALANCER]):
        one.run()
    for address, mark in ((TWO[0].address, 0x100), (PRIMARY.address, 0x80), (TWO[0].address, 0x100)):
        two.router.ip([f"route replace {LOAD_BALANCER} via {address}"])
        two.client.run(["python3", "-c", DATAGRAM])
        (connection,) = node.tracked()
        assert f"mark={mark} " in connection


def test_a_client_outside_the_vpc_is_answered_by_the_pods_own_eni(two: EniLab) -> None:
    """Only packets of pods to the VPC are routed by their ENI, as with Cilium; the client calls the pod's own address."""
    node, pod = two.node("node1"), two.pod("pod1")
    node.ip(
        [
            f"rule delete from {pod.address} lookup {TWO[0].table}",
            f"rule add from {pod.address} to 10.0.0.0/8 lookup {TWO[0].table} priority 2048",
        ]
    )
    assert_unanswered(two, call_pod_of_eth1, "source")
    for one in steps_of(node):
        one.run()
    answer = call_pod_of_eth1(two)
    assert answer and answer.peer == two.client.address


def test_what_a_pod_sends_by_itself_is_not_marked_by_the_replies_that_enter_by_its_eni(two: EniLab) -> None:
    node = two.node("node1")
    for one in steps_of(node):
        one.run()
    for pod in two.pods:
        answer = two.fetch_from(pod.name, BACKEND, POD_PORT)
        assert answer and answer.peer == pod.address
    assert len(node.tracked()) == 2 and all("mark=0 " in one for one in node.tracked())


# An L7 proxy


@EACH_STRICTNESS
@EACH_BACKEND
def test_an_l7_proxys_answer_in_a_pods_place_leaves_by_the_primary(lab: EniLab, backend: Backend, strict: bool) -> None:
    node = serve_node_port(lab, "Cluster", backend)
    node.proxy(lab.pod("pod1"))
    filter_for(node, strict)
    node.set_sysctls({"net.ipv4.conf.proxy1.rp_filter": OFF})
    assert_unanswered(lab, call_node_port, "reverse path" if strict else "source")
    run(node, strict=strict)
    assert call_node_port(lab)
    run(node, state="absent")
    assert_unanswered(lab, call_node_port, "reverse path" if strict else "source")


def test_a_pods_answer_that_turns_around_in_lo_leaves_by_the_primary(lab: EniLab) -> None:
    """As if a BPF program redirects it; there, conntrack restores the client's address, and the node routes again."""
    node = serve_node_port(lab, "Cluster")
    filter_for(node, strict=False)
    rule = f'ip daddr {PRIMARY.address} ether daddr set 00:00:00:00:00:00 fwd to "lo"'
    chain = f'chain ingress {{\ntype filter hook ingress device "{lab.pod("pod1").link}" priority 0;\n{rule}\n}}'
    node.run(["nft", "-f", "-"], f"table netdev by_hand {{\n{chain}\n}}\n")
    assert_unanswered(lab, call_node_port, "source")
    run(node, pod_interfaces=["other*"])
    assert call_node_port(lab)


# Foreign marks


@EACH_STRICTNESS
@pytest.mark.parametrize("theirs", [0x4000, 0x8000, 0xF00, 0xFFFF0000, 0xFFFFFF7F])
def test_other_bits_of_marks_survive_on_packets_and_connections(lab: EniLab, theirs: int, strict: bool) -> None:
    """kube-proxy's, Cilium's, Calico's, and all at once: set before the module's table, read after it."""
    node = serve_node_port(lab)
    filter_for(node, strict)
    run(node, strict=strict)
    load(node, f"meta mark set {theirs}", f"ct mark set ct mark | {theirs}", priority=-160)
    watch = "".join(f'meta mark & {theirs} == {theirs} iifname "{link}" counter\n' for link in ("eth0", POD_LINKS))
    watch += f"meta mark & {theirs} != {theirs} counter drop\nct mark & {theirs} != {theirs} counter drop\n"
    chain = f"chain prerouting {{\ntype filter hook prerouting priority -140;\n{watch}\n}}"
    node.run(["nft", "-f", "-"], f"table inet watch {{\n{chain}\n}}\n")
    assert call_node_port(lab)
    (connection,) = (one for one in node.tracked() if f"dport={NODE_PORT}" in one)
    assert f" mark={theirs | 0x80} " in connection
    entered, sent, *lost = counted(node, "watch")
    assert entered > 0 and sent > 0 and lost == [0, 0]


def test_bits_of_the_mask_that_the_mark_lacks_are_cleared(lab: EniLab) -> None:
    node = serve_node_port(lab)
    filter_for(node, strict=True)
    run(node, strict=True, mark="0x80", mask="0xff")
    load(node, "meta mark set meta mark | 0x101", "iifname eth0 ct mark set ct mark | 0x101", priority=-160)
    watch = f'iifname {{ "eth0", "{lab.pod("pod1").link}" }} meta mark & 0xfff == 0x180 ct mark & 0xfff == 0x180 counter'
    chain = f"chain prerouting {{\ntype filter hook prerouting priority -140;\n{watch}\n}}"
    node.run(["nft", "-f", "-"], f"table inet watch {{\n{chain}\n}}\n")
    assert call_node_port(lab)
    assert counted(node, "watch")[0] > 5


def counted(node: EniNode, table: str) -> list[int]:
    listing = node.run(["nft", "list", "table", "inet", table]).stdout
    return [int(line.split("packets ")[1].split()[0]) for line in listing.splitlines() if "packets" in line]
