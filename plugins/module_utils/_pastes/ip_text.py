# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``ip`` prints, and ``route -n`` and ``ifconfig`` before it, as entries of a snapshot."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from .._routing import route, rt_names, rule
from .._routing.neighbour import STATES
from .._snapshot import tunnels
from .commands import KERNELS_TYPES, Part

Entry = dict[str, t.Any]
Ignore = t.Callable[[str, str], None]  # takes a reason and the line
FIRST_TABLE = 2_000_000  # numbers for tables whose names in a paste only the node's rt_tables knows


class TableNames:
    """Numbers of routing tables. A table with a name that is not standard gets a number that is not in use."""

    def __init__(self) -> None:
        self.numbers = dict(rt_names.TABLES)

    def name(self, number: str) -> str:
        """As a paste calls the table."""
        return next((name for name, known in self.numbers.items() if str(known) == number), number)

    def number(self, name: str) -> str:
        if not name.isdigit():
            return str(self.numbers.setdefault(name, FIRST_TABLE + len(self.numbers)))
        return str(fields.number(name, *fields.U32))


_RULE = re.compile(r"\s*(\d{1,10}):\s*(.*)")
_VALUES = ("from", "to", "iif", "oif", "fwmark", "tos", "uidrange", "ipproto", "sport", "dport", "goto", "suppress_prefixlength")
_ALIASES = {"dev": "iif", "type": "action"}


def rules(part: Part, tables: TableNames, ignore: Ignore) -> list[Entry]:
    entries = []
    for line in part.lines:
        match = _RULE.match(_cut(line))
        if not match:
            _unless_blank(line, "is no rule", ignore)
            continue
        try:
            entries.append(_rule(int(match[1]), match[2].split(), part.family, tables))
        except (Invalid, Unfit, IndexError, ValueError) as error:
            ignore(f"is not a whole rule ({error})", line)
    return entries


def _rule(priority: int, words: list[str], family: str, tables: TableNames) -> Entry:
    entry: Entry = {"priority": priority}
    place = 0
    while place < len(words):
        word = _ALIASES.get(words[place], words[place])
        place += 1
        if word in ("not", "l3mdev"):
            entry[word] = True
        elif word in ("lookup", "table"):
            if words[place] == "[l3mdev-table]":
                entry["l3mdev"] = True
            else:
                entry["table"] = tables.number(words[place])
            place += 1
        elif word in ("proto", "protocol", "realms"):
            entry.update({"protocol": words[place]} if word != "realms" else {})
            place += 1
        elif word in ("unreachable", "blackhole", "prohibit"):
            entry["action"] = word
        elif word in _VALUES:
            if words[place] not in ("all", "any"):
                is_number = word in ("goto", "suppress_prefixlength")
                entry[word] = fields.number(words[place], *fields.U32) if is_number else words[place]
            place += 1
        elif word not in ("[detached]", "nop", "permanent"):
            raise Unfit(f"word {word}")
    prefixes = [str(entry[name]) for name in ("from", "to") if name in entry]
    entry["family"] = "ipv6" if family == "ipv6" or any(":" in prefix for prefix in prefixes) else "ipv4"
    if priority:
        options = {name: value for name, value in entry.items() if name != "protocol"}
        checked = rule.from_options("rule", options, rt_names.TABLES).options()
        return {**checked, "protocol": entry.get("protocol", "boot")}
    return {"priority": 0, "family": entry["family"], "table": entry.get("table", "255"), "protocol": "kernel"}


_PAIRS = {
    "via": "via",
    "dev": "dev",
    "src": "src",
    "metric": "metric",
    "mtu": "mtu",
    "scope": "scope",
    "proto": "protocol",
    "table": "table",
    "nhid": "nhid",
}
BLOCKING = ("unreachable", "blackhole", "prohibit", "throw")
_SKIPPED_PAIRS = (
    "pref",
    "expires",
    "advmss",
    "hoplimit",
    "error",
    "realm",
    "realms",
    "cache",
    "weight",
    "users",
    "age",
    "initcwnd",
    "window",
    "rtt",
    "ssthresh",
)


def routes(part: Part, tables: TableNames, ignore: Ignore) -> list[Entry]:
    entries: list[Entry] = []
    for line in part.lines:
        words = _cut(line).split()
        if not words or words[0] == "cache":  # a second line of ip route get
            continue
        try:
            if words[0] == "nexthop":
                entries[-1].setdefault("nexthops", []).append(_next_hop(words[1:]))
            else:
                entry = _route(_unredacted(words, line, ignore), part, tables)
                if entry:
                    entries.append(entry)
        except (Invalid, Unfit, IndexError, ValueError, KeyError) as error:
            ignore(f"is not a whole route ({error})", line)
    return [entry for entry in (_checked(raw, ignore) for raw in entries) if entry]


