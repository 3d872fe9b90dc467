# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The entries of a snapshot as values. A text that an entry lacks is empty."""

from __future__ import annotations

import ipaddress
import operator
import re
import typing as t
from functools import lru_cache, partial

from .._bpf.instructions import OWN_PROGRAMS
from .._core import memo
from .._core.errors import Invalid
from .._routing import route as routing
from .._routing import rt_names
from .._routing import rule as policy_rule
from .._ruleset import generated, iptables_save, observed
from .._ruleset.generated import Generated
from .._ruleset.ruleset import BaseChain, Table
from .assumption import Assumption
from .entries import kernels_rules, with_kernels_rules
from .evidence import Evidence
from .open_facts import OpenFact
from .settings import FAMILIES, Settings
from .snapshot import Unread

Entry = t.Mapping[str, t.Any]
Value = t.TypeVar("Value")
Network = t.Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
MAIN = str(rt_names.MAIN)
ETHERNET = 1  # a type of hardware (include/uapi/linux/if_arp.h)
# By which a rule may select, besides the source.
_SELECTORS = ("to", "fwmark", "iif", "oif", "ipproto", "sport", "dport", "not", "tos", "uidrange", "l3mdev", "unread")


def entries(snapshot: Entry, subset: str) -> list[Entry]:
    """Return the entries of a subset; empty if it was not read. Raises Invalid if it is no list of dictionaries."""
    value = snapshot.get(subset)
    if value is None:
        return []
    if not isinstance(value, list) or not all(issubclass(kind, dict) for kind in {*map(type, value)}):
        raise Invalid(f"snapshot.{subset}", value, "a list of dictionaries, as a snapshot has it")
    return value


# As the kernel and udev name network interfaces (systemd.net-naming-scheme(7)). The node's end of a pod's veth has no such name.
_INTERFACE_NAME = re.compile(r"eth\d+|en[opsx]\w+")


def has_interface_name(link: str) -> bool:
    """Return whether a link has the name of a network interface, which no bridge of pods has."""
    return bool(_INTERFACE_NAME.fullmatch(link))


def network(prefix: str) -> Network | None:
    """Return a network; None for another word, such as the name of a set."""
    try:
        return ipaddress.ip_network(prefix, strict=False)
    except ValueError:
        return None


def holds(prefix: str | Network | None, address: str) -> bool:
    """Return whether an address is in a network; never for another text."""
    parsed, single = network(prefix) if isinstance(prefix, str) else prefix, network(address)
    return parsed is not None and single is not None and single.network_address in parsed


def is_host(prefix: str) -> bool:
    """Return whether a prefix is that of one address."""
    parsed = network(prefix)
    return parsed is not None and parsed.num_addresses == 1


def _texts(entry: Entry, name: str) -> tuple[str, ...]:
    return tuple(map(str, entry.get(name) or ()))


# How a field is read, by its type as it stands in a class.
_FIELDS: dict[str, t.Callable[[Entry, str], t.Any]] = {
    "str": lambda entry, name: str(entry.get(name) or ""),
    "int": lambda entry, name: int(entry.get(name) or 0),
    "bool": lambda entry, name: bool(entry.get(name)),
    "bool | None": lambda entry, name: entry.get(name),
    "tuple[str, ...]": _texts,
    "tuple[int, ...]": lambda entry, name: tuple(map(int, entry.get(name) or ())),
    "Entry": lambda entry, _name: entry,
}


@lru_cache
def _readers(kind: t.Any) -> list[tuple[str, t.Any]]:
    types = ((name, getattr(each, "__forward_arg__", each)) for name, each in kind.__annotations__.items())
    return [(name, _FIELDS.get(each)) for name, each in types]


def of_entry(kind: t.Callable[..., Value], entry: Entry, **further: t.Any) -> Value:
    """Return a value whose fields an entry has under the same names. further: fields that are read in another way."""
    return kind(*(further[name] if name in further else read(entry, name) for name, read in _readers(kind)))


