# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The form of a snapshot, which an operator may have written or cut."""

from __future__ import annotations

import typing as t

from .._core import fields, memo
from .._core.errors import Invalid
from .._core.fields import S32, U8, U16, U32, U64, UINT32, Range
from .._snapshot import evidence
from .._snapshot.settings import SYSCTL
from .._snapshot.snapshot import of_this_format
from .._snapshot.values import Entry, Snapshot, TranslatedProbe, entries
from . import bounds

LISTS = (
    *("links", "neighbors", "rules", "routes", "nftables", "iptables", "ipsets", "ebtables", "bpf", "filters", "ipvs"),
    *("recent", "pods", "pod_addresses", "unread", "open", "assumed", "evidence"),
    *("cni", "units", "policies", "listeners", "pod_neighbors"),
)
# What entries of a list have, besides values of one word: lists of dictionaries, lists of words, and dictionaries.
DICTIONARIES = {
    "links": ("addresses", "fdb"), "routes": ("nexthops",), "ipvs": ("destinations",), "assumed": ("concerns",),
    "pods": ("rules", "routes", "neighbors", "listeners"), "policies": ("rules", "routes"), "bpf": ("probes",),
}  # fmt: skip
WORDS = {
    "links": ("flags",), "recent": ("addresses",), "pod_addresses": ("addresses",), "ebtables": ("rules",),
    "iptables": ("lacking",), "rules": ("unread",), "routes": ("unread",), "cni": ("plugins",),
    "pods": ("addresses", "bridged"),
}  # fmt: skip
FIELDS = {"links": ("peer", "settings")}
# Numbers, with the bounds of the kernel's fields, by their keys in any part but the JSON of nft. A text may name a table or a
# protocol in the place of its number.
NUMBERS = {
    "mtu": U32, "index": S32, "type": U16, "priority": U32, "metric": U32, "goto": U32, "weight": U32, "port": U16,
    "destination_port": U16, "left_port": U16, "table": U32, "protocol": U8,
}  # fmt: skip
NAMED = ("table", "protocol", "type")
MARK = "fwmark"  # VALUE or VALUE/MASK
SETTING = (S32[0], UINT32)  # a sysctl has either type
ANY = (-(2**63), 2**64 - 1)
REQUIRED = {"links": ("name",), "rules": ("priority",), "pod_neighbors": ("link", "address", "mac")}
# Others have values of one word.
OF_WORDS = (
    *("links", "neighbors", "rules", "routes", "iptables", "ipsets", "ebtables", "bpf", "cni", "units", "listeners"),
    *("pod_neighbors", "filters"),
)
PARTS = {"network_daemons": ("daemons", "networkd_files"), "counters": ("packets", "connections")}  # dictionaries of words
COUNTERS = ("packets", "connections", "routing", "otherhost")


def read(snapshot: Entry) -> Snapshot:
    """Return a snapshot from elsewhere as values. Raises Invalid for the first part that has another form or is too large."""
    check(snapshot)
    bounds.check(snapshot)
    return Snapshot.of(snapshot)


def check(snapshot: Entry) -> None:
    """Raise Invalid for the first part that does not have the form that datapath_info returns, and for another format."""
    of_this_format("snapshot", snapshot)
    for subset in LISTS:
        _check_subset(entries(snapshot, subset), subset)
    settings = _dictionary("snapshot.settings", snapshot.get("settings"))
    _numbers("snapshot.settings.node", settings.get("node"), SETTING)
    for family in ("ipv4", "ipv6"):
        for link, values in _dictionary(f"snapshot.settings.{family}", settings.get(family)).items():
            _numbers(f"snapshot.settings.{family}.{link}", values, SETTING)
    _check_programs(snapshot)


@memo.of_part
def _check_subset(listed: t.Sequence[Entry], subset: str) -> None:
    for number, entry in enumerate(listed):
        _check_entry(f"snapshot.{subset}[{number}]", subset, entry)
        _check_numbers(f"snapshot.{subset}[{number}]", entry, {} if subset == "nftables" else NUMBERS)


def _check_programs(snapshot: Entry) -> None:
    """Check what the programs of the node are and set."""
    for subset, names in PARTS.items():
        if snapshot.get(subset) is not None:
            parts = _dictionary(f"snapshot.{subset}", snapshot[subset])
            for name in names:
                _words(f"snapshot.{subset}.{name}", parts.get(name))
    version = (snapshot.get("network_daemons") or {}).get("networkd_version") or 0
    _number("snapshot.network_daemons.networkd_version", version, U32)
    for part in COUNTERS:
        _numbers(f"snapshot.counters.{part}", (snapshot.get("counters") or {}).get(part), U64)
    for service, values in _dictionary("snapshot.firewalls", snapshot.get("firewalls")).items():
        _words(f"snapshot.firewalls.{service}", values)
    for part, settings in _dictionary("snapshot.boot", snapshot.get("boot")).items():
        for key, setting in _dictionary(f"snapshot.boot.{part}", settings).items():
            option = f"snapshot.boot.{part}.{key}"
            _words(option, setting)
            if not isinstance(setting.get("value") or False, bool) or part == SYSCTL:
                _number(f"{option}.value", setting.get("value") or 0, SETTING)
            _present(f"{option}.file", setting.get("file"))


