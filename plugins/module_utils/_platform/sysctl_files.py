# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings that the files of sysctl.d(5) make in the kernel, by the rules of the two tools that read them.

systemd-sysctl runs at boot and, by udev's rule for new links, when a link appears. ``sysctl --system`` of procps is run by
operators and other playbooks. tests/integration/_platform/test_sysctl.py compares this module with both, on random files.
"""

from __future__ import annotations

import re
import typing as t

from .._core import glob

# The folders of both tools. If several have a file of the same name, the first one counts (sysctl.d(5)).
FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
# Read by ``sysctl --system`` after all others; by systemd-sysctl only if a distribution links to it.
LAST_OF_PROCPS = "/etc/sysctl.conf"


class Assignment(t.NamedTuple):
    """A line about ``key``, a path below /proc/sys. ``value`` is None in a line that exempts the key from globs."""

    path: str
    line: int
    key: str
    value: str | None

    @property
    def is_glob(self) -> bool:
        return glob.is_glob(self.key)

    @property
    def number(self) -> int | None:
        """Return the number that the kernel reads from the value; it ignores what follows after a blank."""
        match = re.match(r"-?(?:(0[xX][0-9a-fA-F]{1,16})|(0[0-7]{0,22})|[1-9][0-9]{0,19})(?=[ \t]|$)", self.value or "")
        return int(match.group(), 16 if match.group(1) else 8 if match.group(2) else 10) if match else None

    def covers(self, key: str) -> bool:
        """Return whether the line's key is ``key`` or a glob that it matches."""
        own_parts, parts = self.key.split("/"), key.split("/")
        return len(own_parts) == len(parts) and all(map(glob.matches, own_parts, parts))


class Configuration:
    """What one tool has read: ``assignments``, in the order in which the tool keeps them."""

    def __init__(self, assignments: t.Iterable[Assignment]) -> None:
        self.assignments = tuple(assignments)
        self._globs = [assignment for assignment in self.assignments if assignment.is_glob and assignment.value is not None]
        self._explicit: dict[str, list[Assignment]] = {}
        for assignment in self.assignments:
            if not assignment.is_glob:  # a link may be called x*, but no line can name it
                self._explicit.setdefault(assignment.key, []).append(assignment)

    def winner(self, key: str) -> Assignment | None:
        """Return the line that decides ``key``: the last explicit line, else the last glob; None if there is neither.

        A line whose value the kernel refuses counts only if there is no other: the value written before it stays.
        """
        lines = self._explicit.get(key) or [assignment for assignment in self._globs if assignment.covers(key)]
        taken = [assignment for assignment in lines if assignment.number is not None] or lines
        return taken[-1] if taken else None

    def value(self, key: str) -> int | None:
        """Return the value that the tool gives to ``key``; None if it does not set it."""
        winner = self.winner(key)
        return winner.number if winner else None


def by_systemd(files: t.Mapping[str, str]) -> Configuration:
    """Return how systemd-sysctl reads ``files``, texts by path.

    It keeps one line for each key (src/sysctl/sysctl.c, parse_file). A later line with another value replaces the earlier one
    and goes to the end. A later line with the same value is ignored, so that the earlier one keeps its place among globs.
    """
    options: dict[str, Assignment] = {}
    for assignment in _parse(files, in_order(files)):
        if assignment.key not in options or options[assignment.key].value != assignment.value:
            options.pop(assignment.key, None)
            options[assignment.key] = assignment
    return Configuration(options.values())


def by_procps(files: t.Mapping[str, str]) -> Configuration:
    """Return how ``sysctl --system`` of procps 4 reads ``files``, texts by path.

    It keeps all lines, and applies them in order.
    """
    paths = [*in_order(files), *(path for path in files if path == LAST_OF_PROCPS)]
    return Configuration(_parse(files, paths))


def in_order(files: t.Iterable[str], folders: t.Sequence[str] = FOLDERS) -> list[str]:
    """Sort paths by file name. If several folders have a file of the same name, only that in the first folder is kept.

    All of systemd's programs read their drop-in files in this order.
    """
    chosen: dict[str, str] = {}
    for folder in folders:
        for path in files:
            if path.rpartition("/")[0] == folder and path.endswith(".conf"):
                chosen.setdefault(_base(path), path)
    return [chosen[name] for name in sorted(chosen, key=lambda name: name.encode("utf-8", "surrogateescape"))]


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def read_instead(path: str, files: t.Iterable[str]) -> str:
    """Return the file that counts among those with the same name as ``path``; it may be ``path`` itself."""
    name = _base(path)
    return next((other for other in in_order({*files, path}, FOLDERS) if _base(other) == name), path)


def _parse(files: t.Mapping[str, str], paths: t.Iterable[str]) -> t.Iterator[Assignment]:
    for path in paths:
        for number, line in enumerate(files[path].split("\n"), 1):
            line = line.strip(" \t\r")
            key, equals, value = line.partition("=")
            if line and line[0] not in "#;" and (equals or line[0] == "-"):
                yield Assignment(path, number, _normal(key), value.strip(" \t\r") if equals else None)


def _normal(key: str) -> str:
    """Return the key as a path. If its first separator is a dot, dots and slashes are swapped (sysctl.d(5))."""
    key = (key[1:] if key.startswith("-") else key).strip(" \t\r")
    separator = re.search("[./]", key)
    if separator and separator.group() == ".":
        key = key.translate({ord("."): "/", ord("/"): "."})
    return re.sub("//+", "/", key).strip("/")
