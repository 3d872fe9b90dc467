# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module ebtables_cleanup."""

from __future__ import annotations

import typing as t
from functools import partial

from .._core.option import Option, Options
from .._core.parts import CHECKPOINT, Parts, Request
from .._core.plan import Guard, Outcome, Plane, Resource
from .._ebtables import ebtables
from .._ebtables.ebtables_backend import Ebtables
from .._files.files import Files
from .._files.folder_guards import roots_folders
from .._leftovers import cleanup_options
from .._leftovers.backup_resource import BackupFile
from .._leftovers.cleanup_resource import AzureVnetLeftovers, LeftoverBackends, Selection
from .._leftovers.leftover import CHAIN, RULE
from .._leftovers.leftover_guards import another_cni, harmful_leftovers, no_monitor
from .._leftovers.restoration_resource import Restored, RestoredLeftovers
from .._netfilter.chain import texts_by_place
from .._platform.library import PYROUTE2, CarriedLibrary
from .._platform.machine_guards import require_own_root
from .._routing.neighbour import Neighbour
from .._routing.routing_backend import Netlink
from .._systemd import unit_files

OPTIONS: Options = {
    "state": Option("str", "absent", choices=("absent", "restored")),
    "owner": Option("str", "azure_vnet", choices=("azure_vnet",)),
    **cleanup_options.OPTIONS,
    **CHECKPOINT,
}
ON_THE_NODE = partial(require_own_root, "this module works on the running node", "Run the module on the node, or omit it here")
BACKENDS = {"auto": ebtables.BACKENDS, "nft": (ebtables.NFT,), "legacy": (ebtables.LEGACY,)}


def parts(request: Request) -> Parts:
    options, files = request.params, Files()
    stem = f"{cleanup_options.backup(options['backup'], options['state'] == 'absent')}/{options['owner']}"
    backends = LeftoverBackends(Ebtables(request.run, request.warn), Netlink(), files, request.run)
    return (_restored if options["state"] == "restored" else _cleaned_up)(request, backends, BackupFile(files, stem))


def _cleaned_up(request: Request, backends: LeftoverBackends, backup: BackupFile) -> Parts:
    options = request.params
    desired = Selection(
        cleanup_options.addresses(options["addresses"]),
        BACKENDS[options["backend"]],
        *(options[kind] for kind in ("neighbors", "routes", "iptables", "links")),
    )
    leftovers = AzureVnetLeftovers(backends, desired, backup)
    guards: list[Guard] = [ON_THE_NODE, partial(roots_folders, backup.path), another_cni, no_monitor]
    guards.append(partial(harmful_leftovers, request.run))

    def report(outcome: Outcome) -> dict[str, t.Any]:
        findings = outcome.report(leftovers)
        for trouble in dict.fromkeys(findings.troubles):
            request.warn(trouble)
        return {
            "removed": [rule.report() for rule in findings.rules if rule.verdict.is_leftover],
            "kept": [rule.report() for rule in findings.rules if not rule.verdict.is_leftover],
            "neighbors": [str(neighbour) for neighbour in findings.neighbours],
            "routes": [str(route) for route, _protocol in findings.routes],
            "files": [*findings.moved],
            "kept_files": [{"path": path, "reason": why} for path, why in findings.unmoved.items()],
            "iptables": findings.iptables.report(),
            "links": findings.links.report(),
            "backup_file": backup.path,
        }

    return Parts([leftovers], guards, report)


def _restored(request: Request, backends: LeftoverBackends, backup: BackupFile) -> Parts:
    leftovers = RestoredLeftovers(backends, backup)
    resources: list[Resource] = [leftovers]
    # Runs that removed only rules of iptables and links needed no library.
    if any(run.removed_rules or run.files or run.changes for run in backup.observe().runs):
        resources.append(
            CarriedLibrary(
                PYROUTE2,
                desired=False,
                is_needed=lambda: bool(unit_files.named("kubenode-policy-routes-*.service")),
                plane=Plane.IMMEDIATE,
            )
        )

    def report(outcome: Outcome) -> dict[str, t.Any]:
        restored = outcome.report(leftovers)
        for difference in restored.differences:
            request.warn(f"Not restored as it was: {difference}.")
        if restored.runs:
            path = backup.path
            request.warn(f"{path} keeps what was not restored. Run again when nothing is in its place, or remove the file.")
        items = [change.item for _protocol, change in restored.changes]
        return {
            "removed": [],
            "kept": [],
            "restored": [
                {**place._asdict(), "rule": text, "reason": "it is in the backup"}
                for place, text in texts_by_place(restored.rules)
            ],
            "differences": [*restored.differences],
            "neighbors": [str(item) for item in items if isinstance(item, Neighbour)],
            "routes": [str(item) for item in items if not isinstance(item, Neighbour)],
            "files": [put.path for put in restored.files],
            "kept_files": [],
            "iptables": {
                **{"removed": [], "kept": []},
                "restored": [dict(zip(("kind", "place", "text"), item)) for item in _of_iptables(restored)],
            },
            "links": {"removed": [], "kept": [], "restored": [link.report() for link in restored.links]},
            "backup_file": backup.path,
        }

    return Parts(resources, [ON_THE_NODE], report)


def _of_iptables(restored: Restored) -> t.Iterator[tuple[str, str, str]]:
    for table, removed, chains in restored.removals:
        yield from ((CHAIN, str(table), chain) for chain in chains)
        yield from ((RULE, table.place(place.chain), text) for place, text in texts_by_place(removed))
