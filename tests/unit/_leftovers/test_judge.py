# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""azure-vnet's leftovers: rules by shape, state files of any kind, and verdicts from the evidence."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.cni import AzureVnet
from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables import ebtables
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interface import Interface
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import judge, state_file
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.judge import (
    DOUBTFUL,
    KEEP,
    REMOVE,
    Evidence,
    Judge,
    Shape,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.state_file import Endpoint, Nic, State
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import Chains, ListedRule, Place
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.neighbour import FAILED, Neighbour
from lab.azure_vnet import AzurePod, state_text

PREROUTING, POSTROUTING = Place("nft", "nat", "PREROUTING"), Place("nft", "nat", "POSTROUTING")
FORWARD, BROUTING = Place("nft", "filter", "FORWARD"), Place("nft", "broute", "BROUTING")
NODE_MAC, MAC, OTHER_MAC = "00:0d:3a:01:02:03", "a2:96:88:20:cb:c6", "3a:d3:5d:06:09:0f"
NODE, POD = "10.240.0.4", "10.240.0.32"
HOST_LINK = "azv0123456789a"

SHAPES = [
    (POSTROUTING, "-s unicast -o eth0 -j snat --to-src 0:d:3a:1:2:3 --snat-arp", Shape("source MAC", "", NODE_MAC, "eth0")),
    (PREROUTING, f"-p ARP --arp-op Request --arp-ip-dst {POD} -j arpreply --arpreply-mac {MAC}", Shape("ARP reply", POD, MAC)),
    (PREROUTING, "-p ARP -i eth0 --arp-op Reply -j dnat --to-dst ff:ff:ff:ff:ff:ff", Shape("flooded replies", link="eth0")),
    (PREROUTING, f"-p IPv4 -i eth0 --ip-dst {POD} -j dnat --to-dst {MAC}", Shape("pod", POD, MAC, "eth0")),
    (PREROUTING, f"-p IPv6 -i eth0 --ip6-dst fd00::20 -j dnat --to-dst {MAC}", Shape("pod", "fd00::20", MAC, "eth0")),
    (PREROUTING, "-i azure0 -j dnat --to-dst 12:34:56:78:9a:bc", Shape("tunnel", link="azure0")),
    (PREROUTING, "-i az+ -j dnat --to-dst 12:34:56:78:9a:bc", Shape("tunnel", link="az+")),
    (
        POSTROUTING, "-p ARP -o azSnatbr --arp-op Request --arp-ip-dst 10.0.0.0/8 -j DROP",
        Shape("ARP drop", link="azSnatbr", prefix="10.0.0.0/8"),
    ),
    (
        FORWARD, "-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type neighbour-solicitation -o eth0 -j DROP",
        Shape("solicitation", link="eth0"),
    ),
    (BROUTING, "-p IPv6 --ip6-dst ff02::1:ff00:0/104 -j ACCEPT", Shape("subnet", prefix="ff02::1:ff00:0/104")),
    (BROUTING, "-p IPv4 -j redirect --redirect-target ACCEPT", Shape("routed family")),
    (BROUTING, "-p IPv6 -j redirect", Shape("routed family")),
    (BROUTING, "--ip-dst 169.254.20.10 -p IPv4 -j redirect", Shape("routed host", "169.254.20.10")),
    (PREROUTING, "-p 802_1Q -j DROP", Shape("VLAN drop")),
]  # fmt: skip


@pytest.mark.parametrize(("place", "text", "shape"), SHAPES, ids=[text for _place, text, _shape in SHAPES])
def test_a_rule_of_azure_vnet_is_known_by_its_shape_in_its_chain(place: Place, text: str, shape: Shape) -> None:
    assert judge.shape_of(place, ListedRule(text)) == shape
    assert judge.shape_of(place._replace(backend="legacy"), ListedRule(text)) == shape
    for other in (PREROUTING, POSTROUTING, FORWARD, BROUTING):
        assert other == place or judge.shape_of(other, ListedRule(text)) is None


NO_SHAPES = [
    f"-p ARP --arp-op Request --arp-ip-dst {POD} -j arpreply --arpreply-mac {MAC} --arpreply-target ACCEPT",
    f"-p ARP --arp-op Request --arp-ip-dst ! {POD} -j arpreply --arpreply-mac {MAC}",
    f"-p ARP -i eth0 --arp-op Request --arp-ip-dst {POD} -j arpreply --arpreply-mac {MAC}",
    f"-p ARP --arp-op Request --arp-ip-dst 10.240.0.0/24 -j arpreply --arpreply-mac {MAC}",
    f"-p IPv4 --ip-dst {POD} -j dnat --to-dst {MAC}",
    f"-p IPv4 -i eth0 --ip-dst {POD} -j dnat --to-dst {MAC} --dnat-target DROP",
    f"-p IPv4 -i eth0 --ip-dst {POD} --ip-proto tcp -j dnat --to-dst {MAC}",
    f"-p IPv4 -i eth0 --ip-dst 10.240.0.0/24 -j dnat --to-dst {MAC}",
    f"-p IPv4 -i eth0 --ip-src {POD} -j dnat --to-dst {MAC}",
    "-i eth1 -j dnat --to-dst 12:34:56:78:9a:bd",
    f"-p IPv4 -i eth0 --ip-dst {POD} -j DROP",
]


@pytest.mark.parametrize("text", NO_SHAPES)
def test_a_rule_that_says_more_or_less_is_not_azure_vnets(text: str) -> None:
    assert judge.shape_of(PREROUTING, ListedRule(text)) is None


# State files


def test_a_state_file_is_understood() -> None:
    pods = [AzurePod(1), AzurePod(2)]
    state = state_file.state_from(state_text(NODE_MAC, pods))
    assert state.endpoints == tuple(Endpoint(pod.address, pod.mac, pod.host_link, f"default/pod-{pod.number}") for pod in pods)
    assert (state.nics, state.bridges, state.trouble) == ((Nic("eth0", NODE_MAC),), frozenset({"azure0"}), "")


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


SUBNET_LISTS: list[tuple[Any, set[str]]] = [
    ([{"Prefix": {"IP": "10.240.0.0", "Mask": packed(bytes((255, 255, 0, 0)))}}], {"10.240.0.0/16"}),
    ([{"Prefix": {"IP": "fd00:1::", "Mask": packed(b"\xff" * 8 + bytes(8))}}], {"fd00:1::/64"}),
    ([{"Prefix": {"IP": "10.240.0.0"}}, {"Prefix": {"Mask": packed(b"\xff")}}, {"Prefix": 7}, 7], set()),
    (7, set()),
]


@pytest.mark.parametrize(("listed", "subnets"), SUBNET_LISTS)
def test_subnets_of_a_state_file_are_read(listed: Any, subnets: set[str]) -> None:
    links = {"eth0": {"Networks": {"azure": {"Subnets": listed}}}}
    state = state_file.state_from(json.dumps({"Network": {"ExternalInterfaces": links}}))
    assert state == State((), (Nic("eth0"),), frozenset(), frozenset(subnets))


def test_a_network_interface_is_named_by_its_name_or_by_its_key() -> None:
    own_rule = [{"IP": "10.240.0.4", "Mask": "//8AAA=="}, {"IP": "10.240.0.100"}]
    mac = packed(b"\0\x0d\x3a\1\2\3")
    links = {"a": {"Name": "eth1", "BridgeName": "azure7", "MacAddress": mac, "IPAddresses": own_rule}, "eth2": {}}
    state = state_file.state_from(json.dumps({"Network": {"ExternalInterfaces": links}}))
    assert state == State((), (Nic("eth1", NODE_MAC, NODE), Nic("eth2")), frozenset({"azure7"}))


PODS_NAMED = [
    ({"PODNameSpace": "default", "PODName": "web"}, "default/web"),
    ({"PODName": "web"}, "web"),
    ({"ContainerID": "0123456789abcdef"}, "0123456789ab"),
    ({}, "a pod"),
]


@pytest.mark.parametrize(("names", "pod"), PODS_NAMED)
def test_a_pod_is_named_by_what_the_state_file_has(names: dict[str, str], pod: str) -> None:
    empty = dict.fromkeys(("PODNameSpace", "PODName", "ContainerID"), "")
    (found,) = state_file.state_from(endpoint(**{**empty, **names})).endpoints
    assert found.pod == pod


def endpoint(**changes: Any) -> str:
    found = json.loads(state_text(NODE_MAC, [AzurePod(1)]))
    network = found["Network"]["ExternalInterfaces"]["eth0"]["Networks"]["azure"]
    next(iter(network["Endpoints"].values())).update(changes)
    return json.dumps(found)


WHOLE = endpoint()
DAMAGED = {
    "": "is not JSON",
    WHOLE[:200]: "is not JSON",
    "null": "has no Network.ExternalInterfaces",
    "[1]": "has no Network",
    '{"Network": {"Version": "v9", "Interfaces": []}}': "has no Network",
    '{"IPAM": {}}': "has no Network",
    "[" * 100_000: "is not JSON",
    endpoint(MacAddress="not base64"): "has 1 endpoints",
    endpoint(MacAddress="AAAA"): "has 1 endpoints",
    endpoint(MacAddress="AAAAAAAA"): "has 1 endpoints",
    endpoint(MacAddress="!!ogHSW6uP"): "has 1 endpoints",
    endpoint(MacAddress=7): "has 1 endpoints",
    endpoint(MacAddress=""): "has 1 endpoints",
    endpoint(IPAddresses=None): "has 1 endpoints",
    endpoint(IPAddresses=[{"IP": "10.240.0.999"}]): "has 1 endpoints",
    endpoint(IPAddresses="10.240.0.5"): "has 1 endpoints",
}  # fmt: skip


@pytest.mark.parametrize(("text", "trouble"), DAMAGED.items(), ids=[f"{text[:40]}..." for text in DAMAGED])
def test_a_damaged_state_file_says_nothing_and_says_why(text: str, trouble: str) -> None:
    state = state_file.state_from(text)
    assert state.endpoints == () and trouble in state.trouble


@settings(deadline=None)
@given(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)), st.text(max_size=3))
def test_whatever_happened_to_a_state_file_it_is_no_exception(start: int, end: int, between: str) -> None:
    state_file.state_from(WHOLE[:start] + between + WHOLE[end:])
    cni.azure_vnet_in(WHOLE[:start] + between + WHOLE[end:])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("Network", "ExternalInterfaces", "Networks", "Endpoints", "IPAddresses", "Subnets", "plugins", "type")
            ),
            inner,
            max_size=3,
        )
    ),
)


