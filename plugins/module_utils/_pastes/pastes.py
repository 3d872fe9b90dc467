# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Pasted outputs as the snapshot of a node. What a paste does not contain is assumed, and a sentence says so."""

from __future__ import annotations

import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from .._ruleset import observed
from .._ruleset.ruleset import LEGACY
from .._snapshot import assumption, entries
from .._snapshot import open_facts as snapshot_facts
from .._snapshot import settings as effective_settings
from .._snapshot.assumption import Assumption, Concern
from .._snapshot.open_facts import OpenFact
from .._snapshot.snapshot import FORMAT, POD_ADDRESSES, SUBSETS, Unread
from .._snapshot.values import has_interface_name
from . import (
    bpf_text,
    commands,
    ip_json,
    ip_text,
    iptables_tables,
    iptables_text,
    netfilter_text,
    open_facts,
    output_names,
    pods,
    prose,
    traffic_text,
)
from .commands import Part
from .iptables_tables import Tables
from .node_files import NodeFiles
from .pods import PodOutputs

Entry = dict[str, t.Any]
SHOWN = 120  # characters of a line in a sentence
MOST = 3  # sentences of one kind
MOST_COMPARED = 2000  # lines of no command that are compared with outputs
LARGEST = 32 << 20  # characters of all texts
_BRIDGE = re.compile(r"(?:cbr|docker|cni|azure|virbr)\d+|br-\S+|br\d+")
_DUMMY = re.compile(r"dummy\d+|kube-ipvs\d+|nodelocaldns")
_ON_ANOTHER = ("vlan", "macvlan", "ipvlan")  # kinds whose name has the link below behind @
_POD = re.compile(r"(?:veth|cali|lxc|eni[\da-f]{8,}|vlan[\da-f]{8,}|azv|fsk|tap|gke|cilium_host|lxc_)\S*")
_MARTIANS = (  # in the kernel's log (net/ipv4/route.c), and an answer of ip route get
    re.compile(r"martian source \S+ from \S+, on dev ([\w.@-]{1,15})"),
    re.compile(r"\bget \S+ from \S+ iif ([\w.@-]{1,15})[^\n]*\n\s*RTNETLINK answers: Invalid cross-device link"),
)
FAMILIES = ("ipv4", "ipv6")
_CILIUM = re.compile(r"lxc[\da-f_]\S*|cilium_\S+")


class Pasted(t.NamedTuple):
    """snapshot: in the format of datapath_info; a subset that is in no paste is None. ``assumed`` has what the pastes lack.

    ignored: sentences about lines that were not understood.
    """

    snapshot: Entry
    ignored: list[str]

    @property
    def assumed(self) -> list[str]:
        """The sentences about what the pastes lack."""
        return [str(plain["sentence"]) for plain in self.snapshot["assumed"]]


def read(dump: t.Mapping[str, str], interface: str = "") -> Pasted:
    """The snapshot of texts by the command that printed them, or by the name of their file. Raises Invalid.

    interface: a link that the node must have, whether the texts name it or not.
    """
    if sum(len(str(text)) for text in dump.values()) > LARGEST:
        raise Invalid("dump", f"{len(dump)} texts", f"texts of at most {LARGEST} characters")
    return _Reader({name: _without_foreign_digits(text) for name, text in dump.items()}).pasted(interface)


def _without_foreign_digits(text: str) -> str:
    r"""Replace digits that no program prints: ``\d``, isdigit() and int() take those of every script for numbers."""
    return text if text.isascii() else re.sub("[^\x00-\x7f]", lambda match: "\ufffd" if match[0].isdigit() else match[0], text)


