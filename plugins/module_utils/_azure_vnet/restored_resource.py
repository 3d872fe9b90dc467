# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Restores what earlier runs removed."""

from __future__ import annotations

import typing as t

from .._core.plan import Backend, Plan, Plane, Step
from .._platform import files, library
from .._routing.neighbour import Neighbour
from .._routing.route import Route
from .._routing.routing_backend import ADD, Apply
from . import backup, backup_resource, ebtables
from .backup import File
from .backup_resource import BackupFile
from .ebtables import Place, Removed, Rule
from .ebtables_backend import PutBack, Take
from .leftover_backends import LeftoverBackends
from .leftovers_resource import netlink_changes

STALE = 0x04  # include/uapi/linux/neighbour.h, NUD_STALE: the kernel verifies the neighbour when it uses it


class Observed(t.NamedTuple):
    """files: the current content of each moved file's path. routes: each with its protocol. links: names of the node's links."""

    chains: ebtables.Chains
    files: t.Mapping[str, files.Found | None]
    neighbours: frozenset[tuple[str, str]]
    routes: frozenset[tuple[Route, int]]
    links: frozenset[str]
    backup: backup_resource.Observed


class Back(t.NamedTuple):
    """What a plan restores. rules: each with its chain. removed: newest run first. differences: what cannot be as it was."""

    rules: tuple[tuple[Place, str], ...] = ()
    removed: tuple[Removed, ...] = ()
    files: tuple[File, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[tuple[Route, int], ...] = ()
    differences: tuple[str, ...] = ()


class RestoredLeftovers:
    """Ensures that the node is as it was before the backup's runs, and that the backup is removed.

    The last run is undone first. The plan's report is Back.
    """

    name = "azure-vnet's leftovers"
    plane = Plane.IMMEDIATE

    def __init__(self, backends: LeftoverBackends, kept: BackupFile) -> None:
        self._backends = backends
        self._backup = kept

    def observe(self) -> Observed:
        kept = self._backup.observe()
        backends = {one.place.backend for run in kept.runs for one in run.removed}
        has_links = any(run.neighbours or run.routes for run in kept.runs)
        return Observed(
            self._backends.tables.read(sorted(backends)),
            {one.path: self._backends.files.read(one.path) for run in kept.runs for one in run.files},
            frozenset((one.address, one.link) for one in self._backends.links.neighbours()) if has_links else frozenset(),
            frozenset(self._backends.links.routes()) if has_links else frozenset(),
            frozenset(self._backends.links.links().values()) if has_links else frozenset(),
            kept,
        )

    def plan(self, observed: Observed) -> Plan:
        if not observed.backup.runs:
            return Plan(self._backup.steps(observed.backup, ()), report=Back())
        back = _back(observed)
        return Plan(tuple(self._steps(observed, back)), after=_shown(back), report=back)

    def _steps(self, observed: Observed, back: Back) -> t.Iterator[Step]:
        if back.neighbours or back.routes:
            yield Step(f"load {library.PYROUTE2}", library.Load(library.PYROUTE2))
        for one in back.removed:
            backend, place = one.place.backend, one.place
            yield Step(f"restore {len(one.gone)} rules in {place}", PutBack(backend, (one,)), Take(backend, (one,)))
        for summary, protocol, changes in netlink_changes(ADD, back.neighbours, back.routes):
            undo = tuple(change.inverse() for change in changes)
            yield Step(f"restore {summary}", Apply(protocol, changes), Apply(protocol, undo))
        for file in back.files:
            content = files.Content(file.text, file.mode, file.owner)
            yield Step(f"restore {file.path}", files.Put(file.path, content), files.Remove(file.path))
        yield from self._backup.steps(observed.backup, ())

    @property
    def backends(self) -> t.Sequence[Backend]:
        return self._backends.all()


def _back(observed: Observed) -> Back:
    runs = tuple(reversed(observed.backup.runs))
    rules, removed, differences = _rules(runs, observed.chains)
    moved, of_files = _files(runs, observed.files)
    neighbours, routes, of_links = _links(runs, observed)
    return Back(rules, removed, moved, neighbours, routes, (*differences, *of_files, *of_links))


def _rules(runs: backup.Runs, chains: ebtables.Chains) -> tuple[tuple[tuple[Place, str], ...], tuple[Removed, ...], list[str]]:
    """Undoes the newest run first. If several runs removed the same rule, the oldest determines its position."""
    now: dict[Place, tuple[Rule, ...]] = dict(chains)
    oldest: dict[tuple[Place, str], Removed] = {
        (one.place, one.rules[number].text): one for run in runs for one in run.removed for number in one.gone
    }
    rules: list[tuple[Place, str]] = []
    removed: list[Removed] = []
    differences: list[str] = []
    for taken in (one for run in runs for one in run.removed):
        one = taken.without({n for n in taken.gone if oldest[taken.place, taken.rules[n].text] is not taken})
        merge = ebtables.put_back(now.get(one.place, ()), one)
        now[one.place] = merge.rules
        rules += [(one.place, merge.rules[position].text) for position in merge.added]
        differences += [f"{one.place}: {text} exists already" for text in merge.present]
        if merge.moved:
            differences.append(f"{one.place}: other rules were added, removed or moved since, so the order may differ")
        missing = frozenset(number for number in one.gone if one.rules[number].text not in merge.present)
        if missing:
            removed.append(one._replace(gone=missing))
    return tuple(rules), tuple(removed), differences


def _files(runs: backup.Runs, found: t.Mapping[str, files.Found | None]) -> tuple[tuple[File, ...], list[str]]:
    """If several runs moved the same file, the oldest run has the original."""
    moved: dict[str, File] = {one.path: one for run in runs for one in run.files}
    differences = [
        f"{path}: something else exists there now, and is left"
        for path, one in moved.items()
        if found[path] is not None and found[path] != files.Content(one.text, one.mode, one.owner)
    ]
    return tuple(one for path, one in moved.items() if found[path] is None), differences


def _links(runs: backup.Runs, observed: Observed) -> tuple[tuple[Neighbour, ...], tuple[tuple[Route, int], ...], list[str]]:
    neighbours: dict[tuple[str, str], Neighbour] = {}
    routes: dict[tuple[Route, int], None] = {}
    differences = []
    for one in (one for run in runs for one in run.neighbours if one.mac):
        if one.link not in observed.links:
            differences.append(f"ip neigh {one}: there is no link {one.link}")
        elif (one.address, one.link) not in observed.neighbours:
            lasting = one if one.is_permanent else one._replace(state=STALE)
            neighbours[one.address, one.link] = lasting
    for route, protocol in (one for run in runs for one in run.routes):
        if not route.links <= observed.links:
            differences.append(f"{route}: there is no link {', '.join(sorted(route.links))}")
        elif (route, protocol) not in observed.routes:
            routes[route, protocol] = None
    return tuple(neighbours.values()), tuple(routes), differences


def _shown(back: Back) -> str:
    rules = [f"{place.backend} {place.table}: -A {place.chain} {text}\n" for place, text in back.rules]
    neighbours = [f"ip neigh {one}\n" for one in back.neighbours]
    moved = [f"# {one.path}\n" for one in back.files]
    return "".join([*moved, *rules, *neighbours, *(f"{route}\n" for route, _protocol in back.routes)])
