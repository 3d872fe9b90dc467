# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make commands of an operator that remove or change the object that stopped a packet, and say what else they affect."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._core import fields
from .._ebtables.ebtables_options import EBTABLES
from .._netfilter import restore_text
from .._netfilter.rule_words import IPTABLES
from .._routing import rt_names
from .._routing.route import Route
from .._routing.rule import Rule
from .._ruleset import iptables_save, observed
from .._ruleset.ruleset import DROP, LEGACY, NFT, REJECT
from .._snapshot import settings as setting_model
from .._snapshot import tunnels, values
from .._snapshot.open_facts import Fact
from .._snapshot.values import Entry
from .._twin import blueprint, legacy_half, pod_links
from .answer import Caveat
from .culprit import BRIDGE, DOWN, NO_HAIRPIN, ChainRule, Link, Neighbor, NoRoute, Object, Setting, is_filter, is_forwarding

# The chain whose rules and policy a command may change. Packets for the node itself do not meet it, nor do those that it sends.
FORWARD = "FORWARD"
DOCKER = "DOCKER-USER"  # the chain that Docker enters from FORWARD first, and leaves empty for others
STOPPING, OF_BRIDGE = (DROP, REJECT), "dnat"  # of rules that a command may remove; the latter sends frames elsewhere
DESTINATIONS = ("ip daddr", "ip6 daddr", "--ip-dst", "--ip6-dst", "--ip-destination", "--ip6-destination")  # fields of matches
# In rules that programs add to FORWARD themselves, in a comment or in the name of a link.
NAMES_OF_PROGRAMS = re.compile(r"cali|cilium|docker|flannel|kube|libvirt|weave", re.I)
# Addresses at which clouds answer for a node, with its credentials. What keeps packets from there is meant to.
METADATA = tuple(
    map(
        ipaddress.ip_network,
        ("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128"),
    )
)
# Protocols of routes and policy rules that an operator adds: ip(8) gives boot to a route and unspec to a rule.
OPERATORS = ("", "unspec", "boot", "static")
MISLED = "policy rule"  # the group of the remedies for one whose table leads packets to where they are lost
FORWARDING = "net.ipv4.ip_forward"  # which sets that of all links
PROXY_ARP = "proxy_arp"
_TARGET = re.compile(r" ?-[jg] \S+.*$")  # of a rule as iptables prints it
_ADDING = re.compile(r"(?:\[\d+:\d+\] )?-[AI] ")
_PROGRAMS = {"ip": "iptables", "ip6": "ip6tables", "bridge": "ebtables"}


class Loss(t.NamedTuple):
    """Describe a packet that was lost, or one that a cloud may drop.

    decider: the object that stopped it; None for a packet that arrives with a caveat. came_in_by: its link. rules: the policy
    rule that decided about it and that about the way back; None for one of the kernel. is_reply: whether the reply was lost, and
    not the packet. bridge: of which that link is a port. leaves_by: the link of its route. caveats: why a cloud may have dropped
    the packet before its reply was lost.
    """

    decider: Object | None
    came_in_by: str = ""
    rules: t.Sequence[Rule | None] = ()
    is_reply: bool = False
    bridge: str = ""
    leaves_by: str = ""
    caveats: t.Collection[Caveat] = ()


class Removal(t.NamedTuple):
    """Describe a command.

    name: of the task. takes_along: a sentence about what else the command affects. opens_route: whether it removes a route. Such
    a command is no cure if the packet leaves by a default route instead. further: commands that follow. group: of removals with
    the same group, the first one that works is offered, and so the smallest.
    """

    name: str
    command: str
    takes_along: str
    opens_route: bool = False
    further: tuple[str, ...] = ()
    group: str = ""


