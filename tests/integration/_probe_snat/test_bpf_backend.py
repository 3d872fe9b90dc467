# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend bpf on a node whose probes a program takes before nftables sees them, as those of Cilium do."""

from __future__ import annotations

import functools
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import attachments
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import (
    probe_programs,
    programs_backend,
    programs_guards,
)
from lab import Lab, background, bpf, cilium, steps
from lab.load_balancer import LINK, PROBE_SOURCE, PROBE_TRANSLATED
from lab.node import POD_PORT, NamespaceNode
from lab.waiting import until

QUICK = 0.3  # seconds to wait for an answer that must not come
REPLACING = {"kube-proxy-replacement": "true", "enable-ipv6": "true"}
TABLE = "azureSLBProbe"
HOOKS = pytest.mark.parametrize("hook", ["tcx", "ingress"])
PROGRAM = "/etc/kubenode/probe-snat.json.pyz"
WANTED = probe_programs.SetPrograms(TABLE, "eth0", ((PROBE_SOURCE, PROBE_TRANSLATED),))
ANOTHER = [{"source": "fe80::10", "translated": "2001:db8:ffff::10"}]


run, refused, four_steps = steps.of("nftables_probe_snat", backend="bpf")


def order(node: NamespaceNode, direction: str, link: str = "eth0") -> list[str]:
    """The names of the programs in the order in which packets meet them."""
    return node.in_network(lambda: [place.name for place in attachments.places(socket.if_nametoindex(link), direction)])


def own(direction: str) -> str:
    return probe_programs.name(TABLE, direction)


def counted(node: NamespaceNode) -> list[tuple[int, int]]:
    return bpf.counts(node, own("ingress"))


def test_a_probe_is_answered_and_all_else_stays(lab: Lab, node: NamespaceNode) -> None:
    pod = lab.pod("pod1")
    assert not lab.load_balancer.probe_tcp(pod.address, POD_PORT, timeout=QUICK)
    clean = node.snapshot()
    four_steps(node)
    answer = lab.load_balancer.probe_http(pod.address, POD_PORT)
    assert answer is not None and answer.peer == PROBE_TRANSLATED
    assert lab.load_balancer.probe_udp(pod.address, POD_PORT) and lab.load_balancer.probe_icmp(pod.address)
    assert lab.client.fetch(pod.address, POD_PORT)
    assert run(node, state="absent")["changed"]
    assert node.snapshot() == clean
    assert not lab.load_balancer.probe_tcp(pod.address, POD_PORT, timeout=QUICK)


@HOOKS
def test_a_program_that_takes_probes_before_nftables_gets_them_translated(lab: Lab, node: NamespaceNode, hook: bpf.Hook) -> None:
    """It hands packets to the pod's link as BPF host routing does, and so the table is of no use."""
    pod = lab.pod("pod1")
    bpf.attach(node, hook, "cil_from_netdev", to=pod.link)
    run(node, backend="nftables", permanent=False)
    assert not lab.load_balancer.probe_tcp(pod.address, POD_PORT, timeout=QUICK)
    run(node, permanent=False)
    answer = lab.load_balancer.probe_http(pod.address, POD_PORT)
    assert answer is not None and answer.peer == PROBE_TRANSLATED
    assert order(node, "ingress") == [own("ingress"), "cil_from_netdev"]


def test_the_programs_stay_in_front_of_an_agent_that_starts_again(lab: Lab, node: NamespaceNode) -> None:
    pod = lab.pod("pod1")
    run(node)
    for _restart in range(3):
        bpf.attach(node, "tcx", "cil_from_netdev", to=pod.link)
        bpf.attach(node, "tcx egress", "cil_to_netdev")
        assert order(node, "ingress") == [own("ingress"), "cil_from_netdev"]
        assert order(node, "egress") == [own("egress"), "cil_to_netdev"]
        assert lab.load_balancer.probe_tcp(pod.address, POD_PORT)
        assert not run(node, check=True)["changed"]
        bpf.detach(node, "tcx", "cil_from_netdev")
        bpf.detach(node, "tcx egress", "cil_to_netdev")


