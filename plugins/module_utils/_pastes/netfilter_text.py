# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What iptables-save, ebtables-save, ipset, nft, ipvsadm and sysctl print, as entries of a snapshot."""

from __future__ import annotations

import json
import re
import shlex
import typing as t

from .._core import fields
from .._core.fields import Unfit
from .._snapshot.settings import put
from . import iptables_list
from .commands import Part

Ignore = t.Callable[[str, str], None]
FAMILIES = {"ipv4": "ip", "ipv6": "ip6", "": "ip"}
BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "raw": ("PREROUTING", "OUTPUT"),
    "security": ("INPUT", "FORWARD", "OUTPUT"),
}
TARGETS = (
    "ACCEPT", "DROP", "RETURN", "QUEUE", "REJECT", "DNAT", "SNAT", "MASQUERADE", "MARK", "CONNMARK", "LOG", "NFLOG", "NFQUEUE",
    "TPROXY", "TRACE", "NOTRACK", "CT", "REDIRECT", "NETMAP", "SET", "TCPMSS", "CLASSIFY", "DSCP", "TOS", "TTL", "HL", "CHECKSUM",
    "AUDIT", "TEE", "IDLETIMER", "RATEEST", "SECMARK", "CONNSECMARK", "SYNPROXY", "HMARK", "ULOG",
)  # fmt: skip
# What kube-proxy and kubelet write into the chains that a paste often lacks (pkg/proxy/iptables/proxier.go, pkg/util/iptables).
HELPERS = {
    "KUBE-MARK-MASQ": "-j MARK --set-xmark 0x4000/0x4000",
    "KUBE-MARK-DROP": "-j MARK --set-xmark 0x8000/0x8000",
}
MASQUERADING = (
    "-m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-j MARK --set-xmark 0x4000/0x0",
    "-j MASQUERADE",
)  # of kube-proxy's KUBE-POSTROUTING
# Where programs jump to their chains, by table and chain: the chain and the rule in it. \g<0> is the chain, \1 part of its name.
ENTRIES = tuple(
    (table, re.compile(chain), entries)
    for table, chain, entries in (
        ("nat", r"KUBE-SERVICES", (("PREROUTING", r"-j \g<0>"), ("OUTPUT", r"-j \g<0>"))),
        ("nat", r"KUBE-NODEPORTS", (("KUBE-SERVICES", r"-m addrtype --dst-type LOCAL -j \g<0>"),)),
        ("nat", r"IP-MASQ-AGENT|IP-MASQ", (("POSTROUTING", r"-m addrtype ! --dst-type LOCAL -j \g<0>"),)),
        ("nat", r"AWS-SNAT-CHAIN-0|SWIFT|FLANNEL-POSTRTG|CNI-HOSTPORT-MASQ|CILIUM_POST_nat", (("POSTROUTING", r"-j \g<0>"),)),
        ("nat", r"CNI-HOSTPORT-DNAT|DOCKER", (
            ("PREROUTING", r"-m addrtype --dst-type LOCAL -j \g<0>"), ("OUTPUT", r"-m addrtype --dst-type LOCAL -j \g<0>"),
        )),
        ("filter", r"KUBE-FIREWALL", (("INPUT", r"-j \g<0>"), ("OUTPUT", r"-j \g<0>"))),
        ("filter", r"KUBE-EXTERNAL-SERVICES", (
            ("INPUT", r"-m conntrack --ctstate NEW -j \g<0>"), ("FORWARD", r"-m conntrack --ctstate NEW -j \g<0>"),
        )),
        ("filter", r"KUBE-SERVICES", (
            ("FORWARD", r"-m conntrack --ctstate NEW -j \g<0>"), ("OUTPUT", r"-m conntrack --ctstate NEW -j \g<0>"),
        )),
        ("filter", r"AZURE-NPM|FLANNEL-FWD|DOCKER-USER|DOCKER-ISOLATION-STAGE-1", (("FORWARD", r"-j \g<0>"),)),
        ("filter", r"WEAVE-NPC", (("FORWARD", r"-o weave -j \g<0>"),)),
        ("filter", r"cali-tw-(.+)", (("FORWARD", r"-o \1 -j \g<0>"), ("OUTPUT", r"-o \1 -j \g<0>"))),
        ("filter", r"cali-fw-(.+)", (("FORWARD", r"-i \1 -j \g<0>"), ("INPUT", r"-i \1 -j \g<0>"))),
    )
)  # fmt: skip
SET_TYPES = {1: "hash:ip", 2: "hash:ip,port", 3: "hash:ip,port,ip"}


