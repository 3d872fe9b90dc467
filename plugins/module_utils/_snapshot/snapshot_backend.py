# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads a node's packet path, one subset after the other. Changes nothing, and loads no kernel module."""

from __future__ import annotations

import typing as t

from .._core.errors import Failure
from .._platform import process
from . import (
    entries_backend,
    links_backend,
    netfilter_backend,
    settings_backend,
    snapshot,
    software_backend,
)
from .snapshot import Notes, Unread

READERS: dict[str, t.Callable[[process.Runner, Notes], t.Any]] = {
    "links": links_backend.links,
    "neighbors": entries_backend.neighbors,
    "rules": entries_backend.rules,
    "routes": entries_backend.routes,
    "settings": settings_backend.settings,
    "nftables": netfilter_backend.nftables,
    "iptables": netfilter_backend.iptables,
    "ipsets": netfilter_backend.ipsets,
    "ebtables": netfilter_backend.ebtables_rules,
    "bpf": software_backend.programs,
    "ipvs": netfilter_backend.ipvs,
    "network_daemons": software_backend.network_daemons,
    "cni": software_backend.configurations,
    "units": software_backend.units,
    "versions": software_backend.versions,
}


def read(run: process.Runner, subsets: t.Iterable[str]) -> dict[str, t.Any]:
    """The snapshot of these subsets. run: starts programs."""
    found: dict[str, t.Any] = {}
    unread: list[Unread] = []
    for subset in subsets:

        def note(what: str, reason: str, subset: str = subset) -> None:
            unread.append(Unread(subset, what, reason))

        try:
            found[subset] = READERS[subset](run, note)
        except Failure as failure:
            found[subset] = None
            note("", str(failure))
    return snapshot.compose(found, unread)
