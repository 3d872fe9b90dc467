# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which bridge goes, whose its addresses are, and in which order they move; what a journal keeps of it."""

from __future__ import annotations

import socket
import struct

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet import bridge
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint import rollback_program
from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni
from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import link_message
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import Apply
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_message import Link, Scene
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import attributes, pack

MAC = bytes.fromhex("020000000001")


def link(number: int, name: str, kind: str = "", master: int = 0) -> Link:
    body = link_message.IFINFO.pack(0, 1, number, link_message.IFF_UP, 0) + pack(
        {
            link_message.IFLA_IFNAME: name.encode() + b"\0",
            link_message.IFLA_ADDRESS: MAC,
            link_message.IFLA_MASTER: struct.pack("=I", master),
            link_message.IFLA_LINKINFO: pack({link_message.INFO_KIND: kind.encode() + b"\0"}),
        }
    )
    return link_message.link_from(body)


ETH0, AZURE0, POD = link(2, "eth0", "", 3), link(3, "azure0", "bridge"), link(4, "azv0123456789a", "veth", 3)


def address(text: str, length: int, on: Link, flags: int = 0x80, label: str = "") -> link_message.Address:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    found = {link_message.IFA_ADDRESS: socket.inet_pton(family, text), link_message.IFA_FLAGS: struct.pack("=I", flags)}
    if label:
        found[link_message.IFA_LABEL] = label.encode() + b"\0"
    scope = link_message.LINK_SCOPE if text.startswith("fe80") else 0
    return link_message.address_from(
        link_message.IFADDR.pack(family, length, flags & 0xFF, scope, on.number) + pack(found)
    )


@pytest.mark.parametrize(
    ("links", "name", "configured", "expected"),
    [
        ([ETH0, AZURE0], None, (), "azure0"),
        ([ETH0], None, (), None),
        ([link(2, "azure0", "dummy")], None, (), None),
        ([link(2, "azurex", "bridge")], None, (), None),
        ([link(2, "podbr", "bridge")], None, ("podbr",), "podbr"),
        ([AZURE0, link(5, "azure9", "bridge")], "azure9", (), "azure9"),
        ([AZURE0], "azure9", (), None),
    ],
)
def test_the_bridge_is_azure_vnets_or_the_one_that_is_named(
    links: list[Link], name: str | None, configured: tuple[str, ...], expected: str | None
) -> None:
    found = bridge.bridge_of(links, name, configured)
    assert (found.name if found else None) == expected


@pytest.mark.parametrize(
    ("links", "name", "expected"),
    [
        ([AZURE0, ETH0], None, "eth0"),
        ([AZURE0, link(2, "veth1", "veth", 3)], None, "veth1"),
        ([AZURE0, link(2, "eth0")], "eth0", "eth0"),
        ([AZURE0, ETH0, POD], None, "bridge azure0 still serves azv0123456789a"),
        ([AZURE0, ETH0, link(5, "eth1", "", 3)], None, "eth0 and eth1 are ports"),
        ([AZURE0, ETH0], "eth7", "interface must be a link of this node"),
        ([AZURE0], None, "no link is in bridge azure0"),
    ],
)
def test_the_nic_is_the_port_that_is_no_pods(links: list[Link], name: str | None, expected: str) -> None:
    scene = Scene(tuple(links), (address("10.0.0.4", 24, AZURE0),))
    try:
        found = bridge.nic_of(scene, AZURE0, name)
        said = found.name if found else ""
    except DatapathError as error:
        said = str(error)
    assert expected in said


def test_labels_and_flags_move_and_link_local_addresses_do_not() -> None:
    scene = Scene(
        (ETH0, AZURE0),
        (
            address("10.0.0.4", 24, AZURE0, label="azure0"),
            address("10.0.0.5", 24, AZURE0, flags=0x281, label="azure0:1"),  # noprefixroute, permanent, secondary
            address("fd00::2", 64, AZURE0),
            address("fd00::1", 64, AZURE0),
            address("fe80::1", 64, AZURE0),
            address("10.9.9.9", 24, link(7, "other")),
        ),
    )
    found = bridge.dissolution(scene, AZURE0, ETH0)
    assert [message.summary for message in found.arriving] == [
        "add 10.0.0.4/24 to eth0",
        "add 10.0.0.5/24 to eth0",
        "add fd00::1/64 to eth0",
        "add fd00::2/64 to eth0",
    ]
    told = [attributes(message.do.body, link_message.IFADDR.size) for message in found.arriving if message.do]
    assert [one.get(link_message.IFA_LABEL) for one in told] == [b"eth0\0", b"eth0:1\0", None, None]
    assert [struct.unpack("=I", one[link_message.IFA_FLAGS])[0] for one in told] == [0, 0x200, 2, 2]
    assert [message.summary for message in found.leaving][-1] == "take eth0 out of azure0"
    assert [message.summary for message in found.removal][-1] == "remove azure0"


def test_a_journal_gives_back_what_was_written() -> None:
    scene = Scene((ETH0, AZURE0), (address("10.0.0.4", 24, AZURE0), address("fd00::1", 64, AZURE0)))
    found = bridge.dissolution(scene, AZURE0, ETH0)
    for messages in (found.arriving, found.leaving, found.removal):
        operation = Apply(messages).inverse()
        assert codec.decode(codec.encode(operation, rollback_program.KNOWN), rollback_program.KNOWN) == operation
        assert [one.do for one in operation.messages] == [one.undo for one in reversed(messages)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"plugins": [{"type": "azure-vnet"}, {"type": "portmap"}]}', ("azure-vnet", "portmap")),
        ('{"type": "cilium-cni"}', ("cilium-cni",)),
        ('{"plugins": [1, {}]}', ()),
        ("[]", ()),
        ("{", ()),
    ],
)
def test_plugins_of_a_configuration(text: str, expected: tuple[str, ...]) -> None:
    assert cni.plugins_in(text) == expected
