# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probes' BPF programs on the links of this node: reads, attaches and detaches those of one table's name."""

from __future__ import annotations

import contextlib
import socket
import typing as t

from .._bpf import attaching, attachments, instructions, loader
from .._bpf.attachments import EGRESS, INGRESS, Place
from .._bpf.instructions import OWN_PROGRAMS
from .._core.errors import Failure
from .._core.plan import UndoBackend
from . import probe_programs
from .probe_programs import CONNECTIONS, PROBES, AttachedPrograms, SetPrograms, name
from .probe_table import Probe

# The order in which they are attached: each probe that is translated has an answer that is translated back.
DIRECTIONS = (EGRESS, INGRESS)


class Programs(UndoBackend):
    OPERATIONS = (SetPrograms,)

    def read(self, table: str) -> dict[str, AttachedPrograms]:
        """Return the programs of a table's name by link. Raises Failure."""
        try:
            filtered = attachments.with_filters()
            found = {link: self._on(table, index, index in filtered) for index, link in socket.if_nameindex()}
        except OSError as error:
            raise Failure(f"the kernel refused to list the BPF programs of this node: {error.strerror}") from error
        return {link: attached for link, attached in found.items() if attached}

    def _on(self, table: str, index: int, has_filters: bool) -> AttachedPrograms | None:
        probes: list[tuple[Probe, ...]] = []
        faults, tags = [], []
        for direction in DIRECTIONS:
            places = attachments.places(index, direction, has_filters)
            namesakes = [place for place in places if place.name == name(table, direction)]
            if not namesakes:
                faults.append(f"there is no program at {direction}")
                continue
            if len(namesakes) > 1:
                faults.append(f"there are {len(namesakes)} programs at {direction}")
            faults += [f"{place.name} comes first at {direction}" for place in _before(places, namesakes[0])]
            program = loader.program(namesakes[0].number)
            maps = [each for each in map(loader.read_map, program.maps) if each] if program else []
            probes.append(next((probe_programs.probes_of(each.value) for each in maps if each.name == PROBES), ()))
            tags.append(program.tag if program else "")
            if not probes[-1] or tags[-1] not in instructions.tags(probe_programs.program(direction, len(probes[-1]))):
                faults.append(f"the program at {direction} is that of another version")
        if not probes:
            return None
        if len(set(probes)) > 1:
            faults.append("the two programs translate different probes")
        return AttachedPrograms(probes[0], tuple(faults), tuple(tags))

    def perform(self, operation: SetPrograms) -> None:
        """Attach or detach. Raises Failure."""
        try:
            index = socket.if_nametoindex(operation.link)
        except OSError as error:
            if operation.probes:
                raise Failure(f"there is no link {operation.link} for the BPF programs") from error
            return  # they have gone with it
        try:
            if operation.probes:
                self._attach(index, operation)
            else:
                self._detach(index, operation.table)
        except OSError as error:
            raise Failure(f"the kernel refused BPF programs on {operation.link}: {error.strerror}") from error

    @staticmethod
    def try_loading(operation: SetPrograms) -> None:
        """Load the programs, attached to nothing, so that the kernel forgets them at once. Raises Failure."""
        with _loaded(operation, {}):
            pass

    @staticmethod
    def _attach(index: int, operation: SetPrograms) -> None:
        with _loaded(operation, _memories(index, operation.table)) as programs:
            for direction in DIRECTIONS:
                attaching.attach(index, direction, name(operation.table, direction), programs[direction])

    @staticmethod
    def _detach(index: int, table: str) -> None:
        for direction in reversed(DIRECTIONS):
            for place in attachments.places(index, direction):
                if place.name == name(table, direction):
                    attaching.detach(index, direction, place)

    def verify(self, operation: SetPrograms) -> list[str]:
        """Return the differences on the operation's link, as UndoBackend does. Raises Failure."""
        try:
            index = socket.if_nametoindex(operation.link)
            attached = self._on(operation.table, index, has_filters=True)
        except OSError as error:
            return [f"{operation.link} cannot be read: {error.strerror}"] if operation.probes else []
        if not operation.probes:
            return [f"{operation.link} has BPF programs of {operation.table}"] if attached else []
        if attached is None or attached.probes != operation.read():
            return [f"{operation.link} lacks BPF programs of {operation.table}"]
        return [f"on {operation.link}, {fault}" for fault in attached.faults]


@contextlib.contextmanager
def _loaded(operation: SetPrograms, memories: t.Mapping[str, int]) -> t.Iterator[dict[str, int]]:
    """Yield the descriptors of the programs by direction; the programs last longer only if they are attached.

    memories: descriptors of maps of CONNECTIONS that the programs go on with. They are closed.
    """
    probes = operation.read()
    with contextlib.ExitStack() as stack:
        maps = {map_name: stack.enter_context(loader.opened(descriptor)) for map_name, descriptor in memories.items()}
        for map_name, value in probe_programs.maps(probes).items():
            maps[map_name] = stack.enter_context(loader.opened(loader.create_map(map_name, value, map_name == PROBES)))
        for map_name, sizes in CONNECTIONS.items():
            if map_name not in maps:
                maps[map_name] = stack.enter_context(loader.opened(loader.create_memory(map_name, *sizes)))
        programs = {}
        for direction in DIRECTIONS:
            code = instructions.assembled(probe_programs.program(direction, len(probes)), maps)
            programs[direction] = stack.enter_context(loader.opened(loader.load(name(operation.table, direction), code)))
        yield programs


def _memories(index: int, table: str) -> dict[str, int]:
    """Return descriptors of the maps in which the attached programs of a table have their connections. Raises OSError.

    Without these, a connection that is open would get no further answer from the programs that replace them.
    """
    places = [place for place in attachments.places(index, EGRESS) if place.name == name(table, EGRESS)]
    numbers = [number for place in places[:1] if (program := loader.program(place.number)) for number in program.maps]
    held = {map_name: [loader.memory(number, map_name, *sizes) for number in numbers] for map_name, sizes in CONNECTIONS.items()}
    return {map_name: next(filter(None, those)) for map_name, those in held.items() if any(those)}


def _before(places: t.Sequence[Place], own: Place) -> list[Place]:
    """Return the programs of others that packets meet first."""
    return [place for place in places[: places.index(own)] if not place.name.startswith(OWN_PROGRAMS)]
