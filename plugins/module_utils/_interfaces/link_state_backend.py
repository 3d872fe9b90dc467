# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The index and the state of a link, by ioctl(2): /sys may belong to another network namespace than the process."""

from __future__ import annotations

import fcntl
import socket
import struct

SIOCGIFFLAGS = 0x8913  # include/uapi/linux/sockios.h
IFF_UP = 1
REQUEST = struct.Struct("=16sH22x")  # ifreq: name, flags


def of(name: str) -> tuple[int, bool]:
    """Return the link's index, and whether it is up; 0 and False if there is no such link."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            _name, flags = REQUEST.unpack(fcntl.ioctl(sock, SIOCGIFFLAGS, REQUEST.pack(name.encode(), 0)))
            return socket.if_nametoindex(name), bool(flags & IFF_UP)
        except OSError:
            return 0, False
