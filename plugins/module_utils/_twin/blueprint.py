# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A snapshot as what has to be built: links, settings, and texts for the programs that load the rest.

The snapshot may come from a report, so its values are data: names and numbers are checked, and of rules and rulesets only
permitted words are passed on.
"""

from __future__ import annotations

import functools
import re
import typing as t

from .._core import fields, memo
from .._core.errors import Invalid
from .._core.fields import IPV6
from .._core.names import DOTTED
from .._routing import route, rt_names, rule
from .._ruleset import nft_objects
from .._ruleset.generated import Generated
from .._ruleset.ruleset import LEGACY
from .._snapshot import assumption
from .._snapshot.assumption import Assumption, Concern
from .._snapshot.entries import SETTINGS, VETH
from .._snapshot.open_facts import ROUTES
from .._snapshot.settings import LINK, NODE, Settings
from .._snapshot.values import (
    ETHERNET,
    FAMILIES,
    Address,
    Entry,
    FrameChain,
    Link,
    Neighbour,
    PolicyRule,
    Route,
    Snapshot,
    kernels,
)
from . import bounds, foreign_tables, lacking, legacy_half, translating_programs, virtual_servers, vrfs
from .foreign_tables import RESTORES
from .link_messages import NewLink
from .substitutions import GROUP_ROUTE, HALF, LINK_KIND, NEXT_HOPS, PAIR, QUEUE, SENDER, STACKED_LINK, SWITCH, gap, replaced

LOOPBACK = "lo"
PORT_SETTINGS = ("hairpin", "isolated")  # of a bridge's ports, those that decide which port a frame leaves by
USUAL = {"mcast_router": 1, "mcast_snooping": 1}  # settings of a new bridge that are not 0 (net/bridge/br_device.c)
LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
OWN_TABLE = f"kubenodeTwin-{virtual_servers.TOKEN}"  # makes the kernel report which rules a packet meets
OWN_MAC, WORLD_MAC = 0x02, 0x06  # first bytes of made-up addresses: of the node's links, and of the other ends
SPARE_INDEX = 100000  # given to the first link whose index is not known
LARGEST_INDEX = 2**31 - 1
LOCAL_TABLE = 255
LOCAL_RULE = "priority 0 from all lookup local"
KERNELS_RULES = {"ipv4": (32766, 32767), "ipv6": (32766,)}  # of a new network namespace, besides LOCAL_RULE
TO_MANY = ("broadcast", "anycast", "multicast")  # types of routes that are not built: a packet to one host takes none
KERNELS = "kernel"  # the protocol of routes that the kernel adds with an address
FILLING = re.compile(r"\b(?:add|update|delete) @")  # in the text of a rule by which packets fill a set
# Flags of an address that is no source if there is another one. In IPv6 the kernel has one bit for temporary and secondary.
AVOIDED = frozenset(["deprecated", "temporary"])
WIRED = ("", "veth", "tun")  # kinds of links that have no carrier unless a flag says so
ROUTED_MASTERS = ("vrf", "bond", "team")  # whose ports pass no frames to each other
# Queueing disciplines (net/sched) without classes or filters of an administrator, which lose packets only if many wait.
PLAIN_QUEUES = (
    "noqueue", "noop", "pfifo_fast", "pfifo", "fq", "fq_codel", "codel", "cake", "sfq", "mq", "mqprio", "multiq", "pie", "fq_pie",
    "red", "hhf",
)  # fmt: skip
STACKED = ("vlan", "macvlan", "ipvlan", "bond")  # kinds whose packets leave by another link
# Settings of the node in a snapshot that a network namespace alone does not have: limits, and a switch of the whole machine that
# cannot be set back before it restarts.
OF_THE_MACHINE = (
    "net/ipv4/neigh/default/gc_thresh3", "net/ipv6/neigh/default/gc_thresh3", "net/ipv6/route/max_size",
    "net/netfilter/nf_conntrack_max", "net/netfilter/nf_hooks_lwtunnel",
)  # fmt: skip
PERMITTED_SETTINGS = frozenset(NODE) - {*OF_THE_MACHINE}  # besides those of links
# The first would add addresses that the node does not have; the second is a property of each link in the snapshot.
SKIPPED_SETTINGS = ("addr_gen_mode", "mtu")
BOTH = ("all", "default")
_OF_LINK = re.compile(r"net/(ipv4|ipv6)/conf/([^/]+)/(\w+)")


class Blueprint(t.NamedTuple):
    """What has to be built.

    links: in the node's order, and each bridge before its ports. names: of all links by index. settings: path below /proc/sys and
    value, in the order of writing. addresses: lines for ``ip -batch``, with those for ports of bridges. rules, neighbours: such
    lines, each with the rule that it adds, if it adds one, or with the neighbour's address. routes: those that the twin must have
    in the end. tables: family and number of those that have no other routes. restores: program and text, one for each table of
    iptables. hooks: of tables that both backends of iptables have. ruleset: nft's JSON objects. ruleset_text: the same as text.
    generated: what the text lacks.
    servers: addresses of IPVS by family of nft. sizes: of the sets. notes: what is different in the twin.
    """

    links: list[NewLink]
    names: dict[int, str]
    settings: list[tuple[str, int]]
    addresses: list[str]
    rules: list[tuple[str, rule.Rule | None]]
    neighbours: list[tuple[str, bytes]]
    routes: list[tuple[route.Route, str]]
    tables: frozenset[tuple[int, int]]
    restores: list[tuple[str, str]]
    hooks: list[legacy_half.Hook]
    ruleset: t.Sequence[Entry]
    ruleset_text: str
    generated: Generated | None
    servers: dict[str, list[str]]
    sizes: bounds.Sets
    notes: list[Assumption]

    @property
    def commands(self) -> list[str]:
        """Return all lines for ``ip -batch`` but those of routes."""
        return [*self.addresses, *(line for line, _part in (*self.rules, *self.neighbours))]

    @property
    def has_filled_sets(self) -> bool:
        """Return whether rules may fill sets."""
        return bool(FILLING.search(self.ruleset_text)) or nft_objects.have_packets_fill_sets(self.ruleset)


def draw(snapshot: Snapshot) -> Blueprint:
    """Return the blueprint of a snapshot. Raises Invalid if a name or an address is none, or a set is larger than its bound."""
    notes, sizes, hooks = list[Assumption](), bounds.Sets(), list[legacy_half.Hook]()
    links = _links([link for link in snapshot.links if link.name != LOOPBACK], notes)
    names = {link.number: link.name for link in links} | {1: LOOPBACK}
    separate = vrfs.from_links(snapshot.links, notes)
    desired = parsed_routes(snapshot.routes or (), notes)
    servers, differences = virtual_servers.ruleset(snapshot.ipvs)
    notes += differences
    programs = translating_programs.stand_ins(snapshot.bpf, snapshot.links)
    notes += translating_programs.assumptions(programs.values())
    objects = foreign_tables.objects(snapshot.nftables, (OWN_TABLE,), sizes, notes)
    objects = foreign_tables.of_links(objects, names.values(), notes)
    text = foreign_tables.ruleset(snapshot.ruleset_text, (OWN_TABLE,), sizes, notes)
    return Blueprint(
        links,
        names,
        list(_settings(snapshot.settings, {*names.values()})),
        [*_bridge_ports(snapshot.links), *_addresses(snapshot.links, vrfs.ports(separate))],
        list(_rules(snapshot.rules, separate, notes)),
        list(_neighbours(snapshot.neighbors)),
        desired,
        frozenset([*((parsed.family, parsed.table) for parsed, _protocol in desired), *_tables(snapshot, separate)]),
        list(_restores(snapshot, sizes, hooks, notes)),
        hooks,
        objects,
        "\n".join(filter(None, (text, servers, *(each.table for each in programs.values())))),
        snapshot.generated,
        virtual_servers.addresses(snapshot.ipvs) if servers else {},
        sizes,
        notes,
    )


def _links(links: t.Sequence[Link], notes: list[Assumption]) -> list[NewLink]:
    used, indexes = {1}, dict[str, int]()
    for number, link in enumerate(links):
        name, index = fields.checked(f"snapshot.links[{number}].name", link.name, fields.link), link.number
        if index in used or not 1 < index < LARGEST_INDEX:
            index = SPARE_INDEX + number
        used.add(index)
        if name in indexes:
            raise Invalid(f"snapshot.links[{number}].name", name, "a name that no other link has")
        indexes[name] = index
    bridges = {link.name for link in links if link.kind == "bridge"}
    masters = {link.name: indexes[link.master] for link in links if link.master in bridges}
    notes += _ports_of_others(links)
    notes += (*_pairs(links), *_queues(links))
    new_links = [_link(link, indexes[link.name], masters.get(link.name, 0), indexes, notes) for link in links]
    firsts = dict(sorted(((link.master, link.number) for link in new_links if link.master), reverse=True))
    # The kernel takes the source of a packet by a link without addresses from the first link that has one.
    return sorted(new_links, key=lambda link: (min(link.number, firsts.get(link.number, link.number)), link.kind != "bridge"))


def _ports_of_others(links: t.Sequence[Link]) -> t.Iterator[Assumption]:
    """Yield an open fact for each port of a link that may forward between its ports by other means than a bridge."""
    kinds = {link.name: link.kind for link in links}
    for link in links:
        kind = kinds.get(link.master, "")
        if link.master and kind not in ("bridge", *ROUTED_MASTERS):
            of_kind = f"a link of kind {kind}" if kind else "whose kind is not known"
            sentence = f"{link.name} is a port of {link.master}, {of_kind}. In the twin, it is a link of its own."
            concern = Concern(assumption.LINK, link.name)
            yield replaced(SWITCH if kind else LINK_KIND, sentence, concern, subject=link.master)


def _pairs(links: t.Sequence[Link]) -> t.Iterator[Assumption]:
    """Yield an open fact for each end of a pair of links of which both ends are on the node."""
    ends = {link.name: link.parent or ("" if link.peer.namespace else link.peer.name) for link in links if link.kind == VETH}
    for link in links:
        if link.kind == VETH and ends.get(ends[link.name]) == link.name:
            sentence = f"What {link.name} sends comes out of {ends[link.name]}. In the twin, both have far ends of their own."
            concerns = (Concern(assumption.LINK, name) for name in (link.name, link.master) if name)
            yield replaced(PAIR, sentence, *concerns, subject=link.name)


def _queues(links: t.Sequence[Link]) -> t.Iterator[Assumption]:
    """Yield an open fact for each link whose queue may lose a packet though nothing else waits in it."""
    for link in links:
        if link.qdisc and link.qdisc not in PLAIN_QUEUES:
            sentence = f"The queueing discipline of {link.name}, of kind {link.qdisc}, is not in the twin."
            yield replaced(QUEUE, sentence, Concern(assumption.LINK, link.name), subject=link.name)


def _link(link: Link, index: int, master: int, names: t.Container[str], notes: list[Assumption]) -> NewLink:
    flags, is_bridge = link.flags, link.kind == "bridge"
    if link.kind in STACKED:
        below = link.parent or "the link below it"
        sentence = f"{link.name} is a link of kind {link.kind}. In the twin, its packets do not pass {below}."
        is_seen = link.kind == "bond" or link.parent in names
        concern = Concern(assumption.LINK, link.name)
        notes.append(replaced(STACKED_LINK if is_seen else LINK_KIND, sentence, concern, subject=link.name))
    numbers = {label: number for number, label in SETTINGS["bridge"].items()}
    bridge_settings = link.settings.items() if is_bridge else ()
    # A kernel refuses a setting that it was built without, so the usual ones are not sent.
    settings = {
        numbers[label]: int(value) for label, value in bridge_settings if label in numbers and value != USUAL.get(label, 0)
    }
    has_carrier = "LOWER_UP" in flags or "NO-CARRIER" not in flags and "RUNNING" not in flags and link.kind not in WIRED
    return NewLink(
        index,
        link.name,
        "bridge" if is_bridge else "veth",
        mac_bytes(link.mac) if is_mac(link.mac) else made_mac(OWN_MAC, index),
        _mtu(link.mtu),
        link.is_up,
        not link.is_up or has_carrier,
        "NOARP" not in flags and link.hardware == ETHERNET,
        master,
        settings,
        _mtu(link.peer.mtu) or _mtu(link.mtu),
    )


def _mtu(size: int) -> int:
    """Return the MTU of a link, or of the other end of one; 0 if it is not known or none of Ethernet."""
    return size if 68 <= size <= 65535 else 0


def is_mac(text: str) -> bool:
    """Return True for the address of one Ethernet interface."""
    is_address = re.fullmatch(r"([\da-fA-F]{2}:){5}[\da-fA-F]{2}", text, re.ASCII)
    return bool(is_address) and not int(text[:2], 16) & 1 and text != "00:00:00:00:00:00"


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def made_mac(first: int, index: int) -> bytes:
    """Return an address for an interface whose address is not known. It is locally administered (IEEE 802)."""
    return bytes([first, 0]) + index.to_bytes(4, "big")


def _settings(settings: Settings, names: t.Collection[str]) -> t.Iterator[tuple[str, int]]:
    """Yield settings of the node, then of ``all``, then of each link, because a setting of ``all`` changes those of the links."""
    for key, value in settings.node.items():
        path = str(key).translate(DOTTED)
        if path in PERMITTED_SETTINGS:
            yield path, int(value)
    for family in FAMILIES:
        for link in ("all", *sorted(settings.by_link(family).keys() - {*BOTH})):
            if link == "all" or link in names:
                for key, value in settings.of_link(family, link).items():
                    if key not in SKIPPED_SETTINGS and key in LINK[family]:
                        yield f"net/{family}/conf/{link}/{key}", int(value)


def is_of_network(path: str) -> bool:
    """Return whether a twin has the setting: one of a network namespace that decides what happens to a packet.

    path: below /proc/sys.
    """
    match = _OF_LINK.fullmatch(path)
    return match[3] in LINK[match[1]] if match and match[2] not in ("", ".", "..") else path in PERMITTED_SETTINGS


def _bridge_ports(links: t.Iterable[Link]) -> t.Iterator[str]:
    """Yield lines for ports that forward frames in another way than usual."""
    for link in links:
        words = [f"{name} on" for name in PORT_SETTINGS if link.settings.get(name)]
        if link.master and words:
            yield f"link set dev {link.name} type bridge_slave {' '.join(words)}"


def _addresses(links: t.Iterable[Link], ports: t.Container[str]) -> t.Iterator[str]:
    """Yield lines that add the addresses of the links, in the order in which the node has them. ports: links of VRFs."""
    for number, link in enumerate(links):
        # Of a scope, the kernel lists the latest address of IPv6 first, and that of IPv4 last (net/ipv6/addrconf.c, devinet.c).
        of_ipv6 = [address for address in reversed(link.address_info) if address.is_ipv6]
        for address in [*(each for each in link.address_info if not each.is_ipv6), *of_ipv6]:
            if link.name != LOOPBACK or address.host not in LOOPBACK_ADDRESSES:  # which the kernel adds
                yield from _address(f"snapshot.links[{number}].addresses", link.name, address, link.name in ports)


def _address(option: str, link: str, address: Address, is_apart: bool) -> t.Iterator[str]:
    """Yield the lines for an address. is_apart: whether it is local in another table than the others."""
    family, packed = fields.checked(option, address.host, fields.address)
    bits = len(packed) * 8
    length = address.address.partition("/")[2] or bits
    length = fields.checked(option, length, functools.partial(fields.number, low=0, high=bits))
    far = fields.checked(option, address.peer, fields.address)[1] if address.peer else packed
    if address.is_unusable:
        return
    near = f"{fields.show(packed)} peer " if far != packed else ""
    is_avoided = not AVOIDED.isdisjoint(address.flags) or (family == IPV6 and "secondary" in address.flags)
    words = [
        f"address add {near}{fields.show(far)}/{length} dev {link}",
        f"scope {address.scope}" if address.scope in route.SCOPES else "",
        "noprefixroute" if is_apart or "noprefixroute" in address.flags else "",
        "nodad" if family == IPV6 else "",
        "preferred_lft 0" if is_avoided else "",
    ]
    yield " ".join(filter(None, words))
    if is_apart:
        line = f"route del local {fields.show(packed)} dev {link} table {LOCAL_TABLE}"
        yield f"-6 {line}" if family == IPV6 else line


def _parsed_rule(number: int, given: PolicyRule, notes: list[Assumption]) -> rule.Rule | None:
    """Return a rule; None if the twin cannot have it."""
    reason = f"has attributes that this collection cannot read, and is not in the twin: {given.plain}"
    try:
        if not given.unread:
            return given.parsed(f"snapshot.rules[{number}]")
    except Invalid as error:
        reason = f"is not in the twin: {error}"
    notes.append(gap(f"Rule {given.priority} {reason}.", lacking.by_rule(given)))
    return None


def parsed_rules(given: t.Sequence[PolicyRule]) -> t.Iterator[rule.Rule]:
    """Yield the rules in the kernel's order, without that for the table of own addresses and without those that no twin can have.

    Without rules, the kernel's own lead to table main.
    """
    rules = given or [*map(PolicyRule.of, kernels())]
    parsed = (_parsed_rule(number, each, []) for number, each in enumerate(rules) if not each.is_of_own_addresses)
    yield from filter(None, parsed)


OF_ROOT = (0, 0)  # a range of users


Line = tuple[str, t.Optional[rule.Rule]]


def _rules(given: t.Sequence[PolicyRule] | None, separate: t.Sequence[vrfs.Vrf], notes: list[Assumption]) -> t.Iterator[Line]:
    """Yield lines that replace the kernel's rules by those of the snapshot, in its order."""
    by_family: dict[str, list[Line]] = {}
    for number, each in enumerate(given or ()):
        by_family.setdefault(each.family, []).extend(_rule_lines(number, each, separate, notes))
    for family in FAMILIES:
        lines = by_family.get(family)
        if lines:
            words = f"-{family[-1]}"
            first = [] if (LOCAL_RULE, None) in lines else [0]
            yield from ((f"{words} rule del priority {priority}", None) for priority in (*first, *KERNELS_RULES[family]))
            yield from ((f"{words} rule add {line}", parsed) for line, parsed in lines if line != LOCAL_RULE)


