# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Sends a packet and its reply through the twin of a snapshot, and returns what became of them."""

from __future__ import annotations

import time
import typing as t
from functools import partial

from .._core import fields
from .._core.errors import DatapathError
from .._platform import kernel, process
from .._routing.routing_backend import Netlink
from .._routing.rule import protocol_name
from .._snapshot import open_facts
from .._snapshot.assumption import Assumption
from .._snapshot.evidence import Evidence
from .._snapshot.open_facts import OpenFact
from .._twin import assumptions, blueprint, build_backend, isolation_backend, reachable, reduction, virtual_servers, worlds
from .._twin.assumptions import Ends
from .._twin.isolation_backend import Isolated
from . import certainty, changes_backend, likelihood, possible_service, verdict
from .kernel_events import DROPS, Observation, of_packet
from .lookup import Tables
from .packet import TCP, UDP, Packet
from .quotes_backend import Quotes
from .removals import Loss
from .surroundings import Surroundings
from .verdict import ARRIVED, DELIVERED, DROPPED, FORWARDED, REJECTED, UNKNOWN, Finding, Scene
from .world_backend import World

if t.TYPE_CHECKING:
    from .cures import Cure

SECONDS = 60.0  # for an answer with all of its twins; a twin with 10,000 rules takes two
AGAIN, AGAIN_EACH, MOST_PACKETS = 30, 12, 1000  # packets without a new way before all are taken to be seen
MOST_WORLDS_OF_CURES = 16
# Of an answer, which the module does not return.
EVIDENCE = (
    *("passed", "bridge", "links", "addresses", "searched", "rules"),
    *("caveats", "matching", "is_virtual", "pod_side", "recent", "may_be_for_service"),
)
ALL = 0.999  # the sum of the probabilities of all ways


class Question(t.NamedTuple):
    """A question about a snapshot. assume, calls, lines: from the options assume, changes and commands.

    is_curable: whether to try remedies, if there are no changes. is_own: whether the snapshot is of the node on which this runs.
    is_compared: whether the packet is sent before the changes, too. end: when the answer must be there, by time.monotonic().
    """

    snapshot: blueprint.Entry
    packet: Packet
    assume: t.Mapping[str, t.Any]
    calls: tuple[changes_backend.Change, ...] = ()
    lines: tuple[changes_backend.Command, ...] = ()
    wants_reply: bool = True
    is_curable: bool = True
    is_own: bool = False
    is_compared: bool = True
    end: float = 0.0


def answer(asked: Question, run: process.Runner, checked: changes_backend.Checked) -> dict[str, t.Any]:
    """The result of the module. Raises DatapathError."""
    if asked.is_own:
        build_backend.refuse_to_load_modules(asked.snapshot)
    worlds.check(asked.snapshot)
    settings, facts = worlds.divided(asked.assume)
    ports = {asked.packet.source_port, asked.packet.destination_port}
    opened = worlds.open_for(assumptions.with_settings(asked.snapshot, settings), _ends(asked.packet), ports)
    snapshot, opened = worlds.applied(asked.snapshot, opened, facts)
    started = time.monotonic()
    asked = asked._replace(snapshot=snapshot, assume=settings, end=started + SECONDS)
    ask = _Asking(asked, run, checked, opened)
    found = ask.of_snapshot(snapshot)
    last = asked.end - (time.monotonic() - started)  # when a further twin, which takes as long, may begin
    explored = certainty.explore(found, ask.opened, ask.in_world, min(last, time.monotonic() + certainty.SECONDS))
    ends = _ends(asked.packet)
    evidence = _evidence_about(asked, ends, explored)
    found = {**found, **certainty.conclusion(explored, ask.opened, ends.family, evidence)}
    if found["verdict"] != UNKNOWN and not found["branches"]:
        outcome = {**found, "reply_verdict": (found["reply"] or {}).get("verdict", "")}
        against = likelihood.of_kind(evidence, outcome, likelihood.CONTRADICTS)
        found["unknown"] += [f"The answer does not fit what an output shows: {sentence}." for sentence in against]
    if not explored.is_whole:
        found["unknown"].append(f"{len(explored.answers)} worlds that fit the snapshot were tried, and there are more.")
    is_curable = asked.is_curable and not (asked.calls or asked.lines) and found["verdict"] != UNKNOWN
    found["cures"], sentences = _cures(ask, found, last) if is_curable else ([], [])
    found["unknown"] += sentences
    return _without_evidence(found)