class Table:
    """A table of iptables or ebtables: policies by chain, and rules in order."""

    def __init__(self) -> None:
        self.policies: dict[str, str] = {}
        self._rules: dict[tuple[str, str], None] = {}
        self.is_whole = False  # whether a paste has its header, as a grep has not

    @property
    def rules(self) -> t.Collection[tuple[str, str]]:
        """Chain and rule, in order."""
        return self._rules

    def add(self, chain: str, rule: str) -> None:
        """Adds a rule, unless it is there: pastes of the same table overlap."""
        self._rules.setdefault((chain, rule))


_HEADER = re.compile(r"\*(\w+)")
_CHAIN = re.compile(r":(\S+) (\S+)(?: \[\d+:\d+\])?")
_RULE = re.compile(r"(?:\[\d+:\d+\] )?-A (\S+) ?(.*)")
_POLICY = re.compile(r"-([PN]) (\S+)(?: (\S+))?(?: .*)?")
_NAT_ONLY = re.compile(r"-j (?:DNAT|SNAT|MASQUERADE|REDIRECT|NETMAP|KUBE-(?:SVC|SEP|MARK|SERVICES|NODEPORTS|EXT|XLB|FW)\S*)\b")


def iptables(part: Part, tables: dict[tuple[str, str], Table], assumed: list[str], ignore: Ignore) -> None:
    """Adds the part's rules to ``tables``, by family and name."""
    family, name = FAMILIES[part.family], part.table
    for line in part.lines:
        text = line.strip()
        header, chain, rule, policy = (one.fullmatch(text) for one in (_HEADER, _CHAIN, _RULE, _POLICY))
        if header:
            name = header[1]
            tables.setdefault((family, name), Table()).is_whole = True
        elif text in ("", "COMMIT") or text.startswith("#"):
            continue
        elif rule:
            own = name or _guessed(rule[1], rule[2], assumed)
            if _is_whole(rule[2]):
                tables.setdefault((family, own), Table()).add(rule[1], rule[2])
            else:
                ignore("is cut in the middle", line)
        elif chain:
            if name or chain[2] != "-":  # a grep shows chains without their table: their rules tell more
                own = name or _guessed(chain[1], "", assumed)
                tables.setdefault((family, own), Table()).policies[chain[1]] = chain[2]
        elif policy:
            own = name or _guessed(policy[2], "", assumed)
            tables.setdefault((family, own), Table()).policies[policy[2]] = policy[3] if policy[1] == "P" else "-"
        else:
            ignore("is no rule of iptables", line)


def _is_whole(rule: str) -> bool:
    """False if the rule ends in the middle. Long options are not looked at: iptables refuses one that lacks its value."""
    try:
        words = shlex.split(rule)
    except ValueError:
        return False
    return not words or words[-1] not in ("-j", "-g", "-m", "-s", "-d", "-p", "-i", "-o", "!") and not words[-1].endswith("...")


def _guessed(chain: str, rule: str, assumed: list[str]) -> str:
    is_nat = (
        chain in ("PREROUTING", "POSTROUTING")
        or _NAT_ONLY.search(rule)
        or chain.startswith(("KUBE-SVC", "KUBE-SEP", "KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-MARK"))
    )
    name = "nat" if is_nat else "filter"
    sentence = f"The table of chain {chain} is not in the paste. It is assumed to be {name}."
    if sentence not in assumed:
        assumed.append(sentence)
    return name


