# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes made wrong, each in the way that a check of datapath_audit looks for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS
from lab import Lab, Node
from lab.eni import PRIMARY
from lab.node import NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes

OFF, STRICT = 0, 1
POD, ENI = scenes.POD, scenes.ENIS[0]
NETWORK_FILE = "/etc/systemd/network/10-eth0.network"
UNIT = "kubenode-nft-inet-lost.service"
WANTS = "/etc/systemd/system/multi-user.target.wants"
MARKS = '-i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL -j CONNMARK --set-xmark 0x80/0x80'
LEGACY = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 192.0.2.1/32 -j DROP\nCOMMIT\n"
Snapshot = dict[str, Any]
Scene = Callable[[], Any]


@contextmanager
def shared_enis(mode: int = OFF) -> Iterator[NamespaceNode]:
    with scenes.shared_enis(mode) as (_lab, node):
        yield node


@contextmanager
def dual_stack() -> Iterator[NamespaceNode]:
    with Lab("checks", nodes=[Node("node1", pods=["pod1"])]) as lab:
        yield lab.node("node1")


def with_networkd(snapshot: Snapshot) -> None:
    """Let systemd-networkd manage eth0. In a namespace it does not run."""
    snapshot["network_daemons"] = {"daemons": {"systemd-networkd": True}, "networkd_files": {"eth0": NETWORK_FILE}}


def with_active_units(snapshot: Snapshot) -> None:
    """Let the units of the node be active. In a namespace no systemd answers."""
    for unit in snapshot["units"]:
        unit.update(active="active", sub="exited")


def with_legacy_rule(snapshot: Snapshot) -> None:
    """Let iptables-legacy have a rule. The kernel of the tests has no legacy tables."""
    snapshot["iptables"].append({"family": "ip", "table": "filter", "backend": "legacy", "save": LEGACY})


class Trouble(NamedTuple):
    """What is wrong with a node.

    subject, evidence, proof: of the finding. commands, files: that make it so. edit: makes so what a namespace cannot be, in the
    snapshot. reported: the lines that edit adds to the outputs in a report, by commands. undo: commands for a remedy that is
    words. context: of the audit.
    """

    subject: str
    evidence: list[str]
    commands: list[str] = []
    files: Mapping[str, str] = {}
    scene: Scene = shared_enis
    edit: Callable[[Snapshot], None] | None = None
    reported: Mapping[str, str] = {}
    undo: list[str] = []
    proof: str = "configuration"
    context: Mapping[str, str] = {}

    @contextmanager
    def node(self) -> Iterator[NamespaceNode]:
        """A node with the trouble."""
        with self.scene() as node:
            self.make(node)
            yield node

    def make(self, node: NamespaceNode) -> None:
        for path, text in self.files.items():
            node.write(path, text)
        for command in self.commands:
            node.run(shlex.split(command))

    def snapshot(self, node: NamespaceNode) -> Snapshot:
        snapshot: Snapshot = Steps(node, "datapath_info", {"gather": [*SUBSETS]}).run()["snapshot"]
        if self.edit:
            self.edit(snapshot)
        return snapshot

    def audit(self, node: NamespaceNode, check: str) -> list[dict[str, Any]]:
        options: dict[str, Any] = {"checks": [check], "context": self.context}
        if self.edit:
            options["snapshot"] = self.snapshot(node)
        result = Steps(node, "datapath_audit", options).run()
        assert result["passed"] == ([] if result["findings"] else [check])
        return list(result["findings"])


