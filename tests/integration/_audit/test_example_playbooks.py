# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook of examples/audit on a node with the trouble: mended by the first run, and nothing to do for the second."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lab import collection, playbook

from .._trace import test_cures as scenes
from .troubles import MARKS

PLAYBOOK = collection.CHECKOUT / "examples/audit/mend.yml"
STRICT_AT_BOOT = "net.ipv4.conf.eth0.rp_filter = 1"
CASES = [
    ("rp-strict-at-boot", 0, f"sh -c {shlex.quote(f'echo {STRICT_AT_BOOT} > /etc/sysctl.d/50-own.conf')}", 1),
    ("mark-without-rule", 0, f"iptables -t mangle -A PREROUTING {MARKS}", 1),
    ("rule-to-empty-table", 0, "ip rule add from 198.51.100.77 lookup 777", 0),  # left to an operator
]


@pytest.mark.parametrize(("check", "mode", "trouble", "changed"), CASES)
def test_a_trouble_is_mended_or_printed(tmp_path: Path, check: str, mode: int, trouble: str, changed: int) -> None:
    with scenes.shared_enis(mode) as (lab, node):
        node.run(shlex.split(trouble))
        inventory = lab.write_inventory(tmp_path / "inventory.json")
        plays = (playbook.play(inventory, PLAYBOOK, *words, variables={"audit_check": check}) for words in (["--check"], [], []))
        checked, first, second = (play.well() for play in plays)
        assert (checked.changed, first.changed, second.changed) == (changed, changed, 0), first.output
        assert ("777" in second.output) == (not changed)
