# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads rules of iptables in both backends. Read only; reads only tables that exist, so that none is created or loaded."""

from __future__ import annotations

import typing as t

from .._cni import chains_backend
from .._platform import process
from .iptables import PROGRAMS, Rule, Table, rules


class Read(t.NamedTuple):
    """unread: each table that could not be read, with a sentence that says why."""

    rules: tuple[Rule, ...] = ()
    unread: t.Mapping[Table, str] = {}


def read(run: process.Runner, names: t.Mapping[str, t.Collection[str]], chains: t.Iterable[tuple[str, str]]) -> Read:
    """names: tables to read, by family. chains: place and name of all chains of the node; see chains_backend.read()."""
    existing = {place for place, _chain in chains}
    found: list[Rule] = []
    unread: dict[Table, str] = {}
    for family, wanted in names.items():
        legacy = chains_backend.legacy_tables(chains_backend.LEGACY[family][0])
        for name in wanted:
            nft = Table(family, name, "nft")
            for table in [nft] * (str(nft) in existing) + [Table(family, name, "legacy")] * (name in legacy):
                why = _read(run, table, found)
                if why:
                    unread[table] = why
    return Read(tuple(found), unread)


def _read(run: process.Runner, table: Table, found: list[Rule]) -> str:
    """Appends the table's rules, and returns why they could not be read; empty if they were."""
    tool = f"{PROGRAMS[table.family]}-{table.backend}-save"
    path = process.find(tool)
    if path is None:
        return f"Table {table} was not read: {tool} (package iptables) is not installed. Install it and run again."
    done = run([path, "-t", table.name], None)
    # Rules that nft added are not iptables'; the program then prints a comment in place of the table.
    if done.rc or "incompatible" in done.stdout + done.stderr:
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"Table {table} was not read: {tool} answered {said[-1] if said else done.rc!r}. List it with nft instead."
    found += rules(table, done.stdout)
    return ""
