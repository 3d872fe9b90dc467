# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The content of a backup file: the ebtables rules, neighbours, routes and files that each run removed from the node, as JSON."""

from __future__ import annotations

import re
import typing as t

from .._cni import cni
from .._core import fields, names
from .._core.codec import exactly
from .._ebtables.ebtables import BACKENDS, TABLES
from .._netfilter.chain import ListedRule, Place, RemovedRules
from .._routing import neighbour as neighbours
from .._routing import route as routes
from .._routing.neighbour import Neighbour
from .._routing.route import Route
from .._routing.rt_names import MAIN
from . import backup
from .backup import Backup, Damaged, keys, mac, number
from .judge import shape_of
from .state_file import STATE_FILES

VERSION = 2
MADE_BY = "kubenode.datapath.ebtables_cleanup"
# Each backup file begins with this text. A file that begins otherwise is foreign.
SIGNATURE = f'{{\n "made_by": "{MADE_BY}",\n'

FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
HIGHEST_ID = 2**32 - 2  # include/linux/uidgid.h: the highest number means no change
HIGHEST_COUNTER = 2**64 - 1


class File(t.NamedTuple):
    """A file that was moved into the backup."""

    path: str
    text: str
    mode: int
    owner: tuple[int, int]

    @property
    def outlives_boots(self) -> bool:
        return self.path not in STATE_FILES


class Run(t.NamedTuple):
    """The objects that one run removed. routes: each with its protocol. boot: the identity of the boot in which it ran."""

    removed: tuple[RemovedRules, ...] = ()
    files: tuple[File, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[tuple[Route, int], ...] = ()
    boot: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.removed or self.files or self.neighbours or self.routes)


def to_text(kept: Backup) -> str:
    """Return the text of a backup file."""
    return backup.written(MADE_BY, VERSION, kept, _packed)


def from_text(text: str) -> Backup:
    """Parse the text of a backup file, and accept only what a run may have removed. Raises Damaged."""
    return backup.parsed(text, VERSION, _unpacked)


def _packed(run: Run) -> dict[str, t.Any]:
    """Return a run as plain data.

    Each chain keeps all its rules; ``removed`` maps the positions of the removed ones to their counters.
    """
    return {
        "chains": [
            {
                **chain.place._asdict(),
                "rules": [rule.text for rule in chain.rules],
                "removed": {str(number): chain.rules[number].counters for number in sorted(chain.gone)},
            }
            for chain in run.removed
        ],
        "files": [file._asdict() for file in run.files],
        "neighbors": [neighbour._asdict() for neighbour in run.neighbours],
        "routes": [{**route.options(), "protocol": protocol} for route, protocol in run.routes],
        "boot": run.boot,
    }


def _unpacked(run: dict[str, t.Any]) -> Run:
    keys(run, "chains", "files", "neighbors", "routes", "boot")
    return Run(
        tuple(map(_removed, run["chains"])),
        tuple(map(_file, run["files"])),
        tuple(map(_neighbour, run["neighbors"])),
        tuple(map(_route, run["routes"])),
        exactly(str, run["boot"]),
    )


def _file(entry: dict[str, t.Any]) -> File:
    keys(entry, *File._fields)
    owner, group = exactly(list, entry["owner"])
    folder, name = exactly(str, entry["path"]).rsplit("/", 1)
    if entry["path"] not in STATE_FILES and not (folder == cni.FOLDER and FILE_NAME.fullmatch(name)):
        raise Damaged(f"{entry['path']!r} is neither a state file of azure-vnet nor a file in {cni.FOLDER}")
    owners = number(owner, HIGHEST_ID), number(group, HIGHEST_ID)
    return File(entry["path"], exactly(str, entry["text"]), number(entry["mode"], 0o7777), owners)


def _neighbour(entry: dict[str, t.Any]) -> Neighbour:
    keys(entry, *Neighbour._fields)
    fields.address(exactly(str, entry["address"]))
    names.interface("neighbors.link", exactly(str, entry["link"]))
    if exactly(int, entry["state"]) not in neighbours.STATES:
        raise Damaged(f"{entry['state']} is not the state of a neighbour")
    return Neighbour(entry["address"], entry["link"], entry["mac"] and mac(entry["mac"]), entry["state"])


def _removed(chain: dict[str, t.Any]) -> RemovedRules:
    keys(chain, *Place._fields, "rules", "removed")
    counters = {int(number): _counters(pair) for number, pair in chain["removed"].items()}
    texts = [exactly(str, text) for text in exactly(list, chain["rules"])]
    rules = tuple(ListedRule(text, counters.get(number, (0, 0))) for number, text in enumerate(texts))
    if not counters.keys() <= set(range(len(rules))):
        raise Damaged("a chain names a removed rule at a position that it does not have")
    if chain["backend"] not in BACKENDS or chain["table"] not in TABLES:
        raise Damaged(f"{chain['backend']!r} {chain['table']!r} is not a table of an ebtables backend")
    removed = RemovedRules(Place(chain["backend"], chain["table"], exactly(str, chain["chain"])), rules, frozenset(counters))
    for position in removed.gone:  # the text goes into a script of one rule a line
        if not rules[position].text.isprintable() or shape_of(removed.place, rules[position]) is None:
            raise Damaged(f"{rules[position].text!r} in {removed.place} is no rule of azure-vnet")
    return removed


def _counters(pair: object) -> tuple[int, int]:
    packets, octets = exactly(list, pair)
    return number(packets, HIGHEST_COUNTER), number(octets, HIGHEST_COUNTER)


def _route(options: dict[str, t.Any]) -> tuple[Route, int]:
    selectors = {key: value for key, value in options.items() if key != "protocol"}
    route = routes.from_options("routes", selectors, {})
    if not route.address or route.table != MAIN or len(route.links) != 1:
        raise Damaged(f"{route} is not a route to one address by one link in the table main")
    return route, number(options["protocol"], 255)
