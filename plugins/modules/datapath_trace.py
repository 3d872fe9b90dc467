#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: datapath_trace
short_description: Show why a packet does not arrive, and whether a change would help
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Rebuilds the network of a node in a network namespace, the node's I(twin), sends a packet and its reply through it, and
    returns what the kernel did with them, the object that decided, and each rule that they passed.
  - The source of the twin is the node on which the module runs, the snapshot of another node, or outputs of commands that were
    pasted into a report.
  - Can apply changes in the twin, and then returns what becomes of the packet with them. If no change is given and the packet is
    lost, tries remedies in further twins, and returns those that work, each with a task to paste.
  - Changes nothing on the node. The kernel removes a twin with its last process, also if the module is killed.
notes:
  - Needs root to read a running node. With O(snapshot) or O(dump), it needs only the permission to create user namespaces.
  - Needs the programs C(ip) and C(nft), and C(iptables-nft-restore), C(ebtables-nft-restore) and C(ipset) if the node has their
    rules.
  - All links of a twin are ends of veth pairs, or bridges. A VLAN, a tunnel or a bond is the end of a veth pair, and in place of
    a VRF, a rule for each of its ports looks up its table. RV(assumed) names these links.
  - A twin runs no BPF programs. If one is attached on the packet's path, the verdict is V(unknown). For those of
    M(kubenode.datapath.nftables_probe_snat), known by their tags, it has a table of nft that translates as they do.
  - Tables of iptables-legacy are loaded into nf_tables, and virtual servers of IPVS as rules of nft. RV(assumed) says where this
    makes a difference.
  - Outputs from a pod are left out of a twin, except for the pod's links.
  - A pod with one interface answers by it. Of a pod with several, the answer takes the way of the pod's rules and routes. They
    are looked up as the kernel does, but not in a twin.
  - The packet passes the kernel of the machine on which the module runs. A node with another kernel may act differently.
  - The time of day and hardware offload have no effect in a twin. A rule that matches by chance may match another packet.
