# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of the module nftables_connmark."""

from __future__ import annotations

from functools import partial

from .._boot.boot_files import BootRecord
from .._cni.layout_guards import mark_collisions
from .._core import names
from .._core.option import Option, Options, texts
from .._core.parts import CHECKPOINT, NO_EFFECTS, TWO_PLANES, Effects, Parts, Request
from .._core.plan import Guard, Resource
from .._files.files import Files
from .._files.folder_guards import roots_folders
from .._files.managed_files import ManagedFiles, text
from .._kubelet import kubelet_units
from .._kubelet.kubelet_guards import kubelet_starters
from .._nftables import return_path_table, table_names
from .._nftables.nft_backend import Nft
from .._nftables.nft_table import replacement
from .._nftables.return_path_guards import mark_rule, missing_links, strict_links_without_marks
from .._nftables.return_path_table import ReturnPath
from .._nftables.table_resource import BootTable, LiveTable
from .._platform import kernel
from .._platform.sysctl import Sysctl, configuration
from .._profiles import ownership_backend
from .._profiles.ownership import unowned
from .._rp_filter.live_reverse_path import RECORDS, LiveReversePath
from .._rp_filter.reverse_path import SRC_VALID_MARK
from .._rp_filter.reverse_path_guards import (
    boot_order,
    unreadable_record,
)
from .._systemd.unit_files import path_of
from .._systemd.units import Units

FAMILY = "inet"
OPTIONS: Options = {
    **TWO_PLANES,
    **CHECKPOINT,
    **kubelet_units.OPTIONS,
    "table": Option("str", "kubenodeReturnPath"),
    "primary_interface": Option("str"),
    "interfaces": Option("list", elements="dict", entries=texts("name", "mark")),
    "pod_interfaces": Option("list", elements="str", is_words=True),
    "service_addresses": Option("list", elements="str", is_words=True),
    "mark": Option("str", "0x80"),
    "mask": Option("str"),
    "strict": Option("bool", False),
    "path": Option("path", "/etc/kubenode/return-path.nft"),
}


def parts(request: Request) -> Parts:
    table = table_names.table("table", request.params["table"], request.is_present)
    path = names.boot_path(request.params["path"], request.is_present)
    before = kubelet_units.others(request.params["before"])
    desired = ReturnPath.from_options(request.params) if request.is_present else None
    nft = Nft(request.run, request.warn, is_coming=request.earlier.brings_nft)
    files, units = Files(), Units(request.run, request.warn)

    ruleset = replacement(FAMILY, table, desired.table().text()) if desired else ""
    boot = BootTable(files, units, FAMILY, table, path, before)
    sysctl_path = return_path_table.sysctl_path(table)
    setting = desired.sysctl_text() if desired else None
    entry = text(sysctl_path, setting, return_path_table.sysctl_heading(table))
    placed = ManagedFiles(files, [entry], option="strict", instead="set strict to false")
    changing = placed if request.params["permanent"] else None
    validation, texts_read = desired.validation() if desired else None, configuration(request.warn)
    valid = LiveReversePath(Sysctl(), files, validation, sysctl_path, SRC_VALID_MARK, texts_read, changing)
    live = LiveTable(nft, FAMILY, table, desired.table() if desired else None)
    booted = boot.resources(ruleset if desired else None, accept=nft, starts=request.params["immediate"])
    resources: list[Resource] = [live, valid, *booted, placed] if desired else [placed, *booted, valid, live]
    if kernel.is_own_root() and not request.params["immediate"]:
        resources.insert(0, BootRecord(valid, placed))
    guards: list[Guard] = [partial(unreadable_record, files, RECORDS[SRC_VALID_MARK])] if kernel.is_own_root() else []
    if desired and request.is_alone:
        guards.append(partial(unowned, ownership_backend.read(files), "nftables_connmark", request.params))
    if desired:
        guards += [partial(missing_links, desired), *(partial(mark_collisions, mark, mask) for mark, mask in desired.bits())]
    if desired and request.params["immediate"]:
        guards.append(partial(mark_rule, desired, request.earlier.rules))
    if desired and request.params["permanent"]:
        guards.append(partial(roots_folders, path, path_of(boot.unit), sysctl_path))
        guards.append(partial(kubelet_starters, units, [boot.unit], before))
    if not validation and not request.earlier.loosens:
        managed = valid if request.params["immediate"] and kernel.is_own_root() else None
        guards.append(
            partial(strict_links_without_marks, managed, sysctl_path if request.params["permanent"] else None, texts_read)
        )
    if validation and setting and request.params["permanent"]:
        texts = {**texts_read, sysctl_path: setting}
        guards.append(partial(boot_order, validation, sysctl_path, texts, SRC_VALID_MARK, is_chosen=False))
    return Parts(
        resources,
        guards,
        lambda _outcome: {"ruleset": ruleset, "table": table},
        effects=NO_EFFECTS if desired else Effects(units_gone=frozenset({boot.unit})),
    )
