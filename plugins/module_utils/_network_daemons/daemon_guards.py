# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Network daemons that would undo, or do in their own way, what a node with ENIs needs."""

from __future__ import annotations

import typing as t

from .._core.errors import Refusal
from . import networkd
from .known_daemons import COMPETING, HOSTILE, Daemon
from .networkd import Setting
from .networkd_backend import Networkd


class NetworkDaemons:
    """Warns of daemons that compete, refuses where one is hostile and can be switched off."""

    def __init__(self, daemons: t.Sequence[Daemon]) -> None:
        self._daemons = daemons

    def inspect(self) -> t.Iterable[str]:
        for one in self._daemons:
            if one.name == "nm-cloud-setup" and one.verdict == HOSTILE:
                raise Refusal(f"{one.name} is at work: {one.reason}. Nothing was changed. {one.remedy}")
        for one in self._daemons:
            if one.active and one.verdict in (COMPETING, HOSTILE):
                yield f"{one.name} is at work: {one.reason}. {one.remedy}"


class LaterFile:
    """Refuses where another file of networkd's is read after ours and says otherwise."""

    def __init__(self, settings: t.Mapping[str, Setting]) -> None:
        self._settings = settings

    def inspect(self) -> t.Iterable[str]:
        for key, setting in self._settings.items():
            if setting.value:
                raise Refusal(
                    f"{setting.path} sets {key} to yes, and systemd-networkd reads it after {networkd.PATH}. Nothing was"
                    " changed. Remove that line, or set it to no"
                )
        return ()


class LinksOfNetworkd:
    """Warns of links with addresses of ours that networkd manages. ``links`` tells them, as indexes by name."""

    def __init__(self, backend: Networkd, links: t.Callable[[], t.Mapping[str, int]]) -> None:
        self._backend = backend
        self._links = links

    def inspect(self) -> t.Iterable[str]:
        for link, ifindex in self._links().items():
            file = self._backend.managing(ifindex)
            if file:
                yield (
                    f"systemd-networkd manages {link} ({file}). Whenever it configures it, at boot as well, it removes addresses"
                    f" that it has not set, and with the last one the kernel removes the routes over {link}. Have it set the"
                    f" address itself ([Address] with AddPrefixRoute=no), which is enough, or leave {link} alone (Unmanaged=yes)."
                )
