# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  identity:
    description:
      - The machine that the run means, as the Node object of Kubernetes has it in C(status.nodeInfo). Another machine is refused
        before anything is changed, in check mode as well. An SSH host key proves that an address leads to a machine, and not that
        the machine is this node.
      - By default the variables C(kubenode_name), C(kubenode_machine_id) and C(kubenode_system_uuid) of the host, which the
        inventory plugin P(kubenode.datapath.nodes#inventory) sets. Nothing is compared if neither id is set.
      - An id whose file the machine lacks is not compared. If that leaves nothing to compare, the machine is refused.
      - Nodes cloned from an image that keeps its machine id have one machine id, and only their system UUIDs differ.
    version_added: 1.1.0
    type: dict
    suboptions:
      name:
        description: The name of the node, for the error.
        type: str
      machine_id:
        description: The content of C(/etc/machine-id), or without that file of C(/var/lib/dbus/machine-id).
        type: str
      system_uuid:
        description: The content of C(/sys/class/dmi/id/product_uuid), in lower or upper case.
        type: str
"""
