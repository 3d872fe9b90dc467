# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of settings, of network daemons and of agents of clouds."""

from __future__ import annotations

from typing import Any

import pytest

from lab.inner_pods import InnerPod
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .auditing import apply, concluded, findings
from .healthy_nodes import KEPT, KERNEL, REMOVED, Entry, Node, eks_ubuntu
from .troubles import OFF, dual_stack, shared_enis

# Checks of settings, on a node in a namespace


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


# What systemd-networkd removes depends on its version


RULES, ROUTES = "systemd-networkd rules", "systemd-networkd routes"


def foreign_removed(node: Node, version: int | None, boot: Entry) -> list[dict[str, Any]]:
    snapshot = node.done()
    snapshot["network_daemons"]["networkd_version"] = version
    snapshot["boot"]["networkd"] = boot
    return list(concluded(snapshot, "networkd-removes-foreign")["findings"])


@pytest.mark.parametrize(
    ("version", "boot", "subjects"),
    [
        (245, KEPT, {ROUTES}),
        (246, KEPT, set()),
        (246, REMOVED, {ROUTES}),
        (248, KEPT, {RULES}),
        (248, REMOVED, {RULES, ROUTES}),
        (249, KEPT, set()),
        (252, REMOVED, {RULES, ROUTES}),
        (None, REMOVED, {RULES, ROUTES}),
        (None, KEPT, set()),
    ],
)
def test_foreign_rules_and_routes_are_removed_by_some_versions(version: int | None, boot: Entry, subjects: set[str]) -> None:
    node = eks_ubuntu(KERNEL)
    node.route("10.9.0.0/24", "eth0", protocol="66")
    found = foreign_removed(node, version, boot)
    assert {finding["subject"] for finding in found} == subjects
    for finding in found:
        is_old = version is not None and version < 249 and boot is KEPT
        assert ("Upgrade systemd" in finding["remedy"].get("operator", "")) == (
            is_old or (version, finding["subject"]) == (248, RULES)
        )


@pytest.mark.parametrize("version", [252, 255, None])
def test_the_rules_of_the_kernel_are_removed_by_no_version(version: int | None) -> None:
    """Its source skips those of protocol kernel, although one report says that 255 removes them (systemd#41350)."""
    node = Node(KERNEL)
    node.networkd("eth0")
    assert [foreign_removed(node, version, boot) for boot in (REMOVED, KEPT)] == [[], []]


# Agents of clouds on a node whose pods share interfaces, by the rules of udev that start them


# The rule of udev that starts an agent, and the file with which an operator ends the agent.
AGENTS = {
    "cloud-init hotplug": ("/etc/udev/rules.d/90-cloud-init-hook-hotplug.rules", ""),
    "cloud-ifupdown-helper": ("/run/udev/rules.d/75-cloud-ifupdown.rules", "/etc/udev/rules.d/75-cloud-ifupdown.rules"),
}


def competing(node: NamespaceNode, **context: Any) -> list[tuple[str, str, str]]:
    found = findings(node, "daemon-competes", context=context)
    return [(finding["subject"], finding["severity"], finding["evidence"][0]) for finding in found]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_udev_starts_is_found_until_its_rule_is_out_of_use(name: str) -> None:
    rule, mask = AGENTS[name]
    with scenes.shared_enis(OFF) as (_lab, node):
        for packaged in ("/etc/cloud/cloud.cfg", "/etc/udev/udev.conf"):
            node.write(packaged, "")
        assert competing(node) == []
        node.write(rule, 'SUBSYSTEM=="net", RUN+="hook"\n')
        assert competing(node) == [(name, "note", f"{name}: active")]
        (finding,) = findings(node, "daemon-competes")
        apply(node, finding["remedy"])
        assert competing(node) == []
        Steps(node, "network_daemons", {"state": "absent"}).run()
        assert competing(node) == [(name, "note", f"{name}: active")]
        if mask:
            node.write(mask, "")
        else:
            node.remove(rule)
        assert competing(node) == []


def test_a_node_without_a_second_interface_yet_has_the_trouble_if_its_cni_will_add_one(node: NamespaceNode) -> None:
    rule, _mask = AGENTS["cloud-init hotplug"]
    node.write(rule, 'SUBSYSTEM=="net", RUN+="hook"\n')
    assert competing(node) == competing(node, cni="flannel") == []
    assert [subject for subject, _severity, _line in competing(node, cni="aws_vpc_cni")] == ["cloud-init hotplug"]
