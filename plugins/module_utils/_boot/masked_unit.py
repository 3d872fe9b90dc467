# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A systemd unit of somebody else's that shall not be started any more, and what such a unit is up to."""

from __future__ import annotations

import typing as t

from .._core.converge import Backend, Plan, Plane, Step
from .._core.errors import Refusal
from .._platform import files
from .._platform.managed_files import ManagedFiles, text
from .._platform.managed_files import Observed as ObservedFiles
from . import units
from .telling_systemd import told

MASK = files.Target("/dev/null")
NOTE = "# {unit} is masked by kubenode.datapath, which unmasks it with state=absent.\n"


class State(t.NamedTuple):
    """has_links: some target wants it. active: it was started and not stopped. masked: nobody can start it."""

    has_links: bool
    active: bool
    masked: bool


def state_of(backend: files.Files, systemd: units.Units, unit: str) -> State:
    """Told by files, without a call to systemd."""
    masks = (f"{folder}/{unit}" for folder in (units.FOLDER, "/run/systemd/system"))
    return State(
        has_links=systemd.is_enabled(unit),
        active=systemd.is_active(unit),
        masked=any(backend.read(path) == MASK for path in masks),
    )


class Harmless:
    """Warns of a unit that flushes every table of the node when it is started, stopped or reloaded."""

    def __init__(self, backend: files.Files, systemd: units.Units, unit: str) -> None:
        self._backend = backend
        self._systemd = systemd
        self._unit = unit

    def inspect(self) -> t.Iterable[str]:
        state = state_of(self._backend, self._systemd, self._unit)
        if state.masked or not (state.has_links or state.active):
            return ()
        words = [word for word, holds in (("enabled", state.has_links), ("active", state.active)) if holds]
        return (
            f"{self._unit} is {' and '.join(words)}: its start, stop and reload flush every nftables table of the node,"
            " kube-proxy's and the CNI's as well. Set service to masked where nobody needs it.",
        )


class Observed(t.NamedTuple):
    """found: what stands in the unit's place in units.FOLDER. note: ours, where we masked it."""

    found: files.Found | None
    note: ObservedFiles
    is_managed: bool  # systemd runs here and has to be told


class MaskedUnit:
    """Holds ``unit`` masked (``wish``), or not masked by us. Starts and stops nothing.

    A mask is a link to /dev/null, and looks the same whoever made it: a note in the folder of the unit's drop-ins, which
    systemd does not read, tells that it is ours.
    """

    plane = Plane.PERMANENT

    def __init__(self, backend: files.Files, systemd: units.Units, unit: str, desired: bool) -> None:
        self.name = units.path_of(unit)
        self._backend = backend
        self._systemd = systemd
        self._desired = desired
        self._note_path = f"{self.name}.d/masked-by-kubenode"
        note = text(self._note_path, NOTE.format(unit=unit) if desired else None)
        self._note = ManagedFiles(backend, [note], "service", "set service to ignore")

    def observe(self) -> Observed:
        return Observed(self._backend.read(self.name), self._note.observe(), self._systemd.is_running())

    def plan(self, observed: Observed) -> Plan:
        steps = self._masking(observed) if self._desired else self._unmasking(observed)
        if not steps:
            return Plan()
        before, after = self._shown(observed.found == MASK), self._shown(self._desired)
        return Plan(told(steps, observed.is_managed), before, after)

    def _masking(self, observed: Observed) -> list[Step]:
        if observed.found == MASK:
            return []
        if observed.found is not None:
            raise Refusal(
                f"service is masked, but {self.name} is there, which somebody put there. Nothing was changed."
                " Move it away, or set service to ignore"
            )
        mask = Step(f"mask {self.name}", files.Put(self.name, MASK), files.Remove(self.name))
        return [*self._note.plan(observed.note).steps, mask]

    def _unmasking(self, observed: Observed) -> list[Step]:
        noted = self._note.plan(observed.note).steps
        if observed.found != MASK or observed.note.found[self._note_path] is None:
            return list(noted)
        return [Step(f"unmask {self.name}", files.Remove(self.name), files.Put(self.name, MASK)), *noted]

    def _shown(self, is_masked: bool) -> str:
        return f"# {self.name} -> {MASK.path}\n" if is_masked else ""

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend, self._systemd)