@settings(deadline=None)
@given(JSON)
def test_any_json_is_no_exception(content: Any) -> None:
    state_file.state_from(json.dumps(content))
    cni.azure_vnet_in(json.dumps(content))


CONFIGURATIONS = {
    '{"plugins": [{"type": "azure-vnet", "bridge": "azure2", "ipsToRouteViaHost": ["169.254.20.10"]}, {"type": "portmap"}]}': (
        AzureVnet(True, "azure2", frozenset({"169.254.20.10"}))
    ),
    '{"type": "azure-vnet"}': AzureVnet(True),
    '{"plugins": [{"type": "cilium-cni"}]}': AzureVnet(),
    '{"plugins": {"type": "azure-vnet"}}': AzureVnet(),
    "half a conf": AzureVnet(),
}  # fmt: skip


@pytest.mark.parametrize(("text", "configuration"), CONFIGURATIONS.items())
def test_a_cni_configuration_is_azure_vnets_by_its_plugins(text: str, configuration: AzureVnet) -> None:
    assert cni.azure_vnet_in(text) == configuration


# Evidence

ARP = ListedRule(f"-p ARP --arp-op Request --arp-ip-dst {POD} -j arpreply --arpreply-mac {MAC}")
DNAT = ListedRule(f"-p IPv4 -i eth0 --ip-dst {POD} -j dnat --to-dst {MAC} --dnat-target ACCEPT")
OWN = Interface("", "azure0", NODE_MAC, frozenset({NODE}))
NIC = Interface("", "eth0", NODE_MAC, frozenset(), "azure0")
LINK = Interface("", HOST_LINK, "aa:aa:aa:aa:aa:aa", frozenset(), "azure0", 8, 3, "process 1")
LIVES = Interface("process 1", "eth0", MAC, frozenset({POD}), "", 3, 8)
OTHERS = Interface("process 2", "eth0", OTHER_MAC, frozenset({POD}))
WRITTEN = State((Endpoint(POD, MAC, HOST_LINK, "default/web"),), (Nic("eth0", NODE_MAC),), frozenset({"azure0"}))
LISTED = (fields.prefix("10.240.0.0/24")[1],)
BRIDGED = Neighbour(POD, "azure0", MAC)


