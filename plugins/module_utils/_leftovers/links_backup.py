# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The content of a backup file: the links and addresses that each run removed from the node, as JSON."""

from __future__ import annotations

import typing as t

from .._core import fields, names
from .._core.codec import exactly
from . import azure_leftovers, backup, bridge
from .backup import Backup, Damaged, keys, mac, number
from .removed_link import End, Gateway, RemovedLink

VERSION = 1
MADE_BY = "kubenode.datapath.ebtables_cleanup, links"
# Each backup file begins with this text. A file that begins otherwise is foreign.
SIGNATURE = f'{{\n "made_by": "{MADE_BY}",\n'
PAIR = (azure_leftovers.NAT_LINKS, azure_leftovers.NAT_LINKS[::-1])
SMALLEST_MTU, LARGEST_MTU = 68, 65535  # RFC 791; the kernel's limit for a veth and a bridge (ETH_MAX_MTU)
LARGEST_INDEX = 2**31 - 1


class Run(t.NamedTuple):
    """The objects that one run removed. boot: the identity of the boot in which it ran."""

    links: tuple[RemovedLink, ...]
    gateways: tuple[Gateway, ...]
    boot: str


def to_text(kept: Backup) -> str:
    """Return the text of a backup file."""
    return backup.written(MADE_BY, VERSION, kept, _packed)


def from_text(text: str) -> Backup:
    """Parse the text of a backup file, and accept only what a run may have removed. Raises Damaged."""
    return backup.parsed(text, VERSION, _run)


def _packed(run: Run) -> dict[str, t.Any]:
    links = [{**link._asdict(), "ends": [end._asdict() for end in link.ends]} for link in run.links]
    return {"links": links, "gateways": [gateway._asdict() for gateway in run.gateways], "boot": run.boot}


def _run(run: dict[str, t.Any]) -> Run:
    keys(run, *Run._fields)
    links = tuple(map(_removed, exactly(list, run["links"])))
    return Run(links, tuple(map(_gateway, exactly(list, run["gateways"]))), exactly(str, run["boot"]))


def _removed(entry: dict[str, t.Any]) -> RemovedLink:
    keys(entry, *RemovedLink._fields)
    ends = tuple(map(_end, exactly(list, entry["ends"])))
    if tuple(end.name for end in ends) not in ((azure_leftovers.NAT_BRIDGE,), *PAIR):
        raise Damaged(f"{', '.join(end.name for end in ends)} is not a link of azure-vnet")
    return RemovedLink(
        ends,
        tuple(_name(port) for port in exactly(list, entry["ports"])),
        tuple(_address(*exactly(list, pair)) for pair in exactly(list, entry["addresses"])),
        tuple(_neighbour(*exactly(list, pair)) for pair in exactly(list, entry["neighbours"])),
        tuple(_setting(ends[0].name, *exactly(list, pair)) for pair in exactly(list, entry["settings"])),
    )


def _end(entry: dict[str, t.Any]) -> End:
    keys(entry, *End._fields)
    index, mtu = number(entry["number"], LARGEST_INDEX, 1), number(entry["mtu"], LARGEST_MTU, SMALLEST_MTU)
    master = entry["master"] and _name(entry["master"])
    return End(_name(entry["name"]), index, mac(entry["mac"]), mtu, exactly(bool, entry["is_up"]), exactly(str, master))


def _gateway(entry: dict[str, t.Any]) -> Gateway:
    keys(entry, *Gateway._fields)
    address, flags = _address(entry["address"], entry["flags"])
    if not azure_leftovers.may_be_gateway(address):
        raise Damaged(f"{address} is not the gateway of an IPv6 subnet")
    return Gateway(_name(entry["link"]), address, flags)


def _address(text: object, flags: object) -> tuple[str, int]:
    address, _slash, length = exactly(str, text).partition("/")
    family = fields.address(address)[0]
    return f"{address}/{number(int(length), fields.BITS[family])}", number(flags, fields.UINT32)


def _neighbour(address: object, its_mac: object) -> tuple[str, str]:
    fields.address(exactly(str, address))
    return str(address), mac(its_mac)


def _setting(link: str, key: object, value: object) -> tuple[str, int]:
    if key not in bridge.settings_of(link):
        raise Damaged(f"{key!r} is not a setting of {link} that is restored")
    return str(key), number(value, 2**31 - 1, -(2**31))


def _name(value: object) -> str:
    return names.interface("links", exactly(str, value))