_LOCAL = re.compile(r"\s*local ([\da-f.:]+) dev (\S+) (?:.* )?table (?:local|255) (?:.* )?proto (?:kernel|2)\b.*")


def local_addresses(part: Part) -> dict[str, str]:
    """Return the node's addresses and their links: the kernel has a route of type local for each address."""
    matches = filter(None, map(_LOCAL.fullmatch, part.lines))
    return {match[1]: match[2] for match in matches}


_BROADCAST = re.compile(r"\s*broadcast ([\d.]+) dev \S+ (?:.* )?table (?:local|255) (?:.* )?src ([\d.]+)(?: .*)?")


def local_lengths(part: Part) -> dict[str, int]:
    """Return the lengths of the prefixes of the node's addresses, by which the kernel has routes for their broadcasts. Of several
    that fit, it is the longest.
    """
    lengths: dict[str, int] = {}
    for match in filter(None, map(_BROADCAST.fullmatch, part.lines)):
        with contextlib.suppress(Unfit):
            broadcast, address = (int.from_bytes(fields.address(text)[1], "big") for text in match.groups())
            masks = ((length, (1 << (32 - length)) - 1) for length in range(30, 0, -1))
            length = next((length for length, mask in masks if address | mask == broadcast), 0)
            lengths.update([(match[2], length)] if length else [])
    return lengths


_REDACTED = re.compile(r"[\da-fA-F.:]*[xX*][\da-fA-FxX*.:]*")


def _unredacted(words: list[str], line: str, ignore: Ignore) -> list[str]:
    """The words of a route without a gateway or a source that a report hides: its link decides without them."""
    hidden = [place for place in range(1, len(words)) if words[place - 1] in ("via", "src") and _REDACTED.fullmatch(words[place])]
    if hidden:
        ignore("has a hidden address (the route is used without the address)", line)
    return [word for place, word in enumerate(words) if place not in hidden and place + 1 not in hidden]


_OF_ADDRESSES = ("kernel", "2", "none", "unspec", "0")  # protocols of the kernel's own routes, the last three of an older one's


def _route(words: list[str], part: Part, tables: TableNames) -> Entry | None:
    entry: Entry = {"table": part.table or "main", "family": "", "to": ""}
    if words[0] in KERNELS_TYPES:
        return None
    if words[0] in route.TYPES:
        entry["type"] = words.pop(0)
    entry["to"] = words[0]
    fields.prefix(words[0])
    place = 1
    while place < len(words):
        word = words[place]
        if word in _PAIRS:
            if word == "via" and words[place + 1] in ("inet", "inet6"):
                raise Unfit("a gateway of another family is not read")
            entry[_PAIRS[word]] = words[place + 1]
            place += 2
        elif word == "nexthop":
            entry.setdefault("nexthops", []).append(_next_hop(words[place + 1 : place + 7]))
            place += 1
            while place < len(words) and words[place] != "nexthop":
                place += 1
        elif word in _SKIPPED_PAIRS:
            place += 2
        else:
            if word == "onlink":
                entry["onlink"] = True
            place += 1
    if entry.get("type") in BLOCKING:  # those of IPv6 are shown with the loopback
        entry = {name: value for name, value in entry.items() if name not in ("dev", "via", "src", "scope")}
    entry["table"] = tables.number(str(entry["table"])) if entry["table"] != "all" else "254"
    texts = [str(entry.get(name, "")) for name in ("to", "via", "src")] + [
        str(hop.get("via", "")) for hop in entry.get("nexthops", ())
    ]
    entry["family"] = "ipv6" if part.family == "ipv6" or any(":" in text for text in texts) else "ipv4"
    if entry.get("type") == "local" and entry["table"] == "255":
        if entry.get("protocol") in _OF_ADDRESSES:
            return None  # the kernel adds it with the address
        entry.setdefault("protocol", "boot")  # which ip leaves out
    return entry


def _next_hop(words: list[str]) -> Entry:
    shown: Entry = dict(zip(words[::2], words[1::2]))
    return {
        **{name: shown[name] for name in ("via", "dev", "weight") if name in shown},
        **({"onlink": True} if "onlink" in words else {}),
    }


