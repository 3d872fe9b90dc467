# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that a unit of this collection loads at boot: at the option ``path``, and at the paths of earlier runs.

The unit names the file that it loads; while nothing moves, no other record of the path is needed. A run that places, moves or
removes the files first writes a record beside the unit. The record names each path that the run may change, and is removed by
the last step. So the next run knows where to look, at whichever step a run was killed.
"""

from __future__ import annotations

import typing as t

from .._core import names
from .._core.errors import Invalid
from .._core.plan import Backend, Plan, Plane, Resource, Step, objects
from .._files import files, managed_files
from .._files.managed_files import HEADING, ManagedFile, ManagedFiles
from .._systemd import boot_unit, unit_files, unit_resource, units
from .._systemd.boot_unit import BootUnit

NOTE = "# A run changes the files at these paths. If it was killed, the next run for this unit completes the change.\n"


def program(path: str) -> str:
    """Return the path of the boot program that belongs to the file at ``path``."""
    return f"{path}.pyz"


def record(unit: str) -> str:
    """Return the path of the record. systemd ignores the file, because its name is not that of a unit."""
    return f"{unit_files.path_of(unit)}.files"


def loaded_path(backend: files.Files, unit: str) -> str:
    """Return the path that the unit on the node loads; empty if it loads none, or is not a unit of this collection.

    The file there is the collection's, whatever it contains.
    """
    current = backend.read(unit_files.path_of(unit))
    if isinstance(current, files.Content) and current.text.startswith(HEADING):
        return boot_unit.loaded_path(current.text)
    return ""


class UnitPaths(t.NamedTuple):
    """loaded: the path that the unit loads. recorded: the paths in the record.

    record: the record's file as observed; None if there is none and none is needed.
    """

    loaded: str
    recorded: frozenset[str] = frozenset()
    record: managed_files.ObservedFiles | None = None


class ObservedBootFiles(t.NamedTuple):
    """unit_paths: the paths. files: the files observed at each path that the stage handles."""

    unit_paths: UnitPaths
    files: tuple[managed_files.ObservedFiles, ...]


class BootFiles:
    """The files at ``path`` that ``unit`` loads, or their absence if not ``is_desired``.

    entries: returns the entries of the file at a path and of its program; with False, entries that remove both.
    """

    def __init__(
        self,
        backend: files.Files,
        unit: str,
        path: str,
        is_desired: bool,
        entries: t.Callable[[str, bool], t.Sequence[ManagedFile]],
    ) -> None:
        self.backend = backend
        self.path = path
        self.arriving = [entry for entry in entries(path, True) if entry.desired is not None] if is_desired else []
        self._unit = unit
        self._entries = entries

    def stages(self) -> tuple[Arriving, Leaving]:
        """Return the resources to apply before and after the unit: a boot may read the unit between any two steps."""
        return Arriving(self), Leaving(self)

    def observe(self) -> UnitPaths:
        loaded, path = loaded_path(self.backend, self._unit), record(self._unit)
        current = self.backend.read(path)
        if current is None and not self._is_moving(loaded) and not self.backend.is_left_over(path):
            return UnitPaths(loaded)
        recorded = paths_in(current.text) if isinstance(current, files.Content) else ()
        return UnitPaths(loaded, frozenset(recorded), self._record(()).observe())

    def _is_moving(self, loaded: str) -> bool:
        """Return whether the path that the unit loads is not the desired one (none, if the files are to go)."""
        return loaded != (self.path if self.arriving else "")

    def _record(self, paths: t.Collection[str]) -> ManagedFiles:
        """Return the record with these paths; without paths, its absence."""
        path = record(self._unit)
        desired = NOTE + "".join(f"{path}\n" for path in sorted(paths)) if paths else None
        return ManagedFiles(self.backend, [managed_files.text(path, desired)], "permanent", claimed=(path,))

    def noting(self, unit_paths: UnitPaths) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Return the steps that write the record, and the steps that remove it."""
        recorded = unit_paths.record
        coming: tuple[Step, ...] = ()
        if recorded is None:
            return (), ()
        if self._is_moving(unit_paths.loaded):
            announced = self._record({*unit_paths.recorded, unit_paths.loaded, self.path} - {""})
            coming, recorded = announced.plan(recorded).steps, announced.reached(recorded)
        if not self.arriving:  # absent needs no space: the record serves a run that is killed, and files go all the same
            coming = tuple(step._replace(is_optional=isinstance(step.do, files.Put)) for step in coming)
        return coming, self._record(()).plan(recorded).steps

    def leaving(self, path: str) -> list[ManagedFile]:
        """Yield entries that remove the files at a path, except files that arrive.

        The path of a former program may be that of the file that arrives.
        """
        arriving = {entry.path for entry in self.arriving}
        return [entry for entry in self._entries(path, False) if entry.path not in arriving]

    def current(self, entries: t.Sequence[ManagedFile], loaded: str) -> ManagedFiles:
        """Return the resource of these entries. Files at ``loaded`` belong to this collection, whatever they contain.

        A path in the record alone does not make a file the collection's: another program may have placed one there since.
        """
        return ManagedFiles(self.backend, entries, claimed=(loaded, program(loaded)) if loaded else ())


