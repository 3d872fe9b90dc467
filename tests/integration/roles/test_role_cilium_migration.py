# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role cilium_migration as an operator runs it: its playbook, on a pool of two nodes that azure-vnet served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Node, azure_vnet, playbook
from lab.azure_bridge import served
from lab.azure_vnet import AzurePod
from lab.node import NamespaceNode
from lab.playbook import Played

PLAYBOOK = "kubenode.datapath.cilium_migration"
DEAD = [AzurePod(1), AzurePod(2)]
# Writes down what it is told; a file beside it says what fails, and which nodes are cordoned.
KUBECTL = """#!/bin/sh
folder=$(dirname "$0")
echo "$@" >> "$folder/calls"
case $1 in
  get) test -e "$folder/cordoned" && printf true || true;;
  *) test "$(cat "$folder/fails" 2> /dev/null)" != "$1" || { echo "$1: refused by the test" >&2; exit 1; };;
esac
"""


class Pool:
    """Two nodes and a kubectl; the playbook takes them one by one."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.node: NamespaceNode = lab.node("node1")
        self.other: NamespaceNode = lab.node("node2")
        self.kubectl = folder / "kubectl"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        self._inventory = lab.write_inventory(folder / "inventory.json")

    def play(self, *arguments: str, target: str = "node1", **variables: Any) -> Played:
        """Run it; a namespace node has no systemd of its own and would be taken for an image."""
        named = {f"cilium_migration_{name}": value for name, value in {"mode": "runtime", "grace": 1, **variables}.items()}
        given = {"target": target, "report": str(self.folder / "report.json"), **named}
        callback = {"ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report"}
        return playbook.play(self._inventory, PLAYBOOK, *arguments, variables=given, environment=callback)

    def report(self) -> dict[str, Any]:
        """What the role told of the first node."""
        told: dict[str, Any] = json.loads((self.folder / "report.json").read_text())["nodes"]["node1"]["stats"]
        return dict(told["cilium_migration"])

    def calls(self) -> list[str]:
        """What kubectl was told since it was asked last."""
        path = self.folder / "calls"
        said = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return said


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Lab("migration", nodes=[Node("node1", pods=["pod1"]), Node("node2")]) as lab:
        for node in lab.nodes:
            served(node, DEAD)
        yield Pool(lab, tmp_path)


def test_checked_run_checked_run_and_restored(pool: Pool) -> None:
    before, rules = pool.node.snapshot(), azure_vnet.listing(pool.node)
    predicted = pool.play("--check").well()
    assert predicted.changed == 1 and pool.node.snapshot() == before
    done = pool.play(verify=[{"address": pool.lab.pod("pod1").address, "port": 8080}]).well()
    assert done.changed == predicted.changed
    assert not [line for line in azure_vnet.listing(pool.node) if line.startswith("-A")]
    assert not pool.node.exists(azure_vnet.STATE) and not pool.node.exists(azure_vnet.CONFLIST)
    report = pool.report()
    assert (report["trouble"], report["cordoned"], report["found"]["bridge"]) == ("", False, "azure0")
    assert len(report["done"]["removed"]) == len(azure_vnet.node_rules("")) + 2 * len(DEAD)
    assert all(rule["reason"] for rule in report["done"]["removed"])
    after = pool.node.snapshot()
    for arguments in (["--check"], []):
        assert pool.play(*arguments).well().changed == 0
        assert pool.node.snapshot() == after
    assert pool.play(state="restored").well().changed == 1
    assert azure_vnet.listing(pool.node) == rules
    assert pool.calls() == []


def test_cordoned_and_drained_only_where_there_is_something_to_do(pool: Pool) -> None:
    options: dict[str, Any] = {"drain": True, "kubectl": [str(pool.kubectl)], "node_name": "aks-1"}
    pool.play(**options).well()
    get = "get node aks-1 --output=jsonpath={.spec.unschedulable}"
    drain = "drain aks-1 --ignore-daemonsets --delete-emptydir-data --timeout=300s"
    assert pool.calls() == [get, "cordon aks-1", drain, "uncordon aks-1"]
    pool.play(**options).well()
    assert pool.calls() == []


def test_a_node_that_an_operator_has_cordoned_stays_so(pool: Pool) -> None:
    (pool.folder / "cordoned").touch()
    pool.play(cordon="true", kubectl=str(pool.kubectl)).well()
    assert [call.split()[0] for call in pool.calls()] == ["get"]


@pytest.mark.parametrize("trouble", ["drain", "clean-up", "command"])
def test_an_unwell_canary_stays_cordoned_and_says_so_and_the_next_node_is_not_touched(pool: Pool, trouble: str) -> None:
    options: dict[str, Any] = {"drain": True, "kubectl": [str(pool.kubectl)]}
    if trouble == "drain":
        (pool.folder / "fails").write_text("drain")
    elif trouble == "clean-up":
        pool.node.run(["ip", "link", "add", "azv0123456789a", "master", "azure0", "type", "veth", "peer", "name", "p"])
        options["bridge"] = True
    elif trouble == "command":
        options["verify_command"] = ["sh", "-c", "echo no pod answers >&2; false"]
    else:
        options["verify"] = [{"address": pool.lab.pod("pod1").address, "port": 1}]
    other = pool.other.snapshot()
    done = pool.play(target="nodes", **options)
    assert done.failed and [*done.nodes] == ["node1"], done.output
    assert "node1 stays cordoned. Repair the node, then run: kubectl uncordon node1" in done.output
    said = {
        "command": "no pod answers",
        "drain": "refused by the test",
        "clean-up": "still serves azv0123456789a",
        "verify": "Timeout when waiting for",
    }[trouble]
    report = pool.report()
    assert said in report["trouble"] and report["cordoned"]
    assert [call.split()[0] for call in pool.calls()] == ["get", "cordon", "drain"]
    assert pool.other.snapshot() == other


def test_all_nodes_one_after_the_other(pool: Pool) -> None:
    done = pool.play("-e", "batches=1", target="nodes", kubectl=[str(pool.kubectl)], cordon=True).well()
    assert done.nodes["node1"].changed == done.nodes["node2"].changed > 1
    calls = [call.split()[:3] for call in pool.calls()]
    assert [" ".join(call).replace("get node", "get") for call in calls] == [
        "get node1", "cordon node1", "uncordon node1", "get node2", "cordon node2", "uncordon node2",
    ]  # fmt: skip


def test_where_cilium_does_not_serve_nothing_is_changed(pool: Pool) -> None:
    pool.node.ip(["link del cilium_host"])
    before = pool.node.snapshot()
    failed = pool.play(cordon=True, kubectl=[str(pool.kubectl)])
    assert failed.failed and "Cilium does not serve node1" in failed.output
    assert pool.node.snapshot() == before and pool.calls() == []


def test_what_comes_back_within_the_grace_is_told(pool: Pool) -> None:
    rule = f"ebtables-nft {DEAD[0].rules[0]}"
    lock = "/run/kubenode.lock"  # held until the run has proved itself, or has rolled back
    gone = f"! test -e {lock} && ! ebtables-nft-save | grep -q {DEAD[0].mac}"
    restore = f"until {gone}; do sleep 0.1; done; {rule}"
    pool.node.run(["sh", "-c", f"({restore}) > /dev/null 2>&1 &"])
    failed = pool.play(grace=8)
    assert failed.failed and "Within 8 s rules of azure-vnet have come back" in failed.output


def test_the_bridge_goes_when_it_is_asked_for_and_others_are_left_alone(pool: Pool) -> None:
    for line in ("-N AWS-SNAT-CHAIN-0", "-N SWIFT", "-A POSTROUTING -j SWIFT"):
        pool.node.run(["iptables-nft", "-t", "nat", *line.split()])
    assert "azure0" in "".join(pool.node.snapshot()["links"])
    done = pool.play(bridge=True, bridge_checkpoint_command="true").well()
    assert "removed bridge azure0" in done.output
    assert "left alone, of amazon-vpc-cni: chain AWS-SNAT-CHAIN-0 in ip nat (nft)" in done.output
    assert "left alone, certainly of azure-vnet: rule -j SWIFT in ip nat POSTROUTING (nft)" in done.output
    assert "To remove it: iptables-nft -w -t nat -D POSTROUTING -j SWIFT" in done.output
    assert "azure0" not in "".join(pool.node.snapshot()["links"])
    assert "AWS-SNAT-CHAIN-0" in pool.node.snapshot()["nft"]
    assert pool.play(bridge=True).well().changed == 0


def test_in_an_image_the_configuration_is_inert_and_each_boot_looks(pool: Pool) -> None:
    before = pool.node.snapshot()
    assert "An image: systemd does not run on it" in pool.play(mode="auto").well().output
    after = pool.node.snapshot()
    assert {**after, "files": 0} == {**before, "files": 0}
    assert pool.node.exists(f"{azure_vnet.CONFLIST}.kubenode_bak") and not pool.node.exists(azure_vnet.CONFLIST)
    assert pool.node.exists(azure_vnet.CILIUM)
    assert pool.node.exists("/etc/systemd/system/multi-user.target.wants/kubenode-cni-check.service")
    assert pool.play(mode="image").well().changed == 0
    assert pool.node.snapshot() == after
    pool.play(mode="image", state="restored").well()
    assert pool.node.snapshot() == before
    assert pool.play(mode="image", state="restored").well().changed == 0


def test_a_node_from_an_image_is_restored_too(pool: Pool) -> None:
    before = pool.node.snapshot()
    pool.play(mode="image").well()
    after = pool.node.snapshot()
    assert pool.play("--check", state="restored").well().changed > 0 and pool.node.snapshot() == after
    pool.play(state="restored").well()
    assert pool.node.snapshot() == before
    assert pool.play(state="restored").well().changed == 0


@pytest.mark.parametrize(("variable", "value"), [("state", "gone"), ("mode", "dream"), ("backend", "old"), ("grace", "long")])
def test_bad_input_is_a_clear_error_and_changes_nothing(pool: Pool, variable: str, value: str) -> None:
    before = pool.node.snapshot()
    failed = pool.play(**{variable: value})
    assert failed.failed and variable in failed.output and value in failed.output
    assert pool.node.snapshot() == before
