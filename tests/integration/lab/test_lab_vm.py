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

from lab import Lab, Node
from lab.theft import Theft
from lab.vm import VmNode
from lab.waiting import until

# VMs are emulated. make test boots those of test_ebtables_legacy.py, test_kernel_of_its_own.py and test_datapath_info_modules.py,
# and make cluster plugs cards in: cluster/test_eni_ipvs.py.
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


def test_a_stale_rule_of_either_backend_steals_the_traffic_of_the_next_pod(running: Lab, node: VmNode) -> None:
    node.run(["systemctl", "stop", "systemd-networkd.socket", "systemd-networkd.service"])
    theft = Theft(node, running.node("node2"))
    for ebtables in ("ebtables-legacy", "ebtables-nft"):
        theft.happens(ebtables)


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
