# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what was observed of a packet to a verdict: what became of it, why, and which object decided."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._core import fields
from .._core.fields import IPV6
from .._routing.route import ANYCAST, BROADCAST, LOCAL, Route
from .._routing.rt_names import MAIN
from .._routing.rule import LOOKUP, Rule, protocol_name
from .._ruleset import iptables_save, nft_text
from .._snapshot.settings import BRIDGED
from .._snapshot.values import Program
from .._twin import legacy_half, traffic_filters
from .._twin.blueprint import LOOPBACK, OWN_TABLE
from .._twin.virtual_servers import TABLE as IPVS_TABLE
from . import answer, sizes
from .answer import DELIVERED, DROPPED, FORWARDED, LOST, REJECTED, UNKNOWN, Caveat, Culprit, Met, Step, Way
from .culprit import (
    BRIDGE,
    DOWN,
    EXPIRED,
    LACKING,
    LINK_LOCAL,
    NO_HAIRPIN,
    NONE,
    Address,
    ChainRule,
    Link,
    Neighbor,
    NoRoute,
    Object,
    Programs,
    Setting,
    TrafficFilter,
    VirtualServer,
    is_blocking,
)
from .frame import Frame, Request, is_group
from .kernel_events import DROPS, QUEUE, TELLING, Event, Observation, drop_of, drop_of_request, ends, is_ip, of_packet, packet_of
from .lookup import Decision, Query, Tables, shown_rule
from .packet import ICMP, ICMPV6, TCP, Packet
from .topology import Departure, Topology

OWN = (LOCAL, BROADCAST, ANYCAST)  # types of routes
UNTRACKING = ("ct", "ct zone", "notrack")  # kinds of statements by which a reply may be of another connection
TRANSLATED = "continue"  # of the rules that stand for a BPF program, the verdict of those that translate
ROUTING = ("routing", "rerouting")  # chains of OWN_TABLE behind the translation of destinations
KERNELS_PRIORITIES = (0, 32766, 32767)  # of the policy rules that each network namespace has
Explanation = tuple[str, Object]  # why a packet is lost, as sentences, and the object that decided
Settings = t.Callable[[str], "int | None"]  # the value of a setting in the twin, by its path below /proc/sys


class Scene(t.NamedTuple):
    """The facts that a verdict is based on. quote: the text of an event's rule. programs: BPF programs by link and direction.

    filters: of traffic control, by link and direction. down: the links of the twin that are down.
    hidden: family, table and name of chains, with the handles of rules that only the twin has. element: that of a map in an
    event's table, by the name of the map and the key. translating: BPF programs by the tables that the twin has for them.
    """

    topology: Topology
    tables: Tables
    settings: Settings
    quote: t.Callable[[Event], str]
    programs: t.Mapping[tuple[str, str], list[str]] = {}
    hidden: t.Collection[tuple[str, str, str, int]] = ()
    element: t.Callable[[Event, str, str], str] = lambda _event, _name, _key: ""
    filters: t.Mapping[tuple[str, str], list[traffic_filters.Filter]] = {}
    down: t.Collection[str] = ()
    translating: t.Mapping[str, Program] = {}


def judge(observation: Observation, scene: Scene) -> Way:
    packet = observation.sent
    every = of_packet(observation)
    routed = next((event for event in reversed(every) if event.chain in ROUTING and event.table == OWN_TABLE), None)
    query = _query(packet, scene.topology.bridge(packet.interface) or packet.interface, routed)
    events = [
        event
        for event in every
        if event.table != OWN_TABLE
        and (event.family, event.table, event.chain, event.handle) not in scene.hidden
        and (event.table not in scene.translating or event.verdict == TRANSLATED)
    ]
    frames = [arrival for arrival in observation.frames if _is_of(packet, arrival[1])]
    good = [(link, frame) for link, frame in frames if not scene.topology.trouble(link, frame)]
    rejected = next((frame.reject for _link, frame in observation.frames if frame.reject), "")
    departure = next(iter(good or frames), None)
    steps = _steps(observation, events, query, scene, departure[1] if departure else None)
    if departure:
        link, frame = departure
        steps.append(Step(answer.OUT, f"link {link}", str(frame.packet)))
        trouble = "" if good else scene.topology.trouble(link, frame)
        way = _departed(packet, link, frame, trouble, _diverted(events, scene), scene)
    else:
        way = _stopped(observation, events, query, rejected, scene)
    way = _unusable(query, scene) or way
    queries = (query, query.answered, _validating(query, scene), *([] if departure else [query.refused]))
    lookups = [scene.tables.decide(each) for each in queries if each.destination]
    met = way.met._replace(
        query=query,
        route=lookups[0].route,
        rules=tuple(map(_added_rule, lookups[:2])),
        links=tuple(link for decision in lookups if decision.route for link in sorted(decision.route.links)),
        searched=tuple(str(table) for decision in lookups for table in _searched(decision)),
        is_unanswered=any(not solicitation.is_answered for solicitation in observation.solicitations),
        is_unresolved=_drops_resolution(observation, every),
        **chains_met(events),
    )
    way = past_filters(packet, _with_queue(way._replace(steps=tuple(steps), met=met)), scene)
    return with_step(_with_programs(packet, _sent_by_rule(packet, way), scene))


def _sent_by_rule(packet: Packet, way: Way) -> Way:
    """Return the way, with the rule that sends a packet to an address that does not answer."""
    is_silent = way.culprit is not None and isinstance(way.culprit.object, Neighbor) and way.verdict in LOST
    is_translated = way.met.query is not None and way.met.query.destination != packet.destination
    step = next((step for step in reversed(way.steps) if step.packet), None) if is_silent and is_translated else None
    return way._replace(reason=f"{way.reason} The rule {step.text} of {step.where} sends it there.") if step else way


def _unusable(query: Query, scene: Scene) -> Way | None:
    """Return the way of a packet to an address, or from one of the node, that the kernel does not use; None for others."""
    for address in (query.destination, query.source if query.iif == LOOPBACK else b""):
        owner, flag = scene.topology.unusable(address)
        if owner:
            shown = fields.show(address)
            reason = f"The node does not use its address {shown} on {owner}, which is {flag}: another machine may have it."
            return lost(reason, Address(shown, flag, owner))
    return None


def with_step(way: Way) -> Way:
    """Return the way whose culprit has the number of its step."""
    if way.culprit is None:
        return way
    decider = way.culprit.object
    decider = decider._replace(mac="") if isinstance(decider, Neighbor) else decider  # a step shows who was asked for
    number = next((place for place in reversed(range(len(way.steps))) if way.steps[place].object == decider), None)
    return way._replace(culprit=way.culprit._replace(step=number))


def chains_met(events: t.Iterable[Event]) -> dict[str, t.Any]:
    """Return the fields of a Met that tell the chains of the events."""
    chains, ended, jumps = dict[str, None](), dict[str, None](), dict[tuple[str, str], None]()
    for event in events:
        table, (word, _blank, target) = f"{event.family} {event.table}", event.verdict.partition(" ")
        place = f"{table} {event.chain}"
        if event.handle or word == "policy":
            chains[place] = None
        if word == "policy":
            ended[place] = None
        if event.handle and word in ("jump", "goto"):
            jumps[place, f"{table} {target}"] = None
            chains[f"{table} {target}"] = None
    return {"chains": (*chains,), "ended": (*ended,), "jumps": (*jumps,)}