class Address(t.NamedTuple):
    """An address of a link. address: with the length of its network, if it has one. peer: of the other end of a tunnel."""

    address: str
    peer: str = ""
    scope: str = ""
    flags: tuple[str, ...] = ()

    @classmethod
    def of_host(cls, address: str, scope: str = "global") -> Address:
        """Return an address with the length of a single host."""
        return cls(f"{address}/{128 if ':' in address else 32}", "", scope)

    @property
    def host(self) -> str:
        return self.address.partition("/")[0]

    @property
    def interface(self) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
        """Return the address with its network; None for a word that is none."""
        try:
            return ipaddress.ip_interface(self.address)
        except ValueError:
            return None

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.address

    @property
    def is_unusable(self) -> bool:
        """Return whether the kernel has the address, but takes no packets to it and sends none from it."""
        return self.is_ipv6 and not {*UNUSABLE}.isdisjoint(self.flags) and "optimistic" not in self.flags


# Duplicate address detection goes on, or found the address elsewhere: the kernel has no local route (net/ipv6/addrconf.c).
UNUSABLE = ("dadfailed", "tentative")


class Peer(t.NamedTuple):
    """The other end of a veth, in the network namespace that the kernel names. mtu: 0 if it is not known."""

    namespace: str = ""
    name: str = ""
    mac: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int = 0
    flags: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        return bool(self.flags) and "UP" not in self.flags


class Forwarding(t.NamedTuple):
    """An entry of the forwarding database of a tunnel. dst: the end to which it sends frames for a MAC address."""

    mac: str
    dst: str


class Link(t.NamedTuple):
    """mtu: 0 if it is not known. qdisc: the kind of that at its root. parent: the link below. local, remote, port: of a tunnel.

    addresses: without the lengths of their networks; address_info has all that belongs to them. number: its index, 0 if it is not
    known. hardware: of include/uapi/linux/if_arp.h. settings: of its kind, and of a port of a bridge. database: the entries of a
    VXLAN's forwarding database; None if they were not read. plain: the entry.
    """

    name: str = ""
    kind: str = ""
    mac: str = ""
    master: str = ""
    parent: str = ""
    local: str = ""
    remote: str = ""
    port: str = ""
    mtu: int = 0
    qdisc: str = ""
    flags: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    peer: Peer = Peer()
    address_info: tuple[Address, ...] = ()
    number: int = 0
    hardware: int = ETHERNET
    settings: t.Mapping[str, t.Any] = {}
    database: tuple[Forwarding, ...] | None = None
    plain: Entry = {}

    @classmethod
    def of(cls, plain: Entry) -> Link:
        address_info = tuple(of_entry(Address, each) for each in plain.get("addresses") or ())
        number, hardware, database = plain.get("index"), plain.get("type", ETHERNET), plain.get("fdb")
        return of_entry(
            cls,
            plain,
            addresses=tuple(each.host for each in address_info),
            peer=of_entry(Peer, plain.get("peer") or {}),
            address_info=address_info,
            number=number if isinstance(number, int) else 0,
            hardware=hardware if isinstance(hardware, int) else 0,
            settings=plain.get("settings") or {},
            database=None if database is None else tuple(of_entry(Forwarding, each) for each in database),
        )

    @property
    def is_up(self) -> bool:
        return "UP" in self.flags

    def with_address(self, address: Address) -> Link:
        return Link.of({**self.plain, "addresses": [*(self.plain.get("addresses") or ()), address._asdict()]})

    def with_setting(self, name: str, value: int) -> Link:
        return Link.of({**self.plain, "settings": {**self.settings, name: value}})

    def of_family(self, family: str, *scopes: str) -> list[str]:
        """Return its addresses without link-local ones. family: ipv4 or ipv6. scopes: of the addresses; empty for any."""
        parsed = (each.interface for each in self.address_info if not scopes or each.scope in scopes)
        return [str(each.ip) for each in parsed if each and f"ipv{each.version}" == family and not each.ip.is_link_local]

    @property
    def is_isolated(self) -> bool:
        """Return whether a bridge passes no frame from this port to another such port."""
        return bool(self.settings.get("isolated"))


def new_link(name: str, kind: str = "", peer: Peer | None = None) -> Link:
    """Return a link that is up and has no address."""
    other = {"peer": {"namespace": peer.namespace, "name": peer.name, "mac": "", "addresses": [*peer.addresses]}} if peer else {}
    return Link.of({"name": name, "kind": kind, "flags": ["UP", "LOWER_UP"], "addresses": [], **other})


