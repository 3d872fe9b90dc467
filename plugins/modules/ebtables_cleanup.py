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
  - A node that azure-vnet served in bridge mode keeps ebtables rules, permanent neighbours and routes of pods that are gone.
    When another CNI gives such an address to a new pod, they steal its traffic.
  - A rule is removed when it has the shape of one of azure-vnet's and there is evidence that it serves nobody any more.
    The evidence is azure-vnet's state file, the interfaces of the node and of all its network namespaces, the node's
    neighbours and routes, CNI configurations and O(addresses).
  - A rule that serves a living pod is kept. Where nothing tells whose a rule is, it is kept as doubtful. Rules for the whole
    node go with the last pod of azure-vnet. Rules of other shapes are not looked at; they keep their order and counters.
  - The state files and the CNI configuration of azure-vnet are moved into O(backup) before any rule goes, or azure-vnet would
    write the rules again. Later runs read them there, so that evidence outlives the clean-up and a reboot.
  - What was removed is kept in O(backup), run by run, until O(state=restored) puts it back.
requirements:
  - C(ebtables-nft-save) for rules of the nft backend (package iptables), C(ebtables-legacy) and C(ebtables-legacy-restore) for
    those of the legacy backend (package ebtables).
  - pyroute2 0.7.2 or newer, on the node or on the controller, to remove or put back neighbours and routes. Where the node has
    none, the controller's is carried to C(/var/lib/kubenode/lib), readable by root alone, once; O(state=restored) removes it
    when nothing else of this collection needs it.
notes:
  - With O(state=absent), refused where azure-vnet still is the node's CNI, and where C(azure-cnimonitor) runs, which holds the
    rules at what the state file says.
  - Does not look at a table of the legacy backend that holds no rule, as its module (C(ebtable_nat) and its like) tells, and
    starts no process where no bridge table of nf_tables has a rule.
  - In the nft backend, the rules of all chains go in one transaction. Another program may insert and delete rules all the
    while; only what was meant is hit. In the legacy backend the kernel takes each table as a whole. That is done under the
    lock of C(ebtables-legacy --concurrent); a program that does not take it and, within some milliseconds, adds one rule and
    removes another, loses the change.
  - The bridge itself (C(azure0)), its addresses and its routes to subnets are left alone; removing it cuts the node off.
  - Warns of a state file that could not be understood. What can not be read of it is no evidence.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
options:
  state:
    description:
      - With V(absent), there are no leftovers.
      - With V(restored), what earlier runs removed is back beside its old neighbours, and the backup is used up. Where nothing
        else has changed, the listings are what they were; otherwise RV(differences) says what differs.
    type: str
    choices: [absent, restored]
    default: absent
  owner:
    description: Whose leftovers.
    type: str
    choices: [azure_vnet]
    default: azure_vnet
  addresses:
    description:
      - Addresses of pods, or prefixes, that are known to be someone else's now. What nothing else tells about is then removed
        rather than kept as doubtful.
      - A rule that leads to a living interface with that very address is kept nevertheless.
      - May be given as JSON text.
    type: list
    elements: str
    default: []
  backend:
    description: Which rules are looked at. V(auto) is both, as a node may have rules in both.
    type: str
    choices: [auto, nft, legacy]
    default: auto
  neighbors:
    description: Whether neighbours of such addresses on azure-vnet's bridge go too, in any state.
    type: bool
    default: true
  routes:
    description: Whether routes to such an address alone go too, when they lead to azure-vnet's bridge or to one of its links.
    type: bool
    default: true
  backup:
    description:
      - The folder in which what is removed is kept, in a file that root alone can read.
      - Not in C(/run), which a boot empties, nor in C(/etc/cni/net.d), whose files runtimes read.
      - It is created when its parent is there, and so is C(/var/lib/kubenode). O(state=restored) removes it when it was created
        so and is empty.
    type: path
    default: /var/lib/kubenode/backup
seealso:
  - name: Cilium issue 14233
    description: Pods scheduled before Cilium do not get their state cleaned up.
    link: https://github.com/cilium/cilium/issues/14233
"""

EXAMPLES = r"""
- name: Remove what azure-vnet left behind, by evidence
  kubenode.datapath.ebtables_cleanup:
  register: leftovers

- name: Show what was kept, and why
  ansible.builtin.debug:
    msg: "{{ leftovers.kept | map(attribute='reason') | unique }}"

- name: Also remove what is in doubt about addresses that Cilium gives out now
  kubenode.datapath.ebtables_cleanup:
    addresses: [10.240.0.32, 10.240.1.0/24]

- name: Put it all back
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
      description: Why. With V(doubtful:) before it where a rule was kept for want of evidence.
      type: str
      returned: success
kept:
  description: Rules of azure-vnet's shape that stay. With O(state=restored), an empty list.
  returned: success
  type: list
  elements: dict
  contains: *rule
restored:
  description: Rules that were put back.
  returned: O(state=restored)
  type: list
  elements: dict
  contains: *rule
differences:
  description: What could not be put back as it was, each a sentence.
  returned: O(state=restored)
  type: list
  elements: str
neighbors:
  description: Neighbours that were removed, or put back, as C(ip neigh) prints them.
  returned: success
  type: list
  elements: str
  sample: ["10.240.0.32 dev azure0 lladdr a2:96:88:20:cb:c6 PERMANENT"]