TROUBLES = {
    "rp-strict-asymmetric": Trouble(
        "eth0",
        ["net.ipv4.conf.eth0.rp_filter = 1", f"2048: from {POD} lookup 1001"],
        scene=lambda: shared_enis(STRICT),
        proof="twin",
    ),
    "reply-by-other-interface": Trouble("eth1", [f"2048: from {POD} lookup 1001"], proof="twin"),
    "rp-all-with-cilium": Trouble(
        "all",
        ["net.ipv4.conf.all.rp_filter = 2"],
        ["ip link add lxc1 type veth peer name lxc1p", "sysctl -w net.ipv4.conf.all.rp_filter=2"],
    ),
    "rp-strict-at-boot": Trouble(
        "eth0",
        ["net.ipv4.conf.eth0.rp_filter = 0", "/etc/sysctl.d/60-hard.conf: net.ipv4.conf.eth0.rp_filter = 1"],
        files={"/etc/sysctl.d/60-hard.conf": "net.ipv4.conf.eth0.rp_filter = 1\n"},
    ),
    "mark-without-rule": Trouble("0x80/0x80", ["table ip mangle: 0x80/0x80"], [f"iptables -t mangle -A PREROUTING {MARKS}"]),
    "pod-rule-missing": Trouble(
        POD, [f"{POD} dev veth-pod1 scope link"], [f"ip rule del from {POD} lookup {ENI.table} priority 2048"]
    ),
    "networkd-removes-foreign": Trouble(
        "systemd-networkd",
        ["ManageForeignRoutingPolicyRules=yes (its default)"]
        + [f"512: from all to {eni.pod_address(0)} lookup main" for eni in scenes.ENIS]
        + [f"2048: from {POD} lookup 1001"],
        edit=with_networkd,
    ),
    "base-rule-missing": Trouble(
        "ipv4 main",
        ["0: from all lookup local", "512: from all to 10.0.1.11 lookup main", "512: from all to 10.0.2.11 lookup main"],
        ["ip rule del priority 32766", "ip rule add lookup 77 priority 32766"],
        proof="twin",
    ),
    "rule-to-empty-table": Trouble(
        "10.0.1.99", ["3000: from 10.0.1.99 lookup 77"], ["ip rule add from 10.0.1.99 lookup 77 priority 3000"]
    ),
    "rules-of-one-source": Trouble(
        POD,
        [f"2048: from {POD} lookup 1001", f"2049: from {POD} lookup 1002"],
        [f"ip rule add from {POD} lookup 1002 priority 2049"],
    ),
    "default-by-secondary": Trouble(
        "eth1",
        [f"default via {PRIMARY.gateway} dev eth0", f"default via {ENI.gateway} dev eth1 proto dhcp metric 512"],
        [f"ip route add default via {ENI.gateway} dev eth1 onlink proto dhcp metric 512"],
    ),
    "neighbor-moved": Trouble(
        POD,
        [f"{POD} dev eth1 lladdr 02:00:00:00:00:77 PERMANENT"],
        [f"ip neighbour add {POD} dev eth1 lladdr 02:00:00:00:00:77 nud permanent"],
    ),
    "probe-untranslated": Trouble(
        "eth0",
        ["inet6 2001:db8:0:1::11 dev eth0", "2001:db8:1::11 dev veth-pod1"],
        scene=dual_stack,
        proof="twin",
        context={"cloud": "azure"},
    ),
    "own-table-lost": Trouble(
        "inet lost",
        [f"{UNIT} enabled", "Active: active (exited)"],
        [f"mkdir -p {WANTS}", f"ln -s ../{UNIT} {WANTS}/{UNIT}"],
        {f"/etc/systemd/system/{UNIT}": "[Service]\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n"},
        edit=with_active_units,
        undo=["nft add table inet lost"],  # in place of systemctl, which would start the unit of the host
    ),
    "forwarding-off": Trouble(
        "net.ipv4.ip_forward", ["net.ipv4.ip_forward = 0"], ["sysctl -w net.ipv4.ip_forward=0"], proof="twin"
    ),
    "forwarding-off-at-boot": Trouble(
        "net.ipv4.ip_forward",
        ["/etc/sysctl.d/60-hard.conf: net.ipv4.ip_forward = 0"],
        files={"/etc/sysctl.d/60-hard.conf": "net.ipv4.ip_forward = 0\n"},
        undo=["rm /etc/sysctl.d/60-hard.conf"],
    ),
    "ra-route-expires": Trouble(
        "eth1",
        ["default via fe80::1 dev eth1 proto ra metric 1024"]
        + [f"net.ipv6.conf.eth1.{key} = 1" for key in ("accept_ra", "forwarding")],
        ["sysctl -w net.ipv6.conf.eth1.disable_ipv6=0 net.ipv6.conf.eth1.forwarding=1 net.ipv6.conf.eth1.accept_ra=1"]
        + ["ip -6 route add default via fe80::1 dev eth1 proto ra"],
    ),
    "both-backends": Trouble(
        "ip",
        ["iptables-legacy-save -t filter"],
        ["iptables -A INPUT -s 192.0.2.2 -j DROP"],
        edit=with_legacy_rule,
        reported={
            "iptables-legacy-save": LEGACY,
            "iptables-save": "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n",
        },
        undo=["iptables -D INPUT -s 192.0.2.2 -j DROP"],
    ),
}