def _evidence_about(asked: Question, ends: Ends, explored: certainty.Exploration) -> list[Evidence]:
    sent = likelihood.Flow(protocol_name(asked.packet.protocol), ends.source, ends.destination, asked.packet.destination_port)
    entries = map(Evidence.from_plain, blueprint.entries(asked.snapshot, "evidence"))
    return likelihood.about(entries, likelihood.flows(sent, explored.answers.values()))


def _without_evidence(found: dict[str, t.Any]) -> dict[str, t.Any]:
    """The answer without what only certainty is judged by."""
    for first in (found, *found["branches"]):
        for way in filter(None, (first, first["reply"])):
            for name in EVIDENCE:
                way.pop(name, None)
    for branch in found["branches"]:
        del branch["came_in_by"]
    return found


class _Asking:
    """The same question in several worlds."""

    def __init__(
        self, asked: Question, run: process.Runner, checked: changes_backend.Checked, opened: t.Mapping[str, worlds.Open]
    ) -> None:
        self.asked, self.opened, self._run, self._checked = asked, opened, run, checked

    def in_world(self, world: certainty.World, calls: Question | None = None) -> certainty.Answer | None:
        """The answer in a world; None if no twin of it can be built. calls: the same question with changes."""
        asked = calls or self.asked
        snapshot: worlds.Snapshot = dict(asked.snapshot)
        for name, place in world:
            change = self.opened[name].values[place].change
            if change is None:
                return None
            snapshot = change(snapshot)
        return self.of_snapshot(snapshot, calls)

    def of_snapshot(self, snapshot: worlds.Snapshot, calls: Question | None = None) -> certainty.Answer:
        """The answer for a snapshot of one world. calls: as for `in_world`."""
        asked = calls or self.asked
        snapshot, assumed = assumptions.complete(snapshot, asked.assume, _ends(asked.packet))
        found = _in_a_twin(asked._replace(snapshot=snapshot), self._run, self._checked)
        in_twin = (Assumption.from_plain(plain) for plain in found["assumed"])
        return {**found, "assumed": list(dict.fromkeys([*assumed, *in_twin]))}


def _ends(packet: Packet) -> Ends:
    return Ends(fields.show(packet.destination), packet.interface, fields.show(packet.source) if packet.source else "")


def _cures(ask: _Asking, found: t.Mapping[str, t.Any], last: float) -> tuple[list[dict[str, t.Any]], list[str]]:
    """The remedies that work, and sentences about those that were not tried in every world. Each is tried in a separate twin.

    An operator's command is tried only if no remedy of the collection works and nothing that is unknown decides about the answer.
    last: when the last twin may begin.
    """
    loss = _loss(found)
    if loss is None:
        return [], []
    from . import cures  # only a packet that is lost needs the profiles

    offers: list[tuple[Cure, certainty.Exploration]] = []
    untried = 0
    for cure in cures.candidates(ask.asked.packet, loss, ask.asked.snapshot):
        is_needless = any(other.kind != cures.OPERATOR for other, _explored in offers) or not found["certain"]
        if (cure.kind == cures.OPERATOR and is_needless) or any(other.group == cure.group for other, _explored in offers):
            continue
        if time.monotonic() > last:
            untried += 1
            continue
        explored = _outcome(ask, cure, loss, last)
        if explored:
            offers.append((cure, explored))
    sentences = [f"{untried} remedies were not tried: an answer takes at most {SECONDS:g} s."] if untried else []
    partly = [cure.change for cure, explored in offers if not explored.is_whole]
    sentences += [f"{change} was tried in {MOST_WORLDS_OF_CURES} worlds at most, and there are more." for change in partly]
    family = _ends(ask.asked.packet).family
    conclusions = (certainty.conclusion(explored, ask.opened, family) for _cure, explored in offers)
    shown = [_shown(cure, explored.first, after["certain"]) for (cure, explored), after in zip(offers, conclusions)]
    return shown, sentences


