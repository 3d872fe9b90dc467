# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restores the objects in the backup, except for those that would now divert other traffic."""

from __future__ import annotations

import itertools
import typing as t

from .._cni import cni
from .._core.errors import Refusal
from .._core.plan import Backend, Plan, Plane, Step, whole
from .._ebtables import ebtables, ebtables_backend
from .._files import files
from .._interfaces import link_backend
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import Scene
from .._netfilter import chain, iptables, iptables_backend
from .._netfilter.chain import ListedRule, Place, RemovedRules, Restoration
from .._netfilter.iptables import Table, TableRemoval
from .._netfilter.iptables_backend import Iptables
from .._platform import library
from .._platform.sysctl import Sysctl
from .._routing.neighbour import STALE, Neighbour
from .._routing.routing_backend import Apply, Change
from . import removed_link_backend
from .backup_backend import Run
from .backup_resource import BackupFile, ObservedBackup
from .cleanup_resource import LeftoverBackends, ObservedLeftovers, Selection, batches, object_lines, observe_node
from .judge import Judge
from .removed_link_backend import RestoreAddress, RestoreLink
from .state_file import STATE_FILES


class ObservedRestoration(t.NamedTuple):
    """node: the facts by which the rules are judged; None without a backup. files: the current content at each moved file's
    path. tables: the chains of the tables of iptables in the backup.

    settings: the current values of the settings in the backup; None where the link is gone.
    """

    node: ObservedLeftovers | None
    backup: ObservedBackup
    files: t.Mapping[str, files.State | None] = {}
    tables: t.Mapping[Table, iptables.Chains] = {}
    scene: Scene = Scene()
    settings: t.Mapping[str, int | None] = {}

    @property
    def holders(self) -> dict[str, str]:
        """Map each address of the node, without its length, to the name of its link."""
        names = {link.number: link.name for link in self.scene.links}
        return {str(address).partition("/")[0]: names.get(address.link, "") for address in self.scene.addresses}


class Restored(t.NamedTuple):
    """The objects that a plan restores. rules: of ebtables, of the newest run first. removals: rules and chains of iptables.

    changes: neighbours and routes, each with the protocol. differences: a sentence for each object that cannot be as it was.
    runs: the objects that stay in the backup, because another interface, link or file is in their place.
    """

    rules: tuple[RemovedRules, ...] = ()
    removals: tuple[TableRemoval, ...] = ()
    files: tuple[files.Put, ...] = ()
    changes: tuple[tuple[int, Change], ...] = ()
    links: tuple[RestoreLink | RestoreAddress, ...] = ()
    differences: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()


class RestoredLeftovers:
    """Ensures that the node is as it was before the backup's runs, except for objects that would now divert other traffic.

    The last run is undone first. The backup is removed when nothing is left in it. The plan's report is Restored.
    """

    name = "azure-vnet's leftovers"
    plane = Plane.IMMEDIATE

    def __init__(self, backends: LeftoverBackends, backup: BackupFile) -> None:
        self._backends = backends
        self._backup = backup

    def observe(self) -> ObservedRestoration:
        backup = self._backup.observe()
        if not backup.runs:
            return ObservedRestoration(None, backup)
        backends = sorted({removed.place.backend for run in backup.runs for removed in run.removed_rules})
        node = observe_node(self._backends, backup, Selection(backends=tuple(backends)), self._backup.path)
        runs, iptables_tables, sysctl = _of_this_boot(node), Iptables(self._backends.run), Sysctl()
        tables = dict.fromkeys(removal.table for run in runs for removal in run.of(iptables_backend.RestoreRules))
        keys = [key for run in runs for link in run.of(RestoreLink) for key, _value in link.settings]
        return ObservedRestoration(
            node,
            backup,
            {path: self._backends.files.read(path) for run in runs for path, _content in run.files},
            {table: iptables_tables.read(table) for table in tables},
            LinkMessages().scene(),
            {key: sysctl.read(key) for key in keys},
        )

    def plan(self, observed: ObservedRestoration) -> Plan:
        """Raise Refusal if it is unknown which addresses live pods have."""
        if observed.node is None:
            return Plan(self._backup.steps(observed.backup, ()), report=Restored())
        hidden = observed.node.evidence.hidden
        if hidden and any(run.removed_rules or run.changes for run in _of_this_boot(observed.node)):
            raise Refusal(
                f"{hidden}. A live pod there may have an address whose rules {self._backup.path} keeps, and they would divert its"
                " traffic. Nothing was changed. Run the module on the node itself rather than in a container, and remove a"
                " namespace that no program uses (ip netns delete)"
            )
        restored = _restored(observed, observed.node)
        steps = tuple(_steps(observed, restored))
        load = [Step(f"load {library.PYROUTE2}", library.Load(library.PYROUTE2))] * bool(restored.changes)
        after = "".join(f"{line}\n" for step in steps for line in object_lines(step.do))
        return Plan((*load, *steps, *self._backup.steps(observed.backup, restored.runs)), whole(after=after), restored)

    @property
    def backends(self) -> t.Sequence[Backend]:
        return self._backends.all()