def lost(reason: str, decider: Object | None, verdict: str = DROPPED) -> Way:
    """Return the way of a packet that did not leave."""
    return Way(verdict, "", None, reason, Culprit.of(decider) if decider else None)


def left(verdict: str, link: str, frame: Frame, reason: str, decider: Object | None = None, caveat: Caveat | None = None) -> Way:
    """Return the way of a packet that left by a link."""
    reason = f"{reason} {caveat.sentence}" if caveat else reason
    culprit = Culprit.of(decider) if decider else None
    return Way(verdict, link, None, reason, culprit, met=Met(frame, caveat=caveat))


def _added_rule(decision: Decision) -> Rule | None:
    """Return the rule that decided; None if it is one of the kernel."""
    return decision.rule if decision.rule and decision.rule.priority not in KERNELS_PRIORITIES else None


def _searched(decision: Decision) -> tuple[int, ...]:
    """Return the numbers of the routing tables that were searched, the one with the route last."""
    return (*decision.tables, decision.rule.table) if decision.rule and decision.route else decision.tables


def _departed(packet: Packet, link: str, frame: Frame, trouble: str, diverted: Explanation | None, scene: Scene) -> Way:
    owner = scene.topology.owner(frame.packet.destination)
    if diverted and (trouble or owner):
        why = trouble or f"the node itself has {fields.show(frame.packet.destination)}, on {owner}"
        reason = f"The packet leaves by {link} and is lost: {why}. {diverted[0]}"
        return left(DROPPED, link, frame, reason, diverted[1])
    if trouble and _is_by_pod(link, frame.packet, scene):
        reason = (
            f"The packet leaves by {link} to the pod there, which is the gateway of its route. Whether the pod forwards is open."
        )
        return left(UNKNOWN, link, frame, reason)
    if trouble:
        return left(DROPPED, link, frame, f"The packet leaves by {link} and is lost: {trouble}.", misled(link, frame, scene))
    is_pod = scene.topology.is_pod(link)
    change = "" if frame.packet.flow == packet.flow else f" as {frame.packet}"
    route = scene.tables.decide(Query(packet.source, frame.packet.destination, packet.interface)).route
    by = f", by {route}" if route and route.dst[1] and link not in route.links else ""  # of a bridge, it names the port
    by = f", by which it came in, by {route}" if route and link == packet.interface else by
    reason = f"The packet leaves by {link}{change}{', to the pod there' if is_pod else ''}{by}."
    return left(DELIVERED if is_pod else FORWARDED, link, frame, reason, caveat=caveat_of(frame.packet, link, scene))


def _is_by_pod(link: str, packet: Packet, scene: Scene) -> bool:
    """Return whether the route of a packet names an address of the pod at a link as the gateway."""
    route = scene.tables.decide(Query(packet.source, packet.destination)).route
    return route is not None and any(hop.via and scene.topology.pod_sides.has(link, hop.via) for hop in route.hops)


def caveat_of(packet: Packet, link: str, scene: Scene) -> Caveat | None:
    """Return why a packet that left by a link may be lost beyond it; None if there is no such reason."""
    owner, evidence = scene.topology.foreign_source(packet, link, scene.tables)
    sentence = f"Its source {evidence}: a cloud that checks the sources of an interface would drop it."
    return Caveat(owner, sentence) if owner else None


def at_its_pod(reply: Way, link: str, scene: Scene) -> Way:
    """Return the reply, lost if it leaves the node although the packet came from a pod on it. link: where the packet came in."""
    if not is_away_from_pod(reply, link, scene) or reply.met.frame is None or is_by_design(reply.met.frame.packet, link, scene):
        return reply
    reason = f"The packet is from the pod at {link}, and its reply leaves the node by {reply.interface}."
    decision = scene.tables.decide(reply.met.query or Query(reply.met.frame.packet.source, reply.met.frame.packet.destination))
    misleading = _added_rule(decision) or misled(reply.interface, reply.met.frame, scene)
    decider = _unless_default(misleading, reply.met.frame.packet.destination, scene)
    reason += _sibling(decider, reply.met.frame.packet.destination, scene)
    return with_step(reply._replace(verdict=DROPPED, reason=reason, culprit=Culprit.of(decider)))


def _sibling(decider: Object, pod: bytes, scene: Scene) -> str:
    """Return that a pod lacks a rule by which packets for another pod pass the one that decided; empty for no such rule."""
    before = [rule for rule in scene.tables.rules if isinstance(decider, Rule) and rule.priority < decider.priority]
    alone = (rule for rule in before if (rule.table, rule.action, rule.dst[1]) == (MAIN, LOOKUP, 8 * len(pod)))
    other = next((rule for rule in alone if len(rule.dst[0]) == len(pod) and rule.dst[0] != pod), None)
    return f" Another pod has the rule {other} before it, and there is none to {fields.show(pod)}." if other else ""


def is_away_from_pod(reply: Way, link: str, scene: Scene) -> bool:
    """Return whether the reply to a pod's packet leaves the node. link: where the packet came in."""
    return reply.verdict == FORWARDED and reply.met.frame is not None and scene.topology.is_pod(link)


def is_by_design(packet: Packet, link: str, scene: Scene) -> bool:
    """Return whether a packet for a pod may leave the node on purpose, as where a cloud's network is to see it: the packets of
    the pod's link have a rule of their own, or a table that the packet does not meet has the route to the pod.
    """
    tables = {rule.table for rule in scene.tables.rules if rule.iif}
    routes = (route for table in tables for route in scene.tables.of_table(packet.family, table))
    is_routed = any(link in route.links and route.dst == (packet.destination, 8 * len(packet.destination)) for route in routes)
    return is_routed or any(rule.iif == link and rule.action == LOOKUP for rule in scene.tables.rules)


def _unless_default(decider: Object, destination: bytes, scene: Scene) -> Object:
    """Return what leads a packet for a pod out of the node: where that is a default route, a route to the pod is missing."""
    is_default = isinstance(decider, Route) and not decider.dst[1] and scene.topology.pod_link(destination)
    return no_route(destination, scene) if is_default else decider


def no_route(destination: bytes, scene: Scene, source: bytes = b"") -> NoRoute:
    """Return the lack of a route to an address, or of that to the network of a link that has the address."""
    sender = fields.show(source) if source else ""
    return NoRoute(fields.show(destination), sender, network=scene.topology.network_of(destination))


def behind_broken_link(way: Way, sent: Packet, scene: Scene) -> Way:
    """Return the way, lost by the link of the pod for which the packet is if that link passes nothing."""
    to = way.met.query.destination if way.met.query else sent.destination
    link = scene.topology.pod_link(to)
    broken = scene.topology.broken(link) if link else None
    if broken is None or way.verdict not in LOST:
        return way
    reason = f"{broken.name}, behind which {fields.show(to)} is, {broken.words}."
    return way._replace(reason=reason, culprit=Culprit.of(broken))


def unseen_on_bridge(link: str, left_by: str, packet: Packet, scene: Scene) -> tuple[Setting | None, str]:
    """Return the setting by which a frame passed a bridge without any rule of IP, and a sentence; None if it passed none."""
    topology = scene.topology
    key = BRIDGED["ipv6" if packet.family == IPV6 else "ipv4"].replace(".", "/")
    if not topology.bridge(link) or topology.bridge(link) != topology.bridge(left_by) or scene.settings(key):
        return None, ""
    sentence = f" Rules do not see what passes the bridge {topology.bridge(link)} (of the module br_netfilter)."
    return Setting(key, 0), sentence


