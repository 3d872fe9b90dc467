# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A policy, a set of rules and routes, on the permanent plane: its file, the listener's program, their unit, and the record.

The unit's program loads the file at boot. It then stays as the listener, and maintains the active policy, which the record names.
"""

from __future__ import annotations

import hashlib
import typing as t

from .._boot import boot_files
from .._boot.boot_files import RehearsedUnit
from .._boot.interpreters import interpreter
from .._boot.program_archive import archive
from .._core.errors import Invalid, Refusal
from .._core.plan import Plane, Resource
from .._files import files
from .._files.managed_files import HEADING, ManagedFile, text
from .._routing import policy
from .._routing.active_policy_resource import ActivePolicyRecord, record
from .._routing.policy import Policy
from .._systemd import unit_files, units
from .._systemd.boot_unit import BootUnit
from .._systemd.unit_resource import EnabledUnit
from . import policy_unit

if t.TYPE_CHECKING:  # by this import Ansible sends the module to the node, where archive() packs it
    from . import listener_program  # noqa: F401


class BootPolicy:
    """The file, the program, the unit and the record of the policy of ``protocol``.

    path: of the policy's file; the program is placed beside it. tables: the numbers of routing tables by name.
    before: see kubelet_units.ordering().
    """

    def __init__(
        self,
        backend: files.Files,
        systemd: units.Units,
        protocol: int,
        path: str,
        tables: t.Mapping[str, int],
        before: t.Sequence[str] = (),
    ) -> None:
        self.unit = policy_unit.name(protocol)
        self._backend = backend
        self._systemd = systemd
        self._protocol = protocol
        self._path = path
        self._tables = tables
        self._before = before
        self._written: tuple[Policy, str] | None = None

    @property
    def has_listener(self) -> bool:
        """Return whether the listener's unit file is on the node."""
        return self._backend.read(unit_files.path_of(self.unit)) is not None

    @property
    def loaded_path(self) -> str:
        """Return the path that the listener's unit on the node loads; empty for none."""
        return boot_files.loaded_path(self._backend, self.unit)

    def kept(self, lists: t.Collection[str]) -> Policy:
        """Return what the next boot would load, limited to ``lists`` ("rules", "routes"). Raises Invalid, Refusal."""
        loaded = self.loaded_path
        return self._read(loaded or self._path, lists, is_ours=bool(loaded))

    def active(self, lists: t.Collection[str]) -> Policy:
        """Return what the listener maintains, limited to ``lists``: the policy in the record, else the policy that the boot
        loaded.

        Raises Invalid, Refusal.
        """
        if lists and self._backend.read(record(self._protocol)) is not None:
            return self._read(record(self._protocol), lists, is_ours=True)
        return self.kept(lists)

    def _read(self, path: str, lists: t.Collection[str], is_ours: bool) -> Policy:
        """Raise Refusal if a file of this collection cannot be read: its rules or routes of ``lists`` would be lost."""
        file = self._backend.read(path) if lists else None
        if not isinstance(file, files.Content):
            return Policy(self._protocol)
        try:
            former = policy.from_text(file.text, self._tables, lists)
        except Invalid as damage:
            if is_ours or file.text.startswith(HEADING + Policy(self._protocol).beginning):
                raise Refusal(
                    f"{path}, which keeps {' and '.join(lists)} that this run's options leave out, cannot be read: {damage}."
                    " Nothing was changed. Set both rules and routes, or remove all of them by state absent without a list"
                ) from damage
            return Policy(self._protocol)  # a foreign file: ManagedFiles decides whether it may be overwritten
        if former.protocol != self._protocol:
            raise Invalid("path", path, f"another file: this one keeps the set of protocol {former.protocol}")
        return former

    def _text(self, desired: Policy) -> str:
        """Return the file's text, cached: both planes mostly need the same text, and 20,000 rules take time to render."""
        if self._written is None or self._written[0] != desired:
            self._written = desired, desired.text()
        return self._written[1]

    def record(self, active: Policy, stays: bool) -> Resource:
        """Return the resource that keeps ``active`` in the record, for the listener.

        stays: whether there is a record after the run.
        """
        return ActivePolicyRecord(self._backend, self._protocol, self._text(active), stays, lambda: self.has_listener)

    def record_gone(self) -> Resource:
        """Return the resource that removes the record once the listener is gone."""
        return ActivePolicyRecord(
            self._backend,
            self._protocol,
            "",
            stays=False,
            has_listener=lambda: self.has_listener,
            plane=Plane.PERMANENT,
        )

    def resources(self, desired: Policy, starts: bool) -> list[Resource]:
        """Return the resources of ``desired`` on the permanent plane, in the order in which they are applied.

        They remove its files and its unit if ``desired`` is empty. starts: as for EnabledUnit.
        """
        is_desired, stored = not desired.is_empty, self._text(desired)
        heading = f"# For policy routes of protocol {self._protocol}.\n"
        program = heading + archive("_listener.listener_program") if is_desired else ""

        def entries(at: str, is_here: bool) -> list[ManagedFile]:
            """Return the files of a policy.

            Each text begins with the protocol, so that a run never takes another protocol's file for its own.
            """
            is_there = is_desired and is_here
            return [
                text(at, stored if is_there else None, desired.beginning),
                text(boot_files.program(at), program if is_there else None, heading),
            ]

        digest = hashlib.sha256(program.encode("utf-8", "surrogateescape")).hexdigest()

        def unit(python: str) -> BootUnit:
            boot_program = boot_files.program(self._path)
            return policy_unit.unit(self._protocol, self._path, python, boot_program, digest, self._before)

        chosen = unit(interpreter(self._backend, self._systemd, unit) if is_desired else "")
        enabled = EnabledUnit(self._backend, self._systemd, chosen, is_desired, starts, is_resident=True)
        arriving, leaving = boot_files.BootFiles(self._backend, self.unit, self._path, is_desired, entries).stages()
        return [RehearsedUnit(arriving, enabled, chosen), leaving] if is_desired else [arriving, enabled, leaving]
