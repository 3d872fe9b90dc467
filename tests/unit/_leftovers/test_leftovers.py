# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which objects are azure-vnet's, azure-cns's or Cilium's, and when that is certain."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import azure_leftovers as azure
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import cni_leftovers as cilium
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import leftover
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.azure_leftovers import Bridge, Facts
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.leftover import Leftover
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Rule, Table

NAT, FILTER = Table("ip", "nat", "nft"), Table("ip", "filter", "legacy")
NAT6, MANGLE6 = Table("ip6", "nat", "nft"), Table("ip6", "mangle", "nft")
DNS = (
    "-s 10.241.0.0/16 -d 168.63.129.16/32 -p udp -m addrtype ! --dst-type LOCAL -m udp --dport 53 -j SNAT --to-source 10.240.0.4"
)
SNAT6 = Rule(NAT6, "POSTROUTING", "-s fd00::/64 -j SNAT --to-source 2001:db8::4")
MARK6 = Rule(MANGLE6, "POSTROUTING", "-j MARK --set-xmark 0x0/0xffffffff")


def only(facts: Facts) -> Leftover:
    (found,) = azure.find(facts)
    return found


@pytest.mark.parametrize(
    ("table", "chain", "text"),
    [
        (NAT, "POSTROUTING", "-j SWIFT"),
        (NAT, "POSTROUTING", "-j SWIFT-POSTROUTING"),
        (NAT, "SWIFT", DNS),
        (NAT, "SWIFT-POSTROUTING", DNS.replace("udp", "tcp")),
        (NAT, "POSTROUTING", "-s 169.254.128.0/17 -j MASQUERADE"),
        (NAT, "POSTROUTING", '-s 169.254.128.0/17 -m comment --comment "a b" -j MASQUERADE'),
        (FILTER, "OUTPUT", "-d 172.16.0.0/12 -o azSnatbr -j DROP"),
        (FILTER, "AZURECNIINPUT", "-i azSnatbr -m state --state RELATED,ESTABLISHED -j ACCEPT"),
    ],
)
def test_a_rule_that_only_azure_vnet_adds_is_certain(table: Table, chain: str, text: str) -> None:
    found = only(Facts((Rule(table, chain, text),)))
    assert found.is_certain and found.place == table.place(chain) and found.text == text


@pytest.mark.parametrize(
    ("table", "chain", "text"),
    [
        (NAT, "PREROUTING", "-j SWIFT"),
        (NAT, "POSTROUTING", "-s 10.0.0.0/8 -j SWIFT"),
        (NAT, "POSTROUTING", DNS),
        (NAT, "POSTROUTING", "-s 169.254.0.0/16 -j MASQUERADE"),
        (NAT, "POSTROUTING", "! -s 169.254.128.0/17 -j MASQUERADE"),
        (NAT, "POSTROUTING", "-s 169.254.128.0/17 -o eth0 -j MASQUERADE"),
        (NAT, "POSTROUTING", '-s 169.254.128.0/17 -m comment --comment "half -j MASQUERADE'),
        (FILTER, "OUTPUT", "-d 172.16.0.0/12 -i azSnatbr -j DROP"),
        (FILTER, "FORWARD", "-d 172.16.0.0/12 -i docker0 -j DROP"),
        (FILTER, "INPUT", "-j ACCEPT"),
        (MANGLE6, "PREROUTING", MARK6.text),
        (MANGLE6, "POSTROUTING", "-j MARK --set-xmark 0x0/0x4000"),
    ],
)
def test_a_rule_that_azure_vnet_does_not_add_is_not_listed(table: Table, chain: str, text: str) -> None:
    assert azure.find(Facts((Rule(table, chain, text),))) == []


