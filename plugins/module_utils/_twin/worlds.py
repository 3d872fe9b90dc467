# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The worlds that fit a snapshot: for each fact that it leaves open, the values that a packet may meet.

What nothing in the snapshot names, such as a ruleset of nft of which no output shows a line, has no values: no twin of it can be
built.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import typing as t
from functools import partial

from .._core.errors import Invalid
from .._core.fields import endpoint
from .._netfilter.rule_words import quote
from .._ruleset.ruleset import DNAT, DROP, REJECT
from .._snapshot import open_facts
from .._snapshot.evidence import LOGGED, Evidence
from .._snapshot.open_facts import KINDS, WORDS, Fact
from .._snapshot.settings import BRIDGED
from .._snapshot.values import (
    MAIN,
    Address,
    Link,
    Peer,
    Pod,
    PolicyRule,
    Route,
    SavedSet,
    SavedTable,
    Snapshot,
    has_interface_name,
    link_route,
    new_link,
)
from . import pod_links, stateful_matches, substitutions, unreferenced
from .assumptions import ELSEWHERE, Ends, is_card, open_forwarding, with_settings
from .blueprint import LOOPBACK
from .unreferenced import Change

# Further settings of which a fact may be open, with the usual values, which are in the twin. Kubernetes demands that frames of
# bridges are shown to rules (kubeadm's preflight checks).
DEFAULTS = {"net.ipv4.conf.all.src_valid_mark": 0, "net.ipv4.conf.all.route_localnet": 0, **dict.fromkeys(BRIDGED.values(), 1)}
SETTINGS = (*DEFAULTS,)
_BEFORE_SETTINGS = KINDS.index(open_facts.TABLE)
DECISIVE = (*KINDS[:_BEFORE_SETTINGS], open_facts.FORWARDING, *SETTINGS, *KINDS[_BEFORE_SETTINGS:])
SHOWN = "shown"  # the value by which the option assume says that there is no more than what the snapshot has
MOST_LINKS = 2  # by which a table that no output has may lead
NODE_PORTS = range(30000, 32768)  # the default of kube-apiserver's --service-node-port-range
# Where programs of the node itself listen: SSH, etcd, the Kubernetes API and kubelet (kubernetes.io, Ports and Protocols).
OWN_PORTS = (22, 2379, 2380, 6443, 10250)
MOST_BEHIND = 3  # links of rules behind which a destination may be
MOST_PORTS = 50
_TRANSLATING = re.compile("DNAT")
_OF_LINKS = re.compile(r"\boif|\s-o\s|--out-interface")  # by which packets leave
OF_THE_KERNEL = ("253", "254", "255")  # tables that its own rules look up


class Value(t.NamedTuple):
    """name: as the option assume takes it. words: a clause behind "if". change: None if no twin of it can be built.

    ground: what makes the value likelier than the others, as words behind a colon. needs_culprit: whether it does so only where
    something stops the packet.
    """

    name: str
    words: str
    change: Change | None = None
    ground: str = ""
    needs_culprit: bool = False


class Open(t.NamedTuple):
    """A fact and its values, of which the first is the one that the snapshot's twin has without a change."""

    fact: Fact
    values: tuple[Value, ...] = ()


