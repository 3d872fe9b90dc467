# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tools of the tests: what a machine lacks, what a change selects, and which versions and programs they take."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import house
import installation
import preflight
import pytest
import selection
import upstream_programs
from hypothesis import settings

from lab import LabError
from lab.kubernetes import kind

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_each_command_of_make_has_its_needs() -> None:
    makefile = Path(installation.ROOT / "Makefile").read_text()
    parts = {word for line in re.findall(r"\$\(TOOLCHAIN\) (.*)", makefile) for word in line.split()}
    assert parts - {"clean", "clean_cache"} == set(preflight.NEEDS)


def test_a_full_disk_is_named_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: Usage(9 * GIB, 8 * GIB, 1 * GIB))
    monkeypatch.setattr("leftovers.size", lambda _folder: 0)
    with pytest.raises(preflight.NotReady, match=r"2 GiB are needed below .*, and 1\.0 are free"):
        preflight.check(["demo"])


def test_a_cache_that_is_there_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: Usage(9 * GIB, 8 * GIB, 1 * GIB))
    monkeypatch.setattr("leftovers.size", lambda _folder: 3 * GIB)
    preflight.check(["lint", "unit"])


@pytest.mark.parametrize("part", ["demo", "integration", "all_faults"])
def test_nodes_need_root(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(preflight.NotReady, match="needs root. Run it as root"):
        preflight.check([part])


def test_pure_tests_need_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    preflight.check(["lint", "sanity", "unit"])


def test_an_old_kernel_is_refused_by_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(platform, "release", lambda: "4.19.0-27-amd64")
    with pytest.raises(preflight.NotReady, match=r"Linux 5\.10 or newer is needed, and this machine runs 4\.19\.0-27-amd64"):
        preflight.check(["demo"])


@pytest.mark.parametrize(("option", "kind"), [("--net", "network, mount and PID"), ("--user", "user")])
def test_a_kernel_without_namespaces_is_refused(monkeypatch: pytest.MonkeyPatch, option: str, kind: str) -> None:
    def refuse(command: Sequence[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        refused = option in command
        return subprocess.CompletedProcess(
            command, int(refused), "", "unshare: unshare failed: Operation not permitted\n" * refused
        )

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(platform, "release", lambda: "6.12.0-amd64")
    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr("leftovers.size", lambda _folder: 0)
    with pytest.raises(preflight.NotReady, match=f"refuses {kind} namespaces .*Operation not permitted"):
        preflight.check(["demo"])


@pytest.mark.parametrize(
    ("journal", "states", "interrupted"),
    [((), "installed\n", False), (("0001",), "installed\n", True), (("tmp.i",), "installed\nhalf-configured\n", True)],
)
def test_an_interrupted_dpkg_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal: Sequence[str], states: str, interrupted: bool
) -> None:
    """dpkg keeps its journal in files with numbers as names, until all of its changes are in the database."""
    (tmp_path / "updates").mkdir()
    for name in journal:
        (tmp_path / "updates" / name).touch()
    monkeypatch.setattr(installation, "DPKG", tmp_path)
    monkeypatch.setattr(installation, "output", lambda _command: states)
    assert installation.dpkg_was_interrupted() is interrupted


def test_an_interrupted_dpkg_is_completed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, Any]] = []
    monkeypatch.setattr(installation, "CACHE", tmp_path)
    monkeypatch.setattr(installation, "output", lambda _command: "half-configured\n")
    monkeypatch.setattr(installation, "step", lambda purpose, *commands: steps.append((purpose, commands[0][-3:])))
    installation.install_packages(["absent"])
    assert steps[0] == (
        "an installation of Debian packages was interrupted on this machine; completing it first",
        ["dpkg", "--configure", "-a"],
    )
    assert steps[1][0] == "installing Debian packages: absent"


# `make quick` runs the tests of what has changed


