# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of outputs: of files that set something at the next boot, and with states of a node.

A file's name is ``cat PATH``. Its lines look like the output of sysctl, and say nothing about the current settings.

A state is in names such as ``iptables-save-before.txt`` and ``iptables-save-after.txt``. Outputs of two states are not one node.
An output that was pasted twice is, even if its counters moved in between.
"""

from __future__ import annotations

import itertools
import re
import typing as t

from .._core.errors import Invalid
from .._snapshot import settings
from .._snapshot.snapshot import Unread
from . import commands
from .commands import UNKNOWN, Part

SUBSET, COMMAND = "boot", "cat "


def boot_path(name: str) -> str:
    """Return the path of the file that an output is; empty for another output. name: of the output."""
    words = name.strip()
    place = words[len(COMMAND) :].strip()
    return place if words.startswith(COMMAND) and settings.boot_part(place) else ""


def boot_files(dump: t.Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the files by their paths on the node. dump: texts by the names of the outputs."""
    return {place: text for name, text in dump.items() if (place := boot_path(name))}


def boot_subset(texts: settings.Files, folders: t.Collection[str]) -> dict[str, t.Any] | None:
    """Return the subset of the snapshot; None without any file. A part of which there is no file is None, unless all of its
    folders are shown.

    folders: that are shown as a whole.
    """
    shown = {part for part, of_part in settings.BOOT_FOLDERS.items() if {*of_part} <= {*folders}}
    parts = {settings.boot_part(place) for place in texts} | shown
    return {name: value if name in parts else None for name, value in settings.boot(texts, texts).items()} if parts else None


def unread_of_boot(texts: settings.Files, folders: t.Collection[str]) -> list[dict[str, t.Any]]:
    """Return what the subset lacks, if there is a file at all: folders without a file, and files that are not whole.

    folders: that are shown as a whole.
    """
    filled = {*(place.rpartition("/")[0] for place in texts), *folders}
    empty = ", ".join(folder for folders in settings.BOOT_FOLDERS.values() for folder in folders if folder not in filled)
    lacking = (
        [Unread(SUBSET, empty, "The evidence has no file of these folders. The node may have some.")] if texts and empty else []
    )
    cut = [place for place, text in texts.items() if not Part(UNKNOWN, tuple(text.splitlines())).has_all_lines]
    lacking += [Unread(SUBSET, place, "The evidence does not have the whole file.") for place in cut]
    return [entry._asdict() for entry in lacking]


SHOWN = 5  # names of one state in an error
_EXTENSION = re.compile(r"\.(?:txt|log|out|json)$")
_WORD = re.compile(
    r"(?:^|[-_. ])(before|after|old|new|good|bad|broken|fixed|working|failing|(?:node|host|worker)[-_]?\d+)(?=$|[-_. ])",
    re.IGNORECASE,
)
_FAMILY = re.compile(r"ip[-_. ].*[-_.][46]$")  # the number at the end of the name is that of the IP version
_PASSING = (commands.NEIGHBOUR, commands.ROUTE_GET)  # outputs that differ also where the node's state is the same
_TIME = re.compile(r"[-_. ](\d{4}-?\d\d-?\d\d(?:[-_T ]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?)?Z?|\d{10})(?=$|[-_. ])")
_NUMBER = re.compile(r"(?<!table)(?<!-t)[-_.](\d{1,2})$")  # not of a routing table
_NAMESPACE = re.compile(r"ip netns exec \S+ ")  # whose name may have numbers
_COUNTERS = re.compile(
    r"\[\d+:\d+\]|\bpackets \d+ bytes \d+|\b\d+[KMGTPE]? packets, \d+[KMGTPE]? bytes|\b(?:valid_lft|preferred_lft|expires) \S+"
)
_COLUMNS = re.compile(r"^\s*((?:\d+ +)?)\d+[KMGTPE]? +\d+[KMGTPE]? +(?=\S)")  # of iptables -v
Key = tuple[str, str, str, str, bool]  # kind, family, table, chain and backend of a command


class OutputName(t.NamedTuple):
    """The name of an output without its state, and the state; empty for none."""

    command: str
    state: str


def output_name(name: str) -> OutputName:
    """Divide a name into that of the command, and the words that say when the output was made."""
    space = _NAMESPACE.match(name)
    if space:
        command, state = output_name(name[space.end() :])
        return OutputName(space[0] + command, state)
    stem = _EXTENSION.sub("", name.strip())
    states = list[str]()
    for pattern in (_WORD, _TIME):
        states += pattern.findall(stem)
        stem = pattern.sub("", stem)
    number = None if _FAMILY.match(stem) else _NUMBER.search(stem)
    return OutputName(stem.strip("-_. "), " ".join(states).lower() or (number[1] if number else ""))


