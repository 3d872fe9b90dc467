# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probes' BPF programs on a link of the running kernel."""

from __future__ import annotations

import functools
import typing as t

from .._bpf import instructions
from .._core.errors import Failure
from .._core.plan import Backend, ObjectText, Plan, Plane, Step
from . import probe_programs
from .probe_programs import EGRESS, INGRESS, AttachedPrograms, SetPrograms
from .probe_table import Probe

if t.TYPE_CHECKING:
    from .programs_backend import Programs

SHA256_TAGS = (6, 18)  # the version of Linux from which on a tag is of SHA-256


class LivePrograms:
    """Attaches the programs that translate ``probes`` to ``link``, and detaches those on other links; without probes, on all.

    release: of the kernel, as numbers. are_known: whether an earlier run may have attached some, as its unit shows.
    """

    plane = Plane.IMMEDIATE

    def __init__(
        self, table: str, link: str, probes: tuple[Probe, ...], release: tuple[int, ...], are_known: bool = False
    ) -> None:
        self.name = f"BPF programs of {table}"
        self._table = table
        self._link = link
        self._probes = probes
        self._release = release
        self._are_known = are_known
        self.is_desired = bool(probes)

    @functools.cached_property
    def _backend(self) -> Programs:
        from .programs_backend import Programs  # needs ctypes

        return Programs()

    def observe(self) -> dict[str, AttachedPrograms]:
        """Return the programs by link. Where none are desired or known, there are none if Python or the kernel permits none."""
        try:
            return self._backend.read(self._table)
        except (Failure, ImportError):
            if self._probes or self._are_known:
                raise
            return {}

    def plan(self, observed: dict[str, AttachedPrograms]) -> Plan:
        current = observed.get(self._link)
        steps, objects = [], []
        if self._probes and (current is None or (current.probes, current.faults) != (self._probes, ())):
            verb = "attach" if current is None else "replace"
            steps.append(self._step(verb, self._link, self._probes, current))
            objects.append(self._shown(self._link, current, AttachedPrograms(self._probes)))
        for link, attached in observed.items():
            if link != self._link or not self._probes:
                steps.append(self._step("detach", link, (), attached))
                objects.append(self._shown(link, attached, None))
        return Plan((*steps,), (*objects,))

    def _step(self, verb: str, link: str, probes: tuple[Probe, ...], current: AttachedPrograms | None) -> Step:
        undo = None if current and not current.probes else self._operation(link, current.probes if current else ())
        return Step(f"{verb} the {self.name} on {link}", self._operation(link, probes), undo)

    def _operation(self, link: str, probes: tuple[Probe, ...]) -> SetPrograms:
        return SetPrograms.of(self._table, link, probes)

    def _shown(self, link: str, before: AttachedPrograms | None, after: AttachedPrograms | None) -> ObjectText:
        return ObjectText(f"{self.name} on {link}", self._text(before), self._text(after))

    def _text(self, attached: AttachedPrograms | None) -> str:
        if attached is None:
            return ""
        text = "".join(f"# {fault}\n" for fault in attached.faults)
        text += "".join(f"probe {source} as {translated}\n" for source, translated in attached.probes)
        for direction in (INGRESS, EGRESS):
            lines = probe_programs.program(direction, len(attached.probes))
            tags = instructions.tags(lines)
            tag = tags[self._release >= SHA256_TAGS]
            if attached.tags and not {*tags} & {*attached.tags}:
                continue  # it is missing, or that of another version, as the faults say
            text += f"{direction} {probe_programs.name(self._table, direction)}, tag {tag}\n{instructions.listing(lines)}"
        return text

    @property
    def backends(self) -> t.Sequence[Backend]:
        return (self._backend,)
