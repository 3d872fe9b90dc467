# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of three nodes at night: what a run refuses before the first host, what it prints, and what it reports."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import installation
import pytest
from ansible.release import __version__ as ansible_version
from sampling import sampled

from lab import Lab, Node, background, collection, playbook
from lab.node import NamespaceNode
from lab.playbook import Played
from unit.schemas import errors

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCHEMA = json.loads((DOCS / "schema/rollout.json").read_text())
PROFILE = {"aks_dual_stack_mode": "runtime", "aks_dual_stack_ipv6": "always"}
TABLE_FILE = "/etc/kubenode/probe-snat.nft"
REPORT = {"ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report"}
# How the lines of a run begin that changes nothing: Ansible's of three batches and the recap, and the callback's of all nodes.
OF_ANSIBLE, OF_THE_CALLBACK = [*["PL"] * 4, *["no"] * 3], ["NO", "no", *["  "] * 5, "3 "]


class Fleet:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.inventory = lab.write_inventory(folder / "inventory.json")

    def node(self, number: int) -> NamespaceNode:
        node: NamespaceNode = self.lab.node(f"node{number}")
        return node

    def play(
        self, *arguments: str, name: str = "aks_dual_stack", environment: dict[str, str] | None = None, **variables: Any
    ) -> Played:
        profile = PROFILE if name == "aks_dual_stack" else {}
        return playbook.play(
            self.inventory,
            f"kubenode.datapath.{name}",
            *arguments,
            variables={**profile, **variables},
            environment=REPORT if environment is None else environment,
        )

    def changed(self) -> list[int]:
        return [number for number in (1, 2, 3) if self.node(number).exists(TABLE_FILE)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Lab("rollout", nodes=[Node(f"node{number}") for number in (1, 2, 3)]) as lab:
        yield Fleet(lab, tmp_path)


def printed(played: Played) -> list[str]:
    return [line for line in played.output.splitlines() if line.strip()]


@pytest.mark.each_core
@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (
            ["-e", "targt=node2", "-e", "kubenode_limits=1", "-e", "aks_dual_stack_stat=absent", "-e", "target=node1"],
            [
                "targt is not a variable of this playbook. Did you mean kubenode_target?",
                "kubenode_limits is not a variable of this playbook.",
                "Did you mean aks_dual_stack_state?",
                "target is not a variable of this playbook. Did you mean kubenode_target?",
            ],
        ),
        (["-e", "kubenode_target=nodez"], ["kubenode_target is nodez, and of the 3 hosts of the inventory none matches."]),
        (["-e", "kubenode_target=node1", "--limit", "node2"], ["none matches within --limit node2."]),
    ],
)
def test_a_run_that_cannot_be_meant_is_an_error_before_the_first_host(
    fleet: Fleet, arguments: list[str], sentences: list[str]
) -> None:
    refused = fleet.play(*arguments)
    said = re.sub(r"\s+", " ", refused.output)
    assert refused.failed and all(sentence in said for sentence in sentences), refused.output
    assert "PLAY [" not in refused.output and fleet.changed() == []


def test_an_inventory_that_could_not_be_read_is_an_error(fleet: Fleet, tmp_path: Path) -> None:
    """As with an API that is down: the plugin nodes gives a warning, and no host."""
    fleet.inventory = tmp_path / "aks.kubenode.yml"
    fleet.inventory.write_text("plugin: kubenode.datapath.nodes\nkubeconfig: /no/kubeconfig\n")
    refused = fleet.play()
    assert refused.failed and "The inventory has no hosts." in re.sub(r"\s+", " ", refused.output), refused.output


def test_the_documented_configuration_makes_a_file_that_is_no_inventory_an_error(fleet: Fleet, tmp_path: Path) -> None:
    page = (DOCS / "getting-started.md").read_text()
    configuration = tmp_path / "ansible.cfg"
    configuration.write_text(page.partition("# ansible.cfg\n")[2].partition("```")[0].replace("   ", ""))
    environment = {"ANSIBLE_CONFIG": str(configuration)}
    assert "3 nodes: 3 changed" in fleet.play(environment=environment).well().output
    fleet.inventory = tmp_path / "inventory.ini"
    fleet.inventory.write_text("[nodes\nnode1\n")
    for name in ("aks_dual_stack", "audit", "trace"):
        refused = fleet.play(name=name, environment=environment)
        assert refused.failed and "PLAY [" not in refused.output and "inventory.ini" in refused.output, refused.output