class _Reader:
    def __init__(self, dump: t.Mapping[str, str]) -> None:
        self.assumed: list[Assumption] = []
        self.ignored: list[str] = []
        self._counts: dict[str, int] = {}
        self._traffic = traffic_text.Traffic()
        self._bpf_parts: list[Part] = []  # read when the links are known
        self._prose: list[str] = []  # lines of prose, and of commands that are not known
        self._tables = ip_text.TableNames()
        self._subsets: dict[str, list[t.Any]] = {}
        self._settings: Entry | None = None
        self._filters: Tables = {}
        self._legacy_filters: Tables = {}  # which iptables-legacy printed
        self._bridge_filters: Tables = {}
        self._sets: dict[str, str] = {}
        self._whole = set[tuple[str, str, str]]()  # the keys of outputs that are not cut
        self._nexthops: dict[str, Entry] = {}
        self._outputs: dict[tuple[str, str, str], tuple[str, ...]] = {}  # the lines of a command, by subset, family and table
        self._answers: list[Entry] = []  # of ip route get
        self._ruleset_text: list[Part] = []
        self._ruleset: list[Entry] | None = None
        self._pods: dict[str, PodOutputs] = {}
        self._files = NodeFiles()
        self._local: dict[str, str] = {}  # addresses and their links, as table local has them
        self._lengths: dict[str, int] = {}  # of the prefixes of these addresses
        self._shown = open_facts.Shown()
        self._martians: list[str] = []  # links by which packets came in that reverse-path filtering drops
        self._boot_files = output_names.boot_files(dump)
        of_names: dict[str, list[Part]] = {}
        for name, text in dump.items():
            if output_names.boot_path(str(name)):
                continue
            self._martians += [link for pattern in _MARTIANS for link in pattern.findall(str(text))]
            of_names[str(name)] = commands.parts(output_names.output_name(str(name)).command, str(text))
        output_names.check_states(of_names)
        self.ignored += (_left_out(name) for name, of_name in of_names.items() if len(dump) > 1 and self._is_unused(of_name))
        parts = ip_json.preferred([part for of_name in of_names.values() for part in of_name], self._ignore)
        self._lines = [line for part in parts for line in part.lines]
        for part in self._of_one_namespace(parts):
            self._take(part)

    @staticmethod
    def _is_unused(parts: t.Sequence[Part]) -> bool:
        """Return whether a text has lines, and none of them is of an output or of traffic."""
        if any(part.kind or ip_json.is_json(part) for part in parts):
            return False
        lines = [line for part in parts for line in part.lines if line.strip()]
        is_martian = any(pattern.search("\n".join(lines)) for pattern in _MARTIANS)
        return bool(lines) and not is_martian and not any(map(traffic_text.Traffic().read, lines))

    def _of_one_namespace(self, parts: list[Part]) -> list[Part]:
        """The parts. If all are of one named namespace, as one that a router runs in, they are the node's."""
        names = sorted({part.namespace for part in parts if part.kind} - {""})
        if not names or any(part.kind and not part.is_pod for part in parts):
            return parts
        if len(names) > 1:
            raise Invalid("dump", f"outputs of the namespaces {', '.join(names)}", "outputs of one of them: leave out the others")
        self.assumed.append(Assumption(f"All outputs are of the network namespace {names[0]}, which is taken for the node."))
        return [part._replace(is_pod=False) for part in parts]

    def _ignore(self, reason: str, line: str) -> None:
        kind = re.sub(r"\(.*\)", "", reason)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if prose.is_prose(line):
            self._prose.append(line)
        elif self._counts[kind] <= MOST and line.strip():
            self.ignored.append(f"Not understood, because it {_printable(reason)}: {_printable(line.strip())}")

    def _take(self, part: Part) -> None:
        kind = part.kind
        if part.is_pod:
            is_known = kind in (commands.LINK, commands.IFCONFIG) or (part.namespace and kind in pods.KINDS)
            if is_known:
                # Outputs of pods without a name may be of several ones.
                key = part.namespace or str(len(self._pods))
                pod = self._pods.setdefault(key, PodOutputs(part.namespace or pods.POD, self._tables))
                pod.add(part, self._ignore)
            elif kind:
                sentence = f"A pod printed an output of {kind}. It is left out: only the links of pods are in the twin."
                self.assumed.append(Assumption(sentence))
            return
        readers: dict[str, t.Callable[[], None]] = {
            commands.RULE: lambda: self._last("rules", part, ip_text.rules(part, self._tables, self._ignore)),
            commands.ROUTE: lambda: self._last("routes", part, ip_text.routes(part, self._tables, self._ignore)),
            commands.ROUTE_GET: lambda: self._answers.extend(ip_text.routes(part, self._tables, self._ignore)),
            commands.ROUTE_N: lambda: self._last("routes", part._replace(table="main"), ip_text.old_routes(part, self._ignore)),
            commands.LINK: lambda: self._add_links(part),
            commands.IFCONFIG: lambda: self._add_links(part),
            commands.NEIGHBOUR: lambda: self._last("neighbors", part, ip_text.neighbours(part, self._ignore)),
            commands.IPTABLES: lambda: iptables_text.saved(part, self._tables_of(part), self._ignore),
            commands.IPTABLES_LIST: lambda: iptables_text.listed(part, self._tables_of(part), self.assumed, self._ignore),
            commands.EBTABLES: lambda: netfilter_text.ebtables(part, self._bridge_filters, self._ignore),
            commands.EBTABLES_LIST: lambda: netfilter_text.ebtables(part, self._bridge_filters, self._ignore),
            commands.IPSET: lambda: self._sets.update(netfilter_text.ipsets(part, self._ignore)),
            commands.NEXTHOP: lambda: self._nexthops.update(ip_text.nexthops(part, self._ignore)),
            commands.IPVS: lambda: self._last("ipvs", part, netfilter_text.virtual_servers(part, self._ignore)),
            commands.BPF: lambda: self._bpf_parts.append(part),
            commands.LEGACY_TABLES: lambda: netfilter_text.check_names(part, self._ignore),
            commands.MODULES: lambda: netfilter_text.check_names(part, self._ignore),
            commands.FILE: lambda: self._files.add(part),
            commands.UNITS: lambda: self._files.add(part),
            commands.NETWORKD: lambda: self._files.add(part),
            commands.SOCKETS: lambda: self._files.add(part),
            commands.IPAMD: lambda: self._last(POD_ADDRESSES, part, pods.ipamd_addresses(part, self._ignore)),
            commands.SYSCTL: lambda: self._add_settings(netfilter_text.settings(part, self._ignore)),
        }
        if kind in (commands.NFT, commands.NFT_JSON):  # read when the tables of iptables are known
            self._ruleset_text.append(part)
            return
        if kind not in readers:
            for line in filter(str.strip, part.lines):
                if self._traffic.read(line):
                    continue
                is_compared = len(self._prose) < MOST_COMPARED and not prose.is_prose(line)
                if not is_compared or prose.of(line).signs < prose.LEAST:
                    self._prose.append(line)
                else:
                    self._ignore("belongs to no command that is known", line)
            return
        before = sum(self._counts.values())
        readers[kind]()
        self._show(part, before)
        if kind == commands.ROUTE:
            self._local.update(ip_text.local_addresses(part))
            self._lengths.update(ip_text.local_lengths(part))

    def _show(self, part: Part, before: int) -> None:
        """Note which output was read, and whether each of its lines was understood.

        before: the number of lines that were not understood before this output.
        """
        is_understood = sum(self._counts.values()) == before
        self._shown.add(part._replace(is_understood=is_understood))
        if part.kind in (commands.IPTABLES, commands.IPTABLES_LIST) and not is_understood:
            for (family, _name), table in self._tables_of(part).items():
                table.is_complete &= family != iptables_text.FAMILIES[part.family]

    def _tables_of(self, part: Part) -> Tables:
        return self._legacy_filters if part.is_legacy else self._filters

    def _legacy_half(self) -> Tables:
        """Return the tables of iptables-legacy with rules or with a policy, if there are those of iptables-nft, too."""
        if not self._filters:
            self._filters, self._legacy_filters = self._legacy_filters, {}
        legacy = self._legacy_filters.items()
        return {place: table for place, table in legacy if table.rules or "DROP" in table.policies.values()}

    def _last(self, subset: str, part: Part, read: list[t.Any]) -> None:
        """Adds the entries. The output of the same command replaces an earlier one, unless it alone is cut."""
        # Of rules and routes, ip prints those of IPv4 if the command names no family.
        is_routing = part.kind in (commands.RULE, commands.ROUTE, commands.ROUTE_N)
        key = subset, "".join(open_facts.families_of(part)) if is_routing else part.family, part.table
        kept = self._subsets.setdefault(subset, [])
        outputs = f"several outputs for {part.kind} {part.table}".rstrip()
        if key in self._whole and not part.has_all_lines:
            self.assumed.append(Assumption(f"There are {outputs}. The whole one is taken."))
            return
        if key in self._outputs and read and self._outputs[key] != part.lines:
            self.assumed.append(Assumption(f"There are {outputs}. The last one is taken."))
            kept[:] = [entry for entry in kept if entry.get("_place") != key]
        elif key in self._outputs:
            return
        if read or not any(map(str.strip, part.lines)):  # otherwise the lines were no output
            self._outputs[key] = part.lines
            self._whole.update([key] if part.has_all_lines else [])
        for entry in read:
            entry["_place"] = key
        kept += [entry for entry in read if entry not in kept]

    def _add_links(self, part: Part) -> None:
        ip_text.merge_links(self._subsets.setdefault("links", []), ip_text.links(part, self._ignore))

    def _none_of(self, kind: str) -> list[t.Any] | None:
        """Return an empty subset if a whole output shows that the node has nothing of it; otherwise None."""
        return [] if self._shown.is_whole(kind) else None

    def _connections(self) -> Entry:
        """Return how many connections the kernel tracks and may track, which are among its settings; empty if it does not say."""
        of_node = (self._settings or {}).get("node") or {}
        counts = {name: of_node.get(f"net.netfilter.nf_conntrack_{name}") for name in ("count", "max")}
        return {} if None in counts.values() else counts

    def _add_settings(self, added: Entry) -> None:
        self._settings = self._settings or {"node": {}, "ipv4": {}, "ipv6": {}}
        self._settings["node"].update(added["node"])
        for family in FAMILIES:
            for link, values in added[family].items():
                self._settings[family].setdefault(link, {}).update(values)

    def _add_kernels_rules(self) -> set[str]:
        """Adds the kernel's own rules, where outputs have others only: few nodes are without them. Returns their families."""
        families = set[str]()
        for family in sorted({rule["family"] for rule in self._subsets.get("rules") or ()}):
            rules = self._subsets["rules"]
            # The first rule of the kernel may have a later place, as Cilium and VPNs give it.
            if not any(rule["family"] == family and str(rule.get("table")) in ("255", "local") for rule in rules):
                sentence = f"The output of the {family} rules lacks the first one. The kernel's own are assumed."
                self.assumed.append(assumption.about(sentence, assumption.FAMILY, family))
                self._subsets["rules"] = list(entries.with_kernels_rules(rules, family))
                families.add(family)
        return families

    def _tell_tables(self) -> None:
        """Sentences about routing tables whose rules or routes no output has."""
        rules, routes = self._subsets.get("rules"), self._subsets.get("routes")
        filled = {str(route["table"]) for route in routes or ()}
        known = {"253", "254", "255"}
        if not rules and filled - known:
            names = ", ".join(map(self._tables.name, sorted(filled - known)))
            sentence = f"No output has the rules. They are assumed to be the kernel's own, which do not lead to table {names}."
            families = {str(route["family"]) for route in routes or () if str(route["table"]) not in known}
            self.assumed.append(assumption.about(sentence, assumption.FAMILY, *families))
        for table in dict.fromkeys(str(rule["table"]) for rule in rules or () if rule.get("table")):
            if routes and table not in filled | known:
                sentence = f"No output has the routes of table {self._tables.name(table)}. It is assumed to be empty."
                self.assumed.append(assumption.about(sentence, assumption.ROUTES, self._tables.name(table)))

    def _add_martians(self) -> None:
        """Adds strict filtering on links for which the kernel's log or an answer shows it, and no output has the setting."""
        settings = (self._settings or {"ipv4": {}})["ipv4"]
        for link in dict.fromkeys(self._martians):
            if not any("rp_filter" in settings.get(name, {}) for name in ("all", link)):
                self._add_settings({"node": {}, "ipv4": {link: {"rp_filter": 1}}, "ipv6": {}})
                sentence = (
                    f"net.ipv4.conf.{link}.rp_filter is not in the paste. It is assumed to be 1, because the kernel drops packets"
                    " that come in there as martian."
                )
                self.assumed.append(assumption.about(sentence, assumption.LINK, link))

    def pasted(self, interface: str) -> Pasted:
        self._boot_files.update(self._files.boot_files())
        legacy = self._legacy_half()
        for tables in (self._filters, legacy):
            iptables_tables.settle(tables, self.assumed)
        without = {*self._filters, *(("bridge", name) for _family, name in self._bridge_filters)}
        ruleset_text = ""
        for part in self._ruleset_text:
            before = sum(self._counts.values())
            self._ruleset = self._ruleset or []
            if part.kind == commands.NFT:
                ruleset_text += netfilter_text.nft_text(part, without, self.assumed, self._ignore)
            else:
                self._ruleset += netfilter_text.nft_json(part, without, self._ignore)
            self._show(part, before)
        iptables = iptables_tables.entries(self._filters, self.assumed, self._ignore)
        iptables += iptables_tables.entries(legacy, self.assumed, self._ignore, LEGACY)
        lacking = iptables_tables.lacking_sets({**legacy, **self._filters}, self._sets, self.assumed)
        for of_subset in self._subsets.values():
            for entry in of_subset:
                entry.pop("_place", None)
        if self._subsets.get("routes"):
            self._subsets["routes"] = [*ip_text.with_next_hops(self._subsets["routes"], self._nexthops, self._ignore)]
        self._add_martians()
        with_kernels = self._add_kernels_rules()
        if self._answers and not self._subsets.get("routes"):
            self._subsets["routes"] = self._answers
            self.assumed.append(Assumption("No output has the routes. What ip route get answered is assumed to be all of them."))
        self._tell_tables()
        subsets: Entry = {
            **self._subsets,
            "settings": self._settings,
            "iptables": iptables or self._none_of(commands.IPTABLES),
            "ipsets": [*({"name": name, "save": text} for name, text in self._sets.items()), *lacking]
            or self._none_of(commands.IPSET),
            "ebtables": netfilter_text.ebtables_entries(self._bridge_filters) or self._none_of(commands.EBTABLES),
            "nftables": self._ruleset,
        }
        if not ruleset_text and not any(value for value in subsets.values()) and not self._pods:
            raise self._nothing_understood()
        links = _Links(subsets.get("links"), self.assumed)
        # A link that a whole output of links lacks is a slip of the operator, which the module names.
        is_listed = self._shown.is_whole(commands.LINK)
        links.complete(subsets, self._filters, self._bridge_filters, "" if is_listed else interface)
        for pod in self._pods.values():
            links.add_pod(pod, subsets.get("routes") or ())
        subsets["pods"] = [routing for pod in self._pods.values() if (routing := pod.routing())] or None
        links.add_addresses(subsets.get("routes") or (), self._local, self._lengths, subsets.get("ipvs") or ())
        links.add_mtus((self._settings or {}).get("ipv6") or {})
        links.add_routed_pods(subsets.get("routes") or ())
        subsets["links"] = links.links
        subsets["pod_neighbors"], lacking_neighbours = links.pod_neighbours()
        attached = [str(link["name"]) for link in links.links if link.pop("xdp", False)]
        subsets["boot"] = output_names.boot_subset(self._boot_files, self._files.folders())
        subsets.update(self._files.subsets(self._connections()))
        programs = [{"link": name, "hook": "XDP", "direction": "ingress", "name": "XDP"} for name in attached]
        names = [str(link["name"]) for link in links.links]
        programs += (each for part in self._bpf_parts for each in bpf_text.programs(part, names))
        has_all = any(part.is_whole and not part.table for part in self._shown.of(commands.BPF))  # as bpftool prints them
        subsets["bpf"] = programs if programs or has_all else None
        subsets["filters"] = [each for part in self._bpf_parts for each in bpf_text.filters(part, names)] or None
        if self._settings:
            subsets["settings"] = {
                "node": self._settings["node"],
                **{name: of_family for name in FAMILIES if (of_family := self._settings[name])},
            }
            subsets["settings"]["effective"] = {
                family: effective_settings.effective(
                    family, {"all": {}, "default": {}, **{name: of_family.get(name, {}) for name in names}, **of_family}
                )
                for family, of_family in ((family, self._settings[family]) for family in FAMILIES)
            }
        listed = observed.of_nft({"nftables": self._ruleset, "nftables_text": ruleset_text})
        facts = open_facts.of_pastes(self._shown, subsets, self._filters, listed, self._tables, with_kernels)
        empty_sets = [str(empty["name"]) for empty in lacking]
        of_sets = (part for part in self._shown.of(commands.IPSET) if part.is_whole)
        whole = [part for part in of_sets if netfilter_text.has_all_members(part)]
        shown = {name for part in whole for name in netfilter_text.ipsets(part, lambda _reason, _line: None)}
        empty_sets += (name for name in self._sets if name not in shown)
        facts += [OpenFact(snapshot_facts.elements(name)) for name in empty_sets]
        snapshot: Entry = {
            "format": FORMAT,
            **{subset: subsets.get(subset) for subset in SUBSETS},
            "unread": [
                *_unread(links.links),
                *(lacking_neighbours if subsets["pod_neighbors"] else ()),
                *output_names.unread_of_boot(self._boot_files, self._files.folders()),
            ],
        }
        evidence = [*traffic_text.of_tables(self._filters), *traffic_text.of_rulesets(self._ruleset_text)]
        evidence += self._traffic.evidence()
        snapshot["evidence"] = [entry.plain() for entry in evidence]
        snapshot.update(
            {"open": [fact.plain() for fact in facts], "assumed": [each.plain() for each in dict.fromkeys(self.assumed)]}
        )
        return Pasted(
            {**snapshot, **({"nftables_text": ruleset_text} if ruleset_text else {})}, [*self.ignored, *self._prose_count()]
        )

    def _prose_count(self) -> t.Iterator[str]:
        """Yield a sentence about the lines of prose, if there are any."""
        count = len(self._prose)
        if count:
            lines = "1 line is" if count == 1 else f"{count} lines are"
            yield f"{lines} prose, or the output of another command, and left out."

    def _nothing_understood(self) -> Invalid:
        """Return the error that names the lines that came nearest to an output."""
        lines = list(filter(None, map(str.strip, self._lines)))[:MOST_COMPARED]
        near = {line: prose.of(line) for line in lines}
        nearest = sorted((line for line in near if near[line].signs), key=lambda line: -near[line].signs)[:MOST]
        named = "; ".join(f"{_printable(line)} ({near[line].command})" for line in nearest)
        allowed = "outputs of ip, iptables-save and such tools, each whole and with its command"
        if named:
            allowed = f"{allowed}. The lines that came nearest, each with the command that it may be of: {named}"
        return Invalid("dump", "texts in which no command's output was recognised", allowed)