def astray(reply: Way, link: str, scene: Scene) -> Way:
    """Return the reply, lost if it leaves by a link behind which its destination is not: a neighbour where the packet came in.

    link: by which the packet came in.
    """
    topology, frame = scene.topology, reply.met.frame
    if frame is None or reply.verdict != FORWARDED or not topology.is_away(frame.packet.destination, link, reply.interface):
        return reply
    decision = scene.tables.decide(reply.met.query or Query(frame.packet.source, frame.packet.destination))
    decider = _added_rule(decision) or decision.route
    is_by_gateway = decision.route is not None and any(hop.via for hop in decision.route.hops)
    if decider is None or (is_by_gateway and not topology.is_point_to_point(reply.interface)):
        return reply  # the gateway may send it on
    shown = fields.show(frame.packet.destination)
    reason = f"{shown} is a neighbour on {link}, and the reply leaves by {reply.interface}, behind which it is not: {decider}."
    return with_step(reply._replace(verdict=DROPPED, reason=reason, culprit=Culprit.of(decider)))


def unreturned(reply: Way, sent: Packet, way: Way, scene: Scene) -> Way:
    """Return the reply, lost if what the packet's way shows keeps it from its sender.

    sent: as it came in. way: of the packet.
    """
    explained = _own_source(sent, scene) if sent.interface else None
    if way.met.frame and not scene.topology.is_pod(way.interface):
        departed = way.met.frame.packet
        explained = explained or _linklocal_source(departed, way, scene) or _returning(sent, departed, way, scene)
    elif way.met.frame:
        explained = explained or _source_of_pod(way.met.frame.packet, way, scene)
    if explained is None:
        return reply
    return with_step(reply._replace(verdict=DROPPED, reason=explained[0], culprit=Culprit.of(explained[1])))


def by_bare_link(reply: Way, way: Way, scene: Scene) -> Way:
    """Return the reply, whose loss by a rule, a route or nothing follows from the packet's link if that has no address."""
    is_misled = reply.verdict in LOST and (reply.culprit is None or isinstance(reply.culprit.object, (Rule, Route)))
    bare = _bare(way.met.frame.packet, way, scene) if way.met.frame and is_misled else None
    if bare is None:
        return reply
    reason = f"{reply.reason} The packet left with an address of another link: {bare}."
    return reply._replace(reason=reason, culprit=Culprit.of(bare))


def _own_source(sent: Packet, scene: Scene) -> Explanation | None:
    owner, back = scene.topology.owner(sent.source), scene.tables.decide(Query(sent.destination, sent.source)).route
    if not owner or back is None or back.type != LOCAL:  # a change may have taken the address from the node
        return None
    address = Address(fields.show(sent.source), owner=owner)
    return f"{_of_node(address)}: what answers it stays on the node.", address


def _source_of_pod(departed: Packet, way: Way, scene: Scene) -> Explanation | None:
    """Explain a packet that a pod gets with its own address as the source, as from a Service whose client is its endpoint."""
    is_own = scene.topology.pod_sides.has(way.interface, departed.source)
    # Behind the only port of a bridge that is known may be all pods.
    if not (departed.source == departed.destination if is_own is None else is_own):
        return None
    translation, source = _translating_step(way, fields.show(departed.destination)), fields.show(departed.source)
    decider = translation.object if translation and translation.object else Address(source)
    reason = f"The pod at {way.interface} gets its own address {source} as the source, so that its answer stays in the pod"
    return f"{reason}: nothing but the destination was translated, by {decider}.", decider


def _of_node(address: Address) -> str:
    return f"The source {address.address} is an address of the node itself, on {address.owner}"


def _linklocal_source(departed: Packet, way: Way, scene: Scene) -> Explanation | None:
    """Explain a packet that leaves with a source to which no router sends an answer (RFC 3927, section 2.7)."""
    source, to = map(ipaddress.ip_address, (departed.source, departed.destination))
    is_near = to.is_link_local or scene.topology.is_of_network(departed.destination, way.interface)
    if not source.is_link_local or is_near or scene.topology.is_point_to_point(way.interface):
        return None
    bare = _bare(departed, way, scene)
    if bare:
        return f"The packet leaves with the link-local source {source}, to which no router sends an answer: {bare}.", bare
    translation = _translating_step(way, source)
    by = f" {translation.object} gives it this source." if translation else ""
    reason = f"The packet leaves by {way.interface} with the link-local source {source}, to which no router sends an answer.{by}"
    return reason, (translation and translation.object) or Address(str(source), LINK_LOCAL)


def _bare(departed: Packet, way: Way, scene: Scene) -> Address | None:
    """Return the lack of an address of the link by which a packet left with one of another link of the node."""
    is_ipv6, owner = departed.family == IPV6, scene.topology.owner(departed.source)
    is_elsewhere = owner not in ("", LOOPBACK, way.interface) or fields.is_link_local(departed.source)
    if not is_elsewhere or not way.interface or scene.topology.has_address(way.interface, is_ipv6):
        return None
    return Address("ipv6" if is_ipv6 else "ipv4", NONE, way.interface)


def _translating_step(way: Way, end: object) -> Step | None:
    return next((step for step in reversed(way.steps) if step.packet and step.object and str(end) in step.packet), None)


def _returning(sent: Packet, departed: Packet, way: Way, scene: Scene) -> Explanation | None:
    """Explain a packet that leaves by the link by which it came in: its answer passes the node by, or it comes again."""
    near = (scene.topology.bridge(name) or name for name in (sent.interface, way.interface))
    if not sent.interface or len({*near}) > 1 or departed.source != sent.source:
        return None
    if departed.destination != sent.destination:
        translation, to = _translating_step(way, fields.show(departed.destination)), fields.show(departed.destination)
        reason = f"{to} answers {fields.show(sent.source)} directly, and not by the node, which translated the destination alone"
        decider = translation.object if translation and translation.object else Address(fields.show(sent.source))
        return f"{reason}: {decider}.", decider
    ahead = scene.tables.decide(way.met.query).route if way.met.query else None
    back = scene.tables.decide(Query(departed.destination, departed.source)).route
    hops = [{hop.via for hop in route.hops} if route else {b""} for route in (ahead, back)]
    gateway = next(iter(hops[0]), b"")
    is_near = bool(gateway) and scene.topology.is_of_network(gateway, way.interface)  # so that the link's networks are known
    if ahead is None or hops[0] != hops[1] or len(hops[0]) > 1 or not is_near:
        return None
    decider = _unless_default(ahead, departed.destination, scene)
    return f"The packet goes back to {fields.show(gateway)}, from which it came in, and comes again and again: {ahead}.", decider


def unsent(sent: Packet, departure: Departure, scene: Scene) -> Way | None:
    """Return what becomes of a packet that a pod does not send to the node; None for one that it sends."""
    to, verb = fields.show(sent.destination), "answer" if sent.is_reply else "send"
    if is_blocking(departure.route):
        return lost(f"A route of the pod stops packets to {to}: {departure.route}.", departure.route)
    if not departure.interface and (broken := scene.topology.broken(sent.interface)):
        return lost(f"{broken.name}, behind which {fields.show(sent.source)} is, {broken.words}.", broken)
    if sent.interface and _lacks(sent, scene):
        address = Address(fields.show(sent.source), LACKING, sent.interface)
        return lost(
            f"The pod at {sent.interface} does not have the address {address.address}, so that it does not send.", address
        )
    if not departure.interface:
        lacking = f"route to {to}" if departure.has_default else f"default route and none to {to}"
        return lost(f"The pod has no {lacking}, so that it does not {verb}.", NoRoute(to, place=" in the pod"))
    if departure.interface == LOOPBACK and departure.route and departure.route.type != LOCAL:
        return lost(f"A route of the pod keeps packets to {to} in it: {departure.route}.", departure.route)
    if not departure.link and sent.is_reply:
        reason = f"The pod answers {to} by its interface {departure.interface}, which does not lead to the node."
        return lost(reason, None, UNKNOWN)
    return None


