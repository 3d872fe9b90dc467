# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkpoint whose /run is full, has no inode, or is read-only: the way back holds all that it needs from the arming on."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, Node
from lab.node import NamespaceNode
from lab.waiting import until

FOLDER = "/run/kubenode-checkpoint"
COMMAND, OUTCOME, JOURNAL = f"{FOLDER}/rollback", f"{FOLDER}/outcome.json", f"{FOLDER}/journal"
SECONDS = 5

Options = Mapping[str, Any]
_MARKS = {"primary_interface": "eth0", "pod_interfaces": ["veth*"], "strict": True}


def _rules(address: str) -> dict[str, Any]:
    return {"rules": [{"priority": 700, "to": address, "action": "blackhole"}]}


def _profile(mode: str, address: str) -> dict[str, Any]:
    modules = [
        {"rp_filter": {"interfaces": ["eth0"], "mode": mode}},
        {"policy_routes": _rules(address)},
        {"nftables_connmark": _MARKS},
    ]
    return {"mode": "runtime", "modules": modules}


# The options of the node's former state, and of the change. Each module keeps a record in /run, which the change replaces.
CHANGES: dict[str, tuple[Options, Options]] = {
    "rp_filter": ({"interfaces": ["eth0"], "mode": "strict"}, {"state": "absent"}),
    "policy_routes": (_rules("203.0.113.1"), _rules("203.0.113.2")),
    "nftables_connmark": (_MARKS, {**_MARKS, "mark": "0x100", "strict": False}),
    "profile": (_profile("strict", "203.0.113.1"), _profile("loose", "203.0.113.2")),
}
SHORTAGES = {
    "full": ("cat /dev/zero > /run/filler", "rm /run/filler"),
    "no inode": ("number=0; while true > /run/filler-$number; do number=$((number + 1)); done", "rm /run/filler-*"),
    "read-only": ("mount --bind /run /run; mount -o remount,bind,ro /run", "umount --lazy /run"),
}
each_shortage = pytest.mark.parametrize("shortage", sampled(SHORTAGES, lambda shortage: shortage != "no inode"))
REASONS = {
    "full": r"No space left on device \(df /run",
    "no inode": r"No space left on device, as no inode is free \(df -i /run",
    "read-only": r"because the file system at /run is read-only|Read-only file system \(findmnt --target /run",
}


@contextmanager
def short(node: NamespaceNode, shortage: str) -> Iterator[None]:
    begin, end = SHORTAGES[shortage]
    node.run(["sh", "-c", begin], check=False)
    try:
        yield
    finally:
        node.run(["sh", "-c", end])


def small(node: Any) -> NamespaceNode:
    """Give the node a /run of its own, which is soon full."""
    node.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=200", "lab", "/run"])
    assert isinstance(node, NamespaceNode)
    return node


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    return small(lab.node("node1"))


@pytest.fixture
def nodes() -> Iterator[dict[str, NamespaceNode]]:
    """A node for each module."""
    with Lab("short", nodes=[Node(f"node{number}") for number in range(len(CHANGES))]) as lab:
        yield {module: small(node) for module, node in zip(CHANGES, lab.nodes)}


def kernel(node: NamespaceNode) -> dict[str, Any]:
    return {name: part for name, part in node.snapshot().items() if name != "files"}


def records(node: NamespaceNode) -> str:
    return node.run(["sh", "-c", "cd /run/kubenode && grep -r '' . | sort"], check=False).stdout


def arm(node: NamespaceNode, module: str = "policy_routes", options: Options | None = None) -> str:
    result = node.module(module, {**(options or CHANGES[module][1]), "checkpoint": SECONDS})
    assert not result["failed"], result
    return str(result["checkpoint_armed"]["id"])


