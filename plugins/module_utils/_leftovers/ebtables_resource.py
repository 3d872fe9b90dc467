# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Removes and restores azure-vnet's ebtables rules, neighbours and routes, and the files by which it would restore its rules."""

from __future__ import annotations

import itertools
import typing as t

from .._cni import cni, cni_backend
from .._core.errors import Refusal
from .._core.fields import Prefix
from .._core.plan import Backend, Plan, Plane, Step, whole
from .._ebtables import ebtables
from .._ebtables.ebtables_backend import Ebtables, PutBack, Take
from .._files import files
from .._interfaces import interfaces_backend
from .._netfilter import chain, chains_backend
from .._netfilter.chain import Chains, Place, RemovedRules
from .._platform import kernel, library, process
from .._routing.neighbour import STALE, Neighbour
from .._routing.route import Route
from .._routing.routing_backend import ADD, DELETE, Apply, Change, Netlink
from .._routing.rt_names import MAIN
from . import state_file
from .backup import Node, Runs
from .backup_resource import BackupFile, ObservedBackup
from .ebtables_backup import File, Run
from .judge import BRIDGE, CONFIGURATION, HOST_LINK, Evidence, Judge, LeftoverVerdict, has_shapes, shape_of

NO_TRACE = (
    "Option addresses had no effect. The node has ebtables rules that look like azure-vnet's, but no trace of azure-vnet: no"
    " state file, CNI configuration, binary, bridge, link or chain. So the rules are another program's, and were left. Remove"
    " them with that program, or by ebtables -D."
)


class LeftoverBackends(t.NamedTuple):
    """run: starts programs that read."""

    tables: Ebtables
    links: Netlink
    files: files.Files
    run: process.Runner

    def all(self) -> t.Sequence[Backend]:
        return (self.tables, self.links, self.files, library.Libraries())


class Selection(t.NamedTuple):
    """The module's options. backends: the ebtables backends to read."""

    addresses: tuple[Prefix, ...] = ()
    backends: tuple[str, ...] = ebtables.BACKENDS
    neighbours: bool = True
    routes: bool = True


class ObservedLeftovers(t.NamedTuple):
    """files: by path, azure-vnet's files from which it would restore its rules. irregular: paths of those that are not regular.

    routes: each with its protocol. boot: the identity of this boot. troubles: a sentence about each partly readable file.
    """

    chains: Chains
    evidence: Evidence
    files: t.Mapping[str, files.Content]
    irregular: tuple[str, ...]
    routes: tuple[tuple[Route, int], ...]
    backup: ObservedBackup
    boot: str
    troubles: tuple[str, ...]


class Judged(t.NamedTuple):
    """A rule with a shape of azure-vnet's. number: its position in the chain."""

    place: Place
    number: int
    text: str
    verdict: LeftoverVerdict

    def report(self) -> dict[str, str]:
        return {**self.place._asdict(), "rule": self.text, "reason": str(self.verdict)}


