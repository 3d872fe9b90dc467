# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module nftables_package."""

from __future__ import annotations

import functools
import typing as t
from functools import partial

from .._core import version
from .._core.errors import Invalid
from .._core.option import STATE, Option, Options
from .._core.parts import Effects, Parts, Request
from .._core.plan import Outcome, Resource
from .._files.files import Files
from .._nftables.package_resource import InstalledPackage
from .._platform.packages import Packages, os_release
from .._systemd.unit_resource import MaskedUnit, harmless, state_of
from .._systemd.units import Units

SERVICE = "nftables.service"
LONGEST_COMMAND = 86400
OPTIONS: Options = {
    "state": STATE,
    "minimum_version": Option("str", "0.9.8"),
    "service": Option("str", "ignore", choices=("masked", "ignore")),
    "lock_timeout": Option("int", 300),
    "command_timeout": Option("int", 1800),
}


def parts(request: Request) -> Parts:
    minimum = version.wanted("minimum_version", request.params["minimum_version"])
    patience = request.params["lock_timeout"]
    if patience < 0:
        raise Invalid("lock_timeout", patience, "a number of seconds, 0 or more")
    seconds = request.params["command_timeout"]
    if not 0 < seconds <= LONGEST_COMMAND:
        raise Invalid("command_timeout", seconds, f"a number of seconds from 1 to {LONGEST_COMMAND}")
    files, units = Files(), Units(request.run)
    # A package manager that was started is left to complete, because half an installation is worse than a late one.
    runner = functools.partial(request.run, seconds=seconds, completes=True)
    manager = Packages(runner, os_release(), patience, is_offline=not units.is_running())

    package = InstalledPackage(
        manager, files, units, request.run, minimum if request.is_present else None, request.earlier.units_gone
    )
    mask = MaskedUnit(files, units, SERVICE, desired=request.is_present)
    is_masking = request.is_present and request.params["service"] == "masked"
    # The mask comes first, so that the package's scripts cannot start the unit.
    resources: list[Resource] = [mask, package] if is_masking else [package] if request.is_present else [package, mask]
    guards = [] if is_masking else [partial(harmless, files, units, SERVICE)]

    def report(outcome: Outcome) -> dict[str, t.Any]:
        for warning in package.warnings():
            request.warn(warning)
        state = state_of(files, units, SERVICE)
        is_masked = request.is_present if any(resource is mask for resource, _plan in outcome.plans) else state.masked
        service = {"enabled": state.has_links and not is_masked, "active": state.active, "masked": is_masked}
        return {**package.result(), "manager": manager.name, "service": service}

    return Parts(resources, guards, report, groundwork=resources, effects=Effects(brings_nft=request.is_present))
