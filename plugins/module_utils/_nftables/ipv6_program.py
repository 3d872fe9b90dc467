# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What a unit of ours asks at boot before it loads its table: has this node IPv6?

Started as ``boot.pyz CONDITION INTERFACE SECONDS`` by ExecCondition= of systemd.service(5), whose exit statuses it keeps:
0 goes on, 77 skips the unit without a failure, all else fails it, after which systemd tries again.

As ``boot.pyz rehearse CONDITION INTERFACE SECONDS`` it asks nobody, and ends with 0 if it could.
"""

from __future__ import annotations

import sys
import time
import typing as t

from .._boot.boot_unit import NO, REHEARSE
from .._cloud import imds_backend
from .._core.errors import DatapathError
from .._platform import kernel

YES, UNKNOWN = 0, 255
REQUEST_LIMIT = 5.0  # seconds for one request; the service on the host answers in milliseconds
PAUSE = 0.1  # seconds between two looks at the interface


def main(arguments: t.Sequence[str] = ()) -> int:
    *verb, condition, interface, seconds = arguments or sys.argv[1:]
    ask, deadline = CONDITIONS[condition], time.monotonic() + float(seconds)
    if verb == [REHEARSE]:
        from .._boot import rehearsal_program  # no boot needs it

        rehearsal_program.import_everything()
        return YES
    try:
        has_ipv6, reason = ask(interface, deadline)
    except DatapathError as error:
        sys.stderr.write(f"Whether this node has IPv6 could not be told: {error}\n")
        return UNKNOWN
    sys.stdout.write(f"This node has {'' if has_ipv6 else 'no '}IPv6: {reason}\n")
    return YES if has_ipv6 else NO


def by_metadata(_interface: str, deadline: float) -> tuple[bool, str]:
    """Whether the cloud gave one of the node's interfaces an IPv6 address; asked until it answers or the deadline is there."""
    answering, nics = imds_backend.with_retries(imds_backend.asking(), REQUEST_LIMIT, deadline=deadline)
    addresses = [address for nic in nics for address in nic.ipv6]
    return bool(addresses), f"{answering}'s metadata names {', '.join(addresses) or 'no IPv6 address'}"


def by_address(interface: str, deadline: float) -> tuple[bool, str]:
    """Whether the interface has a global IPv6 address; waited for until the deadline, as DHCPv6 takes its time."""
    while not kernel.global_ipv6_addresses(interface):
        if time.monotonic() >= deadline:
            return False, f"{interface} has no global IPv6 address"
        time.sleep(PAUSE)
    return True, f"{interface} has {kernel.global_ipv6_addresses(interface)[0]}"


CONDITIONS: dict[str, t.Callable[[str, float], tuple[bool, str]]] = {"imds": by_metadata, "address": by_address}
