# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables of iptables from pastes. Missing chains and jumps are added, so that iptables-restore accepts the tables."""

from __future__ import annotations

import collections
import re
import typing as t

from .._netfilter import rule_options
from .._ruleset.ruleset import NFT
from .._snapshot import assumption
from .._snapshot.assumption import Assumption
from .commands import Ignore

# Built-in chains by table. Of the tables that have a chain, the first is the likeliest.
BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "raw": ("PREROUTING", "OUTPUT"),
    "security": ("INPUT", "FORWARD", "OUTPUT"),
}
TARGETS = (*rule_options.TARGETS, "AUDIT", "CONNSECMARK", "IDLETIMER", "RATEEST", "SECMARK", "ULOG")
# What kube-proxy and kubelet write into the chains that a paste often lacks (pkg/proxy/iptables/proxier.go, pkg/util/iptables).
HELPERS = {
    "KUBE-MARK-MASQ": ("-j MARK --set-xmark 0x4000/0x4000",),
    "KUBE-MARK-DROP": ("-j MARK --set-xmark 0x8000/0x8000",),
    "KUBE-FORWARD": (
        "-m conntrack --ctstate INVALID -j DROP",
        "-m mark --mark 0x4000/0x4000 -j ACCEPT",
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ),
}
FIREWALL = "-m mark --mark 0x8000/0x8000 -j DROP"  # of kubelet's KUBE-FIREWALL
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
        ("filter", r"KUBE-SERVICES", tuple(
            (chain, r"-m conntrack --ctstate NEW -j \g<0>") for chain in ("INPUT", "FORWARD", "OUTPUT")
        )),
        ("filter", r"AZURE-NPM|FLANNEL-FWD|DOCKER-USER|DOCKER-ISOLATION-STAGE-1", (("FORWARD", r"-j \g<0>"),)),
        ("filter", r"WEAVE-NPC", (("FORWARD", r"-o weave -j \g<0>"),)),
        ("filter", r"cali-tw-(.+)", (("FORWARD", r"-o \1 -j \g<0>"), ("OUTPUT", r"-o \1 -j \g<0>"))),
        ("filter", r"cali-fw-(.+)", (("FORWARD", r"-i \1 -j \g<0>"), ("INPUT", r"-i \1 -j \g<0>"))),
    )
)  # fmt: skip


class Table:
    """A table of iptables or ebtables: policies by chain, and rules in order."""

    def __init__(self) -> None:
        self.policies: dict[str, str] = {}
        self._rules: dict[tuple[str, str, int], None] = {}  # chain, rule and how often the rule came before it in its paste
        self._of_paste: collections.Counter[tuple[str, str]] = collections.Counter()
        self.is_whole = False  # whether a paste has the table's header; the output of a grep has none
        self.is_complete = False  # whether a paste has all of its rules, from the first to COMMIT, or as a listing of all chains
        self.assumed_policies: list[str] = []  # the built-in chains whose policies no paste has
        # The packets in each paste that shows them, by chain and rule; the rule is empty for the chain's policy.
        self.counts: dict[tuple[str, str], list[int]] = {}

    @property
    def rules(self) -> t.Collection[tuple[str, str]]:
        """Return chain and rule, in order."""
        return [(chain, rule) for chain, rule, _before in self._rules]

    def begin(self) -> None:
        """Begin another paste: pastes of the same table overlap, and a table may have a rule twice."""
        self._of_paste.clear()

    def add(self, chain: str, rule: str) -> None:
        """Add a rule, unless another paste has it."""
        self._rules.setdefault((chain, rule, self._of_paste[chain, rule]))
        self._of_paste[chain, rule] += 1


Tables = dict[tuple[str, str], Table]  # by family (ip, ip6) and name; the empty name is for rules of an unknown table


def begin(tables: Tables) -> None:
    for table in tables.values():
        table.begin()


