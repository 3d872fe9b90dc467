# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the kernel's counters of packets and of tracked connections."""

from __future__ import annotations

import typing as t

from .._files import files
from .._interfaces.link_backend import LinkMessages
from .._interfaces.link_message import IFINFO
from .._netlink.attributes import attributes
from .._platform import kernel, process
from . import counters
from .snapshot import Notes

CONNECTIONS = {"count": "net/netfilter/nf_conntrack_count", "max": "net/netfilter/nf_conntrack_max"}


def read(_run: process.Runner, _note: Notes) -> dict[str, t.Any]:
    """Return counters since the start of the network namespace. What the kernel lacks is left out. Raises Failure."""
    values = counters.parsed(*map(files.text_or_empty, counters.PATHS))
    connections = ((name, kernel.setting(key)) for name, key in CONNECTIONS.items())
    return {
        "packets": {name: value for name, value in sorted(values.items()) if name.endswith(counters.KEPT)},
        "connections": {
            **{name: value for name, value in connections if value is not None},
            **counters.sums(files.text_or_empty(counters.TRACKING), counters.TRACKED),
        },
        "routing": counters.sums(files.text_or_empty(counters.ROUTING), counters.MARTIANS),
        "otherhost": _otherhost(),
    }


def _otherhost() -> dict[str, int]:
    """Return the packets for other MAC addresses by link, without links that dropped none."""
    statistics = {
        link.name: attributes(link.body, IFINFO.size).get(counters.IFLA_STATS64, b"") for link in LinkMessages().links()
    }
    dropped = {name: counters.otherhost_dropped(each) for name, each in statistics.items()}
    return {name: count for name, count in dropped.items() if count}
