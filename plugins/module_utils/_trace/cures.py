# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the cures to try for a lost packet: plans of the profiles first, then single modules, then commands of an operator."""

from __future__ import annotations

import shlex
import typing as t

from .._core import fields, glob, option, playbook_task
from .._core.errors import DatapathError, Invalid, Refusal
from .._discovery import uplinks as discovered
from .._discovery import uplinks_backend
from .._probe_snat.probe_table import AZURE_SOURCE
from .._profiles import aks_dual_stack, cilium_migration, eni_policy_routing, symmetric_routing
from .._profiles.eni_policy_routing import LOOSE, STRICT, SYMMETRIC
from .._routing import policy
from .._routing.route import Route
from .._ruleset import nft_text
from .._ruleset.ruleset import LEGACY, NFT
from .._snapshot import values
from .._snapshot.values import Entry
from .._twin import blueprint, legacy_half, pod_links
from . import changes_backend, removals, uplinks
from .changes_backend import Call
from .culprit import Address, ChainRule, Neighbor, Object, is_filter, is_of_bridge
from .packet import Packet
from .removals import Loss
from .uplinks import Uplinks

if t.TYPE_CHECKING:
    from .._profiles.composition import Model

KINDS = PROFILE, MODULE, OPERATOR = ("profile", "module", "operator")
FIB = "fib saddr"  # begins the field that nft has for the reverse path, as in firewalld's filter for IPv6
AZURE_LINKS = ("azure0", "azv")  # the beginnings of the names of azure-vnet's bridge and of its pods' links
# The options of profiles in the text of a change; the task has the others, too.
SHOWN = ("remedy", "manage", "interface_marks", "service_addresses", "interface", "addresses", "bridge", "uplinks")


class Candidate(t.NamedTuple):
    """Describe a change that may cure, and how to make it in the twin and on the node.

    change: in short. task: to paste into a playbook. changes: in the twin. takes_along: what else is affected, as a sentence.
    group: of several cures with the same group, the first one that works is offered. opens_route: as that of a Removal. refusal:
    why the profile refuses the node; empty if it does not. profile, options: of a role and its variables without their prefix.
    """

    kind: str
    change: str
    task: str
    changes: tuple[changes_backend.Change, ...] = ()
    takes_along: str = ""
    group: str = ""
    opens_route: bool = False
    refusal: str = ""
    profile: str = ""
    options: t.Mapping[str, t.Any] = {}


def candidates(packet: Packet, loss: Loss, snapshot: Entry, is_own: bool = False) -> t.Iterator[Candidate]:
    """Yield cures in the order in which they are offered: each kind after the other, and the smaller change first.

    is_own: whether the snapshot is of the node on which this runs, whose files may be read.
    """
    enis = uplinks.of(snapshot)
    if not any(map(glob.is_glob, (loss.came_in_by, packet.interface, *(enis.names if enis else ())))):
        yield from _of_collection(packet, loss, snapshot, enis, is_own)
    if not removals.is_of_cloud(fields.show(packet.destination)):
        for removal in removals.of_loss(loss, snapshot, enis.tables if enis else ()):
            yield from _command(removal, snapshot)


def _of_collection(packet: Packet, loss: Loss, snapshot: Entry, enis: Uplinks | None, is_own: bool) -> t.Iterator[Candidate]:
    """Yield the profiles and modules. Their options take a name with a character of a pattern for a pattern."""
    decider = loss.decider
    is_filtered = is_filter(decider) or (isinstance(decider, ChainRule) and _filters_reverse_paths(decider))
    if enis and (is_filtered or decider is None):
        yield from _of_enis(packet, enis, is_filtered, snapshot)
    if isinstance(decider, Address) and decider.address == AZURE_SOURCE and loss.came_in_by:
        yield from _of_probe(loss.came_in_by)
    if _is_of_azure_vnet(decider):
        yield from _of_migration(packet)
    if is_filter(decider) and loss.came_in_by and not enis:
        yield from _module("Filter loosely", "rp_filter", {"interfaces": [loss.came_in_by], "mode": LOOSE})
    yield from _before_rule(packet.source if loss.is_reply else packet.destination, loss, snapshot)
    if not enis and (is_filtered or decider is None or loss.is_reply) and _is_request(packet, snapshot):
        yield from _of_uplinks(packet.interface, snapshot, is_own)


