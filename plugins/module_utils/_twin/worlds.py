# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The worlds that fit a snapshot: for each fact that it leaves open, the values that a packet may meet.

What nothing in the snapshot names, such as a ruleset of nft of which no output shows a line, has no values: no twin of it can be
built.
"""

from __future__ import annotations

import re
import typing as t
from functools import partial

from .._core.errors import Invalid
from .._netfilter.rule_words import quote
from .._snapshot import open_facts
from .._snapshot.entries import kernels_rules, with_kernels_rules
from .._snapshot.evidence import Evidence
from .._snapshot.open_facts import (
    ADDRESSES,
    BRIDGE_PORTS,
    CHAIN,
    CUT,
    FORWARDING,
    HAIRPIN,
    IPVS,
    JUMP,
    LEGACY,
    NEIGHBORS,
    NFT,
    POD_SIDE,
    POLICY,
    RECENT,
    ROUTES,
    RP_FILTER,
    RULES,
    SET,
    TABLE,
    Fact,
    OpenFact,
)
from .._snapshot.settings import BRIDGED, forwarding_of_all
from .._snapshot.values import Entry, entries
from . import pod_links, stateful_matches, substitutions, unreferenced
from .assumptions import (
    Ends,
    host_address,
    is_card,
    link_addresses,
    link_route,
    new_card,
    open_forwarding,
    with_settings,
)
from .blueprint import LOOPBACK

Snapshot = dict[str, t.Any]
Change = t.Callable[[Snapshot], Snapshot]
KINDS = (
    *(RP_FILTER, CHAIN, POLICY, SET, ROUTES, RULES, ADDRESSES, IPVS, NEIGHBORS, NFT, TABLE, CUT, JUMP),
    *(POD_SIDE, BRIDGE_PORTS, RECENT, LEGACY, HAIRPIN),
)
# Further settings of which a fact may be open, with the usual values, which are in the twin. Kubernetes demands that frames of
# bridges are shown to rules (kubeadm's preflight checks).
DEFAULTS = {"net.ipv4.conf.all.src_valid_mark": 0, "net.ipv4.conf.all.route_localnet": 0, **dict.fromkeys(BRIDGED.values(), 1)}
SETTINGS = (*DEFAULTS,)
# The order in which a packet's fate usually depends on them.
DECISIVE = (
    ROUTES,
    ADDRESSES,
    RULES,
    RP_FILTER,
    POD_SIDE,
    HAIRPIN,
    RECENT,
    CHAIN,
    SET,
    POLICY,
    IPVS,
    BRIDGE_PORTS,
    NEIGHBORS,
    FORWARDING,
    *SETTINGS,
    TABLE,
    CUT,
    NFT,
    LEGACY,
    JUMP,
)
SHOWN = "shown"  # the value by which the option assume says that there is no more than what the snapshot has
MOST_LINKS = 2  # by which a table that no output has may lead
_ELSEWHERE = "assumed-link"
_PORT = re.compile(r"--to-destination \S*:(\d{1,5})(?= |$)", re.MULTILINE)
MOST_PORTS = 50
_BASE_CHAINS = "".join(f":{name} ACCEPT [0:0]\n" for name in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"))


class Value(t.NamedTuple):
    """name: as the option assume takes it. words: a clause behind "if". change: None if no twin of it can be built."""

    name: str
    words: str
    change: Change | None = None


class Open(t.NamedTuple):
    """A fact and its values, of which the first is the one that the snapshot's twin has without a change."""

    fact: Fact
    values: tuple[Value, ...] = ()


