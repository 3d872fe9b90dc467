#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cni_info
short_description: Show which CNI serves a node, which CNIs own its pods, and what other CNIs left
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Reads CNI configurations, the node's links, the names of its chains, and the rules that mark connections. The module
    recognises owners by names and comments alone, except for RV(leftovers), where it weighs evidence.
  - If the node has the link C(cilium_host), asks the Cilium agent on the node whether it is healthy, as kubelet does, and waits
    up to 10 seconds for the answer.
  - RV(leftovers) does not contain azure-vnet's rules of ebtables, neighbours and routes.
    M(kubenode.datapath.ebtables_cleanup) shows these in check mode, and removes them.
  - The module warns of chains of kube-proxy on a node where kube-proxy does not run, for example because Cilium has replaced it.
notes:
  - Reads the chains of nf_tables. Reads the legacy tables of iptables if the kernel has one in use and C(iptables-legacy-save)
    is installed.
  - Lists rules with C(iptables-nft-save) and C(iptables-legacy-save), and those of IPv6, only if the node has a chain, a link, a
    file or a bridge of azure-vnet, or chains or links of Cilium or another CNI that does not serve it.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
options: {}
"""

EXAMPLES = r"""
- name: Show which CNI serves the node
  kubenode.datapath.cni_info:
  register: cni

- name: Continue only if Cilium serves the node
  ansible.builtin.assert:
    that: cni.is_cilium
"""

RETURN = r"""
plugins:
  description: Types of the plugins in the configuration that a container runtime uses, which is the first one.
  returned: success
  type: list
  elements: str
  sample: [cilium-cni]
configurations:
  description: Paths of all configurations that a container runtime reads, in the order in which it reads them.
  returned: success
  type: list
  elements: str
  sample: [/etc/cni/net.d/05-cilium.conflist]
is_cilium:
  description: Whether the first configuration is Cilium's, and the Cilium agent has created its link C(cilium_host).
  returned: success
  type: bool
pods:
  description: The node's ends of pods' links, by the CNI that owns them.
  returned: success
  type: dict
  contains:
    azure_vnet:
      description: Names that begin with C(azv).
      type: list
      elements: str
    cilium:
      description: Names that begin with C(lxc).
      type: list
      elements: str
    other:
      description: Names that begin with C(cali), C(eni) or C(veth).
      type: list
      elements: str
bridge:
  description: The bridge of azure-vnet; V("") if there is none.
  returned: success
  type: str
  sample: azure0
bridge_ports:
  description: The links in this bridge.
  returned: success
  type: list
  elements: str
  sample: [eth0]
azure_vnet:
  description: Facts of the node that matter for a migration from azure-vnet.
  returned: success
  type: dict
  contains:
    mode:
      description: >-
        The mode in the first configuration with azure-vnet, also in one that runtimes do not read. V("") if there is no such
        configuration, or if it does not set the mode; versions since 1.1.9 then use the mode transparent.
      type: str
    pods:
      description: >-
        azure-vnet's live pods. C(link) is the node's end of the pod's link. C(addresses) are the addresses of the pod's end,
        V([]) if that end was not found.
      type: list
      elements: dict
      contains:
        link:
          description: The node's end of the pod's link.
          type: str
        addresses:
          description: The addresses of the pod's end.
          type: list
          elements: str
    cns:
      description: >-
        The running azure-cns; V({}) if there is none. If C(manages_endpoint_state) is V(false), azure-cns reads the addresses in
        use from azure-vnet's state file when it starts. V(null) if C(configuration) could not be read.
      type: dict
      contains:
        configuration:
          description: The path of its configuration, in its own root.
          type: str
          returned: if azure-cns runs
        manages_endpoint_state:
          description: Whether it keeps the addresses itself; null if this is not known.
          type: bool
          returned: if azure-cns runs
  sample:
    mode: bridge
    pods: [{link: azv0123456789a, addresses: [10.240.0.7]}]
    cns: {configuration: /etc/azure-cns/cns_config.json, manages_endpoint_state: false}
