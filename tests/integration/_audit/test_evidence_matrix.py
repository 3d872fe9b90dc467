# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each kind of evidence lets the checks tell that docs/audit.md names, with their trouble there and not there, and none is wrong.

``python3 tests/toolchain.py run python -m integration._audit.evidence_matrix`` writes the table anew.
"""

from __future__ import annotations

import functools

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import commands

from .evidence_matrix import ALL_TROUBLES, COLLECTORS, KINDS, LIVE, OPEN, WRONG, Cell, committed, with_trouble, without_trouble

SOME = 6  # `make test` takes one check of so many, and `make fuzz` all
CHECKS = [check.id for check in catalogue.CHECKS]
# Of the checks, how many tell in both directions at least.
LEAST = {LIVE: len(CHECKS), COLLECTORS["EKS"]: 31, COLLECTORS["sos"]: 43, COLLECTORS["Rancher"]: 33}


@functools.cache
def rows() -> dict[str, dict[str, tuple[str, str]]]:
    """Return the committed table: by check and kind of evidence, what it tells with the trouble there and not there."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in committed().splitlines() if line.startswith("| `")]
    return {line[0].strip("`"): {kind: _pair(cell) for kind, cell in zip(KINDS, line[1:])} for line in lines}


def _pair(cell: str) -> tuple[str, str]:
    there, _slash, absent = cell.partition(" / ")
    return there, absent


def asked(cells: dict[tuple[str, str], Cell]) -> set[str]:
    """Return the commands for which checks ask that no reader of outputs knows."""
    asks = {command for cell in cells.values() if cell.tells == OPEN for command in cell.ask.split("; ") if command}
    of_node = {command for command in asks if not command.startswith(("kubectl", "tcpdump", "datapath_", "az ", "ovs-"))}
    texts = {command: f"root@n:~# {command}\nnetns: pod\nx\n" for command in of_node}
    return {command for command, text in texts.items() if not any(part.kind for part in commands.parts("", text))}


def test_the_table_has_each_check_and_none_is_wrong() -> None:
    assert [*rows()] == CHECKS and {*ALL_TROUBLES} == {*CHECKS}
    assert not any(WRONG in pair for row in rows().values() for pair in row.values())
    for kind, least in LEAST.items():
        assert sum(OPEN not in row[kind] for row in rows().values()) >= least, kind


def test_of_a_healthy_node_the_checks_tell_what_the_table_says() -> None:
    cells = without_trouble()
    told = {check: {kind: cells[check, kind].tells for kind in KINDS} for check in CHECKS}
    assert told == {check: {kind: row[kind][1] for kind in KINDS} for check, row in rows().items()}
    assert asked(cells) == set()


@pytest.mark.parametrize("check", sampled(CHECKS, lambda check: check in CHECKS[::SOME]))
def test_of_a_node_with_its_trouble_a_check_tells_what_the_table_says(check: str) -> None:
    cells = with_trouble(check)
    assert {kind: cells[check, kind].tells for kind in KINDS} == {kind: rows()[check][kind][0] for kind in KINDS}
    assert asked(cells) == set()