def open_for(snapshot: Entry, packet: Ends, ports: t.Collection[int] = ()) -> dict[str, Open]:
    """Return the facts that a snapshot leaves open for a packet, by their ids. ports: of the packet."""
    listed = [entry for entry in map(OpenFact.from_plain, entries(snapshot, "open")) if entry.family in ("", packet.family)]
    numbers = {entry.fact.fact: entry.table for entry in listed}
    without_values = {entry.fact.fact for entry in listed if entry.is_cut}
    facts = [entry.fact for entry in listed if not is_known(snapshot, entry.fact.fact)]
    if packet.family == "ipv4":
        links = (str(link["name"]) for link in entries(snapshot, "links"))
        facts += [open_facts.rp_filter(name) for name in links if name != LOOPBACK]
    sides = _pod_sides(snapshot, packet.family)
    facts += map(open_facts.hairpin, _ports(snapshot))
    facts += [*sides, *map(open_facts.recent, _open_records(snapshot, packet))]
    if packet.interface:
        entrances = _with_entrance(snapshot, packet.interface)
        unknown = open_forwarding(snapshot.get("settings") or {}, packet.family, entrances)
        facts += (open_facts.forwarding(packet.family, name) for name in unknown.values())
    tracked = _tracked(snapshot, packet, ports)
    values: dict[str, t.Callable[[Fact], t.Iterable[Value]]] = {
        RP_FILTER: lambda fact: _filters(snapshot, fact.subject),
        CHAIN: lambda fact: _chain(fact.subject, tracked),
        POLICY: lambda fact: _policies(*fact.subject.split(" ", 2)),
        SET: lambda fact: _elements(snapshot, fact.subject, packet.family, ports),
        ROUTES: lambda fact: (
            _table(snapshot, fact.subject, numbers[fact.fact], packet) if fact.subject else _destination(snapshot, packet)
        ),
        RULES: lambda _fact: _rules(snapshot, packet),
        # Of a packet of the node, and where the routes are open, other facts cover the address of the destination.
        ADDRESSES: lambda _fact: _addresses(packet) if packet.interface and ROUTES not in numbers else (),
        POD_SIDE: lambda fact: _answers(sides[fact]),
        RECENT: lambda fact: _records(fact.subject),
        HAIRPIN: lambda fact: _hairpins(fact.subject),
        FORWARDING: lambda fact: _forwards(snapshot, packet.family, fact),
        **{key: lambda fact: _setting(fact.fact) for key in DEFAULTS},
        TABLE: lambda fact: _translations(fact.subject, tracked),
        CUT: lambda fact: _translations(fact.subject, tracked),
        NFT: lambda _fact: () if _translates(snapshot) else _translations("", tracked),
        JUMP: lambda fact: _jumps(snapshot, fact.subject, (packet.source, packet.destination)),
        IPVS: lambda _fact: (Value("none", "IPVS has no server there"), Value("server", "IPVS has a server there")),
    }
    result = {}
    for fact in sorted(facts, key=lambda fact: DECISIVE.index(fact.kind)):
        has_values = fact.kind in values and fact.fact not in without_values
        choices = tuple(values[fact.kind](fact)) if has_values else ()
        if choices or fact.kind != RP_FILTER:  # a filter without choices is known
            result[fact.fact] = Open(fact, choices)
    return result


def check(snapshot: Entry) -> None:
    """Raise Invalid if the facts that an operator wrote into a snapshot have another form."""
    for number, entry in enumerate(entries(snapshot, "open")):
        fact = OpenFact.from_plain(entry).fact
        words = 3 if fact.kind in (CHAIN, POLICY, JUMP) else 2 if fact.kind in (TABLE, CUT) else 0
        if fact.kind not in (*KINDS, *SETTINGS) or (words and len(fact.subject.split(" ")) != words):
            raise Invalid(f"snapshot.open[{number}].fact", fact.fact, f"an id that begins with one of {', '.join(KINDS)}")


def divided(assume: Entry) -> tuple[dict[str, t.Any], dict[str, str]]:
    """Return the two parts of the option assume: settings, and values of facts by their ids."""
    facts = {key: str(value) for key, value in assume.items() if str(key).partition(":")[0] in (*KINDS, *substitutions.NAMED)}
    return {key: value for key, value in assume.items() if key not in facts}, facts


def applied(snapshot: Entry, opened: t.Mapping[str, Open], values: t.Mapping[str, str]) -> tuple[Snapshot, dict[str, Open]]:
    """Return the snapshot with values of facts, and the facts that are left open. Raises Invalid."""
    changed, left = dict(snapshot), dict(opened)
    for name, value in values.items():
        if name.partition(":")[0] in substitutions.NAMED:
            if value.lower() != SHOWN:
                raise Invalid(f"assume.{name}", value, SHOWN)
            continue
        if name not in opened:
            raise Invalid(f"assume.{name}", value, f"a fact that is open: {', '.join(opened) or 'there is none'}")
        choices = opened[name].values or (Value(SHOWN, "", dict),)
        choice = next((each for each in choices if each.name.lower() == value.lower()), None)
        if choice is None or (choice.change is None and choice is not choices[0]):
            names = ", ".join(each.name for each in choices if each.change or each is choices[0])
            raise Invalid(f"assume.{name}", value, f"one of {names}")
        changed = choice.change(changed) if choice.change else changed
        del left[name]
    return changed, left