ON_KERNEL = "tests/integration/"
CASES = {
    "plugins/module_utils/_routing/rule.py": {"_routing/test_policy_routes.py", "_routing/test_readers_agree.py"},
    "plugins/modules/rp_filter.py": {"_rp_filter/test_rp_filter.py"},
    "plugins/module_utils/_parts/rp_filter.py": {"_rp_filter/test_rp_filter.py"},
    "plugins/module_utils/_profiles/aks_dual_stack.py": {
        "_profiles/test_ownership.py",
        "_profiles/test_profile.py",
        "roles/test_role_aks_dual_stack.py",
    },
    "roles/aks_dual_stack/tasks/main.yml": {"roles/test_role_aks_dual_stack.py"},
    "molecule/aks_dual_stack/verify.yml": {"roles/test_role_aks_dual_stack.py"},
    "playbooks/common/profile.yml": {"roles/test_fleet.py"},
    "plugins/plugin_utils/_rollout.py": {"roles/test_fleet.py"},
    "tests/integration/_kubelet/test_kubelet_starters.py": {"_kubelet/test_kubelet_starters.py"},
    "docs/trace.md": set(),
}


@pytest.mark.parametrize(("path", "expected"), CASES.items())
def test_the_tests_on_a_kernel_are_those_of_what_has_changed(path: str, expected: set[str]) -> None:
    near, _further = selection.integration_tests({Path(path)})
    assert set(near) == {ON_KERNEL + name for name in expected}


@pytest.mark.parametrize(
    ("path", "further", "not_further"),
    [
        ("_core/converge.py", {"_routing/test_policy_routes.py", "_rp_filter/test_rp_filter.py"}, {"lab/test_proxy.py"}),
        ("_twin/worlds.py", {"_audit/test_pod_checks.py", "_trace/test_datapath_trace.py"}, {"_rp_filter/test_rp_filter.py"}),
    ],
)
def test_a_change_touches_the_tests_that_run_a_module_with_it(path: str, further: set[str], not_further: set[str]) -> None:
    _near, tests = selection.integration_tests({Path("plugins/module_utils", path)})
    assert {ON_KERNEL + name for name in further} <= {*tests} and not {ON_KERNEL + name for name in not_further} & {*tests}


def test_a_change_of_the_lab_touches_its_tests() -> None:
    tests, _further = selection.integration_tests({Path("tests/lab/node.py")})
    assert tests and all(test.startswith(f"{ON_KERNEL}lab/") for test in tests)


def test_a_unit_test_is_run_for_a_file_that_it_imports_at_any_remove() -> None:
    (service,) = (path for path in house.files("_core") if path.name == "errors.py")
    tests = selection.unit_tests({service.relative_to(selection.ROOT)})
    assert {"tests/unit/_routing/test_rule_order.py", "tests/unit/test_house.py"} <= set(tests)
    assert "tests/unit/_routing/test_rule_order.py" not in selection.unit_tests({Path("docs/trace.md")})


def test_tests_on_a_kernel_have_the_time_that_is_left() -> None:
    assert selection.share(["a"], 400) == selection.share(["a", "b"], 400) == 400
    assert selection.share(["a"] * 8, 400) == 100
    assert selection.share(["a"] * 400, 40) == 5


def test_the_budget_is_a_number_of_seconds() -> None:
    assert (selection.budget(""), selection.budget("120")) == (selection.SECONDS, 120)
    with pytest.raises(selection.Unusable, match="BUDGET=2m is no number of seconds"):
        selection.budget("2m")


# Versions that tests/installation.py pins


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
    r"(?:TAG=v|newTag: |VERSION=|kubenode-(?:agent|datapath|execution-environment)[:-]|^(?:appV|v)ersion: \"?"
    r"|kubenode-datapath(?: --|`, )version )(\d+\.\d+\.\d+)",
    re.MULTILINE,
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


# The programs of CNIs run where their variables name them


def test_only_programs_that_are_named_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_CNI_HOST", raising=False)
    monkeypatch.setenv("AZURE_VNET", "/bin/true")
    assert upstream_programs.cnis() == {"AZURE_VNET": Path("/bin/true")}


def test_a_path_that_is_no_program_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CNI_HOST", str(tmp_path))
    with pytest.raises(installation.NotInstalled, match="AWS_CNI_HOST is .*, which is no program"):
        upstream_programs.cnis()


# The configuration of a cluster of kind, and the variables of ``make kind`` in the workflow


WORKFLOW = (Path(__file__).resolve().parents[2] / ".github/workflows/upstream.yml").read_text()


def test_without_kube_proxy_there_is_no_network_of_kind_either() -> None:
    off = {proxy: kind.configuration("image", proxy)["networking"]["disableDefaultCNI"] for proxy in kind.PROXIES}
    assert off == {"iptables": False, "nftables": False, "ipvs": False, "none": True}