class Arriving:
    """Writes the paths that the run may change into the record, then places the files at the desired path."""

    plane = Plane.PERMANENT

    def __init__(self, placement: BootFiles) -> None:
        self._of = placement
        self.name = ", ".join([entry.path for entry in placement.arriving] or [placement.path])
        self.is_desired = bool(placement.arriving)
        self.backends = (placement.backend, *(entry.accept for entry in placement.arriving if entry.accept))

    def _current(self, loaded: str) -> list[ManagedFiles]:
        return [self._of.current(self._of.arriving, loaded)] if self._of.arriving else []

    def observe(self) -> ObservedBootFiles:
        unit_paths = self._of.observe()
        return ObservedBootFiles(unit_paths, tuple(current.observe() for current in self._current(unit_paths.loaded)))

    def plan(self, observed: ObservedBootFiles) -> Plan:
        coming, _going = self._of.noting(observed.unit_paths)
        plans = [current.plan(state) for current, state in zip(self._current(observed.unit_paths.loaded), observed.files)]
        return _joined(plans, before=coming)


class Leaving:
    """Removes the files that the unit no longer loads, at each path that it or the record names, and then the record."""

    plane = Plane.PERMANENT
    is_desired = False

    def __init__(self, placement: BootFiles) -> None:
        self._of = placement
        self.name = placement.path
        self.backends = (placement.backend,)

    def _current(self, unit_paths: UnitPaths) -> list[ManagedFiles]:
        """Return the resources that remove the files of each path, those in the deepest folders first."""
        paths = {*unit_paths.recorded, unit_paths.loaded, self._of.path} - {""}
        ordered = sorted(paths, key=lambda path: (-path.count("/"), path))
        return [self._of.current(entries, unit_paths.loaded) for entries in map(self._of.leaving, ordered) if entries]

    def observe(self) -> ObservedBootFiles:
        unit_paths = self._of.observe()
        observed = tuple(current.observe() for current in self._current(unit_paths))
        paths = [path for group in observed for path, current in group.states.items() if current is not None]
        self.name = ", ".join(paths) or self.name  # kept for the diff, which is shown after the files are removed
        return ObservedBootFiles(unit_paths, observed)

    def plan(self, observed: ObservedBootFiles) -> Plan:
        _coming, going = self._of.noting(observed.unit_paths)
        plans = [current.plan(state) for current, state in zip(self._current(observed.unit_paths), observed.files)]
        return _joined(plans, after=going)


def _joined(plans: t.Sequence[Plan], before: t.Sequence[Step] = (), after: t.Sequence[Step] = ()) -> Plan:
    """Join plans and steps into one plan. The record's text is not in the diff, because the record does not outlast the run."""
    steps = (*before, *(step for plan in plans for step in plan.steps), *after)
    return Plan(steps, objects(plans))


def paths_in(text: str) -> t.Iterator[str]:
    """Yield the paths in a record's text. Lines that no version has written are ignored."""
    for line in text.splitlines():
        try:
            yield names.path("path", line)
        except Invalid:
            continue


# A unit and the files that its program reads


class ObservedRehearsal(t.NamedTuple):
    loaded: t.Any
    enabled: unit_resource.ObservedUnit


class RehearsedUnit:
    """Places the files (``loaded``), rehearses the boot, then places the unit that names them (``enabled``).

    The boot is rehearsed whenever one of them changes.

    The rehearsal runs the program at its final path, by the interpreter of ``unit``. The unit is enabled and started only if the
    rehearsal succeeds.
    """

    plane = Plane.PERMANENT

    def __init__(self, loaded: Resource, enabled: unit_resource.EnabledUnit, unit: BootUnit) -> None:
        self.name = f"{loaded.name}, {enabled.name}"
        self._loaded = loaded
        self._enabled = enabled
        self._unit = unit

    def observe(self) -> ObservedRehearsal:
        return ObservedRehearsal(self._loaded.observe(), self._enabled.observe())

    def plan(self, observed: ObservedRehearsal) -> Plan:
        loaded, enabled = self._loaded.plan(observed.loaded), self._enabled.plan(observed.enabled)
        if not loaded.steps and not enabled.steps:
            return Plan()
        rehearsal = Step(f"rehearse the start of {self._unit.name}", units.Rehearse(self._unit.rehearsal))
        return Plan((*loaded.steps, rehearsal, *enabled.steps), objects([loaded, enabled]))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (*self._loaded.backends, *self._enabled.backends)


# The settings that the boot has made


class Live(Resource, t.Protocol):
    """The resource for the running kernel, which keeps a record."""

    def remember(self, observed: t.Any) -> Plan:
        """Plan the record alone: it takes over the settings that the collection's files have made."""


class ObservedBootRecord(t.NamedTuple):
    live: t.Any
    files: tuple[t.Any, ...]


class BootRecord:
    """Adds to the record of ``live`` the settings that ``files`` have made, so that a later run can undo them.

    For a run that changes only the permanent plane. The files in sysctl.d(5) are the evidence of these settings. Such a run
    replaces the files, so the record keeps the evidence.
    """

    plane = Plane.PERMANENT

    def __init__(self, live: Live, *files: Resource) -> None:
        self.name = f"record of {live.name}"
        self._live = live
        self._files = files

    def observe(self) -> ObservedBootRecord:
        return ObservedBootRecord(self._live.observe(), tuple(file.observe() for file in self._files))

    def plan(self, observed: ObservedBootRecord) -> Plan:
        is_moving = any(file.plan(state).steps for file, state in zip(self._files, observed.files))
        return self._live.remember(observed.live) if is_moving else Plan()

    @property
    def backends(self) -> t.Sequence[Backend]:
        return self._live.backends
