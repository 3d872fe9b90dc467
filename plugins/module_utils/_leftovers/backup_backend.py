# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of a backup: for each run, the operations that undo it, as JSON. Read is only what a run may have undone.

A class or a field that gets another name, or a default that changes, needs another VERSION and a reader for this one.
"""

from __future__ import annotations

import json
import re
import typing as t

from .._cni import cni
from .._core import codec, fields, names
from .._core.codec import exactly
from .._core.errors import Invalid
from .._ebtables import ebtables, ebtables_backend
from .._files.files import Content, Put
from .._netfilter import iptables, iptables_backend
from .._netfilter.chain import ListedRule, Place, RemovedRules
from .._netfilter.iptables import Rule, Table
from .._routing import neighbour as neighbours
from .._routing import route as routes
from .._routing.neighbour import Neighbour
from .._routing.route import Hop, Route
from .._routing.routing_backend import ADD, Apply, Change
from .._routing.rt_names import MAIN
from . import azure_leftovers, bridge
from .judge import MAC, shape_of
from .removed_link_backend import End, RestoreAddress, RestoreLink
from .state_file import STATE_FILES

MADE_BY = "kubenode.datapath.ebtables_cleanup"
VERSION = 3
FORMER_VERSIONS = {"": 2, "iptables": 1, "links": 1}  # of release 1.0.0, which had a file for each of these kinds of objects
# Each backup file begins with this text. A file that begins otherwise is foreign.
SIGNATURE = f'{{\n "made_by": "{MADE_BY}'

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
HIGHEST_ID = 2**32 - 2  # include/linux/uidgid.h: the highest number means no change
SMALLEST_MTU, LARGEST_MTU = 68, 65535  # RFC 791; the kernel's limit for a veth and a bridge (ETH_MAX_MTU)
LARGEST_INDEX = 2**31 - 1
LINKS = ((azure_leftovers.NAT_BRIDGE,), azure_leftovers.NAT_LINKS, azure_leftovers.NAT_LINKS[::-1])


T = t.TypeVar("T")


class Node(t.NamedTuple):
    """The node that a backup belongs to. machine: its machine-id. macs: those of its network interfaces."""

    machine: str = ""
    macs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"machine-id {self.machine or 'none'}, MACs {', '.join(self.macs) or 'none'}"

    def is_same(self, other: Node) -> bool:
        """Return whether the two are the same node, which may have gained and lost network interfaces meanwhile."""
        return self.machine == other.machine and bool(set(self.macs) & set(other.macs))


class Run(t.NamedTuple):
    """A run that removed objects. undo: the operations that restore them, in order. boot: the identity of the run's boot."""

    undo: tuple[t.Any, ...]
    boot: str

    @property
    def removed_rules(self) -> tuple[RemovedRules, ...]:
        """Return the rules of ebtables that the run removed."""
        return tuple(removed for undo in self.of(ebtables_backend.RestoreRules) for removed in undo.removed)

    @property
    def files(self) -> tuple[tuple[str, Content], ...]:
        """Return the path and the content of each file that the run removed."""
        return tuple((put.path, put.desired) for put in self.of(Put) if isinstance(put.desired, Content))

    @property
    def changes(self) -> tuple[tuple[int, Change], ...]:
        """Return the additions of neighbours and routes that undo the run, each with its protocol."""
        return tuple((undo.protocol, change) for undo in self.of(Apply) for change in undo.changes)

    def of(self, kind: type[T]) -> tuple[T, ...]:
        """Return the operations of a class."""
        return tuple(undo for undo in self.undo if isinstance(undo, kind))


class Backup(t.NamedTuple):
    """runs: oldest first."""

    node: Node
    runs: tuple[Run, ...]


class Damaged(ValueError):
    """The text is not a valid backup; ``str()`` says why."""


def to_text(backup: Backup) -> str:
    """Write a backup as JSON whose first line tells a reader what the file is. from_text() reads it."""
    return f'{SIGNATURE}",\n "version": {VERSION},\n "backup": {codec.encode(backup, KNOWN)}\n}}\n'


