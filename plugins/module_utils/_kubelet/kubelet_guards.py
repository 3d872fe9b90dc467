# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The guard of a unit that must come before kubelet: finds the service in which kubelet runs."""

from __future__ import annotations

import typing as t

from .._systemd.units import Units
from . import kubelet_backend
from .kubelet_units import STARTERS


def kubelet_starters(systemd: Units, units: t.Sequence[str], before: t.Sequence[str]) -> t.Iterable[str]:
    """Warn if kubelet runs in a service that a unit of this collection is not ordered before.

    units: names of units of this collection. before: as for kubelet_units.ordering().

    Only a service that is not listed costs a query to systemd, which also knows drop-ins and aliases. A kubelet outside any
    service is ignored: a container or a login started it, and the boot has no unit to order.
    """
    if not systemd.is_running():
        return
    for service in sorted(kubelet_backend.services().difference(STARTERS, before)):
        late = [unit for unit in units if service not in systemd.comes_before(unit)]
        if late:
            yield (
                f"kubelet runs in {service}, which should start after {' and '.join(late)} at each boot, but is not"
                f" ordered so and may start earlier. Add {service} to the option before."
            )
