# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which bridge is removed, to which NIC its addresses move, and in which order; and the journal of these steps."""

from __future__ import annotations

import socket
import struct

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni
from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec, fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Invalid, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import link_message
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import Apply
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_message import Link, Message, Scene
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import bridge
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import attributes, pack
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import route as routes
from unit import journals

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
    return link_message.address_from(link_message.IFADDR.pack(family, length, flags & 0xFF, scope, on.number) + pack(found))


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
def test_the_bridge_is_leftoverss_or_the_one_that_is_named(
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
        (
            [AZURE0, ETH0, POD],
            None,
            "bridge azure0 still serves azv0123456789a. Nothing was changed. First restart or move the pods behind these links,",
        ),
        (
            [AZURE0, ETH0, link(5, "eth1", "", 3)],
            None,
            "interface must be given: eth0 and eth1 are ports of azure0, and only one can get its addresses; None was given",
        ),
        (
            [AZURE0, ETH0, POD, link(5, "veth1", "veth", 3)],
            None,
            f"bridge azure0 still serves {POD.name}, veth1. Nothing",
        ),
        ([AZURE0, ETH0], "eth7", "interface must be a link of this node: azure0, eth0; 'eth7' was given"),
        (
            [AZURE0],
            None,
            "interface must be given: no link is in bridge azure0, and its addresses must move to one; None was given",
        ),
    ],
)
def test_the_nic_is_the_port_that_is_no_pods(links: list[Link], name: str | None, expected: str) -> None:
    scene = Scene(tuple(links), (address("10.0.0.4", 24, AZURE0),))
    try:
        found = bridge.nic_of(scene, AZURE0, name)
        said = found.name if found else ""
    except DatapathError as error:
        said = str(error)
    assert said.startswith(expected)


@pytest.mark.parametrize(
    ("links", "name", "expected"),
    [
        (
            [AZURE0, link(5, "azure9", "bridge")],
            None,
            "bridge must be given: azure0 and azure9 are bridges of azure-vnet; None was given",
        ),
        ([ETH0, AZURE0], "eth0", "bridge must be a bridge; eth0 is a link of kind hardware; 'eth0' was given"),
        (
            [AZURE0, POD],
            POD.name,
            f"bridge must be a bridge; {POD.name} is a link of kind veth; '{POD.name}' was given",
        ),
    ],
)
def test_what_is_no_bridge_or_one_of_several_is_named(links: list[Link], name: str | None, expected: str) -> None:
    with pytest.raises(DatapathError) as error:
        bridge.bridge_of(links, name)
    assert str(error.value) == expected


def test_the_nic_that_a_killed_run_took_out_of_the_bridge_has_its_addresses() -> None:
    nic, other = link(2, "eth0"), link(7, "eth1")
    both = [address(text, 24, AZURE0) for text in ("10.0.0.4", "10.0.0.5")]
    own = address("fe80::1", 64, AZURE0)
    elsewhere = [address("10.9.9.9", 24, other), address("10.0.0.4", 24, other)]
    copies = [address(text, 24, nic) for text in ("10.0.0.4", "10.0.0.5", "10.1.0.1")]
    scene = Scene((nic, AZURE0, other), (*both, own, *elsewhere, *copies))
    assert bridge.nic_of(scene, AZURE0, None) == nic
    assert bridge.nic_of(scene._replace(addresses=(*both, *copies[:2])), AZURE0, None) == nic
    assert bridge.nic_of(scene._replace(addresses=(own, *elsewhere)), AZURE0, None) is None  # the bridge has no address to move
    with pytest.raises(DatapathError, match="no link is in bridge azure0"):
        bridge.nic_of(scene._replace(addresses=(*both[:1], *copies, *elsewhere)), AZURE0, None)  # both have it


def route(to: str, protocol: int, *hops: tuple[Link, str]) -> link_message.Route:
    family, (dst, length) = fields.prefix(to)
    found = {routes.RTA_DST: dst} if length else {}
    ways = [(on.number, pack({routes.RTA_GATEWAY: fields.address(via)[1]} if via else {})) for on, via in hops]
    if len(ways) == 1:
        ((number, gateway),) = ways
        body = pack({**found, routes.RTA_OIF: struct.pack("=I", number)}) + gateway
    else:
        several = b"".join(routes.NEXTHOP.pack(8 + len(gateway), 0, 0, number) + gateway for number, gateway in ways)
        body = pack({**found, routes.RTA_MULTIPATH: several})
    made = link_message.route_from(routes.HEADER.pack(family, length, 0, 0, 254, protocol, 0, routes.UNICAST, 0) + body)
    assert made
    return made


def neighbour(last: int, on: Link, state: int) -> link_message.Neighbour:
    return link_message.Neighbour(socket.AF_INET, on.number, state, 0, bytes([10, 0, 0, last]), MAC)


KERNEL, STATIC = 2, 4