def from_text(text: str) -> Backup:
    """Parse the text of a backup file, of release 1.0.0 as well, and accept only what a run may have undone. Raises Damaged."""
    try:
        content = exactly(dict, json.loads(text))
        version = content["version"]
        backup = codec.rebuild(content["backup"], KNOWN) if version == VERSION else _former(content, version)
        codec.require_types(exactly(Backup, backup))
        for mac in backup.node.macs:
            _check_mac(mac)
        for undo in (undo for run in backup.runs for undo in exactly(Run, run).undo):
            _CHECKS[type(undo)](undo)
        return t.cast(Backup, backup)
    except Damaged:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError, Invalid) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def _require(is_valid: bool, sentence: str) -> None:
    if not is_valid:
        raise Damaged(sentence)


def _check_mac(text: str) -> None:
    _require(bool(MAC.fullmatch(text)), f"{text!r} is not a MAC")


def _texts(removed: RemovedRules) -> list[str]:
    """Return the texts of the removed rules. Each goes into a script of one rule a line."""
    positions = range(len(removed.rules))
    _require(removed.gone <= {*positions}, "a chain names a removed rule at a position that it does not have")
    for counter in (counter for number in removed.gone for counter in removed.rules[number].counters):
        fields.number(counter, *fields.U64)
    for text in removed.texts:
        _require(text.isprintable(), f"{text!r} in {removed.place} is no rule of azure-vnet")
    return removed.texts


def _check_ebtables(undo: ebtables_backend.RestoreRules) -> None:
    for removed in undo.removed:
        place = removed.place
        is_known = undo.backend in ebtables.BACKENDS and place.table in ebtables.TABLES
        is_table = is_known and place.backend == undo.backend
        _require(is_table, f"{place} is not in a table of the ebtables backend {undo.backend!r}")
        for text in _texts(removed):
            _require(shape_of(place, ListedRule(text)) is not None, f"{text!r} in {place} is no rule of azure-vnet")


def _check_iptables(undo: iptables_backend.RestoreRules) -> None:
    table, removed_rules, chains = undo
    _require(iptables.table_at(str(table)) == table, f"{table} is not a table of iptables")
    for chain in chains:
        _require(bool(cni.AZURE_CHAIN.fullmatch(chain)), f"{chain!r} is not the name of a chain of azure-vnet")
    for removed in removed_rules:
        chain = removed.place.chain
        _require(removed.place == table.at(chain), f"{removed.place} is not a chain of table {table}")
        for text in _texts(removed):
            is_own = azure_leftovers.is_own(Rule(table, chain, text))
            _require(is_own, f"{text!r} in {table.place(chain)} is no rule of azure-vnet")


def _check_file(undo: Put) -> None:
    folder, name = undo.path.rsplit("/", 1)
    is_azures = undo.path in STATE_FILES or folder == cni.FOLDER and FILE_NAME.fullmatch(name)
    _require(bool(is_azures), f"{undo.path!r} is neither a state file of azure-vnet nor a file in {cni.FOLDER}")
    content = exactly(Content, undo.desired)
    fields.number(content.mode, 0, 0o7777)
    for number in content.owner:
        fields.number(number, 0, HIGHEST_ID)


def _check_changes(undo: Apply) -> None:
    fields.number(undo.protocol, *fields.U8)
    for change in undo.changes:
        _require(change == Change(ADD, change.item), "only an addition restores a neighbour or a route")
        (_check_neighbour if isinstance(change.item, Neighbour) else _check_route)(change.item)


def _check_neighbour(neighbour: Neighbour) -> None:
    fields.address(neighbour.address)
    names.interface("neighbors.link", neighbour.link)
    _check_mac(neighbour.mac)
    _require(neighbour.state in neighbours.STATES, f"{neighbour.state} is not the state of a neighbour")


def _check_route(route: object) -> None:
    """Accept only a route that its options describe in full."""
    checked = exactly(Route, route)
    is_parsed = routes.from_options("routes", checked.options(), {}) == checked
    is_to_pod = bool(checked.address) and checked.table == MAIN and len(checked.links) == 1
    _require(is_parsed and is_to_pod, f"{route} is not a route to one address by one link in the table main")


