# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as it is released and as a user gets it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import installation
import pytest
import toolchain

from lab import Lab, collection

# The artefacts of a release; `make release` builds them


pytest.importorskip("cyclonedx")  # of the SBOM; the environments of other cores have no tools of a release

from generators import profile_facts
from publishing import release

MOMENT = 1_700_000_000
VERSION = installation.version()
CHANGELOG, COMPLETE = "changelogs/changelog.yaml", f"releases:\n  {VERSION}:\n    changes: {{}}\n"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "sources"
    toolchain.copy_sources(folder)
    return folder


@pytest.fixture(scope="module")
def built(sources: Path) -> Path:
    folder = sources.with_name("built")
    release.build(sources, folder, VERSION, MOMENT)
    return folder


def test_another_copy_is_built_to_the_same_bytes(sources: Path, built: Path) -> None:
    """Neither the times of files nor the order in which a folder lists them reaches an artefact."""
    other = sources.with_name("other")
    for path in sorted(sources.rglob("*"), reverse=True):
        if path.is_file() and ".git" not in path.parts:
            (other / path.relative_to(sources)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, other / path.relative_to(sources))
            shutil.copymode(path, other / path.relative_to(sources))
    again = sources.with_name("again")
    release.build(other, again, VERSION, MOMENT)
    assert release.unequal(built, again) == []


def test_an_artefact_that_differs_is_named(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "again")
    (tmp_path / "again" / release.SUMS).write_text("")
    (tmp_path / "again/kubenode-datapath.pyz").unlink()
    assert release.unequal(built, tmp_path / "again") == [release.SUMS, "kubenode-datapath.pyz"]


def test_the_checksums_are_those_of_all_artefacts(built: Path) -> None:
    result = subprocess.run(["sha256sum", "--check", "--strict", release.SUMS], cwd=built, check=False, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == len(list(built.iterdir())) - 1


def test_galaxy_installs_and_verifies_the_collection(built: Path, tmp_path: Path) -> None:
    galaxy = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection"]
    archive = str(built / f"kubenode-datapath-{VERSION}.tar.gz")
    # Without PYTHONPATH, which leads to the checkout.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    subprocess.run([*galaxy, "install", "--offline", archive], env=environment, check=True, stdout=subprocess.DEVNULL)
    command = [*galaxy, "verify", "--offline", "kubenode.datapath"]
    result = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert "Successfully verified" in result.stdout, result.stdout + result.stderr


def test_the_wheel_and_the_program_say_the_version(built: Path) -> None:
    program = [sys.executable, str(built / "kubenode-datapath.pyz"), "--version"]
    assert subprocess.run(program, check=True, capture_output=True, text=True).stdout.split() == ["kubenode-datapath", VERSION]
    assert (built / f"kubenode_datapath-{VERSION}-py3-none-any.whl").is_file()


def test_the_chart_lies_below_its_name(built: Path) -> None:
    with tarfile.open(built / f"kubenode-datapath-{VERSION}.tgz") as chart:
        names = chart.getnames()
        assert names[0] == "kubenode-datapath/Chart.yaml" and "kubenode-datapath/values.yaml" in names
        assert {member.mtime for member in chart.getmembers()} == {MOMENT}


def test_helm_renders_the_packed_chart_as_that_of_the_repository(built: Path) -> None:
    """The alerts and the dashboard are links to files of deploy/kustomize, which a packed chart must contain."""
    options = ["--set=alerts.enabled=true", "--set=dashboard.enabled=true"]
    rendered = [
        subprocess.run([installation.helm(), "template", "x", chart, *options], check=True, capture_output=True).stdout
        for chart in (built / f"kubenode-datapath-{VERSION}.tgz", installation.ROOT / "deploy/chart")
    ]
    assert b"kind: PrometheusRule" in rendered[0] and rendered[0] == rendered[1]


def test_the_bill_lists_each_artefact_and_the_library_in_the_command(built: Path) -> None:
    bill = json.loads((built / f"kubenode-datapath-{VERSION}.cdx.json").read_text())
    digests = {each["name"]: each["hashes"][0]["content"] for each in bill["components"] if each["type"] == "file"}
    artefacts = [path for path in built.iterdir() if path.name not in (release.SUMS, f"kubenode-datapath-{VERSION}.cdx.json")]
    assert digests == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in artefacts}
    (pin,) = [pin for pin in installation.TOOLS if pin.startswith("pyroute2==")]
    assert f"pkg:pypi/{pin.replace('==', '@')}" in {each.get("purl") for each in bill["components"]}
    contains = {each["ref"]: each.get("dependsOn") for each in bill["dependencies"]}
    assert contains["kubenode-datapath.pyz"] == ["pyroute2"]


def test_a_commit_without_the_tag_is_no_release(sources: Path) -> None:
    assert f"v{VERSION} is no tag of this commit" in release.state(sources, VERSION, ["v0.0.1"], " M README.md", MOMENT)


@pytest.mark.parametrize(
    ("fragments", "changelog", "changes", "moment", "error"),
    [
        (["new.yml"], COMPLETE, "", MOMENT, "unreleased: new.yml"),
        ([], "releases:\n  0.0.1:\n", "", MOMENT, f"has no {VERSION}"),
        ([], COMPLETE, "?? docs/note.md", MOMENT, "differs:\n.*note"),
        ([], COMPLETE, "", MOMENT + 10**9, "compared with their references more than 120 days before .* ipv6-hp-bpf,"),
    ],
)
def test_a_tag_of_another_state_is_refused(
    sources: Path, tmp_path: Path, fragments: list[str], changelog: str, changes: str, moment: int, error: str
) -> None:
    write_state(sources, tmp_path, changelog)
    for name in fragments:
        (tmp_path / "changelogs/fragments" / name).touch()
    with pytest.raises(installation.NotInstalled, match=error):
        release.state(tmp_path, VERSION, [f"v{VERSION}"], changes, moment)


def write_state(sources: Path, folder: Path, changelog: str) -> None:
    (folder / "changelogs/fragments").mkdir(parents=True)
    (folder / CHANGELOG).write_text(changelog)
    (folder / "docs").mkdir()
    shutil.copy2(sources / profile_facts.NAME, folder / profile_facts.NAME)


def test_a_tag_with_its_changelog_is_a_release(sources: Path, tmp_path: Path) -> None:
    write_state(sources, tmp_path, COMPLETE)
    assert "is complete" in release.state(tmp_path, VERSION, [f"v{VERSION}"], "", MOMENT)


# The collection as a user gets it: built, installed by ansible-galaxy, documented, and run by name


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
