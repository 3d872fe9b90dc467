# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A unit that is enabled and active, and a unit that is masked."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal
from .._core.plan import ObjectText, Plan, Plane, Step, objects
from .._files import files, managed_files
from . import unit_files, units
from .boot_unit import BootUnit, UnitVerdict
from .units import with_reload

if t.TYPE_CHECKING:
    from .boot_order import BootOrder


import typing as t

from .._core.plan import whole
from .._files.managed_files import ManagedFiles, ObservedFiles, text


class ObservedUnit(t.NamedTuple):
    """groups: what is at the path of the unit, of its drop-in and of its symbolic link.

    is_managed: whether systemd runs here. verdict: the unit's state in systemd; INACTIVE if systemd does not run here.
    order: of a boot with the unit, if its files are to change; None otherwise. asked: the units of this collection, with their
        texts, that this boot has. The drop-in is not among them: it has no line about the order.
    """

    groups: tuple[managed_files.ObservedFiles, ...]
    is_managed: bool
    verdict: UnitVerdict
    order: BootOrder | None = None
    asked: tuple[tuple[str, str], ...] = ()


class EnabledUnit:
    """Keeps ``unit`` in place and enabled (``desired``), or absent.

    A unit is removed before it is stopped, so that systemd runs no command of it, such as ExecStop=.

    starts: whether the unit must be active now as well. If it is not, it is started; if the start fails, so does the step. A
        unit that its own ExecCondition= has skipped is as it should be.
    is_resident: whether the unit's program keeps running. With ``starts``, the unit is then restarted after a change, and
        restarted in its former version if the run is rolled back.
    """

    plane = Plane.PERMANENT

    def __init__(
        self,
        backend: files.Files,
        systemd: units.Units,
        unit: BootUnit,
        desired: bool,
        starts: bool,
        is_resident: bool = False,
    ) -> None:
        self.name = unit_files.path_of(unit.name)
        self.backends = (backend, systemd)
        self._systemd = systemd
        self._unit = unit.name
        self._boot_unit = unit
        self._order: tuple[BootOrder, tuple[tuple[str, str], ...]] | None = None
        self.is_desired = desired
        self._starts = starts
        self._is_resident = is_resident
        drop_in = f"{unit_files.path_of(unit.beside)}.d/{unit.name.rpartition('.')[0]}.conf"
        # A boot must never find a symbolic link to a missing unit.
        order = [managed_files.text(self.name, unit.text if desired else None)]
        order += [managed_files.text(drop_in, unit.drop_in if desired else None)] if unit.drop_in else []
        order += [managed_files.link(unit_files.link_of(unit.name, unit.wanted_by), self.name, desired)]
        instead = "set permanent to false"
        groups = [managed_files.ManagedFiles(backend, [entry], "permanent", instead) for entry in order]
        self._groups = groups if desired else groups[::-1]

    def observe(self) -> ObservedUnit:
        is_managed = self._systemd.is_running()
        verdict = self._verdict() if is_managed else UnitVerdict.INACTIVE
        groups = tuple(group.observe() for group in self._groups)
        order = self._boot_order() if self._is_placing(groups) else (None, ())
        return ObservedUnit(groups, is_managed, verdict, *order)

    def _is_placing(self, groups: t.Sequence[managed_files.ObservedFiles]) -> bool:
        return self.is_desired and any(group.plan(state).steps for group, state in zip(self._groups, groups))

    def _boot_order(self) -> tuple[BootOrder, tuple[tuple[str, str], ...]]:
        """Return the order of a boot with the unit, and the collection's units in it. Asks systemd once in a run."""
        if self._order is None:
            texts = {**self._systemd.own_texts(), self._unit: managed_files.HEADING + self._boot_unit.text}
            self._order = self._systemd.boot_order(self._boot_unit), tuple(sorted(texts.items()))
        return self._order

    def _verdict(self) -> UnitVerdict:
        """Ask systemd only if the unit must be active. Otherwise a file tells whether it is active or starting."""
        if self.is_desired and self._starts:
            return self._systemd.verdict(self._unit)
        return UnitVerdict.ACTIVE if self._systemd.is_active(self._unit) else UnitVerdict.INACTIVE

    def plan(self, observed: ObservedUnit) -> Plan:
        plans = [group.plan(state) for group, state in zip(self._groups, observed.groups)]
        placing = with_reload([step for plan in plans for step in plan.steps], observed.is_managed)
        if observed.order:
            _refuse_cycle(self._boot_unit, observed.order)
            check = units.CheckOrder(self._boot_unit, observed.asked)
            placing += (Step(f"check the order of a boot with {self._unit}", check),) if observed.order.is_known else ()
        if not observed.is_managed:
            return Plan(placing, objects(plans))
        starting = tuple(self._afterwards(placing, observed))
        if starting and not placing:
            due = UnitVerdict.ACTIVE if self.is_desired else UnitVerdict.INACTIVE
            before, after = (f"# {self._unit}: {verdict.value}\n" for verdict in (observed.verdict, due))
            return Plan(starting, (ObjectText(self._unit, before, after),))
        steps = (*self._before(placing, observed), *placing, *starting)
        return Plan(steps, objects(plans))

    def _before(self, placing: t.Sequence[Step], observed: ObservedUnit) -> t.Iterator[Step]:
        """Return the steps that act only in a roll-back.

        The first steps are undone last: the former files are in place again by then, and systemd has read them.
        """
        is_ending = self._starts or not self.is_desired
        if placing and self._is_resident and is_ending and observed.verdict is UnitVerdict.ACTIVE:
            yield Step(f"restart {self._unit} in its former version", undo=units.Restart(self._unit))
        if placing and self.is_desired and self._starts and observed.groups[0].states[self.name] is None:
            yield Step(f"stop and unload {self._unit}", undo=units.Forget(self._unit))

    def _afterwards(self, placing: t.Sequence[Step], observed: ObservedUnit) -> t.Iterator[Step]:
        if not self.is_desired:
            if placing or observed.verdict is UnitVerdict.ACTIVE:  # a killed run may have removed only the files
                yield Step(f"stop and unload {self._unit}", units.Forget(self._unit))
        elif observed.verdict is UnitVerdict.ACTIVE:
            if placing and self._is_resident and self._starts:
                yield Step(f"restart {self._unit}", units.Restart(self._unit))
        elif self._starts and (placing or observed.verdict not in (UnitVerdict.SKIPPED, UnitVerdict.QUEUED)):
            undo = units.Forget(self._unit) if self._is_resident else None
            yield Step(f"start {self._unit}", units.Start(self._unit), undo)