@pytest.mark.parametrize("probes", [200, pytest.param(4000, marks=pytest.mark.thorough)])
@HOOKS
def test_no_probe_is_lost_while_an_agent_starts_again(lab: Lab, node: NamespaceNode, hook: bpf.Hook, probes: int) -> None:
    """Of traffic control, the agent's filters come after tcx at any priority."""
    pod, warnings = lab.pod("pod1"), kernel_warnings()
    run(node)
    lost = 0
    for number in range(probes):
        if number % 20 == 0:
            bpf.attach(node, hook, "cil_from_netdev", to=pod.link)
        lost += not lab.load_balancer.probe_tcp(pod.address, POD_PORT)
        if number % 20 == 10:
            bpf.detach(node, hook, "cil_from_netdev")
    assert lost == 0 and counted(node)[0][0] >= probes * 3, counted(node)
    assert lab.client.fetch(pod.address, POD_PORT) and kernel_warnings() == warnings


def kernel_warnings() -> int:
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.count("WARNING: ")


def test_a_node_port_that_programs_translate_at_both_ends_is_answered(lab: Lab, node: NamespaceNode) -> None:
    """As by Cilium from 1.17 on: its program at egress would give the reply the node's address, and finds no connection."""
    pod = lab.pod("pod1")
    run(node)
    bpf.attach_node_port(node, node.address, pod.address, pod.link, POD_PORT)
    assert order(node, "egress") == [own("egress"), "cil_to_netdev"]
    for _connection in range(20):
        answer = lab.load_balancer.probe_http(node.address, bpf.PORT)
        assert answer is not None and answer.peer == PROBE_TRANSLATED
        assert lab.client.fetch(node.address, bpf.PORT), "a client is answered through both programs"
    assert lab.load_balancer.probe_tcp(pod.address, POD_PORT), "a pod that is probed itself needs no other address"
    assert not lab.load_balancer.probe_tcp(node.address, bpf.PORT + 1, timeout=QUICK)
    run(node, state="absent")
    assert not lab.load_balancer.probe_tcp(node.address, bpf.PORT, timeout=QUICK)


def test_an_open_connection_goes_on_through_an_exchange_of_the_programs(lab: Lab, node: NamespaceNode) -> None:
    """What the programs have noted of it goes over to those that come after them."""
    pod = lab.pod("pod1")
    run(node, permanent=False)
    bpf.attach_node_port(node, node.address, pod.address, pod.link, POD_PORT)
    with lab.load_balancer.socket(socket.AF_INET6, socket.SOCK_STREAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, LINK.encode())
        client.bind((PROBE_SOURCE, 0))
        client.settimeout(3)
        client.connect((node.address, bpf.PORT))
        node.in_network(lambda: programs_backend.Programs().perform(WANTED))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(12)[:5] == b"HTTP/"


def _probes(count: int) -> list[dict[str, str]]:
    return [{"source": f"fe80::{number:x}", "translated": f"2001:db8:ffff::{number:x}"} for number in range(1, count + 1)]


@pytest.mark.parametrize("count", [100, probe_programs.MOST_PROBES])
def test_many_probes_are_translated(node: NamespaceNode, count: int) -> None:
    assert run(node, probes=_probes(count), permanent=False)["changed"]
    assert not run(node, probes=_probes(count), permanent=False)["changed"]


def test_more_probes_than_a_program_reaches_are_refused(node: NamespaceNode) -> None:
    assert "at most 1024 probes with backend bpf" in refused(node, probes=_probes(probe_programs.MOST_PROBES + 1))


def test_a_namesake_of_another_layout_is_replaced(node: NamespaceNode) -> None:
    bpf.attach(node, "tcx", own("ingress"))
    assert run(node)["changed"] and not run(node)["changed"]
    assert order(node, "ingress") == [own("ingress")]


def test_a_run_puts_the_programs_in_front_again(node: NamespaceNode) -> None:
    run(node, permanent=False)
    bpf.detach(node, "tcx", own("ingress"))
    bpf.attach(node, "tcx", "cil_from_netdev")
    predicted = run(node, check=True, permanent=False)
    (change,) = predicted["diff"]
    assert "# there is no program at ingress" in change["before"] and own("ingress") in change["after"]
    assert run(node, permanent=False) == predicted
    assert order(node, "ingress") == [own("ingress"), "cil_from_netdev"]


def test_other_probes_replace_the_programs_and_nobody_elses(node: NamespaceNode) -> None:
    bpf.attach(node, "tcx", "cil_from_netdev")
    run(node)
    four_steps(node, probes=ANOTHER)
    assert order(node, "ingress") == [own("ingress"), "cil_from_netdev"]
    assert order(node, "egress") == [own("egress")]


