# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A network card: a link that a cloud may know as one of the node's interfaces, by what rtnetlink tells of the link."""

from __future__ import annotations

import fnmatch
import typing as t

from .._netlink.attributes import attributes, text

ETHER = 1  # include/uapi/linux/if_arp.h, ARPHRD_ETHER
IFLA_ADDRESS, IFLA_IFNAME, IFLA_LINKINFO, IFLA_INFO_KIND = 1, 3, 18, 1  # include/uapi/linux/if_link.h
# Hardware has no kind. A node that is a container itself has one end of a veth for a card.
KINDS = ("", "veth")


class Card(t.NamedTuple):
    """number: the link's index. mac: in lower case with colons."""

    number: int
    name: str
    mac: str

    def __str__(self) -> str:
        return f"{self.name} ({self.mac})"


def of(device: int, index: int, found: dict[int, bytes], pods: t.Iterable[str]) -> Card | None:
    """The card that a link is; None where it is none.

    device: the link's type; found: its attributes. pods: patterns of what the node's ends of pods' links are called.
    """
    name = text(found, IFLA_IFNAME)
    if device != ETHER or any(fnmatch.fnmatchcase(name, pattern) for pattern in pods):
        return None
    if text(attributes(found.get(IFLA_LINKINFO, b"")), IFLA_INFO_KIND) not in KINDS:
        return None
    return Card(index, name, found.get(IFLA_ADDRESS, b"").hex(":"))