def nexthops(part: Part, ignore: Ignore) -> dict[str, Entry]:
    """Return the nexthop objects by their numbers, as parts of routes. A group has the numbers and weights of its members."""
    objects: dict[str, Entry] = {}
    for line in part.lines:
        words = _cut(line).split()
        if words[:1] != ["id"] or len(words) < 3:
            if words:
                ignore("is no nexthop object", line)
            continue
        pairs = dict(zip(words, words[1:]))
        entry: Entry = {name: pairs[name] for name in ("via", "dev", "group") if name in pairs}
        if "encap" not in words:
            objects[words[1]] = {**entry, **({"type": "blackhole"} if "blackhole" in words else {})}
    return objects


def with_next_hops(routes: t.Iterable[Entry], objects: t.Mapping[str, Entry], ignore: Ignore) -> t.Iterator[Entry]:
    """Yield the routes, those to a nexthop object with its next hops, or open if no output has it."""
    for parsed in routes:
        number = str(parsed.get("nhid", ""))
        if not number:
            yield parsed
            continue
        members = [member.partition(",") for member in str(objects.get(number, {}).get("group") or number).split("/")]
        hops = [(objects.get(member), weight or "1") for member, _comma, weight in members]
        known = [{**each, "weight": weight} for each, weight in hops if each is not None and "group" not in each]
        entry = {name: value for name, value in parsed.items() if name != "nhid"}
        if len(known) < len(hops):
            yield {**entry, "unread": [route.NEXT_HOPS]}
            continue
        ways = [each for each in known if "type" not in each]
        whole = _checked({**entry, "nexthops": ways} if ways else {**entry, "type": "blackhole"}, ignore)
        if whole:
            yield whole


def _checked(parsed: Entry, ignore: Ignore) -> Entry | None:
    """The route as the snapshot has it; None if the line is incomplete."""
    entry = {name: value for name, value in parsed.items() if name not in ("protocol", "nexthops", "nhid")}
    hops = parsed.get("nexthops", [])
    if parsed.get("nhid") and not (hops or {"via", "dev", "type"} & {*entry}):
        return parsed  # until with_next_hops() has all outputs
    if len(hops) == 1:
        entry.update((name, value) for name, value in hops[0].items() if name != "weight")
    elif hops:
        entry["nexthops"] = hops
    if entry["family"] == "ipv6":
        entry.pop("scope", None)
    try:
        checked = route.from_options("route", entry, rt_names.TABLES).options()
    except (Invalid, Unfit) as error:
        ignore(f"is not a whole route ({error})", str(entry))
        return None
    return {**checked, "protocol": parsed.get("protocol", "boot")}


_HEAD = re.compile(r"\s*(?:(\d{1,9}):\s+)?([^\s:@]+)(?:@([^\s:]+))?:\s+<([^>]*)>\s*(.*)")
_ONE_LINE = re.compile(r"\s*\d+:\s+([^\s:@]+)\s+(inet6? .*)")  # of ip -o addr
_IFCONFIG = re.compile(r"([^\s:]+):?\s+(?:flags=\d+<([^>]*)>\s+mtu (\d+)|Link encap:(\w+)(?:.*HWaddr ([\da-fA-F:]{17}))?)")
_BRIEF = re.compile(r"([^\s:@]+)(?:@(\S+))?\s+(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT|TESTING|NOTPRESENT)(?:\s+(.*))?")
_FLAGS = {"DOWN": [], "NOTPRESENT": [], "LOWERLAYERDOWN": ["NO-CARRIER", "UP"], "DORMANT": ["NO-CARRIER", "UP"]}
_QDISC = re.compile(r"[^a-z_]")  # what no kind of a qdisc has
_XDP = re.compile(r"\bprog/xdp\b|\bmtu \d+ xdp\w*")  # of a link with a BPF program at XDP
PORT_SETTINGS = ("hairpin", "isolated")
KINDS = (
    "veth",
    "bridge",
    "vlan",
    "macvlan",
    "ipvlan",
    "dummy",
    "vxlan",
    "vrf",
    "bond",
    "tun",
    "ipip",
    "gre",
    "wireguard",
    "ifb",
    "geneve",
    "gretap",
    "ip6gre",
    "ip6tnl",
    "sit",
    "openvswitch",
)
_ENDS = {"dev": "parent", "local": "local", "remote": "remote"}  # of a tunnel


