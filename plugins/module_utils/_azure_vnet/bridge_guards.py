# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What else on the node counts on a bridge that is about to go."""

from __future__ import annotations

import glob
import re
import typing as t

from .._interfaces.link_message import Link
from .._netlink import rtnetlink
from .._platform import files
from .._routing.routing_backend import Netlink

# Where networkd, netplan, ifupdown and NetworkManager keep what the next boot makes.
NETWORK_FILES = (
    "/etc/systemd/network/*",
    "/run/systemd/network/*",
    "/etc/netplan/*",
    "/etc/network/interfaces",
    "/etc/network/interfaces.d/*",
    "/etc/NetworkManager/system-connections/*",
)


class BridgeUsers:
    """Warns of files by which the next boot makes the bridge again, and of rules and programs that are about it.

    azure-vnet makes its bridge at run time only, so that a boot without azure-vnet gives the NIC its address as on any node.
    """

    def __init__(self, bridge: t.Callable[[], Link | None], rules: Netlink, reader: files.Files) -> None:
        self._bridge = bridge
        self._rules = rules
        self._files = reader

    def inspect(self) -> t.Iterable[str]:
        bridge = self._bridge()
        if bridge is None:
            return
        for path in sorted(path for pattern in NETWORK_FILES for path in glob.glob(pattern)):
            found = self._files.read(path)
            if isinstance(found, files.Content) and re.search(rf"\b{re.escape(bridge.name)}\b", found.text):
                yield f"{path} names {bridge.name}, so that the next boot may make it again. Remove it from there."
        for rule, _protocol in self._rules.rules():
            if bridge.name in (rule.iif, rule.oif):
                yield f"{rule} is about {bridge.name} and is left, without meaning. Remove it."
        programs = rtnetlink.bpf_filters(bridge.name)
        if programs:
            yield (
                f"{bridge.name} runs {', '.join(sorted(programs))}, which go with it. Restart the agent that put them there,"
                " so that it finds the NIC."
            )
