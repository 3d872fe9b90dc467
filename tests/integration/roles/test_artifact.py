# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as a user gets it: built, installed by ansible-galaxy, documented, and run by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lab import Lab, collection

TOOLS = Path(sys.executable).parent
MODULES = sorted(path.stem for path in (collection.CHECKOUT / "plugins/modules").glob("[!_]*.py"))
# The contents of an installed collection; everything else stays in the repository.
FOLDERS = {"changelogs", "docs", "meta", "playbooks", "plugins", "roles"}
FILES = {
    "CHANGELOG.md",
    "CHANGELOG.rst",
    ".ansible-lint",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "FILES.json",
    "LICENSE",
    "MANIFEST.json",
    "README.md",
}


def ansible(tool: str, *arguments: str, **environment: str) -> str:
    command = [str(TOOLS / tool), *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, cwd=collection.CHECKOUT, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collection.build(tmp_path_factory.mktemp("artifact"))


@pytest.fixture(scope="module")
def installed(artifact: Path) -> str:
    """The folder of collections that it was installed to."""
    folder = str(artifact.parent / "collections")
    ansible("ansible-galaxy", "collection", "install", "--offline", "--collections-path", folder, str(artifact))
    return folder


def test_nothing_is_shipped_that_a_user_has_no_use_for(artifact: Path) -> None:
    with tarfile.open(artifact) as packed:
        names = {member.name.partition("/")[0] for member in packed.getmembers()}
    assert names <= FOLDERS | FILES, names - FOLDERS - FILES


def test_each_module_is_documented(installed: str) -> None:
    names = [f"kubenode.datapath.{module}" for module in MODULES]
    text = ansible("ansible-doc", "--type", "module", *names, ANSIBLE_COLLECTIONS_PATH=installed, NO_COLOR="1")
    for name, page in zip(names, re.split("^> MODULE ", text, flags=re.MULTILINE)[1:], strict=True):
        assert page.startswith(f"{name} "), page
        assert all(part in page for part in ("ATTRIBUTES", "EXAMPLES", "RETURN VALUES")), page


def test_a_playbook_runs_by_its_name(installed: str, lab: Lab, tmp_path: Path) -> None:
    lab.metadata.start()
    inventory = lab.write_inventory(tmp_path / "inventory.json")
    environment = {**lab.ansible_environment(), "ANSIBLE_COLLECTIONS_PATH": installed}
    arguments = ["-i", str(inventory), "--limit", "node1", "-e", "aks_dual_stack_mode=runtime"]
    ansible("ansible-playbook", "kubenode.datapath.aks_dual_stack", *arguments, **environment)
    assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)
