#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_check
short_description: Check a node's variables, or one connection, before the change of a node
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - For the playbooks of this collection. Without O(connection), checks the variables of the role and of the playbook as
    M(kubenode.datapath.role_variables) does, and sends nothing to the host.
  - With O(connection), connects to an address from the host that the task is delegated to. A connection that fails is an error if
    the check demands that.
  - A node is kept back, as an error, if more nodes of the run are lost than C(kubenode_max_failed_percentage) permits.
notes:
  - This is an action only. It runs on the controller.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._attributes.action
options:
  role:
    description: The role whose variables are checked.
    type: str
    choices: [aks_dual_stack, cilium_migration, eni_policy_routing, symmetric_routing]
    required: true
  connection:
    description: A check, with C(address), C(port), and optionally C(from) and C(before). Empty for the variables.
    type: dict
    default: {}
seealso:
  - module: kubenode.datapath.role_variables
"""

EXAMPLES = r"""
- name: Check the variables before any task of the play
  kubenode.datapath.rollout_check:
    role: eni_policy_routing
"""

RETURN = r"""
answers:
  description: Whether the address accepted the connection.
  returned: with O(connection)
  type: bool
  sample: true
connection:
  description: The option.
  returned: with O(connection)
  type: dict
  sample: {address: 192.0.2.7, port: 443}
is_kept_back:
  description: Whether the node is not changed because too many other nodes are lost.
  returned: failure
  type: bool
  sample: false
msg:
  description: The errors, the connection that failed, or that an address gave no answer, which only C(before) makes an error.
  returned: failure, or an address without an answer
  type: str
  sample: 192.0.2.7 port 443 accepts no connection from node1. Nothing was changed.
"""