def _lacks(sent: Packet, scene: Scene) -> bool:
    """Return whether a pod lacks the source of its packet, and forwards it for no other machine: the node has a route to the
    source alone, or the pod has no address.
    """
    sides, link = scene.topology.pod_sides, sent.interface
    back = scene.tables.decide(Query(sent.destination, sent.source)).route
    is_alone = back is not None and link in back.links and back.dst[1] == 8 * len(sent.source)
    return sides.has(link, sent.source) is False and (is_alone or not sides.has_any(link, sent.source))


def unresolved(sent: Packet, departure: Departure, events: t.Iterable[Event], scene: Scene) -> Way:
    """Return what becomes of a packet whose pod gets no MAC address of its next hop. events: of its requests."""
    link, to = sent.interface, fields.show(departure.gateway)
    whose = "its gateway " if departure.gateway != sent.destination else ""
    drop = next((event for event in events if event.verdict in DROPS), None)
    request = Request(departure.gateway, sent.source, scene.topology.macs(sent)[0])
    misled = _misled_answer(scene.topology.pod_link(departure.gateway), request, scene)
    if misled:
        reason, neighbor = misled
        return lost(f"{reason}, when the pod at {link} asks for {to}.", neighbor)
    why, decider = _silence(sent, departure.gateway, scene)
    if drop:
        why, decider = f"{drop.family} {drop.table} {drop.chain} drops them: {quoted(drop, scene)}", decider_of(drop, scene)
    silent = lost(f"The pod at {link} asks for the MAC address of {whose}{to}, and nothing answers: {why}.", decider)
    return silent._replace(met=Met(is_unresolved=True))


def misaddressed(way: Way, sent: Packet, macs: t.Sequence[bytes], scene: Scene) -> Way:
    """Return the way, with a pod's neighbour as the culprit if the pod sends to a MAC address that the node does not know."""
    departure = scene.topology.pod_sides.departure(sent, sent.interface) if sent.interface else None
    if departure is None or way.culprit or way.verdict != DROPPED or scene.topology.is_mac_known(macs[1]):
        return way
    neighbor = Neighbor(sent.interface, fields.show(departure.gateway), macs[1].hex(":"))
    reason = f"The pod at {sent.interface} sends to {neighbor.mac}, its neighbour for {neighbor.address}. No interface has it."
    return way._replace(reason=reason, culprit=Culprit.of(neighbor))


def _silence(sent: Packet, target: bytes, scene: Scene) -> Explanation:
    """Explain why a node does not answer a pod's request for a MAC address (net/ipv4/arp.c, arp_process)."""
    link = scene.topology.bridge(sent.interface) or sent.interface
    shown, owner = fields.show(target), scene.topology.owner(target)
    silent = Neighbor(link, shown)
    if sent.family == IPV6:
        disabled = _disabled(link, scene)
        why = f"{shown} is {f'an address of {owner}' if owner else 'no address of the node'}"
        return (f"{why}, and {disabled}", disabled) if disabled else (why, silent)
    back, strict = scene.tables.decide(Query(target, sent.source)).route, _stricter("net/ipv4/conf/{}/rp_filter", link, scene)
    if (strict.value == 1 and link not in (back.links if back else ())) or (strict.value and back is None):
        return f"the way back to {fields.show(sent.source)} is {_leads(back)}, and {strict} drops the request", strict
    if owner:
        setting = silencing(link, scene)
        return (f"{setting} keeps the node from it", setting) if setting else (f"{shown} is an address of {owner}", silent)
    decision = scene.tables.decide(Query(sent.source, target, link))
    route, blocked = decision.route, _blocked(decision)
    proxy = _stricter("net/ipv4/conf/{}/proxy_arp", link, scene)
    if blocked:
        return (
            f"{shown} is no address of the node, and proxy ARP does not answer, as this stops packets to it: {blocked}",
            blocked,
        )
    without = _without_default(sent.family, scene) if route is None and proxy.value else None
    if without:
        return (
            f"{shown} is no address of the node, and without a route to it proxy ARP does not answer. {without[0][:-1]}",
            without[1],
        )
    if route is None:
        why = f"{shown} is no address of the node, and {'without a route to it ' if proxy.value else ''}proxy ARP does not answer"
        return (why, NoRoute(shown, place=f", for proxy ARP on {link}")) if proxy.value else (why, proxy)
    forwarding = _forwarding(link, sent.family)
    if not scene.settings(forwarding.path):
        return f"{shown} is no address of the node, and proxy ARP answers only where the node forwards", forwarding
    if link in route.links:
        return f"proxy ARP answers for addresses to which a route leads by another link, and this one leads back: {route}", route
    if proxy.value:
        return f"proxy ARP answers for {shown}, and only a rule of an arp table stops such a request", silent
    return f"{shown} is no address of the node, and proxy ARP is off", proxy


def _disabled(link: str, scene: Scene) -> Setting | None:
    """Return the setting by which a link has no address of IPv6."""
    setting = Setting(f"net/ipv6/conf/{link}/disable_ipv6", 1)
    return setting if scene.settings(setting.path) else None


def silencing(link: str, scene: Scene) -> Setting | None:
    """Return the setting by which the node may leave a request for one of its addresses of IPv4 unanswered; None for none."""
    settings = (_stricter(f"net/ipv4/conf/{{}}/{name}", link, scene) for name in ("arp_ignore", "arp_filter"))
    return next((setting for setting in settings if setting.value), None)


def _stricter(path: str, link: str, scene: Scene) -> Setting:
    """Return the one of a link's setting and of that of all links that counts, which is the larger one."""
    settings = [Setting(path.format(name), scene.settings(path.format(name)) or 0) for name in (link, "all")]
    return max(settings, key=lambda setting: setting.value)


def kept(reply: Way, sent: Packet, departed: Packet) -> Way:
    """Return the reply, lost if the node takes it for its own although it forwarded the packet as one of its own."""
    is_kept = reply.verdict == DELIVERED and not reply.met.frame and bool(sent.interface)
    if not is_kept or departed.source == sent.source or departed.replied("") == sent.replied(""):
        return reply
    step = next((step for step in reply.steps if isinstance(step.object, ChainRule) and _is_untracking(step.object)), None)
    why = f" The rule {step.text} of {step.where} keeps the node from knowing its connection." if step else ""
    reason = f"The reply arrives at the node itself, and {sent.replied('')} is expected: its translation is not undone.{why}"
    decider = step.object if step else None
    return with_step(reply._replace(verdict=DROPPED, reason=reason, culprit=Culprit.of(decider) if decider else None))


def _is_untracking(rule: ChainRule) -> bool:
    read = iptables_save.rule(rule.family, rule.line) if rule.is_of_iptables else nft_text.rule(rule.chain, rule.line)
    return any(statement.kind in UNTRACKING for statement in read.statements)


