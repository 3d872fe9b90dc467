# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The BPF programs that the kernel runs on the packets of a link, outside netfilter. It only reads.

Traffic control's filters and XDP are in netlink's answers. Programs attached by tcx (Linux 6.6) are not: bpf(2) alone tells them,
and the names of XDP programs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import typing as t

from .._core.errors import Failure
from . import rtnetlink

# The number of bpf(2) by machine, for 64-bit programs (arch/*/kernel/syscalls/*.tbl, include/uapi/asm-generic/unistd.h).
SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
# include/uapi/linux/bpf.h
PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD, PROG_QUERY = 13, 15, 16
INGRESS, EGRESS = "ingress", "egress"
TCX = {INGRESS: 46, EGRESS: 47}  # BPF_TCX_INGRESS, BPF_TCX_EGRESS
# The directions of traffic control whose filters a link has, by the kind of its qdisc.
CLSACT = {INGRESS: rtnetlink.CLSACT_INGRESS, EGRESS: rtnetlink.CLSACT_EGRESS}
FILTERED = {"clsact": (INGRESS, EGRESS), "ingress": (INGRESS,)}
MOST_PROGRAMS = 64  # BPF_MPROG_MAX
QUERY = struct.Struct("=IIIIQIIQQQQ")  # link's index, type of attachment, flags, flags, address of IDs, their number, ...
INFO = struct.Struct("=64x16s")  # bpf_prog_info: ..., name
# Kernels without tcx, without bpf(2), and machines that are not in SYSCALL.
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS)


class Program(t.NamedTuple):
    """A program or filter of a link.

    hook: "XDP", "tcx" or "tc", in the order in which a received packet meets them.
    name: as its loader gave it; empty if it has none.
    kind: BPF, or the kind of another filter of traffic control, such as "flower".
    """

    hook: str
    name: str
    direction: str = INGRESS
    kind: str = rtnetlink.BPF


def at_ingress(link: str) -> list[Program]:
    """Return the BPF programs that receive a link's packets, without filters that have no name; empty if there is no such link.

    Raises Failure if the kernel refuses to tell.
    """
    index = rtnetlink.index_of(link)
    if not index:
        return []
    by_number = list(_by_number(link, index, (INGRESS,)))
    return by_number + [Program("tc", name) for name in sorted(rtnetlink.bpf_filters(link, (rtnetlink.CLSACT_INGRESS,)))]


def other_filters(links: t.Mapping[int, str]) -> t.Iterator[tuple[str, str, rtnetlink.Filter]]:
    """Yield link, direction and filter for those of traffic control that are no programs. links: names by index."""
    for index, kind in sorted({(index, kind) for index, kind in rtnetlink.qdiscs() if kind in FILTERED and index in links}):
        for direction in FILTERED[kind]:
            listed = rtnetlink.filters(index, CLSACT[direction])
            yield from ((links[index], direction, each) for each in listed if each.kind != rtnetlink.BPF)


def of_links(links: t.Mapping[int, str]) -> dict[str, list[Program]]:
    """Return all programs and filters by link. links: names by index. Raises Failure if the kernel refuses to tell."""
    directions = {index: FILTERED[kind] for index, kind in rtnetlink.qdiscs() if kind in FILTERED}
    programs = {}
    for index, link in links.items():
        programs[link] = list(_by_number(link, index, (INGRESS, EGRESS)))
        for direction in directions.get(index, ()):
            filters = rtnetlink.filters(index, CLSACT[direction])
            programs[link] += [Program("tc", attached.name, direction, attached.kind) for attached in filters]
    return programs


def _by_number(link: str, index: int, directions: t.Sequence[str]) -> t.Iterator[Program]:
    """Yield the programs that the kernel lists by number."""
    try:
        by_number = [("XDP", INGRESS, rtnetlink.xdp_programs(index))]
        by_number += [("tcx", direction, _tcx_programs(index, TCX[direction])) for direction in directions]
        for hook, direction, numbers in by_number:
            yield from (Program(hook, _name(number), direction) for number in sorted(numbers))
    except OSError as error:
        raise Failure(f"the kernel refused to list the BPF programs of {link}: {error.strerror}") from error


def _tcx_programs(index: int, attachment: int) -> set[int]:
    numbers = (ctypes.c_uint32 * MOST_PROGRAMS)()
    query = QUERY.pack(index, attachment, 0, 0, ctypes.addressof(numbers), MOST_PROGRAMS, 0, 0, 0, 0, 0)
    attributes = ctypes.create_string_buffer(query, QUERY.size)
    try:
        _bpf(PROG_QUERY, attributes)
    except OSError as error:
        if error.errno in (*UNSUPPORTED, errno.ENODEV):  # or the link has gone since
            return set()
        raise
    return set(numbers[: QUERY.unpack(attributes.raw)[5]])


def _name(number: int) -> str:
    """Return the name of a program; its number if it has ended since."""
    try:
        program = _bpf(PROG_GET_FD_BY_ID, ctypes.create_string_buffer(struct.pack("=III", number, 0, 0), 12))
    except FileNotFoundError:
        return str(number)
    try:
        info = ctypes.create_string_buffer(INFO.size)
        question = struct.pack("=IIQ", program, INFO.size, ctypes.addressof(info))
        _bpf(OBJ_GET_INFO_BY_FD, ctypes.create_string_buffer(question, len(question)))
    finally:
        os.close(program)
    return str(INFO.unpack(info.raw)[0].rstrip(b"\0").decode(errors="replace")) or str(number)


def _bpf(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    """Call bpf(2). Raises OSError."""
    syscall = SYSCALL.get(os.uname().machine)
    if syscall is None or struct.calcsize("P") != 8:  # a 32-bit program has other numbers
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    answer = ctypes.CDLL(None, use_errno=True).syscall(syscall, command, attributes, len(attributes))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)
