# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Make commands of an operator that remove or change the object that stopped a packet, and say what else they affect."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._ebtables.ebtables_options import EBTABLES
from .._netfilter import restore_text
from .._netfilter.rule_words import IPTABLES
from .._twin import blueprint
from .._twin.blueprint import Entry

# The chain whose rules and policy a command may change. Packets for the node itself do not meet it, nor do those that it sends.
FORWARD = "FORWARD"
TARGETS, OF_BRIDGE = ("DROP", "REJECT"), "dnat"  # of rules that a command may remove; the latter sends frames elsewhere
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
FORWARDING = "net.ipv4.ip_forward"  # which sets that of all links
FORWARDING_IPV6 = "net.ipv6.conf.all.forwarding"
UNREADABLE = "with attributes that this collection cannot read"
_TARGET = re.compile(r" ?-[jg] \S+.*$")
_ACTION = re.compile(r" (?:lookup|goto|blackhole|unreachable|prohibit)\b.*$")
_TABLES = re.compile(r"(ip6?|bridge) (\w+)(?: \S+)?: (-[AP]) (\S+) ?(.*)")
_JUMP = re.compile(r"(?:^| )-j ([^\s\"]+)[^\"]*$")  # behind the texts of the matches
_DESTINATION = re.compile(r"(?:^|(?<!!) )(?:-d|--(?:ip6?-)?(?:dst|destination)) (\S+)")
_ADDING = re.compile(r"(?:\[\d+:\d+\] )?-[AI] ")
_LINK_SETTING = re.compile(r"net\.ipv4\.conf\.\S+\.forwarding")
_PROGRAMS = {"ip": "iptables", "ip6": "ip6tables", "bridge": "ebtables"}


class Loss(t.NamedTuple):
    """Describe a packet that was lost, or one that a cloud may drop.

    culprit: as in the result; None for a packet that arrives with a caveat. came_in_by: its link. rules: the policy rule that
    decided about it and that about the way back, as ip(8) prints them; empty for one of the kernel. is_reply: whether the reply
    was lost, and not the packet.
    """

    culprit: t.Mapping[str, str] | None
    came_in_by: str = ""
    rules: t.Sequence[str] = ()
    is_reply: bool = False


class Removal(t.NamedTuple):
    """Describe a command.

    name: of the task. takes_along: a sentence about what else the command affects. opens_route: whether it removes a route. Such
    a command is no cure if the packet leaves by a default route instead.
    """

    name: str
    command: str
    takes_along: str
    opens_route: bool = False


def of_loss(loss: Loss, snapshot: Entry, kept_tables: t.Collection[str] = ()) -> t.Iterator[Removal]:
    """Yield the commands to try, that for the culprit first. kept_tables: those of ENIs, to which rules of the CNI lead."""
    culprit = loss.culprit or {"kind": "", "text": ""}
    kind, text = culprit["kind"], culprit["text"]
    is_filter = "rp_filter" in text
    if kind == "rule":
        yield from _of_table_rule(text, snapshot)
    elif kind == "route":
        yield from _of_route(text, snapshot)
    elif kind == "neighbor":
        address, _dev, link, *_rest = text.split()
        command = f"ip{' -6' if ':' in address else ''} neigh del {address} dev {link}"
        yield Removal("Remove the stale neighbour", command, f"The node asks for the MAC address of {address} again.")
    elif kind == "link":
        yield from _of_link(text)
    elif kind == "sysctl" and not is_filter:
        yield from _of_setting(text)
    rules = [text] if kind == "rule" else loss.rules[:1] if kind == "route" else loss.rules[1:] if is_filter else []
    for rule in rules:
        yield from _of_policy_rule(rule, snapshot, kept_tables)


def is_of_cloud(network: str) -> bool:
    """Return whether a cloud answers at an address of the network for the node."""
    try:
        addresses = ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
    return any(addresses.version == other.version and addresses.overlaps(other) for other in METADATA)


def _of_table_rule(text: str, snapshot: Entry) -> t.Iterator[Removal]:
    """Remove a rule of iptables or ebtables, or set the policy of FORWARD. No text names a rule of nft in a command."""
    match = _TABLES.fullmatch(text)
    if not match:
        return
    family, table, verb, chain, rest = match.groups()
    program = _PROGRAMS[family]
    if verb == "-A":
        if _may_be_removed(family, chain, rest) and _count(family, table, f"{chain} {rest}", snapshot) == 1:
            matches = _TARGET.sub("", rest)
            takes_along = f"All packets that the rule matches go on to the rule after it in {chain}: {matches or 'every packet'}."
            yield Removal("Remove the rule that stops the packet", f"{program} -t {table} -D {chain} {rest}", takes_along)
    elif (table, chain, rest) == ("filter", FORWARD, "DROP"):
        takes_along = "All forwarded packets about which no rule of FORWARD decides are accepted."
        yield Removal("Accept forwarded packets", f"{program} -P {chain} ACCEPT", takes_along)