def open_for(snapshot: Snapshot, packet: Ends, ports: t.Collection[int] = ()) -> dict[str, Open]:
    """Return the facts that a snapshot leaves open for a packet, by their ids. ports: of the packet."""
    of_family = [entry for entry in snapshot.open or () if entry.family in ("", packet.family)]
    numbers = {entry.fact.fact: entry.table for entry in of_family}
    without_values = {entry.fact.fact for entry in of_family if entry.is_cut}
    facts = [entry.fact for entry in of_family if not is_known(snapshot, entry.fact.fact)]
    if packet.family == "ipv4":
        facts += [open_facts.rp_filter(link.name) for link in snapshot.links if link.name != LOOPBACK]
    sides = _pod_sides(snapshot, packet.family)
    facts += map(open_facts.hairpin, _ports(snapshot))
    facts += [*sides, *map(open_facts.recent, _open_records(snapshot, packet))]
    if packet.interface:
        entrances = snapshot if snapshot.link(packet.interface) else snapshot.with_link(new_link(packet.interface))
        unknown = open_forwarding(snapshot.settings, packet.family, entrances.links)
        facts += (open_facts.forwarding(packet.family, name) for name in unknown.values())
    tracked = _tracked(snapshot, packet, ports)
    values: dict[str, t.Callable[[Fact], t.Iterable[Value]]] = {
        open_facts.RP_FILTER: lambda fact: _filters(snapshot, fact.subject),
        open_facts.CHAIN: lambda fact: _chain(fact.subject, tracked),
        open_facts.POLICY: lambda fact: _policies(*fact.subject.split(" ", 2)),
        open_facts.SET: lambda fact: _elements(snapshot, fact.subject, packet.family, ports),
        open_facts.ROUTES: lambda fact: (
            _table(snapshot, fact.subject, numbers[fact.fact], packet) if fact.subject else _destination(snapshot, packet, ports)
        ),
        open_facts.RULES: lambda _fact: _rules(snapshot, packet),
        # Of a packet of the node, and where the routes are open, other facts cover the address of the destination.
        open_facts.ADDRESSES: lambda _fact: _addresses(packet) if packet.interface and open_facts.ROUTES not in numbers else (),
        open_facts.POD_SIDE: lambda fact: _answers(sides[fact]),
        open_facts.RECENT: lambda fact: _records(fact.subject),
        open_facts.HAIRPIN: lambda fact: _hairpins(fact.subject),
        open_facts.FORWARDING: lambda fact: _forwards(snapshot, packet.family, fact),
        **{key: lambda fact: _setting(fact.fact) for key in DEFAULTS},
        open_facts.TABLE: lambda fact: _translations(fact.subject, tracked),
        open_facts.CUT: lambda fact: _translations(fact.subject, tracked),
        open_facts.NFT: lambda _fact: () if any(True for _port in _translated_ports(snapshot)) else _translations("", tracked),
        open_facts.JUMP: lambda fact: _jumps(snapshot, fact.subject, packet),
        open_facts.IPVS: lambda _fact: (Value("none", "IPVS has no server there"), Value("server", "IPVS has a server there")),
    }
    result = {}
    for fact in sorted(facts, key=lambda fact: DECISIVE.index(fact.kind)):
        has_values = fact.kind in values and fact.fact not in without_values
        choices = tuple(values[fact.kind](fact)) if has_values else ()
        if choices or fact.kind != open_facts.RP_FILTER:  # a filter without choices is known
            result[fact.fact] = Open(fact, choices)
    return result


def check(snapshot: Snapshot) -> None:
    """Raise Invalid if the facts that an operator wrote into a snapshot have another form."""
    for number, entry in enumerate(snapshot.open or ()):
        fact = entry.fact
        words = WORDS.get(fact.kind, 1)
        if fact.kind not in (*KINDS, *SETTINGS) or (words > 1 and len(fact.subject.split(" ")) != words):
            raise Invalid(f"snapshot.open[{number}].fact", fact.fact, f"an id that begins with one of {', '.join(KINDS)}")


def divided(assume: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, str]]:
    """Return the two parts of the option assume: settings, and values of facts by their ids."""
    facts = {key: str(value) for key, value in assume.items() if str(key).partition(":")[0] in (*KINDS, *substitutions.NAMED)}
    return {key: value for key, value in assume.items() if key not in facts}, facts


def applied(snapshot: Snapshot, opened: t.Mapping[str, Open], values: t.Mapping[str, str]) -> tuple[Snapshot, dict[str, Open]]:
    """Return the snapshot with values of facts, and the facts that are left open. Raises Invalid."""
    changed, remaining = snapshot, dict(opened)
    for name, value in values.items():
        if name.partition(":")[0] in substitutions.NAMED:
            if value.lower() != SHOWN:
                raise Invalid(f"assume.{name}", value, SHOWN)
            continue
        if name not in opened:
            raise Invalid(f"assume.{name}", value, f"a fact that is open: {', '.join(opened) or 'there is none'}")
        choices = opened[name].values or (Value(SHOWN, ""),)
        choice = next((each for each in choices if each.name.lower() == value.lower()), None)
        if choice is None or (choice.change is None and choice is not choices[0]):
            names = ", ".join(each.name for each in choices if each.change or each is choices[0])
            raise Invalid(f"assume.{name}", value, f"one of {names}")
        changed = choice.change(changed) if choice.change else changed
        del remaining[name]
    return changed, remaining


