# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile on any cluster, from nothing to absent: a Service answers, the audit has no error, and the nodes are restored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lab import snapshot
from lab.kubernetes.delivery import Delivery
from lab.machine import Machine

AUDIT_PORT = 9466
_FILES = """
set -- /etc/kubenode /etc/sysctl.d /etc/systemd /var/lib/kubenode
find "$@" -printf '%p %y %m %l\\n' 2> /dev/null | sort
find "$@" -type f -exec sha256sum {} + 2> /dev/null | sort
"""


def state(node: Machine) -> dict[str, Any]:
    """What a profile may change on a node: its network, and the files in which it keeps it."""
    files = node.run(["sh", "-c", _FILES]).stdout
    return {**snapshot.network(node), "files": files}


def states(delivery: Delivery) -> dict[str, dict[str, Any]]:
    """The state of each node, by its name."""
    return {node.name: state(node) for node in delivery.cluster.workers}


def errors(audit: Delivery, node: Machine) -> list[str]:
    """The errors that the agent which audits the node has found. Fails if it has not audited it."""
    metrics = audit.metrics(node, port=AUDIT_PORT)
    assert "kubenode_datapath_audit_timestamp_seconds " in metrics, metrics
    return re.findall(r'^kubenode_datapath_finding\{.*severity="error".*', metrics, re.MULTILINE)


def run(profile: Delivery, audit: Delivery, unanswered: Callable[[], list[str]], changes: bool = True) -> None:
    """Apply the profile and undo it. unanswered: the requests to a Service without an answer. changes: whether it has to act."""
    before = states(profile)
    profile.until("the Service answers before the profile is applied", unanswered, expected=[])
    profile.apply()
    profile.wait()
    assert (states(profile) != before) is changes
    profile.until("the Service answers", unanswered, expected=[])
    audit.apply()
    audit.wait()
    assert {node.name: errors(audit, node) for node in audit.cluster.workers} == {name: [] for name in before}
    audit.delete()
    profile.apply_absent()
    profile.until("the nodes are as before", lambda: _differences(before, states(profile)), expected=[])
    assert not unanswered()


def _differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    return [f"{name}, {line}" for name in before for line in snapshot.differences(before[name], after[name])]
