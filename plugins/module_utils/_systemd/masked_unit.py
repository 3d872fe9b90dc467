# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A foreign systemd unit that is kept masked, so that it is not started any more, and the state of such a unit."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal
from .._core.plan import Backend, Plan, Plane, Step, whole
from .._files import files
from .._files.managed_files import ManagedFiles, ObservedFiles, text
from . import unit_files, units
from .daemon_reload import with_reload

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
        self._desired = desired
        self._note_path = f"{self.name}.d/masked-by-kubenode"
        note = text(self._note_path, NOTE.format(unit=unit) if desired else None)
        self._note = ManagedFiles(backend, [note], "service", "set service to ignore")

    def observe(self) -> ObservedMask:
        return ObservedMask(self._backend.read(self.name), self._note.observe(), self._systemd.is_running())

    def plan(self, observed: ObservedMask) -> Plan:
        steps = self._masking(observed) if self._desired else self._unmasking(observed)
        if not steps:
            return Plan()
        shown = whole(self._shown(observed.current == MASK), self._shown(self._desired))
        return Plan(with_reload(steps, observed.is_managed), shown)

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

    @property
    def is_desired(self) -> bool:
        return self._desired

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend, self._systemd)
