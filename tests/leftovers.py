# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs of the tests have left on this machine: because of a power cut, or because an older version ended badly.

A leftover has one of our names and no owner. The owner of an unfinished folder of the cache holds the lock beside it; the owner
of a lab's containers holds the lock in their folder. The kernel drops a lock with its holder.
Network namespaces, links, and mounts elsewhere need no removal: they have no names on this machine, and end with their processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubenode-datapath"
CONTAINERS = CACHE / "containers"
CGROUP = "kubenode-lab"
"""The cgroup of all labs. That of a lab has the name of its folder in CONTAINERS."""

_ENDED = 5.0  # seconds in which killed processes end


def remove() -> list[str]:
    """Remove all leftovers; return a sentence for each that there was. Raises OSError for one that cannot be removed."""
    sentences = []
    for folder, lock in [*_unfinished(), *_incomplete()]:
        with _owned(lock) as is_ours:
            if is_ours and folder.exists():
                sentences.append(f"removed {folder}, which an interrupted run left{remove_tree(folder)}")
    labs = _abandoned(CONTAINERS.iterdir() if CONTAINERS.is_dir() else ())
    if labs and shutil.which("podman"):
        # A lab begins with the removal of abandoned ones.
        begin = [sys.executable, "-c", "from lab.podman import Podman; Podman().close()"]
        subprocess.run(begin, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")}, stdin=subprocess.DEVNULL, check=False)
        sentences.append(f"removed the containers of {len(labs)} labs, which an interrupted run left")
    remove_cgroups()
    _detach_loop_devices()
    return sentences


def remove_tree(folder: Path) -> str:
    """Remove a folder, processes that build it, and mounts below it; return what else than files there was, after a blank."""
    ended = _end_builders(folder)
    mounts = _mounts_below(folder)
    for place in mounts:
        subprocess.run(["umount", "--lazy", place], check=False)
    remains = subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False, capture_output=True, text=True)
    if folder.exists():
        raise OSError(f"{folder} cannot be removed: {remains.stderr.strip()}. Remove it by hand, and run again")
    parts = [f"{len(mounts)} mounts"] * bool(mounts) + [f"{ended} processes"] * bool(ended)
    return f" with {' and '.join(parts)}" if parts else ""


def size(folder: Path) -> int:
    """Bytes that the folder takes on its disk."""
    command = ["du", "--summarize", "--block-size=1", "--one-file-system", str(folder)]
    result = subprocess.run(command, capture_output=True, check=False)
    return int(result.stdout.split()[0]) if result.stdout else 0


def remove_cgroups() -> None:
    """Remove the cgroups of labs whose owner has ended."""
    for parent in cgroups():
        for lab in _abandoned(CONTAINERS / cgroup.name for cgroup in parent.iterdir() if cgroup.is_dir()):
            for current, _folders, _files in os.walk(parent / lab.name, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(current)
        with contextlib.suppress(OSError):
            parent.rmdir()


def cgroups() -> Iterator[Path]:
    """CGROUP in each hierarchy of version 2 that is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _separator, kind = line.partition(" - ")
        if kind.split()[0] == "cgroup2":
            cgroup = Path(_unescaped(place.split()[4]), CGROUP)
            if cgroup.is_dir():
                yield cgroup


def _unfinished() -> list[tuple[Path, Path]]:
    """Folders of the cache under their temporary names, with their locks."""
    folders = sorted(CACHE.glob("*/.*.unfinished"))
    return [(folder, folder.parent / f"{folder.name[: -len('.unfinished')]}.lock") for folder in folders]


def _incomplete() -> list[tuple[Path, Path]]:
    """Virtual environments and collections whose installation was interrupted, with the lock of all installations."""
    homes = sorted([*CACHE.glob("venv/*"), *CACHE.glob("collections/*")])
    return [(home, CACHE / "lock") for home in homes if not (home / "complete").exists()]


@contextlib.contextmanager
def _owned(lock: Path) -> Iterator[bool]:
    """Whether no other process owns what the lock guards; for the length of the block, this process does."""
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _abandoned(labs: Iterable[Path]) -> list[Path]:
    """The labs, folders in CONTAINERS, whose owner has ended. Empty while a lab begins, which may have no lock yet."""
    labs = [lab for lab in labs if not lab.name.startswith(".")]
    if not labs or not CONTAINERS.is_dir():
        return labs
    with _owned(CONTAINERS / ".lock") as is_settled:
        return [lab for lab in labs if _is_abandoned(lab)] if is_settled else []


def _is_abandoned(lab: Path) -> bool:
    if not lab.is_dir():
        return True
    with _owned(lab / "lock") as is_abandoned:
        return is_abandoned


def _mounts_below(folder: Path) -> list[str]:
    """Mount points at or below the folder, the deepest first."""
    found = (_unescaped(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return sorted((place for place in found if f"{place}/".startswith(f"{folder}/")), key=len, reverse=True)


def _unescaped(text: str) -> str:
    """The path that mountinfo shows, in which blanks are octal numbers (proc(5))."""
    return text.encode().decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")


def _end_builders(folder: Path) -> int:
    """Kill the processes whose root, working directory or arguments lie in the folder; return their number."""
    builders = [pid for pid in _processes() if _is_at_work_in(pid, folder)]
    for pid in builders:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _ENDED
    while any(Path("/proc", str(pid)).exists() for pid in builders) and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(builders)


def _processes() -> Iterable[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def _is_at_work_in(pid: int, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        links = [os.readlink(f"/proc/{pid}/{name}") for name in ("root", "cwd")]
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return any(f"{link}/".startswith(f"{folder}/") for link in links) or str(folder) in arguments
    return False


def _detach_loop_devices() -> None:
    """Detach loop devices of files in the cache or in .build. The kernel detaches one that is in use at the end of its use."""
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            file = path.read_text().strip()
            if file.startswith((f"{CACHE}/", f"{ROOT}/.build/")):
                subprocess.run(["losetup", "--detach", f"/dev/{path.parts[3]}"], check=False, capture_output=True)
