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
  - Applies several modules as one transaction. Checks the options of all modules, observes everything that they manage, and asks
    all their guards before the first change. Then it applies one plan under one lock and one checkpoint, and proves the result.
    If anything fails, all of it is undone.
  - With O(name), the modules and their options follow from the variables of a role and from facts of the node. Each role of this
    collection calls this module so. RV(plan) shows the modules.
  - With O(modules), a playbook composes modules of its own. They are applied in the order that is safe for the node's traffic,
    whatever their order in the list. C(network_daemons) and C(nftables_package) come first, then loose or no reverse-path
    filtering, addresses, rules and routes, tables, and at last strict reverse-path filtering. Modules that undo their changes
    come after the others, in reverse order.
  - A module makes the same changes in a profile as in a task of its own.
notes:
  - If a run is killed, the next run completes or undoes its changes, as with each module in a task of its own.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._identity
  - kubenode.datapath._checkpoint
attributes:
  action:
    description: Indicates that this has an action plugin, so that parts of it run on the controller.
    support: full
    details:
      - The controller checks the options of a role's profile before anything is done on the node, recognises an image by the
        connection and by Packer's variables, carries pyroute2 to a node that lacks it, rehearses and audits the profile, and
        confirms the checkpoint. The node gets the code of the profile in O(name) only.
