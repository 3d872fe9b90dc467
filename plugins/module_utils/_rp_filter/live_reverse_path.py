# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reverse-path filtering in the running kernel."""

from __future__ import annotations

import typing as t

from .._core.errors import Failure
from .._core.plan import Plan, Plane, Step, whole
from .._files import files, managed_files
from .._platform import sysctl, sysctl_files
from . import reverse_path
from .reverse_path import (
    ALL,
    DEFAULT,
    RP_FILTER,
    SRC_VALID_MARK,
    Change,
    DesiredFilter,
    Record,
    RecordEntry,
    Settings,
    desired_in,
    dotted,
    key,
)

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


def holding(names: t.Collection[str], setting: str, files: t.Mapping[str, str], own_paths: t.Collection[str]) -> tuple[Line, ...]:
    """Return the deciding lines that agree with our files. files: texts by path; own_paths: the paths of our files."""
    if not own_paths:
        return ()
    everything = sysctl_files.by_systemd(files)
    winners = {name: everything.winner(key(name, setting)) for name in names}
    lines = []
    for path in own_paths:
        alone = sysctl_files.by_systemd({path: files[path]})
        for name, winner in winners.items():
            if winner and winner.number is not None and winner.number == alone.value(key(name, setting)):
                lines.append(Line(name, path, winner))
    return tuple(lines)


def _without(files: t.Mapping[str, str], own_paths: t.Collection[str]) -> sysctl_files.Configuration:
    return sysctl_files.by_systemd({path: text for path, text in files.items() if path not in own_paths})


def boot_record(lines: t.Sequence[Line], files: t.Mapping[str, str], own_paths: t.Collection[str], settings: Settings) -> Record:
    """Return the record as if we had written ``lines`` ourselves; only of lines whose value is current.

    The former value in an entry is the one that a node without our files has.
    """
    rest = _without(files, own_paths)
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


# A boot empties /run, and also resets every setting.
RECORDS = {RP_FILTER: "/run/kubenode/rp-filter.jsonl", SRC_VALID_MARK: "/run/kubenode/src-valid-mark.jsonl"}

# By link, "before" and "after", each as Settings.shown() returns it.
Interfaces = dict[str, dict[str, dict[str, int]]]


class ObservedReversePath(t.NamedTuple):
    """The settings, the file of the record, and the entries in that file.

    The record in ``settings`` also contains the settings that the collection's files in sysctl.d(5) have made. is_moving: whether
    the file that is the evidence of these is about to change.
    """

    settings: Settings
    file: managed_files.ObservedFiles
    recorded: Record
    is_moving: bool