def iptables_entries(tables: t.Mapping[tuple[str, str], Table], assumed: list[str], ignore: Ignore) -> list[dict[str, t.Any]]:
    """The tables as texts that iptables-restore takes. Chains that the paste lacks are added, and are empty if ``lacking``."""
    found: list[dict[str, t.Any]] = []
    for (family, name), table in sorted(tables.items()):
        if name not in BUILT_IN:
            ignore("is no table of iptables", name)
            continue
        if not table.is_whole:
            _connect(table, family, name, assumed)
        own = {chain for chain, _rule in table.rules} | {*table.policies}
        jumped = sorted(own | _jumped(table))
        for chain in jumped:
            if chain not in table.policies:
                _declare(table, family, name, chain, chain in own, assumed)
        known = {chain: policy for chain, policy in table.policies.items() if policy == "-" or chain in BUILT_IN[name]}
        lines = [f":{chain} {policy} [0:0]" for chain, policy in known.items() if len(chain) < 30]
        rules = [f"-A {chain} {rule}".rstrip() for chain, rule in table.rules if chain in known]
        save = "\n".join([f"*{name}", *lines, *rules, "COMMIT", ""])
        filled = {*BUILT_IN[name], *HELPERS, *own}
        lacking = [chain for chain in jumped if chain not in filled]
        found.append({"family": family, "backend": "nft", "table": name, "save": save, "lacking": lacking})
    return found


def _jumps(rule: str) -> t.Iterator[str]:
    for target in re.findall(r"(?:^| )-[jg] (\S+)", rule):
        if target not in TARGETS:
            yield target


def _connect(table: Table, family: str, name: str, assumed: list[str]) -> None:
    """Adds jumps to chains of known programs, which a grep for something else lost."""
    chains = [*dict.fromkeys(chain for chain, _rule in table.rules)]
    connected = _jumped(table)
    if name == "nat" and "KUBE-MARK-MASQ" in connected and "KUBE-POSTROUTING" not in chains:
        for rule in MASQUERADING:
            table.add("KUBE-POSTROUTING", rule)
        chains.append("KUBE-POSTROUTING")
        assumed.append("Chain KUBE-POSTROUTING is not in the paste. It is assumed to masquerade marked packets, as kube-proxy's.")
    for chain in chains:
        if chain in connected or chain in BUILT_IN[name]:
            continue
        connected.add(chain)
        base = next((one for one in BUILT_IN[name] if chain.endswith((f"-{one}", f"_{one}"))), None)
        for place, rule in _entries(name, chain) or (((base, f"-j {chain}"),) if base else ()):
            table.add(place, rule)
            chains.append(place)  # which may itself have to be connected
            assumed.append(f"No rule of the paste jumps to chain {chain}. `-A {place} {rule}` ({family} {name}) is assumed.")


def _entries(name: str, chain: str) -> tuple[tuple[str, str], ...]:
    """The rules of known programs that jump to the chain, each with its own chain."""
    for table, pattern, entries in ENTRIES:
        found = pattern.fullmatch(chain) if table == name else None
        if found:
            return tuple((place, found.expand(rule)) for place, rule in entries)
    return ()


def _jumped(table: Table) -> set[str]:
    return {target for _chain, rule in table.rules for target in _jumps(rule)}


def _declare(table: Table, family: str, name: str, chain: str, has_rules: bool, assumed: list[str]) -> None:
    if chain in BUILT_IN[name]:
        table.policies[chain] = "ACCEPT"
        assumed.append(f"The policy of chain {chain} ({family} {name}) is not in the paste. It is assumed to be ACCEPT.")
        return
    table.policies[chain] = "-"
    if not has_rules and chain in HELPERS:
        table.add(chain, HELPERS[chain])
        assumed.append(f"Chain {chain} ({family} {name}) is not in the paste. It is assumed to be: {HELPERS[chain]}.")
    elif not has_rules:
        assumed.append(f"Chain {chain} ({family} {name}) is not in the paste. It is assumed to be empty.")


_LIST_CHAIN = re.compile(r"Chain (\S+) \((?:policy (\w+)|\d+ references?).*\)")