def _rule_lines(number: int, given: PolicyRule, separate: t.Sequence[vrfs.Vrf], notes: list[Assumption]) -> t.Iterator[Line]:
    """Yield the rules, each behind its words, that stand for a rule of the snapshot; none for one that the twin cannot have."""
    if given.is_of_own_addresses:
        yield LOCAL_RULE, None
        return
    parsed = _parsed_rule(number, given, notes)
    if parsed and (not parsed.uidrange or _is_of_root(parsed, given, notes)):
        for each in vrfs.rules(separate, parsed._replace(uidrange=parsed.uidrange and OF_ROOT)):
            yield f"priority {each.priority} {each.selector} {each.decision}{_protocol(given.protocol)}", each


def _is_of_root(parsed: rule.Rule, given: PolicyRule, notes: list[Assumption]) -> bool:
    """Return whether a rule of some users selects packets of root, which are the only ones in a twin.

    The kernel routes a packet that comes in as one of root (net/ipv4/route.c, ip_route_input_slow).
    """
    is_of_root = parsed.uidrange[:1] == (0,)
    sentence = f"Rule {parsed.priority} selects packets of the node by the user that sends: {parsed.options()['uidrange']}."
    notes.append(replaced(SENDER, sentence, Concern(assumption.SENDER, ""), subject=str(parsed.priority)))
    if parsed.invert and not is_of_root:
        notes.append(gap(f"Rule {parsed.priority} is not in the twin: it selects all but some users.", lacking.by_rule(given)))
    return is_of_root


