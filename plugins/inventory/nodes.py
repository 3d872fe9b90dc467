# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes
short_description: Nodes of a Kubernetes cluster, in groups by pool, zone, cloud and CNI
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Lists the nodes of a cluster by its API. The name of a host is the name of its Node object.
  - The inventory is a file whose name ends with C(kubenode.yml) or C(kubenode.yaml), with the options below.
  - All nodes are in the group C(nodes), which is the default C(kubenode_target) of the collection's playbooks. A cluster with
    Windows nodes needs O(label_selector=kubernetes.io/os=linux).
  - Further groups are C(pool_NAME), C(zone_NAME), C(region_NAME), C(cloud_NAME), C(os_NAME), C(arch_NAME), C(cni_NAME), and
    C(not_ready) for nodes that are not ready. Characters that group names cannot have are replaced by underscores.
  - The pool is read from labels of AKS, EKS, eksctl, Karpenter, GKE and Alibaba Cloud. The cloud is the scheme of the provider
    id, such as V(azure), V(aws), V(gce) or V(alicloud).
  - C(cni_NAME) is derived from labels, annotations, taints, resources and conditions of the Node object. Not every CNI sets any
    of these, and a node may be in several of these groups. M(kubenode.datapath.cni_info) reads the node itself.
  - Each host has the variables C(kubenode_name), C(kubenode_ipv4) and C(kubenode_ipv6) (lists of addresses, internal ones first),
    C(kubenode_provider_id), C(kubenode_instance_id) (on AWS, else empty), C(kubenode_machine_id), C(kubenode_system_uuid),
    C(kubenode_labels), C(kubenode_taints) and C(kubenode_pod_cidrs).
  - Values from the cluster are data. Ansible never evaluates them as templates, and an address or an instance id that does
    not have the form of one is not used. A node with the name of a group, with the name V(localhost), or
    with a name that Kubernetes does not permit is left out with a warning.
  - With ansible-core 2.17 and 2.18, values that could be templates are marked as unsafe. C(ansible-inventory --list) prints
    these as dictionaries with the key C(__ansible_unsafe).
  - An address is not used, with a warning, if it is loopback, unspecified, link-local, multicast or reserved, an IPv4 address
    in the form of IPv6 or in an unusual spelling such as V(127.1), a host name whose type is that of an IP address, a name
    of the controller, or a C(Hostname) that is not the node's name. The names C(InternalDNS) and C(ExternalDNS) lead where DNS
    says; a cloud sets them.
  - Nodes that share an address of O(address_types) or an instance id are left out with a warning, because nothing tells whose
    it is; with O(strict) they are an error. One of their Node objects is stale or wrong. An address that is not internal, and
    by which none of the nodes is reached, may be shared, as behind one NAT.
  - M(kubenode.datapath.profile), and with it each role and playbook of this collection, compares C(kubenode_machine_id) and
    C(kubenode_system_uuid) with the machine that answers, before it changes anything. A node that has neither is left out
    with a warning; with O(strict) it is an error. Clones of an image that keeps its machine id have one machine id, of which
    a warning says whether their system UUIDs differ. If kubelet runs in a container with a machine id of its own, set both
    variables to an empty text by O(compose), so that nothing is compared.
requirements:
  - The Python package C(kubernetes) 22.6 or newer on the controller.
  - Permission to C(list) C(nodes).
