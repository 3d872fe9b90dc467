# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends packets through a twin, each as the first of its connection, and says what becomes of each and of its reply."""

from __future__ import annotations

import json
import socket
import typing as t
from types import MappingProxyType

from .._core import fields
from .._platform import kernel, process
from .._routing import routing_backend
from .._routing.routing_backend import Netlink
from .._routing.rule import Rule, protocol_name
from .._ruleset import service_rules
from .._snapshot import open_facts
from .._snapshot.assumption import LINK, Assumption, Concern
from .._snapshot.snapshot import SOFTWARE
from .._snapshot.values import Filter, Snapshot
from .._twin import (
    assumptions,
    blueprint,
    bounds,
    build_backend,
    lacking,
    link_messages,
    reachable,
    translating_programs,
    virtual_servers,
    worlds,
)
from .._twin.blueprint import Blueprint
from .._twin.build_backend import Place
from .._twin.isolation_backend import Isolated
from .._twin.substitutions import (
    ANNOUNCED,
    ANSWER,
    ASSUMED,
    FILTER,
    FULL,
    HOP_LIMIT,
    POD,
    POD_NEIGHBOR,
    POD_RULES,
    SOURCE,
    SOURCE_CHECK,
    STATE,
    STATED,
    TUNNEL,
    gap,
    replaced,
)
from . import changes_backend, frame, lookup, path, sizes, verdict
from .answer import ARRIVED, DELIVERED, DROPPED, FORWARDED, LOST, UNKNOWN, Answer, Branch, Culprit, Way
from .culprit import ChainRule
from .far_ends_backend import QUIET, FarEnds, is_explained
from .kernel_events import DROPS, Event, Observation, of_packet
from .lookup import Tables
from .packet import TCP, UDP, Packet
from .rule_texts_backend import RuleTexts
from .topology import Topology
from .verdict import Scene

Changes = t.Sequence[changes_backend.Change]
AGAIN, AGAIN_EACH, MOST_PACKETS = 30, 12, 1000  # packets without a new way before all are taken to be seen
SIZED = "A packet without options and data was sent, and whether a rule matches depends on these"
EARLIER = "Whether a rule matches depends on earlier packets or on the time, which a twin does not have"
# net/ipv4/route.c, fib_multipath_hash(): of the packet's fields, with a key that each boot draws.
MULTIPATH = "A hash, which differs on the node, chooses the next hop of a route"
HOP_LIMITED = ("169.254.169.254", "fd00:ec2::254")  # metadata services whose answers may have a hop limit of 1
TUNNELS = ("tun", "wireguard")  # kinds of links whose other end a program, or a peer with a key, decides about
ALL = 0.999  # the sum of the probabilities of all ways


def reached(drawn: Blueprint, snapshot: Snapshot, packets: t.Sequence[Packet], changes: Changes = ()) -> Blueprint:
    """Return the part of a blueprint that packets can reach; all of it if changes may add to that. Raises Failure."""
    if changes_backend.may_lead_elsewhere(changes):
        return reachable.whole(drawn)
    addresses = {address for packet in packets for address in (packet.source, packet.destination)}
    further = (*assumptions.all_addresses(snapshot), *changes_backend.addresses(changes))
    addresses |= {*map(reachable.packed, further)}
    ports = {str(port) for packet in packets for port in (packet.source_port, packet.destination_port)}
    protocols = {packet.protocol for packet in packets}
    has_ports = protocols <= {TCP, UDP} and "0" not in ports
    names = frozenset(map(protocol_name, protocols))
    near = {*map(reachable.packed, (*assumptions.near_addresses(snapshot), *changes_backend.words(changes)))}
    flow = reachable.Flow(
        frozenset(addresses - {b""}),
        names,
        frozenset(ports) if has_ports else None,
        frozenset(near - {b""}),
        changes_backend.may_name_rules(changes),
    )
    return reachable.reduced(drawn, flow)


class Plan(t.NamedTuple):
    """What an exchange needs, worked out before it has an isolated process: what several share is worked out once.

    packets: all that will be sent, of which those that come in have one mark. changes: to be made before the first packet, or
    after it is sent once to compare. drawn: the part of the node that they can reach.
    """

    snapshot: Snapshot
    packets: t.Sequence[Packet]
    changes: Changes
    drawn: Blueprint


