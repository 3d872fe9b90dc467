# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

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
from .._leftovers import backup_resource, cleanup_options, iptables_resource, links_resource
from .._leftovers.backup_resource import Backups
from .._leftovers.cni_guards import another_cni, harmful_leftovers, no_monitor
from .._leftovers.ebtables_resource import AzureVnetLeftovers, LeftoverBackends, RestoredLeftovers, Selection
from .._leftovers.iptables_resource import IptablesLeftovers, RestoredIptables
from .._leftovers.leftover import Findings
from .._leftovers.links_resource import LinkLeftovers, RestoredLinks
from .._platform.library import PYROUTE2, CarriedLibrary
from .._platform.machine_guards import require_own_root
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
    path = f"{cleanup_options.backup(options['backup'], options['state'] == 'absent')}/{options['owner']}"
    backends = LeftoverBackends(Ebtables(request.run, request.warn), Netlink(), files, request.run)
    kept = backup_resource.backups(files, path)
    return (_restored if options["state"] == "restored" else _cleaned_up)(request, backends, kept)


def _cleaned_up(request: Request, backends: LeftoverBackends, kept: Backups) -> Parts:
    options = request.params
    desired = Selection(
        cleanup_options.addresses(options["addresses"]),
        BACKENDS[options["backend"]],
        options["neighbors"],
        options["routes"],
    )
    leftovers = AzureVnetLeftovers(backends, desired, kept.frames, (kept.iptables, kept.links))
    rules = IptablesLeftovers(request.run, backends.files, kept, desired.backends)
    links = LinkLeftovers(request.run, backends.files, kept)
    guards: list[Guard] = [ON_THE_NODE, partial(roots_folders, kept.frames.path), another_cni, no_monitor]
    guards.append(partial(harmful_leftovers, request.run))

    def report(outcome: Outcome) -> dict[str, t.Any]:
        findings = outcome.report(leftovers)
        of_iptables, of_links = outcome.report(rules) or Findings(), outcome.report(links) or Findings()
        for trouble in dict.fromkeys((*findings.troubles, *of_iptables.troubles, *of_links.troubles)):
            request.warn(trouble)
        return {
            "removed": [rule.report() for rule in findings.rules if rule.verdict.is_leftover],
            "kept": [rule.report() for rule in findings.rules if not rule.verdict.is_leftover],
            "neighbors": [str(neighbour) for neighbour in findings.neighbours],
            "routes": [str(route) for route, _protocol in findings.routes],
            "files": [*findings.moved],
            "kept_files": [{"path": path, "reason": why} for path, why in findings.unmoved.items()],
            "iptables": of_iptables.report(),
            "links": of_links.report(),
            "backup_file": kept.frames.path,
        }

    # The rules of iptables first, because the files that the next resource moves are evidence for them. The links last, because
    # they are evidence for some rules.
    resources: list[Resource] = [*[rules] * options["iptables"], leftovers, *[links] * options["links"]]
    return Parts(resources, guards, report)


def _restored(request: Request, backends: LeftoverBackends, kept: Backups) -> Parts:
    leftovers = RestoredLeftovers(backends, kept.frames)
    rules = RestoredIptables(request.run, backends.files, kept.iptables)
    links = RestoredLinks(backends.files, kept.links)
    resources: list[Resource] = [leftovers, rules, links]
    if kept.frames.observe().runs:  # the runs in the backup needed the library
        resources.append(
            CarriedLibrary(
                PYROUTE2,
                desired=False,
                is_needed=lambda: bool(unit_files.named("kubenode-policy-routes-*.service")),
                plane=Plane.IMMEDIATE,
            )
        )

    def report(outcome: Outcome) -> dict[str, t.Any]:
        back, of_iptables, of_links = outcome.report(leftovers), outcome.report(rules), outcome.report(links)
        differences = [*back.differences, *of_iptables.differences, *of_links.differences]
        for difference in differences:
            request.warn(f"Not restored as it was: {difference}.")
        for backup, left in zip(kept, (back.left, of_iptables.left, of_links.left)):
            if left:
                path = backup.path
                request.warn(f"{path} keeps what was not restored. Run again when nothing is in its place, or remove the file.")
        reason = "it is in the backup"
        return {
            "removed": [],
            "kept": [],
            "restored": [{**place._asdict(), "rule": text, "reason": reason} for place, text in back.rules],
            "differences": differences,
            "neighbors": [str(neighbour) for neighbour in back.neighbours],
            "routes": [str(route) for route, _protocol in back.routes],
            "files": [file.path for file in back.files],
            "kept_files": [],
            "iptables": {"removed": [], "kept": [], "restored": iptables_resource.reported(of_iptables)},
            "links": {"removed": [], "kept": [], "restored": links_resource.reported(of_links)},
            "backup_file": kept.frames.path,
        }

    return Parts(resources, [ON_THE_NODE], report)