def _filters(snapshot: Entry, link: str) -> t.Iterator[Value]:
    """Yield the values that the filter of a link may have. The larger of the link's value and that of all counts."""
    of_family = (snapshot.get("settings") or {}).get("ipv4") or {}
    known = [int(of_family.get(name, {})["rp_filter"]) for name in ("all", link) if "rp_filter" in of_family.get(name, {})]
    lowest = max(known, default=0)
    if len(known) == 2 or lowest >= 2:
        return
    key = f"net/ipv4/conf/{link}/rp_filter"
    for value in range(lowest, 3):
        yield Value(str(value), f"rp_filter of {link} is {value}", partial(with_settings, assume={key: value}))


def _pod_sides(snapshot: Entry, family: str) -> dict[Fact, list[Entry]]:
    """Return the links to pods that have several of them and whose rules and routes the snapshot lacks, by their facts.

    The first link of each list is that of the fact.
    """
    known = [pod.get("namespace") for pod in entries(snapshot, "pods")]
    groups = (links for namespace, links in pod_links.by_namespace(snapshot).items() if namespace not in known)
    return {
        open_facts.pod_side(link, family): [link, *(other for other in links if other is not link)]
        for links in groups
        for link in links
        if len(links) > 1
    }


def is_known(snapshot: Entry, key: str) -> bool:
    """Return whether the snapshot has one of SETTINGS, as by the option assume."""
    settings, name = snapshot.get("settings") or {}, key.rpartition(".")[2]
    every = (settings.get("ipv4") or {}).get("all") or {}
    return key in SETTINGS and (key in (settings.get("node") or {}) or (".all." in key and name in every))


def _setting(key: str) -> t.Iterator[Value]:
    usual = DEFAULTS[key]
    yield Value(str(usual), f"{key} is {usual}")
    yield Value(str(1 - usual), f"{key} is {1 - usual}", partial(with_settings, assume={key: 1 - usual}))


def _with_entrance(snapshot: Entry, name: str) -> list[Entry]:
    links = entries(snapshot, "links")
    return links if any(link.get("name") == name for link in links) else [*links, new_card(name)]


def _forwards(snapshot: Entry, family: str, fact: Fact) -> t.Iterator[Value]:
    """Yield both values of a link's setting where that of all is 0: a node that forwards only by some links has it so."""
    if family == "ipv4" and forwarding_of_all(snapshot.get("settings") or {}, family) == 0:
        yield Value("0", f"{fact.fact} is 0")
        yield Value("1", f"{fact.fact} is 1", partial(with_settings, assume={fact.fact: 1}))


def _ports(snapshot: Entry) -> list[str]:
    """Return the ports of bridges to pods, of which pasted outputs do not show whether frames come back."""
    links = entries(snapshot, "links") if "open" in snapshot else []
    bridges = {link.get("name") for link in links if link.get("kind") == "bridge"}
    pods = pod_links.pod_links(snapshot)
    ports = (link for link in links if link.get("master") in bridges and link["name"] in pods)
    return [str(port["name"]) for port in ports if "hairpin" not in (port.get("settings") or {})]


def _hairpins(port: str) -> t.Iterator[Value]:
    yield Value("off", f"hairpin of {port} is off")
    yield Value("on", f"hairpin of {port} is on", partial(_with_hairpin, port=port))


def _with_hairpin(snapshot: Snapshot, port: str) -> Snapshot:
    links = [dict(link) for link in entries(snapshot, "links")]
    for link in links:
        if link.get("name") == port:
            link["settings"] = {**(link.get("settings") or {}), "hairpin": 1}
    return {**snapshot, "links": links}


def recent_chains(snapshot: Entry) -> dict[str, t.Sequence[str]]:
    """Return the names of the records that rules of iptables match, by family, table and chain."""
    return {
        f"{table.get('family')} {table.get('table')} {chain}": names
        for table in entries(snapshot, "iptables")
        for chain, names in stateful_matches.recent_by_chain(str(table.get("save"))).items()
    }


