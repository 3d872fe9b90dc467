# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is a VM: features that containers on a test host's kernel lack, and those that they have, over SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Lab, LabError, Node
from lab.load_balancer import LINK
from lab.prober import Prober
from lab.theft import Theft
from lab.vm import Cable, VmNode
from lab.waiting import until

# VMs are emulated, and make test boots those of test_ebtables_legacy.py, test_kernel_of_its_own.py and
# test_datapath_info_modules.py, which need what is tested here.
pytestmark = pytest.mark.thorough


# A VM that has just been switched on.
ANOTHER_LAB = """
import sys, time
from lab import Lab, Node
from lab.vm import VmNode
VmNode.wait_until_booted = lambda node: print(node.pid, flush=True) or time.sleep(600)
Lab("killed", nodes=[Node("node1", system="bookworm", vm=True)])
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    nodes = [Node("node1", pods=["pod1"], system="bookworm", vm=True), Node("node2")]
    with Lab("vm", nodes=nodes, metadata=True) as lab:
        yield lab


@pytest.fixture
def node(running: Lab) -> VmNode:
    found: VmNode = running.node("node1")
    return found


def test_a_card_is_plugged_in_and_out_while_it_runs(running: Lab, node: VmNode) -> None:
    front = running.load_balancer
    for _time in range(2):
        cable = Cable(node.place.mac(0x80), front, "eni1")
        link = node.plug(cable)
        assert link == "eth1"
        front.ip(["address add 2001:db8:9::1/64 dev eni1 nodad", "link set eni1 up"])
        node.ip([f"address add 2001:db8:9::2/64 dev {link} nodad", f"link set {link} up"])
        assert Prober(front).icmp("2001:db8:9::2", timeout=1.0, tries=5)
        node.unplug(cable)
        assert not node.exists(f"/sys/class/net/{link}")
    assert "eni1" not in front.run_from_host(["ip", "-br", "link"])


def test_a_stale_rule_of_either_backend_steals_the_traffic_of_the_next_pod(running: Lab, node: VmNode) -> None:
    node.run(["systemctl", "stop", "systemd-networkd.socket", "systemd-networkd.service"])
    theft = Theft(node, running.node("node2"))
    for ebtables in ("ebtables-legacy", "ebtables-nft"):
        theft.happens(ebtables)


@pytest.mark.thorough
def test_a_reboot_keeps_the_files_and_nothing_of_the_kernel(running: Lab, node: VmNode) -> None:
    node.write("/root/kept", "over the boot")
    node.run(["ip", "link", "add", "name", "forgotten", "type", "bridge"])
    before = node.boot_id()
    node.reboot()
    assert node.boot_id() != before
    assert node.read("/root/kept") == "over the boot"
    links = [line.split()[0] for line in node.run(["ip", "-br", "link"]).stdout.splitlines()]
    assert links == ["lo", "eth0", "veth-pod1"]
    assert running.client.fetch(running.pod("pod1").address, 8080)
    assert LINK in running.load_balancer.run_from_host(["ip", "link", "show", "dev", node.place.port])


def test_what_only_the_host_s_kernel_could_do_is_refused(node: VmNode) -> None:
    with pytest.raises(LabError, match="node1 is a VM"):
        node.serve(80)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_a_lab_that_ends_while_it_is_built_leaves_no_vm(number: signal.Signals) -> None:
    lab = subprocess.Popen(
        [sys.executable, "-c", ANOTHER_LAB], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    assert lab.stdout is not None
    vm = Path("/proc", lab.stdout.readline().strip())
    assert (vm / "comm").read_text().startswith("qemu")
    lab.send_signal(number)
    lab.wait()
    lab.stdout.close()
    until("the VM has ended", lambda: not vm.exists(), pause=0.1)
