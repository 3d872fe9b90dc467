# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  context:
    description: What no node shows.
    type: dict
    suboptions:
      cloud:
        description: The cloud of the node. If it is omitted, marks of Azure's network on the node decide.
        type: str
        choices: [azure, aws, alibaba, other]
      probe_mode:
        description:
          - What the load balancer probes, as C(clusterServiceLoadBalancerHealthProbeMode) of cloud-provider-azure says.
          - V(shared) is the health port 10256 of the node alone. V(servicenodeport) is the ports of each Service. If it is
            omitted, a check whose answer depends on it assumes the latter, which is Azure's default, or cannot tell.
        type: str
        choices: [shared, servicenodeport]
      cni:
        description: The CNI of the node. If it is omitted, its configuration and its links decide.
        type: str
        choices: [aws_vpc_cni, azure_vnet, calico, cilium, flannel, terway, other]
      service_ranges:
        description: The networks of the addresses of Services in the cluster, such as V(10.96.0.0/12).
        type: list
        elements: str
      pod_ranges:
        description: The networks of the addresses of pods in the cluster, such as V(10.244.0.0/16).
        type: list
        elements: str
"""
