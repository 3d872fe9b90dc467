# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine that the lab runs on, as the builder of an image. It is only read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from lab.machine import Machine


class ThisMachine(Machine):
    def __init__(self) -> None:
        super().__init__("this machine", os.getpid())

    def command(
        self, argv: Sequence[str], namespaces: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> list[str]:
        return list(argv)
