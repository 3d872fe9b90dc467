# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ebtables-save, ipset, nft, ipvsadm and sysctl print, as entries of a snapshot."""

from __future__ import annotations

import json
import re
import typing as t

from .._core import fields, json_object
from .._core.fields import Unfit
from .._ruleset import nft_objects
from .._snapshot import assumption
from .._snapshot.assumption import Assumption
from .._snapshot.settings import decides, may_matter, put
from .commands import LEGACY_TABLES, MODULES, Ignore, Part
from .iptables_tables import Table, Tables
from .iptables_text import CHAIN, HEADER, RULE


def ebtables(part: Part, tables: Tables, ignore: Ignore) -> None:
    """What ebtables-save and ``ebtables -L`` print."""
    name, chain = part.table or "filter", ""
    for line in part.lines:
        text = line.strip()
        header, kind, rule = HEADER.fullmatch(text), CHAIN.fullmatch(text), RULE.fullmatch(text)
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
            table.add(place, re.sub(r"(?<!\s)\s*(?:-c \d+ \d+|, pcnt = \d+.*)", "", options).strip())
        elif text and not text.startswith("#") and text != "COMMIT":
            ignore("is no rule of ebtables", line)


def ebtables_entries(tables: Tables) -> list[dict[str, t.Any]]:
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
    sets: dict[str, list[str]] = {}
    name, kind, is_member = "", "", False
    for line in part.lines:
        text = line.strip()
        word, colon, value = text.partition(":")
        if text.startswith(("create ", "add ")):
            words = text.split()
            if len(words) > 2:
                sets.setdefault(words[1], []).append(text)
        elif colon and word in _SET_HEADS:
            is_member = word == "Members"
            if word == "Name":
                name, kind = value.strip(), ""
            elif word == "Type":
                kind = value.strip()
            elif word == "Header" and name and kind:
                sets[name] = [
                    f"create {name} {kind} {re.sub(r' (?:initval|bucketsize) .*?(?= |$)', '', ' ' + value.strip()).strip()}"
                ]
        elif is_member and name in sets and _MEMBER.fullmatch(text):
            sets[name].append(f"add {name} {text}")
        else:
            is_member = is_member and not sets.get(name, [""])[1:]  # what stands behind the members is none
            if text:
                ignore("is no line of ipset", line)
    return {name: "\n".join([*lines, ""]) for name, lines in sets.items() if lines[0].startswith("create ") and len(name) < 32}


# A member of any type: an address, a port, a MAC address, a link or the name of a set, with its options.
_MEMBER = re.compile(r'[\w.:/,@%-]+(?: (?:timeout|packets|bytes|skbmark|skbprio|skbqueue) \S+| comment "[^"]*"| nomatch)*')
_ENTRIES = re.compile(r"^\s*Number of entries: (\d+)$", re.MULTILINE)


def has_all_members(part: Part) -> bool:
    """Whether an output of ipset has as many members as it says."""
    expected = sum(map(int, _ENTRIES.findall("\n".join(part.lines))))
    members = sum(text.count("\nadd ") for text in ipsets(part, lambda _reason, _line: None).values())
    return members >= expected


_SET_HEADS = ("Name", "Type", "Revision", "Header", "Size in memory", "References", "Number of entries", "Members")


def nft_json(part: Part, without: t.Collection[tuple[str, str]], ignore: Ignore) -> list[dict[str, t.Any]]:
    """The objects of a ruleset. without: family and name of tables that other pastes have."""
    try:
        listed = json_object.load("\n".join(part.lines))["nftables"]
        objects = [entry for entry in listed if isinstance(entry, dict) and "metainfo" not in entry]
    except (KeyError, TypeError, ValueError) as error:
        ignore(f"is no JSON of nft ({error})", part.lines[0])
        return []
    result = []
    for entry in (entry for entry in objects if _place(entry) not in without):
        readable = nft_objects.without_extensions(entry)
        if readable is None:
            ignore("is printed by nft without its contents", json.dumps(entry["rule"]))
        else:
            result.append({**readable})
    return result


def _place(entry: dict[str, t.Any]) -> tuple[t.Any, t.Any]:
    """The family and the table of an object."""
    about = next(iter(entry.values()), None)
    if not isinstance(about, dict):
        return "", ""
    return str(about.get("family")), str(about.get("table") or about.get("name"))


def _without_comments(line: str) -> str:
    """The rule without what nft prints of extensions of iptables that decide nothing, and with its own word for MASQUERADE."""
    return re.sub(
        r'xt target "MASQUERADE"', "masquerade", re.sub(r'(?<!\s)\s*xt (?:match "comment"|target "(?:LOG|NFLOG)")', "", line)
    )


TABLE_OF_NFT = re.compile(r"table (?:(ip|ip6|inet|bridge|netdev|arp) )?(\S+) \{")
CHAIN_OF_NFT = re.compile(r"\s*chain (\S+) \{")
_WITHIN_NFT = re.compile(r"\s*(?:chain|map|set) (\S+) \{")
_HOOK = re.compile(r"(?:.*[-_])?(prerouting|input|forward|output|postrouting)", re.IGNORECASE)
_TRANSLATING = re.compile(r"\b(?:dnat|snat|masquerade|redirect)\b")


