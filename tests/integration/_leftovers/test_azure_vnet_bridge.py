# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""azure_vnet_bridge on a real kernel: a node behind a bridge as azure-vnet makes it, and the node's traffic meanwhile."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lab import Lab, Node, netlink_recorder
from lab.azure_bridge import enslave
from lab.controller import Controller
from lab.machine import Machine
from lab.node import NamespaceNode
from lab.steps import Steps
from lab.waiting import until

PORT = 9000
# On the bridge, besides the objects that azure-vnet moves there.
ADDRESSES = [
    "address add 10.9.0.1/24 dev azure0 valid_lft 4000 preferred_lft 3000",
    "address add 10.9.0.2/24 dev azure0",
    "address add 10.9.1.1/24 dev azure0 label azure0:1 noprefixroute",
    "address add 10.9.2.1 peer 10.9.2.2/32 dev azure0 metric 77",
    "address add 169.254.7.7/32 dev azure0 scope link",
    "address add fd09::1/64 dev azure0 nodad valid_lft 4000 preferred_lft 3000",
    "address add fd09::2/64 dev azure0 nodad",
    "address add fd09:1::1/64 dev azure0 nodad noprefixroute",
]
ROUTES = [
    "route add 10.9.1.0/24 dev azure0 proto static scope link src 10.9.1.1 metric 9",
    "route add default via 10.9.1.9 dev azure0 table 1003 metric 5 mtu lock 1400 advmss 1300",
    "route append default via 10.9.1.8 dev azure0 table 1003 metric 5 mtu lock 1400",
    "route add 10.8.0.0/16 via 203.0.113.1 dev azure0 onlink table 100000 proto 99",
    "route add 10.7.0.0/16 via inet6 fe80::99 dev azure0",
    "route add 10.6.0.0/16 nexthop via 10.9.0.9 dev azure0 weight 3 nexthop via 10.240.0.1 dev other0",
    "route add fd09:1::/64 dev azure0 metric 9",
    "route add default via fe80::98 dev azure0 table 1003 pref high expires 3000 proto ra",
    "route add fd08::/64 nexthop via fe80::97 dev azure0 nexthop via fe80::96 dev other0 weight 2",
    "neighbour add 10.9.0.77 lladdr a2:96:88:20:cb:c6 nud permanent dev azure0",
]
OTHER = ["link add other0 type veth peer name other1", "link set other1 up", "link set other0 up"]


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    """A node that azure-vnet served."""
    node: NamespaceNode = lab.node("node1")
    enslave(node)
    return node


@pytest.fixture
def rich(node: NamespaceNode) -> NamespaceNode:
    """A node whose bridge has every kind of address and route."""
    make_rich(node)
    return node


def make_rich(node: NamespaceNode) -> None:
    node.ip([*OTHER, "address add 10.240.0.2/24 dev other0", *ADDRESSES, *ROUTES])


def run(node: NamespaceNode, check: bool = False, **options: Any) -> dict[str, Any]:
    return Steps(node, "azure_vnet_bridge", options).run(check)


def as_if_the_nics(node: NamespaceNode) -> dict[str, set[str]]:
    """Addresses and routes as they would be without the bridge."""
    snapshot = node.snapshot()
    return {
        key: {re.sub(r"\bazure0\b", "eth0", line) for line in snapshot[key]}
        for key in ("addresses", "rules -4", "rules -6", "routes -4", "routes -6")
    }


# Objects that move


