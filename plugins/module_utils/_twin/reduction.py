# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A blueprint, reduced to the chains, rules and elements that the packets of a trace can reach.

The packets meet the same rules in the same order in a twin of the reduced blueprint.
"""

from __future__ import annotations

from . import reachable_objects, reachable_tables, reachable_text
from .blueprint import RESTORES, Blueprint
from .reachable import Flow, Reach

_IPTABLES = tuple(RESTORES[family] for family in ("ip", "ip6"))


def reduced(drawn: Blueprint, flow: Flow) -> Blueprint:
    """Return the part of a blueprint that packets can reach; all of it if there is something that is not understood."""
    of_objects, of_text = reachable_objects.tables(drawn.ruleset), reachable_text.tables(drawn.ruleset_text)
    of_programs = {program: reachable_tables.tables(text) for program, text in drawn.restores if program in _IPTABLES}
    if of_objects is None or of_text is None or None in of_programs.values():
        return drawn
    tables, firsts = [*of_objects.values(), *of_text], dict[str, int]()
    for program, listed in of_programs.items():
        firsts[program] = len(tables)
        tables += listed or ()
    reach = Reach(flow, tables)
    if not reach.is_known:
        return drawn
    return drawn._replace(
        ruleset=reachable_objects.reduced(drawn.ruleset, [*of_objects], reach),
        ruleset_text=reachable_text.reduced(drawn.ruleset_text, len(of_objects), reach),
        restores=[
            (program, reachable_tables.reduced(text, firsts[program], reach) if program in firsts else text)
            for program, text in drawn.restores
        ],
    )
