# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A large table as nft lists it, with its chains from the kernel and its sets from nft, but for what a packet's way alone needs.

For 130,000 rules, nft needs 440 MiB of memory, and 12 seconds in the kernel: it asks for the elements of each set without a name,
and for each question the kernel goes through its list of all sets three times (net/netfilter/nf_tables_api.c). So what kube-proxy
generates for each Service is read by name.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import typing as t

from .._core.errors import Failure
from .._netlink import nfnetlink
from .._ruleset import nft_blocks, nft_elements, nft_expressions, service_rules
from .._ruleset.generated import Members
from .._ruleset.nft_blocks import CHAIN, MAP, SET, Place
from .._ruleset.nft_elements import Form
from .._ruleset.nft_expressions import Unread

ATTEMPTS = 3  # to read between two changes
MOST_SETS = 16  # that nft is asked for one by one
MOST_KEYS = 256  # that the kernel is asked for in one request
HOOKS = ("prerouting", "input", "forward", "output", "postrouting")  # by the number of the hook, in the families below
FAMILIES = ("ip", "ip6", "inet")
Lister = t.Callable[..., str]  # returns what nft prints for words; raises Failure


class Reading(t.NamedTuple):
    """A table between two changes. text: without what is left. generation: of the kernel's rules.

    chains: the names of those that are left. sets: the same, with the forms of those that nft need not list.
    """

    text: str
    generation: int
    chains: t.Collection[str]
    sets: t.Mapping[str, Form | None]


def table(nft: Lister, place: Place) -> Reading | None:
    """Return a table; None if a rule has what is not read here, if the table has flags, or if it changes at every attempt."""
    for _attempt in range(ATTEMPTS):
        generation = nfnetlink.generation()
        try:
            reading = _read(nft, place, generation)
        except (Unread, ValueError, Failure):  # ValueError: an encoding of a later kernel, or words of a later nft
            return None
        if nfnetlink.generation() == generation:
            return None if nfnetlink.has_flags(*place) else reading
    return None


def _read(nft: Lister, place: Place, generation: int) -> Reading:
    """Raises Unread."""
    family, name = place
    comment = nfnetlink.table_comment(family, name)
    lines = [f"table {family} {name} {{", *([f'comment "{comment}"'] if comment else [])]
    chains = [chain for chain in nfnetlink.chains(family) if chain.table == name]
    left = frozenset(chain.name for chain in chains if service_rules.is_generated(chain.name))
    sets = nfnetlink.sets(family, name)
    forms = {each: _form(attrs) for each, attrs in sets.items()} if left else {}
    lacking = {each: form for each, form in forms.items() if form or service_rules.is_generated(each)}
    lines += _sets(nft, place, {each: attrs for each, attrs in sets.items() if each not in lacking})
    for chain in (chain for chain in chains if chain.name not in left):
        lines += [f"chain {chain.name} {{", *_base(family, chain), *_rules(place, chain.name), "}"]
    return Reading("\n".join([*lines, "}", ""]), generation, left, lacking)


def _form(attrs: dict[int, bytes]) -> Form | None:
    try:
        return nft_elements.form(attrs)
    except Unread:
        return None


def chain(nft: Lister, reading: Reading, place: Place, name: str) -> t.Sequence[str]:
    """Return the statements of a chain that was left.

    Raises Failure for one without rules since then: kube-proxy empties a chain before it removes it.
    """
    try:
        rules = _rules(place, name)
    except (Unread, ValueError):
        return _statements(nft("list", CHAIN, *place, name), place)
    if rules or nfnetlink.generation() == reading.generation:
        return rules
    raise Failure(f"the chain {name} of the table {' '.join(place)} changed while the node was read. Run it again")


def members(nft: Lister, reading: Reading, place: Place, name: str) -> Members:
    """Return a set or a map that was left. Raises Failure."""
    form = reading.sets[name]
    if form:
        with contextlib.suppress(Unread, ValueError):
            return Members(form.kind, [str(form)], nft_elements.elements(form, nfnetlink.members(*place, name)))
    kind = form.kind if form else SET
    return Members(kind, _statements(nft("list", kind, *place, name), place))


def _statements(listing: str, place: Place) -> list[str]:
    return next(_blocks(listing, place))[1:-1]


def _rules(place: Place, name: str) -> list[str]:
    """Return the rules of a chain. Raises Unread."""
    elements = functools.partial(without_name, *place)
    return [nft_expressions.line(place[0], rule.encoding, rule.userdata, elements) for rule in nfnetlink.each_rule(*place, name)]


def _base(family: str, chain: nfnetlink.Chain) -> t.Iterator[str]:
    """Yield the statement that makes a chain a base chain. Raises Unread."""
    if chain.has_hook:
        if family not in FAMILIES or chain.hook >= len(HOOKS) or chain.devices:
            raise Unread(f"hook {chain.hook}")
        yield f"type {chain.kind} hook {HOOKS[chain.hook]} priority {chain.priority}; policy {chain.policy};"


def without_name(family: str, table: str, name: str, keys: range) -> list[dict[int, bytes]]:
    """Return the elements of a set without a name. keys: the numbers that it may have; none for any."""
    elements = nfnetlink.members(family, table, name, [*map(nft_expressions.key, keys[:MOST_KEYS])])
    # The kernel stops at the first key that the set does not have.
    return elements if len(elements) >= len(keys) else nfnetlink.members(family, table, name)


def _sets(nft: Lister, place: Place, sets: t.Mapping[str, dict[int, bytes]]) -> t.Iterator[str]:
    """Yield the lines of sets and maps."""
    kinds = [(MAP if nfnetlink.is_map(attrs) else SET, *place, name) for name, attrs in sets.items()]
    several = ("sets", "table", *place), ("maps", place[0])
    blocks = (block for words in (several if len(kinds) > MOST_SETS else kinds) for block in _blocks(nft("list", *words), place))
    return itertools.chain.from_iterable(block for block in blocks if block[0].split()[1] in sets)


def _blocks(listing: str, place: Place) -> t.Iterator[list[str]]:
    """Yield the lines of each block of a table."""
    read = nft_blocks.find(listing)
    for listed, blocks in read.tables:
        if listed == place:
            yield from ([*read.lines(block.head, block.last), "}"] for block in blocks)
