# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that are interrupted while they build or have a lab: nothing of them may stay, and the next run must pass.

A run is `make`, with the toolchain's enclosure and one piece of work in it. It is struck at a moment, and examined after LIMIT.

    python -m faults.interruptions [WORK ...]
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import enclosure
import leftovers

from lab import collection, host

LIMIT = 10.0  # seconds from the strike until nothing may be left
MOMENTS = 10
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
TARGETS = ("make", "toolchain", "group")

# As toolchain.begin does it, without the installations.
_TOOLCHAIN = """
import enclosure, leftovers, os, sys
for sentence in leftovers.remove():
    print(f"toolchain: {sentence}")
sys.exit(enclosure.run([sys.executable, "-c", os.environ["WORK"]]))
"""
_MAKEFILE = "work:\n\t@$(PYTHON) $(TOOLCHAIN)\n"


class Work(NamedTuple):
    """code: the program of the run. seconds: in which moments lie, about as long as it takes. linked: folders of the machine's
    cache that the run uses as they are; ALL: it uses that cache. ends: False if the code runs until it is ended.
    """

    code: str
    seconds: float
    linked: tuple[str, ...] = ()
    ends: bool = True


ALL = ("all",)


_LAB = "from lab import Lab, Node\nwith Lab('struck', nodes={nodes}) as lab:\n    print('up', flush=True)\n    {work}\n"
_SLEEP = "import time; time.sleep(3600)"
_BOOTING = "[Node('node1', pods=['pod1'], system='bookworm')]"

WORKS = {
    "a root": Work("from lab import images; images.root('bookworm', ['nftables'])", 15),
    "a disk": Work("from lab import disk; disk.disk('bookworm')", 8, ("roots",)),
    "an image": Work(_LAB.format(nodes=_BOOTING, work="pass"), 10, ("roots",)),
    "packages": Work("from lab import apt; apt.packages('bookworm')", 8, ("roots",)),
    "Kubernetes": Work("from lab.kubernetes import binaries; binaries.folder()", 40, ("roots",), ends=False),
    "a lab": Work(_LAB.format(nodes=_BOOTING, work="lab.node('node1').reboot()"), 6, ALL),
    "a lab at work": Work(_LAB.format(nodes=_BOOTING, work=_SLEEP), 12, ALL, ends=False),
    "a VM": Work(_LAB.format(nodes="[Node('node1', system='bookworm', vm=True)]", work="pass"), 15, ("roots", "disks")),
}


class Strike(NamedTuple):
    work: str
    moment: float  # seconds after the start
    number: signal.Signals
    target: str

    def __str__(self) -> str:
        return f"{self.work}: {self.number.name} to {self.target} after {self.moment:.2f} s"


def strikes(works: Mapping[str, Work], moments: int = MOMENTS) -> Iterator[Strike]:
    """At each moment of each work, another signal to another target: all pairs are met in twelve moments."""
    pairs = itertools.cycle(itertools.product(SIGNALS, TARGETS))
    for name, work in works.items():
        for number in range(moments):
            yield Strike(name, work.seconds * (number + 0.5) / moments, *next(pairs))


