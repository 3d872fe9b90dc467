# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each filter either marks what it returns, or is for values of the operator alone."""

from __future__ import annotations

from pathlib import Path

import pytest

FILTERS = sorted((Path(__file__).resolve().parents[2] / "plugins/filter").glob("*.py"))
OF_THE_OPERATOR = {"batches", "checks"}


@pytest.mark.parametrize("path", FILTERS, ids=lambda path: path.stem)
def test_a_filter_of_what_nodes_say_returns_marked_texts(path: Path) -> None:
    """tests/integration/roles/test_untrusted_texts.py shows why, on each ansible-core."""
    assert ("return untrusted(" in path.read_text()) is (path.stem not in OF_THE_OPERATOR)
