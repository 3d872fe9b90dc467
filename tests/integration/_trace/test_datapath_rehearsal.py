# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""datapath_rehearsal refuses changes that lose packets, before they are made, and changes nothing itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, Node
from lab.azure_bridge import enslave
from lab.controller import Controller
from lab.node import NamespaceNode
from lab.steps import Steps, warnings

PEER = "192.0.2.1"  # the lab's router, over which controllers connect
RULE = {"priority": 700, "to": PEER, "action": "blackhole"}
CONTROLLER = "the controller's SSH connection"


def rehearsal(node: NamespaceNode) -> Steps:
    """A rehearsal as if the controller were the lab's load balancer, and connected by SSH."""
    connection = f"SSH_CONNECTION={PEER} 50123 {node.ipv4} 22"
    return Steps(node, "datapath_rehearsal", through=["env", connection])


def test_rules_that_cut_the_controller_off_are_refused(node: NamespaceNode) -> None:
    steps = rehearsal(node)
    cutting = [{"policy_routes": {"rules": [RULE]}}]
    said = steps.refused(changes=cutting)
    assert CONTROLLER in said and "Nothing was changed" in said and "blackhole" in said, said
    done = steps.run(changes=[{"policy_routes": {"rules": [RULE | {"to": "203.0.113.1"}]}}])
    ((one),) = done["rehearsed"]
    assert (one["what"], one["before"]["verdict"], one["after"]["verdict"]) == (CONTROLLER, "delivered", "delivered")
    assert done["changes"] == ["policy_routes"] and not done["changed"] and not warnings(done)


def test_a_packet_that_is_lost_is_told_by_its_place_and_one_that_was_lost_before_is_a_warning(node: NamespaceNode) -> None:
    steps = rehearsal(node)
    node.run(["ip", "route", "add", "unreachable", "203.0.113.0/24"])
    lost = {"destination": PEER, "protocol": "icmp"}
    lost_before = {"destination": "203.0.113.9", "destination_port": 443}
    rules = [{**RULE, "ipproto": "icmp"}]
    changes: list[dict[str, Any]] = [{}, {"kubenode.datapath.policy_routes": {"rules": rules}}]
    said = steps.refused(changes=changes, packets=[lost_before, lost])
    assert "packets[1] (icmp the node > 192.0.2.1)" in said and "packets[0]" not in said and CONTROLLER not in said, said
    done = steps.run(changes=changes, packets=[lost_before])
    (warning,) = warnings(done)
    assert warning.startswith("Without the changes, packets[0] does not arrive: ") and "With them, too: " in warning


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"changes": [{"policy_routes": {"rules": [{"priority": -1}]}}]}, "policy_routes.rules[0]"),
        ({"changes": [{"nothing": {}}]}, "changes[0] must be a call of one of "),
        (
            {"changes": [{"profile": {"modules": [{"rp_filter": {"mode": "lose"}}], "mode": "runtime"}}]},
            "rp_filter.mode must be one of off",
        ),
        ({"changes": [], "packets": [{"destination": "nowhere"}]}, "packets[0].destination must be "),
        ({"changes": [], "packets": [{"destination": "10.0.0.1"}]}, "packets[0].destination_port must be "),
    ],
)
def test_wrong_options_are_told_as_the_modules_name_them(node: NamespaceNode, options: dict[str, Any], said: str) -> None:
    assert said in rehearsal(node).refused(**options)


def test_what_was_applied_before_is_undone_in_the_twin_and_stays_on_the_node(node: NamespaceNode) -> None:
    filters = {"interfaces": ["eth0"], "mode": "strict"}
    profile = {"modules": [{"rp_filter": filters}, {"nftables_probe_snat": {"boot_condition": "none"}}], "mode": "runtime"}
    Steps(node, "profile", profile).run()
    before = node.snapshot()
    rehearsed = rehearsal(node).run(changes=[{"profile": {**profile, "state": "absent"}}])
    assert rehearsed["changes"] == ["rp_filter", "nftables_probe_snat"] and node.snapshot() == before
    assert rehearsal(node).run(changes=[{"profile": {**profile, "mode": "image"}}])["changes"] == []


