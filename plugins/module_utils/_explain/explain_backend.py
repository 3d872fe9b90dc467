# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tries the earlier of two snapshots of a node with some of the changes since, and finds those by which a packet is lost."""

from __future__ import annotations

import json
import re
import shlex
import typing as t

from .._commands import command
from .._core import fields
from .._core.errors import DatapathError, Invalid
from .._platform import process
from .._snapshot import values
from .._snapshot.snapshot import Origin
from .._snapshot.values import Entry
from .._trace import certainty, changes_backend, culprit, trace_backend
from .._trace.answer import DELIVERED, FORWARDED, Answer, Way
from .._trace.packet import TCP, Packet
from .._trace.topology import OUTSIDE_KINDS
from .._twin import isolation_backend, snapshot_form
from .._twin.work_backend import GUARD
from . import explanation, node_objects, recorded
from .differences import Change
from .explanation import Changes, Explanation
from .node_differences import Difference

IS_THERE, LOST_BEFORE = "The packet arrives after the changes as before.", "The packet was lost before the changes, too: {reason}"
LOST = 2  # the most harm, to which a packet that leaves instead of being delivered belongs
NOT_FOUND = "None of the changes that were read explains it."
_ENTERING = re.compile(r"(?:nsenter --target \d+ --net|ip netns exec [\w.@:+-]+) ")
REFUSED, BARE = "refused at {}, where no program listens,", "lost beyond {}, which is not in the network of its gateway,"
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
    without, with_all = (_Trial.of(question, run) for question in questions)
    reason = _needless(without, with_all)
    if reason:
        return explained._replace(reason=reason)
    explained = explained._replace(beyond=with_all.beyond(without))
    found = _Search(questions[0], difference, without, with_all, run).guilty()
    if not found:
        return explained._replace(reason=NOT_FOUND)
    made_by = recorded.programs(after, Origin.of(before))
    complete = (change._replace(undo=difference.undo(change), program=made_by.of(change)) for change in sorted(found))
    guilty = tuple(_permitted(_with_text(change, before, after, run)) for change in complete)
    # Of what is lost beyond the node, a twin cannot tell whether it is mended.
    is_undone = None if explained.beyond else _is_undone(questions[1], guilty, run)
    return explained._replace(guilty=guilty, is_undone=is_undone)


class _Trial(t.NamedTuple):
    """The answer for a node, in one world. refused: the addresses and ports at which the packet arrives and no program listens.

    bare: the links by which the packet leaves to a gateway that is in no network of theirs, or by which it came in and its reply
    leaves so. The kernel took the route while the link had an address there, to which the gateway sends what comes in. links: of
    the node, by name.
    """

    answer: Answer
    refused: frozenset[str]
    bare: frozenset[str]
    links: t.Mapping[str, values.Link]

    @classmethod
    def of(cls, question: trace_backend.Question, run: process.Runner) -> _Trial:
        """Raises DatapathError."""
        answer = trace_backend.in_one_world(question, run)
        left = answer.left if question.packet.protocol == TCP else ()
        refused, bare = frozenset(_refusals(left, question.snapshot)), frozenset(_bare(answer, question.snapshot))
        return cls(answer, refused, bare, {each.name: each for each in values.links(question.snapshot)})

    def is_well(self) -> bool:
        return _is_well(self.answer)

    def harm(self, earlier: _Trial) -> int:
        """Return 0 if the packet arrives as it did before, 1 if it or its reply leaves by another link, and LOST.

        A packet that leaves by a link to which its source does not belong counts as lost, as most providers drop it (BCP 38), and
        so does one of a pod that leaves beside the tunnel by which it left: the network around it does not know the pods.
        """
        is_misplaced = bool(self.answer.caveats) and not earlier.answer.caveats
        is_out_of_tunnel = earlier._tunnels() - self._tunnels() and self._untunnelled() - earlier._untunnelled()
        if not self.is_well() or self.beyond(earlier) or is_misplaced or is_out_of_tunnel:
            return LOST
        sides = (self, self.answer.every_way), (earlier, earlier.answer.every_way)
        return max(
            min(_astray(one, a, other, b) for b in right) for (one, left), (other, right) in (sides, sides[::-1]) for a in left
        )

    def _tunnels(self) -> set[str]:
        """Return the links of tunnels by which the packet or its reply leaves."""
        return {direction.interface for direction in self._left()} - self._outside()

    def _untunnelled(self) -> set[str]:
        """Return the other links, by which the packet or its reply leaves from an address that is not the node's."""
        hosts = {address.host for link in self.links.values() for address in link.address_info}
        frames = ((direction.interface, direction.met.frame) for direction in self._left())
        return self._outside() & {link for link, frame in frames if frame and fields.show(frame.packet.source) not in hosts}

    def _left(self) -> list[Way]:
        """Return the ways by which the packet and its replies leave the node, by whichever link."""
        return [direction for each in self.answer.every_way for direction in each.both if direction.verdict == FORWARDED]

    def _outside(self) -> set[str]:
        """Return the links that are no tunnels."""
        return {name for name, link in self.links.items() if link.kind in OUTSIDE_KINDS}

    def pod(self, link: str) -> str | None:
        """Return the network namespace behind a link, which is empty for the node's own; None if it is not known."""
        peer = self.links.get(link, values.Link()).peer
        return peer.namespace if peer.name else None

    def beyond(self, earlier: _Trial) -> str:
        """Return what becomes of the packet since, where the node itself does not stop it; empty if nothing that it was not."""
        refused, bare = sorted(self.refused - earlier.refused), sorted(self.bare - earlier.bare)
        if refused:
            return REFUSED.format(" and ".join(refused))
        return BARE.format(" and ".join(bare)) if bare else ""

    def fate(self) -> t.Hashable:
        """Return what becomes of the packet. If it is lost, only what stops it counts: not at which port of a bridge, to all of
        which a frame is sent.
        """
        verdict, reply, decider, *departure = certainty.fate(self.answer)
        if self.is_well():
            return verdict, reply, decider, *departure, self.refused, self.bare
        if isinstance(decider, culprit.Link) and not decider.trouble:
            decider = decider._replace(name="")
        if isinstance(decider, culprit.Address) and decider.trouble == culprit.LACKING:
            decider = decider._replace(owner="")
        return verdict, reply, decider