def _left_out(name: str) -> str:
    return f"{_printable(name)} has no output that is read. It is left out."


def _printable(text: str) -> str:
    """The beginning of a text, without characters that a terminal would execute."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:SHOWN])


class _Links:
    """The links of the pastes, and those that only other outputs name."""

    def __init__(self, links: list[Entry] | None, assumed: list[Assumption]) -> None:
        self._were_shown = bool(links)
        self.links = links or []
        self._assumed = assumed
        self._by_name = {str(link["name"]): link for link in self.links}
        self._with_pods: set[str] = set()  # links whose other ends an output of a pod shows
        self._neighbours: dict[str, list[Entry] | None] = {}  # the permanent ones of these pods, by the node's ends
        self._ends = {str(link["index"]): link for link in self.links if link["index"]}
        namespaces = [link.get("namespace") for link in self.links]
        for link in self.links:
            self._classify(link)
            namespace, lower = link.pop("namespace", ""), link.pop("lower", "")
            if link["kind"] == "veth" and namespace and namespaces.count(namespace) > 1:
                link["peer"] = {"namespace": namespace, "name": lower, "mac": "", "addresses": []}

    def _classify(self, link: Entry) -> None:
        lower, is_away = str(link.get("lower") or ""), "namespace" in link
        name = str(link["name"])
        if not link["kind"] and name != "lo":
            if {"MASTER", "NOARP"} <= {*link["flags"]}:
                link["kind"] = "vrf"
            elif _BRIDGE.fullmatch(name):
                link["kind"] = "bridge"
            elif _DUMMY.fullmatch(name):
                link["kind"] = "dummy"
            elif is_away or re.fullmatch(r"if\d+", lower) or _POD.fullmatch(name):
                link["kind"] = "veth"
            elif lower and lower != "NONE":
                link["kind"] = "vlan" if "." in name else "macvlan"
        if link["kind"] in _ON_ANOTHER and lower != "NONE" and not re.fullmatch(r"if\d+", lower):
            link["parent"] = link["parent"] or lower

    def complete(self, subsets: Entry, filters: Tables, bridge_filters: Tables, interface: str) -> None:
        """Adds links that only other outputs name, and ports of a bridge that only ebtables shows."""
        named = [link.get("dev") for subset in ("routes", "neighbors") for link in subsets.get(subset) or ()]
        named += [hop.get("dev") for link in subsets.get("routes") or () for hop in link.get("nexthops") or ()]
        named += [link.get(key) for link in subsets.get("rules") or () for key in ("iif", "oif")]
        ports = _matched(bridge_filters)
        if not self._were_shown:
            named += [*_matched(filters), *ports]
        for name in dict.fromkeys(filter(None, [*named, interface])):
            self._make(str(name))
        bridges = [link["name"] for link in self.links if link["kind"] == "bridge"]
        for name in ports:
            link = self._by_name.get(name)
            if link and bridges and not link["master"] and link["kind"] != "bridge":
                link["master"] = bridges[0]
                sentence = f"{name} is assumed to be a port of {bridges[0]}, because rules of ebtables name it."
                self._assumed.append(assumption.about(sentence, assumption.LINK, name, bridges[0]))

        for link in [bridge for bridge in self.links if bridge["kind"] == "bridge"]:
            has_ports = any(port["master"] == link["name"] for port in self.links)
            if not has_ports and "NO-CARRIER" not in link["flags"]:
                port = ip_text.blank_link(f"veth-{link['name'][:10]}")
                self.links.append({**port, "kind": "veth", "master": link["name"], "settings": {"hairpin": 1}})
                sentence = f"The ports of {link['name']} are not in the paste. One is assumed, behind which all pods are."
                self._assumed.append(assumption.about(sentence, assumption.LINK, str(link["name"])))

    def _make(self, name: str) -> None:
        if name in self._by_name:
            return
        try:
            link = ip_text.blank_link(name)
        except Unfit:
            return
        self._classify(link)
        if name != "lo" and self._were_shown:
            sentence = f"{name} is not among the links of the paste. It is assumed to be up."
            self._assumed.append(assumption.about(sentence, assumption.LINK, name))
        self.links.append(link)
        self._by_name[name] = link

    def add_pod(self, pod: PodOutputs, routes: t.Iterable[Entry]) -> None:
        """Gives the addresses of a pod to the other end of the node's link to it."""
        for link in pod.links:
            number = str(link.get("lower") or "")[2:]  # after "if"
            addresses = [address["address"].partition("/")[0] for address in link["addresses"]]
            near = self._ends.get(number)
            if near is None:
                near = next((self._by_name.get(str(route.get("dev"))) for route in routes if route.get("to") in addresses), None)
            if near is not None and link["name"] != "lo":
                near["kind"] = near["kind"] or "veth"
                self._with_pods.add(near["name"])
                near["peer"] = {"namespace": pod.namespace, "name": link["name"], "mac": link["mac"], "addresses": addresses}
                self._neighbours[near["name"]] = pod.permanent(link["name"])

    def add_mtus(self, settings: t.Mapping[str, Entry]) -> None:
        """Add the MTUs of links that only sysctl shows. That of IPv6 is the link's, unless a router advertised a smaller one.

        settings: of IPv6, by link.
        """
        effective = effective_settings.effective("ipv6", {effective_settings.ALL: {}, **settings})
        for name, values in effective.items():
            size, link = settings[name].get("mtu"), self._by_name.get(name)
            if link and size and not link["mtu"] and "accept_ra" in settings[name] and not values["accept_ra"]:
                link["mtu"] = size

    def pod_neighbours(self) -> tuple[list[Entry] | None, list[Entry]]:
        """Return the permanent neighbours of pods, None if no output has any pod's, and the links of pods without an output."""
        known = {name: listed for name, listed in self._neighbours.items() if listed is not None}
        pods = (link["name"] for link in self.links if link["kind"] == "veth" and not has_interface_name(str(link["name"])))
        lacking = [name for name in pods if name not in known]
        listed = [{"link": name, **entry} for name, of_link in known.items() for entry in of_link]
        reason = "No output has the neighbours of the pod there."
        return (listed if known else None), [Unread("pod_neighbors", name, reason)._asdict() for name in lacking]

    def _own_addresses(self) -> set[str]:
        return {str(address["address"]).partition("/")[0] for link in self.links for address in link["addresses"]}

    def add_routed_pods(self, routes: t.Collection[Entry]) -> None:
        """A host route to a pod's link tells the address of the pod, unless the node itself has it.

        The uplink of a node that is a container is a veth, too.
        """
        uplinks = {route.get("dev") for route in routes if route.get("to") == "default" and route.get("via")}
        of_node = {str(route.get("src")) for route in routes}
        of_node |= self._own_addresses()
        for route in routes:
            link = self._by_name.get(str(route.get("dev")))
            to = str(route.get("to"))
            is_host = not route.get("via") and "/" not in to and to != "default" and to not in of_node
            if link and link["kind"] == "veth" and is_host and link["name"] not in uplinks:
                peer = link["peer"] or {"namespace": "", "name": "eth0", "mac": "", "addresses": []}
                if link["name"] not in self._with_pods and to not in peer["addresses"]:
                    peer["addresses"].append(to)
                link["peer"] = peer

    def add_addresses(
        self,
        routes: t.Collection[Entry],
        local: t.Mapping[str, str],
        lengths: t.Mapping[str, int],
        servers: t.Iterable[Entry],
    ) -> None:
        """Adds addresses that other outputs contain: sources of routes, the table local, and the virtual servers of IPVS.

        lengths: of the prefixes of addresses of table local.
        """
        for name in local.values():
            self._make(name)
        known = self._own_addresses()
        for is_network, route in sorted(((_is_network(route), route) for route in routes), key=lambda pair: not pair[0]):
            link, source = self._by_name.get(str(route.get("dev"))), str(route.get("src") or "")
            if link and source and source not in known:
                length = str(route["to"]).partition("/")[2] if is_network else lengths.get(source, _length(source))
                link["addresses"].append(_address(f"{source}/{length}"))
                known.add(source)
                if not is_network and source not in local:
                    sentence = f"{source} is on no link of the paste. It is assumed to be on {link['name']}."
                    concerns = {Concern(assumption.ADDRESS, source), Concern(assumption.LINK, str(link["name"]))}
                    self._assumed.append(Assumption(sentence, frozenset(concerns)))
        for address, name in local.items():
            if address not in known and name in self._by_name:
                self._by_name[name]["addresses"].append(_address(f"{address}/{lengths.get(address, _length(address))}"))
                known.add(address)
        for address in dict.fromkeys(str(server["address"]) for server in servers if server.get("address")):
            if address not in known:
                self._make("kube-ipvs0")
                self._by_name["kube-ipvs0"]["addresses"].append(_address(f"{address}/{_length(address)}"))
                sentence = f"{address}, of a virtual server, is on no link of the paste. It is assumed to be on kube-ipvs0."
                self._assumed.append(assumption.about(sentence, assumption.ADDRESS, address))


