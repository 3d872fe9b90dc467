# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A blueprint, reduced to the chains, rules and elements that the packets of a trace can reach.

The packets meet the same rules in the same order in a twin of the reduced blueprint.
"""

from __future__ import annotations

import itertools

from .._ruleset import iptables_save, nft_blocks, nft_json, nft_text
from . import legacy_half
from .blueprint import RESTORES, Blueprint
from .reachable import Flow, Reach

_FAMILIES = {RESTORES[family]: family for family in ("ip", "ip6")}  # by program


def reduced(drawn: Blueprint, flow: Flow) -> Blueprint:
    """Return the part of a blueprint that packets can reach; all of it if there is something that is not understood."""
    listing = nft_blocks.read(drawn.ruleset_text)
    if not listing.is_complete or not nft_json.is_complete(drawn.ruleset):
        return drawn
    sources = [nft_json.tables(drawn.ruleset), nft_text.of_listing(listing)]
    saved = (iptables_save.tables(_FAMILIES[program], text) if program in _FAMILIES else [] for program, text in drawn.restores)
    sources += [[legacy_half.hooked(table, drawn.hooks) for table in tables] for tables in saved]
    reach = Reach(flow, [table for tables in sources for table in tables])
    if not reach.is_known:
        return drawn
    numbers = itertools.count()
    of_objects, of_text, *of_programs = (
        {(table.family, table.name): reach.selection(next(numbers)) for table in tables} for tables in sources
    )
    return drawn._replace(
        ruleset=nft_json.select(drawn.ruleset, of_objects),
        ruleset_text=listing.select(of_text),
        restores=[
            (program, iptables_save.select(_FAMILIES[program], text, selections) if program in _FAMILIES else text)
            for (program, text), selections in zip(drawn.restores, of_programs)
        ],
    )