def _before_rule(destination: bytes, loss: Loss, snapshot: Entry) -> t.Iterator[Candidate]:
    """Lead packets to a network of the node's own links by table main, before the policy rule that misleads them."""
    misleading = removals.misleading_rule(loss)
    by_link = policy.networks_of_links(route for route, _protocol in blueprint.parsed_routes(values.routes(snapshot), []))
    prefixes = (fields.prefix(network)[1] for networks in by_link.values() for network in networks)
    of_family = (prefix for prefix in prefixes if len(prefix[0]) == len(destination))
    network = next((prefix for prefix in of_family if fields.contains(prefix, destination)), None)
    if misleading is None or network is None:
        return
    rules = values.rules(snapshot)
    used = {rule.priority for rule in rules if fields.FAMILIES[rule.family] == misleading.family}
    priority = next((number for number in range(misleading.priority - 1, 0, -1) if number not in used), 0)
    if priority:
        earlier = {"priority": priority, "to": fields.show_prefix(network, ""), "table": policy.MAIN}
        options = {"rules": [earlier], **policy.beside({rule.protocol for rule in rules})}
        yield from _module("Lead packets for the network by its link", "policy_routes", options, removals.MISLED)


def _is_request(packet: Packet, snapshot: Entry) -> bool:
    """Return whether a packet comes in by a link that may be an uplink: one with an address, and no pod behind it."""
    links = values.links(snapshot)
    names = {link.name for link in links if link.addresses}
    return packet.interface in names and packet.interface not in pod_links.pod_links(links, values.routes(snapshot))


def _of_uplinks(interface: str, snapshot: Entry, is_own: bool) -> t.Iterator[Candidate]:
    """Yield the profile for a node with several uplinks and no cloud. interface: by which the request comes in."""
    node = uplinks_backend.read(policy.PROTOCOL) if is_own else uplinks.node_state(snapshot)
    listed = [str(entry["name"]) for entry in discovered.candidates(node)]
    if not {*listed} - {interface}:
        return
    options = {} if interface in listed else {"uplinks": [{"name": name} for name in (*listed, interface)]}
    observation = symmetric_routing.Observation(False, node, marks=uplinks.foreign_marks_of(snapshot))
    yield from _profile("symmetric_routing", symmetric_routing, options, observation)


def _filters_reverse_paths(rule: ChainRule) -> bool:
    matches = () if rule.is_of_iptables else nft_text.rule(rule.chain, rule.line).matches
    return any(match.field.startswith(FIB) for match in matches)


def _of_enis(packet: Packet, enis: Uplinks, is_filtered: bool, snapshot: Entry) -> t.Iterator[Candidate]:
    """Yield the profile with each remedy. A smaller part of it comes first, if that may suffice.

    is_filtered: whether reverse-path filtering is the trouble. If not, the filters stay as they are.
    """
    common: dict[str, t.Any] = {"layout": enis.layout, "enis": enis.enis}
    if enis.priorities:
        common["priorities"] = enis.priorities
    marking = {**common, "pod_interfaces": enis.pod_interfaces}
    if packet.interface in enis.secondary:
        marking["interface_marks"] = [{"name": packet.interface, "mark": _free_mark(enis)}]
    elif packet.interface == enis.primary and not uplinks.has_address(snapshot, packet.destination):
        marking["service_addresses"] = [packet.report()["destination"]]
    parts = ["mark_rule", "connmark"]
    attempts = [(marking, LOOSE, parts)]
    if is_filtered:
        every = ["filters", *parts]
        attempts = [(common, LOOSE, ["filters"]), *attempts, (marking, LOOSE, every), (marking, STRICT, every)]
        attempts += [] if enis.lacks_addresses else [(marking, SYMMETRIC, ["own_addresses", *every])]
    for options, remedy, manage in attempts:
        observation = eni_policy_routing.Observation(False, None, enis.marks)
        yield from _profile(
            "eni_policy_routing", eni_policy_routing, {"remedy": remedy, "manage": manage, **options}, observation
        )


def _free_mark(enis: Uplinks) -> str:
    """Return a mark for a secondary ENI, of bits that no known CNI uses."""
    bits = 0
    for entry in enis.marks:
        bits |= entry.mask
    return next((mark for mark in uplinks.FREE_MARKS if not int(mark, 16) & bits), uplinks.FREE_MARKS[0])


def _of_probe(interface: str) -> t.Iterator[Candidate]:
    options = {"interface": interface, "ipv6": "always"}  # the packet shows that the node has IPv6
    yield from _profile("aks_dual_stack", aks_dual_stack, options, aks_dual_stack.Observation(False))


