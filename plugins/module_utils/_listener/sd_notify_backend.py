# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The state of a service, as it reports it to systemd: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(*assignments: str) -> None:
    """Send a notification to systemd, such as ``notify("READY=1", "STATUS=...")``.

    Does nothing if systemd did not start this program or does not listen.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        if address.startswith("@"):  # the abstract namespace, unix(7)
            address = f"\0{address[1:]}"
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with socket.socket(socket.AF_UNIX, kind) as service_manager, contextlib.suppress(OSError):
            service_manager.sendto("\n".join(assignments).encode(), address)
