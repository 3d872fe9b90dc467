# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module nftables_probe_snat."""

from __future__ import annotations

from functools import partial

from .._core import names
from .._core.errors import Invalid
from .._core.option import Option, Options
from .._core.parts import NO_EFFECTS, TWO_PLANES, Effects, Parts, Request
from .._core.plan import Guard, Resource
from .._files.files import Files
from .._files.folder_guards import roots_folders
from .._kubelet import kubelet_units
from .._kubelet.kubelet_guards import kubelet_starters
from .._nftables import table_names
from .._nftables.nft_backend import Nft
from .._nftables.nft_table import replacement
from .._nftables.table_resource import BootTable, HandedOverTable, LiveTable
from .._platform import kernel
from .._probe_snat import agentbaker_resource, boot_programs, probe_guards, probe_table, programs_guards, programs_unit
from .._probe_snat.agentbaker_resource import ReplacedUnit
from .._probe_snat.live_programs import LivePrograms
from .._probe_snat.probe_programs import MOST_PROBES
from .._probe_snat.probe_table import ProbeSnat
from .._probe_snat.programs_unit import BootPrograms
from .._systemd.unit_files import path_of
from .._systemd.units import Units

FAMILY = "ip6"
AUTO, NFTABLES, BPF = "auto", "nftables", "bpf"
OPTIONS: Options = {
    **TWO_PLANES,
    **probe_table.OPTIONS,
    "boot_condition": Option("str", "none", choices=("imds", "address", "none")),
}


def parts(request: Request) -> Parts:
    table = table_names.table("table", request.params["table"], request.is_present)
    path = names.boot_path(request.params["path"], request.is_present)
    before = kubelet_units.others(request.params["before"])
    wanted = ProbeSnat.from_options(request.params) if request.is_present else None
    translators = probe_guards.OtherTranslators(request.params["interface"])
    files, units = Files(), Units(request.run, request.warn)
    backend = _backend(request.params["backend"], translators, files, table) if wanted else ""
    desired = wanted if backend == NFTABLES else None
    nft = Nft(request.run, request.warn, is_coming=request.earlier.brings_nft)
    boot = BootTable(files, units, FAMILY, table, path, before)
    is_agentbakers = table == agentbaker_resource.TABLE.name
    is_asked = request.params["agentbaker"] == "take_over" and request.params["permanent"]
    replaces = desired is not None and is_agentbakers and is_asked
    replaced = ReplacedUnit(files, units, boot.unit, replaces, starts=request.params["immediate"])
    agentbaker = agentbaker_resource.state(files, units)
    owner = agentbaker_resource.UNIT if agentbaker == "enabled" and not replaces else None
    if desired and owner:
        desired = desired._replace(comment="")  # which AgentBaker's table does not have

    desired_table = (desired.table(not_probed=()) if owner else desired.table()) if desired else None
    ruleset = replacement(FAMILY, table, desired_table.text()) if desired_table else ""
    is_placed = desired is not None and owner is None
    live = [LiveTable(nft, FAMILY, table, desired_table)]
    if desired is None and is_agentbakers and owner:  # the table of AgentBaker's unit stays
        live = [HandedOverTable(nft, FAMILY, table, agentbaker_resource.loaded_table())] if replaced.is_in_force() else []
    is_asking = is_placed and request.params["permanent"] and request.params["boot_condition"] != "none"
    condition = boot.condition(request.params["boot_condition"], request.params["interface"]) if is_asking else None
    placed = boot.resources(
        ruleset if is_placed else None,
        accept=nft,
        starts=request.params["immediate"],
        condition=condition,
        program=_archive() if condition else None,
    )
    resources: list[Resource] = [*live, *placed] if desired else [*placed, *live]
    if is_agentbakers:
        resources.insert(0 if replaces else len(resources), replaced)
    probes = wanted.probes if wanted and backend == BPF else ()
    if len(probes) > MOST_PROBES:
        raise Invalid("probes", f"a list of {len(probes)}", f"at most {MOST_PROBES} probes with backend bpf")
    programs = BootPrograms(table, request.params["interface"], probes)
    of_programs = _of_programs(programs, files, units, path, request.params["immediate"], before)
    resources = [*of_programs, *resources] if probes else [*resources, *of_programs]
    guards = _guards(desired, translators, owner, nft if request.params["immediate"] else None)
    if wanted and probes:
        guards += _guards_of_programs(wanted, translators, request.params["immediate"])
    if request.params["immediate"] and not request.params["permanent"] and boot_programs.is_installed(files, table):
        guards.append(partial(programs_guards.kept_programs, units, table))
    if wanted and request.params["permanent"] and request.params["immediate"]:
        guards.append(partial(probe_guards.advertisements_at_boot, wanted.interface, request.warn))
    if request.params["permanent"] and (is_placed or probes):
        unit = programs_unit.name(table) if probes else boot.unit
        guards.append(partial(roots_folders, path, path_of(unit)))
        guards.append(partial(kubelet_starters, units, [unit], before))
    return Parts(
        resources,
        guards,
        lambda _outcome: {
            "ruleset": ruleset,
            "table": table,
            "backend": backend,
            "managed_by": None if probes else owner,
            "agentbaker": agentbaker,
            "needed": translators.need(owner, bool(probes)),
        },
        effects=NO_EFFECTS if desired else Effects(units_gone=frozenset({boot.unit})),
    )