@pytest.mark.each_core
def test_the_first_line_says_what_a_run_will_touch_and_equal_nodes_are_printed_once(fleet: Fleet) -> None:
    played = fleet.play(aks_dual_stack_state="present").well()
    assert "3 of 3 nodes (pattern nodes), batches 1, 25 %, present]" in printed(played)[0]
    assert "skipp" not in played.output.replace("skipped=0", "")
    assert re.search(r"^node1, node2, node3  changed       nftables_probe_snat  ", played.output, re.MULTILINE)
    converged = fleet.play(environment={**REPORT, "ANSIBLE_DISPLAY_OK_HOSTS": "false"}).well()
    assert [line[:2] for line in printed(converged)] == OF_ANSIBLE + OF_THE_CALLBACK, converged.output
    again = fleet.play("--check").well()
    assert "one batch, because of check mode, present unless the inventory says otherwise]" in printed(again)[0]
    assert again.output.count("PLAY [") == 1 and len(printed(again)) < 30
    assert re.search(r"^node1, node2, node3  no change ", again.output, re.MULTILINE)
    assert [line for line in printed(again) if line.startswith("TASK [Check")] == [
        line for line in printed(again) if "TASK [Check" in line
    ]


def occupy(node: NamespaceNode) -> None:
    """Put an operator's file at the module's path, so that the module refuses."""
    node.write(TABLE_FILE, "# foreign\n")


def test_three_nodes_may_lose_one(fleet: Fleet) -> None:
    """Ansible ends a run in which all nodes of a batch are lost, so the second batch has two nodes."""
    occupy(fleet.node(2))
    played = fleet.play(kubenode_max_failed_percentage="34")
    assert played.failed and fleet.changed() == [1, 2, 3]
    assert "3 nodes: 1 failed, 2 changed" in played.output and "batches 1, 2," in printed(played)[0], played.output
    refused = fleet.play(kubenode_max_failed_percentage="34", kubenode_batches="1")
    assert "batch 2 of kubenode_batches has one node" in re.sub(r"\s+", " ", refused.output)


@pytest.mark.each_core
@pytest.mark.parametrize("callback", sampled(["json", "jsonl"], lambda callback: callback == "json"))
def test_a_program_that_reads_stdout_gets_nothing_else(fleet: Fleet, callback: str) -> None:
    """With a stdout callback for programs, the report is printed to stderr."""
    command = [playbook.PROGRAM, "-i", str(fleet.inventory), "kubenode.datapath.aks_dual_stack", "--check", "--diff"]
    trees = {"ANSIBLE_COLLECTIONS_PATH": collection.path(installation.collections())}
    environment = {**REPORT, **trees, "ANSIBLE_STDOUT_CALLBACK": f"ansible.posix.{callback}"}
    result = playbook.streams([*command, "-e", json.dumps(PROFILE)], environment)
    events = [json.loads(line) for line in (result.stdout.splitlines() if callback == "jsonl" else [result.stdout])]
    assert events[-1]["stats"]["node1"]["changed"] == 1 and "3 nodes: 3 would change" in result.stderr
    assert "immediate: table ip6 azureSLBProbe" in result.stdout and "+++ after" not in result.stderr


def test_a_page_that_the_controller_writes_is_no_change_of_the_node(fleet: Fleet) -> None:
    report = fleet.folder / "report.json"
    fleet.play(name="audit", audit_folder=str(fleet.folder / "reports"), kubenode_report=str(report)).well()
    nodes = json.loads(report.read_text())["nodes"]
    assert {node["state"] for node in nodes.values()} == {"ok"} and not any(node["changes"] for node in nodes.values())
    assert (fleet.folder / "reports/audit.html").exists()


