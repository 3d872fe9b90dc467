# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules that a packet met, as their own tool prints them."""

from __future__ import annotations

import re
import typing as t

from .._netlink import nfnetlink
from .._platform import process
from .._twin.blueprint import OWN_TABLE
from .._twin.build_backend import ELEMENTS, Place
from .._twin.foreign_tables import RESTORES
from .kernel_events import Event

_TABLE, _RULE = re.compile(r"^\*(\S+)$"), re.compile(r"^(?:\[\d+:\d+\] )?-([AI]) (\S+) ?(.*)$")
_CHAIN = re.compile(r"^\s*chain (\S+) \{")
_HOOK = re.compile(r"^\s*(type \S+ hook .*?)\s*$")
RANDOM = re.compile(r"--mode random|\bnumgen random\b")
# Matches that earlier packets or the clock decide (iptables-extensions(8), nft(8)), and what a rule with one may decide.
_STATE = re.compile(
    r"-m (?:limit|hashlimit|connlimit|connbytes|quota|time|rateest|statistic --mode nth)\b"
    r"|\b(?:limit (?:rate|name)|ct count|quota|numgen inc|meta (?:hour|day|time))\b"
)
# Matches that sizes and options of TCP decide, of which a small packet has none.
_SIZED = re.compile(r"-m (?:length|tcpmss)\b|\b(?:(?:meta|ip|ip6|udp) length|tcp (?:option|doff))\b")
_DECIDING = re.compile(
    r"-[jg] (?!(?:LOG|NFLOG|TRACE|AUDIT)\b)\S"
    r"|\b(?:accept|drop|reject|return|jump|goto|queue|dnat|snat|masquerade|redirect|vmap|set)\b"
)
_MATCH_SET = re.compile(r"--match-set (\S+) ")
_PROBABILITY = re.compile(r"--probability ([\d.]+)")
_MODULO = re.compile(r"numgen random mod (\d+)(?: offset \d+)? (?:(< )?(\d+)\b|vmap\b)")
FINAL = ("accept", "drop")  # verdicts after which a packet meets no further rule of its hook
Chains = dict[str, dict[int, str]]  # the texts of rules by chain and handle, and of a chain's own line by 0
_RANDOM_STATISTIC = re.compile(r"--mode random --probability [\d.]+")
_VMAP = re.compile(r"\bvmap \{ (.*) \}")
_TARGET, _NAT = re.compile(r"\b(?:goto|jump) ([^\s,]+)"), re.compile(r"\b(?:[ds]nat|masquerade|redirect)\b")
EXACT = 1e-4  # iptables stores a probability as a number of 31 bits
MOST_ELEMENTS = 20  # of a map in a rule's text
_HANDLE = re.compile(r"^\s*(.*?) # handle (\d+)$")


