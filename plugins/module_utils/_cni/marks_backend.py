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
from .._ruleset import iptables_save, nft_netlink, ruleset
from .._ruleset.ruleset import Table
from .marks import TABLES

UNREAD = "The legacy table mangle of iptables is in use, but was not read"


class Read(t.NamedTuple):
    """unread: why a table could not be read, as a sentence; empty if all were."""

    tables: list[Table]
    unread: str = ""


def read(run: process.Runner) -> Read:
    """Read the tables whose rules may mark connections. run: starts programs. Raises Failure if the kernel does not answer."""
    tables = [_of_kernel(name) for name in TABLES] if kernel.is_ready("nf_tables") else []
    names, program = LEGACY["ip"]
    if "mangle" not in legacy_tables(names):
        return Read(tables)
    path = process.find(program)
    if path is None:
        return Read(tables, f"{UNREAD}: {program} is not installed.")
    done = run([path, "-t", "mangle"], None)
    if done.rc:
        return Read(tables, f"{UNREAD}: {program} failed ({done.stderr.strip()}).")
    return Read([*tables, iptables_save.read("ip", "mangle", done.stdout, ruleset.LEGACY)])


def _of_kernel(name: str) -> Table:
    rules: dict[str, list[ruleset.Rule]] = {}
    for encoded in nfnetlink.rules("ip", name):
        rules.setdefault(encoded.chain, []).append(nft_netlink.rule(*encoded))
    return Table("ip", name, chains={chain: ruleset.Chain(rules=listing) for chain, listing in rules.items()})