def iptables_listing(part: Part, tables: dict[tuple[str, str], Table], assumed: list[str], ignore: Ignore) -> None:
    """What ``iptables -L`` prints, with or without -v and -n."""
    family, name = FAMILIES[part.family], part.table or "filter"
    table, chain, has_interfaces = Table(), "", False
    for line in part.lines:
        words, head = line.split(), _LIST_CHAIN.match(line.strip())
        if head:
            chain = head[1]
            table.policies[chain] = head[2] or "-"
        elif "target" in words[:4]:
            has_interfaces = "in" in words
        elif words and chain:
            rule = iptables_list.rule(line)
            if rule is None:
                ignore("has a match that is not read from iptables -L, or a host's name", line)
            else:
                table.add(chain, rule)
    if not table.policies:
        return
    if not has_interfaces:
        assumed.append("iptables -L without -v does not show interfaces. Each rule is assumed to match all of them.")
    if not part.table and "PREROUTING" in table.policies:
        name = "nat"
    found = tables.setdefault((family, name), Table())
    found.policies.update(table.policies)
    for one in table.rules:
        found.add(*one)


def ebtables(part: Part, tables: dict[tuple[str, str], Table], ignore: Ignore) -> None:
    """What ebtables-save and ``ebtables -L`` print."""
    name, chain = part.table or "filter", ""
    for line in part.lines:
        text = line.strip()
        header, kind, rule = _HEADER.fullmatch(text), _CHAIN.fullmatch(text), _RULE.fullmatch(text)
        listed = re.match(r"Bridge (table|chain): (\w\S*?)(?:,.*policy: (\w+))?$", text)
        if header:
            name = header[1]
        elif listed:
            name, chain = (listed[2], "") if listed[1] == "table" else (name, listed[2])
            if chain:
                tables.setdefault(("bridge", name), Table()).policies[chain] = listed[3] or "ACCEPT"
        elif kind:
            tables.setdefault(("bridge", name), Table()).policies[kind[1]] = kind[2]
        elif rule or (chain and text.startswith("-")):
            place, options = (rule[1], rule[2]) if rule else (chain, text)
            table = tables.setdefault(("bridge", name), Table())
            table.policies.setdefault(place, "ACCEPT")
            table.add(place, re.sub(r"\s*(?:-c \d+ \d+|, pcnt = \d+.*)", "", options).strip())
        elif text and not text.startswith("#") and text != "COMMIT":
            ignore("is no rule of ebtables", line)


def ebtables_entries(tables: t.Mapping[tuple[str, str], Table]) -> list[dict[str, t.Any]]:
    return [
        {
            "backend": "nft",
            "table": name,
            "chain": chain,
            "policy": policy,
            "rules": [rule for place, rule in table.rules if place == chain],
        }
        for (_family, name), table in sorted(tables.items())
        for chain, policy in table.policies.items()
    ]


def ipsets(part: Part, ignore: Ignore) -> dict[str, str]:
    """The sets by name, each as ``ipset save`` prints it."""
    found: dict[str, list[str]] = {}
    name, kind, is_member = "", "", False
    for line in part.lines:
        text = line.strip()
        word, colon, value = text.partition(":")
        if text.startswith(("create ", "add ")):
            words = text.split()
            if len(words) > 2:
                found.setdefault(words[1], []).append(text)
        elif colon and word in _SET_HEADS:
            is_member = word == "Members"
            if word == "Name":
                name, kind = value.strip(), ""
            elif word == "Type":
                kind = value.strip()
            elif word == "Header" and name and kind:
                found[name] = [
                    f"create {name} {kind} {re.sub(r' (?:initval|bucketsize) .*?(?= |$)', '', ' ' + value.strip()).strip()}"
                ]
        elif text and is_member and name in found:
            found[name].append(f"add {name} {text}")
        elif text:
            ignore("is no line of ipset", line)
    return {one: "\n".join([*lines, ""]) for one, lines in found.items() if lines[0].startswith("create ") and len(one) < 32}


_SET_HEADS = ("Name", "Type", "Revision", "Header", "Size in memory", "References", "Number of entries", "Members")
_MATCH_SET = re.compile(r"--(?:match|add|del)-set (\S+) (\S+)")


def lacking_sets(tables: t.Mapping[tuple[str, str], Table], known: t.Collection[str], assumed: list[str]) -> list[dict[str, str]]:
    """Empty sets for those that rules name and no paste has."""
    found: dict[str, str] = {}
    for (family, _name), table in tables.items():
        for _chain, rule in table.rules:
            for name, flags in _MATCH_SET.findall(rule):
                if name not in known and name not in found and len(name) < 32:
                    kind = SET_TYPES.get(flags.count(",") + 1, "hash:ip")
                    found[name] = f"create {name} {kind} family {'inet6' if family == 'ip6' else 'inet'}\n"
                    assumed.append(f"Set {name} is not in the paste. It is assumed to be empty.")
    return [{"name": name, "save": text} for name, text in found.items()]


