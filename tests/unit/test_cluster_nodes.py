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
def test_nodes_are_in_the_groups_of_their_labels(parts: dict[str, t.Any], groups: list[str]) -> None:
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
    ("kind", "text", "reason"),
    [
        ("InternalIP", "-oProxyCommand=reboot", "no IP address in the usual form"),
        ("InternalIP", "10.0.0.4 -v", "no IP address in the usual form"),
        ("InternalIP", "fe80::1%-oProxyCommand=reboot", "no IP address in the usual form"),
        ("InternalIP", "{{ lookup('pipe', 'reboot') }}", "no IP address in the usual form"),
        ("InternalIP", "node-2", "no IP address in the usual form"),
        ("ExternalIP", "localhost", "no IP address in the usual form"),
        ("InternalIP", "127.1", "no IP address in the usual form"),
        ("InternalIP", "127.0.0.1", "loopback"),
        ("InternalIP", "127.8.9.10", "loopback"),
        ("InternalIP", "::1", "loopback"),
        ("InternalIP", "0:0:0:0:0:0:0:1", "loopback"),
        ("InternalIP", "0.0.0.0", "in 0.0.0.0/8"),
        ("InternalIP", "0.0.0.1", "in 0.0.0.0/8"),
        ("InternalIP", "::", "unspecified"),
        ("InternalIP", "224.0.0.1", "multicast"),
        ("InternalIP", "ff02::1", "multicast"),
        ("InternalIP", "255.255.255.255", "reserved"),
        ("InternalIP", "169.254.169.254", "link-local"),
        ("InternalIP", "fe80::1", "link-local"),
        ("InternalIP", "::ffff:127.0.0.1", "an IPv4 address in the form of IPv6"),
        ("InternalIP", "::ffff:10.0.0.4", "an IPv4 address in the form of IPv6"),
        ("InternalIP", "::127.0.0.1", "reserved"),
        ("InternalIP", "64:ff9b::127.0.0.1", "reserved"),
        ("Hostname", "127.0.0.1", "loopback"),
        *((kind, "127.1", "no IP address in the usual form") for kind in ("Hostname", "InternalDNS", "ExternalDNS")),
        ("Hostname", "0x7f.1", "no IP address in the usual form"),
        ("Hostname", "0177.0.0.1", "no IP address in the usual form"),
        ("Hostname", "2130706433", "no IP address in the usual form"),
        ("Hostname", "0", "no IP address in the usual form"),
        ("Hostname", "-oProxyCommand=reboot", "no host name"),
        ("Hostname", "node;reboot", "no host name"),
        ("InternalDNS", "node\nreboot", "no host name"),
        ("Hostname", "", "no host name"),
        *(
            ("Hostname", name, "a name of the controller itself")
            for name in (
                *("localhost", "LocalHost", "localhost.localdomain", "localhost4", "localhost6.localdomain6", "ip6-loopback"),
                *("a.localhost", "jump", "JUMP.example.com"),
            )
        ),
    ],
)
def test_an_address_that_is_not_one_other_machines_is_refused_by_its_name(kind: str, text: str, reason: str) -> None:
    addresses = [{"type": kind, "address": text}, {"type": kind, "address": "10.0.0.4"}]
    node, sentences = _cluster_nodes.screened(reduced(addresses=addresses), "jump.example.com")
    assert node["addresses"] == addresses[1:]
    assert [
        sentence.startswith(f"Node n: its {kind} {text!r} is not used, because it is {reason}") for sentence in sentences
    ] == [True]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("InternalIP", "100.64.0.9"),
        ("InternalIP", "fd00::4"),
        ("InternalIP", "2001:db8::4"),
        ("Hostname", "10.0.0.4"),
        ("Hostname", "cn-hangzhou.172.16.0.4"),
        ("Hostname", "localhost.example.com"),
        ("InternalDNS", "ip-10-0-0-4.ec2.internal"),
        ("Hostname", "jump2"),
    ],
)
def test_an_address_of_a_node_is_used(kind: str, text: str) -> None:
    parts = {**reduced(addresses=[{"type": kind, "address": text}]), "name": text}
    assert _cluster_nodes.screened(parts, "jump.example.com") == (parts, [])


