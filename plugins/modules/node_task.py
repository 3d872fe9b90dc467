#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_task
short_description: Run a module of ansible.builtin on a node, and check its answer
version_added: 1.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - For the roles of this collection. Ansible obeys some keys of a module's answer, such as C(ansible_facts) and C(add_host),
    whichever module the node says it has run. This action passes on only what the module documents.
notes:
  - This is an action. The node gets the module of ansible.builtin only.
extends_documentation_fragment:
  - kubenode.datapath._attributes.all_group
attributes:
  check_mode:
    description: Can run in check mode and return changed status prediction without modifying target.
    support: partial
    details:
      - As the module that runs.
  diff_mode:
    description: Returns what changed, or in check mode would change, in diff mode.
    support: none
  idempotent:
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation changes nothing.
    support: partial
    details:
      - As the module that runs.
  platform:
    description: Target operating systems.
    platforms: posix
    support: full
options:
  name:
    description: The name of the module in ansible.builtin.
    type: str
    choices: [command, copy, file, find]
    required: true
  arguments:
    description: The options of the module. M(ansible.builtin.command) takes C(argv), not a line.
    type: dict
    required: true
  content:
    description: The content of the file. Required with O(name=copy).
    type: str
seealso:
  - module: kubenode.datapath.node_report
"""

EXAMPLES = r"""
- name: Find CNI configurations
  kubenode.datapath.node_task:
    name: find
    arguments:
      paths: [/etc/cni/net.d]
      patterns: ["*.conflist"]
  register: configurations
"""

RETURN = r"""
files:
  description: What M(ansible.builtin.find) found. Only the paths are passed on.
  returned: O(name=find)
  type: list
  elements: dict
  contains:
    path:
      description: The path of the file.
      type: str
  sample: [{path: /etc/cni/net.d/10-azure.conflist}]
stdout:
  description: What the command printed.
  returned: O(name=command)
  type: str
  sample: ""
"""
