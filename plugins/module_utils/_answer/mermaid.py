# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""An answer as a flowchart of Mermaid, which GitHub draws in issues."""

from __future__ import annotations

from .answer import Data, from_result


def diagram(answer: Data) -> str:
    """Return the answer as a flowchart. Raises NoTrace."""
    verdict = from_result(answer).way.verdict
    return f'flowchart TB\n  end1(["{verdict}"])\n'