def by_its_uplink(reply: Way, link: str, scene: Scene) -> Way:
    """Return the reply, with a caveat if the cloud sends packets for its source to another uplink than it leaves by.

    link: by which the packet came in.
    """
    topology, frame = scene.topology, reply.met.frame
    if not frame or not topology.is_elsewhere(frame.packet.source, link, reply.interface, scene.tables):
        return reply
    caveat = Caveat(
        link, f"Packets to its source come in by {link}: a cloud that checks the sources of an interface would drop it."
    )
    return reply._replace(reason=f"{reply.reason} {caveat.sentence}", met=reply.met._replace(caveat=caveat))


def misled(link: str, frame: Frame, scene: Scene) -> Object:
    """Return the object that sent a frame to an address whose owner does not take it: a neighbour, or the route."""
    destination = frame.packet.destination
    mac = scene.topology.known_macs.get((link, destination))
    if mac == frame.destination_mac:
        return Neighbor(link, fields.show(destination), mac.hex(":"))
    decision = scene.tables.decide(Query(frame.packet.source, destination))
    return decision.route if decision.route and link in decision.route.links else Link(link)


def _is_of(packet: Packet, frame: Frame) -> bool:
    """Return whether a frame is the packet, perhaps translated, and not an answer to it.

    A pod's packet to a node port that comes back to the pod may have the addresses of an answer, but has other ports.
    """
    is_told = packet.protocol in (TCP, ICMP, ICMPV6)  # other protocols do not distinguish a reply from a request
    same_kind = frame.packet.protocol == packet.protocol and (not is_told or frame.packet.is_reply == packet.is_reply)
    left = frame.packet
    flow = left.source, left.source_port, left.destination, left.destination_port
    is_answer = flow == (packet.destination, packet.destination_port, packet.source, packet.source_port)
    return not frame.reject and same_kind and not (is_answer and packet.source != packet.destination)


def _steps(observation: Observation, events: t.Sequence[Event], query: Query, scene: Scene, departed: Frame | None) -> list[Step]:
    packet = observation.sent
    start = f"link {packet.interface}" if packet.interface else "the node"
    steps, is_routed = [Step(answer.IN, start, f"{packet}{packet.size}")], False
    for event in events:
        if event.oif and not is_routed and packet.interface:
            is_routed = True
            steps += _routed(query, scene)
        if event.handle or event.verdict.startswith("policy"):
            steps.append(_of_chain(event, scene, packet, departed))
    if not is_routed:
        steps += _routed(query, scene)
    for solicitation in observation.solicitations:
        target, state = fields.show(solicitation.request.target), "" if solicitation.is_answered else "no answer"
        neighbor = Neighbor(solicitation.link, target)
        steps.append(Step(answer.NEIGHBOR, f"link {solicitation.link}", target, state, object=neighbor))
    telling = {name: value for name, value in observation.counters.items() if name.endswith(TELLING)}
    return steps + [Step(answer.COUNTER, name, f"+{value}") for name, value in sorted(telling.items())]


def _of_chain(event: Event, scene: Scene, packet: Packet, departed: Frame | None) -> Step:
    """Return the step of a rule, or of the end of a chain."""
    kind, decider = answer.RULE if event.handle else answer.POLICY, None
    if event.handle or event.verdict in DROPS:
        decider = decider_of(event, scene)
    text = "" if not event.handle else decider.line if isinstance(decider, ChainRule) else str(decider)
    if isinstance(decider, Programs):  # the kernel reports the packet as the first rule that it matches has left it
        translated = str(packet_of((event.network, event.transport), packet))
        return Step(kind, f"link {scene.translating[event.table].link}", text, event.verdict, translated, decider)
    translated = _translation(event, text, packet, departed)
    return Step(kind, f"{event.family} {event.table} {event.chain}", text, event.verdict, translated, decider)


def decider_of(event: Event, scene: Scene) -> ChainRule | VirtualServer | Programs:
    """Return the rule or the policy of an event; of one that stands for a virtual server or a BPF program, that."""
    if event.table in scene.translating:
        return Programs((str(scene.translating[event.table]),))
    text = quoted(event, scene)
    if event.table == IPVS_TABLE:
        server = re.search(r'comment "([^"]*)"', text)
        return VirtualServer(server[1] if server else text)
    return ChainRule(event.family, event.table, event.chain, text, event.handle)


_TRANSLATING = re.compile(
    r"-j (?:DNAT|SNAT|MASQUERADE|REDIRECT|NETMAP)\b|\b(?:dnat|snat|masquerade|redirect)\b|\b[sd](?:addr|port) set |^ipvs: "
)


def _translation(event: Event, text: str, sent: Packet, departed: Frame | None) -> str:
    """Return what a rule made of the packet; empty if it changed nothing.

    The next place shows it. The last rule is followed by none, and the packet leaves as the rule made it.
    """
    if not _TRANSLATING.search(text) or not is_ip(event.network):
        return ""
    before = packet_of((event.network, event.transport), sent)
    after = packet_of(event.following, sent) if is_ip(event.following[0]) else departed.packet if departed else before
    return str(after) if str(after) != str(before) else ""


def _routed(query: Query, scene: Scene) -> list[Step]:
    """Return the step that shows the route."""
    decision = scene.tables.decide(query)
    if not decision.route:
        return []
    return [Step(answer.ROUTE, "routing", f"{decision.route} ({shown_rule(decision.rule)})", object=decision.route)]


def _query(packet: Packet, came_in_by: str, routed: Event | None) -> Query:
    """Return the fields by which a packet is routed: its addresses after destination NAT, and its mark.

    came_in_by: a link, or the bridge of which it is a port; empty if the node sends the packet.
    """
    source, destination = packet.source, packet.destination
    if routed and routed.network:
        source, destination = ends(routed.network)
    ports = packet.source_port, packet.destination_port
    return Query(source, destination, came_in_by or LOOPBACK, routed.mark if routed else packet.mark, packet.protocol, *ports)


def _stopped(observation: Observation, events: t.Sequence[Event], query: Query, rejected: str, scene: Scene) -> Way:
    """Return what became of a packet that did not leave. rejected: with what the node answers; empty for nothing."""
    drop = next((event for event in events if event.verdict in DROPS), None)
    diverted = None if drop else _diverted(events, scene)
    if diverted:
        return lost(*diverted)
    # The kernel tells the program that sends, and no frame shows it.
    is_told = bool(drop and not observation.sent.interface and _REJECTING.search(quoted(drop, scene)))
    verdict = REJECTED if rejected or is_told else DROPPED
    route = scene.tables.decide(query).route
    explained = (
        (_by_rule(drop, "rejects" if verdict == REJECTED else "drops", observation.sent, events, scene) if drop else None)
        or sizes.explained(observation, query, scene.topology, scene.tables)
        or _by_neighbour(observation, query, scene)
        or _by_counters(observation, query, scene)
        or _by_no_ipv6(observation.sent, query, scene)
    )
    # An answer of a neighbour is delivered to the node as well.
    if not explained and route and route.type in OWN and any(name.endswith("InDelivers") for name in observation.counters):
        return _at_the_node(observation.sent, route)
    reason, decider = explained or _unexplained(observation.sent, query, scene, events) or ("", None)
    if not reason and not rejected:
        reason = "The packet is lost in the kernel, which does not show where."
    return lost(f"{reason} {f'The node answers with {rejected}.' if rejected else ''}".strip(), decider, verdict)


