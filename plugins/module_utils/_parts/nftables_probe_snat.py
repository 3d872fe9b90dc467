# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The parts of the module nftables_probe_snat."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:  # so that Ansible copies it to the node, for archive()
    from .._nftables import ipv6_program  # noqa: F401

from .._boot import boot_files
from .._boot.units import Units
from .._core import names
from .._core.parts import NO_EFFECTS, TWO_PLANES, Effects, Parts, Request
from .._core.plan import Guard, Resource
from .._nftables import probe_guards
from .._nftables.boot_table import BootTable
from .._nftables.live_table import LiveTable
from .._nftables.nft_backend import Nft
from .._nftables.nft_table import replacement
from .._nftables.probe_table import (
    AZURE_SOURCE,
    AZURE_TRANSLATED,
    ProbeSnat,
)
from .._platform.files import Files

FAMILY = "ip6"
OPTIONS = {
    **TWO_PLANES,
    "table": {"type": "str", "default": "azureSLBProbe"},
    "interface": {"type": "str", "default": "eth0"},
    "priority": {"type": "int", "default": -300},
    "probes": {
        "type": "list",
        "elements": "dict",
        "default": [{"source": AZURE_SOURCE, "translated": AZURE_TRANSLATED}],
        "options": {"source": {"type": "str", "required": True}, "translated": {"type": "str", "required": True}},
    },
    "path": {"type": "path", "default": "/etc/kubenode/probe-snat.nft"},
    "boot_condition": {"type": "str", "choices": ["imds", "address", "none"], "default": "none"},
}


def parts(request: Request) -> Parts:
    table = names.table("table", request.params["table"], request.is_present)
    path = boot_files.option(request.params["path"], request.is_present)
    desired = ProbeSnat.from_options(request.params) if request.is_present else None
    nft = Nft(request.run, request.warn, is_coming=request.earlier.brings_nft)
    files, units = Files(), Units(request.run, request.warn)
    owner = probe_guards.AGENTBAKER_UNIT if units.is_enabled(probe_guards.AGENTBAKER_UNIT) else None

    ruleset = replacement(FAMILY, table, desired.table().text()) if desired else ""
    is_placed = desired is not None and owner is None
    live = LiveTable(nft, FAMILY, table, desired.table() if desired else None)
    boot = BootTable(files, units, FAMILY, table, path)
    is_asking = is_placed and request.params["permanent"] and request.params["boot_condition"] != "none"
    condition = boot.condition(request.params["boot_condition"], request.params["interface"]) if is_asking else None
    placed = boot.resources(
        ruleset if is_placed else None,
        accept=nft,
        starts=request.params["immediate"],
        condition=condition,
        program=_archive() if condition else None,
    )
    resources: list[Resource] = [live, *placed] if desired else [*placed, live]
    if desired is None and owner and table == ProbeSnat().name:
        resources.remove(live)  # the unit owns the table
    others = probe_guards.OtherTranslators(request.params["interface"])
    guards = _guards(desired, others, owner, request.params["immediate"])
    return Parts(
        resources,
        guards,
        lambda _outcome: {
            "ruleset": ruleset,
            "table": table,
            "managed_by": owner,
            "needed": others.need(owner),
        },
        effects=NO_EFFECTS if desired else Effects(units_gone=frozenset({boot.unit})),
    )


def _archive() -> str:
    """The boot program as an archive. The import is here because most runs install no boot program."""
    from .._boot.program_archive import archive

    return archive("_nftables.ipv6_program")


def _guards(desired: ProbeSnat | None, others: probe_guards.OtherTranslators, owner: str | None, immediate: bool) -> list[Guard]:
    """The guards of the desired table. A refusal applies to both planes; the warnings of ProbePath to the running kernel."""
    if desired is None:
        return []
    chosen: list[Guard] = [probe_guards.EbpfHostRouting(others), probe_guards.HealthProbeFilters(others)]
    chosen.append(probe_guards.CiliumNodePorts(others))
    chosen += [probe_guards.AgentBaker(desired)] if owner else []
    chosen += [probe_guards.ProbePath(desired)] if immediate else []
    return chosen
