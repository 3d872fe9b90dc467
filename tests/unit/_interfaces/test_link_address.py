# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Addresses of links: a record and units of them read back, whatever the names of the links are."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import address_unit, link_address
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_address import AddedAddress, LinkAddress

LINKS = st.text(string.ascii_letters + string.digits + "_.=+@~-", min_size=1, max_size=15).filter(
    lambda name: name not in (".", "..")
)
LOCALS = st.binary(min_size=3, max_size=3).map(lambda rest: b"\x0a" + rest) | st.binary(min_size=14, max_size=14).map(
    lambda rest: b"\x20\x01" + rest
)
ADDRESSES = st.builds(LinkAddress, LINKS, LOCALS, st.integers(1, 32))


@given(st.sets(st.builds(AddedAddress, st.integers(1, 99), ADDRESSES)))
def test_a_record_reads_back(record: set[AddedAddress]) -> None:
    assert link_address.record_from(link_address.record_text(record) or "") == record


ODD = ['"1", "eth1", "10.0.0.1"', 'true, "eth1", "10.0.0.1"', '1, 2, "10.0.0.1"', '1, "eth1", 7', '1, "eth1", "10.0.0"']


@pytest.mark.parametrize(
    "text", ["{", "[1]", '[[1, "eth1"]]', "7", "null", '{"a": 1}', "[" * 100_000, *(f"[[{odd}]]" for odd in ODD)]
)
def test_a_text_that_is_no_record_makes_no_address_ours(text: str) -> None:
    assert not link_address.record_from(text)


@given(LINKS, st.lists(ADDRESSES, min_size=1))
def test_a_unit_tells_its_link_and_its_addresses(link: str, addresses: list[LinkAddress]) -> None:
    unit = address_unit.unit(link, [one.words for one in addresses])
    assert address_unit.link_of(unit.name) == link
    assert [link_address.from_words(words) for words in address_unit.addresses(unit.text)] == addresses


@pytest.mark.parametrize(
    ("link", "escaped"),
    [("eth1", "eth1"), ("eth0.100", "eth0.100"), ("veth-a@b", r"veth\x2da\x40b"), ("a~b+c=d", r"a\x7eb\x2bc\x3dd")],
)
def test_units_are_named_as_systemd_escapes(link: str, escaped: str) -> None:
    """As systemd-escape(1) of systemd 252 prints it."""
    unit = address_unit.unit(link, ["10.0.0.1/32"])
    assert unit.name == f"kubenode-addresses-{escaped}.service"
    assert unit.wanted_by == f"sys-subsystem-net-devices-{escaped}.device"
    assert f"BindsTo={unit.wanted_by}\nAfter={unit.wanted_by}\n" in unit.text


@pytest.mark.parametrize("words", ["", "10.0.0.1/32 dev eth1", "10.0.0/8 dev eth1 noprefixroute", "-h"])
def test_a_unit_that_was_written_by_hand_is_not_ours(words: str) -> None:
    assert link_address.from_words(words) is None
