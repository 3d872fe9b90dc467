# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Links, rules, routes and neighbours as plain data, under the names that the options of the modules have."""

from __future__ import annotations

import sys
import typing as t

from .._core import fields
from .._interfaces import link_message
from .._interfaces.interface import Interface
from .._interfaces.link_message import IFINFO, IFLA_LINKINFO, IFLA_MTU, INFO_DATA, INFO_SLAVE_DATA, INFO_SLAVE_KIND, Address, Link
from .._netlink.attributes import attributes, text, u32
from .._routing import rt_names
from .._routing.neighbour import HEADER, NDA_DST, NDA_LLADDR, STATES, Neighbour
from .._routing.route import SCOPES, UNREAD_TYPE, Route
from .._routing.rule import Rule

# include/uapi/linux/if_link.h, if.h, if_addr.h
IFLA_LINK, IFLA_QDISC, IFLA_LINK_NETNSID = 5, 6, 37
FLAGS = (
    "UP", "BROADCAST", "DEBUG", "LOOPBACK", "POINTOPOINT", "NOTRAILERS", "RUNNING", "NOARP", "PROMISC", "ALLMULTI", "MASTER",
    "SLAVE", "MULTICAST", "PORTSEL", "AUTOMEDIA", "DYNAMIC", "LOWER_UP", "DORMANT", "ECHO",
)  # fmt: skip
ADDRESS_FLAGS = (
    "secondary", "nodad", "optimistic", "dadfailed", "homeaddress", "deprecated", "tentative", "permanent", "mngtmpaddr",
    "noprefixroute", "autojoin", "stable-privacy",
)  # fmt: skip
# Settings that decide where a packet goes, by kind, and by attribute of IFLA_INFO_DATA.
SETTINGS: dict[str, dict[int, str]] = {
    "bond": {1: "mode"},
    "bridge": {
        5: "stp_state", 7: "vlan_filtering", 9: "group_fwd_mask", 22: "mcast_router", 23: "mcast_snooping",
        36: "nf_call_iptables", 37: "nf_call_ip6tables", 38: "nf_call_arptables",
    },
    "ipvlan": {1: "mode", 2: "flags"},
    "macvlan": {1: "mode"},
    "vlan": {1: "id"},
    "vrf": {1: "table"},
    "vxlan": {7: "learning", 11: "proxy", 13: "l2miss", 14: "l3miss", 25: "external"},
}  # fmt: skip
# The same settings of a bridge's port, in IFLA_INFO_SLAVE_DATA.
PORT_SETTINGS = {
    1: "state", 4: "hairpin", 5: "guard", 6: "root_block", 8: "learning", 9: "unicast_flood", 10: "proxy_arp",
    12: "proxy_arp_wifi", 27: "mcast_flood", 28: "mcast_to_unicast", 30: "bcast_flood", 32: "neigh_suppress", 33: "isolated",
}  # fmt: skip
# Of tunnels, by kind: the attributes of the link that carries it, and of its local and remote address in either family.
_OF_GRE, _OF_IP = ((1,), (6,), (7,)), ((1,), (2,), (3,))
TUNNELS = {
    **dict.fromkeys(("gre", "gretap", "ip6gre", "ip6gretap"), _OF_GRE), **dict.fromkeys(("ipip", "sit", "ip6tnl"), _OF_IP),
    "geneve": ((), (), (2, 7)), "vxlan": ((3,), (4, 17), (2, 16)),
}  # fmt: skip
_PORTS = {"geneve": 5, "vxlan": 15}  # by kind, the attribute of the port of UDP
# Kinds without such settings: hardware, and these.
PLAIN = ("", "dummy", "ifb", "tun", "veth")
VETH = "veth"


class Lower(t.NamedTuple):
    """The link that IFLA_LINK names: the other end of a veth, or the link below.

    number: its index, 0 for none. namespace: the number of its network namespace, None for the link's own.
    """

    number: int
    namespace: int | None


def lower(link: Link) -> Lower:
    values = attributes(link.body, IFINFO.size)
    return Lower(u32(values, IFLA_LINK), u32(values, IFLA_LINK_NETNSID) if IFLA_LINK_NETNSID in values else None)


def peer(link: Link, interfaces: t.Mapping[tuple[str, int], Interface], namespaces: t.Mapping[int, str]) -> Interface | None:
    """Return the other end of a veth; None if it was not found.

    interfaces: by the name of the namespace and the index. namespaces: the names of those of other ends, by the link's index.
    """
    number, namespace = lower(link)
    name = "" if namespace is None else namespaces.get(link.number)
    return None if name is None else interfaces.get((name, number))


def link(link: Link, names: t.Mapping[int, str], addresses: t.Iterable[Address], other: Interface | None) -> dict[str, t.Any]:
    """Return a link as plain data.

    names: the node's links by index. addresses: those of the link. other: the other end of a veth.
    """
    _family, hardware, _index, flags, _change = IFINFO.unpack_from(link.body)
    values = attributes(link.body, IFINFO.size)
    number, namespace = lower(link)
    is_upper = link.kind != VETH and namespace is None
    return {
        "name": link.name,
        "index": link.number,
        "kind": link.kind,
        "type": hardware,
        "mac": link.mac.hex(":"),
        "mtu": u32(values, IFLA_MTU),
        "qdisc": text(values, IFLA_QDISC),
        "flags": _flags(flags, FLAGS),
        "master": names.get(link.master, ""),
        "parent": names.get(number, "") if is_upper else "",
        "peer": _peer(other) if other else None,
        "settings": _settings(values, link.kind),
        **_tunnel(values, link.kind, names),
        "addresses": [address(each) for each in addresses],
    }


