# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Rules that handle the marks of connections, and rules before which a chain ends, in nf_tables and as iptables-save prints them.

iptables on nf_tables encodes an interface, a jump and a verdict as nf_tables does, and most other parts as those of the legacy
iptables (iptables/nft.c, nft-ipv4.c).
"""

from __future__ import annotations

import struct
import typing as t

from .._netfilter import rule_words
from .._netlink.attributes import attributes, elements, text

SET, RESTORE, ACCEPT, JUMP = "set", "restore", "accept", "jump"
ALL = 2**32 - 1  # the mask of a mark of 32 bits

# include/uapi/linux/netfilter/nf_tables.h
IIFNAME, META_MARK, CT_MARK = 6, 3, 3  # NFT_META_IIFNAME, NFT_META_MARK, NFT_CT_MARK
VALUE, VERDICT = 1, 2  # NFTA_DATA_VALUE, NFTA_DATA_VERDICT
NF_ACCEPT, NFT_JUMP, NFT_GOTO = 1, -3, -4
# include/uapi/linux/netfilter/xt_connmark.h: ctmark, ctmask, nfmask. Revision 2 has two bytes for shifting before the mode.
CONNMARK = struct.Struct("=III")
MODES = {0: SET, 2: RESTORE}


class Line(t.NamedTuple):
    """A rule of a chain.

    link: the interface by which its packets enter, as iptables has it, with + for any ending; empty for any, and if negated.
    verb: SET gives ``mark`` to the bits ``mask`` of a connection's mark. RESTORE copies the bits ``mask`` of a connection's mark
        to the packet. ACCEPT ends the hook. JUMP goes to the chain ``target``. Empty for all else.
    """

    chain: str
    comment: str = ""
    link: str = ""
    verb: str = ""
    mark: int = 0
    mask: int = 0
    target: str = ""


def from_nft(chain: str, encoding: bytes, userdata: bytes) -> Line:
    """Return the rule in the kernel's encoding."""
    line = Line(chain, _comment(userdata))
    loaded, mark, mask = "", 0, ALL  # what a register holds: a connection's mark with these bits replaced, or a constant
    for element in elements(encoding):
        expression = attributes(element)
        name, attrs = text(expression, 1), attributes(expression.get(2, b""))
        if name == "meta" and _big(attrs, 2) == IIFNAME:
            loaded = "iifname"
        elif name == "cmp" and loaded == "iifname" and not _big(attrs, 2):  # NFT_CMP_EQ
            line, loaded = line._replace(link=_link(_value(attrs, 3))), ""
        elif name == "ct" and _big(attrs, 2) == CT_MARK and 1 in attrs:
            loaded, mark, mask = "ct", 0, 0
        elif name == "bitwise" and loaded == "ct":
            mark, mask = _native(_value(attrs, 5)), ~_native(_value(attrs, 4)) & ALL
        elif name == "immediate":
            verdict = attributes(attributes(attrs.get(2, b"")).get(VERDICT, b""))
            if verdict:
                line = line._replace(**_of_verdict(verdict))
            else:
                loaded, mark, mask = "constant", _native(_value(attrs, 2)), ALL
        elif name == "ct" and _big(attrs, 2) == CT_MARK and loaded:
            line = line._replace(verb=SET, mark=mark, mask=mask)
        elif name == "meta" and _big(attrs, 2) == META_MARK and 3 in attrs and loaded == "ct":
            line = line._replace(verb=RESTORE, mask=~mask & ALL)
        elif name == "match" and text(attrs, 1) == "comment":
            line = line._replace(comment=attrs.get(3, b"").partition(b"\0")[0].decode(errors="replace"))
        elif name == "target" and text(attrs, 1) == "CONNMARK":
            line = line._replace(**_of_target(_big(attrs, 2), attrs.get(3, b"")))
    return line


def from_save(listing: str, table: str) -> list[Line]:
    """Return the rules of a table in the output of iptables-save."""
    _before, _star, rest = f"\n{listing}".partition(f"\n*{table}\n")
    return [_of_words(rule_words.split(line)) for line in rest.partition("\nCOMMIT")[0].splitlines() if line.startswith("-A ")]


def _of_verdict(verdict: dict[int, bytes]) -> dict[str, t.Any]:
    code = int.from_bytes(verdict.get(1, b""), "big", signed=True)
    if code in (NFT_JUMP, NFT_GOTO):
        return {"verb": JUMP, "target": text(verdict, 2)}
    return {"verb": ACCEPT if code == NF_ACCEPT else ""}


def _of_target(revision: int, info: bytes) -> dict[str, t.Any]:
    at = CONNMARK.size + (2 if revision > 1 else 0)
    if len(info) <= at or info[at] not in MODES:
        return {}
    mark, mask, of_packet = CONNMARK.unpack_from(info)
    if MODES[info[at]] == RESTORE:
        return {"verb": RESTORE, "mask": mask & of_packet}
    return {"verb": SET, "mark": mark, "mask": mask}


def _of_words(words: list[str]) -> Line:
    """Return a rule in the words of iptables-save, which begin with -A CHAIN."""
    place = words[1], _value_of("--comment", words), _value_of("-i", words)
    target = _value_of("-j", words) or _value_of("-g", words)
    if target == "CONNMARK" and "--set-xmark" in words:
        mark, _slash, mask = _value_of("--set-xmark", words).partition("/")
        return Line(*place, SET, int(mark, 0), int(mask or hex(ALL), 0))
    if target == "CONNMARK" and "--restore-mark" in words:
        masks = [int(_value_of(name, words) or hex(ALL), 0) for name in ("--nfmask", "--ctmask", "--mask")]
        return Line(*place, RESTORE, mask=masks[0] & masks[1] & masks[2])
    if target == "ACCEPT":
        return Line(*place, ACCEPT)
    return Line(*place, JUMP if target else "", target=target)


def _value_of(option: str, words: list[str]) -> str:
    """Return the value of an option; empty without it, or if it is negated."""
    if option not in words:
        return ""
    place = words.index(option)
    return words[place + 1] if words[place - 1] != "!" and place + 1 < len(words) else ""


def _comment(userdata: bytes) -> str:
    """Return the comment that a rule carries: as nft stores it, by type (0) and length, or as plain text."""
    is_nft = len(userdata) > 1 and userdata[0] == 0 and userdata[1] <= len(userdata) - 2
    return (userdata[2 : 2 + userdata[1]] if is_nft else userdata).rstrip(b"\0").decode(errors="replace")


def _link(data: bytes) -> str:
    """Return a compared interface: a whole name ends with a zero byte, the beginning of names does not."""
    name = data.rstrip(b"\0").decode(errors="replace")
    return name if data.endswith(b"\0") else f"{name}+"


def _value(attrs: dict[int, bytes], kind: int) -> bytes:
    return attributes(attrs.get(kind, b"")).get(VALUE, b"")


def _big(attrs: dict[int, bytes], kind: int) -> int:
    """Decode a number of nf_tables, which is in network byte order."""
    return int.from_bytes(attrs.get(kind, b""), "big")


def _native(data: bytes) -> int:
    return int(struct.unpack("=I", data)[0]) if len(data) == 4 else 0
