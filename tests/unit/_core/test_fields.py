# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fields of rules and routes: accepted spellings with their values, and the errors for others."""

from __future__ import annotations

import functools
import socket
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import ANY, IPV4, IPV6, Unfit

Parser = t.Callable[[t.Any], t.Any]


def v4(text: str) -> bytes:
    return socket.inet_aton(text)


def v6(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, text)


NUMBER = functools.partial(fields.number, low=1, high=300)
DECIMAL = functools.partial(NUMBER, is_decimal=True)
INFINITE = float("inf")
SPAN = functools.partial(fields.span, high=300)
WORD = functools.partial(fields.word, allowed={"a": 1, "b": 2})
NAMED = functools.partial(fields.name_or_number, names={"a": 1, "b": 300}, kind="a place", low=1, high=300)

TAKEN: list[tuple[Parser, t.Any, t.Any]] = [
    *((NUMBER, given, int(given)) for given in (1, "1", 300, "300", "299")),
    *((NUMBER, given, 255) for given in ("0xff", "0XFF", 255)),
    *((SPAN, given, (int(given),) * 2) for given in (0, "0", 300, "300")),
    (SPAN, "0-300", (0, 300)),
    (SPAN, "7-7", (7, 7)),
    (SPAN, "0000000007", (7, 7)),
    *((fields.flag, given, True) for given in (True, "true", "TRUE", "yes", "Yes", "on", "1", 1)),
    *((fields.flag, given, False) for given in (False, "false", "no", "off", "0", 0)),
    (WORD, "a", 1),
    (WORD, "b", 2),
    *((NAMED, given, 300) for given in ("b", 300, "300", "0x12c")),
    (fields.link, "eth0.100", "eth0.100"),
    (fields.link, "a" * 15, "a" * 15),
    (fields.link, "ä" * 7, "ä" * 7),
    (fields.link, "...", "..."),
    (fields.link, 7, "7"),
    (fields.address, "10.0.1.5", (IPV4, v4("10.0.1.5"))),
    (fields.address, "FE80::1", (IPV6, v6("fe80::1"))),
    (fields.node, "10.0.1.5", (IPV4, v4("10.0.1.5"))),
    (fields.node, "255.0.0.1", (IPV4, v4("255.0.0.1"))),
    (fields.node, "fe80::1", (IPV6, v6("fe80::1"))),
    (fields.node, "feff::1", (IPV6, v6("feff::1"))),
    (fields.node, "fdff::1", (IPV6, v6("fdff::1"))),
    (fields.prefix, "10.0.1.5", (IPV4, (v4("10.0.1.5"), 32))),
    (fields.prefix, "10.0.1.5/32", (IPV4, (v4("10.0.1.5"), 32))),
    (fields.prefix, "10.0.1.4/30", (IPV4, (v4("10.0.1.4"), 30))),
    (fields.prefix, "128.0.0.0/1", (IPV4, (v4("128.0.0.0"), 1))),
    (fields.prefix, "0.0.0.0/0", (IPV4, ANY)),
    (fields.prefix, "2001:db8::1", (IPV6, (v6("2001:db8::1"), 128))),
    (fields.prefix, "2001:db8::/33", (IPV6, (v6("2001:db8::"), 33))),
    (fields.prefix, "::/0", (IPV6, ANY)),
    *((fields.prefix, given, (0, ANY)) for given in ("default", "all", "any")),
]


@pytest.mark.parametrize(("parse", "given", "value"), TAKEN)
def test_accepted_spellings_have_their_values(parse: Parser, given: t.Any, value: t.Any) -> None:
    found = parse(given)
    assert (found, type(found)) == (value, type(value))


