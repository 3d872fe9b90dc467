#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: datapath_info
short_description: Read everything that decides where a node's packets go, as plain data
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Reads the links, neighbours, rules, routes, settings, firewalls and programs of a node into one snapshot of plain data, from
    which the packet path of the node can be examined or rebuilt elsewhere.
  - Starts only programs that list something. Changes nothing on the node, loads no kernel module and registers no netfilter
    table.
  - What the module cannot read is listed in RV(snapshot.unread) with the reason. A subset that could not be read at all is null.
  - The snapshot contains no secrets. Of CNI configurations it contains names and types only, and it omits settings that are
    cryptographic keys.
notes:
  - Needs root.
  - Reads the network namespace in which it runs, and of other namespaces only the ends of veth links, and what RV(snapshot.pods)
    and RV(snapshot.pod_neighbors) say.
  - The subsets are read one after the other. Another program may change the node meanwhile.
  - Reads nf_tables, ipset and IPVS only if the kernel has them loaded or built in. Reads legacy tables only if they are in use.
  - Does not read BPF programs of sockets, cgroups and netkit, the forwarding and VLAN tables of bridges, or the state of
    connections. Of IPsec, it reads the prefixes of the policies alone, which it lists in RV(snapshot.unread).
  - Takes about a second on a node with 10,000 policy rules, and also with 9,000 rules of iptables and 500 links.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
options:
  gather:
    description:
      - The subsets to read. RV(snapshot) describes each.
    type: list
    elements: str
    choices: &subsets
      - links
      - neighbors
      - rules
      - routes
      - settings
      - nftables
      - iptables
      - ipsets
      - ebtables
      - bpf
      - filters
      - ipvs
      - recent
      - pods
      - pod_addresses
      - network_daemons
      - firewalls
      - boot
      - cni
      - units
      - policies
      - listeners
      - pod_neighbors
      - counters
      - versions
    default: *subsets
"""

EXAMPLES = r"""
- name: Read the packet path of the node
  kubenode.datapath.datapath_info:
  register: datapath

- name: Store it on the controller
  ansible.builtin.copy:
    content: "{{ datapath.snapshot | ansible.builtin.to_nice_json }}"
    dest: "{{ inventory_hostname }}.json"
    mode: "0600"
  delegate_to: localhost

- name: Read the rules and routes alone
  kubenode.datapath.datapath_info:
    gather: [rules, routes]