def _may_be_removed(family: str, chain: str, rest: str) -> bool:
    """Return whether a rule protects neither the node nor its cloud, and belongs to no program, which would add it again.

    A chain that is not built in belongs to the program that made it.
    """
    target = _JUMP.search(rest)
    if not target or (family, target[1]) == ("bridge", OF_BRIDGE):
        return bool(target)
    is_for_cloud = any(map(is_of_cloud, _DESTINATION.findall(rest)))
    return chain == FORWARD and target[1] in TARGETS and not is_for_cloud and not NAMES_OF_PROGRAMS.search(rest)


def _count(family: str, table: str, rule: str, snapshot: Entry) -> int:
    """Count the rules with a text, of which a command removes the first. rule: its chain and what follows."""
    is_bridge = family == "bridge"
    tables = [
        entry
        for entry in blueprint.entries(snapshot, "ebtables" if is_bridge else "iptables")
        if entry.get("table") == table and (is_bridge or entry.get("family") == family)
    ]
    rules = [f"-A {entry.get('chain')} {text}" for entry in tables for text in entry.get("rules") or ()]
    text = "\n".join([f"*{table}", *rules]) if is_bridge else "\n".join(str(entry.get("save")) for entry in tables)
    language = EBTABLES if is_bridge else IPTABLES
    lines = restore_text.read(text, language).text.splitlines()  # in the words of the twin, from which the culprit's are
    return [_ADDING.sub("", line, count=1) for line in lines].count(rule)


def _of_route(text: str, snapshot: Entry) -> t.Iterator[Removal]:
    protocols = {protocol for route, protocol in blueprint.parsed_routes(snapshot, []) if _place(str(route)) == _place(text)}
    if UNREADABLE in text or not protocols or not protocols <= {*OPERATORS}:
        return
    family, to, _table = _place(text)
    words = text.split(" ")
    rest = words[len(family) + 2 :]
    takes_along = f"All packets to {'any address' if to == 'default' else to} take the next route or policy rule that fits."
    command = " ".join(["ip", *family, "route", "del", *rest])
    yield Removal("Remove the route that stops the packet", command, takes_along, opens_route=True)


def _place(route: str) -> tuple[tuple[str, ...], str, str]:
    """Return the option for the family, the destination and the table of a route as ip(8) prints it."""
    _ip, *words = route.split(" ")
    to = next((word for word in words[1:] if word == "default" or word[0].isdigit() or ":" in word), "")
    return tuple(words[:1] if words[0] == "-6" else ()), to, words[words.index("table") + 1]


def _of_policy_rule(text: str, snapshot: Entry, kept_tables: t.Collection[str]) -> t.Iterator[Removal]:
    match = re.fullmatch(r"ip( -6)? rule (\d+): (.*)", text)
    if not match or UNREADABLE in text or "[l3mdev-table]" in text:
        return
    table = re.search(r" lookup (\S+)", text)
    if table and table[1] in kept_tables:
        return
    place = "ipv6" if match[1] else "ipv4", match[2]
    entries = (rule for rule in blueprint.entries(snapshot, "rules") if _place_of_rule(rule) == place)
    protocols = {str(rule.get("protocol") or "") for rule in entries}
    if not protocols or not protocols <= {*OPERATORS}:
        return
    takes_along = f"The rules after it decide about all packets that it selects: {_ACTION.sub('', match[3])}."
    command = f"ip{match[1] or ''} rule del priority {match[2]} {match[3]}"
    yield Removal("Remove the policy rule that misleads the packet", command, takes_along)


def _place_of_rule(rule: Entry) -> tuple[str, str]:
    return str(rule.get("family") or "ipv4"), str(rule.get("priority"))


def _of_link(text: str) -> t.Iterator[Removal]:
    link, _blank, trouble = text.partition(" ")
    if trouble == "hairpin off":
        takes_along = f"The bridge sends frames, also to a group, back by {link}, by which they came in."
        yield Removal("Let the bridge send frames back by the port", f"bridge link set dev {link} hairpin on", takes_along)
    elif trouble == "is down":
        yield Removal("Set the link up", f"ip link set dev {link} up", f"All packets pass {link} again.")


def _of_setting(text: str) -> t.Iterator[Removal]:
    """Let the node forward. Any other setting that is 0, such as route_localnet, protects the node."""
    key = text.partition(" = ")[0]
    key = FORWARDING if _LINK_SETTING.fullmatch(key) else key
    takes_along = "The node forwards packets between all of its links."
    if key == FORWARDING_IPV6:
        takes_along += " Its links with accept_ra = 1 lose the default routes that routers advertise."
    if key in (FORWARDING, FORWARDING_IPV6):
        yield Removal("Let the node forward packets", f"sysctl -w {key}=1", takes_along)
