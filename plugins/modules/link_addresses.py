#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: link_addresses
short_description: Add addresses without routes to links of a node, now and whenever the links appear
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Adds to a link of the node an address that belongs to it, for example to an elastic network interface (ENI) its own primary
    address. Packets that pods send by an ENI with an address are masqueraded to that address. So the reply comes in by the same
    ENI, and strict reverse-path filtering accepts it.
  - Each address is added with C(noprefixroute), so that no route to its prefix appears, and only the local table changes. With a
    connected route, all packets from the node to the ENI's subnet would leave by the ENI, whatever their source address. CNIs
    remove that route for the same reason.
  - An IPv6 address is added with C(nodad), so that it can be used at once. Duplicate address detection is not needed, because the
    cloud assigns the address to this ENI only.
  - An address that is already on the link and was not added by this module satisfies the option, whatever its prefix length. It
    is listed in RV(addresses.satisfied_by), nothing is added, and O(state=absent) leaves it.
notes:
  - O(addresses) is the whole set. The module removes addresses that it has added before and that are not listed. It finds them
    in the record C(/run/kubenode/link-addresses.json), which has the link's index, and in its units that were started.
  - The permanent plane is one unit for each link, C(kubenode-addresses-LINK.service). systemd starts and stops the unit with the
    link, at boot, when the ENI is attached later, and when it is attached again. The unit is ordered before kubelet, but kubelet
    does not wait for a link that does not exist yet. The unit runs C(ip address add) of iproute2.
  - A link that goes down keeps its IPv4 addresses. It loses its IPv6 addresses unless C(net.ipv6.conf.LINK.keep_addr_on_down)
    is set. A later run, or the link's next appearance, adds these again.
  - systemd-networkd removes addresses that it did not set from a link that it manages, whenever it configures the link, also at
    boot. The module warns of such a link. Leave ENIs unmanaged in systemd-networkd, or set their addresses there.
  - With the last IPv4 address of a link, the kernel removes all IPv4 routes over the link, including those of a CNI, and the
    link's permanent neighbours. If this module removes the last address, it restores the routes and neighbours in the same
    transaction.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._before
  - kubenode.datapath._checkpoint
options:
  addresses:
    description:
      - The addresses, which may be given as JSON text.
      - Required with O(state=present). An empty list removes all addresses that this module has added.
      - With O(state=absent), the addresses to remove, if this module has added them. If this option is omitted, all addresses
        that the module has added are removed.
    type: list
    elements: dict
    suboptions:
      dev:
        description:
          - The link's name, 1 to 15 letters, digits and C(_.=+@~-).
          - The link must exist, unless O(immediate=false).
        type: str
        required: true
      address:
        description:
          - An IPv4 or IPv6 address, V(ADDRESS) or V(ADDRESS/LENGTH). The default length is 32 for IPv4 and 128 for IPv6.
          - The length adds no route. An IPv4 address with the same prefix as one that is already on the link becomes a secondary
            address, which masquerading does not use. An address with the default length never becomes secondary.
        type: str
        required: true
seealso:
  - module: kubenode.datapath.rp_filter
  - module: kubenode.datapath.policy_routes
"""

EXAMPLES = r"""
- name: Add an ENI's own addresses to its link
  kubenode.datapath.link_addresses:
    addresses:
      - {dev: eth1, address: 10.0.1.10}
      - {dev: eth1, address: "2001:db8:1::10"}

- name: Add the addresses of all ENIs to their links
  kubenode.datapath.link_addresses:
    addresses: "{{ (metadata.interfaces | kubenode.datapath.eni_policy('aws_vpc_cni')).addresses }}"
    checkpoint: 30

- name: Prepare an image for an ENI that is attached later
  kubenode.datapath.link_addresses:
    addresses: [{dev: eth1, address: 10.0.1.10}]
    immediate: false

- name: Remove all addresses that were added
  kubenode.datapath.link_addresses:
    state: absent
"""

RETURN = r"""
addresses:
  description: The changes that the run made, or in check mode would make; empty without O(immediate).
  returned: success
  type: dict
  contains:
    added:
      description: The addresses that were added.
      type: list
      elements: str
      returned: success
      sample: [10.0.1.10/32 dev eth1]
    removed:
      description: The addresses that were removed. This module had added them before.
      type: list
      elements: str
      returned: success
    kept:
      description: The number of addresses that this module added before and that stay.
      type: int
      returned: success
    satisfied_by:
      description: Foreign addresses that satisfy a listed one. C(object) is the address, C(owner) its owner.
      type: list
      elements: dict
      returned: success
      contains:
        object:
          description: The address.
          type: str
        owner:
          description: Its owner in words.
          type: str
      sample: [{object: 10.0.2.10/24 dev eth2, owner: another program}]
diff:
  description: The addresses and the units before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("link_addresses")


if __name__ == "__main__":
    main()
