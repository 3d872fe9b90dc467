# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""From what was observed of a packet to a verdict: what became of it, why, and which object decided."""

from __future__ import annotations

import re
import typing as t

from .._core import fields
from .._core.fields import IPV6
from .._routing.route import BLACKHOLE, BROADCAST, LOCAL, PROHIBIT, UNREACHABLE, Route
from .._routing.rule import LOOKUP, protocol_name
from .._twin.blueprint import LOOPBACK, OWN_TABLE
from .._twin.virtual_servers import TABLE as IPVS_TABLE
from .frame import Frame, is_group
from .kernel_events import DROPS, QUEUE, TELLING, Event, Observation, drop_of, drop_of_request, ends, is_ip, of_packet, packet_of
from .lookup import Decision, Query, Tables, shown_rule
from .packet import ICMP, ICMPV6, TCP, Packet
from .pod_side import Way
from .topology import Topology

DELIVERED, FORWARDED, DROPPED, REJECTED, UNKNOWN = "delivered", "forwarded", "dropped", "rejected", "unknown"
ARRIVED = (DELIVERED, FORWARDED)
OWN, STOPPING = (LOCAL, BROADCAST), (BLACKHOLE, UNREACHABLE, PROHIBIT)  # types of routes
ROUTING = ("routing", "rerouting")  # chains of OWN_TABLE behind the translation of destinations
FORWARD = "net/ipv4/ip_forward"
KERNELS_PRIORITIES = (0, 32766, 32767)  # of the policy rules that each network namespace has
Settings = t.Callable[[str], "int | None"]  # the value of a setting in the twin, by its path below /proc/sys


class Culprit(t.NamedTuple):
    """The object that decided. kind: rule, route, sysctl, neighbor, link, address, bpf or missing. text: as its tool shows it."""

    kind: str
    text: str


class Step(t.NamedTuple):
    """kind: in, rule, policy, route, neighbor, counter or out. where: chain, link or routing. text: as its tool prints it.

    packet: what a rule that translates made of the packet; empty if the rule changed nothing.
    """

    kind: str
    where: str
    text: str
    verdict: str = ""
    packet: str = ""


class Finding(t.NamedTuple):
    """What became of a packet. interface, frame: the link by which it left and its frame there; empty and None if it did not
    leave.

    caveat: a sentence that says why the packet may be lost after it left the node; empty if there is no such reason.
    searched: the numbers of the routing tables that were searched for it, and for the way back. links: of these routes. query: by
    which it was routed.
    rules: the policy rule that decided about it and that about the way back, as ip(8) prints them; empty for one of the kernel.
    """

    verdict: str
    interface: str
    frame: Frame | None
    reason: str
    culprit: Culprit | None
    steps: tuple[Step, ...]
    caveat: str = ""
    searched: tuple[int, ...] = ()
    links: tuple[str, ...] = ()
    query: Query | None = None
    rules: tuple[str, ...] = ()

    def report(self) -> dict[str, t.Any]:
        """Return the finding as the module returns it."""
        packet = self.frame.packet.report() if self.frame else None
        if packet is not None and self.frame:
            packet.update(source_mac=self.frame.source_mac.hex(":"), destination_mac=self.frame.destination_mac.hex(":"))
        return {
            "verdict": self.verdict,
            "interface": self.interface,
            "packet": packet,
            "reason": self.reason,
            "culprit": self.culprit._asdict() if self.culprit else None,
            "steps": [step._asdict() for step in self.steps],
        }


class Scene(t.NamedTuple):
    """The facts that a verdict is based on. quote: the text of an event's rule. programs: BPF programs by link and direction.

    hidden: family, table and name of chains, with the handles of rules that only the twin has. element: that of a map in an
    event's table, by the name of the map and the key.
    """

    topology: Topology
    tables: Tables
    settings: Settings
    quote: t.Callable[[Event], str]
    programs: t.Mapping[tuple[str, str], list[str]] = {}
    hidden: t.Collection[tuple[str, str, str, int]] = ()
    element: t.Callable[[Event, str, str], str] = lambda _event, _name, _key: ""


