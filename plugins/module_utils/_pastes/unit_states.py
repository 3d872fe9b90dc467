# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The states of systemd's units in outputs of systemctl, and the links of systemd-networkd in those of networkctl."""

from __future__ import annotations

import fnmatch
import re
import typing as t

LOAD, ACTIVE, FILE = "LoadState", "ActiveState", "UnitFileState"  # properties, as systemctl show names them
SHOW, IS_ACTIVE, IS_ENABLED, LIST_UNITS, LIST_FILES = "show", "is-active", "is-enabled", "list-units", "list-unit-files"
_OF_EACH = {IS_ACTIVE: ACTIVE, IS_ENABLED: FILE}  # a line for each unit
_LISTED = {  # by verb, a row of its table, and the line behind the last row
    LIST_UNITS: (
        re.compile(rf"\W*(?P<Id>\S+\.\w+) +(?P<{LOAD}>[a-z-]+) +(?P<{ACTIVE}>[a-z]+) +(?P<SubState>[a-z-]+)(?: .*)?"),
        "loaded units listed",
    ),
    LIST_FILES: (re.compile(rf"(?P<Id>\S+\.\w+) +(?P<{FILE}>[a-z-]+)(?: .*)?"), "unit files listed"),
}
_WORD = re.compile(r"[a-z-]+")
_LINK, _NETWORK_FILE = re.compile(r"\W*\d+: (\S+)"), re.compile(r"\s*Network File: (/\S+)")
_UNMANAGED = re.compile(r"\s*State: \S+ \(unmanaged\)")
# The programs of known_daemons that are units, by the units that let them run.
DAEMONS = {
    "systemd-networkd": ("systemd-networkd.service",),
    "NetworkManager": ("NetworkManager.service",),
    "nm-cloud-setup": ("nm-cloud-setup.timer", "nm-cloud-setup.service"),
}
NET_UTILS, NET_UTILS_UNITS = "amazon-ec2-net-utils", "policy-routes@*.service"


class UnitStates:
    """What outputs say of units. A unit that is not among all that a property was asked of does not have it."""

    def __init__(self) -> None:
        self._units: dict[str, dict[str, str]] = {}
        self._asked: dict[str, set[str]] = {}  # patterns of the units that were asked for a property, by the property

    def add(self, verb: str, words: t.Sequence[str], lines: t.Iterable[str]) -> None:
        """Add an output. words: units, or patterns of their names; none for all of them."""
        lines = [*filter(str.strip, lines)] if verb != SHOW else [*lines]
        if verb in _OF_EACH and len(lines) == len(words) and all(map(_WORD.fullmatch, map(str.strip, lines))):
            units = [
                {"Id": word if "." in word else f"{word}.service", _OF_EACH[verb]: line.strip()}
                for word, line in zip(words, lines)
            ]
            self._update(units, [unit["Id"] for unit in units])
        elif verb in _LISTED and not words:
            row, end = _LISTED[verb]
            matches = [match.groupdict() for match in map(row.fullmatch, map(str.rstrip, lines)) if match]
            self._update(matches, ["*"] if any(end in line for line in lines) else [])
        elif verb == SHOW and all("=" in line for line in lines if line.strip()):
            units = [*_blocks(lines)]
            if units and all(unit.get("Id") for unit in units):
                self._update(units, words or ["*"])

    def _update(self, units: t.Sequence[t.Mapping[str, str]], patterns: t.Sequence[str]) -> None:
        for unit in units:
            self._units.setdefault(unit["Id"], {}).update(unit)
        for name in {name for unit in units for name in unit}:
            self._asked.setdefault(name, set()).update(patterns)

    def value(self, unit: str, name: str) -> str | None:
        """Return a property of a unit: empty for a unit without it, None if no output tells."""
        known = self._units.get(unit, {})
        if name in known:
            return known[name]
        return "" if any(fnmatch.fnmatchcase(unit, pattern) for pattern in self._asked.get(name, ())) else None

    def has_all(self, pattern: str, name: str) -> bool:
        """Return whether all units of a pattern were asked for a property."""
        return not self._asked.get(name, set()).isdisjoint({pattern, "*", "*.service", "*service"})

    def matching(self, pattern: str) -> list[t.Mapping[str, str]]:
        """Return the properties of the units of a pattern, by name."""
        return [self._units[name] for name in sorted(self._units) if fnmatch.fnmatchcase(name, pattern)]

    def daemons(self) -> dict[str, bool] | None:
        """Return the network daemons that are units, and whether each is active; None if an output does not tell of one."""
        states = {name: [self.value(unit, ACTIVE) for unit in units] for name, units in DAEMONS.items()}
        if any(of_daemon[0] is None for of_daemon in states.values()):
            return None
        running = any(unit.get(ACTIVE) == "active" for unit in self.matching(NET_UTILS_UNITS))
        return {**{name: "active" in of_daemon for name, of_daemon in states.items()}, **({NET_UTILS: True} if running else {})}


def managed_links(lines: t.Iterable[str]) -> dict[str, str]:
    """Return the files by which systemd-networkd manages links, by link. lines: of ``networkctl status --all``."""
    files: dict[str, str] = {}
    link = ""
    for line in lines:
        head, file = _LINK.match(line), _NETWORK_FILE.match(line)
        link = head[1] if head else link
        if file:
            files[link] = file[1]
        elif _UNMANAGED.match(line):
            files.pop(link, None)
    return files


def _blocks(lines: t.Iterable[str]) -> t.Iterator[dict[str, str]]:
    """Yield the properties of each unit, which an empty line ends."""
    unit: dict[str, str] = {}
    for line in (*lines, ""):
        name, sign, value = line.strip().partition("=")
        if sign:
            unit[name] = value
        elif unit:
            yield unit
            unit = {}
