# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of settings, on a node in a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from lab.inner_pods import InnerPod
from lab.node import NamespaceNode

from .test_mark_checks import apply, findings
from .troubles import dual_stack, shared_enis

SYSCTL_FILE = "/etc/sysctl.d/60-hard.conf"


def of_links(*names: str) -> list[str]:
    return [f"net.ipv4.conf.{name}.forwarding" for name in names]


@pytest.mark.parametrize("link", ["veth-pod1", "eth0", "eth1"])
def test_a_link_of_the_path_of_pods_that_does_not_forward(link: str) -> None:
    with shared_enis() as node:
        node.run(["sysctl", "-w", f"net.ipv4.conf.{link}.forwarding=0"])
        (finding,) = findings(node, "forwarding-off")
        assert ([finding["subject"]], finding["state"], finding["proof"]) == (of_links(link), "present", "twin")
        apply(node, finding["remedy"])
        assert findings(node, "forwarding-off") == []


def test_links_that_forward_though_that_of_all_is_off() -> None:
    with shared_enis() as node:
        node.run(["sysctl", "-w", "net.ipv4.ip_forward=0"])
        for name in ("eth0", "eth1", "eth2", "veth-pod1", "veth-pod2"):
            node.run(["sysctl", "-w", f"net.ipv4.conf.{name}.forwarding=1"])
        assert findings(node, "forwarding-off") == []


MANAGEMENT = [  # a default route of its own, and a table for its address
    *(f"route add default via 203.0.113.9 dev eth9 {place}" for place in ("metric 500", "table 99")),
    "rule add from 203.0.113.11 lookup 99 priority 3000",
]


@pytest.mark.parametrize("routing", [[], MANAGEMENT], ids=["no route", "a second default route"])
def test_a_network_behind_which_no_best_default_route_leads_and_that_does_not_forward_is_a_note(routing: list[str]) -> None:
    with shared_enis() as node:
        far = InnerPod(node, "away", "203.0.113.9", "0a:00:00:00:00:09", "eth9")
        far.ip(["link set eth0 up"])
        node.ip(["address add 203.0.113.11/24 dev eth9", "link set eth9 up", *routing])
        node.run(["sysctl", "-w", "net.ipv4.ip_forward=0"])
        for name in ("eth0", "eth1", "eth2", "veth-pod1", "veth-pod2"):
            node.run(["sysctl", "-w", f"net.ipv4.conf.{name}.forwarding=1"])
        (finding,) = findings(node, "forwarding-off")
        assert (finding["subject"], finding["severity"], finding["proof"]) == (*of_links("eth9"), "note", "twin")
        assert findings(node, "default-by-secondary") == []


def test_a_link_of_ipv6_does_not_decide() -> None:
    with dual_stack() as node:
        node.run(["sysctl", "-w", "net.ipv6.conf.eth0.forwarding=0"])
        assert findings(node, "forwarding-off") == []
        node.run(["sysctl", "-w", "net.ipv6.conf.all.forwarding=0"])
        (finding,) = findings(node, "forwarding-off")
        assert (finding["subject"], finding["proof"]) == ("net.ipv6.conf.all.forwarding", "twin")


def at_boot(node: NamespaceNode, *lines: str) -> list[dict[str, Any]]:
    node.write(SYSCTL_FILE, "".join(f"{line}\n" for line in lines))
    return findings(node, "forwarding-off-at-boot")


@pytest.mark.parametrize(
    ("lines", "subjects"),
    [
        (["net.ipv4.conf.all.forwarding = 0"], of_links("all")),
        (["net.ipv4.ip_forward = 1", "net.ipv4.conf.all.forwarding = 0"], of_links("all")),
        (["net.ipv4.conf.all.forwarding = 0", "net.ipv4.ip_forward = 1"], []),
        (["net.ipv4.ip_forward = 1", "net.ipv4.conf.eth0.forwarding = 0"], of_links("eth0")),
        (["net.ipv4.conf.eth0.forwarding = 0", "net.ipv4.ip_forward = 1"], []),
        (["net.ipv4.conf.*.forwarding = 0"], of_links("*")),
        (["net.ipv4.conf.unused.forwarding = 0"], []),
    ],
)
def test_the_last_line_about_forwarding_decides_at_boot(lines: list[str], subjects: list[str]) -> None:
    with shared_enis() as node:
        assert [finding["subject"] for finding in at_boot(node, *lines)] == subjects


@pytest.mark.parametrize(
    ("match", "is_found"),
    [
        ("-p tcp --dport 10250", True),
        ("-p tcp --dport 10000:11000", True),
        ("-p tcp --dport :10250", True),
        ("-p tcp --dport 10251:", False),
        ("-p tcp -m multiport --dports 80,10200:10300", True),
        ("-p tcp -m multiport --dports 80,443", False),
        ("-p tcp ! --dport 10250", False),
        ("-p tcp ! --dport 443", True),
        ("-p udp --dport 10250", False),
        ("-d 10.0.0.10 -p tcp --dport 10250", True),
        ("-d 10.0.0.0/8 -p tcp --dport 10250", True),
        ("-d 203.0.113.9 -p tcp --dport 10250", False),
        ("! -d 10.0.0.10 -p tcp --dport 10250", True),  # the node has further addresses
        ("! -d 0.0.0.0/1 -p tcp --dport 10250", True),  # and one of them is not in the lower half
    ],
)
def test_a_rule_takes_kubelets_port_if_a_connection_to_the_node_matches(match: str, is_found: bool) -> None:
    with shared_enis() as node:
        node.ip(["address add 198.51.100.9/32 dev eth0"])
        node.run(["iptables", "-t", "nat", "-A", "PREROUTING", *match.split(), "-j", "DNAT", "--to-destination", "10.0.0.9"])
        assert bool(findings(node, "kubelet-port-taken")) == is_found
