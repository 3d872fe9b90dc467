#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_service
short_description: Take a node that azure-vnet served out of service in Kubernetes, and back into it
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - For the role P(kubenode.datapath.cilium_migration#role). Cordons the node, drains it, and restarts azure-vnet's pods of
    DaemonSets, as the role's variables permit, only if there is something to do on the node.
  - A node that was cordoned before stays cordoned, unless a former run cordoned it that did not end, which an annotation of the
    node says.
  - Refuses a node with the taint by which Cilium's operator says that the agent is not ready.
  - If the callback P(kubenode.datapath.report#callback) is enabled, it says every 10 seconds which pods a drain waits for, or of
    which DaemonSets.
  - Runs kubectl on the controller, with the task's environment. In check mode its writes have C(--dry-run=client).
notes:
  - This is an action only. Delegate it to C(localhost), by whose connection the pods are listed that a drain waits for.
extends_documentation_fragment:
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._attributes.action
attributes:
  check_mode:
    support: full
    description: Can run in check mode and return changed status without changing the node or Kubernetes.
  diff_mode:
    support: none
    description: Returns a diff of what has changed, or of what would change in check mode.
options:
  state:
    description: With V(out), the node is taken out of service if there is something to do on it; with V(in), it is uncordoned if
      O(outcome) says that this collection cordoned it.
    type: str
    choices: [in, out]
    required: true
  name:
    description: The node's name in Kubernetes.
    type: str
    required: true
  options:
    description: The variables of the role, without its name as their prefix, as M(kubenode.datapath.role_variables) returns them.
    type: dict
    required: true
  cni:
    description: The result of M(kubenode.datapath.cni_info). Required with O(state=out).
    type: dict
  is_due:
    description: Whether there are leftovers on the node, which are a reason to take it out of service.
    type: bool
    default: false
  outcome:
    description: The result of the task that took the node out of service.
    type: dict
    default: {}
seealso:
  - module: kubenode.datapath.cni_info
"""

EXAMPLES = r"""
- name: Take the node out of service
  kubenode.datapath.node_service:
    state: out
    name: aks-pool1-0
    options: "{{ variables.options }}"
    cni: "{{ cni }}"
    is_due: "{{ leftovers is changed }}"
  delegate_to: localhost
  become: false
  register: service

- name: Take the node into service
  kubenode.datapath.node_service:
    state: in
    name: aks-pool1-0
    options: "{{ variables.options }}"
    outcome: "{{ service }}"
  delegate_to: localhost
  become: false
"""

RETURN = r"""
cordoned:
  description: Whether the node is cordoned by this run, or by a former one that did not end. Returned on failure, too.
  returned: always
  type: bool
  sample: true
was_cordoned:
  description: Whether the node was cordoned before, and not by this collection.
  returned: always
  type: bool
  sample: false
aks_cluster:
  description: The node's label C(kubernetes.azure.com/cluster), which AKS sets on each of its nodes; empty without it.
  returned: always
  type: str
  sample: MC_group_cluster_region
pods:
  description: The node's pods on links of azure-vnet, if there were such links.
  returned: always
  type: dict
  contains:
    evictable:
      description: Pods that a drain evicts, as RV(kubenode.datapath.node_pods#filter:_value).
      returned: if there were links
      type: list
      elements: dict
    daemonset:
      description: Pods of DaemonSets, which a drain leaves.
      returned: if there were links
      type: list
      elements: dict
    static:
      description: Static pods, which a drain leaves.
      returned: if there were links
      type: list
      elements: dict
    unnamed:
      description: Links whose addresses no pod has in Kubernetes.
      returned: if there were links
      type: list
      elements: str
  sample: {evictable: [], daemonset: [], static: [], unnamed: [azv0123456789a]}
"""
