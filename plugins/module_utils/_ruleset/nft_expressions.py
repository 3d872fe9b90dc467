# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A rule in the kernel's encoding as a line of nft, for tables that nft needs too long and too much memory to list.

What such tables have is read, and no more: a rule with anything else raises Unread, and nft lists its table. Numbers are those of
include/uapi/linux/netfilter/nf_tables.h. A line means what that of nft means, with the matches that nft leaves out.
"""

from __future__ import annotations

import functools
import socket
import struct
import sys
import typing as t

from .._netlink.attributes import attributes, elements, text
from . import nft_netlink, ruleset

Members = t.Callable[[str, range], t.Sequence[dict[int, bytes]]]
_VERDICT_REGISTER, _FIRST_WORD = 0, 8  # NFT_REG_VERDICT, NFT_REG32_00
_WORD = 4  # bytes of a small register; a large one has four of them
# Of the network header, by family and offset; of the transport header, by offset and length.
_ADDRESSES = {("ip", 12): "ip saddr", ("ip", 16): "ip daddr", ("ip6", 8): "ip6 saddr", ("ip6", 24): "ip6 daddr"}
_SIZES = {"ip": 4, "ip6": 16}  # of an address
_PORTS = {(0, 2): "th sport", (2, 2): "th dport"}
_NETWORK, _TRANSPORT = 1, 2  # NFT_PAYLOAD_NETWORK_HEADER, NFT_PAYLOAD_TRANSPORT_HEADER
_META = {3: "meta mark", 6: "iifname", 7: "oifname", 15: "meta nfproto", 16: "meta l4proto"}
_CT = {0: "ct state", 2: "ct status", 3: "ct mark"}
_FIB_FLAGS = {1: "saddr", 2: "daddr", 4: "mark", 8: "iif", 16: "oif"}
_ADDRESS_TYPE = 3  # NFT_FIB_RESULT_ADDRTYPE
_NAMES = {
    # include/uapi/linux/netfilter/nf_conntrack_common.h: by the numbers of their bits
    "ct state": {1: "invalid", 2: "established", 4: "related", 8: "new", 64: "untracked"},
    "ct status": {1: "expected", 2: "seen-reply", 4: "assured", 8: "confirmed", 16: "snat", 32: "dnat", 512: "dying"},
    # include/uapi/linux/rtnetlink.h
    "type": {
        1: "unicast",
        2: "local",
        3: "broadcast",
        4: "anycast",
        5: "multicast",
        6: "blackhole",
        7: "unreachable",
        8: "prohibit",
    },
    "meta nfproto": {2: "ipv4", 10: "ipv6"},
    "meta l4proto": {1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp", 132: "sctp"},
}
_COMPARISONS = ("", "!= ")  # of which NFT_CMP_LT and the others are not read
_VERDICTS = {0: "drop", 1: "accept", -3: "jump", -4: "goto", -5: "return"}
_NAT_FLAGS = {4: "random", 8: "persistent", 16: "fully-random"}  # include/uapi/linux/netfilter/nf_nat.h
_NAT_OF_RANGES = 1 | 2  # NF_NAT_RANGE_MAP_IPS and PROTO_SPECIFIED, which follow from the address and the port
_DYNAMIC = {0: "add", 1: "update", 2: "delete"}
_ICMP, _RESET, _ICMPX = 0, 1, 2  # NFT_REJECT_...
_CODES = {0: "no-route", 1: "port-unreachable", 2: "host-unreachable", 3: "admin-prohibited"}  # NFT_REJECT_ICMPX_...
_INTERVAL_END = 1
_MOST_EXPRESSIONS = 4096  # remembered: thousands of rules have a few, besides those with an address or a chain


class Unread(Exception):
    """A rule has what is not read here."""


class _Term(t.NamedTuple):
    """What registers hold. field: as nft names it; for a constant its value. mask: of a field's bits. written: of a mark."""

    field: str
    words: int
    mask: bytes = b""
    written: str = ""
    constant: bytes = b""
    keys: range = range(0)


def line(family: str, encoding: bytes, userdata: bytes, members: Members) -> str:
    """Return a rule as nft would list it. Raises Unread.

    members: returns the elements of a set without a name; keys: those to ask for, or none for all.
    """
    words, registers = list[str](), dict[int, _Term]()
    for expression in elements(encoding):
        name, attrs, register, term = _decoded(family, expression)
        if term:
            registers[register] = term
            continue
        if name not in _READERS:
            raise Unread(name)
        said = _READERS[name](family, attrs, registers, members)
        words += [said] if said else []
    comment = nft_netlink.comment(userdata)
    if '"' in comment or not comment.isprintable():
        raise Unread("comment")
    return " ".join([*words, f'comment "{comment}"'] if comment else words)


