# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Asks the kernel over rtnetlink which BPF programs are on a link, and which link reaches an address.

It uses raw netlink: a node may lack ``tc`` (the Fedora family packages it apart from iproute2), and importing pyroute2 takes
longer than the rest of a run that changes nothing. It only reads.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import typing as t

from . import wire
from .attributes import ATTRIBUTE, attributes, message, text, u32

# include/uapi/linux/netlink.h, rtnetlink.h, if_link.h, pkt_sched.h, pkt_cls.h
RTM_GETLINK, RTM_GETROUTE, RTM_GETQDISC, RTM_GETTFILTER = 18, 26, 38, 46
RTA_DST, RTA_OIF = 1, 4
IFLA_XDP = 43
IFLA_XDP_PROG_IDS = (4, 5, 6, 7)  # the only program's, or those in the driver, in the generic path and in the hardware
TCA_KIND, TCA_OPTIONS, TCA_BPF_NAME = 1, 2, 7
CLSACT_INGRESS, CLSACT_EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
BPF = "bpf"  # the kind of a filter
LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
TRAFFIC = struct.Struct("=BxxxiIII")  # tcmsg: family, link's index, handle, parent, info
ROUTE = struct.Struct("=BBBBBBBBI")  # rtmsg: family, lengths of destination and source, tos, table, ..., flags


def index_of(link: str) -> int:
    """Return a link's index; 0 if there is no link of this name."""
    try:
        return socket.if_nametoindex(link)
    except (OSError, ValueError):  # a name with a zero byte is a ValueError
        return 0


def bpf_filters(link: str, parents: t.Collection[int] = (CLSACT_INGRESS, CLSACT_EGRESS)) -> set[str]:
    """Return the names of the BPF programs on a link's clsact qdisc; empty if there is no such link or qdisc.

    parents: the directions.
    """
    index = index_of(link)
    if not index:
        return set()
    return {bpf_filter.name for parent in parents for bpf_filter in filters(index, parent) if bpf_filter.kind == BPF} - {""}


class Filter(t.NamedTuple):
    """A filter of traffic control. kind: "bpf", "flower"... name: the one of its BPF program; empty if it has none."""

    kind: str
    name: str


def filters(index: int, parent: int) -> list[Filter]:
    """Return the filters on the clsact qdisc of the link with this index. parent: the direction."""
    listed = []
    for answer in _ask(message(RTM_GETTFILTER, wire.DUMP, TRAFFIC.pack(socket.AF_UNSPEC, index, 0, parent, 0))):
        of_filter = attributes(answer, TRAFFIC.size)
        if TCA_OPTIONS in of_filter:  # before its filters the kernel lists each priority, which has none
            kind = text(of_filter, TCA_KIND)
            listed.append(Filter(kind, text(attributes(of_filter[TCA_OPTIONS]), TCA_BPF_NAME) if kind == BPF else ""))
    return listed


def qdiscs() -> list[tuple[int, str]]:
    """Return the index of the link, and the kind, of each qdisc."""
    answers = wire.dump(RTM_GETQDISC, TRAFFIC.pack(socket.AF_UNSPEC, 0, 0, 0, 0), "the qdiscs of this node")
    return [(TRAFFIC.unpack_from(answer)[1], text(attributes(answer, TRAFFIC.size), TCA_KIND)) for answer in answers]


def xdp_programs(index: int) -> set[int]:
    """Return the IDs of the XDP programs on the link with this index."""
    ids = set()
    for answer in _ask(message(RTM_GETLINK, 0, LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0))):
        xdp = attributes(attributes(answer, LINK.size).get(IFLA_XDP, b""))
        ids = {u32(xdp, kind) for kind in IFLA_XDP_PROG_IDS}
        break
    return ids - {0}


def link_towards(address: ipaddress.IPv6Address) -> str | None:
    """Return the name of the link by which the node itself would send to an address; None if it has no route."""
    wanted = ATTRIBUTE.pack(ATTRIBUTE.size + 16, RTA_DST) + address.packed
    for answer in _ask(message(RTM_GETROUTE, 0, ROUTE.pack(socket.AF_INET6, 128, 0, 0, 0, 0, 0, 0, 0) + wanted)):
        index = u32(attributes(answer, ROUTE.size), RTA_OIF)
        return socket.if_indextoname(index) if index else None
    return None


def _ask(question: bytes) -> t.Iterator[bytes]:
    """Yield the bodies of the kernel's answers; none if the kernel answers with an error.

    Raises Failure for an error of the socket.
    """
    with wire.connected() as netlink:
        for answer in wire.answers(netlink, question):
            if answer.kind in (wire.ERROR, wire.DONE):
                return
            yield answer.body
