# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An elastic network interface (ENI) of a node, as imds_info returns it or a user describes it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import FAMILIES, UINT32, Unfit


@dataclass(frozen=True)
class Eni:
    """option: the name of the ENI's option for errors, for example ``enis[1]``.
    addresses, gateway: by family, "ipv4" and "ipv6". The first address is the primary one.
    subnets: prefixes of both families; None if they are not known.
    name: of its link; empty if the ENI is not plugged in, or is in a pod's network namespace.
    index: of the link. device_number, network_card: from AWS's metadata. table, pods: from the user. None or empty if not given.
    """

    option: str
    name: str
    addresses: t.Mapping[str, tuple[str, ...]]
    gateway: t.Mapping[str, str]
    subnets: tuple[str, ...] | None = None
    primary: bool = False
    index: int | None = None
    device_number: int | None = None
    network_card: int | None = None
    table: int | None = None
    pods: tuple[str, ...] = ()

    def pods_of(self, family: str) -> list[str]:
        return [pod for pod in self.pods if fields.prefix(pod)[0] == FAMILIES[family]]


class Enis(tuple[Eni, ...]):
    """All ENIs of a node, of which exactly one is primary."""


def from_list(option: str, entries: object) -> Enis:
    """Parse all ENIs of a node. Raises Invalid for the first ENI that is not valid, and unless exactly one is primary."""
    if isinstance(entries, Enis):
        return entries
    if not isinstance(entries, (list, tuple)) or not entries:
        raise Invalid(option, entries, "a list of at least one ENI, in the form of imds_info's interfaces")
    enis = Enis(_eni(f"{option}[{index}]", entry) for index, entry in enumerate(entries))
    primary = [eni for eni in enis if eni.primary]
    if len(primary) != 1:
        primaries = [eni.name or eni.option for eni in primary]
        raise Invalid(f"{option}[].primary", primaries, "true for exactly one ENI, the node's primary one")
    if not primary[0].name:
        raise Invalid(f"{primary[0].option}.name", None, "the link of the node's primary ENI")
    names = [eni.name for eni in enis]
    for number, eni in enumerate(enis):
        if eni.name and eni.name in names[:number]:
            raise Invalid(f"{eni.option}.name", eni.name, f"another link than that of {option}[{names.index(eni.name)}]")
        if eni.table in OF_THE_NODE:
            allowed = "a table other than default, main and local (253 to 255), which route the node's own traffic"
            raise Invalid(f"{eni.option}.table", eni.table, allowed)
    return enis


def _eni(option: str, entry: object) -> Eni:
    if not isinstance(entry, dict):
        raise Invalid(option, entry, f"a dictionary with {', '.join(_KEYS)}")
    for key, value in entry.items():
        if key not in _KEYS:
            raise Invalid(f"{option}.{key}", value, f"left out; known here are {', '.join(_KEYS)}")
    if entry.get("master"):
        allowed = "left out: packets of a port are routed by its bridge or bond; give the bridge or bond as name"
        raise Invalid(f"{option}.master", entry["master"], allowed)
    gateway = entry.get("gateway") or {}
    if not isinstance(gateway, dict) or not gateway.keys() <= FAMILIES.keys():
        raise Invalid(f"{option}.gateway", gateway, "a dictionary with ipv4 and ipv6")
    numbers = {key: _parsed(f"{option}.{key}", entry.get(key), _number(*limits)) for key, limits in _NUMBERS.items()}
    pods, subnets = (enumerate(_list(option, entry, key)) for key in ("pods", "subnets"))
    return Eni(
        option,
        _parsed(f"{option}.name", entry.get("name") or None, fields.link) or "",
        {family: _addresses(f"{option}.{family}", entry.get(family), family) for family in FAMILIES},
        {family: _addresses(f"{option}.gateway.{family}", [router], family)[0] for family, router in gateway.items() if router},
        tuple(_prefix(f"{option}.subnets[{index}]", subnet) for index, subnet in subnets)
        if entry.get("subnets") is not None
        else None,
        bool(_parsed(f"{option}.primary", entry.get("primary"), fields.flag)),
        pods=tuple(_prefix(f"{option}.pods[{index}]", pod) for index, pod in pods),
        **numbers,
    )


# The numbers, all optional, and their ranges. 0 is not a valid link or table. device-number and network-card have few digits.
_NUMBERS = {"index": (1, 2**31 - 1), "device_number": (0, 9999), "network_card": (0, 99), "table": (1, UINT32)}
OF_THE_NODE = range(253, 256)
_KEYS = ("name", "mac", "ipv4", "ipv6", "gateway", "subnets", "primary", "master", *_NUMBERS, "pods")

_T = t.TypeVar("_T")


def _parsed(option: str, value: object, parse: t.Callable[[t.Any], _T]) -> _T | None:
    """Parse an optional value; None if it was left out. Raises Invalid."""
    try:
        return None if value is None else parse(value)
    except Unfit as unfit:
        raise Invalid(option, value, str(unfit)) from None


def _number(low: int, high: int) -> t.Callable[[object], int]:
    return lambda value: fields.number(value, low, high)


def _list(option: str, entry: t.Mapping[str, t.Any], key: str) -> t.Sequence[t.Any]:
    values = entry.get(key) or []
    if not isinstance(values, (list, tuple)):
        raise Invalid(f"{option}.{key}", values, "a list")
    return values


def _addresses(option: str, values: object, family: str) -> tuple[str, ...]:
    if values is not None and not isinstance(values, (list, tuple)):
        raise Invalid(option, values, "a list of addresses")
    for value in values or ():
        parsed = _parsed(option, value, fields.address)
        if not parsed or parsed[0] != FAMILIES[family]:
            raise Invalid(option, value, f"an {family.replace('ip', 'IP')} address")
    return tuple(values or ())


def _prefix(option: str, value: object) -> str:
    parsed = _parsed(option, value, fields.prefix)
    if not parsed or not parsed[0]:
        raise Invalid(option, value, "an IP address, or a prefix ADDRESS/LENGTH")
    return str(value)