def evidence(*interfaces: Interface, **fields: Any) -> Evidence:
    found = {"bridges": frozenset({"azure0"}), "ports": frozenset({"eth0"}), **fields}
    return Evidence(interfaces=(OWN, NIC, *interfaces), **found)


PODS: dict[str, tuple[Evidence, str, str]] = {
    "it lives": (evidence(LIVES), KEEP, "serves eth0 of process 1"),
    "it lives, and is written down": (evidence(LIVES, states=(WRITTEN,)), KEEP, "serves eth0 of process 1"),
    "it lives, whatever the operator says": (evidence(LIVES, addresses=LISTED), KEEP, "serves eth0 of process 1"),
    "it lives, and the state file lies about its MAC": (
        evidence(LIVES, states=(State((Endpoint(POD, OTHER_MAC),)),)), KEEP, "serves eth0 of process 1",
    ),
    "it lives without the address": (
        evidence(LIVES._replace(addresses=frozenset())), KEEP, "eth0 of process 1 has the MAC",
    ),
    "another pod has the address": (evidence(OTHERS), REMOVE, "eth0 of process 2 has the address now"),
    "another pod has the address, and the state file lies": (
        evidence(OTHERS, states=(WRITTEN,)), REMOVE, "eth0 of process 2 has the address now",
    ),
    "the node itself has the address": (
        evidence(Interface("", "cilium_host", OTHER_MAC, frozenset({POD}))), REMOVE, "cilium_host has the address now",
    ),
    "the node routes the address elsewhere": (
        evidence(host_routes={POD: frozenset({"lxc1"})}), REMOVE, "reaches the address by lxc1 now",
    ),
    "the node has a neighbour elsewhere": (
        evidence(neighbours=(Neighbour(POD, "lxc1", OTHER_MAC, 2),)), REMOVE, "reaches the address by lxc1 now",
    ),
    "the node has the same neighbour elsewhere": (
        evidence(neighbours=(Neighbour(POD, "eth1", MAC, 2),)), KEEP, "is right: the node reaches the address by eth1",
    ),
    "it is right, whatever the operator and another namespace say": (
        evidence(OTHERS, neighbours=(Neighbour(POD, "eth1", MAC, 2),), addresses=LISTED), KEEP, "is right: ",
    ),
    "azure-vnet itself set the neighbour": (
        evidence(OTHERS, neighbours=(Neighbour(POD, HOST_LINK, MAC),)), REMOVE, "eth0 of process 2 has the address now",
    ),
    "the node looked for it in vain elsewhere": (
        evidence(neighbours=(Neighbour(POD, "lxc1", "", FAILED),)), DOUBTFUL, "the owner of the address is unknown",
    ),
    "the node routes the address to the bridge": (
        evidence(host_routes={POD: frozenset({"azure0"})}), DOUBTFUL, "the owner of the address is unknown",
    ),
    "the operator says so": (evidence(addresses=LISTED), REMOVE, "option addresses contains the address"),
    "the operator says so of others": (
        evidence(addresses=(fields.prefix("10.240.1.0/24")[1], fields.prefix("fd00::/8")[1])), DOUBTFUL,
        "the owner of the address is unknown",
    ),
    "it is written down and gone": (
        evidence(states=(WRITTEN,)), REMOVE, "azure-vnet's state file has default/web at the address",
    ),
    "it is written down, its link is there": (
        evidence(LINK, LIVES._replace(mac=OTHER_MAC, addresses=frozenset()), states=(WRITTEN,)), KEEP, f"{HOST_LINK}, the",
    ),
    "it is written down with another MAC": (
        evidence(states=(State((Endpoint(POD, OTHER_MAC),)),)), DOUBTFUL, "no interface has the MAC",
    ),
    "it is written down, and not all is seen": (
        evidence(states=(WRITTEN,), unread=("namespace blue",)), DOUBTFUL, "not all network namespaces could be read",
    ),
    "it is written down, and a link's other end is hidden": (
        evidence(LINK._replace(link="azvaaaaaaaaaaa"), states=(WRITTEN,)), DOUBTFUL, "not all network namespaces",
    ),
    "its neighbour is left": (evidence(neighbours=(BRIDGED,)), REMOVE, "azure-vnet set up a pod with the MAC"),
    "a neighbour that the kernel learned": (
        evidence(neighbours=(BRIDGED._replace(state=4),)), DOUBTFUL, "the owner of the address is unknown",
    ),
    "nothing is known": (evidence(), DOUBTFUL, "no interface has the MAC"),
}  # fmt: skip


