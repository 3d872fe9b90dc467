# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Features that all playbooks share, as an operator of a fleet sees them: batches, limits, checks by packets, and the report."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sampling import sampled

from lab import Lab, Node, playbook
from lab.node import POD_PORT, NamespaceNode

PLAYBOOK = "kubenode.datapath.aks_dual_stack"
TABLE_FILE = "/etc/kubenode/probe-snat.nft"
FLEET = 8


class Run(NamedTuple):
    """A playbook run: what it printed, the lines of the nodes, the JSON report, and Ansible's exit status."""

    output: str
    lines: dict[str, str]
    report: dict[str, Any]
    status: int

    def states(self) -> dict[str, str]:
        return {name: node["state"] for name, node in self.report["nodes"].items()}

    def trouble(self, name: str) -> str:
        said: str = self.report["nodes"][name]["trouble"]
        assert said and said in self.lines[name]
        return said


class Fleet:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.report = folder / "report.json"
        self._folder = folder
        self._inventory = lab.write_inventory(folder / "inventory.json")

    def node(self, number: int) -> NamespaceNode:
        node: NamespaceNode = self.lab.node(f"node{number}")
        return node

    def pid_file(self, number: int) -> Path:
        """The file without which no connection enters the node; from now on the test writes it."""
        path = self._folder / f"node{number}.pid"
        path.write_text(str(self.node(number).pid))
        self._tell(number, lab_node_pid_file=str(path))
        return path

    def lose_python(self, number: int) -> None:
        """Name a Python in the inventory that the node does not have."""
        self._tell(number, ansible_python_interpreter="/no/python")

    def _tell(self, number: int, **variables: str) -> None:
        """Set variables of the node in the inventory."""
        playbook.tell(self._inventory, f"node{number}", **variables)

    def is_changed(self, number: int) -> bool:
        return self.node(number).exists(TABLE_FILE)

    def play(self, *arguments: str, environment: dict[str, str] | None = None, **variables: Any) -> Run:
        """Run the playbook with a mode: a namespace node has no systemd of its own, and would be taken for an image."""
        profile = {"aks_dual_stack_mode": "runtime", "aks_dual_stack_ipv6": "always"}
        played = playbook.play(
            self._inventory,
            PLAYBOOK,
            *arguments,
            variables={"kubenode_report": str(self.report), **profile, **variables},
            environment={"ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report", **(environment or {})},
        )
        _ansibles, _banner, told = played.output.partition("NODES ***")
        lines = {name: line for line in re.findall(r"^node\d+.*", told, re.M) for name in line.partition("  ")[0].split(", ")}
        report = json.loads(self.report.read_text()) if self.report.exists() else {}
        return Run(played.output, lines, report, played.status)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Four nodes, of which the first has a pod."""
    nodes = [Node("node1", pods=["pod1"]), *(Node(f"node{number}") for number in (2, 3, 4))]
    with Lab("fleet", nodes=nodes) as lab:
        yield Fleet(lab, tmp_path)


def occupy(node: NamespaceNode) -> None:
    """Puts an operator's file at the module's path, so that the module refuses."""
    node.write(TABLE_FILE, "# foreign\n")


@contextlib.contextmanager
def watched(report: Path) -> Iterator[list[dict[str, Any]]]:
    """Fills a list with the report's states during the block, and at its end."""
    seen: list[dict[str, Any]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            if report.exists():
                seen.append(json.loads(report.read_text()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
        seen.append(json.loads(report.read_text()))


@pytest.mark.each_core
def test_each_node_has_its_line_and_its_place_in_the_report(fleet: Fleet) -> None:
    played = fleet.play()
    assert played.status == 0, played.output
    assert set(played.states().values()) == {"changed"} and played.report["totals"] == {"changed": 4}
    line = r"node1, node2, node3, node4  changed       nftables_probe_snat  \d+\.\d to \d+\.\d s"
    assert re.fullmatch(line, played.lines["node3"]), played.output
    (change,) = played.report["nodes"]["node1"]["changes"]
    assert change["action"] == "kubenode.datapath.profile"
    assert "azureSLBProbe" in change["result"]["nftables_probe_snat"]["ruleset"]
    again = fleet.play("--check", kubenode_report=f"{fleet.report.parent}/reports/")
    assert "4 nodes: 4 no change (check mode: nothing was changed)" in again.output
    (path,) = (fleet.report.parent / "reports").glob("*.json")
    assert path.name.startswith("aks_dual_stack-") and json.loads(path.read_text())["check_mode"]


def test_a_broken_node_stops_the_rollout_at_the_set_limit(fleet: Fleet) -> None:
    """The node's batch is completed. A limit that is not reached is in test_rollout.py."""
    occupy(fleet.node(2))
    untouched = fleet.node(4).snapshot()
    played = fleet.play(kubenode_batches="[3, 1]", kubenode_max_failed_percentage="24")
    assert played.states() == {"node1": "changed", "node2": "failed", "node3": "changed", "node4": "not reached"}, played.output
    assert played.status == 2
    assert TABLE_FILE in played.trouble("node2")
    assert played.report["nodes"]["node2"]["action"] == "kubenode.datapath.profile"
    assert "1 of 4 nodes are lost, and kubenode_max_failed_percentage is 24" in played.output
    assert fleet.node(4).snapshot() == untouched


def test_nodes_that_are_away_count_as_lost_and_have_their_lines(fleet: Fleet) -> None:
    """One node is away from the start, and one is the canary, after which Ansible begins no other play."""
    fleet.pid_file(2).unlink()
    played = fleet.play(kubenode_batches=2)
    assert [node["state"] for node in played.report["nodes"].values()] == ["changed", "unreachable", *["not reached"] * 2]
    assert played.status == 4 and "no pid in" in played.trouble("node2")
    fleet.pid_file(3).unlink()
    played = fleet.play("--limit", "node3,node4")
    assert played.states() == {"node3": "unreachable", "node4": "not reached"}, played.output
    assert "Apply or remove the profile" in played.trouble("node3")
    assert not fleet.is_changed(3) and not fleet.is_changed(4)


@pytest.mark.parametrize("before", sampled([True, "True", "on"], lambda before: before == "on"))
def test_a_node_that_a_check_refuses_before_is_not_changed(fleet: Fleet, before: object) -> None:
    check = {"address": fleet.lab.pod("pod1").address, "port": 1, "from": "node2", "before": before}
    played = fleet.play(kubenode_checks=[check])
    assert played.states()["node1"] == "failed" and played.report["totals"] == {"failed": 1, "not reached": 3}
    assert f"{check['address']} port 1 accepts no connection from node2. Nothing was changed." in played.trouble("node1")
    assert not fleet.is_changed(1)


def test_a_check_without_an_answer_before_the_change_says_so_and_what_the_change_did(fleet: Fleet) -> None:
    """It was printed as ok."""
    check = {"address": fleet.lab.pod("pod1").address, "port": 1, "from": "node2"}
    played = fleet.play("--limit", "node1", kubenode_checks=[check], kubenode_checks_timeout=1)
    assert '"msg": "no answer before the change"' in played.output
    assert "accepts no connection from node2, nor did it before the change." in played.trouble("node1")


def test_a_check_that_could_not_be_made_is_an_error_and_not_taken_for_silence(fleet: Fleet) -> None:
    """The host that is to connect has no Python."""
    check = {"address": fleet.lab.pod("pod1").address, "port": POD_PORT, "from": "node2"}
    fleet.lose_python(2)
    played = fleet.play("--limit", "node1", kubenode_checks=[check])
    assert "'/no/python' was not found" in played.output and "accepts no connection" not in played.output
    assert played.states() == {"node1": "failed"} and not fleet.is_changed(1)


def test_what_answered_before_must_answer_after(fleet: Fleet) -> None:
    """The operator gives another node's address as the load balancer's, so the pod's replies to it end on the node."""
    check = {"address": fleet.lab.pod("pod1").address, "port": POD_PORT, "from": "node2"}
    astray = [{"source": fleet.node(2).address, "translated": fleet.node(1).address}]
    checked = fleet.play(
        "--check", kubenode_checks=json.dumps([check]), aks_dual_stack_probes=astray, kubenode_checks_timeout="2"
    )
    assert checked.status == 0 and not fleet.is_changed(1)
    played = fleet.play(kubenode_checks=json.dumps([check]), aks_dual_stack_probes=astray, kubenode_checks_timeout="2")
    assert played.report["totals"] == {"failed": 1, "not reached": 3}, played.output
    assert "accepts no connection from node2, and did before the change." in played.trouble("node1")
    told = played.report["nodes"]["node1"]["stats"]["checks"]
    assert told == {"before": {"answered": [check], "silent": []}, "after": {"answered": [], "silent": [check]}}
    assert fleet.is_changed(1) and not fleet.is_changed(2)
    cured = fleet.play(kubenode_checks=[check, {**check, "from": "node4"}], kubenode_batches=4)
    assert set(cured.states().values()) == {"changed"} and cured.status == 0, cured.output


@pytest.mark.each_core
def test_a_rehearsal_sends_the_checks_of_the_node_itself(fleet: Fleet) -> None:
    fleet.node(1).run(["ip", "-6", "route", "add", "unreachable", "2001:db8:99::/64"])
    checks = [{"address": fleet.node(2).address, "port": 9, "from": "node2"}, {"address": "2001:db8:99::1", "port": 443}]
    played = fleet.play("--check", "--limit", "node1", aks_dual_stack_rehearse=True, kubenode_checks=checks)
    assert played.status == 0, played.output
    said = re.sub(r"\s+", " ", played.output)
    assert "Without the changes, packets[0] does not arrive: " in said and "packets[1]" not in said and "With them, too: " in said


SETTINGS = ["ANSIBLE_ANY_ERRORS_FATAL", "ANSIBLE_STRATEGY"]


@pytest.mark.parametrize("setting", sampled(SETTINGS, lambda setting: setting == SETTINGS[0]))
def test_lines_are_true_under_other_settings(fleet: Fleet, setting: str) -> None:
    """any_errors_fatal stops the other nodes of the batch immediately; with the strategy free, no node waits for another."""
    occupy(fleet.node(1))
    played = fleet.play(kubenode_batches=2, environment={setting: "free" if setting == "ANSIBLE_STRATEGY" else "true"})
    other = "changed" if setting == "ANSIBLE_STRATEGY" else "stopped"
    assert [node["state"] for node in played.report["nodes"].values()] == ["failed", other, *["not reached"] * 2]
    assert not fleet.is_changed(3)


PLAY = """- hosts: all
  connection: local
  gather_facts: false
  any_errors_fatal: true
  force_handlers: true
  vars: {kubenode_report: REPORT}
  tasks:
    - block:
        - name: Break
          ansible.builtin.fail: {msg: disk is full}
          when: inventory_hostname == 'node1'
      HOW
    - name: Never reached
      ansible.builtin.debug:
"""
CLEANUP = "always: [{ansible.builtin.debug: {msg: cleanup}}]"
RESCUE = "rescue: [{ansible.builtin.debug: {msg: cured}}]"


@pytest.mark.parametrize(
    ("how", "states"), [(CLEANUP, {"node1": "failed", "node2": "stopped"}), (RESCUE, {"node1": "ok", "node2": "ok"})]
)
def test_a_node_that_cleans_up_has_failed_all_the_same(tmp_path: Path, how: str, states: dict[str, str]) -> None:
    report = run_own(tmp_path, PLAY.replace("HOW", how), "node1,node2,")
    assert {name: node["state"] for name, node in report["nodes"].items()} == states
    assert report["nodes"]["node1"]["trouble"] == ("Break: disk is full" if how == CLEANUP else "")


@pytest.mark.parametrize("suffix", sampled([".md", ".json", ".xml"], lambda suffix: suffix == ".md"))
def test_no_other_format_replaces_the_file_of_the_report(tmp_path: Path, suffix: str) -> None:
    name = f"run-1.5{suffix}"
    text = "- {hosts: all, gather_facts: false, vars: {kubenode_report: REPORT}, tasks: [{ansible.builtin.debug: {msg: go}}]}"
    assert run_own(tmp_path, text, "node1,", name=name)["totals"] == {"ok": 1}
    other_files = {path.name for path in tmp_path.glob("run-*")} - {name}
    assert other_files == {f"{name.removesuffix('.json')}{other}" for other in (".xml", ".md", ".html")}


def test_of_a_loop_the_items_that_failed_say_why(tmp_path: Path) -> None:
    loop = "ansible.builtin.fail: {msg: 'disk {{ item }} is full'}, loop: [a, b], when: item == 'b'"
    text = f"- {{hosts: all, gather_facts: false, vars: {{kubenode_report: REPORT}}, tasks: [{{name: Break, {loop}}}]}}"
    trouble = run_own(tmp_path, text, "node1,")["nodes"]["node1"]["trouble"]
    assert trouble.startswith("Break: ") and "disk b is full" in trouble


def test_a_run_that_matches_no_node_ends_its_report(tmp_path: Path) -> None:
    report = run_own(tmp_path, PLAY.replace("HOW", CLEANUP).replace("hosts: all", "hosts: absent"), "node1,")
    assert report["nodes"] == {} and report["ended"]


@pytest.mark.parametrize("profiles", ["aks_dual_stack,cilium-migration", ""])
def test_an_image_is_not_built_without_a_profile_that_was_asked_for(tmp_path: Path, profiles: str) -> None:
    (tmp_path / "inventory").write_text("[nodes]\nnode1 ansible_connection=local\n")
    template = Path(__file__).parents[3] / "packer/node-image.yml"
    built = playbook.play(tmp_path / "inventory", template, "--tags", profiles)
    assert built.failed and "known are aks_dual_stack, eni_policy_routing, " in built.output


TAGGED = """- hosts: all
  connection: local
  gather_facts: true
  gather_subset: ["!all", "!min"]
  vars: {kubenode_report: REPORT, ansible_python_interpreter: PYTHON}
  tasks:
    - {ansible.builtin.debug: {msg: begin}, tags: [always]}
    - {ansible.builtin.debug: {msg: work}, tags: [work], when: inventory_hostname == 'node1'}
"""


@pytest.mark.parametrize(
    ("selection", "state"),
    [
        ((), "ok"),
        (("--tags", "work"), "ok"),
        (("--tags", "foo"), "no task ran"),
        (("--skip-tags", "work"), "no task ran"),
    ],
    ids=["all", "its tag", "another tag", "without its tag"],
)
def test_a_node_on_which_no_task_ran_is_not_ok(tmp_path: Path, selection: Sequence[str], state: str) -> None:
    """A task that its condition skips counts as a result of the node; a task that the user has not selected does not."""
    report = run_own(tmp_path, TAGGED.replace("PYTHON", sys.executable), "node1,node2,", *selection)
    assert {name: node["state"] for name, node in report["nodes"].items()} == {"node1": state, "node2": state}
    assert report["totals"] == {state: 2}


def run_own(folder: Path, text: str, inventory: str, *arguments: str, name: str = "report.json") -> dict[str, Any]:
    """The report of an operator's own play. name: of its file."""
    path = folder / "play.yml"
    path.write_text(text.replace("REPORT", str(folder / name)))
    enabled = {"ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report"}
    playbook.play(Path(inventory), str(path), *arguments, environment=enabled)
    report: dict[str, Any] = json.loads((folder / name).read_text())
    return report


def test_a_fleet_converges_after_one_broken_node_stopped_its_rollout(tmp_path: Path) -> None:
    with Lab("fleet", nodes=[Node(f"node{number}") for number in range(1, FLEET + 1)]) as lab:
        fleet = Fleet(lab, tmp_path)
        occupy(fleet.node(5))
        with watched(fleet.report) as seen:
            stopped = fleet.play(kubenode_batches="[1, 50%]")
        # The file is written once in a second, so a fast machine may not show a batch while it runs.
        assert any({"changed", "not reached"} <= {*one["totals"]} for one in seen if one["ended"] is None)
        ended = [one["ended"] is not None for one in seen]
        assert ended == sorted(ended) and not ended[0]
        assert stopped.report["totals"] == {"failed": 1, "not reached": 3, "changed": 4}, stopped.output
        assert {*stopped.lines} == {node.name for node in lab.nodes}
        assert re.fullmatch(r"node6, node7, node8  not reached", stopped.lines["node6"]) and TABLE_FILE in stopped.lines["node5"]
        assert not [number for number in range(6, FLEET + 1) if fleet.is_changed(number)]
        fleet.node(5).remove(TABLE_FILE)
        played = fleet.play(kubenode_batches="[1, 20]")
        assert played.report["totals"] == {"changed": 4, "ok": 4} and played.status == 0, played.output
        assert all(fleet.is_changed(number) for number in range(1, FLEET + 1))