class Place:
    """The cache and the files of the runs of one work, below a folder. path: the runs' PATH, if not this process's."""

    def __init__(self, folder: Path, work: Work, path: str = "") -> None:
        self._work = work
        self._folder = folder
        self.cache = leftovers.CACHE if work.linked == ALL else folder / "kubenode-datapath"
        if work.linked != ALL:
            self.cache.mkdir()
            for name in work.linked:
                (leftovers.CACHE / name).mkdir(parents=True, exist_ok=True)
                (self.cache / name).symlink_to(leftovers.CACHE / name)
        self._other_labs = self._labs()
        (folder / "toolchain.py").write_text(_TOOLCHAIN)
        (folder / "Makefile").write_text(_MAKEFILE)
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in (enclosure.INSIDE, "MAKEFLAGS", "MAKELEVEL")},
            "PYTHON": sys.executable,
            "TOOLCHAIN": str(folder / "toolchain.py"),
            "WORK": work.code,
            "PYTHONPATH": str(collection.CHECKOUT / "tests"),
            "XDG_CACHE_HOME": str(self.cache.parent),
            "PATH": path or os.environ["PATH"],
        }

    def strike(self, strike: Strike) -> list[str]:
        """Start a run and strike it; return what is left of it after LIMIT. A run that ends before is not struck."""
        with (self._folder / "log").open("w") as log, contextlib.ExitStack() as held:
            make = subprocess.Popen(
                ["make", "--file", self._folder / "Makefile"], env=self._environment, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            with contextlib.suppress(subprocess.TimeoutExpired):
                make.wait(strike.moment)
            processes = _descendants(make.pid)
            namespaces = {_namespace(pid, held) for pid in processes} - {_namespace(os.getpid()), ""}
            struck = time.monotonic()
            if make.poll() is None:
                if strike.target == "group":
                    os.killpg(make.pid, strike.number)
                else:
                    os.kill(make.pid if strike.target == "make" else next(iter(processes), make.pid), strike.number)
            leftover_files = ["the run has not ended"]
            while leftover_files and time.monotonic() < struck + LIMIT:
                time.sleep(0.1)
                leftover_files = ["make"] * (make.poll() is None) + self._left(processes, namespaces)
            if make.poll() is None:
                os.killpg(make.pid, signal.SIGKILL)
                make.wait()
        return leftover_files

    def failure(self, limit: float = 600) -> list[str]:
        """Run to the end without a strike; return what was printed if it fails within ``limit`` seconds."""
        result = subprocess.run(
            ["make", "--file", self._folder / "Makefile"], env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False,
        )  # fmt: skip
        return [result.stdout] if result.returncode else []

    def _left(self, processes: Mapping[int, str], namespaces: set[str]) -> list[str]:
        """Objects of the run: processes, mounts, cgroups, loop devices. Namespaces and links end with the processes."""
        leftover_files = [f"process {pid} {name}" for pid, name in processes.items() if name and _identity(pid) == name]
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if pid not in processes and _namespace(pid) in namespaces:
                leftover_files.append(f"process {pid} {_identity(pid)}")
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        leftover_files += [f"mount {line.split()[4]}" for line in mounts if str(self._folder) in line]
        labs = self._labs() - self._other_labs
        leftover_files += [f"cgroup {lab}" for parent in leftovers.cgroups() for lab in os.listdir(parent) if lab in labs]
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                leftover_files += [f"loop device of {text}" for text in [file.read_text()] if str(self._folder) in text]
        return leftover_files

    def _labs(self) -> set[str]:
        return {lab.name for lab in (self.cache / "containers").glob("*-*")}


def _descendants(leader: int) -> dict[int, str]:
    """The processes that the leader has started, the eldest first: process ID -> identity."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, new = dict[int, str](), sorted(children.get(leader, []))
    while new:
        found.update({pid: _identity(pid) for pid in new})
        new = sorted(child for pid in new for child in children.get(pid, []))
    return found


def _identity(pid: int) -> str:
    """The name and the start time of a process; empty if it has ended."""
    with contextlib.suppress(OSError):
        head, _end, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
        fields = rest.split()
        if fields[0] != "Z":
            return f"{head.partition('(')[2]}, started at {fields[19]}"
    return ""


def _namespace(pid: int, held: contextlib.ExitStack | None = None) -> str:
    """The PID namespace of a process; empty if it has ended. While it is held, no later one gets its number."""
    path = f"/proc/{pid}/ns/pid"
    with contextlib.suppress(OSError):
        if held:
            held.callback(os.close, os.open(path, os.O_RDONLY))
        return os.readlink(path)
    return ""


def examine(works: Mapping[str, Work], moments: int = MOMENTS) -> Iterator[tuple[str, list[str]]]:
    """Strike each work at each moment, in the cache that earlier strikes have left; then let it finish.

    Yields what was done, and what is left or went wrong.
    """
    for name, work in works.items():
        folder = Path(tempfile.mkdtemp())
        try:
            place = Place(folder, work)
            for strike in strikes({name: work}, moments):
                yield str(strike), place.strike(strike)
            if work.ends:
                yield f"{name}: the next run", place.failure()
        finally:
            leftovers.remove_tree(folder)


def strike_all(works: Mapping[str, Work]) -> int:
    """Print what each strike left; return the number of those that left something."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would the runs
    results = 0
    bad = 0
    for event, leftover_files in examine(works):
        results += 1
        bad += bool(leftover_files)
        print(f"{event}: {'; '.join(leftover_files) or 'nothing is left'}", flush=True)
    print(f"{results} interruptions and next runs, {bad} bad")
    return bad


if __name__ == "__main__":
    host.reported(lambda: strike_all({name: WORKS[name] for name in sys.argv[1:] or WORKS}))
