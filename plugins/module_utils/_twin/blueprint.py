# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A snapshot as what has to be built: links, settings, and texts for the programs that load the rest.

The snapshot may come from a report, so its values are data: names and numbers are checked, and of rules and rulesets only
permitted words are passed on.
"""

from __future__ import annotations

import functools
import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import IPV6, Unfit
from .._core.names import DOTTED
from .._ebtables.ebtables_options import EBTABLES
from .._netfilter.rule_words import IPTABLES
from .._routing import route, rt_names, rule
from .._ruleset import nft_objects
from .._ruleset.ruleset import LEGACY
from .._snapshot import assumption, values
from .._snapshot.assumption import Assumption, Concern
from .._snapshot.entries import SETTINGS, kernels_rules
from .._snapshot.settings import LINK, NODE
from .._snapshot.values import Entry, entries
from . import bounds, foreign_tables, lacking, legacy_half, stateful_matches, virtual_servers, vrfs
from .foreign_tables import RESTORES
from .link_messages import NewLink
from .substitutions import GROUP_ROUTE, HALF, LINK_KIND, NEXT_HOPS, SENDER, STACKED_LINK, SWITCH, gap, replaced

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
# Duplicate address detection goes on, or found the address elsewhere: the kernel has no local route (net/ipv6/addrconf.c).
UNUSABLE = frozenset(["tentative", "dadfailed"])
# Flags of an address that is no source if there is another one. In IPv6 the kernel has one bit for temporary and secondary.
AVOIDED = frozenset(["deprecated", "temporary"])
UNSOLVED = ("FAILED", "INCOMPLETE")
WIRED = ("", "veth", "tun")  # kinds of links that have no carrier unless a flag says so
ROUTED_MASTERS = ("vrf", "bond", "team")  # whose ports pass no frames to each other
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

    links: in the node's order, and each bridge before its ports. names: of all links by index. settings: path below /proc/sys
    and value, in the order of writing. commands: lines for ``ip -batch``. families_of_rules: families whose rules the snapshot
    has. tables: family and number of the tables whose routes it has. routes: those that the twin must have in the end.
    restores: program and text. hooks: of tables that both backends of iptables have. ruleset: nft's JSON objects. ruleset_text:
    the same as text. servers: addresses of IPVS by family of nft. sizes: of the sets. notes: what is different in the twin.
    """

    links: list[NewLink]
    names: dict[int, str]
    settings: list[tuple[str, int]]
    commands: list[str]
    routes: list[tuple[route.Route, str]]
    restores: list[tuple[str, str]]
    hooks: list[legacy_half.Hook]
    ruleset: t.Sequence[Entry]
    ruleset_text: str
    servers: dict[str, list[str]]
    sizes: bounds.Sets
    notes: list[Assumption]

    @property
    def has_filled_sets(self) -> bool:
        """Return whether rules may fill sets."""
        return bool(FILLING.search(self.ruleset_text)) or nft_objects.have_packets_fill_sets(self.ruleset)


def draw(snapshot: Entry) -> Blueprint:
    """Return the blueprint of a snapshot. Raises Invalid if the dictionary is not a snapshot, or is larger than a bound."""
    for subset in (*bounds.MOST, "iptables", "ebtables"):
        entries(snapshot, subset)
    bounds.check(snapshot)
    notes, sizes, hooks = list[Assumption](), bounds.Sets(), list[legacy_half.Hook]()
    links = _links(snapshot, notes)
    names = {link.number: link.name for link in links} | {1: LOOPBACK}
    separate = vrfs.from_links(entries(snapshot, "links"), notes)
    desired = list(parsed_routes(snapshot, notes))
    servers, differences = virtual_servers.ruleset(entries(snapshot, "ipvs"))
    notes += differences
    objects = foreign_tables.objects(entries(snapshot, "nftables"), (OWN_TABLE,), sizes, notes)
    objects = foreign_tables.of_links(objects, names.values(), notes)
    text = foreign_tables.ruleset(str(snapshot.get("nftables_text") or ""), (OWN_TABLE,), sizes, notes)
    return Blueprint(
        links,
        names,
        list(_settings(snapshot.get("settings") or {}, {*names.values()})),
        [
            *_bridge_ports(snapshot),
            *_addresses(snapshot, vrfs.ports(separate)),
            *_rules(snapshot, separate, notes),
            *_neighbours(snapshot),
        ],
        desired,
        list(_restores(snapshot, sizes, hooks, notes)),
        hooks,
        objects,
        f"{text}\n{servers}",
        virtual_servers.addresses(entries(snapshot, "ipvs")) if servers else {},
        sizes,
        notes,
    )


