# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A twin that fails or hangs leaves open what it was to tell, and a budget counts twins and not seconds."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import certainty, packet, packet_text, trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import isolation_backend
from lab.eni import PRIMARY

from . import random_nodes
from .test_cures import STRICT, node_port
from .test_likely_world import TUNNELS


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
