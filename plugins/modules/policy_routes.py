#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: policy_routes
short_description: Manage a set of policy rules and routes on a Kubernetes node
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Manages complete sets of policy rules (C(ip rule)) and routes of both families, in one pass through netlink. Routes are added
    before the rules that need them, and rules are removed before the routes that they needed.
  - The module owns the rules and routes that carry the routing protocol O(protocol). Those that carry it and are not listed are
    removed. Rules and routes with another protocol are foreign, and are never changed.
  - Rules and routes are compared by meaning. A foreign rule or route that is equal to a desired one satisfies it. It is reported
    in RV(rules.satisfied_by) or RV(routes.satisfied_by), nothing is added, and O(state=absent) leaves it. A foreign route that
    differs only in O(routes[].onlink) sends packets the same way, so it satisfies the desired one too. So does one whose only
    difference is a nexthop object that leads to the same next hops, an expiry, a locked MTU or another metric such as C(advmss).
  - A foreign rule that differs only in the table satisfies a desired rule, if the foreign rule's table has foreign routes to all
    gateways that O(routes) has in the desired rule's table. So an ENI for which systemd-networkd has a separate table keeps that
    table.
  - The module refuses to add a rule if a foreign rule has the same priority and selector and another meaning, and to add a
    route if a foreign route has the same table, prefix and metric and another meaning. The error names the owner.
  - Rules of one priority are kept in the order of O(rules). A rule that has to move is added at its new place before it is
    removed from the old one, so that every packet meets the rule. The order is not enforced if no packet can match two of the
    rules, as with one rule per pod address.
  - A rule or route with attributes that this module cannot read (C(dscp), encapsulations) is foreign, even if it carries
    O(protocol). It is never changed and satisfies no desired rule or route. If it has the key of a rule or route to be added, the
    module refuses and names it. There is one exception. If such a rule carries O(protocol), and the kernel would delete it
    instead of a rule that the module removes, it is first added again, unchanged, behind the others of its priority.
  - If the kernel refuses a rule or route, all changes are undone. The error names the rule or route and the kernel's answer.
requirements:
  - pyroute2 0.7.2 or newer, on the node or on the controller. If the node lacks it, the controller's is copied once to
    C(/var/lib/kubenode/lib), readable only by root; O(state=absent) of the last set removes the copy.
notes:
  - The permanent plane is the file O(path), a program beside it (C(PATH.pyz)) and the unit
    C(kubenode-policy-routes-PROTOCOL.service). The unit is enabled, loads the file before kubelet starts, and keeps running as a
    listener. With O(immediate=true), if systemd runs, the unit is also started, and restarted when its program has changed. The
    run waits until the unit is active. If the unit fails, the run fails with the last lines of the unit's journal. If the node
    is still booting, the run does not wait for a start that systemd has queued, and warns about it. If the unit is already
    starting, the run waits up to 240 seconds for it, in check mode too.
  - The unit names the Python that runs this module, if that Python will exist at boot and only root can replace it. Otherwise it
    names another Python of the node that is 3.9 or newer. The unit keeps its Python as long as that exists, so a run by another
    Python changes nothing. A run that changes anything that the next boot loads rehearses the program with this Python.
  - The unit restores a rule or route of the set within two seconds after another program has removed it, or after it was lost
    with a link or address. It loads rules and routes that wait for a link as soon as the link appears. Its journal says what was
    lost, and which program removed it. If a program keeps removing rules or routes, the pauses between restorations grow to five
    minutes. Rules and routes that are lost with a link or an address are always restored without these pauses.
  - While a run moves or removes the file, the record C(kubenode-policy-routes-PROTOCOL.service.files) beside the unit lists the
    affected paths. If the run is killed, the record remains, and the next run completes or undoes the change.
  - With O(permanent=false), a unit from an earlier run keeps the set of this run in force until the next boot. The set is
    recorded in C(/run/kubenode/policy-routes-PROTOCOL.json), which is part of the immediate plane.
  - systemd-networkd removes foreign rules whenever it configures a link, unless C(ManageForeignRoutingPolicyRules=no) is set in
    C(networkd.conf). The unit restores the rules a moment later.
  - The kernel adds a rule behind all others of its priority. So a rule of the set that moves, or that a roll-back restores,
    stands behind the foreign rules of its priority. If that changes the decision for some packet, a roll-back reports it. If a
    foreign rule satisfies a desired rule, but stands before a rule that O(rules) lists first, and this order changes the decision
    for some packet, the module refuses.
  - The kernel merges two IPv6 routes that have gateways and the same table, prefix and metric into one route with several next
    hops. If another program appends a route (C(ip -6 route append)) to a route of the set, its next hop becomes part of the route
    with O(protocol), and the next run removes it. Give the appended route its own metric or table.
  - Check mode, too, finds invalid gateways (a broadcast or multicast address, or an address of the node) and source addresses
    that the node does not have.
  - The module warns if a known CNI or cloud agent uses one of the priorities, tables or marks for something else.
  - Give thousands of rules as JSON text, with C(rules={{ my_rules | to_json }}). Ansible itself needs a tenth of a millisecond
    for each entry of a list.
  - Numbers in O(rules) and O(routes) may be given in decimal or, with C(0x), in hexadecimal.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._before
  - kubenode.datapath._checkpoint