def _astray(node: _Trial, way: Way, other_node: _Trial, other_way: Way) -> int:
    """Return 0 if a packet and its reply leave the node by the same links, 1 if by others, and LOST if they leave and did not, or
    come to another pod.

    A link to a pod is one that leads out of the node as soon as a default route of any table leads there.
    """
    pairs = [(a, b) for a, b in zip(way.both, other_way.both) if a.interface != b.interface]
    leaving = [(a.verdict == FORWARDED) + (b.verdict == FORWARDED) for a, b in pairs]
    pods = [
        {node.pod(a.interface), other_node.pod(b.interface)} - {None} for a, b in pairs if a.verdict == b.verdict == DELIVERED
    ]
    return LOST if 1 in leaving or any(len(behind) > 1 for behind in pods) else int(2 in leaving)


def _refusals(ends: t.Iterable[tuple[str, str, int]], snapshot: Entry) -> t.Iterator[str]:
    """Yield those of the destinations that are addresses of the node or of a pod whose listening sockets are all others."""
    node = {"addresses": [address for link in values.links(snapshot) for address in link.addresses], **snapshot}
    owners = [node, *values.entries(snapshot, "pods")]
    for _source, destination, port in ends:
        sockets = [owner.get("listeners") for owner in owners if destination in (owner.get("addresses") or ())]
        any_address = ("::", "0.0.0.0") if "." in destination else ("::",)
        heard = [
            any(each.get("port") == port and each.get("address") in (destination, *any_address) for each in listed)
            for listed in sockets
            if listed is not None
        ]
        if heard and not any(heard) and len(heard) == len(sockets):
            yield fields.endpoint(destination, port)


def _bare(answer: Answer, snapshot: Entry) -> t.Iterator[str]:
    """Yield the links of a Trial. snapshot: says which gateways are meant to be on a link, as a twin has all of them there."""
    routes, links = values.routes(snapshot), {each.name: each for each in values.links(snapshot)}
    hops = [hop for each in _forwarded(answer) if each.met.route for hop in each.met.route.hops if hop.via]
    for link, gateway in {(hop.dev, fields.show(hop.via)) for hop in hops if not fields.is_link_local(hop.via)}:
        of_link = [each for each in routes if each.dev == link]
        networks = [values.network(each.to) for each in of_link if not each.via]  # and of addresses, whose route may be gone
        networks += [values.network(each.address) for each in links.get(link, values.Link()).address_info]
        is_meant = any(each.is_onlink and each.via == gateway for each in of_link)
        if not is_meant and not any(values.holds(network, gateway) for network in networks):
            yield link


def _forwarded(answer: Answer) -> list[Way]:
    """Return the ways by which the packet leaves the node, and those of its replies by the link by which it came in."""
    directions = (direction for each in answer.every_way for direction in (each, _back(each)))
    return [direction for direction in directions if direction and direction.verdict == FORWARDED]


def _back(way: Way) -> Way | None:
    """Return the way of the reply that leaves by the link by which the packet came in; None without one."""
    return way.reply if way.reply and way.reply.interface == way.came_in_by else None


def _needless(before: _Trial, after: _Trial) -> str:
    """Return why no change is guilty of anything; empty if one may be."""
    for trial in (before, after):
        if trial.answer.is_unknown:
            return OPEN.format(reason=trial.answer.way.reason)
    if not before.is_well():
        return LOST_BEFORE.format(reason=before.answer.way.reason)
    return IS_THERE if before.fate() == after.fate() else ""


def _is_well(answer: Answer) -> bool:
    return all(way.is_well(way.reply is not None) for way in answer.every_way)


class _Search:
    """Trials of the earlier snapshot with changes. earlier, later: those without any of them, and of the later snapshot."""

    def __init__(
        self, question: trace_backend.Question, difference: Difference, earlier: _Trial, later: _Trial, run: process.Runner
    ) -> None:
        self._question, self._difference, self._run = question, difference, run
        self._is_loss = later.harm(earlier) == LOST
        self._trials: dict[Changes, _Trial | None] = {frozenset(): earlier}  # what was tried is remembered

    def guilty(self) -> Changes | None:
        return explanation.guilty(frozenset(self._difference.changes), self._fate, self._harm)

    def _tried(self, changes: Changes) -> _Trial | None:
        if changes not in self._trials:
            self._trials[changes] = self._try(changes)
        return self._trials[changes]

    def _try(self, changes: Changes) -> _Trial | None:
        """Return the trial with some changes; None if no node can have them without others."""
        snapshot = self._difference.between(changes)
        try:
            return _Trial.of(self._question._replace(snapshot=snapshot), self._run)
        except isolation_backend.Hang:  # which tells nothing of the changes
            raise
        except DatapathError:
            return None

    def _fate(self, changes: Changes) -> t.Hashable:
        trial = self._tried(changes)
        return trial and trial.fate()

    def _harm(self, changes: Changes) -> int:
        earlier, trial = self._trials[frozenset()], self._tried(changes)
        if earlier and trial and self._is_loss:  # whether a cloud may drop it is another question
            return trial.harm(earlier)
        return int(self._fate(changes) != self._fate(frozenset()))


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
