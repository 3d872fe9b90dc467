# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The backends that remove and restore azure-vnet's leftovers."""

from __future__ import annotations

import typing as t

from .._core.plan import Backend
from .._ebtables.ebtables_backend import Ebtables
from .._files import files
from .._platform import library, process
from .._routing.routing_backend import Netlink


class LeftoverBackends(t.NamedTuple):
    """run: starts programs that read."""

    tables: Ebtables
    links: Netlink
    files: files.Files
    run: process.Runner

    def all(self) -> t.Sequence[Backend]:
        return (self.tables, self.links, self.files, library.Libraries())