def of_loss(loss: Loss, snapshot: Entry, kept_tables: t.Collection[int] = ()) -> t.Iterator[Removal]:
    """Yield the commands to try, that for the culprit first. kept_tables: those of ENIs, to which rules of the CNI lead."""
    decider = loss.decider
    rules: t.Sequence[Rule | None] = ()
    if isinstance(decider, ChainRule):
        yield from _of_table_rule(decider, loss, snapshot)
    elif isinstance(decider, Rule):
        rules = [decider]
    elif isinstance(decider, Route):
        yield from _of_route(decider, snapshot)
        rules = loss.rules[:1]
    elif isinstance(decider, Neighbor) and _has_neighbor(decider, snapshot):
        family = " -6" if ":" in decider.address else ""
        command = f"ip{family} neigh del {decider.address} dev {decider.link}"
        yield Removal("Remove the stale neighbour", command, f"The node asks for the MAC address of {decider.address} again.")
    elif isinstance(decider, Link):
        yield from _of_link(decider, snapshot)
    elif isinstance(decider, NoRoute) and not decider.place:
        yield from _of_missing_route(decider, snapshot)
    elif isinstance(decider, Setting) and is_forwarding(decider):
        yield from _of_forwarding(decider, loss, snapshot)
    elif isinstance(decider, Setting) and decider.key in setting_model.BRIDGED.values():
        takes_along = "The rules of IP see all frames between ports of bridges."
        yield Removal("Show the frames of bridges to rules", f"sysctl -w {decider.key}=1", takes_along)
    elif isinstance(decider, Setting) and decider.name == PROXY_ARP:
        link = decider.path.split("/")[-2]
        takes_along = f"The node answers on {link} for each address to which a route leads by another link."
        yield Removal("Let the node answer for the gateway of the pod", f"sysctl -w {decider.key}=1", takes_along)
    elif is_filter(decider):
        rules = loss.rules[1:]
    for rule in filter(None, rules):
        yield from _of_policy_rule(rule, snapshot, kept_tables)


def misleading_rule(loss: Loss) -> Rule | None:
    """Return the policy rule whose table leads a packet to where it is lost; None if no such rule decides."""
    rule = loss.decider if isinstance(loss.decider, Rule) else next(iter(loss.rules), None)
    return rule if rule is not None and rule.table and not rule.opaque else None


def _has_neighbor(neighbor: Neighbor, snapshot: Entry) -> bool:
    """Return whether the node knows a neighbour, if only as one that does not answer."""
    places = ((each.dev, each.address) for each in values.neighbours(snapshot))
    return (neighbor.link, neighbor.address) in places


def is_of_cloud(network: str) -> bool:
    """Return whether a cloud answers at an address of the network for the node."""
    try:
        addresses = ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
    return any(addresses.version == other.version and addresses.overlaps(other) for other in METADATA)


def _of_table_rule(rule: ChainRule, loss: Loss, snapshot: Entry) -> t.Iterator[Removal]:
    """Remove a rule of iptables or ebtables, or set the policy of FORWARD. No command names a rule of nft by its text."""
    if not rule.is_of_iptables:
        return
    program = _PROGRAMS[rule.family]
    if not rule.handle:
        if (rule.table, rule.chain) == ("filter", FORWARD):
            if _has_chain(DOCKER, rule, snapshot):
                yield from _for_docker(program, loss)
            takes_along = "All forwarded packets about which no rule of FORWARD decides are accepted."
            yield Removal("Accept forwarded packets", f"{program} -P {rule.chain} ACCEPT", takes_along, group=FORWARD)
    elif _may_be_removed(rule) and _count(rule, snapshot) == 1:
        matches = _TARGET.sub("", rule.line).removeprefix(f"-A {rule.chain}").strip() or "every packet"
        takes_along = f"All packets that the rule matches go on to the rule after it in {rule.chain}: {matches}."
        command = f"{program} -t {rule.table} -D {_ADDING.sub('', rule.line)}"
        yield Removal("Remove the rule that stops the packet", command, takes_along)


def _has_chain(name: str, rule: ChainRule, snapshot: Entry) -> bool:
    """Return whether the table of a rule of iptables has a chain."""
    tables = observed.of_iptables(snapshot, rule.table)
    return any(table.family == rule.family and name in table.chains for table in tables)


def _for_docker(program: str, loss: Loss) -> t.Iterator[Removal]:
    """Accept packets in the chain that Docker leaves to others: by both of their links, then all of the first one."""
    link, further = loss.bridge or loss.came_in_by, loss.leaves_by
    name, rule = f"Accept the packets of {link} before Docker's policy", f"{program} -I {DOCKER}"
    if link and further:
        takes_along = f"All packets that come in by {link} and leave by {further} are accepted."
        yield Removal(name, f"{rule} -i {link} -o {further} -j ACCEPT", takes_along, group=FORWARD)
    if link:
        takes_along = f"All forwarded packets that come in or leave by {link} are accepted."
        yield Removal(name, f"{rule} -i {link} -j ACCEPT", takes_along, further=(f"{rule} -o {link} -j ACCEPT",), group=FORWARD)