def test_without_ssh_and_packets_a_warning_says_that_nothing_was_rehearsed(node: NamespaceNode) -> None:
    done = Steps(node, "datapath_rehearsal", {"changes": [{"policy_routes": {"rules": [RULE]}}]}).run()
    assert done["rehearsed"] == [] and "the controller does not come by SSH, and packets is empty" in str(warnings(done))


def test_a_bridge_of_azure_vnet_is_dissolved_in_the_twin(lab: Lab, node: NamespaceNode) -> None:
    enslave(node)
    before = node.snapshot()
    bridge = {"azure_vnet_bridge": {"bridge": "azure0"}}
    done = rehearsal(node).run(changes=[{"ebtables_cleanup": {}}, bridge])
    ((one),) = done["rehearsed"]
    assert (one["before"]["verdict"], one["after"]["verdict"]) == ("delivered", "delivered"), one
    assert node.snapshot() == before


def profile(rule: dict[str, Any], **options: Any) -> dict[str, Any]:
    given = {"mode": "runtime", "rehearse": True, "modules": [{"policy_routes": {"rules": [rule]}}]}
    return {"kubenode.datapath.profile": {**given, **options}}


def test_a_profile_that_would_cut_off_its_controller_is_refused_over_that_connection(tmp_path: Path) -> None:
    """The node's Python lacks pyroute2: the rehearsal borrows it, so that a check leaves nothing behind."""
    with Lab("rehearsal", nodes=[Node("node1")]) as lab:
        controller = Controller(lab.load_balancer, tmp_path, lab.nodes)
        (node,) = lab.nodes
        before = node.snapshot()
        bare = {"variables": {"ansible_python_interpreter": "/usr/bin/python3"}}
        for arguments in (["--check"], []):
            result = controller.play([profile(RULE)], *arguments, **bare)["node1"]
            assert result["failed"] and CONTROLLER in result["msg"] and "Nothing was changed" in result["msg"], result
            assert node.snapshot() == before
        packets = [{"destination": PEER, "protocol": "icmp"}]
        harmless = profile({**RULE, "to": "203.0.113.1"}, rehearse_packets=packets)
        result = controller.play([harmless], **bare)["node1"]
        assert result["changed"] and not result["failed"], result
        assert [one["what"] for one in result["rehearsed"]] == [CONTROLLER, "packets[0]"]
        wrong = profile(RULE, rehearse_packets=[{"destination": PEER}])
        result = controller.play([wrong])["node1"]
        assert result["failed"] and "packets[0].destination_port must be " in result["msg"], result


STATEFUL = {
    "plain": "",
    "translated source": "table ip nat { chain c { type nat hook postrouting priority 100; masquerade random; }; }",
    "translated destination": "table ip nat { chain c { type nat hook output priority -100; ip daddr 192.0.2.77 dnat to "
    f"{PEER}; }}; }}",
}
HARDENED = """table inet hardened {
    chain input {
        type filter hook input priority 0; policy drop;
        ct state invalid drop
        ct state established,related accept
        tcp dport 22 accept
    }
}
"""


@pytest.mark.parametrize("translation", sampled(STATEFUL, lambda translation: translation == "translated destination"))
def test_connection_tracking_knows_each_reply_to_what_the_node_sends(node: NamespaceNode, translation: str) -> None:
    """The kernel chooses the sequence number, by the ports among other things."""
    node.run(["nft", "-f", "-"], HARDENED + STATEFUL[translation])
    destination = "192.0.2.77" if "destination" in translation else PEER
    packets = [{"destination": destination, "destination_port": 443, "source_port": 40000 + 97 * number} for number in range(64)]
    change = {"policy_routes": {"rules": [RULE | {"to": "203.0.113.1"}]}}
    done = rehearsal(node).run(changes=[change], packets=packets)
    verdicts = {one["before"]["verdict"] for one in done["rehearsed"] if one["what"] != CONTROLLER}
    assert verdicts == {"forwarded"} and not warnings(done)  # there is one for a packet whose reply is lost before the change
