# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine must offer before a run begins: root, namespaces, a kernel, space on its disks. Takes a tenth of a second."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import leftovers

OLDEST_KERNEL = (5, 10)  # of Debian 11, the oldest release on which the tests ran
GIB = 2**30


class Need(NamedTuple):
    """nodes: whether the part makes nodes, for which it needs root and namespaces. gib: what it takes on the disks, with the
    cache empty before."""

    nodes: bool
    gib: float


# Measured with `du` of the cache and .build on Debian 12, and a fifth more.
NEEDS = {
    "quick": Need(True, 6.0),
    "lint": Need(False, 1.0),
    "sanity": Need(False, 1.5),
    "all_sanity": Need(False, 1.5),
    "sanity_next": Need(False, 1.5),
    "unit": Need(False, 1.0),
    "workflows": Need(False, 1.0),
    "docs": Need(False, 1.5),
    "cli": Need(False, 1.0),
    "release": Need(False, 1.5),
    "publish": Need(False, 1.0),
    "mutants": Need(False, 1.0),
    "demo": Need(True, 2.0),
    "fuzz": Need(True, 2.0),
    "bench": Need(True, 4.0),
    "userland": Need(True, 2.0),
    "molecule": Need(True, 3.0),
    "all_molecule": Need(True, 3.0),
    "integration": Need(True, 6.0),
    "oldest_core": Need(True, 6.0),
    "cores": Need(True, 6.0),
    "thorough": Need(True, 6.0),
    "faults": Need(True, 2.0),
    "all_faults": Need(True, 2.0),
    "cluster": Need(True, 6.0),
    "all_cluster": Need(True, 6.0),
    "upstream": Need(True, 1.0),
    "kind": Need(False, 1.0),
    "image": Need(True, 4.0),
}
EVERYTHING = 10.0  # GiB for all parts of `make test`, which share the cache
_NAMESPACES = ("--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--cgroup")


class NotReady(Exception):
    """The machine lacks something; the text says what, how much is needed, and what to do."""


def check(parts: list[str]) -> None:
    """Raises NotReady if the machine cannot run these parts."""
    needs = {name: NEEDS[name] for name in parts if name in NEEDS}
    _check_space(min(EVERYTHING, sum(need.gib for need in needs.values())))
    nodes = [name for name, need in needs.items() if need.nodes]
    if nodes:
        check_nodes(nodes[0])


def check_nodes(part: str) -> None:
    """Raises NotReady if the machine cannot make nodes, as a part does."""
    _check_root(part)
    _check_kernel()
    _check_namespaces()


def _check_space(gib: float) -> None:
    """What the cache has already need not be made again, so it counts as free."""
    for folder in (leftovers.CACHE, leftovers.ROOT):
        place = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(place).free / GIB
        if free < gib and free + leftovers.size(leftovers.CACHE) / GIB < gib:
            raise NotReady(f"{gib:g} GiB are needed below {folder}, and {free:.1f} are free. Free some, or set XDG_CACHE_HOME")


def _check_root(part: str) -> None:
    if os.geteuid() != 0:
        raise NotReady(f"{part.replace('all_', '')} makes nodes of namespaces, which needs root. Run it as root (sudo make ...)")


def _check_kernel() -> None:
    release = platform.release()
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        raise NotReady(f"Linux {oldest} or newer is needed, and this machine runs {release}. Use a newer machine")


def _check_namespaces() -> None:
    for options, kind in ((_NAMESPACES, "network, mount and PID"), (("--user",), "user")):
        result = subprocess.run(["unshare", *options, "true"], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise NotReady(
                f"the kernel refuses {kind} namespaces ({result.stderr.strip()}). Run on a machine or in a VM, or in a"
                " container that may make them (podman run --privileged; sysctl user.max_user_namespaces)"
            )


@contextlib.contextmanager
def in_use(cache: Path, exclusive: bool = False) -> Iterator[bool]:
    """Mark the cache as used for the length of the block. exclusive: yield whether no other run uses it."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "in-use.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if not exclusive:
                raise NotReady(f"{cache} is being removed by `make clean-cache`. Run again when it has ended") from None
            yield False
        else:
            os.set_inheritable(lock.fileno(), True)
            yield True
