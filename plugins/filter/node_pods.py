# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_pods
short_description: Show which pods of a node use a link of azure-vnet
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Joins the pods that Kubernetes has on a node with the links that M(kubenode.datapath.cni_info) finds there, by address.
options:
  _input:
    description:
      - One line for each pod, as C(kubectl get pods) prints it. Its fields are separated by C(|), in this order - the namespace,
        the name, the controller's kind, the controller's name, C(True) if the pod is ready, and its addresses, separated by
        blanks.
    type: str
    required: true
  links:
    description: Links of pods, as RV(kubenode.datapath.cni_info#module:azure_vnet.pods).
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Show azure-vnet's pods
  ansible.builtin.debug:
    msg: "{{ listed.stdout | kubenode.datapath.node_pods(cni.azure_vnet.pods) | selectattr('link') }}"
"""

RETURN = r"""
_value:
  description: The pods, in the order of the input.
  type: list
  elements: dict
  contains:
    namespace:
      description: The pod's namespace.
      type: str
    name:
      description: The pod's name.
      type: str
    kind:
      description: The kind of its controller, such as V(DaemonSet); V(Node) for a static pod, V("") if there is none.
      type: str
    owner:
      description: Kind, namespace and name of its controller.
      type: str
    ready:
      description: Whether the pod is ready.
      type: bool
    link:
      description: The node's end of the pod's link; V("") if none of O(links) has the pod's address.
      type: str
  sample:
    - {namespace: default, name: web-7x2lq, kind: DaemonSet, owner: DaemonSet default/web, ready: true, link: azv0123456789a}
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_service
from ansible_collections.kubenode.datapath.plugins.plugin_utils._untrusted import untrusted


def node_pods(listing: str, links: t.Sequence[t.Mapping[str, t.Any]] = ()) -> list[dict[str, t.Any]]:
    try:
        return untrusted(_node_service.parse(listing, links))
    except _node_service.Failure as failure:
        raise AnsibleFilterError(str(failure)) from None


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"node_pods": node_pods}