@pytest.mark.parametrize(("found", "verb", "reason"), PODS.values(), ids=PODS.keys())
@pytest.mark.parametrize("rule", [ARP, DNAT], ids=["ARP reply", "dnat"])
def test_a_pods_rule_goes_by_the_evidence(rule: ListedRule, found: Evidence, verb: str, reason: str) -> None:
    verdict = Judge(found, {PREROUTING: (ARP, DNAT)}).rule(PREROUTING, rule)
    assert verdict is not None and (verdict.verb, reason in verdict.reason) == (verb, True), verdict
    assert str(verdict).startswith("doubtful: ") == (verb == DOUBTFUL)


@pytest.mark.parametrize("mac", ["00:00:5e:00:01:0a", "00:00:5e:00:02:ff"])
def test_a_virtual_routers_rule_stays_and_counts_for_no_pod(mac: str) -> None:
    """An interface has the address and another MAC, or keepalived makes an interface with both."""
    router = ListedRule(ARP.text.replace(MAC, mac))
    redirect = ListedRule("-p IPv4 -j redirect")
    of_node = OTHERS._replace(namespace="", link="eth1")
    for interface in (OTHERS, of_node, of_node._replace(link="vrrp.10", mac=mac)):
        judge = Judge(evidence(interface, addresses=LISTED), {PREROUTING: (router,), BROUTING: (redirect,)})
        verdicts = [judge.rule(PREROUTING, router), judge.rule(BROUTING, redirect)]
        assert [one and one.verb for one in verdicts] == [KEEP, REMOVE]
        assert f"the MAC {mac} is that of a virtual router" in str(verdicts[0])


def test_a_right_rule_counts_for_no_pod() -> None:
    redirect = ListedRule("-p IPv4 -j redirect")
    found = evidence(neighbours=(Neighbour(POD, "eth1", MAC, 2),))
    verdict = Judge(found, {PREROUTING: (ARP,), BROUTING: (redirect,)}).rule(BROUTING, redirect)
    assert verdict is not None and verdict.verb == REMOVE


def test_of_the_nodes_own_addresses_azure_vnet_answers_for_the_first_alone() -> None:
    virtual = evidence(NIC._replace(addresses=frozenset({"10.240.0.100"})))
    for address, verb in ((NODE, REMOVE), ("10.240.0.100", DOUBTFUL)):
        own_rule = ListedRule(ARP.text.replace(POD, address).replace(MAC, NODE_MAC))
        state = State(nics=(Nic("eth0", NODE_MAC, NODE),))
        verdict = Judge(virtual._replace(states=(state,)), {PREROUTING: (own_rule,)}).rule(PREROUTING, own_rule)
        assert verdict is not None and verdict.verb == verb


