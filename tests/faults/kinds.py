# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of fault. Each strikes once in a run, at a point of it or in a child process that it starts.

Stands alone (standard library only, Python 3.9), as it also runs on nodes that are containers.
"""

from __future__ import annotations

import typing as t

from faults.points import Point

KILL, KILL_MODULE = "killed", "module killed, its child goes on"
DISK_FULL, DISK_STAYS_FULL, READ_ONLY = "disk full once", "disk full from here on", "disk read-only from here on"

# The shell commands that replace a child process; "$@" is its command line.
CHILDREN = {
    "child hangs": "exec sleep 600",
    "child hangs when done": '"$@"; exec sleep 600',
    "child fails": "echo 'broken by a test' >&2; exit 1",
    "child fails when done": "\"$@\"; echo 'broken by a test' >&2; exit 1",
    "child answers noise": "printf '\\377\\000{[\\n:,'",
    "child answers nothing": "exit 0",
}
KILLS = (KILL, KILL_MODULE)
HANGS = frozenset({"child hangs", "child hangs when done"})


class Fault(t.NamedTuple):
    """number: of the point or, for kinds in CHILDREN, of the child process, from 1."""

    kind: str
    number: int

    def decide(self, number: int, point: Point) -> str:
        """The fate of the process at this point: "go", "kill", "kill module", "no space", "read-only"."""
        if self.kind == DISK_STAYS_FULL and number >= self.number:
            return "no space" if point.needs_space else "go"
        if self.kind == READ_ONLY and number >= self.number:
            return "read-only" if point.is_file else "go"
        if number != self.number:
            return "go"
        return {KILL: "kill", KILL_MODULE: "kill module", DISK_FULL: "no space"}.get(self.kind, "go")

    def replaced(self, number: int, argv: t.Sequence[str]) -> list[str]:
        """The command line of child process ``number``, replaced if the fault strikes it."""
        if self.kind not in CHILDREN or number != self.number:
            return list(argv)
        return ["/bin/sh", "-c", CHILDREN[self.kind], "sh", *argv]


def possible(points: t.Sequence[Point], starts: int) -> list[Fault]:
    """All faults that a run with these points and so many child processes can meet."""
    found = []
    for number, point in enumerate(points, 1):
        found.append(Fault(KILL, number))
        if point.by != "module":
            found.append(Fault(KILL_MODULE, number))
        if point.needs_space and point.by == "module":
            found += [Fault(DISK_FULL, number), Fault(DISK_STAYS_FULL, number)]
        elif point.is_file and point.by == "module":  # a read-only disk refuses renames and removals too
            found.append(Fault(READ_ONLY, number))
    return found + [Fault(kind, number) for number in range(1, starts + 1) for kind in CHILDREN]
