# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Facts that a snapshot leaves open. Each has an id that stays the same, such as ``chain:ip filter MY-POLICY``."""

from __future__ import annotations

import re
import shlex
import typing as t

from . import settings

RP_FILTER, CHAIN, POLICY, SET, ROUTES, RULES, ADDRESSES, IPVS = (
    "rp_filter", "chain", "policy", "set", "routes", "rules", "addresses", "ipvs"
)  # fmt: skip
NFT, TABLE, CUT, JUMP, NEIGHBORS = "nft", "table", "cut", "jump", "neighbors"
POD_SIDE, BRIDGE_PORTS, RECENT, LEGACY = "pod-side", "bridge-ports", "recent", "legacy"
HAIRPIN, FORWARDING = "hairpin", "forwarding"
_FORWARDING = re.compile(r"net\.ipv[46]\.conf\.([^:]+)\.forwarding")


class Fact(t.NamedTuple):
    """fact: the id. what: a sentence that says what is open. ask: a command whose output would tell."""

    fact: str
    what: str
    ask: str

    @property
    def kind(self) -> str:
        return FORWARDING if _FORWARDING.fullmatch(self.fact) else self.fact.partition(":")[0]

    @property
    def subject(self) -> str:
        """Return the words behind the kind, such as ``ip filter MY-POLICY``; empty if there is only one fact of the kind.

        The subject of a setting of forwarding is the link.
        """
        setting = _FORWARDING.fullmatch(self.fact)
        return setting[1].replace("/", ".") if setting else self.fact.partition(":")[2]


_OF_IPTABLES = ("filter", "nat", "mangle", "raw", "security", "broute")  # tables of iptables and ebtables
_SAVE = {"ip": "iptables-save", "ip6": "ip6tables-save", "bridge": "ebtables-save"}


class OpenFact(t.NamedTuple):
    """A fact that a snapshot leaves open.

    family: of the packets that it is about, ipv4 or ipv6; empty for both. table: the number of a routing table whose routes are
    open. is_cut: whether an output shows a part, so that no world stands for the rest.
    """

    fact: Fact
    family: str = ""
    table: str = ""
    is_cut: bool = False

    def plain(self) -> dict[str, t.Any]:
        """Return the entry of the snapshot."""
        about = {"family": self.family, "table": self.table, "is_cut": self.is_cut}
        return {**self.fact._asdict(), **{key: value for key, value in about.items() if value}}

    @classmethod
    def from_plain(cls, plain: t.Mapping[str, t.Any]) -> OpenFact:
        """Read the entry of a snapshot. Its sentence and its command are made here again: an answer tells to run the command."""
        fact, family, table_number = (str(plain.get(key) or "") for key in ("fact", "family", "table"))
        return cls(of_id(fact, family), family, table_number, bool(plain.get("is_cut")))


def save(family: str, table: str) -> str:
    """Return the command that prints a table of iptables, or of ebtables."""
    return f"{_SAVE[family]} -t {shlex.quote(table)}"


def chain(family: str, table: str, name: str) -> Fact:
    return Fact(
        f"{CHAIN}:{family} {table} {name}", f"The rules of chain {name} ({family} {table}) are open.", save(family, table)
    )


def policy(family: str, table: str, name: str) -> Fact:
    what = f"The policy of chain {name} ({family} {table}) is open."
    return Fact(f"{POLICY}:{family} {table} {name}", what, save(family, table))


def elements(name: str) -> Fact:
    return Fact(f"{SET}:{name}", f"The elements of the set {name} are open.", f"ipset save {shlex.quote(name)}")


def table(family: str, name: str) -> Fact:
    # One command shows each table that has no line in the outputs.
    return Fact(f"{TABLE}:{family} {name}", f"Whether table {name} ({family}) has rules is open.", _SAVE[family])


def cut(family: str, name: str) -> Fact:
    what = f"Only some rules of table {name} ({family}) are known."
    return Fact(f"{CUT}:{family} {name}", what, save(family, name))


def jump(family: str, table_name: str, name: str) -> Fact:
    """Return the fact about a chain of iptables, or about a chain or a map of nft, to which no rule of an output refers."""
    ask = save(family, table_name) if table_name in _OF_IPTABLES else "nft list ruleset"
    return Fact(f"{JUMP}:{family} {table_name} {name}", f"Which rule leads to {name} ({family} {table_name}) is open.", ask)


def rp_filter(link: str) -> Fact:
    of_link = shlex.quote(f"net.ipv4.conf.{link.replace('.', '/')}.rp_filter")
    ask = f"sysctl net.ipv4.conf.all.rp_filter {of_link}"
    return Fact(f"{RP_FILTER}:{link}", f"The reverse-path filter of {link} is open.", ask)


def routes(name: str = "") -> Fact:
    """Return the fact about the routes of a table. name: of the table; all tables if it is left out."""
    if not name:
        return Fact(ROUTES, "The routes are open.", "ip route show table all; ip -6 route show table all")
    return Fact(f"{ROUTES}:{name}", f"The routes of table {name} are open.", f"ip route show table {shlex.quote(name)}")


