# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datapath_info on a kernel whose parts are loadable modules: in a VM, as many kernels lack IPVS, legacy ebtables and VLANs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab import Lab, Node
from lab.vm import VmNode

LIMIT = 300  # seconds for a module in an emulated machine; an idle one takes a few


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("snapshot", nodes=[Node("node1", system="bookworm", vm=True), Node("node2")]) as running:
        yield running


def look(node: VmNode) -> dict[str, Any]:
    """The snapshot. Reading it loads no module, and registers no legacy table."""
    before = modules(node)
    result = node.module("datapath_info", timeout=LIMIT)
    assert not result["failed"], result
    assert modules(node) == before
    found: dict[str, Any] = result["snapshot"]
    return found


def modules(node: VmNode) -> list[str]:
    """The loaded modules, and the users of each: a registered table counts as a use."""
    return sorted(
        node.run(
            ["sh", "-ec", "cut -d ' ' -f 1,3 /proc/modules; cat /proc/net/*_tables_names 2> /dev/null || true"]
        ).stdout.splitlines()
    )


def test_a_node_without_modules_has_none_loaded(node: VmNode) -> None:
    found = look(node)
    assert [found[subset] for subset in ("nftables", "iptables", "ipsets", "ebtables", "ipvs")] == [[]] * 5
    assert {one["object"] for one in found["unread"]} == {"nft", "iptables", "ebtables"}
    assert all("nfnetlink" in one["reason"] for one in found["unread"])


def test_a_twin_loads_none_either(node: VmNode) -> None:
    before = modules(node)
    result = node.module("datapath_trace", {"packet": {"destination": "192.0.2.1", "protocol": "icmp"}}, timeout=LIMIT)
    assert result["failed"] and modules(node) == before
    assert "needs modules that the kernel has not loaded: veth, nf_tables. Nothing was changed" in result["msg"], result


def test_parts_that_are_modules_are_read_while_they_are_in_use(node: VmNode) -> None:
    node.ip(
        [
            "link add link eth0 name eth0.7 type vlan id 7",
            "link add red type vrf table 1007",
            "link add gre1 type gre local 192.0.2.1 remote 192.0.2.2",
            "link add dummy0 type dummy",
        ]
    )
    for words in (
        "ebtables-legacy -t broute -A BROUTING -p IPv4 -j DROP",
        "ebtables-legacy -t filter -L",
        "iptables-legacy -t mangle -N OWN",
        "ipvsadm --add-service --tcp-service 10.96.0.10:53 --scheduler rr --persistent 600",
        "ipvsadm --add-server --tcp-service 10.96.0.10:53 --real-server 10.244.0.5:5353 --masquerading --weight 3",
        "ipvsadm --add-service --udp-service [2001:db8::10]:53 --scheduler sh",
        "ipvsadm --add-server --udp-service [2001:db8::10]:53 --real-server [2001:db8::5]:5353 --masquerading",
        "ipvsadm --add-service --fwmark-service 7 --scheduler rr",
    ):
        node.run(words.split())
    found = look(node)
    links = {link["name"]: link for link in found["links"]}
    assert (links["eth0.7"]["kind"], links["eth0.7"]["parent"], links["eth0.7"]["settings"]) == ("vlan", "eth0", {"id": 7})
    assert links["red"]["settings"] == {"table": 1007}
    (chain,) = found["ebtables"]
    assert chain == {
        "backend": "legacy",
        "table": "broute",
        "chain": "BROUTING",
        "policy": "ACCEPT",
        "rules": ["-p IPv4 -j DROP"],
    }
    assert [(one["backend"], one["table"]) for one in found["iptables"]] == [("legacy", "mangle")]
    unread = {one["object"]: one["subset"] for one in found["unread"]}
    assert {"gre1": "links", "ebtable_filter": "ebtables"}.items() <= unread.items() and "dummy0" not in unread
    servers = {one["protocol"]: one for one in found["ipvs"]}
    assert servers["tcp"] == {
        "protocol": "tcp", "address": "10.96.0.10", "port": 53, "scheduler": "rr",
        "flags": servers["tcp"]["flags"],
        "destinations": [{"address": "10.244.0.5", "port": 5353, "method": "Masq", "weight": 3}],
    }  # fmt: skip
    assert servers["tcp"]["flags"].startswith("persistent ")
    assert (servers["udp"]["address"], servers["udp"]["destinations"][0]["address"]) == ("2001:db8::10", "2001:db8::5")
    assert servers["fwm"] == {"protocol": "fwm", "fwmark": "0x7", "scheduler": "rr", "flags": "", "destinations": []}


VRF = (
    "netns add a", "netns add b",
    "link add va type veth peer name eth0 netns a", "link add vb type veth peer name eth0 netns b",
    "link add blue type vrf table 1010", "link set blue up", "link set va master blue up", "link set vb master blue up",
    "address add 10.1.0.1/24 dev va", "address add 10.2.0.1/24 dev vb",
    "-n a link set eth0 up", "-n a address add 10.1.0.2/24 dev eth0", "-n a route add default via 10.1.0.1",
    "-n b link set eth0 up", "-n b address add 10.2.0.2/24 dev eth0", "-n b route add default via 10.2.0.1",
    "-n b address add 198.51.100.7/32 dev eth0", "-n b address add 198.51.100.8/32 dev eth0",
    "route add 198.51.100.7/32 via 10.2.0.2 table 1010", "route add 198.51.100.8/32 via 10.2.0.2 onlink dev vb",
    "route add unreachable default table 1010 metric 4278198272",
)  # fmt: skip

# The result of a connection to a port without a server: a host that gets the request refuses.
CONNECT = """
import errno, socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=5)
except OSError as error:
    unreachable = errno.ENETUNREACH, errno.EHOSTUNREACH
    print("refused" if error.errno == errno.ECONNREFUSED else "unreachable" if error.errno in unreachable else "silent")
"""


@pytest.mark.thorough
def test_the_twin_of_a_vrf_on_a_kernel_without_them_agrees_with_packets(lab: Lab, node: VmNode) -> None:
    """One of the two addresses behind vb has a route in the VRF's table, and the other in table main."""
    for line in VRF:
        node.run(["ip", *line.split()])
    node.run(["sysctl", "net.ipv4.ip_forward=1"])
    snapshot = look(node)
    for destination in ("10.2.0.2", "198.51.100.7", "198.51.100.8", "10.1.0.1"):
        sent = node.run(["ip", "netns", "exec", "a", "python3", "-c", CONNECT, destination]).stdout.strip()
        packet = {"source": "10.1.0.2", "destination": destination, "destination_port": 9, "interface": "va"}
        found = lab.node("node2").module("datapath_trace", {"snapshot": snapshot, "packet": packet})
        assert not found["failed"], found
        arrives = found["verdict"] in ("forwarded", "delivered")
        assert sent == ("refused" if arrives else "unreachable"), (destination, sent, found)
        assert arrives is (destination != "198.51.100.8")
        if destination == "198.51.100.8":
            assert "table 1010" in found["culprit"]["text"], found["culprit"]
    assert any(note.startswith("blue is a VRF.") for note in found["assumed"])
