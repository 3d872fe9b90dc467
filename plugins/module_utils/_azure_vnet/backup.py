# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The content of a backup file: what each run removed from the node, as JSON."""

from __future__ import annotations

import json
import typing as t

from .._core import fields
from .._core.codec import exactly
from .._core.errors import Invalid
from .._routing import route as routes
from .._routing.neighbour import Neighbour
from .._routing.route import Route
from .ebtables import BACKENDS, TABLES, Place, Removed, Rule

# Each backup file begins with this text. A file that begins otherwise is foreign.
SIGNATURE = '{\n "made_by": "kubenode.datapath.ebtables_cleanup",\n'


class File(t.NamedTuple):
    """A file that was moved into the backup."""

    path: str
    text: str
    mode: int
    owner: tuple[int, int]


class Run(t.NamedTuple):
    """What one run removed. routes: each with its protocol."""

    removed: tuple[Removed, ...] = ()
    files: tuple[File, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    routes: tuple[tuple[Route, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not any(self)


Runs = tuple[Run, ...]


class Damaged(ValueError):
    """The text is not a valid backup; ``str()`` says why."""


def to_text(runs: Runs) -> str:
    """The text of a backup file. runs: oldest first."""
    content = {"made_by": "kubenode.datapath.ebtables_cleanup", "version": 1, "runs": [_packed(run) for run in runs]}
    return json.dumps(content, indent=1) + "\n"


def from_text(text: str) -> Runs:
    """Parses the text of a backup file. Raises Damaged."""
    try:
        found = json.loads(text)
        if found["version"] != 1:
            raise Damaged(f"its version is {found['version']!r}, and only version 1 is supported")
        return tuple(_unpacked(run) for run in found["runs"])
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError, Invalid) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def _packed(run: Run) -> dict[str, t.Any]:
    """Each chain keeps all its rules; ``removed`` maps the positions of the removed ones to their counters."""
    return {
        "chains": [
            {
                **one.place._asdict(),
                "rules": [rule.text for rule in one.rules],
                "removed": {str(number): one.rules[number].counters for number in sorted(one.gone)},
            }
            for one in run.removed
        ],
        "files": [one._asdict() for one in run.files],
        "neighbors": [one._asdict() for one in run.neighbours],
        "routes": [{**route.options(), "protocol": protocol} for route, protocol in run.routes],
    }


def _unpacked(run: dict[str, t.Any]) -> Run:
    return Run(
        tuple(map(_removed, run["chains"])),
        tuple(map(_file, run["files"])),
        tuple(map(_neighbour, run["neighbors"])),
        tuple(map(_route, run["routes"])),
    )


def _file(one: dict[str, t.Any]) -> File:
    owner, group = one["owner"]
    if not exactly(str, one["path"]).startswith("/"):
        raise Damaged(f"{one['path']!r} is not an absolute path")
    return File(one["path"], exactly(str, one["text"]), exactly(int, one["mode"]), (exactly(int, owner), exactly(int, group)))


def _neighbour(one: dict[str, t.Any]) -> Neighbour:
    found = Neighbour(**one)
    fields.address(found.address)
    return Neighbour(exactly(str, found.address), exactly(str, found.link), exactly(str, found.mac), exactly(int, found.state))


def _removed(chain: dict[str, t.Any]) -> Removed:
    counters = {int(number): (int(pair[0]), int(pair[1])) for number, pair in chain["removed"].items()}
    texts = [exactly(str, text) for text in exactly(list, chain["rules"])]
    rules = tuple(Rule(text, counters.get(number, (0, 0))) for number, text in enumerate(texts))
    if not counters.keys() <= set(range(len(rules))):
        raise Damaged("a chain names a removed rule at a position that it does not have")
    if chain["backend"] not in BACKENDS or chain["table"] not in TABLES:
        raise Damaged(f"{chain['backend']!r} {chain['table']!r} is not a table of an ebtables backend")
    return Removed(Place(chain["backend"], chain["table"], exactly(str, chain["chain"])), rules, frozenset(counters))


def _route(options: dict[str, t.Any]) -> tuple[Route, int]:
    given = {key: value for key, value in options.items() if key != "protocol"}
    return routes.from_options("routes", given, {}), int(options["protocol"])