def _filters(snapshot: Snapshot, link: str) -> t.Iterator[Value]:
    """Yield the values that the filter of a link may have. The larger of the link's value and that of all counts."""
    of_both = (snapshot.settings.of_link("ipv4", name) for name in ("all", link))
    present = [int(settings["rp_filter"]) for settings in of_both if "rp_filter" in settings]
    lowest = max(present, default=0)
    if len(present) == 2 or lowest >= 2:
        return
    key = f"net/ipv4/conf/{link}/rp_filter"
    for value in range(lowest, 3):
        yield Value(str(value), f"rp_filter of {link} is {value}", partial(with_settings, assume={key: value}))


def _pod_sides(snapshot: Snapshot, family: str) -> dict[Fact, list[Link]]:
    """Return the links to pods that have several of them and whose rules and routes the snapshot lacks, by their facts.

    The first link of each list is that of the fact.
    """
    with_sides = {pod.namespace for pod in snapshot.pods}
    by_namespace = pod_links.by_namespace(snapshot.links, snapshot.routes or ())
    groups = (links for namespace, links in by_namespace.items() if namespace not in with_sides)
    return {
        open_facts.pod_side(link.name, link.peer.addresses, family): [link, *(each for each in links if each is not link)]
        for links in groups
        for link in links
        if len(links) > 1
    }


def is_known(snapshot: Snapshot, key: str) -> bool:
    """Return whether the snapshot has one of SETTINGS, as by the option assume."""
    every = snapshot.settings.of_link("ipv4", "all")
    return key in SETTINGS and (key in snapshot.settings.node or (".all." in key and key.rpartition(".")[2] in every))


def _setting(key: str) -> t.Iterator[Value]:
    usual = DEFAULTS[key]
    yield Value(str(usual), f"{key} is {usual}")
    yield Value(str(1 - usual), f"{key} is {1 - usual}", partial(with_settings, assume={key: 1 - usual}))


def _forwards(snapshot: Snapshot, family: str, fact: Fact) -> t.Iterator[Value]:
    """Yield both values of a link's setting where that of all is 0: a node that forwards only by some links has it so."""
    if family == "ipv4" and snapshot.settings.forwarding_of_all(family) == 0:
        yield Value("0", f"{fact.fact} is 0")
        yield Value("1", f"{fact.fact} is 1", partial(with_settings, assume={fact.fact: 1}))


def _ports(snapshot: Snapshot) -> list[str]:
    """Return the ports of bridges to pods, of which pasted outputs do not show whether frames come back."""
    links = snapshot.links if snapshot.open is not None else ()
    bridges = {link.name for link in links if link.kind == "bridge"}
    pods = pod_links.pod_links(links, snapshot.routes or ())
    return [link.name for link in links if link.master in bridges and link.name in pods and "hairpin" not in link.settings]


def _hairpins(port: str) -> t.Iterator[Value]:
    yield Value("off", f"hairpin of {port} is off")
    yield Value("on", f"hairpin of {port} is on", partial(_with_hairpin, port=port))


def _with_hairpin(snapshot: Snapshot, port: str) -> Snapshot:
    link = snapshot.link(port)
    return snapshot.with_link(link.with_setting("hairpin", 1)) if link else snapshot


def recent_chains(snapshot: Snapshot) -> dict[str, t.Sequence[str]]:
    """Return the names of the records that rules of iptables match, by family, table and chain."""
    return {
        f"{table.family} {table.table} {chain}": names
        for table in snapshot.iptables
        for chain, names in stateful_matches.recent_by_chain(table.save).items()
    }


def _open_records(snapshot: Snapshot, packet: Ends) -> dict[str, None]:
    """Return the names of records that a packet may meet.

    A record that was read may be too old for its rule, so it is open as well.
    """
    family = "ip6 " if packet.family == "ipv6" else "ip "
    matched = (names for chain, names in recent_chains(snapshot).items() if chain.startswith(family))
    names = dict.fromkeys(name for of_chain in matched for name in of_chain)
    if snapshot.recent is None:
        return names
    with_source = {record.name for record in snapshot.recent if packet.source in record.addresses}
    return {name: None for name in names if name in with_source}