class PolicyRule(t.NamedTuple):
    """source: a prefix, empty for any. has_further: whether it selects by more, or uses some routes of its table alone.

    unread: names of attributes that were not read.
    """

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
    unread: tuple[str, ...]
    plain: Entry

    @classmethod
    def of(cls, plain: Entry) -> PolicyRule:
        has_further = any(map(plain.get, _SELECTORS)) or plain.get("suppress_prefixlength") is not None
        source, family = str(plain.get("from") or ""), _family(plain, "from", "to")
        return of_entry(cls, plain, source=source, family=family, has_further=has_further)

    @property
    def is_inverted(self) -> bool:
        """Return whether it selects what does not fit."""
        return bool(self.plain.get("not"))

    @property
    def pod(self) -> str:
        """Return the source address of a rule of a pod."""
        return self.source.partition("/")[0]

    @property
    def is_of_own_addresses(self) -> bool:
        """Return whether it is the kernel's rule for table local."""
        return not self.priority and self.table in (str(rt_names.TABLES["local"]), "local")

    def parsed(self, option: str, priority: int | None = None) -> policy_rule.Rule:
        """Return what the rule does; one with attributes that were not read equals no other. Raises Invalid.

        option: names the entry. priority: another one.
        """
        given = {name: value for name, value in self.plain.items() if name not in ("protocol", "unread")}
        given |= {} if priority is None else {"priority": priority}
        return policy_rule.from_options(option, given, rt_names.TABLES)._replace(opaque=b"unread" if self.unread else b"")

    def __str__(self) -> str:
        """Show the rule as ``ip rule`` prints it. Raises Invalid."""
        # No option may have the priority 0, which the kernel gives to its rule for table local.
        parsed = self.parsed("snapshot.rules", priority=1)._replace(priority=self.priority, opaque=b"")
        words = str(parsed).partition(" rule ")[2]
        return " ".join([words, *self.unread])


def _family(plain: Entry, *keys: str) -> str:
    """Return the family of a rule or a route: that of its addresses if it names none."""
    return str(plain.get("family") or ("ipv6" if any(":" in str(plain.get(key)) for key in keys) else "ipv4"))


class Hop(t.NamedTuple):
    via: str
    dev: str


class Route(t.NamedTuple):
    """type: empty for unicast. hops: the next hops, also a single one. mtu: of the largest packets; 0 if the link decides.

    unread: names of attributes that were not read, or that no route of a twin has.
    """

    family: str
    to: str
    via: str
    dev: str
    table: str
    protocol: str
    metric: str
    type: str
    src: str
    mtu: int
    hops: tuple[Hop, ...]
    unread: tuple[str, ...]
    plain: Entry

    @classmethod
    def of(cls, plain: Entry) -> Route:
        hops = tuple(of_entry(Hop, hop) for hop in (plain, *(plain.get("nexthops") or ())))
        unread = (*_texts(plain, "unread"), *(name for name in ("tos", "from") if plain.get(name)))
        family, table = _family(plain, "to", "via"), str(plain.get("table") or MAIN)
        return of_entry(cls, plain, family=family, table=table, hops=hops, unread=unread)

    def parsed(self, option: str) -> routing.Route:
        """Return where the route leads. Raises Invalid, with the option that names the entry."""
        left_out = ("protocol", "unread", "tos", "from", *(["scope"] if self.family == "ipv6" else []))
        given = {name: value for name, value in self.plain.items() if name not in left_out}
        return routing.from_options(option, given, rt_names.TABLES)._replace(unread=tuple(sorted(self.unread)))

    @property
    def is_onlink(self) -> bool:
        """Return whether its gateway is taken to be on the link, whatever networks the link has."""
        return bool(self.plain.get("onlink"))

    @property
    def is_unreachable(self) -> bool:
        return self.type == "unreachable"

    @property
    def is_blocking(self) -> bool:
        """Return whether its type stops packets."""
        return self.type in ("unreachable", "blackhole", "prohibit")

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


def link_route(family: str, to: str, dev: str, table: str = MAIN, protocol: str = "") -> Route:
    """Return a route by a link without a gateway."""
    return Route.of({"table": table, "family": family, "to": to, "dev": dev, "scope": "link", "protocol": protocol})