routes:
  description: Routes that were removed, or put back, as C(ip route) prints them.
  returned: success
  type: list
  elements: str
  sample: ["ip route 10.240.0.32 dev azure0 table main scope link"]
backup_file:
  description: The file that keeps what was removed. It is there after a run that removed something.
  returned: success
  type: str
  sample: /var/lib/kubenode/backup/azure_vnet.json
diff:
  description: What was removed or put back, one line each; the names of files that were moved.
  returned: in diff mode
  type: list
  elements: dict
"""

import gc
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet import ebtables
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.backup_resource import BackupFile
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.ebtables_backend import Ebtables
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.leftover_backends import LeftoverBackends
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.leftover_guards import AnotherCni, NoMonitor
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.leftovers_resource import (
    AzureVnetLeftovers,
    Wish,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.restored_resource import RestoredLeftovers
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.units import Units
from ansible_collections.kubenode.datapath.plugins.module_utils._cni import cni
from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields, names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Guard, Plane, Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.carried_library import CarriedLibrary
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.library import PYROUTE2
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.own_root import OwnRoot
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink

OPTIONS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["absent", "restored"], "default": "absent"},
    "owner": {"type": "str", "choices": ["azure_vnet"], "default": "azure_vnet"},
    "addresses": {"type": "list", "elements": "str", "default": []},
    "backend": {"type": "str", "choices": ["auto", "nft", "legacy"], "default": "auto"},
    "neighbors": {"type": "bool", "default": True},
    "routes": {"type": "bool", "default": True},
    "backup": {"type": "path", "default": "/var/lib/kubenode/backup"},
}
ON_THE_NODE = OwnRoot("this module works on the running node", "Run it there, or leave it out here")
BACKENDS = {"auto": ebtables.BACKENDS, "nft": (ebtables.NFT,), "legacy": (ebtables.LEGACY,)}


def main() -> None:
    gc.disable()  # nothing here refers to itself, and thousands of rules would be looked through again and again
    module = Module(OPTIONS)
    with module.reporting() as result:
        options, files = module.params, Files()
        kept = BackupFile(files, f"{_folder(options['backup'])}/{options['owner']}.json")
        backends = LeftoverBackends(Ebtables(module.run, module.warn), Netlink(), files)
        work = _restore if options["state"] == "restored" else _clean_up
        result.update(work(module, backends, kept), backup_file=kept.path)


def _folder(given: str) -> str:
    """Where a backup lasts and nobody takes it for a configuration. Raises Invalid."""
    path = names.path("backup", given)
    if names.is_in_run(path) or f"{path}/".startswith(f"{cni.FOLDER}/"):
        raise Invalid("backup", given, f"outside /run, which a boot empties, and {cni.FOLDER}, which runtimes read")
    return path


def _clean_up(module: Module, backends: LeftoverBackends, kept: BackupFile) -> dict[str, object]:
    options = module.params
    desired = Wish(
        tuple(_prefix(number, one) for number, one in enumerate(options["addresses"])),
        BACKENDS[options["backend"]],
        options["neighbors"],
        options["routes"],
    )
    leftovers = AzureVnetLeftovers(backends, desired, kept)
    guards: list[Guard] = [ON_THE_NODE, AnotherCni(), NoMonitor()]
    outcome = module.converge([leftovers], guards)
    findings = outcome.report(leftovers)
    for trouble in findings.troubles:
        module.warn(trouble)
    return {
        **module.report(outcome),
        "removed": [one.report() for one in findings.rules if one.verdict.is_leftover],
        "kept": [one.report() for one in findings.rules if not one.verdict.is_leftover],
        "neighbors": [str(one) for one in findings.neighbours],
        "routes": [str(route) for route, _protocol in findings.routes],
    }


def _restore(module: Module, backends: LeftoverBackends, kept: BackupFile) -> dict[str, object]:
    leftovers = RestoredLeftovers(backends, kept)
    resources: list[Resource] = [leftovers]
    if kept.observe().runs:  # they were what needed it
        units = Units(module.run)
        resources.append(
            CarriedLibrary(
                PYROUTE2,
                desired=False,
                is_needed=lambda: bool(units.named("kubenode-policy-routes-*.service")),
                plane=Plane.IMMEDIATE,
            )
        )
    outcome = module.converge(resources, [ON_THE_NODE])
    back = outcome.report(leftovers)
    for difference in back.differences:
        module.warn(f"Not as it was: {difference}.")
    reason = "it is in the backup"
    return {
        **module.report(outcome),
        "removed": [],
        "kept": [],
        "restored": [{**place._asdict(), "rule": text, "reason": reason} for place, text in back.rules],
        "differences": [*back.differences],
        "neighbors": [str(one) for one in back.neighbours],
        "routes": [str(route) for route, _protocol in back.routes],
    }


def _prefix(number: int, given: str) -> fields.Prefix:
    try:
        prefix = fields.prefix(given)[1]
    except fields.Unfit:
        prefix = fields.ANY
    if prefix == fields.ANY:
        raise Invalid(
            f"addresses[{number}]", given, "an address, or a prefix without host bits that is not all there is"
        )
    return prefix


if __name__ == "__main__":
    main()