def _open_records(snapshot: Entry, packet: Ends) -> dict[str, None]:
    """Return the names of records that a packet may meet.

    A record that was read may be too old for its rule, so it is open as well.
    """
    family = "ip6 " if packet.family == "ipv6" else "ip "
    matched = (names for chain, names in recent_chains(snapshot).items() if chain.startswith(family))
    names = dict.fromkeys(name for of_chain in matched for name in of_chain)
    if snapshot.get("recent") is None:
        return names
    with_source = {entry.get("name") for entry in entries(snapshot, "recent") if packet.source in (entry.get("addresses") or ())}
    return {name: None for name in names if name in with_source}


def _records(name: str) -> t.Iterator[Value]:
    yield Value("without", f"{name} has no record of the packet's source")
    yield Value("with", f"{name} has a record of the packet's source", partial(_recorded, name=name))


def _recorded(snapshot: Snapshot, name: str) -> Snapshot:
    return {**snapshot, "recorded": [*(snapshot.get("recorded") or ()), name]}


def _answers(links: t.Iterable[Entry]) -> t.Iterator[Value]:
    """Yield the links by which a pod may answer to a packet that has left by the first one."""
    for number, link in enumerate(links):
        change = partial(_answering_by, peer=link["peer"]) if number else None
        yield Value(str(link["name"]), f"the pod answers by {link['name']}", change)


def _answering_by(snapshot: Snapshot, peer: Entry) -> Snapshot:
    routes = [link_route(family, "default", str(peer.get("name"))) for family in ("ipv4", "ipv6")]
    rules = [rule for family in ("ipv4", "ipv6") for rule in kernels_rules(family)]
    return {**snapshot, "pods": [*entries(snapshot, "pods"), {"namespace": peer["namespace"], "rules": rules, "routes": routes}]}


def _tracked(snapshot: Entry, packet: Ends, ports: t.Collection[int]) -> Change | None:
    """Return what translates a packet as a connection with its ends was, of which an output of conntrack shows both tuples."""
    for entry in map(Evidence.from_plain, entries(snapshot, "evidence")):
        ends = entry.source if packet.source else "", entry.destination
        is_its = ends == (packet.source, packet.destination) and entry.destination_port in (0, *ports)
        if is_its and (entry.new_source or any(entry.new_destination)):
            return partial(_translated, entry=entry, hook="PREROUTING" if packet.interface else "OUTPUT")
    return None


def _translated(snapshot: Snapshot, entry: Evidence, hook: str) -> Snapshot:
    protocol = f"-p {entry.protocol}"
    address, port = entry.new_destination
    rules = []
    if address:
        to = f"[{address}]" if port and ":" in address else address
        of_port, to = (f" --dport {entry.destination_port}", f"{to}:{port}") if port else ("", to)
        rules.append(f"-A {hook} -d {entry.destination} {protocol}{of_port} -j DNAT --to-destination {to}")
    if entry.new_source:
        of_source = f"-A POSTROUTING -s {entry.source} -d {entry.left_destination} {protocol}"
        rules.append(f"{of_source} -j SNAT --to-source {entry.new_source}")
    return with_translations(snapshot, "ip6" if ":" in entry.destination else "ip", rules)


def with_translations(snapshot: Entry, family: str, rules: t.Sequence[str]) -> Snapshot:
    """Return the snapshot with rules before all others of the table nat. family: ip or ip6. rules: with -A and their chain."""
    tables = [dict(entry) for entry in entries(snapshot, "iptables")]
    table = next((entry for entry in tables if (entry.get("family"), entry.get("table")) == (family, "nat")), None)
    if table is None:
        table = {"family": family, "backend": "nft", "table": "nat", "save": f"*nat\n{_BASE_CHAINS}COMMIT\n"}
        tables.append(table)
    table["save"] = unreferenced.before_others(str(table["save"]), rules)
    return {**snapshot, "iptables": tables}


def _chain(place: str, tracked: Change | None) -> t.Iterator[Value]:
    family, table, name = place.split(" ", 2)
    yield Value("returns", f"chain {name} lets the packet pass")
    if table == "nat":  # which does not drop
        yield Value("translates", f"chain {name} translates the packet", tracked)
        return
    for verb, target in (("accepts", "ACCEPT"), ("drops", "DROP")):
        rule = f"-A {quote(name)} -j {target}\nCOMMIT"
        change = partial(_replaced, family=family, table=table, old="COMMIT", new=rule)
        yield Value(verb, f"chain {name} {verb} the packet", change)


