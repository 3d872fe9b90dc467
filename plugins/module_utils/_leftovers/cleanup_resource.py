# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes azure-vnet's leftovers, the rules of ebtables by evidence about each pod, and keeps them in the backup."""

from __future__ import annotations

import itertools
import typing as t

from .._cni import cni, cni_backend
from .._core.errors import Refusal
from .._core.fields import Prefix
from .._core.plan import Backend, Plan, Plane, Step, whole
from .._core.printable import first_of
from .._ebtables import ebtables, ebtables_backend
from .._ebtables.ebtables_backend import Ebtables
from .._files import files
from .._interfaces import interfaces_backend, link_backend
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import Scene
from .._netfilter import chain, chains_backend, iptables, iptables_backend
from .._netfilter.chain import Chains, ListedRule, Place, RemovedRules
from .._netfilter.iptables import Rule, Table
from .._netfilter.iptables_backend import Iptables
from .._platform import kernel, library, process
from .._platform.sysctl import Sysctl
from .._routing.neighbour import Neighbour
from .._routing.route import Route
from .._routing.routing_backend import DELETE, Apply, Change, Netlink
from .._routing.rt_names import MAIN
from . import azure_leftovers, bridge, leftover, removed_link_backend, state_file, survey_backend
from .azure_leftovers import Facts
from .backup_backend import Run
from .backup_resource import BackupFile, ObservedBackup
from .judge import BRIDGE, CONFIGURATION, HOST_LINK, Evidence, Judge, LeftoverVerdict, has_shapes, shape_of
from .leftover import ADDRESS, CHAIN, LINK, NEIGHBOUR, RULE, SYSCTL, Leftover
from .removed_link_backend import RemovedLinks, RestoreAddress, RestoreLink
from .survey_backend import Former

NO_TRACE = (
    "Option addresses had no effect. The node has ebtables rules that look like azure-vnet's, but no trace of azure-vnet: no"
    " state file, CNI configuration, binary, bridge, link or chain. So the rules are another program's, and were left. Remove"
    " them with that program, or by ebtables -D."
)


GONE_WITH_LINK = NEIGHBOUR, SYSCTL


class LeftoverBackends(t.NamedTuple):
    """run: starts programs that read."""

    tables: Ebtables
    links: Netlink
    files: files.Files
    run: process.Runner

    def all(self) -> t.Sequence[Backend]:
        return (
            *(self.tables, self.links, self.files, library.Libraries()),
            *(Iptables(self.run), LinkMessages(), RemovedLinks()),
        )


class Selection(t.NamedTuple):
    """The module's options. backends: those of ebtables and iptables whose tables are changed."""

    addresses: tuple[Prefix, ...] = ()
    backends: tuple[str, ...] = ebtables.BACKENDS
    neighbours: bool = True
    routes: bool = True
    iptables: bool = False
    links: bool = False


class Removable(t.NamedTuple):
    """The objects that are not judged by pods: rules of iptables, links, addresses. Read only if an option selects them.

    facts: None if nothing on the node is azure-vnet's. settings: those of azSnatbr, keys below /proc/sys with their values.
    """

    facts: Facts | None = None
    scene: Scene = Scene()
    settings: tuple[tuple[str, int], ...] = ()


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
    removable: Removable = Removable()


class Judged(t.NamedTuple):
    """A rule with a shape of azure-vnet's."""

    place: Place
    text: str
    verdict: LeftoverVerdict

    def report(self) -> dict[str, str]:
        return {**self.place._asdict(), "rule": self.text, "reason": str(self.verdict)}


class Findings(t.NamedTuple):
    """rules: all that have a shape of azure-vnet's. neighbours, routes: only those to remove. troubles: as observed.

    moved: paths of files to move into the backup. unmoved: path -> why the file stays.
    """

    rules: tuple[Judged, ...]
    neighbours: tuple[Neighbour, ...]
    routes: tuple[tuple[Route, int], ...]
    troubles: tuple[str, ...]
    moved: tuple[str, ...]
    unmoved: t.Mapping[str, str]
    iptables: leftover.Findings
    links: leftover.Findings


