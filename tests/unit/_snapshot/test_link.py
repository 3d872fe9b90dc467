# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links as plain data, from messages as the kernel encodes them."""

from __future__ import annotations

import struct

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import link_message
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interface import Interface
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_message import IFINFO, Link, link_from
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import pack
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import link


def _link(kind: str, lower: int = 0, namespace: int | None = None, data: bytes = b"") -> Link:
    info = pack({link_message.INFO_KIND: kind.encode() + b"\0", link_message.INFO_DATA: data})
    found = {link_message.IFLA_IFNAME: b"l0\0", link.IFLA_LINK: struct.pack("=I", lower), link_message.IFLA_LINKINFO: info}
    if namespace is not None:
        found[link.IFLA_LINK_NETNSID] = struct.pack("=I", namespace)
    return link_from(IFINFO.pack(0, 1, 7, 0x1003, 0) + pack(found))


HERE = Interface("", "l1", "02:00:00:00:00:01", number=3, peer=7)
POD1 = Interface("pod1", "eth0", "02:00:00:00:00:02", frozenset(("10.0.0.9", "10.0.0.10")), number=3, peer=7)
POD2 = POD1._replace(namespace="pod2")
INTERFACES = {(one.namespace, one.number): one for one in (HERE, POD1, POD2)}


@pytest.mark.parametrize(("namespace", "peer"), [(None, HERE), ("pod1", POD1), ("pod2", POD2), ("", None)])
def test_the_other_end_is_found_in_its_namespace(namespace: str | None, peer: Interface | None) -> None:
    names = {7: namespace} if namespace else {}
    assert link.peer(_link("veth", 3, None if namespace is None else 0), INTERFACES, names) == peer


def test_an_end_that_has_gone_is_not_found() -> None:
    assert link.peer(_link("veth", 9, None), INTERFACES, {}) is None


def test_a_link_shows_its_other_end_and_not_a_link_below() -> None:
    shown = link.entry(_link("veth", 3, 0), {3: "eth3", 7: "l0"}, (), POD1)
    assert shown["peer"] == {
        "namespace": "pod1", "name": "eth0", "mac": "02:00:00:00:00:02", "addresses": ["10.0.0.10", "10.0.0.9"]
    }  # fmt: skip
    assert (shown["parent"], shown["master"], shown["flags"]) == ("", "", ["UP", "BROADCAST", "MULTICAST"])


def test_a_link_shows_the_link_below_it_in_its_own_namespace() -> None:
    vlan = pack({1: struct.pack("=H", 100), 3: b"\0" * 8})
    shown = link.entry(_link("vlan", 3, data=vlan), {3: "eth3"}, (), None)
    assert (shown["parent"], shown["settings"], shown["peer"]) == ("eth3", {"id": 100}, None)
    assert link.entry(_link("macvlan", 3, 0), {3: "eth3"}, (), None)["parent"] == ""


def test_a_port_of_a_bridge_is_shown_whole() -> None:
    info = {link_message.INFO_KIND: b"veth\0", link_message.INFO_SLAVE_KIND: b"bridge\0"}
    info[link_message.INFO_SLAVE_DATA] = pack({1: b"\3", 4: b"\1", 99: b"\7"})
    found = {
        link_message.IFLA_IFNAME: b"l0\0",
        link_message.IFLA_ADDRESS: bytes.fromhex("020000000007"),
        link_message.IFLA_MTU: struct.pack("=I", 1400),
        link_message.IFLA_MASTER: struct.pack("=I", 5),
        link_message.IFLA_LINKINFO: pack(info),
    }
    port = link_from(IFINFO.pack(0, 1, 7, 0x11043, 0) + pack(found))
    far = {link_message.IFA_LOCAL: bytes((10, 0, 0, 1)), link_message.IFA_ADDRESS: bytes((10, 0, 0, 2))}
    pointed = link_message.address_from(link_message.IFADDR.pack(2, 32, 0x80, 253, 7) + pack(far))
    own = link_message.new_address(7, bytes(15) + b"\1", 64, link_message.NODAD)
    assert link.entry(port, {5: "br0", 7: "l0"}, (pointed, own), None) == {
        "name": "l0",
        "index": 7,
        "kind": "veth",
        "type": 1,
        "mac": "02:00:00:00:00:07",
        "mtu": 1400,
        "flags": ["UP", "BROADCAST", "RUNNING", "MULTICAST", "LOWER_UP"],
        "master": "br0",
        "parent": "",
        "peer": None,
        "settings": {"state": 3, "hairpin": 1},
        "addresses": [
            {"address": "10.0.0.1/32", "peer": "10.0.0.2", "scope": "link", "flags": ["permanent"]},
            {"address": "::1/64", "peer": "", "scope": "global", "flags": ["nodad"]},
        ],
    }


@pytest.mark.parametrize(("kind", "is_full"), [("", True), ("veth", True), ("vrf", True), ("gre", False), ("vxlan", False)])
def test_a_kind_with_unread_settings_is_told(kind: str, is_full: bool) -> None:
    assert link.is_read_in_full(_link(kind)) == is_full
