# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guilty changes of real nodes, which the twins of snapshots find among innocent ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._explain import explain_backend, lost_paths_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._explain.explanation import Explanation
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import entrance, packet_text
from lab import network

from .._audit.layouts import Bridge, Calico, Cilium, EniPolicyRouting, Layout, NftablesBridge, Tunnel, TwoUplinks, Vxlan
from .._audit.mutation_trials import snapshot_of
from .._trace import random_nodes
from . import histories

TO_POD = "tcp 198.51.100.7:40000 > 10.60.1.5:8080 in eth0"


def _states(layout: Layout, *commands: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the snapshots of a node before and after commands, which may begin with the name of a machine and a colon."""
    with network.built(layout) as machines, network.listening(machines):
        before = snapshot_of(layout, machines)
        for command in commands:
            machine, _colon, words = command.rpartition(": ")
            machines[machine or "node"].run(shlex.split(words))
        return before, snapshot_of(layout, machines)


def _explained(layout: Layout, line: str, *commands: str) -> Explanation:
    before, after = _states(layout, *commands)
    packet = entrance.packet(packet_text.options(line), before)
    return explain_backend.explain(before, after, packet, {}, random_nodes.run)


INNOCENT = (
    "ip rule add to 203.0.113.0/24 lookup 300 priority 900",
    "ip route add 203.0.113.0/24 via 192.0.2.1 dev eth0",
    "sysctl -q -w net.ipv4.conf.cali2.send_redirects=0",
    "iptables-nft -I FORWARD -s 203.0.113.9 -j DROP",
)
SCENES: dict[str, tuple[str, Sequence[str], Sequence[str], bool | None]] = {
    "a policy rule is gone": (
        TO_POD, ["ip rule del priority 32766"], ["ip rule 32766: from all lookup main is gone"], True,
    ),
    "a route leads elsewhere": (
        TO_POD, ["ip route replace 10.60.1.5 dev cali2"],
        ["route 10.60.1.5 dev cali2 scope link is in the place of 10.60.1.5 dev cali1 scope link"], True,
    ),
    "two rules, each of which stops it alone": (
        TO_POD, ["iptables-nft -I FORWARD -d 10.60.1.5 -j DROP", "ip rule add to 10.60.1.5 blackhole priority 300"],
        ["rule of ip filter: -A FORWARD -d 10.60.1.5/32 -j DROP is new", "ip rule 300: from all to 10.60.1.5 blackhole is new"],
        True,
    ),
    "a policy and a rule, which only together stop it": (
        TO_POD,
        ["iptables-nft -N OWN", "iptables-nft -I FORWARD -d 10.60.1.5 -j OWN", "iptables-nft -A OWN -j DROP"],
        ["rule of ip filter: -A FORWARD -d 10.60.1.5/32 -j OWN is new", "rule of ip filter: -A OWN -j DROP is new"], True,
    ),
    "a rule of nft, in its words": (
        TO_POD,
        ["nft 'table inet own { chain c { type filter hook forward priority 0; ip daddr 10.60.1.5 tcp dport 8080 drop; }; }'"],
        ["rule of inet own c: ip daddr 10.60.1.5 tcp dport 8080 drop is new"], None,
    ),
    "a link that is down, with its routes": (TO_POD, ["ip link set cali1 down"], ["link cali1 is down"], True),
    "the address of a gateway": (
        "tcp 203.0.113.5:40000 > 192.0.2.11:22 in eth0", ["ip addr del 192.0.2.11/24 dev eth0"],
        ["address 192.0.2.11/24 dev eth0 is gone"], True,
    ),
    "the size of a link, which only a large packet meets": (
        f"{TO_POD} length 1500 df", ["ip link set cali1 mtu 1280"], ["mtu of cali1 is 1280 instead of 1500"], True,
    ),
    "a rule of IPv6": (
        "tcp [2001:db8:9::7]:40000 > [fd00:60::5]:8080 in eth0", ["ip -6 rule add fwmark 0/1 blackhole priority 300"],
        ["ip -6 rule 300: from all fwmark 0x0/0x1 blackhole is new"], True,
    ),
    "a setting": (
        TO_POD, ["sysctl -q -w net.ipv4.conf.eth0.forwarding=0"], ["net.ipv4.conf.eth0.forwarding is 0 instead of 1"], True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENES)
def test_guilty_changes_are_named_among_innocent_ones(name: str) -> None:
    line, commands, guilty, is_undone = SCENES[name]
    explained = _explained(Calico(), line, *INNOCENT[:2], *commands, *INNOCENT[2:])
    assert sorted(change.text for change in explained.guilty) == sorted(guilty)
    assert (explained.is_loss, explained.is_undone) == (True, is_undone)
    # With the last address of a link, the kernel removes a route of an innocent change.
    assert explained.changes - len(guilty) in (len(INNOCENT), len(INNOCENT) - 1)
    assert all(change.undo for change in explained.guilty)


def test_a_rule_of_nft_with_another_target_is_removed_and_put_back() -> None:
    layout = Calico()
    with network.built(layout) as machines, network.listening(machines):
        chain = "type filter hook forward priority 0; ip daddr 10.60.1.5 tcp dport 8080 counter accept;"
        machines["node"].run(["nft", f"table inet own {{ chain c {{ {chain} }}; }}"])
        earlier = snapshot_of(layout, machines)
        listing = machines["node"].run(["nft", "-a", "list", "chain", "inet", "own", "c"]).stdout
        handle = re.findall(r"accept # handle (\d+)", listing)[0]
        machines["node"].run(["nft", f"replace rule inet own c handle {handle} ip daddr 10.60.1.5 tcp dport 8080 counter drop"])
        later = snapshot_of(layout, machines)
    packet = entrance.packet(packet_text.options(TO_POD), earlier)
    (change,) = explain_backend.explain(earlier, later, packet, {}, random_nodes.run).guilty
    assert change.text.endswith("accept") and " drop is in the place of " in change.text
    assert change.undo[0].startswith("nft 'delete rule inet own c handle ") and change.undo[1].startswith(
        "nft 'add rule inet own c"
    )


def test_a_rule_that_moved_to_another_table_is_not_guilty() -> None:
    """The node accepts a packet in iptables before, and in nft afterwards; a link that goes down is what is guilty."""
    layout = Calico()
    layout.saves["iptables-nft-restore"] += "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
    moved = ("iptables-nft -P INPUT ACCEPT", "iptables-nft -F INPUT", "ip rule add to 203.0.113.5 blackhole priority 200")
    explained = _explained(layout, "tcp 203.0.113.5:40000 > 192.0.2.11:22 in eth0", *moved)
    texts = [change.text for change in explained.guilty]
    assert texts == ["ip rule 200: from all to 203.0.113.5 blackhole is new"], explained.sentence


def test_a_reply_that_leaves_elsewhere_is_guilty_beside_a_loss() -> None:
    commands = ("ip rule del priority 99", "ip rule add to 10.60.1.5 blackhole priority 300", INNOCENT[0])
    explained = _explained(Tunnel(), "tcp 10.60.2.5:40000 > 10.60.1.5:8080 in wireguard.cali", *commands)
    assert sorted(change.text for change in explained.guilty) == [
        "ip rule 300: from all to 10.60.1.5 blackhole is new",
        "ip rule 99: not from all fwmark 0x100000/0x100000 lookup 1 is gone",
    ]


def test_what_stops_a_packet_that_already_leaves_from_a_foreign_source_is_innocent() -> None:
    """The provider of eth0 drops what has the address of eth1, without which the node has none."""
    line, gone = "tcp the node > [2001:db8:9::7]:8080", "2001:db8:5::11/64 dev eth0"
    explained = _explained(TwoUplinks(), line, f"ip addr del {gone}", "ip link set eth1 down", INNOCENT[0])
    assert [change.text for change in explained.guilty] == [f"address {gone} is gone"], explained.sentence


def test_what_stops_a_pod_s_packet_beside_its_tunnel_is_innocent() -> None:
    line = "tcp [fd00:60::6]:40000 > [fd00:60:0:2::5]:8080 in cali2"
    stopped = ("ip -6 rule del priority 99", "sysctl -q -w net.ipv6.conf.eth0.disable_ipv6=1")
    explained = _explained(Tunnel(), line, *stopped, INNOCENT[0])
    texts = [change.text for change in explained.guilty]
    assert texts == ["ip -6 rule 99: not from all fwmark 0x100000/0x100000 lookup 1 is gone"], explained.sentence


def test_a_packet_that_comes_to_another_pod_s_link_is_lost() -> None:
    """Without the route to the pod, that of all pods leads elsewhere, where nothing tells that the pod has no address."""
    gone = ("pod1: ip addr del fd00:60::5/128 dev eth0", "ip -6 route del fd00:60::5 dev lxc1")
    explained = _explained(Cilium(), "tcp the node > [fd00:60::5]:8080", *gone, INNOCENT[0])
    assert sorted(change.text for change in explained.guilty) == [
        "address in the pod behind lxc1: fd00:60::5 is gone", "route fd00:60::5 dev lxc1 metric 1024 is gone"
    ]  # fmt: skip


def test_another_source_of_a_packet_that_leaves_in_place_of_coming_to_its_pod_is_innocent() -> None:
    innocent = "ip6tables-nft -t nat -D KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN"
    line = "tcp [2001:db8:9::7]:40000 > [fd00:60::6]:8080 in eth0"
    explained = _explained(Calico(), line, innocent, "ip link set cali2 down")
    assert [change.text for change in explained.guilty] == ["link cali2 is down"], explained.sentence


def test_what_stops_a_pod_s_reply_beside_its_tunnel_is_innocent() -> None:
    """The reply, which leaves by the default route now, is lost beyond the node: the network around it does not know the pods."""
    commands = ("ip addr del 10.60.1.0/32 dev flannel.1", "ip route del default")
    explained = _explained(Vxlan(), "tcp 10.60.2.5:40000 > 10.60.1.5:8080 in flannel.1", *commands, INNOCENT[0])
    texts = [change.text for change in explained.guilty]
    assert "address 10.60.1.0/32 dev flannel.1 is gone" in texts and not any("default" in text for text in texts), texts


def test_a_port_of_a_bridge_to_which_a_lost_frame_is_sent_too_is_innocent() -> None:
    commands = ("ip neigh replace 10.60.1.5 lladdr 02:00:00:00:00:99 dev cni0 nud permanent", "pod2: ip link set eth0 down")
    explained = _explained(Bridge(), "tcp the node > 10.60.1.5:8080", "pod1: ip addr del 10.60.1.5/24 dev eth0", *commands)
    assert sorted(change.text for change in explained.guilty) == [
        "address in the pod behind veth1: 10.60.1.5 is gone",
        "neighbor 10.60.1.5 lladdr 02:00:00:00:00:99 dev cni0 is new",
    ]


def test_a_gateway_beside_the_networks_of_its_link_does_not_send_back() -> None:
    """It has a link-local address, by which the node reaches it, and sends to the address that the node had."""
    line, address = "tcp [2001:db8:9::7]:40000 > [fd00:60::5]:8080 in eth0", "2001:db8:5::11/64 dev eth0"
    explained = _explained(Calico(), line, f"ip addr del {address}", INNOCENT[0])
    assert [change.text for change in explained.guilty] == [f"address {address} is gone"]
    assert explained.sentence.startswith("lost beyond eth0, which is not in the network of its gateway, since address ")


@pytest.mark.parametrize(("source", "port"), [("10.60.1.5", "veth1"), ("10.60.1.6", "veth2")])
def test_a_packet_in_a_bridge_comes_in_by_the_port_of_its_pod(source: str, port: str) -> None:
    guilty = "ip rule 300: from all to 198.51.100.7 blackhole is new"
    line = f"tcp {source}:40000 > 198.51.100.7:8080 in cni0"
    explained = _explained(Bridge(), line, "ip rule add to 198.51.100.7 blackhole priority 300", INNOCENT[0])
    assert [change.text for change in explained.guilty] == [guilty] and explained.packet.interface == port


def test_a_link_to_a_pod_to_which_a_default_route_leads_too_is_innocent() -> None:
    innocent = ("ip -6 route del default", "ip route replace default dev cali2")
    guilty = "ip -6 neigh replace fe80::1:1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
    explained = _explained(Calico(), "tcp [fd00:60::5]:40000 > [fd00:60::6]:8080 in cali1", *innocent, f"pod1: {guilty}")
    assert [change.text for change in explained.guilty] == [
        "neighbor in the pod behind cali1: fe80::1:1 lladdr 02:00:00:00:00:99 dev eth0 is new"
    ]


def test_the_uplink_below_a_tunnel_is_guilty() -> None:
    line = "tcp [fd00:60:0:2::5]:40000 > [fd00:60::5]:8080 in flannel-v6.1"
    explained = _explained(Vxlan(), line, "ip link set eth0 down", INNOCENT[0])
    assert [change.text for change in explained.guilty] == ["link eth0 is down"]


def test_a_packet_to_which_no_program_listens_any_more_is_explained() -> None:
    layout, packet = Calico(), packet_text.options(TO_POD)
    with network.built(layout) as machines:
        with network.listening(machines):
            before = snapshot_of(layout, machines)
        machines["node"].run(shlex.split(INNOCENT[0]))
        after = snapshot_of(layout, machines)
    explained = explain_backend.explain(before, after, entrance.packet(packet, before), {}, random_nodes.run)
    assert explained.sentence == (
        "refused at 10.60.1.5:8080, where no program listens, "
        "since listening socket in the pod behind cali1: tcp [::]:8080 is gone; "
        f"{explained.changes - 1} other changes are without effect."
    )


def test_a_packet_that_leaves_elsewhere_is_explained() -> None:
    rule = "PREROUTING -d 203.0.113.5/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 203.0.113.6:443"
    line = "tcp 10.60.1.5:40000 > 203.0.113.5:443 in cali1"
    explained = _explained(Calico(), line, f"iptables-nft -t nat -I {rule}", *INNOCENT)
    assert [change.text for change in explained.guilty] == [f"rule of ip nat: -A {rule} is new"]
    assert explained.sentence.startswith("elsewhere since ")


def test_a_packet_that_was_lost_before_and_one_that_is_well_have_no_guilty_change() -> None:
    before, after = _states(Calico(), *INNOCENT)
    well = entrance.packet(packet_text.options(TO_POD), before)
    explained = explain_backend.explain(before, after, well, {}, random_nodes.run)
    assert (explained.guilty, explained.is_well, explained.reason) == ((), True, explain_backend.IS_THERE)
    lost = entrance.packet(packet_text.options("tcp 198.51.100.7 > 10.60.1.99:80 in eth0"), before)
    explained = explain_backend.explain(before, after, lost, {}, random_nodes.run)
    assert not explained.guilty and explained.reason.startswith("The packet was lost before the changes, too: ")


def test_without_a_packet_each_path_that_is_lost_is_explained_once() -> None:
    before, after = _states(Calico(), *INNOCENT, "ip rule add to 10.60.1.5 blackhole priority 300", "ip link set cali2 down")
    packets = lost_paths_backend.since(before, after, {}, random_nodes.run)
    explained = [explain_backend.explain(before, after, packet, {}, random_nodes.run) for packet in packets]
    named = {change.text for each in explained for change in each.guilty}
    assert named == {"ip rule 300: from all to 10.60.1.5 blackhole is new", "link cali2 is down"}
    assert len(packets) <= lost_paths_backend.MOST


def test_rules_of_kube_proxy_in_nft_are_changes_of_one_element_each() -> None:
    layout = NftablesBridge()
    before, after = _states(layout, "nft flush map ip kube-proxy service-ips")
    line = "tcp the node > 10.96.0.10:80"
    explained = explain_backend.explain(before, after, entrance.packet(packet_text.options(line), before), {}, random_nodes.run)
    assert [change.text.partition(":")[0] for change in explained.guilty] == ["element of map ip kube-proxy service-ips"]


def test_a_pods_uplink_is_explained_on_a_node_of_enis() -> None:
    guilty = "ip rule add from 10.0.1.21 unreachable priority 400"
    explained = _explained(EniPolicyRouting(), "tcp 10.0.1.21:40000 > 198.51.100.7:443 in eni2", guilty, INNOCENT[0])
    assert [change.text for change in explained.guilty] == ["ip rule 400: from 10.0.1.21 unreachable is new"]


def test_a_pod_to_which_a_default_route_leads_asks_the_node_for_its_gateway() -> None:
    commands = ("ip route replace default dev eni1 table 2", "ip rule add from 10.0.0.21 unreachable priority 400")
    explained = _explained(EniPolicyRouting(), "tcp 10.0.0.21:40000 > 10.0.0.10:8080 in eni1", *commands)
    assert [change.text for change in explained.guilty] == ["ip rule 400: from 10.0.0.21 unreachable is new"]


@pytest.mark.parametrize("seed", sampled(range(3), lambda seed: not seed))
def test_the_guilty_changes_of_a_random_history_are_exact(seed: int) -> None:
    history = histories.history(seed, most=12)
    assert history.verdict == histories.EXACT, str(history)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_guilty_changes_of_a_long_history_are_exact(seed: int) -> None:
    history = histories.history(seed)
    assert history.verdict == histories.EXACT, str(history)
