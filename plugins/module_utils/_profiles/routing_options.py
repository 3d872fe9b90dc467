# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of the profiles that keep rules and routes on a node."""

from __future__ import annotations

import typing as t

from .._checkpoint import checkpoint
from .._core.errors import Invalid
from .._core.option import COMMAND, Option, Options, Values, permitted
from .._kubelet import kubelet_units
from .._routing import policy

if t.TYPE_CHECKING:
    from .composition import Step


def before(*modules: str) -> Option:
    """Return the option ``before``. modules: that get its value."""
    return kubelet_units.BEFORE._replace(targets=tuple(f"{module}.before" for module in modules))


OPTIONS: Options = {
    "raise_all": permitted("bool", False),
    "protocol": permitted(
        "int",
        policy.PROTOCOL,
        check=lambda value, _is_applied: policy.from_options(value, None, None, {}),
        targets=("policy_routes.protocol",),
    ),
    "before": before("policy_routes", "nftables_connmark"),
    "restart_networkd": permitted("bool", True),
    "nftables": permitted("bool", False),
    "checkpoint": permitted("int", check=lambda value, _is_applied: checkpoint.seconds(value)),
    "checkpoint_command": Option("str", refused=COMMAND),
    "later_interfaces": permitted("bool", False),
}


def checkpoint_of(options: Values) -> tuple[int, str]:
    """Return the seconds and the command of the checkpoint."""
    return options["checkpoint"] or 0, options["checkpoint_command"] or ""


def groundwork(options: Values, is_image: bool) -> list[Step]:
    """Return the settings of network daemons, and the package if it is wanted. Network daemons come first."""
    package: list[Step] = [("nftables_package", {"state": options["state"]})] if options["nftables"] else []
    return [("network_daemons", {"state": options["state"], "restart": options["restart_networkd"] and not is_image}), *package]


def require_sysctl_name(place: str, name: str) -> None:
    """Raise Invalid for a link whose filter no file of sysctl.d can set."""
    if "=" in name:
        raise Invalid(place, name, "a link's name without =, as no line of sysctl.d(5) can set rp_filter of it")
