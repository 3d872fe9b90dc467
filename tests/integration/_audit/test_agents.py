# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Agents of clouds on a node whose pods share interfaces, by the rules of udev that start them."""

from __future__ import annotations

from typing import Any

import pytest

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .test_mark_checks import apply, findings
from .troubles import OFF

# The rule of udev that starts an agent, and the file with which an operator ends the agent.
AGENTS = {
    "cloud-init hotplug": ("/etc/udev/rules.d/90-cloud-init-hook-hotplug.rules", ""),
    "cloud-ifupdown-helper": ("/run/udev/rules.d/75-cloud-ifupdown.rules", "/etc/udev/rules.d/75-cloud-ifupdown.rules"),
}


def audit(node: NamespaceNode, **context: Any) -> list[tuple[str, str, str]]:
    result = Steps(node, "datapath_audit", {"checks": ["daemon-competes"], "context": context}).run()
    return [(finding["subject"], finding["severity"], finding["evidence"][0]) for finding in result["findings"]]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_udev_starts_is_found_until_its_rule_is_out_of_use(name: str) -> None:
    rule, mask = AGENTS[name]
    with scenes.shared_enis(OFF) as (_lab, node):
        for packaged in ("/etc/cloud/cloud.cfg", "/etc/udev/udev.conf"):
            node.write(packaged, "")
        assert audit(node) == []
        node.write(rule, 'SUBSYSTEM=="net", RUN+="hook"\n')
        assert audit(node) == [(name, "note", f"{name}: active")]
        (finding,) = findings(node, "daemon-competes")
        apply(node, finding["remedy"])
        assert audit(node) == []
        Steps(node, "network_daemons", {"state": "absent"}).run()
        assert audit(node) == [(name, "note", f"{name}: active")]
        if mask:
            node.write(mask, "")
        else:
            node.remove(rule)
        assert audit(node) == []


def test_a_node_without_a_second_interface_yet_has_the_trouble_if_its_cni_will_add_one(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    rule, _mask = AGENTS["cloud-init hotplug"]
    node.write(rule, 'SUBSYSTEM=="net", RUN+="hook"\n')
    assert audit(node) == audit(node, cni="flannel") == []
    assert [subject for subject, _severity, _line in audit(node, cni="aws_vpc_cni")] == ["cloud-init hotplug"]