extends_documentation_fragment:
  - kubenode.datapath._attributes.read_only
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._context
options:
  packet:
    description:
      - The first packet of the connection.
      - Or a line of text, such as V(tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0 mark 0x1 length 1500 df),
        V(default/web-0 -> default/api:http), V(tcp > 10.96.0.1:443) for one that the node itself sends, a line of C(tcpdump)
        or of C(conntrack -L), or one that the C(LOG) target of iptables wrote to the kernel's log. If the line does not say by
        which link the packet comes in, O(packet.interface) is V(auto), and if it does not name the protocol,
        O(packet.protocol) is V(tcp).
      - In place of an address, the name of a pod or a Service, with its namespace or without, if the snapshot knows it. Pods are
        known from RV(kubenode.datapath.datapath_info#module:snapshot.pod_addresses) and by the names of network namespaces,
        Services from the rules of kube-proxy in its modes V(iptables) and V(nftables). The error for another name lists names
        that are near, and the error for a name that several have lists these.
      - C(the node) in place of the source stands for the node itself, which chooses the source.
      - Required without O(finding).
    type: dict
    suboptions:
      source:
        description: Its source address, or the name of a pod. May be omitted if the node itself sends the packet.
        type: str
      destination:
        description:
          - Its destination address, or the name of a Service or a pod. A name that both have is that of the Service, if it has
            the port.
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
        description:
          - Its destination port, for protocols with ports. The port of a Service may have its name, and may be omitted if the
            Service has one of the protocol.
        type: str
      interface:
        description:
          - The link by which the packet comes in. Omit it if the node itself sends the packet. The default for the packet of a
            named pod is V(auto).
          - V(auto) is the link behind which the source is, by the addresses of pods and the routes. If several uplinks are
            possible, it is the one with the destination address, or an error names them.
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
  finding:
    description:
      - A finding of M(kubenode.datapath.datapath_audit) on the same evidence, whose packet is sent, as V(ID) or, if an id has
        several findings, V(ID:SUBJECT).
      - Where no Service of the node leads to the pod of the finding, the twin has one as kube-proxy would make it, with node port
        32765, as in the audit. RV(assumed) says so.
      - Mutually exclusive with O(packet).
    version_added: 1.0.0
    type: str
  snapshot:
    description:
      - The snapshot of a node, as RV(kubenode.datapath.datapath_info#module:snapshot) returns it.
      - The default is the node on which the module runs. Mutually exclusive with O(dump).
    type: dict
  dump:
    description:
      - A folder or archive on the controller with outputs of commands, a file with one output, a dictionary of such outputs, or
        a text that has the commands and their outputs. The controller reads it, and the module gets a snapshot.
      - Or the path of a file with a snapshot as JSON, as C(kubenode-datapath snapshot) writes it.
      - Or a list of these about one node, such as a bundle and the outputs that it lacks. Of outputs of the same command a later
        one counts, unless it alone is cut. A snapshot counts alone. Such outputs may stand in the folder of a bundle as well, or
        beside an archive in one folder. RV(ignored) says what is left out.
      - An archive is a C(.tar.gz), C(.tar.xz), C(.tar) or C(.zip). A support bundle, packed or as a folder, is recognised by its
        files. It can be one of eks-log-collector, of the log collector of AKS, of sos, of C(cilium-bugtool), also within a
        C(cilium sysdump), of Rancher's logs collector, of C(calicoctl node diags), of C(aws-cni-support.sh), of
        C(antctl supportbundle), of C(talosctl support), of troubleshoot.sh, of Bottlerocket's logdog, a must-gather of CNV, or a
        capture of Retina. Other files of a bundle are not read.
      - An archive is read in memory, within bounds. Members outside of the archive, and hard links and devices in place of
        outputs, are refused. Symbolic links are not followed. Archives within the archive are read, such as those of
        several nodes.
      - Files and keys are named after the command, with dashes or blanks, as V(ip-route-show-table-main.txt) or V(iptables-save).
        An output from a pod has C(pod) in its name, such as V(ip-addr-pod.txt).
      - All outputs must be of one state of the node. If names differ only in C(before) and C(after), C(old) and C(new), a time or
        a number, and the outputs differ in more than counters, the error names the files of each state.
      - A text may contain several commands with their prompts, or one output that the module recognises by itself.
      - JSON of C(ip -j), also of C(ip -j netconf), and of C(nft -j) is preferred to the text of the same command.
      - Understands C(ip rule), C(ip route), C(ip addr), C(ip link), C(ip neigh), C(route -n), C(ifconfig), C(iptables-save),
        C(iptables -S), C(iptables -L), C(ipset list), C(ipset save), C(ebtables-save), C(ebtables -L), C(nft list ruleset), also
        as JSON, C(ipvsadm -Ln) and C(sysctl). C(conntrack -L), C(tcpdump -n) and counters of rules are evidence, which makes
        an outcome of an open fact likelier. C(ip route get) is used only if no other output has the routes. RV(ignored) lists
        the lines that the module did not understand.
    type: raw
  earlier:
    description:
      - An earlier state of the same node, in which the packet arrived. RV(explanation) then says which of the changes since are
        guilty of what becomes of it now.
      - The snapshot as RV(kubenode.datapath.datapath_info#module:snapshot) returns it, or what O(dump) may be, which the
        controller reads. Mutually exclusive with O(finding), O(changes) and O(commands).
    version_added: 1.0.0
    type: raw
  node:
    description:
      - Which node of a bundle of many is meant, by its name, or by that of its folder or archive.
      - Without it, the error for such a bundle lists the names.
    version_added: 1.0.0
    type: str
  assume:
    description:
      - Settings that the snapshot lacks, or that are to be different in the twin, by the names that C(sysctl) has for them.
      - Values of facts that the snapshot leaves open, by the ids in RV(depends_on[].fact). C(rp_filter:LINK) is V(0), V(1) or
        V(2). C(chain:FAMILY TABLE CHAIN) is V(returns), V(accepts) or V(drops). C(policy:FAMILY TABLE CHAIN) is V(ACCEPT) or
        V(DROP). C(set:NAME) is V(with) or V(without) the addresses of the packet. C(routes) is V(pod), V(own) or V(elsewhere),
        which says where the destination is, and if the node itself sends, V(none) or V(elsewhere). C(routes:TABLE) is
        V(empty), or the link by which the table leads. C(addresses) is V(own) if the node has the destination, else V(other).
        C(rules) is V(kernel), or a table to which a rule leads. C(ipvs) is V(none). C(recent:NAME) is V(with) or V(without) a
        record of the packet's source. C(pod-side:ADDRESS) is the link by which a pod with several links answers.
        C(hairpin:PORT) is V(on) or V(off).
      - C(neighbors), C(nft), C(legacy), C(table:FAMILY TABLE), C(cut:FAMILY TABLE), C(jump:FAMILY TABLE CHAIN),
        C(bridge-ports:LINK) and C(rules) are V(shown) if there is no more than what the outputs show. A line that a twin
        cannot have is C(line:NUMBER), which has no value.
    type: dict
    default: {}
  changes:
    description:
      - Changes in the twin, each a dictionary with the name of a module of this collection as its key and its options as the
        value.
      - Can be M(kubenode.datapath.rp_filter), M(kubenode.datapath.policy_routes), M(kubenode.datapath.nftables_probe_snat),
        M(kubenode.datapath.nftables_connmark), M(kubenode.datapath.ebtables_cleanup), M(kubenode.datapath.link_addresses),
        M(kubenode.datapath.azure_vnet_bridge) and, without O(snapshot) and O(dump), M(kubenode.datapath.profile), of whose
        modules those above are applied. Changes for the next boot are not made.
    type: list
    elements: dict
    default: []
  commands:
    description:
      - Commands in the twin, after O(changes). Can be C(ip), C(bridge), C(nft), C(ipset), C(iptables), C(ip6tables), C(ebtables)
        and C(sysctl).
      - Each word must be one that is permitted, and must not be abbreviated. C(ip) and C(bridge) change addresses, routes, rules,
        neighbours, links, forwarding entries and VLANs. C(nft) changes tables, chains, rules, sets, maps and elements.
        C(iptables), C(ip6tables) and C(ebtables) change rules, chains and policies. C(ipset) changes sets. C(sysctl) writes
        settings of the network. The page C(docs/trace-reference.md) has the table.
      - Commands run without a shell. No word names a file, a program or another namespace. The error for a word that is not
        permitted names the word and what is permitted in its place.
      - At most 1024 commands of 1 MiB together. Sets that they create and fill are as bounded as those of a snapshot.
    type: list
    elements: str
    default: []
  reply:
    description:
      - Whether to send a reply too. It is made from the packet as it left, and comes in by the link that owns the reply's
        destination.
    type: bool
    default: true
  print:
    description:
      - Whether the controller prints the answer as text, in colours where Ansible uses colours. Ansible's own report of a result
        quotes texts as JSON does, so that no rule and no task can be copied from it.
      - Beside a stdout callback for programs, such as C(ansible.posix.json), the text is printed to stderr. With
        C(no_log), nothing is printed.
    version_added: 1.0.0
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show why the pod does not reach the load balancer
  kubenode.datapath.datapath_trace:
    packet:
      source: 10.12.192.44
      destination: 10.12.115.101
      destination_port: 80
      interface: eni7c22dbae71f
    print: true
  register: trace

- name: Show the same from a report, with a setting that the report lacks
  kubenode.datapath.datapath_trace:
    dump: "{{ playbook_dir }}/report"
    packet: {source: 10.12.192.44, destination: 10.12.115.101, destination_port: 80, interface: eni7c22dbae71f}
    assume: {net.ipv4.conf.eth0.rp_filter: 1, "chain:ip filter MY-POLICY": returns}
  delegate_to: localhost

- name: Show the same from a bundle of many nodes
  kubenode.datapath.datapath_trace:
    dump: "{{ playbook_dir }}/cilium-sysdump-20261126-120000.zip"
    node: node7
    packet: {source: 10.12.192.44, destination: 10.12.115.101, destination_port: 80, interface: eni7c22dbae71f}
  delegate_to: localhost

- name: Show why a pod does not reach a Service
  kubenode.datapath.datapath_trace:
    packet: default/web-0 -> default/api:http

- name: Show what becomes of the packet of a finding of datapath_audit
  kubenode.datapath.datapath_trace:
    finding: rp-strict-asymmetric

- name: Show which change since yesterday is guilty
  kubenode.datapath.datapath_trace:
    packet: default/web-0 -> default/api:http
    earlier: "{{ playbook_dir }}/snapshots/{{ inventory_hostname }}.json"
    print: true

- name: Show whether loose filtering would help
  kubenode.datapath.datapath_trace:
    packet: {source: 10.12.192.44, destination: 10.12.115.101, destination_port: 80, interface: eni7c22dbae71f}
    changes:
      - rp_filter: {interfaces: [eth0], mode: loose}
"""

RETURN = r"""
verdict:
  description:
    - V(delivered) if the packet reaches the node itself or a pod, V(forwarded) if it leaves by another link, V(dropped) if it is
      lost, V(rejected) if the node answers with an error, V(unknown) if a twin cannot tell, or if the answer depends on a fact
      that the snapshot leaves open.
  returned: success
  type: str
  sample: forwarded
certain:
  description:
    - Whether the answer is the same in every world that fits the snapshot. V(false) also where the outputs do not show whether
      there are further rules, with the verdict for the case that there are none.
  returned: success
  type: bool
depends_on:
  description:
    - The open facts on which the answer depends, the most decisive one first. Those without C(outcomes) are behind the others,
      and those that one command shows are behind one another.
  returned: success
  type: list
  elements: dict
  contains:
    fact:
      description: The id of the fact, which O(assume) takes.
      type: str
    what:
      description: A sentence that says what is open.
      type: str
    ask:
      description: A command whose output would tell.
      type: str
    outcomes:
      description:
        - For each value, a clause C(if), and C(verdict), C(reply_verdict) and C(culprit) with the value. Empty if no output names
          the fact, so that no twin can be built with it.
        - C(evidence) has sentences about what outputs show that fits the outcome, and C(contradicted_by) about what does not.
          They make an outcome likelier or less likely, and none certain.
      type: list
      elements: dict
  sample:
    - {fact: "rp_filter:eth0", what: The reverse-path filter of eth0 is open.,
       ask: sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.eth0.rp_filter, outcomes: [
         {if: rp_filter of eth0 is 0, verdict: forwarded, reply_verdict: delivered, culprit: null,
          evidence: [], contradicted_by: [conntrack has the connection from 10.0.0.9 to 10.0.1.7 port 80 without a reply]},
         {if: rp_filter of eth0 is 1, verdict: forwarded, reply_verdict: dropped,
          culprit: {kind: sysctl, text: net.ipv4.conf.eth0.rp_filter = 1}, contradicted_by: [],
          evidence: [conntrack has the connection from 10.0.0.9 to 10.0.1.7 port 80 without a reply]}]}
interface:
  description: The link by which the packet left; V("") if it did not leave.
  returned: success
  type: str
  sample: eth1
came_in_by:
  description: The link by which the packet came in; V("") if the node itself sent it.
  returned: success
  type: str
packet:
  description:
    - The packet as it left, with the MAC addresses of its frame; null if it did not leave.
    - Without O(packet.length), RV(assumed) says that it was a small one where a larger one may meet a smaller MTU.
  returned: success
  type: dict
  sample: {source: 10.12.97.49, destination: 10.253.4.194, protocol: tcp, source_port: 40000, destination_port: 8000,
    source_mac: "20:90:6f:42:35:13", destination_mac: "06:00:00:00:00:03"}
reason:
  description: What became of the packet and why. If it left and its reply is lost, what became of the reply as well.
  returned: success
  type: str
tells_reply:
  description: Whether RV(reason) says what became of the reply as well.
  returned: success
  type: bool
culprit:
  description:
    - The object that stopped the packet, or its reply; null if both arrive. Where a rule drops all packets with a mark, or all of
      a chain to which a map of nft sends them, it is the rule that set the mark, or that has the map.
    - C(kind) is V(rule), V(route), V(sysctl), V(neighbor), V(link), V(address), V(bpf) or V(missing). C(text) is the object as
      its own tool prints it. Of a packet that is too large, it is the link or the route with its MTU.
  returned: success
  type: dict
  sample: {kind: sysctl, text: net.ipv4.conf.eth0.rp_filter = 1}
culprit_step:
  description:
    - The number of the step that shows RV(culprit), from 0, in RV(steps) of the packet or, if the packet arrives, of its reply;
      null if no step shows it.
  returned: success
  type: int
steps:
  description:
    - The packet's way. C(kind) is V(in), V(rule), V(policy), V(route), V(neighbor), V(counter) or V(out). C(where) is the link,
      the chain or the counter. C(text) is the object as its own tool prints it, and C(verdict) what the kernel did. C(packet) is
      what a rule that translates addresses or ports made of the packet; V("") if it changed nothing.
  returned: success
  type: list
  elements: dict
  sample:
    - kind: rule
      where: ip nat KUBE-SVC-DNS
      text: -A KUBE-SVC-DNS -p udp -j DNAT --to-destination 10.244.1.2:53
      verdict: accept
      packet: udp 10.244.2.9:40000 > 10.244.1.2:53
reply:
  description:
    - RV(verdict), RV(interface), RV(came_in_by), RV(packet), RV(reason), RV(culprit), RV(culprit_step) and RV(steps) of the
      reply; null if no reply was sent.
  returned: success
  type: dict
explanation:
  description:
    - With O(earlier), which changes since are guilty.
    - The earlier state is tried with some of the changes, until none can be left out. What stops a packet alone, beside another
      one, is found as well. A change is a rule, a route, an address, a neighbor, a setting, a link, a pod, or a rule or an
      element of nft, iptables, ipset or ebtables. Counters and ages are none. What the kernel does by itself, such as to remove
      the routes of a link that goes down, belongs to the change from which it follows.
  returned: if O(earlier) was given
  type: dict
  contains:
    packet:
      description: The packet.
      type: str
    guilty:
      description:
        - The changes. Each has C(kind), C(text), C(program), which made it, if the agent has recorded that, and C(undo), the
          commands that make it undone; V("") if there are none that are known and permitted.
      type: list
      elements: dict
    changes:
      description: How many changes there are.
      type: int
    verdict:
      description: C(before) and C(after), the verdicts on the packet and on its reply in both states.
      type: dict
    certain:
      description: Whether both verdicts are certain, as RV(certain) says of one.
      type: bool
    reason:
      description: A sentence that names the guilty changes, or says why none is.
      type: str
    is_undone:
      description:
        - Whether the packet arrives after all commands of C(undo), which were tried in the twin; null if they cannot be tried
          there, as those for a pod, or for a rule of nft by its handle.
      type: bool
  sample:
    packet: tcp 10.12.192.44:40000 > 10.12.115.101:80
    guilty:
      - kind: rule
        text: "ip rule 32766: from all lookup main is gone"
        program: process 812 (ip)
        undo: ip rule add from all lookup main priority 32766
    changes: 49
    verdict: {before: "forwarded, reply delivered", after: rejected}
    certain: true
    reason: >-
      lost since ip rule 32766: from all lookup main is gone (by process 812 (ip)); 48 other changes are without effect.
    is_undone: true
before:
  description: RV(verdict), RV(interface), RV(reason), RV(culprit) and RV(reply) without the changes; null if none were given.
  returned: success
  type: dict
branches:
  description:
    - If chance decides, for example among the endpoints of a Service, the ways that packets took, the most frequent way first.
    - Packets are sent until no new way is seen. Each way has C(share), the part of the packets from 0 to 1, and RV(verdict),
      RV(interface), RV(packet), RV(reason), RV(culprit), RV(steps) and RV(reply).
    - The 20 most frequent ways have an entry each. Behind them is one entry for each outcome of the others. Its C(count) is the
      number of its ways, C(share) is that of all of them, and the rest is of one of them. C(count) is 1 for an entry of one way.
    - The other results are those of the most frequent way that lost its packets, or of the first packet if no way lost any.
  returned: success
  type: list
  elements: dict
cures:
  description:
    - Remedies with which the packet and its reply arrive, each tried in a twin, and in the worlds that fit the snapshot. Empty if
      nothing is wrong, if the verdict is V(unknown), or if O(changes) or O(commands) were given.
    - A remedy with which a packet or its reply leaves by a link under an address of another link is not among them, because a
      cloud that checks sources drops it. A packet that leaves so without any remedy is cured like one that is lost. If the packet
      leaves so before its reply is lost on the node, the remedy for the reply is offered and is not certain.
    - Of several remedies of one kind for one object, only the smallest one that works is among them. For the policy of FORWARD
      beside Docker that is a rule in the chain C(DOCKER-USER), and for forwarding the settings of the links that packets use.
    - The plans of the profiles come first, from the facts of this snapshot, then single modules of this collection. Only if none
      of these works, and if RV(certain) is true, commands of an operator are tried.
    - No command removes a rule that protects the node itself or belongs to a program, or a route of a routing daemon, and none
      changes a setting other than forwarding.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description:
        - V(profile) for a role of this collection, V(module) for a module, V(operator) for a command that removes or changes the
          culprit. A command does not survive a reboot, and the program that made the culprit may make it again.
      type: str
    change:
      description: The remedy in short. For V(operator), the command.
      type: str
    task:
      description:
        - A task to paste into a playbook, as YAML. It has all that was tried, such as the ENIs of the node as the snapshot shows
          them.
      type: str
    takes_along:
      description:
        - A sentence about what else a command affects, and why a cloud may drop the packet as without the remedy; V("") for
          neither.
      type: str
    certain:
      description: Whether the remedy works in every world that fits the snapshot, as RV(certain) says of the answer.
      type: bool
    verdict:
      description: RV(verdict) with the remedy.
      type: str
    reply_verdict:
      description: The verdict on the reply with the remedy; V("") if no reply was sent.
      type: str
  sample:
    - kind: operator
      change: ip route del blackhole 10.0.100.2 table 1001
      task: |
        - name: "Remove the route that stops the packet"
          ansible.builtin.command:
            argv: [ip, route, del, blackhole, "10.0.100.2", table, "1001"]
            expand_argument_vars: false
      takes_along: All packets to 10.0.100.2 take the next route or policy rule that fits.
      certain: true
      verdict: forwarded
      reply_verdict: delivered
tried:
  description:
    - Remedies that were tried and do not work, such as that of a profile that refuses the node.
  returned: success
  type: list
  elements: dict
  contains:
    change:
      description: The remedy in short.
      type: str
    reason:
      description: Why it does not work, as sentences.
      type: str
  sample:
    - change: "symmetric_routing: {uplinks: [{name: eth0}, {name: eth1}]}"
      reason: >-
        symmetric_routing_uplinks[1].gateway must be given, because no default route, DHCP lease or configuration of the node
        names one; None was given.
node:
  description: The C(name) of the node and the C(time) at which the evidence was read; V("") where the evidence does not tell.
  returned: success
  type: dict
  sample: {name: node1, time: 2026-11-29 10:12:00 UTC}
  version_added: 1.1.0
assumed:
  description:
    - Facts that the snapshot does not contain, and differences between node and twin, in sentences. Only those about links,
      chains, routes and other objects that the packet or its reply met, in any of the worlds that were tried.
  returned: success
  type: list
  elements: str
ignored:
  description:
    - Lines of O(dump) that look like the output of a command and were not understood, in sentences. Lines of prose and of other
      commands are counted in one sentence.
  returned: success
  type: list
  elements: str
unknown:
  description:
    - What a twin cannot show, what could not be read from the node, and evidence that does not fit the answer, in sentences.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("datapath_trace")


if __name__ == "__main__":
    main()
