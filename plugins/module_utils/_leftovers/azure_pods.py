# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""azure-vnet's live pods on a node, and where azure-cns keeps their addresses.

From the sources of Azure/azure-container-networking: network/endpoint.go, cns/configuration, cns/service/main.go.
"""

from __future__ import annotations

import typing as t

from .._core import json_object
from .._interfaces.interface import Interface
from .judge import pod_links

CNS = "azure-cns"
CNS_FILE = "cns_config.json"  # beside the executable, unless an argument or the environment names another
CNS_VARIABLE = "CNS_CONFIGURATION_PATH"
_CNS_OPTIONS = ("config-path", "cp")


class LivePod(t.NamedTuple):
    """A pod whose link azure-vnet created. link: the node's end. addresses: of the pod's end; empty if it was not found."""

    link: str
    addresses: tuple[str, ...]

    def report(self) -> dict[str, t.Any]:
        return {"link": self.link, "addresses": [*self.addresses]}


class Cns(t.NamedTuple):
    """A running azure-cns. configuration: the path of its file in its own root.

    manages_state: whether it keeps the pods' addresses itself; otherwise it reads them from azure-vnet's state file when it
    starts. None if its configuration was not read.
    """

    configuration: str
    manages_state: bool | None

    def report(self) -> dict[str, t.Any]:
        return {"configuration": self.configuration, "manages_endpoint_state": self.manages_state}


def live_pods(interfaces: t.Sequence[Interface]) -> list[LivePod]:
    """Return azure-vnet's pods, by the name of their links. interfaces: those of all network namespaces."""
    return sorted(
        LivePod(interface.link, tuple(sorted(end.addresses)) if end else ()) for interface, end in pod_links(interfaces).items()
    )


def configuration_of(arguments: t.Sequence[str], environment: t.Mapping[str, str], executable: str) -> str:
    """Return the path of the configuration that an azure-cns with these arguments reads.

    arguments: without the program's name.
    """
    for number, word in enumerate(arguments):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in _CNS_OPTIONS:
            return value if equals else (*arguments, "")[number + 1]
    return environment.get(CNS_VARIABLE) or f"{executable.rpartition('/')[0]}/{CNS_FILE}"


def manages_state(text: str) -> bool | None:
    """Return ManageEndpointState in the text of azure-cns's configuration, false by default; None if the text is unreadable.

    Go reads a key in upper or lower case.
    """
    configuration = json_object.parse(text)
    if configuration is None:
        return None
    return any(str(key).lower() == "manageendpointstate" and value is True for key, value in configuration.items())