UNREAD = {
    ("namespace blue",): "namespace blue",
    ("a", "b", "c"): "a, b, c",
    ("a", "b", "c", "d", "e"): "a, b, c and 2 more",
}


@pytest.mark.parametrize("unread", UNREAD)
def test_a_namespace_that_could_not_be_read_is_named(unread: tuple[str, ...]) -> None:
    assert evidence(unread=unread).hidden == f"not all network namespaces could be read: {UNREAD[unread]}"
    assert evidence(LINK, LIVES).hidden == "" and f"that of the other end of {HOST_LINK}" in evidence(LINK).hidden


def test_in_tunnel_mode_a_pods_arp_reply_goes_with_its_other_rule() -> None:
    virtual = ListedRule(ARP.text.replace(MAC, judge.VIRTUAL_MAC))
    for found, verb in ((evidence(LIVES), KEEP), (evidence(states=(WRITTEN,)), REMOVE), (evidence(), DOUBTFUL)):
        verdict = Judge(found, {PREROUTING: (virtual, DNAT)}).rule(PREROUTING, virtual)
        assert verdict is not None and verdict.verb == verb, verdict
    alone = Judge(evidence(LIVES), {PREROUTING: (virtual,)}).rule(PREROUTING, virtual)
    assert alone is not None and alone.verb == DOUBTFUL
    assert alone.reason == "eth0 of process 1 has the address, and the MAC that azure-vnet gave it is unknown"


NODE_RULES = {
    PREROUTING: (
        ListedRule(f"-p ARP --arp-op Request --arp-ip-dst {NODE} -j arpreply --arpreply-mac {NODE_MAC}"),
        ListedRule("-p ARP -i eth0 --arp-op Reply -j dnat --to-dst ff:ff:ff:ff:ff:ff --dnat-target ACCEPT"),
        ListedRule("-i az+ -j dnat --to-dst 12:34:56:78:9a:bc --dnat-target ACCEPT"),
    ),
    POSTROUTING: (
        ListedRule(f"-s Unicast -o eth0 -j snat --to-src {NODE_MAC} --snat-arp --snat-target ACCEPT"),
        ListedRule("-p ARP -o azSnatbr --arp-op Request --arp-ip-dst 10.0.0.0/8 -j DROP"),
    ),
    FORWARD: (ListedRule("-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type neighbour-solicitation -o eth0 -j DROP"),),
    BROUTING: (
        ListedRule("-p IPv6 --ip6-dst fd00:1::/64 -j ACCEPT"),
        ListedRule("-p IPv6 --ip6-dst ff02::1:ff00:0/104 -j ACCEPT"),
        ListedRule("-p IPv4 -j redirect"),
        ListedRule("-p IPv4 -j redirect"),
        ListedRule("-p IPv6 -j redirect"),
        ListedRule("-p IPv4 --ip-dst 169.254.20.10 -j redirect"),
        ListedRule("-p IPv4 --ip-dst 169.254.20.11 -j redirect"),
    ),
}
CONFIGURED = AzureVnet(True, "azure0", frozenset({"169.254.20.11"}))
SUBNETS = WRITTEN._replace(subnets=frozenset({"fd00:1::/64"}))


def verbs(found: Evidence, chains: Chains) -> set[str]:
    judge = Judge(found, chains)
    verdicts = [judge.rule(place, rule) for place, rules in chains.items() for rule in rules]
    return {verdict.verb for verdict in verdicts if verdict}


NODES: dict[str, tuple[Evidence, set[str]]] = {
    "the last pod has gone": (evidence(states=(SUBNETS,), configurations=(CONFIGURED,)), {REMOVE}),
    "a pod lives": (evidence(LIVES, states=(SUBNETS,), configurations=(CONFIGURED,)), {KEEP}),
    "a link in the bridge leads to a pod": (
        evidence(
            LINK, LIVES._replace(mac=OTHER_MAC, addresses=frozenset()), states=(SUBNETS._replace(endpoints=()),),
            configurations=(CONFIGURED,), ports=frozenset({"eth0", HOST_LINK}),
        ), {KEEP},
    ),
    "azure-vnet was never there": (Evidence(interfaces=(OWN, NIC)), set()),
    "nothing tells more than that it was there": (Evidence(interfaces=(OWN, NIC), traces=("a",)), {DOUBTFUL}),
    "not all is seen": (
        evidence(states=(SUBNETS._replace(endpoints=()),), configurations=(CONFIGURED,), unread=("namespace blue",)), {DOUBTFUL},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), NODES.values(), ids=NODES.keys())
def test_rules_for_the_whole_node_go_with_the_last_pod(found: Evidence, expected: set[str]) -> None:
    assert verbs(found, NODE_RULES) == expected


