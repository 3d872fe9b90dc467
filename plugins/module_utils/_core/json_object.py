# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON text that another program wrote."""

from __future__ import annotations

import json
import math
import typing as t

MOST_DIGITS = 20  # of an integer of 64 bits, with its sign


def load(text: str) -> t.Any:
    """Parse JSON text. Raises ValueError.

    A number that no field of the kernel holds stays a text, so that who reads the field refuses it and names its key: Infinity
    and NaN, which JSON does not have, 1e999, and a long row of digits, which int() refuses or takes minutes for. Control
    characters in a text are permitted, because nft prints comments as they are.
    """
    try:
        return json.loads(text, strict=False, parse_constant=str, parse_int=_integer, parse_float=_real)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= MOST_DIGITS else digits


def _real(digits: str) -> float | str:
    real = float(digits)
    return real if math.isfinite(real) else digits


def parse(text: str) -> dict[str, t.Any] | None:
    """Parse JSON text of an object; return None for any other text."""
    try:
        value = load(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
