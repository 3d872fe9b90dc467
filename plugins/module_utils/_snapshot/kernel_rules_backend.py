# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A large table as nft lists it, with its rules from the kernel, and its sets and the heads of its chains from nft.

For 130,000 rules, nft needs 440 MiB of memory, and 12 seconds in the kernel: it asks for the elements of each set without a name,
and for each question the kernel goes through its list of all sets three times (net/netfilter/nf_tables_api.c).
"""

from __future__ import annotations

import functools
import itertools
import typing as t

from .._core.errors import Failure
from .._netlink import nfnetlink
from .._ruleset import nft_blocks, nft_expressions

ATTEMPTS = 3  # to read between two changes
MOST_SETS = 16  # that nft is asked for one by one
MOST_KEYS = 256  # that the kernel is asked for in one request
Lister = t.Callable[..., str]  # returns what nft prints for words; raises Failure


def table(nft: Lister, family: str, name: str) -> str:
    """Return a table; empty if a rule has what is not read here, if the table has flags, or if it changes at every attempt."""
    for _attempt in range(ATTEMPTS):
        generation = nfnetlink.generation()
        try:
            lines = [*_head(family, name), *_sets(nft, family, name), *_chains(nft, family, name), "}", ""]
        except (nft_expressions.Unread, ValueError, Failure):  # or an encoding of a later kernel, or words of a later nft
            return ""
        if nfnetlink.generation() == generation:
            return "" if nfnetlink.has_flags(family, name) else "\n".join(lines)
    return ""


def _head(family: str, name: str) -> list[str]:
    comment = nfnetlink.table_comment(family, name)
    return [f"table {family} {name} {{", *([f'comment "{comment}"'] if comment else [])]


def _chains(nft: Lister, family: str, name: str) -> t.Iterator[str]:
    """Yield the lines of the chains. Raises Unread."""
    rules, elements = dict[str, list[str]](), functools.partial(members, family, name)
    for chain, _handle, encoding, userdata in nfnetlink.each_rule(family, name):
        rules.setdefault(chain, []).append(nft_expressions.line(family, encoding, userdata, elements))
    for first, *middle, last in _blocks(nft("list", "chains", family), family, name):
        yield from (first, *middle, *rules.get(first.split()[1], ()), last)


def members(family: str, table: str, name: str, keys: range) -> list[dict[int, bytes]]:
    """Return the elements of a set without a name. keys: the numbers that it may have; none for any."""
    elements = nfnetlink.members(family, table, name, [*map(nft_expressions.key, keys[:MOST_KEYS])])
    # The kernel stops at the first key that the set does not have.
    return elements if len(elements) >= len(keys) else nfnetlink.members(family, table, name)


def _sets(nft: Lister, family: str, name: str) -> t.Iterator[str]:
    """Return the lines of the sets and maps with names. Of those that rules fill, nft is asked only for such as have elements."""
    kinds = ("sets", "table", family, name), ("maps", family)
    empty = [block for words in kinds for block in _blocks(nft("--terse", "list", *words), family, name)]
    filled = [block for block in empty if not _is_dynamic(block) or nfnetlink.members(family, name, block[0].split()[1])]
    if len(filled) > MOST_SETS:
        return itertools.chain.from_iterable(block for words in kinds for block in _blocks(nft("list", *words), family, name))
    listings = (nft("list", *block[0].split()[:1], family, name, block[0].split()[1]) for block in filled)
    whole = [block for listing in listings for block in _blocks(listing, family, name)]
    heads = {block[0] for block in whole}
    return itertools.chain.from_iterable((*whole, *(block for block in empty if block[0] not in heads)))


def _is_dynamic(block: list[str]) -> bool:
    return any(line.startswith("flags") and "dynamic" in line for line in block)


def _blocks(listing: str, family: str, name: str) -> t.Iterator[list[str]]:
    """Yield the lines of each block of a table."""
    read = nft_blocks.read(listing)
    for place, blocks in read.tables:
        if place == (family, name):
            yield from ([*read.lines(block.head, block.last), "}"] for block in blocks)
