# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module azure_vnet_bridge."""

from __future__ import annotations

import typing as t
from functools import partial

from .._core import names
from .._core.option import Option, Options
from .._core.parts import CHECKPOINT, Parts, Request
from .._core.plan import Guard
from .._files.files import Files
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import Link, Scene
from .._leftovers import survey_backend
from .._leftovers.bridge_resource import DissolvedBridge
from .._leftovers.leftover_guards import bridge_users
from .._leftovers.resolved_backend import Resolved
from .._platform.machine_guards import require_own_root
from .._platform.sysctl import Sysctl
from .._routing.routing_backend import Netlink

OPTIONS: Options = {
    "state": Option("str", "absent", choices=("absent",)),
    "bridge": Option("str"),
    "interface": Option("str"),
    **CHECKPOINT,
}
ON_THE_NODE = partial(require_own_root, "this module works on the running node", "Run the module on the node, or omit it here")


def parts(request: Request) -> Parts:
    bridge, interface = (
        names.interface(option, request.params[option]) if request.params[option] else None for option in ("bridge", "interface")
    )

    def gateways(link: Link, scene: Scene) -> t.Collection[str]:
        return survey_backend.gateways(request.run, request.warn, link, scene)

    dissolved = DissolvedBridge(LinkMessages(), Resolved(request.run), Sysctl(), bridge, interface, gateways)
    guards: list[Guard] = [ON_THE_NODE, partial(bridge_users, dissolved.bridge, Netlink(), Files())]
    return Parts([dissolved], guards, lambda outcome: outcome.report(dissolved))
