# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit names the one change that makes a healthy node lose packets, and is quiet about a change that loses none."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import Phase

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import path_checks
from lab import network

from . import mutation_trials, mutations
from .cure_trials import CURED
from .layouts import LAYOUTS
from .mutation_trials import FALSE, FOUND

SEEDS = range(10)
# Of the sample, all that a node can show: seven lose packets, one is unknowable, and two lose none.
LEAST_FOUND, MOST_FALSE = 7, 0


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[collections.Counter[str]]:
    """Counts the verdicts. `make fuzz` prints them."""
    counts: collections.Counter[str] = collections.Counter()
    yield counts
    terminal: Any = request.config.pluginmanager.get_plugin("terminalreporter")
    if terminal:
        terminal.write_line(f"\nmutations: {dict(counts.most_common())}")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_healthy_node_passes_all_packets_of_its_users_and_has_no_finding(name: str) -> None:
    layout = LAYOUTS[name]()
    with network.built(layout) as machines, network.listening(machines) as listeners:
        assert mutation_trials.lost(layout, machines, listeners) == []
        findings = mutation_trials.audited(mutation_trials.snapshot_of(layout, machines))
    assert [mutation_trials.brief(finding) for finding in findings] == []


def test_a_connection_whose_full_segments_are_lost_is_made_and_not_complete() -> None:
    layout = LAYOUTS["veth routes"]()
    layout.lines["node"].append("link set eth0 mtu 1300")
    layout.rules += ["add table ip f", "add chain ip f o { type filter hook output priority 0; }"]
    layout.rules += ["add rule ip f o icmp type destination-unreachable drop"]
    connections = [each for each in layout.connections() if (each.sender, each.destination) == ("pod1", "198.51.100.7")]
    with network.built(layout) as machines, network.listening(machines) as listeners:
        exchange = network.Exchange(machines, listeners, connections)
    assert (exchange.made, exchange.complete) == ({*connections}, set())


@pytest.mark.parametrize(
    ("name", "make", "change"),
    [
        ("VXLAN", mutations.neighbours, "delete 10.60.2.0 flannel.1"),
        ("VXLAN", mutations.routes, "delete 10.60.2.0/24 via 10.60.2.0 dev flannel.1 onlink"),
        ("VXLAN", mutations.addresses, "delete 10.60.1.5/24 dev eth0"),
        ("tunnel", mutations.rules, "delete 99: not from all fwmark 0x100000/0x100000 lookup 1"),
        ("two uplinks", mutations.states, "eth0 down"),
        ("Cilium's shape", mutations.settings, "net.ipv6.conf.eth0.disable_ipv6 = 1"),
        ("bridge, kube-proxy nftables", mutations.mtus, "veth2 mtu 1280"),
        ("tunnel", mutations.states, "wireguard.cali down"),
        ("tunnel", mutations.addresses, "delete 10.60.1.0/32 dev wireguard.cali"),
        ("two uplinks", mutations.addresses, "delete 203.0.113.11/24 dev eth1"),
        ("VPN and VRF-like tables", mutations.states, "eth1 down"),
        ("VPN and VRF-like tables", mutations.settings, "net.ipv6.conf.eth1.disable_ipv6 = 1"),
        ("ENI policy routing", mutations.settings, "net.ipv4.conf.eth1.arp_ignore = 8"),
        ("veth routes", mutations.firewall_rules, "delete -A KUBE-EXT-A -j KUBE-SVC-A"),
        (
            "bridge, kube-proxy iptables",
            mutations.firewall_rules,
            "-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.60.1.6:8080"
            " -> -A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.60.1.6:8099",
        ),
    ],
)
def test_what_one_change_loses_names_its_object(name: str, make: Any, change: str) -> None:
    trial = mutation_trials.of_change(name, make, change)
    assert trial.verdict == FOUND, str(trial)


