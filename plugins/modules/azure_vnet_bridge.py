#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: azure_vnet_bridge
short_description: Dissolve the bridge that azure-vnet put over a node's interface
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - In bridge mode azure-vnet makes a bridge (C(azure0), or C(azure) and a number), puts the node's interface into it and gives
    the bridge the interface's addresses and routes. To remove the bridge alone would cut the node off.
  - The module gives the addresses, routes and learned neighbours of both families and all tables, with their flags, lifetimes and
    metrics, and the DNS servers that systemd-resolved keeps for the bridge, back to the interface; takes the interface out of the
    bridge; and removes the bridge. The addresses are never missing, so that connections go on, that of the run included.
  - Refused where other links are in the bridge. They are named. Pods behind them would lose their network.
  - If the kernel refuses something, all that was changed is undone, the bridge included, and the error names it.
notes:
  - What the next boot does is not managed. azure-vnet makes the bridge at run time only; a boot without azure-vnet gives the
    interface its address as on any node. Where files of a network daemon name the bridge, the module warns.
  - Connections of pods that were masqueraded on their way out by the bridge end, as the kernel forgets what it masqueraded over a
    link that goes (C(nf_nat_masquerade)).
  - Warns of policy rules about the bridge and of BPF programs on it, as Cilium's where it took the bridge for the node's
    interface; restart its agent afterwards.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._checkpoint
options:
  state:
    description: The bridge is gone. There is no other state; azure-vnet alone makes its bridge.
    type: str
    choices: [absent]
    default: absent
  bridge:
    description:
      - The bridge's name.
      - By default the bridge that is named V(azure) and a number, or as C(bridge) of azure-vnet's configuration in
        C(/etc/cni/net.d) says.
    type: str
  interface:
    description:
      - The link that gets what the bridge has. By default the one that is in the bridge.
    type: str
"""

EXAMPLES = r"""
- name: Give the node's interface back what azure-vnet's bridge took, and take it back if the node can not be reached then
  kubenode.datapath.azure_vnet_bridge:
    checkpoint: 60

- name: Dissolve a bridge with a name of its own
  kubenode.datapath.azure_vnet_bridge:
    bridge: podbr
    interface: eth0
"""

RETURN = r"""
bridge:
  description: The bridge that went, or in check mode would go; V("") where there was none.
  returned: success
  type: str
  sample: azure0
interface:
  description: The link that got what the bridge had; V("") where there was none.
  returned: success
  type: str
  sample: eth0
addresses:
  description: Addresses that moved.
  returned: success
  type: list
  elements: str
  sample: [10.240.0.4/16]
routes:
  description: Routes that moved, without those that come with an address, as C(ip route) prints them.
  returned: success
  type: list
  elements: str
  sample: [ip route default via 10.240.0.1 table main]
dns:
  description: DNS servers that moved.
  returned: success
  type: list
  elements: str
  sample: [168.63.129.16]
diff:
  description: What the bridge had, and what the interface has.
  returned: in diff mode
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.bridge_guards import BridgeUsers
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.bridge_resource import DissolvedBridge
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.resolved_backend import Resolved
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint_resource import Checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Guard
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import LinkMessages
from ansible_collections.kubenode.datapath.plugins.module_utils._module import CHECKPOINT, Module
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.own_root import OwnRoot
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.sysctl import Sysctl
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink

OPTIONS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["absent"], "default": "absent"},
    "bridge": {"type": "str"},
    "interface": {"type": "str"},
    **CHECKPOINT,
}
ON_THE_NODE = OwnRoot("this module works on the running node", "Run it there, or leave it out here")


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        bridge, interface = (
            names.interface(option, module.params[option]) if module.params[option] else None
            for option in ("bridge", "interface")
        )
        dissolved = DissolvedBridge(LinkMessages(), Resolved(module.run), Sysctl(), bridge, interface)
        guards: list[Guard] = [ON_THE_NODE, BridgeUsers(dissolved.bridge, Netlink(), Files())]
        outcome = module.converge([dissolved], guards, Checkpoint)
        result.update(module.report(outcome), **outcome.report(dissolved))


if __name__ == "__main__":
    main()