def _may_be_removed(rule: ChainRule) -> bool:
    """Return whether a rule protects neither the node nor its cloud, and belongs to no program, which would add it again.

    A chain that is not built in belongs to the program that made it.
    """
    parsed = iptables_save.rule(rule.family, rule.line)
    verdict = parsed.verdict
    if verdict is None or (rule.family, verdict.target) == (BRIDGE, OF_BRIDGE):
        return verdict is not None
    to = (
        value
        for match in parsed.matches
        if match.field.strip() in DESTINATIONS and not match.is_negated
        for value in match.values
    )
    is_for_cloud = any(map(is_of_cloud, to))
    is_of_forward = rule.chain in (FORWARD, legacy_half.of_legacy(FORWARD))
    return is_of_forward and verdict.kind in STOPPING and not is_for_cloud and not NAMES_OF_PROGRAMS.search(rule.line)


def _count(rule: ChainRule, snapshot: Entry) -> int:
    """Count the rules with the same text, of which a command removes the first."""
    is_bridge = rule.family == BRIDGE
    chains = (chain for chain in values.frame_chains(snapshot) if is_bridge and chain.table == rule.table)
    added = [f"-A {chain.chain} {text}" for chain in chains for text in chain.rules]
    place = rule.family, rule.table
    saved = {each.backend: each.save for each in values.saved_tables(snapshot) if (each.family, each.table) == place}
    text = "\n".join([f"*{rule.table}", *added] if is_bridge else saved.values())
    if len(saved) > 1:
        text, _hooks = legacy_half.merged(*place, saved[NFT], saved[LEGACY])
    language = EBTABLES if is_bridge else IPTABLES
    lines = restore_text.read(text, language).text.splitlines()  # in the words of the twin, from which the culprit's are
    return [_ADDING.sub("", line, count=1) for line in lines].count(_ADDING.sub("", rule.line))


def _of_route(route: Route, snapshot: Entry) -> t.Iterator[Removal]:
    entries = blueprint.parsed_routes(values.routes(snapshot), [])
    protocols = {
        protocol for each, protocol in entries if (each.family, each.dst, each.table) == (route.family, route.dst, route.table)
    }
    if route.unread or not protocols or not protocols <= {*OPERATORS}:
        return
    takes_along = f"All packets to {fields.show_prefix(route.dst, 'any address')} take the next route or policy rule that fits."
    program, _route, words = str(route).partition(" route ")
    yield Removal("Remove the route that stops the packet", f"{program} route del {words}", takes_along, opens_route=True)


def _of_policy_rule(rule: Rule, snapshot: Entry, kept_tables: t.Collection[int]) -> t.Iterator[Removal]:
    # By rules to table main, a CNI leads the packets for its pods past the rules of their interfaces.
    if rule.opaque or rule.l3mdev or rule.table in (*kept_tables, rt_names.MAIN):
        return
    if rule.table and _leads_into_tunnel(rule, snapshot):  # what is to be encrypted would leave by another link
        return
    places = {(fields.FAMILIES[each.family], each.priority, each.protocol) for each in values.rules(snapshot)}
    protocols = {protocol for *place, protocol in places if place == [rule.family, rule.priority]}
    if not protocols or not protocols <= {*OPERATORS}:
        return
    takes_along = f"The rules after it decide about all packets that it selects: {rule.selector}."
    program = "ip -6" if rule.family == fields.IPV6 else "ip"
    command = f"{program} rule del priority {rule.priority} {rule.selector} {rule.decision}"
    group = MISLED if rule.table else ""
    yield Removal("Remove the policy rule that misleads the packet", command, takes_along, group=group)


def _leads_into_tunnel(rule: Rule, snapshot: Entry) -> bool:
    """Return whether a route of the rule's table leads into a tunnel, in either family: that of this one may be broken."""
    links = {link.name for link in values.links(snapshot) if tunnels.is_tunnel(link)}
    return any(route.table == str(rule.table) and route.dev in links for route in values.routes(snapshot))


