# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a twin cannot have, and a twin that fails, hangs or has no time left, leave open what they were to tell."""

from __future__ import annotations

import copy
import itertools
import time
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import (
    certainty,
    entrance,
    packet,
    packet_text,
    trace_backend,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import isolation_backend
from lab.eni import PRIMARY

from .._audit.healthy_nodes import KERNEL, eks_ubuntu
from . import random_nodes
from .test_cures import STRICT, node_port
from .test_likely_world import TUNNELS

# What a twin cannot have leaves open what becomes of the packets that may meet it, and of no others


PREFIX, INSIDE, OUTSIDE = "203.0.113.0/24", "203.0.113.9", "198.51.100.7"
REFUSED = "default"  # a name for which the kernel has no place among its settings
RULE: dict[str, Any] = {"priority": 900, "family": "ipv4", "from": PREFIX}
ROUTE: dict[str, Any] = {"family": "ipv4", "to": PREFIX, "table": "254"}
LINK = {"name": REFUSED, "index": 77, "flags": ["UP", "LOWER_UP"], "addresses": [{"address": f"{INSIDE}/24"}]}
LACKING: dict[str, dict[str, Any]] = {
    "a rule with another action": {"rules": {**RULE, "action": "3"}},
    "a rule with an unknown key": {"rules": {**RULE, "later": "1", "table": "254"}},
    "a rule with an unread attribute": {"rules": {**RULE, "unread": ["dscp"], "table": "254"}},
    "a rule before that of own addresses": {"rules": {**RULE, "priority": 0, "table": "77"}},
    "a route by a link that is not there": {"routes": {**ROUTE, "dev": "wg0"}},
    "a route with an unknown key": {"routes": {**ROUTE, "dev": "eth0", "later": "1"}},
    "a route with an unread attribute": {"routes": {**ROUTE, "dev": "eth0", "unread": ["encap"]}},
    "a route by a gateway of the other family": {"routes": {**ROUTE, "dev": "eth0", "via": "fe80::1"}},
    "a link that is refused": {"links": LINK},
    "a route by a link that is refused": {"links": {**LINK, "addresses": []}, "routes": {**ROUTE, "dev": REFUSED}},
    "a bridge with a setting that is refused": {
        "links": {**LINK, "name": "br9", "kind": "bridge", "settings": {"group_fwd_mask": 7}}
    },
}


def answer(lacking: dict[str, Any], source: str, interface: str = "eth0") -> dict[str, Any]:
    snapshot = copy.deepcopy(eks_ubuntu(KERNEL).done())
    for subset, entry in lacking.items():
        snapshot[subset].append(entry)
    packet = entrance.packet(
        {"source": source, "destination": "10.0.0.21", "destination_port": 80, "interface": interface}, snapshot
    )
    return trace_backend.judge(trace_backend.Question(snapshot, packet, {}), random_nodes.run).answer.plain()


@pytest.mark.parametrize("name", LACKING)
def test_only_the_packets_that_may_meet_what_the_twin_lacks_depend_on_it(name: str) -> None:
    other = answer(LACKING[name], OUTSIDE)
    assert (other["verdict"], other["certain"], other["depends_on"]) == ("delivered", True, [])
    met = answer(LACKING[name], INSIDE)
    assert not met["certain"] and met["depends_on"], met


def test_what_comes_in_by_a_link_that_the_twin_lacks_is_open() -> None:
    result = answer(LACKING["a link that is refused"], OUTSIDE, REFUSED)
    assert not result["certain"]
    assert result["depends_on"][0]["what"].startswith(f"The twin lacks the link {REFUSED}, which the kernel refused: ")


# A twin that fails or hangs leaves open what it was to tell, and a budget counts twins and not seconds


@pytest.fixture
def asked() -> trace_backend.Question:
    """A question about a node of which most is open, so that it is asked in many worlds."""
    sent = packet.from_options(packet_text.options("tcp 192.0.2.9:40000 > 10.77.9.4:80 in ens9"))
    return trace_backend.Question(pastes.read({"report.txt": TUNNELS}, sent.interface).snapshot, sent, {})


def test_the_worlds_that_are_tried_do_not_depend_on_the_clock(
    asked: trace_backend.Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = trace_backend.judge(asked, random_nodes.run)
    assert quiet.explored.is_whole and len(quiet.explored.answers) > 3
    monotonic, seconds = time.monotonic, itertools.count()
    with monkeypatch.context() as busy:
        busy.setattr(time, "monotonic", lambda: monotonic() + next(seconds))
        assert trace_backend.judge(asked, random_nodes.run).answer == quiet.answer
    monkeypatch.setattr(certainty, "MOST_WORK", 300)
    answer = trace_backend.judge(asked, random_nodes.run).answer
    assert answer.unknown[-1] == "3 worlds that fit the snapshot were tried, and there are more." and not answer.certain


def test_a_world_whose_twin_fails_is_open(asked: trace_backend.Question, monkeypatch: pytest.MonkeyPatch) -> None:
    run, twins = isolation_backend.run, itertools.count()

    def killed(*args: Any) -> dict[str, Any]:
        if next(twins):
            raise Failure("the twin was killed")
        return run(*args)

    monkeypatch.setattr(isolation_backend, "run", killed)
    answer = trace_backend.judge(asked, random_nodes.run).answer
    assert answer.unknown == ("The twin of a world failed: the twin was killed.",) and not answer.certain


def test_a_remedy_whose_twin_hangs_is_not_said_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    with node_port(STRICT, "pod1", PRIMARY.address, "eth0") as scene:
        snapshot = scene.node.module("datapath_info", diff=False)["snapshot"]
    judgement = trace_backend.judge(trace_backend.Question(snapshot, packet.from_options(scene.packet), {}), random_nodes.run)

    def hang(*_args: Any) -> dict[str, Any]:
        raise isolation_backend.Hang("the twin gave no answer")

    monkeypatch.setattr(isolation_backend, "run", hang)
    answer = judgement.with_cures()
    assert (answer.cures, answer.tried) == ((), ())
    assert answer.unknown[-1].endswith("remedies were not tried: a twin hung.")
