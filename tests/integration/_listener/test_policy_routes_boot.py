# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""policy_routes through a reboot of a node that runs systemd and has no pyroute2 of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import Lab, Node
from lab.container import SystemdNode

SEEN = "/var/log/before-kubelet"
LOOKS = f"""\
[Service]
ExecStartPre=/bin/sh -c '{{ ip rule; ip -6 rule; ip route show table 1003; }} > {SEEN}'
"""
DESIRED = {
    "rules": [
        {"priority": 700, "to": "10.0.1.5", "table": "main"},
        {"priority": 701, "fwmark": "0x100000/0x100000", "table": "main", "family": "ipv6"},
    ],
    "routes": [{"table": 1003, "to": "10.0.1.1", "dev": "eth0"}, {"table": 1003, "to": "default", "via": "10.0.1.1"}],
}
THERE = (
    "700:\tfrom all to 10.0.1.5 lookup main proto 75",
    "701:\tfrom all fwmark 0x100000/0x100000 lookup main proto 75",
    "10.0.1.1 dev eth0 proto 75 scope link",
    "default via 10.0.1.1 dev eth0 proto 75",
)


@pytest.fixture
def node() -> Iterator[SystemdNode]:
    with Lab("routes", nodes=[Node("node1", system="bookworm")]) as lab:
        yield lab.node("node1")


def test_rules_and_routes_are_there_before_kubelet_after_a_reboot(node: SystemdNode) -> None:
    node.place_kubelet_stand_in()
    node.write("/etc/systemd/system/kubelet.service.d/looks.conf", LOOKS)
    clean = node.snapshot()
    result = node.module("policy_routes", DESIRED)
    assert result["changed"], result
    node.reboot()
    found = [line.strip() for line in node.read(SEEN).splitlines()]
    assert all(line in found for line in THERE), found
    again = node.module("policy_routes", DESIRED)
    assert not again["failed"] and not again["changed"], again
    assert node.module("policy_routes", {"state": "absent"})["changed"]
    node.run(["rm", SEEN])
    assert node.snapshot() == clean