"""

RETURN = r"""
snapshot:
  description: The subsets of O(gather), each under its name.
  returned: success
  type: dict
  contains:
    format:
      description: The version of this format. It is raised when the meaning of a key changes, and not when a key is added.
      type: int
      sample: 1
    node:
      description: The C(name) of the node, and the C(time) at which it was read.
      type: dict
      sample: {name: node1, time: 2026-11-29 10:12:00 UTC}
      version_added: 1.1.0
    unread:
      description: What could not be read. Empty if the snapshot is complete.
      type: list
      elements: dict
      contains:
        subset:
          description: The subset that lacks the object.
          type: str
        object:
          description: The object that could not be read; V("") for the subset as a whole.
          type: str
        reason:
          description: Why it could not be read.
          type: str
      sample:
        - {subset: ipsets, object: blocked, reason: ipset is not installed. Install it and run again.}
    links:
      description: The links, by index. From rtnetlink.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      contains:
        name:
          description: The link's name.
          type: str
          sample: veth1a2b3c
        index:
          description: Its index. A link that is plugged in again gets a new one.
          type: int
        kind:
          description: Its kind as in C(ip link add type), such as V(veth) or V(bridge); V("") for hardware and the loopback.
          type: str
        type:
          description: Its hardware type, a number of C(linux/if_arp.h); V(1) for Ethernet, V(772) for the loopback.
          type: int
        mac:
          description: Its link-layer address, in lower case with colons; V("") if it has none.
          type: str
        mtu:
          description: Its MTU in bytes.
          type: int
        qdisc:
          description: The kind of the queueing discipline at its root, such as V(fq_codel); V(noqueue) for none.
          type: str
        flags:
          description: Its flags as C(ip link) prints them.
          type: list
          elements: str
          sample: [UP, BROADCAST, RUNNING, MULTICAST, LOWER_UP]
        master:
          description: The link that it is a port of, such as a bridge or VRF; V("") for none.
          type: str
        parent:
          description: The link below it, such as that of a VLAN or of a tunnel; V("") for none.
          type: str
        local:
          description: The node's address of a tunnel, from which its packets leave.
          returned: for a tunnel that was given one
          type: str
        remote:
          description: The address of a tunnel's other end.
          returned: for a tunnel that was given one
          type: str
        port:
          description: The UDP port to which a tunnel sends its packets.
          returned: for a tunnel by UDP
          type: int
          sample: 4789
        peer:
          description:
            - The other end of a veth; null for another kind, and if it was not found.
            - C(namespace) is V("") for the node's own network namespace, or the name of another one, or a process in it. C(name),
              C(mac), C(mtu), C(flags) and C(addresses) are those of that end.
          type: dict
          sample: {namespace: process 1234, name: eth0, mac: "0a:58:0a:f4:00:05", mtu: 1450, flags: [UP, LOWER_UP], addresses: [
            10.244.0.5]}
        fdb:
          description: To which addresses a VXLAN sends frames for which MAC addresses, as C(bridge fdb show) lists it.
          returned: for a VXLAN
          type: list
          elements: dict
          sample: [{mac: "0a:58:0a:f4:02:00", dst: 192.0.2.12}]
        settings:
          description:
            - Settings that decide where packets go, those of the link's kind and those of a bridge's port, as numbers, under the
              names that C(ip -d link) prints.
          type: dict
          sample: {state: 3, hairpin: 1, learning: 1, isolated: 0}
        addresses:
          description:
            - Its addresses. C(address) has the prefix length, C(peer) is the address of the other end of a point-to-point link,
              C(scope) and C(flags) are those of C(ip address).
          type: list
          elements: dict
          sample: [{address: 10.0.0.4/24, peer: "", scope: global, flags: [permanent]}]
    neighbors:
      description:
        - The neighbours of both families, without those that the kernel creates itself, and the addresses for which the node
          answers as a proxy, in C(state) V(PROXY). From rtnetlink.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{address: 10.0.0.1, dev: eth0, mac: "12:34:56:78:9a:bc", state: REACHABLE}]
    rules:
      description:
        - The policy rules of both families in the order in which the kernel tries them, under the names of the options of
          M(kubenode.datapath.policy_routes). A key that has its default is left out. From rtnetlink.
        - C(protocol) is the protocol that owns it. C(unread) names attributes that the entry lacks.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{priority: 512, family: ipv4, to: 10.244.0.5, table: "254", protocol: boot}]
    routes:
      description:
        - The routes of both families and all tables, under the names of the options of M(kubenode.datapath.policy_routes). A
          key that has its default is left out. From rtnetlink.
        - C(protocol) and C(unread) are as in RV(snapshot.rules). C(tos) and C(from) are a route's type of service and source
          prefix.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{table: "254", family: ipv4, to: default, via: 10.0.0.1, dev: eth0, scope: global, protocol: dhcp}]
    settings:
      description:
        - Settings that decide what happens to a packet, as numbers. A setting that the kernel lacks is left out. From
          C(/proc/sys).
      type: dict
      returned: if O(gather) has it; null if it could not be read
      contains:
        node:
          description: Settings of the whole node, as C(sysctl) names them.
          type: dict
          sample: {net.ipv4.ip_forward: 1, net.bridge.bridge-nf-call-iptables: 1}
        ipv4:
          description: Settings below C(net.ipv4.conf) by link, with C(all) and C(default).
          type: dict
          sample: {all: {rp_filter: 0}, default: {rp_filter: 2}, eth0: {rp_filter: 1}}
        ipv6:
          description: Settings below C(net.ipv6.conf) by link, with C(all) and C(default). Empty if the kernel lacks IPv6.
          type: dict
        effective:
          description:
            - By family and link, the effective values of settings that depend on other settings. For C(rp_filter), that is the
              larger value of C(all) and of the link. C(accept_ra) says whether router advertisements are accepted.
          type: dict
          sample: {ipv4: {eth0: {rp_filter: 1}}, ipv6: {eth0: {accept_ra: 0, forwarding: 1}}}
    nftables:
      description:
        - The objects that C(nft -j list ruleset) lists, without the first one, which contains the version of nft.
        - Tables that are in RV(snapshot.iptables) or RV(snapshot.ebtables) are left out, because nft does not list the contents
          of their extensions.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{table: {family: ip6, name: azureSLBProbe, handle: 3}}]
    iptables:
      description:
        - The tables of iptables as C(iptables-save) prints them, of both families (V(ip) and V(ip6)) and of both backends
          (V(nft) and V(legacy)).
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{family: ip, backend: nft, table: filter, save: "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"}]
    ipsets:
      description: The sets of ipset, each as C(ipset save) prints it.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{name: blocked, save: "create blocked hash:ip family inet\nadd blocked 192.0.2.1\n"}]
    ebtables:
      description:
        - The chains of ebtables of both backends, with their policies, and their rules as C(ebtables-save) prints them after
          C(-A CHAIN). Tables without rules are omitted; those of nf_tables are in RV(snapshot.nftables).
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{backend: nft, table: filter, chain: FORWARD, policy: ACCEPT, rules: [-p IPv4 -j DROP]}]
    bpf:
      description:
        - The BPF programs that process the packets of a link. C(hook) is V(XDP), V(tcx) or V(tc), C(direction) is V(ingress) or
          V(egress), C(name) is the name that the loader gave the program. A program without a name has its number there, or at
          V(tc) V(""). From netlink and C(bpf(2)).
        - A program whose name begins as those of M(kubenode.datapath.nftables_probe_snat), C(kubenode_), also has C(tag), by
          which the kernel knows its instructions, and C(probes), what it translates, each with C(source) and C(translated).
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{link: eth0, hook: tc, direction: ingress, name: cil_from_netdev}]
    filters:
      description:
        - The filters of traffic control that are no BPF programs. C(direction) is V(ingress) or V(egress), C(protocol) is V(all),
          V(ip), V(ipv6) or a number, C(match) is V(all) for a filter that takes all packets of the protocol, and C(action) is
          V(drop), V(pass), or V(redirect) or V(mirror) with a link. What was not read is V(""). From netlink.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{link: veth1, direction: ingress, kind: u32, protocol: all, match: all, action: redirect ifb0}]
    ipvs:
      description:
        - The virtual servers of IPVS. Empty if IPVS is not loaded. From C(/proc/net/ip_vs).
        - A server has C(address) and C(port), or C(fwmark). C(flags) is what the kernel prints after the scheduler.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample:
        - protocol: tcp
          address: 10.96.0.10
          port: 53
          scheduler: rr
          flags: ""
          destinations: [{address: 10.244.0.5, port: 53, method: Masq, weight: 1}]
    recent:
      description:
        - The records of the match C(recent) of iptables, by which kube-proxy keeps a client at its endpoint, without empty ones.
          From C(/proc/net/xt_recent).
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{name: KUBE-SEP-ABC, addresses: [10.0.0.9]}]
    pods:
      description:
        - The network namespaces with an end of a veth of the node, such as those of pods. C(rules), C(routes) and C(neighbors)
          are theirs, in the form of RV(snapshot.rules), RV(snapshot.routes) without table local, and RV(snapshot.neighbors).
          From rtnetlink.
        - C(namespace) is a name as in RV(snapshot.links[].peer). C(addresses) are those that its table local has, C(bridged) its
          links that are ports of a bridge, C(netfilter) whether it has rules of netfilter. C(listeners) are its listening TCP
          sockets, if a process in it is known and the subset C(listeners) is gathered, too.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample:
        - namespace: process 1234
          rules: [{priority: 0, family: ipv4, table: "255", protocol: kernel}]
          routes: [{table: "254", family: ipv4, to: default, via: 10.9.0.1, dev: net1}]
          addresses: [10.9.0.7]
          bridged: []
          neighbors: []
          netfilter: false
    pod_addresses:
      description:
        - Which pod has which addresses. A pod on several networks has an entry for each interface. From
          C(/var/lib/cni/results), where containerd and CRI-O record what CNI plugins answered.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{pod: default/web-0, interface: eth0, addresses: [10.244.0.5]}]
    network_daemons:
      description: Which programs manage the network. From files and from the states of units.
      type: dict
      returned: if O(gather) has it; null if it could not be read
      contains:
        daemons:
          description:
            - The network daemons and cloud agents on the node, such as V(systemd-networkd), V(NetworkManager), V(netplan) and
              V(ifupdown), and whether each is active.
          type: dict
          sample: {systemd-networkd: true, netplan: true}
        networkd_version:
          description: The major version of systemd-networkd; null if the files of the node do not show it.
          type: int
          sample: 255
        networkd_files:
          description: The file by which systemd-networkd manages a link, by link.
          type: dict
          sample: {eth0: /run/systemd/network/10-netplan-eth0.network}
    firewalls:
      description:
        - The services on the node that flush rulesets, V(nftables.service) and V(firewalld.service), by name, each with
          C(is_enabled), C(is_active) and C(is_masked). From files.
        - Of the first, C(file) is the ruleset that it loads, and C(flushes) whether that begins with C(flush ruleset); its unit
          flushes all tables when it stops. Of the second, settings of C(firewalld.conf), or their defaults.
      type: dict
      returned: if O(gather) has it; null if it could not be read
      sample: {nftables.service: {is_enabled: true, is_active: true, is_masked: false, file: /etc/nftables.conf, flushes: true}}
    boot:
      description:
        - What files set at the next boot, with the file that decides. From the files.
        - In the snapshot of a support bundle of sos it comes from the files in the bundle. C(settings) or C(networkd) is null if
          the bundle has no file about it, and RV(snapshot.unread) names folders of which it has none.
      type: dict
      returned: if O(gather) has it; null if it could not be read
      contains:
        settings:
          description:
            - The settings that RV(snapshot.settings) has too, in the order in which systemd-sysctl writes them. Files that it
              does not read, such as C(/etc/sysctl.conf), are left out.
            - A key may be a pattern. It counts for settings that no other line names, and the last one that fits wins. The value
              is null for a setting that a line exempts from patterns, or sets to what is no number.
          type: dict
          sample: {net.ipv4.conf.all.rp_filter: {value: 0, file: /etc/sysctl.d/90-cni.conf},
            "net.ipv4.conf.*.rp_filter": {value: 2, file: /usr/lib/sysctl.d/50-default.conf}}
        networkd:
          description:
            - Whether systemd-networkd removes rules and routes of other programs, by its two settings. C(file) is V("") for a
              default.
          type: dict
          sample:
            ManageForeignRoutingPolicyRules: {value: false, file: /etc/systemd/networkd.conf.d/90-kubenode.conf}
            ManageForeignRoutes: {value: true, file: ""}
    cni:
      description:
        - The CNI configurations below C(/etc/cni/net.d), sorted by path. A container runtime uses the first one that is not
          inert. C(plugins) are the types of the configuration's plugins.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{path: /etc/cni/net.d/05-cilium.conflist, name: cilium, plugins: [cilium-cni], is_inert: false}]
    units:
      description:
        - The units of this collection in C(/etc/systemd/system). C(active), C(sub) and C(result) are what C(systemctl show)
          prints as C(ActiveState), C(SubState) and C(Result); V("") if systemd does not answer.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{name: kubenode-nft-ip6-azureSLBProbe.service, is_enabled: true, active: active, sub: exited, result: success}]
    policies:
      description:
        - The rules and routes that M(kubenode.datapath.policy_routes) keeps on the node, by protocol, under the names of its
          options. C(path) is the file that has them. From C(/run/kubenode) and C(/etc/kubenode).
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{protocol: 75, path: /etc/kubenode/policy-routes-75.json, rules: [{priority: 1024, family: ipv4, fwmark: 0x80/0x80,
        table: "254"}], routes: []}]
    listeners:
      description:
        - The TCP sockets on which programs in the node's network namespace listen. V(::) stands for all addresses of IPv6, and
          unless the program forbids it, for those of IPv4 as well. From C(/proc/net/tcp) and C(/proc/net/tcp6).
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{address: "::", port: 10256}]
    pod_neighbors:
      description:
        - The permanent neighbours of pods, such as the one that a CNI gives a pod for its gateway. C(link) is the node's end of
          the pod's veth. From rtnetlink.
      type: list
      returned: if O(gather) has it; null if it could not be read
      elements: dict
      sample: [{link: eni1a2b3c, address: 169.254.1.1, mac: "0a:58:0a:f4:00:01"}]
    counters:
      description:
        - What the kernel counted since the network namespace was made.
        - C(otherhost) has, by link, the packets that came in for another MAC address and were dropped, as kernels since 6.0 count
          them. Links without any are left out.
        - C(packets) has the counters of C(/proc/net/snmp), C(netstat) and C(snmp6) that tell why packets were dropped.
          C(connections) has the number of tracked connections, their limit, and how many could not be tracked.
        - C(routing) has the packets of IPv4 that were dropped because of their source, of all network namespaces.
      type: dict
      returned: if O(gather) has it; null if it could not be read
      sample:
        packets: {TcpExt.IPReversePathFilter: 12, Ip.OutNoRoutes: 0}
        connections: {count: 311, max: 262144, drop: 0}
        routing: {in_martian_src: 3}
        otherhost: {eni1a2b3c: 4}
    versions:
      description:
        - The versions of C(collection) and C(kernel), and of the programs C(nft), C(iptables), C(ebtables) and C(ipset) as each
          prints its own; null for a program that is not installed, or that would load a kernel module to tell its version.
      type: dict
      returned: if O(gather) has it; null if it could not be read
      sample:
        collection: 1.0.0
        kernel: 6.1.0-28-cloud-amd64
        nft: "nftables v1.0.6 (Lester Gooch #5)"
        iptables: iptables v1.8.9 (nf_tables)
        ebtables: ebtables 1.8.9 (nf_tables)
        ipset: null
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("datapath_info")


if __name__ == "__main__":
    main()
