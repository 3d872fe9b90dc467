# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory variables from Node objects of several clouds."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _cluster_nodes

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


def node(**parts: t.Any) -> dict[str, t.Any]:
    """A Node object as the API returns it. Keyword arguments are labels, annotations, or fields of spec or status."""
    status = {key: parts[key] for key in ("conditions", "addresses", "allocatable", "nodeInfo") if key in parts}
    spec = {key: parts[key] for key in ("providerID", "taints", "podCIDR", "podCIDRs") if key in parts}
    metadata = {key: parts[key] for key in ("labels", "annotations") if key in parts}
    return {
        "metadata": {"name": "n", "managedFields": [{}], **metadata},
        "spec": spec,
        "status": {"conditions": [READY], **status},
    }


def reduced(**parts: t.Any) -> dict[str, t.Any]:
    return _cluster_nodes.reduced(node(**parts))


def up(name: str) -> list[dict[str, str]]:
    return [READY, {"type": "NetworkUnavailable", "status": "False", "reason": name}]


@pytest.mark.parametrize(
    ("parts", "groups"),
    [
        ({}, []),
        (
            {
                "labels": {
                    "kubernetes.azure.com/agentpool": "dual",
                    "agentpool": "former",
                    "topology.kubernetes.io/zone": "westeurope-1",
                    "topology.kubernetes.io/region": "westeurope",
                    "kubernetes.azure.com/podnetwork-type": "overlay",
                    "kubernetes.azure.com/ebpf-dataplane": "cilium",
                },
                "providerID": "azure:///subscriptions/0/resourceGroups/mc/providers/Microsoft.Compute/virtualMachineScaleSets/x/0",
                "nodeInfo": {"operatingSystem": "linux", "architecture": "amd64"},
            },
            [
                *("pool_dual", "zone_westeurope-1", "region_westeurope", "cloud_azure", "os_linux", "arch_amd64"),
                *("cni_azure_cni", "cni_cilium"),
            ],
        ),
        (
            {"labels": {"eks.amazonaws.com/nodegroup": "ng"}, "allocatable": {"vpc.amazonaws.com/pod-eni": "9"}},
            ["pool_ng", "cni_aws_vpc_cni"],
        ),
        ({"labels": {"karpenter.sh/nodepool": "spot"}}, ["pool_spot"]),
        ({"labels": {"cloud.google.com/gke-nodepool": "p"}, "providerID": "gce://project/zone/name"}, ["pool_p", "cloud_gce"]),
        (
            {
                "labels": {"alibabacloud.com/nodepool-id": "np1"},
                "providerID": "cn-hangzhou.i-bp1x",
                "allocatable": {"aliyun/eni": "2"},
            },
            ["pool_np1", "cloud_alicloud", "cni_terway"],
        ),
        ({"labels": {"failure-domain.beta.kubernetes.io/zone": "z"}}, ["zone_z"]),
        ({"labels": {"kubernetes.azure.com/agentpool": ""}}, []),
        ({"conditions": [{**READY, "status": "Unknown"}]}, ["not_ready"]),
        ({"conditions": []}, ["not_ready"]),
        ({"conditions": up("CiliumIsUp")}, ["cni_cilium"]),
        ({"conditions": up("RouteCreated")}, []),
        ({"conditions": up("FlannelIsUp"), "annotations": {"flannel.alpha.coreos.com/backend-type": "vxlan"}}, ["cni_flannel"]),
        ({"annotations": {"projectcalico.org/IPv4Address": "10.0.0.4/24"}}, ["cni_calico"]),
        ({"taints": [{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}]}, ["cni_cilium"]),
    ],
)
def test_groups(parts: dict[str, t.Any], groups: list[str]) -> None:
    assert _cluster_nodes.groups(reduced(**parts)) == groups


@pytest.mark.parametrize(
    ("provider_id", "cloud", "instance"),
    [
        ("aws:///us-west-2a/i-0123456789abcdef0", "aws", "i-0123456789abcdef0"),
        ("aws:///us-west-2a/1a2b-3c/fargate-ip-10-0-0-1.ec2.internal", "aws", ""),
        ("aws:///us-west-2a/i-0; reboot", "aws", ""),
        ("eks-hybrid:///us-west-2/cluster/mi-0123456789abcdef0", "aws", "mi-0123456789abcdef0"),
        ("alicloud://cn-hangzhou.i-bp1x", "alicloud", ""),
        ("cn-hangzhou.i-bp1x", "alicloud", ""),
        ("ack-hybrid://cn-hangzhou/x", "alicloud", ""),
        ("k3s://edge1", "k3s", ""),
        ("i-0123", "", ""),
        ("", "", ""),
    ],
)
def test_the_cloud_and_the_instance_of_a_provider_id(provider_id: str, cloud: str, instance: str) -> None:
    assert (_cluster_nodes.cloud(provider_id), _cluster_nodes.instance_id(reduced(providerID=provider_id))) == (cloud, instance)


ADDRESSES = [
    {"type": "ExternalIP", "address": "192.0.2.7"},
    {"type": "InternalIP", "address": "10.0.0.4"},
    {"type": "InternalIP", "address": "2001:db8::4"},
    {"type": "Hostname", "address": "node-1.example.com"},
]


@pytest.mark.parametrize(
    ("types", "address"),
    [
        (["InternalIP"], "10.0.0.4"),
        (["InternalDNS", "ExternalIP", "InternalIP"], "192.0.2.7"),
        (["Hostname"], "node-1.example.com"),
        (["ExternalDNS"], ""),
        ([], ""),
    ],
)
def test_the_first_address_of_the_first_type_that_the_node_has(types: list[str], address: str) -> None:
    assert _cluster_nodes.address(reduced(addresses=ADDRESSES), types) == address


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("InternalIP", "-oProxyCommand=reboot"),
        ("InternalIP", "10.0.0.4 -v"),
        ("InternalIP", "fe80::1%-oProxyCommand=reboot"),
        ("InternalIP", "{{ lookup('pipe', 'reboot') }}"),
        ("Hostname", "-oProxyCommand=reboot"),
        ("Hostname", "node;reboot"),
        ("InternalDNS", "node\nreboot"),
        ("Hostname", ""),
    ],
)
def test_text_that_is_no_address_is_not_used(kind: str, text: str) -> None:
    wrong = reduced(addresses=[{"type": kind, "address": text}])
    assert _cluster_nodes.address(wrong, [kind]) == ""
    assert _cluster_nodes.variables(wrong)["kubenode_ipv4"] == _cluster_nodes.variables(wrong)["kubenode_ipv6"] == []


def test_variables() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    parts = {"labels": {"a": "b"}, "taints": [taint], "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "2001:db8:1::/64"]}
    assert _cluster_nodes.variables(reduced(addresses=ADDRESSES, providerID="aws:///z/i-0a", **parts)) == {
        "kubenode_name": "n",
        "kubenode_ipv4": ["10.0.0.4", "192.0.2.7"],
        "kubenode_ipv6": ["2001:db8::4"],
        "kubenode_provider_id": "aws:///z/i-0a",
        "kubenode_instance_id": "i-0a",
        "kubenode_labels": {"a": "b"},
        "kubenode_taints": [taint],
        "kubenode_pod_cidrs": ["10.1.0.0/24", "2001:db8:1::/64"],
    }
    assert reduced(podCIDR="10.1.0.0/24")["pod_cidrs"] == ["10.1.0.0/24"]  # before Kubernetes 1.16