def recent(name: str) -> Fact:
    """Return the fact about a record of the packet's source.

    name: of records of the match recent, by which kube-proxy keeps a client at its endpoint.
    """
    ask = f"cat {shlex.quote(f'/proc/net/xt_recent/{name}')}"
    return Fact(f"{RECENT}:{name}", f"Whether {name} has a record of the packet's source is open.", ask)


def bridge_ports(bridge: str = "") -> Fact:
    """Return the fact about the ports of a bridge. bridge: its name; empty if no output shows which links are bridges."""
    if not bridge:
        return Fact(BRIDGE_PORTS, "Which links are bridges, or ports of one, is open.", "ip -d link")
    return Fact(f"{BRIDGE_PORTS}:{bridge}", f"Which links are ports of the bridge {bridge} is open.", "ip -d link")


def pod_side(link: t.Mapping[str, t.Any], family: str) -> Fact:
    """Return the fact about a link to a pod with several links. The subject is the pod's address there, if it is known.

    family: ipv4 or ipv6.
    """
    addresses = map(str, (link.get("peer") or {}).get("addresses") or ())
    subject = next((address for address in addresses if (":" in address) == (family == "ipv6")), str(link.get("name")))
    what = f"By which of its links the pod at {link.get('name')} answers is open."
    return Fact(f"{POD_SIDE}:{subject}", what, "kubectl exec POD -- ip rule; kubectl exec POD -- ip route show table all")


def legacy(family: str) -> Fact:
    """Return the fact about rules of iptables-legacy. family: ip or ip6."""
    program = "ip6tables" if family == "ip6" else "iptables"
    return Fact(LEGACY, "Whether iptables-legacy has rules is open.", f"{program}-save; {program}-legacy-save")


def hairpin(port: str) -> Fact:
    """Return the fact about frames that a bridge sends back by a port. port: its name."""
    return Fact(f"{HAIRPIN}:{port}", f"Whether the bridge sends frames back by its port {port} is open.", "ip -d link")


def setting(key: str) -> Fact:
    """Return the fact about a setting. key: the name of the setting, which is the id."""
    return Fact(key, f"The setting {key} is open.", f"sysctl {shlex.quote(key)}")


def forwarding(family: str, link: str) -> Fact:
    """Return the fact about forwarding, whose id is the setting. link: by which packets come in; that of all decides for IPv6."""
    key = settings.forwarding_key(family, link)
    of_link = f" what comes in by {link}" if family == "ipv4" else ""
    return Fact(key, f"Whether the node forwards{of_link} is open.", f"sysctl {shlex.quote(key)}")


RULES_OPEN = Fact(RULES, "The rules by which routing tables are chosen are open.", "ip rule; ip -6 rule")
NFT_OPEN = Fact(NFT, "Whether there are further rules of nftables is open.", "nft list ruleset")
NEIGHBORS_OPEN = Fact(NEIGHBORS, "Which neighbours answer is open.", "ip neigh; ip -6 neigh")
IPVS_OPEN = Fact(IPVS, "The virtual servers of IPVS are open.", "ipvsadm -Ln")
ADDRESSES_OPEN = Fact(ADDRESSES, "Which links and addresses the node has is open.", "ip addr")
_SINGLE = {
    fact.fact: fact for fact in (RULES_OPEN, NFT_OPEN, NEIGHBORS_OPEN, IPVS_OPEN, ADDRESSES_OPEN, routes(), bridge_ports())
}
_OF_SUBJECT: dict[str, t.Callable[[str], Fact]] = {
    SET: elements, RP_FILTER: rp_filter, ROUTES: routes, RECENT: recent, BRIDGE_PORTS: bridge_ports, HAIRPIN: hairpin
}  # fmt: skip
_OF_TABLE: dict[str, t.Callable[[str, str], Fact]] = {TABLE: table, CUT: cut}
_OF_CHAIN: dict[str, t.Callable[[str, str, str], Fact]] = {CHAIN: chain, POLICY: policy, JUMP: jump}


def of_id(fact: str, family: str = "") -> Fact:
    """Return the fact with an id, of which a snapshot may have any. family: ipv4 or ipv6; empty if the fact is about both."""
    kind, _colon, subject = fact.partition(":")
    words = subject.split(" ", 2)
    if fact in _SINGLE:
        return _SINGLE[fact]
    if fact == LEGACY:
        return legacy("ip6" if family == "ipv6" else "ip")
    if kind in _OF_SUBJECT and subject:
        return _OF_SUBJECT[kind](subject)
    if kind in _OF_TABLE and len(words) == 2 and words[0] in _SAVE:
        return _OF_TABLE[kind](*words)
    if kind in _OF_CHAIN and len(words) == 3 and words[0] in (*_SAVE, *(("inet",) if kind == JUMP else ())):
        return _OF_CHAIN[kind](*words)
    of_link = _FORWARDING.fullmatch(fact)
    if of_link:
        return forwarding("ipv6" if fact.startswith("net.ipv6.") else "ipv4", of_link[1].replace("/", "."))
    return setting(fact) if fact.startswith("net.") else Fact(fact, f"{fact} is open.", "")