class RuleTexts:
    """Finds the text of a rule of a twin by the handle that the kernel's trace has.

    texts: what the programs of iptables loaded into the twin, by program. run: starts nft, which lists all other tables.
    bypassed: chains of the node in which the twin has a rule of its own, and the handle of that rule.
    """

    def __init__(self, texts: t.Mapping[str, str], run: process.Runner, bypassed: t.Mapping[Place, int]) -> None:
        self._run, self._bypassed = run, bypassed
        self._texts = {family: texts.get(program, "") for family, program in RESTORES.items()}
        self._saved: dict[str, dict[str, dict[str, list[str]]]] = {}  # the rules of a family, once a packet has met one
        self._chains: dict[tuple[str, str], Chains] = {}
        self._random: dict[tuple[str, str, str], dict[int, float]] = {}
        self._undecided: dict[tuple[re.Pattern[str], str, str, str], list[str]] = {}
        self._in_turn: dict[Place, bool] = {}  # chains whose choices are to be in turn, and whether they are

    def text(self, event: Event) -> str:
        """Return the rule's text, of a map with many elements only the one that led the packet on.

        For the end of a chain, this is the line of nft that has the chain's policy; empty in a table of iptables.
        """
        text = self._of_table(event).get(event.chain, {}).get(event.handle, "")
        chosen = _VMAP.search(text) if event.verdict.startswith(("goto ", "jump ")) else None
        elements = chosen[1].split(", ") if chosen else []
        led = [element for element in elements if element.endswith(f" : {event.verdict}")]
        if not chosen or not led or len(elements) <= MOST_ELEMENTS:
            return text
        return f"{text[: chosen.start(1)]}{led[0]}, and {len(elements) - 1} more{text[chosen.end(1) :]}"

    def element(self, event: Event, name: str, key: str) -> str:
        """Return the element of a map in the event's table; empty if it has none."""
        words = ["get", "element", event.family, event.table, name, f"{{ {key} }}"]
        done = self._run([process.find("nft") or "nft", *words], None)
        elements = ELEMENTS.search(done.stdout) if not done.rc else None
        return elements[1] if elements else ""

    def matching_sets(self) -> dict[str, list[str]]:
        """Return the names of the sets of ipset that rules match, by family, table and chain."""
        by_chain: dict[str, list[str]] = {}
        for family, text in self._texts.items():
            for table, chains in (self._of_family(family) if "--match-set" in text else {}).items():
                for chain, rules in chains.items():
                    by_chain[f"{family} {table} {chain}"] = [name for rule in rules for name in _MATCH_SET.findall(rule)]
        return by_chain

    def with_state(self, events: t.Iterable[Event]) -> dict[str, None]:
        """Return the texts of rules in chains that a packet met which earlier packets or the clock decide."""
        return self._deciding(_STATE, events)

    def with_size(self, events: t.Iterable[Event]) -> dict[str, None]:
        """Return the texts of rules in chains that a packet met which its size or its options of TCP decide."""
        return self._deciding(_SIZED, events)

    def _deciding(self, pattern: re.Pattern[str], events: t.Iterable[Event]) -> dict[str, None]:
        return {text: None for event in events for text in self._rules_with(pattern, event)}

    def _rules_with(self, pattern: re.Pattern[str], event: Event) -> list[str]:
        place = pattern, event.family, event.table, event.chain
        if place not in self._undecided:
            texts = self._of_table(event).get(event.chain, {}).values()
            self._undecided[place] = [text for text in texts if pattern.search(text) and _DECIDING.search(text)]
        return self._undecided[place]

    def by_chance(self, events: t.Iterable[Event]) -> set[Place]:
        """Return the chains that a packet met which have a rule that matches by chance."""
        return {(event.family, event.table, event.chain) for event in events if self._chances(event)}

    def take_turns(self, place: Place) -> bool:
        """Let the rules of a chain that match by chance match in turn, so that N packets meet N choices. Texts stay the node's.

        Return False if they still match by chance: the choices are not equally frequent, or the chain is no chain of NAT. Other
        chains may be for more packets than the first one of a connection. place: was met by a packet.
        """
        if place not in self._in_turn:
            self._in_turn[place] = self._replace(place)
        return self._in_turn[place]

    def _replace(self, place: Place) -> bool:
        family, table, chain = place
        texts, chances = self._chains[family, table][chain], self._random[place]
        handles = [rule.handle for rule in nfnetlink.rules(family, table, chain)]
        in_turn = {handle: _in_turn(texts[handle]) for handle in chances}
        is_of_iptables = table in self._of_family(family)
        targets = filter(None, map(_TARGET.search, in_turn.values()))
        translations = (text for target in targets for text in self._chains[family, table].get(target[1], {}).values())
        is_nat = table == "nat" if is_of_iptables else any(map(_NAT.search, translations))
        if not is_nat or not all(in_turn.values()) or not chances.keys() <= {*handles}:
            return False
        program, arguments = RESTORES.get(family, ""), ["--noflush"]
        if is_of_iptables:
            rules = (text.partition(" ")[2].partition(" ")[2] for text in in_turn.values())
            numbers = (handles.index(handle) + 1 for handle in chances)
            lines = [f"*{table}", *(f"-R {chain} {number} {rule}" for number, rule in zip(numbers, rules)), "COMMIT"]
        else:
            program, arguments = "nft", ["-f", "-"]
            lines = [f"replace rule {family} {table} {chain} handle {handle} {text}" for handle, text in in_turn.items()]
        done = self._run([process.find(program) or program, *arguments], "".join(f"{line}\n" for line in lines))
        after = dict(zip(handles, (rule.handle for rule in nfnetlink.rules(family, table, chain))))
        if done.rc or len(after) != len(handles):
            return False
        self._chains[family, table][chain] = {after.get(handle, handle): text for handle, text in texts.items()}
        self._random[place] = {after[handle]: chance for handle, chance in chances.items()}
        return True

    def probability(self, events: t.Sequence[Event]) -> float:
        """Return the probability of the packet's way, from the rules that match by chance; 0 if one of them is not understood.

        A rule that the packet passed without a match counts with the rest of its probability.
        """
        met: dict[tuple[str, str, str], list[Event]] = {}
        for event in events:
            met.setdefault((event.family, event.table, event.chain), []).append(event)
        probability = 1.0
        for of_chain in met.values():
            matched = {event.handle for event in of_chain if event.handle}
            chances = self._chances(of_chain[0])
            for handle in self._of_table(of_chain[0]).get(of_chain[0].chain, {}) if chances else ():
                if handle in chances:
                    probability *= chances[handle] if handle in matched else 1 - chances[handle]
                if handle == of_chain[-1].handle and (of_chain[-1].verdict.startswith("goto ") or _is_last(of_chain[-1], met)):
                    break
        return probability

    def _chances(self, event: Event) -> dict[int, float]:
        """Return the probabilities of the rules in the event's chain that match by chance, by handle."""
        place = event.family, event.table, event.chain
        if place not in self._random:
            texts = self._of_table(event).get(event.chain, {})
            self._random[place] = {handle: _chance(text) for handle, text in texts.items() if RANDOM.search(text)}
        return self._random[place]

    def _of_table(self, event: Event) -> Chains:
        table = event.family, event.table
        if table not in self._chains:
            self._chains[table] = {} if event.table == OWN_TABLE else self._read(*table)
        return self._chains[table]

    def _read(self, family: str, table: str) -> Chains:
        saved = self._of_family(family).get(table)
        if saved is not None:
            handles: dict[str, list[int]] = {}
            for rule in nfnetlink.rules(family, table):
                if self._bypassed.get((family, table, rule.chain)) == rule.handle:
                    continue
                handles.setdefault(rule.chain, []).append(rule.handle)
            # Both list the rules of a chain in the kernel's order, unless a change was made since.
            if {chain: len(numbers) for chain, numbers in handles.items()} == {
                chain: len(texts) for chain, texts in saved.items()
            }:
                return {chain: dict(zip(numbers, saved[chain])) for chain, numbers in handles.items()}
        return self._listed(family, table)

    def _of_family(self, family: str) -> dict[str, dict[str, list[str]]]:
        if family not in self._saved:
            self._saved[family] = _rules(self._texts.get(family, ""))
        return self._saved[family]

    def _listed(self, family: str, table: str) -> Chains:
        done = self._run([process.find("nft") or "nft", "-a", "-s", "list", "table", family, table], None)
        chains: Chains = {}
        chain = ""
        for line in done.stdout.splitlines():
            head, hook, rule = _CHAIN.match(line), _HOOK.match(line), _HANDLE.match(line)
            if head:
                chain = head[1]
            elif hook:
                chains.setdefault(chain, {})[0] = hook[1]
            elif rule:
                chains.setdefault(chain, {})[int(rule[2])] = rule[1]
        return chains