def _by_no_ipv6(packet: Packet, query: Query, scene: Scene) -> Explanation | None:
    """Explain a packet of IPv6 that comes in by a link that takes none, as net/ipv6/ip6_input.c does not count it."""
    disabled = _disabled(query.iif, scene) if packet.interface and packet.family == IPV6 else None
    return (f"{query.iif} takes no packet of IPv6: {disabled}.", disabled) if disabled else None


def _at_the_node(packet: Packet, route: Route) -> Way:
    """Return what becomes of a packet that is delivered to the node.

    The kernel drops a new connection of TCP to an anycast address (net/ipv6/tcp_ipv6.c, tcp_v6_conn_request), and takes answers
    that come there. A node that forwards has one for each network of its links.
    """
    if route.type == ANYCAST and packet.protocol == TCP and not packet.is_reply:
        address = Address(fields.show(packet.destination), "anycast", next(iter(route.links), ""))
        return lost(f"The kernel takes no connection of TCP at {address}.", address)
    return lost("The packet arrives at the node itself.", None, DELIVERED)


def _drops_resolution(observation: Observation, sent: t.Iterable[Event]) -> bool:
    """Return whether a rule drops a request for a neighbour, or its answer. sent: the events of the packet itself."""
    numbers = {event.number for event in sent}
    resolving = [event for event in observation.events if event.number not in numbers]
    answers = (drop_of(resolving, solicitation.request.target) for solicitation in observation.solicitations)
    return any((drop_of_request(resolving), *answers))


def _by_neighbour(observation: Observation, query: Query, scene: Scene) -> Explanation | None:
    """Explain a packet whose next hop's MAC address the node did not get."""
    # A bridge asks behind each of its ports.
    answered = {solicitation.request.target for solicitation in observation.solicitations if solicitation.is_answered}
    for solicitation in observation.solicitations:
        if solicitation.request.target not in answered:
            neighbor = Neighbor(solicitation.link, fields.show(solicitation.request.target))
            if scene.topology.owner(solicitation.request.target):  # the node itself, which is asked behind a port's bridge
                route = scene.tables.decide(query).route
                if route and leads_astray(route, query.destination, neighbor.link, scene):
                    return f"{route} leads to {neighbor.link}, by whose bridge the answer about its MAC address comes in.", route
                continue
            misled = _misled_answer(solicitation.link, solicitation.request, scene)
            if misled:
                reason, its = misled
                return f"{reason}, when the node asks for {neighbor.address}.", its
            near = scene.topology.pod_link(solicitation.request.target)
            is_answer = solicitation.request.target == observation.sent.source
            near_query = query.answered if is_answer else query._replace(destination=solicitation.request.target)
            decision = scene.tables.decide(near_query)
            is_astray = decision.route and leads_astray(decision.route, solicitation.request.target, neighbor.link, scene)
            if not is_astray and scene.topology.pod_sides.has(neighbor.link, solicitation.request.target) is False:
                return _lacking(neighbor, scene)
            leading = _added_rule(decision) or decision.route
            if near and leading and neighbor.link not in (near, scene.topology.bridge(near)):
                return f"{leading} leads to {neighbor.link}, and the pod with {neighbor.address} is behind {near}.", leading
            if decision.route and is_astray:
                reason = f"{neighbor.address} is in no network of {neighbor.link}, and does not answer there: {decision.route}."
                return reason, decision.route
            return f"{neighbor.address} does not answer on {neighbor.link}, so that its MAC address is not known.", neighbor
    for solicitation in observation.solicitations:
        drop = drop_of(observation.events, solicitation.request.target)
        if drop:
            target, text, where = fields.show(solicitation.request.target), quoted(drop, scene), f"{drop.family} {drop.table}"
            reason = (
                f"{target} answers on {solicitation.link}, but {where} {drop.chain} drops the answer, which has its MAC address"
            )
            return f"{reason}: {text}.", decider_of(drop, scene)
    drop = drop_of_request(observation.events)
    if drop is None:
        return None
    where = f"{drop.family} {drop.table} {drop.chain}"
    reason = f"{where} drops the request for the MAC address of the next hop: {quoted(drop, scene)}."
    return reason, decider_of(drop, scene)


def _misled_answer(link: str, request: Request, scene: Scene) -> tuple[str, Neighbor] | None:
    """Explain a pod's answer that goes to another MAC address than that of who asks; None if it does not. link: to the pod."""
    misled = scene.topology.misled(link, request)
    if misled is None:
        return None
    its = Neighbor(link, fields.show(misled.gateway), misled.mac.hex(":"))
    return f"The pod at {link} sends its MAC address to {its.mac}, its neighbour for {its.address}", its


def _lacking(neighbor: Neighbor, scene: Scene) -> Explanation:
    """Explain an address that no pod behind a link has: the only pod on the bridge without any of the family may have lost it."""
    link = scene.topology.without_address(neighbor.link, fields.address(neighbor.address)[1]) or neighbor.link
    broken = scene.topology.broken(link)
    if broken:
        return f"{link}, whose pod does not have the address {neighbor.address}, {broken.words}.", broken
    return f"The pod at {link} does not have the address {neighbor.address}.", Address(neighbor.address, LACKING, link)


def leads_astray(route: Route, target: bytes, link: str, scene: Scene) -> bool:
    """Return whether a route without a gateway leads more than one address to a link in whose networks the target is not.

    A port of a bridge has no network: answers come in by the bridge.
    """
    bridge = scene.topology.bridge(link)
    is_direct = not {link, bridge}.isdisjoint(route.links) and not any(hop.via for hop in route.hops)
    is_port = bool(bridge) and link in route.links
    return is_direct and route.dst[1] < 8 * len(target) and (is_port or not scene.topology.is_of_network(target, link))


def _by_rule(drop: Event, verb: str, packet: Packet, events: t.Sequence[Event], scene: Scene) -> Explanation:
    """Explain a packet that a rule drops, by the rule that decided so, which may be an earlier one."""
    text, decider = quoted(drop, scene), decider_of(drop, scene)
    if isinstance(decider, VirtualServer):
        return f"IPVS has no destination for the virtual server {decider.name}.", decider
    reason = f"{drop.family} {drop.table} {drop.chain} {verb} the packet: {text}."
    marker, sender = _marker(drop, text, events, scene), _map_of(drop, text, events, scene)
    if marker:
        reason += f" It has the mark because of: {scene.quote(marker)}."
    elif sender:
        reason += f" The map that sends it there: {scene.quote(sender)}."
    by = marker or sender or drop
    element = _element(by, packet, scene)
    reason += f" The element is {element}." if element else ""
    return reason, decider_of(by, scene)


_ONLY_MARKED = re.compile(r"-A \S+ (?:-m comment --comment (?:\"[^\"]*\"|\S+) )?-m mark --mark (0x[\da-f]+)(?:/(0x[\da-f]+))? .*")
_DROPPING = re.compile(r"(?:counter )?(?:drop|reject(?: with [\w -]+)?)(?: comment .*)?")
_REJECTING = re.compile(r"-j REJECT\b|(?<![-\w])reject(?![-\w])")
_MARKING = re.compile(r"-A \S+ (?:-m comment --comment (?:\"[^\"]*\"|\S+) )?-j MARK .*")


