# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""An answer as text for a terminal."""

from __future__ import annotations

from .answer import Data, Way, from_result


def text(answer: Data, *, colours: bool = False) -> str:
    """Return the answer as lines of text. Raises NoTrace."""
    value = from_result(answer)
    lines = [value.way.summary, *value.way.reasons]
    for way in filter(None, (value.way, value.way.reply)):
        lines += ["", way.outcome, *_steps(way)]
    return "".join(f"{line}\n" for line in lines)


def _steps(way: Way) -> list[str]:
    return [f"  {step.kind:<8} {step.where:<28} {step.text}" for step in way.steps]
