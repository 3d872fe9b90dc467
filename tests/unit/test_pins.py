# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions that tests/installation.py pins."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import installation

ROOT = Path(__file__).resolve().parents[2]


def test_renovate_follows_each_pin() -> None:
    pins = {*installation.TOOLS, *installation.SITE, *installation.IMPORTER, *installation.PROBING, *installation.OLDEST_TOOLS}
    pins |= {installation.ACTIONLINT, installation.COLLECTIONS_FROM}
    pins |= {f"ansible-core=={core}" for core in installation.CORES | installation.NEXT_CORE}
    source = (ROOT / "tests/installation.py").read_text()
    followed = set()
    for manager in json.loads((ROOT / "renovate.json").read_text())["customManagers"]:
        if manager["datasourceTemplate"] != "pypi":
            continue
        for match in re.finditer(manager["matchStrings"][0].replace("(?<", "(?P<"), source):
            name = match.groupdict().get("depName") or manager["depNameTemplate"]
            followed.add(f"{name}=={match['currentValue']}")
    assert followed == pins


def test_the_command_is_built_with_the_pyroute2_of_the_tests() -> None:
    (requirement,) = re.findall(r'^requires = \["(.*)"\]$', (ROOT / "deploy/cli/pyproject.toml").read_text(), re.MULTILINE)
    assert requirement in installation.TOOLS and requirement.startswith("pyroute2==")


def test_renovate_pins_actions_and_images_by_digest() -> None:
    """A tag moves, and what was reviewed is no longer what runs."""
    workflows = (ROOT / ".github/workflows").glob("*.yml")
    for line in (line for path in workflows for line in re.findall(r"uses: (.*)", path.read_text())):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line), line
    settings = json.loads((ROOT / "renovate.json").read_text())
    assert {"helpers:pinGitHubActionDigests", "docker:pinDigests"} <= {*settings["extends"]}
    [manager] = [one for one in settings["customManagers"] if one["datasourceTemplate"] == "docker"]
    [path] = [pattern.strip("/^$").replace("\\", "") for pattern in manager["managerFilePatterns"]]
    pattern = manager["matchStrings"][0].replace("(?<", "(?P<")
    text = (ROOT / path).read_text()
    [found] = re.finditer(pattern, text)
    assert f"{found['depName']}:{found['currentValue']}" in text
    digest = f"sha256:{'0' * 64}"
    unpinned = found[0].partition("@")[0]
    [pinned] = re.finditer(pattern, text.replace(found[0], f"{unpinned}@{digest}"))
    assert (pinned["currentValue"], pinned["currentDigest"]) == (found["currentValue"], digest)


VERSIONS = re.compile(
    r"(?:TAG=v|newTag: |VERSION=|kubenode-(?:agent|datapath)[:-]|^(?:appV|v)ersion: \"?)(\d+\.\d+\.\d+)", re.MULTILINE
)


def test_each_file_that_names_the_version_names_that_of_galaxy() -> None:
    """A release sets the version in all of them; this test lists those that it forgot."""
    names = subprocess.run(
        ["git", "ls-files", "deploy", "docs/*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    files = {name: (ROOT / name).read_text() for name in names.split() if (ROOT / name).is_file()}
    mentions = {name: set(VERSIONS.findall(text)) for name, text in files.items()}
    assert "deploy/pull/pull.env" in {name for name, versions in mentions.items() if versions}
    stale = {name: versions for name, versions in mentions.items() if versions - {installation.version()}}
    assert not stale