class SavedTable(t.NamedTuple):
    """A table of iptables as iptables-save prints it. backend: nft or legacy."""

    family: str
    table: str
    backend: str
    save: str
    plain: Entry = {}

    def read(self) -> Table:
        return iptables_save.read(self.family, self.table, self.save, self.backend)

    def with_rules(self, rules: t.Sequence[str], is_first: bool = True) -> SavedTable:
        """Return the table with rules before all others, or behind them. rules: with ``-A`` and their chain."""
        return self._changed(iptables_save.with_rules(self.save, rules, is_first))

    def with_policy(self, chain: str, policy: str) -> SavedTable:
        return self._changed(iptables_save.with_policy(self.save, chain, policy))

    def _changed(self, save: str) -> SavedTable:
        place = {"family": self.family, "table": self.table, "backend": self.backend}
        return of_entry(SavedTable, {**place, **self.plain, "save": save})


class SavedSet(t.NamedTuple):
    """An ipset as ``ipset save`` prints it."""

    name: str
    save: str

    @property
    def dimensions(self) -> list[str]:
        """Return what its elements consist of, such as ip and port; an address if that is not known."""
        kind = self.save.split(" ")[2:3]
        return kind[0].partition(":")[2].strip().split(",") if kind else ["ip"]


class FrameChain(t.NamedTuple):
    """A chain of ebtables. rules: without the name of the chain."""

    table: str
    chain: str
    backend: str
    policy: str
    rules: tuple[str, ...] = ()


class Neighbour(t.NamedTuple):
    address: str
    dev: str
    mac: str
    state: str

    @property
    def is_counted(self) -> bool:
        """Return whether it counts for gc_thresh3: no permanent entry, nor one of another program (net/core/neighbour.c)."""
        return self.state not in ("PERMANENT", "PROXY")

    @property
    def is_failed(self) -> bool:
        """Return whether it does not answer, or has not answered yet."""
        return self.state in ("FAILED", "INCOMPLETE")


class Destination(t.NamedTuple):
    """An endpoint of a virtual server."""

    address: str
    port: str
    weight: str


class VirtualServer(t.NamedTuple):
    """A server of IPVS. fwmark: of one that is for marked packets, which has no address."""

    address: str
    protocol: str
    port: str
    fwmark: str
    scheduler: str
    destinations: tuple[Destination, ...]
    plain: Entry

    @property
    def end(self) -> tuple[str, str, int]:
        """Return its address, protocol and port; 0 for a server of marked packets."""
        return self.address, self.protocol, int(self.port or 0)

    @classmethod
    def of(cls, plain: Entry) -> VirtualServer:
        ends = ({**end, "weight": str(end.get("weight", 1))} for end in plain.get("destinations") or ())
        return of_entry(cls, plain, destinations=tuple(of_entry(Destination, end) for end in ends))


class Pod(t.NamedTuple):
    """The side of a pod. namespace: its network namespace. addresses: None if they were not read. bridged: interfaces that are
    ports of a bridge there. netfilter: whether it has rules of netfilter.
    """

    namespace: str
    addresses: tuple[str, ...] | None
    bridged: frozenset[str]
    rules: t.Sequence[PolicyRule]
    routes: t.Sequence[Route]
    neighbours: t.Sequence[Neighbour]
    plain: Entry
    netfilter: bool = False

    @classmethod
    def of(cls, plain: Entry) -> Pod:
        addresses = None if plain.get("addresses") is None else _texts(plain, "addresses")
        side = {"rules": rules(plain), "routes": routes(plain), "neighbours": neighbours(plain)}
        return of_entry(cls, plain, addresses=addresses, bridged=frozenset(_texts(plain, "bridged")), **side)

    @classmethod
    def answering_by(cls, peer: Peer) -> Pod:
        """Return a pod whose only routes lead by one of its interfaces."""
        by_default = [link_route(family, "default", peer.name).plain for family in FAMILIES]
        return cls.of({"namespace": peer.namespace, "rules": kernels(), "routes": by_default})


class Record(t.NamedTuple):
    """The addresses that a match recent has noted under a name."""

    name: str
    addresses: tuple[str, ...]


class PodNeighbour(t.NamedTuple):
    """A permanent neighbour of a pod. link: the node's end of the pod's link."""

    link: str
    address: str
    mac: str


class TranslatedProbe(t.NamedTuple):
    source: str
    translated: str


