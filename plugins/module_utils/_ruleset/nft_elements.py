# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sets and verdict maps of addresses, protocols and ports in the kernel's encoding, as values and as nft lists them.

Numbers are those of include/uapi/linux/netfilter/nf_tables.h.
"""

from __future__ import annotations

import typing as t

from .._netlink.attributes import attributes
from . import nft_expressions, nft_netlink
from .nft_blocks import MAP, SET
from .nft_expressions import Unread
from .ruleset import Element, Statement

_WORD = 4  # bytes, to which the fields of a key are padded
_BITS = 6  # of a type in a key of several fields (nftables, include/datatype.h: TYPE_BITS)
# By the number of a type (nftables, include/datatype.h: enum datatypes): its name, a field that has it, and its size in bytes.
_TYPES = {
    7: ("ipv4_addr", "ip daddr", 4),
    8: ("ipv6_addr", "ip6 daddr", 16),
    12: ("inet_proto", "meta l4proto", 1),
    13: ("inet_service", "th dport", 2),
}
_FLAGS, _KEY_TYPE, _DATA_TYPE = 3, 4, 6  # NFTA_SET_...
_IS_MAP, _VERDICT = 0x8, 0xFFFFFF00  # NFT_SET_MAP, NFT_DATA_VERDICT
# What a set has that is not read here: a policy, a timeout, an interval of garbage collection, objects, and expressions.
_FURTHER = frozenset((8, 11, 12, 15, 17, 18))
_KEY, _DATA, _COMMENT = 1, 2, 6  # NFTA_SET_ELEM_KEY, _DATA and _USERDATA
_OF_ELEMENT = frozenset((_KEY, _DATA, _COMMENT))


class Form(t.NamedTuple):
    """kind: of the block. types: the numbers of those of a key's fields."""

    kind: str
    types: tuple[int, ...]

    def __str__(self) -> str:
        """Return the statement of the types."""
        return f"type {' . '.join(_TYPES[each][0] for each in self.types)}{' : verdict' * (self.kind == MAP)}"


def form(attrs: dict[int, bytes]) -> Form:
    """Return the form of a set. attrs: as nfnetlink.sets() returns them. Raises Unread."""
    flags, combined, data = (int.from_bytes(attrs.get(kind, b""), "big") for kind in (_FLAGS, _KEY_TYPE, _DATA_TYPE))
    types = list[int]()
    while combined:
        types.insert(0, combined & ((1 << _BITS) - 1))
        combined >>= _BITS
    if _FURTHER & attrs.keys() or not types or {*types} - _TYPES.keys() or (flags, data) not in ((0, 0), (_IS_MAP, _VERDICT)):
        raise Unread("a set of another form")
    return Form(MAP if flags else SET, tuple(types))


def elements(of_set: Form, members: t.Iterable[dict[int, bytes]]) -> list[Element]:
    """Return the elements by their keys, as nft lists them. members: as nfnetlink.members() returns them. Raises Unread."""
    return [_element(of_set, attrs) for attrs in sorted(members, key=lambda attrs: attrs[_KEY])]


def _element(of_set: Form, attrs: dict[int, bytes]) -> Element:
    data, place, key = attributes(attrs[_KEY]).get(1, b""), 0, list[str]()
    for _name, field, size in map(_TYPES.__getitem__, of_set.types):
        key.append(nft_expressions.value(field, data[place : place + size]))
        place += -(-size // _WORD) * _WORD
    if attrs.keys() - _OF_ELEMENT or len(data) not in (place, size):
        raise Unread("an element of another form")
    verdict = nft_expressions.verdict(attributes(attrs[_DATA])) if _DATA in attrs else ""
    comment = nft_netlink.comment(attrs.get(_COMMENT, b""))
    if '"' in comment or not comment.isprintable():
        raise Unread("comment")
    kind, _blank, target = verdict.partition(" ")
    return Element(tuple(key), Statement(kind, target) if verdict else None, comment)


def show(shown: Element) -> str:
    """Return an element as nft lists it."""
    comment = f' comment "{shown.comment}"' if shown.comment else ""
    verdict = f" : {shown.statement.kind} {shown.statement.target}".rstrip() if shown.statement else ""
    return f"{' . '.join(shown.key)}{comment}{verdict}"
