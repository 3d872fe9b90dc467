# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot program that tells a table's unit whether the node has IPv6. The unit runs it before it loads the table.

The node's network may still be coming up when it boots, so the program then waits up to SECONDS for an answer. A unit that starts
later, as by its timer, must not delay a restart of kubelet, which waits for the unit: the program then takes LATER at most.

ExecCondition= (systemd.service(5)) starts it as ``boot.pyz CONDITION INTERFACE SECONDS``. Exit statuses: 0 continues, 77
skips the unit without a failure, any other status fails the unit, and systemd tries again.

``boot.pyz rehearse CONDITION INTERFACE SECONDS`` sends no request. It exits with 0 if the program could run.
"""

from __future__ import annotations

import sys
import time
import typing as t

from .._cloud import imds_backend
from .._core.errors import DatapathError
from .._platform import kernel
from .._systemd.program_words import NO, REHEARSE
from . import ipv6_backend

YES, UNKNOWN = 0, 255
BOOT = 300.0  # seconds from the start of process 1 in which a node boots; systemd-networkd-wait-online(8) takes up to 120
LATER = 1.0  # seconds for an answer after that
PAUSE = 0.1  # seconds between two reads of the interface's addresses


def main(arguments: t.Sequence[str] = ()) -> int:
    *verb, condition, interface, seconds = arguments or sys.argv[1:]
    patience = float(seconds) if kernel.uptime() < BOOT else min(float(seconds), LATER)
    ask, deadline = CONDITIONS[condition], time.monotonic() + patience
    if verb == [REHEARSE]:
        from .._boot import rehearsal_program  # no boot needs it

        rehearsal_program.import_everything()
        return YES
    try:
        has_ipv6, reason = ask(interface, deadline)
    except DatapathError as error:
        sys.stderr.write(f"Cannot determine whether this node has IPv6: {error}\n")
        return UNKNOWN
    sys.stdout.write(f"This node has {'' if has_ipv6 else 'no '}IPv6: {reason}\n")
    return YES if has_ipv6 else NO


def by_metadata(_interface: str, deadline: float) -> tuple[bool, str]:
    """Return whether the metadata service names an IPv6 address of the primary interface, and the reason.

    Retries until the deadline.
    """
    asking = imds_backend.asking(imds_backend.primary_ipv6)
    answering, addresses = imds_backend.with_retries(asking, imds_backend.TIMEOUT, deadline=deadline)
    names = f"names {', '.join(addresses) or 'no IPv6 address'} for the primary interface"
    return bool(addresses), f"the metadata service of {answering} {names}"


def by_address(interface: str, deadline: float) -> tuple[bool, str]:
    """Return whether the interface has a global IPv6 address, and the reason. Waits for DHCPv6 until the deadline."""
    while not ipv6_backend.global_ipv6_addresses(interface):
        if time.monotonic() >= deadline:
            return False, f"{interface} has no global IPv6 address"
        time.sleep(PAUSE)
    return True, f"{interface} has {ipv6_backend.global_ipv6_addresses(interface)[0]}"


CONDITIONS: dict[str, t.Callable[[str, float], tuple[bool, str]]] = {"imds": by_metadata, "address": by_address}
