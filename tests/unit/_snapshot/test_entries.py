# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readers of a snapshot: objects of the network as plain data, the files of /proc/net, and one query for several readers."""

from __future__ import annotations

import struct
import sys

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import IPV4, IPV6
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import interfaces_backend, link_message
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interface import Interface
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interfaces_backend import Interfaces
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_message import IFINFO, Link, link_from
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import pack
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.neighbour import HEADER, NDA_DST, Neighbour
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import Hop, Route
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import entries, proc_net, snapshot_backend

# Links, rules, routes and neighbours as plain data: nothing is lost, whatever the kernel has


def _link(kind: str, lower: int = 0, namespace: int | None = None, data: bytes = b"") -> Link:
    info = pack({link_message.INFO_KIND: kind.encode() + b"\0", link_message.INFO_DATA: data})
    found = {link_message.IFLA_IFNAME: b"l0\0", entries.IFLA_LINK: struct.pack("=I", lower), link_message.IFLA_LINKINFO: info}
    if namespace is not None:
        found[entries.IFLA_LINK_NETNSID] = struct.pack("=I", namespace)
    return link_from(IFINFO.pack(0, 1, 7, 0x1003, 0) + pack(found))


HERE = Interface("", "l1", "02:00:00:00:00:01", number=3, peer=7)
POD1 = Interface("pod1", "eth0", "02:00:00:00:00:02", frozenset(("10.0.0.9", "10.0.0.10")), number=3, peer=7, mtu=1430, flags=3)
POD2 = POD1._replace(namespace="pod2")
INTERFACES = {(one.namespace, one.number): one for one in (HERE, POD1, POD2)}


@pytest.mark.parametrize(("namespace", "peer"), [(None, HERE), ("pod1", POD1), ("pod2", POD2), ("", None)])
def test_the_other_end_is_found_in_its_namespace(namespace: str | None, peer: Interface | None) -> None:
    names = {7: namespace} if namespace else {}
    assert entries.peer(_link("veth", 3, None if namespace is None else 0), INTERFACES, names) == peer


def test_an_end_that_has_gone_is_not_found() -> None:
    assert entries.peer(_link("veth", 9, None), INTERFACES, {}) is None


def test_a_link_shows_its_other_end_and_not_a_link_below() -> None:
    entry = entries.link(_link("veth", 3, 0), {3: "eth3", 7: "l0"}, (), POD1)
    assert entry["peer"] == {
        "namespace": "pod1", "name": "eth0", "mac": "02:00:00:00:00:02", "mtu": 1430, "flags": ["UP", "BROADCAST"],
        "addresses": ["10.0.0.10", "10.0.0.9"],
    }  # fmt: skip
    assert (entry["parent"], entry["master"], entry["flags"]) == ("", "", ["UP", "BROADCAST", "MULTICAST"])


def test_a_link_shows_the_link_below_it_in_its_own_namespace() -> None:
    vlan = pack({1: struct.pack("=H", 100), 3: b"\0" * 8})
    entry = entries.link(_link("vlan", 3, data=vlan), {3: "eth3"}, (), None)
    assert (entry["parent"], entry["settings"], entry["peer"]) == ("eth3", {"id": 100}, None)
    assert entries.link(_link("macvlan", 3, 0), {3: "eth3"}, (), None)["parent"] == ""