def ask(node: NamespaceNode, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(node.run(["sh", COMMAND, *words]).stdout)
    return answer


def watchdog(node: NamespaceNode) -> int:
    ((_kind, armed),) = json.loads(node.read(f"{FOLDER}/armed.json")).items()
    return int(armed["watchdog"][0])


def is_rolled_back(node: NamespaceNode) -> bool:
    return bool(ask(node, "status")["state"] == "rolled back")


@each_shortage
def test_a_change_that_is_not_confirmed_is_rolled_back_and_the_next_run_is_not_refused(
    nodes: dict[str, NamespaceNode], shortage: str
) -> None:
    before = {}
    with ExitStack() as shortages:
        for module, node in nodes.items():
            former, desired = CHANGES[module]
            assert not node.module(module, former)["failed"]
            before[module] = kernel(node), records(node)
            arm(node, module, desired)
            assert kernel(node) != before[module][0]
            shortages.enter_context(short(node, shortage))
        for module, node in nodes.items():
            until(f"{module} is rolled back", partial(is_rolled_back, node), limit=30)
            told = ask(node, "status")["told"]
            assert kernel(node) == before[module][0]
            again = node.module(module, CHANGES[module][0])
            if shortage == "read-only":  # a record of former values in /run cannot be restored, and is named
                assert re.search(r"Could not be undone: .*/run/kubenode.*: Read-only file system", told)
                assert "because the file system at /run is read-only. Nothing was changed" in again["msg"]
            else:
                assert "Could not be undone" not in told and records(node) == before[module][1]
                assert (again["failed"], again["changed"]) == (False, False), again


@each_shortage
def test_a_change_that_is_confirmed_stays_and_the_next_run_completes_it(node: NamespaceNode, shortage: str) -> None:
    module, (former, desired) = "policy_routes", CHANGES["policy_routes"]
    assert not node.module(module, former)["failed"]
    identity = arm(node)
    changed, watching = kernel(node), watchdog(node)
    with short(node, shortage):
        assert ask(node, "confirm", identity)["state"] == "confirmed"
        until("the watchdog has ended", lambda: not os.path.exists(f"/proc/{watching}"), limit=30)
        result = node.module(module, {**desired, "checkpoint": SECONDS})
        assert (result["failed"], result["changed"]) == (False, True), result
        assert kernel(node) == changed
        again = node.module(module, {**former, "checkpoint": SECONDS})
        assert again["failed"] and re.search(REASONS[shortage], again["msg"]) and "still open" not in again["msg"], again
        assert kernel(node) == changed
    assert not node.module(module, former)["failed"] and not node.exists(FOLDER)


def test_a_change_is_refused_before_it_begins_where_there_is_no_space_for_its_way_back(node: NamespaceNode) -> None:
    before = kernel(node)
    for shortage, reason in REASONS.items():
        with short(node, shortage):
            for module, (desired, _other) in CHANGES.items():
                refused = node.module(module, {**desired, "checkpoint": SECONDS})
                assert re.search(reason, refused["msg"]) and "Nothing was changed" in refused["msg"], refused
        assert kernel(node) == before and not node.exists(FOLDER) and not node.exists("/run/kubenode.lock")


def test_a_watchdog_keeps_run_writable_and_without_it_the_refusal_says_that_the_end_is_not_recorded(node: NamespaceNode) -> None:
    before = kernel(node)
    arm(node)
    read_only = ["mount", "-o", "remount,ro", "/run"]
    assert "busy" in node.run(read_only, check=False).stderr
    os.kill(watchdog(node), signal.SIGKILL)
    until("/run is read-only", lambda: node.run(read_only, check=False).returncode == 0)

    def refusal() -> str:
        return str(node.module("nftables_probe_snat")["msg"])  # which has no file in /run

    until("its time is over", lambda: "Its time is over" in refusal(), limit=30)
    assert "not recorded, because /run is read-only" in refusal() and "mount -o remount,rw /run" in refusal()
    result = ask(node, "rollback")
    assert result["state"] == "rolled back" and "That could not be recorded" in result["told"]
    assert kernel(node) == before
    node.run(["mount", "-o", "remount,rw", "/run"])
    assert ask(node, "rollback")["state"] == "rolled back"
    assert not node.module("policy_routes", {"rules": []})["failed"] and not node.exists(FOLDER)


def test_a_roll_back_that_cannot_begin_is_tried_again_and_the_refusal_names_the_last_error(node: NamespaceNode) -> None:
    before = kernel(node)
    arm(node)
    node.run(["mv", JOURNAL, "/run/journal"])
    until("a try has failed", lambda: "FailedRollBack" in node.read(OUTCOME), limit=30)
    refused = node.module("policy_routes", {"rules": []})["msg"]
    assert "its roll-back failed at " in refused and f"{JOURNAL}: No such file or directory" in refused
    assert "its roll-back failed at " in ask(node, "status")["told"]
    node.run(["mv", "/run/journal", JOURNAL])
    until("it is rolled back", partial(is_rolled_back, node), limit=60)
    assert kernel(node) == before


@each_shortage
def test_absent_undoes_the_change_where_run_is_full_and_otherwise_is_refused_with_the_reason(
    node: NamespaceNode, shortage: str
) -> None:
    before = kernel(node)
    for module, (former, _other) in CHANGES.items():
        desired = former if module == "profile" else {**former, "permanent": False}
        assert not node.module(module, desired)["failed"]
        changed = kernel(node)
        absent = {**desired, "state": "absent"}
        with short(node, shortage):
            result = node.module(module, absent)
            if shortage == "full":
                assert result["failed"] is False and result["changed"], result
            else:  # the lock cannot be made, or a record cannot be removed
                assert re.search(REASONS[shortage], result["msg"]) and "Nothing was changed" in result["msg"], result
                assert kernel(node) == changed
        assert not node.module(module, absent)["failed"] and kernel(node) == before
