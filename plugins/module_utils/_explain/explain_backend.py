# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Tries the earlier of two snapshots of a node with some of the changes since, and finds those by which a packet is lost."""

from __future__ import annotations

import json
import re
import shlex
import typing as t

from .._commands import command
from .._core.errors import DatapathError, Invalid
from .._platform import process
from .._snapshot.snapshot import Origin
from .._snapshot.values import Entry
from .._trace import certainty, changes_backend, trace_backend
from .._trace.answer import Answer
from .._trace.packet import Packet
from .._twin import isolation_backend, snapshot_form
from .._twin.work_backend import GUARD
from . import explanation, node_objects, recorded
from .differences import Change
from .explanation import Changes, Explanation
from .node_differences import Difference

IS_THERE, LOST_BEFORE = "The packet arrives after the changes as before.", "The packet was lost before the changes, too: {reason}"
NOT_FOUND = "None of the changes that were read explains it."
_ENTERING = re.compile(r"(?:nsenter --target \d+ --net|ip netns exec [\w.@:+-]+) ")
OPEN = "What becomes of the packet is not known: {reason}"


def explain(before: Entry, after: Entry, packet: Packet, assume: t.Mapping[str, t.Any], run: process.Runner) -> Explanation:
    """Return the changes by which a packet is lost, or leaves elsewhere. Raises DatapathError."""
    try:
        snapshot_form.check(before)
    except Invalid as error:
        raise error.renamed(f"earlier{error.option.removeprefix('snapshot')}") from None
    questions = [trace_backend.Question(snapshot, packet, assume) for snapshot in (before, after)]
    earlier, later = [trace_backend.judge(question, run).with_likelihood().answer for question in questions]
    difference = Difference(before, after)
    explained = Explanation(packet, (), len(difference.changes), earlier, later)
    without, with_all = (trace_backend.in_one_world(question, run) for question in questions)
    reason = _needless(without, with_all)
    if reason:
        return explained._replace(reason=reason)
    found = _Search(questions[0], difference, without, with_all, run).guilty()
    if not found:
        return explained._replace(reason=NOT_FOUND)
    made_by = recorded.programs(after, Origin.of(before))
    complete = (change._replace(undo=difference.undo(change), program=made_by.of(change)) for change in sorted(found))
    guilty = tuple(_permitted(_with_text(change, before, after, run)) for change in complete)
    return explained._replace(guilty=guilty, is_undone=_is_undone(questions[1], guilty, run))


def _needless(before: Answer, after: Answer) -> str:
    """Return why no change is guilty of anything; empty if one may be."""
    for answer in (before, after):
        if answer.is_unknown:
            return OPEN.format(reason=answer.way.reason)
    if not _is_well(before):
        return LOST_BEFORE.format(reason=before.way.reason)
    return IS_THERE if certainty.fate(before) == certainty.fate(after) else ""


def _is_well(answer: Answer) -> bool:
    return all(way.is_well(way.reply is not None) for way in answer.every_way)


class _Search:
    """Trials of the earlier snapshot with changes. earlier, later: the answers without any of them, and of the later snapshot."""

    def __init__(
        self, question: trace_backend.Question, difference: Difference, earlier: Answer, later: Answer, run: process.Runner
    ) -> None:
        self._question, self._difference, self._run = question, difference, run
        self._is_loss = not _is_well(later)
        self._answers: dict[Changes, Answer | None] = {frozenset(): earlier}  # what was tried is remembered

    def guilty(self) -> Changes | None:
        return explanation.guilty(frozenset(self._difference.changes), self._fate, self._is_as_before)

    def _tried(self, changes: Changes) -> Answer | None:
        if changes not in self._answers:
            self._answers[changes] = self._try(changes)
        return self._answers[changes]

    def _try(self, changes: Changes) -> Answer | None:
        """Return the answer with some changes; None if no node can have them without others."""
        snapshot = self._difference.between(changes)
        try:
            return trace_backend.in_one_world(self._question._replace(snapshot=snapshot), self._run)
        except isolation_backend.Hang:  # which tells nothing of the changes
            raise
        except DatapathError:
            return None

    def _fate(self, changes: Changes) -> t.Hashable:
        """Return what becomes of the packet. If it is lost, only what stops it counts."""
        answer = self._tried(changes)
        if answer is None:
            return None
        fate = certainty.fate(answer)
        return fate if _is_well(answer) else fate[:3]

    def _is_as_before(self, changes: Changes) -> bool:
        answer = self._tried(changes)
        if self._is_loss and answer and _is_well(answer):  # whether a cloud may drop it is another question
            return True
        return self._fate(changes) == self._fate(frozenset())