def test_a_port_of_a_bridge_is_shown_whole() -> None:
    info = {link_message.INFO_KIND: b"veth\0", link_message.INFO_SLAVE_KIND: b"bridge\0"}
    info[link_message.INFO_SLAVE_DATA] = pack({1: b"\3", 4: b"\1", 99: b"\7"})
    found = {
        link_message.IFLA_IFNAME: b"l0\0",
        link_message.IFLA_ADDRESS: bytes.fromhex("020000000007"),
        link_message.IFLA_MTU: struct.pack("=I", 1400),
        entries.IFLA_QDISC: b"fq_codel\0",
        link_message.IFLA_MASTER: struct.pack("=I", 5),
        link_message.IFLA_LINKINFO: pack(info),
    }
    port = link_from(IFINFO.pack(0, 1, 7, 0x11043, 0) + pack(found))
    far = {link_message.IFA_LOCAL: bytes((10, 0, 0, 1)), link_message.IFA_ADDRESS: bytes((10, 0, 0, 2))}
    pointed = link_message.address_from(link_message.IFADDR.pack(2, 32, 0x80, 253, 7) + pack(far))
    own = link_message.new_address(7, bytes(15) + b"\1", 64, link_message.NODAD)
    assert entries.link(port, {5: "br0", 7: "l0"}, (pointed, own), None) == {
        "name": "l0",
        "index": 7,
        "kind": "veth",
        "type": 1,
        "mac": "02:00:00:00:00:07",
        "mtu": 1400,
        "qdisc": "fq_codel",
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
    assert entries.is_read_in_full(_link(kind)) == is_full


def test_a_rule_has_the_options_that_give_it_and_its_owner() -> None:
    rule = Rule(IPV4, 512, dst=(bytes((10, 244, 0, 5)), 32), table=254)
    assert entries.rule(rule, 3) == {"priority": 512, "family": "ipv4", "to": "10.244.0.5", "table": "254", "protocol": "boot"}


def test_an_action_without_a_name_is_a_number() -> None:
    assert entries.rule(Rule(IPV6, 7, action=3), 75) == {"priority": 7, "family": "ipv6", "action": "3", "protocol": "75"}


def test_routes_of_the_kernel_have_their_type_and_are_read_in_full() -> None:
    route = Route(IPV4, 255, (bytes((10, 0, 0, 255)), 32), type=3, scope=253, hops=(Hop("eth0"),), unread=("its type",))
    entry = entries.route(route, 2)
    assert (entry["type"], entry["scope"], entry["protocol"]) == ("broadcast", "link", "kernel")
    assert "unread" not in entry and entries.unread(route) == []


def test_a_route_names_what_its_entry_lacks_and_shows_its_whole_key() -> None:
    route = Route(IPV6, 254, scope=7, unread=("encap", "from", "its type", "tos"), beside=(8, bytes(16), 64), type=42)
    entry = entries.route(route._replace(family=IPV4), 75)
    assert (entry["type"], entry["scope"], entry["tos"], entry["from"]) == ("type 42", "7", 8, "::/64")
    assert entry["unread"] == ["encap", "from", "tos"]


def test_a_neighbour_has_the_name_of_its_state() -> None:
    entry = entries.neighbour(Neighbour("192.0.2.1", "eth0", "12:34:56:78:9a:bc", 0x02))
    assert entry == {"address": "192.0.2.1", "dev": "eth0", "mac": "12:34:56:78:9a:bc", "state": "REACHABLE"}
    assert entries.neighbour(Neighbour("192.0.2.1", "eth0", "", 0x03))["state"] == "3"


def test_an_address_for_which_the_node_answers_has_a_link() -> None:
    body = HEADER.pack(IPV6, 3, 0, 8, 0) + pack({NDA_DST: bytes(15) + b"\1"})
    assert entries.proxy(body, {3: "eth0"}) == {"address": "::1", "dev": "eth0", "mac": "", "state": "PROXY"}


V4, V6 = bytes((10, 0, 0, 5)), b"\xfd" + bytes(14) + b"\5"


@pytest.mark.parametrize(
    ("kind", "data", "ends"),
    [
        ("vxlan", {3: struct.pack("=I", 3), 4: V4}, {"parent": "eth3", "local": "10.0.0.5"}),
        ("vxlan", {2: bytes(4), 16: V6, 17: V6}, {"parent": "", "local": "fd00::5", "remote": "fd00::5"}),
        ("geneve", {2: V4}, {"parent": "", "remote": "10.0.0.5"}),
        ("gre", {6: V4, 7: bytes(4)}, {"parent": "", "local": "10.0.0.5"}),
        ("ip6tnl", {1: struct.pack("=I", 3), 2: V6, 3: V6}, {"parent": "eth3", "local": "fd00::5", "remote": "fd00::5"}),
        ("ipip", {}, {"parent": ""}),
        ("dummy", {3: struct.pack("=I", 3)}, {"parent": ""}),
    ],
)
def test_a_tunnel_shows_the_link_that_carries_it_and_its_addresses(
    kind: str, data: dict[int, bytes], ends: dict[str, str]
) -> None:
    entry = entries.link(_link(kind, 0, data=pack(data)), {3: "eth3"}, (), None)
    assert {name: entry[name] for name in ("parent", "local", "remote") if name in entry} == ends


# Counters and listening sockets in the files of /proc/net, as kernels print them


def test_numbers_of_all_processors_are_added() -> None:
    text = "entries  drop early_drop insert_failed\n0000000a 00000001 00000000 00000010\n0000000a 00000002 00000000 0000000f\n"
    assert proc_net.sums(text, proc_net.TRACKED) == {"insert_failed": 31, "drop": 3, "early_drop": 0}
    assert proc_net.sums("", proc_net.TRACKED) == {}


def test_a_kernel_that_does_not_count_frames_for_others_has_none() -> None:
    fields = struct.pack("=25Q", *range(25))
    assert proc_net.otherhost_dropped(fields) == 24
    assert proc_net.otherhost_dropped(fields[:192]) == proc_net.otherhost_dropped(b"") == 0


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0 100 0 0 10 0
   1: 0B00000A:A0F2 01600A0A:01BB 01 00000000:00000000 00:00000000 00000000     0        0 18 1 0 100 0 0 10 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:2810 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: B80D01200000000000000000100000FF:0016 00000000000000000000000000000000:0000 0A 00000000:00000000
"""


@pytest.mark.skipif(sys.byteorder == "big", reason="the texts are those of another machine")
def test_sockets_that_listen_are_read_and_connections_are_not() -> None:
    assert list(proc_net.listeners(TCP)) == [{"address": "127.0.0.1", "port": 10250}]
    assert list(proc_net.listeners(TCP6)) == [{"address": "::", "port": 10256}, {"address": "2001:db8::ff00:10", "port": 22}]
    assert list(proc_net.listeners("")) == []


# A snapshot asks the kernel once for what several of its readers need


SUBSETS = ["links", "pods", "pod_neighbors"]


def test_the_network_namespaces_are_asked_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer() -> Interfaces:
        asked.append(1)
        return Interfaces(())

    monkeypatch.setattr(interfaces_backend, "_of_other_namespaces", answer)
    assert snapshot_backend.read(process.run, SUBSETS)["unread"] == [] and len(asked) == 1


def test_what_cannot_be_asked_is_noted_by_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Interfaces:
        raise Failure("the kernel refused to list links")

    monkeypatch.setattr(interfaces_backend, "_of_other_namespaces", refuse)
    unread = snapshot_backend.read(process.run, SUBSETS)["unread"]
    assert {entry["subset"] for entry in unread} == {*SUBSETS}
