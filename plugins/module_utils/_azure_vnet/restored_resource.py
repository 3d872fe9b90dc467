# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Restores what earlier runs removed."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal
from .._core.plan import Backend, Plan, Plane, Step
from .._ebtables.ebtables_backend import PutBack, Take
from .._files import files
from .._netfilter import chain
from .._netfilter.chain import Place, Removed
from .._platform import library
from .._routing.neighbour import STALE, Neighbour
from .._routing.route import Route
from .._routing.routing_backend import ADD, Apply
from . import backup, backup_resource, leftovers_resource
from .backup import File, Run
from .backup_resource import BackupFile
from .leftover_backends import LeftoverBackends
from .leftovers import Judge
from .leftovers_resource import Selection, netlink_changes


class ObservedRestoration(t.NamedTuple):
    """node: the facts by which the rules are judged; None without a backup. files: the current content at each moved file's
    path."""

    node: leftovers_resource.ObservedLeftovers | None
    files: t.Mapping[str, files.Found | None]
    links: frozenset[str]
    backup: backup_resource.ObservedBackup


class Back(t.NamedTuple):
    """The objects that a plan restores. rules: each with its chain. removed: newest run first. differences: a sentence for each
    object that cannot be as it was.

    left: the objects that stay in the backup, because another interface, link or file is in their place.
    """

    rules: tuple[tuple[Place, str], ...] = ()
    removed: tuple[Removed, ...] = ()
    files: tuple[File, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[tuple[Route, int], ...] = ()
    differences: tuple[str, ...] = ()
    left: backup.Runs = ()


class RestoredLeftovers:
    """Ensures that the node is as it was before the backup's runs, except for objects that would now divert other traffic.

    The last run is undone first. The backup is removed when nothing is left in it. The plan's report is Back.
    """

    name = "azure-vnet's leftovers"
    plane = Plane.IMMEDIATE

    def __init__(self, backends: LeftoverBackends, kept: BackupFile) -> None:
        self._backends = backends
        self._backup = kept

    def observe(self) -> ObservedRestoration:
        kept = self._backup.observe()
        if not kept.runs:
            return ObservedRestoration(None, {}, frozenset(), kept)
        backends = sorted({one.place.backend for run in kept.runs for one in run.removed})
        node = leftovers_resource.look(self._backends, kept, Selection(backends=tuple(backends)))
        found = {one.path: self._backends.files.read(one.path) for run in kept.runs for one in run.files}
        return ObservedRestoration(node, found, frozenset(self._backends.links.links().values()), kept)

    def plan(self, observed: ObservedRestoration) -> Plan:
        """Raises Refusal if it is unknown which addresses live pods have."""
        if observed.node is None:
            return Plan(self._backup.steps(observed.backup, ()), report=Back())
        hidden = observed.node.evidence.hidden
        if hidden and any(run.removed or run.neighbours or run.routes for run in _of_this_boot(observed.node)):
            raise Refusal(
                f"{hidden}. A live pod there may have an address whose rules {self._backup.path} keeps, and they would divert its"
                " traffic. Nothing was changed. Run the module on the node itself rather than in a container, and remove a"
                " namespace that no program uses (ip netns delete)"
            )
        back = _back(observed, observed.node)
        return Plan(tuple(self._steps(observed, back)), after=_shown(back), report=back)

    def _steps(self, observed: ObservedRestoration, back: Back) -> t.Iterator[Step]:
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
        yield from self._backup.steps(observed.backup, back.left)

    @property
    def backends(self) -> t.Sequence[Backend]:
        return self._backends.all()


def _of_this_boot(node: leftovers_resource.ObservedLeftovers) -> list[Run]:
    """The backup's runs, newest first, without the objects that a boot has removed: rules, neighbours, routes, files in /run."""
    runs = [
        run if run.boot == node.boot else Run(files=tuple(one for one in run.files if one.outlives_boots), boot=run.boot)
        for run in node.backup.runs
    ]
    return runs[::-1]


def _back(observed: ObservedRestoration, node: leftovers_resource.ObservedLeftovers) -> Back:
    runs, judge = _of_this_boot(node), Judge(node.evidence, node.chains)
    back = chain.restoration([one for run in runs for one in run.removed], node.chains, judge.obstacle)
    moved, occupied = _files(runs, observed.files)
    links = _Links(runs, observed, node, judge)
    left = tuple(
        Run(
            tuple(one._replace(gone=back.barred[one]) for one in run.removed if one in back.barred),
            tuple(one for one in run.files if one in occupied),
            tuple(one for one in run.neighbours if one in links.barred),
            tuple(one for one in run.routes if one in links.barred),
            run.boot,
        )
        for run in reversed(runs)
    )
    ended = sum(run.boot != node.boot for run in node.backup.runs)
    of_boot = [f"{ended} of the clean-ups were before this boot, which has removed their rules, neighbours and routes"]
    return Back(
        back.rules,
        back.removed,
        tuple(one for one in moved if observed.files[one.path] is None),
        tuple(links.neighbours.values()),
        tuple(links.routes),
        (
            *(of_boot if ended else ()),
            *back.differences,
            *(f"{one.path}: something else exists there now, and is left" for one in occupied),
            *links.barred.values(),
        ),
        tuple(run for run in left if not run.is_empty),
    )


def _files(runs: t.Sequence[Run], found: t.Mapping[str, files.Found | None]) -> tuple[list[File], list[File]]:
    """The moved files to restore, and those in whose place something else is. Of a file that several runs moved, the oldest run's
    content counts."""
    moved = list({one.path: one for run in runs for one in run.files}.values())
    own = [files.Content(one.text, one.mode, one.owner) for one in moved]
    return moved, [one for one, content in zip(moved, own) if found[one.path] not in (None, content)]


class _Links:
    """Neighbours and routes to restore. barred: those that must not be restored, with the reason."""

    def __init__(
        self, runs: t.Sequence[Run], observed: ObservedRestoration, node: leftovers_resource.ObservedLeftovers, judge: Judge
    ) -> None:
        self.neighbours: dict[tuple[str, str], Neighbour] = {}
        self.routes: dict[tuple[Route, int], None] = {}
        self.barred: dict[Neighbour | tuple[Route, int], str] = {}
        there = {(one.address, one.link) for one in node.evidence.neighbours}
        for one in (one for run in runs for one in run.neighbours if one.mac):
            obstacle = _link_obstacle({one.link}, observed) or judge.obstacle_to(one.address, one.mac)
            if obstacle:
                self.barred[one] = f"ip neigh {one}: {obstacle}"
            elif (one.address, one.link) not in there:
                # STALE: the kernel verifies the neighbour when it uses it.
                self.neighbours[one.address, one.link] = one if one.is_permanent else one._replace(state=STALE)
        for route, protocol in (one for run in runs for one in run.routes):
            obstacle = _link_obstacle(route.links, observed) or judge.obstacle_to(route.address, "")
            if obstacle:
                self.barred[route, protocol] = f"{route}: {obstacle}"
            elif (route, protocol) not in node.routes:
                self.routes[route, protocol] = None


def _link_obstacle(links: t.AbstractSet[str], observed: ObservedRestoration) -> str:
    missing = sorted(links - observed.links)
    return f"there is no link {', '.join(missing)}" if missing else ""


def _shown(back: Back) -> str:
    rules = [f"{place.backend} {place.table}: -A {place.chain} {text}\n" for place, text in back.rules]
    neighbours = [f"ip neigh {one}\n" for one in back.neighbours]
    moved = [f"# {one.path}\n" for one in back.files]
    return "".join([*moved, *rules, *neighbours, *(f"{route}\n" for route, _protocol in back.routes)])
