# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reverse-path filtering in the running kernel."""

from __future__ import annotations

import typing as t

from .._converge import Operation, Plan, Plane, Step
from .._model import reverse_path
from .._model.problem import Failure
from .._model.reverse_path import ALL, DEFAULT, RP_FILTER, SRC_VALID_MARK, Change, Entry, Settings, Wish, dotted, key
from .._system import files, sysctl
from . import managed_files

# /run is emptied by a boot, as is the kernel's memory of what was written.
RECORDS = {RP_FILTER: "/run/kubenode/rp-filter.jsonl", SRC_VALID_MARK: "/run/kubenode/src-valid-mark.jsonl"}


class Observed(t.NamedTuple):
    """The settings, and the file that holds our record of them."""

    settings: Settings
    file: managed_files.Observed


class LiveReversePath:
    """Holds ``setting`` of links at ``wish``, written and recorded; None for nothing that ``holder`` has brought.

    booted: what a file of the holder's has set at boot, by link. It is in no record, and replaced what conf/default gave.
    """

    plane = Plane.IMMEDIATE
    name = "reverse-path filtering"

    def __init__(
        self,
        edge: sysctl.Sysctl,
        file_system: files.Files,
        wish: Wish | None,
        holder: str,
        setting: str = RP_FILTER,
        booted: t.Mapping[str, int] | None = None,
    ) -> None:
        self._edge = edge
        self._files = file_system
        self._wish = wish
        self._holder = holder
        self._setting = setting
        self._booted = booted or {}
        self._record = RECORDS[setting]

    def observe(self) -> Observed:
        file = self._record_file(()).observe()
        found = file.found[self._record]
        record = reverse_path.record_from(found.text if isinstance(found, files.Content) else "")
        links = self._edge.links()
        recorded = {entry.ifindex for entry in record}
        names = {ALL, DEFAULT, *(link for link, index in links.items() if index in recorded or self._concerns(link))}
        read = {name: self._edge.read(key(name, self._setting)) for name in sorted(names)}
        values = {name: value for name, value in read.items() if value is not None}
        if ALL not in values or DEFAULT not in values:
            raise Failure(f"{dotted(ALL, self._setting)} can not be read; is /proc mounted?")
        links = {link: ifindex for link, ifindex in links.items() if link in values or link not in names}
        record += tuple(
            Entry(link, links[link], self._holder, values[DEFAULT], next=value)
            for link, value in self._booted.items()
            if link in links and values.get(link) == value != values[DEFAULT] and links[link] not in recorded
        )
        return Observed(Settings(links, values, record, self._setting), file)

    def _concerns(self, link: str) -> bool:
        if link in self._booted:
            return True
        return self._wish is not None and (self._wish.raise_all or self._wish.covers(link))

    def foresee(self, observed: Observed, is_selected: bool) -> dict[str, dict[str, dict[str, int]]]:
        """The links that the wish is about, as they are and as they will be; the same where the plane is not selected."""
        before = after = observed.settings
        if is_selected:
            after = reverse_path.difference(self._wish, self._holder, before).after(before)
        held = {name for name, entry in before.entries(self._holder).items() if entry.holder == self._holder}
        links = {link for link in before.links if (self._wish.covers(link) if self._wish else link in held)}
        return {link: {"before": before.shown(link), "after": after.shown(link)} for link in sorted(links)}

    def plan(self, observed: Observed) -> Plan:
        settings = observed.settings
        difference = reverse_path.difference(self._wish, self._holder, settings)
        announcing = self._record_file(difference.announced)
        settling = self._record_file(difference.record)
        writes = [self._write(change) for change in difference.changes]
        steps = (
            *announcing.plan(observed.file).steps,
            *writes,
            *settling.plan(announcing.reached(observed.file)).steps,
        )
        after = difference.after(settings)
        before_text = reverse_path.lines(settings, difference, is_after=False)
        return Plan(steps, before_text, reverse_path.lines(after, difference, is_after=True))

    def _record_file(self, record: reverse_path.Record) -> managed_files.ManagedFiles:
        entry = managed_files.text(self._record, reverse_path.record_text(record))
        return managed_files.ManagedFiles(self._files, [entry], "immediate", claimed=(self._record,))

    def _write(self, change: Change) -> Step:
        path = key(change.name, self._setting)
        summary = f"write {change.wanted} to {dotted(change.name, self._setting)}"
        return Step(summary, sysctl.Write(path, change.wanted), sysctl.Write(path, change.found))

    def perform(self, operation: Operation) -> None:
        if isinstance(operation, sysctl.Write):
            self._edge.perform(operation)
        else:
            self._files.perform(operation)