# Options that only one table accepts, or that known programs use in one table.
_EVIDENCE = (
    ("nat", re.compile(r"-j (?:DNAT|SNAT|MASQUERADE|REDIRECT|NETMAP)\b|AWS, (?:CONNMARK|outbound connections)")),
    ("raw", re.compile(r"-j (?:CT|NOTRACK)\b|-m rpfilter\b")),
    ("mangle", re.compile(r"-j (?:TPROXY|TTL|HL|DSCP|TOS|CHECKSUM|CLASSIFY)\b|AWS, primary ENI")),
    ("filter", re.compile(r"-j REJECT\b")),
)
_DROPPING = re.compile(r"-j DROP\b")  # which iptables permits in all tables but nat
_OF_KUBE_PROXY = re.compile(r"KUBE-(?:SVC|SEP|MARK|SERVICES|NODEPORTS|EXT-|SVL|XLB|FW)")  # most of their rules are in table nat
ANY_BUILT_IN = {chain for chains in BUILT_IN.values() for chain in chains}


def settle(tables: Tables, assumed: list[Assumption]) -> None:
    """Put the rules of an unknown table where their chains belong: chains that jump to each other are in one table."""
    begin(tables)
    for family, loose in [(family, table) for (family, name), table in tables.items() if not name]:
        del tables[family, ""]
        of_chain = _settled(loose)
        places: dict[tuple[str, str], None] = {}
        for chain, rule in loose.rules:
            name = _table_of(chain, rule, of_chain)
            places[chain, name] = None
            table = tables.setdefault((family, name), Table())
            table.add(chain, rule)
            table.counts.setdefault((chain, rule), []).extend(loose.counts.get((chain, rule), ()))
        for chain, policy in loose.policies.items():
            name = _table_of(chain, "", of_chain)
            places[chain, name] = None
            tables.setdefault((family, name), Table()).policies[chain] = policy
        for chain, name in places:
            sentence = f"The table of chain {chain} is not in the paste. It is assumed to be {name}."
            assumed.append(assumption.about(sentence, assumption.CHAIN, f"{family} {name} {chain}"))


def likely_table(chains: t.Collection[str], rules: t.Iterable[str]) -> str:
    """Return the table that may have these built-in chains, among others."""
    shown, rules = ANY_BUILT_IN & {*chains}, [*rules]
    drops = any(map(_DROPPING.search, rules))
    may_be = [name for name, built_in in BUILT_IN.items() if shown <= {*built_in} and not (drops and name == "nat")]
    only = _evidence(rules)
    if not (only or shown or drops) and rules and any(map(_OF_KUBE_PROXY.match, chains)):
        return "nat"
    return next((name for name in may_be if {name} == only), may_be[0] if may_be else "filter")


def _evidence(rules: t.Iterable[str]) -> set[str]:
    return {name for rule in rules for name, pattern in _EVIDENCE if pattern.search(rule)}


def _settled(loose: Table) -> dict[str, str]:
    """Return the table of each chain that is not built in, if the rules of all chains connected with it agree on one table."""
    near: dict[str, set[str]] = {}
    rules: dict[str, list[str]] = {}
    hints: dict[str, set[str]] = {}
    for chain, rule in loose.rules:
        rules.setdefault(chain, []).append(rule)
        for target in _jumps(rule):
            near.setdefault(target, set())
            if chain not in ANY_BUILT_IN:
                near.setdefault(chain, set()).add(target)
                near[target].add(chain)
            elif chain != "OUTPUT":  # which most tables have
                hints.setdefault(target, set()).add(likely_table([chain], [rule]))
    of_chain: dict[str, str] = {}
    for chain in [*rules, *near]:
        if chain in of_chain or chain in ANY_BUILT_IN:
            continue
        connected, waiting = {chain}, [chain]
        while waiting:
            new = near.get(waiting.pop(), set()) - connected
            connected |= new
            waiting += new
        proof = _evidence(rule for member in connected for rule in rules.get(member, ()))
        hint = {name for member in connected for name in hints.get(member, ())}
        if any(_DROPPING.search(rule) for member in connected for rule in rules.get(member, ())):
            hint = hint - {"nat"} or {"filter"}
        else:
            hint |= {"nat" for member in connected if _OF_KUBE_PROXY.match(member)}
        names = proof if len(proof) == 1 else hint if not proof and len(hint) == 1 else set()
        of_chain.update((member, next(iter(names), "")) for member in connected)
    return of_chain


