# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that load tables, and one that flushes them."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue

from .._trace import random_nodes
from .healthy_nodes import KERNEL, Entry, Node

STATES: dict[str, dict[str, str]] = {
    "active": {"active": "active", "sub": "exited", "result": "success"},
    "failed": {"active": "failed", "sub": "failed", "result": "exit-code"},
    "stopped": {"active": "inactive", "sub": "dead", "result": "success"},
    "skipped": {"active": "inactive", "sub": "dead", "result": "exec-condition"},
    "tried again": {"active": "activating", "sub": "auto-restart", "result": "exit-code"},
    "starting": {"active": "activating", "sub": "start", "result": "success"},
    "without a result": {"active": "inactive", "sub": "dead"},
    "without systemd": {"active": "", "sub": "", "result": ""},
}
FOUND, OPEN = {"active", "failed", "stopped", "tried again"}, {"starting", "without a result", "without systemd"}


def unit(state: str) -> Entry:
    return {"name": f"kubenode-nft-inet-{state.replace(' ', '_')}.service", "is_enabled": True, **STATES[state]}


def findings(check: str, **subsets: Any) -> list[tuple[str, str]]:
    node = Node(KERNEL)
    node.snapshot.update(subsets)
    audit = audit_backend.Audit(node.done(), catalogue.chosen([check]))
    found: list[dict[str, Any]] = audit_backend.result(audit, random_nodes.run)["findings"]
    return [(finding["state"], finding["subject"] or finding["ask"]) for finding in found]


@pytest.mark.parametrize("state", STATES)
def test_a_table_is_lost_unless_its_units_condition_skipped_it(state: str) -> None:
    found = ("present", f"inet {state.replace(' ', '_')}")
    lack = ("cannot_tell", f"systemctl show {unit(state)['name']}")
    assert findings("own-table-lost", units=[unit(state)]) == ([found] if state in FOUND else [lack] if state in OPEN else [])


@pytest.mark.parametrize(("name", "is_found"), [("kubenode_foax_i", False), ("kubenode_0000_i", True), ("cil_from_netdev", True)])
def test_programs_are_lost_if_no_link_has_those_of_the_units_table(name: str, is_found: bool) -> None:
    units = [{**unit("active"), "name": "kubenode-bpf-azureSLBProbe.service", "sub": "running"}]
    programs = [{"link": "eth0", "hook": "tcx", "direction": "ingress", "name": name}]
    found = findings("own-table-lost", units=units, bpf=programs)
    assert found == ([("present", "bpf azureSLBProbe")] if is_found else [])


def test_a_unit_whose_state_is_open_hides_no_other() -> None:
    names = "kubenode-nft-inet-without_systemd.service kubenode-nft-inet-starting.service"
    units = [unit(state) for state in ("without systemd", "failed", "starting", "stopped")]
    assert findings("own-table-lost", units=units) == [
        ("present", "inet failed"),
        ("present", "inet stopped"),
        ("cannot_tell", f"systemctl show {names}"),
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"is_enabled": True, "is_active": True, "is_masked": False}, "present"),
        ({"is_enabled": False, "is_active": True, "is_masked": False}, "present"),
        ({"is_enabled": False, "is_active": True, "is_masked": True}, ""),  # until the next boot
        ({"is_enabled": False, "is_active": True}, "cannot_tell"),
        ({"is_enabled": False, "is_active": False, "is_masked": False}, ""),
    ],
)
def test_a_masked_service_flushes_nothing_although_it_is_active(state: Entry, expected: str) -> None:
    tables = [{"table": {"family": "inet", "name": "other"}}]
    found = findings("flush-coming", nftables=tables, firewalls={"nftables.service": {**state, "flushes": True, "file": "/x"}})
    assert [each for each, _subject in found] == [*filter(None, [expected])]