def observe_node(backends: LeftoverBackends, backup: ObservedBackup, desired: Selection, path: str) -> ObservedLeftovers:
    """Read the node: interfaces last, because a pod that is being added has its interface before its rules and neighbours.

    path: of the backup, which proves that azure-vnet was on the node.
    """
    troubles: list[str] = []
    removable = _removable(backends, backup, troubles.append) if desired.iptables or desired.links else Removable()
    chains = backends.tables.read(desired.backends)
    neighbours, routes = tuple(backends.links.neighbours()), tuple(backends.links.routes())
    configured = cni_backend.configurations()
    present = {path: backends.files.read(path) for path in (*state_file.STATE_FILES, *_to_move(configured))}
    contents = {path: state for path, state in present.items() if isinstance(state, files.Content)}
    irregular = tuple(path for path, state in present.items() if state is not None and path not in contents)
    texts = [(path, content.text) for path, content in contents.items()]
    texts += [(path, content.text) for run in backup.runs for path, content in run.files]
    states = [(path, state_file.state_from(text)) for path, text in texts if path == state_file.STATE_FILE]
    troubles += [
        f"{path} {state.trouble}. The unreadable part is not used as evidence." for path, state in states if state.trouble
    ]
    configurations = [file.content for file in configured.values()] + [
        cni.azure_vnet_in(text) for path, text in texts if path.startswith(cni.FOLDER)
    ]
    binary = [cni.AZURE_BINARY] if cni_backend.has_azure_vnet() else []
    evidence = _with_links(
        Evidence(
            tuple(state for _path, state in states),
            frozenset(itertools.chain.from_iterable(map(_former_pods, backup.runs))),
            tuple(configurations),
            (*([path] if backup.runs else ()), *contents, *irregular, *binary),
            neighbours=neighbours,
            host_routes=_host_routes(routes),
            addresses=desired.addresses,
        )
    )
    if not evidence.has_trace and has_shapes(chains):
        evidence = evidence._replace(traces=_chains_of_iptables(backends.run))
        if desired.addresses and not evidence.has_trace:
            troubles.append(NO_TRACE)
    boot = kernel.boot_identity()
    return ObservedLeftovers(chains, evidence, contents, irregular, routes, backup, boot, tuple(troubles), removable)


def _removable(backends: LeftoverBackends, backup: ObservedBackup, warn: t.Callable[[str], None]) -> Removable:
    """Raise Failure if a table of iptables cannot be read."""
    rules = tuple(
        Rule(undo.table, place.chain, text)
        for run in backup.runs
        for undo in run.of(iptables_backend.RestoreRules)
        for place, text in chain.texts_by_place(undo.removed)
    )
    states = tuple(content.text for run in backup.runs for path, content in run.files if path == state_file.STATE_FILE)
    former = Former(states, rules, bool(backup.runs))
    facts = survey_backend.of_azure(backends.run, warn, survey_backend.survey(backends.run), former, is_strict=True)
    if facts is None:
        return Removable()
    return Removable(facts, LinkMessages().scene(), Sysctl().existing(bridge.settings_of(azure_leftovers.NAT_BRIDGE)))


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
    bridge_names = {configuration.bridge for configuration in evidence.configurations if configuration.is_there}.union(
        *(state.bridges for state in evidence.states)
    )
    of_node = [interface for interface in links.interfaces if not interface.namespace]
    bridges = frozenset(
        interface.link for interface in of_node if BRIDGE.fullmatch(interface.link) or interface.link in bridge_names
    )
    ports = frozenset(interface.link for interface in of_node if interface.master in bridges)
    return evidence._replace(interfaces=links.interfaces, unread=links.unread, bridges=bridges, ports=ports)


def _chains_of_iptables(run: process.Runner) -> tuple[str, ...]:
    chains = chains_backend.read(run)
    return tuple(f"chain {chain} in {place}" for place, chain in chains if cni.AZURE_CHAIN.fullmatch(chain))


