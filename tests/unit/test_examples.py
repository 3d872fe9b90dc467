# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of examples/: their tools parse them, and what they name exists and is accepted."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")

import yaml

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
MEND, PREFIX = EXAMPLES / "audit/mend.yml", "kubenode.datapath."
CHECKS = "".join(path.read_text() for path in (ROOT / "plugins/module_utils/_audit").glob("*.py"))
OFFERED = {*re.findall(r'Remedy\(\s*"(\w+)"', CHECKS)}  # the modules that checks offer
TERRAFORM = sorted(EXAMPLES.glob("terraform/*/*.tf"))


def test_ansible_accepts_the_syntax_of_the_playbook() -> None:
    ansible = str(Path(sys.executable).parent / "ansible-playbook")
    result = subprocess.run(
        [ansible, "--inventory=localhost,", "--syntax-check", MEND], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_playbook_gives_modules_options_that_they_have() -> None:
    (play,) = yaml.safe_load(MEND.read_text())
    calls = [(name.removeprefix(PREFIX), options) for task in play["tasks"] for name, options in task.items() if PREFIX in name]
    assert {name for name, _options in calls} == {"datapath_audit", *OFFERED}
    for module, options in calls:
        room = "_parts" if module in OFFERED else "_queries"
        part = importlib.import_module(f"ansible_collections.kubenode.datapath.plugins.module_utils.{room}.{module}")
        assert {*options} <= {*part.OPTIONS}


def accepted(profile: str, variables: dict[str, Any]) -> list[str]:
    """Return what the role says against the variables."""
    names = _profiles.unknown(profile, variables)
    return names + _profiles.check(profile, {name[len(profile) + 1 :]: value for name, value in variables.items()}).errors


def test_cluster_api_runs_a_profile_with_variables_that_it_accepts() -> None:
    template = yaml.safe_load((EXAMPLES / "cluster-api/boot/kubeadm-config.yaml").read_text())
    spec = template["spec"]["template"]["spec"]
    files = {file["path"]: yaml.safe_load(file["content"]) for file in spec["files"]}
    (command,) = (command for command in spec["preKubeadmCommands"] if command.startswith("ansible-playbook "))
    *_options, playbook = command.split()
    profile = playbook.removeprefix("kubenode.datapath.")
    assert {*re.findall(r"/etc/\S+", command)} == {*files} and (ROOT / f"playbooks/{profile}.yml").exists()
    assert (
        accepted(profile, files["/etc/kubenode/variables.yml"]) == []
        and "localhost" in files["/etc/kubenode/inventory.yml"]["nodes"]["hosts"]
    )


def test_objects_of_cluster_api_refer_to_one_another() -> None:
    objects = [yaml.safe_load(path.read_text()) for path in EXAMPLES.glob("cluster-api/image/*.yaml")]
    (deployment,) = (entry for entry in objects if entry["kind"] == "MachineDeployment")
    spec = deployment["spec"]["template"]["spec"]
    defined = {(entry["kind"], entry["metadata"]["name"]) for entry in objects}
    for reference in (spec["bootstrap"]["configRef"], spec["infrastructureRef"]):
        assert (reference["kind"], reference["name"]) in defined
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("path", TERRAFORM, ids=lambda path: path.parent.name)
def test_terraform_installs_the_chart_with_values_that_it_accepts(path: Path) -> None:
    hcl2 = pytest.importorskip("hcl2")
    validate = pytest.importorskip("jsonschema").validate
    schema = json.loads((ROOT / "deploy/chart/values.schema.json").read_text())
    with path.open() as file:
        resources = hcl2.load(file)["resource"]
    releases = [release for entry in resources for release in entry.get('"helm_release"', {}).values()]
    assert releases
    for release in releases:
        folder = release["chart"].strip('"').replace("${path.module}", str(path.parent))
        assert Path(folder).resolve() == ROOT / "deploy/chart"
        for name in re.findall(r"/([\w-]+\.yaml)", str(release.get("values"))):
            values = yaml.safe_load((path.parent / name).read_text())
            validate(values, schema)
            assert accepted(values["profile"], values["variables"]) == []


def test_each_file_of_values_is_used() -> None:
    for path in EXAMPLES.glob("terraform/*/*.yaml"):
        assert f'/{path.name}")' in (path.parent / "main.tf").read_text()
