# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's packet path as plain data: which subsets it has, and what could not be read."""

from __future__ import annotations

import datetime
import re
import typing as t

from .._core.errors import Invalid
from . import saved

FORMAT = 1  # raised when the meaning of a key changes
POD_ADDRESSES = "pod_addresses"
IPSEC = "xfrm"  # the first word of what is unread of an IPsec policy, behind which the prefixes of source and destination stand
PACKET_PATH = (
    "links", "neighbors", "rules", "routes", "settings", "nftables", "iptables", "ipsets", "ebtables", "bpf", "filters", "ipvs",
    "recent", "pods", POD_ADDRESSES,
)  # fmt: skip
SOFTWARE = (
    "network_daemons", "firewalls", "boot", "cni", "units", "policies", "listeners", "pod_neighbors", "counters", "versions",
)  # fmt: skip
SUBSETS = (*PACKET_PATH, *SOFTWARE)


class Unread(t.NamedTuple):
    """What is missing in a subset. object: empty for the whole subset. reason: a sentence."""

    subset: str
    object: str
    reason: str


Snapshot = t.TypeVar("Snapshot", bound=t.Mapping[str, t.Any])
# Takes the object and the reason.
Notes = t.Callable[[str, str], None]


def subsets(gathered: t.Sequence[str]) -> list[str]:
    """Return the subsets in the order of SUBSETS, each once. Raises Invalid if none is given."""
    if not gathered:
        raise Invalid("gather", list(gathered), f"a list of at least one of {', '.join(SUBSETS)}")
    return [subset for subset in SUBSETS if subset in gathered]


class Origin(t.NamedTuple):
    """Of which node a snapshot is, and when it was read, as text; empty if that is not known."""

    name: str = ""
    time: str = ""

    @classmethod
    def of(cls, snapshot: t.Mapping[str, t.Any]) -> Origin:
        plain = snapshot.get(NODE)
        values = plain if isinstance(plain, t.Mapping) else {}
        return cls(*(str(values.get(key) or "") for key in cls._fields))

    @property
    def comparable_time(self) -> str:
        """Return the time, of which a later one is a greater text; empty for one that another program wrote."""
        return self.time if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", self.time, re.ASCII) else ""

    @property
    def seconds(self) -> float:
        """Return the time in seconds since 1970; 0 if it is not known."""
        try:
            return datetime.datetime.strptime(f"{self.comparable_time}+0000", "%Y-%m-%d %H:%M:%S UTC%z").timestamp()
        except ValueError:
            return 0.0

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


NODE = "node"  # the key of the origin


def compose(values: t.Mapping[str, t.Any], unread: t.Iterable[Unread], origin: Origin | None = None) -> dict[str, t.Any]:
    """Return the snapshot. values: of each subset; None for one that could not be read.

    nft's JSON omits what only iptables and ebtables know, so what these print is left out of it.
    """
    ruleset, iptables = values.get("nftables"), values.get("iptables")
    tables, objects = saved.separated(iptables or (), values.get("ebtables") or (), ruleset or ())
    once = {**({"nftables": objects} if ruleset else {}), **({"iptables": tables} if iptables else {})}
    node = {NODE: origin._asdict()} if origin else {}
    return {"format": FORMAT, **node, **values, **once, "unread": [entry._asdict() for entry in unread]}


def is_snapshot(value: t.Any) -> bool:
    """Return whether a value is a snapshot of this format or another."""
    return isinstance(value, dict) and {"format", "unread"} <= {*value}


def of_this_format(option: str, value: Snapshot) -> Snapshot:
    """Return a snapshot. Raises Invalid if it says that it has another format. option: which has it."""
    if value.get("format", FORMAT) not in (FORMAT, str(FORMAT)):
        expected = f"a snapshot of format {FORMAT}. Read the node again, with this version of the collection"
        raise Invalid(option, f"format {value['format']}", expected)
    return value


def refuse_dump(options: t.Mapping[str, t.Any]) -> None:
    """Raise Invalid for the options ``dump`` and ``node`` of a module, which the controller replaces by ``snapshot``."""
    if options["dump"] is not None:
        raise Invalid("dump", options["dump"], "read by the action plugin, without which the module was run")
    if options["node"] is not None:
        raise Invalid("node", options["node"], "left out without dump, as it names a node of a bundle of many")
