# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The facts in a cluster's Node objects that an inventory needs. Pure; Node objects are JSON, as the API has them.

A kubelet writes most of its own Node object, so an address or an instance id is used only if it has the form of one:
Ansible puts both into command lines.

Sources of the names: AKS (Azure/AgentBaker, Azure/karpenter-provider-azure), EKS and Karpenter (aws/amazon-vpc-cni-k8s,
awslabs/amazon-eks-ami, aws/karpenter-provider-aws), Alibaba Cloud (kubernetes/cloud-provider-alibaba-cloud,
pkg/provider/alibaba/util; AliyunContainerService/terway, deviceplugin), Cilium, Calico and flannel (the condition
NetworkUnavailable, annotations).
"""

from __future__ import annotations

import ipaddress
import re
import typing as t

Json = dict[str, t.Any]

# Labels that name a node's pool, the more specific first.
POOLS = (
    "kubernetes.azure.com/agentpool",
    "agentpool",  # AKS, formerly
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",  # Karpenter before 0.32
    "cloud.google.com/gke-nodepool",
    "alibabacloud.com/nodepool-id",
)
ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
# The scheme of a provider id, where the cloud has another name. Schemes not listed are names of clouds themselves.
CLOUDS = {"eks-hybrid": "aws", "ack-hybrid": "alicloud"}
# How the names of a label, an annotation, a taint or a resource begin, and the CNI that sets them.
CNI_NAMES = {
    "network.cilium.io/": "cilium",
    "io.cilium.network.": "cilium",
    "node.cilium.io/": "cilium",
    "projectcalico.org/": "calico",
    "flannel.alpha.coreos.com/": "flannel",
    "vpc.amazonaws.com/": "aws_vpc_cni",
    "kubernetes.azure.com/podnetwork-type": "azure_cni",
    "k8s.aliyun.com/exclusive-mode-eni-type": "terway",
    "aliyun/eni": "terway",
    "aliyun/member-eni": "terway",
}
DATAPLANE = "kubernetes.azure.com/ebpf-dataplane"

_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.IGNORECASE)
# EC2 instances, and machines that AWS Systems Manager manages outside of EC2.
_INSTANCE = re.compile(r"m?i-[0-9a-f]+")
_ALIBABA = re.compile(r"[a-z0-9-]+\.[a-z]+-[a-z0-9]+")  # REGION.INSTANCE


def reduced(node: Json) -> Json:
    """Return the parts that an inventory needs: a Node also lists every image and every manager of its fields."""
    metadata, spec, status = (node.get(key) or {} for key in ("metadata", "spec", "status"))
    conditions = [
        {key: condition.get(key, "") for key in ("type", "status", "reason")} for condition in status.get("conditions") or ()
    ]
    return {
        "name": metadata["name"],
        "labels": metadata.get("labels") or {},
        "annotations": sorted(metadata.get("annotations") or ()),
        "provider_id": spec.get("providerID") or "",
        "taints": spec.get("taints") or [],
        "pod_cidrs": spec.get("podCIDRs") or [spec[key] for key in ("podCIDR",) if spec.get(key)],
        "addresses": status.get("addresses") or [],
        "conditions": conditions,
        "resources": sorted(status.get("allocatable") or ()),
        "os": (status.get("nodeInfo") or {}).get("operatingSystem") or "",
        "arch": (status.get("nodeInfo") or {}).get("architecture") or "",
    }


def groups(node: Json) -> list[str]:
    """Return the groups of a reduced node, besides the group of all nodes. The names may need to be made safe."""
    labels = node["labels"]
    values = {
        "pool": _first(labels, POOLS),
        "zone": _first(labels, ZONES),
        "region": region(node),
        "cloud": cloud(node["provider_id"]),
        "os": node["os"],
        "arch": node["arch"],
    }
    named = [f"{kind}_{value}" for kind, value in values.items() if value]
    return named + [f"cni_{name}" for name in cnis(node)] + ([] if is_ready(node) else ["not_ready"])


def variables(node: Json) -> Json:
    """Return the variables of a reduced node that do not depend on how it is reached."""
    return {
        "kubenode_name": node["name"],
        "kubenode_ipv4": _of_family(node, 4),
        "kubenode_ipv6": _of_family(node, 6),
        "kubenode_provider_id": node["provider_id"],
        "kubenode_instance_id": instance_id(node),
        "kubenode_labels": node["labels"],
        "kubenode_taints": node["taints"],
        "kubenode_pod_cidrs": node["pod_cidrs"],
    }


def address(node: Json, types: t.Iterable[str]) -> str:
    """Return the first valid address of the first of these types that the node has; empty without one."""
    valid = (text for wanted in types for kind, text in _addresses(node) if kind == wanted and _is_address(text, wanted))
    return next(valid, "")


def region(node: Json) -> str:
    return _first(node["labels"], REGIONS)


def instance_id(node: Json) -> str:
    """Return the id by which AWS Systems Manager knows the node; empty for a node that is not in AWS, and for Fargate."""
    last = node["provider_id"].rpartition("/")[2]
    return last if cloud(node["provider_id"]) == "aws" and _INSTANCE.fullmatch(last) else ""


def cloud(provider_id: str) -> str:
    """Return azure, aws, gce, alicloud, or another scheme of provider ids. Alibaba Cloud also writes ids without a scheme."""
    scheme, colon, _rest = provider_id.partition("://")
    if not colon:
        return "alicloud" if _ALIBABA.fullmatch(provider_id) else ""
    return CLOUDS.get(scheme, scheme)


def cnis(node: Json) -> list[str]:
    """Return the CNIs of which the Node object shows a trace. Two are there under a policy engine or a meta plugin."""
    names = [*node["labels"], *node["annotations"], *node["resources"], *(taint.get("key", "") for taint in node["taints"])]
    names_of_cnis = {cni for name in names for beginning, cni in CNI_NAMES.items() if name.startswith(beginning)}
    for condition in node["conditions"]:
        says = re.fullmatch(r"(\w+)IsUp", condition["reason"])  # CiliumIsUp, CalicoIsUp, FlannelIsUp
        if condition["type"] == "NetworkUnavailable" and says:
            names_of_cnis.add(says[1].lower())
    if node["labels"].get(DATAPLANE):
        names_of_cnis.add(node["labels"][DATAPLANE])
    return sorted(names_of_cnis)


def is_ready(node: Json) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in node["conditions"])


def _first(labels: Json, names: t.Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _addresses(node: Json) -> list[tuple[str, str]]:
    return [(address["type"], address["address"]) for address in node["addresses"]]


def _is_address(text: str, kind: str) -> bool:
    return bool(_HOST_NAME.fullmatch(text)) if kind == "Hostname" or kind.endswith("DNS") else _family(text) != 0


def _of_family(node: Json, family: int) -> list[str]:
    """Return internal before external addresses, each in the order of the Node object."""
    texts = [text for wanted in ("InternalIP", "ExternalIP") for kind, text in _addresses(node) if kind == wanted]
    return [text for text in texts if _family(text) == family]


def _family(text: str) -> int:
    """Return 4 or 6; 0 for a text that is no address. A zone (RFC 4007) may be any text, so an address with one is none."""
    try:
        return 0 if "%" in text else ipaddress.ip_address(text).version
    except ValueError:
        return 0
