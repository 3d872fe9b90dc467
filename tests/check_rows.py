# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Outputs of nodes with the troubles that checks of the audit find, of which tests/unit/_audit/test_checks.py makes a running
node, a bundle and a paste. A new check has a row in ROWS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Outputs = Mapping[str, str]


class Row(NamedTuple):
    """outputs: of a node with the trouble, by command. mended: those that the remedy changes.

    subject, evidence: of the finding.
    """

    outputs: Outputs
    mended: Outputs
    subject: str
    evidence: list[str]


ROWS: dict[str, Row] = {}
