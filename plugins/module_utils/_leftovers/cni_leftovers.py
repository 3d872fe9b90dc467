# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leftovers of a CNI of which no program runs, by the names in the table of CNIs, and what each does to packets.

Those of Cilium and kube-proxy are from the sources of cilium: pkg/datapath/iptables/iptables.go, pkg/defaults,
cilium-dbg/cmd/cleanup.go.
"""

from __future__ import annotations

import contextlib
import functools
import re
import typing as t

from .._cni import cni
from .._cni.cni import Owner
from .._core import fields
from .._core.fields import Prefix
from .._core.printable import first_of
from .._netfilter import iptables
from .._netfilter.iptables import Rule, Table
from .._routing import rt_names
from .._routing.route import BLACKHOLE, PROHIBIT, UNREACHABLE, Route
from .leftover import CHAIN, LINK, PROGRAM, ROUTE, RULE, Leftover

TABLES = {family: ("raw", "mangle", "nat", "filter") for family in iptables.PROGRAMS}
SHOWN = 2  # prefixes in a sentence
# What the target of a rule does to a packet that no running program has asked for.
VERBS = {
    **{"REJECT": "rejects", "DROP": "drops", "MASQUERADE": "gives the node's address to", "SNAT": "gives another source to"},
    **{"DNAT": "redirects", "REDIRECT": "redirects", "TPROXY": "redirects"},
}
_DROPPING = (BLACKHOLE, UNREACHABLE, PROHIBIT)
_PREFIX = re.compile(r"(?<![\w.:])[0-9a-f.:]+/\d+")
_COMMENT = re.compile(r"--comment (?:\"([^\"]*)\"|(\S+))")

Chains = t.Collection[tuple[Table, str]]

CILIUM, KUBE_PROXY = "cilium", "kube-proxy"
CILIUM_AGENT = "cilium-agent"
CILIUM_CHAINS = re.compile(r"(OLD_)?CILIUM_\w+")
CILIUM_LINKS = re.compile(r"cilium_(host|vxlan|geneve|wg0|ipip[46])|lxc_health")  # cilium_net is the other end of cilium_host
# cilium-dbg is in the agent's image. It removes links, BPF programs and routes, but no rules of iptables.
CLEANUP = "cilium-dbg post-uninstall-cleanup --all-state --force"
NO_AGENT = "no Cilium agent runs, and no runtime uses Cilium's CNI configuration"
NO_PROXY = "kube-proxy does not run; nothing tells whether it was replaced or is about to start"
OF_SERVICES = "translates or filters connections to Services as they were"


class Links(t.NamedTuple):
    """The links of a node that have an owner's names, in order, and which of them have ports: links of pods in a bridge."""

    names: tuple[str, ...] = ()
    with_ports: t.Collection[str] = ()


def find(
    owner: Owner,
    rules: t.Sequence[Rule],
    chains: Chains,
    links: Links,
    routes: t.Sequence[tuple[Route, int]],
    state: str,
) -> list[Leftover]:
    """Return the leftovers of an owner of which no program runs, in an order in which the commands can be run.

    rules: all of the tables. chains: the owner's. routes: of the node, with their protocols. state: the text of owner.state.
    """
    evidence = f"no program of {owner.name} runs, and no runtime uses its CNI configuration"
    of_tables = in_tables(owner.name, evidence, rules, chains, owner.comments)
    networks = [*_networks(state), *(prefix for leftover in of_tables for prefix in _networks(leftover.text))]
    networks += [route.dst for route, _protocol in routes if route.links & {*links.names} and route.dst[1]]
    dropping = [route for route, protocol in routes if _is_of(owner, route, protocol, networks)]
    return [
        *of_tables,
        *(
            Leftover(ROUTE, "table main", str(route), owner.name, evidence, True, _deletion(route), _dropped(route))
            for route in dropping
        ),
        *(_link(owner.name, evidence, name, links, routes) for name in links.names),
    ]


def in_tables(
    owner: str, evidence: str, rules: t.Sequence[Rule], chains: Chains, comments: re.Pattern[str] | None = None
) -> list[Leftover]:
    """Return the rules that jump to the owner's chains or have its comments, the rules in the chains, and the chains."""
    own_chains = {*chains}

    def is_within(rule: Rule) -> bool:
        return (rule.table, rule.chain) in own_chains

    mine = [rule for rule in rules if is_within(rule) or iptables.jump(rule, own_chains) or _has_comment(rule, comments)]
    effects = _effects(mine, own_chains)
    return [
        *(
            Leftover(RULE, rule.place, rule.text, owner, evidence, True, rule.deletion, effects.get(rule, ""))
            for rule in sorted(mine, key=is_within)
        ),
        *(Leftover(CHAIN, str(table), name, owner, evidence, True, f"{table.program} -X {name}") for table, name in chains),
    ]


def _has_comment(rule: Rule, comments: re.Pattern[str] | None) -> bool:
    match = _COMMENT.search(rule.text) if comments else None
    return bool(comments and match and comments.fullmatch(match[1] or match[2] or ""))


