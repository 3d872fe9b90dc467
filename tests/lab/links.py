# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of links that ip(8) lacks: real checksums, and taps for VMs."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct

from lab.machine import Machine

_SIOCETHTOOL = 0x8946  # linux/sockios.h
_ETHTOOL_STXCSUM = 0x00000017  # linux/ethtool.h
_TUNSETIFF, TUN, TAP, _IFF_NO_PI = 0x400454CA, 0x0001, 0x0002, 0x1000  # linux/if_tun.h


def compute_checksums(machine: Machine, names: list[str]) -> None:
    """Do what ``ethtool -K NAME tx off`` does, without a process per link.

    A veth leaves the checksum to "hardware" that does not exist: packets then travel with an unfinished checksum which
    no receiver verifies, and the test would miss a wrong translation.
    """
    with machine.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name in names:
            value = array.array("B", struct.pack("=II", _ETHTOOL_STXCSUM, 0))
            address, _size = value.buffer_info()
            fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), address))


def tap(machine: Machine, name: str, kind: int = TAP) -> int:
    """Make a link of the machine whose other end is the file descriptor; closing its last copy removes the link.

    kind: TUN or TAP. Without IFF_VNET_HDR all checksums are real: none can be left to the other end.
    """

    def make() -> int:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), kind | _IFF_NO_PI))
        return descriptor

    return machine.in_network(make)
