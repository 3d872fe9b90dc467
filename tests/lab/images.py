# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root folders of Debian releases, built once from packages and kept outside the checkout."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import leftovers

from lab import host
from lab.entering import LabError

NODE_PACKAGES = ("systemd", "systemd-sysv", "dbus", "udev", "python3", "iproute2", "procps", "kmod")
"""What a lab node needs to boot and to be managed by Ansible; nftables is the caller's choice."""

USUAL_PACKAGES = (*NODE_PACKAGES, "nftables")
"""What a root is made of where the caller does not say."""

RECIPE = 1
"""Part of every key: raise it when the commands below change what comes out of them."""


def cache() -> Path:
    """The folder that outlives checkouts; everything in it can be deleted while no lab runs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "kubenode-datapath"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def key(suite: str, packages: Iterable[str]) -> str:
    """The name of a root, from its release and packages: ``bookworm-1f2e3d4c5b6a``."""
    made_of = "\n".join([str(RECIPE), suite, *sorted(set(packages))])
    return f"{suite}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Holds the right to build *target*; a second builder waits and then finds it built.

    The kernel drops the lock when its holder dies, however it dies.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """The folder *target* of the cache. If it is missing, *make* is called with the path of a folder to make, which is renamed.

    What an interrupted call left under the temporary name is removed first; tests/leftovers.py knows the name, too.
    """
    with locked(target):
        if not target.is_dir():
            unfinished = target.parent / f".{target.name}.unfinished"
            remove_tree(unfinished)
            make(unfinished)
            unfinished.rename(target)
    return target


def root(suite: str, packages: Iterable[str] = USUAL_PACKAGES) -> Path:
    """The root folder of a minimal Debian *suite* with *packages*. Read it; never write into it. A build takes half a minute."""
    packages = tuple(sorted(set(packages)))
    return made_once(cache() / "roots" / key(suite, packages), lambda folder: _build(suite, packages, folder))


def remove_tree(folder: Path) -> None:
    """Removes a complete or partial root. Raises LabError."""
    try:
        leftovers.remove_tree(folder)
    except OSError as error:
        raise LabError(str(error)) from error


def sources(suite: str) -> list[str]:
    """The apt source lines for *suite*: the host's own mirror, or none if the host is another system.

    The mirror is the one that serves the host's release. The suite alone, without updates and
    security, is what all releases have; a lab tests versions, it does not face a network. For the same
    reason an old index is good enough: sid's expires within a week on a mirror that stands still.
    """
    release = platform.freedesktop_os_release().get("VERSION_CODENAME")
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI) $(COMPONENT)", "Created-By: Packages"],
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    for line in listed.splitlines():
        codename, uri, component = line.split(maxsplit=2)
        if codename == release and component == "main":
            return [f"deb [check-valid-until=no] {uri} {suite} main"]
    return []


def _build(suite: str, packages: tuple[str, ...], target: Path) -> None:
    if not shutil.which("mmdebstrap"):
        raise LabError("mmdebstrap is not installed, so no node image can be built; apt-get install mmdebstrap")
    print(f"lab: building a Debian {suite} root (kept in {target.parent}) ...", flush=True)
    # A node has no way to the mirror and no resolver: the files that the builder's machine put
    # into the root (its name, its resolver, its mirror) would only make the node wait.
    forget = 'rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/*'
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        "--skip=output/mknod",
        f"--customize-hook={forget}",
        suite,
        os.fspath(target),
        *sources(suite),
    ]
    host.build(command, target.with_suffix(".log"), f"build a root of Debian {suite}")