cilium_agent:
  description: Whether the node's Cilium agent reports that it is healthy.
  returned: success
  type: dict
  contains:
    trouble:
      description: >-
        Why the agent does not count as healthy, as the end of a sentence whose subject is the agent; V("") if it is healthy, or
        if the node has neither Cilium's link nor a CNI configuration of Cilium.
      type: str
    not_ready_taint:
      description: The key of the taint that the node has in Kubernetes until the agent is ready.
      type: str
  sample: {trouble: "", not_ready_taint: node.cilium.io/agent-not-ready}
others:
  description: Chains and links of CNIs and agents that are neither azure-vnet nor Cilium, by owner.
  returned: success
  type: dict
  contains:
    NAME:
      description: The objects of the owner of this name.
      type: list
      elements: str
  sample: {amazon-vpc-cni: [chain AWS-SNAT-CHAIN-0 in ip nat (nft)]}
kube_proxy_leftovers:
  description:
    - Chains of kube-proxy by backend and table, if kube-proxy does not run on the node. V({}) while kube-proxy runs. The chains
      still translate connections to Services. C(kube-proxy --cleanup) or a reboot of the node removes them.
    - Chains that kubelet before 1.28 creates as well, such as C(KUBE-POSTROUTING), and the empty C(KUBE-PROXY-CANARY) are not
      among them. C(kube-proxy --cleanup) of 1.36 removes these too.
  returned: success
  type: dict
  contains:
    NAME:
      description: The chains of the table of this name.
      type: list
      elements: str
  sample: {ip nat (nft): [KUBE-NODEPORTS, KUBE-SERVICES]}
leftovers:
  description:
    - The objects that azure-vnet, azure-cns, Cilium, kube-proxy and the CNIs of RV(others) left on the node, in an order in which
      the commands can be run one after another. Nothing is removed.
    - Of a CNI in RV(others), objects are leftovers if none of its programs runs and the first CNI configuration is not its own.
      Known are amazon-vpc-cni, antrea, azure-npm, calico, flannel, kubenet, kube-router, ovn-kubernetes and weave.
    - The chains of a kube-proxy that runs are among them if they are of several modes or backends, of which it uses one.
    - On a node without any trace of azure-vnet, no rule is listed as azure-vnet's.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: >-
        V(chain), V(rule), V(link), V(address), V(neighbor), V(route), V(policy_rule), V(set), V(sysctl), V(namespace) or
        V(program).
      type: str
    place:
      description: Where the object is; for a rule of iptables the family, the table, the chain and the backend.
      type: str
    text:
      description: The object, as the program that manages it prints it.
      type: str
    owner:
      description: The program that created the object; V(unknown) for a rule of another program in a chain of azure-vnet.
      type: str
    evidence:
      description: How the owner is known, and whether a program or pod still uses the object.
      type: str
    certain:
      description: >-
        Whether no other program creates such an object, and nothing on the node uses it. If V(false), find out which program
        needs the object before you remove it.
      type: bool
    command:
      description: The command, run as root on the node, that removes the object.
      type: str
    effect:
      description: >-
        What the object does to packets, as the end of a sentence; V("") if no packet reaches it, if it changes none, and for
        objects of azure-vnet and azure-cns.
      type: str
  sample:
    - kind: rule
      place: ip nat POSTROUTING (nft)
      text: "-j SWIFT"
      owner: azure-vnet
      evidence: jumps to azure-vnet's chain
      certain: true
      command: iptables-nft -w -t nat -D POSTROUTING -j SWIFT
      effect: ""
marks:
  description:
    - Rules of amazon-vpc-cni, Cilium and Terway that mark connections which come in by the primary network interface, and copy
      the marks to packets of pods.
    - C(trouble) says why some packets do not get the mark, for example because a rule of Calico accepts them before; V("") if all
      packets get it.
  returned: success
  type: list
  elements: dict
  sample:
    - {owner: amazon-vpc-cni, place: table ip mangle (nft), link: eth0, mark: "0x80", mask: "0x80", trouble: ""}
neighbors:
  description: Permanent neighbours on links other than azure-vnet's bridge. Old versions of Cilium left such neighbours.
  returned: success
  type: list
  elements: str
  sample: [10.240.0.9 dev eth0 lladdr 12:34:56:78:9a:bc PERMANENT]
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("cni_info")


if __name__ == "__main__":
    main()