@functools.lru_cache(maxsize=_MOST_EXPRESSIONS)
def _decoded(family: str, expression: bytes) -> tuple[str, dict[int, bytes], int, _Term | None]:
    """Return the name of an expression, its attributes, and the register that it loads from the packet with what that then holds.

    The last is None for an expression that does something else.
    """
    attrs = attributes(expression)
    name, attrs = text(attrs, 1), attributes(attrs.get(2, b""))
    load = _LOADERS.get(name)
    term = load(family, attrs) if load else None
    return name, attrs, _place(attrs, 1) if term else 0, term


def _number(attrs: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(attrs.get(kind, b""), "big")


def _place(attrs: dict[int, bytes], kind: int) -> int:
    """Return the first small register of a register."""
    register = _number(attrs, kind)
    return register - _FIRST_WORD if register >= _FIRST_WORD else (register - 1) * _WORD


def _data(attrs: dict[int, bytes], kind: int) -> bytes:
    return attributes(attrs.get(kind, b"")).get(1, b"")


def _taken(attrs: dict[int, bytes], kind: int, registers: dict[int, _Term]) -> _Term:
    """Return what a register holds, which is used once. Raises Unread."""
    term = registers.pop(_place(attrs, kind), None)
    if term is None:
        raise Unread("a register that nothing filled")
    return term


def _joined(attrs: dict[int, bytes], kind: int, registers: dict[int, _Term]) -> str:
    """Return the fields that a lookup finds one behind the other, from a register on."""
    place, fields = _place(attrs, kind), list[str]()
    while place in registers:
        term = registers.pop(place)
        if term.mask or term.written or term.constant:
            raise Unread("a key that is no field")
        fields.append(term.field)
        place += term.words
    if not fields:
        raise Unread("a register that nothing filled")
    return " . ".join(fields)


def _payload(family: str, attrs: dict[int, bytes]) -> _Term | None:
    base, offset, length = (_number(attrs, kind) for kind in (2, 3, 4))
    field = _PORTS.get((offset, length)) if base == _TRANSPORT else None
    field = _ADDRESSES.get((family, offset)) if base == _NETWORK else field
    if field is None or 5 in attrs:  # NFTA_PAYLOAD_SREG: the packet is written
        raise Unread("payload")
    rest = 0 if base == _TRANSPORT else _SIZES[family] - length  # nft loads the bytes of a prefix alone
    if rest < 0:
        raise Unread("payload")
    return _Term(field, -(-length // _WORD), b"\xff" * length + bytes(rest) if rest else b"")


def _meta(_family: str, attrs: dict[int, bytes]) -> _Term | None:
    field = _META.get(_number(attrs, 2), "")
    return _Term(field, _WORD if field.endswith("name") else 1) if field and 1 in attrs else None


def _ct(_family: str, attrs: dict[int, bytes]) -> _Term | None:
    field = _CT.get(_number(attrs, 2), "")
    return _Term(field, 1) if field and 1 in attrs and 3 not in attrs else None  # NFTA_CT_DIRECTION


def _fib(_family: str, attrs: dict[int, bytes]) -> _Term | None:
    flags = _number(attrs, 3)
    if _number(attrs, 2) != _ADDRESS_TYPE or flags & ~sum(_FIB_FLAGS):
        raise Unread("fib")
    return _Term(f"fib {' . '.join(name for bit, name in _FIB_FLAGS.items() if flags & bit)} type", 1)


def _numgen(_family: str, attrs: dict[int, bytes]) -> _Term | None:
    modulus, offset = _number(attrs, 2), _number(attrs, 4)
    kind = ("inc", "random")[_number(attrs, 3) == 1]
    field = f"numgen {kind} mod {modulus}" + f" offset {offset}" * bool(offset)
    return _Term(field, 1, keys=range(offset, offset + modulus))


def _set_meta(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    return _set(_META.get(_number(attrs, 2), ""), _taken(attrs, 3, registers))


def _set_ct(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    return _set(_CT.get(_number(attrs, 2), ""), _taken(attrs, 4, registers))


def _set(field: str, term: _Term) -> str:
    if not field.endswith("mark") or not (term.constant or term.field.endswith("mark")):
        raise Unread("a field that is set")
    return f"{field} set {_hexadecimal(term.constant) if term.constant else term.written or term.field}"


def _bitwise(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    mask, flipped = _data(attrs, 4), _data(attrs, 5)
    term = _taken(attrs, 1, registers)
    if 7 in attrs or len(mask) != len(flipped) or term.mask or term.written or term.constant or term.keys:  # NFTA_BITWISE_DATA
        raise Unread("bitwise")
    written = ""
    if term.field.endswith("mark"):
        bits, more = _native(mask), _native(flipped)
        if bits == ruleset.ALL & ~more:
            written = f"{term.field} | {more:#010x}"
        else:
            written = f"{term.field} & {bits:#010x}" if bits != ruleset.ALL else term.field
            written += f" ^ {more:#010x}" if more else ""
    if any(flipped):
        registers[_place(attrs, 2)] = _Term(term.field, term.words, written=written)
    else:
        registers[_place(attrs, 2)] = _Term(term.field, term.words, mask, written)
    return ""


def _cmp(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    term, operation, data = _taken(attrs, 1, registers), _number(attrs, 2), _data(attrs, 3)
    is_changed = bool(term.written) and not term.mask
    data = data.ljust(len(term.mask), b"\0")  # of a prefix of whole bytes, nft compares these alone
    if operation >= len(_COMPARISONS) or term.constant or is_changed:
        raise Unread("cmp")
    names, comparison = _NAMES.get(term.field), _COMPARISONS[operation]
    if term.mask and names and term.field.startswith("ct "):  # one of several bits is set
        bits = _native(term.mask)
        if any(data) or not operation or bits & ~sum(names):
            raise Unread("bits")
        return f"{term.field} {','.join(name for bit, name in names.items() if bits & bit)}"
    if not term.mask:
        return f"{term.field} {comparison}{value(term.field, data)}"
    length = _prefix_length(term.mask)
    if term.field.endswith("addr") and length is not None:
        return f"{term.field} {comparison}{value(term.field, data)}/{length}"
    if term.field.endswith("mark"):
        return f"{term.field} & {_hexadecimal(term.mask)} {comparison or '== '}{_hexadecimal(data)}"
    raise Unread("a mask")


def _immediate(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    data = attributes(attrs.get(2, b""))
    if not _number(attrs, 1):
        return verdict(data)
    value = data.get(1, b"")
    registers[_place(attrs, 1)] = _Term("", -(-len(value) // _WORD), constant=value)
    return ""


def verdict(data: dict[int, bytes]) -> str:
    """Return a verdict as nft writes it. Raises Unread."""
    attrs = attributes(data.get(2, b""))
    verdict = _VERDICTS.get(int.from_bytes(attrs.get(1, b""), "big", signed=True))
    if verdict is None:
        raise Unread("a verdict")
    return f"{verdict} {text(attrs, 2)}" if 2 in attrs else verdict


def _lookup(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], members: Members) -> str:
    name, keys = text(attrs, 1), registers[_place(attrs, 2)].keys if _place(attrs, 2) in registers else range(0)
    field, is_negated = _joined(attrs, 2, registers), bool(_number(attrs, 5) & 1)
    if 3 in attrs and _number(attrs, 3) != _VERDICT_REGISTER:
        raise Unread("a map of values")
    if not name.startswith("__"):
        return f"{field} {'vmap ' if 3 in attrs else '!= ' if is_negated else ''}@{name}"
    set_elements = members(name, keys)
    is_of_ranges = any(10 in each or _number(each, 3) & _INTERVAL_END for each in set_elements)  # NFTA_SET_ELEM_KEY_END
    if " . " in field.removeprefix("fib ") or is_of_ranges and 3 in attrs:
        raise Unread("a set of several fields, or a map of ranges")
    if 3 in attrs:
        pairs = [(_data(each, 1), verdict(attributes(each.get(2, b"")))) for each in set_elements]
        texts = [f"{_native(key) if keys else value(field, key)} : {verdict}" for key, verdict in pairs]
        return f"{field} vmap {{ {', '.join(texts)} }}"
    return f"{field} {'!= ' if is_negated else ''}{{ {', '.join(_ranges(field, set_elements))} }}"


def _ranges(field: str, set_elements: t.Sequence[dict[int, bytes]]) -> t.Iterator[str]:
    """Yield the members of a set. In one of intervals, an end stands behind the last member of each."""
    bounds = sorted((_data(each, 1), _number(each, 3) & _INTERVAL_END) for each in set_elements)
    first: bytes | None = None
    for key, is_end in bounds:
        if not is_end:
            if first is not None:
                yield value(field, first)
            first = key
        elif first is not None:
            last = (int.from_bytes(key, "big") - 1).to_bytes(len(key), "big")
            yield value(field, first) if first == last else f"{value(field, first)}-{value(field, last)}"
            first = None
    if first is not None:
        if any(is_end for _key, is_end in bounds):
            raise Unread("an interval without an end")
        yield value(field, first)


def _dynset(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    operation = _DYNAMIC.get(_number(attrs, 3))
    if operation is None or {5, 7, 10} & attrs.keys() or _number(attrs, 6):  # data, expressions, a timeout of its own
        raise Unread("dynset")
    return f"{operation} @{text(attrs, 1)} {{ {_joined(attrs, 4, registers)} }}"


def _nat(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    kind = "dnat" if _number(attrs, 1) else "snat"
    address, port = (_constant(attrs, first, registers) if first in attrs else b"" for first in (3, 5))
    if any(attrs.get(first + 1) not in (None, attrs.get(first)) for first in (3, 5)) or len(address) not in (0, 4, 16):
        raise Unread("a range of addresses")
    host = _address(address) if address else ""
    host = f"[{host}]" if ":" in host and port else host
    target = f"{host}{':' * bool(port)}{int.from_bytes(port, 'big') if port else ''}"
    return f"{kind} {'ip6 ' * (len(address) == 16)}{'ip ' * (len(address) == 4)}to {target}{_flags(_number(attrs, 7))}"


def _masquerade(_family: str, attrs: dict[int, bytes], _registers: dict[int, _Term], _members: Members) -> str:
    if 2 in attrs:
        raise Unread("ports of a masquerade")
    return f"masquerade{_flags(_number(attrs, 1))}"


def _redirect(_family: str, attrs: dict[int, bytes], registers: dict[int, _Term], _members: Members) -> str:
    if attrs.get(2) not in (None, attrs.get(1)):
        raise Unread("a range of ports")
    port = f" to :{int.from_bytes(_constant(attrs, 1, registers), 'big')}" if 1 in attrs else ""
    return f"redirect{port}{_flags(_number(attrs, 3))}"


def _constant(attrs: dict[int, bytes], kind: int, registers: dict[int, _Term]) -> bytes:
    term = registers.get(_place(attrs, kind))
    if term is None or not term.constant:
        raise Unread("a translation by a map")
    return term.constant


def _flags(flags: int) -> str:
    flags &= ~_NAT_OF_RANGES
    if flags & ~sum(_NAT_FLAGS):
        raise Unread("flags of a translation")
    names = ",".join(name for bit, name in _NAT_FLAGS.items() if flags & bit)
    return f" {names}" if names else ""


def _reject(family: str, attrs: dict[int, bytes], _registers: dict[int, _Term], _members: Members) -> str:
    kind, code = _number(attrs, 1), _number(attrs, 2)
    if kind == _RESET:
        return "reject with tcp reset"
    if kind == _ICMP and (family, code) in (("ip", 3), ("ip6", 4)):  # port-unreachable, nft's default
        return "reject"
    if kind == _ICMPX and code in _CODES:
        return f"reject with icmpx type {_CODES[code]}"
    raise Unread("a reject")


def _counter(_family: str, attrs: dict[int, bytes], _registers: dict[int, _Term], _members: Members) -> str:
    return f"counter packets {_number(attrs, 2)} bytes {_number(attrs, 1)}"


def value(field: str, data: bytes) -> str:
    """Return a value of a field as nft writes it. Raises Unread."""
    if field.endswith("addr") and len(data) in (4, 16):
        return _address(data)
    if field.endswith("port"):
        return str(int.from_bytes(data, "big"))
    if field.endswith("mark"):
        return _hexadecimal(data)
    if field.endswith("name"):
        return f'"{nft_netlink.link(data)}"'
    names = _NAMES.get("type" if field.startswith("fib ") else field, {})
    number = data[0] if len(data) == 1 else _native(data)
    if number not in names and field != "meta l4proto":
        raise Unread(f"a value of {field}")
    return names.get(number, str(number))


def _address(data: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(data) == _WORD else socket.AF_INET6, data)


def _prefix_length(mask: bytes) -> int | None:
    bits = f"{int.from_bytes(mask, 'big'):0{8 * len(mask)}b}"
    return len(bits.rstrip("0")) if "01" not in bits else None


def _native(data: bytes) -> int:
    if len(data) != _WORD:
        raise Unread("a number of another size")
    return int.from_bytes(data, sys.byteorder)


def _hexadecimal(data: bytes) -> str:
    return f"{_native(data):#010x}"


def key(number: int) -> bytes:
    """Return the key by which a set has a number that the kernel computes."""
    return struct.pack("=I", number)


_Reader = t.Callable[[str, dict[int, bytes], "dict[int, _Term]", Members], str]
_READERS: dict[str, _Reader] = {
    "meta": _set_meta,
    "ct": _set_ct,
    "bitwise": _bitwise,
    "cmp": _cmp,
    "immediate": _immediate,
    "lookup": _lookup,
    "dynset": _dynset,
    "nat": _nat,
    "masq": _masquerade,
    "redir": _redirect,
    "reject": _reject,
    "counter": _counter,
}
_LOADERS: dict[str, t.Callable[[str, dict[int, bytes]], _Term | None]] = {
    "payload": _payload,
    "meta": _meta,
    "ct": _ct,
    "fib": _fib,
    "numgen": _numgen,
}
