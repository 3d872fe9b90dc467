# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A set of rules and routes that the next boot loads and a listener holds: its file, their program, the unit, the record."""

from __future__ import annotations

import hashlib
import typing as t

from .._boot import boot_files, boot_unit, units
from .._boot.boot_interpreter import interpreter
from .._boot.enabled_unit import EnabledUnit
from .._boot.program_archive import archive
from .._boot.rehearsed_unit import RehearsedUnit
from .._core.converge import Plane, Resource
from .._core.errors import Invalid, Refusal
from .._platform import files
from .._platform.managed_files import HEADING, Entry, text
from .._routing import policy
from .._routing.active_policy_resource import ActivePolicyRecord, record
from .._routing.policy import Policy

if t.TYPE_CHECKING:  # so that Ansible brings it to the node, for archive()
    from . import listener_program  # noqa: F401


class BootPolicy:
    """Where the permanent plane of ``protocol`` lives. ``path``: of the set's file; the program stands beside it."""

    def __init__(
        self, backend: files.Files, systemd: units.Units, protocol: int, path: str, tables: t.Mapping[str, int]
    ) -> None:
        self.unit = boot_unit.routes_unit(protocol)
        self._backend = backend
        self._systemd = systemd
        self._protocol = protocol
        self._path = path
        self._tables = tables
        self._written: tuple[Policy, str] | None = None

    @property
    def has_listener(self) -> bool:
        """Whether our unit is on the node."""
        return self._backend.read(units.path_of(self.unit)) is not None

    def kept(self, lists: t.Collection[str]) -> Policy:
        """Of ``lists``, what the next boot would load."""
        loaded = boot_files.loaded_path(self._backend, self.unit)
        return self._read(loaded or self._path, lists, is_ours=bool(loaded))

    def active(self, lists: t.Collection[str]) -> Policy:
        """Of ``lists``, what the listener holds: the record of an earlier run, or what the node was booted with."""
        if lists and self._backend.read(record(self._protocol)) is not None:
            return self._read(record(self._protocol), lists, is_ours=True)
        return self.kept(lists)

    def _read(self, path: str, lists: t.Collection[str], is_ours: bool) -> Policy:
        """Raises Refusal where ours can not be read: what it keeps of ``lists`` would be lost."""
        found = self._backend.read(path) if lists else None
        if not isinstance(found, files.Content):
            return Policy(self._protocol)
        try:
            former = policy.from_text(found.text, self._tables, lists)
        except Invalid as damage:
            if is_ours or found.text.startswith(HEADING + Policy(self._protocol).beginning):
                raise Refusal(
                    f"{path}, which keeps {' and '.join(lists)} that this run does not name, can not be read: {damage}. Nothing"
                    " was changed. Give rules and routes both, or remove all of them by state absent without a list"
                ) from damage
            return Policy(self._protocol)  # not what we wrote: whether it may be overwritten is ManagedFiles' to say
        if former.protocol != self._protocol:
            raise Invalid("path", path, f"another file: this one keeps the set of protocol {former.protocol}")
        return former

    def _text(self, desired: Policy) -> str:
        """Both planes mostly keep the same, and to write out 20,000 rules takes time."""
        if self._written is None or self._written[0] != desired:
            self._written = desired, desired.text()
        return self._written[1]

    def record(self, active: Policy, stays: bool) -> Resource:
        """What holds the record at ``in_force``, for the listener to read. stays: whether there is one after the run."""
        return ActivePolicyRecord(self._backend, self._protocol, self._text(active), stays, lambda: self.has_listener)

    def record_gone(self) -> Resource:
        """What takes the record away once the listener has gone."""
        return ActivePolicyRecord(
            self._backend,
            self._protocol,
            "",
            stays=False,
            has_listener=lambda: self.has_listener,
            plane=Plane.PERMANENT,
        )

    def resources(self, kept: Policy, starts: bool) -> list[Resource]:
        """What holds it at ``kept``, gone where that is empty, in the order in which it comes. starts: see EnabledUnit."""
        is_desired, stored = not kept.is_empty, self._text(kept)
        named = f"# For policy routes of protocol {self._protocol}.\n"
        program = named + archive("_listener.listener_program") if is_desired else ""

        def entries(at: str, is_here: bool) -> list[Entry]:
            """Each begins with the protocol, so that one set's call never takes another's file for its own."""
            is_there = is_desired and is_here
            return [
                text(at, stored if is_there else None, kept.beginning),
                text(boot_files.program(at), program if is_there else None, named),
            ]

        digest = hashlib.sha256(program.encode("utf-8", "surrogateescape")).hexdigest()

        def unit(python: str) -> boot_unit.BootUnit:
            return boot_unit.loading_routes(self._protocol, self._path, python, boot_files.program(self._path), digest)

        chosen = unit(interpreter(self._backend, self._systemd, unit) if is_desired else "")
        enabled = EnabledUnit(self._backend, self._systemd, chosen, is_desired, starts, is_resident=True)
        arriving, leaving = boot_files.BootFiles(self._backend, self.unit, self._path, is_desired, entries).stages()
        return [RehearsedUnit(arriving, enabled, chosen), leaving] if is_desired else [arriving, enabled, leaving]
