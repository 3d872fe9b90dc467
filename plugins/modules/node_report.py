#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_report
short_description: Print the report of a role or of audits, or check one connection after the change of a node
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - For the roles of this collection. Prints O(lines) as the task's message.
  - If the callback P(kubenode.datapath.report#callback) is enabled, the callback prints them at the end of the run, once for
    equal nodes.
  - With O(audits), prints what audits found, those of several nodes together. With O(required), a node without findings is an
    error; one that could not be reached is unreachable.
  - With O(connection), connects to an address from the host that the task is delegated to. A connection that fails is an error.
notes:
  - This is an action only. It runs on the controller.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._attributes.action
options:
  lines:
    description: The report of the role.
    type: list
    elements: str
    default: []
  connection:
    description: A check, with C(address), C(port), and optionally C(from). Empty for the report.
    type: dict
    default: {}
  answered:
    description: The checks that were answered before the change.
    type: list
    elements: dict
    default: []
  silent:
    description: The checks that were not answered before the change.
    type: list
    elements: dict
    default: []
    version_added: 1.1.0
  audits:
    description: Results of M(kubenode.datapath.datapath_audit) by the names of nodes or bundles.
    type: dict
    default: {}
    version_added: 1.1.0
  page:
    description: The report that was written of the audits, which is printed as the last line.
    type: str
    default: ""
    version_added: 1.1.0
  required:
    description: Results of M(kubenode.datapath.datapath_audit) by the names of nodes or bundles. Each must have C(findings).
    type: dict
    default: {}
    version_added: 1.1.0
seealso:
  - module: kubenode.datapath.rollout_check
"""

EXAMPLES = r"""
- name: Print the state of the node
  kubenode.datapath.node_report:
    lines: "{{ node.summary }}"
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
page:
  description: The option O(page).
  returned: with O(audits)
  type: str
  sample: /home/op/reports/audit.html
report:
  description: The option O(lines).
  returned: without O(connection), if the callback is enabled
  type: list
  elements: str
  sample: [The node has IPv6.]
msg:
  description: The option O(lines), or the connection that failed.
  returned: without the callback, or failure
  type: raw
  sample: 192.0.2.7 port 443 accepts no connection from node1, and did before the change.
"""
