# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The parts of the module profile for a list of modules."""

from __future__ import annotations

import typing as t

from .._core.option import STATE, Option, Options
from .._core.parts import CHECKPOINT, Parts, Request
from .._platform import machine_guards, node_mode
from .._profiles import composition, mode_backend
from . import assembly
from .assembly import Transaction

if t.TYPE_CHECKING:  # so that Ansible copies them to the node, for assembly
    from . import (  # noqa: F401
        azure_vnet_bridge,
        ebtables_cleanup,
        link_addresses,
        network_daemons,
        nftables_connmark,
        nftables_package,
        nftables_probe_snat,
        policy_routes,
        rp_filter,
    )

OPTIONS: Options = {
    # With a name, the controller executes the module of that profile.
    "name": Option("str", choices=("aks_dual_stack", "cilium_migration", "eni_policy_routing", "symmetric_routing")),
    "options": Option("dict"),
    "modules": Option("list", elements="raw"),
    "state": STATE,
    "mode": node_mode.MODE,
    "later_interfaces": Option("bool", False),
    "rehearse": Option("bool", False),  # by the controller, with datapath_rehearsal
    "rehearse_packets": Option("list", [], elements="raw"),
    "rehearse_checks": Option("list", [], elements="dict"),
    **machine_guards.OPTION,
    **CHECKPOINT,
}


def parts(request: Request) -> Parts:
    machine_guards.require_node(request.params["identity"])
    return assembly.parts(request, transaction(request))


def transaction(request: Request) -> Transaction:
    """Raise Invalid."""
    options = request.params
    steps = composition.steps(options["modules"] or ())
    verdict = mode_backend.verdict(options["mode"], request.run)
    steps = composition.ordered(steps if request.is_present else composition.undoing(steps))
    return Transaction(steps, verdict, {}, options["later_interfaces"])
