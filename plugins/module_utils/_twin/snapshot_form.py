# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The form of a snapshot, which an operator may have written or cut."""

from __future__ import annotations

import typing as t

from .._core.errors import Invalid
from .._snapshot import evidence
from .._snapshot.snapshot import of_this_format
from .blueprint import Entry, entries

LISTS = (
    *("links", "neighbors", "rules", "routes", "nftables", "iptables", "ipsets", "ebtables", "bpf", "ipvs"),
    *("recent", "pods", "pod_addresses", "unread", "open", "assumed", "evidence"),
    *("cni", "units", "policies", "listeners", "pod_neighbors"),
)
# What entries of a list have, besides values of one word: lists of dictionaries, lists of words, and dictionaries.
DICTIONARIES = {
    "links": ("addresses",), "routes": ("nexthops",), "ipvs": ("destinations",), "pods": ("rules", "routes"),
    "assumed": ("concerns",), "policies": ("rules", "routes"),
}  # fmt: skip
WORDS = {
    "links": ("flags",), "recent": ("addresses",), "pod_addresses": ("addresses",), "ebtables": ("rules",),
    "iptables": ("lacking",), "rules": ("unread",), "routes": ("unread",), "cni": ("plugins",),
}  # fmt: skip
FIELDS = {"links": ("peer", "settings")}
NUMBERS = {
    "links": ("mtu",), "rules": ("priority",), "evidence": ("destination_port",), "listeners": ("port",), "ipvs": ("port",),
}  # fmt: skip
REQUIRED = {"links": ("name",), "rules": ("priority",), "pod_neighbors": ("link", "address", "mac")}
# Others have values of one word.
OF_WORDS = (
    *("links", "neighbors", "rules", "routes", "iptables", "ipsets", "ebtables", "bpf", "cni", "units", "listeners"),
    "pod_neighbors",
)
PARTS = {"network_daemons": ("daemons", "networkd_files"), "counters": ("packets", "connections")}  # dictionaries of words


def check(snapshot: Entry) -> None:
    """Raise Invalid for the first part that does not have the form that datapath_info returns, and for another format."""
    of_this_format("snapshot", snapshot)
    for subset in LISTS:
        for number, entry in enumerate(entries(snapshot, subset)):
            _check_entry(f"snapshot.{subset}[{number}]", subset, entry)
    settings = _dictionary("snapshot.settings", snapshot.get("settings"))
    _numbers("snapshot.settings.node", settings.get("node"))
    for family in ("ipv4", "ipv6"):
        for link, values in _dictionary(f"snapshot.settings.{family}", settings.get(family)).items():
            _numbers(f"snapshot.settings.{family}.{link}", values)
    _check_programs(snapshot)


def _check_programs(snapshot: Entry) -> None:
    """Check what the programs of the node are and set."""
    for subset, names in PARTS.items():
        if snapshot.get(subset) is not None:
            parts = _dictionary(f"snapshot.{subset}", snapshot[subset])
            for name in names:
                _words(f"snapshot.{subset}.{name}", parts.get(name))
    _number("snapshot.network_daemons.networkd_version", (snapshot.get("network_daemons") or {}).get("networkd_version") or 0)
    for part in ("connections", "routing", "otherhost"):
        _numbers(f"snapshot.counters.{part}", (snapshot.get("counters") or {}).get(part))
    for service, values in _dictionary("snapshot.firewalls", snapshot.get("firewalls")).items():
        _words(f"snapshot.firewalls.{service}", values)
    for part, settings in _dictionary("snapshot.boot", snapshot.get("boot")).items():
        for key, setting in _dictionary(f"snapshot.boot.{part}", settings).items():
            option = f"snapshot.boot.{part}.{key}"
            _words(option, setting)
            _number(f"{option}.value", setting.get("value") or 0)
            _present(f"{option}.file", setting.get("file"))


def _check_entry(option: str, subset: str, entry: Entry) -> None:
    if not entry:
        raise Invalid(option, entry, "an entry as datapath_info returns it")
    for name in DICTIONARIES.get(subset, ()):
        for part in _list(f"{option}.{name}", entry.get(name)):
            _dictionary(f"{option}.{name}", _present(f"{option}.{name}", part))
    for name in WORDS.get(subset, ()):
        for word in _list(f"{option}.{name}", entry.get(name)):
            _word(f"{option}.{name}", _present(f"{option}.{name}", word))
    for name in REQUIRED.get(subset, ()):
        _present(f"{option}.{name}", entry.get(name))
    if subset == "nftables":
        for name, value in entry.items():
            _dictionary(f"{option}.{name}", _present(f"{option}.{name}", value))
    if subset in OF_WORDS:
        named = {*DICTIONARIES.get(subset, ()), *WORDS.get(subset, ()), *FIELDS.get(subset, ())}
        _words(option, {name: value for name, value in entry.items() if name not in named})
    for name in FIELDS.get(subset, ()):
        _dictionary(f"{option}.{name}", entry.get(name))
    for name in NUMBERS.get(subset, ()):
        value = entry.get(name)
        _number(f"{option}.{name}", 0 if value is None else value)
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


def _present(option: str, value: t.Any) -> t.Any:
    if value is None:
        raise Invalid(option, value, "given, as datapath_info returns it")
    return value


def _words(option: str, values: t.Any) -> None:
    for key, value in _dictionary(option, _present(option, values)).items():
        _word(f"{option}.{key}", value)


def _word(option: str, value: t.Any) -> None:
    if isinstance(value, (dict, list, tuple)):
        raise Invalid(option, value, "a text or a number")


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