notes:
  - A kubelet can set labels and addresses of its own Node object. A node under an attacker's control can move to another group by
    a label outside C(kubernetes.io) and C(k8s.io). SSH host keys prove that an address leads to a machine, and the
    machine's ids prove that it is the node.
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [kubenode.datapath.nodes]
  kubeconfig:
    description:
      - Path of the kubeconfig file.
      - Without it and without O(context), a controller that runs in a pod uses the pod's service account. Any other
        controller uses E(KUBECONFIG) or C(~/.kube/config).
    type: path
    env:
      - name: K8S_AUTH_KUBECONFIG
  context:
    description:
      - The context of the kubeconfig; by default its current one.
      - Set it together with O(cache). A cached result stays valid when the current context changes.
    type: str
    env:
      - name: K8S_AUTH_CONTEXT
  label_selector:
    description: Lists only the nodes with these labels, in the syntax of C(kubectl get nodes --selector).
    type: str
  timeout:
    description: Seconds that one attempt of a request to the API may take. The client tries a request up to four times.
    type: int
    default: 30
  address_types:
    description:
      - Types of addresses in C(status.addresses), the preferred one first. C(ansible_host) becomes the first address
        of the first type that the node has.
      - A node without such an address is omitted with a warning; with O(strict) it is an error.
    type: list
    elements: str
    choices: [InternalIP, ExternalIP, Hostname, InternalDNS, ExternalDNS]
    default: [InternalIP, ExternalIP, Hostname]
  connection:
    description:
      - V(ssh) sets C(ansible_host) and leaves the connection plugin to Ansible's configuration.
      - V(amazon.aws.aws_ssm) and its old name V(community.aws.aws_ssm) set the variables of that connection plugin, with the
        instance id from the provider id and the region from the node's labels. The collection must be installed,
        and you must set C(ansible_aws_ssm_bucket_name). A node without an instance id, such as one of Fargate, is omitted with a
        warning; with O(strict) it is an error.
    type: str
    choices: [ssh, amazon.aws.aws_ssm, community.aws.aws_ssm]
    default: ssh
  jump_host:
    description:
      - Reaches the nodes through this host, as C(USER@HOST:PORT), or through several, separated by commas. Sets
        C(ansible_ssh_common_args) to ssh's option C(ProxyJump).
      - Only with O(connection=ssh). Configure the key for the jump host in C(~/.ssh/config), or in an ssh-agent.
    type: str
  user:
    description:
      - Sets C(ansible_user).
      - Only with O(connection=ssh), because the connection plugin for Systems Manager takes no user.
    type: str
extends_documentation_fragment:
  - constructed
  - inventory_cache
"""

EXAMPLES = r"""
# AKS, nodes.kubenode.yml: nodes of two pools, by a jump host in the virtual network
plugin: kubenode.datapath.nodes
context: my-aks
label_selector: kubernetes.azure.com/agentpool in (dual, edge),kubernetes.io/os=linux
jump_host: ops@bastion.example.com
user: azureuser
---
# EKS by Systems Manager, without nodes of Fargate
plugin: kubenode.datapath.nodes
label_selector: eks.amazonaws.com/compute-type!=fargate
connection: amazon.aws.aws_ssm
compose:
  ansible_aws_ssm_bucket_name: "'my-transfer-bucket'"
---
# EKS by SSH through Systems Manager: group_vars/nodes.yml has the ProxyCommand
plugin: kubenode.datapath.nodes
label_selector: eks.amazonaws.com/compute-type!=fargate
user: ec2-user
compose:
  ansible_host: kubenode_instance_id
---
# On premises: workers by their IPv6 address, groups by a label of your own, results kept for ten minutes
plugin: kubenode.datapath.nodes
kubeconfig: ~/.kube/onprem
label_selector: "!node-role.kubernetes.io/control-plane"
user: root
compose:
  ansible_host: kubenode_ipv6[0]
  eni_policy_routing_primary_interface: kubenode_labels['example.com/uplink'] | default('eth0')
groups:
  tainted: kubenode_taints | length > 0
keyed_groups:
  - key: kubenode_labels['example.com/rack']
    prefix: rack
strict: false
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/ansible-nodes
cache_timeout: 600
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import socket
import sys
import typing as t

from ansible import constants as C
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _cluster_nodes
from ansible_collections.kubenode.datapath.plugins.plugin_utils._untrusted import untrusted

try:
    import kubernetes
    import kubernetes.config
    import urllib3.exceptions
except ImportError:
    kubernetes = None