class AzureVnetLeftovers:
    """Ensures that the node has no leftovers. Removed objects are kept in a backup. The plan's report is Findings."""

    name = "azure-vnet's leftovers"
    plane = Plane.IMMEDIATE

    def __init__(self, backends: LeftoverBackends, desired: Selection, backup: BackupFile) -> None:
        self._backends = backends
        self._desired = desired
        self._backup = backup

    def observe(self) -> ObservedLeftovers:
        observed = observe_node(self._backends, self._backup.observe(), self._desired, self._backup.path)
        for path in () if observed.evidence.pod_links else observed.irregular:
            raise Refusal(
                f"{path} is not a regular file, so it cannot be moved into the backup, and azure-vnet could restore its rules"
                " from it. Nothing was changed. Remove it, or replace a symbolic link by the file that it points to"
            )
        return observed

    def plan(self, observed: ObservedLeftovers) -> Plan:
        judge = Judge(observed.evidence, observed.chains)
        judged = tuple(_judged(judge, observed.chains))
        removed = chain.removals(observed.chains, {(rule.place, rule.text) for rule in judged if rule.verdict.is_leftover})
        neighbours = tuple(self._stale_neighbours(judge, observed.evidence)) if self._desired.neighbours else ()
        routes = tuple(self._stale_routes(judge, observed)) if self._desired.routes else ()
        unmoved = _unmoved(observed)
        moved = tuple(path for path in observed.files if path not in unmoved)
        if not (removed or moved or routes or any(neighbour.mac for neighbour in neighbours)):
            neighbours = ()  # any packet to a former pod's address creates a failed neighbour again, which diverts nothing
        rules, links = self._certain(observed.removable.facts)
        findings = Findings(judged, neighbours, routes, observed.troubles, moved, unmoved, rules, links)
        # The rules of iptables first, because the files are evidence for them. The files before the rules of ebtables, which
        # azure-vnet would restore from them. The links last, because they are evidence for some rules.
        steps = [
            *_iptables_steps(observed.removable.facts or Facts(), rules.removed),
            *(self._file_step(path, observed.files[path]) for path in moved),
            *self._ebtables_steps(removed),
            *_netlink_steps(neighbours, routes),
            *_link_steps(observed.removable, links.removed),
        ]
        if not steps:
            return Plan(report=findings)
        needs_library = bool(neighbours or routes)
        load = [Step(f"load {library.PYROUTE2}", library.Load(library.PYROUTE2))] * needs_library
        run = Run(tuple(step.undo for step in reversed(steps) if step.undo), observed.boot)
        node = observed.backup.here._replace(macs=judge.macs)
        backup = self._backup.steps(observed.backup, (*observed.backup.runs, run), node)
        listed = (line for step in steps for line in object_lines(step.do if isinstance(step.do, Apply) else step.undo))
        return Plan((*load, *backup, *steps), whole("".join(f"{line}\n" for line in listed)), findings)

    def _certain(self, facts: Facts | None) -> tuple[leftover.Findings, leftover.Findings]:
        """Return the findings about iptables, and about links and all else."""
        places = tuple(f"({backend})" for backend in self._desired.backends)
        leftovers = azure_leftovers.find(facts) if facts else []
        rules = [item for item in leftovers if item.kind in (RULE, CHAIN) and item.place.endswith(places)]
        links = [item for item in leftovers if item.kind not in (RULE, CHAIN)]
        return (
            leftover.findings(rules if self._desired.iptables else (), (RULE, CHAIN)),
            leftover.findings(links if self._desired.links else (), (LINK, *GONE_WITH_LINK, ADDRESS)),
        )

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

    def _file_step(self, path: str, content: files.Content) -> Step:
        return Step(f"move {path} into {self._backup.path}", files.Remove(path), files.Put(path, content))

    def _ebtables_steps(self, removed: t.Sequence[RemovedRules]) -> t.Iterator[Step]:
        for backend in self._desired.backends:
            of_backend = tuple(removal for removal in removed if removal.place.backend == backend)
            if of_backend:
                uncounted = tuple(removal.uncounted for removal in of_backend)
                count = sum(len(removal.gone) for removal in of_backend)
                yield Step(
                    f"remove {count} rules of the {backend} backend",
                    ebtables_backend.RemoveRules(backend, uncounted),
                    ebtables_backend.RestoreRules(backend, of_backend),
                )

    @property
    def backends(self) -> t.Sequence[Backend]:
        return self._backends.all()


def _iptables_steps(facts: Facts, certain: t.Iterable[Leftover]) -> t.Iterator[Step]:
    doomed = {(item.place, item.text) for item in certain}
    rules: dict[Place, list[ListedRule]] = {}
    chains: dict[Table, list[str]] = {rule.table: [] for rule in facts.rules}
    for rule in facts.rules:
        rules.setdefault(rule.table.at(rule.chain), []).append(ListedRule(rule.text))
    for table, name in facts.chains:
        chains.setdefault(table, []).extend([name] * ((str(table), name) in doomed))
    places = {(rule.table.at(rule.chain), rule.text) for rule in facts.rules if (rule.place, rule.text) in doomed}
    removed = chain.removals({place: tuple(listed) for place, listed in rules.items()}, places)
    for removal in iptables.by_table(removed, chains):
        remove, restore = iptables_backend.RemoveRules(*removal), iptables_backend.RestoreRules(*removal)
        yield Step(f"remove {removal}", remove, restore)


def _netlink_steps(neighbours: t.Sequence[Neighbour], routes: t.Sequence[tuple[Route, int]]) -> t.Iterator[Step]:
    pairs = [(0, Change(DELETE, neighbour)) for neighbour in neighbours]
    pairs += [(protocol, Change(DELETE, route)) for route, protocol in routes]
    for summary, apply in batches(pairs):
        undo = tuple(change.inverse() for change in apply.changes if not isinstance(change.item, Neighbour) or change.item.mac)
        yield Step(f"remove {summary}", apply, Apply(apply.protocol, undo) if undo else None)