def test_checked_run_checked_run_and_the_node_is_as_before_azure_vnet(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    clean = node.snapshot()
    enslave(node)
    result = Steps(node, "azure_vnet_bridge").four()
    assert (result["bridge"], result["interface"]) == ("azure0", "eth0")
    assert result["addresses"] == [f"{node.ipv4}/24", f"{node.address}/64"]
    assert "ip route default via 192.0.2.1 table main" in result["routes"]
    assert "ip route default via 192.0.2.1 table main dev azure0" in result["diff"][0]["before"]
    assert "ip route default via 192.0.2.1 table main dev eth0" in result["diff"][0]["after"]
    assert node.snapshot() == clean
    again = run(node)
    assert (again["bridge"], again["interface"], again["addresses"], again["routes"]) == ("", "", [], [])


def test_addresses_and_routes_of_all_tables_keep_all_that_they_have(rich: NamespaceNode) -> None:
    expected = as_if_the_nics(rich)
    Steps(rich, "azure_vnet_bridge").four()
    assert as_if_the_nics(rich) == expected
    seconds = rich.run_from_host(["ip", "-json", "address", "show", "eth0"])
    lifetimes = {one["local"]: one["valid_life_time"] for link in json.loads(seconds) for one in link.get("addr_info", ()) if one}
    assert all(3900 < lifetimes[address] <= 4000 for address in ("10.9.0.1", "fd09::1"))
    order = [one for one in lifetimes if one.startswith(("10.", "fd09"))]
    assert order.index("10.9.0.1") < order.index("10.9.0.2") and order.index("fd09::2") < order.index("fd09::1")
    assert re.search(r"expires 29\d\dsec", rich.run_from_host(["ip", "-6", "route", "show", "table", "1003"]))


def test_what_the_nic_has_already_is_left_to_it(node: NamespaceNode) -> None:
    """A DHCP client that never stopped has added the address to the NIC again."""
    node.ip([f"address add {node.ipv4}/24 dev eth0", "route append default via 192.0.2.1 dev eth0"])
    expected = as_if_the_nics(node)
    run(node)
    assert as_if_the_nics(node) == expected


def test_a_bridge_without_anything_just_goes(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    clean = node.snapshot()
    node.ip(["link add azure7 type bridge", "link set azure7 up"])
    result = Steps(node, "azure_vnet_bridge").four()
    assert (result["bridge"], result["interface"]) == ("azure7", "")
    assert node.snapshot() == clean


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_the_gateway_of_ipv6_pods_ends_with_the_bridge(node: NamespaceNode, backend: str) -> None:
    expected = as_if_the_nics(node)
    node.ip(["address add fd00:10:241::1/64 dev azure0 nodad"])
    assert "fd00:10:241::1/64" in run(node, check=True)["addresses"], "nothing tells that it served pods"
    snat = "-t nat -I POSTROUTING 1 -s fd00:10:241::/64 -j SNAT --to fd00:10:240::4"
    node.run([f"ip6tables-{backend}", *snat.split()])
    result = Steps(node, "azure_vnet_bridge").four()
    assert "fd00:10:241::1/64" not in result["addresses"]
    assert "ip address fd00:10:241::1/64 dev azure0" in result["diff"][0]["before"]
    assert "fd00:10:241" not in result["diff"][0]["after"]
    assert as_if_the_nics(node) == expected
    assert "fd00:10:241::" not in node.run(["ip", "-6", "route", "show", "table", "all"]).stdout


def test_a_bridge_by_the_name_that_the_configuration_has(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    path = "/etc/cni/net.d/10-azure.conflist.cilium_bak"
    node.write(path, "")
    clean = node.snapshot()
    enslave(node, bridge="podbr")
    assert not run(node)["changed"]
    assert run(node, check=True, bridge="podbr")["bridge"] == "podbr"
    plugin = {"type": "azure-vnet", "mode": "bridge", "bridge": "podbr"}
    node.write(path, json.dumps({"plugins": [plugin]}))
    assert run(node)["bridge"] == "podbr"
    node.write(path, "")
    assert node.snapshot() == clean


def test_a_node_without_a_bridge_costs_no_process_and_no_message(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node1")
    with node.count_processes() as calls:
        result, messages = watched_run(node)
    assert (result["changed"], messages, calls) == (False, [], [])


# The gap


class Traffic:
    """Datagrams that are echoed, a thousand a second, and a TCP connection with data in both directions."""

    def __init__(self, sender: Machine, node: NamespaceNode, address: str, family: socket.AddressFamily) -> None:
        self.sent, self.answered, self.stall = 0, 0, 0.0
        self._listener = node.socket(family, socket.SOCK_STREAM)
        self._listener.bind(("", PORT + family))
        self._listener.listen()
        self._echo = node.socket(family, socket.SOCK_DGRAM)
        self._echo.bind(("", PORT + family))
        self._datagrams = sender.socket(family, socket.SOCK_DGRAM)
        self._datagrams.connect((address, PORT + family))
        self._connection = sender.socket(family, socket.SOCK_STREAM)
        self._connection.connect((address, PORT + family))
        self._peer = self._listener.accept()[0]
        self._is_over = threading.Event()
        for one in (self._echo, self._datagrams, self._connection, self._peer):
            one.settimeout(0.5)
        self.threads = [threading.Thread(target=work) for work in (self._send, self._answer, self._count, self._talk)]

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        time.sleep(0.3)
        self._is_over.set()
        for thread in self.threads:
            thread.join()
        for one in (self._listener, self._echo, self._datagrams, self._connection, self._peer):
            one.close()

    @property
    def lost(self) -> int:
        return self.sent - self.answered

    def _send(self) -> None:
        while not self._is_over.is_set():
            self._datagrams.send(b"x")
            self.sent += 1
            time.sleep(0.001)

    def _answer(self) -> None:
        while not self._is_over.is_set():
            with contextlib.suppress(TimeoutError):
                self._echo.sendto(*self._echo.recvfrom(9))

    def _count(self) -> None:
        while self.answered < self.sent or not self._is_over.is_set():
            try:
                self._datagrams.recv(9)
            except TimeoutError:
                return
            self.answered += 1

    def _talk(self) -> None:
        """Send data, and receive the echo."""
        while not self._is_over.is_set():
            started = time.monotonic()
            self._connection.sendall(b"x")
            self._peer.recv(1)
            self._peer.sendall(b"x")
            self._connection.recv(1)
            self.stall = max(self.stall, time.monotonic() - started)
            time.sleep(0.001)


@pytest.mark.parametrize("rp_filter", [0, 1])
def test_connections_go_on_and_hardly_a_packet_is_lost(lab: Lab, rich: NamespaceNode, rp_filter: int) -> None:
    rich.set_sysctls({f"net.ipv4.conf.{link}.rp_filter": rp_filter for link in ("all", "azure0", "eth0")})
    four = Traffic(lab.load_balancer, rich, rich.ipv4, socket.AF_INET)
    six = Traffic(lab.load_balancer, rich, rich.address, socket.AF_INET6)
    with four, six:
        time.sleep(0.3)
        assert run(rich)["changed"]
    print(
        f"rp_filter {rp_filter}: {four.lost} of {four.sent} and {six.lost} of {six.sent} lost, {four.stall:.3f} {six.stall:.3f}"
    )
    assert min(four.sent, six.sent) > 300
    assert max(four.lost, six.lost) <= 50
    assert max(four.stall, six.stall) < 1


def test_the_ssh_connection_of_the_run_survives(lab: Lab, node: NamespaceNode, tmp_path: Path) -> None:
    controller = Controller(lab.load_balancer, tmp_path, [node])
    before = as_if_the_nics(node)
    told = {"ansible.builtin.raw": "echo $SSH_CONNECTION >> /run/connections"}
    controller.play([told, task(), told])
    first, second = node.read("/run/connections").splitlines()
    assert first == second and first.startswith("192.0.2.1 ")
    assert as_if_the_nics(node) == before and "azure0" not in "".join(node.snapshot()["links"])


# Under a checkpoint


def task(**options: Any) -> dict[str, Any]:
    return {"kubenode.datapath.azure_vnet_bridge": options}


def test_a_node_that_can_be_reached_keeps_what_it_got(lab: Lab, rich: NamespaceNode, tmp_path: Path) -> None:
    controller = Controller(lab.load_balancer, tmp_path, [rich])
    expected = as_if_the_nics(rich)
    result = controller.play([task(checkpoint=30)])["node1"]
    assert (result["changed"], result["bridge"], result["failed"]) == (True, "azure0", False), result
    assert as_if_the_nics(rich) == expected
    assert not rich.exists("/run/kubenode-checkpoint")


def test_a_node_that_cannot_be_reached_gets_its_bridge_back(lab: Lab, rich: NamespaceNode, tmp_path: Path) -> None:
    rules = "table inet guard { chain input { type filter hook input priority 0; iifname eth0 tcp dport 22 drop; }; }"
    rich.run(["nft", "-f", "-"], rules)
    controller = Controller(lab.load_balancer, tmp_path, [rich])
    before, links = network(rich), bridge_in_full(rich)
    result = controller.play([task(checkpoint=5)])["node1"]
    assert result["failed"] and "as it was not confirmed over a new connection within 5 s" in result["msg"], result
    assert "Could not be undone" not in result["msg"]
    assert (network(rich), bridge_in_full(rich)) == (before, links)


@pytest.mark.thorough
def test_a_run_that_is_killed_between_the_links_is_rolled_back_by_the_node(rich: NamespaceNode) -> None:
    before, links = network(rich), bridge_in_full(rich)
    _result, messages = watched_run(rich, 43, "SIGKILL", checkpoint=5)
    assert "19" in messages and "17" not in messages  # RTM_SETLINK takes the NIC out, RTM_DELLINK removes the bridge
    assert network(rich) != before
    until("the node has rolled back", lambda: network(rich), rich, expected=before, pause=0.2)
    assert (network(rich), bridge_in_full(rich)) == (before, links)


# Failures

# The interpreter that starts the module is replaced by a watcher that does the same.
WATCH = 'python=$1 script=$2 log=$3 last=$4 signal=$5; shift 6; exec "$python" "$script" "$log" "$last" "$signal" "$@"'


def watched_run(node: NamespaceNode, last: int = 0, signal: str = "SIGINT", **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The result, and the types of the messages sent, without dumps; the module gets the signal at message ``last``."""
    node.write("/run/messages", "")
    watcher = [sys.executable, str(Path(netlink_recorder.__file__)), "/run/messages", str(last), signal]
    result = node.module("azure_vnet_bridge", options, through=["sh", "-c", WATCH, "sh", *watcher])
    messages = node.read("/run/messages").split()
    node.remove("/run/messages")
    return result, messages


def permanent_neighbours(node: NamespaceNode) -> str:
    return node.run_from_host(["ip", "neighbour", "show", "nud", "permanent"])


def network(node: NamespaceNode) -> dict[str, Any]:
    return {key: value for key, value in node.snapshot().items() if key != "files"}


def bridge_in_full(node: NamespaceNode) -> list[dict[str, Any]]:
    """All links, without values that change by themselves."""
    links: list[dict[str, Any]] = json.loads(node.run_from_host(["ip", "-details", "-json", "link"]))
    for link in links:
        for part in ("info_data", "info_slave_data"):
            data = link.get("linkinfo", {}).get(part, {})
            for key in [key for key in data if "timer" in key or "topology" in key]:
                del data[key]
        for key in ("promiscuity", "allmulti"):
            link.pop(key, None)
    return links


def test_interrupted_at_any_message_all_is_undone(lab: Lab, rich: NamespaceNode) -> None:
    twin = lab.node("node2")
    enslave(twin)
    make_rich(twin)
    _result, messages = watched_run(twin)
    assert len(messages) > 40
    before, links, neighbours = network(rich), bridge_in_full(rich), permanent_neighbours(rich)
    for last in (1, *range(6, len(messages) - 1, 6), len(messages) - 1, len(messages)):
        result, _messages = watched_run(rich, last)
        assert result["failed"], result
        assert network(rich) == before
        assert bridge_in_full(rich) == links
        assert permanent_neighbours(rich) == neighbours


def test_what_the_kernel_refuses_is_named_and_all_is_undone(rich: NamespaceNode) -> None:
    rich.set_sysctls({"net.ipv6.conf.eth0.disable_ipv6": 1})
    before = rich.snapshot()
    failed = Steps(rich, "azure_vnet_bridge").call()
    assert f"the kernel refused to add {rich.address}/64 to eth0: Permission denied" in failed["msg"], failed
    assert rich.snapshot() == before


def refused(node: NamespaceNode, **options: Any) -> str:
    return Steps(node, "azure_vnet_bridge").refused(**options)


def test_pods_in_the_bridge_are_named_and_nothing_is_changed(node: NamespaceNode) -> None:
    node.ip([f"link add azv{number:011x} master azure0 type veth peer name pod{number}" for number in (1, 2)])
    message = refused(node)
    assert "azure0 still serves azv00000000001, azv00000000002. Nothing was changed. " in message
    node.ip([f"link del azv{number:011x}" for number in (1, 2)] + ["link add tap9 master azure0 type veth peer name p"])
    assert "interface must be given: eth0 and tap9 are ports of azure0" in refused(node)
    assert "azure0 still serves tap9" in refused(node, interface="eth0")


@pytest.mark.parametrize(
    ("links", "options", "message"),
    [
        (["link add azure9 type bridge"], {}, "bridge must be given: azure0 and azure9 are bridges"),
        ([], {"bridge": "eth0"}, "bridge must be a bridge; eth0 is a link of kind veth"),
        ([], {"interface": "eth9"}, "interface must be a link of this node: "),
        ([], {"bridge": "a/b"}, "bridge must be a link's name"),
        (
            ["nexthop add id 7 via 192.0.2.1 dev azure0", "route add 10.5.0.0/16 nhid 7"],
            {},
            "ip route 10.5.0.0/16 via 192.0.2.1 table main leads over bridge azure0 by a nexthop object",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(node: NamespaceNode, links: list[str], options: dict[str, str], message: str) -> None:
    node.ip(links)
    assert message in refused(node, **options)


def test_a_bridge_that_lost_its_nic_gives_it_back_what_it_has(node: NamespaceNode) -> None:
    expected = as_if_the_nics(node)
    node.ip(["link set eth0 nomaster"])
    failed = Steps(node, "azure_vnet_bridge").call()
    assert "interface must be given: no link is in bridge azure0" in failed["msg"]
    assert run(node, interface="eth0")["changed"]
    assert as_if_the_nics(node) == expected


def test_others_that_count_on_the_bridge_are_warned_of(node: NamespaceNode) -> None:
    node.write("/etc/systemd/network/10-bridge.netdev", "[NetDev]\nName=azure0\nKind=bridge\n")
    node.ip(["rule add iif azure0 lookup 7 priority 70"])
    warnings = json.dumps(run(node)["warnings"])
    assert "/etc/systemd/network/10-bridge.netdev names azure0" in warnings
    assert "ip rule 70: from all iif azure0 lookup 7 is about azure0" in warnings


def test_dns_of_the_bridge_is_the_nics(tmp_path: Path) -> None:
    """systemd-resolved, which bullseye has in the package systemd."""
    with Lab("dns", nodes=[Node("node1", system="bullseye")]) as lab:
        node = lab.node("node1")
        node.run(["systemctl", "start", "systemd-resolved"])
        enslave(node)
        node.run(["resolvectl", "dns", "azure0", "168.63.129.16", "fd00::53"])
        node.run(["resolvectl", "domain", "azure0", "internal.cloudapp.net", "~."])
        node.run(["resolvectl", "dns", "eth0", "192.0.2.53"])

        def of(link: str, what: str) -> str:
            return str(node.run(["resolvectl", what, link]).stdout).partition("): ")[2].strip()

        failed = node.module("azure_vnet_bridge", {"checkpoint": 20, "checkpoint_command": "false"})
        assert failed["failed"] and "Could not be undone" not in failed["msg"], failed
        assert (of("azure0", "dns"), of("eth0", "dns")) == ("168.63.129.16 fd00::53", "192.0.2.53")
        result = node.module("azure_vnet_bridge")
        assert result["dns"] == ["168.63.129.16", "fd00::53"], result
        assert (of("eth0", "dns"), of("eth0", "domain")) == (
            "168.63.129.16 fd00::53 192.0.2.53",
            "internal.cloudapp.net ~.",
        )
        assert not node.module("azure_vnet_bridge")["changed"]
