#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ebtables_cleanup
short_description: Remove what azure-vnet left in ebtables, neighbours and routes, and nothing else
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - A node that azure-vnet served in bridge mode keeps ebtables rules, permanent neighbours and routes of pods that no longer
    exist. When another CNI gives the address of such a pod to a new pod, these leftovers divert the new pod's traffic.
  - A rule is removed if it has the shape of a rule that azure-vnet writes, and there is evidence that it no longer serves a pod.
    The evidence is azure-vnet's state file, the interfaces of the node and of all its network namespaces, the node's
    neighbours and routes, CNI configurations and O(addresses).
  - A rule that serves a live pod is kept. A rule whose owner is unknown is kept as doubtful. Rules for the whole node are removed
    with the last pod of azure-vnet. Rules of other shapes are left; they keep their order and counters.
  - On a node without a trace of azure-vnet (a state file, a CNI configuration, its binary, a bridge, a link or a chain of
    iptables), no rule is examined. A rule is correct and is kept if its MAC is the one that the node's neighbour table has for
    its address, or that of a virtual router (VRRP).
  - The state files and the CNI configuration of azure-vnet are moved into O(backup) before any rule is removed, because
    azure-vnet would restore the rules from them. Later runs read these files in the backup, so the evidence outlives the
    clean-up and a reboot. While a pod of azure-vnet is live, the files stay, because azure-vnet needs them to delete the pod, and
    azure-cns needs them to know its address. An empty state file stays, too.
  - Everything that a run removes is kept in O(backup) until O(state=restored) restores it.
requirements:
  - C(ebtables-nft-save) for rules of the nft backend (package iptables), C(ebtables-legacy) and C(ebtables-legacy-restore) for
    rules of the legacy backend (package ebtables).
  - pyroute2 0.7.2 or newer, on the node or on the controller, to remove or restore neighbours and routes. If the node lacks it,
    the controller's is copied once to C(/var/lib/kubenode/lib), readable only by root. O(state=restored) removes the copy if
    nothing else of this collection needs it.
notes:
  - O(state=absent) is refused if azure-vnet still is the node's CNI, or if C(azure-cnimonitor) runs, which restores rules from
    the state file.
  - Tables of the legacy backend without rules are not listed; the reference count of a table's kernel module (such as
    C(ebtable_nat)) shows whether it has any. If no bridge table of nf_tables has a rule, no process is started to list them.
  - In the nft backend, the rules of all chains are removed in one transaction. Rules that other programs insert or delete
    meanwhile are not affected. In the legacy backend, the kernel replaces each table as a whole. The module does this under the
    lock of C(ebtables-legacy --concurrent). A program that does not take this lock loses its change if it adds one rule and
    removes another within the same milliseconds.
  - The bridge itself (C(azure0)), its addresses and its routes to subnets are left, because removing the bridge alone would cut
    the node off. M(kubenode.datapath.azure_vnet_bridge) dissolves it.
  - The module warns of a state file that it cannot read completely. The unreadable part is not used as evidence.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
  - kubenode.datapath._checkpoint