def judge(observation: Observation, scene: Scene) -> Finding:
    packet = observation.sent
    every = of_packet(observation)
    routed = next((event for event in reversed(every) if event.chain in ROUTING and event.table == OWN_TABLE), None)
    query = _query(packet, scene.topology.bridge(packet.interface) or packet.interface, routed)
    events = [
        event
        for event in every
        if event.table != OWN_TABLE and (event.family, event.table, event.chain, event.handle) not in scene.hidden
    ]
    frames = [arrival for arrival in observation.frames if _is_of(packet, arrival[1])]
    good = [(link, frame) for link, frame in frames if not scene.topology.trouble(link, frame)]
    rejected = next((frame.reject for _link, frame in observation.frames if frame.reject), "")
    departure = next(iter(good or frames), None)
    steps = _steps(observation, events, query, scene, departure[1] if departure else None)
    if departure:
        link, left = departure
        steps.append(Step("out", f"link {link}", str(left.packet)))
        trouble = "" if good else scene.topology.trouble(link, left)
        finding = _left(packet, link, left, trouble, _diverted(events, scene), scene, steps)
    else:
        verdict, reason, culprit = _stopped(observation, events, query, rejected, scene)
        finding = Finding(verdict, "", None, reason, culprit, tuple(steps))
    ways = (query, query.answered) if departure else (query, query.answered, query.refused)
    lookups = [scene.tables.decide(each) for each in ways if each.destination]
    finding = finding._replace(
        searched=tuple(table for decision in lookups for table in _searched(decision)),
        links=tuple(link for decision in lookups if decision.route for link in sorted(decision.route.links)),
        query=query,
        rules=tuple(map(_added_rule, lookups[:2])),
    )
    return _with_programs(packet, _with_queue(finding), scene)


def _added_rule(decision: Decision) -> str:
    """Return the rule that decided, as ip(8) prints it; empty if it is one of the kernel."""
    return str(decision.rule) if decision.rule and decision.rule.priority not in KERNELS_PRIORITIES else ""


def _searched(decision: Decision) -> tuple[int, ...]:
    """Return the numbers of the routing tables that were searched, the one with the route last."""
    return (*decision.tables, decision.rule.table) if decision.rule and decision.route else decision.tables


def _left(
    packet: Packet, link: str, left: Frame, trouble: str, diverted: Diversion | None, scene: Scene, steps: list[Step]
) -> Finding:
    owner = scene.topology.owner(left.packet.destination)
    if diverted and (trouble or owner):
        why = trouble or f"the node itself has {fields.show(left.packet.destination)}, on {owner}"
        reason = f"The packet leaves by {link} and is lost: {why}. {diverted.reason}"
        return Finding(DROPPED, link, left, reason, diverted.culprit, tuple(steps))
    if trouble:
        culprit = _misled(link, left, scene)
        reason = f"The packet leaves by {link} and is lost: {trouble}."
        return Finding(DROPPED, link, left, reason, culprit, tuple(steps))
    is_pod = scene.topology.is_pod(link)
    verdict = DELIVERED if is_pod else FORWARDED
    change = "" if left.packet.flow == packet.flow else f" as {left.packet}"
    reason = f"The packet leaves by {link}{change}{', to the pod there' if is_pod else ''}."
    caveat = caveat_of(left.packet, link, scene)
    return Finding(verdict, link, left, f"{reason} {caveat}".strip(), None, tuple(steps), caveat)


def caveat_of(left: Packet, link: str, scene: Scene) -> str:
    """Return why a packet that left by a link may be lost beyond it, as a sentence; empty if there is no such reason."""
    evidence = scene.topology.foreign_source(left, link, scene.tables)
    return f"Its source {evidence}: a cloud that checks the sources of an interface would drop it." if evidence else ""


def at_its_pod(reply: Finding, link: str, scene: Scene) -> Finding:
    """Return the reply, lost if it leaves the node although the packet came from a pod on it. link: where the packet came in."""
    if reply.verdict != FORWARDED or reply.frame is None or not scene.topology.is_pod(link):
        return reply
    reason = f"The packet is from the pod at {link}, and its reply leaves the node by {reply.interface}."
    return reply._replace(verdict=DROPPED, reason=reason, culprit=_misled(reply.interface, reply.frame, scene))


def unanswered(way: Way, request: Packet) -> Finding:
    """Return what becomes of a pod's answer that does not come in to the node. request: as it left to the pod."""
    to = fields.show(request.source)
    if not way.interface:
        reason = f"The pod has no route to {to}, so that it does not answer."
        return Finding(DROPPED, "", None, reason, Culprit("missing", f"no route to {to} in the pod"), ())
    reason = f"The pod answers {to} by its interface {way.interface}, which does not lead to the node."
    return Finding(UNKNOWN, "", None, reason, None, ())