class Program(t.NamedTuple):
    """A BPF program of a link. tag: by which the kernel knows its instructions, if it has the name of one of this collection.

    probes: that such a program translates.
    """

    link: str
    hook: str
    direction: str
    name: str
    tag: str = ""
    probes: tuple[TranslatedProbe, ...] = ()

    @classmethod
    def of(cls, plain: Entry) -> Program:
        return of_entry(cls, plain, probes=tuple(of_entry(TranslatedProbe, each) for each in plain.get("probes") or ()))

    @property
    def has_own_name(self) -> bool:
        """Return whether it has the name of a program of this collection."""
        return self.name.startswith(OWN_PROGRAMS)

    def __str__(self) -> str:
        return f"{self.name or 'unnamed'} ({self.hook} of {self.link})"


class Filter(t.NamedTuple):
    """A filter of traffic control. link, direction: ingress or egress. protocol: all, ip, ipv6 or a number.

    match: "all", empty if it was not read. action: drop, pass, or ``redirect LINK`` and ``mirror LINK``; empty if it was not
    read.
    """

    link: str
    direction: str
    kind: str
    protocol: str
    match: str
    action: str

    @property
    def target(self) -> str:
        return self.action.partition(" ")[2]

    def __str__(self) -> str:
        return f"tc filter dev {self.link} {self.direction}: {self.kind} {self.match or '?'} {self.action or '?'}"


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
    """active: names of network daemons. managed: links that systemd-networkd configures; None if that was not read. version: of
    it. is_whole: whether all daemons are known.
    """

    active: tuple[str, ...]
    managed: frozenset[str] | None
    version: int | None
    is_whole: bool

    @classmethod
    def of(cls, plain: Entry) -> Daemons:
        active = tuple(name for name, is_active in plain["daemons"].items() if is_active)
        managed = frozenset(plain["networkd_files"]) if plain.get("has_links", True) else None
        return cls(active, managed, int(plain.get("networkd_version") or 0) or None, not plain.get("is_partial"))


class Firewall(t.NamedTuple):
    """A service that loads a ruleset. is_enabled, is_masked: None if that was not read. flushes: whether its file flushes all
    tables.
    """

    is_active: bool
    is_enabled: bool | None
    is_masked: bool | None
    flushes: bool
    file: str
    settings: Entry


class BootSetting(t.NamedTuple):
    """What the next boot sets. value: None for a key that a line exempts from patterns."""

    value: int | None
    file: str


# How the entries of a subset are read. Those of others are in a snapshot as they are.
_CLASSES = {
    "iptables": SavedTable, "ebtables": FrameChain, "recent": Record, "evidence": Evidence, "neighbors": Neighbour,
    "ipsets": SavedSet, "filters": Filter, "unread": Unread,
}  # fmt: skip
_KINDS: dict[str, t.Callable[[Entry], t.Any]] = {
    "links": Link.of, "rules": PolicyRule.of, "routes": Route.of, "ipvs": VirtualServer.of, "pods": Pod.of,
    "bpf": Program.of,
    "open": OpenFact.from_plain, "assumed": Assumption.from_plain,
    **{subset: partial(of_entry, kind) for subset, kind in _CLASSES.items()},
}  # fmt: skip
_OPEN = ("rules", "routes", "recent", "open")  # subsets of which it matters whether they were read


@memo.of_part
def _read(listed: list[Entry], subset: str) -> list[t.Any]:
    """Read the entries of a subset once, in however many worlds it is the same."""
    return [*map(_KINDS[subset], listed)]


def read(snapshot: Entry, subset: str) -> list[t.Any]:
    """Return the values of a subset; empty if it was not read. Raises Invalid if it is no list of dictionaries."""
    return _read(entries(snapshot, subset), subset)


def links(snapshot: Entry) -> list[Link]:
    return read(snapshot, "links")


def rules(snapshot: Entry) -> list[PolicyRule]:
    return read(snapshot, "rules")


def routes(snapshot: Entry) -> list[Route]:
    return read(snapshot, "routes")


def saved_tables(snapshot: Entry) -> list[SavedTable]:
    return read(snapshot, "iptables")


def frame_chains(snapshot: Entry) -> list[FrameChain]:
    return read(snapshot, "ebtables")


def neighbours(snapshot: Entry) -> list[Neighbour]:
    return read(snapshot, "neighbors")


def settings(snapshot: Entry) -> Settings:
    return Settings(snapshot.get("settings") or {})


def pods(snapshot: Entry) -> list[Pod]:
    return read(snapshot, "pods")


def kernels() -> list[Entry]:
    """Return the rules of a new network namespace."""
    return [rule for family in FAMILIES for rule in kernels_rules(family)]


