# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leftovers of CNIs and what they do to packets; live pods of azure-vnet."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interface import Interface
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import azure_pods, cni_leftovers
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.azure_pods import LivePod
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.cni_leftovers import Links
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Table, rules
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import route

# What the leftovers of a CNI do to packets, by the targets of its rules and the chains to which they lead


FILTER = Table("ip", "filter", "nft")
OWNERS = {owner.name: owner for owner in cni.OTHERS}


def found(owner: str, *lines: str, routes: t.Sequence[tuple[route.Route, int]] = (), state: str = "") -> dict[str, str]:
    """Return what each leftover does, by its text."""
    listed = rules(FILTER, "\n".join(f"-A {line}" for line in lines))
    chains = [(FILTER, chain) for chain in dict.fromkeys(rule.chain for rule in listed) if OWNERS[owner].has_chain(chain)]
    leftovers = cni_leftovers.find(OWNERS[owner], listed, chains, Links(), routes, state)
    return {leftover.text: leftover.effect for leftover in leftovers}


REJECT = "KUBE-POD-FW-A -m mark ! --mark 0x10000/0x10000 -j REJECT"
TO_POD = "KUBE-ROUTER-FORWARD -d 10.1.1.7/32 -j KUBE-POD-FW-A"


@pytest.mark.parametrize(
    ("lines", "effects"),
    [
        (("FORWARD -j KUBE-ROUTER-FORWARD", TO_POD, REJECT), ["rejects packets in FORWARD", "rejects packets to 10.1.1.7/32"]),
        ((TO_POD, REJECT), []),
        (("FORWARD -j KUBE-ROUTER-FORWARD", "KUBE-ROUTER-FORWARD -j RETURN"), []),
        (
            ("FORWARD -j KUBE-ROUTER-FORWARD", TO_POD, REJECT, "KUBE-POD-FW-A -s 10.1.1.0/24 -j DROP"),
            ["rejects or drops packets to 10.1.1.7/32", "drops packets from 10.1.1.0/24"],
        ),
        (("FORWARD -s 10.9.0.0/16 -j DROP", REJECT), []),
    ],
)
def test_a_rule_does_what_the_rules_do_to_which_it_leads(lines: tuple[str, ...], effects: list[str]) -> None:
    said = [effect for effect in found("kube-router", *lines).values() if effect]
    assert {*effects} <= {*said} and bool(said) == bool(effects)


def test_many_chains_that_share_others_are_read_once() -> None:
    levels = [[f"KUBE-POD-FW-L{level}X{number}" for number in range(20)] for level in range(12)]
    lines = [f"{upper} -j {lower}" for above, below in zip(levels, levels[1:]) for upper in above for lower in below]
    effects = found("kube-router", f"FORWARD -j {levels[0][0]}", *lines, f"{levels[-1][-1]} -j DROP")
    assert effects[f"-j {levels[0][0]}"] == "drops packets in FORWARD"


def routed(prefix: str, protocol: int) -> tuple[route.Route, int]:
    return route.from_options("routes[0]", {"to": prefix, "type": "blackhole", "table": 254}, {}), protocol


@pytest.mark.parametrize(
    ("owner", "prefix", "protocol", "state", "is_left"),
    [
        ("flannel", "10.244.3.0/24", 3, "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n", True),
        ("flannel", "10.245.3.0/24", 3, "FLANNEL_NETWORK=10.244.0.0/16\n", False),
        ("flannel", "10.0.0.0/8", 3, "FLANNEL_NETWORK=10.244.0.0/16\n", False),
        ("flannel", "10.244.3.0/24", 3, "", False),
        ("calico", "10.244.3.0/26", 12, "", True),
        ("calico", "10.244.3.0/26", 80, "", True),
        ("calico", "10.244.3.0/26", 3, "", False),
    ],
)
def test_a_route_that_drops_packets_is_a_cnis_by_its_networks_or_its_protocol(
    owner: str, prefix: str, protocol: int, state: str, is_left: bool
) -> None:
    effects = found(owner, routes=[routed(prefix, protocol)], state=state)
    assert list(effects.values()) == ([f"drops packets to {prefix}, whichever node has them now"] if is_left else [])


@pytest.mark.parametrize(
    ("chain", "owner"),
    [
        ("KUBE-ROUTER-INPUT", "kube-router"),
        ("KUBE-POD-FW-GZC4KGHVT2P5XBVA", "kube-router"),
        ("KUBE-NWPLCY-DEFAULT", "kube-router"),
        ("KUBE-SERVICES", None),
        ("KUBE-FIREWALL", None),
        ("FLANNEL-POSTRTG", "flannel"),
        ("cali-FORWARD", "calico"),
        ("WEAVE-NPC-EGRESS", "weave"),
        ("ANTREA-FORWARD", "antrea"),
        ("OVN-KUBE-NODEPORT", "ovn-kubernetes"),
    ],
)
def test_a_chain_is_the_cnis_that_gives_such_names(chain: str, owner: str | None) -> None:
    assert [each.name for each in cni.OTHERS if each.has_chain(chain)] == ([owner] if owner else [])


# azure-vnet's live pods, and azure-cns's configuration


MAC = "02:00:00:00:00:01"


def test_a_pod_has_the_addresses_of_the_other_end_of_its_link() -> None:
    interfaces = [
        Interface("", "eth0", MAC, frozenset({"10.240.0.2"}), number=2),
        Interface("", "azv0123456", MAC, number=7, peer=3),
        Interface("", "azv0123456789a", MAC, number=6, peer=3, peer_namespace="process 5"),
        Interface("", "lxc0123456789a", MAC, number=8, peer=3, peer_namespace="process 6"),
        Interface("process 5", "eth0", MAC, frozenset({"fd00::7", "10.240.0.7"}), number=3, peer=6),
        Interface("process 6", "eth0", MAC, frozenset({"10.240.0.8"}), number=3, peer=8),
        Interface("process 7", "eth0", MAC, frozenset({"172.18.0.2"}), number=3, peer=7),  # of a namespace inside of a pod
    ]
    assert azure_pods.live_pods(interfaces) == [
        LivePod("azv0123456", ()), LivePod("azv0123456789a", ("10.240.0.7", "fd00::7"))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "environment", "path"),
    [
        ([], {}, "/usr/local/bin/cns_config.json"),
        (["-c", "tcp://127.0.0.1"], {"CNS_CONFIGURATION_PATH": "/env/cns.json"}, "/env/cns.json"),
        (["-cp", "/a.json"], {"CNS_CONFIGURATION_PATH": "/env/cns.json"}, "/a.json"),
        (["--config-path=/a.json", "-o", "x"], {}, "/a.json"),
        (["cp", "/a.json"], {}, "/usr/local/bin/cns_config.json"),
        (["-cp"], {}, ""),
    ],
)
def test_the_configuration_is_named_by_an_argument_or_the_environment_or_lies_beside(
    arguments: list[str], environment: dict[str, str], path: str
) -> None:
    assert azure_pods.configuration_of(arguments, environment, "/usr/local/bin/azure-cns") == path


@pytest.mark.parametrize(
    ("text", "is_managed"),
    [
        ('{"ManageEndpointState": true}', True),
        ('{"manageendpointstate": true, "Other": 1}', True),
        ('{"ManageEndpointState": false}', False),
        ('{"ManageEndpointState": "true"}', False),
        ("{}", False),
        ("", None),
        ("[]", None),
        ("{", None),
    ],
)
def test_azure_cns_keeps_the_addresses_if_it_is_told_to(text: str, is_managed: bool | None) -> None:
    assert azure_pods.manages_state(text) is is_managed
