# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which outcomes the evidence in a snapshot fits: what counters, connections and captures show of other packets.

Evidence makes no answer certain: a counter shows that some packet met a rule, and not which.
"""

from __future__ import annotations

import re
import typing as t

from .._core.fields import show
from .._snapshot.evidence import (
    ASSURED,
    COUNTER,
    LOGGED,
    REFUSED,
    REPORTED,
    SYN,
    SYN_ACK,
    TELLING,
    TRACED,
    UNREPLIED,
    Evidence,
    without_counter,
)
from .answer import ARRIVED, LOST, UNKNOWN, Answer, Outcome
from .culprit import ChainRule, NoRoute, Route, Rule, Setting

FITS, NEUTRAL, CONTRADICTS = 1, 0, -1


class Flow(t.NamedTuple):
    """The first packet of a connection, before or after its translation. source: empty if the node chooses it."""

    protocol: str
    source: str
    destination: str
    destination_port: int

    def is_of(self, entry: Evidence) -> bool:
        is_source = not self.source or entry.source == self.source
        if entry.kind in TELLING and not entry.protocol:  # a line that a report cuts, or that never has the ports
            is_source = is_source or not entry.source
            return is_source and entry.destination in ("", self.destination)
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
    first, _blank, rest = entry.rule.partition(" ")
    if entry.kind == LOGGED:
        return f"the kernel's log has a packet {what} in {first}{f' with the prefix {rest!r}' if rest else ''}"
    if entry.kind == TRACED:
        return "nft's trace shows the packet there"
    if entry.kind == REPORTED:
        return f"the kernel's log has {rest!r}" + _REPORTS[rest].ends.format(
            link=first, source=entry.source, to=entry.destination
        )
    if entry.kind == REFUSED:
        return f"the kernel answers {'ping' if first == PING else 'ip route get'} for {entry.destination} with {rest!r}"
    parts = [f"its source becomes {entry.new_source}"] if entry.new_source else []
    parts += [f"its destination becomes {address}{f' port {port}' if port else ''}"] if address else []
    translated = "".join(f", and {part}" for part in parts)
    by_link = f" leave by {entry.link}" if entry.link else ""
    return {
        UNREPLIED: f"conntrack has the connection {what} without a reply{translated}",
        ASSURED: f"conntrack has the connection {what} with traffic in both directions{translated}",
        SYN: f"tcpdump shows the SYN {what}{by_link} {sum(entry.counts)} times, and no answer",
        SYN_ACK: f"tcpdump shows the answer to the SYN {what} {sum(entry.counts)} times",
    }[entry.kind]


PING = "ping"  # in place of the link of a refusal
# What the kernel's routing says (net/ipv4/fib_semantics.c, fib_props; net/ipv4/fib_frontend.c), and a rule in OUTPUT.
_REFUSALS = {
    "Invalid cross-device link": "reverse-path filtering drops the packet (net.ipv4.conf.{link}.rp_filter)",
    "Network is unreachable": "no route leads to {to}",
    "No route to host": "a route of type unreachable stops packets to {to}",
    "Permission denied": "a route or a rule of type prohibit stops packets to {to}",
    "Operation not permitted": "a rule in OUTPUT stops the packet",
}


class _Report(t.NamedTuple):
    """What the kernel's message about a lost packet means. ends: words about the packet. ask: the command that shows it."""

    words: str
    ends: str
    ask: str


_FILTERS = "sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.{path}.rp_filter"
_REPORTS = {
    "martian source": _Report(
        _REFUSALS["Invalid cross-device link"], " of a packet from {source} to {to} that came in by {link}", _FILTERS
    ),
    "unallowed src IP": _Report(
        "WireGuard drops the packet: {source} is not among the allowed IPs of the peer that sends it",
        " of a packet from {source} on {link}",
        "wg show {link} allowed-ips",
    ),
    "table full": _Report(
        "connection tracking, whose table is full, drops the packet",
        " of connection tracking",
        "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
    ),
    "neighbor table overflow": _Report(
        "the packet finds no place for its neighbor in a full table",
        "",
        "sysctl net.ipv4.neigh.default.gc_thresh3",
    ),
}


