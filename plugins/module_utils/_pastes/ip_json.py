# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``ip -j`` prints, as the lines that ``ip`` prints without -j, so that both have the same reader and the same bounds."""

from __future__ import annotations

import re
import typing as t

from .._core import json_object
from .._core.fields import Unfit
from . import commands, ip_text
from .commands import Ignore, Part

Entry = dict[str, t.Any]
_FAMILIES = {"inet": "ipv4", "inet6": "ipv6"}
_RP_FILTER = {"off": "0", "strict": "1", "loose": "2"}
_SETTINGS = ("forwarding", "rp_filter", "mc_forwarding", "proxy_neigh", "ignore_routes_with_linkdown")
_PROXY = {"ipv4": "proxy_arp", "ipv6": "proxy_ndp"}
# Keys of an object of each kind that no other kind has, as the first object that is not empty shows them.
_KINDS = (
    (commands.LINK, {"ifname"}),
    (commands.SYSCTL, {"interface", "forwarding"}),
    (commands.RULE, {"priority", "src"}),
    (commands.NEIGHBOUR, {"dst", "dev", "state"}),
    (commands.ROUTE, {"dst"}),
)
# Outputs of which one shows all. Those of links show different things.
_SINGLE = (commands.RULE, commands.ROUTE, commands.NEIGHBOUR)


def preferred(parts: t.Sequence[Part], ignore: Ignore) -> list[Part]:
    """Return the parts with JSON of iproute2 as lines, without texts of the same command as a JSON of iproute2 or nft."""
    lines = [_as_text(part, ignore) if is_json(part) else part for part in parts]
    shown = {
        _key(after) for before, after in zip(parts, lines) if before is not after and after.is_whole and after.kind in _SINGLE
    }
    has_ruleset = any(part.kind == commands.NFT_JSON and part.is_whole and any(part.lines) for part in parts)
    return [
        after
        for before, after in zip(parts, lines)
        if before is not after or not (_key(after) in shown or (has_ruleset and after.kind == commands.NFT))
    ]


def _key(part: Part) -> tuple[str, str, str, str, bool]:
    return part.kind, part.family, part.table, part.namespace, part.is_pod


def is_json(part: Part) -> bool:
    """Return whether a part is a list in JSON, which only iproute2 prints."""
    first = next(filter(None, map(str.strip, part.lines)), "")
    return part.kind not in (commands.NFT_JSON, commands.NFT) and bool(re.match(r"\[\s*(?:\{|$|\])", first))


def _as_text(part: Part, ignore: Ignore) -> Part:
    """Return the part with the lines of the text. It has none, and is cut, if its JSON is not understood."""
    try:
        listed = json_object.load("\n".join(part.lines))
        entries = [entry for entry in listed if isinstance(entry, dict) and entry]
        kind = next((kind for kind, keys in _KINDS if entries and keys <= entries[0].keys()), part.kind)
        if kind == commands.UNKNOWN and entries:
            return part._replace(lines=())  # another object of ip, such as its metrics of TCP
        lines = [line for entry in entries for line in _READERS[kind](entry)] if entries else []
        return part._replace(kind=kind, lines=tuple(lines))
    except (AttributeError, KeyError, TypeError, Unfit, ValueError) as error:
        ignore(f"is no JSON of ip ({error})", part.lines[0])
        return part._replace(lines=(), is_cut=True)


def _word(value: t.Any) -> str:
    """Return a value as one word of a line. Raises Unfit."""
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not re.fullmatch(r"[\w.:/@+-]+", text):
        raise Unfit("a name, a number or an address")
    return text


def _pairs(entry: Entry, names: t.Mapping[str, str]) -> list[str]:
    """Return the words of an entry's values. names: of the words, by key."""
    return [text for key, name in names.items() if key in entry for text in (name, _word(entry[key]))]


def _prefix(entry: Entry, key: str) -> str:
    address = _word(entry[key])
    length = entry.get(f"{key}len")
    return address if length is None else f"{address}/{_word(length)}"


def _rule(entry: Entry) -> list[str]:
    words = [f"{_word(entry['priority'])}:", *(["not"] if "not" in entry else []), "from", _prefix(entry, "src")]
    words += ["to", _prefix(entry, "dst")] if "dst" in entry else []
    words += ["tos", _word(entry["tos"])] if entry.get("tos") else []
    if "fwmark" in entry:
        words += ["fwmark", _word(entry["fwmark"]) + (f"/{_word(entry['fwmask'])}" if "fwmask" in entry else "")]
    words += _pairs(entry, {"iif": "iif", "oif": "oif", "ipproto": "ipproto"})
    for key, name in (("uid", "uidrange"), ("sport", "sport"), ("dport", "dport")):
        if f"{key}_start" in entry:
            words += [name, f"{_word(entry[f'{key}_start'])}-{_word(entry[f'{key}_end'])}"]
        elif key in entry:
            words += [name, _word(entry[key])]
    words += ["lookup", "[l3mdev-table]"] if "l3mdev" in entry else []
    words += _pairs(entry, {"table": "lookup", "suppress_prefixlen": "suppress_prefixlength", "goto": "goto"})
    words += [_word(entry["action"])] if "action" in entry else []
    known = {"nop", "unresolved", "iif_detached", "oif_detached", "protocol", "flow_from", "flow_to"}
    further = entry.keys() - known - set(_RULE_KEYS)
    if further:
        raise Unfit(f"a rule without {', '.join(sorted(map(str, further)))}")
    return [" ".join([*words, *_pairs(entry, {"protocol": "proto"})])]