def _marker(drop: Event, text: str, events: t.Sequence[Event], scene: Scene) -> Event | None:
    """Return the rule that gives a packet the mark for which another rule drops it; None if that rule has other grounds.

    A rule that marks all packets of its chain, as kube-proxy's KUBE-MARK-DROP, is the one that jumps there.
    """
    match = _ONLY_MARKED.fullmatch(text)
    value, mask = (int(match[1], 16), int(match[2] or "0xffffffff", 16)) if match else (0, 0)
    if not value:
        return None
    before = events[: events.index(drop)]
    marked = [place for place, event in enumerate(before) if event.mark & mask == value]
    place = next((index for index in marked if index == 0 or before[index - 1].mark & mask != value), None)
    if place is None or not before[place].handle:
        return None
    by = before[place]
    if _MARKING.fullmatch(scene.quote(by)):
        jumps = (event for event in reversed(before[:place]) if event.verdict in (f"jump {by.chain}", f"goto {by.chain}"))
        by = next(jumps, by)
    return by


def _map_of(drop: Event, text: str, events: t.Sequence[Event], scene: Scene) -> Event | None:
    """Return the rule with a map that sends packets to a chain of nft that drops all of them, as those of kube-proxy."""
    if not _DROPPING.fullmatch(text):
        return None
    before = reversed(events[: events.index(drop)])
    jump = next(
        (event for event in before if event.handle and event.verdict in (f"jump {drop.chain}", f"goto {drop.chain}")), None
    )
    return jump if jump and "vmap" in scene.quote(jump) else None


_VMAP = re.compile(r"(.*) vmap @(\S+)")


def _element(event: Event, packet: Packet, scene: Scene) -> str:
    """Return the element by which the map of a rule decided about a packet, such as a Service's; empty if there is none."""
    match = _VMAP.fullmatch(scene.quote(event))
    if not match or not event.network:
        return ""
    source, destination = (fields.show(end) for end in ends(event.network))
    values = {"meta l4proto": protocol_name(packet.protocol)}
    for name, value in (("saddr", source), ("daddr", destination)):
        values.update({f"ip {name}": value, f"ip6 {name}": value})
    for name, port in (("sport", packet.source_port), ("dport", packet.destination_port)):
        values.update((f"{header} {name}", str(port)) for header in ("th", "tcp", "udp", "sctp"))
    # What stands before the key is another match: ip daddr @nodeport-ips meta l4proto . th dport vmap @...
    keys = [values.get(" ".join(part.split()[-2:]), "") for part in match[1].split(" . ")]
    return scene.element(event, match[2], " . ".join(keys)) if all(keys) else ""


def quoted(drop: Event, scene: Scene) -> str:
    """Return the rule or the policy that drops a packet, as its tool prints it."""
    return scene.quote(drop) or f"-P {legacy_half.hooked_chain(drop.chain)} DROP"


def _diverted(events: t.Sequence[Event], scene: Scene) -> Explanation | None:
    """Return the rule of a bridge after which the frame is for a MAC address that no interface on the node has."""
    rule: Event | None = None
    for event in events:
        is_rule = event.family == BRIDGE and bool(event.handle)
        # The MAC address at the next place, or the one in the rule, if no place follows.
        for by, mac in ((rule, event.destination_mac), (event, _sent_to(event, scene) if is_rule else b"")):
            if by and mac and not is_group(mac) and not scene.topology.is_mac_known(mac):
                reason = f"A rule sends the frame to {mac.hex(':')}, which no interface on the node has: {scene.quote(by)}."
                return reason, decider_of(by, scene)
        rule = event if is_rule else rule
    return None


def _sent_to(event: Event, scene: Scene) -> bytes:
    """Return the MAC address that a rule gives to frames; empty if the rule names none."""
    match = re.search(r"--to-dst ((?:[\da-fA-F]{1,2}:){5}[\da-fA-F]{1,2})\b", scene.quote(event))
    return bytes(int(part, 16) for part in match[1].split(":")) if match else b""


def _by_counters(observation: Observation, query: Query, scene: Scene) -> Explanation | None:
    packet, moved = observation.sent, observation.counters
    shown = fields.show(query.destination)
    if any(name.endswith("IPReversePathFilter") for name in moved):
        return _reverse_path(query, scene)
    if any(name.endswith("NoRoutes") for name in moved) or observation.error:
        decision = scene.tables.decide(query)
        blocked = _blocked(decision)
        if blocked:
            return f"{_noun(blocked)} stops packets to {shown}: {blocked}.", blocked
        if observation.error and decision.route:
            return f"The node itself cannot send the packet: {observation.error}.", decision.route
        without = _without_default(packet.family, scene)
        if without:
            return f"There is no route to {shown}. {without[0]}", without[1]
        where = "the tables that its rules name" if decision.tables else "no table: no rule leads to one"
        missing = no_route(query.destination, scene, query.source)
        default = "" if _has_default(packet.family, scene) or missing.network else " Table main has no default route."
        return f"There is {missing} in {where}.{default}", missing
    if any(name.endswith("HdrErrors") for name in moved):
        return "The packet's time to live ends at the node.", Address(shown, EXPIRED)
    if any(name.endswith("AddrErrors") for name in moved):
        return _not_forwarded(query, packet, scene)
    return None


def _has_default(family: int, scene: Scene) -> bool:
    """Return whether table main has a default route of a family that leads somewhere."""
    return any(not route.dst[1] and route.hops for route in scene.tables.of_table(family, MAIN))


def _without_default(family: int, scene: Scene) -> Explanation | None:
    """Explain that a family has no default route in table main, by the link that may have had it."""
    link = scene.topology.lost_uplink(family == IPV6)
    if not link or _has_default(family, scene):
        return None
    version, down, disabled = "ipv6" if family == IPV6 else "ipv4", Link(link, DOWN), _disabled(link, scene)
    if link not in scene.topology.up:
        return f"{link} is down: the kernel removes the routes of such a link.", down
    if family == IPV6 and disabled:
        return f"{version} has no default route, and {disabled}.", disabled
    return f"{version} has no default route, and {link} no address of it.", Address(version, NONE, link)


def _noun(blocked: Object) -> str:
    return "A policy rule" if isinstance(blocked, Rule) else "A route"


def _blocked(decision: Decision) -> Rule | Route | None:
    """Return the rule or route whose type stops packets."""
    return next((each for each in (decision.rule, decision.route) if is_blocking(each)), None)


def _validating(query: Query, scene: Scene) -> Query:
    """Return the lookup by which the kernel checks a source: that of an answer that comes in where the packet would leave
    (net/ipv4/route.c, __mkroute_input).
    """
    ahead = scene.tables.decide(query).route
    leaves_by = sorted(ahead.links)[0] if ahead and ahead.links and ahead.type not in OWN else LOOPBACK
    return Query(query.destination, query.source, leaves_by, query.mark if _valid_mark(query.iif, scene) else 0)


def _reverse_path(query: Query, scene: Scene) -> Explanation:
    decision = scene.tables.decide(_validating(query, scene))
    of_link = f"net/ipv4/conf/{query.iif}/rp_filter"
    every = scene.settings("net/ipv4/conf/all/rp_filter") or 0
    value = scene.settings(of_link) or 0
    setting = Setting(of_link if value >= every else "net/ipv4/conf/all/rp_filter", max(value, every))
    source, destination = fields.show(query.source), fields.show(query.destination)
    leads = _leads(decision.route)
    by = f" ({shown_rule(decision.rule)}), by {decision.route}" if decision.rule and decision.route else ""
    if setting.value == 1:
        reason = (
            f"The packet comes in by {query.iif}, but the way back from {destination} to {source} is {leads}{by}: strict"
            f" reverse-path filtering ({setting}) drops it."
        )
    else:
        reason = (
            f"There is no way back from {destination} to {source}: loose reverse-path filtering drops the packet that comes in by"
            f" {query.iif}."
        )
    return reason, setting


