# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's CNI configurations, its pods' addresses, processes that restore azure-vnet's rules, and kube-proxy. Read only."""

from __future__ import annotations

import os
import typing as t

from .._core import json_object
from .._files import files
from .._platform import processes
from . import cni as model

RESULTS = "/var/lib/cni/results"
_RESULT = "cniCacheV1"


class Attachment(t.NamedTuple):
    """pod: NAMESPACE/NAME. interface: its name in the pod. netns: the path of the pod's network namespace, empty for none."""

    pod: str
    interface: str
    addresses: tuple[str, ...]
    netns: str = ""

    def entry(self) -> dict[str, t.Any]:
        """Return the attachment as a snapshot has it."""
        return {"pod": self.pod, "interface": self.interface, "addresses": [*self.addresses]}


def attachment(text: str) -> Attachment | None:
    """Read a record; None if it is of another kind, of no pod, or has no addresses."""
    try:
        record = json_object.load(text)
        arguments = dict(record.get("cniArgs") or ())
        namespace, name = arguments.get("K8S_POD_NAMESPACE"), arguments.get("K8S_POD_NAME")
        addresses = tuple(_addresses(record.get("result") or {}))
        if record["kind"] != _RESULT or record["ifName"] == "lo" or not (namespace and name and addresses):
            return None
        return Attachment(f"{namespace}/{name}", str(record["ifName"]), addresses, str(record.get("netns") or ""))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _addresses(result: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Yield the addresses of a plugin's result, without their lengths."""
    listed = [address.get("address") for address in result.get("ips") or ()]
    listed += [(result.get(family) or {}).get("ip") for family in ("ip4", "ip6")]  # before version 0.3.0 of the specification
    yield from (str(address).partition("/")[0] for address in listed if address)


def attachments(folder: str = RESULTS) -> list[Attachment]:
    """Return the attachments of pods, sorted, without records of pods that ended with an earlier boot."""
    records = (attachment(files.text_or_empty(os.path.join(folder, name))) for name in files.names_or_none(folder))
    return sorted(record for record in records if record and (not record.netns or os.path.exists(record.netns)))


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
    by_path = {}
    for name in files.names_or_none(folder):
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
