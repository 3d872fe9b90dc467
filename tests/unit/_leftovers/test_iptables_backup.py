# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backup of iptables rules holds the rules that a run may have removed, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import iptables_backup
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.backup import Backup, Damaged, Node
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.iptables_backup import Run
from unit.swift_chain import taken

KEPT = Backup(Node("ab" * 16, ("02:00:00:00:00:01",)), (Run((taken(),), "boot"),))


def test_a_backup_is_read_as_it_was_written() -> None:
    text = iptables_backup.to_text(KEPT)
    assert text.startswith(iptables_backup.SIGNATURE) and iptables_backup.from_text(text) == KEPT


def edited(change: Callable[[dict[str, Any]], Any]) -> str:
    found = json.loads(iptables_backup.to_text(KEPT))
    change(found)
    return json.dumps(found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        edited(lambda found: found.update(version=2)),
        edited(lambda found: found.pop("node")),
        edited(lambda found: found["node"].update(macs=["x"])),
        edited(lambda found: found["runs"][0].update(more=1)),
        edited(lambda found: found["runs"][0]["tables"][0].update(family="inet")),
        edited(lambda found: found["runs"][0]["tables"][0].update(name="nat -F")),
        edited(lambda found: found["runs"][0]["tables"][0].update(chains=["OWN"])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[9])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[-1])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[True])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(removed=[0])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0]["rules"].__setitem__(1, "-j SWIFT\nCOMMIT\n*filter")),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0]["rules"].__setitem__(1, "-j DROP")),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(chain=["POSTROUTING"])),
        edited(lambda found: found["runs"][0]["tables"][0]["rules"][0].update(chain="INPUT")),
    ],
)
def test_anything_else_is_damaged(text: str) -> None:
    with pytest.raises(Damaged):
        iptables_backup.from_text(text)
