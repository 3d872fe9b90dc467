# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profile symmetric_routing on a node that boots: its uplinks change, and the rules and tables follow without a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from lab.container import SystemdNode
from lab.uplinks import SERVER, V4, V6, UplinkLab
from lab.waiting import until

UNIT = "kubenode-policy-routes-75.service"
UPLINKS = [{"name": "eth0"}, {"name": "eth1"}]
KEYFILE = "/etc/NetworkManager/system-connections/second.nmconnection"
CONNECTION = f"""\
[connection]
id=second
interface-name=eth1

[ipv4]
method=manual
address1={V4.node(1)}/24,{V4.gateway(1)}

[ipv6]
method=manual
address1={V6.node(1)}/64
gateway={V6.gateway(1)}
"""


class Site:
    """A node whose second uplink has no default route, because a connection of NetworkManager keeps its gateway."""

    def __init__(self, lab: UplinkLab) -> None:
        self.lab = lab
        self.node: SystemdNode = lab.node("node1")
        self.node.write(KEYFILE, CONNECTION)
        self.clean = self.node.snapshot()

    def run(self, check: bool = False, **options: Any) -> dict[str, Any]:
        options = {"name": "symmetric_routing", "options": {"uplinks": UPLINKS, **options}}
        result = self.node.module("profile", options, check=check)
        assert not result["failed"], result.get("msg", result)
        return result

    def serve(self) -> None:
        self.node.forget_services()
        self.node.serve(SERVER)

    def answers(self) -> list[bool]:
        return [self.lab.fetch(family.node(1), SERVER) is not None for family in (V4, V6)]

    def wait(self) -> None:
        until("both families are answered by eth1", self.answers, self, expected=[True, True])

    def ours(self) -> list[str]:
        """The rules and routes of the profile, without the number of the table, which follows from the link's index."""
        output = [
            self.node.run_from_host(["ip", *words]) for words in (["rule"], ["-6", "rule"], ["route", "show", "table", "all"])
        ]
        lines = [line.strip() for line in "".join(output).splitlines() if "proto 75" in line]
        return sorted(re.sub(r"(table|lookup) 10\d\d", r"\1 N", line) for line in lines)

    def last_lines(self) -> str:
        return self.node.run(["journalctl", "-b", "-o", "cat", "-u", UNIT]).stdout + "\n".join(self.ours())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with UplinkLab("symmetric-boots", system="bookworm") as lab:
        yield Site(lab)


@pytest.fixture
def converged(site: Site) -> Site:
    site.run()
    site.serve()
    site.wait()
    return site


def test_the_gateway_of_a_network_daemon_is_read_and_absent_leaves_nothing(site: Site) -> None:
    site.serve()
    assert site.answers() == [False, False]
    predicted = site.run(check=True)
    assert predicted["changed"] and site.node.snapshot() == site.clean
    result = site.run()
    assert result["changed"] and result["diff"] == predicted["diff"]
    assert result["node"]["gateways"]["eth1"] == {"ipv4": V4.gateway(1), "ipv6": V6.gateway(1)}
    site.wait()
    assert not site.run()["changed"]
    assert site.run(state="absent")["changed"]
    assert site.answers() == [False, False]
    assert site.node.snapshot() == site.clean


def test_another_gateway_is_followed(converged: Site) -> None:
    """As when a DHCP server names another router: the client replaces the default route."""
    node, lab = converged.node, converged.lab
    try:
        lab.move_gateway(1, 2)
        node.ip([f"route replace default via {family.host(family.segments[1], 2)} dev eth1 metric 3000" for family in (V4, V6)])
        route = f"default via {V4.segments[1]}2 dev eth1 table N proto 75 onlink"
        until("the route by the other gateway", lambda: route in converged.ours(), converged)
        node.ip(["neighbour flush dev eth1"])
        converged.wait()
        assert not converged.run()["changed"]
    finally:
        lab.move_gateway(1, 1, former=2)
        node.ip([f"route delete default via {family.host(family.segments[1], 2)} dev eth1" for family in (V4, V6)])
    converged.wait()


