# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards against network daemons that remove the rules and routes of a node with ENIs, or route its interfaces themselves."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal
from . import networkd
from .daemons_backend import Networkd
from .known_daemons import COMPETING, HOSTILE, Daemon
from .networkd import Setting


def network_daemons(daemons: t.Sequence[Daemon]) -> t.Iterable[str]:
    """Warn of competing daemons. Refuses if nm-cloud-setup, which is hostile and can be disabled, is active."""
    for daemon in daemons:
        if daemon.name == "nm-cloud-setup" and daemon.verdict == HOSTILE:
            raise Refusal(f"{daemon.name} is active: {daemon.reason}. Nothing was changed. {daemon.remedy}")
    for daemon in daemons:
        # One that is not active competes by the rules that it left.
        if daemon.verdict == COMPETING or (daemon.active and daemon.verdict == HOSTILE):
            yield f"{daemon.name}{' is active' if daemon.active else ''}: {daemon.reason}. {daemon.remedy}"


def later_file(settings: t.Mapping[str, Setting]) -> t.Iterable[str]:
    """Refuse if networkd reads another file after this collection's drop-in, and that file contradicts it."""
    for key, setting in settings.items():
        if setting.value:
            raise Refusal(
                f"{setting.path} sets {key} to yes, and systemd-networkd reads it after {networkd.PATH}. Nothing was"
                " changed. Remove that line, or set it to no"
            )
    return ()


def links_of_networkd(backend: Networkd, links: t.Callable[[], t.Mapping[str, int]]) -> t.Iterable[str]:
    """Warn of links that networkd manages and that have addresses of link_addresses. ``links`` returns their indexes by name."""
    for link, ifindex in links().items():
        file = backend.managing(ifindex)
        if file:
            yield (
                f"systemd-networkd manages {link} ({file}). Whenever it configures {link}, also at boot, it removes addresses"
                f" that it did not set. With the last address the kernel removes the routes over {link}. Either set the"
                f" address in its .network file ([Address] with AddPrefixRoute=no), or set Unmanaged=yes for {link}."
            )


def second_default(backend: Networkd) -> t.Iterable[str]:
    """Warn of links to which networkd's DHCP gave a default route besides the one that the node uses."""
    for route in backend.dhcp_defaults()[1:]:
        yield (
            f"systemd-networkd gave {route.link} a default route by DHCP ({route.file}), besides that by another link: which one"
            " the node uses depends on their metrics and on the order in which links appear. If the CNI attached"
            f" {route.link}, match it in a .network file of its own with [Link] Unmanaged=yes, or set [DHCPv4] UseRoutes=no, and"
            f" remove the route: ip route del default via {route.gateway} dev {route.link}."
        )
