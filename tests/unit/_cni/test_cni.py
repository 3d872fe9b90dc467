# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chains by their owner."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni

NAT = "ip nat (nft)"


@pytest.mark.parametrize(
    "chain",
    [
        "KUBE-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-SVC-ERIFXISQEP7F7OF4",
        "KUBE-XLB-ERIFXISQEP7F7OF4",
        "KUBE-NODE-PORT",
        "KUBE-FORWARD",
    ],
)
def test_a_chain_of_kube_proxy_is_known_by_its_name(chain: str) -> None:
    assert cni.kube_proxy_chains([(NAT, chain)]) == {NAT: [chain]}


@pytest.mark.parametrize(
    "chain",
    [
        "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-MARK-DROP", "KUBE-FIREWALL", "KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT",
        "KUBE-PROXY-CANARY",
        "KUBE-ROUTER-INPUT", "KUBE-NWPLCY-ERIFXISQEP7F7OF4", "KUBE-POD-FW-ERIFXISQEP7F7OF4", "KUBE-SERVICES-OLD", "services",
    ],
)  # fmt: skip
def test_a_chain_that_another_program_may_have_created_is_not_kube_proxys(chain: str) -> None:
    assert cni.kube_proxy_chains([(NAT, chain)]) == {}


def test_chains_of_kube_proxy_are_listed_once_by_backend_and_table() -> None:
    chains = [("ip6 kube-proxy (nft)", "services"), (NAT, "KUBE-SERVICES"), (NAT, "KUBE-NODEPORTS"), (NAT, "KUBE-SERVICES")]
    legacy = ("ip filter (legacy)", "KUBE-FORWARD")
    assert cni.kube_proxy_chains([*chains, legacy]) == {
        NAT: ["KUBE-NODEPORTS", "KUBE-SERVICES"],
        "ip filter (legacy)": ["KUBE-FORWARD"],
        "ip6 kube-proxy (nft)": ["services"],
    }


def test_a_warning_names_two_chains_of_each_place() -> None:
    warning = cni.kube_proxy_warning({NAT: ["A", "B", "C"], "ip6 nat (nft)": ["A"]})
    assert "A, B and 1 more in ip nat (nft); A in ip6 nat (nft)." in warning
    assert "run kube-proxy --cleanup on the node with the same backend of iptables, or" in warning


def test_a_warning_of_the_mode_nftables_does_not_speak_of_iptables() -> None:
    assert "run kube-proxy --cleanup on the node, or reboot" in cni.kube_proxy_warning({"ip kube-proxy (nft)": ["services"]})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"name": "k8s", "plugins": [{"type": "calico", "name": "other"}]}', "k8s"),
        ('{"type": "bridge"}', ""),
        ("[1]", ""),
        ("{", ""),
    ],
)
def test_a_configuration_names_its_network(text: str, name: str) -> None:
    assert cni.name_in(text) == name
