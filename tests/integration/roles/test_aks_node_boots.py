# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile aks_dual_stack through real boots: systemd, metadata that is late, missing or wrong, and other owners."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import pytest
from sampling import sampled

from lab import Lab, Node, bpf, cilium, playbook
from lab.container import SystemdNode
from lab.metadata import WELL, Behaviour
from lab.metadata_replies import DUAL_STACK
from lab.waiting import until

TABLE = "ip6 azureSLBProbe"
UNIT = "kubenode-nft-ip6-azureSLBProbe.service"
TIMER = "kubenode-nft-ip6-azureSLBProbe.timer"
PROGRAMS_UNIT = "kubenode-bpf-azureSLBProbe.service"
DEADLINE = 60.0  # seconds that the boot program asks


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    """One node without nftables; its apt finds it in a repository on the node."""
    node = Node("node1", pods=["pod1"], system="bookworm", without=["nftables"])
    with Lab("aks", nodes=[node], metadata=True) as lab:
        yield lab


@pytest.fixture(scope="module")
def play(running: Lab, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., int]:
    """Runs the playbook and gives the number of tasks that changed the node."""
    inventory = running.write_inventory(tmp_path_factory.mktemp("aks") / "inventory.json")

    def run(**variables: str) -> int:
        given = {f"aks_dual_stack_{name}": value for name, value in variables.items()}
        return playbook.play(inventory, "kubenode.datapath.aks_dual_stack", variables=given).well().changed

    return run


@pytest.fixture(scope="module")
def bare(running: Lab) -> dict[str, object]:
    """The node before the profile."""
    running.node("node1").place_kubelet_stand_in()
    state: dict[str, object] = running.node("node1").snapshot()
    return state


@pytest.fixture
def node(running: Lab, bare: dict[str, object], play: Callable[..., int]) -> Iterator[SystemdNode]:
    """A node to which the profile was applied."""
    play()
    node: SystemdNode = running.node("node1")
    yield node
    running.metadata.change(WELL)


def has_table(node: SystemdNode) -> bool:
    return f"table {TABLE}\n" in node.run(["nft", "list", "tables"]).stdout


def state_of(node: SystemdNode, unit: str = UNIT) -> str:
    return node.run(["systemctl", "is-active", unit], check=False).stdout.strip()


def test_absent_while_systemd_tries_again_leaves_no_failed_unit(
    running: Lab, node: SystemdNode, play: Callable[..., int]
) -> None:
    shorten(node, seconds=1)
    running.metadata.change(Behaviour(fault="refused"))
    node.reboot()
    until(f"{UNIT} waits", lambda: state_of(node), node, expected="activating")
    assert play(state="absent") > 0
    assert node.run(["systemctl", "--failed", "--no-legend"]).stdout == ""
    assert node.run(["systemctl", "is-system-running"]).stdout.strip() == "running"


def test_whatever_happens_to_nftables_service_our_table_comes_back(node: SystemdNode) -> None:
    for is_booted in (False, True):
        if is_booted:
            node.reboot()
        until(f"{UNIT} is active", lambda: state_of(node), node, expected="active")
        for event in ("start", "reload", "restart", "stop"):
            node.run(["systemctl", event, "nftables.service"])
            until(f"the table is back after {event}", lambda: has_table(node), node)


def test_a_node_that_enables_nftables_service_boots_with_the_table(node: SystemdNode) -> None:
    node.run(["systemctl", "enable", "--quiet", "nftables.service"])
    node.reboot()
    assert TABLE in node.kubelet_starts()[-1].tables
    node.run(["systemctl", "disable", "--now", "--quiet", "nftables.service"])
    until("the table is back", lambda: has_table(node), node)


@pytest.mark.parametrize("fault", sampled(["refused", "garbage", "silence"], lambda fault: fault == "silence"))
def test_metadata_that_stays_ill_lets_kubelet_go_at_the_deadline_and_is_asked_again(
    running: Lab, node: SystemdNode, fault: str
) -> None:
    if fault != "refused":  # a minute each; the tests of the boot program cover every fault
        shorten(node, seconds=4)
    limit = DEADLINE if fault == "refused" else 4
    running.metadata.change(Behaviour(fault=fault))  # type: ignore[arg-type]
    started = time.clock_gettime(time.CLOCK_BOOTTIME)
    node.stop()
    node.start()
    # Not before the deadline. The delay after it depends on the machine's load; the usual deadline is a minute.
    until("kubelet is active", lambda: state_of(node, "kubelet"), node, expected="active")
    start = node.kubelet_starts()[-1]
    assert TABLE not in start.tables and limit - 5 < start.clock - started < limit + 50
    running.metadata.change(WELL)
    until("the table is there", lambda: has_table(node), node)


def shorten(node: SystemdNode, seconds: int, former: float = DEADLINE) -> None:
    """Sets another deadline for this boot; the next run restores the unit."""
    unit = f"/etc/systemd/system/{UNIT}"
    text = node.read(unit)
    node.write(unit, text.replace(f" eth0 {former:g}\n", f" eth0 {seconds}\n"))
    assert node.read(unit) != text


