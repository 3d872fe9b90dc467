# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The settings that the collection's files have made: systemd-sysctl reads the files at boot and, by udev's rule, when a link
appears.

systemd-sysctl writes each setting by its name, for explicit lines and patterns alike, and thereby pins the setting.
"""

from __future__ import annotations

import typing as t

from .._platform import sysctl_files
from .reverse_path import ALL, DEFAULT, Record, RecordEntry, Settings, desired_in, dotted, key

# The tools that read the files, and when they do.
OCCASIONS = (
    ("at the next boot (systemd-sysctl)", sysctl_files.by_systemd),
    ("at the next `sysctl --system`", sysctl_files.by_procps),
)


class Line(t.NamedTuple):
    """The line that decides ``name`` among all files, and that sets the same value as our file ``path``."""

    name: str
    path: str
    winner: sysctl_files.Assignment


def holding(names: t.Collection[str], setting: str, files: t.Mapping[str, str], ours: t.Collection[str]) -> tuple[Line, ...]:
    """Return the deciding lines that agree with our files. files: texts by path; ours: the paths of our files."""
    if not ours:
        return ()
    everything = sysctl_files.by_systemd(files)
    winners = {name: everything.winner(key(name, setting)) for name in names}
    lines = []
    for path in ours:
        alone = sysctl_files.by_systemd({path: files[path]})
        for name, winner in winners.items():
            if winner and winner.number is not None and winner.number == alone.value(key(name, setting)):
                lines.append(Line(name, path, winner))
    return tuple(lines)


def _without(files: t.Mapping[str, str], ours: t.Collection[str]) -> sysctl_files.Configuration:
    return sysctl_files.by_systemd({path: text for path, text in files.items() if path not in ours})


def record(lines: t.Sequence[Line], files: t.Mapping[str, str], ours: t.Collection[str], settings: Settings) -> Record:
    """Return the record as if we had written ``lines`` ourselves; only of lines whose value is current.

    The former value in an entry is the one that a node without our files has.
    """
    rest = _without(files, ours)
    desired_by_file = {path: desired_in(files[path]) for path in {line.path for line in lines}}
    is_default_ours = any(line.name == DEFAULT for line in lines)
    entries = []
    for name, path, winner in lines:
        if settings.values.get(name) == winner.number:
            before, desired = _before(name, rest, is_default_ours, settings), desired_by_file[path]
            is_desired = desired is None or desired.covers(name)
            entries.append(RecordEntry(name, settings.ifindex(name), path, before, winner.number, None, is_desired))
    return tuple(entries)


def _before(name: str, rest: sysctl_files.Configuration, is_default_ours: bool, settings: Settings) -> int:
    """Return the value that a setting had at first.

    The kernel starts with 0 (net/ipv4/devinet.c), and gives conf/default to links that no file sets.
    """
    said = rest.value(key(name, settings.setting))
    if said is not None:
        return said
    if name in (ALL, DEFAULT):
        return 0
    return _before(DEFAULT, rest, is_default_ours, settings) if is_default_ours else settings.values[DEFAULT]


def setters(files: t.Mapping[str, str], setting: str, mode: int) -> str:
    """Return the sentence about the lines that set conf/all above a mode, and when; that a program did if there is none."""
    occasions: dict[str, list[str]] = {}
    for occasion, read in OCCASIONS:
        winner = read(files).winner(key(ALL, setting))
        if winner and (winner.number or 0) > mode:
            occasions.setdefault(f"line {winner.line} of {winner.path} sets it to {winner.number}", []).append(occasion)
    if not occasions:
        return f"No file of sysctl.d sets {dotted(ALL, setting)} so: a program wrote it."
    text = "; ".join(f"{line} {' and '.join(when)}" for line, when in occasions.items())
    return f"{text[0].upper()}{text[1:]}."
