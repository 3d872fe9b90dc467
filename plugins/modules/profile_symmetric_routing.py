#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: profile_symmetric_routing
short_description: Part of M(kubenode.datapath.profile) for symmetric_routing that runs on the node
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Do not call this module. M(kubenode.datapath.profile) runs it on the node for the profile symmetric_routing, after the
    controller has checked the options. It is a module of its own so that the node gets only the code of this profile.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._identity
  - kubenode.datapath._checkpoint
options:
  options:
    description: The options of the profile, see O(kubenode.datapath.profile#module:options).
    type: dict
    required: true
seealso:
  - module: kubenode.datapath.profile
"""

EXAMPLES = r"""
- name: Call the module that the operator calls
  kubenode.datapath.profile:
    name: symmetric_routing
    options: {uplinks: [{name: eth0}, {name: eth1}]}
"""

RETURN = r"""
plan:
  description: As RV(kubenode.datapath.profile#module:plan), like all other results.
  returned: success
  type: list
  elements: dict
  sample: [{rp_filter: {interfaces: [eth0, eth1], mode: loose}}]
policy_routes:
  description: C(changed) and the other results of M(kubenode.datapath.policy_routes).
  returned: if RV(plan) has it
  type: dict
"""

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.arming_backend import under_checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._module import run
from ansible_collections.kubenode.datapath.plugins.module_utils._parts import assembly
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import symmetric_routing, symmetric_routing_backend

if t.TYPE_CHECKING:  # so that Ansible copies them to the node, for assembly
    from ansible_collections.kubenode.datapath.plugins.module_utils._parts import (  # noqa: F401
        network_daemons,
        nftables_connmark,
        nftables_package,
        policy_routes,
        rp_filter,
    )

PROFILE = assembly.Profile("symmetric_routing", symmetric_routing, symmetric_routing_backend.observe)


def main() -> None:
    run(assembly.WITH_CHECKPOINT, PROFILE.parts, under_checkpoint, name="profile", naming=PROFILE.naming)


if __name__ == "__main__":
    main()