@pytest.mark.parametrize("text", ["-j ACCEPT", "-d 168.63.129.16/32 -p tcp -m tcp --dport 80 -j DROP"])
def test_a_rule_that_other_programs_add_as_well_is_never_certain(text: str) -> None:
    found = only(Facts((Rule(FILTER, "FORWARD", text),)))
    assert not found.is_certain and found.command == f"iptables-legacy -w -t filter -D FORWARD {text}"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (Facts(served="azv0123456"), "azure-vnet still serves the pod at azv0123456"),
        (Facts(is_configured=True), "the runtime's CNI configuration is azure-vnet's"),
    ],
)
def test_nothing_of_a_live_azure_vnet_is_certain(facts: Facts, why: str) -> None:
    bridge = Bridge("azure0", (), ("fd00::1/64",))
    rules = (Rule(NAT, "POSTROUTING", "-j SWIFT"), Rule(NAT, "SWIFT", DNS), SNAT6, MARK6)
    facts = facts._replace(
        rules=rules,
        chains=((NAT, "SWIFT"),),
        bridge=bridge,
        nat_bridge=Bridge("azSnatbr"),
        neighbours=(("169.254.128.9", "169.254.128.9 dev azSnatbr PERMANENT"),),
        links=frozenset({"azSnatveth0", "azSnatveth1"}),
        proxies=("azSnatbr",),
    )
    found = azure.find(facts)
    assert len(found) == 10 and all(why in one.evidence and not one.is_certain for one in found)
    assert all(one.is_certain for one in azure.find(facts._replace(served="", is_configured=False)))


def test_the_chain_of_azure_cns_is_in_use_while_it_runs() -> None:
    rules = [(chain, Rule(NAT, "POSTROUTING", f"-j {chain}"), Rule(NAT, chain, DNS)) for chain in ("SWIFT", "SWIFT-POSTROUTING")]
    facts = Facts(
        tuple(rule for _chain, *both in rules for rule in both), tuple((NAT, chain) for chain, _jump, _dns in rules), has_cns=True
    )
    certain = {one.owner: one.is_certain for one in azure.find(facts)}
    assert certain == {"azure-vnet": True, "azure-cns": False}


def test_the_evidence_says_that_the_node_has_lost_the_address_of_the_snat() -> None:
    facts = Facts((Rule(NAT, "SWIFT", DNS),))
    assert "10.240.0.4, which the node does not have" in only(facts).evidence
    assert "10.240.0.4, which the node has" in only(facts._replace(addresses=frozenset({"10.240.0.4"}))).evidence