def _links(snapshot: Entry, notes: list[Assumption]) -> list[NewLink]:
    links = [link for link in entries(snapshot, "links") if link.get("name") != LOOPBACK]
    used, indexes = {1}, dict[str, int]()
    for number, link in enumerate(links):
        name = _checked(f"snapshot.links[{number}].name", link.get("name"), fields.link)
        index = link.get("index")
        if not isinstance(index, int) or index in used or not 1 < index < LARGEST_INDEX:
            index = SPARE_INDEX + number
        used.add(index)
        if name in indexes:
            raise Invalid(f"snapshot.links[{number}].name", name, "a name that no other link has")
        indexes[name] = index
    bridges = {str(link["name"]) for link in links if link.get("kind") == "bridge"}
    masters = {str(link["name"]): indexes[link["master"]] for link in links if link.get("master") in bridges}
    notes += _ports_of_others(links)
    new_links = [_link(link, indexes[str(link["name"])], masters.get(str(link["name"]), 0), indexes, notes) for link in links]
    firsts = dict(sorted(((link.master, link.number) for link in new_links if link.master), reverse=True))
    # The kernel takes the source of a packet by a link without addresses from the first link that has one.
    return sorted(new_links, key=lambda link: (min(link.number, firsts.get(link.number, link.number)), link.kind != "bridge"))


def _ports_of_others(links: t.Sequence[Entry]) -> t.Iterator[Assumption]:
    """Yield an open fact for each port of a link that may forward between its ports by other means than a bridge."""
    kinds = {str(link["name"]): str(link.get("kind") or "") for link in links}
    for name, master in ((str(link["name"]), str(link.get("master") or "")) for link in links):
        kind = kinds.get(master, "")
        if master and kind not in ("bridge", *ROUTED_MASTERS):
            of_kind = f"a link of kind {kind}" if kind else "whose kind is not known"
            sentence = f"{name} is a port of {master}, {of_kind}. In the twin, it is a link of its own."
            yield replaced(SWITCH if kind else LINK_KIND, sentence, Concern(assumption.LINK, name), subject=master)


def _link(link: Entry, index: int, master: int, names: t.Container[str], notes: list[Assumption]) -> NewLink:
    name, kind, flags = str(link["name"]), str(link.get("kind") or ""), link.get("flags") or ()
    is_bridge = kind == "bridge"
    if kind in STACKED:
        sentence = f"{name} is a link of kind {kind}. In the twin, its packets do not pass {_below(link)}."
        is_seen = kind == "bond" or link.get("parent") in names
        concern = Concern(assumption.LINK, name)
        notes.append(replaced(STACKED_LINK if is_seen else LINK_KIND, sentence, concern, subject=name))
    numbers = {label: number for number, label in SETTINGS["bridge"].items()}
    bridge_settings = (link.get("settings") or {}).items() if is_bridge else ()
    # A kernel refuses a setting that it was built without, so the usual ones are not sent.
    settings = {
        numbers[label]: int(value) for label, value in bridge_settings if label in numbers and value != USUAL.get(label, 0)
    }
    is_up = "UP" in flags
    return NewLink(
        index,
        name,
        "bridge" if is_bridge else "veth",
        mac_bytes(link["mac"]) if is_mac(link.get("mac")) else made_mac(OWN_MAC, index),
        _mtu(link),
        is_up,
        not is_up or ("LOWER_UP" in flags or "NO-CARRIER" not in flags and "RUNNING" not in flags and kind not in WIRED),
        "NOARP" not in flags and link.get("type", 1) == 1,
        master,
        settings,
        _mtu(link.get("peer") or {}) or _mtu(link),
    )


def _mtu(link: Entry) -> int:
    """Return the MTU of a link, or of the other end of one; 0 if it is not known or none of Ethernet."""
    return mtu if 68 <= (mtu := int(link.get("mtu") or 0)) <= 65535 else 0


def _below(link: Entry) -> str:
    return str(link.get("parent") or "the link below it")


def is_mac(value: object) -> bool:
    """Return True for the address of one Ethernet interface, as text."""
    text = str(value or "").lower()
    is_address = re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", text)
    return bool(is_address) and not int(text[:2], 16) & 1 and text != "00:00:00:00:00:00"


def mac_bytes(mac: object) -> bytes:
    return bytes.fromhex(str(mac).replace(":", ""))


def made_mac(first: int, index: int) -> bytes:
    """Return an address for an interface whose address is not known. It is locally administered (IEEE 802)."""
    return bytes([first, 0]) + index.to_bytes(4, "big")