def _table_of(chain: str, rule: str, of_chain: t.Mapping[str, str]) -> str:
    """Return the table of a rule, by its chain, else by its options, else by the chains that it names."""
    jumped = [*_jumps(rule)]
    if chain not in ANY_BUILT_IN:
        name = of_chain.get(chain, "")
    else:
        name = next((of_chain[target] for target in jumped if chain in BUILT_IN.get(of_chain.get(target, ""), ())), "")
        if not name and re.search(r"-j (?:CONN)?MARK\b", rule) and not _evidence([rule]):
            name = "mangle"
    if name:
        return name
    is_of_nat = any(_OF_KUBE_PROXY.match(candidate) for candidate in (chain, *jumped)) and not (
        _evidence([rule]) or _DROPPING.search(rule)
    )
    return "nat" if is_of_nat and chain not in ("INPUT", "FORWARD") else likely_table([chain], [rule])


def entries(tables: Tables, assumed: list[Assumption], ignore: Ignore, backend: str = NFT) -> list[dict[str, t.Any]]:
    """Return the tables as texts that iptables-restore takes. Chains that the paste lacks are added, empty if ``lacking``."""
    result: list[dict[str, t.Any]] = []
    _suppose_firewall(tables, assumed)
    for (family, name), table in sorted(tables.items()):
        if name not in BUILT_IN:
            ignore("is no table of iptables", name)
            continue
        if not table.is_whole:
            _connect(table, family, name, assumed)
        chains = {chain for chain, _rule in table.rules} | {*table.policies}
        jumped = sorted(chains | _jumped(table))
        for chain in jumped:
            if chain not in table.policies:
                _declare(table, family, name, chain, chain in chains, assumed)
        known = {chain: policy for chain, policy in table.policies.items() if policy == "-" or chain in BUILT_IN[name]}
        lines = [f":{chain} {policy} [0:0]" for chain, policy in known.items() if len(chain) < 30]
        rules = [f"-A {chain} {rule}".rstrip() for chain, rule in table.rules if chain in known]
        save = "\n".join([f"*{name}", *lines, *rules, "COMMIT", ""])
        filled = {*BUILT_IN[name], *HELPERS, *chains}
        lacking = [chain for chain in jumped if chain not in filled]
        result.append({"family": family, "backend": backend, "table": name, "save": save, "lacking": lacking})
    return result


def _suppose_firewall(tables: Tables, assumed: list[Assumption]) -> None:
    """Add the rule that drops what kube-proxy marks, where a paste shows only the rules that mark."""
    for family in sorted({family for family, _name in tables}):
        nat, filter_table = tables.get((family, "nat")), tables.get((family, "filter"), Table())
        is_marked = nat is not None and "KUBE-MARK-DROP" in _jumped(nat)
        if is_marked and not filter_table.is_whole and "KUBE-FIREWALL" not in {chain for chain, _rule in filter_table.rules}:
            supposed = tables.setdefault((family, "filter"), filter_table)
            supposed.add("KUBE-FIREWALL", FIREWALL)
            for hook in ("INPUT", "OUTPUT"):  # as kubelet does
                supposed.add(hook, "-j KUBE-FIREWALL")
            sentence = (
                f"Chain KUBE-FIREWALL ({family} filter) is not in the paste. It is assumed to be in INPUT and OUTPUT, and to be:"
                f" {FIREWALL}."
            )
            assumed.append(assumption.about(sentence, assumption.CHAIN, f"{family} filter KUBE-FIREWALL"))


def _jumps(rule: str) -> t.Iterator[str]:
    for target in re.findall(r"(?:^| )-[jg] (\S+)", rule):
        if target not in TARGETS:
            yield target


