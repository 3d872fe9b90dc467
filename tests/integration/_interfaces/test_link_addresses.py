# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""link_addresses on a real kernel: its report, foreign addresses and link flaps."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint_backend import COMMAND
from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps
from lab.waiting import until

LINKS = ("eth1", "eth1.100", "veth-a@b")
ADDRESSES = [
    {"dev": "eth1", "address": "10.0.1.10"},
    {"dev": "eth1", "address": "2001:db8:1::10"},
    {"dev": "eth1.100", "address": "10.0.2.10/24"},
    {"dev": "veth-a@b", "address": "10.0.3.10"},
]
OTHERS = [*ADDRESSES[:1], {"dev": "eth1", "address": "2001:db8:1::10/64"}, {"dev": "eth1", "address": "10.0.1.20"}]
RECORD = "/run/kubenode/link-addresses.json"
UNIT = "/etc/systemd/system/kubenode-addresses-{}.service"


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    """The first node, with more links, which are up and get no addresses by themselves."""
    node: NamespaceNode = lab.node("node1")
    for number, link in enumerate(LINKS):
        peer = f"peer{number}"
        node.ip([f"link add {link} type veth peer name {peer}"])
        node.run(["sysctl", "-qw", *(f"net/ipv6/conf/{one}/addr_gen_mode=1" for one in (link, peer))])
        node.ip([f"link set {peer} up", f"link set {link} up"])
    # The links of the lab, eth0 and a pod's, are up as well.
    until("all links are up", lambda: node.run_from_host(["ip", "-o", "link"]).count(" state UP ") >= 2 * len(LINKS) + 2)
    return node


@pytest.fixture
def steps(node: NamespaceNode) -> Iterator[Steps]:
    clean = node.snapshot()
    steps = Steps(node, "link_addresses")
    yield steps
    steps.run(state="absent")
    assert node.snapshot() == clean
    assert not node.exists("/run/kubenode")


def entry_for(address: str, dev: str = "eth1") -> list[dict[str, str]]:
    return [{"dev": dev, "address": address}]


def current(node: NamespaceNode, dev: str = "eth1") -> list[str]:
    """The link's own addresses, in the kernel's order."""
    found = json.loads(node.run_from_host(["ip", "-j", "address", "show", "dev", dev]))[0]["addr_info"]
    return [f"{entry['local']}/{entry['prefixlen']}" for entry in found if entry["scope"] == "global"]


def test_create_modify_delete(node: NamespaceNode, steps: Steps) -> None:
    routes = node.snapshot()["routes -4"]
    created = steps.four(addresses=ADDRESSES)
    assert len(created["addresses"]["added"]) == 4
    assert created["diff"][0]["after"].startswith("ip address 10.0.1.10/32 dev eth1 noprefixroute\n")
    appeared = [route for route in node.snapshot()["routes -4"] if route not in routes]
    assert appeared and all(" table 255 " in route for route in appeared)  # local
    modified = steps.four(addresses=OTHERS)["addresses"]
    assert modified == {
        "added": ["2001:db8:1::10/64 dev eth1", "10.0.1.20/32 dev eth1"],
        "removed": ["2001:db8:1::10/128 dev eth1", "10.0.2.10/24 dev eth1.100", "10.0.3.10/32 dev veth-a@b"],
        "kept": 1,
        "satisfied_by": [],
    }
    assert not node.exists(UNIT.format("eth1.100")) and current(node, "eth1.100") == []
    assert steps.four(state="absent", addresses=ADDRESSES[:1])["addresses"]["kept"] == 2
    steps.four(state="absent")


def test_units_are_named_as_systemd_escapes_links(node: NamespaceNode, steps: Steps) -> None:
    steps.run(addresses=ADDRESSES)
    for link in LINKS:
        escaped = node.run_from_host(["systemd-escape", link]).strip()
        text = node.read(UNIT.format(escaped))
        device = node.run_from_host(["systemd-escape", "--path", "--suffix=device", f"/sys/subsystem/net/devices/{link}"])
        assert f"\nBindsTo={device.strip()}\n" in text and f"\nWantedBy={device.strip()}\n" in text