options:
  name:
    description:
      - The role whose profile is applied. All other options but O(options), O(identity), O(rehearse_packets) and
        O(rehearse_checks) must then be omitted, because the profile has options of its own.
      - One of O(name) and O(modules) is required.
    version_added: 1.0.0
    type: str
    choices: [aks_dual_stack, cilium_migration, eni_policy_routing, symmetric_routing]
  options:
    description:
      - The variables of the role in O(name), without the role's name as their prefix. See the documentation of the role.
      - By default the variables of the role that the task's host has. A variable that begins with the role's name and is not one
        of the role's variables is then an error, which suggests the most similar name.
      - Lists and dictionaries may be JSON text, because extra variables given as C(key=value) are text.
      - An error has one line for each value that is wrong. The line begins with the name of the role's variable.
    version_added: 1.0.0
    type: dict
  modules:
    description:
      - The modules, each a dictionary with one key, the name of a module of this collection, whose value are the options of that
        module. Each module may be listed once. An entry without a key, which the keyword C(omit) causes, is skipped.
      - Known are C(azure_vnet_bridge), C(ebtables_cleanup), C(link_addresses), C(network_daemons), C(nftables_connmark),
        C(nftables_package), C(nftables_probe_snat), C(policy_routes) and C(rp_filter).
      - C(immediate) is false by default if the host is an image, and true otherwise. C(checkpoint) and C(checkpoint_command) are
        options of the profile, not of its modules.
      - May be JSON text.
    type: list
    elements: raw
  state:
    description:
      - With V(present), each module has the state that its own options say.
      - With V(absent), every module undoes its changes, whatever its C(state) says. C(ebtables_cleanup) then has the state
        C(restored). C(azure_vnet_bridge) cannot be undone and is refused.
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
        well. A change that would cut off the controller, or lose one of O(rehearse_packets) or a packet of O(rehearse_checks), is
        then refused.
    type: bool
    default: false
  rehearse_packets:
    description:
      - Packets that must still arrive, as O(kubenode.datapath.datapath_rehearsal#module:packets). With O(name), they are added to
        those of the role's variable.
    type: list
    elements: raw
    default: []
  rehearse_checks:
    description:
      - TCP connections that must still be made, each with C(address), C(port) and C(from), the host that connects, as the
        playbooks check them after a change.
      - Sends the first packet of each connection that the node itself makes (C(from) is the node's name in the inventory, or
        missing), and whose address is an IP address. Other connections are left out, because the node does not tell by which
        link the packets of another host come in.
    version_added: 1.0.0
    type: list
    elements: dict
    default: []
seealso:
  - module: kubenode.datapath.datapath_rehearsal
  - module: kubenode.datapath.node_mode
  - module: kubenode.datapath.imds_info
"""

EXAMPLES = r"""
- name: Apply the profile of a role without the role
  kubenode.datapath.profile:
    name: eni_policy_routing
    options:
      layout: aws_vpc_cni
      remedy: strict
      checkpoint: 60

- name: Load a rule, its route and the filter that they need, or change nothing
  kubenode.datapath.profile:
    modules:
      - policy_routes:
          rules: [{priority: 700, from: 10.0.1.10, table: 1003}]
          routes: [{table: 1003, to: default, via: 10.0.1.1, dev: eth1}]
      - rp_filter:
          interfaces: [eth0]
          mode: loose
    checkpoint: 60

- name: Undo both
  kubenode.datapath.profile:
    state: absent
    modules:
      - policy_routes:
      - rp_filter:
"""

RETURN = r"""
node:
  description: Facts of the node.
  returned: success
  type: dict
  contains:
    kernel:
      description: The release of the running kernel.
      type: str
      returned: on a running node
      sample: 6.1.0-42-cloud-amd64
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
      returned: if O(name=aks_dual_stack), unless it is undone
      sample: true
    ipv6_reason:
      description: How that is known, in one sentence.
      type: str
      returned: if O(name=aks_dual_stack), unless it is undone
      sample: "The node has IPv6: the metadata service names fd12:3456:789a::4 for the primary interface."
    backend:
      description: What translates the probes, V(nftables) or V(bpf). Empty on a node without IPv6.
      type: str
      returned: if O(name=aks_dual_stack), unless it is undone
      sample: nftables
      version_added: 1.1.0
    backend_reason:
      description: Why, in one sentence. Empty on a node without IPv6.
      type: str
      returned: if O(name=aks_dual_stack), unless it is undone
      sample: "Probes are translated by the table: nothing shows that Cilium takes probes on eth0 before nftables."
      version_added: 1.1.0
    primary_interface:
      description: The primary ENI's network interface.
      type: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: eth0
    pod_interfaces:
      description: Names and patterns of the node's ends of the pods' interfaces.
      type: list
      elements: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: ["eni*", "vlan*"]
    mark:
      description: The mark of packets that leave by the primary ENI.
      type: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: "0x80"
    mask:
      description: The mask of the mark.
      type: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: "0x80"
    marks_itself:
      description:
        - Whether the rules of the layout's CNI on the node mark all connections that arrive on the primary ENI, and copy the
          marks to packets of pods. For an image, whether the CNI does so by default.
      type: bool
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: true
    interfaces:
      description:
        - The ENIs and marks of the role's variable C(interface_marks), as M(kubenode.datapath.nftables_connmark) takes them.
      type: list
      elements: dict
      contains: &marked
        name:
          description: The name of the interface.
          type: str
        mark:
          description: The mark of its packets.
          type: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: [{name: eth1, mark: "0x2"}]
    request_interfaces:
      description: The network interfaces by which requests come in, those of the primary ENI and of the
        role's variable C(interface_marks).
      type: list
      elements: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: [eth0, eth1]
    lacks_marks:
      description: The opposite of C(marks_itself); always true if the role's variable C(interface_marks) has an entry, which no
        CNI marks.
      type: bool
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: false
    marking:
      description: The reason for C(marks_itself), in one sentence.
      type: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: "Rules of amazon-vpc-cni in table ip mangle (nft) mark connections with 0x80/0x80."
    left_out:
      description: By name, why a secondary ENI has no rules and routes, because an ENI on another network card has its table.
      type: dict
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: {}
    addresses:
      description: The first IPv4 address of each secondary ENI, as M(kubenode.datapath.link_addresses) takes it.
      type: list
      elements: dict
      contains:
        dev:
          description: The name of the interface.
          type: str
        address:
          description: The address.
          type: str
      returned: if O(name=eni_policy_routing), unless it is undone
      sample: [{dev: eth1, address: 10.0.1.10}]
    uplinks:
      description: The uplinks, as M(kubenode.datapath.policy_routes) takes them, each with its mark.
      type: list
      elements: dict
      contains:
        <<: *marked
        table:
          description: The number of its table.
          type: int
          returned: if it was given
        gateway:
          description: Its gateway of IPv4.
          type: str
          returned: if it was given
        gateway6:
          description: Its gateway of IPv6.
          type: str
          returned: if it was given
      returned: if O(name=symmetric_routing), unless it is undone
      sample: [{name: eth0, mark: "0x2"}, {name: eth1, mark: "0x4"}]
    gateways:
      description: The known gateways of each uplink, by family; empty for an image.
      type: dict
      contains:
        NAME:
          description: The gateways of the uplink of this name.
          type: dict
          contains:
            ipv4:
              description: The gateway of IPv4.
              type: str
              returned: if it is known
            ipv6:
              description: The gateway of IPv6.
              type: str
              returned: if it is known
      returned: if O(name=symmetric_routing), unless it is undone
      sample: {eth0: {ipv4: 192.0.2.1}, eth1: {ipv4: 198.51.100.1}}
plan:
  description:
    - The modules in the order in which they are applied, with their options, in the form of O(modules). With O(name), they follow
      from the variables of the role and from RV(node).
  returned: success
  type: list
  elements: dict
  sample: [{rp_filter: {interfaces: [eth0], mode: loose, raise_all: false}}]
rehearsed:
  description: As RV(kubenode.datapath.datapath_rehearsal#module:rehearsed).
  returned: if the profile was rehearsed
  type: list
  elements: dict
audit:
  description:
    - In lines, what the profile mends by audits before and after the change, or that they find no need of the profile.
    - A finding that is still there is a warning too.
  returned: if the profile was audited
  type: list
  elements: str
  sample: ["After: probe-untranslated eth0 is gone."]
audits:
  description: The results of M(kubenode.datapath.datapath_audit), C(before) the change and C(after) it; null for none.
  returned: if the profile was audited
  type: dict
profile:
  description: The option O(name).
  returned: if O(name) is given
  type: str
  sample: aks_dual_stack
variables:
  description: The values of all options of the profile, without those that are commands.
  returned: if O(name) is given
  type: dict
  sample: {state: present, ipv6: imds}
report:
  description: The report of the role, in lines.
  returned: if the role of aks_dual_stack, eni_policy_routing or symmetric_routing calls the module, which leaves out O(options)
  type: list
  elements: str
  sample: ["A running node: systemd runs on it."]
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
  description: One entry for each file or other object that changes, with its plane and its path or name as header.
  returned: in diff mode, unless the callback P(kubenode.datapath.report#callback) prints it, once for equal nodes
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("profile")


if __name__ == "__main__":
    main()
