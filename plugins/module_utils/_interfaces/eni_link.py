# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A link that may be one of the node's interfaces in the cloud, as opposed to a pod's or a virtual one. Read from rtnetlink."""

from __future__ import annotations

import fnmatch
import typing as t

from .._netlink.attributes import attributes, text

ETHER = 1  # include/uapi/linux/if_arp.h, ARPHRD_ETHER
IFLA_ADDRESS, IFLA_IFNAME, IFLA_LINKINFO, IFLA_INFO_KIND = 1, 3, 18, 1  # include/uapi/linux/if_link.h
# Hardware has no kind. If the node itself is a container, its interface is one end of a veth pair.
KINDS = ("", "veth")


class EniLink(t.NamedTuple):
    """A network interface of the node. number: the link's index. mac: in lower case with colons."""

    number: int
    name: str
    mac: str

    def __str__(self) -> str:
        return f"{self.name} ({self.mac})"


def of(device: int, index: int, attrs: dict[int, bytes], pods: t.Iterable[str]) -> EniLink | None:
    """Return the EniLink for a link; None if the link is a pod's or a virtual one.

    device: the link's type (ARPHRD_*). attrs: its attributes. pods: patterns for the names of the node's ends of pods' links.
    """
    name = text(attrs, IFLA_IFNAME)
    if device != ETHER or any(fnmatch.fnmatchcase(name, pattern) for pattern in pods):
        return None
    if text(attributes(attrs.get(IFLA_LINKINFO, b"")), IFLA_INFO_KIND) not in KINDS:
        return None
    return EniLink(index, name, attrs.get(IFLA_ADDRESS, b"").hex(":"))