def _link_steps(removable: Removable, certain: t.Sequence[Leftover]) -> t.Iterator[Step]:
    """Yield a veth pair before the bridge that it is in: an undo creates the bridge first."""
    scene = removable.scene
    going = {item.text for item in certain if item.kind == LINK}
    near, far = azure_leftovers.NAT_LINKS
    addresses = [(item.place.partition(" ")[2], item.text) for item in certain if item.kind == ADDRESS]
    kinds = (near, far, ()), (azure_leftovers.NAT_BRIDGE, "", removable.settings)
    undos: list[removed_link_backend.Operation] = [
        *(removed_link_backend.address_restoration(scene, link, address) for link, address in addresses),
        *(
            removed_link_backend.link_restoration(scene, name, peer, {*going, far}, keys)
            for name, peer, keys in kinds
            if name in going
        ),
    ]
    for undo in undos:
        message = removed_link_backend.removal_message(scene, undo)
        yield Step(message.summary, link_backend.Apply((message,)), undo)


def batches(changes: t.Sequence[tuple[int, Change]]) -> t.Iterator[tuple[str, Apply]]:
    """Yield the summary and the operation of each batch: first the neighbours, then the routes of each protocol."""
    for kind, noun in ((Neighbour, "neighbours"), (Route, "routes")):
        of_kind = [(protocol, change) for protocol, change in changes if isinstance(change.item, kind)]
        for protocol in sorted({protocol for protocol, _change in of_kind}):
            batch = tuple(change for number, change in of_kind if number == protocol)
            yield f"{len(batch)} {noun}", Apply(protocol, batch)


def object_lines(operation: t.Any) -> t.Iterator[str]:
    """Yield the objects that an operation restores, or adds and deletes, as their tools print them."""
    if isinstance(operation, files.Put):
        yield f"# {operation.path}"
    elif isinstance(operation, ebtables_backend.RestoreRules):
        rules = chain.texts_by_place(operation.removed)
        yield from (f"{place.backend} {place.table}: -A {place.chain} {text}" for place, text in rules)
    elif isinstance(operation, iptables_backend.RestoreRules):
        yield from (f"{operation.table}: -N {name}" for name in operation.chains)
        rules = chain.texts_by_place(operation.removed)
        yield from (f"{operation.table}: -A {place.chain} {text}" for place, text in rules)
    elif isinstance(operation, Apply):
        items = [change.item for change in operation.changes]
        yield from (f"ip neigh {item}" if isinstance(item, Neighbour) else str(item) for item in items)
    elif isinstance(operation, RestoreAddress):
        yield f"ip address {operation.address} dev {operation.link}"
    elif isinstance(operation, RestoreLink):
        name, ends = operation.name, operation.ends
        yield f"ip link {name} " + (f"peer {ends[1].name}" if len(ends) > 1 else "type bridge")
        yield from (f"ip address {address} dev {name}" for address, _flags in operation.addresses)
        yield from (f"ip neigh {address} dev {name} lladdr {mac}" for address, mac in operation.neighbours)


def _unmoved(observed: ObservedLeftovers) -> dict[str, str]:
    """Map each of azure-vnet's files that stays where it is to the reason.

    azure-vnet needs the state file and the configuration to delete its pods. An azure-cns that does not record the addresses in
    use itself reads them from the state file; its DaemonSet mounts that file, and kubelet creates an empty file for the mount.
    """
    live = [link.link for link in observed.evidence.pod_links]
    if live:
        reason = f"azure-vnet needs it to delete its live pods, and azure-cns to know their addresses: {first_of(live, 1)}"
        return dict.fromkeys((*observed.files, *observed.irregular), reason)
    return {path: "it is empty" for path, content in observed.files.items() if not content.text.strip()}


def _former_pods(run: Run) -> t.Iterator[tuple[str, str]]:
    """Yield the address and MAC of each pod whose rules the run removed."""
    for removed in run.removed_rules:
        for number in removed.gone:
            shape = shape_of(removed.place, removed.rules[number])
            if shape and shape.kind == "pod":
                yield shape.address, shape.mac


def _judged(judge: Judge, chains: Chains) -> t.Iterator[Judged]:
    for place, rules in chains.items():
        for rule in rules:
            verdict = judge.rule(place, rule)
            if verdict:
                yield Judged(place, rule.text, verdict)
