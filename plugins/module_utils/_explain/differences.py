# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between two values, as single changes, and the value between them, with some of the changes made."""

from __future__ import annotations

import difflib
import typing as t

from .._snapshot.values import Entry
from .node_objects import Kind

Applied = t.AbstractSet["Change"]
Value = t.Any
SIMILAR = 0.6  # of the words of two rules in one place, from which one is the other after a change


class Change(t.NamedTuple):
    """A difference between two snapshots. text: a clause. undo: commands of a shell that make it undone; empty for none.

    source: of a rule of nft, its place, and its JSON before and after, by which its text is found. program: what made it; empty
    if that is not known.
    """

    kind: str
    text: str
    undo: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    program: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.text} (by {self.program})" if self.program else self.text

    def plain(self) -> dict[str, str]:
        return {"kind": self.kind, "text": self.text, "undo": " && ".join(self.undo), "program": self.program}


class Row(t.NamedTuple):
    """An object in both snapshots, or in one of them. change: None if it is the same. part: makes an object with some changes.

    further: changes besides, each of which alone would remove it, and without any of which it would not be new. ending: those
    that would remove an object that has another value afterwards, without the change by which it has that.
    """

    before: Value
    after: Value
    change: Change | None = None
    part: Part | None = None
    further: tuple[Change, ...] = ()
    ending: tuple[Change, ...] = ()

    @property
    def causes(self) -> tuple[Change, ...]:
        return (self.change, *self.further) if self.change else ()

    def between(self, applied: Applied) -> Value:
        if self.part:
            return self.part.between(applied)
        are_applied = [change in applied for change in self.causes]
        is_changed = any(are_applied) if self.before is not None else bool(are_applied) and all(are_applied)
        return self.after if is_changed else None if not applied.isdisjoint(self.ending) else self.before


class Part(t.NamedTuple):
    """A part of both snapshots. build: makes it with some of its changes."""

    before: Value
    after: Value
    changes: frozenset[Change]
    build: t.Callable[[Applied], Value]

    def between(self, applied: Applied) -> Value:
        """Return the part with some changes. Without one it is that before, so that what follows from it is known already."""
        of_part = self.changes & applied
        return self.before if not of_part else self.build(of_part)


def same(value: Value) -> Part:
    return Part(value, value, frozenset(), lambda _applied: value)


def of_rows(before: Value, after: Value, rows: t.Sequence[Row], join: t.Callable[[list[Value]], Value] = list) -> Part:
    """Return the part that consists of objects; None is one that is not there."""
    changes = {each for row in rows for each in (*row.causes, *row.ending, *(row.part.changes if row.part else ()))}

    def build(applied: Applied) -> Value:
        return join([value for value in (row.between(applied) for row in rows) if value is not None])

    return Part(before, after, frozenset(changes), build)


def of_dictionary(before: Entry, after: Entry, parts: t.Mapping[str, Part]) -> Part:
    """Return the part that has other parts by keys. Keys without a part are as before."""
    changes = {each for part in parts.values() for each in part.changes}

    def build(applied: Applied) -> Value:
        return {**before, **{key: part.between(applied) for key, part in parts.items()}}

    return Part(before, after, frozenset(changes), build)


Explains = t.Callable[[Value], t.Sequence[Change]]  # returns the changes from which it follows that an object is gone or new


def matched(before: t.Sequence[Value], after: t.Sequence[Value], kind: Kind, explains: Explains | None = None) -> list[Row]:
    """Match objects whose order does not matter by their keys. Those of the later snapshot alone are last."""
    olds, news = _numbered(before, kind), _numbered(after, kind)
    rows = []
    for key, old in olds.items():
        new = news.get(key)
        if new is None:
            rows.append(_caused(Row(old, None, removal(kind, old)), explains(old) if explains else ()))
        elif kind.value(old) != kind.value(new):
            rows.append(Row(old, new, alteration(kind, old, new)))
        else:
            rows.append(Row(old, new))
    added = (new for key, new in news.items() if key not in olds)
    return [*rows, *(_caused(Row(None, new, addition(kind, new)), explains(new) if explains else ()) for new in added)]


def _caused(row: Row, causes: t.Sequence[Change]) -> Row:
    """Return a row with the changes from which its own follows, if there are any, in the place of its own."""
    return row._replace(change=causes[0], further=tuple(causes[1:])) if causes else row


def _numbered(listed: t.Sequence[Value], kind: Kind) -> dict[t.Hashable, Value]:
    """Return objects by their keys, with a number for each further one that has the same."""
    counts: dict[t.Hashable, int] = {}
    result: dict[t.Hashable, Value] = {}
    for entry in listed:
        key = kind.key(entry)
        counts[key] = counts.get(key, -1) + 1
        result[key, counts[key]] = entry
    return result


def aligned(before: t.Sequence[Value], after: t.Sequence[Value], kind: Kind) -> list[Row]:
    """Match objects whose order matters."""
    olds, news = [*map(kind.key, before)], [*map(kind.key, after)]
    rows: list[Row] = []
    for tag, first, last, start, end in difflib.SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += (Row(old, old) for old in before[first:last])
            continue
        is_pair = last - first == end - start
        for old, new in zip(before[first:last], after[start:end]) if is_pair else ():
            rows += [Row(old, new, alteration(kind, old, new))] if _are_similar(kind, old, new) else _replaced(kind, old, new)
        if not is_pair:
            rows += [Row(old, None, removal(kind, old)) for old in before[first:last]]
            rows += [Row(None, new, addition(kind, new)) for new in after[start:end]]
    return rows


def commands(*texts: str) -> tuple[str, ...]:
    """Return commands that are run one after the other; none if one of them is empty."""
    return texts if all(texts) else ()


def _are_similar(kind: Kind, old: Value, new: Value) -> bool:
    return difflib.SequenceMatcher(None, kind.text(old).split(), kind.text(new).split()).ratio() >= SIMILAR


def _replaced(kind: Kind, old: Value, new: Value) -> list[Row]:
    return [Row(old, None, removal(kind, old)), Row(None, new, addition(kind, new))]


def removal(kind: Kind, old: Value) -> Change:
    return Change(kind.name, f"{kind.words(old)} is gone", commands(kind.add(old)))


def addition(kind: Kind, new: Value) -> Change:
    return Change(kind.name, f"{kind.words(new)} is new", commands(kind.remove(new)))


def alteration(kind: Kind, old: Value, new: Value) -> Change:
    undo = commands(kind.replace(old)) if kind.replace else commands(kind.remove(new), kind.add(old))
    return Change(kind.name, f"{kind.words(new)} is in the place of {kind.text(old)}", undo)


def changed_keys(before: Entry, after: Entry) -> list[str]:
    return [key for key in before if key in after and None not in (before[key], after[key]) and before[key] != after[key]]


def numbers(before: Entry, after: Entry, changes: t.Mapping[str, Change]) -> Part:
    return of_dictionary(before, after, {key: single(before[key], after[key], change) for key, change in changes.items()})


def single(before: Value, after: Value, change: Change) -> Part:
    return Part(before, after, frozenset([change]), lambda _applied: after)
