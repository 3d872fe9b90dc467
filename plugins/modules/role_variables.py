#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: role_variables
short_description: Check the variables of a role before anything is done on the node
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - The roles of this collection check their variables before anything is done on the node. This action does the same at another
    point of a play, for example before the first task on a node.
  - A variable that has the role's name as prefix and is none of the role's variables is an error, which suggests the most similar
    name. Results that a task has registered are ignored, and so are variables that begin with two underscores, and variables of
    another role of the play whose name begins with the role's name.
  - Each given variable must have the type, and one of the choices, in the documentation of the role. Lists and dictionaries may
    be JSON text, because extra variables given as C(key=value) are text. A variable that is null counts as undefined.
  - Values are checked as the modules check their options, and values that exclude each other are an error. Variables that an
    image requires are checked if the role's variable for the mode says that the host is an image, or if
    M(kubenode.datapath.node_mode) can tell that without a query on the host.
  - An error has one line for each variable that is wrong, which begins with the name of the variable.
notes:
  - This is an action only. It runs on the controller and sends nothing to the host.
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
seealso:
  - module: kubenode.datapath.node_mode
  - module: kubenode.datapath.profile
"""

EXAMPLES = r"""
- name: Check the variables of a role before any task of the play
  hosts: nodes
  gather_facts: false
  pre_tasks:
    - name: Check the role's variables
      kubenode.datapath.role_variables:
        role: eni_policy_routing
  roles:
    - role: kubenode.datapath.eni_policy_routing
"""

RETURN = r"""
options:
  description: All variables of the role by their names without the role's prefix, with their types and defaults.
  returned: success
  type: dict
  sample: {state: present, layout: cilium, protocol: 75}
msg:
  description: The errors, one line for each, which begins with the name of the variable.
  returned: failure
  type: str
  sample: eni_policy_routing_remedi is not a variable of the role eni_policy_routing. Did you mean eni_policy_routing_remedy?
"""
