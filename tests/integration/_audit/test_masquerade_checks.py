# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that masquerade: the finding is there where a real server sees another source than the pod."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from lab.eni import BACKEND
from lab.node import POD_PORT, NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .test_mark_checks import apply
from .troubles import OFF, POD

PODS = "10.0.0.0/16"
OF_NFT = (
    "nft 'add table ip agent; add chain ip agent c { type nat hook postrouting priority 100; }; add rule ip agent c masquerade'"
)


def findings(node: NamespaceNode, *ranges: str) -> list[dict[str, Any]]:
    options = {"checks": ["pod-source-translated"], "context": {"pod_ranges": [*ranges]}}
    return list(Steps(node, "datapath_audit", options).run()["findings"])


@pytest.mark.parametrize(
    ("commands", "evidence"),
    [
        ([f"iptables -t nat -A POSTROUTING -s {POD} -j MASQUERADE"], [f"-A POSTROUTING -s {POD}/32 -j MASQUERADE"]),
        ([f"iptables -t nat -A POSTROUTING -s {POD} ! -d {PODS} -j MASQUERADE"], []),
        (["iptables -t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE"], []),
        ([OF_NFT], ["table ip agent"]),
    ],
    ids=["all", "outside alone", "marked", "nft"],
)
def test_a_rule_that_takes_pods_for_the_outside(commands: list[str], evidence: list[str]) -> None:
    with scenes.shared_enis(OFF) as (lab, node):

        def source() -> str:
            answer = lab.fetch_from("pod1", BACKEND, POD_PORT, 0.3)
            return answer.peer if answer else ""

        assert source() == POD and findings(node, PODS) == []
        for command in commands:
            node.run(shlex.split(command))
        found = findings(node, PODS)
        assert (source() != POD) == bool(evidence) == bool(found) and findings(node, "10.9.0.0/16") == []
        for finding in found:
            assert (finding["severity"], finding["proof"], finding["evidence"]) == ("risk", "twin", evidence)
            if finding["remedy"]:
                apply(node, finding["remedy"])
                assert source() == POD and findings(node, PODS) == []


@pytest.mark.parametrize(
    ("tunnel", "network", "expected"),
    [
        ("flannel.1", "10.244.2.0/24", [("present", "risk")]),
        ("it", "172.30.0.0/16", []),
        ("it", "10.0.32.0/20", [("cannot_tell", "note")]),
    ],
    ids=["name of a CNI", "to an office", "like the networks of pods"],
)
def test_a_tunnel_leads_to_pods_of_other_nodes(tunnel: str, network: str, expected: list[tuple[str, str]]) -> None:
    """Packets to an office are masqueraded on purpose."""
    with scenes.shared_enis(OFF) as (_lab, node):
        node.ip([f"link add {tunnel} type vxlan id 1 dstport 8472 dev eth0", f"link set {tunnel} up"])
        node.ip([f"address add 10.244.1.0/32 dev {tunnel}", f"route add {network} via 10.244.2.0 dev {tunnel} onlink"])
        assert findings(node) == []
        node.run(shlex.split(f"iptables -t nat -A POSTROUTING -s {POD} -j MASQUERADE"))
        found = findings(node)
        assert [(finding["state"], finding["severity"]) for finding in found] == expected
        assert all(finding["subject"] == "ipv4" and bool(finding["ask"]) == (not finding["remedy"]) for finding in found)
