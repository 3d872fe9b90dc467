# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules in the kernel's encoding (nf_tables), read without a program: their links, verdicts, comments, tests and writes of marks.

Other matches and statements are left out: a rule that is read here may match fewer packets than it seems to. iptables on
nf_tables encodes an interface, a jump and a verdict as nf_tables does, and most other parts as those of the legacy iptables
(iptables/nft.c, nft-ipv4.c).
"""

from __future__ import annotations

import struct
import typing as t

from .._netlink.attributes import attributes, elements, text
from .ruleset import ACCEPT, ALL, CONNECTION_MARK, DROP, GOTO, JUMP, PACKET_MARK, Bits, Match, Rule, Statement

IIFNAME, META_MARK, CT_MARK = 6, 3, 3  # NFT_META_IIFNAME, NFT_META_MARK, NFT_CT_MARK
VALUE, VERDICT = 1, 2  # NFTA_DATA_VALUE, NFTA_DATA_VERDICT
VERDICTS = {0: DROP, 1: ACCEPT, -3: JUMP, -4: GOTO}  # NF_DROP, NF_ACCEPT, NFT_JUMP, NFT_GOTO
CONNMARK, MARK = struct.Struct("=III"), struct.Struct("=II")
TESTING = {"mark": PACKET_MARK, "connmark": CONNECTION_MARK}  # the field by the match of iptables
SET, SAVE, RESTORE = range(3)  # XT_CONNMARK_SET and the others


def rule(chain: str, _handle: int, encoding: bytes, userdata: bytes = b"") -> Rule:
    """Decode one rule. The arguments are those of nfnetlink.EncodedRule."""
    matches: list[Match] = []
    statements: list[Statement] = []
    said = comment(userdata)
    loaded, bits = "", Bits()  # what a register holds: the name of a link, or a mark or a number
    for element in elements(encoding):
        expression = attributes(element)
        name, attrs = text(expression, 1), attributes(expression.get(2, b""))
        if name == "meta" and _big(attrs, 2) == IIFNAME:
            loaded = "iifname"
        elif name == "cmp" and loaded == "iifname" and not _big(attrs, 2):  # NFT_CMP_EQ
            matches.append(Match("iifname", (link(_value(attrs, 3)),)))
            loaded = ""
        elif name in ("ct", "meta") and _big(attrs, 2) == (CT_MARK if name == "ct" else META_MARK):
            field = CONNECTION_MARK if name == "ct" else PACKET_MARK
            if 1 in attrs:  # NFTA_CT_DREG or NFTA_META_DREG: the expression loads a register, and does not store it
                loaded, bits = "mark", Bits(connection=ALL) if name == "ct" else Bits(packet=ALL)
            elif loaded == "mark":
                statements.append(Statement(field, "", bits))
        elif name == "cmp" and loaded == "mark":
            field = CONNECTION_MARK if bits.connection else PACKET_MARK
            matches.append(_tested(field, _native(_value(attrs, 3)), bits.packet | bits.connection, bool(_big(attrs, 2))))
            loaded = ""
        elif name == "bitwise" and loaded == "mark":
            mask = _native(_value(attrs, 4))
            bits = Bits(bits.packet & mask, _native(_value(attrs, 5)), bits.connection & mask)
        elif name == "immediate":
            verdict = attributes(attributes(attrs.get(2, b"")).get(VERDICT, b""))
            if verdict:
                statements += _of_verdict(verdict)
            else:
                loaded, bits = "mark", Bits(constant=_native(_value(attrs, 2)))
        elif name == "match" and text(attrs, 1) == "comment":
            said = attrs.get(3, b"").partition(b"\0")[0].decode(errors="replace")
        elif name == "match" and text(attrs, 1) in TESTING and len(attrs.get(3, b"")) > MARK.size:
            mark, mask = MARK.unpack_from(attrs[3])
            matches.append(_tested(TESTING[text(attrs, 1)], mark, mask, bool(attrs[3][MARK.size])))
        elif name == "target" and text(attrs, 1) == "CONNMARK":
            statements += _of_target(_big(attrs, 2), attrs.get(3, b""))
        elif name == "target" and text(attrs, 1) == "MARK" and _big(attrs, 2) == 2 and len(attrs.get(3, b"")) >= MARK.size:
            mark, mask = MARK.unpack_from(attrs[3])
            statements.append(Statement(PACKET_MARK, f"{mark:#x}", Bits(packet=ALL & ~mask, constant=mark)))
    return Rule(chain, tuple(matches), tuple(statements), said)


def _of_verdict(verdict: dict[int, bytes]) -> t.Iterator[Statement]:
    code = int.from_bytes(verdict.get(1, b""), "big", signed=True)
    if code in VERDICTS:
        yield Statement(VERDICTS[code], text(verdict, 2) if VERDICTS[code] in (JUMP, GOTO) else "")


def _tested(field: str, mark: int, mask: int, is_negated: bool) -> Match:
    return Match(field, (f"{mark}" if mask == ALL else f"{mark}/{mask}",), is_negated)


def _of_target(revision: int, info: bytes) -> t.Iterator[Statement]:
    """Yield what the target CONNMARK of iptables writes (include/uapi/linux/netfilter/xt_connmark.h)."""
    at = CONNMARK.size + (2 if revision > 1 else 0)
    if len(info) <= at:
        return
    mark, mask, of_packet = CONNMARK.unpack_from(info)
    if info[at] == RESTORE:
        yield Statement(PACKET_MARK, CONNECTION_MARK, Bits(packet=ALL & ~of_packet, connection=mask & of_packet))
    elif info[at] == SAVE:
        yield Statement(CONNECTION_MARK, PACKET_MARK, Bits(packet=mask & of_packet, connection=ALL & ~mask))
    elif info[at] == SET:
        yield Statement(CONNECTION_MARK, f"{mark:#x}", Bits(constant=mark, connection=ALL & ~mask))


def comment(userdata: bytes) -> str:
    """Return the comment that a rule carries: as nft stores it, by type (0) and length, or as plain text."""
    is_nft = len(userdata) > 1 and userdata[0] == 0 and userdata[1] <= len(userdata) - 2
    return (userdata[2 : 2 + userdata[1]] if is_nft else userdata).rstrip(b"\0").decode(errors="replace")


def link(data: bytes) -> str:
    """Return a compared interface: a whole name ends with a zero byte, the beginning of names does not."""
    name = data.rstrip(b"\0").decode(errors="replace")
    return name if data.endswith(b"\0") else f"{name}*"


def _value(attrs: dict[int, bytes], kind: int) -> bytes:
    return attributes(attrs.get(kind, b"")).get(VALUE, b"")


def _big(attrs: dict[int, bytes], kind: int) -> int:
    """Decode a number of nf_tables, which is in network byte order."""
    return int.from_bytes(attrs.get(kind, b""), "big")


def _native(data: bytes) -> int:
    return int(struct.unpack("=I", data)[0]) if len(data) == 4 else 0