def test_jumps_come_before_rules_and_these_before_their_chain() -> None:
    inside, jump = Rule(NAT, "SWIFT", DNS), Rule(NAT, "POSTROUTING", "-j SWIFT")
    found = azure.find(Facts((inside, jump), ((NAT, "SWIFT"),)))
    assert [one.command.split(" -t nat ")[1].split()[:2] for one in found] == [
        ["-D", "POSTROUTING"], ["-D", "SWIFT"], ["-X", "SWIFT"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    "rule",
    [
        Rule(NAT, "SWIFT", '-s 10.0.0.0/8 -m comment --comment "$(reboot)" -j RETURN'),
        Rule(NAT, "FORWARD", '-m comment --comment "$(reboot)" -j SWIFT'),
    ],
)
def test_a_rule_of_another_program_keeps_a_chain_and_its_comment_is_quoted(rule: Rule) -> None:
    found, chain = azure.find(Facts((rule,), ((NAT, "SWIFT"),)))
    assert (found.owner, found.is_certain, chain.is_certain) == ("unknown", False, False)
    assert "'$(reboot)'" in found.command


def test_a_chain_whose_rules_were_not_read_is_not_certain() -> None:
    facts = Facts(chains=((NAT, "SWIFT"),))
    assert only(facts).is_certain and not only(facts._replace(unread={NAT})).is_certain


def test_the_ipv6_rules_are_certain_by_the_state_file_or_by_the_gateway_on_the_bridge() -> None:
    alone = Facts((SNAT6, MARK6))
    assert [one.is_certain for one in azure.find(alone)] == [False, False]
    assert [one.is_certain for one in azure.find(alone._replace(subnets=frozenset({"fd00::/64"})))] == [True, True]
    with_gateway = alone._replace(bridge=Bridge("azure0", (), ("2001:db8::4/128", "fd00::1/64", "fd00::2/64")))
    found = azure.find(with_gateway)
    assert [(one.kind, one.is_certain) for one in found] == [("rule", True), ("rule", True), ("address", True)]
    assert found[-1].command == "ip address del fd00::1/64 dev azure0"


def test_an_address_of_the_node_on_the_bridge_is_no_gateway() -> None:
    bridge = Bridge("azure0", (), ("10.240.0.1/16", "2001:db8::1/64"))
    assert azure.find(Facts((SNAT6._replace(text="-s fd00::/64 -o eth1 -j SNAT --to-source fd00::9"),), bridge=bridge)) == []
    assert azure.gateways(bridge, ["10.240.0.0/16"], []) == []


def test_a_bridge_with_pods_is_not_certain() -> None:
    assert only(Facts(nat_bridge=Bridge("azSnatbr", ("azSnatveth1",)))).is_certain
    found = only(Facts(nat_bridge=Bridge("azSnatbr", ("azvint01234",))))
    assert not found.is_certain and "the ports azvint01234" in found.evidence


def test_bridges_of_open_vswitch_and_namespaces_are_never_certain() -> None:
    found = azure.find(Facts(ovs=("azure0",), namespaces=("az_ns_7", "cni-1234")))
    assert [(one.command, one.is_certain) for one in found] == [
        ("ovs-vsctl del-br azure0", False), ("ip netns delete az_ns_7", False)
    ]  # fmt: skip


def test_ciliums_rules_are_those_in_its_chains_and_the_jumps_to_them() -> None:
    inside = Rule(NAT, "CILIUM_POST_nat", "-s 10.0.1.0/24 -j MASQUERADE")
    jump = Rule(NAT, "POSTROUTING", '-m comment --comment "cilium-feeder: CILIUM_POST_nat" -j CILIUM_POST_nat')
    foreign = Rule(NAT, "POSTROUTING", "-m comment --comment CILIUM_POST_nat -j MASQUERADE")
    found = cilium.of_cilium([inside, foreign, jump], [(NAT, "CILIUM_POST_nat")], ["cilium_host", "eth0"], [("eth0", "cil_x")])
    assert [(one.kind, one.text) for one in found] == [
        ("rule", jump.text),
        ("rule", inside.text),
        ("chain", "CILIUM_POST_nat"),
        ("program", "cil_x"),
        ("link", "cilium_host"),
    ]


@pytest.mark.parametrize(
    ("facts", "is_certain", "evidence"),
    [
        (Facts(links=frozenset(azure.NAT_LINKS)), True, "connects azSnatbr"),
        (Facts(links=frozenset(azure.NAT_LINKS[:1])), False, "azSnatveth1 is in another network namespace"),
        (
            Facts(links=frozenset(azure.NAT_LINKS), switched=frozenset(azure.NAT_LINKS)),
            False,
            "azSnatveth1 is still a port",
        ),
    ],
)
def test_a_pair_goes_only_if_a_backup_can_restore_both_ends(facts: Facts, is_certain: bool, evidence: str) -> None:
    found = only(facts)
    assert found.is_certain is is_certain and evidence in found.evidence
    assert ("ovs-vsctl" in found.command) == bool(facts.switched)


def test_chains_of_kube_proxy_are_one_entry_for_each_place() -> None:
    found = cilium.of_kube_proxy({"ip nat (nft)": ["A", "B", "C"], "ip6 nat (nft)": ["A"]}, is_running=False)
    assert [(one.place, one.text) for one in found] == [("ip nat (nft)", "A and 2 more"), ("ip6 nat (nft)", "A")]
    assert not any(one.is_certain for one in found)


def test_a_chain_in_a_table_that_azure_vnet_does_not_use_is_not_certain() -> None:
    """The table's rules are not read, so the chain may not be empty."""
    found = only(Facts(chains=((Table("ip", "security", "nft"), "SWIFT"),)))
    assert not found.is_certain and "its rules were not read" in found.evidence


def test_only_kinds_that_a_run_removes_count_as_removed() -> None:
    """Policy rules and the set of the mode transparent-tunnel are certain, and no run removes them."""
    leftovers = azure.find(Facts(links=frozenset(azure.NAT_LINKS), tunnel=azure.Tunnel(("ip rule 9: fwmark 0x3",), (), True)))
    findings = leftover.findings(leftovers, (leftover.LINK,))
    assert all(one.is_certain for one in leftovers) and [one.kind for one in findings.removed] == ["link"]
    assert [one.kind for one in findings.kept] == ["policy_rule", "set"]