def by_its_uplink(reply: Finding, link: str, scene: Scene) -> Finding:
    """Return the reply, with a caveat if the cloud sends packets for its source to another uplink than it leaves by.

    link: by which the packet came in.
    """
    topology = scene.topology
    if not reply.frame or not topology.is_elsewhere(reply.frame.packet.source, link, reply.interface, scene.tables):
        return reply
    caveat = f"Packets to its source come in by {link}: a cloud that checks the sources of an interface would drop it."
    return reply._replace(reason=f"{reply.reason} {caveat}", caveat=caveat)


def _misled(link: str, left: Frame, scene: Scene) -> Culprit:
    """Return the object that sent a frame to an address whose owner does not take it: a neighbour, or the route."""
    destination = left.packet.destination
    mac = scene.topology.known_macs.get((link, destination))
    if mac == left.destination_mac:
        return Culprit("neighbor", f"{fields.show(destination)} dev {link} lladdr {mac.hex(':')}")
    decision = scene.tables.decide(Query(left.packet.source, destination))
    if decision.route and link in decision.route.links:
        return Culprit("route", str(decision.route))
    return Culprit("link", link)


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


def _steps(observation: Observation, events: t.Sequence[Event], query: Query, scene: Scene, left: Frame | None) -> list[Step]:
    packet = observation.sent
    start = f"link {packet.interface}" if packet.interface else "the node"
    steps, is_routed = [Step("in", start, str(packet))], False
    for event in events:
        if event.oif and not is_routed and packet.interface:
            is_routed = True
            steps += _routed(query, scene)
        text = _of_ipvs(event, scene.quote(event)) if event.handle else ""
        steps += (step._replace(text=text, packet=_translation(event, text, packet, left)) for step in chain_steps([event]))
    if not is_routed:
        steps += _routed(query, scene)
    steps += [
        Step(
            "neighbor",
            f"link {solicitation.link}",
            fields.show(solicitation.request.target),
            "" if solicitation.is_answered else "no answer",
        )
        for solicitation in observation.solicitations
    ]
    telling = {name: value for name, value in observation.counters.items() if name.endswith(TELLING)}
    return steps + [Step("counter", name, f"+{value}") for name, value in sorted(telling.items())]


def chain_steps(events: t.Iterable[Event]) -> t.Iterator[Step]:
    """Yield the steps of a packet in chains, without the texts of rules."""
    for event in events:
        if event.handle or event.verdict.startswith("policy"):
            yield Step("rule" if event.handle else "policy", f"{event.family} {event.table} {event.chain}", "", event.verdict)


_TRANSLATING = re.compile(
    r"-j (?:DNAT|SNAT|MASQUERADE|REDIRECT|NETMAP)\b|\b(?:dnat|snat|masquerade|redirect)\b|\b[sd](?:addr|port) set |^ipvs: "
)


def _translation(event: Event, text: str, sent: Packet, left: Frame | None) -> str:
    """Return what a rule made of the packet; empty if it changed nothing.

    The next place shows it. The last rule is followed by none, and the packet leaves as the rule made it.
    """
    if not _TRANSLATING.search(text) or not is_ip(event.network):
        return ""
    before = packet_of((event.network, event.transport), sent)
    after = packet_of(event.following, sent) if is_ip(event.following[0]) else left.packet if left else before
    return str(after) if str(after) != str(before) else ""


def _of_ipvs(event: Event, text: str) -> str:
    """Return the text of a rule; of a rule that stands for a virtual server, the server."""
    if event.table != IPVS_TABLE:
        return text
    server = re.search(r'comment "([^"]*)"', text)
    return f"ipvs: {server[1] if server else text}"


def _routed(query: Query, scene: Scene) -> list[Step]:
    """Return the step that shows the route."""
    decision = scene.tables.decide(query)
    if not decision.route:
        return []
    return [Step("route", "routing", f"{decision.route} ({shown_rule(decision.rule)})")]


def _query(packet: Packet, came_in_by: str, routed: Event | None) -> Query:
    """Return the fields by which a packet is routed: its addresses after destination NAT, and its mark.

    came_in_by: a link, or the bridge of which it is a port; empty if the node sends the packet.
    """
    source, destination = packet.source, packet.destination
    if routed and routed.network:
        source, destination = ends(routed.network)
    ports = packet.source_port, packet.destination_port
    return Query(source, destination, came_in_by or LOOPBACK, routed.mark if routed else packet.mark, packet.protocol, *ports)