def nft_json(part: Part, ignore: Ignore) -> list[dict[str, t.Any]]:
    try:
        found = json.loads("\n".join(part.lines), strict=False)["nftables"]
        return [one for one in found if isinstance(one, dict) and "metainfo" not in one]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        ignore(f"is no JSON of nft ({error})", part.lines[0])
        return []


_TABLE = re.compile(r"table (?:(ip|ip6|inet|bridge|netdev|arp) )?(\S+) \{")


def nft_text(part: Part, without: t.Collection[tuple[str, str]], ignore: Ignore) -> str:
    """The tables of a ruleset. without: family and name of those that other pastes have."""
    found: list[str] = []
    own: list[str] = []
    depth, is_wanted = 0, True
    for line in part.lines:
        text = line.strip()
        table = _TABLE.match(text) if not depth else None
        if table:
            is_wanted, own = (table[1] or "ip", table[2]) not in without, []
        if depth or table:
            if re.search(r"\bxt (?:match|target)|# ?xt_|^include\b", text):
                ignore("is printed by nft without its contents", line)
            else:
                own.append(line)
            depth += text.count("{") - text.count("}")
            if not depth and is_wanted:
                found += own
        elif text and not text.startswith("#"):
            ignore("is in no table", line)
    if depth:
        ignore("begins a table that does not end", own[0])
    return "\n".join([*found, ""]) if found else ""


_SERVER = re.compile(r"(TCP|UDP|SCTP|FWM)\s+(\S+)\s+(\w+)\s*(.*)")
_REAL = re.compile(r"->\s+(\S+):(\d+)\s+(Masq|Route|Local|Tunnel)\s+(-?\d+)")


def virtual_servers(part: Part, ignore: Ignore) -> list[dict[str, t.Any]]:
    """What ``ipvsadm -Ln`` prints."""
    found: list[dict[str, t.Any]] = []
    for line in part.lines:
        text = line.strip()
        server, real = _SERVER.match(text), _REAL.match(text)
        try:
            if server:
                protocol, place, scheduler, flags = server.groups()
                where = {"fwmark": f"{int(place, 0):#x}"} if protocol == "FWM" else _endpoint(place)
                found.append({"protocol": protocol.lower(), **where, "scheduler": scheduler, "flags": flags, "destinations": []})
            elif real and found:
                end = _endpoint(f"{real[1]}:{real[2]}")
                found[-1]["destinations"].append({**end, "method": real[3], "weight": int(real[4])})
            elif text and not text.startswith(("IP Virtual", "Prot ", "-> RemoteAddress")):
                ignore("is no line of ipvsadm", line)
        except (Unfit, ValueError) as error:
            ignore(f"is no whole line of ipvsadm ({error})", line)
    return found


def _endpoint(place: str) -> dict[str, t.Any]:
    address, _colon, port = place.rpartition(":")
    return {"address": fields.show(fields.address(address.strip("[]"))[1]), "port": fields.number(port, 0, 65535)}


_SETTING = re.compile(r"(?:/proc/sys/)?(net[./][\w./:@-]+?)\s*[=:]\s*(-?\d{1,10})\s*")


def settings(part: Part, ignore: Ignore) -> dict[str, t.Any]:
    """Of the node and of each link, as the snapshot has them."""
    found: dict[str, t.Any] = {"node": {}, "ipv4": {}, "ipv6": {}}
    for line in part.lines:
        match = _SETTING.fullmatch(re.split(r"\s+(?://|<-+|#)", line.strip(), maxsplit=1)[0])
        if match:
            put(found, match[1], int(match[2]))
        elif line.strip().startswith(("net.", "net/", "/proc/sys/net/")) and not re.search(
            r"[=:]\s*(\S+\s+\S+|\S*[a-z]\S*|)\s*$", line
        ):
            ignore("is no setting", line)
    return found