A_NUMBER = "a number from 1 to 300"
A_SPAN = "a number or a range N-M from 0 to 300, N not above M"
A_LINK = "a link's name of 1 to 15 bytes without blanks, / and :"
A_PREFIX = "an IP address, a prefix ADDRESS/LENGTH, or default"
REFUSED: list[tuple[Parser, t.Any, str]] = [
    *((NUMBER, given, A_NUMBER) for given in (0, 301, -1, "x", "", "1.0", 1.5, True, None, "1-2", "010")),
    *((NUMBER, given, A_NUMBER) for given in ("1_0", "+7", " 7", "7\n", "\u0667", "\u00b2", "0x", "0x1_0", "0b1", "0o7", "1e2")),
    *((NUMBER, given, A_NUMBER) for given in (INFINITE, INFINITE - INFINITE, 10**400, "1" * 5000, "0x" + "0" * 17, b"7")),
    *((DECIMAL, given, A_NUMBER) for given in ("0x7", "007", True)),
    *((SPAN, given, A_SPAN) for given in ("\u0667", "301", "1-301", "2-1", "-1", "1-", "x", "", "1-2-3", "00000000001")),
    *((fields.flag, given, "true or false") for given in ("", "y", "2", 2, None)),
    *((WORD, given, "one of a, b") for given in ("", "c", None, "A", 1)),
    *((NAMED, given, f"{A_NUMBER}, or the name of a place: a, b") for given in ("c", "", 0, 301, None)),
    *((fields.link, given, A_LINK) for given in ("", "a" * 16, "ä" * 8, ".", "..", "a/b", "a:b", "a b", "a\t", "a\0")),
    *((fields.link, given, A_LINK) for given in (None, ["eth0"], 1.5, "a\n")),
    *((fields.address, given, "an IP address") for given in ("", "x", "10.0.1", "10.0.1.5/32", ":", "fe80::1%eth0")),
    *((fields.node, given, "an IP address of one node") for given in ("0.0.0.0", "::", "ff02::1", "ffff::1")),
    (fields.node, "10.0.1.0/24", "an IP address"),
    *((fields.address, given, "an IP address") for given in ("10.0.0.1\0", "fe80::1\0", None, 7)),
    *((fields.prefix, given, A_PREFIX) for given in ("", "x", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0.0/", "/8")),
    *((fields.prefix, given, A_PREFIX) for given in ("10.0.0.0/x", "10.0.0.0/8/8", "default/0", None, 7)),
    (fields.prefix, "10.0.1.5/24", "a prefix without host bits, as 10.0.1.0/24"),
    (fields.prefix, "10.0.1.1/31", "a prefix without host bits, as 10.0.1.0/31"),
    (fields.prefix, "128.0.0.0/0", "a prefix without host bits, as default"),
    (fields.prefix, "fe80::1/64", "a prefix without host bits, as fe80::/64"),
]


@pytest.mark.parametrize(("parse", "given", "sentence"), REFUSED)
def test_an_error_says_what_would_be_accepted(parse: Parser, given: t.Any, sentence: str) -> None:
    with pytest.raises(Unfit) as caught:
        parse(given)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("prefix", "shown"),
    [
        ((v4("10.0.1.5"), 32), "10.0.1.5"),
        ((v4("10.0.1.4"), 31), "10.0.1.4/31"),
        ((v6("fe80::1"), 128), "fe80::1"),
        ((v6("fe80::"), 32), "fe80::/32"),  # as long as an IPv4 address
        (ANY, "everything"),
    ],
)
def test_a_prefix_is_shown_as_ip_does(prefix: fields.Prefix, shown: str) -> None:
    assert fields.show_prefix(prefix, "everything") == shown


def test_a_range_of_one_is_shown_as_a_number() -> None:
    assert [fields.show_range(one) for one in ((7, 7), (7, 8))] == ["7", "7-8"]


@pytest.mark.parametrize(
    ("address", "length", "network"),
    [
        (v4("10.255.255.255"), 32, "10.255.255.255"),
        (v4("10.255.255.255"), 31, "10.255.255.254"),
        (v4("10.255.255.255"), 9, "10.128.0.0"),
        (v4("255.255.255.255"), 1, "128.0.0.0"),
        (v6("ffff:ffff::1"), 17, "ffff:8000::"),
        (v6("ffff::1"), 128, "ffff::1"),
    ],
)
def test_the_network_of_an_address_holds_it_and_the_next_one_does_not(address: bytes, length: int, network: str) -> None:
    found = fields.network(address, length)
    assert (fields.show(found[0]), found[1]) == (network, length) and fields.contains(found, address)
    other = address[:-1] + bytes([address[-1] ^ 1]) if length == len(address) * 8 else bytes([address[0] ^ 0x80]) + address[1:]
    assert not fields.contains(found, other)


def test_the_network_of_length_0_holds_every_address() -> None:
    assert fields.network(v4("10.0.1.5"), 0) == ANY and fields.contains(ANY, v4("10.0.1.5"))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        *((one, True) for one in ("fe80::", "fe80::1", "febf:ffff::1")),
        *((one, False) for one in ("fe7f:ffff::1", "fec0::1", "ff80::1", "fd80::1", "::fe80")),
    ],
)
def test_link_local_addresses_begin_with_ten_bits(address: str, expected: bool) -> None:
    assert fields.is_link_local(v6(address)) == expected
