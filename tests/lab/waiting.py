# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], limit: float = 5.0, pause: float = 0.05) -> bool:
    """Whether the condition holds within ``limit`` seconds. It is checked every ``pause`` seconds."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
