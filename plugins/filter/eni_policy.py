# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: eni_policy
short_description: Compute the rules and routes that a node with several ENIs needs, in the layout of a CNI
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Turns a node's elastic network interfaces (ENIs) into the RV(_value.rules) and RV(_value.routes) that
    M(kubenode.datapath.policy_routes) takes.
  - The result has the rules and routes of the node itself. These are the rules for packets that are marked to leave by the
    primary ENI or by one of O(interface_marks), the rules for the ENIs' own addresses, and a table for each secondary ENI. Rules
    for pods are managed by the CNI, and are included only with O(layout=custom).
  - Priorities, tables and marks are those of the CNI, so that rules and routes that the CNI makes itself satisfy the desired
    ones.
positional: _input, layout
options:
  _input:
    description:
      - All ENIs of the node, as M(kubenode.datapath.imds_info) returns them in RV(kubenode.datapath.imds_info#module:interfaces),
        or dictionaries with the same keys. One of them has C(primary) set to true.
      - A secondary ENI without C(name) is skipped; it has no network interface on the node, or a pod uses it alone.
      - For each secondary ENI with an IPv4 address, C(gateway.ipv4) is required. Without C(gateway.ipv6), the ENI has no IPv6
        routes, except with O(layout=aws_vpc_cni), where the default is V(fe80:ec2::1).
      - For O(layout=aws_vpc_cni) and O(layout=cilium) each secondary ENI needs its C(device_number), from AWS's metadata.
      - For O(layout=terway) the table of a secondary ENI follows from C(index), the index of its network interface. Without it
        the result has no table for the ENI; Terway makes the table with the first pod.
      - For O(layout=custom) each secondary ENI may have a C(table), by default 1000 plus C(index), and C(pods), a list of
        addresses or prefixes. If C(subnets) of all ENIs are known, the rules by source have exceptions, in the three
        priorities before theirs, for what the node reaches without an ENI.
    type: list
    elements: dict
    required: true
  layout:
    description:
      - The CNI whose layout is used.
      - With V(aws_vpc_cni), rule 1024 looks up mark 0x80/0x80 in table main, and a rule 32765 looks up packets from an ENI's
        first address in the ENI's table, which is the device number plus one, or V(10000) + device number + 100 * card on further
        network cards of AWS.
      - With V(cilium), as it is with IPAM by AWS or Alibaba Cloud, rule 109 looks up mark 0x80/0x80 in table main; an ENI's
        table is 10 plus its device number.
      - With V(terway), rule 600 looks up mark 0x10/0x10 in table 100, which leads to the primary ENI, as Terway's symmetric
        routing does. An ENI's table is 1000 plus the index of its network interface.
      - With V(custom), for a node without such a CNI, the user chooses priorities, tables and marks.
    type: str
    choices: [aws_vpc_cni, cilium, terway, custom]
    required: true
  mark:
    description:
      - V(MARK) or V(MARK/MASK) of packets that leave by the primary ENI. By default the layout's; for O(layout=custom),
        V(0x80/0x80).
      - For another layout, give the mark that the CNI is configured with, such as C(AWS_VPC_K8S_CNI_CONNMARK).
    type: str
  interface_marks:
    description:
      - Secondary ENIs by which requests come in, each with C(name) and C(mark). Packets with the mark are looked up in the ENI's
        table, at the priority of the primary ENI's mark. All marks differ, also from the primary ENI's.
      - An ENI that is not in the list of ENIs, or has no table, gets no rule.
    type: list
    elements: dict
  priorities:
    description:
      - For O(layout=custom), the priorities of rules by C(to_pod) (V(1100)), C(mark) (V(1200)), C(from_pod) (V(1300)) and
        C(from_address) (V(1400)). The first three must be in this order, with three free priorities before C(from_pod) if the
        rules for pods have exceptions.
    type: dict
seealso:
  - module: kubenode.datapath.policy_routes
  - module: kubenode.datapath.imds_info
"""

EXAMPLES = r"""
- name: Ask the cloud for the node's ENIs
  kubenode.datapath.imds_info:
  register: metadata

- name: Keep the rules and routes of a node with amazon-vpc-cni-k8s, also after interfaces were down
  kubenode.datapath.policy_routes:
    rules: "{{ desired.rules }}"
    routes: "{{ desired.routes }}"
  vars:
    desired: "{{ metadata.interfaces | kubenode.datapath.eni_policy('aws_vpc_cni') }}"

- name: Add rules for pods, on a node whose CNI adds none
  kubenode.datapath.policy_routes:
    rules: "{{ desired.rules }}"
    routes: "{{ desired.routes }}"
  vars:
    enis:
      - {name: eth0, primary: true, ipv4: [10.0.0.10]}
      - {name: eth1, gateway: {ipv4: 10.0.1.1}, table: 1101, pods: [10.0.1.11, 10.0.1.12]}
    desired: "{{ enis | kubenode.datapath.eni_policy('custom', priorities={'from_pod': 1350}) }}"
"""

RETURN = r"""
_value:
  description: The desired state.
  type: dict
  contains:
    rules:
      description: The rules, as M(kubenode.datapath.policy_routes) takes them.
      type: list
      elements: dict
      sample: [{priority: 1024, fwmark: 0x80/0x80, table: main, family: ipv4}]
    routes:
      description: The routes, as M(kubenode.datapath.policy_routes) takes them.
      type: list
      elements: dict
      sample: [{table: 2, to: 10.0.1.1, dev: eth1}, {table: 2, to: default, via: 10.0.1.1, dev: eth1}]
    primary_interface:
      description: The network interface of the primary ENI.
      type: str
      sample: eth0
    pod_interfaces:
      description: Name patterns of the node's ends of pods' interfaces; empty for O(layout=custom).
      type: list
      elements: str
      sample: ["eni*", "vlan*"]
    mark:
      description: The mark of packets that leave by the primary ENI.
      type: str
      sample: "0x80"
    mask:
      description: The mask of that mark, with the bits of the marks in O(interface_marks).
      type: str
      sample: "0x80"
    interfaces:
      description: The ENIs and marks of O(interface_marks), as M(kubenode.datapath.nftables_connmark) takes them.
      type: list
      elements: dict
      sample: [{name: eth1, mark: "0x2"}]
    marks_itself:
      description:
        - Whether the CNI by default marks connections that come in by the primary ENI. M(kubenode.datapath.cni_info) shows
          whether it does so on a node.
      type: bool
      sample: true
    left_out:
      description: By name, why a secondary ENI has no rules and routes, because an ENI on another network card has its table.
      type: dict
      sample: {}
    addresses:
      description:
        - The first IPv4 address of each secondary ENI, as M(kubenode.datapath.link_addresses) takes it. Packets that pods send by
          an ENI with such an address are masqueraded to it.
        - No IPv6 address is needed, because the kernel has no reverse-path filtering for IPv6.
      type: list
      elements: dict
      sample: [{dev: eth1, address: 10.0.1.10}]
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import eni_layout
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.plugin_utils._untrusted import untrusted


def eni_policy(
    enis: t.Any, layout: t.Any, mark: t.Any = None, priorities: t.Any = None, interface_marks: t.Any = None
) -> dict[str, t.Any]:
    try:
        return untrusted(eni_layout.desired(layout, enis, mark, priorities, interface_marks=interface_marks)._asdict())
    except Invalid as error:
        raise AnsibleFilterError(f"eni_policy: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"eni_policy": eni_policy}
