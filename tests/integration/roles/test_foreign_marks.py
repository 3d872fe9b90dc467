# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The profiles' marks beside those of other programs: marked packets keep their uplink and their source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lab import Eni, EniLab
from lab.node import NamespaceNode
from lab.steps import Steps
from lab.uplinks import SERVER, V4, V6, UplinkLab

UPLINKS = [{"name": "eth0"}, {"name": "eth1", "gateway": V4.gateway(1), "gateway6": V6.gateway(1)}]
TUNNELS = (51820, 51821, 51822, 51823, 0x6D6F6C65)
"""The marks that wg-quick and others give to the outer packets of a tunnel."""


@pytest.fixture
def lab() -> Iterator[UplinkLab]:
    with UplinkLab("marks") as running:
        running.node("node1").serve(SERVER)
        yield running


def profile(node: NamespaceNode, check: bool = False, **options: Any) -> dict[str, Any]:
    return node.module("profile", {"name": "symmetric_routing", "options": {"mode": "runtime", **options}}, check=check)


def way_of(node: NamespaceNode, mark: int) -> tuple[str, str]:
    """The link and the source address of packets with a mark that the node sends to the client."""
    (route,) = json.loads(node.run(["ip", "-json", "route", "get", V4.client, "mark", hex(mark)]).stdout)
    return route["dev"], route["prefsrc"]


@pytest.mark.parametrize("mark", TUNNELS, ids=hex)
def test_the_packets_of_a_tunnel_keep_their_uplink_and_the_replies_theirs(lab: UplinkLab, node: NamespaceNode, mark: int) -> None:
    node.ip([f"rule add not fwmark {mark} lookup 51820 priority 32764"])
    before = way_of(node, mark)
    assert before == ("eth0", V4.node())
    result = profile(node, uplinks=UPLINKS)
    assert not result["failed"], result
    assert way_of(node, mark) == before
    assert lab.fetch(V4.node(1), SERVER) is not None
    assert not profile(node, uplinks=UPLINKS)["changed"]


def test_a_mark_by_which_another_program_routes_is_given_to_no_uplink(lab: UplinkLab, node: NamespaceNode) -> None:
    node.ip(["rule add fwmark 0x4/0x4 lookup 77 priority 900", f"route add default via {V4.gateway(0)} table 77"])
    result = profile(node, uplinks=UPLINKS)
    assert [entry["mark"] for entry in result["node"]["uplinks"]] == ["0x2", "0x40"]
    assert lab.fetch(V4.node(1), SERVER) is not None
    node.ip(["rule delete fwmark 0x4/0x4 lookup 77 priority 900"])
    assert not profile(node, uplinks=UPLINKS)["changed"], "what is in force stays in force"
    listed = [{**entry, "mark": mark} for entry, mark in zip(UPLINKS, ("0x10", "0x4"))]
    node.ip(["rule add not fwmark 51820 lookup 51820 priority 32764"])
    refused = profile(node, uplinks=listed)["msg"]
    assert "uplinks[1].mark must be one that rules for 0x4/0x14 do not confuse with 0xca6c, the mark of ip rule 32764:" in refused


RESTORING = """table ip wg-quick-wg0 {
    chain premangle { type filter hook prerouting priority mangle; meta mark set ct mark; }
    chain postmangle { type filter hook postrouting priority mangle; meta mark 0xca6c ct mark set meta mark; }
}
"""


@pytest.mark.parametrize("is_first", [True, False])
def test_a_program_that_gives_marks_of_connections_to_all_packets_diverts_no_request(
    lab: UplinkLab, node: NamespaceNode, is_first: bool
) -> None:
    """As the chains of wg-quick do with packets of UDP."""
    lab.serve(V4)
    if is_first:
        node.run(["nft", "-f", "-"], RESTORING)
    assert not profile(node, uplinks=UPLINKS)["failed"]
    if not is_first:
        node.run(["nft", "-f", "-"], RESTORING)
    assert lab.lost(V4) == []


