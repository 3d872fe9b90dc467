# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each row of docs/which-profile.md says in which versions its trouble exists, and who says so: rows age."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
COLUMNS = ("cluster", "trouble", "versions", "profile")
SOURCE = re.compile(r"\]\(https://|\[\d\]")
VERSION = re.compile(r"\d")


def _rows() -> list[dict[str, str]]:
    lines = (CHECKOUT / "docs/which-profile.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [dict(zip(COLUMNS, row)) for row in cells if row != [*COLUMNS]]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["cluster"][:60])
def test_a_row_names_versions_and_a_source(row: dict[str, str]) -> None:
    assert [*row] == [*COLUMNS]
    assert VERSION.search(row["versions"]), "no version, and no date"
    assert SOURCE.search(" ".join(row.values())), "no report, and no note"
