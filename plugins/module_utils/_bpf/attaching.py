# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Attaches BPF programs to a link in front of all others, and detaches them.

By tcx, where the kernel has it: the program stays attached without a file in bpffs, and other programs, as those of Cilium, come
after it however often they are attached anew. By traffic control otherwise: filters of one priority are met in the order of their
list, at the head of which the kernel puts a new one (net/sched/cls_bpf.c), so that the last one that is added comes first.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from .._core.errors import Failure
from .._netlink import rtnetlink, wire
from .._netlink.attributes import message, pack
from . import attachments, loader
from .attachments import TC, Place

PROG_ATTACH, PROG_DETACH = 8, 9  # include/uapi/linux/bpf.h
BEFORE = 1 << 3  # BPF_F_BEFORE; of no other program: of all
ATTACHED = struct.Struct("=IIII")  # link's index, program, type of attachment, flags
# include/uapi/linux/netlink.h, rtnetlink.h, pkt_sched.h, pkt_cls.h
CREATE, EXCLUSIVE = 0x400, 0x200
RTM_NEWQDISC, RTM_DELQDISC, RTM_NEWTFILTER, RTM_DELTFILTER = 36, 37, 44, 45
TC_H_CLSACT, CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS, DIRECT_ACTION = 6, 7, 8, 1
FIRST = 1  # the priority before all others; 0 stands for none
# Handles of our filters: their upper half, and a number. MADE: their clsact qdisc is ours, too, and goes with the last one.
OURS, MADE = 0x6B6E, 1


def attach(index: int, direction: str, name: str, program: int) -> None:
    """Attach a program in front of all others, and detach those of its name after that. program: its descriptor.

    Raises Failure.
    """
    former = [place for place in attachments.places(index, direction) if place.name == name]
    try:
        if attachments.has_tcx(index):
            loader.bpf(PROG_ATTACH, ATTACHED.pack(index, program, attachments.ATTACHMENTS[direction], BEFORE))
        else:
            _add_filter(index, direction, name, program)
    except OSError as error:
        link = socket.if_indextoname(index)
        raise Failure(f"the kernel refused the BPF program {name} at {direction} of {link}: {error.strerror}") from error
    for place in former:
        detach(index, direction, place)


def detach(index: int, direction: str, place: Place) -> None:
    """Detach a program. One that is gone is as it should be. Raises Failure."""
    try:
        if place.hook == TC:
            _remove_filter(index, direction, place)
        else:
            with loader.opened(loader.bpf(loader.PROG_GET_FD_BY_ID, struct.pack("=III", place.number, 0, 0))) as program:
                loader.bpf(PROG_DETACH, ATTACHED.pack(index, program, attachments.ATTACHMENTS[direction], 0))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise Failure(f"the kernel did not detach the BPF program {place.name}: {error.strerror}") from error


def _add_filter(index: int, direction: str, name: str, program: int) -> None:
    """Raises OSError."""
    places = [place for each in attachments.CLSACT for place in attachments.places(index, each) if place.hook == TC]
    is_made = _add_clsact(index) or any(_is_made_by_us(place) for place in places)
    handles = {place.handle for place in places}
    handle = next(each for each in range(OURS << 16 | (MADE if is_made else 0), OURS + 1 << 16, MADE + 1) if each not in handles)
    options = pack(
        {
            TCA_BPF_FD: struct.pack("=I", program),
            TCA_BPF_NAME: name.encode() + b"\0",
            TCA_BPF_FLAGS: struct.pack("=I", DIRECT_ACTION),
        }
    )
    body = pack({rtnetlink.TCA_KIND: b"bpf\0", rtnetlink.TCA_OPTIONS: options})
    _ask(RTM_NEWTFILTER, CREATE | EXCLUSIVE, _filter(index, handle, direction) + body)


def _add_clsact(index: int) -> bool:
    """Return whether the link had no clsact qdisc, and has got one."""
    try:
        header = rtnetlink.TRAFFIC.pack(socket.AF_UNSPEC, index, CLSACT_HANDLE, TC_H_CLSACT, 0)
        _ask(RTM_NEWQDISC, CREATE | EXCLUSIVE, header + pack({rtnetlink.TCA_KIND: b"clsact\0"}))
    except FileExistsError:
        return False
    return True


def _is_made_by_us(place: Place) -> bool:
    return place.handle >> 16 == OURS and bool(place.handle & MADE)


def _remove_filter(index: int, direction: str, place: Place) -> None:
    body = pack({rtnetlink.TCA_KIND: b"bpf\0"})
    _ask(RTM_DELTFILTER, 0, _filter(index, place.handle, direction) + body)
    is_empty = not any(each.hook == TC for way in attachments.CLSACT for each in attachments.places(index, way))
    if _is_made_by_us(place) and is_empty:
        _ask(RTM_DELQDISC, 0, rtnetlink.TRAFFIC.pack(socket.AF_UNSPEC, index, CLSACT_HANDLE, TC_H_CLSACT, 0))


def _filter(index: int, handle: int, direction: str) -> bytes:
    info = FIRST << 16 | socket.htons(rtnetlink.ETH_P_ALL)
    return rtnetlink.TRAFFIC.pack(socket.AF_UNSPEC, index, handle, attachments.CLSACT[direction], info)


def _ask(kind: int, flags: int, body: bytes) -> None:
    for refused in wire.exchange([message(kind, flags, body)]).values():
        raise OSError(refused.code, refused.text or os.strerror(refused.code))