def test_rules_for_the_whole_node_wait_while_a_pod_may_be_azure_vnets() -> None:
    """In tunnel mode a pod's ARP reply does not contain the pod's MAC."""
    virtual = ListedRule(ARP.text.replace(MAC, judge.VIRTUAL_MAC))
    unsure = evidence(LIVES, states=(SUBNETS._replace(endpoints=()),), configurations=(CONFIGURED,))
    assert verbs(unsure, {**NODE_RULES, PREROUTING: (*NODE_RULES[PREROUTING], virtual)}) == {DOUBTFUL}


def test_rules_for_the_whole_node_do_not_wait_for_a_pod_that_does_not_exist() -> None:
    gone = evidence(states=(SUBNETS._replace(endpoints=()),), configurations=(CONFIGURED,))
    judge = Judge(gone, {**NODE_RULES, PREROUTING: (*NODE_RULES[PREROUTING], DNAT)})
    verdicts = [judge.rule(PREROUTING, rule) for rule in (*NODE_RULES[PREROUTING], DNAT)]
    assert [verdict and verdict.verb for verdict in verdicts] == [*[REMOVE] * 3, DOUBTFUL]


def reason(found: Evidence, place: Place, rule: ListedRule) -> str:
    verdict = Judge(found, {**NODE_RULES, PREROUTING: (*NODE_RULES[PREROUTING], rule)}).rule(place, rule)
    return f"{verdict.verb}: {verdict.reason}" if verdict else ""


NO_PODS = {"states": (SUBNETS._replace(endpoints=()),), "configurations": (CONFIGURED,)}
VIRTUAL = ListedRule(ARP.text.replace(MAC, judge.VIRTUAL_MAC))
REASONS = {
    "remove: no pod of azure-vnet is left": evidence(**NO_PODS),
    f"keep: serves all pods of azure-vnet, of which {POD} is in use": evidence(LIVES, states=(WRITTEN,)),
    "doubtful: not all network namespaces could be read: namespace blue": evidence(**NO_PODS, unread=("namespace blue",)),
    "doubtful: it looks like a rule of azure-vnet, but may belong to another program": Evidence(
        traces=("/opt/cni/bin/azure-vnet",)
    ),
}


@pytest.mark.parametrize("told", REASONS)
def test_the_verdict_on_a_rule_for_the_whole_node_gives_its_reason(told: str) -> None:
    assert reason(REASONS[told], BROUTING, ListedRule("-p IPv4 -j redirect")) == told


def test_an_unsure_pod_is_named_by_what_waits_for_it() -> None:
    redirect = ListedRule("-p IPv4 -j redirect")
    verdict = Judge(evidence(LIVES, **NO_PODS), {PREROUTING: (VIRTUAL,), BROUTING: (redirect,)}).rule(BROUTING, redirect)
    told = f"it may serve {POD}, and it is unknown whether azure-vnet's pod there still exists"
    assert verdict is not None and (verdict.verb, verdict.reason) == (DOUBTFUL, told)


TRACES = {
    "a state file": Evidence(states=(State(),)),
    "a configuration": Evidence(configurations=(AzureVnet(True),)),
    "a binary or a chain": Evidence(traces=("/opt/cni/bin/azure-vnet",)),
    "a bridge": Evidence(bridges=frozenset({"azure0"})),
    "a rule that an earlier run removed": Evidence(former=frozenset({("10.240.9.9", MAC)})),
    "a pod's link": Evidence(interfaces=(LINK,)),
    "a pod's link of the first version": Evidence(interfaces=(LINK._replace(link="azv0123456"),)),
    "the bridge of pods without an address in the subnet": Evidence(interfaces=(LINK._replace(link="azSnatbr"),)),
}


@pytest.mark.parametrize("found", TRACES.values(), ids=TRACES)
def test_with_a_trace_of_azure_vnet_its_rules_are_judged(found: Evidence) -> None:
    judged = verbs(found._replace(interfaces=(*found.interfaces, OTHERS)), {PREROUTING: (ARP, DNAT)})
    assert found.has_trace and judged == {REMOVE}


NO_TRACES = {
    "nothing": Evidence(),
    "another CNI's configuration": Evidence(configurations=(AzureVnet(),)),
    "a link that begins alike": Evidence(interfaces=(LINK._replace(link="azv01234567"),)),
    "such a link in a pod": Evidence(interfaces=(LINK._replace(namespace="process 7"),)),
    "the operator's word": Evidence(addresses=LISTED),
}


@pytest.mark.parametrize("found", NO_TRACES.values(), ids=NO_TRACES)
def test_without_a_trace_of_azure_vnet_no_rule_is_judged(found: Evidence) -> None:
    found = found._replace(interfaces=(*found.interfaces, OTHERS))
    assert not found.has_trace and verbs(found, {PREROUTING: (ARP, DNAT), **NODE_RULES}) == set()


@pytest.mark.parametrize(
    "found",
    [
        *(Evidence(**one, interfaces=(OWN, NIC)) for one in ({"bridges": frozenset({"azure0"})}, NO_PODS)),
        Evidence(states=(State(),)),
        Evidence(configurations=(AzureVnet(True),)),
    ],
    ids=["bridge", "all", "state file", "configuration"],
)
def test_any_trace_of_azure_vnet_tells_whose_a_rule_is(found: Evidence) -> None:
    assert reason(found, BROUTING, ListedRule("-p IPv4 -j redirect")).startswith("remove: ")


