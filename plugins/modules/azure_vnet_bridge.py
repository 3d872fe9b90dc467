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
  - In bridge mode azure-vnet makes a bridge (C(azure0), or C(azure) and a number), puts the node's interface into it and
    moves the interface's addresses and routes to the bridge. Removing only the bridge would cut the node off.
  - The module moves the bridge's addresses, routes and learned neighbours to the network interface, for both families and all
    tables, with flags, lifetimes and metrics. It also moves the DNS servers that systemd-resolved keeps for the bridge. Then it
    takes the interface out of the bridge and removes the bridge. The addresses are never missing, so connections continue,
    including the connection of the run.
  - The gateway address of azure-vnet's IPv6 pods is not moved, because no pod needs it any more. It is the first address of the
    pods' subnet, which azure-vnet's state file or its SNAT rule in ip6tables names.
  - The module refuses if other links are in the bridge, because pods behind them would lose their network. The error names these
    links.
  - If the kernel refuses a change, all changes are undone, the bridge is restored, and the error names the refused change.
notes:
  - The module does not manage the next boot. azure-vnet creates the bridge at run time only, and a boot without azure-vnet gives
    the interface its address as on any other node. The module warns if files of a network daemon name the bridge.
  - Connections of pods that left the node masqueraded through the bridge are lost, because the kernel deletes their connection
    tracking entries when the link is removed (C(nf_nat_masquerade)).
  - The module warns of policy rules that name the bridge and of BPF programs on the bridge. Cilium attaches such programs if its
    agent uses the bridge as the node's interface; restart the agent afterwards.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._checkpoint
options:
  state:
    description: The bridge does not exist. There is no other state, because only azure-vnet creates its bridge.
    type: str
    choices: [absent]
    default: absent
  bridge:
    description:
      - The bridge's name.
      - By default the bridge whose name is V(azure) and a number, or the C(bridge) of azure-vnet's configuration in
        C(/etc/cni/net.d).
    type: str
  interface:
    description:
      - The network interface that gets the bridge's addresses, routes and DNS servers. By default the interface in the bridge.
    type: str
"""

EXAMPLES = r"""
- name: Dissolve azure-vnet's bridge, and roll back if the node cannot be reached afterwards
  kubenode.datapath.azure_vnet_bridge:
    checkpoint: 60

- name: Dissolve a bridge with a name of its own
  kubenode.datapath.azure_vnet_bridge:
    bridge: podbr
    interface: eth0
"""

RETURN = r"""
bridge:
  description: The bridge that was removed, or in check mode would be; V("") if there was none.
  returned: success
  type: str
  sample: azure0
interface:
  description: The network interface that got the bridge's addresses and routes; V("") if there was none.
  returned: success
  type: str
  sample: eth0
addresses:
  description: Addresses that were moved.
  returned: success
  type: list
  elements: str
  sample: [10.240.0.4/16]
routes:
  description: Routes that were moved, as C(ip route) prints them, without those that the kernel adds with an address.
  returned: success
  type: list
  elements: str
  sample: [ip route default via 10.240.0.1 table main]
dns:
  description: DNS servers that were moved.
  returned: success
  type: list
  elements: str
  sample: [168.63.129.16]
diff:
  description: The bridge with its addresses, routes and DNS before, and those of the network interface after.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("azure_vnet_bridge")


if __name__ == "__main__":
    main()