SCENES: dict[str, tuple[str, dict[str, list[str]], str]] = {
    "a firewall stops what carries the packets of a tunnel": (
        "VXLAN",
        {"node": ["iptables-nft -A INPUT -p udp --dport 8472 -j DROP"]},
        "-A INPUT -p udp -m udp --dport 8472 -j DROP",
    ),
    "the node lacks the address to which the other nodes send the packets of a tunnel": (
        "VXLAN",
        {"node": ["ip -6 addr del 2001:db8:5::11/64 dev eth0"]},
        "no address 2001:db8:5::11 on the node",
    ),
    "packets leave beside a tunnel by which answers come in": (
        "VXLAN",
        {
            "node": [
                "sysctl -w net/ipv4/conf/flannel.1/rp_filter=1",
                "ip route replace 10.60.2.0/24 via 192.0.2.12 dev eth0",
            ]
        },
        "net.ipv4.conf.flannel/1.rp_filter = 1",
    ),
    "a firewall stops the answers of neighbours": (
        "veth routes",
        {"node": ["ip6tables-nft -A INPUT -p icmpv6 -j DROP"]},
        "-A INPUT -p ipv6-icmp -j DROP",
    ),
    "the node has the address of a pod": ("Cilium's shape", {"node": ["ip addr add 10.60.1.5/32 dev eth0"]}, "10.60.1.5"),
    "a pod keeps its packets": (
        "veth routes",
        {"pod1": ["ip route add 198.51.100.0/24 dev lo"]},
        "ip route 198.51.100.0/24 dev lo",
    ),
    "replies are of another zone of connections": (
        "veth routes",
        {"node": ["iptables-nft -t raw -A PREROUTING -i eth0 -j CT --zone 5"]},
        "CT --zone 5",
    ),
    "a proxy answers for a port and does not listen": (
        "veth routes",
        {"node": ["iptables-nft -t nat -I PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 192.0.2.50:3128"]},
        "--to-destination 192.0.2.50:3128",
    ),
    "a VPN's table has the pods' network": (
        "VPN and VRF-like tables",
        {"node": ["ip route add 10.60.0.0/16 dev eth1 table 52", "ip rule add pref 5205 lookup 52"]},
        "5205: from all lookup 52",
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_what_several_objects_lose_together_names_one_of_them(scene: str) -> None:
    name, commands, culprit = SCENES[scene]
    lost, said = mutation_trials.of_commands(name, commands)
    assert lost and any(culprit in text for text in said), said


def test_of_a_sample_of_mutations_as_many_are_found_as_before_no_more_are_false_and_each_remedy_cures() -> None:
    trials = [mutation_trials.trial(seed) for seed in SEEDS]
    verdicts = collections.Counter(trial.verdict for trial in trials)
    report = "\n".join([*map(str, trials), mutation_trials.table(trials)])
    assert verdicts[FOUND] >= LEAST_FOUND and verdicts[FALSE] <= MOST_FALSE, report
    cures = collections.Counter(cure.verdict for trial in trials for cure in trial.cures)
    assert cures[CURED] and {*cures} == {CURED}, report


@pytest.mark.thorough
@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=5, deadline=None, suppress_health_check=[*hypothesis.HealthCheck], phases=[Phase.generate])
def test_a_random_mutation_that_loses_nothing_has_no_finding_and_each_remedy_cures_and_harms_nothing(
    seed: int, tally: collections.Counter[str]
) -> None:
    trial = mutation_trials.trial(seed)
    tally.update([trial.verdict, *(cure.verdict for cure in trial.cures)])
    assert trial.verdict != FALSE and all(cure.verdict == CURED for cure in trial.cures), str(trial)


@pytest.mark.thorough
@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=5, deadline=None, suppress_health_check=[*hypothesis.HealthCheck], phases=[Phase.generate])
def test_one_pod_of_a_shape_has_the_findings_of_all(seed: int) -> None:
    """A sweep proves what pods share by one pod of each shape, and tries some Services, node ports and other nodes alone."""
    trial = mutation_trials.trial(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_checks, "_shapes", lambda _node, _family, pods: [*pods])
        for bound in ("MOST_SERVICES", "MOST_NODE_PORTS", "MOST_REMOTE"):
            patch.setattr(path_checks, bound, 1_000)
        whole = mutation_trials.audited(trial.snapshot)
    titles = [{(each["severity"], each["id"], each["subject"]) for each in found} for found in (trial.findings, whole)]
    assert titles[0] == titles[1], str(trial)


@pytest.mark.thorough
@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=10, deadline=None, suppress_health_check=[*hypothesis.HealthCheck], phases=[Phase.generate])
def test_a_random_odd_node_that_loses_no_packet_has_no_finding(seed: int, tally: collections.Counter[str]) -> None:
    findings = mutation_trials.of_odd_node(seed)
    tally["odd and healthy"] += findings is not None
    assert not findings, [mutation_trials.brief(finding) for finding in findings]