def _settings(settings: Entry, names: t.Collection[str]) -> t.Iterator[tuple[str, int]]:
    """Yield settings of the node, then of ``all``, then of each link, because a setting of ``all`` changes those of the links."""
    for key, value in (settings.get("node") or {}).items():
        path = str(key).translate(DOTTED)
        if path in PERMITTED_SETTINGS:
            yield path, int(value)
    for family in ("ipv4", "ipv6"):
        of_family = settings.get(family) or {}
        for link in ("all", *sorted(of_family.keys() - {*BOTH})):
            if link == "all" or link in names:
                for key, value in (of_family.get(link) or {}).items():
                    if key not in SKIPPED_SETTINGS and key in LINK[family]:
                        yield f"net/{family}/conf/{link}/{key}", int(value)


def is_of_network(path: str) -> bool:
    """Return whether a twin has the setting: one of a network namespace that decides what happens to a packet.

    path: below /proc/sys.
    """
    match = _OF_LINK.fullmatch(path)
    return match[3] in LINK[match[1]] if match and match[2] not in ("", ".", "..") else path in PERMITTED_SETTINGS


def _bridge_ports(snapshot: Entry) -> t.Iterator[str]:
    """Yield lines for ports that forward frames in another way than usual."""
    for link in entries(snapshot, "links"):
        settings = link.get("settings") or {}
        words = [f"{name} on" for name in PORT_SETTINGS if settings.get(name)]
        if link.get("master") and words:
            yield f"link set dev {link['name']} type bridge_slave {' '.join(words)}"


def _addresses(snapshot: Entry, ports: t.Container[str]) -> t.Iterator[str]:
    """Yield lines that add the addresses of the links, in the order in which the node has them. ports: links of VRFs."""
    for number, link in enumerate(entries(snapshot, "links")):
        # Of a scope, the kernel lists the latest address of IPv6 first, and that of IPv4 last (net/ipv6/addrconf.c, devinet.c).
        listed = list(link.get("addresses") or ())
        for address in [*(each for each in listed if not _is_ipv6(each)), *filter(_is_ipv6, reversed(listed))]:
            option = f"snapshot.links[{number}].addresses"
            host, slash, length = str(address.get("address")).partition("/")
            family, packed = _checked(option, host, fields.address)
            if link["name"] == LOOPBACK and host in LOOPBACK_ADDRESSES:
                continue  # the kernel adds them
            bits = len(packed) * 8
            length = _checked(option, length or bits, functools.partial(fields.number, low=0, high=bits))
            far = _checked(option, address["peer"], fields.address)[1] if address.get("peer") else packed
            near = f"{fields.show(packed)} peer " if far != packed else ""
            words = [f"address add {near}{fields.show(far)}/{length} dev {link['name']}"]
            words.append(f"scope {address['scope']}" if address.get("scope") in route.SCOPES else "")
            flags = address.get("flags") or ()
            if is_unusable(address):
                continue
            is_apart = link["name"] in ports
            words.append("noprefixroute" if is_apart or "noprefixroute" in flags else "")
            words.append("nodad" if family == IPV6 else "")
            is_avoided = not AVOIDED.isdisjoint(flags) or (family == IPV6 and "secondary" in flags)
            words.append("preferred_lft 0" if is_avoided else "")
            yield " ".join(filter(None, words))
            if is_apart:
                line = f"route del local {fields.show(packed)} dev {link['name']} table {LOCAL_TABLE}"
                yield f"-6 {line}" if family == IPV6 else line


def _is_ipv6(address: Entry) -> bool:
    return ":" in str(address.get("address"))


def is_unusable(address: Entry) -> bool:
    """Return whether the kernel has an address of a link, but takes no packets to it and sends none from it."""
    flags = address.get("flags") or ()
    return _is_ipv6(address) and not UNUSABLE.isdisjoint(flags) and "optimistic" not in flags


def _parsed_rule(number: int, entry: Entry, notes: list[Assumption]) -> rule.Rule | None:
    """Return a rule; None for that of the table of own addresses, and for a rule that the twin cannot have."""
    if _is_of_own_addresses(entry):
        return None
    try:
        if not entry.get("unread"):
            options = {name: value for name, value in entry.items() if name not in ("protocol", "unread")}
            return rule.from_options(f"snapshot.rules[{number}]", options, rt_names.TABLES)
        reason = f"has attributes that this collection cannot read, and is not in the twin: {entry}"
    except Invalid as error:
        reason = f"is not in the twin: {error}"
    notes.append(gap(f"Rule {entry.get('priority')} {reason}.", lacking.by_rule(entry)))
    return None


