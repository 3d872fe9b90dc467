# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Warnings about files, rules and programs on the node that use a bridge that is about to be removed."""

from __future__ import annotations

import glob
import re
import typing as t

from .._files import files
from .._interfaces.link_message import Link
from .._netlink import rtnetlink
from .._routing.routing_backend import Netlink

# Where networkd, netplan, ifupdown and NetworkManager keep the configuration that a boot applies.
NETWORK_FILES = (
    "/etc/systemd/network/*",
    "/run/systemd/network/*",
    "/etc/netplan/*",
    "/etc/network/interfaces",
    "/etc/network/interfaces.d/*",
    "/etc/NetworkManager/system-connections/*",
)


def bridge_users(find_bridge: t.Callable[[], Link | None], rules: Netlink, reader: files.Files) -> t.Iterable[str]:
    """Warn of files from which the next boot creates the bridge again, and of policy rules and BPF programs that use it.

    azure-vnet creates its bridge at run time only. A boot without azure-vnet gives the network interface its address as on
    any other node.
    """
    bridge = find_bridge()
    if bridge is None:
        return
    for path in sorted(path for pattern in NETWORK_FILES for path in glob.glob(pattern)):
        content = reader.read(path)
        if isinstance(content, files.Content) and re.search(rf"\b{re.escape(bridge.name)}\b", content.text):
            yield f"{path} names {bridge.name}, so the next boot may create it again. Remove the bridge from this file."
    for rule, _protocol in rules.rules():
        if bridge.name in (rule.iif, rule.oif):
            yield f"{rule} is about {bridge.name}. It is left, and matches nothing without the bridge. Remove the rule."
    programs = rtnetlink.bpf_filters(bridge.name)
    if programs:
        yield (
            f"{bridge.name} runs the BPF programs {', '.join(sorted(programs))}, which are removed with the bridge. Restart"
            " the agent that attached them, so that it attaches them to the network interface."
        )
