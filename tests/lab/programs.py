# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of a node replaced, counted or broken, for the time of a test.

A script is bind-mounted over the program in the node's mount namespace: no other process sees it, and it goes with the node.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from lab.machine import Machine
from lab.namespace import TOOLS

# One printf is one write to the log, so that calls at the same time do not mix. exec -a keeps the name by which the program was
# called, from which xtables-nft-multi chooses its function.
_COUNT = """\
#!/bin/bash
printf '%s\\0' "$#" "$0" "$@" >> {log}
exec -a "$0" @REAL@ "$@"
"""

# Private: if systemd is process 1, all mounts are shared, and the script would cover the program there too.
_INSTALL = """
set -eu
while [ $# -gt 0 ]; do
  path=$1 real=$2 ours=$3 script=$4
  shift 4
  mkdir -p "${real%/*}"
  touch "$real"
  mount --bind "$path" "$real"
  mount --make-private "$real"
  printf %s "$script" > "$ours"
  chmod 0755 "$ours"
  mount --bind "$ours" "$path"
done
"""

COUNTED = (
    "nft", "ip", "tc", "bridge", "sysctl", "systemctl", "systemd-run", "unshare", "nsenter", "conntrack", "ethtool", "modprobe",
    "iptables", "ip6tables", "ebtables", "udevadm", "apt-get", "dpkg", "dpkg-query", "lsmod", "bpftool",
)  # fmt: skip
"""What count_processes counts, where the machine has it: whatever a module may start to look at a node or to change it."""

_numbers = itertools.count(1)


class Replacement:
    """Programs of the node that are scripts now, until ``restore()`` or the end of the ``with`` block.

    ``scripts`` maps a program's path to a script, in which ``@REAL@`` stands for the path of the original program.
    Replacements stack: one of a replaced program covers the script that was there.
    """

    def __init__(self, machine: Machine, scripts: Mapping[str, str]) -> None:
        self._machine = machine
        self.folder = f"{TOOLS}/{next(_numbers)}"
        self._mounts: list[str] = []
        arguments: list[str] = []
        for path, script in _resolved(machine, scripts).items():
            name = os.path.basename(path)
            real, ours = f"{self.folder}/real/{name}", f"{self.folder}/{name}"
            arguments += [path, real, ours, script.replace("@REAL@", real)]
            self._mounts += [path, real]
        machine.run(["sh", "-c", _INSTALL, "sh", *arguments])

    def restore(self) -> None:
        """Restore the programs. Lazily: a script that still runs keeps its file busy."""
        self._machine.run(["umount", "--lazy", *self._mounts])

    def __enter__(self) -> Replacement:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.restore()


@contextmanager
def counted(machine: Machine, programs: Iterable[str] = COUNTED) -> Iterator[list[list[str]]]:
    """Count programs by name. The list holds, once the block has ended, each call's argv in order of the start.

    A program that is not named in ``programs`` is not seen.
    """
    log = f"{TOOLS}/calls-{next(_numbers)}"
    machine.write(log, "")
    paths = machine.run(["sh", "-c", 'for name; do command -v "$name" || true; done', "sh", *programs]).stdout.split()
    calls: list[list[str]] = []
    with Replacement(machine, {path: _COUNT.format(log=log) for path in paths}):
        yield calls
        calls += _parse_calls(machine.read(log))


def _resolved(machine: Machine, scripts: Mapping[str, str]) -> dict[str, str]:
    """Programs by their real file: iptables and ip6tables are names of one file, which must not be covered twice."""
    paths = list(scripts)
    files = machine.run(["readlink", "-e", "--", *paths]).stdout.splitlines()
    return {file: scripts[path] for path, file in zip(paths, files, strict=True)}


def _parse_calls(log: str) -> list[list[str]]:
    """Records of: number of arguments, program, arguments; each ends with a NUL."""
    fields = iter(log.split("\0")[:-1])
    return [[next(fields) for _field in range(int(count) + 1)] for count in fields]