def test_a_lease_without_a_route_is_followed(converged: Site) -> None:
    """The client is configured to set no default route. The folder of leases exists before the listener watches it."""
    node = converged.node
    index = node.run(["cat", "/sys/class/net/eth1/ifindex"]).stdout.strip()
    path = f"/run/systemd/netif/leases/{index}"

    def lease(gateway: str) -> None:
        node.write(f"{path}.new", f"ADDRESS={V4.node(1)}\nROUTER={gateway}\n")
        node.run(["mv", f"{path}.new", path])

    def is_by(gateway: str) -> bool:
        return f"default via {gateway} dev eth1 table N proto 75 onlink" in converged.ours()

    other = V4.host(V4.segments[1], 9)
    lease(V4.gateway(1))
    node.run(["systemctl", "restart", UNIT])
    lease(other)
    until("the gateway of the lease", lambda: is_by(other), converged)
    lease(V4.gateway(1))
    until("the former gateway", lambda: is_by(V4.gateway(1)), converged)
    node.remove("/run/systemd/netif")
    converged.wait()


def test_an_address_that_comes_and_goes_has_its_rules(converged: Site) -> None:
    """As kube-vip adds the virtual address to a link."""
    node, before = converged.node, converged.ours()
    rule = f"1400:\tfrom {V4.virtual} lookup N proto 75"
    node.ip([f"address add {V4.virtual}/32 dev eth1"])
    until("the rule of the virtual address", lambda: rule in converged.ours(), converged)
    assert converged.lab.fetch(V4.virtual, SERVER) is not None
    node.ip([f"address delete {V4.virtual}/32 dev eth1"])
    until("the former rules", converged.ours, converged, expected=before)


def test_the_route_to_the_pods_of_a_new_node_is_followed(converged: Site) -> None:
    before, added = converged.ours(), f"172.30.9.0/24 via {V4.neighbour} dev eth0 table N proto 75 onlink"
    converged.node.ip([f"route add 172.30.9.0/24 via {V4.neighbour}"])
    until("the route in both tables", lambda: converged.ours().count(added), converged, expected=2)
    converged.node.ip(["route delete 172.30.9.0/24"])
    until("the former routes", converged.ours, converged, expected=before)


def test_a_link_may_go_down_and_come_back(converged: Site) -> None:
    node, before = converged.node, converged.ours()
    node.ip(["link set eth1 down"])
    node.ip(["link set eth1 up", f"address replace {V6.node(1)}/64 dev eth1 nodad"])
    until("the former rules and routes", converged.ours, converged, expected=before)
    converged.wait()


def test_a_card_may_be_replaced(converged: Site) -> None:
    """Its link has another index, and so its table another number."""
    before = converged.ours()
    converged.lab.unplug("eth1")
    until("eth1 has no routes", lambda: not [line for line in converged.ours() if "dev eth1" in line], converged)
    converged.lab.plug("eth1")
    until("the former rules and routes", converged.ours, converged, expected=before)
    converged.wait()
    assert not converged.run()["changed"]


def test_a_boot_loads_what_a_run_then_finds_unchanged(converged: Site) -> None:
    before = converged.ours()
    converged.node.reboot()
    converged.serve()
    until("the former rules and routes", converged.ours, converged, expected=before)
    converged.wait()
    assert not converged.run()["changed"]


def test_an_image_has_the_query_and_each_boot_the_answer(site: Site) -> None:
    site.run(state="absent")
    result = site.run(mode="image")
    assert result["changed"] and result["node"]["gateways"] == {}
    assert site.ours() == []
    site.node.reboot()
    site.serve()
    site.wait()
    assert not site.run()["changed"] and not site.run(mode="image")["changed"]
    site.run(state="absent")
    assert site.ours() == []