def test_a_bridge_is_dissolved_in_the_order_in_which_the_kernel_takes_it() -> None:
    other = link(7, "eth1")
    four, one = address("10.0.0.4", 24, AZURE0), address("fd00::1", 64, AZURE0)
    default, near = route("0.0.0.0/0", STATIC, (AZURE0, "10.0.0.1")), route("10.9.0.0/16", STATIC, (AZURE0, ""))
    connected = route("10.0.0.0/24", KERNEL, (AZURE0, ""))
    added, there = route("10.8.0.0/16", STATIC, (AZURE0, "")), route("10.8.0.0/16", STATIC, (ETH0, ""))
    half_moved = route("fd09::/64", STATIC, (AZURE0, "fd00::9"), (ETH0, "fd00::9"))
    near6 = route("fd08::/64", STATIC, (AZURE0, ""))
    shared = route("10.7.0.0/16", STATIC, (AZURE0, "10.0.0.7"), (ETH0, "10.0.0.7"))  # two hops of one IPv4 route
    left = (there, route("10.6.0.0/16", STATIC, (other, "")), route("ff00::/8", KERNEL, (AZURE0, "")))
    learned, permanent = neighbour(1, AZURE0, link_message.NUD_STALE), neighbour(2, AZURE0, 0x80)
    scene = Scene(
        (ETH0, AZURE0, other),
        (four, one),
        (learned, permanent, *(neighbour(3, other, state) for state in (0x02, 0x80)), neighbour(4, AZURE0, 0x20)),
        (default, connected, near, added, near6, half_moved, shared, *left),
    )
    found = bridge.dissolution(scene, AZURE0, ETH0)
    assert found[:4] == (AZURE0, ETH0, (four, one), tuple(map(str, (near, added, near6, default, half_moved, shared))))
    assert found.arriving == (
        Message(f"add {connected} over eth0", None, connected.delete(ETH0, AZURE0)),
        Message("add 10.0.0.4/24 to eth0", four.add(ETH0, AZURE0), four.delete(ETH0)),
        Message("add fd00::1/64 to eth0", one.add(ETH0, AZURE0, link_message.NODAD), one.delete(ETH0)),
        Message("add neighbour 10.0.0.1 on eth0", learned.add(ETH0, link_message.NUD_STALE), learned.delete(ETH0)),
        *(
            Message(f"add {way} over eth0", way.add(ETH0, AZURE0, link_message.APPEND), way.delete(ETH0, AZURE0))
            for way in (near, near6, default, shared)
        ),
    )
    assert found.leaving == (
        *(
            Message(f"remove {way} over azure0", way.delete(AZURE0, AZURE0), way.add(AZURE0, AZURE0, 0))
            for way in (shared, half_moved, default, near6, added, near, connected)
        ),
        Message("restore the bridge port settings of eth0", None, ETH0.set_as_port()),
        Message("take eth0 out of azure0", ETH0.set_master(0), ETH0.set_master(AZURE0.number)),
    )
    gone = Message("remove azure0", AZURE0.delete(), AZURE0.make())
    assert found.removal == (
        Message("remove neighbour 10.0.0.2 on azure0", permanent.delete(AZURE0), permanent.add(AZURE0, 0x80)),
        Message("remove fd00::1/64 from azure0", one.delete(AZURE0), one.add(AZURE0, AZURE0)),
        Message("remove 10.0.0.4/24 from azure0", four.delete(AZURE0), four.add(AZURE0, AZURE0)),
        gone,
    )
    empty = bridge.dissolution(Scene((AZURE0,), (), scene.neighbours[3:], left), AZURE0, None)
    assert empty == bridge.Dissolution(AZURE0, None, (), (), (), (), (gone,))


def test_an_address_that_served_pods_ends_with_the_bridge() -> None:
    four, gateway, second = address("10.0.0.4", 24, AZURE0), address("fd00::1", 64, AZURE0), address("fd00:1::1", 64, AZURE0)
    prefixes = [route(prefix, KERNEL, (AZURE0, "")) for prefix in ("10.0.0.0/24", "fd00::/64", "fd00:1::/64")]
    scene = Scene((ETH0, AZURE0), (four, gateway, second), (), tuple(prefixes))
    found = bridge.dissolution(scene, AZURE0, ETH0, {"fd00::1/64"})
    assert (found.addresses, found.ending) == ((four, second), (gateway,))
    assert not [one.summary for one in (*found.arriving, *found.leaving) if "fd00::" in one.summary]
    assert Message("remove fd00::1/64 from azure0", gateway.delete(AZURE0), gateway.add(AZURE0, AZURE0)) in found.removal
    assert bridge.dissolution(scene, AZURE0, ETH0).addresses == (four, gateway, second)


def test_a_run_that_was_killed_is_completed_without_the_address_that_served_pods() -> None:
    own, gateway = address("10.0.0.4", 24, AZURE0), address("fd00::1", 64, AZURE0)
    scene = Scene((ETH0._replace(master=0), AZURE0), (own, gateway, address("10.0.0.4", 24, ETH0)))
    assert bridge.nic_of(scene, AZURE0, None, {"fd00::1/64"}) == ETH0._replace(master=0)
    with pytest.raises(Invalid):
        bridge.nic_of(scene, AZURE0, None)


def test_a_route_by_a_nexthop_object_is_not_moved() -> None:
    by_object = route("0.0.0.0/0", STATIC, (AZURE0, "10.0.0.1"))._replace(has_nexthop_object=True)
    with pytest.raises(Refusal) as error:
        bridge.dissolution(Scene((ETH0, AZURE0), routes=(by_object,)), AZURE0, ETH0)
    assert str(error.value) == (
        "ip route default via 10.0.0.1 table main leads over bridge azure0 by a nexthop object (ip nexthop), which other"
        " routes may share. Nothing was changed. Have the owner of the nexthop object move it"
    )


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
        assert codec.decode(codec.encode(operation, journals.KNOWN), journals.KNOWN) == operation
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
