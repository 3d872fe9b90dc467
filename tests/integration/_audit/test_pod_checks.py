# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links, sources and leftovers by which packets of pods are lost, or seen from another source."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

import pytest

from lab.eni import BACKEND
from lab.node import POD_PORT, NamespaceNode
from lab.steps import Steps

from .._trace import test_cures as scenes
from .._trace import test_substitutions_links as links
from .auditing import apply, findings
from .troubles import OFF, POD

# Links of pods by which a real pod reaches nothing


MOVED = "gateway-mac-changed"


def test_a_pod_sends_to_the_address_that_its_link_had_before() -> None:
    with scenes.shared_enis(OFF) as (lab, node):

        def arrives() -> bool:
            return lab.fetch_from("pod1", BACKEND, POD_PORT, 0.3) is not None

        assert arrives() and findings(node, MOVED) == []
        node.run(["ip", "link", "set", "dev", "veth-pod1", "address", "02:00:00:00:00:88"])
        assert not arrives()
        (finding,) = findings(node, MOVED)
        assert (finding["subject"], finding["severity"], finding["proof"]) == (POD, "error", "twin")
        assert finding["evidence"][-1].startswith("veth-pod1: rx_otherhost_dropped ")
        apply(node, finding["remedy"])
        assert arrives() and findings(node, MOVED) == []


def test_a_namespace_whose_neighbours_were_not_read_may_have_the_trouble() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        snapshot = Steps(node, "datapath_info").run()["snapshot"]
        entry = {"subset": "pod_neighbors", "object": "process 7", "reason": "The neighbours could not be read."}
        (finding,) = findings(node, MOVED, snapshot={**snapshot, "unread": [entry]})
        assert (finding["state"], finding["what"]) == ("cannot_tell", "The neighbours could not be read.")
        assert finding["ask"].startswith("ip -all netns exec ip neigh; ip -all netns exec ip -6 neigh")


NESTED = """
ip netns add pod && ip netns add docker && ip netns add inner
ip link add veth1 index 107 type veth peer name eth0 index 3 netns pod
ip -n docker link add in0 index 107 type veth peer name eth0 index 3 netns inner
ip link set veth1 up && ip -n pod link set eth0 up && ip -n docker link set in0 up && ip -n inner link set eth0 up
ip -n inner address add 172.18.0.2/24 dev eth0
ip -n inner neigh add 172.18.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent
"""


def test_a_namespace_inside_of_a_pod_is_not_taken_for_a_pod_by_the_indexes_of_its_links() -> None:
    with scenes.shared_enis(OFF) as (_lab, node):
        node.run(["sh", "-ec", NESTED])
        try:
            assert findings(node, MOVED) == []
            links = Steps(node, "datapath_info", {"gather": ["links"]}).run()["snapshot"]["links"]
            (peer,) = (link["peer"] for link in links if link["name"] == "veth1")
            assert peer["namespace"] == "namespace pod"
        finally:
            node.run(["sh", "-c", "for name in pod docker inner; do ip netns delete $name; done"])


# Rules that masquerade: the finding is there where a real server sees another source than the pod


PODS = "10.0.0.0/16"
OF_NFT = (
    "nft 'add table ip agent; add chain ip agent c { type nat hook postrouting priority 100; }; add rule ip agent c masquerade'"
)


def translated(node: NamespaceNode, *ranges: str) -> list[dict[str, Any]]:
    return findings(node, "pod-source-translated", context={"pod_ranges": [*ranges]})


@pytest.mark.parametrize(
    ("commands", "evidence"),
    [
        ([f"iptables -t nat -A POSTROUTING -s {POD} -j MASQUERADE"], [f"-A POSTROUTING -s {POD}/32 -j MASQUERADE"]),
        ([f"iptables -t nat -A POSTROUTING -s {POD} ! -d {PODS} -j MASQUERADE"], []),
        (["iptables -t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE"], []),
        ([OF_NFT], ["table ip agent"]),
    ],
    ids=["all", "outside alone", "marked", "nft"],
)
def test_a_rule_that_takes_pods_for_the_outside(commands: list[str], evidence: list[str]) -> None:
    with scenes.shared_enis(OFF) as (lab, node):

        def source() -> str:
            answer = lab.fetch_from("pod1", BACKEND, POD_PORT, 0.3)
            return answer.peer if answer else ""

        assert source() == POD and translated(node, PODS) == []
        for command in commands:
            node.run(shlex.split(command))
        found = translated(node, PODS)
        assert (source() != POD) == bool(evidence) == bool(found) and translated(node, "10.9.0.0/16") == []
        for finding in found:
            assert (finding["severity"], finding["proof"], finding["evidence"]) == ("risk", "twin", evidence)
            if finding["remedy"]:
                apply(node, finding["remedy"])
                assert source() == POD and translated(node, PODS) == []


@pytest.mark.parametrize(
    ("tunnel", "network", "expected"),
    [
        ("flannel.1", "10.244.2.0/24", [("present", "risk")]),
        ("it", "172.30.0.0/16", []),
        ("it", "10.0.32.0/20", [("cannot_tell", "note")]),
    ],
    ids=["name of a CNI", "to an office", "like the networks of pods"],
)
def test_a_tunnel_leads_to_pods_of_other_nodes(tunnel: str, network: str, expected: list[tuple[str, str]]) -> None:
    """Packets to an office are masqueraded on purpose."""
    with scenes.shared_enis(OFF) as (_lab, node):
        node.ip([f"link add {tunnel} type vxlan id 1 dstport 8472 dev eth0", f"link set {tunnel} up"])
        node.ip([f"address add 10.244.1.0/32 dev {tunnel}", f"route add {network} via 10.244.2.0 dev {tunnel} onlink"])
        assert translated(node) == []
        node.run(shlex.split(f"iptables -t nat -A POSTROUTING -s {POD} -j MASQUERADE"))
        found = translated(node)
        assert [(finding["state"], finding["severity"]) for finding in found] == expected
        assert all(finding["subject"] == "ipv4" and bool(finding["ask"]) == (not finding["remedy"]) for finding in found)


