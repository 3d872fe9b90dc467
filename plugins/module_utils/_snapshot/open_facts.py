# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts that a snapshot leaves open. Each has an id that stays the same, such as ``chain:ip filter MY-POLICY``."""

from __future__ import annotations

import re
import shlex
import typing as t
from functools import partial

from . import settings

RP_FILTER, CHAIN, POLICY, SET, ROUTES, RULES, ADDRESSES, IPVS = (
    "rp_filter", "chain", "policy", "set", "routes", "rules", "addresses", "ipvs"
)  # fmt: skip
NFT, TABLE, CUT, JUMP, NEIGHBORS = "nft", "table", "cut", "jump", "neighbors"
POD_SIDE, BRIDGE_PORTS, RECENT, LEGACY = "pod-side", "bridge-ports", "recent", "legacy"
HAIRPIN, FORWARDING, LOCAL = "hairpin", "forwarding", "local-routes"
# In the order in which a packet's fate usually depends on them, those of settings left out.
KINDS = (
    *(ROUTES, ADDRESSES, LOCAL, RULES, RP_FILTER, POD_SIDE, HAIRPIN, RECENT, CHAIN, SET, POLICY, IPVS, BRIDGE_PORTS, NEIGHBORS),
    *(TABLE, CUT, NFT, LEGACY, JUMP),
)
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


_SAVED = "{save} -t {1}"  # prints a table of iptables, or of ebtables
# The sentence and the command of each kind with a subject, with its words: of a chain the family, the table and the name.
_FORMS = {
    CHAIN: ("The rules of chain {2} ({0} {1}) are open.", _SAVED),
    POLICY: ("The policy of chain {2} ({0} {1}) is open.", _SAVED),
    # Of a chain of iptables, or of a chain or a map of nft, to which no rule of an output refers.
    JUMP: ("Which rule leads to {2} ({0} {1}) is open.", _SAVED),
    TABLE: ("Whether table {1} ({0}) has rules is open.", "{save}"),  # which shows each table that has no line in the outputs
    CUT: ("Only some rules of table {1} ({0}) are known.", _SAVED),
    SET: ("The elements of the set {0} are open.", "ipset save {0}"),
    RP_FILTER: ("The reverse-path filter of {0} is open.", "sysctl net.ipv4.conf.all.rp_filter {setting}"),
    ROUTES: ("The routes of table {0} are open.", "ip route show table {0}"),
    # By such records, kube-proxy keeps a client at its endpoint.
    RECENT: ("Whether {0} has a record of the packet's source is open.", "cat {record}"),
    BRIDGE_PORTS: ("Which links are ports of the bridge {0} is open.", "ip -d link"),
    HAIRPIN: ("Whether the bridge sends frames back by its port {0} is open.", "ip -d link"),
}
WORDS = {**dict.fromkeys(_FORMS, 1), **dict.fromkeys((CHAIN, POLICY, JUMP), 3), **dict.fromkeys((TABLE, CUT), 2)}  # of subjects


def _fact(kind: str, *words: str) -> Fact:
    """Return the fact about an object of the node. words: of its subject."""
    sentence, command = _FORMS[kind]
    if kind == JUMP and words[1] not in _OF_IPTABLES:
        command = "nft list ruleset"
    setting = f"net.ipv4.conf.{words[0].replace('.', '/')}.rp_filter"
    further = {"save": _SAVE.get(words[0], ""), "setting": setting, "record": f"/proc/net/xt_recent/{words[0]}"}
    ask = command.format(*map(shlex.quote, words), **{name: shlex.quote(word) for name, word in further.items()})
    return Fact(f"{kind}:{' '.join(words)}", sentence.format(*words), ask)


chain, policy, jump = partial(_fact, CHAIN), partial(_fact, POLICY), partial(_fact, JUMP)
table, cut, elements, rp_filter = partial(_fact, TABLE), partial(_fact, CUT), partial(_fact, SET), partial(_fact, RP_FILTER)
recent, hairpin = partial(_fact, RECENT), partial(_fact, HAIRPIN)


def routes(name: str = "") -> Fact:
    """Return the fact about the routes of a table. name: of the table; all tables if it is left out."""
    return _fact(ROUTES, name) if name else _SINGLE[ROUTES]


def bridge_ports(bridge: str = "") -> Fact:
    """Return the fact about the ports of a bridge. bridge: its name; empty if no output shows which links are bridges."""
    return _fact(BRIDGE_PORTS, bridge) if bridge else _SINGLE[BRIDGE_PORTS]


def pod_side(link: str, addresses: t.Iterable[str], family: str) -> Fact:
    """Return the fact about a link to a pod with several links. The subject is the pod's address there, if it is known.

    addresses: of the pod's end of the link. family: ipv4 or ipv6.
    """
    subject = next((address for address in addresses if (":" in address) == (family == "ipv6")), link)
    sentence = f"By which of its links the pod at {link} answers is open."
    return Fact(f"{POD_SIDE}:{subject}", sentence, "kubectl exec POD -- ip rule; kubectl exec POD -- ip route show table all")


def legacy(family: str) -> Fact:
    """Return the fact about rules of iptables-legacy. family: ip or ip6."""
    program = "ip6tables" if family == "ip6" else "iptables"
    return Fact(LEGACY, "Whether iptables-legacy has rules is open.", f"{program}-save; {program}-legacy-save")


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
LOCAL_OPEN = Fact(LOCAL, "Which routes to itself the node has beyond its addresses is open.", "ip route show table local")
_ROUTES_OPEN = Fact(ROUTES, "The routes are open.", "ip route show table all; ip -6 route show table all")
_PORTS_OPEN = Fact(BRIDGE_PORTS, "Which links are bridges, or ports of one, is open.", "ip -d link")
_SINGLE = {
    fact.fact: fact
    for fact in (RULES_OPEN, NFT_OPEN, NEIGHBORS_OPEN, IPVS_OPEN, ADDRESSES_OPEN, LOCAL_OPEN, _ROUTES_OPEN, _PORTS_OPEN)
}


def of_id(fact: str, family: str = "") -> Fact:
    """Return the fact with an id, of which a snapshot may have any. family: ipv4 or ipv6; empty if the fact is about both."""
    kind, _colon, subject = fact.partition(":")
    words = subject.split(" ", WORDS.get(kind, 1) - 1)
    if fact in _SINGLE:
        return _SINGLE[fact]
    if fact == LEGACY:
        return legacy("ip6" if family == "ipv6" else "ip")
    is_whole = subject and len(words) == WORDS.get(kind)
    if is_whole and (len(words) == 1 or words[0] in _SAVE or (kind == JUMP and words[0] == "inet")):
        return _fact(kind, *words)
    of_link = _FORWARDING.fullmatch(fact)
    if of_link:
        return forwarding("ipv6" if fact.startswith("net.ipv6.") else "ipv4", of_link[1].replace("/", "."))
    return setting(fact) if fact.startswith("net.") else Fact(fact, f"{fact} is open.", "")
