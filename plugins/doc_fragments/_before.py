# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  before:
    description:
      - Units of systemd that start kubelet on this node, such as V(my-kubelet.service). At boot, the units of this module are
        started before them. The order does not matter, and equal entries count once.
      - C(kubelet.service) and the units of RKE2, k3s, k0s, MicroK8s, Canonical Kubernetes and Ubuntu's images for EKS need not be
        named. The units of this module are always started before them.
      - If kubelet runs in a service that is neither known nor named here, and that systemd does not order after the units of this
        module, the module warns and names the service. A kubelet outside of any service, as in a container, is not considered.
      - Each name ends with C(.service) or C(.target). Units that a boot starts earlier than this module's, such as
        C(network-online.target), are refused, and so are units of this collection.
      - Before anything is changed, C(systemd-analyze verify) builds the next boot on the node, or in the image. A unit that would
        be in an ordering cycle, or that C(basic.target) or C(network-pre.target) waits for, is refused, because systemd breaks a
        cycle by leaving out any unit of it. Where C(systemd-analyze) does not answer, such as without C(/proc) and C(/sys),
        each name is refused.
    type: list
    elements: str
    default: []
"""