def _is_of_own_addresses(entry: Entry) -> bool:
    return entry.get("priority") in (0, "0") and str(entry.get("table")) in (str(LOCAL_TABLE), "local")


def parsed_rules(snapshot: Entry) -> t.Iterator[rule.Rule]:
    """Yield the rules in the kernel's order, without that for the table of own addresses and without those that no twin can have.

    Without rules, the kernel's own lead to table main.
    """
    kernels = [entry for family in ("ipv4", "ipv6") for entry in kernels_rules(family)]
    rules = (_parsed_rule(number, entry, []) for number, entry in enumerate(entries(snapshot, "rules") or kernels))
    yield from filter(None, rules)


ROOT = "0-0"  # as a range of users
_RULE_WORDS = ("from", "to", "tos", "fwmark", "iif", "oif", "uidrange", "ipproto", "sport", "dport")


def _rules(snapshot: Entry, separate: t.Sequence[vrfs.Vrf], notes: list[Assumption]) -> t.Iterator[str]:
    """Yield lines that replace the kernel's rules by those of the snapshot, in its order."""
    if snapshot.get("rules") is None:
        return
    rules = [
        _rule(number, plain, notes)
        for number, entry in enumerate(entries(snapshot, "rules"))
        for plain in vrfs.rules(separate, entry)
    ]
    for family, words in (("ipv4", "-4"), ("ipv6", "-6")):
        lines = [line for of_family, line in filter(None, rules) if of_family == family]
        if lines:
            first = [] if LOCAL_RULE in lines else [0]
            yield from (f"{words} rule del priority {priority}" for priority in (*first, *KERNELS_RULES[family]))
            yield from (f"{words} rule add {line}" for line in lines if line != LOCAL_RULE)


def _rule(number: int, entry: Entry, notes: list[Assumption]) -> tuple[str, str] | None:
    """Return the family and the words of a rule; None if the twin cannot have it."""
    if _is_of_own_addresses(entry):
        return str(entry.get("family") or "ipv4"), LOCAL_RULE
    parsed = _parsed_rule(number, entry, notes)
    if parsed is None or (parsed.uidrange and not _is_of_root(parsed, entry, notes)):
        return None
    shown = parsed.options()
    words = ["not" if shown.get("not") else "", f"priority {shown['priority']}"]
    words += [f"{name} {ROOT if name == 'uidrange' else shown[name]}" for name in _RULE_WORDS if name in shown]
    if "goto" in shown:
        words.append(f"goto {shown['goto']}")
    elif "action" in shown:
        words.append(str(shown["action"]))
    else:
        words.append(f"lookup {shown['table']}")
    if "suppress_prefixlength" in shown:
        words.append(f"suppress_prefixlength {shown['suppress_prefixlength']}")
    words.append(_protocol(str(entry.get("protocol") or "")).strip())
    return shown["family"], " ".join(filter(None, words))


def _is_of_root(parsed: rule.Rule, entry: Entry, notes: list[Assumption]) -> bool:
    """Return whether a rule of some users selects packets of root, which are the only ones in a twin.

    The kernel routes a packet that comes in as one of root (net/ipv4/route.c, ip_route_input_slow).
    """
    is_of_root = parsed.uidrange[:1] == (0,)
    sentence = f"Rule {parsed.priority} selects packets of the node by the user that sends: {parsed.options()['uidrange']}."
    notes.append(replaced(SENDER, sentence, Concern(assumption.SENDER, ""), subject=str(parsed.priority)))
    if parsed.invert and not is_of_root:
        notes.append(gap(f"Rule {parsed.priority} is not in the twin: it selects all but some users.", lacking.by_rule(entry)))
    return is_of_root