def test_a_hostname_that_is_not_the_nodes_name_is_not_used() -> None:
    """As a kubelet chooses it, DNS could lead it to any machine."""
    hostname, address = {"type": "Hostname", "address": "n.127.0.0.1.nip.io"}, {"type": "InternalIP", "address": "10.0.0.4"}
    both, alone = (reduced(addresses=addresses) for addresses in ([hostname, address], [hostname]))
    assert _cluster_nodes.screened(both, "jump") == ({**both, "addresses": [address]}, [])
    assert _cluster_nodes.screened(alone, "jump") == (
        {**alone, "addresses": []},
        ["Node n: its Hostname 'n.127.0.0.1.nip.io' is not used, because it is not the name of the node"],
    )


def test_nodes_that_share_an_address_or_an_instance_are_named_with_it() -> None:
    addresses = [["10.0.0.4", "2001:db8::4"], ["10.0.0.5", "2001:DB8:0::4"], ["10.0.0.6"], ["10.0.0.7"]]
    nodes = [
        {**reduced(addresses=[{"type": "InternalIP", "address": text} for text in texts], **parts), "name": name}
        for name, texts, parts in zip(
            "abcd", addresses, [{}, {}, {"providerID": "aws:///z1/i-0a"}, {"providerID": "aws:///z2/i-0a"}]
        )
    ]
    assert _cluster_nodes.doubles(nodes, ["InternalIP"]) == {
        "the address 2001:db8::4": ["a", "b"],
        "the instance id i-0a": ["c", "d"],
    }
    assert "the address 2001:db8::4" not in _cluster_nodes.doubles(nodes, ["Hostname"])


@pytest.mark.parametrize(
    ("internal", "doubles"),
    [
        (["10.0.0.4", "10.0.0.5"], {}),  # behind one NAT
        (["10.0.0.4", ""], {"the address 192.0.2.1": ["a", "b"]}),  # b would be reached by the address of both
    ],
)
def test_an_external_address_that_leads_to_no_node_may_be_shared(internal: list[str], doubles: dict[str, list[str]]) -> None:
    external = [{"type": "ExternalIP", "address": "192.0.2.1"}]
    nodes = [
        {**reduced(addresses=[*external, *([{"type": "InternalIP", "address": text}] if text else [])]), "name": name}
        for name, text in zip("ab", internal)
    ]
    assert _cluster_nodes.doubles(nodes, ["InternalIP", "ExternalIP"]) == doubles
    assert "the address 192.0.2.1" in _cluster_nodes.doubles(nodes, ["ExternalIP", "InternalIP"])


@pytest.mark.parametrize(
    ("uuids", "end"), [("12345", "UUIDs do."), ("11111", "UUIDs do not either."), (["", *"1234"], "UUIDs do not either.")]
)
def test_clones_are_named_with_what_tells_them_apart(uuids: t.Sequence[str], end: str) -> None:
    infos = [{"machineID": "AB" * 16, "systemUUID": uuid} for uuid in uuids]
    nodes = [{**reduced(nodeInfo=info), "name": name} for name, info in zip("abcde", infos)]
    (sentence,) = _cluster_nodes.clones([*nodes, reduced(nodeInfo={"machineID": "cd" * 16}), reduced()])
    assert sentence.startswith(f"Nodes a, b, c and 2 more have one machine id, {'ab' * 16}, ") and end in sentence, sentence


@pytest.mark.parametrize("text", ["", "a b", "a" * 65, "{{ 1 }}", None, 7])
def test_a_text_that_is_no_machine_id_is_none(text: t.Any) -> None:
    node = reduced(nodeInfo={"machineID": text, "systemUUID": text})
    assert (node["machine_id"], node["system_uuid"]) == ("", "")


def test_nodes_have_the_variables_of_their_objects() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    parts = {"labels": {"a": "b"}, "taints": [taint], "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "2001:db8:1::/64"]}
    info = {"machineID": "0A" * 16, "systemUUID": "4C4C4544-0042"}
    assert _cluster_nodes.variables(reduced(addresses=ADDRESSES, providerID="aws:///z/i-0a", nodeInfo=info, **parts)) == {
        "kubenode_name": "n",
        "kubenode_ipv4": ["10.0.0.4", "192.0.2.7"],
        "kubenode_ipv6": ["2001:db8::4"],
        "kubenode_provider_id": "aws:///z/i-0a",
        "kubenode_instance_id": "i-0a",
        "kubenode_machine_id": "0a" * 16,
        "kubenode_system_uuid": "4c4c4544-0042",
        "kubenode_labels": {"a": "b"},
        "kubenode_taints": [taint],
        "kubenode_pod_cidrs": ["10.1.0.0/24", "2001:db8:1::/64"],
    }
    assert reduced(podCIDR="10.1.0.0/24")["pod_cidrs"] == ["10.1.0.0/24"]  # before Kubernetes 1.16
