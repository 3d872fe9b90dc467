# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refusals for a node where azure-vnet or its monitor is still at work; warnings of leftovers, and of users of a bridge."""

from __future__ import annotations

import glob
import re
import typing as t

from .._cni import cni_backend
from .._core.errors import Refusal
from .._files import files
from .._interfaces.link_message import Link
from .._netlink import rtnetlink
from .._platform import process
from .._routing.routing_backend import Netlink
from . import cni_leftovers, survey_backend


def another_cni() -> t.Iterable[str]:
    """Refuse if azure-vnet would set up the next pod."""
    active = [(path, file.content) for path, file in cni_backend.configurations().items() if not file.is_inert]
    if active and active[0][1].is_there:
        raise Refusal(
            f"azure-vnet is this node's CNI: {active[0][0]} is the first configuration that a runtime finds, and names"
            " azure-vnet. Nothing was changed. Install another CNI's configuration under a name that sorts before it, such as"
            " 05-cilium.conflist"
        )
    return ()


def no_monitor() -> t.Iterable[str]:
    """Refuse if a monitor restores azure-vnet's rules from its state file.

    azure-cnimonitor restores missing rules every ten seconds. Without the state file it deletes every rule, those of live pods
    included (network/monitor_linux.go, AddStateRulesToMap).
    """
    for number, name in cni_backend.monitors().items():
        raise Refusal(
            f"{name} runs here (process {number}) and restores azure-vnet's rules from its state file. Nothing was changed."
            " Delete the DaemonSet azure-cni-networkmonitor, or stop the process if something else runs it, then run again"
        )
    return ()


def harmful_leftovers(run: process.Runner) -> t.Iterable[str]:
    """Warn of leftovers of other CNIs that act on packets. Starts programs only if there are leftovers."""
    troubles: list[str] = []
    leftovers = survey_backend.of_others(run, troubles.append, survey_backend.survey(run))
    return [*troubles, *cni_leftovers.harms(leftovers)]


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
