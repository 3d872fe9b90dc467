# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of the script for nodes without Python tells what the node itself tells."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import commands_script, pastes
from lab import network

from .._audit import mutation_trials
from .._audit.layouts import LAYOUTS
from .._trace import random_nodes

# What the lab's nodes have no program for (bpftool, systemctl), and which agents of a distribution configure links.
OF_OTHER_PROGRAMS = {
    "gateway-mac-changed", "probe-table-beside-cilium", "networkd-removes-foreign", "daemon-competes", "own-table-lost",
    "flush-coming",
}  # fmt: skip
NAMESPACE = "touch /run/netns/{name}; mount --bind /proc/{pid}/ns/net /run/netns/{name}\n"


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("bridge, kube-proxy iptables", "", ""),
        ("ENI policy routing", "", ""),
        ("tunnel", "ip link set wireguard.cali down", "path-lost"),
        (
            "ENI policy routing",
            "sysctl -qw net.ipv4.conf.eth1.rp_filter=1 net.ipv4.conf.eth0.rp_filter=1",
            "rp-strict-asymmetric",
        ),
        ("VXLAN", "ip -6 route del fd00:60:0:2::/64", "path-lost"),
    ],
)
def test_the_output_of_the_script_tells_what_the_node_tells(name: str, change: str, found: str) -> None:
    layout = LAYOUTS[name]()
    with network.built(layout) as machines, network.listening(machines):
        if change:
            machines["node"].run(["sh", "-ec", change])
        live = mutation_trials.snapshot_of(layout, machines)
        # As the runtimes of containers do, but for the lab's own folder.
        spaces = "".join(NAMESPACE.format(name=pod, pid=machines[pod].pid) for pod in layout.pods)
        mounts = f"mkdir -p /run/netns\nmount -t tmpfs tmpfs /run/netns\n{spaces}"
        printed = machines["node"].run(["unshare", "-m", "sh", "-c", mounts + commands_script.script()]).stdout
    pasted = pastes.read({"node.txt": printed})
    of_node, of_script = (
        audit_backend.result(audit_backend.Audit(snapshot, catalogue.CHECKS), random_nodes.run)
        for snapshot in (live, pasted.snapshot)
    )
    told = {(each["id"], each["subject"], each["severity"]) for each in of_node["findings"] if each["state"] == "present"}
    repeated = {(each["id"], each["subject"], each["severity"]) for each in of_script["findings"] if each["state"] == "present"}
    assert repeated == told and (not found or found in {each[0] for each in told})
    silent = {each["id"] for each in of_script["findings"] if each["state"] == "cannot_tell"}
    assert silent <= OF_OTHER_PROGRAMS | {each["id"] for each in of_node["findings"] if each["state"] == "cannot_tell"}
    assert pasted.ignored == []
