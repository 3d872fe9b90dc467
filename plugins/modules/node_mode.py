#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_mode
short_description: Tell a running node from an image of one
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - On a running node the kernel and what its next boots load are managed, in an image that is being built the latter alone, as
    the kernel is the builder's. This action tells which of the two it is, and says why.
  - With O(mode=auto), it is an image where the connection is C(chroot) or C(buildah), of whatever collection, or where Packer's
    variables C(packer_build_name) or C(packer_builder_type) are there. Then the node is not looked at.
  - Otherwise one shell command asks the node. It is a running one where C(systemctl is-system-running) prints a state of a
    systemd that answers, which are C(initializing), C(starting), C(running), C(degraded), C(maintenance) and C(stopping).
    It prints C(offline) in a chroot and where systemd is not process 1; a stub that stands in for it prints nothing.
  - A container that shares the network, the processes and the host name of process 1 and has another IPC or cgroup namespace is
    a pod of a DaemonSet, and its node a running one, if that runs systemd.
  - All else is an image.
notes:
  - It is an action alone. Nothing is copied to the node and no Python is started there.
  - What the modules of this collection do in the kernel they refuse to do from a container's own files. Enter the node's, by the
    connection C(community.docker.nsenter) or by a chroot into its root.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
attributes:
  action:
    description: Indicates that this has an action plugin, so that parts of it run on the controller.
    support: full
options:
  mode:
    description:
      - With V(runtime) or V(image), that it is.
      - With V(auto), it is found out.
    type: str
    choices: [auto, runtime, image]
    default: auto
"""

EXAMPLES = r"""
- name: Tell a running node from an image
  kubenode.datapath.node_mode:
  register: node

- name: Translate the load balancer's probes, in an image from its first boot on
  kubenode.datapath.nftables_probe_snat:
    immediate: "{{ not node.is_image }}"
    boot_condition: imds
"""

RETURN = r"""
is_image:
  description: Whether it is an image.
  returned: success
  type: bool
  sample: true
reason:
  description: What it is and by what that was told, in a sentence, which is printed also without C(-v).
  returned: success
  type: str
  sample: "An image: the connection is community.general.chroot."
"""
