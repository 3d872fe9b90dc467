# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checksums that are real: links of the lab compute them before they send."""

from __future__ import annotations

import array
import fcntl
import socket
import struct

from lab.machine import Machine

_SIOCETHTOOL = 0x8946  # linux/sockios.h
_ETHTOOL_STXCSUM = 0x00000017  # linux/ethtool.h


def compute_checksums(machine: Machine, names: list[str]) -> None:
    """Do what ``ethtool -K NAME tx off`` does, without a process per link.

    A veth leaves the checksum to "hardware" that does not exist: packets then travel with an unfinished checksum which
    no receiver verifies, and a translation that gets it wrong would go unseen.
    """
    with machine.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name in names:
            value = array.array("B", struct.pack("=II", _ETHTOOL_STXCSUM, 0))
            address, _size = value.buffer_info()
            fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), address))
