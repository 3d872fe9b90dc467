# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of deploy/ that need no node: what they name exists, and their tools accept them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("yaml")

import yaml

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")


def test_user_data_has_the_settings_of_the_service_and_its_profile_exists() -> None:
    settings = variables((DEPLOY / "pull/pull.env").read_text())
    text = (DEPLOY / "cloud-init/user-data").read_text()
    assert text.startswith("#cloud-config\n")  # else cloud-init ignores the file
    files = {file["path"]: file["content"] for file in yaml.safe_load(text)["write_files"]}
    assert variables(files["/etc/kubenode/pull.env"]) == settings
    assert (ROOT / "playbooks" / f"{settings['PROFILE']}.yml").exists()
    prefixes = {name.startswith(settings["PROFILE"]) for name in yaml.safe_load(files["/etc/kubenode/variables.yml"])}
    assert prefixes == {True}


def test_each_package_of_the_execution_environment_has_a_hash() -> None:
    folder = DEPLOY / "execution-environment"
    lines = [line for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    pins = re.findall(r"(?m)^([a-z0-9-]+)==[\w.]+ \\$(?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?$)+", "\n".join(lines))
    assert sum(not line.startswith("    --hash=sha256:") for line in lines) == len(pins)
    texts = [(folder / "requirements.in").read_text(), (ROOT / "meta/requirements.txt").read_text()]
    assert {*re.findall(r"(?m)^[a-z][a-z0-9-]+", "\n".join(texts))} <= {*pins}


def test_ansible_builder_makes_a_context_of_the_execution_environment(tmp_path: Path) -> None:
    pytest.importorskip("ansible_builder")
    definition = tmp_path / "definition/execution-environment.yml"
    shutil.copytree(DEPLOY / "execution-environment", definition.parent)
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    artifact = f"{galaxy['namespace']}-{galaxy['name']}-{galaxy['version']}.tar.gz"  # as ansible-galaxy names it
    (definition.parent / artifact).touch()
    context = tmp_path / "context"
    command = [str(Path(sys.executable).parent / "ansible-builder"), "create", "--file", str(definition)]
    subprocess.run([*command, "--context", str(context)], check=True, capture_output=True)
    [collection] = yaml.safe_load((context / "_build/requirements.yml").read_text())["collections"]
    assert collection["type"] == "file" and Path(collection["name"]).name == artifact
    assert (context / "_build" / collection["name"]).exists()
    base = yaml.safe_load(definition.read_text())["images"]["base_image"]["name"]
    text = (context / "Containerfile").read_text()
    assert f'EE_BASE_IMAGE="{base}"' in text
    lines = [line for line in text.splitlines() if "pip install" in line]
    assert "--require-hashes" in lines[0] and (context / "_build/configs/requirements.txt").exists()
    # What ansible-builder itself installs later is there already: see requirements.in.
    own = {word.partition("==")[0] for line in lines[1:] for word in shlex.split(line.partition("--no-cache-dir")[2])}
    packages = {*re.findall(r"(?m)^[a-z][a-z0-9-]+", (DEPLOY / "execution-environment/requirements.in").read_text())}
    assert own - {"$ANSIBLE_INSTALL_REFS"} <= packages
