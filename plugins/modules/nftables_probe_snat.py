#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nftables_probe_snat
short_description: Translate a load balancer's link-local IPv6 health probes on a Kubernetes node
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Azure's load balancer probes IPv6 services from the link-local address C(fe80::1234:5678:9abc). A router must not forward
    a packet from a link-local address, and a node is a router to its pods, so the probe of a service with
    C(externalTrafficPolicy=Cluster) is never answered.
  - This module manages one nftables table of family C(ip6). The table gives the probe a global source address before routing,
    and restores the link-local address in the reply on its way out. The table is stateless and makes no connection tracking
    entry.
  - Neighbour discovery and router advertisements are not translated. The probe's address is also that of the node's default
    router, and without router advertisements the default route expires after 9000 seconds.
  - Packets to link-local and multicast addresses are not translated either. They are not probes, but for example DHCPv6 replies
    of the router, which a firewall such as ufw accepts only from a link-local address.
  - The table is compared by meaning. Counters, handles, the order of a set and the output format of an nft version do not
    matter. A rule, chain, set, hook, priority or flag that is missing, added, moved or altered does. A table that is as desired
    is not reloaded, so its counters keep their values.
  - The table is replaced in one transaction. No other table is read or changed.
requirements:
  - nftables 0.9.8 or newer on the node, unless in check mode
notes:
  - The permanent plane is the file O(path) and the enabled unit C(kubenode-nft-ip6-TABLE.service), which loads the file before
    kubelet starts. If systemd runs and O(immediate=true), the run also starts the unit if it is not active, and waits until the
    unit is active or skipped by O(boot_condition). If the unit fails, the run fails with the last lines of the unit's journal.
    While the node still boots, the run does not wait for a start that systemd has queued, and warns. If the unit is already
    starting, the run waits up to 240 seconds, also in check mode.
  - While a run moves or removes the file, C(kubenode-nft-ip6-TABLE.service.files) beside the unit names the paths. A run that
    is killed leaves this record, and the next run completes or undoes the change.
  - C(nftables.service) flushes every table of the node when it is started, stopped or reloaded. With the drop-in
    C(nftables.service.d/kubenode-nft-ip6-TABLE.conf) the table is loaded again after each of these. This module never
    starts, stops or reloads C(nftables.service).
  - The module refuses O(state=present) on a node where O(interface) has Microsoft's ipv6-hp-bpf filters, and on an eBPF
    host-routing node, known by kubelet's label C(kubernetes.azure.com/ebpf-host-routing=true) or by the pinned programs
    under C(/sys/fs/bpf/azure-block-iptables). There the platform translates probes itself and blocks netfilter rules.
  - With O(backend=bpf), the permanent plane is the file O(path) with C(.json) in place of C(.nft), a program beside it, and the
    enabled unit C(kubenode-bpf-TABLE.service). The unit attaches the programs before kubelet starts, or as soon as O(interface)
    is there, and stays to attach them again when they are gone. Stopped, it leaves them attached. It needs only Python 3.9 or
    newer, and no C(tc) and no C(bpftool). O(boot_condition), O(priority), O(comment) and O(agentbaker) have no effect, because
    programs on a node without IPv6 meet no probe. C(bpftool map dump name counts) shows the packets and bytes by probe.
  - With O(backend=nftables), the module refuses O(state=present) on a node where Cilium answers IPv6 node ports in BPF, before
    nftables sees the packet. With O(backend=bpf), it refuses where Cilium does so by XDP, before all other programs.
  - Two facts must show that Cilium answers IPv6 node ports - BPF programs of Cilium on O(interface), attached by traffic control,
    tcx or XDP, and the options C(kube-proxy-replacement) and C(enable-ipv6) of the running C(cilium-agent), or else those in
    C(/var/run/cilium/state/agent-runtime-config.json). If only one of the two shows it, the module warns. It looks for both only
    if the node has the link C(cilium_host).
  - On a node whose image enables AgentBaker's C(ipv6_nftables.service), that unit stays the owner of the table unless
    O(agentbaker=take_over). As long as it is the owner, the module writes no file and no unit, refuses options that differ from
    AgentBaker's table, loads AgentBaker's table if it is missing, and changes nothing with O(state=absent). See RV(managed_by).
    AgentBaker's table also translates packets to link-local and multicast addresses. The module warns if that table is in the
    kernel.
  - The module warns if the node has no IPv6 default route by O(interface), if IPv6 forwarding is off, and if forwarding is on
    while C(accept_ra) is V(1), because the kernel then ignores router advertisements.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._two_planes.table_file
  - kubenode.datapath._before
