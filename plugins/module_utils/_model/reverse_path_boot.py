# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What our files have written by themselves: systemd-sysctl reads them at boot, and by udev's rule when a link comes.

Either writes each setting by its name, whether a line or a pattern says so, and thereby pins it.
"""

from __future__ import annotations

import typing as t

from . import sysctl
from .reverse_path import ALL, DEFAULT, Entry, Record, Settings, key, wish_in


class Line(t.NamedTuple):
    """A line of ours for ``name``; and the ``winner`` of all files: a line that says the same, or that wins because of ours."""

    name: str
    ours: sysctl.Assignment
    winner: sysctl.Assignment


def holding(
    names: t.Collection[str], setting: str, files: t.Mapping[str, str], ours: t.Collection[str]
) -> tuple[Line, ...]:
    """The lines of our files that decide on settings. files: texts by path; ours: paths of those that are ours.

    A line of ours may also move one of others behind or before its like, as a repeated one keeps its place.
    """
    if not ours:
        return ()
    lines = []
    all_read, rest = sysctl.by_systemd(files), _without(files, ours)
    for path in ours:
        alone = sysctl.by_systemd({path: files[path]})
        for name in names:
            mine = alone.winner(key(name, setting))
            winner = mine and all_read.winner(key(name, setting))
            if mine and winner and (winner.number == mine.number or winner.number != rest.value(key(name, setting))):
                lines.append(Line(name, mine, winner))
    return tuple(lines)


def _without(files: t.Mapping[str, str], ours: t.Collection[str]) -> sysctl.Configuration:
    return sysctl.by_systemd({path: text for path, text in files.items() if path not in ours})


def record(lines: t.Sequence[Line], files: t.Mapping[str, str], ours: t.Collection[str], settings: Settings) -> Record:
    """What the record would say had we written ``lines``: of those whose value is there.

    What they replaced is what a node without our files has.
    """
    rest = _without(files, ours)
    wishes = {path: wish_in(files[path]) for path in {line.ours.path for line in lines}}
    is_default_ours = any(line.name == DEFAULT for line in lines)
    entries = []
    for name, line, winner in lines:
        if settings.values.get(name) == winner.number:
            before, wish = _before(name, rest, is_default_ours, settings), wishes[line.path]
            is_wished = winner.number == line.number and (wish is None or wish.covers(name))
            entries.append(Entry(name, settings.ifindex(name), line.path, before, winner.number, None, is_wished))
    return tuple(entries)


def _before(name: str, rest: sysctl.Configuration, is_default_ours: bool, settings: Settings) -> int:
    """The kernel starts with 0 (net/ipv4/devinet.c), and gives conf/default to links that nobody sets."""
    said = rest.value(key(name, settings.setting))
    if said is not None:
        return said
    if name in (ALL, DEFAULT):
        return 0
    return _before(DEFAULT, rest, is_default_ours, settings) if is_default_ours else settings.values[DEFAULT]
