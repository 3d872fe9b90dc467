#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: link_addresses
short_description: Give links of a node addresses, now and whenever they appear, without routes
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Gives a link of the node an address that belongs to it, as an elastic network interface (ENI) its own primary address.
    What pods send by an ENI with an address is masqueraded to that, so that the reply comes in by the same ENI, and strict
    reverse-path filtering lets it through.
  - Each address is added with C(noprefixroute), so that no route to its prefix appears. The local table, by which the
    node answers for it, is all that changes; with a connected route, all that the node sends to the ENI's subnet would
    leave by the ENI, under whatever address. A CNI removes that route for the same reason.
  - An IPv6 address is added with C(nodad), so that it can be used at once; the cloud gives it to no one else.
  - An address that is on the link already and was not added by this module is enough, whatever its prefix length. It is told in
    RV(addresses.satisfied_by), nothing is added, and O(state=absent) leaves it.
notes:
  - O(addresses) is the whole set. What this module has added and is not listed goes. Ours are those in
    C(/run/kubenode/link-addresses.json), by the link's index, and those that a started unit of ours adds.
  - The permanent plane is a unit for each link, C(kubenode-addresses-LINK.service), which the link's device brings and takes
    along; at boot, when the link is plugged in later, and again after it was replugged. It is ordered before kubelet, which
    does not wait for a link that is not there yet. It runs C(ip address add), which iproute2 brings.
  - A link that goes down keeps its IPv4 addresses, and loses its IPv6 ones, unless C(net.ipv6.conf.LINK.keep_addr_on_down)
    is set; a later run, or the link's next appearance, brings these back.
  - systemd-networkd removes addresses that it did not set from a link that it manages, whenever it configures it, at boot as
    well. Warns of such a link. Have networkd leave ENIs unmanaged, or set their addresses itself, which is enough.
  - With the last IPv4 address of a link the kernel removes all IPv4 routes over it, also those of a CNI, and permanent
    neighbours. Where this module removes the last one, they are there again in the same transaction.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._checkpoint
options:
  addresses:
    description:
      - The addresses, which may be given as JSON text.
      - Required with O(state=present); an empty list takes all of ours back. With O(state=absent), those of ours that go; left
        out, all of them.
    type: list
    elements: dict
    suboptions:
      dev:
        description:
          - The link's name, 1 to 15 letters, digits and C(_.=+@~-).
          - It has to be there, unless O(immediate=false).
        type: str
        required: true
      address:
        description:
          - An IPv4 or IPv6 address, V(ADDRESS) or V(ADDRESS/LENGTH). Without a length it is the address alone, 32 or 128.
          - A length makes no route. An IPv4 address whose prefix holds one that was on the link before becomes a secondary one,
            which masquerading does not take; one of full length never does.
        type: str
        required: true
seealso:
  - module: kubenode.datapath.rp_filter
  - module: kubenode.datapath.policy_routes
"""

EXAMPLES = r"""
- name: Give an ENI its own address
  kubenode.datapath.link_addresses:
    addresses:
      - {dev: eth1, address: 10.0.1.10}
      - {dev: eth1, address: "2001:db8:1::10"}

- name: Give all ENIs theirs
  kubenode.datapath.link_addresses:
    addresses: "{{ (metadata.interfaces | kubenode.datapath.eni_policy('aws_vpc_cni')).addresses }}"
    checkpoint: 30

- name: Prepare an image for an ENI that comes later
  kubenode.datapath.link_addresses:
    addresses: [{dev: eth1, address: 10.0.1.10}]
    immediate: false

- name: Take all of them back
  kubenode.datapath.link_addresses:
    state: absent
"""

RETURN = r"""
addresses:
  description: What the run did to addresses, or in check mode would do; empty without O(immediate).
  returned: success
  type: dict
  contains:
    added:
      description: Those that were added.
      type: list
      elements: str
      returned: success
      sample: [10.0.1.10/32 dev eth1]
    removed:
      description: Those of ours that were removed.
      type: list
      elements: str
      returned: success
    kept:
      description: How many of ours stay as they were.
      type: int
      returned: success
    satisfied_by:
      description: Addresses of others that do for one that is listed.
      type: list
      elements: str
      returned: success
      sample: [10.0.2.10/24 dev eth2]
diff:
  description: The addresses and the units before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""


from ansible_collections.kubenode.datapath.plugins.module_utils._boot.units import Units
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint_resource import Checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import link_address
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.boot_link_addresses import BootLinkAddresses
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_backend import LinkMessages
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.live_link_addresses import (
    Changes,
    LiveLinkAddresses,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._module import CHECKPOINT, TWO_PLANES, Module
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.daemon_guards import LinksOfNetworkd
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.networkd_backend import Networkd
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import kernel
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.boot_record import BootRecord

OPTIONS = {
    **TWO_PLANES,
    **CHECKPOINT,
    "addresses": {
        "type": "list",
        "elements": "dict",
        "options": {"dev": {"type": "str", "required": True}, "address": {"type": "str", "required": True}},
    },
}


def main() -> None:
    module = Module(OPTIONS, long_lists=["addresses"])
    with module.reporting() as result:
        given = module.entries("addresses")
        if given is None and module.is_present:
            raise Invalid("addresses", given, "given where state is present")
        listed = None if given is None else link_address.from_options(given)

        files = Files()
        boot = BootLinkAddresses(files, Units(module.run))
        gone = boot.given() if listed is None else listed
        desired = listed or () if module.is_present else [one for one in boot.given() if one not in gone]
        placed = boot.resources(list(desired))
        live = LiveLinkAddresses(LinkMessages(), files, boot, listed, module.is_present)
        resources: list[Resource] = [live, *placed]
        if kernel.is_own_root() and not module.params["immediate"]:
            resources.insert(0, BootRecord(live, *placed))
        guards = (
            [LinksOfNetworkd(Networkd(module.run), live.links)]
            if module.is_present and module.params["immediate"]
            else []
        )
        outcome = module.converge(resources, guards, Checkpoint)
        result.update(module.report(outcome), addresses=(outcome.report(live) or Changes()).report())


if __name__ == "__main__":
    main()
