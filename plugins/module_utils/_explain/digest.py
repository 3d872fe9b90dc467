# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether two snapshots of a node are of one state, without keeping the earlier one."""

from __future__ import annotations

import hashlib
import re
import typing as t

from .._snapshot.snapshot import NODE
from .._snapshot.values import Entry, entries
from . import node_objects
from .node_objects import NEIGHBOR, whole

# What counts and ages in the texts of iptables-save, ipset save and nft, where what else has such a form is left out as well.
_COUNTED = re.compile(r"\[\d+:\d+\]|\b(?:timeout|packets|bytes) \d+|\bexpires \w+")
_TEXTS = ("iptables", "ipsets", "nftables_text")
_NEIGHBORS = ("neighbors", "pod_neighbors")
COUNTERS = "counters"


def digest(snapshot: Entry) -> str:
    """Return the same text for snapshots between which nothing changed that a packet or a check meets, besides counters and ages.

    It errs on the other side alone: what only looks different has another digest.
    """
    parts: dict[str, t.Any] = {key: value for key, value in snapshot.items() if key not in (NODE, COUNTERS)}
    for subset in _TEXTS:
        parts[subset] = _COUNTED.sub("", whole(snapshot.get(subset)))
    for subset in _NEIGHBORS:
        parts[subset] = sorted(f"{NEIGHBOR.key(entry)} {NEIGHBOR.value(entry)}" for entry in entries(snapshot, subset))
    parts["nftables"] = node_objects.without_counters(snapshot.get("nftables"))
    return hashlib.sha256(whole(parts).encode()).hexdigest()