options:
  state:
    description:
      - With V(absent), the node has no leftovers.
      - With V(restored), the objects that earlier runs removed are restored at their former positions. If nothing else has
        changed, the listings are the same as before; otherwise RV(differences) lists the differences.
      - A rule, a neighbour or a route is not restored if a live pod or another interface has its address now, or if the node
        reaches the address by another link, because it would divert that traffic again. A file is not restored if something
        else is in its place. The backup keeps all of these, and is removed when nothing is left in it.
      - V(restored) is refused if a network namespace could not be read, because a pod in it may have such an address.
      - Rules, neighbours, routes and the files in C(/run) of an earlier boot are not restored, because the boot has removed them.
    type: str
    choices: [absent, restored]
    default: absent
  owner:
    description: The program whose leftovers are removed.
    type: str
    choices: [azure_vnet]
    default: azure_vnet
  addresses:
    description:
      - Addresses of pods, or prefixes, that are known not to belong to azure-vnet's pods any more. If there is no other
        evidence about such an address, its rules are removed instead of being kept as doubtful. Without a trace of azure-vnet on
        the node this option has no effect, and the module warns.
      - A rule whose MAC is that of a live interface with this address is kept nevertheless.
      - Has no meaning with O(state=restored).
      - May be given as JSON text.
    type: list
    elements: str
    default: []
  backend:
    description: The backend whose rules are read. V(auto) reads both, because a node may have rules in both.
    type: str
    choices: [auto, nft, legacy]
    default: auto
  neighbors:
    description: Whether stale neighbours on azure-vnet's bridge are removed too, whatever their state.
    type: bool
    default: true
  routes:
    description: Whether stale routes to a single address over azure-vnet's bridge or one of its links are removed too.
    type: bool
    default: true
  iptables:
    description:
      - Whether the rules and chains of iptables are removed too that RV(kubenode.datapath.cni_info#module:leftovers) lists with
        C(certain) for azure-vnet and azure-cns. Those that may belong to another program, or that a live pod of azure-vnet or
        azure-cns may use, are kept, see C(kept) in RV(iptables).
      - Rules are removed by their text, all of a table or none, and no chain is flushed. The counters of restored rules begin at
        zero.
      - The backup of objects that earlier runs moved or removed is evidence as well.
      - V(restored) restores these rules and chains whatever this option says, at their former places. A rule stays in the backup
        if it translates to an address that the node no longer has, or if its chain or the chain that it jumps to is gone.
    type: bool
    default: false
  links:
    description:
      - Whether the links and addresses are removed too that RV(kubenode.datapath.cni_info#module:leftovers) lists with
        C(certain). They are C(azSnatbr) with the addresses, permanent neighbours and settings on it, the veth pair
        C(azSnatveth0), and the gateway address of azure-vnet's IPv6 pods on its bridge.
      - C(azSnatbr) is kept if another link is in it or if a route leads over it, and C(azSnatveth0) if its other end is a port
        of Open vSwitch, which has a database of its own.
      - V(restored) restores these links and addresses whatever this option says, under their former indexes if these are free. A
        bridge gets the kernel's default settings, and its former settings below C(/proc/sys). A link or address stays in the
        backup if another link has the address now, or if the address's link is gone.
    type: bool
    default: false
  backup:
    description:
      - The folder of the backup, whose files only root can read.
      - With O(state=absent) it must be in or below a folder that is named C(kubenode) or C(kubenode-NAME) and lies in C(/etc),
        C(/opt), C(/srv) or C(/var/lib), or be another folder there that the module creates, such as C(/var/lib/acme). The name
        of such a folder has letters, digits, C(_) and C(-), and is not one that other programs use, such as C(systemd). From
        other folders, and from a folder that exists already, another program may load the files. Each folder on the way must
        belong to root and be writable by root only, and the folder must not be a symbolic link. Otherwise the run is refused.
      - The folder is created if its parent exists or is C(/var/lib/kubenode). O(state=restored) removes a folder that the module
        created, if it is empty.
      - The backup of another node is refused, and so is a backup with an object that the module never removes. A node is
        identified by its machine-id and the MACs of its network interfaces.
      - Version 1.0.0 wrote three files. They are read as well, and become one file when a run writes the backup.
    type: path
    default: /var/lib/kubenode/backup
seealso:
  - name: Cilium issue 14233
    description: Pods scheduled before Cilium do not get their state cleaned up.
    link: https://github.com/cilium/cilium/issues/14233
"""

EXAMPLES = r"""
- name: Remove azure-vnet's leftovers, judged by evidence
  kubenode.datapath.ebtables_cleanup:
  register: leftovers

- name: Show the reasons for which rules were kept
  ansible.builtin.debug:
    msg: "{{ leftovers.kept | map(attribute='reason') | unique }}"

- name: Also remove doubtful rules for addresses that Cilium now assigns
  kubenode.datapath.ebtables_cleanup:
    addresses: [10.240.0.32, 10.240.1.0/24]

- name: Restore everything that was removed
  kubenode.datapath.ebtables_cleanup:
    state: restored
"""

RETURN = r"""
removed:
  description: Rules that were removed, or in check mode would be.
  returned: success
  type: list
  elements: dict
  sample:
    - backend: nft
      table: nat
      chain: PREROUTING
      rule: -p ARP --arp-op Request --arp-ip-dst 10.240.0.32 -j arpreply --arpreply-mac a2:96:88:20:cb:c6
      reason: eth0 of process 4711 has the address now, with the MAC 3a:d3:5d:06:09:0f
  contains: &rule
    backend:
      description: V(nft) or V(legacy).
      type: str
      returned: success
    table:
      description: V(filter), V(nat) or V(broute).
      type: str
      returned: success
    chain:
      description: The chain.
      type: str
      returned: success
    rule:
      description: The rule as the backend's tool prints it.
      type: str
      returned: success
    reason:
      description: The reason. It begins with V(doubtful:) if the rule was kept because evidence is missing.
      type: str
      returned: success
kept:
  description: Rules of azure-vnet's shapes that were kept. With O(state=restored), an empty list.
  returned: success
  type: list
  elements: dict
  contains: *rule
restored:
  description: Rules that were restored, or in check mode would be.
  returned: O(state=restored)
  type: list
  elements: dict
  contains: *rule
differences:
  description: A sentence for each object that could not be restored as it was.
  returned: O(state=restored)
  type: list
  elements: str
neighbors:
  description: Neighbours that were removed or restored, as C(ip neigh) prints them.
  returned: success
  type: list
  elements: str
  sample: ["10.240.0.32 dev azure0 lladdr a2:96:88:20:cb:c6 PERMANENT"]
routes:
  description: Routes that were removed or restored, as C(ip route) prints them.
  returned: success
  type: list
  elements: str
  sample: ["ip route 10.240.0.32 dev azure0 table main scope link"]
files:
  description: Paths of files that were moved into the backup, or with O(state=restored) from it.
  returned: success
  type: list
  elements: str
  sample: [/run/azure-vnet.json, /etc/cni/net.d/10-azure.conflist]
kept_files:
  description: azure-vnet's files that were not moved. With O(state=restored), an empty list.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
      returned: success
    reason:
      description: Why it stays.
      type: str
      returned: success
iptables:
  description:
    - Rules and chains of iptables, each with C(kind), V(rule) or V(chain), C(place) and C(text). An entry of C(removed) or
      C(kept) also has C(owner), C(evidence), C(certain) and the C(command) that removes it. C(removed) and C(kept) are empty
      unless O(iptables) is true and O(state=absent). C(restored) is returned with O(state=restored).
  returned: success
  type: dict
  contains: &objects
    removed:
      description: Objects that were removed, or in check mode would be.
      returned: success
      type: list
      elements: dict
      contains: &object
        kind:
          description: Its kind.
          type: str
        place:
          description: Where it is.
          type: str
        text:
          description: The object, as the program that manages it prints it.
          type: str
        owner:
          description: The program that created it.
          type: str
          returned: unless it was restored
        evidence:
          description: How the owner is known.
          type: str
          returned: unless it was restored
        certain:
          description: Whether nothing on the node uses it.
          type: bool
          returned: unless it was restored
        command:
          description: The command that removes it.
          type: str
          returned: unless it was restored
        effect:
          description: What it does to packets; V("") for nothing.
          type: str
          returned: unless it was restored
    kept:
      description: Objects that stay.
      returned: success
      type: list
      elements: dict
      contains: *object
    restored:
      description: Objects that were restored, or in check mode would be.
      returned: O(state=restored)
      type: list
      elements: dict
      contains: *object
  sample:
    removed:
      - {kind: rule, place: "ip nat POSTROUTING (nft)", text: "-j SWIFT", owner: azure-vnet, certain: true,
        evidence: "jumps to azure-vnet's chain", command: "iptables-nft -w -t nat -D POSTROUTING -j SWIFT"}
    kept: []
links:
  description:
    - Links and addresses, and the objects that were removed with a link, with the same keys as in RV(iptables). C(kind) is
      V(link), V(address), V(neighbor), V(sysctl) or V(namespace). C(removed) and C(kept) are empty unless O(links) is true and
      O(state=absent). C(restored) is returned with O(state=restored).
  returned: success
  type: dict
  contains: *objects
  sample:
    removed:
      - {kind: link, place: links, text: azSnatbr, owner: azure-vnet, certain: true,
        evidence: "has azure-vnet's name, and no pod in it", command: "ip link del azSnatbr"}
    kept: []
backup_file:
  description: The path of the backup. The file exists after a run that removed something.
  returned: success
  type: str
  sample: /var/lib/kubenode/backup/azure_vnet.json
diff:
  description: The removed or restored objects, one line each, and the names of the moved files.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("ebtables_cleanup")


if __name__ == "__main__":
    main()
