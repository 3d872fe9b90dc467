# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that a former version of the collection converged: this version keeps or moves its objects, and removes them.

The former versions are run from the history of the repository. To add one, name its tag or commit in FORMER.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from lab import Eni, EniLab, Lab, Node, azure_vnet, collection, playbook
from lab.azure_bridge import served
from lab.azure_vnet import AzurePod
from lab.eni import PRIMARY
from lab.metadata import MetadataServer
from lab.node import NamespaceNode
from lab.uplinks import SERVER, V4, V6, UplinkLab

# 1.0.0; it has no tag.
FORMER = ("810dfafc7bc6515ab68cec9738e13b2ab6557f3c",)
NODE_PORT, STRICT = 30080, 1
ENI = Eni("eth1", pods=["pod1"], has_address=True)

Arrangement = tuple[NamespaceNode, Path, dict[str, Any], Callable[[], bool]]
"""A node, its inventory, variables of the role, and whether the profile holds: packets arrive, or no rule is left."""


@contextmanager
def dual_stack(folder: Path) -> Iterator[Arrangement]:
    with Lab("upgrade", nodes=[Node("node1", pods=["pod1"])]) as lab, MetadataServer(lab.load_balancer):

        def arrives() -> bool:
            return lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)

        yield lab.node("node1"), lab.write_inventory(folder / "inventory.json"), {}, arrives


@contextmanager
def shared_interfaces(folder: Path) -> Iterator[Arrangement]:
    with EniLab("upgrade", [ENI]) as lab:
        node: NamespaceNode = lab.node("node1")
        node.service(NODE_PORT, [ENI.pod_address(0)], "Local")
        node.filter_reverse_path(STRICT)  # type: ignore[attr-defined]
        enis = [
            {"name": "eth0", "primary": True, "ipv4": [PRIMARY.address]},
            {"name": "eth1", "gateway": {"ipv4": ENI.gateway}, "table": 1101, "pods": [ENI.pod_address(0)]},
        ]
        variables = {"layout": "custom", "pod_interfaces": ["veth-*"], "enis": enis, "connmark": "always"}

        def arrives() -> bool:
            return lab.client.fetch(PRIMARY.address, NODE_PORT, timeout=0.5) is not None

        yield node, lab.write_inventory(folder / "inventory.json"), variables, arrives


@contextmanager
def uplinks(folder: Path) -> Iterator[Arrangement]:
    with UplinkLab("upgrade") as lab:
        node: NamespaceNode = lab.node("node1")
        node.ip([f"address delete {V6.node(1)}/64 dev eth1", f"route add default via {V4.gateway(1)} dev eth1 metric 200"])
        node.serve(SERVER)

        def arrives() -> bool:
            return lab.fetch(V4.node(1), SERVER) is not None

        yield node, lab.write_inventory(folder / "inventory.json"), {}, arrives


@contextmanager
def leftovers(folder: Path) -> Iterator[Arrangement]:
    with Lab("upgrade", nodes=[Node("node1")]) as lab:
        node: NamespaceNode = lab.node("node1")
        served(node, [AzurePod(1), AzurePod(2)])

        def is_clean() -> bool:
            return not azure_vnet.rules(node)

        yield node, lab.write_inventory(folder / "inventory.json"), {}, is_clean


PROFILES = {
    "aks_dual_stack": dual_stack,
    "eni_policy_routing": shared_interfaces,
    "symmetric_routing": uplinks,
    "cilium_migration": leftovers,
}
UNDONE = {"cilium_migration": "restored"}  # the others: absent


@pytest.fixture(scope="module", params=FORMER, ids=lambda commit: commit[:8])
def former(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree for ANSIBLE_COLLECTIONS_PATH with a former version."""
    command = ["git", "-C", str(collection.CHECKOUT), "archive", request.param]
    result = subprocess.run(command, check=False, capture_output=True)
    if result.returncode != 0:
        pytest.skip(f"the clone lacks the former version: {result.stderr.decode().strip()}")
    tree = tmp_path_factory.mktemp("former")
    with tarfile.open(fileobj=io.BytesIO(result.stdout)) as archive:
        archive.extractall(tree / "ansible_collections/kubenode/datapath", filter="data")
    return tree


@pytest.mark.parametrize(
    "is_run_before", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["moved", "undone at once"]
)
@pytest.mark.parametrize("profile", sampled(PROFILES, lambda profile: profile in ("eni_policy_routing", "cilium_migration")))
def test_a_node_of_a_former_version_is_kept_or_moved_and_undone(
    former: Path, tmp_path: Path, profile: str, is_run_before: bool
) -> None:
    """The profile holds, a second run changes nothing, and undoing restores the node as it was before the former version."""
    with PROFILES[profile](tmp_path) as (node, inventory, variables, holds):

        def changes(tree: Path, **more: Any) -> int:
            """Run a version's playbook with a mode: the node has no systemd, and would be taken for an image."""
            values = {f"{profile}_{name}": value for name, value in {"mode": "runtime", **variables, **more}.items()}
            environment = {"ANSIBLE_COLLECTIONS_PATH": str(tree), "PYTHONPATH": f"{tree}:{collection.CHECKOUT}/tests"}
            name = f"kubenode.datapath.{profile}"
            played = playbook.play(inventory, name, "-vvv", variables=values, environment=environment).well()
            assert f"Using module file {tree}/ansible_collections/kubenode/datapath/" in played.output
            return played.changed

        now = collection.link()
        bare = node.snapshot()
        assert not holds()
        assert changes(former) == 1 and holds()
        if is_run_before:
            assert changes(now) in (0, 1) and holds()
            settled = node.snapshot()
            assert changes(now) == 0 and node.snapshot() == settled
        assert changes(now, state=UNDONE.get(profile, "absent")) == 1
        assert node.snapshot() == bare and not holds()