def _steps(observed: ObservedRestoration, restored: Restored) -> t.Iterator[Step]:
    for removed in restored.rules:
        backend, place = removed.place.backend, removed.place
        restore = ebtables_backend.RestoreRules(backend, (removed,))
        yield Step(f"restore {len(removed.gone)} rules in {place}", restore, ebtables_backend.RemoveRules(backend, (removed,)))
    for summary, apply in batches(restored.changes):
        yield Step(f"restore {summary}", apply, Apply(apply.protocol, tuple(change.inverse() for change in apply.changes)))
    for put in restored.files:
        yield Step(f"restore {put.path}", put, files.Remove(put.path))
    for removal in restored.removals:
        yield Step(f"restore {removal}", iptables_backend.RestoreRules(*removal), iptables_backend.RemoveRules(*removal))
    for link in restored.links:
        messages = removed_link_backend.missing_messages(link, observed.scene)
        yield Step(f"restore {link.name}", link, link_backend.Apply(messages).inverse() if messages else None)


def _of_this_boot(node: ObservedLeftovers) -> list[Run]:
    """Return the backup's runs, newest first, without the objects that a boot has removed: all but files outside of /run."""
    runs = [
        run
        if run.boot == node.boot
        else run._replace(undo=tuple(undo for undo in run.undo if isinstance(undo, files.Put) and undo.path not in STATE_FILES))
        for run in node.backup.runs
    ]
    return runs[::-1]


def _restored(observed: ObservedRestoration, node: ObservedLeftovers) -> Restored:
    runs, judge = _of_this_boot(node), Judge(node.evidence, node.chains)
    chains = {table: _missing_chains(runs, table, observed.tables[table]) for table in observed.tables}
    rules = _rules(observed, node, chains, judge, runs)
    puts, obstacles = _files(runs, observed.files)
    changes = _changes(runs, observed, node, judge, obstacles)
    differences: list[str] = []
    links = _links(runs[::-1], observed, differences, obstacles)
    remaining = [
        run._replace(undo=tuple(filter(None, (_barred(undo, rules, obstacles) for undo in run.undo)))) for run in runs[::-1]
    ]
    ended = sum(run.boot != node.boot for run in node.backup.runs)
    of_boot = f"{ended} of the clean-ups were before this boot, which has removed their rules, neighbours, routes and links"
    return Restored(
        tuple(removed for removed in rules.removed if removed.place.table in ebtables.TABLES),
        tuple(iptables.by_table(rules.removed, chains)),
        tuple(puts),
        tuple(changes),
        tuple(links),
        (*[of_boot] * bool(ended), *rules.differences, *obstacles.values(), *differences),
        tuple(run for run in remaining if run.undo),
    )


def _barred(undo: t.Any, rules: Restoration, obstacles: t.Mapping[t.Any, str]) -> t.Any:
    """Return the part of the operation that stays in the backup; None for nothing."""
    if isinstance(undo, (ebtables_backend.RestoreRules, iptables_backend.RestoreRules)):
        removed = tuple(removal._replace(gone=rules.barred[removal]) for removal in undo.removed if removal in rules.barred)
        kind: t.Any = type(undo)
        return kind(undo[0], removed) if removed else None
    if isinstance(undo, Apply):
        changes = tuple(change for change in undo.changes if (undo.protocol, change) in obstacles)
        return undo._replace(changes=changes) if changes else None
    return undo if undo in obstacles else None


def _rules(
    observed: ObservedRestoration,
    node: ObservedLeftovers,
    missing: t.Mapping[Table, t.Collection[str]],
    judge: Judge,
    runs: t.Iterable[Run],
) -> Restoration:
    """Undo the removals of rules of ebtables and iptables. missing: the chains of iptables that are restored."""
    current = {table.at(name): rules for table, chains in observed.tables.items() for name, rules in chains.items()}
    places = {*current, *(table.at(name) for table, names in missing.items() for name in names)}
    holders = observed.holders

    def obstacle(place: Place, rule: ListedRule) -> str:
        if place.table in ebtables.TABLES:
            return judge.obstacle(place, rule)
        return _iptables_obstacle(place, rule.text, places, holders)

    tables = [undo.removed for run in runs for undo in run.of(iptables_backend.RestoreRules)]
    removals = [*(removed for run in runs for removed in run.removed_rules), *itertools.chain(*tables)]
    return chain.restoration(removals, {**node.chains, **current}, obstacle)


def _missing_chains(runs: t.Iterable[Run], table: Table, now: iptables.Chains) -> tuple[str, ...]:
    """Return the removed chains of a table that do not exist."""
    removals = [undo for run in runs for undo in run.of(iptables_backend.RestoreRules) if undo.table == table]
    names = dict.fromkeys(name for removal in removals for name in removal.chains)
    return tuple(name for name in names if name not in now)