def parsed_routes(snapshot: Entry, notes: list[Assumption]) -> t.Iterator[tuple[route.Route, str]]:
    """Yield the routes and their protocols, without those that the kernel adds by itself."""
    for number, entry in enumerate(entries(snapshot, "routes")):
        if _is_kernels(entry):
            continue
        if entry.get("type") in TO_MANY:
            if entry.get("protocol") != KERNELS:
                sentence = f"Route {entry['type']} {entry.get('to')} of table {entry.get('table')} is not in the twin."
                subject = f"{entry.get('table')} {entry.get('to')}"
                notes.append(replaced(GROUP_ROUTE, sentence, lacking.by_route(entry), subject=subject))
            continue
        if route.NEXT_HOPS in (entry.get("unread") or ()):
            subject = f"{entry.get('table')} {entry.get('to')}"
            sentence = f"The next hops of route {entry.get('to')} of table {entry.get('table')} are open."
            notes.append(replaced(NEXT_HOPS, sentence, lacking.by_route(entry), subject=subject))
            continue
        unread = [name for name in entry.get("unread") or () if name not in route.HARMLESS]
        if unread or entry.get("tos") or entry.get("from"):
            reason = ", ".join(unread) or "a source or a type of service"
            sentence = f"Route {entry.get('to')} of table {entry.get('table')} is not in the twin: it has {reason}."
            notes.append(gap(sentence, lacking.by_route(entry)))
            continue
        options = {name: value for name, value in entry.items() if name not in ("protocol", "unread", "tos", "from")}
        if options.get("family") == "ipv6":
            options.pop("scope", None)
        try:
            parsed = route.from_options(f"snapshot.routes[{number}]", options, rt_names.TABLES)
        except Invalid as error:
            notes.append(gap(f"A route is not in the twin: {error}.", lacking.by_route(entry)))
        else:
            yield parsed, str(entry.get("protocol") or "")


def _is_kernels(entry: Entry) -> bool:
    return str(entry.get("table")) in ("255", "local") and str(entry.get("protocol") or KERNELS) == KERNELS


def _neighbours(snapshot: Entry) -> t.Iterator[str]:
    """Yield lines that add each resolved neighbour as permanent, so that its entry does not age in the twin."""
    for number, neighbour in enumerate(entries(snapshot, "neighbors")):
        option = f"snapshot.neighbors[{number}]"
        address = fields.show(_checked(f"{option}.address", neighbour.get("address"), fields.address)[1])
        dev = _checked(f"{option}.dev", neighbour.get("dev"), fields.link)
        if neighbour.get("state") == "PROXY":
            yield f"neigh add proxy {address} dev {dev}"
        elif is_mac(neighbour.get("mac")) and neighbour.get("state") not in UNSOLVED:
            yield f"neigh replace {address} lladdr {neighbour['mac']} dev {dev} nud permanent"


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
    snapshot: Entry, sizes: bounds.Sets, hooks: list[legacy_half.Hook], notes: list[Assumption]
) -> t.Iterator[tuple[str, str]]:
    sets = foreign_tables.sets((str(ipset.get("save")) for ipset in entries(snapshot, "ipsets")), sizes, notes)
    if sets:
        yield "ipset", sets
    for family in ("ip", "ip6"):
        program = RESTORES[family]
        texts: dict[str, str] = {}
        for table in sorted((each for each in values.saved_tables(snapshot) if each.family == family), key=_is_legacy):
            saved = stateful_matches.resolved(table.save, (*(snapshot.get("recorded") or ()),))
            text = foreign_tables.tables(saved, family, IPTABLES, notes)
            if table.table in texts and text:
                text, of_table = legacy_half.merged(family, table.table, texts[table.table], text)
                hooks += of_table
                notes.append(_of_both_backends(family, table.table))
            texts[table.table] = text
        if texts:
            yield program, "".join(texts.values())
    text = _ebtables(snapshot, notes)
    if text:
        yield RESTORES["bridge"], text


def _is_legacy(table: values.SavedTable) -> bool:
    return table.backend == LEGACY


def _of_both_backends(family: str, table: str) -> Assumption:
    """Say what is replaced where both halves translate or mark. Of filters, each drops what it drops."""
    place = Concern(assumption.TABLE, f"{family} {table}")
    sentence = f"Table {table} of {family} is in both backends of iptables. Chains of iptables-legacy have the suffix .legacy."
    if table not in ("nat", "mangle"):
        return replaced(HALF, sentence, place)
    return gap(f"{sentence} Which backend comes first is open: in the twin, it is iptables-legacy.", place)


def _ebtables(snapshot: Entry, notes: list[Assumption]) -> str:
    tables: dict[str, tuple[list[str], list[str]]] = {}
    for chain in values.frame_chains(snapshot):
        heads, rules = tables.setdefault(chain.table, ([], []))
        heads.append(f":{chain.chain} {chain.policy or 'ACCEPT'}")
        rules += [f"-A {chain.chain} {text}" for text in chain.rules]
    texts = ["\n".join([f"*{name}", *heads, *rules, ""]) for name, (heads, rules) in tables.items()]
    return foreign_tables.tables("".join(texts), "bridge", EBTABLES, notes) if texts else ""


def _checked(option: str, value: t.Any, parse: t.Callable[[t.Any], t.Any]) -> t.Any:
    try:
        return parse(value)
    except Unfit as unfit:
        raise Invalid(option, value, str(unfit)) from None