class Findings(t.NamedTuple):
    """rules: all that have a shape of azure-vnet's. neighbours, routes: only those to remove. troubles: as observed.

    moved: paths of files to move into the backup. unmoved: path -> why the file stays.
    """

    rules: tuple[Judged, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[tuple[Route, int], ...] = ()
    troubles: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    unmoved: t.Mapping[str, str] = {}


def look(backends: LeftoverBackends, kept: ObservedBackup, desired: Selection, traces: t.Sequence[str] = ()) -> ObservedLeftovers:
    """Read the node: interfaces last, because a pod that is being added has its interface before its rules and neighbours.

    traces: known objects that only azure-vnet creates.
    """
    chains = backends.tables.read(desired.backends)
    neighbours, routes = tuple(backends.links.neighbours()), tuple(backends.links.routes())
    configured = cni_backend.configurations()
    present = {path: backends.files.read(path) for path in (*state_file.STATE_FILES, *_to_move(configured))}
    contents = {path: state for path, state in present.items() if isinstance(state, files.Content)}
    irregular = tuple(path for path, state in present.items() if state is not None and path not in contents)
    texts = [(path, content.text) for path, content in contents.items()]
    texts += [(file.path, file.text) for run in kept.runs for file in run.files]
    states = [(path, state_file.state_from(text)) for path, text in texts if path == state_file.STATE_FILE]
    troubles = [
        f"{path} {state.trouble}. The unreadable part is not used as evidence." for path, state in states if state.trouble
    ]
    configurations = [file.content for file in configured.values()] + [
        cni.azure_vnet_in(text) for path, text in texts if path.startswith(cni.FOLDER)
    ]
    evidence = _with_links(
        Evidence(
            tuple(state for _path, state in states),
            frozenset(itertools.chain.from_iterable(map(_former, kept.runs))),
            tuple(configurations),
            (*traces, *contents, *irregular, *([cni.AZURE_BINARY] if cni_backend.has_azure_vnet() else [])),
            neighbours=neighbours,
            host_routes=_host_routes(routes),
            addresses=desired.addresses,
        )
    )
    if not evidence.has_trace and has_shapes(chains):
        evidence = evidence._replace(traces=_chains_of_iptables(backends.run))
        if desired.addresses and not evidence.has_trace:
            troubles.append(NO_TRACE)
    return ObservedLeftovers(chains, evidence, contents, irregular, routes, kept, kernel.boot_identity(), tuple(troubles))


def _to_move(configured: t.Mapping[str, cni_backend.ConfigurationFile]) -> list[str]:
    """Return the configurations by which a runtime would start azure-vnet, and the one with azure-vnet's file name, whatever
    it contains."""
    return [path for path, file in configured.items() if not file.is_inert and (file.content.is_there or path == CONFIGURATION)]


def _host_routes(routes: t.Iterable[tuple[Route, int]]) -> dict[str, frozenset[str]]:
    links_to: dict[str, frozenset[str]] = {}
    for route, _protocol in routes:
        if route.address and route.table == MAIN:
            links_to[route.address] = links_to.get(route.address, frozenset()) | route.links
    return links_to


def _with_links(evidence: Evidence) -> Evidence:
    """Return the evidence with the interfaces, azure-vnet's bridges among them, and the links in these bridges."""
    links = interfaces_backend.read()
    named = {configuration.bridge for configuration in evidence.configurations if configuration.is_there}.union(
        *(state.bridges for state in evidence.states)
    )
    of_node = [interface for interface in links.interfaces if not interface.namespace]
    bridges = frozenset(interface.link for interface in of_node if BRIDGE.fullmatch(interface.link) or interface.link in named)
    ports = frozenset(interface.link for interface in of_node if interface.master in bridges)
    return evidence._replace(interfaces=links.interfaces, unread=links.unread, bridges=bridges, ports=ports)


def _chains_of_iptables(run: process.Runner) -> tuple[str, ...]:
    chains = chains_backend.read(run)
    return tuple(f"chain {chain} in {place}" for place, chain in chains if cni.AZURE_CHAIN.fullmatch(chain))


class AzureVnetLeftovers:
    """Ensures that the node has no leftovers. Removed objects are kept in a backup. The plan's report is Findings."""

    name = "azure-vnet's leftovers"
    plane = Plane.IMMEDIATE

    def __init__(self, backends: LeftoverBackends, desired: Selection, kept: BackupFile, others: t.Sequence[BackupFile]) -> None:
        """others: further backups, which also prove that azure-vnet was on the node."""
        self._backends = backends
        self._desired = desired
        self._backup = kept
        self._others = others

    def observe(self) -> ObservedLeftovers:
        traces = [file.path for file in self._others if file.observe().runs]
        observed = look(self._backends, self._backup.observe(), self._desired, traces)
        for path in () if observed.evidence.pod_links else observed.irregular:
            raise Refusal(
                f"{path} is not a regular file, so it cannot be moved into the backup, and azure-vnet could restore its rules"
                " from it. Nothing was changed. Remove it, or replace a symbolic link by the file that it points to"
            )
        return observed

    def plan(self, observed: ObservedLeftovers) -> Plan:
        judge = Judge(observed.evidence, observed.chains)
        judged = tuple(_judged(judge, observed.chains))
        removed = tuple(_removed(judged, observed.chains))
        neighbours = tuple(self._stale_neighbours(judge, observed.evidence)) if self._desired.neighbours else ()
        routes = tuple(self._stale_routes(judge, observed)) if self._desired.routes else ()
        unmoved = _unmoved(observed)
        moved = tuple(
            File(path, content.text, content.mode, content.owner)
            for path, content in observed.files.items()
            if path not in unmoved
        )
        if not (removed or moved or routes or any(neighbour.mac for neighbour in neighbours)):
            neighbours = ()  # any packet to a former pod's address creates a failed neighbour again, which diverts nothing
        run = Run(removed, moved, neighbours, routes, observed.boot)
        findings = Findings(judged, neighbours, routes, observed.troubles, tuple(file.path for file in moved), unmoved)
        if run.is_empty:
            return Plan(report=findings)
        node = observed.backup.here._replace(macs=judge.macs)
        return Plan(tuple(self._steps(observed, run, node)), whole(_shown(_rules_of(run), run)), findings)

    def _stale_neighbours(self, judge: Judge, evidence: Evidence) -> t.Iterator[Neighbour]:
        for neighbour in evidence.neighbours:
            if neighbour.link in evidence.bridges and judge.neighbour(neighbour).is_leftover:
                yield neighbour

    def _stale_routes(self, judge: Judge, observed: ObservedLeftovers) -> t.Iterator[tuple[Route, int]]:
        for route, protocol in observed.routes:
            if route.address and not route.unread and route.table == MAIN and len(route.links) == 1:
                (link,) = route.links
                is_azures = link in observed.evidence.bridges or HOST_LINK.fullmatch(link)
                if is_azures and judge.route(route.address, link).is_leftover:
                    yield route, protocol

    def _steps(self, observed: ObservedLeftovers, run: Run, node: Node) -> t.Iterator[Step]:
        """Yield the steps. The backup is written before anything is removed.

        The files go first: azure-vnet would restore rules from them.
        """
        if run.neighbours or run.routes:
            yield Step(f"load {library.PYROUTE2}", library.Load(library.PYROUTE2))
        yield from self._backup.steps(observed.backup, (*observed.backup.runs, run), node)
        for file in run.files:
            content = observed.files[file.path]
            yield Step(f"move {file.path} into {self._backup.path}", files.Remove(file.path), files.Put(file.path, content))
        for backend in self._desired.backends:
            of_backend = tuple(removed for removed in run.removed if removed.place.backend == backend)
            if of_backend:
                count = sum(len(removed.gone) for removed in of_backend)
                summary = f"remove {count} rules of the {backend} backend"
                uncounted = tuple(removed.uncounted for removed in of_backend)
                yield Step(summary, Take(backend, uncounted), PutBack(backend, of_backend))
        for summary, protocol, changes in netlink_changes(DELETE, run.neighbours, run.routes):
            undo = tuple(change.inverse() for change in changes if not isinstance(change.item, Neighbour) or change.item.mac)
            yield Step(f"remove {summary}", Apply(protocol, changes), Apply(protocol, undo))

    @property
    def backends(self) -> t.Sequence[Backend]:
        return self._backends.all()


def _unmoved(observed: ObservedLeftovers) -> dict[str, str]:
    """Map each of azure-vnet's files that stays where it is to the reason.

    azure-vnet needs the state file and the configuration to delete its pods. An azure-cns that does not record the addresses in
    use itself reads them from the state file; its DaemonSet mounts that file, and kubelet creates an empty file for the mount.
    """
    live = [link.link for link in observed.evidence.pod_links]
    if live:
        named = f"{live[0]}{f' and {len(live) - 1} more' if len(live) > 1 else ''}"
        reason = f"azure-vnet needs it to delete its live pods, and azure-cns to know their addresses: {named}"
        return dict.fromkeys((*observed.files, *observed.irregular), reason)
    return {path: "it is empty" for path, content in observed.files.items() if not content.text.strip()}


def netlink_changes(
    verb: str, neighbours: t.Sequence[Neighbour], routes: t.Sequence[tuple[Route, int]]
) -> t.Iterator[tuple[str, int, tuple[Change, ...]]]:
    """Yield the summary, protocol and changes of each batch: first the neighbours, then the routes of each protocol."""
    if neighbours:
        yield f"{len(neighbours)} neighbours", 0, tuple(Change(verb, neighbour) for neighbour in neighbours)
    for protocol in sorted({protocol for _route, protocol in routes}):
        changes = tuple(Change(verb, route) for route, of_route in routes if of_route == protocol)
        yield f"{len(changes)} routes", protocol, changes


def _former(run: Run) -> t.Iterator[tuple[str, str]]:
    """Yield the address and MAC of each pod whose rules the run removed."""
    for removed in run.removed:
        for number in removed.gone:
            shape = shape_of(removed.place, removed.rules[number])
            if shape and shape.kind == "pod":
                yield shape.address, shape.mac


def _judged(judge: Judge, chains: Chains) -> t.Iterator[Judged]:
    for place, rules in chains.items():
        for number, rule in enumerate(rules):
            verdict = judge.rule(place, rule)
            if verdict:
                yield Judged(place, number, rule.text, verdict)


def _removed(judged: t.Sequence[Judged], chains: Chains) -> t.Iterator[RemovedRules]:
    gone: dict[Place, set[int]] = {}
    for rule in judged:
        if rule.verdict.is_leftover:
            gone.setdefault(rule.place, set()).add(rule.number)
    for place, numbers in gone.items():
        yield RemovedRules(place, chains[place], frozenset(numbers))


class ObservedRestoration(t.NamedTuple):
    """node: the facts by which the rules are judged; None without a backup. files: the current content at each moved file's
    path."""

    node: ObservedLeftovers | None
    files: t.Mapping[str, files.State | None]
    links: frozenset[str]
    backup: ObservedBackup


class Back(t.NamedTuple):
    """The objects that a plan restores. rules: each with its chain. removed: newest run first. differences: a sentence for each
    object that cannot be as it was.

    left: the objects that stay in the backup, because another interface, link or file is in their place.
    """

    rules: tuple[tuple[Place, str], ...] = ()
    removed: tuple[RemovedRules, ...] = ()
    files: tuple[File, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[tuple[Route, int], ...] = ()
    differences: tuple[str, ...] = ()
    left: Runs = ()


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
        backends = sorted({removed.place.backend for run in kept.runs for removed in run.removed})
        node = look(self._backends, kept, Selection(backends=tuple(backends)))
        states = {file.path: self._backends.files.read(file.path) for run in kept.runs for file in run.files}
        return ObservedRestoration(node, states, frozenset(self._backends.links.links().values()), kept)

    def plan(self, observed: ObservedRestoration) -> Plan:
        """Raise Refusal if it is unknown which addresses live pods have."""
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
        return Plan(tuple(self._steps(observed, back)), whole(after=_shown(back.rules, back)), back)

    def _steps(self, observed: ObservedRestoration, back: Back) -> t.Iterator[Step]:
        if back.neighbours or back.routes:
            yield Step(f"load {library.PYROUTE2}", library.Load(library.PYROUTE2))
        for removed in back.removed:
            backend, place = removed.place.backend, removed.place
            yield Step(f"restore {len(removed.gone)} rules in {place}", PutBack(backend, (removed,)), Take(backend, (removed,)))
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


def _of_this_boot(node: ObservedLeftovers) -> list[Run]:
    """Return the backup's runs, newest first, without the objects that a boot has removed: rules, neighbours, routes, files in
    /run."""
    runs = [
        run if run.boot == node.boot else Run(files=tuple(file for file in run.files if file.outlives_boots), boot=run.boot)
        for run in node.backup.runs
    ]
    return runs[::-1]


def _back(observed: ObservedRestoration, node: ObservedLeftovers) -> Back:
    runs, judge = _of_this_boot(node), Judge(node.evidence, node.chains)
    back = chain.restoration([removed for run in runs for removed in run.removed], node.chains, judge.obstacle)
    moved, staying = _files(runs, observed.files)
    links = _Links(runs, observed, node, judge)
    left = tuple(
        Run(
            tuple(removed._replace(gone=back.barred[removed]) for removed in run.removed if removed in back.barred),
            tuple(file for file in run.files if file in staying),
            tuple(neighbour for neighbour in run.neighbours if neighbour in links.barred),
            tuple(route for route in run.routes if route in links.barred),
            run.boot,
        )
        for run in reversed(runs)
    )
    ended = sum(run.boot != node.boot for run in node.backup.runs)
    of_boot = [f"{ended} of the clean-ups were before this boot, which has removed their rules, neighbours and routes"]
    return Back(
        back.rules,
        back.removed,
        tuple(file for file in moved if observed.files[file.path] is None),
        tuple(links.neighbours.values()),
        tuple(links.routes),
        (
            *(of_boot if ended else ()),
            *back.differences,
            *(f"{file.path}: {reason}" for file, reason in staying.items()),
            *links.barred.values(),
        ),
        tuple(run for run in left if not run.is_empty),
    )


def _files(runs: t.Sequence[Run], current: t.Mapping[str, files.State | None]) -> tuple[list[File], dict[File, str]]:
    """Return the moved files to restore, and those that stay in the backup, with the reason.

    runs: newest first. Of a file that several runs moved, the newest content counts: without the runs, azure-vnet would have
    written it over the others, which are still evidence of what was azure-vnet's.
    """
    every = [file for run in runs for file in run.files]
    newest = {file.path: file for file in reversed(every)}
    staying = {}
    for file in dict.fromkeys(every):
        present = current[file.path]
        if present is None and file != newest[file.path]:
            staying[file] = "it is restored as the last run moved it, and the backup keeps the content that an earlier run moved"
        elif present not in (None, files.Content(file.text, file.mode, file.owner)):
            staying[file] = "something else exists there now, and is left"
    return list(newest.values()), staying


class _Links:
    """Neighbours and routes to restore. barred: those that must not be restored, with the reason."""

    def __init__(self, runs: t.Sequence[Run], observed: ObservedRestoration, node: ObservedLeftovers, judge: Judge) -> None:
        self.neighbours: dict[tuple[str, str], Neighbour] = {}
        self.routes: dict[tuple[Route, int], None] = {}
        self.barred: dict[Neighbour | tuple[Route, int], str] = {}
        there = {(neighbour.address, neighbour.link) for neighbour in node.evidence.neighbours}
        for neighbour in (kept for run in runs for kept in run.neighbours if kept.mac):
            obstacle = _link_obstacle({neighbour.link}, observed) or judge.obstacle_to(neighbour.address, neighbour.mac)
            if obstacle:
                self.barred[neighbour] = f"ip neigh {neighbour}: {obstacle}"
            elif (neighbour.address, neighbour.link) not in there:
                # STALE: the kernel verifies the neighbour when it uses it.
                self.neighbours[neighbour.address, neighbour.link] = (
                    neighbour if neighbour.is_permanent else neighbour._replace(state=STALE)
                )
        for route, protocol in (kept for run in runs for kept in run.routes):
            obstacle = _link_obstacle(route.links, observed) or judge.obstacle_to(route.address, "")
            if obstacle:
                self.barred[route, protocol] = f"{route}: {obstacle}"
            elif (route, protocol) not in node.routes:
                self.routes[route, protocol] = None


def _link_obstacle(links: t.AbstractSet[str], observed: ObservedRestoration) -> str:
    missing = sorted(links - observed.links)
    return f"there is no link {', '.join(missing)}" if missing else ""


def _rules_of(run: Run) -> list[tuple[Place, str]]:
    return [(removed.place, removed.rules[number].text) for removed in run.removed for number in sorted(removed.gone)]


def _shown(rules: t.Iterable[tuple[Place, str]], others: Run | Back) -> str:
    lines = [f"{place.backend} {place.table}: -A {place.chain} {text}\n" for place, text in rules]
    neighbours = [f"ip neigh {neighbour}\n" for neighbour in others.neighbours]
    moved = [f"# {file.path}\n" for file in others.files]
    return "".join([*moved, *lines, *neighbours, *(f"{route}\n" for route, _protocol in others.routes)])