def _is_last(event: Event, met: t.Mapping[tuple[str, str, str], t.Sequence[Event]]) -> bool:
    """Return whether a packet did not come back from its last rule of a chain. met: its events by family, table and chain."""
    word, _blank, target = event.verdict.partition(" ")
    inner = met.get((event.family, event.table, target), ()) if word in ("jump", "goto") else ()
    return word in FINAL or (bool(inner) and _is_last(inner[-1], met))


def _chance(text: str) -> float:
    """Return the probability with which a rule matches; 0 if its text does not contain one."""
    statistic, modulo = _PROBABILITY.search(text), _MODULO.search(text)
    if statistic:
        return float(statistic[1])
    return (int(modulo[3]) if modulo[2] else 1) / int(modulo[1]) if modulo else 0.0  # a map has an element for each number


def _in_turn(text: str) -> str:
    """Return a rule that matches by chance, one of N packets, as a rule that matches one in each N; empty if it is not such."""
    chance = _chance(text)
    number = round(1 / chance) if chance else 0
    modulo, elements = _MODULO.search(text), _VMAP.search(text)
    if abs(number * chance - 1) > EXACT:
        return ""
    if modulo:
        is_even = int(modulo[1]) == number and ("vmap" not in text or bool(elements and elements[1].count(" : ") == number))
        return text.replace("numgen random", "numgen inc") if is_even else ""
    replaced = _RANDOM_STATISTIC.sub(f"--mode nth --every {number} --packet 0", text)
    return replaced if replaced != text else ""


def _rules(text: str) -> dict[str, dict[str, list[str]]]:
    """Return the texts of the rules by table and chain, with ``-A CHAIN``. Chains without rules are left out."""
    tables: dict[str, dict[str, list[str]]] = {}
    chains: dict[str, list[str]] = {}
    for line in text.splitlines():
        table, rule = (_TABLE.match(line), None) if line.startswith("*") else (None, _RULE.match(line))
        if table:
            chains = tables.setdefault(table[1], {})
        elif rule:
            rules = chains.setdefault(rule[2], [])
            rules.insert(0 if rule[1] == "I" else len(rules), f"-A {rule[2]} {rule[3]}".strip())
    return tables
