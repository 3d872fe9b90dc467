#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: profile_aks_dual_stack
short_description: Part of M(kubenode.datapath.profile) for aks_dual_stack that runs on the node
version_added: 1.0.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Do not call this module. M(kubenode.datapath.profile) runs it on the node for the profile aks_dual_stack, after the
    controller has checked the options. It is a module of its own so that the node gets only the code of this profile.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._identity
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
    name: aks_dual_stack
    options: {ipv6: imds}
"""

RETURN = r"""
plan:
  description: As RV(kubenode.datapath.profile#module:plan), like all other results.
  returned: success
  type: list
  elements: dict
  sample: [{nftables_probe_snat: {state: present, table: azureSLBProbe}}]
nftables_probe_snat:
  description: C(changed) and the other results of M(kubenode.datapath.nftables_probe_snat).
  returned: if RV(plan) has it
  type: dict
"""

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._module import run
from ansible_collections.kubenode.datapath.plugins.module_utils._parts import assembly
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import aks_dual_stack, aks_dual_stack_backend

if t.TYPE_CHECKING:  # so that Ansible copies them to the node, for assembly
    from ansible_collections.kubenode.datapath.plugins.module_utils._parts import (  # noqa: F401
        nftables_package,
        nftables_probe_snat,
    )

PROFILE = assembly.Profile("aks_dual_stack", aks_dual_stack, aks_dual_stack_backend.observe)


def main() -> None:
    run(assembly.OPTIONS, PROFILE.parts, name="profile", naming=PROFILE.naming)


if __name__ == "__main__":
    main()