def _stopped(
    observation: Observation, events: t.Sequence[Event], query: Query, rejected: str, scene: Scene
) -> tuple[str, str, Culprit | None]:
    """Return verdict, reason and culprit of a packet that did not leave."""
    verdict = REJECTED if rejected else DROPPED
    answer = f" The node answers with {rejected}." if rejected else ""
    drop = next((event for event in events if event.verdict in DROPS), None)
    if drop:
        if not observation.sent.interface and _REJECTING.search(quoted(drop, scene)):
            verdict = REJECTED  # the kernel tells the program that sends, and no frame shows it
        reason, culprit = _by_rule(drop, "rejects" if verdict == REJECTED else "drops", observation.sent, events, scene)
        return verdict, f"{reason}{answer}", culprit
    diverted = _diverted(events, scene)
    if diverted:
        return DROPPED, *diverted
    # A bridge asks behind each of its ports.
    answered = {solicitation.request.target for solicitation in observation.solicitations if solicitation.is_answered}
    unanswered = next(
        (solicitation for solicitation in observation.solicitations if solicitation.request.target not in answered), None
    )
    if unanswered:
        target = fields.show(unanswered.request.target)
        reason = f"{target} does not answer on {unanswered.link}, so that its MAC address is not known.{answer}"
        return verdict, reason, Culprit("neighbor", f"{target} dev {unanswered.link} FAILED")
    for solicitation in observation.solicitations:
        drop = drop_of(observation.events, solicitation.request.target)
        if drop:
            target, text, where = fields.show(solicitation.request.target), quoted(drop, scene), f"{drop.family} {drop.table}"
            reason = (
                f"{target} answers on {solicitation.link}, but {where} {drop.chain} drops the answer, which has its MAC address"
            )
            return verdict, f"{reason}: {text}.{answer}", culprit_of(drop, text)
    drop = drop_of_request(observation.events)
    if drop:
        text = quoted(drop, scene)
        reason = f"bridge {drop.table} {drop.chain} drops the request for the MAC address of the next hop: {text}."
        return verdict, f"{reason}{answer}", culprit_of(drop, text)
    explained = _by_counters(observation, query, scene)
    if explained:
        return verdict, f"{explained[0]}{answer}", explained[1]
    route = scene.tables.decide(query).route
    # An answer of a neighbour is delivered to the node as well.
    if route and route.type in OWN and any(name.endswith("InDelivers") for name in observation.counters):
        return DELIVERED, "The packet arrives at the node itself.", None
    return (verdict, *_unexplained(observation.sent, query, scene, events, answer))


def _by_rule(drop: Event, verb: str, packet: Packet, events: t.Sequence[Event], scene: Scene) -> tuple[str, Culprit]:
    """Return why a rule drops a packet, and the rule that decided so, which may be an earlier one."""
    text = quoted(drop, scene)
    if drop.table == IPVS_TABLE:
        server = _of_ipvs(drop, text)
        return f"IPVS has no destination for the virtual server {server.partition(': ')[2]}.", Culprit("rule", server)
    reason = f"{drop.family} {drop.table} {drop.chain} {verb} the packet: {text}."
    marker, sender = _marker(drop, text, events, scene), _map_of(drop, text, events, scene)
    if marker:
        reason += f" It has the mark because of: {scene.quote(marker)}."
    elif sender:
        reason += f" The map that sends it there: {scene.quote(sender)}."
    by = marker or sender or drop
    element = _element(by, packet, scene)
    reason += f" The element is {element}." if element else ""
    return reason, culprit_of(by, text if by is drop else scene.quote(by))


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
    return scene.quote(drop) or f"-P {drop.chain} DROP"


def culprit_of(drop: Event, text: str) -> Culprit:
    """Return the event's rule as the culprit. A rule of iptables names its chain itself, and one of nft does not."""
    return Culprit("rule", f"{drop.family} {drop.table}{'' if text.startswith('-') else f' {drop.chain}'}: {text}")


class Diversion(t.NamedTuple):
    """A rule of a bridge that sends frames elsewhere."""

    reason: str
    culprit: Culprit