def _effects(rules: t.Sequence[Rule], own_chains: t.AbstractSet[tuple[Table, str]]) -> dict[Rule, str]:
    """Map each rule that packets reach, and that does something to them, to what that is."""
    inside: dict[tuple[Table, str], list[Rule]] = {}
    for rule in rules:
        inside.setdefault((rule.table, rule.chain), []).append(rule)
    targets = {rule: (rule.table, iptables.target(rule.text)) for rule in rules}

    @functools.cache
    def of_chain(chain: tuple[Table, str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(verb for rule in inside.get(chain, ()) for verb in of_rule(rule)))

    def of_rule(rule: Rule) -> tuple[str, ...]:
        """Return what the rule does, or the rules of the chain to which it leads; iptables allows no loop."""
        verb = VERBS.get(targets[rule][1], "")
        return (verb,) if verb else of_chain(targets[rule])

    entered = {chain for chain in inside if chain not in own_chains}
    waiting = [*entered]
    while waiting:
        further = {targets[rule] for rule in inside.get(waiting.pop(), ())} - entered
        entered |= further
        waiting += further
    reached = [rule for rule in rules if (rule.table, rule.chain) in entered]
    return {rule: f"{' or '.join(verbs)} packets{_selector(rule)}" for rule in reached if (verbs := of_rule(rule))}


def _selector(rule: Rule) -> str:
    """Return the addresses of which a rule is, or the chain that packets come from."""
    values = iptables.meaning(rule.text)
    words = [f" {word} {values[name]}" for word, name in (("from", "-s"), ("to", "-d")) if name in values]
    return "".join(words) or f" in {rule.chain}"


def _networks(text: str) -> t.Iterator[Prefix]:
    """Yield the prefixes in a text that are no single addresses."""
    for word in _PREFIX.findall(text):
        with contextlib.suppress(fields.Unfit):
            prefix = fields.prefix(word)[1]
            if 0 < prefix[1] < len(prefix[0]) * 8:
                yield prefix


def _is_of(owner: Owner, route: Route, protocol: int, networks: t.Sequence[Prefix]) -> bool:
    """Return whether a route drops packets to pods of the owner."""
    if route.type not in _DROPPING or route.table != rt_names.MAIN:
        return False
    packed, length = route.dst
    is_within = (length >= network[1] and fields.contains(network, packed) for network in networks)
    return protocol in owner.protocols or any(is_within)


def _deletion(route: Route) -> str:
    program, _route, selector = str(route).partition(" route")
    return f"{program} route del{selector}"


def _dropped(route: Route) -> str:
    return f"drops packets to {fields.show_prefix(route.dst, 'all addresses')}, whichever node has them now"


def _link(owner: str, evidence: str, name: str, links: Links, routes: t.Sequence[tuple[Route, int]]) -> Leftover:
    """Return a link as a leftover; it is in use if it is a bridge with ports."""
    by_link = [route for route, _protocol in routes if name in route.links and route.table == rt_names.MAIN]
    prefixes = [text for text in map(_route_text, by_link) if text]
    effect = f"takes packets to {first_of(prefixes, SHOWN)}" if prefixes else ""
    is_used = name in links.with_ports
    used = "; links of pods are in it" if is_used else ""
    return Leftover(LINK, "links", name, owner, evidence + used, not is_used, f"ip link del {name}", effect)


def _route_text(route: Route) -> str:
    """Return the destination of a route; empty for IPv6 addresses that each link has of its own."""
    packed, _length = route.dst
    return "" if packed[:1] in (b"\xfe", b"\xff") else fields.show_prefix(route.dst, "default")


def harms(leftovers: t.Iterable[Leftover]) -> list[str]:
    """Return a sentence for each owner whose leftovers certainly do something to packets."""
    of_owner: dict[str, list[Leftover]] = {}
    for leftover in leftovers:
        if leftover.effect and leftover.is_certain:
            of_owner.setdefault(leftover.owner, []).append(leftover)
    return [
        f"{owner} is gone, and {len(several)} of its objects still act on packets: {first.kind} {first.text} in {first.place}"
        f" {first.effect}. They were not changed. cni_info lists them in leftovers, with the commands that remove them."
        for owner, several in of_owner.items()
        for first in (min(several, key=lambda leftover: " in " in leftover.effect),)
    ]


def of_cilium(
    rules: t.Sequence[Rule],
    chains: t.Sequence[tuple[Table, str]],
    links: t.Iterable[str],
    programs: t.Iterable[tuple[str, str]],
) -> list[Leftover]:
    """Return Cilium's leftovers, in an order in which the commands can be run.

    programs: link and name of each BPF program of Cilium.
    """

    def leftover(kind: str, place: str, text: str, command: str) -> Leftover:
        return Leftover(kind, place, text, CILIUM, NO_AGENT, True, command)

    return [
        *in_tables(CILIUM, NO_AGENT, rules, chains),
        *(leftover(PROGRAM, f"link {link}", name, CLEANUP) for link, name in programs),
        *(leftover(LINK, "links", link, f"ip link del {link}") for link in links if CILIUM_LINKS.fullmatch(link)),
    ]


def of_kube_proxy(chains: t.Mapping[str, t.Sequence[str]], is_running: bool) -> list[Leftover]:
    """Return one leftover for each place, which may have thousands of chains.

    Those of a kube-proxy that runs are leftovers if they are of several modes or backends: it uses one of these.

    chains: names by place; see cni.kube_proxy_chains().
    """
    modes = sorted(cni.kube_proxy_modes(chains))
    if is_running and len(modes) < 2:
        return []
    evidence = f"kube-proxy runs, and uses one of {' and '.join(modes)}" if is_running else NO_PROXY
    return [
        Leftover(CHAIN, place, first_of(names, 1), KUBE_PROXY, evidence, False, cni.kube_proxy_removal(place), OF_SERVICES)
        for place, names in chains.items()
    ]
