# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The BPF programs that the kernel runs on the packets of a link, outside netfilter. It only reads.

Traffic control's filters and XDP are in netlink's answers. Programs attached by tcx (Linux 6.6) are not: bpf(2) alone tells them,
and the names of XDP programs.
"""

from __future__ import annotations

import ctypes
import errno
import struct
import typing as t

from .._core.errors import Failure
from .._netlink import rtnetlink
from . import loader

# include/uapi/linux/bpf.h
PROG_QUERY = 16
INGRESS, EGRESS = "ingress", "egress"
ATTACHMENTS = {INGRESS: 46, EGRESS: 47}  # BPF_TCX_INGRESS, BPF_TCX_EGRESS
XDP, TCX, TC = "XDP", "tcx", "tc"  # hooks, in the order in which a received packet meets them
# The directions of traffic control whose filters a link has, by the kind of its qdisc.
CLSACT = {INGRESS: rtnetlink.CLSACT_INGRESS, EGRESS: rtnetlink.CLSACT_EGRESS}
FILTERED = {"clsact": (INGRESS, EGRESS), "ingress": (INGRESS,)}
MOST_PROGRAMS = 64  # BPF_MPROG_MAX
QUERY = struct.Struct("=IIIIQIIQQQQ")  # link's index, type of attachment, flags, flags, address of IDs, their number, ...
# Kernels without tcx, without bpf(2), and machines that are not in SYSCALL.
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS)


class Program(t.NamedTuple):
    """A program or filter of a link.

    hook: XDP, TCX or TC.
    name: as its loader gave it; empty if it has none.
    kind: BPF, or the kind of another filter of traffic control, such as "flower".
    number: the ID of a program.
    """

    hook: str
    name: str
    direction: str = INGRESS
    kind: str = rtnetlink.BPF
    number: int = 0


def at_ingress(link: str) -> list[Program]:
    """Return the BPF programs that receive a link's packets, without filters that have no name; empty if there is no such link.

    Raises Failure if the kernel refuses to tell.
    """
    index = rtnetlink.index_of(link)
    if not index:
        return []
    by_number = list(_by_number(link, index, (INGRESS,)))
    return by_number + [Program(TC, name) for name in sorted(rtnetlink.bpf_filters(link, (rtnetlink.CLSACT_INGRESS,)))]


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
            programs[link] += [Program(TC, each.name, direction, each.kind, each.number) for each in filters]
    return programs


def _by_number(link: str, index: int, directions: t.Sequence[str]) -> t.Iterator[Program]:
    """Yield the programs that the kernel lists by number."""
    try:
        by_number = [(XDP, INGRESS, sorted(rtnetlink.xdp_programs(index)))]
        by_number += [(TCX, direction, _tcx_programs(index, direction)) for direction in directions]
        for hook, direction, numbers in by_number:
            yield from (Program(hook, _name(number), direction, number=number) for number in numbers)
    except OSError as error:
        raise Failure(f"the kernel refused to list the BPF programs of {link}: {error.strerror}") from error


def _tcx_programs(index: int, direction: str) -> list[int]:
    """Return the IDs of the programs in the order in which packets meet them; none if the kernel has no tcx. Raises OSError."""
    try:
        return _asked(index, direction)
    except OSError as error:
        if error.errno in (*UNSUPPORTED, errno.ENODEV):  # or the link has gone since
            return []
        raise


def has_tcx(index: int) -> bool:
    """Return whether the kernel attaches programs to a link by tcx. Raises OSError."""
    try:
        _asked(index, INGRESS)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return False
        raise
    return True


def _asked(index: int, direction: str) -> list[int]:
    numbers = (ctypes.c_uint32 * MOST_PROGRAMS)()
    query = QUERY.pack(index, ATTACHMENTS[direction], 0, 0, ctypes.addressof(numbers), MOST_PROGRAMS, 0, 0, 0, 0, 0)
    attributes = ctypes.create_string_buffer(query, QUERY.size)
    loader.call(PROG_QUERY, attributes)
    return numbers[: QUERY.unpack(attributes.raw)[5]]


class Place(t.NamedTuple):
    """A program of a link, or another filter. number: the program's ID. handle: of a filter."""

    hook: str
    name: str
    number: int
    priority: int = 0
    handle: int = 0


def with_filters() -> set[int]:
    """Return the indexes of the links that may have filters of traffic control, by one request for all links."""
    return {index for index, kind in rtnetlink.qdiscs() if kind in FILTERED}


def places(index: int, direction: str, has_filters: bool = True) -> list[Place]:
    """Return the programs and filters of a direction in the order in which packets meet them, without XDP. Raises OSError.

    has_filters: see with_filters().
    """
    by_tcx = [Place(TCX, _name(number), number) for number in _tcx_programs(index, direction)]
    by_tc = [
        Place(TC, each.name or each.kind, each.number, each.priority, each.handle)
        for each in (rtnetlink.filters(index, CLSACT[direction]) if has_filters else ())
    ]
    return by_tcx + sorted(by_tc, key=lambda place: place.priority)


def _name(number: int) -> str:
    """Return the name of a program; its number if it has none, or has ended since."""
    program = loader.program(number)
    return program.name if program and program.name else str(number)
