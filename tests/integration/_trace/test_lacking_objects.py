# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a twin cannot have leaves open what becomes of the packets that may meet it, and of no others."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, trace_backend

from .._audit.healthy_nodes import KERNEL, eks_ubuntu
from . import random_nodes

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
