# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts in a cluster's Node objects that an inventory needs. Pure; Node objects are JSON, as the API has them.

A kubelet writes most of its own Node object, so an address or an instance id is used only if it has the form of one: Ansible puts
both into command lines. An address that leads to the controller, or to no single machine, is not used either.

Sources of the names: AKS (Azure/AgentBaker, Azure/karpenter-provider-azure), EKS and Karpenter (aws/amazon-vpc-cni-k8s,
awslabs/amazon-eks-ami, aws/karpenter-provider-aws), Alibaba Cloud (kubernetes/cloud-provider-alibaba-cloud,
pkg/provider/alibaba/util; AliyunContainerService/terway, deviceplugin), Cilium, Calico and flannel (the condition
NetworkUnavailable, annotations).
"""

from __future__ import annotations

import ipaddress
import re
import socket
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import first_of

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
TAINT = ("key", "value", "effect", "timeAdded")
MOST = 3  # nodes that a sentence names
DATAPLANE = "kubernetes.azure.com/ebpf-dataplane"

IP_TYPES = ("InternalIP", "ExternalIP")
# Addresses that are not one other machine's, by the properties of ipaddress. A link-local address needs a zone, which is a text
# that the node chooses (RFC 4007).
_NOT_A_MACHINE = ("loopback", "unspecified", "link_local", "multicast", "reserved")
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")  # RFC 791; Linux takes some of it for itself
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.IGNORECASE)
# The names of Debian's and Red Hat's /etc/hosts, and of RFC 6761.
_LOCALHOST = re.compile(r"(.*\.)?localhost[46]?(\.localdomain[46]?)?|ip6-(localhost|loopback)")
_MACHINE = re.compile(r"[\w,.-]{1,64}", re.ASCII)
# EC2 instances, and machines that AWS Systems Manager manages outside of EC2.
_INSTANCE = re.compile(r"m?i-[0-9a-f]+")
_ALIBABA = re.compile(r"[a-z0-9-]+\.[a-z]+-[a-z0-9]+")  # REGION.INSTANCE


def reduced(node: Json) -> Json:
    """Return the parts that an inventory needs: a Node also lists every image and every manager of its fields."""
    metadata, spec, status = (node.get(key) or {} for key in ("metadata", "spec", "status"))
    info = status.get("nodeInfo") or {}
    conditions = [
        {key: condition.get(key, "") for key in ("type", "status", "reason")} for condition in status.get("conditions") or ()
    ]
    return {
        "name": metadata["name"],
        "labels": {key: str(value) for key, value in (metadata.get("labels") or {}).items()},
        "annotations": sorted(metadata.get("annotations") or ()),
        "provider_id": spec.get("providerID") or "",
        "taints": [{key: str(taint[key]) for key in TAINT if key in taint} for taint in spec.get("taints") or ()],
        "pod_cidrs": spec.get("podCIDRs") or [spec[key] for key in ("podCIDR",) if spec.get(key)],
        "addresses": status.get("addresses") or [],
        "conditions": conditions,
        "resources": sorted(status.get("allocatable") or ()),
        "os": info.get("operatingSystem") or "",
        "arch": info.get("architecture") or "",
        "machine_id": _machine(info.get("machineID")),
        "system_uuid": _machine(info.get("systemUUID")),
    }


def screened(node: Json, controller: str) -> tuple[Json, list[str]]:
    """Return a reduced node with its usable addresses alone, and a sentence about each other one.

    controller: the controller's name for itself. A node of a cloud may have another Hostname than its name (AWS: its private DNS
    name), which is worth a sentence only if the node has no other address.
    """
    reasons = [(address, _unusable(address["type"], address["address"], controller)) for address in node["addresses"]]
    usable = [address for address, reason in reasons if not reason and not _is_of_another_name(address, node["name"])]
    if not usable:
        reasons = [(address, reason or "not the name of the node") for address, reason in reasons]
    sentences = [
        f"Node {node['name']}: its {address['type']} {address['address']!r} is not used, because it is {reason}"
        for address, reason in reasons
        if reason
    ]
    return {**node, "addresses": usable}, sentences


def doubles(nodes: t.Sequence[Json], types: t.Sequence[str]) -> dict[str, list[str]]:
    """Return the names of the nodes that share an address of these types, or an instance id, by what they share.

    Nodes behind one NAT share an external address. That matters only if one of them is reached by it.
    """
    used = {_canonical(text) for node in nodes for text in (address(node, types), *_internal(node)) if text}
    names: dict[str, list[str]] = {}
    for node in nodes:
        of_types = {_canonical(text) for kind, text in _addresses(node) if kind in types}
        shared = {f"the address {text}" for text in of_types & used}
        for claim in sorted(shared | {f"the instance id {text}" for text in (instance_id(node),) if text}):
            names.setdefault(claim, []).append(node["name"])
    return {claim: claimants for claim, claimants in names.items() if len(claimants) > 1}


def clones(nodes: t.Iterable[Json]) -> list[str]:
    """Return a sentence about each machine id that several nodes have, as clones of an image that keeps its id."""
    by_id: dict[str, list[Json]] = {}
    for node in nodes:
        if node["machine_id"]:
            by_id.setdefault(node["machine_id"], []).append(node)
    return [_clones(machine_id, same) for machine_id, same in by_id.items() if len(same) > 1]


def _clones(machine_id: str, nodes: t.Sequence[Json]) -> str:
    uuids = {node["system_uuid"] for node in nodes}
    differ = len(uuids) == len(nodes) and "" not in uuids
    names = first_of([node["name"] for node in nodes], MOST)
    return (
        f"Nodes {names} have one machine id, {machine_id}, so that it does not tell one from another before a change;"
        f" their system UUIDs {'do' if differ else 'do not either'}. Empty /etc/machine-id in the image that they were made of"
    )


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
    names_of_groups = [f"{kind}_{value}" for kind, value in values.items() if value]
    return names_of_groups + [f"cni_{name}" for name in cnis(node)] + ([] if is_ready(node) else ["not_ready"])


def variables(node: Json) -> Json:
    """Return the variables of a reduced node that do not depend on how it is reached."""
    return {
        "kubenode_name": node["name"],
        "kubenode_ipv4": _of_family(node, 4),
        "kubenode_ipv6": _of_family(node, 6),
        "kubenode_provider_id": node["provider_id"],
        "kubenode_instance_id": instance_id(node),
        "kubenode_machine_id": node["machine_id"],
        "kubenode_system_uuid": node["system_uuid"],
        "kubenode_labels": node["labels"],
        "kubenode_taints": node["taints"],
        "kubenode_pod_cidrs": node["pod_cidrs"],
    }


def address(node: Json, types: t.Iterable[str]) -> str:
    """Return the first address of the first of these types that a screened node has; empty without one."""
    return next((text for wanted in types for kind, text in _addresses(node) if kind == wanted), "")


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


def _internal(node: Json) -> list[str]:
    return [text for kind, text in _addresses(node) if kind == IP_TYPES[0]]


def _addresses(node: Json) -> list[tuple[str, str]]:
    return [(address["type"], address["address"]) for address in node["addresses"]]


def _is_of_another_name(address: Json, name: str) -> bool:
    """Return whether a Hostname is not the node's name: by one that a kubelet chooses, DNS could lead to any machine."""
    text = address["address"]
    return address["type"] == "Hostname" and not _family(text) and text.lower() != name.lower()


