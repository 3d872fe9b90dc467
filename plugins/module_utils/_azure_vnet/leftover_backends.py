# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The backends that remove and restore azure-vnet's leftovers."""

from __future__ import annotations

import typing as t

from .._core.converge import Operation
from .._platform import files, library
from .._routing.routing_backend import Apply, Netlink
from .ebtables_backend import Ebtables, PutBack, Take


class LeftoverBackends(t.NamedTuple):
    tables: Ebtables
    links: Netlink
    files: files.Files

    def perform(self, operation: Operation) -> None:
        if isinstance(operation, (Take, PutBack)):
            self.tables.perform(operation)
        elif isinstance(operation, Apply):
            self.links.perform(operation)
        elif isinstance(operation, library.Load):
            library.perform(operation)
        else:
            self.files.perform(operation)
