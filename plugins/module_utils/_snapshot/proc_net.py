# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of /proc/net: the kernel's counters of packets, some of which tell why it dropped them, and listening TCP sockets.

_netlink/sock_diag.py lists these sockets faster, where that loads no kernel module.
"""

from __future__ import annotations

import re
import struct
import sys
import typing as t

from .._core import fields

COUNTERS = ("/proc/net/snmp", "/proc/net/netstat", "/proc/net/snmp6")
# Those of a snapshot, by their ends (net/ipv4/proc.c, net/ipv6/proc.c).
DROPS = ("IPReversePathFilter", "InNoRoutes", "OutNoRoutes", "InAddrErrors", "InDiscards", "OutDiscards")
IFLA_STATS64 = 23  # include/uapi/linux/if_link.h
OTHERHOST = slice(192, 200)  # rx_otherhost_dropped of struct rtnl_link_stats64, since kernel 6.0
TRACKING = "/proc/net/stat/nf_conntrack"
TRACKED = ("insert_failed", "drop", "early_drop")
ROUTING = "/proc/net/stat/rt_cache"
# Packets of IPv4 whose source the kernel refuses, the reverse-path filter included (net/ipv4/route.c, ip_handle_martian_source).
MARTIANS = ("in_martian_src",)


def counters(*texts: str) -> dict[str, int]:
    """Return the counters of /proc/net/snmp, netstat and snmp6, as "Ip.InNoRoutes" and "Ip6InNoRoutes"."""
    values: dict[str, int] = {}
    for content in texts:
        names: dict[str, list[str]] = {}
        for line in content.splitlines():
            kind, colon, rest = line.partition(": ")
            words = rest.split() if colon else line.split()
            if colon and kind in names:
                pairs = ((f"{kind}.{name}", _number(value)) for name, value in zip(names[kind], words))
                values.update((name, number) for name, number in pairs if number is not None)
            elif colon:
                names[kind] = words
            elif len(words) == 2 and (number := _number(words[1])) is not None:
                values[words[0]] = number
    return values


def _number(text: str) -> int | None:
    """Return a counter; None for a text that the kernel does not print, as reports may have."""
    return int(text) if re.fullmatch(r"-?\d{1,19}", text, re.ASCII) else None


def otherhost_dropped(statistics: bytes) -> int:
    """Return the packets that came in for another MAC address than the link's; 0 if the kernel does not count them."""
    return int.from_bytes(statistics[OTHERHOST], sys.byteorder)


def sums(text: str, columns: t.Sequence[str]) -> dict[str, int]:
    """Return the sums over all processors in a file of /proc/net/stat, whose numbers are hexadecimal."""
    names, *rows = [line.split() for line in text.splitlines()] or [[]]
    whole = [row for row in rows if len(row) == len(names) and all(map(_WORD.fullmatch, row))]
    return {name: sum(int(row[names.index(name)], 16) for row in whole) for name in columns if name in names}


_WORD = re.compile(r"[\da-f]{1,8}", re.ASCII)  # of 32 bits
SOCKETS = ("tcp", "tcp6")
_LOCAL = re.compile(r"(?:[\dA-F]{8}|[\dA-F]{32}):[\dA-F]{4}", re.ASCII)
LISTEN = "0A"  # include/net/tcp_states.h


def listeners(text: str) -> t.Iterator[dict[str, t.Any]]:
    """Yield the listening sockets. text: of one of PATHS (net/ipv4/tcp_ipv4.c, net/ipv6/tcp_ipv6.c)."""
    rows = (line.split() for line in text.splitlines()[1:])
    for local in (row[1] for row in rows if row[3:4] == [LISTEN] and _LOCAL.fullmatch(row[1])):
        address, _colon, port = local.partition(":")
        yield {"address": _address(address), "port": int(port, 16)}


_LISTED = re.compile(r"tcp6?\s+\d+\s+\d+\s+(\S+):(\d{1,5})\s+\S+\s+LISTEN\b.*", re.ASCII)


def listed_sockets(lines: t.Iterable[str]) -> list[dict[str, t.Any]] | None:
    """Return the listening sockets that netstat prints; None if it cuts off an address."""
    matches = [match for match in map(_LISTED.fullmatch, lines) if match]
    try:
        sockets = {(int(match[2]), fields.show(fields.address(match[1])[1])) for match in matches}
    except fields.Unfit:
        return None
    return [{"address": address, "port": port} for port, address in sorted(sockets)] if sockets else None


def _address(digits: str) -> str:
    """Return an address, whose words of 32 bits are numbers of the machine."""
    words = (int(digits[start : start + 8], 16) for start in range(0, len(digits), 8))
    return fields.show(b"".join(struct.pack("=I", word) for word in words))