def parsed_routes(given: t.Sequence[Route], notes: list[Assumption]) -> list[tuple[route.Route, str]]:
    """Return the routes and their protocols, without those that the kernel adds by itself."""
    parsed, of_routes = _parsed_routes(given)
    notes += of_routes
    return parsed


@memo.of_part
def _parsed_routes(given: t.Sequence[Route]) -> tuple[list[tuple[route.Route, str]], list[Assumption]]:
    parsed, notes = list[tuple[route.Route, str]](), list[Assumption]()
    for number, each in enumerate(given):
        if _is_kernels(each):
            continue
        subject, place = f"{each.table} {each.to}", f"{each.to} of table {each.table}"
        unread = [name for name in each.unread if name not in route.HARMLESS]
        if each.type in TO_MANY:
            if each.protocol != KERNELS:
                sentence = f"Route {each.type} {place} is not in the twin."
                notes.append(replaced(GROUP_ROUTE, sentence, lacking.by_route(each), subject=subject))
        elif route.NEXT_HOPS in unread:
            notes.append(
                replaced(NEXT_HOPS, f"The next hops of route {place} are open.", lacking.by_route(each), subject=subject)
            )
        elif unread:
            notes.append(gap(f"Route {place} is not in the twin: it has {', '.join(unread)}.", lacking.by_route(each)))
        else:
            try:
                parsed.append((each.parsed(f"snapshot.routes[{number}]")._replace(unread=()), each.protocol))
            except Invalid as error:
                notes.append(gap(f"A route is not in the twin: {error}.", lacking.by_route(each)))
    return parsed, notes