def plan(snapshot: Snapshot, packets: t.Sequence[Packet], changes: Changes = ()) -> Plan:
    """Raises Invalid for what no twin can have, and for what is larger than a bound."""
    drawn = reached(blueprint.draw(snapshot), snapshot, packets, changes)
    bounds.check_twin(len(drawn.rules), len(drawn.routes), len(drawn.neighbours))
    changes_backend.check_sizes(changes, drawn.sizes)
    return Plan(snapshot, packets, changes, drawn)


class Exchange:
    """A twin, and the packets that are sent through it. quiet: as of FarEnds."""

    def __init__(
        self,
        isolated: Isolated,
        run: process.Runner,
        planned: Plan,
        quiet: int = QUIET,
    ) -> None:
        self._run = run
        self._snapshot, packets, self._changes, self._drawn = planned
        snapshot = self._snapshot
        self._assumed: list[Assumption] = []
        mark = next((packet.mark for packet in packets if packet.interface), 0)
        self._twin = build_backend.build(self._drawn, isolated, run, mark)
        self._topology = Topology(snapshot, self._drawn, self._assumed)
        isolated.tell("send packets")
        self._of_node = len(self._assumed)  # what is assumed of the node, whatever is sent
        self._packet, self._wants_reply = packets[0], True
        self._far_ends = FarEnds(isolated.packets, self._drawn.names, self._topology.answer, quiet)
        self._announced: list[Assumption] = []  # of the last packet
        self._by_chance: set[Place] = set()  # chains that chose by chance, for it, too
        self._probability, self._is_in_turn, self._is_unsure = 1.0, False, False
        self._table_names = {entry.table: entry.fact.subject for entry in snapshot.open or () if entry.table}
        self._records = worlds.recent_chains(snapshot)
        self._has_filled = False  # whether a packet has filled a set
        self._reaches_ipvs = False  # whether a packet got through the chains of INPUT since the twin was changed
        self._programs: dict[tuple[str, str], list[str]] = {}
        self._stand_ins = translating_programs.stand_ins(snapshot.bpf, snapshot.links)
        known = [each.program for each in self._stand_ins.values()]
        for program in (each for each in snapshot.bpf if each not in known):
            self._programs.setdefault((program.link, program.direction or "ingress"), []).append(str(program))
        self._filters: dict[tuple[str, str], list[Filter]] = {}
        for each in snapshot.filters:
            self._filters.setdefault((each.link, each.direction), []).append(each)
        self._look()

    def _down_links(self) -> set[str]:
        """Return the links of the twin that are down, after changes as well."""
        bodies = routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC)
        return {self._drawn.names.get(index, "") for index in link_messages.down_links(bodies)}

    def _await_links(self) -> None:
        """Look which links are up after changes, and wait for those that were down."""
        up = self._topology.up.union(self._drawn.names.values()) - self._down_links()
        links = [link._replace(is_up=True) for link in self._drawn.links if link.name in up - self._topology.up]
        build_backend.await_carriers(links)
        self._topology.up = up

    def answer(self, packet: Packet, wants_reply: bool = True, is_compared: bool = False) -> Answer:
        """Send a packet. wants_reply: and its reply. is_compared: before the changes, too."""
        entering = packet._replace(interface=self._topology.entrance(packet.interface))
        self._packet, self._wants_reply = sizes.divided(entering, self._topology), wants_reply
        del self._assumed[self._of_node :]
        self._reaches_ipvs = False
        self._topology.learn(self._packet)
        before = self._sent() if self._changes and is_compared else None
        if self._changes:
            self._forget()
            changes_backend.apply(self._changes, self._run, self._note, self._stand_ins)
            self._await_links()
            self._look()
            self._changes = ()
        first = self._sent()
        branches = self._branches(first) if self._by_chance else []
        way = next((branch.way for branch in branches if not branch.way.is_well(wants_reply)), first)
        notes_of_sizes = sizes.notes(
            self._packet.length, branches[0].way if branches else first, self._topology, self._scene.tables
        )
        self._assumed += self._unread_filters(first)
        unread = filter(None, map(lacking.by_unread, self._snapshot.unread))
        notes = [*self._drawn.notes, *self._twin.notes, *self._assumed, *unread, *notes_of_sizes]
        notes += (
            replaced(ASSUMED, f"net.ipv4.conf.{name}.rp_filter is not known. It is assumed to be {value}.")
            for name, value in self._unknown_filters(way).items()
        )
        return Answer(
            way,
            before,
            tuple(branches),
            unknown=(*self._unknown(way),),
            assumed=tuple(dict.fromkeys(notes)),
            pod_side=self._pod_side(way.interface),
            is_virtual=self._is_virtual(packet.destination),
        )

    def _sent(self) -> Way:
        """Send the packet and its reply, and return what became of them."""
        packet = self._packet
        self._forget()
        self._announced.clear()
        macs = self._frame_ends(packet) if packet.interface else ()
        if isinstance(macs, Way):
            return self._with_objects(packet, verdict.behind_broken_link(macs, packet, self._scene))
        observation, way = self._stopped_before_ipvs(packet, macs) or self._judged(packet, macs)
        way = verdict.behind_broken_link(way, packet, self._scene)
        events = of_packet(observation)
        self._by_chance = self._rule_texts.by_chance(events)
        self._probability = self._rule_texts.probability(events) if self._by_chance else 1.0
        reply = self._reply(observation, way) if self._wants_reply else None
        if not packet.source and way.interface and not self._topology.has_order(way.interface, packet.family == fields.IPV6):
            sentence = f"Which address of {way.interface} comes first, so that the node sends from it, is not known."
            self._assumed.append(replaced(SOURCE, sentence, Concern(LINK, way.interface), subject=way.interface))
        if way.has_arrived and (reply is None or reply.has_arrived):
            replies = (reply.came_in_by, reply.interface) if reply else ()
            self._assumed += self._unseen_ends({packet.interface, way.interface, *replies} - {""})
            self._assumed += [*self._announced, *self._unseen_answer(observation.sent, way)]
            self._assumed += self._unseen_neighbours([way, *([reply] if reply else [])])
            self._assumed += self._unseen_checks([way, *([reply] if reply else [])])
            if reply and verdict.is_away_from_pod(reply, packet.interface, self._scene):
                to = fields.show(packet.source)
                sentence = (
                    f"The reply to {to}, the pod at {packet.interface}, leaves by {reply.interface}. It is assumed to come back."
                )
                self._assumed.append(replaced(ANSWER, sentence, subject=to))
        self._assumed += map(gap, self._several_hops([way, *([reply] if reply else [])]))
        # The answer of the node itself has no steps of its own.
        chains = verdict.chains_met(event for event in observation.events if event.table != blueprint.OWN_TABLE)
        way = verdict.misaddressed(way, packet, macs, self._scene)
        way = self._with_objects(packet, way._replace(met=way.met._replace(**chains)))
        if reply is None:
            return way
        reply = self._with_objects(packet._replace(interface=reply.came_in_by), reply)
        if reply.verdict in LOST:
            reason = f"{way.reason} Its reply is lost: {reply.reason}"
            return way._replace(reply=reply, reason=reason, culprit=reply.culprit, tells_reply=True)
        if reply.met.caveat:
            reason = f"{way.reason} Its reply leaves by {reply.interface}. {reply.met.caveat.sentence}"
            return way._replace(reply=reply, reason=reason, tells_reply=True)
        return way._replace(reply=reply)

    def _unseen_ends(self, links: t.Iterable[str]) -> t.Iterator[Assumption]:
        """Yield what is at the other end of links as far as the snapshot does not show it: pods, and tunnels."""
        for link in sorted(links):
            if self._topology.kind(link) in TUNNELS and not self._topology.is_pod(link):
                sentence = (
                    f"{link} is a link of kind {self._topology.kind(link)}. What it sends is assumed to arrive at its other end."
                )
                yield replaced(TUNNEL, sentence, Concern(LINK, link), subject=link)
            side = self._topology.pod_sides.of(link)
            if side and side.netfilter and self._topology.is_pod(link):
                sentence = f"The pod at {link} has rules of netfilter itself, which are not read."
                yield replaced(POD_RULES, sentence, Concern(LINK, link), subject=link)
            if self._topology.is_pod(link) and side is None:
                sentence = f"The pod at {link} is assumed to have its address, its routes and the neighbours that it needs."
                yield replaced(POD, sentence, Concern(LINK, link), subject=link)

    def _unseen_answer(self, sent: Packet, way: Way) -> t.Iterator[Assumption]:
        """Yield that the answer of a machine beyond the node is taken to come back, where nothing on the node decides that."""
        if way.met.frame is None or self._topology.is_pod(way.interface):
            return
        departed = way.met.frame.packet
        source, to = fields.show(departed.source), fields.show(departed.destination)
        if departed.destination == sent.destination and self._is_of_service(departed):
            sentence = f"{to} is of a Service, and no rule has translated it. A machine beyond the node is assumed to have {to}."
            yield replaced(ANSWER, sentence, subject=to)
            return
        is_of_pod = self._topology.is_pod(sent.interface)
        is_private = path.is_private(departed.source) and not path.is_private(departed.destination)
        is_doubtful = (
            departed.source != sent.source
            or (departed.destination != sent.destination and not is_of_pod)
            or (is_of_pod and is_private and way.met.has_default_route)
        )
        if sent.interface and to in HOP_LIMITED:
            yield replaced(HOP_LIMIT, f"{to} answers an instance, and its answer is assumed to live long enough.", subject=to)
        elif is_doubtful and not self._topology.is_answered(departed.source, way.interface, departed.source != sent.source):
            sentence = f"{to} sees the source {source}. Its answer is assumed to come back to the node."
            yield replaced(ANSWER, sentence, subject=source)
        elif self._topology.pod_link(departed.destination):
            link = self._topology.pod_link(departed.destination)
            sentence = f"The pod at {link} has {to}, and the packet leaves by {way.interface}. It is assumed to come back."
            yield replaced(ANSWER, sentence, subject=to)
        elif verdict.unseen_on_bridge(sent.interface, way.interface, sent, self._scene)[0] and self._is_named(to):
            sentence = (
                f"Rules name {to}, and do not see the packet on its bridge. A machine beyond the node is assumed to have {to}."
            )
            yield replaced(ANSWER, sentence, subject=to)
        elif self._topology.may_return(sent, departed, way.interface):
            sentence = f"The packet came in by {way.interface}, in whose network {to} is. It is assumed to stay there."
            yield replaced(ANSWER, sentence, subject=to)

    def _is_of_service(self, packet: Packet) -> bool:
        """Return whether rules or virtual servers of the node are to translate the destination of a packet."""
        end = fields.show(packet.destination), protocol_name(packet.protocol), packet.destination_port
        servers = (server.end for server in self._snapshot.ipvs)
        tables = self._snapshot.tables()
        is_private = path.is_private(packet.destination)
        return is_private and (end in service_rules.translated(tables, servers) or service_rules.is_translated(tables, *end))

    def _is_named(self, address: str) -> bool:
        """Return whether a rule may translate an address, such as that of a Service, because its text has it."""
        texts = (self._drawn.ruleset_text, json.dumps(self._drawn.ruleset), *(text for _program, text in self._drawn.restores))
        return any(address in text for text in texts)

    def _unseen_neighbours(self, ways: t.Iterable[Way]) -> t.Iterator[Assumption]:
        """Yield that a machine is taken to answer for an address in no network of the link to which a route leads it."""
        for way in ways:
            departed, link = way.met.frame and way.met.frame.packet, way.interface
            if departed is None or self._topology.is_pod(link) or self._topology.is_point_to_point(link):
                continue
            query = way.met.query or lookup.Query(departed.source, departed.destination)
            route = self._scene.tables.decide(query).route
            if route and verdict.leads_astray(route, departed.destination, link, self._scene):
                to = fields.show(departed.destination)
                sentence = (
                    f"{to} is in no network of {link}, to which a route without a gateway leads. It is assumed to answer there."
                )
                yield replaced(ANSWER, sentence, subject=to)

    def _unseen_checks(self, ways: t.Iterable[Way]) -> t.Iterator[Assumption]:
        """Yield that a cloud is taken to pass packets whose source belongs to another interface than they leave by."""
        for way in (way for way in ways if way.met.caveat):
            sentence = (
                f"A packet leaves by {way.interface}, to which its source does not belong. The cloud is assumed to pass it."
            )
            yield replaced(SOURCE_CHECK, sentence, subject=way.interface)

    def _forget(self) -> None:
        """Forget connections and filled sets, so that the next packet is the first one."""
        self._far_ends.forget()
        if self._has_filled:
            build_backend.refill(self._run, self._filled_sets)
            self._has_filled = False

    def _send(self, packet: Packet, *macs: bytes) -> Observation:
        observation = self._far_ends.send(packet, *macs)
        if self._filled_sets:
            rules = (self._rule_texts.text(event) for event in observation.events if event.handle)
            self._has_filled |= any(map(blueprint.FILLING.search, rules))
        for solicitation in observation.solicitations:
            if self._topology.is_table_full(solicitation.link, solicitation.request.target):
                address = fields.show(solicitation.request.target)
                sentence = f"The table of neighbours is full, and {address} is not in it. It is assumed to get a place."
                self._assumed.append(replaced(FULL, sentence, subject=address))
        self._assumed += (replaced(STATE, f"{EARLIER}: {text}") for text in self._rule_texts.with_state(observation.events))
        sized = () if packet.length else self._rule_texts.with_size(observation.events)
        self._assumed += (replaced(STATE, f"{SIZED}: {text}") for text in sized)
        return observation

    def _judged(self, packet: Packet, macs: t.Sequence[bytes]) -> tuple[Observation, Way]:
        """Send a packet and judge its way, again if nothing shows where it is lost: a busy machine may have been late.

        Not if it is another one's turn.
        """
        observation = self._send(packet, *macs)
        way = verdict.judge(observation, self._scene)
        self._is_unsure = way.verdict in LOST and not way.culprit and not is_explained(observation)
        if self._is_unsure and not self._is_in_turn:
            self._forget()
            observation = self._send(packet, *macs)
            way = verdict.judge(observation, self._scene)
        return observation, way

    def _stopped_before_ipvs(self, packet: Packet, macs: t.Sequence[bytes]) -> tuple[Observation, Way] | None:
        """Return what the chains of INPUT stop before IPVS gets a packet to a virtual server; None if nothing is stopped."""
        family = "ip6" if packet.family == fields.IPV6 else "ip"
        if self._reaches_ipvs or fields.show(packet.destination) not in self._drawn.servers.get(family, ()):
            return None
        with build_backend.dormant(self._run, family, virtual_servers.TABLE):
            observation, way = self._judged(packet, macs)
        is_stopped = way.verdict in LOST and way.culprit is not None and isinstance(way.culprit.object, (ChainRule, Rule))
        self._reaches_ipvs = not is_stopped
        if not is_stopped:
            self._forget()
        return (observation, way) if is_stopped else None

    def _branches(self, first: Way) -> list[Branch]:
        """Return the ways that packets take by chance, with the share of each, the most frequent first; empty if there is one.

        The shares are those of the rules. If the rules do not show shares, they are those of the packets that were sent. The
        endpoints of a Service take turns: by chance, all of 200 would need a thousand packets.
        """
        key = _distinction(first)
        ways, counts, likely = {key: first}, {key: 1}, {key: self._probability}
        unsure = set[t.Any]()
        # The turns of two chains may keep step, so that some pairs are never met.
        self._is_in_turn = len(self._by_chance) == 1 and self._rule_texts.take_turns(*self._by_chance)
        since = 0
        while since < max(AGAIN, AGAIN_EACH * len(ways)) and sum(counts.values()) < MOST_PACKETS and sum(likely.values()) < ALL:
            way = self._sent()
            key = _distinction(way)
            since = since + 1 if key in ways else 0
            if self._is_in_turn and self._is_unsure and key not in unsure:
                unsure.add(key)
                continue
            ways.setdefault(key, way)
            counts[key] = counts.get(key, 0) + 1
            likely[key] = self._probability
        self._is_in_turn = False
        shares = (
            likely
            if ALL <= sum(likely.values()) <= 2 - ALL
            else {key: count / sum(counts.values()) for key, count in counts.items()}
        )
        branches = [Branch(shares[key], way) for key, way in ways.items()]
        return sorted(branches, key=lambda branch: -branch.share) if len(ways) > 1 else []

    def _note(self, sentence: str) -> None:
        self._assumed.append(replaced(STATED, sentence))

    def _look(self) -> None:
        """Read the rules and routes of the twin, which packets do not change."""
        self._reaches_ipvs = False
        self._resolved: dict[tuple[str, frame.Request], tuple[bytes | None, list[Event]]] = {}
        backend = Netlink()
        tables = Tables((rule for rule, _protocol in backend.rules()), (route for route, _protocol in backend.routes()))
        self._rule_texts = RuleTexts(self._twin.texts, self._run, self._twin.bypassed)
        may_fill = self._drawn.has_filled_sets or changes_backend.commands(self._changes)
        self._filled_sets = build_backend.filled_sets(self._run) if may_fill else {}
        hidden = {(*place, handle) for place, handle in self._twin.bypassed.items()}
        self._scene = Scene(
            self._topology,
            tables,
            kernel.setting,
            self._rule_texts.text,
            self._programs,
            hidden,
            self._rule_texts.element,
            self._filters,
            self._down_links() if self._filters else (),
            {table: each.program for table, each in self._stand_ins.items()},
        )

    def _reply(self, observation: Observation, way: Way) -> Way | None:
        """Return what became of the reply; None if there is none."""
        if way.met.frame is None:
            own = self._own_reply(observation) if way.verdict == DELIVERED else None
            return own and verdict.unreturned(own, observation.sent, way, self._scene)
        if way.verdict not in (*ARRIVED, UNKNOWN):
            return None
        departed = way.met.frame.packet
        link = self._topology.reply_link(departed, way.interface, self._scene.tables)
        answering = self._topology.pod_sides.departure(departed.replied(""), way.interface)
        if answering and answering.link:
            link = answering.link
        packet = sizes.divided(departed._replace(length=observation.sent.length).replied(link), self._topology)
        # A machine learns the MAC address of who asks for its own (net/ipv4/arp.c, net/ipv6/ndisc.c).
        asked = (each.request for each in observation.solicitations if each.is_answered and each.link == link)
        macs = self._frame_ends(packet, {request.sender: request.mac for request in asked})
        if isinstance(macs, Way):
            unsent = macs._replace(came_in_by=answering.link if answering else link)
            return verdict.behind_broken_link(unsent, packet, self._scene)
        destination = macs[1]
        source = way.met.frame.destination_mac if link == way.interface else self._topology.world_mac(link)
        reply = verdict.judge(self._send(packet, source, destination), self._scene)._replace(came_in_by=link)
        reply = verdict.behind_broken_link(reply, packet, self._scene)
        reply = verdict.misaddressed(reply, packet, (source, destination), self._scene)
        expected = observation.sent.replied("")
        if reply.met.frame and reply.met.frame.packet.flow != expected.flow:
            arrived = reply.met.frame.packet
            reason = f"The reply arrives as {arrived}, and {expected} is expected: its translation is not undone."
            unseen, why = verdict.unseen_on_bridge(link, reply.interface, packet, self._scene)
            reply = reply._replace(verdict=DROPPED, reason=f"{reason}{why}", culprit=Culprit.of(unseen) if unseen else None)
        reply = verdict.kept(reply, observation.sent, departed)
        reply = verdict.by_its_uplink(reply, observation.sent.interface, self._scene)
        reply = verdict.unreturned(reply, observation.sent, way, self._scene)
        reply = verdict.astray(reply, observation.sent.interface, self._scene)
        reply = verdict.at_its_pod(reply, observation.sent.interface, self._scene)
        return verdict.by_bare_link(reply, way, self._scene)

    def _frame_ends(self, packet: Packet, learned: t.Mapping[bytes, bytes] = MappingProxyType({})) -> tuple[bytes, bytes] | Way:
        """Return the ends of the frame by which a packet comes in; the way of a packet that its pod does not send.

        learned: MAC addresses of the node that its own requests show, by the addresses that ask.
        """
        departure, ends = self._topology.pod_sides.departure(packet, packet.interface), self._topology.macs(packet)
        if too_large := sizes.unsent(packet, self._topology):
            return verdict.lost(*too_large)
        if departure is None:
            self._assume_announced(packet, ends, learned)
            return ends
        lost = verdict.unsent(packet, departure, self._scene)
        # The question may say that it comes in by a link although the pod sends by another one.
        if lost or departure.link != packet.interface or not departure.gateway or self._topology.broken(packet.interface):
            return lost or ends
        if departure.is_permanent or departure.gateway in learned:
            return ends[0], departure.mac if departure.is_permanent else learned[departure.gateway]
        mac, events = self._resolve(packet.interface, frame.Request(departure.gateway, packet.source, ends[0]))
        if departure.mac and (mac is None or self._topology.is_own(mac) != self._topology.is_own(departure.mac)):
            sentence = f"The pod at {packet.interface} has learned {departure.mac.hex(':')} for {fields.show(departure.gateway)}."
            self._assumed.append(replaced(POD_NEIGHBOR, sentence, subject=packet.interface))
        mac = departure.mac or mac
        return (ends[0], mac) if mac else verdict.unresolved(packet, departure, events, self._scene)

    def _resolve(self, link: str, request: frame.Request) -> tuple[bytes | None, list[Event]]:
        if (link, request) not in self._resolved:
            own = self._topology.own_mac(link)
            self._resolved[link, request] = self._far_ends.resolve(link, request, own)
        return self._resolved[link, request]

    def _assume_announced(self, packet: Packet, ends: tuple[bytes, bytes], learned: t.Container[bytes]) -> None:
        """Note that another program may answer for an address of the node for which the kernel does not."""
        link = packet.interface
        setting = verdict.silencing(self._topology.bridge(link) or link, self._scene)
        targets = self._topology.targets(link, packet.destination)
        if (
            packet.family == fields.IPV6
            or setting is None
            or self._topology.is_pod(link)
            or any(map(learned.__contains__, targets))
        ):
            return
        back = self._scene.tables.decide(lookup.Query(packet.destination, packet.source)).route
        sender = next((hop.via for hop in back.hops if hop.via), packet.source) if back else packet.source
        requests = [frame.Request(target, sender, ends[0]) for target in targets]
        if requests and not any(self._resolve(link, request)[0] for request in requests):
            to = fields.show(targets[0])
            sentence = f"{setting} keeps the kernel from answering for {to} on {link}. Another program is assumed to answer."
            self._announced.append(replaced(ANNOUNCED, sentence, subject=to))

    def _own_reply(self, observation: Observation) -> Way:
        """Return what became of the node's answer to a packet that arrived at the node, although no program listens in a twin."""
        sent = observation.sent
        if not sent.interface:
            return Way(DELIVERED, "lo", None, "The node answers itself.", None)
        answers = [(link, departed) for link, departed in observation.frames if departed.packet.destination == sent.source]
        good = (answer for answer in answers if not self._topology.trouble(*answer))  # a bridge sends it to each of its ports
        if answers:
            link, departed = next(good, answers[0])
            trouble = self._topology.trouble(link, departed)
            if trouble:
                reason = f"The node's answer leaves by {link} and is lost: {trouble}."
                return verdict.left(DROPPED, link, departed, reason, verdict.misled(link, departed, self._scene))
            kind = DELIVERED if self._topology.is_pod(link) else FORWARDED
            caveat = verdict.caveat_of(departed.packet, link, self._scene)
            reply = verdict.left(kind, link, departed, f"The node's answer leaves by {link}.", caveat=caveat)
            reply = verdict.past_filters(departed.packet, reply, self._scene)
            reply = verdict.astray(reply, sent.interface, self._scene)
            return verdict.at_its_pod(reply, sent.interface, self._scene)
        drop = next((event for event in reversed(observation.events) if event.verdict in DROPS), None)
        if drop:
            text = verdict.quoted(drop, self._scene)
            reason = f"{drop.family} {drop.table} {drop.chain} drops the answer: {text}."
            return verdict.lost(reason, verdict.decider_of(drop, self._scene))
        back = sent.replied("")
        if sent.protocol != TCP:
            return verdict.lost("The node's answer was not seen: no program answers in a twin.", None, UNKNOWN)
        shown = fields.show(back.destination)
        # The kernel drops an answer without a trace. A packet that the node sends shows why.
        alike = verdict.judge(self._far_ends.send(back._replace(is_reply=False)), self._scene)
        if alike.verdict in LOST:
            return alike._replace(reason=f"The node's answer to {shown} did not leave. {alike.reason}")
        return verdict.lost(f"The node's answer to {shown} did not leave.", verdict.no_route(back.destination, self._scene))

    def _with_objects(self, sent: Packet, way: Way) -> Way:
        """Return the way with what the packet met besides its steps."""
        met, bridge = way.met, self._topology.bridge(sent.interface)
        links = {*met.links, *filter(None, (sent.interface, way.interface))}
        packets = (sent, met.query, met.frame and met.frame.packet)
        addresses = {address for each in packets if each for address in (each.source, each.destination) if address}
        met = met._replace(
            bridge=bridge,
            links=(*sorted(links | {name for link in links if (name := self._topology.bridge(link))}),),
            addresses=(*sorted(map(fields.show, addresses)),),
            searched=(*met.searched, *(self._table_names[number] for number in met.searched if number in self._table_names)),
            sets=_of_chains(self._rule_texts.matching_sets(), met.chains),
            records=_of_chains(self._records, met.chains),
            may_be_for_service=path.may_be_for_service(sent, way),
            origin=self._topology.origin(met.frame.packet.source, self._scene.tables)[0] if met.frame else "",
        )
        return way._replace(came_in_by=sent.interface, met=met)

    def _several_hops(self, ways: t.Iterable[Way]) -> t.Iterator[str]:
        """Yield a sentence about each route of several next hops by which a packet left."""
        routes = (self._scene.tables.decide(way.met.query).route for way in ways if way.met.query and way.met.frame)
        for route in routes:
            if route and len(route.hops) > 1:
                yield f"{MULTIPATH}: {route}"

    def _pod_side(self, link: str) -> str:
        """Return the id of the fact by which of its links a pod answers; empty for a link to no pod."""
        family = "ipv6" if self._packet.family == fields.IPV6 else "ipv4"
        end = self._topology.links[link].peer if self._topology.is_pod(link) else None
        return open_facts.pod_side(link, end.addresses, family).fact if end else ""

    def _is_virtual(self, address: bytes) -> bool:
        """Return whether a link for the addresses of virtual servers has the address."""
        return self._topology.owner(address).startswith("kube-ipvs")

    def _unknown_filters(self, way: Way) -> dict[str, int]:
        """Return the links on the path whose reverse-path filter is not in the snapshot, with the value in the twin."""
        settings, names = self._snapshot.settings, [each.came_in_by for each in way.both if each.came_in_by]
        if self._packet.family != fields.IPV4 or "rp_filter" in settings.of_link("ipv4", "all"):
            return {}
        unknown = [name for name in dict.fromkeys(names) if "rp_filter" not in settings.of_link("ipv4", name)]
        return {name: kernel.setting(f"net/ipv4/conf/{name}/rp_filter") or 0 for name in unknown}

    def _unread_filters(self, first: Way) -> t.Iterator[Assumption]:
        for way in first.both:
            packet = self._packet._replace(interface=way.came_in_by)
            for direction, decision in verdict.of_filters(packet, way, self._scene):
                if decision.unread:
                    sentence = f"A filter of traffic control may decide: {decision.unread}."
                    yield replaced(FILTER, sentence, subject=f"{decision.unread.link} {direction}")

    def _unknown(self, way: Way) -> list[str]:
        unread = [
            f"{entry.subset} {entry.object}: {entry.reason}".replace("  ", " ")
            for entry in self._snapshot.unread
            if entry.subset not in SOFTWARE  # which no packet meets
        ]
        return [*(each.reason for each in way.both if each.verdict == UNKNOWN), *unread]


def _of_chains(names: t.Mapping[str, t.Iterable[str]], chains: t.Iterable[str]) -> tuple[str, ...]:
    return (*dict.fromkeys(name for chain in chains for name in names.get(chain, ())),)


def _distinction(way: Way) -> tuple[t.Any, ...]:
    """Return what distinguishes one packet's way from another's."""
    left = way.met.frame.packet if way.met.frame else None
    to = (left.destination, left.destination_port) if left else None
    decider = way.culprit.object if way.culprit else None
    return way.verdict, way.interface, to, decider, way.reply_verdict
