# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables in a snapshot, whichever tool printed them there. A snapshot says elsewhere what of them is open."""

from __future__ import annotations

import typing as t

from . import generated, iptables_save, nft_json, nft_text
from .ruleset import Table

Snapshot = t.Mapping[str, t.Any]


def of_nft(snapshot: Snapshot) -> list[Table]:
    """Return the tables that nft lists whose chains packets may meet: of a running node as JSON, of a report as text."""
    objects, text, lacking = snapshot.get("nftables"), snapshot.get("nftables_text"), generated.of(snapshot)
    of_text = nft_text.tables(str(text or ""))
    of_text = [*map(lacking.completed, of_text)] if lacking else of_text
    every = (*nft_json.tables(objects if isinstance(objects, list) else []), *of_text)
    return [table for table in every if not table.is_dormant]


def of_iptables(snapshot: Snapshot, *names: str) -> list[Table]:
    """Return the tables of iptables in both families and backends. names: of tables; all by default."""
    entries = snapshot.get("iptables")
    return [
        iptables_save.read(str(entry.get("family")), str(entry["table"]), str(entry.get("save")), str(entry.get("backend")))
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and "table" in entry and (not names or entry["table"] in names)
    ]


def tables(snapshot: Snapshot) -> list[Table]:
    """Return the tables of iptables and of nft."""
    return [*of_iptables(snapshot), *of_nft(snapshot)]