# What earlier programs left: frames and packets that go astray until it is removed


def test_rules_of_ebtables_to_a_pod_that_is_gone() -> None:
    with scenes.stolen() as scene:
        found = findings(scene.node, "ebtables-stale")
        by_proof = {finding["proof"]: finding for finding in found}
        assert {finding["subject"] for finding in found} == {scene.packet["destination"]}
        assert by_proof["twin"]["severity"] == "error" and "8a:93:40:b3:c8:0a" in by_proof["twin"]["evidence"][0]
        assert not scene.arrives()
        for finding in found:
            apply(scene.node, finding["remedy"])
        assert scene.arrives() and findings(scene.node, "ebtables-stale") == []


def test_rules_of_pods_that_cover_the_network_of_the_cloud_alone() -> None:
    with scenes.shared_enis(scenes.OFF) as (_lab, node):
        pod = scenes.ENIS[0].pod_address(0)
        node.ip([f"rule del from {pod}", f"rule add from {pod} to 10.0.0.0/16 lookup 1001 priority 2048"])
        (finding,) = findings(node, "pod-rule-within-network")
        assert (finding["subject"], finding["severity"], finding["proof"]) == ("eth1", "risk", "twin")
        node.ip([f"rule add from {pod} lookup 1001 priority 2049"])
        assert findings(node, "pod-rule-within-network") == []


def test_a_probe_that_is_translated_and_finds_no_way_back() -> None:
    with scenes.probe() as scene:
        check = partial(findings, scene.node, "probe-no-way-back", context={"cloud": "azure"})
        Steps(scene.node, "nftables_probe_snat", {"permanent": False, "boot_condition": "none"}).run()
        assert check() == []
        scene.node.run(["sysctl", "-qw", "net.ipv6.conf.all.forwarding=0"])
        (finding,) = check()
        assert (finding["subject"], finding["proof"]) == ("eth0", "twin") and not scene.arrives()
        scene.node.run(["sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"])
        assert check() == [] and scene.arrives()


def test_a_rule_that_takes_the_port_of_kubelet(node: NamespaceNode) -> None:
    for port, target in (
        (10250, "DNAT --to-destination 10.0.0.9:80"),
        (10251, "DNAT --to-destination 10.0.0.9:80"),
        (10250, "RETURN"),
    ):
        node.run(shlex.split(f"iptables -t nat -A PREROUTING -p tcp --dport {port} -j {target}"))
    (finding,) = findings(node, "kubelet-port-taken")
    assert finding["subject"] == "ipv4 10250" and "--dport 10250 -j DNAT" in finding["evidence"][0]


def test_policy_rules_by_the_hundred(node: NamespaceNode) -> None:
    node.ip([f"rule add from 10.8.{number >> 8}.{number & 255} lookup 100 priority 100" for number in range(500)])
    (finding,) = findings(node, "rules-by-the-hundred")
    assert (finding["subject"], finding["severity"], finding["evidence"]) == ("ipv4", "note", ["503 rules"])
    node.ip(["rule del priority 100"] * 3)
    assert findings(node, "rules-by-the-hundred") == []


def test_the_table_for_probes_beside_cilium() -> None:
    """The programs are in the snapshot alone: a namespace node has no Cilium."""
    with scenes.probe() as scene:
        Steps(scene.node, "nftables_probe_snat", {"permanent": False, "boot_condition": "none"}).run()
        snapshot = Steps(scene.node, "datapath_info").run()["snapshot"]
        check = partial(findings, scene.node, "probe-table-beside-cilium", snapshot=snapshot)
        assert check() == []
        snapshot["bpf"] = [{"link": "eth0", "hook": "tc", "direction": "ingress", "name": "cil_from_netdev"}]
        (finding,) = check()
        assert (finding["subject"], finding["severity"]) == ("eth0", "note")
        assert finding["remedy"]["options"] == {"interface": "eth0", "backend": "bpf"}


# A firewall may stop new connections to the node, and not the messages by which neighbours find each other


FIREWALL = """nft -f - <<END
table inet t {{ chain i {{ type filter hook input priority 0; policy drop; ct state established accept; {}; }}; }}
END
"""
NEIGHBOURS = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept"


@pytest.mark.parametrize(
    ("lines", "subjects"),
    [
        (FIREWALL.format("iif lo accept"), {"inet t i: type filter hook input priority filter; policy drop;"}),
        (FIREWALL.format(NEIGHBOURS), set()),
        ("ip6tables -A INPUT -i eth1 -p icmpv6 -j DROP", {"ip6 filter: -A INPUT -i eth1 -p ipv6-icmp -j DROP"}),
        ("ip6tables -A OUTPUT -o eth1 -p icmpv6 -j DROP", {"ip6 filter: -A OUTPUT -o eth1 -p ipv6-icmp -j DROP"}),
    ],
    ids=["all", "none", "answers of the uplink", "requests there"],
)
def test_a_firewall_that_keeps_neighbours_from_each_other_is_not_meant_to(lines: str, subjects: set[str]) -> None:
    with links.built(links.DUAL + links.MASQUERADE + lines) as node:
        found = findings(node, "path-lost")
    assert {(finding["subject"], finding["severity"], finding["state"]) for finding in found} == {
        (subject, "error", "present") for subject in subjects
    }