class LiveReversePath:
    """Keeps ``setting`` of links as desired, written and recorded. desired None: undoes all that ``holder`` has set.

    holder: the path of the file in sysctl.d(5) that sets the same in the permanent plane.
    configuration: the texts of all such files, by path. A setting that the collection's files have made needs no other write.
    file: the holder's file, if the same run manages it. The file is the only evidence of the settings that it has made, so if it
        changes, the record takes them over.
    """

    plane = Plane.IMMEDIATE
    name = "reverse-path filtering"

    def __init__(
        self,
        backend: sysctl.Sysctl,
        file_system: files.Files,
        desired: DesiredFilter | None,
        holder: str,
        setting: str = RP_FILTER,
        configuration: t.Mapping[str, str] | None = None,
        file: managed_files.ManagedFiles | None = None,
    ) -> None:
        self.backends = (backend, file_system)
        self._backend = backend
        self._files = file_system
        self._desired = desired
        self._holder = holder
        self._setting = setting
        self._configuration = configuration or {}
        self._ours = {path for path, text in self._configuration.items() if text.startswith(managed_files.HEADING)}
        self._file = file
        self._record = RECORDS[setting]

    def observe(self) -> ObservedReversePath:
        file = self._record_file(()).observe()
        record_file = file.states[self._record]
        record = reverse_path.record_from(record_file.text if isinstance(record_file, files.Content) else "")
        links = self._backend.links()
        lines = self._applied(links, record)
        settings = self._read(links, record, lines)
        at_boot = boot_record(lines, self._configuration, self._ours, settings)
        needed = (entry for entry in at_boot if entry.holder != self._holder or self._matters(entry))
        is_moving = bool(self._file and self._file.plan(self._file.observe()).steps)
        return ObservedReversePath(settings._replace(record=(*record, *needed)), file, record, is_moving)

    def _read(self, links: t.Mapping[str, int], record: Record, lines: t.Iterable[Line]) -> Settings:
        """Read the settings of all, of default, and of the links that the record, the lines or the desired state name.

        A link that disappears before its setting is read is left out. Raises Failure.
        """
        recorded = {entry.ifindex for entry in record}
        concerned = (link for link, index in links.items() if index in recorded or self._concerns(link))
        names = {ALL, DEFAULT, *(line.name for line in lines), *concerned}
        read = {name: self._backend.read(key(name, self._setting)) for name in sorted(names)}
        values = {name: value for name, value in read.items() if value is not None}
        if ALL not in values or DEFAULT not in values:
            raise Failure(f"{dotted(ALL, self._setting)} cannot be read; is /proc mounted?")
        present = {link: ifindex for link, ifindex in links.items() if link in values or link not in names}
        return Settings(present, values, record, self._setting)

    def _applied(self, links: t.Mapping[str, int], record: Record) -> list[Line]:
        """Return the lines of the collection's files whose settings are not in the record."""
        recorded = {entry.ifindex or entry.name for entry in record}
        unknown = [name for name in (ALL, DEFAULT, *links) if links.get(name, name) not in recorded]
        lines = holding(unknown, self._setting, self._configuration, self._ours)
        return [line for line in lines if self._backend.has_applied(line.winner.path, links.get(line.name, 0))]

    def _matters(self, entry: reverse_path.RecordEntry) -> bool:
        """Return whether there is a former value to restore, or the link is a desired one, which must stay pinned."""
        return entry.value != entry.before or (self._desired is not None and self._desired.covers(entry.name))

    def _concerns(self, link: str) -> bool:
        return self._desired is not None and (self._desired.raise_all or self._desired.covers(link))

    def report(self, before: Settings, after: Settings) -> Interfaces:
        """Return the links concerned, and those that get a former value back, as they are and as they will be. Pure."""
        current = before.held(self._holder).keys()
        links = {link for link in before.links if (self._desired.covers(link) if self._desired else link in current)}
        restored = {link for link in current & before.links.keys() if before.shown(link) != after.shown(link)}
        return {link: {"before": before.shown(link), "after": after.shown(link)} for link in sorted(links | restored)}

    def released(self) -> list[str]:
        """Return the links whose setting the holder gives up, and which no other holder sets, if desired is None."""
        settings = self.observe().settings
        needed = settings.desired_by_others(self._holder)
        return [name for name in settings.held(self._holder) if name not in needed]

    def plan(self, observed: ObservedReversePath) -> Plan:
        settings = observed.settings
        difference = reverse_path.difference(self._desired, self._holder, settings, self._setters)
        if not (observed.is_moving or difference.changes or difference.record != settings.record):
            difference = reverse_path.Difference((), observed.recorded, observed.recorded)
        announcing = self._record_file(difference.announced)
        settling = self._record_file(difference.record)
        writes = [self._write(change) for change in difference.changes]
        # Without desired settings, a record that is not renewed names values that the links no longer have, which is harmless. So
        # a full /run does not hinder absent.
        announcements = (step._replace(is_optional=self._desired is None) for step in announcing.plan(observed.file).steps)
        steps = (
            *announcements,
            *writes,
            *managed_files.settling(announcing, settling, observed.file),
        )
        after = difference.after(settings)
        before_text = reverse_path.lines(settings, difference, is_after=False)
        after_text = reverse_path.lines(after, difference, is_after=True)
        return Plan(steps, whole(before_text, after_text), self.report(settings, after))

    def _setters(self, mode: int) -> str:
        foreign = {path: text for path, text in self._configuration.items() if path not in self._ours}
        return setters(foreign, self._setting, mode)

    def remember(self, observed: ObservedReversePath) -> Plan:
        """Plan the record alone: it takes over what our files have set."""
        return self._record_file(observed.settings.record).plan(observed.file)

    def _record_file(self, record: reverse_path.Record) -> managed_files.ManagedFiles:
        entry = managed_files.text(self._record, reverse_path.record_text(record))
        instead = "set immediate to false"
        return managed_files.ManagedFiles(self._files, [entry], "immediate", instead, claimed=(self._record,))

    def _write(self, change: Change) -> Step:
        path = key(change.name, self._setting)
        summary = f"write {change.desired} to {dotted(change.name, self._setting)}"
        return Step(summary, sysctl.Write(path, change.desired), sysctl.Restore(path, change.current, change.desired))