def _backend(option: str, translators: probe_guards.OtherTranslators, files: Files, table: str) -> str:
    """Return the backend that the option chooses on this node."""
    if option != AUTO:
        return option
    return BPF if boot_programs.reason(files, translators, table) else NFTABLES


def _archive() -> str:
    """Return the boot program as an archive. The import is here because most runs install no boot program."""
    from .._boot.program_archive import archive

    return archive("_probe_snat.ipv6_program")


def _of_programs(
    desired: BootPrograms, files: Files, units: Units, path: str, starts: bool, before: tuple[str, ...]
) -> list[Resource]:
    """Return the resources of the BPF programs, or those that remove them.

    A unit that runs would undo the change of the programs, and so it is changed first.
    """
    is_installed = boot_programs.is_installed(files, desired.table)
    live = LivePrograms(desired.table, desired.link, desired.probes, kernel.release(), are_known=is_installed)
    if not desired.probes and not is_installed:
        return [live]
    placed = boot_programs.resources(files, units, desired, boot_programs.path(path), starts, before)
    return [*placed, live] if is_installed else [live, *placed]


def _guards_of_programs(desired: ProbeSnat, translators: probe_guards.OtherTranslators, is_live: bool) -> list[Guard]:
    chosen: list[Guard] = [
        partial(probe_guards.ebpf_host_routing, translators),
        partial(probe_guards.health_probe_filters, translators),
        partial(programs_guards.express_path, translators),
    ]
    if is_live:
        chosen.append(partial(programs_guards.ethernet_link, desired.interface))
        chosen.append(partial(programs_guards.first_place, desired.interface))
        chosen.append(partial(probe_guards.probe_path, desired._replace(priority=ProbeSnat().priority)))
    return chosen


def _guards(
    desired: ProbeSnat | None, translators: probe_guards.OtherTranslators, owner: str | None, nft: Nft | None
) -> list[Guard]:
    """Return the guards of the desired table. A refusal applies to both planes, the warnings of probe_path to the running kernel.

    nft: None if the running kernel is not the node's.
    """
    if desired is None:
        return []
    chosen: list[Guard] = [
        partial(probe_guards.ebpf_host_routing, translators),
        partial(probe_guards.health_probe_filters, translators),
    ]
    chosen.append(partial(probe_guards.cilium_node_ports, translators))
    chosen += [partial(probe_guards.agent_baker, desired, nft)] if owner else []
    chosen += [partial(probe_guards.probe_path, desired)] if nft else []
    return chosen