def _diverted(events: t.Sequence[Event], scene: Scene) -> Diversion | None:
    """Return the rule of a bridge after which the frame is for a MAC address that no interface on the node has."""
    rule: Event | None = None
    for event in events:
        is_rule = event.family == "bridge" and bool(event.handle)
        # The MAC address at the next place, or the one in the rule, if no place follows.
        for by, mac in ((rule, event.destination_mac), (event, _sent_to(event, scene) if is_rule else b"")):
            if by and mac and not is_group(mac) and not scene.topology.is_mac_known(mac):
                text = scene.quote(by)
                reason = f"A rule sends the frame to {mac.hex(':')}, which no interface on the node has: {text}."
                return Diversion(reason, Culprit("rule", f"{by.family} {by.table}: {text}"))
        rule = event if is_rule else rule
    return None


def _sent_to(event: Event, scene: Scene) -> bytes:
    """Return the MAC address that a rule gives to frames; empty if the rule names none."""
    match = re.search(r"--to-dst ((?:[\da-fA-F]{1,2}:){5}[\da-fA-F]{1,2})\b", scene.quote(event))
    return bytes(int(part, 16) for part in match[1].split(":")) if match else b""


def _by_counters(observation: Observation, query: Query, scene: Scene) -> tuple[str, Culprit] | None:
    packet, moved = observation.sent, observation.counters
    shown = fields.show(query.destination)
    if any(name.endswith("IPReversePathFilter") for name in moved):
        return _reverse_path(query, scene)
    if any(name.endswith("NoRoutes") for name in moved) or observation.error:
        decision = scene.tables.decide(query)
        blocked = _blocked(decision)
        if blocked:
            return f"{_sentence_for(blocked)} stops packets to {shown}: {blocked.text}.", blocked
        if observation.error and decision.route:
            return f"The node itself cannot send the packet: {observation.error}.", Culprit("route", str(decision.route))
        words = f"from {fields.show(query.source)} " if query.source else ""
        where = "the tables that its rules name" if decision.tables else "no table: no rule leads to one"
        text = f"no route {words}to {shown}"
        return f"There is {text} in {where}.", Culprit("missing", text)
    if any(name.endswith("HdrErrors") for name in moved):
        return "The packet's time to live ends at the node.", Culprit("address", "ttl 1")
    if any(name.endswith("AddrErrors") for name in moved):
        return _not_forwarded(query, packet, scene)
    return None


def _sentence_for(blocked: Culprit) -> str:
    return "A policy rule" if blocked.kind == "rule" else "A route"


def _blocked(decision: Decision) -> Culprit | None:
    """Return the rule or route whose type stops packets."""
    if decision.rule and decision.rule.action != LOOKUP:
        return Culprit("rule", str(decision.rule))
    if decision.route and decision.route.type in STOPPING:
        return Culprit("route", str(decision.route))
    return None


def _reverse_path(query: Query, scene: Scene) -> tuple[str, Culprit]:
    # The kernel looks up the way of an answer that comes in where the packet would leave (net/ipv4/route.c, __mkroute_input).
    ahead = scene.tables.decide(query).route
    leaves_by = sorted(ahead.links)[0] if ahead and ahead.links and ahead.type not in OWN else LOOPBACK
    back = Query(query.destination, query.source, leaves_by, query.mark if _valid_mark(query.iif, scene) else 0)
    decision = scene.tables.decide(back)
    of_link = f"net/ipv4/conf/{query.iif}/rp_filter"
    every = scene.settings("net/ipv4/conf/all/rp_filter") or 0
    value = scene.settings(of_link) or 0
    path = of_link if value >= every else "net/ipv4/conf/all/rp_filter"
    culprit = Culprit("sysctl", f"{_dotted(path)} = {max(value, every)}")
    source, destination = fields.show(query.source), fields.show(query.destination)
    leads = _leads(decision.route)
    by = f" ({shown_rule(decision.rule)})" if decision.rule else ""
    if max(value, every) == 1:
        reason = (
            f"The packet comes in by {query.iif}, but the way back from {destination} to {source} is {leads}{by}: strict"
            " reverse-path filtering drops it."
        )
    else:
        reason = (
            f"There is no way back from {destination} to {source}: loose reverse-path filtering drops the packet that comes in by"
            f" {query.iif}."
        )
    return reason, culprit


def _leads(route: Route | None) -> str:
    return f"dev {', '.join(sorted(route.links))}" if route and route.links else "none"


def _valid_mark(link: str, scene: Scene) -> bool:
    paths = (f"net/ipv4/conf/{name}/src_valid_mark" for name in ("all", link))
    return any(scene.settings(path) for path in paths)