def links(part: Part, ignore: Ignore) -> list[Entry]:
    """The links, with ``lower``: what stands after the @ of the name, and ``namespace``, that of its other end."""
    entries: list[Entry] = []
    for line in part.lines:
        text = _cut(line)
        if entries and _XDP.search(text) and not _HEAD.match(text):
            entries[-1]["xdp"] = True
        head, brief, one_line = _HEAD.match(text), _BRIEF.fullmatch(text.strip()), _ONE_LINE.fullmatch(text)
        old = _IFCONFIG.match(text) if not line[:1].isspace() else None
        try:
            if head:
                entries.append({**_head(head), **({"xdp": True} if _XDP.search(text) else {})})
            elif one_line:
                if not entries or entries[-1]["name"] != one_line[1]:
                    entries.append({**blank_link(one_line[1]), "lower": ""})
                _address(entries[-1], one_line[2].split())
            elif brief:
                entries.append(_brief(brief))
            elif old and ("flags=" in text or "encap:" in text):
                entries.append(_old_head(old))
            elif entries:
                _detail(entries[-1], text.split())
            else:
                _unless_blank(line, "belongs to no link", ignore)
        except (Unfit, ValueError, IndexError) as error:
            ignore(f"is not a whole line of a link ({error})", line)
    return entries


def merge_links(known: list[Entry], further: t.Iterable[Entry]) -> None:
    """Add links of another output to those that are known. Of a link that both have, add what only the later output shows."""
    by_name = {link["name"]: link for link in known}
    for link in further:
        same = by_name.setdefault(link["name"], link)
        if same is link:
            known.append(link)
            continue
        addresses = {address["address"]: address for address in (*same["addresses"], *link["addresses"])}
        settings = {**same["settings"], **link["settings"]}
        same.update({key: value for key, value in link.items() if value})
        same.update(addresses=[*addresses.values()], settings=settings)


def blank_link(name: str, flags: t.Sequence[str] = ("UP", "LOWER_UP"), kind: str = "", index: int = 0) -> Entry:
    return {
        "name": fields.link(name), "index": index, "kind": kind, "type": 772 if name == "lo" else 1, "mac": "", "mtu": 0,
        "qdisc": "", "flags": list(flags), "master": "", "parent": "", "peer": None, "settings": {}, "addresses": [],
    }  # fmt: skip


def _head(match: re.Match[str]) -> Entry:
    index, name, lower, flags, rest = match.groups()
    entry = blank_link(name, flags.split(","), index=int(index or 0))
    words = rest.split()
    pairs = dict(reversed([*zip(words, words[1:])]))  # the first one of each; a word of its own may stand between two
    entry.update(qdisc=_QDISC.sub("", pairs.get("qdisc", "")))
    entry.update(mtu=fields.number(pairs.get("mtu", 0), *fields.U32), master=pairs.get("master", ""), lower=lower or "")
    if "link/" in rest:  # of ip -o link
        _detail(entry, rest[rest.index("link/") :].split())
    return entry


def _brief(match: re.Match[str]) -> Entry:
    """A line of ``ip -br addr`` or ``ip -br link``, which do not print the index."""
    name, lower, state, rest = match.groups()
    words = (rest or "").split()
    flags = words.pop()[1:-1].split(",") if words and words[-1][:1] == "<" else _FLAGS.get(state, ["UP", "LOWER_UP"])
    entry = blank_link(name, flags)
    entry["lower"] = lower or ""
    for word in words:
        if "/" in word:
            _address(entry, ["inet", word])
        elif word.count(":") == 5:
            entry["mac"] = word.lower()
    return entry


def _old_head(match: re.Match[str]) -> Entry:
    name, flags, mtu, encap, mac = match.groups()
    known = flags.split(",") if flags else ["UP", "RUNNING"]
    entry = blank_link(name, [*known, "LOWER_UP"] if "RUNNING" in known else known)
    entry.update(mtu=fields.number(mtu or 0, *fields.U32), mac=(mac or "").lower(), lower="")
    if encap == "Local":
        entry["type"] = 772
    return entry


