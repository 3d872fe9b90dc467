# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine lacks is said before a run begins, with the figure that is needed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import installation
import preflight
import pytest

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
