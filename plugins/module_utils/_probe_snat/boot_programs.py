# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probes' BPF programs on the permanent plane: their file, the node program that attaches them, and its unit."""

from __future__ import annotations

import hashlib
import typing as t

from .._boot import boot_files
from .._boot.boot_files import RehearsedUnit
from .._boot.interpreters import interpreter
from .._core.plan import Resource
from .._files import files
from .._files.managed_files import ManagedFile, text
from .._systemd import unit_files, units
from .._systemd.boot_unit import BootUnit
from .._systemd.unit_resource import EnabledUnit
from . import programs_unit
from .probe_guards import OtherTranslators
from .programs_unit import BootPrograms

if t.TYPE_CHECKING:  # by this import Ansible sends the module to the node, where archive() packs it
    from . import programs_program  # noqa: F401


def is_installed(backend: files.Files, table: str) -> bool:
    """Return whether the node has the unit, or the record of a run that was killed."""
    unit = programs_unit.name(table)
    record = boot_files.record(unit)
    return any(backend.read(path) is not None for path in (unit_files.path_of(unit), record)) or backend.is_left_over(record)


def reason(backend: files.Files, translators: OtherTranslators, table: str) -> str:
    """Return why BPF programs must translate the probes; empty if a table can. Raises Failure.

    While Cilium is upgraded its options may not show, and programs that are there do no harm without it: they stay.
    """
    cilium, link = translators.cilium, translators.link
    if cilium and cilium.takes_probes:
        return f"{', '.join(cilium.programs)} of Cilium on {link} takes them before nftables sees them"
    if cilium and cilium.doubt(link) and is_installed(backend, table):
        return f"those of an earlier run stay, because it does not show now whether Cilium takes probes on {link}"
    return ""


def path(of_table: str) -> str:
    """Return the path of the file. of_table: the option ``path``, at which another backend has its script."""
    return f"{of_table.removesuffix('.nft')}.json"


def resources(
    backend: files.Files,
    systemd: units.Units,
    desired: BootPrograms,
    path: str,
    starts: bool,
    before: t.Sequence[str] = (),
) -> list[Resource]:
    """Return the resources that install ``desired``, or remove it if it has no probes, in the order in which they are applied.

    starts: see EnabledUnit. before: see kubelet_units.ordering().
    """
    is_desired, table = bool(desired.probes), desired.table
    heading = f"# For BPF programs of {table}.\n"
    program = heading + _archive() if is_desired else ""

    def entries(at: str, is_here: bool) -> list[ManagedFile]:
        is_there = is_desired and is_here
        return [
            text(at, desired.text() if is_there else None, programs_unit.beginning(table)),
            text(boot_files.program(at), program if is_there else None, heading),
        ]

    digest = hashlib.sha256((program + desired.text()).encode("utf-8", "surrogateescape")).hexdigest()

    def unit(python: str) -> BootUnit:
        return programs_unit.unit(table, path, python, boot_files.program(path), digest, before)

    chosen = unit(interpreter(backend, systemd, unit) if is_desired else "")
    enabled = EnabledUnit(backend, systemd, chosen, is_desired, starts, is_resident=True)
    arriving, leaving = boot_files.BootFiles(backend, chosen.name, path, is_desired, entries).stages()
    return [RehearsedUnit(arriving, enabled, chosen), leaving] if is_desired else [arriving, enabled, leaving]


def _archive() -> str:
    from .._boot.program_archive import archive  # most runs have no programs, and zipfile takes 4 ms

    return archive("_probe_snat.programs_program")