def _with_text(change: Change, before: Entry, after: Entry, run: process.Runner) -> Change:
    """Return the change of a rule of nft's JSON in the words of nft, with the command that undoes it."""
    if not change.source:
        return change
    place, *rules = change.source
    texts = [_nft_text(rule, side, run) for rule, side in zip(rules, (before, after))]
    old, new = texts
    if not any(texts):
        return change
    verb = "is gone" if not new else "is new" if not old else f"is in the place of {old}"
    removed = node_objects.nft_rules(place).remove(json.loads(rules[1])) if new else ""
    added = f"nft {shlex.quote(f'add rule {place} {old}')}" if old else ""
    undo = tuple(filter(None, (removed, added)))
    return change._replace(text=f"rule of {place}: {new or old} {verb}", undo=undo)


def _nft_text(rule: str, snapshot: Entry, run: process.Runner) -> str:
    """Return a rule as nft prints it; empty for none, and if nft does not load it."""
    if not rule:
        return ""
    body = json.loads(rule)
    table = body["family"], body["table"]
    around = [entry for entry in snapshot["nftables"] if "rule" not in entry and _is_of_table(entry, table)]
    objects = json.dumps({"nftables": [*around, {"rule": body}]})

    def listed(_isolated: isolation_backend.Isolated) -> dict[str, t.Any]:
        nft = process.find("nft") or "nft"
        run([nft, "-j", "-f", "-"], objects)
        return {"text": run([nft, "-s", "list", "chain", *table, body["chain"]], None).stdout}

    try:
        lines = isolation_backend.run(listed, GUARD)["text"].splitlines()
    except DatapathError:
        return ""
    rules = [line.strip() for line in lines[2:-2] if not line.strip().startswith("type ")]
    return rules[0] if len(rules) == 1 else ""


def _is_of_table(entry: Entry, table: tuple[str, str]) -> bool:
    ((kind, body),) = entry.items()
    return (body.get("family"), body.get("name" if kind == "table" else "table")) == table


def _permitted(change: Change) -> Change:
    """Return the change without its commands if one has a word that is not permitted: an operator pastes them into a shell."""
    try:
        return change._replace(undo=tuple(_quoted(text) for text in change.undo))
    except Invalid:
        return change._replace(undo=())


def _quoted(text: str) -> str:
    """Return a command with quoted words. Raises Invalid for one that is not permitted."""
    entering = _ENTERING.match(text)
    prefix = entering[0] if entering else ""
    return prefix + command.read("undo", text[len(prefix) :]).shown


def _is_undone(question: trace_backend.Question, guilty: t.Sequence[Change], run: process.Runner) -> bool | None:
    """Return whether the packet arrives with the commands; None if they cannot be tried.

    A twin has no pods' namespaces, and its rules of nft have other handles.
    """
    texts = [text for change in guilty for text in change.undo]
    if not all(change.undo for change in guilty) or any(_ENTERING.match(text) or " handle " in text for text in texts):
        return None
    try:
        changes = changes_backend.read([], texts)
        return _is_well(trace_backend.in_one_world(question._replace(changes=changes, is_compared=False), run))
    except DatapathError:
        return None