def test_another_interface_and_table_are_told_apart(lab: Lab, node: NamespaceNode) -> None:
    node.ip(["link add ens3 type veth peer name far"])
    run(node, interface="ens3", table="probeSnat", path="/etc/kubenode/second.nft", probes=ANOTHER)
    run(node)
    assert order(node, "ingress", "ens3") != order(node, "ingress")
    four_steps(node, interface="ens3", path="/etc/kubenode/third.nft", table="thirdTable", probes=ANOTHER)
    run(node, interface="ens3")
    assert order(node, "ingress") == [] and own("ingress") in order(node, "ingress", "ens3")


def test_one_backend_replaces_the_other_in_one_run(lab: Lab, node: NamespaceNode) -> None:
    pod = lab.pod("pod1")
    clean = node.snapshot()
    run(node, backend="nftables")
    with_table = node.snapshot()
    four_steps(node)
    assert TABLE not in node.snapshot()["nft"] and lab.load_balancer.probe_tcp(pod.address, POD_PORT)
    assert not node.exists("/etc/kubenode/probe-snat.nft")
    four_steps(node, backend="nftables")
    assert node.snapshot() == with_table and lab.load_balancer.probe_tcp(pod.address, POD_PORT)
    run(node, state="absent", backend="nftables")
    assert node.snapshot() == clean


def test_counters_count_probes_and_replies_as_nft_does(lab: Lab, node: NamespaceNode) -> None:
    run(node, permanent=False)
    assert lab.load_balancer.probe_udp(lab.pod("pod1").address, POD_PORT)
    (arrived, arrived_bytes), (left, left_bytes) = counted(node)
    run(node, permanent=False)
    assert (arrived, left) == (1, 1) and counted(node) == [(1, arrived_bytes), (1, left_bytes)]
    run(node, backend="nftables", permanent=False)
    assert lab.load_balancer.probe_udp(lab.pod("pod1").address, POD_PORT)
    listing = node.run(["nft", "list", "table", "ip6", TABLE]).stdout
    assert re.findall(r"set \S+ counter packets (\d+) bytes (\d+)", listing) == [
        ("1", str(arrived_bytes)),
        ("1", str(left_bytes)),
    ]


# The choice, and refusals


def test_auto_chooses_by_what_takes_probes(node: NamespaceNode) -> None:
    assert run(node, check=True, backend="auto")["backend"] == "nftables"
    cilium.create_links(node)
    bpf.attach(node, "tcx", "cil_from_netdev")
    with cilium.agent(node, REPLACING):
        result = run(node, backend="auto")
    assert result["backend"] == "bpf" and result["needed"]["verdict"] == "possible"
    assert order(node, "ingress") == [own("ingress"), "cil_from_netdev"]


def test_a_node_whose_probes_end_before_all_programs_is_refused(node: NamespaceNode) -> None:
    cilium.create_links(node)
    bpf.attach(node, "XDP", "cil_xdp_entry")
    with cilium.agent(node, REPLACING):
        assert "cil_xdp_entry, which takes probes before any other program sees them" in refused(node)


def test_microsofts_programs_are_refused(node: NamespaceNode) -> None:
    bpf.attach(node, "ingress", "ipv6_hp_ingress")
    assert "ipv6_hp_ingress of ipv6-hp-bpf" in refused(node)


def test_a_link_that_is_not_there_or_has_no_ethernet_is_refused(node: NamespaceNode) -> None:
    assert "interface ens9 is not a link of the node" in refused(node, interface="ens9")
    node.ip(["tuntap add tun0 mode tun"])
    assert "interface tun0 has no Ethernet header" in refused(node, interface="tun0")


# A kernel before Linux 6.6, whose programs traffic control attaches


@pytest.fixture
def older_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend in the tests' own process attaches as on such a kernel. What it attaches, this kernel runs."""
    monkeypatch.setattr(attachments, "has_tcx", lambda _index: False)


@pytest.mark.usefixtures("older_kernel")
@pytest.mark.parametrize("has_clsact", [False, True])
def test_traffic_control_attaches_them_and_leaves_what_was_there(lab: Lab, node: NamespaceNode, has_clsact: bool) -> None:
    pod = lab.pod("pod1")
    if has_clsact:
        node.run(["tc", "qdisc", "add", "dev", "eth0", "clsact"])
    qdiscs, clean = node.run(["tc", "qdisc", "show"]).stdout, node.snapshot()
    programs = programs_backend.Programs()
    for _time in range(2):
        node.in_network(lambda: programs.perform(WANTED))
        assert node.in_network(lambda: programs.verify(WANTED)) == []
        assert lab.load_balancer.probe_tcp(pod.address, POD_PORT)
    node.in_network(lambda: programs.perform(WANTED._replace(probes=())))
    assert node.snapshot() == clean and node.run(["tc", "qdisc", "show"]).stdout == qdiscs


