# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What keeps a return path from being of use."""

from __future__ import annotations

import typing as t

from .._system import kernel, sysctl


class PrimaryInterface:
    """Warns of a primary interface that is no link of the node yet: nothing would be marked."""

    def __init__(self, link: str) -> None:
        self._link = link

    def inspect(self) -> t.Iterable[str]:
        # In another root the links are the builder's, not the node's.
        if kernel.is_own_root() and self._link not in sysctl.Sysctl().links():
            yield (
                f"There is no link {self._link}, so no connection is marked until one appears. Set primary_interface to the"
                " link by which requests to the node's own addresses enter."
            )