def _is_of_azure_vnet(decider: Object | None) -> bool:
    """Return whether the culprit may be a leftover of azure-vnet: a rule of a bridge, or an entry for one of its links."""
    links = decider.links if isinstance(decider, Route) else [decider.link] if isinstance(decider, Neighbor) else ()
    return is_of_bridge(decider) or any(link.startswith(AZURE_LINKS) for link in links)


def _of_migration(packet: Packet) -> t.Iterator[Candidate]:
    """Yield the profile by evidence, by the address that is in use again, and with the bridge dissolved."""
    address = {"addresses": [packet.report()["destination"]]}
    for options in ({}, address, {**address, "bridge": True}):
        yield from _profile("cilium_migration", cilium_migration, options, None)


def _profile(name: str, model: Model, options: dict[str, t.Any], observation: t.Any) -> t.Iterator[Candidate]:
    """Yield the plan of a profile with these options, or with the reason if the profile refuses them."""
    try:
        values, errors = option.read(model.OPTIONS, options, model.UNDO)
        for refusal in (*errors, *model.conflicts(values, False)):
            raise refusal if isinstance(refusal, Invalid) else Refusal(refusal)
        steps = model.plan(values, model.facts(values, observation))
        task = playbook_task.of_role(f"Apply the profile {name}", name, options)
    except DatapathError as error:
        text = f"{name}_{error}" if isinstance(error, Invalid) else str(error)
        yield Candidate(PROFILE, _shown(name, options), "", refusal=f"{text}.")
        return
    calls = tuple(Call(module, _without_none(arguments)) for module, arguments in steps if module in changes_backend.MODULES)
    group = " ".join([name, str(options.get("remedy") or "")]).strip()
    yield Candidate(PROFILE, _shown(name, options), task, calls, group=group, profile=name, options=options)


def _without_none(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {name: value for name, value in options.items() if value is not None}


def _module(name: str, module: str, options: dict[str, t.Any], group: str = "") -> t.Iterator[Candidate]:
    try:
        task = playbook_task.of_module(name, module, options)
    except Invalid:
        return
    yield Candidate(MODULE, f"{module}: {playbook_task.flow(options)}", task, (Call(module, options),), group=group or module)


def _shown(name: str, options: t.Mapping[str, t.Any]) -> str:
    part = {key: options[key] for key in SHOWN if key in options}
    return f"{name}: {playbook_task.flow(part)}" if part else name


def _command(removal: removals.Removal, snapshot: Entry) -> t.Iterator[Candidate]:
    """Yield a command; nothing if a twin does not permit it, or if the rule may be in either backend of its program."""
    try:
        changes = changes_backend.read([], [removal.command, *removal.further])
        lines = [_with_backend(command.shown, snapshot) for command in changes_backend.commands(changes)]
        task = "".join(playbook_task.of_command(removal.name, words) for words in lines)
    except Invalid:
        return
    if all(lines):
        change = "; ".join(map(shlex.join, lines))
        group = removal.group or change
        yield Candidate(OPERATOR, change, task, changes, removal.takes_along, group, removal.opens_route)


def _with_backend(command: str, snapshot: Entry) -> list[str]:
    """Return the words of a command, whose program is that of the backend with its table; none if both backends of ebtables have
    it. If both of iptables have it, the names of chains tell.
    """
    program, *words = shlex.split(command)
    backends = _backends(program, words, snapshot)
    if len(backends) > 1:
        is_legacy = any(word.endswith(legacy_half.SUFFIX) for word in words)
        names = legacy_half.names(each.save for each in values.saved_tables(snapshot))
        of_half = [f"{program}-{LEGACY if is_legacy else NFT}", *(names.get(word, word) for word in words)]
        return [] if program == "ebtables" else of_half
    return [f"{program}-{LEGACY}" if backends == {LEGACY} else program, *words]


def _backends(program: str, words: t.Sequence[str], snapshot: Entry) -> set[str]:
    """Return the backends that have the table of a command of iptables, ip6tables or ebtables; a twin has both in nf_tables."""
    table = words[words.index("-t") + 1] if "-t" in words else "filter"
    if program == "ebtables":
        return {chain.backend for chain in values.frame_chains(snapshot) if chain.table == table}
    family = {"iptables": "ip", "ip6tables": "ip6"}.get(program)
    return {each.backend for each in values.saved_tables(snapshot) if (each.family, each.table) == (family, table)}
