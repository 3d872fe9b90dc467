#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nftables_connmark
short_description: Route replies of pods by the interface by which their requests came in
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - On a node whose pods share cloud interfaces through policy routing, a pod's packets leave by the pod's interface. A request
    to a NodePort comes in by the primary interface. Without this module the reply leaves by the pod's interface with the node's
    address, and the cloud drops it.
  - This module manages one nftables table of family C(inet). Each packet from the client that enters by O(primary_interface) for
    one of that interface's addresses marks its connection. A pod's packets on a marked connection get the mark, and a policy rule
    routes them by the mark. So connections that exist already are routed by the primary interface, too.
  - With O(interfaces), connections that come in by other interfaces get marks of their own.
  - Packets that an L7 proxy on the node sends on behalf of a pod are marked as well, whether they pass C(lo) or not.
  - Marks are set before destination NAT, so the table works with kube-proxy in iptables and in nftables mode. Bits of a mark
    outside O(mask) are kept, on packets and on connections.
  - The table is compared by meaning, as by M(kubenode.datapath.nftables_probe_snat), and replaced in one transaction. No other
    table is read or changed.
requirements:
  - nftables 0.9.8 or newer on the node, unless in check mode
notes:
  - This module does not add the policy rule. M(kubenode.datapath.policy_routes) or the CNI does. For the default mark the rule is
    C(fwmark 0x80/0x80 lookup main), before the rules for pods and after the rule for the local table, in each family in which
    the node has pods. Each of O(interfaces) needs a rule that looks up its mark in a table whose default route leaves by that
    interface, for example C(fwmark 0x2/0x82 lookup 2).
  - Without O(strict), reverse-path filtering of O(primary_interface) must be loose or off; see M(kubenode.datapath.rp_filter).
    With or without it, reverse-path filtering of each of O(interfaces) must be loose or off, unless all requests that come in by
    the interface are for pods of this interface.
  - Masqueraded packets from a pod to a load balancer still leave by the pod's interface. If that interface has no address of its
    own, they have the primary interface's address, and a cloud that checks source addresses drops them. Give the interface an
    address in that case, for example with M(kubenode.datapath.link_addresses).
  - The permanent plane is the file O(path) and the enabled unit C(kubenode-nft-inet-TABLE.service), as with
    M(kubenode.datapath.nftables_probe_snat); with O(strict) also C(/etc/sysctl.d/90-kubenode-nft-inet-TABLE.conf).
  - The module warns if O(primary_interface) or one of O(interfaces) does not exist yet. With O(immediate), it also warns if the
    running kernel has no rule for a mark, has it after rules for pods, or has one rule for the marks of two interfaces. A program
    that adds the rule later is not detected.
  - The module warns of bits in O(mask) that kube-proxy, Cilium, Calico or another CNI uses for something else.
  - With O(strict), the module warns of a line in another file that would override C(src_valid_mark) at the next boot.
  - When the module undoes O(strict), it warns if reverse-path filtering stays strict.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._two_planes.table_file
  - kubenode.datapath._before
  - kubenode.datapath._checkpoint