def _loss(found: t.Mapping[str, t.Any]) -> Loss | None:
    """What is to be cured: a packet or a reply that is lost, or that a cloud may drop; None if nothing is."""
    lost = next((way for way in (found, found["reply"]) if way and way["verdict"] in (DROPPED, REJECTED)), None)
    if lost:
        return Loss(lost["culprit"], lost["came_in_by"], lost["rules"], is_reply=lost is not found)
    return Loss(None, found["came_in_by"]) if found["caveats"] else None


def _outcome(ask: _Asking, cure: Cure, loss: Loss, last: float) -> certainty.Exploration | None:
    """The answers with a cure in all worlds; None if the packet or its reply does not arrive in one, or a cloud may drop it.

    Nor is a route removed for a packet that then leaves by a default route, which does not tell that the packet is to go there.
    """
    try:
        lines = tuple(changes_backend.commands(cure.commands))
        trial = ask.asked._replace(calls=cure.calls, lines=lines, is_compared=False)
        after = ask.in_world((), trial)
        if after is None or not _is_healthy(after, trial):
            return None
        explored = certainty.explore(after, ask.opened, partial(ask.in_world, calls=trial), last, MOST_WORLDS_OF_CURES)
    except DatapathError:  # a remedy that cannot be applied does not work
        return None
    if not all(answer and _is_healthy(answer, trial) for answer in explored.answers.values()):
        return None
    ways = (way for answer in explored.answers.values() if answer for way in (answer, *answer["branches"]))
    lost = (way["reply"] if loss.is_reply else way for way in ways)
    return explored if not cure.opens_route or all(map(_has_route, lost)) else None


def _has_route(way: t.Mapping[str, t.Any]) -> bool:
    """Whether a packet is delivered, or leaves by a route to its destination that is no default route."""
    routes = [step["text"] for step in way["steps"] if step["kind"] == "route"]
    return way["verdict"] == DELIVERED or bool(routes and not any(" route default " in text for text in routes))


def _is_healthy(found: t.Mapping[str, t.Any], asked: Question) -> bool:
    return is_well(found, asked.wants_reply) and not found["caveats"]


def _in_a_twin(asked: Question, run: process.Runner, checked: changes_backend.Checked) -> dict[str, t.Any]:
    with changes_backend.prepared(asked.calls, asked.is_own) as root:
        seconds = max(1.0, asked.end - time.monotonic())
        return isolation_backend.run(lambda isolated: _exchanged(isolated, asked, run, checked), seconds, root)


def _exchanged(isolated: Isolated, asked: Question, run: process.Runner, checked: changes_backend.Checked) -> dict[str, t.Any]:
    try:
        return _Exchange(isolated, asked, run, checked).result()
    finally:
        build_backend.remove_links(isolated, len(blueprint.entries(asked.snapshot, "links")))


def _reachable(drawn: blueprint.Blueprint, asked: Question) -> blueprint.Blueprint:
    """The part of a blueprint that the packets can reach; all of it if changes may add to what they can."""
    if changes_backend.may_lead_elsewhere(asked.calls, asked.lines):
        return drawn
    packet = asked.packet
    others = assumptions.all_addresses(asked.snapshot)
    addresses = {packet.source, packet.destination, *filter(None, map(reachable.packed, others))} - {b""}
    ports = {str(packet.source_port), str(packet.destination_port)}
    has_ports = packet.protocol in (TCP, UDP) and "0" not in ports
    flow = reachable.Flow(frozenset(addresses), protocol_name(packet.protocol), frozenset(ports) if has_ports else None)
    return reduction.reduced(drawn, flow)