def _records(name: str) -> t.Iterator[Value]:
    yield Value("without", f"{name} has no record of the packet's source")
    yield Value("with", f"{name} has a record of the packet's source", partial(_recorded, name=name))


def _recorded(snapshot: Snapshot, name: str) -> Snapshot:
    return snapshot._replace(recorded=(*snapshot.recorded, name))


def _answers(links: t.Iterable[Link]) -> t.Iterator[Value]:
    """Yield the links by which a pod may answer to a packet that has left by the first one."""
    for number, link in enumerate(links):
        change = partial(_answering_by, peer=link.peer) if number else None
        yield Value(link.name, f"the pod answers by {link.name}", change)


def _answering_by(snapshot: Snapshot, peer: Peer) -> Snapshot:
    return snapshot._replace(pods=[*snapshot.pods, Pod.answering_by(peer)])


def _tracked(snapshot: Snapshot, packet: Ends, ports: t.Collection[int]) -> Change | None:
    """Return what translates a packet as a connection with its ends was, of which an output of conntrack shows both tuples."""
    for entry in snapshot.evidence:
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
        of_port = f" --dport {entry.destination_port}" if port else ""
        to = endpoint(address, port)
        rules.append(f"-A {hook} -d {entry.destination} {protocol}{of_port} -j DNAT --to-destination {to}")
    if entry.new_source:
        of_source = f"-A POSTROUTING -s {entry.source} -d {entry.left_destination} {protocol}"
        rules.append(f"{of_source} -j SNAT --to-source {entry.new_source}")
    return with_translations(snapshot, "ip6" if ":" in entry.destination else "ip", rules)


def with_translations(snapshot: Snapshot, family: str, rules: t.Sequence[str]) -> Snapshot:
    """Return the snapshot with rules before all others of the table nat. family: ip or ip6. rules: with -A and their chain."""
    if not any(table[:2] == (family, "nat") for table in snapshot.iptables):
        snapshot = snapshot._replace(iptables=[*snapshot.iptables, SavedTable(family, "nat", "nft", "*nat\nCOMMIT\n")])
    return snapshot.with_table(family, "nat", lambda table: table.with_rules(rules))


def _chain(place: str, tracked: Change | None) -> t.Iterator[Value]:
    family, table, name = place.split(" ", 2)
    yield Value("returns", f"chain {name} lets the packet pass")
    if table == "nat":  # which does not drop
        yield Value("translates", f"chain {name} translates the packet", tracked)
        return
    for verb, target in (("accepts", "ACCEPT"), ("drops", "DROP")):
        change = partial(SavedTable.with_rules, rules=[f"-A {quote(name)} -j {target}"], is_first=False)
        yield Value(
            verb, f"chain {name} {verb} the packet", partial(Snapshot.with_table, family=family, name=table, change=change)
        )


def _jumps(snapshot: Snapshot, subject: str, packet: Ends) -> t.Iterator[Value]:
    """Yield whether packets come to a chain or a map that an output shows, if that may stop or translate the packet."""
    family, table, name = subject.split(" ", 2)
    ends = packet.source, packet.destination
    referred = unreferenced.referring(snapshot, (family, table), name, ends, bool(packet.interface))
    if referred:
        yield Value("none", f"no rule leads the packet to {name}")
        words = f"a rule leads the packet to {name}{referred.where}"
        # Who asks about a loss pastes what is guilty.
        yield Value("referred", words, referred.change, f"an output shows {subject} by itself", needs_culprit=True)


def _translations(table: str, tracked: Change | None) -> t.Iterator[Value]:
    """Yield what rules that no output has may do to a packet for a Service. table: with its family; or empty."""
    if table.partition(" ")[2] in ("", "nat") and not table.startswith("bridge"):
        where = f"table nat ({table.partition(' ')[0]})" if table else "the rules of nftables"
        yield Value(SHOWN, f"no rule of {where} translates the destination")
        yield Value("translates", f"a rule of {where} translates the destination", tracked)