def _of_missing_route(missing: NoRoute, snapshot: Entry) -> t.Iterator[Removal]:
    """Lead packets for a network by its link, and those for a pod by the link whose other end has its address."""
    address = missing.destination
    if missing.network:
        command = f"{'ip -6' if ':' in address else 'ip'} route add {missing.network}"
        yield Removal("Lead packets to the network", command, f"Packets to {missing.network.replace(' dev', ' leave by')}.")
    for link in values.links(snapshot):
        if address in _pod_addresses(link, snapshot) and not link.master:
            yield Removal("Lead packets to the pod", _route_to(address, link), f"Packets to {address} leave by {link.name}.")


def _pod_addresses(link: values.Link, snapshot: Entry) -> tuple[str, ...]:
    """Return the addresses of the pod at the other end of a link."""
    return link.peer.addresses if link.name in pod_links.pod_links(values.links(snapshot), values.routes(snapshot)) else ()


def _route_to(address: str, link: values.Link) -> str:
    return f"{'ip -6' if ':' in address else 'ip'} route add {address} dev {link.name}"


def _of_link(link: Link, snapshot: Entry) -> t.Iterator[Removal]:
    if link.trouble == NO_HAIRPIN:
        takes_along = f"The bridge sends frames, also to a group, back by {link.name}, by which they came in."
        yield Removal("Let the bridge send frames back by the port", f"bridge link set dev {link.name} hairpin on", takes_along)
    elif link.trouble == DOWN:
        up, takes_along = f"ip link set dev {link.name} up", f"All packets pass {link.name} again."
        yield Removal("Set the link up", up, takes_along, group=link.name)
        # With a link that goes down, the kernel removes its routes, and its addresses of IPv6.
        down = next((each for each in values.links(snapshot) if each.name == link.name), values.Link())
        pods = (pod for pod in _pod_addresses(down, snapshot) if not ipaddress.ip_address(pod).is_link_local)
        routes = (*_gateways(down, snapshot), *(_route_to(pod, down) for pod in pods))
        if routes:
            yield Removal("Set the link up, and lead packets to its pod", up, takes_along, further=routes, group=link.name)


def _gateways(link: values.Link, snapshot: Entry) -> t.Iterator[str]:
    """Yield commands that add the link-local addresses by which a pod sends, but for that which the kernel makes (RFC 4291)."""
    made = blueprint.mac_bytes(link.mac) if blueprint.is_mac(link.mac) else b""
    own = fields.show(b"\xfe\x80" + bytes(6) + bytes([made[0] ^ 2]) + made[1:3] + b"\xff\xfe" + made[3:]) if made else ""
    namespace = link.peer.namespace
    sides = (pod for pod in values.pods(snapshot) if namespace and pod.namespace == namespace)
    gateways = {route.via for side in sides for route in side.routes if route.to == "default"}
    for gateway in sorted(gateways):
        if gateway.startswith("fe80:") and gateway != own:
            yield f"ip -6 addr add {gateway}/64 dev {link.name} nodad"


def _of_forwarding(setting: Setting, loss: Loss, snapshot: Entry) -> t.Iterator[Removal]:
    """Let the node forward. Any other setting that is 0, such as route_localnet, protects the node.

    IPv4 forwards by the setting of the link by which a packet comes in: that of the packet, and that of its reply. A node that
    forwards by some of its links gets no command for all of them: it would become a router between any two.
    """
    name, every = "Let the node forward packets", "The node forwards packets between all of its links."
    if setting.path.startswith("net/ipv6/"):
        every += " Its links with accept_ra = 1 lose the default routes that routers advertise."
        yield Removal(name, f"sysctl -w {setting.key}=1", every)
        return
    link = Fact(setting.key, "", "").subject
    for links in dict.fromkeys(tuple(dict.fromkeys(filter(None, names))) for names in ((link,), (link, loss.leaves_by))):
        keys = " ".join(f"{Setting(f'net/ipv4/conf/{each}/forwarding', 1).key}=1" for each in links)
        takes_along = f"The node forwards all packets that come in by {' or '.join(links)}."
        yield Removal(name, f"sysctl -w {keys}", takes_along, group=FORWARDING)
    settings = values.settings(snapshot)
    names = (each.name for each in values.links(snapshot) if each.name != blueprint.LOOPBACK)
    if not any(settings.forwarding("ipv4", each) for each in names):
        yield Removal(name, f"sysctl -w {FORWARDING}=1", every, group=FORWARDING)