ALL = "nodes"
PAGE = 500  # Node objects per request: one is about 10 KB
# Kubernetes: a name of a Node object is a subdomain of RFC 1123.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_JUMP = re.compile(r"[A-Za-z0-9_@.:,\[\]%-]+")


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    NAME = "kubenode.datapath.nodes"

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith(("kubenode.yml", "kubenode.yaml"))

    def parse(self, inventory: t.Any, loader: t.Any, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        self._check_options()
        self.inventory.add_group(ALL)
        nodes = [self._screened(node) for node in self._nodes(path, cache)]
        for sentence in _cluster_nodes.clones(nodes):
            self._warn(sentence)
        ambiguous = self._ambiguous(nodes)
        for node in nodes:
            if node["name"] not in ambiguous:
                self._add(node)

    def _check_options(self) -> None:
        jump_host, connection = self.get_option("jump_host"), self.get_option("connection")
        if connection != "ssh":
            useless = [name for name in ("jump_host", "user") if self.get_option(name)]
            if useless:
                raise AnsibleParserError(f"{' and '.join(useless)}: only with connection ssh, but connection is {connection}")
        if jump_host and (jump_host.startswith("-") or not _JUMP.fullmatch(jump_host)):
            raise AnsibleParserError(f"jump_host is {jump_host!r}; it must be USER@HOST:PORT, or several with commas between")

    def _nodes(self, path: str, cache: bool) -> list[_cluster_nodes.Json]:
        """Return the reduced nodes, from the cache if Ansible and the options permit."""
        if not self.get_option("cache"):
            return self._listed()
        options = [self.get_option(name) for name in ("kubeconfig", "context", "label_selector")]
        # With the keys of a node, because another version of the collection may have written the cache.
        request = json.dumps([*options, os.environ.get("KUBECONFIG"), *_cluster_nodes.reduced({"metadata": {"name": ""}})])
        key = f"{self.get_cache_key(path)}_{hashlib.sha256(request.encode()).hexdigest()[:12]}"
        if cache:
            with contextlib.suppress(KeyError):  # it is not there, or too old
                return list(self._cache[key])
        self._cache[key] = nodes = self._listed()
        return nodes

    def _listed(self) -> list[_cluster_nodes.Json]:
        if kubernetes is None:
            raise AnsibleParserError(
                f"The Python of this Ansible, {sys.executable}, has no package kubernetes, which lists the nodes. "
                f"Install it with `{sys.executable} -m pip install kubernetes`, or, if Ansible is Debian's, with "
                "`apt-get install python3-kubernetes`."
            )
        configuration = self._configuration()
        options: dict[str, t.Any] = {"limit": PAGE, "_request_timeout": self.get_option("timeout")}
        if self.get_option("label_selector"):
            options["label_selector"] = self.get_option("label_selector")
        nodes: list[_cluster_nodes.Json] = []
        try:
            with kubernetes.client.ApiClient(configuration) as client:
                api = kubernetes.client.CoreV1Api(client)
                while True:
                    # Not as objects of the client: some versions refuse nodes that they think incomplete.
                    page = json.loads(api.list_node(_preload_content=False, **options).data)
                    nodes += map(_cluster_nodes.reduced, page["items"] or ())
                    options["_continue"] = page["metadata"].get("continue")
                    if not options["_continue"]:
                        return nodes
        except kubernetes.client.ApiException as refusal:
            raise AnsibleParserError(
                f"The API {configuration.host} did not list the nodes: {refusal.status} {printable(_message(refusal))}. "
                "The account of the kubeconfig needs the verb list for nodes, and label_selector must be valid."
            ) from refusal
        except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError, AttributeError) as trouble:
            raise AnsibleParserError(
                f"The API {configuration.host} did not list the nodes: {printable(str(trouble))}. "
                "Check kubeconfig and context with `kubectl get nodes`."
            ) from trouble

    def _configuration(self) -> t.Any:
        kubeconfig, context = self.get_option("kubeconfig"), self.get_option("context")
        configuration = kubernetes.client.Configuration()
        try:
            if not kubeconfig and not context and "KUBERNETES_SERVICE_HOST" in os.environ:
                kubernetes.config.load_incluster_config(client_configuration=configuration)
            else:
                kubernetes.config.load_kube_config(kubeconfig, context, client_configuration=configuration)
        except Exception as trouble:  # YAML errors and failures of programs that give credentials, besides its own
            source = (
                f"the kubeconfig {kubeconfig or 'of KUBECONFIG or ~/.kube/config'}{f', context {context}' if context else ''}"
            )
            raise AnsibleParserError(f"The credentials for the cluster could not be read from {source}: {trouble}") from trouble
        return configuration

    def _screened(self, node: _cluster_nodes.Json) -> _cluster_nodes.Json:
        screened, sentences = _cluster_nodes.screened(node, socket.gethostname())
        for sentence in sentences:
            self._warn(sentence)
        return {key: untrusted(value) for key, value in screened.items()}

    def _ambiguous(self, nodes: list[_cluster_nodes.Json]) -> set[str]:
        """Return the names of nodes that share an address or an instance id: nothing tells whose it is."""
        is_ssh = self.get_option("connection") == "ssh"
        doubles = _cluster_nodes.doubles(nodes, self.get_option("address_types") if is_ssh else ())
        for claim, names in doubles.items():
            self._leave_out(f"Nodes {' and '.join(names)} have {claim} in common, so that one Node object is stale or wrong")
        return {name for names in doubles.values() for name in names}

    def _leave_out(self, reason: str) -> None:
        """Warn that a node is not in the inventory. Raises AnsibleParserError with the option strict."""
        if self.get_option("strict"):
            raise AnsibleParserError(printable(f"{reason}; exclude the node by label_selector, or set strict to false"))
        self._warn(f"{reason}; it is not in the inventory")

    def _warn(self, sentence: str) -> None:
        self.display.warning(printable(sentence))

    def _add(self, node: _cluster_nodes.Json) -> None:
        name, strict = node["name"], self.get_option("strict")
        if not _NAME.fullmatch(name) or name in C.LOCALHOST:  # tasks for the controller itself would go to a node of that name
            self.display.warning(f"Node {name!r} has no name that a node may have; it is not in the inventory")
            return
        if name in self.inventory.groups:  # Ansible would put the group, and not the node, into the node's groups
            self.display.warning(f"Node {name} has the name of a group; it is not in the inventory")
            return
        connection = self._connection(node)
        lack = self._lack(node, connection)
        if lack:
            self._leave_out(f"Node {name} has no {lack}")
            return
        self.inventory.add_host(name, group=ALL)
        for group in _cluster_nodes.groups(node):
            self.inventory.add_child(self.inventory.add_group(self._sanitize_group_name(group)), name)
        variables = {**_cluster_nodes.variables(node), **connection}
        for key, value in variables.items():
            self.inventory.set_variable(name, key, value)
        self._set_composite_vars(self.get_option("compose"), variables, name, strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict)

    def _lack(self, node: _cluster_nodes.Json, connection: dict[str, str]) -> str:
        """Return what a node lacks without which it is not in the inventory; empty if it lacks nothing."""
        if not connection and self.get_option("connection") != "ssh":
            return f"instance id of AWS in its provider id {node['provider_id']!r}"
        if not connection:
            return "address of " + ", ".join(self.get_option("address_types"))
        if not node["machine_id"] and not node["system_uuid"]:
            # Otherwise a node could lead a run to another machine, if it only removed both.
            return "machine id and no system UUID in its nodeInfo, which tell it from another machine"
        return ""

    def _connection(self, node: _cluster_nodes.Json) -> dict[str, str]:
        """Return the variables by which Ansible reaches a node; none if it cannot."""
        if self.get_option("connection") != "ssh":
            instance = _cluster_nodes.instance_id(node)
            variables = {
                "ansible_connection": self.get_option("connection"),
                "ansible_aws_ssm_instance_id": instance,
                "ansible_aws_ssm_region": _cluster_nodes.region(node),
            }
            return {key: value for key, value in variables.items() if value} if instance else {}
        address, jump_host = _cluster_nodes.address(node, self.get_option("address_types")), self.get_option("jump_host")
        variables = {
            "ansible_host": address,
            "ansible_user": self.get_option("user"),
            "ansible_ssh_common_args": f"-o {shlex.quote(f'ProxyJump={jump_host}')}" if jump_host else "",
        }
        return {key: value for key, value in variables.items() if value} if address else {}


def _message(refusal: t.Any) -> str:
    """Return the sentence of a Status object; a proxy before the API answers without one."""
    try:
        return str(json.loads(refusal.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(refusal.reason)
