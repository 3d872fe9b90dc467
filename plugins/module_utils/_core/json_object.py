# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""JSON text of an object that another program wrote."""

from __future__ import annotations

import json
import typing as t


def parse(text: str) -> dict[str, t.Any] | None:
    """Parse JSON text of an object; return None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
