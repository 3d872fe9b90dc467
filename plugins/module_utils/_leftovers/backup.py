# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A backup file: the node that it belongs to, and the objects that each run removed, as JSON."""

from __future__ import annotations

import json
import re
import typing as t

from .._core import fields
from .._core.codec import exactly
from .._core.errors import Invalid

MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class Node(t.NamedTuple):
    """The node that a backup belongs to. machine: its machine-id. macs: those of its network interfaces."""

    machine: str = ""
    macs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"machine-id {self.machine or 'none'}, MACs {', '.join(self.macs) or 'none'}"

    def is_same(self, other: Node) -> bool:
        """Return whether the two are the same node, which may have gained and lost network interfaces meanwhile."""
        return self.machine == other.machine and bool(set(self.macs) & set(other.macs))


Runs = tuple[t.Any, ...]  # of Run, or of another kind of backup's Run


class Backup(t.NamedTuple):
    """runs: oldest first."""

    node: Node
    runs: Runs


class Codec(t.Protocol):
    """A kind of backup: this file is one. SIGNATURE: how its text begins."""

    @property
    def SIGNATURE(self) -> str:
        """A constant of the file."""

    def to_text(self, kept: Backup) -> str:
        """Return the text of a backup file."""

    def from_text(self, text: str) -> Backup:
        """Raise Damaged."""


class Damaged(ValueError):
    """The text is not a valid backup; ``str()`` says why."""


def written(made_by: str, version: int, kept: Backup, packed: t.Callable[[t.Any], dict[str, t.Any]]) -> str:
    """Return the text of a kind of backup. packed: a run as plain data."""
    runs = [packed(run) for run in kept.runs]
    return json.dumps({"made_by": made_by, "version": version, "node": kept.node._asdict(), "runs": runs}, indent=1) + "\n"


def parsed(text: str, version: int, unpacked: t.Callable[[t.Any], t.Any]) -> Backup:
    """Parse the text of a kind of backup. unpacked: makes a run of plain data, or raises. Raises Damaged."""
    try:
        content = exactly(dict, json.loads(text))
        if content["version"] != version:
            raise Damaged(f"its version is {content['version']!r}, and only version {version} is supported")
        keys(content, "made_by", "version", "node", "runs")
        return Backup(_node(content["node"]), tuple(map(unpacked, exactly(list, content["runs"]))))
    except Damaged:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError, Invalid) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def _node(entry: dict[str, t.Any]) -> Node:
    keys(entry, *Node._fields)
    return Node(exactly(str, entry["machine"]), tuple(mac(address) for address in exactly(list, entry["macs"])))


def keys(entry: object, *names: str) -> None:
    """Raise Damaged if a dictionary has other keys than these."""
    if set(exactly(dict, entry)) != set(names):
        raise Damaged(f"the keys {', '.join(names)} are expected, and {', '.join(map(str, entry))} were found")  # type: ignore[call-overload]


def number(value: object, maximum: int, minimum: int = 0) -> int:
    """Parse a number. Raises Unfit, or Unreadable."""
    return fields.number(exactly(int, value), minimum, maximum)


def mac(value: object) -> str:
    """Parse a MAC. Raises Damaged."""
    if not MAC.fullmatch(exactly(str, value)):
        raise Damaged(f"{value!r} is not a MAC")
    return str(value)