@pytest.mark.parametrize("theirs", ["10.0.1.10/24", "10.0.1.10/32", "2001:db8:1::10/64", "10.0.1.10/32 noprefixroute"])
def test_anothers_address_satisfies_and_stays(node: NamespaceNode, theirs: str) -> None:
    node.ip([f"address add {theirs}{' nodad' if ':' in theirs else ''} dev eth1"])
    before = node.snapshot()
    prefix = theirs.split()[0]
    steps = Steps(node, "link_addresses", {"addresses": entry_for(prefix.partition("/")[0])})
    assert steps.four()["addresses"]["satisfied_by"] == [{"object": f"{prefix} dev eth1", "owner": "another program"}]
    assert node.snapshot()["addresses"] == before["addresses"]
    steps.four(state="absent")
    assert node.snapshot() == before


def test_others_addresses_survive_also_in_a_prefix_of_ours(node: NamespaceNode) -> None:
    """Without promote_secondaries the kernel removes them with the first address of their prefix."""
    node.run(["sysctl", "-qw", "net.ipv4.conf.eth1.promote_secondaries=0", "net.ipv4.conf.all.promote_secondaries=0"])
    steps = Steps(node, "link_addresses", {"addresses": entry_for("10.0.1.10/24")})
    steps.run()
    node.ip(["address add 10.0.1.77/24 dev eth1", "address add 10.0.9.9/24 dev eth1"])
    steps.four(state="absent")
    assert sorted(current(node)) == ["10.0.1.77/24", "10.0.9.9/24"]


def test_others_routes_survive_the_links_last_address(node: NamespaceNode, steps: Steps) -> None:
    """A CNI's table of an ENI without an address; the kernel empties the table when it removes the last address."""
    table = [
        "route add 10.0.1.1 dev eth1 table 11 scope link proto kernel",
        "route add default via 10.0.1.1 dev eth1 table 11 proto kernel",
        "route add default via 10.0.1.1 dev eth1 onlink table 1003 mtu 1400",
        "route add 10.7.0.0/16 table 1003 nexthop via 10.0.1.1 dev eth1 onlink nexthop via 10.0.2.1 dev eth1.100 onlink",
        "neighbour add 10.0.1.1 lladdr 02:00:00:00:00:01 dev eth1 nud permanent",
    ]
    node.ip(table)
    before = node.snapshot(), node.run(["ip", "neighbour", "show", "nud", "permanent"]).stdout
    steps.run(addresses=entry_for("10.0.1.10"))
    steps.run(addresses=entry_for("10.0.1.20/24"))
    steps.run(addresses=entry_for("10.0.1.30/24"))
    assert current(node) == ["10.0.1.30/24"]
    steps.run(state="absent")
    assert (node.snapshot(), node.run(["ip", "neighbour", "show", "nud", "permanent"]).stdout) == before
    with node.full("/etc/systemd/system"):
        failed = steps.call(addresses=entry_for("10.0.1.10"))  # its last step fails, so the address is undone
    assert failed["failed"] and "All changes were undone" in failed["msg"], failed
    assert (node.snapshot(), node.run(["ip", "neighbour", "show", "nud", "permanent"]).stdout) == before
    node.ip([line.replace(" add ", " delete ") for line in reversed(table)])


def test_a_change_under_a_checkpoint_is_rolled_back_with_the_routes_that_went_with_it(node: NamespaceNode, steps: Steps) -> None:
    node.ip(["route add default via 10.0.1.1 dev eth1 onlink table 1003"])
    before = node.snapshot()
    assert steps.run(addresses=ADDRESSES, checkpoint=60)["checkpoint_armed"]
    assert current(node) == ["10.0.1.10/32", "2001:db8:1::10/128"]
    answer = json.loads(node.run(["sh", COMMAND, "rollback"]).stdout)
    assert answer["state"] == "rolled back" and "Could not be undone" not in answer["told"]
    node.run(["rm", "-r", "/run/kubenode-checkpoint"])
    assert node.snapshot() == before
    node.ip(["route delete default table 1003"])


