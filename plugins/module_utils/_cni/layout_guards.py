# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What a set of policy routes has in common with a known CNI, without being the same.

Apart from the other guards, whose users do not need what a rule is.
"""

from __future__ import annotations

import typing as t

from .._routing.policy import Policy
from . import layouts


class CniLayouts:
    """Warns where a set of policy routes uses what a known CNI or cloud agent uses for something else."""

    def __init__(self, desired: Policy) -> None:
        self._desired = desired

    def inspect(self) -> t.Iterable[str]:
        return layouts.warnings(self._desired.rules or (), self._desired.routes or ())