def _tables(snapshot: Snapshot, separate: t.Iterable[vrfs.Vrf]) -> t.Iterator[tuple[int, int]]:
    """Yield the tables in which the kernel puts the networks of addresses. Such a table may be empty.

    A snapshot that has the routes of own addresses has those of these tables, too.
    """
    if any(entry.fact.fact.partition(":")[0] == ROUTES for entry in snapshot.open or ()):
        return
    for family in {each.family for each in snapshot.routes or () if _is_kernels(each)}:
        yield from ((fields.FAMILIES[family], number) for number in (rt_names.MAIN, *(vrf.table for vrf in separate)))


def _is_kernels(given: Route) -> bool:
    return given.table in (str(LOCAL_TABLE), "local") and given.protocol in ("", KERNELS)


def _neighbours(neighbours: t.Iterable[Neighbour]) -> t.Iterator[tuple[str, bytes]]:
    """Yield lines that add each resolved neighbour as permanent, so that its entry does not age in the twin."""
    for number, neighbour in enumerate(neighbours):
        option = f"snapshot.neighbors[{number}]"
        packed = fields.checked(f"{option}.address", neighbour.address, fields.address)[1]
        dev = fields.checked(f"{option}.dev", neighbour.dev, fields.link)
        if neighbour.state == "PROXY":
            yield f"neigh add proxy {fields.show(packed)} dev {dev}", packed
        elif is_mac(neighbour.mac) and not neighbour.is_failed:
            yield f"neigh replace {fields.show(packed)} lladdr {neighbour.mac} dev {dev} nud permanent", packed