# Words for the earlier state and for the later one. Times and numbers are compared.
_EARLIER, _LATER = ("before", "old", "good", "working", "fixed"), ("after", "new", "bad", "broken", "failing")


def two_states(texts: t.Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]] | None:
    """Divide outputs by name into those of an earlier and of a later state; None if their names are not of two states.

    An output that has no state in its name is of both, if no other one is of the same command.
    """
    names = {name: output_name(name) for name in texts}
    states = sorted({each.state for each in names.values()} - {""}, key=lambda state: (state in _LATER, state))
    if len(states) == 1:
        states = [states[0], ""] if states[0] in _EARLIER else ["", states[0]]
    if len(states) != 2 or not any(names[name].state for name in names):
        return None
    common = {each.command: texts[name] for name, each in names.items() if not each.state}
    of = [{**common, **{each.command: texts[name] for name, each in names.items() if each.state == state}} for state in states]
    return of[0], of[1]


def check_states(parts: t.Mapping[str, t.Sequence[Part]]) -> None:
    """Raise Invalid if the parts, by the name of their output, are of more than one state of the node."""
    outputs: dict[str, dict[Key, dict[str, list[str]]]] = {}
    for name, of_name in parts.items():
        command, state = output_name(name)
        base = command if _FAMILY.match(command) else _NUMBER.sub("", command)
        for part in of_name:
            if part.kind and part.kind not in _PASSING and not part.is_pod and any(map(str.strip, part.lines)):
                of_key = outputs.setdefault(base, {}).setdefault(
                    (part.kind, part.family, part.table, part.chain, part.is_legacy), {}
                )
                of_key.setdefault(state, []).extend(without_counters(part))
    states = {state for keys in outputs.values() for of_key in keys.values() if _differ(of_key) for state in of_key}
    named = [{state for state in of_key if _WORD.fullmatch(state)} for keys in outputs.values() for of_key in keys.values()]
    mixed = set[str]().union(*named) if all(len(of_key) < 2 for of_key in named) else set[str]()  # of different commands
    if states or len(mixed) > 1:
        raise _two_states(sorted(states or mixed), parts)
    _check_within(parts)


def hosts(parts: t.Iterable[Part]) -> list[str]:
    """Return the nodes that prompts before outputs name."""
    return sorted({part.host for part in parts if part.kind and not part.is_pod} - {""})


def _check_within(parts: t.Mapping[str, t.Sequence[Part]]) -> None:
    """Raise Invalid if a text has the outputs of several nodes, by its prompts, or iptables-save twice with other rules."""
    nodes = hosts(part for of_name in parts.values() for part in of_name)
    if len(nodes) > 1:
        one = "outputs of one node. Choose it by the option node, or leave out those of the others"
        raise Invalid("dump", f"outputs of the nodes {', '.join(nodes[:SHOWN])}", one)
    for name, of_name in parts.items():
        saved = [
            part for part in of_name if part.is_save and part.is_whole and not part.is_pod and any(map(str.strip, part.lines))
        ]
        for family, is_legacy in itertools.product(("ipv4", "ipv6"), (False, True)):
            of_backend = [part for part in saved if (part.family, part.is_legacy) == (family, is_legacy)]
            texts = {tuple(without_counters(part)) for part in of_backend}
            if len(texts) > 1:
                value = f"{len(texts)} different outputs of iptables-save for {family} in {name}"
                raise Invalid(
                    "dump", value, "outputs of one state. Leave out those of the others, and trace the states one by one"
                )


def without_counters(part: Part) -> list[str]:
    """Return the lines of an output without the counters of rules, and without lifetimes."""
    lines = (_COUNTERS.sub("", line) for line in part.lines if line.strip() and not line.startswith("#"))
    return [(_COLUMNS.sub(r"\1", line) if part.kind == commands.IPTABLES_LIST else line).strip() for line in lines]


def _differ(outputs: t.Mapping[str, list[str]]) -> bool:
    return any(lines != next(iter(outputs.values())) for lines in outputs.values())


def _two_states(states: t.Sequence[str], names: t.Iterable[str]) -> Invalid:
    of_state = {state: [name for name in names if output_name(name).state == state] for state in states}
    listed = "; ".join(
        f"{state or 'no state in the name'}: {', '.join(of[:SHOWN])}{', ...' if len(of) > SHOWN else ''}"
        for state, of in of_state.items()
    )
    return Invalid(
        "dump",
        f"outputs of {len(states)} states of the node ({listed})",
        "outputs of one state. Put the files of each state into a folder of their own, or give a dictionary of the outputs of one"
        " state, and trace the states one by one, or let kubenode-datapath explain say what changed between two",
    )