def test_a_drop_of_vlan_frames_is_azure_vnets_by_its_nat_bridge() -> None:
    drop, nat_bridge = ListedRule("-p 802_1Q -j DROP"), Interface("", "azSnatbr", OTHER_MAC, frozenset())
    assert reason(evidence(nat_bridge), PREROUTING, drop) == "remove: no pod of azure-vnet is left"
    assert reason(evidence(), PREROUTING, drop).startswith("doubtful: ")


def test_a_tunnel_is_azure_vnets_by_the_bridge_that_a_file_names() -> None:
    tunnel = ListedRule("-i podbr -j dnat --to-dst 12:34:56:78:9a:bc")
    for found in (
        Evidence(states=(State(bridges=frozenset({"podbr"})),)),
        Evidence(configurations=(AzureVnet(True, "podbr"),)),
    ):
        assert reason(found, PREROUTING, tunnel).startswith("remove: ")
    assert reason(Evidence(configurations=(AzureVnet(True),)), PREROUTING, tunnel).startswith("doubtful: ")


def test_an_interface_in_the_bridge_is_azure_vnets_without_a_file_and_a_pods_link_is_not() -> None:
    """The expected MAC is the current one of the interface."""
    veth = Interface("", "veth1", OTHER_MAC, frozenset(), "azure0")
    found = evidence(veth, ports=frozenset({"eth0", "eth9", "veth1", HOST_LINK}))
    sources = [
        ("eth0", NODE_MAC, True),
        ("veth1", OTHER_MAC, False),
        ("eth9", OTHER_MAC, False),
        ("eth9", NODE_MAC, False),
    ]
    for name, mac, is_azures in sources:
        source = ListedRule(f"-s Unicast -o {name} -j snat --to-src {mac} --snat-arp")
        verdict = Judge(found, {POSTROUTING: (source,)}).rule(POSTROUTING, source)
        assert verdict is not None and (verdict.verb != DOUBTFUL) == is_azures
    own_rule = ListedRule(ARP.text.replace(POD, NODE).replace(MAC, NODE_MAC))
    verdict = Judge(found._replace(ports=frozenset({"eth0"})), {PREROUTING: (own_rule,)}).rule(PREROUTING, own_rule)
    assert verdict is not None and verdict.verb == REMOVE
    there = evidence(Interface("", "eth9", OTHER_MAC, frozenset({"10.9.9.9"})))
    foreign_rule = ListedRule(own_rule.text.replace(NODE, "10.9.9.9").replace(NODE_MAC, OTHER_MAC))
    verdict = Judge(there, {PREROUTING: (foreign_rule,)}).rule(PREROUTING, foreign_rule)
    assert verdict is not None and verdict.verb == DOUBTFUL


OTHERS_RULES = {
    POSTROUTING: (
        ListedRule(f"-s Unicast -o eth1 -j snat --to-src {OTHER_MAC} --snat-arp --snat-target ACCEPT"),
        ListedRule(f"-s Unicast -o eth0 -j snat --to-src {OTHER_MAC} --snat-arp --snat-target ACCEPT"),
        ListedRule("-p ARP -o br0 --arp-op Request --arp-ip-dst 10.0.0.0/8 -j DROP"),
    ),
    PREROUTING: (
        ListedRule("-p ARP -i eth1 --arp-op Reply -j dnat --to-dst ff:ff:ff:ff:ff:ff --dnat-target ACCEPT"),
        ListedRule("-i br0 -j dnat --to-dst 12:34:56:78:9a:bc --dnat-target ACCEPT"),
        ListedRule(f"-p IPv4 -i eth0 --ip-dst 10.99.0.1 -j dnat --to-dst {OTHER_MAC} --dnat-target ACCEPT"),
        ListedRule(f"-p ARP --arp-op Request --arp-ip-dst 10.99.0.1 -j arpreply --arpreply-mac {OTHER_MAC}"),
    ),
    FORWARD: (ListedRule("-p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type neighbour-solicitation -o eth1 -j DROP"),),
    BROUTING: (ListedRule("-p IPv6 --ip6-dst fd00:2::/64 -j ACCEPT"), ListedRule("-p IPv4 --ip-dst 10.99.0.1 -j redirect")),
}


def test_rules_of_the_same_shape_that_are_not_azure_vnets_stay() -> None:
    assert verbs(evidence(states=(SUBNETS,), configurations=(CONFIGURED,)), OTHERS_RULES) == {DOUBTFUL}


# Neighbours and routes

