# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The entries of a snapshot as values. A text that an entry lacks is empty."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from .._core.errors import Invalid
from .._routing import rt_names
from .._routing import rule as policy_rule

Entry = t.Mapping[str, t.Any]
Value = t.TypeVar("Value")
MAIN = str(rt_names.MAIN)
# By which a rule may select, besides the source.
_SELECTORS = ("to", "fwmark", "iif", "oif", "ipproto", "sport", "dport", "not", "tos", "uidrange", "l3mdev", "unread")


def entries(snapshot: Entry, subset: str) -> list[Entry]:
    """Return the entries of a subset; empty if it was not read. Raises Invalid if it is no list of dictionaries."""
    value = snapshot.get(subset)
    if value is None:
        return []
    if not isinstance(value, list) or not all(issubclass(kind, dict) for kind in {*map(type, value)}):
        raise Invalid(f"snapshot.{subset}", value, "a list of dictionaries, as datapath_info returns it")
    return value


# As the kernel and udev name network interfaces (systemd.net-naming-scheme(7)). The node's end of a pod's veth has no such name.
_INTERFACE_NAME = re.compile(r"eth\d+|en[opsx]\w+")


def has_interface_name(link: str) -> bool:
    """Return whether a link has the name of a network interface, which no bridge of pods has."""
    return bool(_INTERFACE_NAME.fullmatch(link))


def is_host(prefix: str) -> bool:
    """Return whether a prefix is that of one address."""
    try:
        return ipaddress.ip_network(prefix, strict=False).num_addresses == 1
    except ValueError:
        return False


def of_texts(kind: t.Callable[..., Value], entry: Entry) -> Value:
    """Return a value all of whose fields are texts that the entry has under the same names."""
    return kind(*(str(entry.get(name) or "") for name in kind._fields))  # type: ignore[attr-defined]


class Peer(t.NamedTuple):
    """The other end of a veth, in the network namespace that the kernel names. mtu: 0 if it is not known."""

    namespace: str = ""
    name: str = ""
    mac: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int = 0
    flags: tuple[str, ...] = ()

    @classmethod
    def of(cls, plain: Entry) -> Peer:
        addresses, flags = (tuple(map(str, plain.get(name) or ())) for name in ("addresses", "flags"))
        return of_texts(cls, plain)._replace(addresses=addresses, flags=flags, mtu=int(plain.get("mtu") or 0))

    @property
    def is_down(self) -> bool:
        return bool(self.flags) and "UP" not in self.flags


class Link(t.NamedTuple):
    """mtu: 0 if it is not known. parent: the link below. local, remote: the addresses of a tunnel.

    addresses: without the lengths of their networks. plain: the entry.
    """

    name: str = ""
    kind: str = ""
    mac: str = ""
    master: str = ""
    parent: str = ""
    local: str = ""
    remote: str = ""
    mtu: int = 0
    flags: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    peer: Peer = Peer()
    plain: Entry = {}

    @classmethod
    def of(cls, plain: Entry) -> Link:
        addresses = tuple(str(entry.get("address")).partition("/")[0] for entry in plain.get("addresses") or ())
        flags, mtu = tuple(plain.get("flags") or ()), int(plain.get("mtu") or 0)
        return of_texts(cls, plain)._replace(
            mtu=mtu, flags=flags, addresses=addresses, peer=Peer.of(plain.get("peer") or {}), plain=plain
        )

    def of_family(self, family: str, *scopes: str) -> list[str]:
        """Return its addresses without link-local ones. family: ipv4 or ipv6. scopes: of the addresses; empty for any."""
        listed = (entry for entry in self.plain.get("addresses") or () if not scopes or (entry.get("scope") or "") in scopes)
        parsed = (_interface(str(entry.get("address"))) for entry in listed)
        return [str(each.ip) for each in parsed if each and f"ipv{each.version}" == family and not each.ip.is_link_local]

    @property
    def is_isolated(self) -> bool:
        """Return whether a bridge passes no frame from this port to another such port."""
        return bool((self.plain.get("settings") or {}).get("isolated"))


def _interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        return None


class PolicyRule(t.NamedTuple):
    """source: a prefix, empty for any. has_further: whether it selects by more, or uses some routes of its table alone."""

    family: str
    priority: int
    source: str
    to: str
    fwmark: str
    iif: str
    table: str
    action: str
    protocol: str
    has_further: bool
    plain: Entry

    @classmethod
    def of(cls, plain: Entry) -> PolicyRule:
        has_further = any(map(plain.get, _SELECTORS)) or plain.get("suppress_prefixlength") is not None
        texts = of_texts(cls, {**plain, "source": plain.get("from"), "family": plain.get("family") or "ipv4"})
        return texts._replace(priority=int(plain["priority"]), has_further=has_further, plain=plain)

    @property
    def is_inverted(self) -> bool:
        """Return whether it selects what does not fit."""
        return bool(self.plain.get("not"))

    @property
    def pod(self) -> str:
        """Return the source address of a rule of a pod."""
        return self.source.partition("/")[0]

    def __str__(self) -> str:
        """Show the rule as ``ip rule`` prints it. Raises Invalid."""
        options = {name: value for name, value in self.plain.items() if name not in ("protocol", "unread")}
        # No option may have the priority 0, which the kernel gives to its rule for table local.
        parsed = policy_rule.from_options("snapshot.rules", {**options, "priority": 1}, rt_names.TABLES)
        words = str(parsed._replace(priority=self.priority)).partition(" rule ")[2]
        return " ".join([words, *map(str, self.plain.get("unread") or ())])