def test_another_mode_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LabError, match="PROXY is userspace; it must be one of iptables, nftables, ipvs, none"):
        kind.configuration("image", "userspace")


def test_the_workflow_runs_each_mode_and_the_newest_image_of_the_tests() -> None:
    (modes,) = re.findall(r"proxy: \[(.*)\]", WORKFLOW)
    assert tuple(modes.split(", ")) == kind.PROXIES
    assert re.findall(r"image: (kindest/\S+)", WORKFLOW)[-1] == kind.NEWEST


# A test that passed passes again: random values are the same in each run


def test_property_tests_try_the_same_examples_in_each_run() -> None:
    assert settings().derandomize and settings().database is None


def test_make_fuzz_tries_others_and_depends_on_nothing_but_its_seed() -> None:
    fuzz = settings.get_profile("fuzz")
    assert not fuzz.derandomize and fuzz.database is None


# The fault harness changes each option of each module, or gives the reason for leaving it out


PARTS = "ansible_collections.kubenode.datapath.plugins.module_utils._parts"
OF_EACH_RUN = {"state", "checkpoint", "checkpoint_command"}


def test_each_option_is_changed_or_left_out_with_a_reason() -> None:
    pytest.importorskip("ansible")
    from faults import cases

    for module in {case.module for case in cases.CASES if not case.is_reader}:
        options = importlib.import_module(f"{PARTS}.{module}").OPTIONS
        left_out = cases.LEFT_OUT.get(module, set())
        names = (name for case in cases.CASES if case.module == module for name in case.changes)
        changed = {name.split()[0] for name in names}  # as "path to another folder"
        assert {*options} - OF_EACH_RUN == changed | left_out, module
        assert not left_out & changed, module


# The workflows that publish: each of their commands is a target of make, which can be run and tested on any machine


WORKFLOWS = ROOT / ".github/workflows"
COMMAND = re.compile(r"^ +(?:- )?run: (.*)", re.MULTILINE)
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["release", "docs"])
def test_each_command_is_a_target_of_make(name: str) -> None:
    commands = COMMAND.findall((WORKFLOWS / f"{name}.yml").read_text())
    targets = [
        match and match[1]
        for match in (re.fullmatch(r"make ([a-z-]+)( PLACE=\S+| PLACE=\$\{\{.*\}\})?", line) for line in commands)
    ]
    assert targets and set(targets) <= TARGETS, commands


def test_the_release_hands_its_artefacts_to_each_place() -> None:
    """``site`` is published by the workflow docs, for the main branch too."""
    pytest.importorskip("cyclonedx")  # of the SBOM; the oldest Python has no tools of a release
    publication = importlib.import_module("publishing.publication")
    text = "".join((WORKFLOWS / f"{name}.yml").read_text() for name in ("release", "docs"))
    places = set(re.findall(r"PLACE=([a-z]+)|- place: ([a-z]+)", text))
    assert {first or second for first, second in places} == set(publication.PLACES)


@pytest.mark.parametrize(
    ("place", "subject"), [("agent", "kubenode-agent"), ("environment", "kubenode-execution-environment"), ("chart", "charts")]
)
def test_what_is_published_has_the_address_that_pages_name(place: str, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image is for both architectures, and has the labels of OCI."""
    pytest.importorskip("cyclonedx")
    publication = importlib.import_module("publishing.publication")
    monkeypatch.setenv("REGISTRY", "ghcr.io/kubenode")
    commands = publication.PLACES[place]()
    target = commands[-1][-1]
    name = f"ghcr.io/kubenode/{subject}{'' if place == 'chart' else f':{publication.VERSION}'}"
    assert target in (f"docker://{name}", f"oci://{name}")
    address = f"{target}/kubenode-datapath" if place == "chart" else name
    assert f"`{address}`" in (ROOT / "docs/delivery.md").read_text()
    if place != "chart":
        (build,) = (command for command in commands if command[:2] == ["podman", "build"])
        assert {"--platform=linux/amd64,linux/arm64", f"--manifest={name}"} <= {*build}
        recipe = {"agent": "image/Containerfile", "environment": "execution-environment/execution-environment.yml"}[place]
        labels = " ".join([(ROOT / "deploy" / recipe).read_text(), *map(str, build)])
        named = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", labels))
        assert named == {"title", "description", "source", "documentation", "licenses", "version", "revision"}