def is_well(found: t.Mapping[str, t.Any], wants_reply: bool = True) -> bool:
    """Whether the packet arrives, and its reply if one is wanted."""
    return found["verdict"] in ARRIVED and (not wants_reply or (found["reply"] or {}).get("verdict") in ARRIVED)


def _shown(cure: Cure, after: t.Mapping[str, t.Any], is_certain: bool) -> dict[str, t.Any]:
    shown = {"kind": cure.kind, "change": cure.change, "task": cure.task, "takes_along": cure.takes_along, "certain": is_certain}
    return {**shown, "verdict": after["verdict"], "reply_verdict": (after["reply"] or {}).get("verdict", "")}


class _Exchange:
    """A twin, and the packets that are sent through it."""

    def __init__(self, isolated: Isolated, asked: Question, run: process.Runner, checked: changes_backend.Checked) -> None:
        self._asked, self._run, self._checked = asked, run, checked
        self._assumed: list[Assumption] = []
        self._drawn = _reachable(blueprint.draw(asked.snapshot), asked)
        changes_backend.check_sizes(asked.lines, self._drawn.sizes)
        self._twin = build_backend.build(self._drawn, isolated, run, asked.packet.mark if asked.packet.interface else 0)
        self._around = Surroundings(asked.snapshot, self._drawn, self._assumed)
        isolated.tell("send packets")
        self._packet = asked.packet._replace(interface=self._around.entrance(asked.packet.interface))
        self._around.learn(self._packet)
        self._world = World(isolated.packets, self._drawn.names, self._around.neighbour)
        self._is_by_chance, self._probability = False, 1.0  # of the last packet
        facts = map(OpenFact.from_plain, blueprint.entries(asked.snapshot, "open"))
        self._table_names = {entry.table: entry.fact.subject for entry in facts if entry.table}
        self._has_filled = False  # whether a packet has filled a set
        self._reaches_ipvs = False  # whether a packet got through the chains of INPUT since the twin was changed
        self._programs: dict[tuple[str, str], list[str]] = {}
        for one in blueprint.entries(asked.snapshot, "bpf"):
            place = str(one.get("link")), str(one.get("direction") or "ingress")
            self._programs.setdefault(place, []).append(
                f"{one.get('name') or 'unnamed'} ({one.get('hook')} of {one.get('link')})"
            )
        self._look()

    def result(self) -> dict[str, t.Any]:
        before = None
        if self._asked.calls or self._asked.lines:
            before = self._sent() if self._asked.is_compared else None
            self._forget()
            changes_backend.apply(self._asked.calls, self._asked.lines, self._run, self._checked, self._note)
            self._look()
        first = self._sent()
        branches = self._branches(first) if self._is_by_chance else []
        ways = [way for _share, way in branches]
        lost = next((way for way in ways if not is_well(way, self._asked.wants_reply)), first)
        found = {**lost, "before": _short(before) if before else None}
        found["branches"] = [{"share": share, **_branch(one)} for share, one in branches]
        notes = [*self._drawn.notes, *self._twin.notes, *self._assumed]
        filters = self._unknown_filters(found)
        notes += (
            Assumption(f"net.ipv4.conf.{name}.rp_filter is not known. It is assumed to be {value}.")
            for name, value in filters.items()
        )
        found["caveats"] = list(dict.fromkeys(caveat for way in (found, *ways) for caveat in way["caveats"]))
        found["matching"] = self._quotes.matching_sets()
        found["recent"] = worlds.recent_chains(self._asked.snapshot)
        found["pod_side"] = self._pod_side(found["interface"])
        found["is_virtual"] = self._is_virtual(self._asked.packet.destination)
        found["assumed"] = [assumption.plain() for assumption in dict.fromkeys(notes)]
        found["unknown"] = self._unknown(found)
        return found

    def _sent(self) -> dict[str, t.Any]:
        """The packet and its reply, as the module returns them."""
        packet = self._packet
        macs = self._around.macs(packet) if packet.interface else ()
        self._forget()
        seen, finding = self._stopped_before_ipvs(packet, macs) or self._judged(packet, macs)
        events = of_packet(seen)
        self._is_by_chance = self._quotes.is_by_chance(events)
        self._probability = self._quotes.probability(events) if self._is_by_chance else 1.0
        reply = self._reply(seen, finding) if self._asked.wants_reply else None
        found = {**finding.report(), "came_in_by": packet.interface, "reply": None, **self._evidence(packet, finding)}
        # The answer of the node itself has no steps of its own.
        found["passed"] = [
            step._asdict() for step in dict.fromkeys(verdict.chain_steps(seen.events)) if blueprint.OWN_TABLE not in step.where
        ]
        found["caveats"] = [finding.caveat] if finding.caveat else []
        if reply:
            came_in_by, answer_found = reply
            found["reply"] = {
                **answer_found.report(),
                "came_in_by": came_in_by,
                **self._evidence(packet._replace(interface=came_in_by), answer_found),
            }
            found["caveats"] += [answer_found.caveat] if answer_found.caveat else []
            if answer_found.verdict in (DROPPED, REJECTED):
                found["reason"] = f"{found['reason']} Its reply is lost: {answer_found.reason}"
                found["culprit"] = found["reply"]["culprit"]
            elif answer_found.caveat:
                found["reason"] = f"{found['reason']} Its reply leaves by {answer_found.interface}. {answer_found.caveat}"
        return found

    def _forget(self) -> None:
        """Lets the next packet be the first one."""
        self._world.forget()
        if self._has_filled:
            build_backend.refill(self._run, self._filled_sets)
            self._has_filled = False

    def _send(self, packet: Packet, *macs: bytes) -> Observation:
        observation = self._world.send(packet, *macs)
        if self._filled_sets:
            rules = (self._quotes.text(event) for event in observation.events if event.handle)
            self._has_filled |= any(map(blueprint.FILLING.search, rules))
        return observation

    def _judged(self, packet: Packet, macs: t.Sequence[bytes]) -> tuple[Observation, Finding]:
        seen = self._send(packet, *macs)
        return seen, verdict.judge(seen, self._scene)

    def _stopped_before_ipvs(self, packet: Packet, macs: t.Sequence[bytes]) -> tuple[Observation, Finding] | None:
        """What the chains of INPUT stop, which a packet to a virtual server of IPVS goes through first."""
        family = "ip6" if packet.family == fields.IPV6 else "ip"
        if self._reaches_ipvs or fields.show(packet.destination) not in self._drawn.servers.get(family, ()):
            return None
        with build_backend.dormant(self._run, family, virtual_servers.TABLE):
            seen, finding = self._judged(packet, macs)
        is_stopped = finding.verdict in (DROPPED, REJECTED) and finding.culprit is not None and finding.culprit.kind == "rule"
        self._reaches_ipvs = not is_stopped
        if not is_stopped:
            self._forget()
        return (seen, finding) if is_stopped else None

    def _branches(self, first: dict[str, t.Any]) -> list[tuple[float, dict[str, t.Any]]]:
        """The ways that packets take by chance, with the share of each, the most frequent first; empty if there is one.

        The shares are those of the rules. If the rules do not show shares, they are those of the packets that were sent.
        """
        ways, counts, likely = {_way(first): first}, {_way(first): 1}, {_way(first): self._probability}
        since = 0
        while since < max(AGAIN, AGAIN_EACH * len(ways)) and sum(counts.values()) < MOST_PACKETS and sum(likely.values()) < ALL:
            found = self._sent()
            way = _way(found)
            since = since + 1 if way in ways else 0
            ways.setdefault(way, found)
            counts[way] = counts.get(way, 0) + 1
            likely[way] = self._probability
        shares = (
            likely if ALL <= sum(likely.values()) <= 2 - ALL else {way: one / sum(counts.values()) for way, one in counts.items()}
        )
        found_shares = [(round(shares[way], 3), found) for way, found in ways.items()]
        return sorted(found_shares, key=lambda one: -one[0]) if len(ways) > 1 else []

    def _note(self, sentence: str) -> None:
        self._assumed.append(Assumption(sentence))

    def _look(self) -> None:
        """Reads the rules and routes of the twin, which packets do not change."""
        self._reaches_ipvs = False
        backend = Netlink()
        tables = Tables((rule for rule, _protocol in backend.rules()), (route for route, _protocol in backend.routes()))
        self._quotes = Quotes(self._twin.texts, self._run, self._twin.bypassed)
        self._filled_sets = build_backend.filled_sets(self._run) if self._drawn.has_filled_sets or self._asked.lines else {}
        hidden = {(*place, handle) for place, handle in self._twin.bypassed.items()}
        self._scene = Scene(self._around, tables, kernel.setting, self._quotes.text, self._programs, hidden, self._quotes.element)

    def _reply(self, seen: Observation, finding: Finding) -> tuple[str, Finding] | None:
        """The link by which the reply came in, and what became of it; None if there is none."""
        if finding.frame is None:
            return ("", self._own_reply(seen)) if finding.verdict == DELIVERED else None
        if finding.verdict not in (*ARRIVED, UNKNOWN):
            return None
        left = finding.frame.packet
        link = self._around.reply_link(left, finding.interface, self._scene.tables)
        if self._around.is_pod(finding.interface):
            way = self._around.pod_sides.way(left, finding.interface)
            if not way.link:
                return "", verdict.unanswered(way, left)
            link = way.link
        packet = left.replied(link)
        _source, destination = self._around.macs(packet)
        source = finding.frame.destination_mac if link == finding.interface else self._around.world_mac(link)
        reply = verdict.judge(self._send(packet, source, destination), self._scene)
        expected = seen.sent.replied("")
        if reply.frame and reply.frame.packet.flow != expected.flow:
            reason = f"The reply arrives as {reply.frame.packet}, and {expected} is expected: its translation is not undone."
            reply = reply._replace(verdict=DROPPED, reason=reason)
        reply = verdict.by_its_uplink(reply, seen.sent.interface, self._scene)
        return link, verdict.at_its_pod(reply, seen.sent.interface, self._scene)

    def _own_reply(self, seen: Observation) -> Finding:
        """What became of the node's own answer to a packet that arrived at the node, although no program listens in a twin."""
        sent = seen.sent
        if not sent.interface:
            return Finding(DELIVERED, "lo", None, "The node answers itself.", None, ())
        for link, frame in seen.frames:
            if frame.packet.destination == sent.source:
                kind = DELIVERED if self._around.is_pod(link) else FORWARDED
                caveat = verdict.caveat_of(frame.packet, link, self._scene)
                reason = f"The node's answer leaves by {link}. {caveat}".strip()
                reply = Finding(kind, link, frame, reason, None, (), caveat)
                return verdict.at_its_pod(reply, sent.interface, self._scene)
        drop = next((one for one in reversed(seen.events) if one.verdict in DROPS), None)
        if drop:
            text = verdict.quoted(drop, self._scene)
            reason = f"{drop.family} {drop.table} {drop.chain} drops the answer: {text}."
            return Finding(DROPPED, "", None, reason, verdict.culprit_of(drop, text), ())
        back = sent.replied("")
        if sent.protocol != TCP:
            return Finding(UNKNOWN, "", None, "The node's answer was not seen: no program answers in a twin.", None, ())
        shown = fields.show(back.destination)
        # The kernel drops an answer without a trace. A packet that the node sends shows why.
        alike = verdict.judge(self._world.send(back._replace(is_reply=False)), self._scene)
        if alike.verdict in (DROPPED, REJECTED):
            return alike._replace(reason=f"The node's answer to {shown} did not leave. {alike.reason}")
        culprit = verdict.Culprit("missing", f"no route to {shown}")
        return Finding(DROPPED, "", None, f"The node's answer to {shown} did not leave.", culprit, ())

    def _evidence(self, sent: Packet, finding: Finding) -> dict[str, t.Any]:
        """What the packet met besides its steps. searched: numbers of routing tables, and the names that facts have for them.

        rules: the policy rules that decided.
        """
        numbers = [str(number) for number in finding.searched]
        links = {*finding.links, *filter(None, (sent.interface, finding.interface))}
        packets = (sent, finding.query, finding.frame and finding.frame.packet)
        addresses = {address for each in packets if each for address in (each.source, each.destination) if address}
        return {
            "bridge": self._around.bridge(sent.interface),
            "links": sorted(links | {bridge for name in links if (bridge := self._around.bridge(name))}),
            "addresses": sorted(map(fields.show, addresses)),
            "searched": [*numbers, *(self._table_names[number] for number in numbers if number in self._table_names)],
            "rules": [*finding.rules],
            "may_be_for_service": possible_service.may_be_for_service(sent, finding),
        }

    def _pod_side(self, link: str) -> str:
        """The id of the fact by which of its links a pod answers; empty for a link to no pod."""
        family = "ipv6" if self._packet.family == fields.IPV6 else "ipv4"
        return open_facts.pod_side(self._around.links[link], family).fact if self._around.is_pod(link) else ""

    def _is_virtual(self, address: bytes) -> bool:
        """Whether a link for the addresses of virtual servers has the address."""
        return self._around.owner(address).startswith("kube-ipvs")

    def _unknown_filters(self, found: t.Mapping[str, t.Any]) -> dict[str, int]:
        """Links on the path whose reverse-path filter is not in the snapshot, with the value in the twin."""
        told = (self._asked.snapshot.get("settings") or {}).get("ipv4") or {}
        names = [one["came_in_by"] for one in (found, found["reply"]) if one and one["came_in_by"]]
        if self._asked.packet.family != fields.IPV4 or "rp_filter" in told.get("all", {}):
            return {}
        unknown = [name for name in dict.fromkeys(names) if "rp_filter" not in told.get(name, {})]
        return {name: kernel.setting(f"net/ipv4/conf/{name}/rp_filter") or 0 for name in unknown}

    def _unknown(self, found: t.Mapping[str, t.Any]) -> list[str]:
        unread = [
            f"{one.get('subset')} {one.get('object')}: {one.get('reason')}".replace("  ", " ")
            for one in self._asked.snapshot.get("unread") or ()
        ]
        own = [found["reason"]] if found["verdict"] == UNKNOWN else []
        reply = found["reply"] or {}
        return [*own, *([reply["reason"]] if reply.get("verdict") == UNKNOWN else []), *unread]


def _way(found: t.Mapping[str, t.Any]) -> tuple[t.Any, ...]:
    """The parts of a result that distinguish one packet's way from another's."""
    packet, reply = found["packet"] or {}, found["reply"] or {}
    culprit = (found["culprit"] or {}).get("text")
    return (
        found["verdict"],
        found["interface"],
        packet.get("destination"),
        packet.get("destination_port"),
        culprit,
        reply.get("verdict"),
    )


def _branch(found: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    shown = ("verdict", "interface", "packet", "reason", "culprit", "steps", "reply")
    return {key: found[key] for key in (*shown, "came_in_by", "passed", "bridge", "links", "addresses", "searched")}


def _short(found: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    keys = ("verdict", "interface", "reason", "culprit")
    reply = found["reply"]
    return {**{key: found[key] for key in keys}, "reply": {key: reply[key] for key in keys} if reply else None}
