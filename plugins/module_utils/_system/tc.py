# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""BPF programs that traffic control runs on a link, by name. One netlink dump, read only.

Raw netlink, because a node may lack ``tc`` (Fedora's family packages it apart from iproute2) and pyroute2 takes longer to
import than all the rest of a converged run.
"""

from __future__ import annotations

import socket
import struct
import typing as t

# include/uapi/linux/rtnetlink.h, netlink.h, pkt_sched.h, pkt_cls.h
RTM_GETTFILTER = 46
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
CLSACT_INGRESS, CLSACT_EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
TCA_OPTIONS, TCA_BPF_NAME = 2, 7
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
MESSAGE = struct.Struct("=BxxxiIII")  # tcmsg: family, link's index, handle, parent, info
ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER


def bpf_filters(link: str) -> set[str]:
    """Names of the BPF programs on a link's clsact qdisc, both ways; empty where there is no such link or qdisc."""
    try:
        index = socket.if_nametoindex(link)
    except OSError:
        return set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(5.0)
        return {name for parent in (CLSACT_INGRESS, CLSACT_EGRESS) for name in _dump(netlink, index, parent)}


def _dump(netlink: socket.socket, index: int, parent: int) -> t.Iterator[str]:
    body = MESSAGE.pack(socket.AF_UNSPEC, index, 0, parent, 0)
    netlink.send(HEADER.pack(HEADER.size + len(body), RTM_GETTFILTER, NLM_F_REQUEST_DUMP, 1, 0) + body)
    while True:
        answer = netlink.recv(65536)
        while answer:
            length, kind, _flags, _sequence, _port = HEADER.unpack_from(answer)
            if kind in (NLMSG_ERROR, NLMSG_DONE):  # an error: the link has no such qdisc, or is gone
                return
            attributes = dict(_attributes(answer[HEADER.size + MESSAGE.size : length]))
            name = dict(_attributes(attributes.get(TCA_OPTIONS, b""))).get(TCA_BPF_NAME)
            if name is not None:
                yield name.rstrip(b"\0").decode(errors="replace")
            answer = answer[_aligned(length) :]


def _attributes(data: bytes) -> t.Iterator[tuple[int, bytes]]:
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        if length < ATTRIBUTE.size:
            return
        yield kind & TYPE_MASK, data[ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    """Netlink pads to four bytes."""
    return (length + 3) & ~3