options:
  table:
    description:
      - Name of the table, 1 to 128 letters, digits and C(_.-), starting with a letter or C(_).
      - Keywords of nft, for example C(accept) or C(counter), are refused. Keywords differ between versions; those of nft 0.9.8,
        1.0.6 and 1.1.3 are refused.
      - The module owns the table of this name and family C(inet), also if another program created it.
    type: str
    default: kubenodeReturnPath
  primary_interface:
    description:
      - The link by which requests to the node's own addresses enter, 1 to 15 letters, digits and C(_.=+@~-).
      - With O(strict) a name with C(=) is refused, because sysctl.d cannot name it.
      - Required with O(state=present), unless all interfaces by which requests come in are in O(interfaces). Then O(mark)
        and O(pod_interfaces) do not matter, and O(service_addresses) and O(strict) are refused, because all connections from
        outside are marked. Ignored with O(state=absent).
    type: str
  interfaces:
    description:
      - Other interfaces by which requests come in, each with a mark of its own, for example ENIs with public addresses, or ENIs
        to whose addresses a load balancer sends. Replies are routed by the interface by which the last request packet came in.
        That applies to replies of pods on this node and of the node itself, and without O(strict) also to replies of pods on
        other nodes.
      - All connections that are opened from outside by such an interface are marked, to the node's own addresses and to those of
        pods.
      - By default only connections that come in by O(primary_interface) are marked.
      - Ignored with O(state=absent).
    type: list
    elements: dict
    suboptions:
      name:
        description: The link, another one than O(primary_interface). It need not exist yet.
        type: str
        required: true
      mark:
        description:
          - Its mark, like O(mark). No two interfaces have the same mark. Marks may share bits, for example V(0x2), V(0x4) and
            V(0x6); the rule of each mark must then test the whole O(mask).
        type: str
        required: true
  pod_interfaces:
    description:
      - The node's ends of the pods' links, as names or as prefixes with C(*), for example C(eni*). The links need not exist yet.
        None may match O(primary_interface) or one of O(interfaces).
      - Required with O(primary_interface). Ignored with O(state=absent).
    type: list
    elements: str
  service_addresses:
    description:
      - Addresses of Services that are on no interface of the node, as addresses or prefixes of IPv4 and IPv6. For example
        floating IPs, C(externalIPs), addresses of MetalLB, and those of load balancers that keep the destination address.
      - Connections to these addresses that enter by O(primary_interface) are marked like connections to the node's own addresses.
      - A prefix of length 0 is refused.
      - Ignored with O(state=absent).
    type: list
    elements: str
  mark:
    description:
      - The mark of connections that come in by O(primary_interface), a number from 1 to C(0xffffffff) within O(mask), in decimal
        or hexadecimal.
    type: str
    default: "0x80"
  mask:
    description:
      - The bits of a mark that this module sets and clears. All other bits are kept.
      - The default is all bits of O(mark) and of the marks of O(interfaces).
    type: str
  strict:
    description:
      - Whether to support strict reverse-path filtering on O(primary_interface), and on no other link. If true, packets are
        marked as they enter, and C(net.ipv4.conf.PRIMARY_INTERFACE.src_valid_mark) is set to 1, so that the kernel looks up their
        source with the mark's rule.
      - O(state=absent) restores the former value of C(src_valid_mark), and so does a run with V(false). Neither changes the
        filter. If the filter stays strict, replies to pods that come in by the interface are dropped again, so undo
        M(kubenode.datapath.rp_filter) as well.
    type: bool
    default: false
  path:
    default: /etc/kubenode/return-path.nft
seealso:
  - module: kubenode.datapath.rp_filter
  - module: kubenode.datapath.policy_routes
  - name: AWS VPC CNI
    description: The mark and the rule of the CNI that introduced this scheme.
    link: https://github.com/aws/amazon-vpc-cni-k8s/blob/master/docs/troubleshooting.md
"""

EXAMPLES = r"""
- name: Route by the mark
  kubenode.datapath.policy_routes:
    rules:
      - {priority: 1024, fwmark: 0x80/0x80, table: main}
      - {priority: 1024, fwmark: 0x80/0x80, table: main, family: ipv6}

- name: Route replies of NodePorts by eth0, now and after each boot
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]

- name: Do the same for requests to addresses that MetalLB announces
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]
    service_addresses: [203.0.113.0/24, "2001:db8:80::/64"]

- name: Route replies by eth1 and eth2, too, if the request came in by them
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]
    interfaces:
      - {name: eth1, mark: "0x2"}
      - {name: eth2, mark: "0x4"}

- name: Add the rules for these marks
  kubenode.datapath.policy_routes:
    rules:
      - {priority: 1024, fwmark: 0x80/0x86, table: main}
      - {priority: 1024, fwmark: 0x2/0x86, table: 2}
      - {priority: 1024, fwmark: 0x4/0x86, table: 3}

- name: Do the same where reverse-path filtering must stay strict
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]
    strict: true

- name: Prepare a node image, with a mark that no other program on the node uses
  kubenode.datapath.nftables_connmark:
    primary_interface: ens5
    pod_interfaces: ["cali*", "veth*"]
    mark: "0x10"
    immediate: false

- name: Roll back if the node cannot be reached, or if its own check fails
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]
    checkpoint: 60
    checkpoint_command: curl --silent --fail --max-time 5 https://10.96.0.1/livez

- name: Remove the table, the files and the unit
  kubenode.datapath.nftables_connmark:
    state: absent
"""

RETURN = r"""
ruleset:
  description: The nft script that loads the table. O(path) contains the same script below a heading. Empty for
    O(state=absent).
  returned: success
  type: str
  sample: |
    table inet kubenodeReturnPath {}
    delete table inet kubenodeReturnPath
    table inet kubenodeReturnPath {
    ...
table:
  description: Name of the table.
  returned: success
  type: str
  sample: kubenodeReturnPath
diff:
  description: The table, the setting and the files before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("nftables_connmark")


if __name__ == "__main__":
    main()