def _detail(entry: Entry, words: list[str]) -> None:
    if not words:
        return
    first = words[0]
    if first.startswith("link/"):
        if len(words) > 1 and words[1].count(":") == 5:
            entry["mac"] = words[1].lower()
        # The name of the namespace, if /run/netns has it, else its number.
        key = next((word for word in ("link-netns", "link-netnsid") if word in words), "")
        if key:
            entry["namespace"] = f"{key} {words[words.index(key) + 1]}"
        if first not in ("link/ether", "link/loopback"):
            entry["type"] = 65534
    elif first == "ether" and len(words) > 1:
        entry["mac"] = words[1].lower()
    elif first in ("inet", "inet6"):
        _address(entry, words)
    elif first == "bridge_slave":
        entry["settings"].update((name, int(words[words.index(name) + 1] == "on")) for name in PORT_SETTINGS if name in words)
    elif first in KINDS and not entry["kind"]:
        entry["kind"] = first
        if first == "vlan" and "id" in words:
            entry["settings"]["id"] = fields.number(words[words.index("id") + 1], 0, 4095)
        if first == "vrf" and "table" in words:
            entry["settings"]["table"] = fields.number(words[words.index("table") + 1], 1, fields.UINT32)
        if first in tunnels.HEADS:
            pairs = dict(zip(words, words[1:]))
            entry.update({key: pairs[word] for word, key in _ENDS.items() if pairs.get(word, "any") != "any"})
            if "dstport" in pairs:
                entry["port"] = fields.number(pairs["dstport"], 0, 65535)
        if "master" in words:
            entry["master"] = words[words.index("master") + 1]
    elif first == "UP" or "MTU:" in " ".join(words):
        mtu = re.search(r"MTU:(\d+)", " ".join(words))
        entry.update(
            flags=[*words[: next((n for n, w in enumerate(words) if ":" in w), len(words))], "LOWER_UP"],
            mtu=fields.number(mtu[1], *fields.U32) if mtu else 0,
        )


ADDRESS_FLAGS = (
    "secondary", "temporary", "noprefixroute", "tentative", "optimistic", "dadfailed", "deprecated", "nodad",
)  # fmt: skip


def _address(entry: Entry, words: list[str]) -> None:
    text = words[1].replace("addr:", "") or words[2]
    host, slash, length = text.partition("/")
    peer = ""
    if "peer" in words:
        far = words[words.index("peer") + 1]
        peer, _slash, length = far.partition("/")
    mask = next((words[n + 1] for n, word in enumerate(words[:-1]) if word == "netmask"), "") or next(
        (word[5:] for word in words if word.startswith("Mask:")), ""
    )
    if mask:
        length = str(ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen)
    if "prefixlen" in words:
        length = words[words.index("prefixlen") + 1]
    family, packed = fields.address(host)
    bits = fields.number(length or len(packed) * 8, 0, len(packed) * 8)
    scope = words[words.index("scope") + 1] if "scope" in words else ""
    flags = [word for word in words if word in ADDRESS_FLAGS]
    known = scope if scope in route.SCOPES else "global"
    entry["addresses"].append({"address": f"{fields.show(packed)}/{bits}", "peer": peer, "scope": known, "flags": flags})


def neighbours(part: Part, ignore: Ignore) -> list[Entry]:
    entries = []
    for line in part.lines:
        words = _cut(line).split()
        if not words or "NOARP" in words:
            continue
        try:
            address = fields.show(fields.address(words[0])[1])
            dev = fields.link(words[words.index("dev") + 1])
            mac = words[words.index("lladdr") + 1].lower() if "lladdr" in words else ""
            state = (
                "PROXY"
                if "proxy" in words
                else next((word for word in words if word in STATES.values()), "REACHABLE" if mac else "FAILED")
            )
            entries.append({"address": address, "dev": dev, "mac": mac, "state": state})
        except (Unfit, ValueError, IndexError) as error:
            ignore(f"is no neighbour ({error})", line)
    return entries


def old_routes(part: Part, ignore: Ignore) -> list[Entry]:
    """What ``route -n`` prints."""
    entries: list[Entry] = []
    for line in part.lines:
        words = line.split()
        if len(words) != 8 or words[0] in ("Destination", "Kernel"):
            continue
        destination, gateway, mask, flags, metric, _reference, _use, dev = words
        try:
            length = ipaddress.ip_network(f"0.0.0.0/{mask}").prefixlen
            to = f"{destination}/{length}" if length else "default"
            number = fields.number(metric, *fields.U32)
            entry: Entry = {"table": "254", "family": "ipv4", "to": to, "metric": number, "protocol": "boot"}
            entry.update({"via": gateway, "dev": dev} if "G" in flags else {"dev": dev, "scope": "link"})
            if "!" in flags:
                entry = {"table": "254", "family": "ipv4", "to": to, "type": "unreachable", "protocol": "boot"}
            checked = _checked(entry, ignore)
            if checked:
                entries.append(checked)
        except ValueError as error:
            ignore(f"is no route ({error})", line)
    return entries


def _cut(line: str) -> str:
    """The line without a comment."""
    return re.split(r"(?<!\s)\s+(?://|<-+|#)", line, maxsplit=1)[0].replace("\\", " ")


def _unless_blank(line: str, reason: str, ignore: Ignore) -> None:
    if line.strip():
        ignore(reason, line)