def test_an_eni_whose_mark_another_program_has_is_refused_with_the_owner() -> None:
    eni = Eni("eth1", pods=["pod1"], has_address=True)
    enis = [{"name": "eth0", "primary": True}, {"name": "eth1", "table": 1001, "gateway": {"ipv4": eni.gateway}}]
    options = {"mode": "runtime", "layout": "custom", "enis": enis, "pod_interfaces": ["veth-*"]}
    with EniLab("marks", [eni]) as lab:
        node: NamespaceNode = lab.node("node1")
        clean = node.snapshot()
        for command, own, error in (
            (
                "ip rule add fwmark 0xca8c lookup 77 priority 900",
                {},
                "_mark must be one that rules for it do not confuse with 0xca8c",
            ),
            (
                "nft add table ip other { chain out { type filter hook output priority 0 ; meta mark set 0xca6e ; } ; }",
                {"interface_marks": [{"name": "eth1", "mark": "0x2"}]},
                "_interface_marks[0].mark must be one that rules for it do not confuse with 0xca6e, the mark of table ip other",
            ),
        ):
            node.run(command.split())
            refused = node.module("profile", {"name": "eni_policy_routing", "options": {**options, **own}})
            assert f"eni_policy_routing{error}" in refused["msg"], refused
            node.run(command.replace("rule add", "rule delete").replace("add table", "delete table").partition(" {")[0].split())
            assert node.snapshot() == clean
        node.ip(["rule add fwmark 0x80/0x80 lookup main priority 1024"])
        assert not node.module("profile", {"name": "eni_policy_routing", "options": options})["failed"], (
            "the rule of a CNI for the same mark"
        )


def test_a_rehearsal_refuses_another_uplink_for_the_packets_of_a_tunnel_unasked(node: NamespaceNode) -> None:
    node.ip(["rule add not fwmark 51820 lookup 51820 priority 32764"])
    before = node.snapshot()
    for marks, loss in ((("0x2", "0x4"), True), (("0x2", "0x1000"), False)):
        listed = [{**entry, "mark": mark} for entry, mark in zip(UPLINKS, marks)]
        change = {"policy_routes": {"uplinks": listed}}
        steps = Steps(node, "datapath_rehearsal", {"changes": [change]})
        if loss:
            refused = steps.refused()
            assert "with 0xca6c, the mark of the policy rule 32764, (udp the node > " in refused, refused
            assert f"The packet leaves by eth1 from {V4.node(1)} instead of by eth0 from {V4.node()}" in refused
        else:
            assert [one["after"]["verdict"] for one in steps.run()["rehearsed"]] == ["forwarded"]
    assert node.snapshot() == before


def test_a_packet_that_changes_its_uplink_or_its_source_is_lost_in_the_rehearsal_of_a_role(node: NamespaceNode) -> None:
    """Nothing on the node shows the mark of the packet, so that the role gives it to an uplink."""
    change = {"profile": {"name": "symmetric_routing", "options": {"mode": "runtime", "uplinks": UPLINKS}}}
    sent = {"destination": V4.client, "protocol": "udp", "destination_port": 51820}
    request = {"source": V4.client, "destination": V4.node(1), "destination_port": SERVER, "interface": "eth1"}
    for packet, loss in (
        ({**sent, "mark": "0xca6c"}, f"The packet leaves by eth1 from {V4.node(1)} instead of by eth0"),
        ({**sent, "mark": "0xca6c", "source": V4.node()}, f"The packet leaves by eth1 from {V4.node()} instead of by eth0"),
        ({**sent, "source": V4.node(1)}, ""),
        (request, ""),
    ):
        steps = Steps(node, "datapath_rehearsal", {"changes": [change], "packets": [packet]})
        if loss:
            assert loss in steps.refused()
        else:
            assert steps.run()["rehearsed"]
