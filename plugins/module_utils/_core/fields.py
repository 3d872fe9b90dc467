# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of the fields of rules and routes: numbers, ranges, prefixes, names.

A parser takes an option's value and returns the kernel's, or raises Unfit with what is allowed. Parsers are called often, so
they do without the module ipaddress, which is slow.
"""

from __future__ import annotations

import re
import socket
import typing as t

from .errors import Invalid

IPV4, IPV6 = int(socket.AF_INET), int(socket.AF_INET6)
FAMILIES = {"ipv4": IPV4, "ipv6": IPV6}
BITS = {IPV4: 32, IPV6: 128}
UINT32 = 2**32 - 1

# An address in network order and a prefix length. Plain tuples, as a node has tens of thousands.
Prefix = tuple[bytes, int]
ANY: Prefix = (b"", 0)

Range = tuple[int, int]
U8, U16, U32, U64, S32 = (0, 255), (0, 2**16 - 1), (0, UINT32), (0, 2**64 - 1), (-(2**31), 2**31 - 1)  # of the kernel's types
# As programs print numbers. int() also takes the digits of other scripts, _, blanks, + and, without a base, leading zeros, and
# needs quadratic time for a long text, or refuses it by another error.
_DECIMAL, _HEXADECIMAL = re.compile("0|-?[1-9][0-9]{0,19}"), re.compile("0[xX][0-9a-fA-F]{1,16}")


class Unfit(ValueError):
    """``str()`` ends the sentence "the option must be ..."."""


def checked(option: str, value: t.Any, parse: t.Callable[[t.Any], t.Any]) -> t.Any:
    """Parse the value of an option. Raises Invalid in the place of Unfit."""
    try:
        return parse(value)
    except Unfit as unfit:
        raise Invalid(option, value, str(unfit)) from None


def number(value: object, low: int, high: int, is_decimal: bool = False) -> int:
    """Parse a number, decimal or, with 0x, hexadecimal. Every number of an option or of evidence is read by this function.

    is_decimal: refuse a hexadecimal one, where int() reads the text again.
    """
    parsed = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str):
        is_hexadecimal = not is_decimal and _HEXADECIMAL.fullmatch(value)
        parsed = int(value, 16) if is_hexadecimal else int(value) if _DECIMAL.fullmatch(value) else None
    if parsed is None or not low <= parsed <= high:
        raise Unfit(f"a number from {low} to {high}")
    return parsed


def span(value: object, high: int) -> Range:
    """Parse ``N`` or ``N-M``."""
    match = re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", str(value))
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not first <= last <= high:
        raise Unfit(f"a number or a range N-M from 0 to {high}, N not above M")
    return first, last


def flag(value: object) -> bool:
    """Parse a boolean as Ansible does, text included."""
    word = str(value).lower()
    if word not in ("true", "yes", "on", "1", "false", "no", "off", "0"):
        raise Unfit("true or false")
    return word in ("true", "yes", "on", "1")


def word(value: object, allowed: t.Mapping[str, int]) -> int:
    """Look up one of a few words; return the kernel's number for it."""
    if str(value) not in allowed:
        raise Unfit(f"one of {', '.join(allowed)}")
    return allowed[str(value)]


def name_or_number(value: object, names: t.Mapping[str, int], kind: str, low: int, high: int) -> int:
    """Parse a name that the node knows, or a number."""
    try:
        return number(names.get(str(value), value), low, high)
    except Unfit as unfit:
        raise Unfit(f"{unfit}, or the name of {kind}: {', '.join(names)}") from None


def link(value: object) -> str:
    """Check a link's name as the kernel takes it (net/core/dev.c, dev_valid_name; 15 bytes and a NUL)."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
    is_name = re.fullmatch(r"[^\s/:]{1,15}", text) and text.isprintable() and len(text.encode()) <= 15
    if not is_name or text in (".", ".."):
        raise Unfit("a link's name of 1 to 15 bytes without blanks, / and :")
    return text


def address(value: object) -> tuple[int, bytes]:
    """Parse an address. Return its family, and the address in network order."""
    text = str(value)
    family = IPV6 if ":" in text else IPV4
    try:
        return family, socket.inet_pton(family, text)
    except (OSError, ValueError):  # ValueError: a NUL
        raise Unfit("an IP address") from None


def address_or_empty(value: object) -> str:
    """Return an address as show() writes it; empty for another value."""
    try:
        return show(address(value)[1])
    except Unfit:
        return ""


def node(value: object) -> tuple[int, bytes]:
    """Parse the address of one node, like address(). The kernel reads 0.0.0.0 as no address at all, and refuses the others."""
    family, packed = address(value)
    if not any(packed) or (family == IPV6 and packed[0] == 0xFF):
        raise Unfit("an IP address of one node")
    return family, packed


def prefix(value: object) -> tuple[int, Prefix]:
    """Parse a prefix. Return its family, and the prefix. An address is a prefix of full length.

    The family is 0 for words that do not tell it: ``default``, ``all`` and ``any``.
    """
    try:
        return IPV4, (socket.inet_pton(IPV4, t.cast(t.Any, value)), 32)  # the most common case
    except (OSError, TypeError, ValueError):
        text = str(value)
    if text in ("default", "all", "any"):
        return 0, ANY
    host, slash, digits = text.partition("/")
    try:
        family, packed = address(host)
        bits = BITS[family]
        length = number(digits, 0, bits) if slash else bits
    except Unfit:
        raise Unfit("an IP address, a prefix ADDRESS/LENGTH, or default") from None
    rest = bits - length
    if rest and int.from_bytes(packed, "big") & ((1 << rest) - 1):
        raise Unfit(f"a prefix without host bits, as {show_prefix(network(packed, length), 'default')}")
    return family, (packed, length) if length else ANY


def show(packed: bytes) -> str:
    return socket.inet_ntop(IPV6 if len(packed) == 16 else IPV4, packed)


def endpoint(address: str, port: t.Any) -> str:
    """Return an address with a port; the address alone if the port is 0 or empty."""
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def show_prefix(value: Prefix, unlimited: str) -> str:
    """Show a prefix as ``ip`` prints it; ``unlimited`` for the prefix that contains every address."""
    packed, length = value
    if not packed:
        return unlimited
    return show(packed) if length == len(packed) * 8 else f"{show(packed)}/{length}"


def show_range(value: Range) -> str:
    first, last = value
    return str(first) if first == last else f"{first}-{last}"


def network(packed: bytes, length: int) -> Prefix:
    """Return the prefix of this length that contains an address."""
    rest = len(packed) * 8 - length
    return ((int.from_bytes(packed, "big") >> rest << rest).to_bytes(len(packed), "big"), length) if length else ANY


def contains(prefix: Prefix, packed: bytes) -> bool:
    """Return whether an address lies in a prefix of its own family."""
    return network(packed, prefix[1]) == prefix


def is_link_local(packed: bytes) -> bool:
    """Return whether an IPv6 address is link-local, in fe80::/10 (RFC 4291, section 2.5.6)."""
    return packed[0] == 0xFE and packed[1] & 0xC0 == 0x80
