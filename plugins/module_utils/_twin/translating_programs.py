# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""BPF programs of this collection as tables of nft that change a packet as they do. A twin has no BPF programs.

A program is known by its tag: what the kernel runs is then what this version of the collection wrote. It meets a packet before
all chains at ingress, and after all at egress, and so do the chains of its table.
"""

from __future__ import annotations

import functools
import typing as t

from .._bpf import instructions
from .._core.errors import Invalid
from .._core.fields import S32
from .._probe_snat import probe_programs
from .._probe_snat.probe_programs import EGRESS, INGRESS
from .._probe_snat.probe_table import ProbeSnat
from .._snapshot.assumption import ADDRESS, Assumption, Concern
from .._snapshot.values import Link, Program
from . import virtual_servers
from .substitutions import PROGRAM, replaced

TABLE = f"kubenodeTwinProbes{{}}-{virtual_servers.TOKEN}"  # with the place of the program among those of the snapshot
CHAINS = {INGRESS: ("prerouting", S32[0]), EGRESS: ("postrouting", S32[1])}  # with their priorities
HOOKS = ("tcx", "tc")


class StandIn(t.NamedTuple):
    """table: of nft, as text."""

    program: Program
    table: str


def stand_ins(programs: t.Sequence[Program], links: t.Iterable[Link]) -> dict[str, StandIn]:
    """Return the programs whose effect is known, by the names of their tables.

    nftables sees the packets of a bridge's port, and of ports of other links, at the link above: no table has the effect of a
    program there.
    """
    single = {link.name for link in links if not link.master}
    tables = {TABLE.format(number): each for number, each in enumerate(programs) if each.link in single and is_known(each)}
    return {name: StandIn(each, text) for name, each in tables.items() if (text := _table(name, each))}


def assumptions(known: t.Iterable[StandIn]) -> t.Iterator[Assumption]:
    for program, _table_text in known:
        concerns = [Concern(ADDRESS, address) for probe in program.probes for address in probe]
        yield replaced(
            PROGRAM, f"The twin has a table of nft that translates probes as the BPF program {program} does.", *concerns
        )


def is_known(program: Program) -> bool:
    """Return whether a program is one of this collection, as this version writes it."""
    has_place = program.hook in HOOKS and program.direction in CHAINS and 0 < len(program.probes) <= probe_programs.MOST_PROBES
    return program.has_own_name and has_place and program.tag in _tags(program.direction, len(program.probes))


@functools.lru_cache
def _tags(direction: str, probes: int) -> tuple[str, ...]:
    return instructions.tags(probe_programs.program(direction, probes))


def _table(name: str, program: Program) -> str:
    """Return the table of a program; empty if the module makes no table for the link and the probes of the snapshot."""
    hook, priority = CHAINS[program.direction]
    probes = [probe._asdict() for probe in program.probes]
    options = {"table": "probes", "interface": program.link, "priority": 0, "probes": probes, "comment": ""}
    try:
        table = ProbeSnat.from_options(options)._replace(name=name).table()
    except Invalid:
        return ""
    chains = frozenset(chain._replace(priority=priority) for chain in table.chains if chain.hook == hook)
    return table._replace(chains=chains).text()
