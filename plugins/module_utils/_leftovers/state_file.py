# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""azure-vnet's state file: the pods, network interfaces and subnets that it knew.

From the sources of Azure/azure-container-networking: network/manager.go, platform/os_linux.go.
"""

from __future__ import annotations

import base64
import binascii
import typing as t

from .._core import fields, json_object
from .._ebtables import ebtables

STATE_FILE = "/run/azure-vnet.json"
STATE_FILES = (STATE_FILE, "/run/azure-vnet-ipam.json")


class Endpoint(t.NamedTuple):
    """A pod's interface in the state file. host_link: the node's end of the pod's link."""

    address: str
    mac: str
    host_link: str = ""
    pod: str = ""


class Nic(t.NamedTuple):
    """A network interface of the node that azure-vnet uses as its external interface. address: its first, if it is known."""

    name: str
    mac: str = ""
    address: str = ""


class State(t.NamedTuple):
    """The readable part of a state file. trouble: why the rest could not be read, as the end of the sentence "the file ..."."""

    endpoints: tuple[Endpoint, ...] = ()
    nics: tuple[Nic, ...] = ()
    bridges: frozenset[str] = frozenset()
    subnets: frozenset[str] = frozenset()
    trouble: str = ""


def state_from(text: str) -> State:
    """Parse a state file; raises nothing. An endpoint counts if its address and its MAC are readable."""
    try:
        content = json_object.load(text)
    except ValueError as error:
        return State(trouble=f"is not JSON ({error})")
    links = _dict(_dict(_dict(content).get("Network")).get("ExternalInterfaces"))
    if not links:
        return State(trouble="has no Network.ExternalInterfaces")
    endpoints: list[Endpoint] = []
    nics: list[Nic] = []
    bridges: set[str] = set()
    subnets: set[str] = set()
    unread = 0
    for name, link in links.items():
        addresses = [*_addresses(_dict(link).get("IPAddresses")), ""]
        nics.append(Nic(_text(_dict(link).get("Name")) or name, _mac(_dict(link).get("MacAddress")), addresses[0]))
        bridges.add(_text(_dict(link).get("BridgeName")))
        for network in _dict(_dict(link).get("Networks")).values():
            subnets.update(_subnets(_dict(network).get("Subnets")))
            for entry in _dict(_dict(network).get("Endpoints")).values():
                of_entry = _endpoints(_dict(entry))
                endpoints += of_entry
                unread += not of_entry
    trouble = f"has {unread} endpoints without a readable address or MAC" if unread else ""
    return State(tuple(endpoints), tuple(nics), frozenset(bridges - {""}), frozenset(subnets), trouble)


def _endpoints(entry: dict[str, t.Any]) -> list[Endpoint]:
    mac = _mac(entry.get("MacAddress"))
    names = [_text(entry.get(key)) for key in ("PODNameSpace", "PODName")]
    pod = "/".join(filter(None, names)) or _text(entry.get("ContainerID"))[:12] or "a pod"
    addresses = _addresses(entry.get("IPAddresses"))
    return [Endpoint(address, mac, _text(entry.get("HostIfName")), pod) for address in addresses if mac]


def _addresses(listed: object) -> list[str]:
    addresses = [fields.address_or_empty(_dict(entry).get("IP")) for entry in (listed if isinstance(listed, list) else [])]
    return [address for address in addresses if address]


def _subnets(listed: object) -> t.Iterator[str]:
    for subnet in listed if isinstance(listed, list) else []:
        prefix = _dict(_dict(subnet).get("Prefix"))
        address, mask = fields.address_or_empty(prefix.get("IP")), _decoded(prefix.get("Mask"))
        if address and mask:
            length = bin(int.from_bytes(mask, "big")).count("1")
            yield ebtables.normal_prefix(f"{address}/{length}")


def _dict(value: object) -> dict[str, t.Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _mac(value: object) -> str:
    """Return a MAC address from base64, the form in which Go writes bytes; empty if it is not one."""
    packed = _decoded(value)
    return packed.hex(":") if len(packed) == 6 and any(packed) else ""