options:
  table:
    description:
      - Name of the table, 1 to 128 letters, digits and C(_.-), starting with a letter or C(_).
      - Keywords of nft, for example C(accept) or C(counter), are refused. Keywords differ between versions; those of nft 0.9.8,
        1.0.6 and 1.1.3 are refused.
      - The module owns the table of this name and family C(ip6), also if another program created it.
    type: str
    default: azureSLBProbe
  interface:
    description: The link by which probes come in, 1 to 15 letters, digits and C(_.=+@~-), not C(lo). It need not exist yet.
    type: str
    default: eth0
  priority:
    description:
      - Priority of both chains in their hooks, a signed 32-bit integer.
      - It must be below -200, the priority of connection tracking, for probes of services to work. Otherwise the module warns.
    type: int
    default: -300
  probes:
    description:
      - The addresses to translate. The order does not matter, and equal entries count once. Two different entries must not share
        an address.
      - May be given as JSON text.
    type: list
    elements: dict
    default:
      - source: fe80::1234:5678:9abc
        translated: 2603:1062:0:1:fe80:1234:5678:9abc
    suboptions:
      source:
        description: The IPv6 unicast address from which the load balancer probes.
        type: str
        required: true
      translated:
        description:
          - The IPv6 unicast address that replaces O(probes[].source) inside the node; not link-local.
          - The default is owned by Microsoft and assigned for this purpose.
        type: str
        required: true
  backend:
    description:
      - What translates the probes.
      - V(nftables) is the table O(table).
      - V(bpf) is two BPF programs on O(interface), for a node on which the BPF programs of Cilium take probes before nftables
        sees them. They treat a packet as the table does, except one with a VLAN tag or with extension headers, which they do not
        touch. Where Cilium has translated the destination of a probe by TCP, they give the reply its source again, as Cilium's
        program at egress does not see it any more.
      - The programs are attached in front of all others, by tcx from Linux 6.6 on. Before, traffic control attaches them with
        priority 1, of which the newest comes first. If Cilium attaches its programs there again, the unit does, too.
      - V(auto) is V(bpf) if Cilium takes probes on O(interface), and V(nftables) otherwise. See RV(backend).
      - What another backend has made for O(table) is removed in the same run.
    version_added: 1.1.0
    type: str
    choices: [auto, nftables, bpf]
    default: nftables
  comment:
    description:
      - The comment of the table, which C(nft list ruleset) shows, for example who made the table. At most 127 letters, digits,
        blanks and C(_.,:;/@+=()#-). Empty for none.
      - A table with another comment is replaced. The table of AgentBaker's unit has no comment, and gets none as long as that
        unit is the owner.
    version_added: 1.0.0
    type: str
    default: ""
  path:
    default: /etc/kubenode/probe-snat.nft
  boot_condition:
    description:
      - The condition that the unit checks at each boot before it loads the table.
      - With V(none), the unit always loads the table.
      - With V(imds), the unit loads the table if the cloud's metadata service names an IPv6 address of the node's primary
        interface. Other interfaces do not count. The unit asks the service for up to 60 seconds. Without an answer the unit
        fails, kubelet starts, and systemd starts the unit again after 10 seconds.
      - With V(address), the unit loads the table as soon as O(interface) has a global IPv6 address, and does not load it if there
        is none after 30 seconds.
      - If the node has no IPv6, the timer C(kubenode-nft-ip6-TABLE.timer) starts the unit again 120 seconds later, until the node
        has IPv6. From 300 seconds after the boot on, the unit waits at most one second for an answer, because a restart of
        kubelet waits for the unit. If the node loses IPv6 later, the table stays until the next boot. Stopping the unit also
        stops the timer.
      - The condition is checked by a program, the file O(path) with C(.pyz) appended. It needs only Python 3.9 or newer on the
        node. The unit runs the program with the Python that runs this module, if that Python will exist at boot, or else with
        another Python of the node. A run that changes the program, the unit or this Python rehearses the program.
      - A run of this module loads the table without this check. M(kubenode.datapath.imds_info) shows what a boot would find.
    type: str
    choices: [imds, address, none]
    default: none
  agentbaker:
    description:
      - What to do on a node whose image enables AgentBaker's C(ipv6_nftables.service). systemd starts that unit before kubelet
        but does not wait until its table is loaded, and a restart of C(nftables.service) removes the table until the next boot.
      - With V(report), that unit stays the owner of the table. See RV(managed_by).
      - With V(take_over), the unit of this module replaces it. The drop-in
        C(ipv6_nftables.service.d/kubenode-nft-ip6-TABLE.conf) makes systemd skip AgentBaker's unit as long as the unit of this
        module is enabled. AgentBaker's files and the links that enable its unit are not changed. If O(immediate=true),
        AgentBaker's unit is also stopped if it is active, which changes no table.
      - V(take_over) needs O(permanent=true) and the default of O(table), which is the name of AgentBaker's table. Otherwise it
        has no effect. On a node without AgentBaker's unit, V(take_over) only adds the drop-in.
      - O(state=absent), and V(report) after V(take_over), remove the drop-in, load AgentBaker's table in place of this module's
        in one transaction, and start AgentBaker's unit if it is enabled and O(immediate=true).
    type: str
    choices: [report, take_over]
    default: report
seealso:
  - module: kubenode.datapath.imds_info
  - name: The table in AKS node images
    description: AgentBaker's ruleset, script and unit.
    link: https://github.com/Azure/AgentBaker/tree/dev/parts/linux/cloud-init/artifacts
  - name: Azure Load Balancer health probes
    description: Source addresses of probes.
    link: https://learn.microsoft.com/azure/load-balancer/load-balancer-custom-probe-overview
"""

EXAMPLES = r"""
- name: Answer IPv6 health probes of Azure's load balancer, now and after each boot
  kubenode.datapath.nftables_probe_snat:

- name: Prepare a node image, without touching the kernel of the machine that builds it
  kubenode.datapath.nftables_probe_snat:
    immediate: false

- name: Translate the probes of another load balancer that come in by ens3
  kubenode.datapath.nftables_probe_snat:
    table: probeSnat
    interface: ens3
    path: /etc/kubenode/probe-snat-ens3.nft
    probes:
      - source: fe80::10
        translated: 2001:db8:ffff::10

- name: Load the table before kubelet starts on a node of AKS, in place of the unit of the node's image
  kubenode.datapath.nftables_probe_snat:
    boot_condition: imds
    agentbaker: take_over

- name: Remove the table, the file and the unit
  kubenode.datapath.nftables_probe_snat:
    state: absent
"""

RETURN = r"""
ruleset:
  description: The nft script that loads the table. O(path) contains the same script below a heading. Empty for
    O(state=absent).
  returned: success
  type: str
  sample: |
    table ip6 azureSLBProbe {}
    delete table ip6 azureSLBProbe
    table ip6 azureSLBProbe {
    ...
table:
  description: Name of the table.
  returned: success
  type: str
  sample: azureSLBProbe
backend:
  description: What translates the probes, V(nftables) or V(bpf). Empty for O(state=absent).
  returned: success
  type: str
  sample: nftables
  version_added: 1.1.0
managed_by:
  description: The unit of the node's image that owns the table; null if this module owns it.
  returned: success
  type: str
  sample: ipv6_nftables.service
agentbaker:
  description:
    - Whether the node's image has AgentBaker's files. V(enabled) if it has and C(ipv6_nftables.service) is enabled, V(disabled)
      if it has and the unit is not enabled, as on Azure Container Linux, V(absent) if it has no such files.
    - If this is V(enabled) and RV(managed_by) is null, the unit of this module replaces AgentBaker's.
  returned: success
  type: str
  sample: absent
needed:
  description:
    - Whether the node needs the table, as far as this shows on the node. Returned in check mode and for O(state=absent) as well.
  returned: success
  type: dict
  contains:
    verdict:
      description:
        - V(unneeded) if no link has a global IPv6 address, or if Microsoft's BPF programs translate probes.
        - V(ineffective) if Cilium's BPF programs answer node ports before nftables sees the packet.
        - V(possible) if neither is the case. The load balancer's probe mode does not show on a node.
        - V(unknown) if the node could not be examined, because the module runs in the root of an image or the kernel refused the
          query.
      type: str
      sample: possible
    reasons:
      description: Sentences that name what was found and what was not examined. Those that decide come first.
      type: list
      elements: str
      sample:
        - eth0 has a global IPv6 address.
        - The load balancer's probe mode does not show on a node and was not looked at. With
          clusterServiceLoadBalancerHealthProbeMode shared, probes end on the node itself and need no table.
diff:
  description: The table and the files before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("nftables_probe_snat")


if __name__ == "__main__":
    main()
