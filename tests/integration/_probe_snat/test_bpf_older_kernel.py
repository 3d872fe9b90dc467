# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend bpf on Linux 6.1, which has no tcx and other tags: traffic control attaches the programs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab import Lab, Node, bpf
from lab.node import POD_PORT
from lab.vm import VmNode

pytestmark = pytest.mark.thorough  # a VM is emulated


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    with Lab("older", nodes=[Node("node1", pods=["pod1"], system="bookworm", vm=True)]) as lab:
        yield lab


def filters(node: VmNode, direction: str = "ingress") -> str:
    return node.run(["tc", "filter", "show", "dev", "eth0", direction]).stdout


def test_programs_come_survive_a_boot_and_go(running: Lab) -> None:
    node: VmNode = running.node("node1")
    pod = running.pod("pod1")

    def run(check: bool = False, **options: object) -> dict[str, object]:
        result: dict[str, object] = node.module("nftables_probe_snat", {"backend": "bpf", **options}, check)
        assert not result["failed"], result
        return result

    def is_answered() -> bool:
        answered: bool = running.load_balancer.probe_tcp(pod.address, POD_PORT, timeout=5)
        return answered

    assert not is_answered()
    qdiscs = node.run(["tc", "qdisc", "show"]).stdout
    predicted = run(check=True)
    result = run()
    assert result["diff"] == predicted["diff"] and is_answered()
    assert re.search(r"pref 1 bpf chain 0 handle 0x6b6e000\d kubenode_foax_i direct-action", filters(node))
    assert not run(check=True)["changed"] and not run()["changed"]
    bpf.attach(node, "ingress", "cil_from_netdev", priority=2)
    assert not run()["changed"] and is_answered()
    node.reboot()
    assert is_answered() and not run()["changed"]
    run(state="absent")
    assert node.run(["tc", "qdisc", "show"]).stdout == qdiscs and not is_answered()
    bpf.attach(node, "ingress", "cil_from_netdev")
    run()
    assert re.findall(r"(kubenode_foax_i|cil_from_netdev) direct", filters(node)) == ["kubenode_foax_i", "cil_from_netdev"]
