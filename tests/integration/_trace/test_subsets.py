# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law of subsets: from some of a node's outputs, the trace answers as the node does, or says what it lacks.

Where it lacks something, it is given the output that it asks for first, again and again, until it is certain.
"""

from __future__ import annotations

import collections
import random
import re
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet, trace_backend

from . import random_nodes

MOST_QUESTIONS = 5
REPORTS = 5  # of a node, which takes longer to build than a report takes to be answered
UNRELATED = {  # outputs that a packet of IPv4, and one of IPv6, does not meet
    False: ("ip -6 rule", "ip -6 route show table all", "ip6tables-nft-save"),
    True: ("ip rule", "iptables-nft-save"),
}
BEYOND = dict.fromkeys(("pod", "answer", "source-check"), "shown")  # no output of a node shows these
# The outputs of a node that a command in ``ask`` begins with.
ASKED = {
    "iptables-save": "iptables-nft-save",
    "ip6tables-save": "ip6tables-nft-save",
    "ebtables": "ebtables-nft-save",
    "ipset": "ipset save",
    "nft": "nft list ruleset",
    "sysctl": "sysctl -a",
    "ip addr": "ip -d addr",
    "ip -d link": "ip -d addr",
}


def cut(chance: random.Random, text: str) -> str:
    """Return what a reporter pastes of an output."""
    lines = text.splitlines()
    way = chance.choice(["grep", "head", "no end", "dots"])
    if way == "grep":
        word = chance.choice(["10.1", "eth0", "eth1", "DROP", "FORWARD", "nat"])
        return "\n".join([line for line in lines if word in line])
    if way == "head":
        return "\n".join(lines[:20])
    if way == "no end":
        return "\n".join(line for line in lines if line != "COMMIT")
    return "\n".join([*lines[: len(lines) // 2], "..."])


def report(real: dict[str, Any], seed: str) -> dict[str, str]:
    """The outputs that an operator pastes, by the commands that they show. real: what is known of the node."""
    chance = random.Random(seed)
    dump = {}
    for command, text in real["pastes"].items():
        kind = chance.random()
        if kind < 0.5:
            dump[command] = text
        elif kind < 0.65 and command in random_nodes.DIALECTS:
            several = random_nodes.DIALECTS[command]
            for dialect in chance.sample(several, chance.randrange(1, len(several) + 1)):
                shown = dialect.replace("-nft", "")
                dump[f"report of {command}, {dialect}"] = f"$ {shown}\n{real['dialects'][dialect]}\n"
        elif kind < 0.8 and command not in ("nft list ruleset", "ip -d addr"):
            shown = command.replace("-nft-", "-")
            dump[f"report of {command}"] = f"$ {shown} | grep x\n{cut(chance, text)}\n"
    return dump


def is_readable(dump: dict[str, str]) -> bool:
    """Whether an output is left in which something is understood. A paste without one is an error, and no answer."""
    try:
        pastes.read(dump, "")
    except Invalid:
        return False
    return True


def traced(node: random_nodes.Node, dump: dict[str, str]) -> dict[str, Any]:
    pasted = pastes.read(dump, node.packet["interface"])
    asked = trace_backend.Question(pasted.snapshot, packet.from_options(node.packet), BEYOND)
    return trace_backend.judge(asked, random_nodes.run).answer.plain()


def fate(found: dict[str, Any]) -> tuple[Any, ...]:
    return found["verdict"], found["interface"], (found["reply"] or {}).get("verdict")


def outputs_of(ask: str, whole: dict[str, str]) -> list[str]:
    """The outputs that the commands of ``depends_on`` stand for."""
    outputs = []
    for command in ask.split("; "):
        kind = re.match(r"ip (?:-6 )?(rule|route|neigh)\b", command)
        outputs += [name for name in whole if kind and re.search(rf" {kind[1]}\b", name)]
        outputs += [ASKED[words] for words in ASKED if not kind and command.startswith(words)]
    return list(dict.fromkeys(outputs))


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[collections.Counter[tuple[int, str]]]:
    """Counts the first answers by the number of outputs that are missing or cut, and by what they say. `make fuzz` prints it."""
    counts: collections.Counter[tuple[int, str]] = collections.Counter()
    yield counts
    terminal: Any = request.config.pluginmanager.get_plugin("terminalreporter")
    for number in sorted({number for number, _said in counts}) if terminal else ():
        total = sum(count for (of, _said), count in counts.items() if of == number)
        shares = (f"{said} {counts[number, said] / total:.0%}" for said in (CERTAIN, DEPENDS, CANNOT_TELL))
        terminal.write_line(f"\n{number} outputs missing or cut, {total} answers: {', '.join(shares)}")


CERTAIN, DEPENDS, CANNOT_TELL = "certain", "a verdict that depends on further rules", "unknown"


@pytest.mark.parametrize("is_ipv6", [False, True])
@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=4, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
def test_some_outputs_lead_to_the_node_s_answer_or_to_what_is_asked_for(
    tally: collections.Counter[tuple[int, str]], is_ipv6: bool, seed: int
) -> None:
    node = random_nodes.Node(seed, is_ipv6)
    real = random_nodes.through_the_node(node)
    whole = real["pastes"]
    right = traced(node, whole)
    assert right["certain"] and right["verdict"] != "unknown", (right["depends_on"], right["reason"])
    related = {command: text for command, text in whole.items() if command not in UNRELATED[is_ipv6]}
    without = traced(node, related)
    assert without["certain"] and fate(without) == fate(right), (without["depends_on"], without["reason"])
    for number in range(REPORTS):
        dump = report(real, f"{seed} {number}")
        if is_readable(dump):
            said = answered_at_last(node, dump, whole, right)
            tally[len({*related} - {*dump}), said] += 1


def answered_at_last(node: random_nodes.Node, dump: dict[str, str], whole: dict[str, str], right: dict[str, Any]) -> str:
    """What the first answer says. The following have what the one before asked for, until one is certain or right."""
    says = ""
    for number in range(len(whole) + 1):
        result = traced(node, dump)
        says = says or (CERTAIN if result["certain"] else CANNOT_TELL if "unknown" in fate(result) else DEPENDS)
        context = f"{node.packet} {sorted(dump)}: {fate(result)} {result['reason']} {result['depends_on']}; right: {fate(right)}"
        if result["certain"]:
            assert fate(result) == fate(right), context
            break
        assert result["depends_on"], context
        lacking = [command for fact in result["depends_on"] for command in outputs_of(fact["ask"], whole) if command not in dump]
        assert lacking, context
        if fate(result) == fate(right):
            break
        assert number < MOST_QUESTIONS, context
        first = outputs_of(result["depends_on"][0]["ask"], whole)
        dump = {name: text for name, text in dump.items() if replaced(name) not in first}
        dump.update((command, whole[command]) for command in first)
    return says


def replaced(name: str) -> str:
    """The output of which a paste of this name has a part."""
    return name.removeprefix("report of ").partition(",")[0]


LOOKED_UP_TO_CHECK_A_SOURCE = 10000024  # a node with "iif eth0 lookup 100", a strict filter of eth1, and table 100 by eth1


def test_a_table_that_only_the_check_of_a_source_reads_is_asked_for() -> None:
    """The kernel looks up the way back as for a packet that comes in where this one leaves."""
    node = random_nodes.Node(LOOKED_UP_TO_CHECK_A_SOURCE)
    real = random_nodes.through_the_node(node)
    routes = "ip route show table all"
    dump = {name: text for name, text in real["pastes"].items() if name != routes}
    dump[f"report of {routes}"] = f"$ ip route\n{real['dialects']['ip route']}\n"
    assert fate(traced(node, real["pastes"])) == ("forwarded", "eth0", "forwarded")
    result = traced(node, dump)
    assert not result["certain"] and result["depends_on"][0]["fact"] == "routes:100", fate(result)