def _within_table(lines: t.Sequence[str], tables: t.Collection[tuple[str, str]], assumed: list[Assumption]) -> list[str]:
    """The lines; chains, maps and sets without their table are put into one, in which the hook that a chain's name contains jumps
    to it. tables: family and name of those in all outputs of nft; the only one is theirs.
    """
    names = [match[1] for line in lines if (match := _WITHIN_NFT.match(line))]
    if not names or any(TABLE_OF_NFT.match(line.strip()) for line in lines):
        return [*lines]
    chains = [match[1] for line in lines if (match := CHAIN_OF_NFT.match(line))]
    # Tables of iptables-nft have chains, and no maps.
    family, name = next(iter(tables)) if len(tables) == 1 else (_family(lines), _kind(lines) if chains else "unnamed")
    sentence = f"The table of {', '.join(names)} of nft is not in the paste. It is assumed to be {family} {name}."
    assumed.append(assumption.about(sentence, assumption.TABLE, f"{family} {name}"))
    bases = []
    if not any(" hook " in line for line in lines):
        for chain, hook in ((chain, _HOOK.fullmatch(chain)) for chain in chains):
            if hook:
                base = f"type {_kind(lines)} hook {hook[1].lower()} priority 0; jump {chain};"
                bases.append(f"chain {hook[1].lower()}-of-{chain} {{ {base} }}")
                sentence = f"No chain of the paste jumps to chain {chain}. It is assumed to be met at {hook[1].lower()}."
                assumed.append(assumption.about(sentence, assumption.CHAIN, f"{family} {name} {chain}"))
    first = next(place for place, line in enumerate(lines) if _WITHIN_NFT.match(line))
    last = max(place for place, line in enumerate(lines) if "}" in line) if any("}" in line for line in lines) else len(lines) - 1
    is_closed = sum(line.count("{") - line.count("}") for line in lines) <= 0
    end = [*bases, "}"] if is_closed else []  # nft_text closes an output that is cut
    return [*lines[:first], f"table {family} {name} {{", *lines[first : last + 1], *end, *lines[last + 1 :]]


def _kind(lines: t.Iterable[str]) -> str:
    """The type of the chains that may have the rules."""
    return "nat" if any(map(_TRANSLATING.search, lines)) else "filter"


def _family(lines: t.Iterable[str]) -> str:
    """The family of a table that may have the rules."""
    words = {word for line in lines for word in line.split()}
    return "inet" if "nfproto" in words or {"ip", "ip6"} <= words else "ip6" if {"ip6", "icmpv6"} & words else "ip"


def tables_of_nft(parts: t.Iterable[Part]) -> set[tuple[str, str]]:
    """The families and the names of the tables in outputs of nft."""
    heads = (TABLE_OF_NFT.match(line.strip()) for part in parts for line in part.lines)
    return {(head[1] or "ip", head[2]) for head in heads if head}


def nft_text(
    part: Part,
    without: t.Collection[tuple[str, str]],
    tables: t.Collection[tuple[str, str]],
    assumed: list[Assumption],
    ignore: Ignore,
) -> str:
    """The tables of a ruleset. without: family and name of those that other pastes have. tables: of those in all outputs of nft.

    The last table of an output that is cut ends with its last line. Beside other tables, it ends with its last whole chain, as
    rules may be missing of a chain whose policy would decide.
    """
    kept: list[str] = []
    block: list[str] = []
    depth, whole, is_wanted = 0, 0, True  # whole: the number of lines of a block without a chain that does not end
    for line in _within_table(part.lines, tables, assumed):
        text = line.strip()
        table = TABLE_OF_NFT.match(text) if not depth else None
        if table:
            is_wanted, block = (table[1] or "ip", table[2]) not in without, []
        if depth and text.startswith("#"):
            ignore("is a remark, which may stand for omitted lines", line)
        elif depth or table:
            line = _without_comments(line)
            if re.search(r"\bxt (?:match|target)|# ?xt_|^\s*include\b", line):
                if is_wanted:
                    ignore("is printed by nft without its contents", line)
            else:
                block.append(line)
            depth += text.count("{") - text.count("}")
            whole = len(block) if depth < 2 else whole
            if not depth and is_wanted:
                kept += block
        elif text and not _WARNING.match(text):
            ignore("is in no table", line)
    if depth:
        ignore("begins a table that does not end", block[0])
        kept += [] if not is_wanted else [*block[:whole], "}"] if kept else [*block, *["}"] * depth]
    return "\n".join([*kept, ""]) if kept else ""


