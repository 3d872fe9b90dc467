# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose /etc is read-only: the permanent plane is refused before anything is changed, the immediate plane works."""

from __future__ import annotations

from typing import Any

import pytest

from lab import Lab
from lab.steps import Steps

MODULES: dict[str, dict[str, Any]] = {
    "nftables_probe_snat": {},
    "nftables_connmark": {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]},
    "rp_filter": {"interfaces": ["eth0"], "mode": "loose"},
    "policy_routes": {"rules": [{"priority": 1536, "from": "10.0.1.5", "table": 1003}]},
}
REFUSED = (
    "because the file system at /etc is read-only. Nothing was changed. Make it writable, or set permanent to false, and run"
    " this again after each boot"
)


@pytest.mark.parametrize(("module", "options"), MODULES.items(), ids=MODULES)
def test_a_node_with_a_read_only_etc(lab: Lab, module: str, options: dict[str, Any]) -> None:
    node = lab.node("node1")
    steps = Steps(node, module, options)
    clean = node.snapshot()
    with node.read_only("/etc"):
        assert REFUSED in steps.refused()
        steps.four(permanent=False)
        steps.four(permanent=False, state="absent")
    assert node.snapshot() == clean
    steps.run()
    with node.read_only("/etc"):
        assert not steps.run()["changed"]
        assert REFUSED in steps.refused(state="absent")
