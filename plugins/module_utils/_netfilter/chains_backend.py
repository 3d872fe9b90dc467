# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of the chains in nf_tables and in the legacy tables of iptables. Read only; loads no kernel module."""

from __future__ import annotations

import typing as t
from pathlib import Path

from .._netlink import nfnetlink
from .._platform import kernel, process

# Each file lists the legacy tables in use. The kernel has the file only while the module is loaded.
LEGACY = {
    "ip": ("/proc/net/ip_tables_names", "iptables-legacy-save"),
    "ip6": ("/proc/net/ip6_tables_names", "ip6tables-legacy-save"),
}


def read(run: process.Runner) -> list[tuple[str, str]]:
    """Return each chain's place, such as "ip nat (nft)", and its name. run: starts programs."""
    return [*_nft(), *_legacy(run)]


def _nft() -> t.Iterator[tuple[str, str]]:
    if kernel.is_ready("nf_tables"):
        for family in ("ip", "ip6", "inet"):
            for chain in nfnetlink.chains(family):
                yield f"{family} {chain.table} (nft)", chain.name


def _legacy(run: process.Runner) -> t.Iterator[tuple[str, str]]:
    for family, (names, program) in LEGACY.items():
        path = process.find(program)
        if path is None or not legacy_tables(names):
            continue
        table = ""
        for line in run([path], None).stdout.splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif line.startswith(":"):
                yield f"{family} {table} (legacy)", line[1:].split(" ", 1)[0]


def legacy_tables(names: str) -> list[str]:
    """Return the legacy tables in use, from a file of LEGACY."""
    try:
        return Path(names).read_text().split()
    except OSError:
        return []
