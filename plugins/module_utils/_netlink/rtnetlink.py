# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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
TCA_KIND, TCA_OPTIONS, TCA_BPF_NAME, TCA_BPF_ID = 1, 2, 7, 11
# include/uapi/linux/pkt_cls.h, tc_act/tc_mirred.h, tc_act/tc_gact.h
U32, MATCHALL, FLOWER, ETH_P_ALL = "u32", "matchall", "flower", 3
TCA_U32_SEL, TC_U32_TERMINAL, U32_HEADER, U32_KEY = 5, 1, 16, 16  # tc_u32_sel without its keys, and tc_u32_key, in bytes
ACTIONS_OF = {U32: 7, MATCHALL: 2, FLOWER: 3}  # TCA_U32_ACT, TCA_MATCHALL_ACT, TCA_FLOWER_ACT
U32_PLAIN = frozenset((1, 2, TCA_U32_SEL, 7, 9, 11, 12))  # class, table, actions, counters, flags, padding
FLOWER_PLAIN = frozenset((1, 3, 8, 22, 87))  # class, actions, Ethernet type, flags, count in hardware
TCA_ACT_KIND, TCA_ACT_OPTIONS, PARAMETERS, TCA_GACT_PROB = 1, 2, 2, 3
GENERAL, MIRRED = struct.Struct("=IIiii"), struct.Struct("=IIiiiiI")  # index, capab, action, refcnt, bindcnt; eaction, ifindex
MIRRED_ACTIONS = {1: "redirect", 2: "mirror"}  # TCA_EGRESS_REDIR, TCA_EGRESS_MIRROR
GACT_ACTIONS = {0: "pass", 2: "drop"}  # TC_ACT_OK, TC_ACT_SHOT
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
    """A filter of traffic control. kind: "bpf", "flower"... name: the one of its BPF program; empty if it has none.

    protocol: the Ethernet type of its packets, or ETH_P_ALL. takes_all: whether it takes each packet of the protocol. action:
    drop, pass, redirect or mirror; empty for another, for several, and if a part was not read. device: the index of the link to
    which it sends packets. priority: those with a lower one come first. number: the ID of its BPF program.
    """

    kind: str
    name: str
    protocol: int = 0
    takes_all: bool = False
    action: str = ""
    device: int = 0
    priority: int = 0
    handle: int = 0
    number: int = 0


def filters(index: int, parent: int) -> list[Filter]:
    """Return the filters on the clsact qdisc of the link with this index. parent: the direction."""
    listed = []
    for answer in _ask(message(RTM_GETTFILTER, wire.DUMP, TRAFFIC.pack(socket.AF_UNSPEC, index, 0, parent, 0))):
        of_filter = attributes(answer, TRAFFIC.size)
        if TCA_OPTIONS in of_filter:  # before its filters the kernel lists each priority, which has none
            kind, options = text(of_filter, TCA_KIND), attributes(of_filter[TCA_OPTIONS])
            _family, _index, handle, _parent, info = TRAFFIC.unpack_from(answer)
            protocol = socket.ntohs(info & 0xFFFF)
            if kind == BPF:
                name, number = text(options, TCA_BPF_NAME), u32(options, TCA_BPF_ID)
                listed.append(Filter(kind, name, protocol, priority=info >> 16, handle=handle, number=number))
            elif kind != U32 or TCA_U32_SEL in options:  # otherwise it is a table of filters
                action, device = _action(options.get(ACTIONS_OF.get(kind, 0), b""))
                listed.append(Filter(kind, "", protocol, _takes_all(kind, options), action, device, info >> 16, handle))
    return listed


def _takes_all(kind: str, options: t.Mapping[int, bytes]) -> bool:
    """Return whether a filter takes each packet of its protocol."""
    if kind == U32:
        selector = options[TCA_U32_SEL]
        flags, _shift, count = selector[:3]
        masks = [struct.unpack_from("=I", selector, U32_HEADER + number * U32_KEY)[0] for number in range(count)]
        return bool(flags & TC_U32_TERMINAL) and not any(masks) and not options.keys() - U32_PLAIN
    return kind == MATCHALL or (kind == FLOWER and not options.keys() - FLOWER_PLAIN)


def _action(listed: bytes) -> tuple[str, int]:
    """Return the action of a filter, and the index of the link to which it sends packets; empty for what is not read."""
    actions = [attributes(action) for action in attributes(listed).values()]
    if len(actions) != 1:
        return "", 0
    kind, options = text(actions[0], TCA_ACT_KIND), attributes(actions[0].get(TCA_ACT_OPTIONS, b""))
    data = options.get(PARAMETERS, b"")
    if kind == "mirred" and len(data) >= MIRRED.size:
        *_general, how, device = MIRRED.unpack_from(data)
        return MIRRED_ACTIONS.get(how, ""), device
    if kind == "gact" and len(data) >= GENERAL.size and TCA_GACT_PROB not in options:
        return GACT_ACTIONS.get(GENERAL.unpack_from(data)[2], ""), 0
    return "", 0


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
