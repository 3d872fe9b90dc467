# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Options that several profiles have."""

from __future__ import annotations

from .._kubelet import kubelet_units
from .option import Option, permitted


def before(*modules: str) -> Option:
    """Return the option ``before``: units that start kubelet. modules: that get its value."""
    return permitted(
        "list",
        [],
        elements="str",
        is_words=True,
        check=lambda value, _is_applied: kubelet_units.others(value),
        targets=tuple(f"{module}.before" for module in modules),
    )
