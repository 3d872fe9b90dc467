# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The node's CNI configurations, processes that restore azure-vnet's rules, and kube-proxy. Read only; starts no process."""

from __future__ import annotations

import os
import typing as t

from .._files import files
from .._platform import processes
from . import cni as model

SUFFIXES = (".conf", ".conflist", ".json")  # what a runtime reads (containernetworking/cni, libcni/conf.go)
# Process names, of which the kernel keeps 15 characters (TASK_COMM_LEN). Azure/azure-container-networking, cnms/service.
MONITORS = ("azure-cnimonitor"[:15], "azure-cnms", "networkmonitor")
KUBE_PROXIES = ("kube-proxy", "hyperkube", "k3s-server", "k3s-agent", "kubelite")  # all but the first contain kube-proxy


class ConfigurationFile(t.NamedTuple):
    """A CNI configuration. is_inert: whether runtimes ignore it, such as one that Cilium has renamed to NAME.cilium_bak.

    name: of its network. plugins: the types of its plugins, in order. bridges: of its plugins of type bridge.
    """

    content: model.AzureVnet
    is_inert: bool
    name: str
    plugins: tuple[str, ...]
    bridges: tuple[str, ...] = ()


def configurations(folder: str = model.FOLDER) -> dict[str, ConfigurationFile]:
    """Return the configurations by path, sorted by name. A runtime uses the first that is not inert."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    by_path = {}
    for name in names:
        path = f"{folder}/{name}"
        if os.path.isfile(path):
            text = files.text_or_empty(path)
            is_inert = not name.endswith(SUFFIXES)
            by_path[path] = ConfigurationFile(
                model.azure_vnet_in(text), is_inert, model.name_in(text), model.plugins_in(text), model.bridges_in(text)
            )
    return by_path


def has_azure_vnet() -> bool:
    """Return whether azure-vnet's binary is installed."""
    return os.path.exists(model.AZURE_BINARY)


def monitors() -> dict[int, str]:
    """Return the names of processes that restore azure-vnet's rules in this network namespace, by process ID."""
    return {int(pid): name for pid, name in processes.in_this_network(MONITORS).items()}


def is_kube_proxy_running() -> bool:
    """Return whether a program that is or contains kube-proxy runs in this network namespace."""
    return bool(processes.in_this_network(KUBE_PROXIES))