def test_the_report_says_what_was_seen_and_has_a_schema(fleet: Fleet) -> None:
    report = fleet.folder / "reports/rollout.json"
    fleet.play("--limit", "node1", kubenode_report=str(report), aks_dual_stack_audit="true").well()
    written = json.loads(report.read_text())
    assert [*errors(written, SCHEMA)] == []
    node = written["nodes"]["node1"]
    assert node["kernel"] == platform.release() and re.match(r"\d", node["nft"]) and node["profile"] == "aks_dual_stack"
    assert node["variables"]["ipv6"] == "always" and node["variables"]["state"] == "present"
    assert {*node["audit"]["before"]} >= {"findings", "passed"} and written["ansible"] == ansible_version
    assert node["proof"] == ["observed again after the change: nothing is left to change"], "there was nothing to mend"
    assert {path.suffix for path in report.parent.iterdir()} == {".json", ".xml", ".md", ".html"}
    assert 'testsuite name="node1"' in report.with_suffix(".xml").read_text()


def test_a_long_task_says_what_it_waits_for(fleet: Fleet) -> None:
    """Another run holds the lock of a node, so that the node's module waits."""
    node = fleet.node(2)
    node.run(["sh", "-c", "umask 077; : > /run/kubenode.lock"])
    with background.shell(node, "flock /run/kubenode.lock sleep 26"):
        played = fleet.play(kubenode_batches="3").well()
    line = r"^node2: .*Apply or remove the profile, [12]0 s: waits for another run on this node, which holds /run/kubenode.lock$"
    assert re.search(line, played.output, re.MULTILINE), played.output
    assert fleet.changed() == [1, 2, 3]


@pytest.mark.each_core
def test_a_diff_has_an_entry_for_each_object_and_is_printed_once_for_equal_nodes(fleet: Fleet) -> None:
    predicted = fleet.play("--check", "--diff").well()
    headers = re.findall(r"^\+\+\+ after: (.*)$", predicted.output, re.MULTILINE)
    assert headers[:2] == ["immediate: table ip6 azureSLBProbe", f"permanent: {TABLE_FILE}"]
    assert len({*headers}) == len(headers) == predicted.output.count("\nnode1, node2, node3:\n")
    assert "would change table ip6 azureSLBProbe" in predicted.output and "3 nodes: 3 would change" in predicted.output
    assert "ipv6_nftables.service.d" not in predicted.output, "it neither exists nor is wanted"
    nothing = fleet.play("--check", "--diff", aks_dual_stack_state="absent").well()
    assert "as desired" not in nothing.output and "nftables_probe_snat (absent): nothing to do" in nothing.output


def test_a_trace_without_a_packet_says_what_to_set(fleet: Fleet) -> None:
    refused = fleet.play(name="trace", trace_on_controller="true")
    said = re.sub(r"\s+", " ", refused.output)
    assert refused.failed and "trace_packet must be a packet, such as 'tcp 10.0.0.1:40000" in said
    assert "it is not set for node3." in said and "Read the node" not in said


def test_a_trace_takes_its_packet_from_the_inventory(fleet: Fleet) -> None:
    variables = fleet.inventory.parent / "group_vars/nodes.yml"
    variables.parent.mkdir()
    variables.write_text("trace_packet: tcp 10.0.0.1:40000 > 10.96.0.1:443\n")
    assert fleet.play(name="trace").well().output.count("tcp 10.0.0.1:40000 > 10.96.0.1:443") >= 3


@pytest.mark.each_core
def test_an_encrypted_variable_is_applied_and_not_reported(fleet: Fleet) -> None:
    password, secret, report = (fleet.folder / name for name in ("password", "extra.yml", "report.json"))
    password.write_text("open sesame\n")
    opened = ["--vault-password-file", str(password)]
    vault = Path(playbook.PROGRAM).with_name("ansible-vault")
    encrypted = playbook.streams([str(vault), "encrypt_string", *opened, "present", "--name", "aks_dual_stack_state"])
    secret.write_text(encrypted.stdout)
    fleet.play("--limit", "node1", *opened, "-e", f"@{secret}", kubenode_report=str(report)).well()
    variables = json.loads(report.read_text())["nodes"]["node1"]["variables"]
    assert fleet.changed() == [1] and variables["ipv6"] == "always" and "state" not in variables
