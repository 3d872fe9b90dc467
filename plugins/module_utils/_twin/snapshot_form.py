# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The form of a snapshot, which an operator may have written or cut."""

from __future__ import annotations

import typing as t

from .._core.errors import Invalid
from .._snapshot import evidence
from .blueprint import Entry, entries

LISTS = (
    *("links", "neighbors", "rules", "routes", "nftables", "iptables", "ipsets", "ebtables", "bpf", "ipvs"),
    *("recent", "pods", "pod_addresses", "unread", "open", "assumed", "evidence"),
)
# What entries of a list have, besides values of one word: lists of dictionaries, lists of words, and dictionaries.
DICTIONARIES = {
    "links": ("addresses",), "routes": ("nexthops",), "ipvs": ("destinations",), "pods": ("rules", "routes"),
    "assumed": ("concerns",),
}  # fmt: skip
WORDS = {
    "links": ("flags",), "recent": ("addresses",), "pod_addresses": ("addresses",), "ebtables": ("rules",),
    "iptables": ("lacking",),
}  # fmt: skip
FIELDS = {"links": ("peer", "settings")}
NUMBERS = {"links": ("mtu",), "evidence": ("destination_port",)}


def check(snapshot: Entry) -> None:
    """Raises Invalid for the first part that does not have the form that datapath_info returns."""
    for subset in LISTS:
        for number, one in enumerate(entries(snapshot, subset)):
            _check_entry(f"snapshot.{subset}[{number}]", subset, one)
    settings = _dictionary("snapshot.settings", snapshot.get("settings"))
    _numbers("snapshot.settings.node", settings.get("node"))
    for family in ("ipv4", "ipv6"):
        for link, values in _dictionary(f"snapshot.settings.{family}", settings.get(family)).items():
            _numbers(f"snapshot.settings.{family}.{link}", values)


def _check_entry(option: str, subset: str, one: Entry) -> None:
    if not one:
        raise Invalid(option, one, "an entry as datapath_info returns it")
    for name in DICTIONARIES.get(subset, ()):
        for part in _list(f"{option}.{name}", one.get(name)):
            _dictionary(f"{option}.{name}", part)
    for name in WORDS.get(subset, ()):
        _list(f"{option}.{name}", one.get(name))
    for name in FIELDS.get(subset, ()):
        _dictionary(f"{option}.{name}", one.get(name))
    for name in NUMBERS.get(subset, ()):
        _number(f"{option}.{name}", one.get(name) or 0)
    if subset == "evidence":
        if one.get("kind") not in evidence.KINDS:
            raise Invalid(f"{option}.kind", one.get("kind"), f"one of {', '.join(evidence.KINDS)}")
        for count in _list(f"{option}.counts", one.get("counts")):
            _number(f"{option}.counts", count)
    if subset == "links":
        _list(f"{option}.peer.addresses", (one.get("peer") or {}).get("addresses"))
        _numbers(f"{option}.settings", {key: value for key, value in (one.get("settings") or {}).items() if value is not None})


def _dictionary(option: str, given: t.Any) -> Entry:
    if given is not None and not isinstance(given, dict):
        raise Invalid(option, given, "a dictionary")
    return given or {}


def _list(option: str, given: t.Any) -> t.Sequence[t.Any]:
    if given is not None and not isinstance(given, (list, tuple)):
        raise Invalid(option, given, "a list")
    return given or ()


def _numbers(option: str, given: t.Any) -> None:
    for key, value in _dictionary(option, given).items():
        _number(f"{option}.{key}", value)


def _number(option: str, given: t.Any) -> None:
    try:
        int(given)
    except (TypeError, ValueError):
        raise Invalid(option, given, "a number") from None