def stopping(entry: Evidence) -> tuple[str, str]:
    """Return what stops the packet by evidence that tells it, as words to follow "that", and the command that shows it.

    Both are empty for evidence that does not tell it. A counter is one of invalid_by.
    """
    if entry.kind == COUNTER:
        return f"connection tracking takes the packet for invalid, and it is dropped ({entry.rule})", "conntrack -S"
    first, _blank, rest = entry.rule.partition(" ")
    save = "ip6tables-save" if ":" in entry.destination else "iptables-save"
    if entry.kind == LOGGED:
        # firewalld names its chains of nft so in its prefixes (src/firewall/core/nftables.py).
        ask = "nft list ruleset" if rest.startswith("filter_") else save
        return f"a rule in {first} that no output has stops the packet", ask
    if entry.kind == TRACED:
        return f"{entry.rule} stops the packet", "nft list ruleset"
    path = first.replace(".", "/")
    if entry.kind == REPORTED and rest in _REPORTS:
        report = _REPORTS[rest]
        return report.words.format(link=first, source=entry.source), report.ask.format(link=first, path=path)
    if entry.kind != REFUSED or rest not in _REFUSALS:
        return "", ""
    filters = _FILTERS.format(path=path)
    routes = f"ip {'-6 ' if ':' in entry.destination else ''}route show table all"
    ask = filters if "{link}" in _REFUSALS[rest] else save if "OUTPUT" in _REFUSALS[rest] else routes
    return _REFUSALS[rest].format(link=first, to=entry.destination), ask


def is_explained(entry: Evidence, answer: Answer) -> bool:
    """Return whether an answer has what stops a packet by evidence that tells it, or something else for that of the log."""
    decider = answer.way.culprit.object if answer.way.culprit else None
    if entry.kind == TRACED:
        return str(decider) == entry.rule
    is_filter = entry.rule.endswith(("Invalid cross-device link", "martian source"))
    if entry.kind == REFUSED or is_filter:
        return (
            isinstance(decider, Setting) and decider.name == "rp_filter"
            if is_filter
            else isinstance(decider, (NoRoute, Route, Rule))
        )
    return decider is not None


_INVALID = re.compile(r"--(?:ct)?state \S*INVALID|ct state \S*invalid")  # of a rule, for which a twin never takes a packet


def invalid_by(answer: Answer, evidence: t.Collection[Evidence]) -> Evidence | None:
    """Return the counter of a rule for invalid packets, in the chain of a rule that stops the packet and counted none."""
    decider = answer.way.culprit.object if answer.way.culprit else None
    counters = {entry.rule: entry for entry in evidence if entry.kind == COUNTER}
    if not isinstance(decider, ChainRule) or without_counter(str(decider)) in counters:
        return None
    of_table, words = f"{decider.family} {decider.table}", (f": -A {decider.chain} ", f" {decider.chain}: ")
    heads = tuple(f"{of_table}{word}" for word in words)
    return next((entry for rule, entry in counters.items() if rule.startswith(heads) and _INVALID.search(rule)), None)


def translated_otherwise(left: t.Collection[tuple[str, str, int]], evidence: t.Iterable[Evidence]) -> Evidence | None:
    """Return the tracked connection of which the node made something else than packets that leave so; None if there is none."""
    tracked = (entry for entry in evidence if entry.left_destination)
    others = (entry for entry in tracked if (entry.left_source, entry.left_destination, entry.left_port) not in left)
    return next(others, None) if left else None


def fit(entry: Evidence, outcome: Outcome) -> int:
    """Return whether evidence fits an outcome of a fact, or contradicts it."""
    verdict, reply = outcome.verdict, outcome.reply_verdict
    if entry.kind in TELLING:  # what stops the packet may be in no output
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
    if entry.link and verdict in LOST:
        return CONTRADICTS
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