@pytest.mark.usefixtures("older_kernel")
def test_filters_of_another_priority_come_after_them(lab: Lab, node: NamespaceNode) -> None:
    pod = lab.pod("pod1")
    bpf.attach(node, "ingress", "cil_from_netdev", to=pod.link, priority=2)
    node.in_network(lambda: programs_backend.Programs().perform(WANTED))
    assert lab.load_balancer.probe_tcp(pod.address, POD_PORT)
    assert order(node, "ingress") == [own("ingress"), "cil_from_netdev"]
    node.in_network(lambda: programs_backend.Programs().perform(WANTED._replace(probes=())))
    assert order(node, "ingress") == ["cil_from_netdev"]


@pytest.mark.usefixtures("older_kernel")
def test_of_filters_of_one_priority_the_newest_comes_first(lab: Lab, node: NamespaceNode) -> None:
    """So an agent that attaches its programs again comes first, until the unit notices that."""
    pod, programs = lab.pod("pod1"), programs_backend.Programs()
    for _restart in range(2):
        bpf.attach(node, "ingress", "cil_from_netdev", to=pod.link)
        if own("ingress") in order(node, "ingress"):
            assert node.in_network(lambda: programs.verify(WANTED)) == ["on eth0, cil_from_netdev comes first at ingress"]
            assert not lab.load_balancer.probe_tcp(pod.address, POD_PORT, timeout=QUICK)
        node.in_network(lambda: programs.perform(WANTED))
        assert order(node, "ingress") == [own("ingress"), "cil_from_netdev"]
        assert node.in_network(lambda: programs.verify(WANTED)) == []
        assert lab.load_balancer.probe_tcp(pod.address, POD_PORT)
        bpf.detach(node, "ingress", "cil_from_netdev")


@pytest.mark.usefixtures("older_kernel")
def test_other_filters_of_the_first_priority_are_refused(node: NamespaceNode) -> None:
    node.run(["tc", "qdisc", "add", "dev", "eth0", "clsact"])
    rule = "filter add dev eth0 ingress prio 1 protocol ip u32 match u32 0 0 classid 1:1"
    node.run(["tc", *rule.split()])
    with pytest.raises(Refusal, match="carries filters of priority 1 of the kind u32"):
        node.in_network(lambda: programs_guards.first_place("eth0"))


@pytest.mark.usefixtures("older_kernel")
def test_programs_of_two_tables_come_and_go_alone(node: NamespaceNode) -> None:
    programs, second = programs_backend.Programs(), WANTED._replace(table="second")
    for wanted in (WANTED, second, WANTED):
        node.in_network(functools.partial(programs.perform, wanted))
    for wanted in (WANTED, second):
        assert node.in_network(functools.partial(programs.verify, wanted)) == []
    node.in_network(lambda: programs.perform(WANTED._replace(probes=())))
    assert node.in_network(lambda: programs.verify(second)) == []


# What the unit runs


@contextmanager
def watching(node: NamespaceNode) -> Iterator[None]:
    with background.shell(node, f"exec python3 -I -S -B {PROGRAM} watch /etc/kubenode/probe-snat.json"):
        yield


def test_the_boot_program_attaches_them_when_the_link_comes_and_again_when_they_are_gone(lab: Lab, node: NamespaceNode) -> None:
    node.ip(["link add ens3 type veth peer name far"])
    run(node, interface="ens3")
    node.ip(["link delete ens3"])
    with watching(node):
        time.sleep(QUICK)
        node.ip(["link add ens3 type veth peer name far"])
        until("the programs are on the new link", lambda: order(node, "ingress", "ens3"), expected=[own("ingress")])
        bpf.detach(node, "tcx", own("ingress"), "ens3")
        bpf.attach(node, "tcx", "cil_from_netdev", "ens3")
        in_front = [own("ingress"), "cil_from_netdev"]
        until("they are in front again", lambda: order(node, "ingress", "ens3"), expected=in_front)
    assert not run(node, check=True, interface="ens3")["changed"]
