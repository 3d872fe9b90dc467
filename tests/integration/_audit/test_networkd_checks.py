# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd-networkd removes depends on its version."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue

from .._trace import random_nodes
from .healthy_nodes import KEPT, KERNEL, REMOVED, Entry, Node, eks_ubuntu

RULES, ROUTES = "systemd-networkd rules", "systemd-networkd routes"


def findings(node: Node, version: int | None, boot: Entry) -> list[dict[str, Any]]:
    snapshot = node.done()
    snapshot["network_daemons"]["networkd_version"] = version
    snapshot["boot"]["networkd"] = boot
    audit = audit_backend.Audit(snapshot, catalogue.chosen(["networkd-removes-foreign"]))
    return list(audit_backend.result(audit, random_nodes.run)["findings"])


@pytest.mark.parametrize(
    ("version", "boot", "subjects"),
    [
        (245, KEPT, {ROUTES}),
        (246, KEPT, set()),
        (246, REMOVED, {ROUTES}),
        (248, KEPT, {RULES}),
        (248, REMOVED, {RULES, ROUTES}),
        (249, KEPT, set()),
        (252, REMOVED, {RULES, ROUTES}),
        (None, REMOVED, {RULES, ROUTES}),
        (None, KEPT, set()),
    ],
)
def test_foreign_rules_and_routes_are_removed_by_some_versions(version: int | None, boot: Entry, subjects: set[str]) -> None:
    node = eks_ubuntu(KERNEL)
    node.route("10.9.0.0/24", "eth0", protocol="66")
    found = findings(node, version, boot)
    assert {finding["subject"] for finding in found} == subjects
    for finding in found:
        is_old = version is not None and version < 249 and boot is KEPT
        assert ("Upgrade systemd" in finding["remedy"].get("operator", "")) == (
            is_old or (version, finding["subject"]) == (248, RULES)
        )


@pytest.mark.parametrize("version", [252, 255, None])
def test_the_rules_of_the_kernel_are_removed_by_no_version(version: int | None) -> None:
    """Its source skips those of protocol kernel, although one report says that 255 removes them (systemd#41350)."""
    node = Node(KERNEL)
    node.networkd("eth0")
    assert [findings(node, version, boot) for boot in (REMOVED, KEPT)] == [[], []]