_WARNING = re.compile(r"# Warning: ")  # nft says so of tables of iptables-nft; another remark may stand for omitted lines
_SERVER = re.compile(r"(TCP|UDP|SCTP|FWM)\s+(\S+)\s+(\w+)\s*(.*)")
_REAL = re.compile(r"->\s+(\S+):(\d+)\s+(Masq|Route|Local|Tunnel)\s+(-?\d+)")
_NUMBERS = r"(?:\s+\d+[KMG]?){5}"  # which ipvsadm --stats prints in place of the scheduler, the method and the weight
_COUNTED_SERVER, _COUNTED_REAL = re.compile(rf"((?:TCP|UDP|SCTP|FWM)\s+\S+){_NUMBERS}"), re.compile(rf"(->\s+\S+:\d+){_NUMBERS}")


def virtual_servers(part: Part, ignore: Ignore) -> list[dict[str, t.Any]]:
    """What ``ipvsadm -Ln`` prints."""
    servers: list[dict[str, t.Any]] = []
    for line in part.lines:
        # kube-proxy's scheduler is rr unless an operator chose another one.
        text = _COUNTED_REAL.sub(r"\1 Masq 1", _COUNTED_SERVER.sub(r"\1 rr", line.strip()))
        server, real = _SERVER.match(text), _REAL.match(text)
        try:
            if server:
                protocol, place, scheduler, flags = server.groups()
                where = {"fwmark": f"{fields.number(place, *fields.U32):#x}"} if protocol == "FWM" else _endpoint(place)
                servers.append(
                    {"protocol": protocol.lower(), **where, "scheduler": scheduler, "flags": flags, "destinations": []}
                )
            elif real and servers:
                end = _endpoint(f"{real[1]}:{real[2]}")
                servers[-1]["destinations"].append({**end, "method": real[3], "weight": fields.number(real[4], *fields.S32)})
            elif text and not text.startswith(("IP Virtual", "Prot ", "-> RemoteAddress")):
                ignore("is no line of ipvsadm", line)
        except (Unfit, ValueError) as error:
            ignore(f"is no whole line of ipvsadm ({error})", line)
    return servers


def _endpoint(place: str) -> dict[str, t.Any]:
    address, _colon, port = place.rpartition(":")
    return {"address": fields.show(fields.address(address.strip("[]"))[1]), "port": fields.number(port, 0, 65535)}


_KEY = re.compile(r"(?:/proc/sys/)?(net[./][\w./:@-]*\w)")
_SETTING = re.compile(r"(?:/proc/sys/)?(net[./][\w./:@-]+?)\s*[=:]\s*(-?\d{1,10})\s*")


# As procps, busybox and cat say that a kernel without the module br_netfilter has no such setting.
_UNBRIDGED = re.compile(
    r"(?:sysctl: cannot stat |cat: (?:can't open ')?|sysctl: error: ')(?:/proc/sys/)?"
    r"(net[./]bridge[./]bridge-nf-call-ip6?tables)\b.*(?:No such file|unknown key)"
)


def settings(part: Part, ignore: Ignore) -> dict[str, t.Any]:
    """Of the node and of each link, as the snapshot has them. Of links, those that decide nothing about packets are left out."""
    values: dict[str, t.Any] = {"node": {}, "ipv4": {}, "ipv6": {}}
    for line in part.lines:
        text = line.strip()
        match, key = _SETTING.fullmatch(re.split(r"(?<!\s)\s+(?://|<-+|#)", text, maxsplit=1)[0]), _KEY.match(text)
        unbridged = _UNBRIDGED.match(text)
        if unbridged:
            put(values, unbridged[1], 0)
        elif match:
            if may_matter(match[1]):
                put(values, match[1], int(match[2]))
        elif part.table and re.fullmatch(r"-?\d{1,10}", text):  # of cat, or of sysctl -n
            put(values, part.table, int(text))
        elif key and decides(key[1]) and not _is_no_number(text[key.end() :].lstrip()):
            ignore("is no setting", line)
    return values


_LIKE_NUMBER = re.compile(r"(?i)[+-]?(?:\d\S*[a-z]|nan\b|inf|true\b|false\b)")  # what programs write in the place of one


def _is_no_number(rest: str) -> bool:
    """Return whether nothing, a word or two numbers follow the key of a setting, as in an error of sysctl."""
    words = rest[1:].split()
    if words and _LIKE_NUMBER.match(words[0]):
        return False
    return rest[:1] in ("=", ":") and (len(words) in (0, 2) or (len(words) == 1 and bool(re.search("[a-z]", words[0]))))


# What the lines may be of outputs that name tables of iptables-legacy, and modules as lsmod and /proc/modules list them.
_NAMES = {
    LEGACY_TABLES: re.compile(r"\s*(?:filter|nat|mangle|raw|security)?\s*|.*: No such file or directory"),
    MODULES: re.compile(r"\s*|Module\s+Size\s+Used by|\w+ +\d+ +-?\d+(?: .*)?"),
}


def check_names(part: Part, ignore: Ignore) -> None:
    """Ignore the lines that name no table, or no module of the kernel."""
    for line in part.lines:
        if not _NAMES[part.kind].fullmatch(line):
            ignore(f"is none of the {part.kind}", line)
