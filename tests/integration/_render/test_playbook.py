# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``audit``, on nodes and on a folder of bundles: the reports, and the nodes that could not be audited."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lab import playbook
from lab.playbook import Played

from .._trace import test_cures as scenes
from .._trace.test_playbook import CASE

UNREACHABLE = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
FILES = {"audit.html", "audit.json", "audit.xml", "audit.md", "audit.prom"}


def play(inventory: Path, *arguments: str, **variables: Any) -> Played:
    played = playbook.play(inventory, "kubenode.datapath.audit", *arguments, variables=variables)
    assert "skipping: " not in played.output
    return played


def reports(folder: Path) -> dict[str, str]:
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert {*texts} == FILES
    return texts


@pytest.mark.each_core
def test_nodes_are_audited_there_or_on_the_controller_and_one_that_is_not_reached_is_no_healthy_one(tmp_path: Path) -> None:
    """The node's Python lacks pyroute2, and borrows it for the remedy that adds a rule."""
    with scenes.shared_enis(scenes.STRICT) as (lab, _node):
        inventory = lab.write_inventory(tmp_path / "inventory.json")
        hosts = json.loads(inventory.read_text())
        hosts["all"]["children"]["nodes"]["hosts"]["gone"] = UNREACHABLE
        inventory.write_text(json.dumps(hosts))
        written = []
        for name, more in (("there", {}), ("here", {"audit_on_controller": "true", "audit_print": "false"})):
            result = play(inventory, **more, audit_folder=f"{tmp_path}/{name}")
            assert result.failed and "gone was not audited: " in result.output
            assert result.changed == 0 and re.search(r"^gone .*unreachable=1 +failed=0", result.output, re.MULTILINE)
            assert ("risk rp-strict-asymmetric eth0" in result.output) is (name == "there")
            written.append(reports(tmp_path / name))
    there, here = (json.loads(texts["audit.json"]) for texts in written)
    first, second = ({**each["nodes"]["node1"], "node": {}} for each in (there, here))  # which has the time
    assert first == second and first["findings"][0]["remedy"]
    assert "Failed to connect to the host" in there["nodes"]["gone"]["error"]
    texts = written[0]
    assert "<h1>" in texts["audit.html"] and "gone</b>: " in texts["audit.html"]
    sample = 'kubenode_datapath_finding{id="rp-strict-asymmetric",severity="risk",subject="eth0",node="node1"} 1\n'
    assert sample in texts["audit.prom"] and 'kubenode_datapath_not_audited{node="gone"} 1\n' in texts["audit.prom"]
    suites = {suite.attrib["name"]: suite.attrib for suite in ElementTree.fromstring(texts["audit.xml"])}
    assert int(suites["node1"]["failures"]) >= 1 and suites["gone"]["errors"] == "1"
    assert "<code>eth0</code> | <code>node1</code> |" in texts["audit.md"] and "<code>gone</code>" in texts["audit.md"]


def test_a_node_executes_one_module_again_for_the_program_and_for_pyroute2_which_it_lacks(tmp_path: Path) -> None:
    with scenes.shared_enis(scenes.STRICT) as (lab, _node):
        inventory = lab.write_inventory(tmp_path / "inventory.json")
        there = play(inventory, "-vvv", "--check").well()
        here = play(inventory, "-vvv", audit_on_controller="true").well()
    assert "risk rp-strict-asymmetric eth0" in there.output and "risk rp-strict-asymmetric eth0" in here.output
    assert there.modules == ["datapath_audit"] * 3
    assert [*dict.fromkeys(here.modules)] == ["datapath_info", "datapath_audit"] and here.modules.count("datapath_info") == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            {"audit_checks": "rp-strikt"},
            "audit_checks[0] must be error, risk, note or the id of a check, such as rp-strict-at-boot,",
        ),
        ({"audit_context": {"cluod": "azure"}}, "audit_context.cluod must be left out; known here are cloud, probe_mode, "),
        ({"audit_context": "{cloud: gcp}"}, "audit_context.cloud must be one of azure, aws, alibaba, other; 'gcp' was given."),
        ({"audit_context": {"pod_ranges": ["10.0.0.1/8"]}}, "audit_context.pod_ranges[0] must be a network without host bits"),
    ],
)
def test_wrong_words_are_refused_before_the_first_host(words: dict[str, Any], told: str, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"nodes": {"hosts": {"gone": UNREACHABLE}}}))
    refused = play(inventory, **words)
    assert refused.failed and told in " ".join(refused.output.split()) and "TASK [" not in refused.output


def test_tags_that_select_nothing_are_refused(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"nodes": {"hosts": {"gone": UNREACHABLE}}}))
    refused = play(inventory, "--tags", "nothing")
    assert refused.failed and "--tags nothing selects no task of audit: it has no tags." in refused.output


def test_the_last_lines_count_the_findings_of_all_nodes_and_name_the_page(tmp_path: Path) -> None:
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    for name in ("azure-vnet-leftovers", "eni-loadbalancer"):
        (bundles / name).symlink_to(CASE.parent / name)
    inventory = tmp_path / "inventory.json"
    inventory.write_text('{"nodes": {"hosts": {"unreachable.invalid": {}}}}')
    variables = {"audit_bundles": str(bundles), "audit_folder": f"{tmp_path}/reports"}
    enabled = {"ANSIBLE_CALLBACKS_ENABLED": "kubenode.datapath.report"}
    played = playbook.play(inventory, "kubenode.datapath.audit", variables=variables, environment=enabled).well()
    title = ElementTree.fromstring(
        re.sub(r".*(<h1>.*</h1>).*", r"\1", reports(tmp_path / "reports")["audit.html"], flags=re.S)
    ).text
    last = [line for line in played.output.splitlines() if line][-3:]
    assert last == [
        title,
        "On 2 nodes some checks cannot tell; 0 nodes were not audited.",
        f"Report: {tmp_path}/reports/audit.html",
    ]
    assert played.changed == 0 and " audited " in played.output


def test_a_folder_of_bundles_needs_no_node(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text('{"nodes": {"hosts": {"unreachable.invalid": {}}}}')
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    for name in ("azure-vnet-leftovers", "eni-loadbalancer"):
        (bundles / name).symlink_to(CASE.parent / name)
    variables = {"audit_bundles": str(bundles), "audit_folder": f"{tmp_path}/reports"}
    result = play(inventory, **variables).well()
    nodes = json.loads(reports(tmp_path / "reports")["audit.json"])["nodes"]
    assert {*nodes} == {"azure-vnet-leftovers", "eni-loadbalancer"} and "Cannot tell" in result.output
    refused = play(inventory, audit_bundles=f"{tmp_path}/nowhere")
    assert refused.failed and f"audit_bundles must be a folder with bundles; {tmp_path}/nowhere has none" in refused.output
    (bundles / "broken.tar.gz").write_bytes(b"no archive")
    before = f"{tmp_path}/reports/audit.json"
    result = play(inventory, **{**variables, "audit_folder": f"{tmp_path}/later"}, audit_earlier=before)
    assert result.failed and "broken.tar.gz was not audited: datapath_audit: dump must be" in result.output
    nodes = json.loads(reports(tmp_path / "later")["audit.json"])["nodes"]
    assert "error" in nodes["broken.tar.gz"] and "findings" in nodes["eni-loadbalancer"]