def route_line(parsed: route.Route, protocol: str) -> str:
    """Return a line for ``ip -batch``."""
    words, hop, hops = str(parsed).partition(" route ")[2].partition(" nexthop ")
    # ip(8) takes only next hops behind a next hop.
    return f"{'-6' if parsed.family == IPV6 else '-4'} route append {words}{_protocol(protocol)}{hop}{hops}"


def _protocol(name: str) -> str:
    """Return the words for the protocol of a route or a rule; none for one that ip(8) need not know.

    As a number: after a number, ip(8) takes that for the name in the next line of a batch, if it has read that name before
    (iproute2, lib/rt_names.c, rtnl_rtprot_a2n).
    """
    number = rt_names.protocol_number(name)
    return f" protocol {number}" if number else ""


def _restores(
    snapshot: Snapshot, sizes: bounds.Sets, hooks: list[legacy_half.Hook], notes: list[Assumption]
) -> t.Iterator[tuple[str, str]]:
    sets = foreign_tables.sets((each.save for each in snapshot.ipsets), sizes, notes)
    if sets:
        yield "ipset", sets
    for family in ("ip", "ip6"):
        program = RESTORES[family]
        texts: dict[str, str] = {}
        for table in sorted(
            (each for each in snapshot.iptables if each.family == family), key=lambda each: each.backend == LEGACY
        ):
            text = foreign_tables.tables(table.save, family, notes, snapshot.recorded)
            if table.table in texts and text:
                text, of_table = legacy_half.merged(family, table.table, texts[table.table], text)
                hooks += of_table
                notes.append(_of_both_backends(family, table.table))
            texts[table.table] = text
        yield from ((program, text) for text in texts.values())
    text = _ebtables(snapshot.ebtables, notes)
    if text:
        yield RESTORES["bridge"], text


def _of_both_backends(family: str, table: str) -> Assumption:
    """Say what is replaced where both halves translate or mark. Of filters, each drops what it drops."""
    place = Concern(assumption.TABLE, f"{family} {table}")
    sentence = f"Table {table} of {family} is in both backends of iptables. Chains of iptables-legacy have the suffix .legacy."
    if table not in ("nat", "mangle"):
        return replaced(HALF, sentence, place)
    return gap(f"{sentence} Which backend comes first is open: in the twin, it is iptables-legacy.", place)


def _ebtables(chains: t.Iterable[FrameChain], notes: list[Assumption]) -> str:
    tables: dict[str, tuple[list[str], list[str]]] = {}
    for chain in chains:
        heads, rules = tables.setdefault(chain.table, ([], []))
        heads.append(f":{chain.chain} {chain.policy or 'ACCEPT'}")
        rules += [f"-A {chain.chain} {text}" for text in chain.rules]
    texts = ["\n".join([f"*{name}", *heads, *rules, ""]) for name, (heads, rules) in tables.items()]
    return foreign_tables.tables("".join(texts), "bridge", notes) if texts else ""