def _check_link(undo: RestoreLink) -> None:
    end_names = tuple(end.name for end in undo.ends)
    _require(end_names in LINKS, f"{', '.join(end_names)} is not a link of azure-vnet")
    for end in undo.ends:
        fields.number(end.number, 1, LARGEST_INDEX)
        fields.number(end.mtu, SMALLEST_MTU, LARGEST_MTU)
        _check_mac(end.mac)
    for name in (*undo.ports, *(end.master for end in undo.ends if end.master)):
        names.interface("links", name)
    for address, flags in undo.addresses:
        _check_interface_address(address, flags)
    for address, mac in undo.neighbours:
        fields.address(address)
        _check_mac(mac)
    for key, value in undo.settings:
        _require(key in bridge.settings_of(end_names[0]), f"{key!r} is not a setting of {end_names[0]} that is restored")
        fields.number(value, *fields.S32)


def _check_address(undo: RestoreAddress) -> None:
    names.interface("links", undo.link)
    _check_interface_address(undo.address, undo.flags)
    _require(azure_leftovers.may_be_gateway(undo.address), f"{undo.address} is not the gateway of an IPv6 subnet")


def _check_interface_address(text: str, flags: int) -> None:
    address, _slash, length = text.partition("/")
    fields.number(length, 0, fields.BITS[fields.address(address)[0]], is_decimal=True)
    fields.number(flags, *fields.U32)


_CHECKS: dict[type, t.Callable[[t.Any], None]] = {
    ebtables_backend.RestoreRules: _check_ebtables,
    iptables_backend.RestoreRules: _check_iptables,
    Put: _check_file,
    Apply: _check_changes,
    RestoreLink: _check_link,
    RestoreAddress: _check_address,
}
_VALUES = (Backup, Node, Run, RemovedRules, Place, ListedRule, Table, Content, Change, Neighbour, Route, Hop, End)
KNOWN = codec.vocabulary(*_VALUES, *_CHECKS)


# The former format


def _former(content: dict[str, t.Any], version: object) -> Backup:
    """Convert a backup that release 1.0.0 wrote."""
    kind = content["made_by"].partition(", ")[2]
    is_former = version == FORMER_VERSIONS.get(kind)
    _require(is_former, f"its version is {version!r}, and only version {VERSION} and those of release 1.0.0 are supported")
    runs = tuple(Run(tuple(_FORMER_KINDS[kind](run)), run["boot"]) for run in content["runs"])
    return Backup(Node(content["node"]["machine"], tuple(content["node"]["macs"])), runs)


def _former_frames(run: dict[str, t.Any]) -> t.Iterator[t.Any]:
    by_backend: dict[str, list[RemovedRules]] = {}
    for chain in run["chains"]:
        gone, place = chain["removed"], Place(chain["backend"], chain["table"], chain["chain"])
        rules = [ListedRule(text, tuple(gone.get(str(number), (0, 0)))) for number, text in enumerate(chain["rules"])]
        by_backend.setdefault(place.backend, []).append(RemovedRules(place, tuple(rules), frozenset(map(int, gone))))
    yield from (ebtables_backend.RestoreRules(backend, tuple(removed)) for backend, removed in by_backend.items())
    for file in run["files"]:
        yield Put(file["path"], Content(file["text"], file["mode"], tuple(file["owner"])))
    for entry in run["neighbors"]:
        if entry["mac"]:
            yield Apply(0, (Change(ADD, Neighbour(**entry)),))
    for entry in run["routes"]:
        route = routes.from_options("routes", {key: value for key, value in entry.items() if key != "protocol"}, {})
        yield Apply(entry["protocol"], (Change(ADD, route),))


def _former_iptables(run: dict[str, t.Any]) -> t.Iterator[t.Any]:
    for entry in run["tables"]:
        table = Table(entry["family"], entry["name"], entry["backend"])
        removed = (
            RemovedRules(table.at(chain["chain"]), tuple(map(ListedRule, chain["rules"])), frozenset(chain["removed"]))
            for chain in entry["rules"]
        )
        yield iptables_backend.RestoreRules(table, tuple(removed), tuple(entry["chains"]))


def _former_links(run: dict[str, t.Any]) -> t.Iterator[t.Any]:
    for link in run["links"]:
        pairs = {key: tuple(map(tuple, link[key])) for key in ("addresses", "neighbours", "settings")}
        yield RestoreLink(tuple(End(**end) for end in link["ends"]), tuple(link["ports"]), **pairs)
    yield from (RestoreAddress(**gateway) for gateway in run["gateways"])


_FORMER_KINDS = {"": _former_frames, "iptables": _former_iptables, "links": _former_links}