def _refuse_cycle(unit: BootUnit, order: BootOrder) -> None:
    """Raise Refusal if a boot would have an ordering cycle, or if systemd could not be asked and the operator named units."""
    names = ", ".join(unit.before)
    if order.cycle:
        step = f"Name in the option before only units that start kubelet, not {names}" if names else "See their drop-ins"
        raise Refusal(f"{unit.name} cannot be enabled, because {order.trouble}. Nothing was changed. {step}")
    if unit.before and not order.is_known:
        raise Refusal(
            f"{unit.name} cannot be ordered before {names}, because systemd could not be asked whether the next boot would"
            " have an ordering cycle: `systemd-analyze verify default.target` is missing or does not answer here. Nothing was"
            " changed. Mount /proc and /sys if this is an image, or leave the option before out"
        )


MASK = files.Target("/dev/null")
NOTE = "# {unit} is masked by kubenode.datapath, which unmasks it with state=absent.\n"


class State(t.NamedTuple):
    """has_links: a target wants the unit. active: it was started and not stopped. masked: it cannot be started."""

    has_links: bool
    active: bool
    masked: bool


def state_of(backend: files.Files, systemd: units.Units, unit: str) -> State:
    """Return the unit's state, read from files, without a call to systemd."""
    masks = (f"{folder}/{unit}" for folder in (unit_files.FOLDER, "/run/systemd/system"))
    return State(
        has_links=systemd.is_enabled(unit),
        active=systemd.is_active(unit),
        masked=any(backend.read(path) == MASK for path in masks),
    )


def harmless(backend: files.Files, systemd: units.Units, unit: str) -> t.Iterable[str]:
    """Warn of a unit that flushes every table of the node when it is started, stopped or reloaded."""
    state = state_of(backend, systemd, unit)
    if state.masked or not (state.has_links or state.active):
        return ()
    words = [word for word, is_so in (("enabled", state.has_links), ("active", state.active)) if is_so]
    return (
        f"{unit} is {' and '.join(words)}: its start, stop and reload flush every nftables table of the node,"
        " including those of kube-proxy and the CNI. Set service to masked if the node does not need it.",
    )


class ObservedMask(t.NamedTuple):
    """current: the object at the unit's path in its folder. note: the note that this collection masked the unit, if it did."""

    current: files.State | None
    note: ObservedFiles
    is_managed: bool  # systemd runs here and must reload


class MaskedUnit:
    """Keeps ``unit`` masked (``desired``), or without a mask of this collection. Starts and stops nothing.

    A mask is a symbolic link to /dev/null, which does not show its owner. So a note in the folder of the unit's drop-ins, which
    systemd does not read, records that this collection made the mask.
    """

    plane = Plane.PERMANENT

    def __init__(self, backend: files.Files, systemd: units.Units, unit: str, desired: bool) -> None:
        self.name = unit_files.path_of(unit)
        self._backend = backend
        self._systemd = systemd
        self.backends = (backend, systemd)
        self.is_desired = desired
        self._note_path = f"{self.name}.d/masked-by-kubenode"
        note = text(self._note_path, NOTE.format(unit=unit) if desired else None)
        self._note = ManagedFiles(backend, [note], "service", "set service to ignore")

    def observe(self) -> ObservedMask:
        return ObservedMask(self._backend.read(self.name), self._note.observe(), self._systemd.is_running())

    def plan(self, observed: ObservedMask) -> Plan:
        steps = self._masking(observed) if self.is_desired else self._unmasking(observed)
        if not steps:
            return Plan()
        objects = whole(self._shown(observed.current == MASK), self._shown(self.is_desired))
        return Plan(with_reload(steps, observed.is_managed), objects)

    def _masking(self, observed: ObservedMask) -> list[Step]:
        if observed.current == MASK:
            return []
        if observed.current is not None:
            raise Refusal(
                f"service is set to masked, but {self.name} exists and was not created by this collection. Nothing was"
                " changed. Move it away, or set service to ignore"
            )
        mask = Step(f"mask {self.name}", files.Put(self.name, MASK), files.Remove(self.name))
        return [*self._note.plan(observed.note).steps, mask]

    def _unmasking(self, observed: ObservedMask) -> list[Step]:
        noted = self._note.plan(observed.note).steps
        if observed.current != MASK or observed.note.states[self._note_path] is None:
            return list(noted)
        return [Step(f"unmask {self.name}", files.Remove(self.name), files.Put(self.name, MASK)), *noted]

    def _shown(self, is_masked: bool) -> str:
        return f"# {self.name} -> {MASK.path}\n" if is_masked else ""