class Snapshot(t.NamedTuple):
    """A snapshot as values, from which a twin is built. A world is another one. A part that is None was not read.

    nftables, nftables_text: the ruleset of nft, which is loaded as it was listed. generated: what the text lacks. base_chains:
    those that a world has besides.
    recorded: names of records of the match recent that have the packet's source in a world. plain: as datapath_info returns it,
    without what a world changes.
    """

    links: t.Sequence[Link]
    neighbors: t.Sequence[Neighbour]
    rules: t.Sequence[PolicyRule] | None
    routes: t.Sequence[Route] | None
    settings: Settings
    iptables: t.Sequence[SavedTable]
    ebtables: t.Sequence[FrameChain]
    nftables: list[Entry]
    nftables_text: str
    generated: Generated | None
    ipsets: t.Sequence[SavedSet]
    ipvs: t.Sequence[VirtualServer]
    bpf: t.Sequence[Program]
    filters: t.Sequence[Filter]
    recent: t.Sequence[Record] | None
    recorded: tuple[str, ...]
    pods: t.Sequence[Pod]
    open: t.Sequence[OpenFact] | None
    assumed: t.Sequence[Assumption]
    evidence: t.Sequence[Evidence]
    unread: t.Sequence[Unread]
    base_chains: tuple[BaseChain, ...]
    plain: Entry

    @classmethod
    def of(cls, plain: Entry) -> Snapshot:
        """Read a snapshot whose form was checked. Raises Invalid if a subset is no list of dictionaries."""
        is_open = {subset for subset in _OPEN if plain.get(subset) is None}
        parts: dict[str, t.Any] = {subset: None if subset in is_open else read(plain, subset) for subset in _KINDS}
        parts |= {"nftables": entries(plain, "nftables"), "settings": settings(plain), "base_chains": ()}
        parts |= {"generated": generated.of(plain)}
        return of_entry(cls, plain, **parts)

    @property
    def ruleset_text(self) -> str:
        return "\n".join([self.nftables_text, *map(str, self.base_chains)])

    def tables(self) -> list[Table]:
        """Return the tables of iptables and of nft as values."""
        return [*(each.read() for each in self.iptables), *observed.of_nft(self.plain)]

    def world(self) -> dict[str, t.Any]:
        """Return the snapshot as datapath_info would return it of the world."""
        parts = {"links": self.links, "rules": self.rules, "routes": self.routes, "iptables": self.iptables, "pods": self.pods}
        of_lists = {name: self._listed(name, part) for name, part in parts.items() if part}
        of_lists |= {"ipsets": [each._asdict() for each in self.ipsets]} if self.ipsets else {}
        further = {"recorded": [*self.recorded], "nftables_text": self.ruleset_text, "settings": self.settings.plain}
        return {**self.plain, **of_lists, **{name: part for name, part in further.items() if part}}

    def _listed(self, name: str, values: t.Sequence[t.Any]) -> list[Entry]:
        """Return the entries of values; the list of the snapshot itself if a world changes none of them."""
        listed, former = [each.plain for each in values], entries(self.plain, name)
        is_same = len(listed) == len(former) and all(map(operator.is_, listed, former))
        return former if is_same else listed

    def with_link(self, changed: Link) -> Snapshot:
        """Return the snapshot with a link in the place of that of the same name, or behind all others."""
        links = [changed if link.name == changed.name else link for link in self.links]
        return self._replace(links=links if self.link(changed.name) else [*links, changed])

    def with_routes(self, routes: t.Iterable[Route]) -> Snapshot:
        return self._replace(routes=[*(self.routes or ()), *routes])

    def with_rule(self, rule: PolicyRule) -> Snapshot:
        """Return the snapshot with a further rule, and with those of the kernel, which have to be there then."""
        rules = [each.plain for each in (*(self.rules or ()), rule)]
        for family in FAMILIES:
            rules = with_kernels_rules(rules, family)
        return self._replace(rules=[*map(PolicyRule.of, rules)])

    def with_table(self, family: str, name: str, change: t.Callable[[SavedTable], SavedTable]) -> Snapshot:
        """Return the snapshot with another table of iptables, in each backend that has it."""
        return self._replace(iptables=[change(each) if each[:2] == (family, name) else each for each in self.iptables])

    def link(self, name: str) -> Link | None:
        return next((link for link in self.links if link.name == name), None)
