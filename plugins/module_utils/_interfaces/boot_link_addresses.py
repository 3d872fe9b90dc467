# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units that add addresses to links whenever the links appear."""

from __future__ import annotations

import fnmatch
import typing as t

from .._files import files
from .._files.managed_files import HEADING
from .._systemd import unit_files, units
from .._systemd.unit_resource import EnabledUnit
from . import address_unit, link_address
from .link_address import LinkAddress


class BootLinkAddresses:
    """The permanent plane of link addresses: one unit for each link. before: see kubelet_units.ordering()."""

    def __init__(self, backend: files.Files, systemd: units.Units, before: t.Sequence[str] = ()) -> None:
        self._backend = backend
        self._systemd = systemd
        self._before = before

    def addresses(self) -> list[LinkAddress]:
        """Return the addresses that the units on the node add."""
        return [address for unit in self._units() for address in self._addresses_of(unit)]

    def added(self) -> list[LinkAddress]:
        """Return the addresses that started units have added.

        A unit that was not started was installed by a run that added them.
        """
        return [address for unit in self._units() if self._systemd.is_active(unit) for address in self._addresses_of(unit)]

    def _units(self) -> list[str]:
        """Return the names of the units on the node, and of those that a killed run left as temporary files."""
        pattern = f"{address_unit.PREFIX}*.service"
        arriving = self._backend.left_over_in(unit_files.FOLDER)
        return sorted({*self._systemd.named(pattern), *fnmatch.filter(arriving, pattern)})

    def _addresses_of(self, unit: str) -> list[LinkAddress]:
        file = self._backend.read(unit_files.path_of(unit))
        if not isinstance(file, files.Content) or not file.text.startswith(HEADING):
            return []
        return [address for address in map(link_address.from_words, address_unit.addresses(file.text)) if address]

    def resources(self, desired: t.Collection[LinkAddress]) -> list[EnabledUnit]:
        """Return the resources that make the units add ``desired``.

        No unit is started: its link starts it at its next appearance.
        """
        links = [address.dev for address in desired] + list(map(address_unit.link_of, self._units()))
        return [self._unit(link, [address for address in desired if address.dev == link]) for link in dict.fromkeys(links)]

    def _unit(self, link: str, desired: t.Sequence[LinkAddress]) -> EnabledUnit:
        unit = address_unit.unit(link, [address.words for address in desired], self._before)
        return EnabledUnit(self._backend, self._systemd, unit, desired=bool(desired), starts=False)
