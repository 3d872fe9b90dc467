# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""CNI configurations of the node, and who works on them. Read only, no process started."""

from __future__ import annotations

import os
import typing as t

from .._platform import files, processes
from . import cni as model

SUFFIXES = (".conf", ".conflist", ".json")  # what a runtime looks at (containernetworking/cni, libcni/conf.go)
# Names of processes; the kernel keeps 15 characters (TASK_COMM_LEN). Azure/azure-container-networking, cnms/service.
MONITORS = ("azure-cnimonitor"[:15], "azure-cnms", "networkmonitor")


class Found(t.NamedTuple):
    """is_inert: whether no runtime looks at it, as at one that Cilium has renamed to NAME.cilium_bak."""

    content: model.AzureVnet
    is_inert: bool


def configurations(folder: str = model.FOLDER) -> dict[str, Found]:
    """By path, in the order in which a runtime takes the first."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    found = {}
    for name in names:
        path = f"{folder}/{name}"
        if os.path.isfile(path):
            content = model.azure_vnet_in(_text(path))
            found[path] = Found(content, not name.endswith(SUFFIXES))
    return found


def plugins(folder: str = model.FOLDER) -> dict[str, tuple[str, ...]]:
    """Types of the plugins in each configuration that a runtime looks at, by path, in the order in which it takes the first."""
    return {path: model.plugins_in(_text(path)) for path in configurations(folder) if path.endswith(SUFFIXES)}


def monitors() -> dict[int, str]:
    """Processes that restore azure-vnet's rules here, by number; one in another network namespace restores others."""
    found = {}
    for number in filter(str.isdigit, os.listdir("/proc")):
        name = _text(f"/proc/{number}/comm").rstrip("\n")
        if name in MONITORS and processes.may_share_network(number):
            found[int(number)] = name
    return found


def _text(path: str) -> str:
    try:
        return files.text(path)
    except OSError:
        return ""