def is_read_in_full(link: Link) -> bool:
    """Return False for a kind with settings that are not in its entry, such as the ends of a tunnel."""
    return link.kind in PLAIN or (link.kind in SETTINGS and link.kind not in TUNNELS)


def forwarding(body: bytes) -> tuple[int, dict[str, str]]:
    """Return the index of a link, and the tunnel's end to which it sends frames for a MAC address; empty for that of a bridge."""
    values, index = attributes(body, HEADER.size), HEADER.unpack_from(body)[1]
    if NDA_DST not in values or NDA_LLADDR not in values:
        return index, {}
    return index, {"mac": values[NDA_LLADDR].hex(":"), "dst": fields.show(values[NDA_DST])}


def _peer(other: Interface) -> dict[str, t.Any]:
    texts = {"namespace": other.namespace, "name": other.link, "mac": other.mac, "mtu": other.mtu}
    return {**texts, "flags": _flags(other.flags, FLAGS), "addresses": sorted(other.addresses)}


def _settings(values: t.Mapping[int, bytes], kind: str) -> dict[str, int]:
    info = attributes(values.get(IFLA_LINKINFO, b""))
    settings = _numbers(attributes(info.get(INFO_DATA, b"")), SETTINGS.get(kind, {}))
    if text(info, INFO_SLAVE_KIND) == "bridge":
        settings.update(_numbers(attributes(info.get(INFO_SLAVE_DATA, b"")), PORT_SETTINGS))
    return settings


def _tunnel(values: t.Mapping[int, bytes], kind: str, names: t.Mapping[int, str]) -> dict[str, t.Any]:
    """Return the link that carries a tunnel, its addresses and its port, as far as it has any; nothing for another link."""
    data = attributes(attributes(values.get(IFLA_LINKINFO, b"")).get(INFO_DATA, b""))
    present = [[data[number] for number in numbers if any(data.get(number, b""))] for numbers in TUNNELS.get(kind, ())]
    packed = {name: value[0] for name, value in zip(("parent", "local", "remote"), present) if value}
    carrier = names.get(int.from_bytes(packed.pop("parent", b""), sys.byteorder))
    port = {"port": int.from_bytes(data[_PORTS[kind]], "big")} if _PORTS.get(kind) in data else {}
    ends = {name: fields.show(address) for name, address in packed.items()}
    return {**({"parent": carrier} if carrier else {}), **ends, **port}


def _numbers(values: t.Mapping[int, bytes], names: t.Mapping[int, str]) -> dict[str, int]:
    return {name: int.from_bytes(values[kind], sys.byteorder) for kind, name in names.items() if kind in values}


def address(current: Address) -> dict[str, t.Any]:
    values = attributes(current.body, link_message.IFADDR.size)
    far = values.get(link_message.IFA_ADDRESS, current.local)
    return {
        "address": str(current),
        "peer": "" if far == current.local else fields.show(far),
        "scope": next((name for name, number in SCOPES.items() if number == current.scope), str(current.scope)),
        "flags": _flags(current.flags, ADDRESS_FLAGS),
    }


def _flags(bits: int, names: t.Sequence[str]) -> list[str]:
    """Return the names of the bits that are set, from the lowest on."""
    return [name for place, name in enumerate(names) if bits >> place & 1]


def rule(current: Rule, protocol: int) -> dict[str, t.Any]:
    return {**current.options(), "protocol": rt_names.protocol(protocol), **_unread(current.unread)}


def kernels_rules(family: str) -> list[dict[str, t.Any]]:
    """Return the rules that the kernel adds to a network namespace (net/ipv4/fib_rules.c, net/ipv6/fib6_rules.c)."""
    tables = {0: "255", 32766: "254", **({32767: "253"} if family == "ipv4" else {})}
    return [{"priority": priority, "family": family, "table": table, "protocol": "kernel"} for priority, table in tables.items()]


def with_kernels_rules(rules: t.Iterable[t.Mapping[str, t.Any]], family: str) -> list[t.Mapping[str, t.Any]]:
    """Return the rules with those of the kernel for a family whose priorities are free, in order."""
    present = list(rules)
    taken = {int(entry["priority"]) for entry in present if entry.get("family") == family}
    added = (entry for entry in kernels_rules(family) if entry["priority"] not in taken)
    return sorted([*present, *added], key=lambda entry: int(entry["priority"]))


def route(current: Route, protocol: int) -> dict[str, t.Any]:
    tos, source, length = current.beside
    beside = {"tos": tos, "from": fields.show_prefix((source, length), "") if source else ""}
    extras = {name: value for name, value in beside.items() if value}
    return {**current.options(), "protocol": rt_names.protocol(protocol), **extras, **_unread(unread(current))}


def unread(current: Route) -> list[str]:
    """Return the names of the attributes that an entry lacks. It has the type of each route."""
    return [name for name in current.unread if name != UNREAD_TYPE]


def neighbour(current: Neighbour) -> dict[str, t.Any]:
    state = STATES.get(current.state, str(current.state))
    return {"address": current.address, "dev": current.link, "mac": current.mac, "state": state}


def proxy(body: bytes, links: t.Mapping[int, str]) -> dict[str, t.Any]:
    """Return an address for which the node answers on a link. links: names by index."""
    values = attributes(body, HEADER.size)
    dev = links.get(HEADER.unpack_from(body)[1], "")
    return {"address": fields.show(values[NDA_DST]), "dev": dev, "mac": "", "state": "PROXY"}


def _unread(names: t.Sequence[str]) -> dict[str, t.Any]:
    return {"unread": list(names)} if names else {}
