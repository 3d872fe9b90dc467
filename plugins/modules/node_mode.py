#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_mode
short_description: Detect whether a host is a running node or a node image
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - On a running node, roles manage the running kernel and the configuration of the next boot. In an image that is being built
    they manage only the configuration of the next boot, because the running kernel is the builder's. This action determines
    whether the host is a running node or an image, and gives the reason.
  - With O(mode=auto), the host is an image if its connection is C(chroot) or C(buildah), of any collection, or if Packer's
    variables C(packer_build_name) or C(packer_builder_type) are defined. No command is then run on the host.
  - Otherwise one shell command is run on the host. The host is a running node if C(systemctl is-system-running) prints a state of
    a running systemd, which are C(initializing), C(starting), C(running), C(degraded), C(maintenance) and C(stopping).
    C(systemctl) prints C(offline) in a chroot and if systemd is not process 1. A stub of C(systemctl) prints nothing.
  - A container that shares the network, PID and UTS namespaces of process 1 but has its own IPC or cgroup namespace is a pod of a
    DaemonSet. Its node is a running node if it runs systemd.
  - Any other host is an image.
notes:
  - This is an action only. Nothing is copied to the host and no Python is started there.
  - The modules of this collection refuse to change the running kernel from within a container's file system. Enter the node's
    file system, with the connection C(kubenode.datapath.nsenter) or with a chroot into the node's root.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._attributes.action
options:
  mode:
    description:
      - With V(runtime), the host counts as a running node, with V(image) as an image.
      - With V(auto), the action determines the mode.
    type: str
    choices: [auto, runtime, image]
    default: auto
"""

EXAMPLES = r"""
- name: Detect whether the host is a running node or an image
  kubenode.datapath.node_mode:
  register: node

- name: Translate the load balancer's probes, on a running node at once, in an image from its first boot on
  kubenode.datapath.nftables_probe_snat:
    immediate: "{{ not node.is_image }}"
    boot_condition: imds
"""

RETURN = r"""
is_image:
  description: Whether the host is an image.
  returned: success
  type: bool
  sample: true
reason:
  description: The mode and the reason for it, in one sentence. It is printed also without C(-v).
  returned: success
  type: str
  sample: "An image: the connection is community.general.chroot."
"""
