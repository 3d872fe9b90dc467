# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads a node's packet path, one subset after the other. Changes nothing, and loads no kernel module."""

from __future__ import annotations

import functools
import typing as t

from .._core.errors import Failure
from .._platform import process
from . import bpf_backend, entries_backend, links_backend, netfilter_backend, pods_backend, saved, settings_backend, snapshot
from .snapshot import Notes, Unread

Reader = t.Callable[[process.Runner, Notes], t.Any]

NFTABLES = "nftables"
READERS: dict[str, Reader] = {
    "links": links_backend.links,
    "neighbors": entries_backend.neighbors,
    "rules": entries_backend.rules,
    "routes": entries_backend.routes,
    "settings": settings_backend.settings,
    NFTABLES: netfilter_backend.nftables,
    "iptables": netfilter_backend.iptables,
    "ipsets": netfilter_backend.ipsets,
    "ebtables": netfilter_backend.ebtables_rules,
    "bpf": bpf_backend.programs,
    "ipvs": netfilter_backend.ipvs,
    "recent": netfilter_backend.recent,
    "pods": pods_backend.pods,
    snapshot.POD_ADDRESSES: pods_backend.addresses,
}


def _reader(subset: str) -> Reader:
    if subset in READERS:
        return READERS[subset]
    from . import software_backend  # with what it needs of services, which a trace does not read

    return software_backend.READERS[subset]


def read(run: process.Runner, subsets: t.Sequence[str]) -> dict[str, t.Any]:
    """Return the snapshot of these subsets. run: starts programs."""
    values: dict[str, t.Any] = dict.fromkeys(subsets)
    unread: list[Unread] = []
    # nft lists what the programs of iptables and ebtables do not print.
    for subset in sorted(subsets, key=lambda subset: subset == NFTABLES):

        def note(what: str, reason: str, subset: str = subset) -> None:
            unread.append(Unread(subset, what, reason))

        others = saved.printed(values.get("iptables") or (), values.get("ebtables") or ())
        reader = functools.partial(netfilter_backend.nftables, others=others) if subset == NFTABLES else _reader(subset)
        try:
            values[subset] = reader(run, note)
        except Failure as failure:
            note("", str(failure))
    return snapshot.compose(values, unread)