def _jumps(snapshot: Entry, subject: str, ends: t.Sequence[str]) -> t.Iterator[Value]:
    """Yield whether packets come to a chain or a map that an output shows, if that may stop or translate the packet."""
    family, table, name = subject.split(" ", 2)
    referred = unreferenced.referring(snapshot, (family, table), name, ends)
    if referred:
        yield Value("none", f"no rule leads the packet to {name}")
        change = partial(_led, place=(family, table), name=name, ends=ends)
        yield Value("referred", f"a rule leads the packet to {name}{referred.where}", change)


def _led(snapshot: Snapshot, place: tuple[str, str], name: str, ends: t.Sequence[str]) -> Snapshot:
    referred = unreferenced.referring(snapshot, place, name, ends)
    return referred.snapshot if referred else snapshot


def _translations(table: str, tracked: Change | None) -> t.Iterator[Value]:
    """Yield what rules that no output has may do to a packet for a Service. table: with its family; or empty."""
    if table.partition(" ")[2] in ("", "nat") and not table.startswith("bridge"):
        where = f"table nat ({table.partition(' ')[0]})" if table else "the rules of nftables"
        yield Value(SHOWN, f"no rule of {where} translates the destination")
        yield Value("translates", f"a rule of {where} translates the destination", tracked)


def _translates(snapshot: Entry) -> bool:
    """Return whether iptables translates destinations: kube-proxy uses either iptables or nftables."""
    return any(" -j DNAT " in str(table.get("save")) for table in entries(snapshot, "iptables"))


def _policies(family: str, table: str, name: str) -> t.Iterator[Value]:
    yield Value("ACCEPT", f"the policy of {name} ({table}) is ACCEPT")
    if table != "nat":
        change = partial(_replaced, family=family, table=table, old=f":{name} ACCEPT", new=f":{name} DROP")
        yield Value("DROP", f"the policy of {name} ({table}) is DROP", change)


def _replaced(snapshot: Snapshot, family: str, table: str, old: str, new: str) -> Snapshot:
    """Return the snapshot with another text in a table of iptables."""
    changed = []
    for entry in entries(snapshot, "iptables"):
        is_it = (entry.get("family"), entry.get("table")) == (family, table)
        changed.append({**entry, "save": str(entry.get("save")).replace(old, new)} if is_it else entry)
    return {**snapshot, "iptables": changed}


def _elements(snapshot: Entry, name: str, family: str, ports: t.Collection[int]) -> t.Iterator[Value]:
    yield Value("without", f"the set {name} lacks the packet's addresses")
    known = next((str(entry.get("save")) for entry in entries(snapshot, "ipsets") if entry.get("name") == name), "")
    halves = ("::/1", "8000::/1") if family == "ipv6" else ("0.0.0.0/1", "128.0.0.0/1")
    dimensions = known.split(" ")[2:3]
    parts = dimensions[0].partition(":")[2].strip().split(",") if dimensions else ["ip"]
    translated = _PORT.findall("\n".join(str(entry.get("save")) for entry in entries(snapshot, "iptables")))
    numbers = sorted({*ports, *map(int, translated[:MOST_PORTS])} - {0})
    members = [""]
    for part in parts:
        of_part = halves if part in ("ip", "net") else [f"{kind}:{port}" for kind in ("tcp", "udp") for port in numbers]
        members = [f"{member},{value}".lstrip(",") for member in members for value in of_part]
    kind = f"hash:{','.join('net' if part == 'ip' else part for part in parts)}"
    inet = "inet6" if family == "ipv6" else "inet"
    text = "\n".join([f"create {name} {kind} family {inet}", *(f"add {name} {member}" for member in members), ""])

    def change(world: Snapshot) -> Snapshot:
        others = [entry for entry in entries(world, "ipsets") if entry.get("name") != name]
        return {**world, "ipsets": [*others, {"name": name, "save": text}]}

    yield Value("with", f"the set {name} has the packet's addresses", change)


