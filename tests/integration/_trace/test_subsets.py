# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The law of subsets: from some of a node's outputs, the trace answers as the node does, or says what it lacks.

Where it lacks something, it is given the output that it asks for first, again and again, until it is certain.
"""

from __future__ import annotations

import random
import re
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet, trace_backend

from . import random_nodes

MOST_QUESTIONS = 5
# The outputs of a node that a command in ``ask`` begins with.
ASKED = {
    "iptables-save": "iptables-nft-save",
    "ip6tables-save": "ip6tables-nft-save",
    "ebtables": "ebtables-nft-save",
    "ipset": "ipset save",
    "nft": "nft list ruleset",
    "sysctl": "sysctl -a",
    "ip addr": "ip -d addr",
}


def cut(chance: random.Random, text: str) -> str:
    """What somebody pastes of an output."""
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


def told(whole: dict[str, str], seed: int) -> dict[str, str]:
    """The outputs that somebody pastes, by the commands that they show."""
    chance = random.Random(seed)
    found = {}
    for command, text in whole.items():
        kind = chance.random()
        if kind < 0.5:
            found[command] = text
        elif kind < 0.75 and command not in ("nft list ruleset", "ip -d addr"):
            shown = command.replace("-nft-", "-")
            found[f"report of {command}"] = f"$ {shown} | grep x\n{cut(chance, text)}\n"
    return found


def traced(node: random_nodes.Node, dump: dict[str, str]) -> dict[str, Any]:
    pasted = pastes.read(dump, node.packet["interface"])
    asked = trace_backend.Question(pasted.snapshot, packet.from_options(node.packet), {})
    return trace_backend.answer(asked._replace(is_curable=False), random_nodes.run, lambda _spec, given: given)


def fate(found: dict[str, Any]) -> tuple[Any, ...]:
    return found["verdict"], found["interface"], (found["reply"] or {}).get("verdict")


def output_of(ask: str, whole: dict[str, str]) -> list[str]:
    """The outputs that a command of ``depends_on`` stands for."""
    if ask.startswith(("ip rule", "ip route", "ip neigh")):
        kind = ask.split()[1].strip(";")
        return [command for command in whole if re.search(rf" {kind}\b", command)]
    return [ASKED[next(words for words in ASKED if ask.startswith(words))]]


@pytest.mark.parametrize("is_ipv6", [False, True])
@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=40, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
def test_some_outputs_lead_to_the_node_s_answer_or_to_what_is_asked_for(is_ipv6: bool, seed: int) -> None:
    node = random_nodes.Node(seed, is_ipv6)
    whole = random_nodes.through_the_node(node)["pastes"]
    right = traced(node, whole)
    assert right["certain"] and right["verdict"] != "unknown", (right["depends_on"], right["reason"])
    dump = told(whole, seed)
    if not dump:
        return
    for number in range(len(whole) + 1):
        found = traced(node, dump)
        said = f"{node.packet} {sorted(dump)}: {fate(found)} {found['reason']} {found['depends_on']}; {fate(right)} is right"
        if found["certain"]:
            assert fate(found) == fate(right), said
            break
        assert found["depends_on"], said
        asked = [one for fact in found["depends_on"] for one in output_of(fact["ask"], whole) if one not in dump]
        assert asked, said
        if fate(found) == fate(right):
            break
        assert number < MOST_QUESTIONS, said
        first = output_of(found["depends_on"][0]["ask"], whole)
        dump = {name: text for name, text in dump.items() if name.removeprefix("report of ") not in first}
        dump.update((command, whole[command]) for command in first)
