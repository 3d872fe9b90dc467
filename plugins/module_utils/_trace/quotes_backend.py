# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The rules that a packet met, as their own tool prints them."""

from __future__ import annotations

import re
import typing as t

from .._netlink import nfnetlink
from .._platform import process
from .kernel_events import Event

PROGRAMS = {"ip": "iptables-nft-restore", "ip6": "ip6tables-nft-restore", "bridge": "ebtables-nft-restore"}
_TABLE, _RULE = re.compile(r"^\*(\S+)$"), re.compile(r"^(?:\[\d+:\d+\] )?-([AI]) (\S+) ?(.*)$")
_HANDLE = re.compile(r"^\s*(.*?) # handle (\d+)$")


class Quotes:
    """texts: what was loaded, by program. run: starts nft for tables that no program of iptables loaded."""

    def __init__(self, texts: t.Mapping[str, str], run: process.Runner) -> None:
        self._run = run
        self._saved = {family: _rules(texts.get(program, "")) for family, program in PROGRAMS.items()}
        self._places: dict[tuple[str, str], dict[int, str]] = {}

    def text(self, event: Event) -> str:
        """The rule's text; empty for the end of a chain."""
        if not event.handle:
            return ""
        table = event.family, event.table
        if table not in self._places:
            self._places[table] = self._read(*table)
        return self._places[table].get(event.handle, "")

    def chain(self, event: Event) -> list[tuple[int, str]]:
        """Handles and texts of the rules of the event's table, in order."""
        self.text(event)
        return list(self._places.get((event.family, event.table), {}).items())

    def _read(self, family: str, table: str) -> dict[int, str]:
        saved = self._saved.get(family, {}).get(table)
        if saved is None:
            return self._listed(family, table)
        seen: dict[str, int] = {}
        found = {}
        current = nfnetlink.rules(family, table)
        counts: dict[str, int] = {}
        for rule in current:
            counts[rule.chain] = counts.get(rule.chain, 0) + 1
        if counts != {chain: len(texts) for chain, texts in saved.items() if texts}:
            return self._listed(family, table)  # changed since
        for rule in current:
            place = seen[rule.chain] = seen.get(rule.chain, -1) + 1
            found[rule.handle] = saved[rule.chain][place]
        return found

    def _listed(self, family: str, table: str) -> dict[int, str]:
        done = self._run([process.find("nft") or "nft", "-a", "list", "table", family, table], None)
        lines = (_HANDLE.match(line) for line in done.stdout.splitlines() if "{ # handle" not in line)
        return {int(found[2]): found[1] for found in lines if found}


def _rules(text: str) -> dict[str, dict[str, list[str]]]:
    """The texts of the rules by table and chain, with ``-A CHAIN``."""
    found: dict[str, dict[str, list[str]]] = {}
    chains: dict[str, list[str]] = {}
    for line in text.splitlines():
        table, rule = _TABLE.match(line), _RULE.match(line)
        if table:
            chains = found.setdefault(table[1], {})
        elif rule:
            shown = f"-A {rule[2]} {rule[3]}".strip()
            own = chains.setdefault(rule[2], [])
            own.insert(0 if rule[1] == "I" else len(own), shown)
    return found
