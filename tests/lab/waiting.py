# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for a condition. A busy machine is no defect: ``until`` waits long, and says what it saw if that was not enough."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import Any, Protocol

from lab.entering import LabError

PATIENCE = 120.0  # seconds; a wait ends as soon as its condition holds, so only a failure takes as long
_LONGEST = 2000  # characters of an observation in a message


class Witness(Protocol):
    """Shows what happened last on a part of the lab, such as the end of a node's journal."""

    def last_lines(self) -> str: ...


def until(
    what: str,
    look: Callable[[], Any],
    *witnesses: Witness,
    expected: Any = None,
    limit: float = PATIENCE,
    pause: float = 0.05,
) -> None:
    """Wait until ``look`` returns a true value, or the expected one if there is one.

    An error of the lab or of the system is an observation too: a busy API may refuse a request. Raises LabError with ``what``
    was waited for, the last observation, the load of the machine, and what the witnesses show.
    """
    began = time.monotonic()
    while True:
        try:
            observed = look()
            if observed if expected is None else observed == expected:
                return
        except (LabError, OSError, subprocess.TimeoutExpired) as error:
            observed = error
        if time.monotonic() > began + limit:
            break
        time.sleep(pause)
    lines = [f"waited {time.monotonic() - began:.0f} s for this: {what}", f"last observation: {_shown(observed)}"]
    if expected is not None:
        lines.append(f"expected: {_shown(expected)}")
    raise LabError("\n".join([*lines, report(*witnesses)]))


def report(*witnesses: Witness) -> str:
    """The load of the machine, and what the witnesses show; for the message of a wait that failed."""
    load = " ".join(f"{average:.1f}" for average in os.getloadavg())
    return "\n".join([f"load of the machine: {load}, on {os.cpu_count()} processors", *map(_testimony, witnesses)])


def _shown(observed: Any) -> str:
    text = str(observed) if isinstance(observed, (str, Exception)) else repr(observed)
    return text if len(text) <= _LONGEST else f"... {text[-_LONGEST:]}"


def _testimony(witness: Witness) -> str:
    try:
        return witness.last_lines()
    except (LabError, OSError, subprocess.SubprocessError) as error:
        return f"{witness} shows nothing: {error}"


def eventually(holds: Callable[[], bool], limit: float, pause: float = 0.05) -> bool:
    """Whether the condition holds within ``limit`` seconds; for one that must not. It is checked every ``pause`` seconds."""
    deadline = time.monotonic() + limit
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