def _not_forwarded(query: Query, packet: Packet, scene: Scene) -> tuple[str, Culprit]:
    shown = fields.show(query.destination)
    if packet.family == IPV6 and fields.is_link_local(query.source):
        source = fields.show(query.source)
        reason = f"A router does not forward a packet whose source is link-local (RFC 4291, section 2.5.6): {source}."
        return reason, Culprit("address", f"source {source} is link-local")
    path = "net/ipv6/conf/all/forwarding" if packet.family == IPV6 else f"net/ipv4/conf/{query.iif}/forwarding"
    if packet.family != IPV6 and scene.settings(FORWARD) == 0:  # which sets those of all links
        path = FORWARD
    if scene.settings(path):
        return f"{shown} is no address to which the node may send the packet.", Culprit("address", shown)
    return f"{shown} is no address of the node, and the node does not forward.", Culprit("sysctl", f"{_dotted(path)} = 0")


def _dotted(path: str) -> str:
    return ".".join(part.replace(".", "/") for part in path.split("/"))


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


def _unexplained(
    packet: Packet, query: Query, scene: Scene, events: t.Sequence[Event], answer: str
) -> tuple[str, Culprit | None]:
    topology = scene.topology
    link = packet.interface
    if link and topology.trouble_of(link):
        return f"{link} {topology.trouble_of(link)}.", Culprit("link", f"{link} {topology.trouble_of(link)}")
    owner = topology.owner(packet.source)
    if owner and packet.interface:
        shown = fields.show(packet.source)
        return (
            f"The source {shown} is an address of the node itself, on {owner}: the kernel drops the packet as forged.{answer}",
            Culprit("address", f"{shown} dev {owner}"),
        )
    if packet.source[:1] == b"\x7f" or query.destination[:1] == b"\x7f":
        route = scene.tables.decide(query._replace(destination=_translated(events, scene) or query.destination)).route
        link = link or next(iter(sorted(route.links)) if route else iter(()), LOOPBACK)
        text = f"net.ipv4.conf.{link}.route_localnet = 0"
        return f"Addresses of the loopback do not pass {link}.{answer}", Culprit("sysctl", text)
    decision = scene.tables.decide(query)
    blocked = _blocked(decision)
    if blocked:
        return f"{_sentence_for(blocked)} stops the packet: {blocked.text}.{answer}", blocked
    down = [name for name in sorted(decision.route.links if decision.route else ()) if topology.trouble_of(name)]
    if down:
        trouble = topology.trouble_of(down[0])
        return f"{down[0]}, by which the packet would leave, {trouble}.{answer}", Culprit("link", f"{down[0]} {trouble}")
    if topology.bridge(link) and (_translated(events, scene) or query.destination) == packet.source:
        doubt = "" if topology.tells_hairpin(link) else ". This is assumed, because the snapshot lacks the setting"
        reason = f"The frame would have to leave by {link}, by which it came in, and hairpin is off there{doubt}."
        return f"{reason}{answer}", Culprit("link", f"{link} hairpin off")
    if topology.bridge(link):
        return f"No port of the bridge takes the frame.{answer}", Culprit("link", link)
    if answer:
        return answer.strip(), None
    return "The packet is lost in the kernel, which does not show where.", None


def _with_queue(finding: Finding) -> Finding:
    """Return the finding, with the verdict ``unknown`` if a rule hands the packet to a program: a twin has none."""
    step = next((step for step in finding.steps if step.verdict == QUEUE), None)
    if step is None:
        return finding
    reason = f"A program that reads the queue decides, and a twin has none: {step.text}. Without it: {finding.reason}"
    culprit = Culprit("rule", f"{step.where.rpartition(' ')[0]}: {step.text}")
    return finding._replace(verdict=UNKNOWN, reason=reason, culprit=culprit)


def _with_programs(packet: Packet, finding: Finding, scene: Scene) -> Finding:
    """Return the finding, with the verdict ``unknown`` if a BPF program is on the packet's path: a twin has none."""
    on_path = list(scene.programs.get((packet.interface, "ingress"), ()))
    on_path += scene.programs.get((finding.interface, "egress"), ()) if finding.interface else ()
    if not on_path:
        return finding
    names = ", ".join(on_path)
    reason = f"BPF programs on the path decide, and a twin has none: {names}. Without them: {finding.reason}"
    return finding._replace(verdict=UNKNOWN, reason=reason, culprit=Culprit("bpf", names))