def _iptables_obstacle(place: Place, text: str, places: t.Collection[Place], addresses: t.Collection[str]) -> str:
    """Return why a rule is not restored; empty if it is restored. places: the chains that exist, or are restored."""
    source, jump = iptables.meaning(text).get("--to-source", ""), place._replace(chain=iptables.target(text))
    missing = [
        target
        for target in (place, jump)
        if target not in places and (target is place or cni.AZURE_CHAIN.fullmatch(target.chain))
    ]
    if missing:
        return f"the chain {missing[0].chain} does not exist now"
    return "the node does not have that address now" if source and source not in addresses else ""


def _files(runs: t.Sequence[Run], current: t.Mapping[str, files.State | None]) -> tuple[list[files.Put], dict[t.Any, str]]:
    """Return the moved files to restore, and those that stay in the backup, with the reason.

    runs: newest first. Of a file that several runs moved, the newest content counts: without the runs, azure-vnet would have
    written it over the others, which are still evidence of what was azure-vnet's.
    """
    every = [files.Put(*file) for run in runs for file in run.files]
    newest = {put.path: put for put in reversed(every)}
    obstacles = {}
    for put in dict.fromkeys(every):
        present = current[put.path]
        if present is None and put != newest[put.path]:
            why = "it is restored as the last run moved it, and the backup keeps the content that an earlier run moved"
            obstacles[put] = f"{put.path}: {why}"
        elif present not in (None, put.desired):
            obstacles[put] = f"{put.path}: something else exists there now, and is left"
    return [put for put in newest.values() if current[put.path] is None], obstacles


def _changes(
    runs: t.Iterable[Run],
    observed: ObservedRestoration,
    node: ObservedLeftovers,
    judge: Judge,
    obstacles: dict[t.Any, str],
) -> list[tuple[int, Change]]:
    """Return the neighbours and routes to restore. obstacles: gets those that must not be restored, with the reason.

    runs: newest first; the oldest has the former state of a neighbour.
    """
    additions: dict[t.Any, tuple[int, Change]] = {}
    names = {link.name for link in observed.scene.links}
    present: set[t.Any] = {(neighbour.address, neighbour.link) for neighbour in node.evidence.neighbours} | {*node.routes}
    for protocol, change in (pair for run in runs for pair in run.changes):
        item, is_neighbour = change.item, isinstance(change.item, Neighbour)
        missing = sorted(({item.link} if is_neighbour else item.links) - names)
        why = f"there is no link {', '.join(missing)}" if missing else ""
        why = why or judge.obstacle_to(item.address, item.mac if is_neighbour else "")
        key = (item.address, item.link) if is_neighbour else (item, protocol)
        if why:
            obstacles[protocol, change] = f"{'ip neigh ' if is_neighbour else ''}{item}: {why}"
        elif key not in present:
            # STALE: the kernel verifies the neighbour when it uses it.
            is_stale = is_neighbour and not item.is_permanent
            additions[key] = protocol, change._replace(item=item._replace(state=STALE)) if is_stale else change
    return [*additions.values()]


def _links(
    runs: t.Iterable[Run], observed: ObservedRestoration, differences: list[str], obstacles: dict[t.Any, str]
) -> list[RestoreLink | RestoreAddress]:
    """Return the links and addresses to restore: of each, the one of the oldest run, which has its former state.

    runs: oldest first. differences, obstacles: get those that are not restored, and of these the ones that stay in the backup.
    """
    existing, holders = {link.name: link for link in observed.scene.links}, observed.holders
    names = {*existing}
    links: dict[str, RestoreLink] = {}
    addresses: dict[RestoreAddress, None] = {}
    for run in runs:
        for link in run.of(RestoreLink):
            held = [text for text, _flags in link.addresses if holders.get(_host(text), link.name) != link.name]
            if link.name in links:
                continue
            if all(end.name in existing and link.has_made(existing[end.name]) for end in link.ends):
                # A killed run has not removed it, or not restored all of it.
                is_whole = all(observed.settings[key] == value for key, value in link.settings)
                if not held and not (is_whole and not removed_link_backend.missing_messages(link, observed.scene)):
                    links[link.name] = link
            elif names & {end.name for end in link.ends}:
                differences.append(f"link {link.name} exists already")
            elif held:
                host = _host(held[0])
                obstacles[link] = f"link {link.name}: {holders[host]} has its address {host} now"
            else:
                links[link.name] = link
                names |= {end.name for end in link.ends}
        for address in run.of(RestoreAddress):
            holder = holders.get(_host(address.address), "")
            if holder == address.link:
                continue
            if holder or address.link not in existing:
                why = f"{holder} has it now" if holder else f"there is no link {address.link}"
                obstacles[address] = f"address {address.address} of {address.link}: {why}"
            else:
                addresses[address] = None
    return [*links.values(), *addresses]


def _host(address: str) -> str:
    return address.partition("/")[0]
