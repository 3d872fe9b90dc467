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
    """Raise Invalid for the first part that does not have the form that datapath_info returns."""
    for subset in LISTS:
        for number, entry in enumerate(entries(snapshot, subset)):
            _check_entry(f"snapshot.{subset}[{number}]", subset, entry)
    settings = _dictionary("snapshot.settings", snapshot.get("settings"))
    _numbers("snapshot.settings.node", settings.get("node"))
    for family in ("ipv4", "ipv6"):
        for link, values in _dictionary(f"snapshot.settings.{family}", settings.get(family)).items():
            _numbers(f"snapshot.settings.{family}.{link}", values)


def _check_entry(option: str, subset: str, entry: Entry) -> None:
    if not entry:
        raise Invalid(option, entry, "an entry as datapath_info returns it")
    for name in DICTIONARIES.get(subset, ()):
        for part in _list(f"{option}.{name}", entry.get(name)):
            _dictionary(f"{option}.{name}", part)
    for name in WORDS.get(subset, ()):
        _list(f"{option}.{name}", entry.get(name))
    for name in FIELDS.get(subset, ()):
        _dictionary(f"{option}.{name}", entry.get(name))
    for name in NUMBERS.get(subset, ()):
        _number(f"{option}.{name}", entry.get(name) or 0)
    if subset == "evidence":
        if entry.get("kind") not in evidence.KINDS:
            raise Invalid(f"{option}.kind", entry.get("kind"), f"one of {', '.join(evidence.KINDS)}")
        for count in _list(f"{option}.counts", entry.get("counts")):
            _number(f"{option}.counts", count)
    if subset == "links":
        _list(f"{option}.peer.addresses", (entry.get("peer") or {}).get("addresses"))
        _numbers(f"{option}.settings", {key: value for key, value in (entry.get("settings") or {}).items() if value is not None})


def _dictionary(option: str, value: t.Any) -> Entry:
    if value is not None and not isinstance(value, dict):
        raise Invalid(option, value, "a dictionary")
    return value or {}


def _list(option: str, value: t.Any) -> t.Sequence[t.Any]:
    if value is not None and not isinstance(value, (list, tuple)):
        raise Invalid(option, value, "a list")
    return value or ()


def _numbers(option: str, values: t.Any) -> None:
    for key, value in _dictionary(option, values).items():
        _number(f"{option}.{key}", value)


def _number(option: str, value: t.Any) -> None:
    try:
        int(value)
    except (TypeError, ValueError):
        raise Invalid(option, value, "a number") from None