def _destination(snapshot: Entry, packet: Ends) -> t.Iterator[Value]:
    """Yield where the destination may be, if no output has routes."""
    to = packet.destination
    elsewhere = partial(_with_way, packet=packet)
    if not packet.interface:
        yield Value("none", f"there is no route to {to}")
        yield Value("elsewhere", f"a route to {to} leads to another node", elsewhere)
    elif to not in link_addresses(entries(snapshot, "links")):
        yield Value("pod", f"{to} is a pod on the node")
        yield Value("own", f"{to} is an address of the node", partial(_with_own, packet=packet))
        yield Value("elsewhere", f"{to} is behind another link", elsewhere)


def _with_way(snapshot: Snapshot, packet: Ends) -> Snapshot:
    """Return the snapshot with a way to the destination by a further link, and with one for all else by the packet's link."""
    links, back = entries(snapshot, "links"), packet.interface
    near: Entry = next((link for link in links if link.get("name") == back), {})
    if back:
        ways = [(packet.destination, _ELSEWHERE), ("default", str(near.get("master") or back))]
        added = [new_card(_ELSEWHERE), *([] if near else [new_card(back)])]
    else:
        cards = [str(link["name"]) for link in links if is_card(link)]
        ways, added = [("default", cards[0] if cards else _ELSEWHERE)], [] if cards else [new_card(_ELSEWHERE)]
    routes = [link_route(packet.family, to, dev) for to, dev in ways]
    return {**snapshot, "links": [*links, *added], "routes": [*entries(snapshot, "routes"), *routes]}


def _addresses(packet: Ends) -> t.Iterator[Value]:
    """Yield whether the node has the destination."""
    yield Value("other", f"{packet.destination} is not an address of the node")
    yield Value("own", f"{packet.destination} is an address of the node", partial(_with_own, packet=packet))


def _with_own(snapshot: Snapshot, packet: Ends) -> Snapshot:
    links = [dict(link) for link in entries(snapshot, "links")]
    near = next((link for link in links if link.get("name") == packet.interface), None)
    if near is None:
        near = new_card(packet.interface)
        links.append(near)
    near["addresses"] = [*(near.get("addresses") or ()), host_address(packet.destination)]
    return {**snapshot, "links": links}


def _table(snapshot: Entry, name: str, number: str, packet: Ends) -> t.Iterator[Value]:
    """Yield where a table leads of which no output has the routes."""
    yield Value("empty", f"table {name} has no route for the packet")
    of_main = [str(route.get("dev")) for route in entries(snapshot, "routes") if route.get("to") == "default"]
    pods = pod_links.pod_links(snapshot)
    others = [link for link in entries(snapshot, "links") if link["name"] not in (LOOPBACK, *pods) and not link.get("master")]
    names = [str(link["name"]) for link in sorted(others, key=is_card, reverse=True)]
    for dev in list(dict.fromkeys([*of_main, *names]))[:MOST_LINKS]:
        route = {**link_route(packet.family, "default", dev, number), "protocol": "boot"}
        yield Value(dev, f"table {name} leads to {dev}", partial(_with_route, route=route))


def _with_route(snapshot: Snapshot, route: Entry) -> Snapshot:
    return {**snapshot, "routes": [*entries(snapshot, "routes"), route]}


def _rules(snapshot: Entry, packet: Ends) -> t.Iterator[Value]:
    """Yield the tables to which rules may lead that no output has."""
    family = packet.family
    routes = [route for route in entries(snapshot, "routes") if route.get("family", "ipv4") == family]
    tables = dict.fromkeys(str(route.get("table")) for route in routes if str(route.get("table")) not in ("253", "254", "255"))
    if not tables:
        return
    yield Value("kernel", "there are no rules but the kernel's")
    for table in tables:
        rule = {"priority": 100, "family": family, "table": table, "protocol": "boot"}
        yield Value(table, f"a rule leads to table {table}", partial(_with_rule, rule=rule))


def _with_rule(snapshot: Snapshot, rule: Entry) -> Snapshot:
    """Return the snapshot with a further rule, and with those of the kernel, which have to be there then."""
    rules: list[Entry] = [*entries(snapshot, "rules"), rule]
    for family in ("ipv4", "ipv6"):
        rules = with_kernels_rules(rules, family)
    return {**snapshot, "rules": rules}
