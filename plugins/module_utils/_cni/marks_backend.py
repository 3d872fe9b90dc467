# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the rules of CNIs that mark connections. Read only; loads no kernel module.

nf_tables is asked by netlink. Only a program can read the legacy table mangle, and it is started only if the table is in use.
"""

from __future__ import annotations

import typing as t

from .._netfilter.chains_backend import LEGACY, legacy_tables
from .._netlink import nfnetlink
from .._platform import kernel, process
from . import mangle
from .marks import Chains

# The tables of family ip in nf_tables, and the chain of each at the hook prerouting.
TABLES = {"mangle": "PREROUTING", "terway_symmetric": "prerouting"}

UNREAD = "The legacy table mangle of iptables is in use, but was not read"


class Read(t.NamedTuple):
    """unread: why a table could not be read, as a sentence; empty if all were."""

    tables: list[Chains]
    unread: str = ""


def read(run: process.Runner) -> Read:
    """Read the tables whose rules may mark connections. run: starts programs. Raises Failure if the kernel does not answer."""
    tables = []
    for table, first in TABLES.items() if kernel.is_ready("nf_tables") else ():
        rules = nfnetlink.rules("ip", table)
        lines = [mangle.from_nft(rule.chain, rule.encoding, rule.userdata) for rule in rules]
        tables.append(Chains(f"table ip {table} (nft)", first, lines))
    names, program = LEGACY["ip"]
    if "mangle" not in legacy_tables(names):
        return Read(tables)
    path = process.find(program)
    if path is None:
        return Read(tables, f"{UNREAD}: {program} is not installed.")
    done = run([path, "-t", "mangle"], None)
    if done.rc:
        return Read(tables, f"{UNREAD}: {program} failed ({done.stderr.strip()}).")
    lines = mangle.from_save(done.stdout, "mangle")
    return Read([*tables, Chains("table ip mangle (legacy)", "PREROUTING", lines)])