options:
  enis:
    description:
      - Derives the rules and routes from the elastic network interfaces (ENIs) of the node. Each boot asks the metadata service
        for the ENIs, and so does the unit when a network interface is attached or detached.
      - The rules and routes are those that M(kubenode.datapath.imds_info) and the filter
        P(kubenode.datapath.eni_policy#filter) give with the same layout. For the running kernel, O(rules) and O(routes) may
        contain both lists. If they are omitted, the run asks the metadata service, unless O(immediate) is false.
      - At a boot, kubelet waits at most 20 seconds for the metadata. If an answer is missing by then, or does not describe an ENI
        yet, the unit asks again after 1, 2, 4 and more seconds. For a network interface that the metadata does not list, the unit
        stops after two minutes. If the service does not answer, the unit continues to ask, in the end every five minutes, and
        removes nothing.
      - After a later run without O(enis), boots load the lists of that run.
      - With O(state=absent), O(enis) has no effect.
      - May be given as JSON text.
    type: dict
    suboptions:
      layout:
        description:
          - The CNI whose priorities, tables and marks are used; see the filter P(kubenode.datapath.eni_policy#filter).
          - With V(custom), an ENI's table is 1000 plus the link's index.
        type: str
        choices: [aws_vpc_cni, cilium, terway, custom]
        required: true
      cloud:
        description:
          - The cloud whose metadata service is asked, as in O(kubenode.datapath.imds_info#module:cloud).
          - The layouts V(aws_vpc_cni) and V(cilium) need device numbers, which only AWS provides.
        type: str
        choices: [auto, azure, aws, alibaba]
        default: auto
      manage:
        description:
          - The parts of the layout that the set has. With V(mark_rule), it has the rule that looks up marked packets, and the
            table of that rule unless it is V(main). With V(tables), it has the rules and the table of each secondary ENI.
          - By default the set has both.
        type: list
        elements: str
        choices: [mark_rule, tables]
      mark:
        description:
          - V(MARK) or V(MARK/MASK) of packets that leave by the primary ENI. The default is that of the layout; for V(custom),
            V(0x80/0x80).
        type: str
      interface_marks:
        description:
          - Secondary ENIs by which requests come in, with their marks, as in the filter P(kubenode.datapath.eni_policy#filter).
            While an ENI is attached, it has a rule that looks up its mark in its table.
        type: list
        elements: dict
        suboptions:
          name:
            description: The ENI's network interface.
            type: str
            required: true
          mark:
            description: Its mark, a number that neither another of these ENIs nor the primary ENI has.
            type: str
            required: true
      priorities:
        description: For V(custom), priorities of rules, as in the filter P(kubenode.datapath.eni_policy#filter).
        type: dict
      pod_interfaces:
        description:
          - Names of the node's ends of the pods' links, or prefixes of names followed by V(*). When such a link appears, the
            unit does not ask the metadata service. The default is the names that the layout's CNI uses.
          - V(custom) has no default. Without names, the unit asks the metadata service for each veth that appears.
        type: list
        elements: str
  uplinks:
    description:
      - Derives the rules and routes from the network interfaces by which the node reaches other networks, on a node with several
        of them and no cloud. Each has a table with its default route, its networks, and the routes of table C(main) by gateways
        that are no routers of an uplink, as to the pods of other nodes. The table is looked up by the uplink's mark, and by the
        addresses of the uplink, except for destinations that C(main) reaches without its default routes.
      - Each boot reads the addresses, routes and DHCP leases of the node, and so does the unit when one of them changes. An
        uplink without a link has no rules and routes until the link appears.
      - For the running kernel, O(rules) and O(routes) may contain both lists. If they are omitted, the run reads the node, unless
        O(immediate) is false.
      - M(kubenode.datapath.nftables_connmark) marks the connections, with the same marks in
        O(kubenode.datapath.nftables_connmark#module:interfaces).
      - Not together with O(enis). With O(state=absent), O(uplinks) has no effect.
      - May be given as JSON text.
    version_added: 1.0.0
    type: list
    elements: dict
    suboptions:
      name:
        description: The network interface. It need not exist yet.
        type: str
        required: true
      gateway:
        description:
          - The uplink's IPv4 router. By default that of a default route over the uplink in any table, of a DHCP lease, or of the
            configuration of systemd-networkd or NetworkManager, in this order. While none is known, the uplink has no IPv4 rules
            and routes, or keeps the former ones, and a warning or the journal names it.
        type: str
      gateway6:
        description: The uplink's IPv6 router, found in the same way.
        type: str
      table:
        description: The number of the uplink's table, by default 1000 plus the link's index, or the next that no program fills.
        type: int
      mark:
        description:
          - The mark of connections that come in by the uplink. By default, the next of V(0x2), V(0x4), V(0x6), V(0x40) and so on,
            sums of bits that no known CNI uses.
        type: str
  rules:
    description:
      - The policy rules. At least one of O(rules), O(routes), O(enis) and O(uplinks) is required with O(state=present).
      - A list that is omitted is not managed. V([]) removes all rules of O(protocol).
      - O(state=absent) removes the listed rules; without O(rules) and O(routes), it removes all that carry O(protocol).
      - Rules of one priority are kept in the order given. The first rule that applies to a packet decides.
      - May be given as JSON text.
    type: list
    elements: dict
    suboptions:
      priority:
        description: Position among the rules, from 1 to 4294967295; the lowest comes first.
        type: int
        required: true
      family:
        description: By default that of O(rules[].from) and O(rules[].to), or V(ipv4) if neither is given.
        type: str
        choices: [ipv4, ipv6]
      from:
        description: Source prefix.
        type: str
      to:
        description: Destination prefix.
        type: str
      iif:
        description: The link by which a packet came in. It need not exist yet.
        type: str
      oif:
        description: The link that a socket is bound to. It need not exist yet.
        type: str
      fwmark:
        description: V(MARK) or V(MARK/MASK), such as V(0x80/0x80). Without a mask, all bits are compared.
        type: str
      tos:
        description: Type of service, such as V(0x10).
        type: str
      ipproto:
        description: An IP protocol, as a number or V(icmp), V(tcp), V(udp), V(gre), V(esp), V(ah), V(ipv6-icmp) or V(sctp).
        type: str
      sport:
        description: A source port or a range V(N-M), from 1 to 65534.
        type: str
      dport:
        description: A destination port or a range V(N-M), from 1 to 65534.
        type: str
      uidrange:
        description: A user ID or a range V(N-M), for sockets of the node itself.
        type: str
      l3mdev:
        description: Whether the rule applies to links in a VRF, and looks up the VRF's table.
        type: bool
      not:
        description: Whether the rule applies to packets that the selector does not match.
        type: bool
      action:
        description:
          - What the kernel does with the packet.
          - The default is V(goto) if O(rules[].goto) is given, else V(lookup).
        type: str
        choices: [lookup, goto, blackhole, unreachable, prohibit]
      table:
        description: The table to look up, a number or a name from the node's C(rt_tables). V(lookup) requires it.
        type: str
      goto:
        description: Priority of the rule to continue with, above O(rules[].priority). A rule must exist there.
        type: int
      suppress_prefixlength:
        description:
          - Ignore a route from the table if its prefix is this long or shorter; V(0) ignores default routes.
        type: int
  routes:
    description:
      - The routes. An omitted list and an empty list mean the same as for O(rules).
      - May be given as JSON text.
    type: list
    elements: dict
    suboptions:
      table:
        description: The table, a number or a name from the node's C(rt_tables).
        type: str
        required: true
      to:
        description: Destination prefix, or V(default).
        type: str
        required: true
      family:
        description: By default that of the addresses, or V(ipv4) if there are none.
        type: str
        choices: [ipv4, ipv6]
      type:
        description: What the kernel does with a packet. The default is V(unicast).
        type: str
        choices: [unicast, local, blackhole, unreachable, prohibit, throw]
      via:
        description:
          - The gateway. It must be a neighbour on O(routes[].dev) by a foreign route or by one of O(routes), unless
            O(routes[].onlink) is true or the gateway is a link-local address.
        type: str
      dev:
        description:
          - The link. It must exist.
          - With O(routes[].via), it may be omitted. The module then finds the link as the kernel does, by the routes without a
            gateway in the same table, then by those in table main. The longest prefix wins, then the lowest metric. The result
            must be one link. Each boot finds the link anew.
          - Required for V(local), for V(unicast) without O(routes[].via), with O(routes[].onlink), and with a link-local gateway.
        type: str
      onlink:
        description: Whether to treat the gateway as a neighbour on the link even if no route says so.
        type: bool
      scope:
        description: Scope of an IPv4 route. The default is V(global) with a gateway, V(link) without one, V(host) for V(local).
        type: str
        choices: [global, site, link, host]
      src:
        description: Preferred source address. It must be an address of the node.
        type: str
      metric:
        description: Of several routes to a prefix, the lowest metric is used. The default is V(0), or V(1024) for IPv6.
        type: int
      mtu:
        description: Path MTU, from 68 to 65535.
        type: int
      nexthops:
        description:
          - Two or more next hops that share the traffic, instead of O(routes[].via) and O(routes[].dev).
          - For IPv6, each needs O(routes[].nexthops[].via).
        type: list
        elements: dict
        suboptions:
          dev:
            description: The same as O(routes[].dev).
            type: str
          via:
            description: The same as O(routes[].via).
            type: str
          onlink:
            description: The same as O(routes[].onlink).
            type: bool
          weight:
            description: Share of the traffic, from 1 to 256.
            type: int
            default: 1
  protocol:
    description:
      - Routing protocol number of the rules and routes that the module owns, from 1 to 255. Each set on a node needs its own.
      - Numbers that belong to the kernel or to routing daemons are refused; see C(/etc/iproute2/rt_protos).
    type: int
    default: 75
  path:
    description:
      - The file that the next boot loads. The default is V(/etc/kubenode/policy-routes-PROTOCOL.json). If an earlier run used
        another path, that file is removed. O(state=absent) finds the file of O(protocol) at any path.
      - With O(state=present) the file must be in or below a folder that is named C(kubenode) or C(kubenode-NAME) and lies in
        C(/etc), C(/opt), C(/srv) or C(/var/lib), or directly in another folder there that the module creates, such as
        C(/etc/acme). The name of such a folder has letters, digits, C(_) and C(-), and is not one of other programs, such as
        C(systemd). From other folders, and from a folder that exists already, another program may load or execute the file.
        Each folder on the way must belong to root and be writable by root only, and the folder must not be a symbolic link.
        Otherwise the run is refused.
      - The file's folder is created if its parent exists. A folder that the module created is removed with the last file in it.
    type: path
"""

EXAMPLES = r"""
- name: Route a pod's packets by the network interface that carries its address
  kubenode.datapath.policy_routes:
    routes:
      - {table: 1003, to: 10.0.1.1/32, dev: eth1}
      - {table: 1003, to: default, via: 10.0.1.1}
    rules:
      - {priority: 1300, to: 10.0.1.5, table: main}
      - {priority: 2300, from: 10.0.1.5, table: 1003}

- name: Send replies of node ports back the way their requests came, both families
  kubenode.datapath.policy_routes:
    protocol: 76
    rules:
      - {priority: 1200, fwmark: 0x80/0x80, table: main}
      - {priority: 1200, fwmark: 0x80/0x80, table: main, family: ipv6}

- name: Give thousands of rules as JSON text
  kubenode.datapath.policy_routes:
    rules: "{{ pod_rules | to_json }}"

- name: Prepare an image for nodes that discover their own ENIs
  kubenode.datapath.policy_routes:
    immediate: false
    enis:
      layout: aws_vpc_cni

- name: Prepare an image, in the chroot that builds it
  kubenode.datapath.policy_routes:
    immediate: false
    rules: "{{ node_rules }}"

- name: Roll the rules back if the controller cannot reach the node with them
  kubenode.datapath.policy_routes:
    rules: "{{ node_rules }}"
    checkpoint: 30

- name: Remove one rule and keep the others
  kubenode.datapath.policy_routes:
    state: absent
    rules:
      - {priority: 1300, to: 10.0.1.5, table: main}

- name: Remove all rules and routes of the protocol
  kubenode.datapath.policy_routes:
    state: absent
"""

RETURN = r"""
rules:
  description: Changes to the rules of the running kernel; in check mode, the changes to make. Empty if O(immediate) is false.
  returned: success
  type: dict
  contains:
    added:
      description:
        - Rules that were added, as C(ip rule) prints them.
        - A rule that moves is in RV(rules.removed) as well, and not in RV(rules.kept).
      type: list
      elements: str
      sample: ["ip rule 2300: from 10.0.1.5 lookup 1003"]
    removed:
      description: Rules that were removed.
      type: list
      elements: str
    kept:
      description: Number of rules of O(protocol) that existed and stay.
      type: int
    satisfied_by:
      description:
        - Foreign rules that satisfy desired rules. Nothing was added for these. C(object) is the rule as C(ip rule) prints it,
          C(protocol) its protocol by name or number, several with commas, and C(owner) its owner in words, that is the programs
          that are known to use its priority, mark or table so, and its protocol.
      type: list
      elements: dict
      contains: &foreign
        object:
          description: The rule as C(ip rule) prints it.
          type: str
        owner:
          description: Its owner in words.
          type: str
        protocol:
          description: Its protocol by name or number.
          type: str
      sample:
        - object: "ip rule 1024: from all fwmark 0x80/0x80 lookup main"
          owner: amazon-vpc-cni or UCloud's CNI, protocol unspec
          protocol: unspec
routes:
  description: The same for routes. If a route replaces another one, the new one is added and the old one is removed.
  returned: success
  type: dict
  contains:
    added:
      description: Routes that were added, as C(ip route) prints them.
      type: list
      elements: str
      sample: ["ip route default via 10.0.1.1 dev eth1 table 1003"]
    removed:
      description: Routes that were removed.
      type: list
      elements: str
    kept:
      description: Number of routes of O(protocol) that existed and stay.
      type: int
    satisfied_by:
      description: Foreign routes that satisfy desired routes, in the form of RV(rules.satisfied_by). Nothing was added for these.
      type: list
      elements: dict
      contains: *foreign
diff:
  description:
    - The rules and routes that are removed and added, and the files before and after. One entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("policy_routes")


if __name__ == "__main__":
    main()