def _translated_ports(snapshot: Snapshot) -> t.Iterator[str]:
    """Yield the ports to which rules of iptables translate destinations; empty for one that keeps the port."""
    rules = (rule for table in snapshot.iptables for rule in table.read().rules(_TRANSLATING))
    targets = (each for rule in rules for each in rule.statements if each.kind == DNAT)
    return (each.target.rpartition(":")[2] if each.target != each.address else "" for each in targets)


def _policies(family: str, table: str, name: str) -> t.Iterator[Value]:
    yield Value("ACCEPT", f"the policy of {name} ({table}) is ACCEPT")
    if table != "nat":
        change = partial(SavedTable.with_policy, chain=name, policy="DROP")
        in_table = partial(Snapshot.with_table, family=family, name=table, change=change)
        yield Value("DROP", f"the policy of {name} ({table}) is DROP", in_table)


def _elements(snapshot: Snapshot, name: str, family: str, ports: t.Collection[int]) -> t.Iterator[Value]:
    yield Value("without", f"the set {name} lacks the packet's addresses")
    current = next((each for each in snapshot.ipsets if each.name == name), SavedSet(name, ""))
    halves = ("::/1", "8000::/1") if family == "ipv6" else ("0.0.0.0/1", "128.0.0.0/1")
    translated = (port for port in _translated_ports(snapshot) if port.isdigit())
    numbers = sorted({*ports, *map(int, itertools.islice(translated, MOST_PORTS))} - {0})
    members = [""]
    for part in current.dimensions:
        of_part = halves if part in ("ip", "net") else [f"{kind}:{port}" for kind in ("tcp", "udp") for port in numbers]
        members = [f"{member},{value}".lstrip(",") for member in members for value in of_part]
    kind = f"hash:{','.join('net' if part == 'ip' else part for part in current.dimensions)}"
    inet = "inet6" if family == "ipv6" else "inet"
    text = "\n".join([f"create {name} {kind} family {inet}", *(f"add {name} {member}" for member in members), ""])
    yield Value("with", f"the set {name} has the packet's addresses", partial(_with_set, filled=SavedSet(name, text)))


def _with_set(snapshot: Snapshot, filled: SavedSet) -> Snapshot:
    return snapshot._replace(ipsets=[*(each for each in snapshot.ipsets if each.name != filled.name), filled])


def _destination(snapshot: Snapshot, packet: Ends, ports: t.Collection[int]) -> t.Iterator[Value]:
    """Yield where the destination may be, if no output has routes."""
    to = packet.destination
    elsewhere = partial(_with_path, packet=packet)
    public = f"{to} is a public address" * ipaddress.ip_address(to).is_global
    if not packet.interface:
        yield Value("none", f"there is no route to {to}")
        yield Value("elsewhere", f"a route to {to} leads to another node", elsewhere, public)
    elif not any(to in link.addresses for link in snapshot.links):
        yield Value("pod", f"{to} is a pod on the node")
        own = _own_ground(snapshot, packet, () if public else ports)
        yield Value("own", f"{to} is an address of the node", partial(_with_own, packet=packet), own)
        yield Value("elsewhere", f"{to} is behind another link", elsewhere, public)
        for link in itertools.islice(_links_of_drops(snapshot, packet), MOST_BEHIND):
            yield Value(link, f"{to} is behind {link}", partial(_with_path, packet=packet, further=link))


def _own_ground(snapshot: Snapshot, packet: Ends, ports: t.Collection[int]) -> str:
    """Return why the node may have the destination."""
    logged = (entry for entry in snapshot.evidence if (entry.kind, entry.destination) == (LOGGED, packet.destination))
    if any(entry.rule.split(" ")[0] == "INPUT" for entry in logged):
        return "the kernel's log has the packet in INPUT"
    own, node_port = (next((port for port in ports if port in of_node), 0) for of_node in (OWN_PORTS, NODE_PORTS))
    return f"programs of nodes listen at port {own}" if own else f"{node_port} is a node port" if node_port else ""


def _links_of_drops(snapshot: Snapshot, packet: Ends) -> dict[str, None]:
    """Return the links of rules that drop packets that leave by them."""
    links = dict[str, None]()
    for rule in (rule for table in snapshot.tables() for rule in table.rules(_OF_LINKS)):
        names = next((match.values for match in rule.matches if match.field == "oifname" and not match.is_negated), ())
        drops = any(each.kind in (DROP, REJECT) for each in rule.statements)
        for name in names if drops else ():
            link = snapshot.link(name)
            if link and name != LOOPBACK and (name != packet.interface or link.kind == "bridge"):
                links[name] = None
    return links