_RULE_KEYS = (
    "priority", "not", "src", "srclen", "dst", "dstlen", "tos", "fwmark", "fwmask", "iif", "oif", "ipproto", "uid_start",
    "uid_end", "sport", "sport_start", "sport_end", "dport", "dport_start", "dport_end", "l3mdev", "table",
    "suppress_prefixlen", "goto", "action",
)  # fmt: skip


def _route(entry: Entry) -> list[str]:
    words = [_word(entry["type"])] if entry.get("type", "unicast") != "unicast" else []
    words += [_word(entry["dst"]), *_hop(entry), *_pairs(entry, _OF_ROUTE)]
    words += [word for metric in entry.get("metrics") or () for word in _pairs(metric, {"mtu": "mtu"})]
    for hop in entry.get("nexthops") or ():
        words += ["nexthop", *_hop(hop), *_pairs(hop, {"weight": "weight"})]
    return [" ".join(words)]


_OF_ROUTE = {
    "table": "table",
    "protocol": "proto",
    "scope": "scope",
    "prefsrc": "src",
    "metric": "metric",
    "from": "from",
    "nhid": "nhid",
}


def _hop(entry: Entry) -> list[str]:
    via = entry.get("via")
    if via:  # a gateway of another family
        return ["via", _word(via["family"]), _word(via["host"])]
    onlink = ["onlink"] if "onlink" in (entry.get("flags") or ()) else []
    return [*_pairs(entry, {"gateway": "via", "dev": "dev"}), *onlink]


def _neighbour(entry: Entry) -> list[str]:
    proxy = ["proxy"] if "proxy" in entry else []
    words = [_word(entry["dst"]), *_pairs(entry, {"dev": "dev", "lladdr": "lladdr"}), *proxy, *map(_word, entry["state"])]
    return [" ".join(words)]


# Of a VLAN, a VRF and a tunnel, whose addresses of IPv6 have names of their own.
_OF_KIND = {
    "id": "id", "table": "table", "link": "dev", "local": "local", "local6": "local", "remote": "remote", "remote6": "remote",
}  # fmt: skip


def _link(entry: Entry) -> t.Iterator[str]:
    lower = f"if{_word(entry['link_index'])}" if "link_index" in entry else entry.get("link")
    name = _word(entry["ifname"]) + (f"@{_word(lower)}" if lower else "")
    flags = ",".join(map(_word, entry.get("flags") or ()))
    words = _pairs(entry, {"mtu": "mtu", "qdisc": "qdisc", "master": "master"})
    yield " ".join([f"{_word(entry.get('ifindex', 0))}: {name}: <{flags}>", *words])
    kind, address = entry.get("link_type"), entry.get("address")
    if kind:
        namespace = {"link_netns": "link-netns", "link_netnsid": "link-netnsid"}
        yield " ".join([f"link/{_word(kind)}", *([_word(address)] if address else []), *_pairs(entry, namespace)])
    about = entry.get("linkinfo") or {}
    if about.get("info_kind") in ip_text.KINDS:
        yield " ".join([_word(about["info_kind"]), *_pairs(about.get("info_data") or {}, _OF_KIND)])
    port = about.get("info_slave_data") or {}
    if about.get("info_slave_kind") == "bridge":
        yield " ".join(
            ["bridge_slave", *(f"{key} {'on' if port[key] is True else 'off'}" for key in ip_text.PORT_SETTINGS if key in port)]
        )
    for address in entry.get("addr_info") or ():
        yield from _address(address)


def _address(entry: Entry) -> t.Iterator[str]:
    if entry.get("family") not in _FAMILIES:  # an empty object, for an address that a filter left out
        return
    length = _word(entry["prefixlen"])
    far = entry.get("address")
    host = _word(entry["local"])
    place = f"{host} peer {_word(far)}/{length}" if far else f"{host}/{length}"
    flags = [flag for flag in ip_text.ADDRESS_FLAGS if entry.get(flag) is True]
    yield " ".join([entry["family"], place, *_pairs(entry, {"scope": "scope"}), *flags])


def _settings(entry: Entry) -> t.Iterator[str]:
    """Yield the settings of a link, as ``ip netconf`` has them."""
    family, link = _FAMILIES.get(str(entry.get("family"))), _word(entry["interface"]).replace(".", "/")
    for key in _SETTINGS:
        if family is None or key not in entry:
            continue
        value = _RP_FILTER[entry[key]] if key == "rp_filter" else str(int(entry[key] is True))
        yield f"net.{family}.conf.{link}.{_PROXY[family] if key == 'proxy_neigh' else key} = {value}"
        if (family, link, key) == ("ipv4", "all", "forwarding"):
            yield f"net.ipv4.ip_forward = {value}"  # another name of the same setting (net/ipv4/devinet.c)


_READERS: dict[str, t.Callable[[Entry], t.Iterable[str]]] = {
    commands.LINK: _link,
    commands.NEIGHBOUR: _neighbour,
    commands.ROUTE: _route,
    commands.RULE: _rule,
    commands.SYSCTL: _settings,
}
