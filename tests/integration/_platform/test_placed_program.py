# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program on a node, as Ansible itself starts a module: from its first run to ``absent``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Node, playbook
from lab.node import NamespaceNode
from lab.playbook import Played

FOLDER = "/var/lib/kubenode/lib"
PRESENT = {"kubenode.datapath.rp_filter": {"interfaces": ["eth0"], "mode": "loose"}}
ABSENT = {"kubenode.datapath.rp_filter": {"state": "absent"}}


class Site:
    def __init__(self, lab: Lab, folder: Path) -> None:
        self.node: NamespaceNode = lab.node("node1")
        self._folder, self._inventory = folder, lab.write_inventory(folder / "inventory.json")

    def play(self, task: dict[str, Any], *arguments: str) -> Played:
        path = playbook.write(self._folder / "play.json", [task], hosts="node1")
        return playbook.play(self._inventory, path, "-vvv", *arguments).well()

    def programs(self) -> list[str]:
        return self.node.run(["sh", "-c", f"ls -A {FOLDER} 2>/dev/null || true"]).stdout.split()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Lab("program", nodes=[Node("node1")]) as lab:
        yield Site(lab, tmp_path)


@pytest.mark.each_core
def test_the_program_comes_with_the_first_change_and_goes_with_the_last_thing(site: Site) -> None:
    clean = site.node.snapshot()
    for _time in range(2):  # nothing is kept that a second run would find
        checked = site.play(PRESENT, "--check")
        assert (checked.changed, checked.modules, site.programs()) == (1, ["rp_filter"] * 2, [])
    assert site.node.snapshot() == clean
    assert site.play(PRESENT).changed == 1
    (program,) = site.programs()
    after = site.node.snapshot()
    for arguments in ([], ["--check"]):
        converged = site.play(PRESENT, *arguments)
        assert (converged.changed, converged.modules) == (0, ["rp_filter"])
    assert site.node.snapshot() == after
    # Another version, or a file that was damaged, is replaced.
    site.node.run(["sh", "-c", f"echo >>{FOLDER}/{program}/sources; mkdir {FOLDER}/kubenode-0.9.0-0123456789abcdef"])
    assert [site.play(PRESENT, "--check").changed, site.play(PRESENT).changed, site.play(PRESENT).changed] == [1, 1, 0]
    assert site.programs() == [program] and site.node.snapshot() == after
    assert site.play(ABSENT).changed == 1
    assert site.node.snapshot() == clean
    assert site.play(ABSENT).changed == 0 and site.node.snapshot() == clean