def _with_path(snapshot: Snapshot, packet: Ends, further: str = "") -> Snapshot:
    """Return the snapshot with a route to the destination by a further link, and with one for all else by the packet's link."""
    if packet.interface:
        near = snapshot.link(packet.interface)
        entrance = near and near.master or packet.interface
        is_public = ipaddress.ip_address(packet.destination).is_global  # behind no bridge of pods
        links = [name for name in (_interfaces(snapshot) if is_public else _outer_links(snapshot)) if name != entrance]
        further = further or (links[0] if len(links) == 1 else ELSEWHERE)
        destinations = [(packet.destination, further), ("default", entrance)]
        added = [*([ELSEWHERE] if further == ELSEWHERE else []), *([] if near else [packet.interface])]
    else:
        cards = _interfaces(snapshot)
        destinations, added = [("default", cards[0] if cards else ELSEWHERE)], [] if cards else [ELSEWHERE]
    for name in added:
        snapshot = snapshot.with_link(new_link(name))
    return snapshot.with_routes(link_route(packet.family, to, dev) for to, dev in destinations)


def _interfaces(snapshot: Snapshot) -> list[str]:
    """Return the network interfaces. A link that only a rule names, such as tailscale0, is none."""
    listed = (link for link in snapshot.links if link.number or link.mac or has_interface_name(link.name))
    return [link.name for link in listed if is_card(link)]


def _addresses(packet: Ends) -> t.Iterator[Value]:
    """Yield whether the node has the destination."""
    yield Value("other", f"{packet.destination} is not an address of the node")
    yield Value("own", f"{packet.destination} is an address of the node", partial(_with_own, packet=packet))


def _with_own(snapshot: Snapshot, packet: Ends) -> Snapshot:
    near = snapshot.link(packet.interface) or new_link(packet.interface)
    return snapshot.with_link(near.with_address(Address.of_host(packet.destination)))


def _table(snapshot: Snapshot, name: str, number: str, packet: Ends) -> t.Iterator[Value]:
    """Yield where a table leads of which no output has the routes."""
    yield Value("empty", f"table {name} has no route for the packet")
    of_main = [route.dev for route in snapshot.routes or () if route.to == "default"]
    names = list(dict.fromkeys([*of_main, *_outer_links(snapshot)]))[:MOST_LINKS] or [ELSEWHERE]
    for dev in names:
        route = link_route(packet.family, "default", dev, number or MAIN, "boot")
        words = "another link" if dev == ELSEWHERE else dev
        ground = "" if name == "main" or len(names) > 1 else f"a rule leads to table {name}"
        yield Value(dev, f"table {name} leads to {words}", partial(_with_route, route=route), ground)


def _outer_links(snapshot: Snapshot) -> list[str]:
    """Return the links that may lead to other machines, network interfaces first."""
    excluded = {LOOPBACK, *pod_links.pod_links(snapshot.links, snapshot.routes or ())}
    outer = [link for link in snapshot.links if link.name not in excluded and not link.master]
    return [link.name for link in sorted(outer, key=is_card, reverse=True)]


def _with_route(snapshot: Snapshot, route: Route) -> Snapshot:
    """Return the snapshot with a route, and with its link if that is assumed."""
    with_link = snapshot.with_link(new_link(ELSEWHERE)) if route.dev == ELSEWHERE else snapshot
    return with_link.with_routes([route])


def _rules(snapshot: Snapshot, packet: Ends) -> t.Iterator[Value]:
    """Yield the tables to which rules may lead that no output has."""
    routes = (route for route in snapshot.routes or () if route.family == packet.family)
    tables = dict.fromkeys(route.table for route in routes if route.table not in OF_THE_KERNEL)
    if tables:
        yield Value("kernel", "there are no rules but the kernel's")
    for table in tables:
        rule = PolicyRule.of({"priority": 100, "family": packet.family, "table": table, "protocol": "boot"})
        change = partial(Snapshot.with_rule, rule=rule)
        yield Value(table, f"a rule leads to table {table}", change, f"an output shows table {table} by itself")
