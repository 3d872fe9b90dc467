# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environments in which Ansible runs, and node_mode's verdict on each: on a node where systemd is process 1."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import installation
import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from lab import Lab, Node, collection, entering, inventory, playbook
from lab.container import SystemdNode
from lab.node_conditions import ANOTHER_ROOT

SYSTEMD = "A running node: systemd runs on it."
CONTAINER = "A running node: this is a container in its namespaces, as a DaemonSet's pod is."
NO_SYSTEMD = "An image: systemd does not run on it."
OTHER = f"({ANOTHER_ROOT}) && "
UNMOUNTED = " && umount --lazy /mnt/"
IN = ' && exec chroot /mnt sh -c "$0"'
POD = ("unshare", "--mount", "--ipc", "--cgroup")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("mode", nodes=[Node("node1", pods=["pod1"], system="bookworm")], metadata=True) as running:
        yield running


@pytest.mark.parametrize(
    ("through", "script", "reason"),
    [
        pytest.param((), 'exec sh -c "$0"', SYSTEMD, id="node"),
        pytest.param(("unshare", "--mount"), OTHER + "true" + IN, NO_SYSTEMD, id="chroot"),
        pytest.param(("unshare", "--mount"), OTHER + "true" + UNMOUNTED + "run" + IN, NO_SYSTEMD, id="chroot, no /run"),
        pytest.param(
            ("unshare", "--mount"),
            OTHER + "true" + UNMOUNTED + "proc" + IN,
            "An image: it has no /proc.",
            id="chroot with /run, no /proc",
        ),
        pytest.param(("unshare", "--mount", "--ipc", "--uts"), OTHER + "true" + IN, NO_SYSTEMD, id="buildah's chroot"),
        pytest.param(
            ("unshare", "--mount", "--ipc", "--uts", "--pid", "--fork"),
            OTHER + "mount -t proc proc /mnt/proc" + UNMOUNTED + "run" + IN,
            NO_SYSTEMD,
            id="build container",
        ),
        pytest.param(POD, OTHER + "true" + IN, CONTAINER, id="pod"),
        pytest.param(POD, 'exec chroot / sh -c "$0"', SYSTEMD, id="pod, after chroot to the node's root"),
        pytest.param((*POD, "--net"), OTHER + "true" + IN, NO_SYSTEMD, id="pod with a network of its own"),
    ],
)
def test_what_a_place_is_taken_for(node: SystemdNode, through: Sequence[str], script: str, reason: str) -> None:
    answer = node.run([*through, "sh", "-c", script, node_mode.ASK]).stdout
    assert node_mode.by_node(node_mode.parse(answer), "local").reason == reason, answer


def in_pod(node: SystemdNode, connection: str, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """ansible-playbook in a pod of the node: it has the node's processes, network and name, and this machine's files."""
    pod = ["nsenter", f"--target={node.pid}", "--pid", "--net", "--uts", *POD, "--mount-proc"]
    variables = {"ansible_connection": connection, "ansible_python_interpreter": sys.executable, "kubenode_target": "node1"}
    if connection != "local":
        variables["ansible_python_interpreter"] = "/usr/bin/python3"
    trees = collection.path(installation.collections())
    return subprocess.run(
        [*pod, playbook.PROGRAM, "-i", "node1,", "-e", json.dumps(variables), name, *arguments],
        capture_output=True, text=True, check=False, cwd=collection.CHECKOUT,
        env={**entering.ENVIRONMENT, **inventory.environment(), "ANSIBLE_COLLECTIONS_PATH": trees},
    )  # fmt: skip


def test_a_pod_with_its_own_root_is_refused_and_told_the_way(node: SystemdNode, tmp_path: Path) -> None:
    before = node.snapshot()
    refused = in_pod(node, "local", "kubenode.datapath.aks_dual_stack", "-e", "ansible_become=false")
    assert refused.returncode != 0 and CONTAINER.rstrip(".") in refused.stdout, refused.stdout + refused.stderr
    assert "by the connection kubenode.datapath.nsenter or by a chroot" in refused.stdout
    assert node.snapshot() == before


def test_a_pod_that_enters_its_node_converges_it(lab: Lab, node: SystemdNode) -> None:
    for changed in (1, 0):
        completed = in_pod(node, "community.docker.nsenter", "kubenode.datapath.aks_dual_stack", "-e", "ansible_become=false")
        assert "A running node, entered by community.docker.nsenter: systemd runs on it." in completed.stdout, completed.stdout
        assert f"changed={changed} " in completed.stdout and completed.returncode == 0, completed.stdout + completed.stderr
    assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)
