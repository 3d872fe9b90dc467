# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A control group that bounds the memory of a process, of all that it starts, and of what the kernel allocates for them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import typing as t

PREFIX = "kubenode-"  # of the groups, which end with the pid of their first process

TRIES, PAUSE = 100, 0.01  # seconds


class Files(t.NamedTuple):
    """The names of a group's files in a version of control groups. settings: files with their values, besides the bound."""

    bound: str
    peak: str
    events: str
    settings: tuple[tuple[str, str], ...]


# Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel
VERSIONS = {
    "cgroup": Files("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control", ()),
    "cgroup2": Files("memory.max", "memory.peak", "memory.events", (("memory.swap.max", "0"), ("memory.oom.group", "1"))),
}


class MemoryGroup(t.NamedTuple):
    folder: str
    files: Files

    def is_exceeded(self) -> bool:
        """Return whether the kernel has killed a process of the group for its memory."""
        killed = re.search(r"(?m)^oom_kill (\d+)$", _read(f"{self.folder}/{self.files.events}"))
        return bool(killed and int(killed[1]))

    def peak(self) -> int | None:
        """Return the most bytes that the group has had at a time; None if this kernel does not count them."""
        text = _read(f"{self.folder}/{self.files.peak}").strip()
        return int(text) if text.isdigit() else None

    def remove(self) -> None:
        """Remove the group, whose processes have been killed. The kernel may take a moment to end them."""
        for _try in range(TRIES):
            try:
                os.rmdir(self.folder)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
                time.sleep(PAUSE)


def confine(pid: int, most: int) -> MemoryGroup | None:
    """Move a process into a group of its own with at most so many bytes of memory.

    None where this run may make no such group: it is not root, or a container shows it none.
    """
    for files, parent in _parents():
        group = MemoryGroup(f"{parent}/{PREFIX}{pid}", files)
        _remove_left(parent)
        try:
            os.mkdir(group.folder)
        except OSError:
            continue
        try:
            _write(f"{group.folder}/{files.bound}", str(most))
            for name, value in files.settings:
                with contextlib.suppress(OSError):  # a kernel without swap, or before 4.19
                    _write(f"{group.folder}/{name}", value)
            _write(f"{group.folder}/cgroup.procs", str(pid))
            return group
        except OSError:
            group.remove()
    return None


def _parents() -> t.Iterator[tuple[Files, str]]:
    """Yield the folders in which a group with a bound of memory may be made.

    In version 2, a group with processes has no groups inside that bound memory, except the first one. So there the group is made
    beside the run's own.
    """
    paths = dict(_own_groups())
    for line in _read("/proc/self/mountinfo").splitlines():
        mount, _dash, mounted = line.partition(" - ")
        root, place = mount.split()[3:5]
        kind, _source, options = mounted.split()[:3]
        path = paths.get(kind)
        if path is None or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        if not f"{path}/".startswith(f"{root.rstrip('/')}/"):
            continue  # the run's group is not visible here
        folder = place + path[len(root.rstrip("/")) :].rstrip("/")
        yield VERSIONS[kind], folder
        if kind == "cgroup2" and folder != place:
            yield VERSIONS[kind], os.path.dirname(folder)


def _own_groups() -> t.Iterator[tuple[str, str]]:
    """Yield the paths of this process's groups, by the type of their file system."""
    for line in _read("/proc/self/cgroup").splitlines():
        _number, controllers, path = line.split(":", 2)
        if not controllers:
            yield "cgroup2", path
        elif "memory" in controllers.split(","):
            yield "cgroup", path


def _remove_left(parent: str) -> None:
    """Remove the groups of killed runs. The kernel removes none with a process in it."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name[len(PREFIX) :]}"):
                with contextlib.suppress(OSError):  # a process in another PID namespace
                    os.rmdir(f"{parent}/{name}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