def _leads(route: Route | None) -> str:
    return f"dev {', '.join(sorted(route.links))}" if route and route.links else "none"


def _valid_mark(link: str, scene: Scene) -> bool:
    paths = (f"net/ipv4/conf/{name}/src_valid_mark" for name in ("all", link))
    return any(scene.settings(path) for path in paths)


def _not_forwarded(query: Query, packet: Packet, scene: Scene) -> Explanation:
    shown = fields.show(query.destination)
    if packet.family == IPV6 and fields.is_link_local(query.source):
        source = fields.show(query.source)
        reason = f"A router does not forward a packet whose source is link-local (RFC 4291, section 2.5.6): {source}."
        return reason, Address(source, LINK_LOCAL)
    setting = _forwarding(query.iif, packet.family)
    if scene.settings(setting.path):
        return f"{shown} is no address to which the node may send the packet.", Address(shown)
    by_link = "" if packet.family == IPV6 else f" what comes in by {query.iif}"
    return f"{shown} is no address of the node, and the node does not forward{by_link}.", setting


def _forwarding(link: str, family: int) -> Setting:
    """Return the setting without which the node does not forward what comes in by a link."""
    return Setting("net/ipv6/conf/all/forwarding" if family == IPV6 else f"net/ipv4/conf/{link}/forwarding", 0)


def _translated(events: t.Sequence[Event], scene: Scene) -> bytes:
    """Return the destination that the last rule gives to the packet; empty if none.

    The packet may be lost before any other place sees the destination.
    """
    text = scene.quote(events[-1]) if events else ""
    match = re.search(r"(?:--to-destination |\bdnat to )\[?([\d.]+|[\da-f:]+(?=\]))", text)
    try:
        return fields.address(match[1])[1] if match else b""
    except fields.Unfit:
        return b""


def _unexplained(packet: Packet, query: Query, scene: Scene, events: t.Sequence[Event]) -> Explanation | None:
    topology = scene.topology
    link = packet.interface
    broken = topology.broken(link) if link else None
    if broken:
        return f"{link} {broken.words}.", broken
    owner = topology.owner(packet.source)
    if owner and packet.interface:
        address = Address(fields.show(packet.source), owner=owner)
        return f"{_of_node(address)}: the kernel drops the packet as forged.", address
    destination = _translated(events, scene) or query.destination
    if packet.source[:1] == b"\x7f" or query.destination[:1] == b"\x7f":
        route = scene.tables.decide(query._replace(destination=destination)).route
        link = link or next(iter(sorted(route.links)) if route else iter(()), LOOPBACK)
        port = f":{query.destination_port}" if query.destination_port else ""
        to = f": {fields.show(query.destination)}{port} is translated to {fields.show(destination)}"
        reason = f"Addresses of the loopback do not pass {link}{to if destination != query.destination else ''}."
        return reason, Setting(f"net/ipv4/conf/{link}/route_localnet", 0)
    decision = scene.tables.decide(query)
    blocked = _blocked(decision)
    if blocked:
        return f"{_noun(blocked)} stops the packet: {blocked}.", blocked
    broken = next(filter(None, map(topology.broken, sorted(decision.route.links if decision.route else ()))), None)
    if broken:
        return f"{broken.name}, by which the packet would leave, {broken.words}.", broken
    links = (topology.pod_link(destination), *sorted(decision.route.links if decision.route else ()))
    if too_large := sizes.untaken(packet, links, topology):
        return too_large
    if topology.bridge(link) and destination == packet.source:
        doubt = "" if topology.tells_hairpin(link) else ". This is assumed, because the snapshot lacks the setting"
        reason = f"The frame would have to leave by {link}, by which it came in, and hairpin is off there{doubt}."
        return reason, Link(link, NO_HAIRPIN)
    return ("No port of the bridge takes the frame.", Link(link)) if topology.bridge(link) else None


def _with_queue(way: Way) -> Way:
    """Return the way, with the verdict ``unknown`` if a rule hands the packet to a program: a twin has none."""
    step = next((step for step in way.steps if step.verdict == QUEUE), None)
    if step is None or step.object is None:
        return way
    reason = f"A program that reads the queue decides, and a twin has none: {step.text}. Without it: {way.reason}"
    return way._replace(verdict=UNKNOWN, reason=reason, culprit=Culprit.of(step.object))


def of_filters(packet: Packet, way: Way, scene: Scene) -> t.Iterator[tuple[str, traffic_filters.Decision]]:
    """Yield the direction in which a packet meets filters of traffic control, and what they do."""
    for direction, link in (("ingress", packet.interface), ("egress", way.interface)):
        if (link, direction) in scene.filters:
            kinds = {name: scene.topology.kind(name) for name in scene.topology.links}
            yield direction, traffic_filters.decide(scene.filters[link, direction], packet.family == IPV6, kinds)


def past_filters(packet: Packet, way: Way, scene: Scene) -> Way:
    """Return the way, lost if a filter of traffic control drops the packet, or leads it by a link that is down."""
    for direction, decision in of_filters(packet, way, scene):
        by = decision.by
        if by is None or (by.target and by.target not in scene.down):
            continue
        decider: Object = Link(by.target, DOWN) if by.target else TrafficFilter(str(by))
        deed = f"leads the packet to {by.target}, which is down" if by.target else "drops the packet"
        reason = f"A filter of traffic control {deed}: {by}."
        steps = way.steps[:1] if direction == "ingress" else way.steps
        met = Met(query=way.met.query, links=(by.link,)) if direction == "ingress" else way.met._replace(frame=None)
        return lost(reason, decider)._replace(steps=steps, met=met)
    return _unheard(packet, way, scene)


def _unheard(packet: Packet, way: Way, scene: Scene) -> Way:
    """Return the way, lost if a filter keeps the answer of a neighbour, whose MAC address is not known, from the node."""
    filters = scene.filters.get((way.interface, "ingress"), ())
    if packet.family != IPV6:  # of which a neighbour answers by ARP
        filters = [each for each in filters if each.protocol == traffic_filters.ALL]
    if not filters or way.met.frame is None or scene.topology.has_learned(way.interface, way.met.frame.destination_mac):
        return way
    kinds = {name: scene.topology.kind(name) for name in scene.topology.links}
    by = traffic_filters.decide(filters, packet.family == IPV6, kinds).by
    if by is None or (by.target and by.target not in scene.down):
        return way
    decider: Object = Link(by.target, DOWN) if by.target else TrafficFilter(str(by))
    reason = f"A filter of traffic control keeps from the node what its neighbours on {way.interface} answer: {by}."
    return lost(reason, decider)._replace(steps=way.steps, met=way.met._replace(frame=None))


def _with_programs(packet: Packet, way: Way, scene: Scene) -> Way:
    """Return the way, with the verdict ``unknown`` if a BPF program is on the packet's path: a twin has none."""
    on_path = [*scene.programs.get((packet.interface, "ingress"), ())]
    on_path += scene.programs.get((way.interface, "egress"), ()) if way.interface else ()
    if not on_path:
        return way
    programs = Programs((*on_path,))
    reason = f"BPF programs on the path decide, and a twin has none: {programs}. Without them: {way.reason}"
    return way._replace(verdict=UNKNOWN, reason=reason, culprit=Culprit.of(programs))