def _connect(table: Table, family: str, name: str, assumed: list[Assumption]) -> None:
    """Add the jumps to chains of known programs that a grep has removed."""
    chains = [*dict.fromkeys(chain for chain, _rule in table.rules)]
    connected = _jumped(table)
    if name == "nat" and "KUBE-MARK-MASQ" in connected and "KUBE-POSTROUTING" not in chains:
        for rule in MASQUERADING:
            table.add("KUBE-POSTROUTING", rule)
        chains.append("KUBE-POSTROUTING")
        sentence = "Chain KUBE-POSTROUTING is not in the paste. It is assumed to masquerade marked packets, as kube-proxy's."
        assumed.append(assumption.about(sentence, assumption.CHAIN, f"{family} nat KUBE-POSTROUTING"))
    for chain in chains:
        if chain in connected or chain in BUILT_IN[name]:
            continue
        connected.add(chain)
        base = next((built_in for built_in in BUILT_IN[name] if chain.endswith((f"-{built_in}", f"_{built_in}"))), None)
        for place, rule in _known_jumps(name, chain) or (((base, f"-j {chain}"),) if base else ()):
            table.add(place, rule)
            chains.append(place)  # this chain may have to be connected, too
            sentence = f"No rule of the paste jumps to chain {chain}. `-A {place} {rule}` ({family} {name}) is assumed."
            assumed.append(assumption.about(sentence, assumption.JUMP, f"{family} {name} {place} {chain}"))


def _known_jumps(name: str, chain: str) -> tuple[tuple[str, str], ...]:
    """Return the rules of known programs that jump to the chain, each with its own chain."""
    for table, pattern, jumps in ENTRIES:
        match = pattern.fullmatch(chain) if table == name else None
        if match:
            return tuple((place, match.expand(rule)) for place, rule in jumps)
    return ()


def unconnected(table: Table, name: str) -> list[str]:
    """Return the chains with rules to which no rule jumps."""
    jumped = _jumped(table)
    return [chain for chain in dict.fromkeys(chain for chain, _rule in table.rules) if chain not in (*jumped, *BUILT_IN[name])]


def _jumped(table: Table) -> set[str]:
    return {target for _chain, rule in table.rules for target in _jumps(rule)}


def _declare(table: Table, family: str, name: str, chain: str, has_rules: bool, assumed: list[Assumption]) -> None:
    if chain in BUILT_IN[name]:
        table.policies[chain] = "ACCEPT"
        table.assumed_policies.append(chain)
        sentence = f"The policy of chain {chain} ({family} {name}) is not in the paste. It is assumed to be ACCEPT."
        assumed.append(assumption.about(sentence, assumption.POLICY, f"{family} {name} {chain}"))
        return
    table.policies[chain] = "-"
    if has_rules:
        return
    for rule in HELPERS.get(chain, ()):
        table.add(chain, rule)
    usual = f"be: {'; '.join(HELPERS[chain])}" if chain in HELPERS else "be empty"
    sentence = f"Chain {chain} ({family} {name}) is not in the paste. It is assumed to {usual}."
    assumed.append(assumption.about(sentence, assumption.CHAIN, f"{family} {name} {chain}"))


SET_TYPES = {1: "hash:ip", 2: "hash:ip,port", 3: "hash:ip,port,ip"}
_MATCH_SET = re.compile(r"--(?:match|add|del)-set (\S+) (\S+)")


def lacking_sets(tables: Tables, known: t.Collection[str], assumed: list[Assumption]) -> list[dict[str, str]]:
    """Return an empty set for each set that rules name and no paste has."""
    texts: dict[str, str] = {}
    for (family, _name), table in tables.items():
        for _chain, rule in table.rules:
            for name, flags in _MATCH_SET.findall(rule):
                if name not in known and name not in texts and len(name) < 32:
                    kind = SET_TYPES.get(flags.count(",") + 1, "hash:ip")
                    texts[name] = f"create {name} {kind} family {'inet6' if family == 'ip6' else 'inet'}\n"
                    sentence = f"Set {name} is not in the paste. It is assumed to be empty."
                    assumed.append(assumption.about(sentence, assumption.SET, name))
    return [{"name": name, "save": text} for name, text in texts.items()]