class Route(t.NamedTuple):
    family: str
    to: str
    via: str
    dev: str
    table: str
    protocol: str
    metric: str
    plain: Entry

    @classmethod
    def of(cls, plain: Entry) -> Route:
        named = {**plain, "family": plain.get("family") or "ipv4", "table": plain.get("table") or MAIN}
        return of_texts(cls, named)._replace(plain=plain)

    @property
    def mtu(self) -> int:
        """Return the size of the largest packets that it leads; 0 if its link decides."""
        return int(self.plain.get("mtu") or 0)

    @property
    def is_onlink(self) -> bool:
        """Return whether its gateway is taken to be on the link, whatever networks the link has."""
        return bool(self.plain.get("onlink"))

    @property
    def is_unreachable(self) -> bool:
        return self.plain.get("type") == "unreachable"

    @property
    def is_blocking(self) -> bool:
        """Return whether its type stops packets."""
        return self.plain.get("type") in ("unreachable", "blackhole", "prohibit")

    @property
    def address(self) -> str:
        """Return the first address of the destination."""
        return self.to.partition("/")[0]

    def __str__(self) -> str:
        """Show the route as ``ip route`` prints it."""
        table = "" if self.table == MAIN else self.table
        protocol = "" if self.protocol == "boot" else self.protocol
        words = {"via": self.via, "dev": self.dev, "table": table, "proto": protocol, "metric": self.metric}
        return " ".join([self.to, *(f"{name} {value}" for name, value in words.items() if value)])


class SavedTable(t.NamedTuple):
    """A table of iptables as iptables-save prints it. backend: nft or legacy."""

    family: str
    table: str
    backend: str
    save: str


class FrameChain(t.NamedTuple):
    """A chain of ebtables. rules: without the name of the chain."""

    table: str
    chain: str
    backend: str
    policy: str
    rules: tuple[str, ...] = ()

    @classmethod
    def of(cls, plain: Entry) -> FrameChain:
        return of_texts(cls, plain)._replace(rules=tuple(map(str, plain.get("rules") or ())))


class Neighbour(t.NamedTuple):
    address: str
    dev: str
    mac: str
    state: str

    @property
    def is_counted(self) -> bool:
        """Return whether it counts for gc_thresh3: no permanent entry, nor one of another program (net/core/neighbour.c)."""
        return self.state not in ("PERMANENT", "PROXY")


class PodNeighbour(t.NamedTuple):
    """A permanent neighbour of a pod. link: the node's end of the pod's link."""

    link: str
    address: str
    mac: str


class Program(t.NamedTuple):
    """A BPF program of a link."""

    link: str
    hook: str
    direction: str
    name: str


class Listener(t.NamedTuple):
    address: str
    port: str


class Unit(t.NamedTuple):
    """is_enabled: empty if it is not."""

    name: str
    is_enabled: str
    active: str
    sub: str
    result: str
    job: str


class Daemons(t.NamedTuple):
    """active: names of network daemons. managed: links that systemd-networkd configures. version: of it."""

    active: tuple[str, ...]
    managed: frozenset[str]
    version: int | None

    @classmethod
    def of(cls, plain: Entry) -> Daemons:
        active = tuple(name for name, is_active in plain["daemons"].items() if is_active)
        return cls(active, frozenset(plain["networkd_files"]), int(plain.get("networkd_version") or 0) or None)


class Firewall(t.NamedTuple):
    """A service that loads a ruleset. is_masked: None if that was not read. flushes: whether its file flushes all tables."""

    is_active: bool
    is_enabled: bool
    is_masked: bool | None
    flushes: bool
    file: str
    settings: Entry

    @classmethod
    def of(cls, plain: Entry) -> Firewall:
        is_active, is_enabled, flushes = (bool(plain.get(name)) for name in ("is_active", "is_enabled", "flushes"))
        return cls(is_active, is_enabled, plain.get("is_masked"), flushes, str(plain.get("file")), plain)


class BootSetting(t.NamedTuple):
    """What the next boot sets. value: None for a key that a line exempts from patterns."""

    value: int | None
    file: str


def links(snapshot: Entry) -> list[Link]:
    return [*map(Link.of, entries(snapshot, "links"))]


def rules(snapshot: Entry) -> list[PolicyRule]:
    return [*map(PolicyRule.of, entries(snapshot, "rules"))]


def routes(snapshot: Entry) -> list[Route]:
    return [*map(Route.of, entries(snapshot, "routes"))]


def saved_tables(snapshot: Entry) -> list[SavedTable]:
    return [of_texts(SavedTable, entry) for entry in entries(snapshot, "iptables")]


def frame_chains(snapshot: Entry) -> list[FrameChain]:
    return [*map(FrameChain.of, entries(snapshot, "ebtables"))]


def neighbours(snapshot: Entry) -> list[Neighbour]:
    return [of_texts(Neighbour, entry) for entry in entries(snapshot, "neighbors")]