def _unread(links: t.Iterable[Entry]) -> list[Entry]:
    names = ", ".join(str(link["name"]) for link in links if _CILIUM.fullmatch(str(link["name"])))
    reason = "Cilium has BPF programs on these links. Pastes do not show the programs, whose verdict may differ from the twin's."
    return [{"subset": "bpf", "object": names, "reason": reason}] if names else []


def _is_network(route: Entry) -> bool:
    """Whether the kernel added the route to the network of a link's address."""
    return route.get("protocol") == "kernel" and "/" in str(route.get("to"))


def _length(address: str) -> int:
    return 128 if ":" in address else 32


def _address(text: str) -> Entry:
    return {"address": text, "peer": "", "scope": "global", "flags": [INFERRED]}


INFERRED = "inferred"  # of an address from outputs that show neither its flags nor its place among those of the link
_INTERFACE = re.compile(r"(?:^| )(?:-i|-o|--in-interface|--out-interface) (\S+)")


def _matched(tables: Tables) -> list[str]:
    """The interfaces that rules name, without patterns."""
    names = [name for table in tables.values() for _chain, rule in table.rules for name in _INTERFACE.findall(rule)]
    names_of_links = []
    for name in dict.fromkeys(names):
        try:
            if not name.endswith("+"):
                names_of_links.append(fields.link(name))
        except Unfit:
            continue
    return names_of_links
