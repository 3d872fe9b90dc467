# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Which outcomes the evidence in a snapshot fits: what counters, connections and captures show of other packets.

Evidence makes no answer certain: a counter shows that some packet met a rule, and not which.
"""

from __future__ import annotations

import typing as t

from .._core.fields import show
from .._snapshot.evidence import ASSURED, COUNTER, LOGGED, SYN, SYN_ACK, UNREPLIED, Evidence, without_counter
from .answer import ARRIVED, UNKNOWN, Answer, Outcome
from .culprit import ChainRule

FITS, NEUTRAL, CONTRADICTS = 1, 0, -1


class Flow(t.NamedTuple):
    """The first packet of a connection, before or after its translation. source: empty if the node chooses it."""

    protocol: str
    source: str
    destination: str
    destination_port: int

    def is_of(self, entry: Evidence) -> bool:
        is_source = not self.source or entry.source == self.source
        if entry.kind == LOGGED and not entry.protocol:  # a line that a report cuts
            return is_source and entry.destination == self.destination
        ends = (entry.protocol, entry.destination, entry.destination_port)
        return is_source and ends == (self.protocol, self.destination, self.destination_port)


def about(evidence: t.Iterable[Evidence], flows: t.Collection[Flow]) -> list[Evidence]:
    """Return the evidence about the connection, and the counters. flows: of the packet, in each world."""
    return [entry for entry in evidence if entry.kind == COUNTER or any(flow.is_of(entry) for flow in flows)]


def flows(sent: Flow, answers: t.Iterable[Answer | None]) -> set[Flow]:
    """Return the packet as it was sent, and as it left in each answer."""
    frames = (answer.way.met.frame for answer in answers if answer)
    packets = (frame.packet for frame in frames if frame)
    return {sent, *(Flow(sent.protocol, show(each.source), show(each.destination), each.destination_port) for each in packets)}


def sentence(entry: Evidence) -> str:
    """Return what an output shows."""
    what = f"from {entry.source} to {entry.destination} port {entry.destination_port}"
    if entry.kind == COUNTER:
        least, most = min(entry.counts, default=0), max(entry.counts, default=0)
        return f"{entry.rule} has {most} packets" if least == most else f"{entry.rule} went from {least} to {most} packets"
    address, port = entry.new_destination
    if entry.kind == LOGGED:
        hook, _blank, prefix = entry.rule.partition(" ")
        return f"the kernel's log has a packet {what} in {hook}{f' with the prefix {prefix!r}' if prefix else ''}"
    parts = [f"its source becomes {entry.new_source}"] if entry.new_source else []
    parts += [f"its destination becomes {address}{f' port {port}' if port else ''}"] if address else []
    translated = "".join(f", and {part}" for part in parts)
    return {
        UNREPLIED: f"conntrack has the connection {what} without a reply{translated}",
        ASSURED: f"conntrack has the connection {what} with traffic in both directions{translated}",
        SYN: f"tcpdump shows the SYN {what} {sum(entry.counts)} times, and no answer",
        SYN_ACK: f"tcpdump shows the answer to the SYN {what} {sum(entry.counts)} times",
    }[entry.kind]


def translated_otherwise(left: t.Collection[tuple[str, str, int]], evidence: t.Iterable[Evidence]) -> Evidence | None:
    """Return the tracked connection of which the node made something else than packets that leave so; None if there is none."""
    tracked = (entry for entry in evidence if entry.left_destination)
    others = (entry for entry in tracked if (entry.left_source, entry.left_destination, entry.left_port) not in left)
    return next(others, None) if left else None


def fit(entry: Evidence, outcome: Outcome) -> int:
    """Return whether evidence fits an outcome of a fact, or contradicts it."""
    verdict, reply = outcome.verdict, outcome.reply_verdict
    if entry.kind == LOGGED:  # by a rule that no output has
        return NEUTRAL
    if entry.kind == COUNTER:
        decider = outcome.culprit.object if outcome.culprit else None
        return FITS if isinstance(decider, ChainRule) and without_counter(str(decider)) == entry.rule else NEUTRAL
    if UNKNOWN in (verdict, reply) or (verdict in ARRIVED and not reply):
        return NEUTRAL
    if translated_otherwise(outcome.left, [entry]):
        return CONTRADICTS
    is_answered = verdict in ARRIVED and reply in ARRIVED
    if entry.kind == ASSURED:
        return FITS if is_answered else CONTRADICTS
    if entry.kind == SYN_ACK:  # the destination has the packet, and the source does not have the answer
        return FITS if verdict in ARRIVED and not is_answered else CONTRADICTS
    return CONTRADICTS if is_answered else FITS


def weighed(outcome: Outcome, evidence: t.Collection[Evidence]) -> Outcome:
    """Return the outcome with the sentences about evidence that fits it, and that contradicts it."""
    fits, contradicts = (
        tuple(sentence(entry) for entry in evidence if fit(entry, outcome) == kind) for kind in (FITS, CONTRADICTS)
    )
    return outcome._replace(evidence=fits, contradicted_by=contradicts)


def weight(outcome: Outcome) -> int:
    """Return how much of the evidence fits an outcome more than contradicts it."""
    return len(outcome.evidence) - len(outcome.contradicted_by)


def likeliest(outcomes: t.Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes that most of the evidence fits; none if it fits all alike."""
    weights = [*map(weight, outcomes)]
    most = max(weights, default=0)
    return (
        [outcome for outcome, of_outcome in zip(outcomes, weights) if of_outcome == most]
        if min(weights, default=0) < most
        else []
    )
