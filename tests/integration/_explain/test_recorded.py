# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One snapshot with the changes that the agent has heard from the kernel: the node before them, and who made them."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._explain import explain_backend, recorded
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.explanation import Explanation
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.node_differences import Difference
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Entry
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, packet_text
from lab import network
from lab.collection import CHECKOUT

from .._audit.layouts import Calico
from .._audit.mutation_trials import snapshot_of
from .._trace import random_nodes
from .test_explain import INNOCENT, TO_POD

sys.path.append(str(CHECKOUT / "deploy/image"))

from kubenode_agent import watch as agent  # noqa: E402

ENOUGH = 10.0  # seconds for notifications that the kernel has sent already


def _heard(folder: Path, *commands: str) -> tuple[Entry, Entry]:
    """Return a node before commands, and after them with what an agent has recorded meanwhile."""
    layout = Calico()
    with network.built(layout) as machines, network.listening(machines):
        node = machines["node"]
        before = snapshot_of(layout, machines)
        watch = node.in_network(lambda: agent.Watch(folder))
        for command in commands:
            node.run(shlex.split(command))
        end = time.monotonic() + ENOUGH
        while len(watch.history) < len(commands) and time.monotonic() < end:
            watch.receive(0.2)
        watch.close()
        return before, {**snapshot_of(layout, machines), "changes": json.loads((folder / agent.HISTORY).read_text())}


@pytest.fixture(autouse=True)
def _of_any_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "OF_NODE", "/proc/self/ns/net")


def _explained(before: Entry, after: Entry, line: str = TO_POD) -> Explanation:
    packet = entrance.packet(packet_text.options(line), before)
    return explain_backend.explain(before, after, packet, {}, random_nodes.run)


GUILTY = {
    "ip rule del priority 32766": "ip rule 32766: from all lookup main is gone",
    "ip route del 10.60.1.5": "route 10.60.1.5 dev cali1 scope link is gone",
    "ip rule add to 10.60.1.5 blackhole priority 300": "ip rule 300: from all to 10.60.1.5 blackhole is new",
    "ip route add blackhole 10.60.1.5 metric 0 tos 0x10 table 7": "",
    "sysctl -q -w net.ipv4.conf.eth0.forwarding=0": "net.ipv4.conf.eth0.forwarding is 0 instead of 1",
    "ip link set cali1 mtu 1400": "",
    "ip neigh replace 10.60.1.5 lladdr 02:00:00:00:00:99 nud permanent dev cali1": (
        "neighbor 10.60.1.5 lladdr 02:00:00:00:00:99 dev cali1 is new"
    ),
}


@pytest.mark.parametrize("command", GUILTY)
def test_a_node_before_its_recorded_changes_explains_them(tmp_path: Path, command: str) -> None:
    whole, after = _heard(tmp_path, INNOCENT[0], command, "ip addr add 203.0.113.77/32 dev eth0")
    after = {**after, "node": {"name": "node1", "time": "2099-01-01 00:00:00 UTC"}}  # a bundle is read long after a change
    before, remaining = recorded.earlier(after)
    assert remaining == []
    shown = {subset: before[subset] for subset in before if subset in ("links", "rules", "routes", "settings", "neighbors")}
    assert [change.text for change in Difference({**whole, **shown}, whole).changes if "neighbor" not in change.kind] == []
    explained = _explained(before, after)
    assert [change.text for change in explained.guilty] == ([GUILTY[command]] if GUILTY[command] else [])
    assert all(change.program.startswith("process ") for change in explained.guilty if change.kind != "setting")


def test_routes_that_the_kernel_removed_without_a_message_are_said_to_lack(tmp_path: Path) -> None:
    _before, after = _heard(tmp_path, "ip addr del 192.0.2.11/24 dev eth0")
    (remaining,) = recorded.earlier(after)[1]
    assert remaining == recorded.SILENT.format("192.0.2.11/24 dev eth0", "removed")


def test_a_change_of_nftables_has_the_program_if_no_other_one_changed_them(tmp_path: Path) -> None:
    drop = "iptables-nft -I FORWARD -d 10.60.1.5 -j DROP"
    before, after = _heard(tmp_path, drop)
    # The history began with the earlier state.
    known = {"time": 0.0, "kind": "rule", "verb": "added", "text": "ip rule 9: from all lookup main"}
    explained = _explained(before, {**after, "changes": [known, *after["changes"]]})
    assert explained.guilty[0].program.endswith("(iptables-nft)"), explained.guilty
    later = {**after["changes"][-1], "program": "process 7 (other)"}
    for changes in (after["changes"], [known, *after["changes"], later]):
        assert _explained(before, {**after, "changes": changes}).guilty[0].program == ""
    assert len(recorded.earlier(after)[1]) == 1, "which rules there were is not known"


LIES: list[Any] = [
    "rule",
    [{"time": "now"}],
    [{"before": {"rules": "x"}, "after": {"rules": []}}],
    [{"before": {"rules": [{"priority": "a"}]}, "after": {"rules": []}}],
    [{"before": {"links": [{"mtu": 1}]}, "after": {"links": []}}],
    [{"before": {"settings": {"ipv4": {"eth0": {"rp_filter": "yes"}}}}}],
]


@pytest.mark.parametrize("changes", LIES, ids=str)
def test_recorded_changes_of_another_form_are_refused(changes: Any) -> None:
    with pytest.raises(Invalid, match=r"^snapshot\."):
        recorded.earlier({"rules": [], "changes": changes})