def test_ipv6_lost_and_gained_between_boots_is_followed(running: Lab, node: SystemdNode) -> None:
    known = running.metadata.own[node.ipv4]
    for has_ipv6 in (False, True):
        nics = known if has_ipv6 else tuple(dataclasses.replace(nic, ipv6=()) for nic in known)
        running.metadata.own[node.ipv4] = nics
        node.reboot()
        assert (TABLE in node.kubelet_starts()[-1].tables) is has_ipv6
        assert has_table(node) is has_ipv6
        assert state_of(node) == ("active" if has_ipv6 else "inactive")
        assert node.run(["systemctl", "is-system-running"]).stdout.strip() == "running"  # a skipped unit has not failed


def hurry(node: SystemdNode) -> None:
    """Lets the timer ask again after a second; the next run restores the timer."""
    path = f"/etc/systemd/system/{TIMER}"
    text = node.read(path)
    node.write(path, text.replace("Sec=120\n", "Sec=1\n").replace("Sec=10\n", "Sec=100ms\n"))
    assert node.read(path) != text


def test_ipv6_that_comes_or_goes_after_the_boot_is_followed_without_a_run(
    running: Lab, node: SystemdNode, play: Callable[..., int]
) -> None:
    """The metadata has, besides the primary interface, one that is being attached."""
    (primary, *_others) = former = running.metadata.own[node.ipv4]
    attached = dataclasses.replace(DUAL_STACK, mac="", subnet4="/")
    nics, without = (primary, attached), (dataclasses.replace(primary, ipv6=()), attached)
    running.metadata.own[node.ipv4] = without
    hurry(node)
    node.reboot()
    until(f"{UNIT} is inactive", lambda: state_of(node), node, expected="inactive")
    assert not has_table(node)
    running.metadata.own[node.ipv4] = nics
    until("the table is there, and the unit active", lambda: has_table(node) and state_of(node) == "active", node)
    running.metadata.own[node.ipv4] = without
    time.sleep(3)
    assert has_table(node) and state_of(node) == "active"
    assert node.run(["systemctl", "--failed", "--no-legend"]).stdout == ""
    assert play() > 0  # the role installs nothing on a node without IPv6, and no nft
    assert not node.exists(f"/etc/systemd/system/{TIMER}")
    assert TIMER not in node.run(["systemctl", "list-units", "--all", "kubenode*"]).stdout
    running.metadata.own[node.ipv4] = nics
    assert play() > 0 and has_table(node) and play() == 0
    running.metadata.own[node.ipv4] = former


def test_an_address_that_comes_or_goes_after_the_boot_is_followed_and_a_stopped_unit_stays_stopped(
    node: SystemdNode, play: Callable[..., int]
) -> None:
    play(ipv6="address")
    hurry(node)
    shorten(node, seconds=1, former=30)
    node.run(["systemctl", "stop", UNIT])
    node.run(["systemctl", "daemon-reload"])
    address = f"{node.address}/64"
    node.ip([f"address del {address} dev eth0"])
    node.run(["systemctl", "start", UNIT])
    until(f"{UNIT} is inactive", lambda: state_of(node), node, expected="inactive")
    assert not has_table(node)
    node.ip([f"address add {address} dev eth0 nodad"])
    until("the table is there, and the unit active", lambda: has_table(node) and state_of(node) == "active", node)
    node.ip([f"address del {address} dev eth0"])
    time.sleep(3)
    assert has_table(node) and state_of(node) == "active"
    node.ip([f"address add {address} dev eth0 nodad"])
    node.run(["systemctl", "stop", UNIT])
    time.sleep(3)
    assert (state_of(node), state_of(node, TIMER), has_table(node)) == ("inactive", "inactive", False)
    assert play() > 0


def test_a_node_that_gets_cilium_needs_no_nft_until_cilium_goes(
    running: Lab, node: SystemdNode, bare: dict[str, object], play: Callable[..., int]
) -> None:
    assert has_table(node)
    cilium.create_links(node)
    bpf.attach(node, "tcx", "cil_from_netdev", to=running.pod("pod1").link)
    with cilium.agent(node, {"kube-proxy-replacement": "true", "enable-ipv6": "true"}):
        assert play() > 0 and not node.exists("/usr/sbin/nft")
        assert state_of(node, PROGRAMS_UNIT) == "active"
        assert running.load_balancer.probe_tcp(running.pod("pod1").address, 8080)
        assert play() == 0
        node.run(["systemctl", "restart", PROGRAMS_UNIT])
        assert play() == 0
    bpf.detach(node, "tcx", "cil_from_netdev")
    node.ip(["link delete cilium_host"])
    assert play() > 0 and has_table(node) and not node.exists(f"/etc/systemd/system/{PROGRAMS_UNIT}")
    node.reboot()  # which ends the agent, and removes its files in /run
    assert play(state="absent") > 0
    assert node.snapshot() == bare
