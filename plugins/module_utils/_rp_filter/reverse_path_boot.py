# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What our files have written by themselves: systemd-sysctl reads them at boot, and by udev's rule when a link comes.

Either writes each setting by its name, whether a line or a pattern says so, and thereby pins it.
"""

from __future__ import annotations

import typing as t

from .._platform import sysctl_files
from .reverse_path import ALL, DEFAULT, Entry, Record, Settings, key, wish_in


class Line(t.NamedTuple):
    """The line of all files that decides on ``name``, and says what our file ``path`` does."""

    name: str
    path: str
    winner: sysctl_files.Assignment


def holding(
    names: t.Collection[str], setting: str, files: t.Mapping[str, str], ours: t.Collection[str]
) -> tuple[Line, ...]:
    """The lines that decide on settings as our files do. files: texts by path; ours: paths of those that are ours."""
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
    """What the record would say had we written ``lines``: of those whose value is there.

    What they replaced is what a node without our files has.
    """
    rest = _without(files, ours)
    desired_by_file = {path: wish_in(files[path]) for path in {line.path for line in lines}}
    is_default_ours = any(line.name == DEFAULT for line in lines)
    entries = []
    for name, path, winner in lines:
        if settings.values.get(name) == winner.number:
            before, desired = _before(name, rest, is_default_ours, settings), desired_by_file[path]
            is_desired = desired is None or desired.covers(name)
            entries.append(Entry(name, settings.ifindex(name), path, before, winner.number, None, is_desired))
    return tuple(entries)


def _before(name: str, rest: sysctl_files.Configuration, is_default_ours: bool, settings: Settings) -> int:
    """The kernel starts with 0 (net/ipv4/devinet.c), and gives conf/default to links that nobody sets."""
    said = rest.value(key(name, settings.setting))
    if said is not None:
        return said
    if name in (ALL, DEFAULT):
        return 0
    return _before(DEFAULT, rest, is_default_ours, settings) if is_default_ours else settings.values[DEFAULT]
