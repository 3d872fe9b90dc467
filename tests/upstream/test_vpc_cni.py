# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""eni_policy_routing on a node that the code of amazon-vpc-cni-k8s configured, with pods behind a secondary ENI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Eni, EniLab
from lab.eni import CLIENT, PRIMARY, EniNamespaceNode
from lab.upstream import VpcCni
from lab.upstream.vpc_cni import PREFIX, table

ENI = Eni("eth1", pods=["pod1"])
NODE_PORT = 30080
QUICK = 0.3  # seconds to wait for an answer that must not come
TRIES = 100
STRICT, LOOSE = 1, 2
SUPPORT, EXTERNAL = "AWS_VPC_CNI_NODE_PORT_SUPPORT", "AWS_VPC_K8S_CNI_EXTERNALSNAT"
RULES = [
    f"512:\tfrom all to {ENI.pod_address(0)} lookup main",
    "1024:\tfrom all fwmark 0x80/0x80 lookup main",
    f"1536:\tfrom {ENI.pod_address(0)} lookup {table(ENI)}",
    f"32765:\tfrom {ENI.address} lookup {table(ENI)}",
]
EACH_SETTING = pytest.mark.parametrize("supported", ["true", "false"])


@pytest.fixture
def lab() -> Iterator[EniLab]:
    with EniLab("upstream", [ENI], cni=False) as running:
        yield running


def configure(lab: EniLab, binary: Path, supported: str, external: str = "false") -> VpcCni:
    """Let the CNI configure the node and connect its pod, which serves a node port. Each link filters strictly."""
    node: EniNamespaceNode = lab.node("node1")
    cni = VpcCni(binary, node, {SUPPORT: supported, EXTERNAL: external})
    cni.start()
    for pod in node.pods:
        cni.add(pod)
        node.service(NODE_PORT, [pod.address], policy="Local")
    node.filter_reverse_path(STRICT)
    return cni


def lost(lab: EniLab, tries: int = 1, limit: float = QUICK) -> int:
    """Return how many of a client's calls to the node port get no answer."""
    answers = [lab.client.fetch(PRIMARY.address, NODE_PORT, limit) for _try in range(tries)]
    assert {answer.peer for answer in answers if answer} <= {CLIENT}
    return answers.count(None)


def profile(node: EniNamespaceNode, check: bool = False, **options: Any) -> dict[str, Any]:
    enis = [
        {"name": "eth0", "primary": True, "ipv4": [PRIMARY.address]},
        {"name": "eth1", "device_number": ENI.number, "ipv4": [ENI.address], "gateway": {"ipv4": ENI.gateway}},
    ]
    options = {"mode": "runtime", "layout": "aws_vpc_cni", "enis": enis, **options}
    result = node.module("profile", {"name": "eni_policy_routing", "options": options}, check=check)
    assert not result["failed"], result
    return result


@EACH_SETTING
def test_the_cni_alone_answers_only_with_a_loose_filter_and_support_for_node_ports(
    lab: EniLab, aws_cni_host: Path, supported: str
) -> None:
    configure(lab, aws_cni_host, supported)
    node: EniNamespaceNode = lab.node("node1")
    listed = node.run_from_host(["ip", "rule"]).splitlines()
    assert [line.rstrip() for line in listed if line.split(":")[0] not in ("0", "32766", "32767")] == RULES
    assert node.run_from_host(["ip", "-brief", "link", "show", "type", "veth"]).count(PREFIX) == len(node.pods)
    assert lost(lab) == 1
    node.set_sysctls({"net.ipv4.conf.eth0.rp_filter": LOOSE})  # as aws-vpc-cni-init does (configureSystemParams)
    assert lost(lab) == (supported == "false")


@EACH_SETTING
@pytest.mark.parametrize("remedy", ["loose", "strict"])
def test_every_call_is_answered_also_after_a_restart_and_absent_restores_the_node(
    lab: EniLab, aws_cni_host: Path, supported: str, remedy: str
) -> None:
    cni = configure(lab, aws_cni_host, supported)
    node: EniNamespaceNode = lab.node("node1")
    before = node.snapshot()
    assert lost(lab) == 1
    assert profile(node, remedy=remedy)["changed"]
    after = node.snapshot()
    for _restart in range(2):
        assert lost(lab, TRIES, 1.0) == 0
        assert not profile(node, check=True, remedy=remedy)["changed"]
        cni.start()
        assert node.snapshot() == after
    assert profile(node, remedy=remedy, state="absent")["changed"]
    assert node.snapshot() == before and lost(lab) == 1


def test_a_restart_that_deletes_the_rule_of_marks_is_repaired_by_the_next_run(lab: EniLab, aws_cni_host: Path) -> None:
    """With external SNAT and without support for node ports, the CNI deletes a rule of its layout's mark, whoever added it."""
    cni = configure(lab, aws_cni_host, "false", external="true")
    node: EniNamespaceNode = lab.node("node1")
    assert profile(node)["changed"]
    after = node.snapshot()
    cni.start()
    assert lost(lab) == 1
    assert profile(node, check=True)["changed"] and profile(node)["changed"]
    assert node.snapshot() == after and lost(lab, TRIES, 1.0) == 0
