# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of a node that outputs show, and what systemd says of its units, as subsets of a snapshot."""

from __future__ import annotations

import fnmatch
import math
import re
import typing as t

from .._cni import cni
from .._routing import policy, rt_names
from .._snapshot import firewalls, proc_net
from .._snapshot import settings as settings_model
from . import commands, unit_states
from .commands import MARK, Part
from .unit_states import ACTIVE, FILE, LOAD, UnitStates

Entry = dict[str, t.Any]
SUFFIXES = (".conf", ".conflist", ".json")  # what a runtime reads of the folder of CNIs
OWN_UNITS = "kubenode-*"
_TYPE, _NAME = re.compile(r'"type"\s*:\s*"([\w.-]+)"'), re.compile(r'"name"\s*:\s*"([\w.-]+)"')
_CONFIGURATIONS = {"sysctl.d": settings_model.SYSCTL, "systemd/networkd.conf": settings_model.NETWORKD}  # of systemd-analyze
_MESSAGE = re.compile(r"(?:-?\w+: )*cat: ")  # of cat itself or of the shell
_NONE = "No such file or directory"
LISTENERS = tuple(f"/proc/net/{name}" for name in proc_net.SOCKETS)


class NodeFiles:
    """The files and units of all outputs. texts: by path."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._asked: list[str] = []  # words of commands that print all files of some names
        self._cut: list[str] = []  # paths of which lines may be left out
        self._units = UnitStates()
        self._sockets: list[Entry] | None = None
        self._managed: dict[str, str] | None = None  # links of systemd-networkd, and their files

    def add(self, part: Part) -> None:
        if part.is_cut:
            return
        if part.kind == commands.UNITS:
            self._units.add(part.chain, part.table.split(), part.lines)
        elif part.kind == commands.SOCKETS:
            self._sockets = proc_net.listed_sockets(part.lines)
        elif part.kind == commands.NETWORKD:
            self._managed = unit_states.managed_links(part.lines)
        elif part.table and any(map(_MESSAGE.match, part.lines)):
            self._asked += [] if _is_refused(part.lines) else [part.table]
        elif part.table and len(part.lines) >= _most_lines(part.chain):
            self._cut.append(part.table)
        elif part.table:
            lines = [line.removeprefix(MARK.rstrip()).removeprefix(" ") if line.startswith("|") else line for line in part.lines]
            self.texts[part.table] = "\n".join([*lines, ""])
        elif not _is_refused(part.lines):
            words = part.chain.split()
            part_of_boot = _CONFIGURATIONS.get(words[-1]) if words[:1] == ["cat-config"] else None
            self._asked += words if part_of_boot is None else all_of(part_of_boot)

    def subsets(self, connections: Entry) -> Entry:
        """Return the subsets that the files and units show as a whole. connections: how many the kernel tracks, and may."""
        of_files = {
            "cni": self._cni(),
            "counters": self._counters(connections),
            "listeners": self._listeners(),
            "firewalls": self._firewalls(),
            "network_daemons": self._network_daemons(),
            "units": self._own_units(),
            "policies": self._policies(),
        }
        return {name: subset for name, subset in of_files.items() if subset is not None}

    def boot_files(self) -> dict[str, str]:
        """Return the files that set something at the next boot."""
        return {path: text for path, text in self.texts.items() if settings_model.boot_part(path)}

    def folders(self) -> set[str]:
        """Return the folders all of whose files are shown."""
        return {pattern.rpartition("/")[0] for pattern in self._asked if not self._is_cut(pattern)}

    def _is_cut(self, pattern: str) -> bool:
        return any(fnmatch.fnmatchcase(path, pattern) for path in self._cut)

    def _is_asked(self, path: str) -> bool:
        """Return whether a file would be shown if the node had it."""
        patterns = (pattern for pattern in self._asked if fnmatch.fnmatchcase(path, pattern))
        return path in self.texts or any(not self._is_cut(pattern) for pattern in patterns)

    def _cni(self) -> list[Entry] | None:
        """Return names and types only: the rest may contain secrets."""
        paths = sorted(path for path in self.texts if path.rpartition("/")[0] == cni.FOLDER)
        if not (paths or self._is_asked(f"{cni.FOLDER}/x")):
            return None
        configurations = ((path, self.texts[path]) for path in paths)
        entries = (
            {"path": path, "name": _name(text), "plugins": _plugins(text), "is_inert": not path.endswith(SUFFIXES)}
            for path, text in configurations
        )
        return [entry for entry in entries if entry["plugins"]]

    def _counters(self, connections: Entry) -> Entry | None:
        if not all(map(self._is_asked, proc_net.COUNTERS)):
            return {"packets": {}, "connections": connections} if connections else None
        values = proc_net.counters(*(self.texts.get(path, "") for path in proc_net.COUNTERS))
        of_kernel = self.texts.get(proc_net.TRACKING, "")
        return {
            "packets": {name: value for name, value in sorted(values.items()) if name.endswith(proc_net.DROPS)},
            "connections": {**connections, **proc_net.sums(of_kernel, proc_net.TRACKED)},
            "routing": proc_net.sums(self.texts.get(proc_net.ROUTING, ""), proc_net.MARTIANS),
        }

    def _listeners(self) -> list[Entry] | None:
        if not all(map(self._is_asked, LISTENERS)):
            return self._sockets
        listed = (entry for path in LISTENERS for entry in proc_net.listeners(self.texts.get(path, "")))
        once = {(entry["port"], entry["address"]): entry for entry in listed}
        return [once[key] for key in sorted(once)]

    def _firewalls(self) -> Entry | None:
        """Return the services that the node has, each with what is known of it."""
        states: Entry = {}
        for name in (firewalls.NFTABLES, firewalls.FIREWALLD):
            load, active, file = (self._units.value(name, key) for key in (LOAD, ACTIVE, FILE))
            if active is None:
                return None
            is_known = {"is_enabled": file is not None, "is_masked": bool(load)}
            state = {"is_enabled": (file or "").startswith("enabled"), "is_masked": load == "masked"}
            if load not in ("not-found", "") or file != "":
                states[name] = {"is_active": active == "active", **{key: state[key] for key in state if is_known[key]}}
        for name, state in states.items():
            self._add_configuration(name, state)
        return states

    def _add_configuration(self, name: str, state: Entry) -> None:
        """Add what the configuration of a firewall says, if it would be shown."""
        if name == firewalls.FIREWALLD:
            if self._is_asked(firewalls.FIREWALLD_FILE):
                state.update(firewalls.of_firewalld(self.texts.get(firewalls.FIREWALLD_FILE, "")))
            return
        path = next((path for path in firewalls.NFTABLES_FILES if path in self.texts), "")
        if path or all(map(self._is_asked, firewalls.NFTABLES_FILES)):
            state.update(file=path, flushes=firewalls.flushes(self.texts.get(path, "")))

    def _network_daemons(self) -> Entry | None:
        """Return the daemons that are units. Files, which no output has, let further agents configure links."""
        daemons = self._units.daemons()
        if daemons is None:
            return None
        links = {"networkd_files": self._managed or {}, "has_links": self._managed is not None}
        return {"daemons": daemons, "networkd_version": None, **links, "is_partial": True}

    def _policies(self) -> list[Entry] | None:
        patterns = [f"{folder}/{policy.RECORD_FILES}" for folder in policy.RECORD_FOLDERS]
        if not all(map(self._is_asked, patterns)):
            return None
        paths = [path for pattern in patterns for path in sorted(self.texts) if fnmatch.fnmatchcase(path, pattern)]
        return policy.recorded({path: self.texts[path] for path in paths}, rt_names.TABLES)[0]

    def _own_units(self) -> list[Entry] | None:
        if not (self._units.has_all(OWN_UNITS, ACTIVE) and self._units.has_all(OWN_UNITS, FILE)):
            return None
        fields = {"active": ACTIVE, "sub": "SubState", "result": "Result"}
        return [
            {
                "name": unit["Id"],
                "is_enabled": unit.get(FILE, "").startswith("enabled"),
                **{key: unit.get(field, "") for key, field in fields.items()},
            }
            for unit in self._units.matching(OWN_UNITS)
        ]


def all_of(part: str) -> list[str]:
    """Return the files that decide about a part of what the next boot sets."""
    return [*settings_model.BOOT_FILES[part], *(f"{folder}/*.conf" for folder in settings_model.BOOT_FOLDERS[part])]


def _is_refused(lines: t.Iterable[str]) -> bool:
    """Return whether what a program says besides files is more than that some are not there."""
    return any(line.strip() and not line.rstrip().endswith(_NONE) for line in lines)


def _most_lines(command: str) -> float:
    """Return how many lines of a file head and tail print (coreutils: 10 without an option)."""
    if command.split()[:1] != ["-v"]:
        return math.inf  # cat, and systemd-analyze
    number = re.search(r"(?:^|\s)-(?:n\s*|-lines[= ])?\+?(\d+)\b", command)
    return int(number[1]) if number else 10


def _plugins(text: str) -> list[str]:
    """Return the types of plugins: of the whole text, or of lines with types alone, which have those of IPAM, too."""
    return [*(cni.plugins_in(text) or dict.fromkeys(_TYPE.findall(text)))]


def _name(text: str) -> str:
    named = _NAME.search(text)
    return cni.name_in(text) or (named[1] if named else "")