RULES = {PREROUTING: (DNAT,)}
NEIGHBOURS: dict[str, tuple[Neighbour, Evidence, Chains, bool]] = {
    "of a pod that has gone": (BRIDGED, evidence(states=(WRITTEN,)), {}, True),
    "that failed, of a pod that has gone": (
        Neighbour(POD, "azure0", "", FAILED),
        evidence(states=(WRITTEN,)),
        {},
        True,
    ),
    "of a pod whose rule is there": (BRIDGED, evidence(), RULES, True),
    "of a pod whose rule was removed before": (BRIDGED, evidence(former=frozenset({(POD, MAC)})), {}, True),
    "of a pod that lives": (BRIDGED, evidence(LIVES, states=(WRITTEN,)), RULES, False),
    "that failed, the address being elsewhere": (
        Neighbour("10.240.0.57", "azure0", "", FAILED),
        evidence(neighbours=(Neighbour("10.240.0.57", "lxc_health", OTHER_MAC, 2),)),
        {},
        True,
    ),
    "that the operator set": (Neighbour("10.240.0.1", "azure0", OTHER_MAC), evidence(states=(WRITTEN,)), RULES, False),
    "of another node": (
        Neighbour("10.240.0.9", "azure0", "12:34:56:78:9a:bc", 2),
        evidence(states=(WRITTEN,)),
        {},
        False,
    ),
}


@pytest.mark.parametrize(("neighbour", "found", "chains", "goes"), NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_a_neighbour_goes_when_no_pod_or_another_pod_has_its_address(
    neighbour: Neighbour, found: Evidence, chains: Chains, goes: bool
) -> None:
    assert Judge(found, chains).neighbour(neighbour).is_leftover == goes


ROUTES: dict[str, tuple[str, Evidence, bool]] = {
    "to a pod that has gone": ("azure0", evidence(states=(WRITTEN,)), True),
    "to a pod that lives": ("azure0", evidence(LIVES, states=(WRITTEN,)), False),
    "to a pod that lives, of whom nothing is written": (HOST_LINK, evidence(LINK, LIVES), False),
    "beside another's": ("azure0", evidence(host_routes={POD: frozenset({"azure0", "lxc1"})}), True),
    "that nothing tells about": ("azure0", evidence(), False),
    "that nothing tells about, to a link": (HOST_LINK, evidence(LINK), False),
    "that the operator gives up": (HOST_LINK, evidence(addresses=LISTED), True),
}


@pytest.mark.parametrize(("link", "found", "goes"), ROUTES.values(), ids=ROUTES.keys())
def test_a_route_goes_when_no_pod_or_another_pod_has_its_address(link: str, found: Evidence, goes: bool) -> None:
    assert Judge(found, {}).route(POD, link).is_leftover == goes


ROUTE_REASONS: list[tuple[Evidence, str]] = [
    (evidence(LINK, LIVES), "eth0 of process 1 has the address"),
    (evidence(LINK, OTHERS, host_routes={POD: frozenset({"lxc1"})}), "the node reaches the address by lxc1 now"),
    (evidence(LINK), "doubtful: the owner of the address is unknown"),
    (evidence(host_routes={POD: frozenset({"lo"})}), "doubtful: the owner of the address is unknown"),
    (evidence(LINK, addresses=LISTED), "option addresses contains the address"),
    (evidence(former=frozenset({(POD, MAC)})), "azure-vnet set up a pod with the MAC"),
]


@pytest.mark.parametrize(("found", "told"), ROUTE_REASONS, ids=[told for _found, told in ROUTE_REASONS])
def test_the_verdict_on_a_route_gives_its_reason(found: Evidence, told: str) -> None:
    verdict = Judge(found, {}).route(POD, HOST_LINK)
    assert str(verdict).startswith(told) and verdict.verb in (REMOVE, KEEP, DOUBTFUL)


# Dumps of a public report (cilium/cilium issue 14233)

REPORTED_RULES = """\
*nat
:PREROUTING ACCEPT
:OUTPUT ACCEPT
:POSTROUTING ACCEPT
-A PREROUTING -p ARP --arp-op Request --arp-ip-dst 10.240.0.32 -j arpreply --arpreply-mac a2:96:88:20:cb:c6
-A PREROUTING -p IPv4 -i eth0 --ip-dst 10.240.0.32 -j dnat --to-dst a2:96:88:20:cb:c6 --dnat-target ACCEPT
"""
REPORTED_NEIGHBOURS = (
    Neighbour("10.240.0.57", "lxc_health", "3a:d3:5d:06:09:0f", 2),
    Neighbour("10.240.0.57", "azure0", "", FAILED),
)


def test_the_reported_node_is_cured() -> None:
    chains = ebtables.from_save("nft", REPORTED_RULES)
    pod = Interface("process 2", "eth0", "3a:d3:5d:06:09:10", frozenset({POD}))
    judge = Judge(evidence(pod, neighbours=REPORTED_NEIGHBOURS), chains)
    assert {verdict.verb for rule in chains[PREROUTING] if (verdict := judge.rule(PREROUTING, rule))} == {REMOVE}
    assert judge.neighbour(REPORTED_NEIGHBOURS[1]).is_leftover
    before = Judge(evidence(neighbours=REPORTED_NEIGHBOURS), chains)  # without the pod there is no evidence
    assert {verdict.verb for rule in chains[PREROUTING] if (verdict := before.rule(PREROUTING, rule))} == {DOUBTFUL}