def _unusable(kind: str, text: str, controller: str) -> str:
    """Return what an address is, if it cannot be the address of a node; else empty."""
    if kind in IP_TYPES or _is_ipv4(text):  # a kubelet's --hostname-override may be an address
        return _unusable_address(text)
    if not _HOST_NAME.fullmatch(text):
        return "no host name"
    name = text.lower()
    own_names = {controller.lower(), controller.lower().partition(".")[0]}
    return "a name of the controller itself" if name in own_names or _LOCALHOST.fullmatch(name) else ""


def _unusable_address(text: str) -> str:
    family = _family(text)
    if not family:
        return "no IP address in the usual form"
    address = ipaddress.ip_address(text)
    if family == 6 and t.cast("ipaddress.IPv6Address", address).ipv4_mapped:
        return "an IPv4 address in the form of IPv6"
    if address in _THIS_NETWORK:
        return f"in {_THIS_NETWORK}"
    kind = next((kind for kind in _NOT_A_MACHINE if getattr(address, f"is_{kind}")), "")
    return f"{kind.replace('_', '-')}, and so is no other machine's" if kind else ""


def _is_ipv4(text: str) -> bool:
    """Return whether the C library reads the text as an IPv4 address, such as 127.1, 0x7f.1 or 2130706433."""
    try:
        return bool(socket.inet_aton(text))
    except (OSError, ValueError):
        return False


def _canonical(text: str) -> str:
    return str(ipaddress.ip_address(text)) if _family(text) else text.lower()


def _machine(text: t.Any) -> str:
    """Return a machine id or a system UUID; empty for a text that is none."""
    return text.lower() if isinstance(text, str) and _MACHINE.fullmatch(text) else ""


def _of_family(node: Json, family: int) -> list[str]:
    """Return internal before external addresses of a screened node, each in the order of the Node object."""
    texts = [text for wanted in IP_TYPES for kind, text in _addresses(node) if kind == wanted]
    return [text for text in texts if _family(text) == family]


def _family(text: str) -> int:
    """Return 4 or 6; 0 for a text that is no address. A zone (RFC 4007) may be any text, so an address with one is none."""
    try:
        return 0 if "%" in text else ipaddress.ip_address(text).version
    except ValueError:
        return 0