def _check_entry(option: str, subset: str, entry: Entry) -> None:
    if not entry:
        raise Invalid(option, entry, "an entry as a snapshot has it")
    for name in DICTIONARIES.get(subset, ()):
        for part in _list(f"{option}.{name}", entry.get(name)):
            _check_part(f"{option}.{name}", part)
    for name in WORDS.get(subset, ()):
        for word in _list(f"{option}.{name}", entry.get(name)):
            _word(f"{option}.{name}", _present(f"{option}.{name}", word))
    for name in REQUIRED.get(subset, ()):
        _present(f"{option}.{name}", entry.get(name))
    if subset == "nftables":
        for name, value in entry.items():
            _dictionary(f"{option}.{name}", _present(f"{option}.{name}", value))
    if subset in OF_WORDS:
        keys = {*DICTIONARIES.get(subset, ()), *WORDS.get(subset, ()), *FIELDS.get(subset, ())}
        _words(option, {name: value for name, value in entry.items() if name not in keys})
    for name in FIELDS.get(subset, ()):
        _dictionary(f"{option}.{name}", entry.get(name))
    if subset == "evidence":
        if entry.get("kind") not in evidence.KINDS:
            raise Invalid(f"{option}.kind", entry.get("kind"), f"one of {', '.join(evidence.KINDS)}")
        for count in _list(f"{option}.counts", entry.get("counts")):
            _number(f"{option}.counts", count, U64)
        for name in filter(entry.get, ("source", "destination", "left_source", "left_destination")):
            fields.checked(f"{option}.{name}", entry[name], fields.address)
        if entry.get("protocol") and entry["protocol"] not in evidence.PROTOCOLS:
            raise Invalid(f"{option}.protocol", entry["protocol"], f"one of {', '.join(evidence.PROTOCOLS)}")
    for number, probe in enumerate(entry.get("probes") or () if subset == "bpf" else ()):
        for name in TranslatedProbe._fields:
            fields.checked(f"{option}.probes[{number}].{name}", probe.get(name), fields.address)
    if subset == "links":
        for name in ("addresses", "flags"):
            _list(f"{option}.peer.{name}", (entry.get("peer") or {}).get(name))
        settings = {key: value for key, value in (entry.get("settings") or {}).items() if value is not None}
        _numbers(f"{option}.settings", settings, U32)


def _check_part(option: str, part: t.Any) -> None:
    """Check an entry of another one, such as an address of a link, or a route of a pod."""
    _dictionary(option, _present(option, part))
    for name in ("flags", "unread", "nexthops"):
        _list(f"{option}.{name}", part.get(name))
    for hop in part.get("nexthops") or ():
        _dictionary(f"{option}.nexthops", _present(f"{option}.nexthops", hop))


def _check_numbers(option: str, value: t.Any, bounds: t.Mapping[str, Range]) -> None:
    """Check the numbers in a part of a snapshot. bounds: by the keys of numbers that may be a text."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _number(option, value, ANY)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key in bounds and part is not None and not (key in NAMED and isinstance(part, str) and not part.isdigit()):
                _number(f"{option}.{key}", part, bounds[key])
            elif key == MARK and part is not None:
                for word in str(part).split("/"):
                    _number(f"{option}.{key}", word, U32, is_decimal=False)
            elif not isinstance(part, str):
                _check_numbers(f"{option}.{key}", part, bounds)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check_numbers(option, part, bounds)


def _dictionary(option: str, value: t.Any) -> Entry:
    if value is not None and not isinstance(value, dict):
        raise Invalid(option, value, "a dictionary")
    return value or {}


def _present(option: str, value: t.Any) -> t.Any:
    if value is None:
        raise Invalid(option, value, "given, as a snapshot has it")
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


def _numbers(option: str, values: t.Any, bounds: Range) -> None:
    for key, value in _dictionary(option, values).items():
        _number(f"{option}.{key}", value, bounds)


def _number(option: str, value: t.Any, bounds: Range, is_decimal: bool = True) -> None:
    fields.checked(option, value, lambda number: fields.number(number, *bounds, is_decimal))
