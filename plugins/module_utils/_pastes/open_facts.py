# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What pastes leave open: outputs that are not there, and those that were cut."""

from __future__ import annotations

import typing as t

from .._ruleset.ruleset import LEGACY, NFT, Table
from .._snapshot import open_facts
from .._snapshot.open_facts import Fact, OpenFact
from .._snapshot.settings import ALL, DEFAULT
from .._snapshot.tunnels import kind_by_name
from .._snapshot.values import has_interface_name, is_host
from . import commands, iptables_text
from .commands import Part
from .ip_text import TableNames, local_addresses
from .iptables_tables import BUILT_IN, Tables, unconnected

Entry = dict[str, t.Any]
FAMILIES = {"ipv4": "ip", "ipv6": "ip6"}
NFT_MODULE = "nf_tables"
LOOPBACK, LOCAL = "lo", ("local", "255")  # a link, and the table of the node's own addresses
ON_EACH_LINK = ("fe80::/", "ff00::/")  # destinations of routes of the kernel
BRIDGED = ("filter", "nat")  # tables of ebtables
ALL_TABLES = "all"  # as ip route names them


class Shown:
    """The commands whose outputs the pastes have."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def add(self, part: Part) -> None:
        self._parts.append(part)

    def of(self, *kinds: str, family: str = "") -> list[Part]:
        """Return the parts of these kinds.

        family: that of the output. The output of a command that names no family is of IPv4, or of both for all tables.
        """
        return [part for part in self._parts if part.kind in kinds and (not family or family in families_of(part))]

    def is_whole(self, *kinds: str, family: str = "") -> bool:
        return any(part.is_whole for part in self.of(*kinds, family=family))

    def has_all_tables(self, family: str, is_legacy: bool = False) -> bool:
        """Return whether the rules of all tables of iptables are shown. is_legacy: of those that iptables-legacy prints."""
        parts = (part for part in self.of(commands.IPTABLES, family=family) if part.is_legacy == is_legacy)
        return any(map(iptables_text.is_of_all_tables, parts))

    def has_legacy_tables(self, family: str) -> bool:
        """Return whether iptables-save says that iptables-legacy has tables, which it does not print."""
        return any(iptables_text.LEGACY.match(line) for part in self.of(commands.IPTABLES, family=family) for line in part.lines)

    def may_hide_legacy_tables(self, family: str) -> bool:
        """Return whether no output of iptables-save would say so, as none has the errors of the program."""
        return not any(part.has_errors for part in self.of(commands.IPTABLES, family=family) if part.is_save)

    def has_no_legacy_tables(self, family: str) -> bool:
        """Return whether the kernel says that iptables-legacy has no tables: none is named, there is no such file, or the module
        of none is loaded where nf_tables is a module.
        """
        modules = self._modules()
        if NFT_MODULE in modules and not any(name.startswith(f"{FAMILIES[family]}table_") for name in modules):
            return True
        parts = [part for part in self.of(commands.LEGACY_TABLES, family=family) if part.is_whole]
        return bool(parts) and not any(line.strip() in BUILT_IN for part in parts for line in part.lines)

    def has_no_nft(self) -> bool:
        """Return whether the kernel has no rules of nft: its module is not loaded, and those of iptables are modules."""
        modules = self._modules()
        return "ip_tables" in modules and NFT_MODULE not in modules

    def _modules(self) -> set[str]:
        parts = [part for part in self.of(commands.MODULES) if part.is_whole]
        return {line.split()[0] for part in parts for line in part.lines if line.strip()}

    def has_table(self, family: str, name: str) -> bool:
        """Return whether all routes of a table are shown, which may be none."""
        return any(part.is_whole for part in self._of_table(family, name))

    def has_part_of_table(self, family: str, name: str) -> bool:
        """Return whether an output may have some routes of a table."""
        return bool(self._of_table(family, name))

    def _of_table(self, family: str, name: str) -> list[Part]:
        """Return the outputs with routes of a table, among others."""
        names = (name, ALL_TABLES, *([""] if name == "main" else []))
        return [part for part in self.of(commands.ROUTE, commands.ROUTE_N, family=family) if part.table in names]

    def has_addresses(self, family: str) -> bool:
        """Return whether an output has the addresses of a family, or the table local, which has a route for each of them."""
        links = [part for part in self.of(commands.LINK, commands.IFCONFIG) if part.family in ("", family)]
        routes = self.with_table_local(family)
        shown = (part for part in links if part.shows_addresses)
        return any(part.is_whole for part in (*shown, *(part for part in routes if local_addresses(part))))

    def with_table_local(self, family: str) -> list[Part]:
        """Return the outputs with routes of the table local, among others."""
        return [part for part in self.of(commands.ROUTE, family=family) if part.table in (ALL_TABLES, *LOCAL)]

    def has_all_settings(self) -> bool:
        """Return whether the settings of all links are shown, as ``sysctl -a`` prints them."""
        return any(part.is_whole and not part.table for part in self.of(commands.SYSCTL))

    def lacks_table_of_nft(self, family: str, name: str) -> bool:
        """Return whether the ruleset of nft shows that iptables has no such table.

        The rules of one that is there are translated by the extensions of iptables, which leave out masks of marks, for example.
        """
        head = f"table {family} {name} {{"
        parts = self.of(commands.NFT, commands.NFT_JSON)
        return self.is_whole(commands.NFT, commands.NFT_JSON) and not any(
            head in line or f'"name": "{name}"' in line for part in parts for line in part.lines
        )


def families_of(part: Part) -> tuple[str, ...]:
    """Return the families that an output has: of all tables, ip prints both."""
    return (part.family,) if part.family else (*FAMILIES,) if part.table == ALL_TABLES else ("ipv4",)


def of_pastes(
    shown: Shown,
    subsets: Entry,
    tables: Tables,
    listed: t.Sequence[Table],
    names: TableNames,
    with_kernels: t.Container[str],
) -> list[OpenFact]:
    """Return the facts that the outputs leave open.

    subsets: of the snapshot. listed: the tables of nft. with_kernels: families to whose rules those of the kernel were added.
    """
    facts = list[OpenFact]()
    for family in FAMILIES:
        # A warning of iptables-save shows that there is a half, and so that it is not all.
        is_half_shown = shown.has_legacy_tables(family)
        of_tables = _of_tables(shown, subsets, tables, family)
        facts += (OpenFact(fact, family, is_cut=is_half_shown and fact.fact == open_facts.LEGACY) for fact in of_tables)
        facts += _of_routing(shown, subsets, names, family, family in with_kernels)
        if not any(part.is_whole and part.family in ("", family) for part in shown.of(commands.NEIGHBOUR)):
            facts.append(OpenFact(open_facts.NEIGHBORS_OPEN, family))
        facts += (OpenFact(open_facts.setting(key), family) for key in _settings(shown, subsets, tables, family))
    return [*facts, *(OpenFact(fact) for fact in _of_node(shown, subsets)), *_of_nft(shown, listed)]


def _settings(shown: Shown, subsets: Entry, tables: Tables, family: str) -> t.Iterator[str]:
    """Yield the names of settings that may decide and that no output has. The twin leaves out those that are known."""
    if family == "ipv4":
        if any(rule.get("fwmark") for rule in subsets.get("rules") or ()):
            yield "net.ipv4.conf.all.src_valid_mark"
        if any(" --to-destination 127." in rule for table in tables.values() for _chain, rule in table.rules):
            yield "net.ipv4.conf.all.route_localnet"
    if any(link["kind"] == "bridge" for link in subsets.get("links") or ()):
        yield f"net.bridge.bridge-nf-call-{FAMILIES[family]}tables"


def _of_tables(shown: Shown, subsets: Entry, tables: Tables, long_family: str) -> t.Iterator[Fact]:
    """Yield the open facts about the rules of iptables."""
    family = FAMILIES[long_family]
    of_family = [entry for entry in subsets["iptables"] or () if entry["family"] == family]
    for entry in of_family:
        if entry["backend"] == NFT:
            yield from (open_facts.chain(family, entry["table"], name) for name in entry["lacking"])
    has_half = any(entry["backend"] == LEGACY for entry in of_family)
    if has_half and not shown.has_all_tables(long_family, is_legacy=True):
        yield open_facts.legacy(family)
    if shown.has_all_tables(long_family):
        is_half_known = has_half or shown.has_all_tables(long_family, is_legacy=True) or shown.has_no_legacy_tables(long_family)
        if (shown.has_legacy_tables(long_family) or shown.may_hide_legacy_tables(long_family)) and not is_half_known:
            yield open_facts.legacy(family)
        return
    lacking = [name for name in BUILT_IN if (family, name) not in tables and name != "security"]  # which is for SELinux
    of_nft = [name for name in lacking if shown.lacks_table_of_nft(family, name)]
    yield from (open_facts.table(family, name) for name in lacking if name not in of_nft)
    is_of_legacy = shown.has_all_tables(long_family, is_legacy=True)
    if of_nft and not (has_half or is_of_legacy or shown.has_no_legacy_tables(long_family)):
        yield open_facts.legacy(family)  # whose tables nft does not print
    for name in BUILT_IN:
        table = tables.get((family, name))
        if table is None:
            continue
        yield from (open_facts.policy(family, name, chain) for chain in table.assumed_policies)
        if not table.is_complete:
            yield from (open_facts.jump(family, name, chain) for chain in unconnected(table, name))
        if not table.is_complete or (is_of_legacy and not shown.lacks_table_of_nft(family, name)):
            yield open_facts.cut(family, name)


def _of_routing(shown: Shown, subsets: Entry, names: TableNames, family: str, is_completed: bool) -> t.Iterator[OpenFact]:
    if not shown.has_addresses(family):
        yield OpenFact(open_facts.ADDRESSES_OPEN, family)
    elif not shown.with_table_local(family):
        yield OpenFact(open_facts.LOCAL_OPEN, family)
    rules = [rule for rule in subsets.get("rules") or () if rule["family"] == family]
    routes = [route for route in subsets.get("routes") or () if route["family"] == family]
    if is_completed or not shown.is_whole(commands.RULE, family=family):
        yield OpenFact(open_facts.RULES_OPEN, family, is_cut=bool(rules))
    has_routes = bool(shown.of(commands.ROUTE, commands.ROUTE_N, commands.ROUTE_GET, family=family))
    if not routes and not has_routes:
        yield OpenFact(open_facts.routes(), family)
    of_main = ["254"] if routes or has_routes else []
    filled = {str(route["table"]) for route in routes}
    named = dict.fromkeys(str(rule["table"]) for rule in rules if rule.get("table"))
    for number in dict.fromkeys([*of_main, *(each for each in named if of_main or each != "254")]):
        name = names.name(number)
        if number in ("253", "255") or shown.has_table(family, name):
            continue
        is_cut = number in filled or shown.has_part_of_table(family, name)
        if is_cut and number == "254":
            yield OpenFact(open_facts.routes(), family, is_cut=True)
        else:
            yield OpenFact(open_facts.routes(name), family, number, is_cut)


def _of_node(shown: Shown, subsets: Entry) -> t.Iterator[Fact]:
    links = subsets.get("links") or ()
    whole = [part for part in shown.of(commands.LINK, commands.IFCONFIG) if part.is_whole]
    is_shown = any(part.shows_ports for part in whole) or (shown.has_all_settings() and not _may_be_bridges(subsets))
    if any(map(shown.has_addresses, FAMILIES)) and not is_shown:
        bridges = [str(link["name"]) for link in links if link["kind"] == "bridge"]
        yield from map(open_facts.bridge_ports, bridges or [""])
    has_ruleset = shown.is_whole(commands.NFT, commands.NFT_JSON)  # with the tables of ebtables that no output of it shows
    if any(link["kind"] == "bridge" for link in links) and not shown.is_whole(commands.EBTABLES):
        known = {entry["table"] for entry in subsets["ebtables"] or ()}
        yield from (open_facts.cut("bridge", name) for name in BRIDGED if name in known)
        yield from (open_facts.table("bridge", name) for name in BRIDGED if not (name in known or has_ruleset))
    if not shown.is_whole(commands.IPVS) and any(link["name"].startswith("kube-ipvs") for link in links):
        yield open_facts.IPVS_OPEN


def _may_be_bridges(subsets: Entry) -> set[str]:
    """Return the links with settings that may be bridges: neither interfaces nor tunnels by their names, and no links of pods by
    their routes.
    """
    to_pods, to_networks = set[str](), set[str]()
    for route in subsets.get("routes") or ():
        to = str(route.get("to"))
        if str(route.get("table")) not in LOCAL and not to.startswith(ON_EACH_LINK):
            (to_pods if is_host(to) and not route.get("via") else to_networks).add(str(route.get("dev")))
    with_settings = {*((subsets.get("settings") or {}).get("ipv4") or ())} - {ALL, DEFAULT, LOOPBACK}
    others = to_pods - to_networks
    return {name for name in with_settings if not (has_interface_name(name) or kind_by_name(name) or name in others)}


def _of_nft(shown: Shown, listed: t.Sequence[Table]) -> t.Iterator[OpenFact]:
    """Yield the fact about rules of nftables. It has no values if the ruleset was listed and a rule of it was not understood."""
    if not (shown.is_whole(commands.NFT, commands.NFT_JSON) or shown.has_no_nft()):
        is_listed = any(part.has_all_lines for part in shown.of(commands.NFT, commands.NFT_JSON))
        yield OpenFact(open_facts.NFT_OPEN, is_cut=is_listed)
        for table in listed:
            facts = (open_facts.jump(table.family, table.name, name) for name in table.unreferenced())
            yield from (OpenFact(fact, table.families[0] if len(table.families) == 1 else "") for fact in facts)
