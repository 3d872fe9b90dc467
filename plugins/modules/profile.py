#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: profile
short_description: Converge several modules of this collection as one transaction
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Checks the options of all modules, observes everything that they manage, and asks all their guards before the first change.
    Then it applies one plan under one lock and one checkpoint, and proves the result. If anything fails, all of it is undone.
  - A module makes the same changes in a profile as in a task of its own.
  - The modules are applied in the order that is safe for the node's traffic, whatever their order in O(modules).
    C(network_daemons) and C(nftables_package) come first, then loose or no reverse-path filtering, addresses, rules and routes,
    tables, and at last strict reverse-path filtering. Modules that undo their changes come after the others, in reverse order.
notes:
  - If a run is killed, the next run completes or undoes its changes, as with each module in a task of its own.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._checkpoint
attributes:
  action:
    description: Indicates that this has an action plugin, so that parts of it run on the controller.
    support: full
    details:
      - The controller recognises an image by the connection and by Packer's variables, carries pyroute2 to a node that lacks it,
        rehearses the profile, and confirms the checkpoint.
options:
  modules:
    description:
      - The modules, each a dictionary with one key, the name of a module of this collection, whose value are the options of that
        module. Each module may be listed once. An entry without a key, which the keyword C(omit) causes, is skipped.
      - Known are C(azure_vnet_bridge), C(ebtables_cleanup), C(link_addresses), C(network_daemons), C(nftables_connmark),
        C(nftables_package), C(nftables_probe_snat), C(policy_routes) and C(rp_filter).
      - C(immediate) is false by default if the host is an image, and true otherwise. C(checkpoint) and C(checkpoint_command) are
        options of the profile, not of its modules.
      - A value may be a reference to a fact of the node, written as a dictionary with the only key C(node) and the fact's name.
        See RV(node) for C(is_image), C(is_running) and the names that O(enis) and O(ipv6) add. The names C(rules), C(routes) and
        C(query) stand for the options C(rules), C(routes) and C(enis) of M(kubenode.datapath.policy_routes). For the option
        C(state), a reference that is true means V(present), and one that is false V(absent). An option whose reference has no
        value is omitted.
      - May be JSON text.
    type: list
    elements: raw
    required: true
  state:
    description:
      - With V(present), each module has the state that its own options say.
      - With V(absent), every module undoes its changes, whatever its C(state) says. References are omitted, and neither the
        metadata service nor the interfaces are queried. C(ebtables_cleanup) then has the state C(restored).
        C(azure_vnet_bridge) cannot be undone and is refused.
    type: str
    choices: [present, absent]
    default: present
  mode:
    description:
      - With V(runtime), the host is a running node, with V(image) an image. With V(auto), the profile decides as
        M(kubenode.datapath.node_mode) does.
    type: str
    choices: [auto, runtime, image]
    default: auto
  enis:
    description:
      - Adds facts of the node's elastic network interfaces (ENIs) to RV(node). The metadata service is asked once, in the same
        execution.
    type: dict
    suboptions:
      layout:
        description: The CNI whose layout is used, see the filter P(kubenode.datapath.eni_policy#filter).
        type: str
        choices: [aws_vpc_cni, cilium, terway, custom]
        required: true
      cloud:
        description: The cloud whose metadata service is asked.
        type: str
        choices: [auto, azure, aws, alibaba]
        default: auto
      manage:
        description: The parts of the layout that the rules and routes have, as in O(kubenode.datapath.policy_routes#module:enis).
          By default both.
        type: list
        elements: str
        choices: [mark_rule, tables]
      interfaces:
        description:
          - The ENIs, as the filter P(kubenode.datapath.eni_policy#filter) takes them. By default the metadata service is asked,
            and on the nodes of an image each boot asks it.
        type: list
        elements: raw
      primary_interface:
        description: The primary ENI's network interface. By default that of the ENIs. Required for an image without
          O(enis.interfaces).
        type: str
      pod_interfaces:
        description: Names and patterns of the node's ends of the pods' interfaces. By default those of the layout.
        type: list
        elements: str
      mark:
        description:
          - The mark and its mask. By default the mark in the rules of the CNI on a running node, or else that of the layout.
        type: str
      interface_marks:
        description:
          - Secondary ENIs by which requests come in, with their marks, as in the filter P(kubenode.datapath.eni_policy#filter).
        type: list
        elements: dict
        suboptions:
          name:
            description: The ENI's network interface.
            type: str
            required: true
          mark:
            description: Its mark, a number that neither another of these ENIs nor the primary ENI has.
            type: str
            required: true
      priorities:
        description: For the layout V(custom), the priorities of rules.
        type: dict
  ipv6:
    description: Adds to RV(node) whether the node has IPv6.
    type: dict
    suboptions:
      source:
        description:
          - V(imds) asks Azure's metadata service, V(address) looks for a global address of O(ipv6.interface). V(always) and
            V(never) ask nothing.
          - For an image the answer is yes unless V(never) is given, because each boot decides.
        type: str
        choices: [imds, address, always, never]
        default: imds
      interface:
        description: The interface whose addresses V(address) looks at.
        type: str
        default: eth0
  later_interfaces:
    description:
      - Whether an interface that the node does not have yet is accepted. Otherwise the name of such an interface in the options
        of C(rp_filter), C(nftables_connmark) or C(nftables_probe_snat) is an error on a running node. Patterns are always
        accepted.
    type: bool
    default: false
  rehearse:
    description:
      - Whether to apply the profile in the node's twin first, as M(kubenode.datapath.datapath_rehearsal) does, in check mode as
        well. A change that would cut off the controller, or lose one of O(rehearse_packets), is then refused.
    type: bool
    default: false
  rehearse_packets:
    description: Packets that must still arrive, as O(kubenode.datapath.datapath_rehearsal#module:packets).
    type: list
    elements: raw
    default: []
  variables:
    description:
      - Names of the variables that options come from, for errors. A key is an option of the profile, such as C(enis.layout), or
        of a module, such as C(rp_filter.mode). An error about the option begins with the name of the variable.
    type: dict
    default: {}
seealso:
  - module: kubenode.datapath.datapath_rehearsal
  - module: kubenode.datapath.node_mode
  - module: kubenode.datapath.imds_info
"""

EXAMPLES = r"""
- name: Configure routing for a node's ENIs completely, or change nothing
  kubenode.datapath.profile:
    enis:
      layout: aws_vpc_cni
    modules:
      - network_daemons:
          restart: {node: is_running}
      - rp_filter:
          interfaces: [{node: primary_interface}]
          mode: loose
      - policy_routes:
          enis: {node: query}
          rules: {node: rules}
          routes: {node: routes}
    checkpoint: 60

- name: Load the probe table where the node has IPv6, and remove it where it has none
  kubenode.datapath.profile:
    ipv6:
      source: imds
    modules:
      - nftables_package:
          state: {node: has_ipv6}
      - nftables_probe_snat:
          state: {node: has_ipv6}
          boot_condition: imds

- name: Undo both
  kubenode.datapath.profile:
    state: absent
    modules:
      - nftables_package:
      - nftables_probe_snat:
"""

RETURN = r"""
node:
  description: Facts of the node. References use these names, besides C(rules), C(routes) and C(query).
  returned: success
  type: dict
  contains:
    is_image:
      description: Whether the host is an image.
      type: bool
      returned: success
      sample: false
    is_running:
      description: Whether the host is a running node.
      type: bool
      returned: success
      sample: true
    reason:
      description: Why the host counts as an image or as a running node, in one sentence.
      type: str
      returned: success
      sample: "A running node: systemd runs on it."
    has_ipv6:
      description: Whether the node has IPv6.
      type: bool
      returned: with O(ipv6) and O(state=present)
      sample: true
    ipv6_reason:
      description: How that is known, in one sentence.
      type: str
      returned: with O(ipv6) and O(state=present)
      sample: "The node has IPv6: the metadata service names fd12:3456:789a::4 for the primary interface."
    primary_interface:
      description: The primary ENI's network interface.
      type: str
      returned: with O(enis) and O(state=present)
      sample: eth0
    pod_interfaces:
      description: Names and patterns of the node's ends of the pods' interfaces.
      type: list
      elements: str
      returned: with O(enis) and O(state=present)
      sample: ["eni*", "vlan*"]
    mark:
      description: The mark of packets that leave by the primary ENI.
      type: str
      returned: with O(enis) and O(state=present)
      sample: "0x80"
    mask:
      description: The mask of the mark.
      type: str
      returned: with O(enis) and O(state=present)
      sample: "0x80"
    marks_itself:
      description:
        - Whether the rules of the layout's CNI on the node mark all connections that arrive on the primary ENI, and copy the
          marks to packets of pods. For an image, whether the CNI does so by default.
      type: bool
      returned: with O(enis) and O(state=present)
      sample: true
    interfaces:
      description: The ENIs and marks of O(enis.interface_marks), as M(kubenode.datapath.nftables_connmark) takes them.
      type: list
      elements: dict
      returned: with O(enis) and O(state=present)
      sample: [{name: eth1, mark: "0x2"}]
    request_interfaces:
      description: The network interfaces by which requests come in, those of the primary ENI and of O(enis.interface_marks).
      type: list
      elements: str
      returned: with O(enis) and O(state=present)
      sample: [eth0, eth1]
    lacks_marks:
      description: The opposite of C(marks_itself); always true with O(enis.interface_marks), which no CNI marks.
      type: bool
      returned: with O(enis) and O(state=present)
      sample: false
    marking:
      description: The reason for C(marks_itself), in one sentence.
      type: str
      returned: with O(enis) and O(state=present)
      sample: "Rules of amazon-vpc-cni in table ip mangle (nft) mark connections with 0x80/0x80."
    left_out:
      description: By name, why a secondary ENI has no rules and routes, because an ENI on another network card has its table.
      type: dict
      returned: with O(enis) and O(state=present)
      sample: {}
    addresses:
      description: The first IPv4 address of each secondary ENI, as M(kubenode.datapath.link_addresses) takes it.
      type: list
      elements: dict
      returned: with O(enis) and O(state=present)
      sample: [{dev: eth1, address: 10.0.1.10}]
rehearsed:
  description: As RV(kubenode.datapath.datapath_rehearsal#module:rehearsed).
  returned: with O(rehearse)
  type: list
  elements: dict
summary:
  description: For each module, in the order in which they are applied, one line that names what changed and what is as desired.
  returned: success
  type: list
  elements: str
  sample: ["rp_filter (present): as desired: reverse-path filtering, /etc/sysctl.d/90-kubenode-rp-filter.conf"]
MODULE:
  description: For each module, under its name, C(changed) and the other results that it returns on its own.
  returned: success
  type: dict
  sample: {changed: false, table: azureSLBProbe}
diff:
  description: One entry for each plane that changes, with the changes of all modules.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.arming_backend import under_checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._module import run
from ansible_collections.kubenode.datapath.plugins.module_utils._parts.profile import OPTIONS, parts


def main() -> None:
    run(OPTIONS, parts, under_checkpoint)


if __name__ == "__main__":
    main()