def test_an_address_that_was_removed_comes_again_and_a_foreign_one_in_its_place_stays(node: NamespaceNode, steps: Steps) -> None:
    steps.run(addresses=entry_for("10.0.1.10"))
    node.ip(["address delete 10.0.1.10/32 dev eth1"])
    assert steps.run(addresses=entry_for("10.0.1.10"))["addresses"]["added"] == ["10.0.1.10/32 dev eth1"]
    node.ip(["address delete 10.0.1.10/32 dev eth1", "address add 10.0.1.10/32 dev eth1"])
    (satisfied,) = steps.run(addresses=entry_for("10.0.1.10"))["addresses"]["satisfied_by"]
    assert satisfied["object"] == "10.0.1.10/32 dev eth1"
    steps.run(state="absent")
    assert current(node) == ["10.0.1.10/32"]
    node.ip(["address delete 10.0.1.10/32 dev eth1"])


def test_a_link_that_was_down_keeps_ipv4_and_a_run_brings_ipv6_back(node: NamespaceNode, steps: Steps) -> None:
    steps.run(addresses=ADDRESSES[:2])
    node.ip(["link set eth1 down", "link set eth1 up"])
    assert current(node) == ["10.0.1.10/32"]
    assert steps.run(addresses=ADDRESSES[:2])["addresses"]["added"] == ["2001:db8:1::10/128 dev eth1"]


def test_a_link_to_come_is_for_the_permanent_plane(node: NamespaceNode, steps: Steps) -> None:
    desired = [*ADDRESSES[:1], {"dev": "eth9", "address": "10.0.9.10"}]
    told = steps.refused(addresses=desired)
    assert "addresses[1].dev must be a link of this node unless immediate is false; 'eth9' was given" in told
    assert steps.run(addresses=desired, immediate=False)["changed"]


def test_an_address_is_ours_on_a_link_that_was_renamed(node: NamespaceNode) -> None:
    steps = Steps(node, "link_addresses", {"permanent": False})
    steps.run(addresses=entry_for("10.0.1.10"))
    node.ip(["link set eth1 down", "link set eth1 name ens6", "link set ens6 up", "link add eth1 type veth peer name peer9"])
    result = steps.four(addresses=entry_for("10.0.1.10"))
    assert (result["addresses"]["added"], result["addresses"]["removed"]) == (
        ["10.0.1.10/32 dev eth1"],
        ["10.0.1.10/32 dev ens6"],
    )
    assert not any("10.0.1.10" in line for line in current(node, "ens6"))
    node.ip(["link set eth1 name ens7"])
    assert steps.four(state="absent")["addresses"]["removed"] == ["10.0.1.10/32 dev ens7"]
    assert not any("10.0.1.10" in line for line in current(node, "ens7"))


def test_what_a_killed_run_left_of_a_unit_or_of_the_record_goes(node: NamespaceNode, steps: Steps) -> None:
    """An address that the run has removed must leave the record: another program may add the same address."""
    steps.run(addresses=[*entry_for("10.0.1.10"), *entry_for("10.0.1.20")])
    longer = node.read(RECORD)
    steps.run(addresses=entry_for("10.0.1.10"))
    settled = node.snapshot()
    node.write(RECORD, longer)
    node.write(UNIT.format("eth9").replace("/kubenode", "/.kubenode") + ".kubenode", "[Un")
    assert steps.run(addresses=entry_for("10.0.1.10"))["changed"]
    assert node.snapshot() == settled
    assert not steps.run(addresses=entry_for("10.0.1.10"))["changed"]
