# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An interrupted run leaves nothing, and the next one works. `make faults` does the same with real builds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import enclosure
import leftovers
import pytest
from sampling import sampled

from faults.interruptions import Place, Work, strikes
from lab import collection, images

# Mounts what mmdebstrap mounts, and has what it has: a process that works in the root, and one in a session of its own.
MMDEBSTRAP = """#!/bin/sh
set -eu
for target; do case $target in */.*.unfinished) break;; esac; done
mkdir -p "$target/proc" "$target/sys" "$target/dev/pts" "$target/dev/shm"
mount -t proc proc "$target/proc"
mount -t sysfs sysfs "$target/sys"
mount -t devpts devpts "$target/dev/pts"
mount -t tmpfs tmpfs "$target/dev/shm"
cd "$target"
sleep 600 & download=$!
setsid sleep 601 & script=$!
sleep 1
kill $download $script
umount dev/shm dev/pts sys proc
"""
LAB = "from lab import Lab, Node\nwith Lab('struck', nodes=[Node('node1', pods=['pod1'])]) as lab:\n    {work}\n"
WORKS = {
    "a root": Work("from lab import images; images.root('bookworm', ['a'])", 2),
    "a lab": Work(LAB.format(work="lab.load_balancer.probe_tcp(lab.pod('pod1').address, 8080)"), 1.5),
    "a lab at work": Work(LAB.format(work="import time; time.sleep(600)"), 2, ends=False),
}


@pytest.mark.parametrize("name", sampled(WORKS, lambda name: name == "a lab"))
def test_an_interrupted_run_leaves_nothing_and_the_next_one_works(tmp_path: Path, name: str) -> None:
    program = tmp_path / "bin/mmdebstrap"
    program.parent.mkdir()
    program.write_text(MMDEBSTRAP)
    program.chmod(0o755)
    place = Place(tmp_path, WORKS[name], f"{program.parent}:{os.environ['PATH']}")
    left = {str(strike): place.strike(strike) for strike in strikes({name: WORKS[name]})}
    assert {strike: what for strike, what in left.items() if what} == {}
    if WORKS[name].ends:
        assert place.failure() == []


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache in which all is there that is installed on this machine, and nothing is built."""
    cache = tmp_path / "kubenode-datapath"
    cache.mkdir()
    (cache / "venv").symlink_to(leftovers.CACHE / "venv")
    return cache


def toolchain(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != enclosure.INSIDE}
    return subprocess.run(
        [sys.executable, collection.CHECKOUT / "tests/toolchain.py", *words],
        env={**environment, "XDG_CACHE_HOME": str(cache.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_what_an_older_version_left_is_removed_with_one_line(cache: Path) -> None:
    """Four mounts below an unfinished root, and processes that went on building it."""
    unfinished = cache / "roots" / f".{images.key('bookworm', ['a'])}.unfinished"
    for place, kind in {"proc": "proc", "sys": "sysfs", "dev/pts": "devpts", "dev/shm": "tmpfs"}.items():
        (unfinished / place).mkdir(parents=True)
        subprocess.run(["mount", "-t", kind, kind, unfinished / place], check=True)
    builders = [subprocess.Popen(["sleep", "600"], cwd=unfinished), subprocess.Popen(["sh", "-c", "sleep 600; :", unfinished])]
    try:
        completed = toolchain(cache, "run", "true")
        assert completed.returncode == 0
        told = f"toolchain: removed {unfinished}, which an interrupted run left with 4 mounts and 2 processes\n"
        assert completed.stdout == told
        assert str(unfinished) not in Path("/proc/self/mountinfo").read_text()
        assert not unfinished.exists()
        assert toolchain(cache, "run", "true").stdout == ""
    finally:
        for builder in builders:
            builder.kill()
            builder.wait()
        leftovers.remove_tree(cache)


def test_a_root_that_another_run_builds_is_no_leftover(cache: Path) -> None:
    unfinished = cache / "roots/.bookworm-1.unfinished"
    unfinished.mkdir(parents=True)
    with (cache / "roots/.bookworm-1.lock").open("w") as lock:
        subprocess.run(["flock", str(lock.fileno())], pass_fds=[lock.fileno()], check=True)
        assert toolchain(cache, "run", "true").stdout == ""
        assert unfinished.exists()
    assert f"removed {unfinished}" in toolchain(cache, "run", "true").stdout


def test_the_cache_is_removed_with_its_mounts_and_the_space_is_named(cache: Path) -> None:
    place = cache / "roots/left"
    place.mkdir(parents=True)
    (cache / "file").write_bytes(bytes(3 << 20))
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    assert toolchain(cache, "clean_cache").stdout == f"toolchain: removed {cache} with 1 mounts: 3 MiB\n"
    assert not cache.exists()
    assert (leftovers.CACHE / "venv").exists()


def test_a_cache_in_use_is_not_removed(cache: Path) -> None:
    with (cache / "in-use.lock").open("w") as lock:
        subprocess.run(["flock", "--shared", str(lock.fileno())], pass_fds=[lock.fileno()], check=True)
        completed = toolchain(cache, "clean_cache")
    assert completed.returncode == 1
    assert completed.stderr == f"toolchain: {cache} is in use by another run. End that run first\n"
    assert cache.exists()
