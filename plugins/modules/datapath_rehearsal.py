#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: datapath_rehearsal
short_description: Make changes in a node's twin first, and fail if they would lose packets
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Rebuilds the network of the node in a network namespace, the node's I(twin), and makes the changes there, with the same code
    as on the node.
  - Before and after the changes, sends a packet of a new SSH connection from the controller and the packets in O(packets)
    through the twin. Fails if the changes lose a packet, or its reply, that arrives without them, or if they cannot be made.
  - Also sends a packet of the node with each mark by which policy rules of other programs route, and with those of WireGuard
    links. Fails if the changes give such a packet another uplink or another source.
  - Changes nothing on the node, in check mode and otherwise. M(kubenode.datapath.datapath_trace) returns every step of a packet
    in such a twin.
notes:
  - A twin has the limits that M(kubenode.datapath.datapath_trace) lists. A packet whose verdict is V(unknown) is a warning and no
    failure.
  - The SSH connection is found in the environment of the processes that started the module. If the controller does not use SSH,
    only O(packets) are sent, and the module warns if there are none.
  - Only changes of the running kernel are rehearsed. A twin has no files for the next boot, no units, no packages and no settings
    of network daemons. Nothing is rehearsed for an image.
  - The program C(nft) is needed on the node. A profile that installs it cannot be rehearsed before it is installed.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
attributes:
  action:
    description: Indicates that this has an action plugin, so that parts of it run on the controller.
    support: full
    details:
      - The controller lends pyroute2 to a node that lacks it, and recognises an image.
options:
  changes:
    description:
      - The changes, each a dictionary with the name of a module of this collection as its key and its options as the value, as in
        O(kubenode.datapath.datapath_trace#module:changes).
    type: list
    elements: dict
    required: true
  packets:
    description:
      - Packets that must still arrive, with their replies.
      - If the changes apply the profile of a role, a packet must also leave by the same uplink as before and from the same
        source, unless the new uplink is the one that its source belongs to, or by which its request came in.
    type: list
    elements: dict
    default: []
    suboptions:
      source:
        description: Its source address. May be omitted if the node itself sends the packet.
        type: str
      destination:
        description: Its destination address.
        type: str
        required: true
      protocol:
        description: V(tcp), V(udp), V(icmp), the name of another protocol, or its number.
        type: str
        default: tcp
      source_port:
        description: Its source port. The default for protocols with ports is V(40000).
        type: int
      destination_port:
        description: Its destination port, for protocols with ports.
        type: int
      interface:
        description: The link by which the packet comes in. Omit it if the node itself sends the packet.
        type: str
      mark:
        description: The mark with which the packet comes in or is sent.
        type: str
      length:
        description:
          - The length of the IP packet in bytes, from 40 to 65535. Without it, a small packet is sent. An answer to an echo
            request has the same length, and other answers are small. Omit it for TCP of the node itself, which divides data by
            itself.
        type: int
      df:
        description: Whether no router may divide the packet, as the flag DF of IPv4 says. No router divides IPv6. Needs a length.
        type: bool
seealso:
  - module: kubenode.datapath.datapath_trace
  - module: kubenode.datapath.profile
"""

EXAMPLES = r"""
- name: Refuse rules that cut off the controller, or the pods from the name server
  kubenode.datapath.datapath_rehearsal:
    changes:
      - policy_routes:
          rules: [{priority: 700, from: 10.0.1.10, table: 1003}]
          routes: [{table: 1003, to: default, via: 10.0.1.1, dev: eth1}]
    packets:
      - {source: 10.0.1.10, destination: 10.0.0.10, protocol: udp, destination_port: 53, interface: eni7c22dbae71f}
"""

RETURN = r"""
rehearsed:
  description:
    - The packets. C(what) is V(the controller's SSH connection), the place in O(packets), or names the mark of another program.
      C(packet) is the packet in one line.
      C(before) and C(after) have C(verdict) and C(reason), as RV(kubenode.datapath.datapath_trace#module:verdict) and
      RV(kubenode.datapath.datapath_trace#module:reason).
  returned: success
  type: list
  elements: dict
  sample:
    - what: the controller's SSH connection
      packet: tcp 192.0.2.9:51514 > 10.0.0.4:22
      before: {verdict: delivered, reason: "The node takes it."}
      after: {verdict: delivered, reason: "The node takes it."}
changes:
  description: The names of the modules that were applied in the twin, in order. Empty if nothing changes the running kernel.
  returned: success
  type: list
  elements: str
  sample: [policy_routes]
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("datapath_rehearsal")


if __name__ == "__main__":
    main()
