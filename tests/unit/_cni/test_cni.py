# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CNI configurations, the records of addresses of pods, and the options of Cilium."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cilium, cni, cni_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._cni.cni_backend import Attachment

# CNI configurations, and the records of pods' addresses, as CNIs and container runtimes write them


RECORD: dict[str, Any] = {
    "kind": "cniCacheV1",
    "containerId": "1234",
    "config": "eyJuYW1lIjogInBvZHMifQ==",
    "ifName": "eth0",
    "networkName": "pods",
    "netns": "/var/run/netns/cni-1",
    "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "default"], ["K8S_POD_NAME", "web-0"]],
    "result": {"cniVersion": "1.0.0", "ips": [{"address": "10.244.0.5/24", "gateway": "10.244.0.1"}, {"address": "fd00::5/64"}]},
}
WEB = Attachment("default/web-0", "eth0", ("10.244.0.5", "fd00::5"), "/var/run/netns/cni-1")


@pytest.mark.parametrize(
    ("change", "attachment"),
    [
        ({}, WEB),
        ({"result": {"cniVersion": "0.2.0", "ip4": {"ip": "10.244.0.5/24"}}}, WEB._replace(addresses=("10.244.0.5",))),
        ({"netns": None}, WEB._replace(netns="")),
        ({"ifName": "net1"}, WEB._replace(interface="net1")),
        ({"ifName": "lo"}, None),
        ({"kind": "other"}, None),
        ({"cniArgs": [["IgnoreUnknown", "1"]]}, None),
        ({"cniArgs": 5}, None),
        ({"result": {"ips": []}}, None),
        ({"result": {"ips": ["10.244.0.5"]}}, None),
    ],
)  # fmt: skip
def test_a_record_of_a_pod_has_its_addresses(change: dict[str, Any], attachment: Attachment | None) -> None:
    assert cni_backend.attachment(json.dumps({**RECORD, **change})) == attachment


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "[" * 100_000])
def test_another_text_is_no_record(text: str) -> None:
    assert cni_backend.attachment(text) is None


def test_records_whose_network_namespace_has_gone_are_left_out(tmp_path: Path) -> None:
    namespace, results = tmp_path / "cni-2", tmp_path / "results"
    namespace.touch()
    results.mkdir()
    changes: dict[str, dict[str, Any]] = {"a": {}, "b": {"netns": str(namespace)}, "c": {"netns": None, "ifName": "net1"}}
    for name, change in changes.items():
        (results / f"pods-{name}-eth0").write_text(json.dumps({**RECORD, **change}))
    (results / "folder").mkdir()
    kept = [WEB._replace(netns=str(namespace)), WEB._replace(netns="", interface="net1")]
    assert cni_backend.attachments(str(results)) == kept
    assert cni_backend.attachments(str(tmp_path / "none")) == []
    assert kept[0].entry() == {"pod": "default/web-0", "interface": "eth0", "addresses": ["10.244.0.5", "fd00::5"]}


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


# Whether a Cilium agent's options enable IPv6 node ports, in the spellings of each version


OPTIONS: list[tuple[dict[str, str], bool]] = [
    ({"kube-proxy-replacement": "true", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "strict", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "probe", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "partial", "enable-node-port": "true", "enable-ipv6": "true"}, True),
    ({"kube-proxy-replacement": "false", "enable-node-port": "true"}, True),
    ({"kube-proxy-replacement": "true"}, True),
    ({"kube-proxy-replacement": "partial", "enable-ipv6": "true"}, False),
    ({"kube-proxy-replacement": "disabled", "enable-ipv6": "true"}, False),
    ({"kube-proxy-replacement": "false", "enable-ipv6": "true"}, False),
    ({"kube-proxy-replacement": "true", "enable-ipv6": "false"}, False),
    ({}, False),
]


@pytest.mark.parametrize(("options", "serves"), OPTIONS)
def test_options_tell_whether_bpf_serves_ipv6_node_ports(options: dict[str, str], serves: bool) -> None:
    agent = cilium.agent("here", options)
    assert agent == cilium.Agent("here", serves, replaces_kube_proxy=serves or options.get(cilium.IPV6) == "false")


@pytest.mark.parametrize(("given", "cluster"), [("200", 200), ("0", 0), ("x", 0)])
def test_options_tell_the_cluster(given: str, cluster: int) -> None:
    assert cilium.agent("here", {"cluster-id": given}).cluster == cluster


def test_options_on_a_command_line() -> None:
    words = ["cilium-agent", "--config-dir=/tmp/cilium/config-map", "--enable-node-port", "-v", "--label=a=b"]
    assert cilium.arguments(words) == {"config-dir": "/tmp/cilium/config-map", "enable-node-port": "true", "label": "a=b"}


STATES: list[tuple[t.Any, dict[str, str]]] = [
    (
        {"KubeProxyReplacement": "true", "EnableNodePort": True, "EnableIPv6": True, "MTU": 0},
        {"kube-proxy-replacement": "true", "enable-node-port": "true", "enable-ipv6": "true"},
    ),
    ({"EnableNodePort": False, "EnableIPv6": False}, {"enable-node-port": "false", "enable-ipv6": "false"}),
    ({"EnableIPv6": True}, {}),
    ([], {}),
    (None, {}),
]


@pytest.mark.parametrize(("stored", "options"), STATES)
def test_options_in_the_agents_state(stored: t.Any, options: dict[str, str]) -> None:
    assert cilium.state(json.dumps(stored)) == options


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_a_state_that_is_no_json_tells_nothing(text: str) -> None:
    assert cilium.state(text) == {}


@pytest.mark.parametrize(
    "name", ["cil_from_netdev", "cil_from_netdev-eth0", "cil_xdp_entry", "cilium-eth0", "bpf_host.o:[from-netdev]"]
)
def test_names_of_ciliums_programs(name: str) -> None:
    assert cilium.is_program(name)


@pytest.mark.parametrize("name", ["", "cali_tc_preamble", "ipv6_hp_ingress", "retina_cil_x", "cil", "bpf_netdev.o:[to-netdev]"])
def test_names_of_other_programs(name: str) -> None:
    assert not cilium.is_program(name)
