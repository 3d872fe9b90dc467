#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nftables_connmark
short_description: Send replies of pods back by the primary interface where the request came in
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - On a node whose pods share cloud interfaces through policy routing, what a pod sends leaves by its own interface. The reply to
    a request that came in by the primary one, for a NodePort, would leave there under the node's address, and the cloud drops it.
  - This module holds one nftables table of family C(inet). A connection is marked by each packet from the side that opened it
    that enters by O(primary_interface) for one of its addresses, and what a pod sends on a marked connection gets the mark. A
    rule routes it by the mark. So connections that are there already go on by the primary interface, too.
  - What is sent in a pod's place by an L7 proxy on the node is marked as well, whether it passes C(lo) or not.
  - Marks are set before destination NAT, so that it works beside kube-proxy in iptables and in nftables mode. Bits of a mark that
    are not in O(mask) are kept, on packets and on connections.
  - The table is compared by meaning, as by M(kubenode.datapath.nftables_probe_snat), and replaced in one transaction. No other
    table is read or changed.
requirements:
  - nftables 0.9.8 or newer on the node, unless in check mode
notes:
  - The rule is not this module's but M(kubenode.datapath.policy_routes)' or the CNI's. For the default mark it is
    C(fwmark 0x80/0x80 lookup main), before the rules of the pods and after those for the local table, in each family in which
    the node has pods.
  - Without O(strict), reverse-path filtering of O(primary_interface) has to be loose or off;
    see M(kubenode.datapath.rp_filter).
  - What a pod sends to a load balancer, masqueraded, leaves by the pod's interface all the same. Where that interface has no
    address of its own, it carries the primary interface's, and a cloud that checks sources drops it. No setting of a node
    helps then; give the interface an address.
  - The permanent plane is the file O(path) and the unit C(kubenode-nft-inet-TABLE.service), enabled, as with
    M(kubenode.datapath.nftables_probe_snat); with O(strict) also C(/etc/sysctl.d/90-kubenode-nft-inet-TABLE.conf).
  - Warns when O(primary_interface) is no link of the node yet, and, with O(immediate), when the running kernel has no rule by
    which the mark does anything, or one that comes after rules of the pods. Who adds the rule, and when, is not asked.
  - With O(strict), warns of a line in another file that would undo C(src_valid_mark) at the next boot.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
  - kubenode.datapath._checkpoint
options:
  table:
    description:
      - Name of the table, 1 to 128 letters, digits and C(_.-), starting with a letter or C(_).
      - Words of nft's language, as C(accept) or C(counter), are refused. Each version of nft has others; a word counts if 0.9.8,
        1.0.6 or 1.1.3 takes it for itself.
      - A table of this name and family C(inet) is this module's, whoever made it.
    type: str
    default: kubenodeReturnPath
  primary_interface:
    description:
      - The link by which requests to the node's own addresses enter, 1 to 15 letters, digits and C(_.=+@~-).
      - With O(strict) a name with C(=) is refused, as no line in sysctl.d can name it.
      - Required with O(state=present). With O(state=absent) it has no meaning.
    type: str
  pod_interfaces:
    description:
      - The node's ends of the pods' links, by name or by the beginning of the name with C(*) after it, as C(eni*). They need not
        be there. None may match O(primary_interface).
      - Required with O(state=present). With O(state=absent) it has no meaning.
    type: list
    elements: str
  mark:
    description: The mark, a number from 1 to C(0xffffffff) within O(mask), in decimal or hexadecimal.
    type: str
    default: "0x80"
  mask:
    description:
      - The bits of marks that are this module's to set and to clear; all others are kept.
      - O(mark) where it is not given.
    type: str
  strict:
    description:
      - Whether it works with strict reverse-path filtering on O(primary_interface) too. Packets are then marked as they enter,
        and C(net.ipv4.conf.PRIMARY_INTERFACE.src_valid_mark) is set to 1, so that their source is looked up by the mark's rule.
      - The former value is put back by O(state=absent), and by a call without it.
    type: bool
    default: false
  path:
    description:
      - The file of the permanent plane, absolute, of letters, digits and C(_.=+@~:,-).
      - Its folder is made when the folder's parent is there, and removed by O(state=absent) when it was made so and is empty.
      - A file that this module did not write for O(table) is not overwritten; the run is refused.
      - When another path was in use before, its file goes. O(state=absent) finds the file of O(table) at any path.
    type: path
    default: /etc/kubenode/return-path.nft
seealso:
  - module: kubenode.datapath.rp_filter
  - module: kubenode.datapath.policy_routes
  - name: AWS VPC CNI
    description: The mark and the rule of the CNI that brought this scheme up.
    link: https://github.com/aws/amazon-vpc-cni-k8s/blob/master/docs/troubleshooting.md
"""

EXAMPLES = r"""
- name: Route by the mark
  kubenode.datapath.policy_routes:
    rules:
      - {priority: 1024, fwmark: 0x80/0x80, table: main}
      - {priority: 1024, fwmark: 0x80/0x80, table: main, family: ipv6}

- name: Send replies to NodePorts back by eth0, now and after each boot
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]

- name: The same where reverse-path filtering has to stay strict
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]
    strict: true

- name: Prepare a node image, with a bit that nobody else on the node takes
  kubenode.datapath.nftables_connmark:
    primary_interface: ens5
    pod_interfaces: ["cali*", "veth*"]
    mark: "0x10"
    immediate: false

- name: Take it back if the node can not be reached, or its own check fails
  kubenode.datapath.nftables_connmark:
    primary_interface: eth0
    pod_interfaces: ["eni*"]
    checkpoint: 60
    checkpoint_command: curl --silent --fail --max-time 5 https://10.96.0.1/livez

- name: Undo it
  kubenode.datapath.nftables_connmark:
    state: absent
"""

RETURN = r"""
ruleset:
  description: The script that makes the kernel hold the table, as it is loaded, and as O(path) holds it below a heading; empty
    for O(state=absent).
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

from ansible_collections.kubenode.datapath.plugins.module_utils._boot import boot_files
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.units import Units
from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint_resource import Checkpoint
from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Guard, Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._module import CHECKPOINT, TWO_PLANES, Module
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import return_path_table
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.boot_table import BootTable
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.live_table import LiveTable
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_backend import Nft
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_table import replacement
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.return_path_guards import (
    MarkRule,
    PrimaryInterface,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.return_path_table import ReturnPath
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import kernel
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.managed_files import ManagedFiles, text
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.sysctl import Sysctl, configuration
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.boot_record import BootRecord
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.live_reverse_path import (
    RECORDS,
    LiveReversePath,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.reverse_path import SRC_VALID_MARK
from ansible_collections.kubenode.datapath.plugins.module_utils._rp_filter.reverse_path_guards import (
    BootOrder,
    UnreadableRecord,
)

FAMILY = "inet"
OPTIONS = {
    **TWO_PLANES,
    **CHECKPOINT,
    "table": {"type": "str", "default": "kubenodeReturnPath"},
    "primary_interface": {"type": "str"},
    "pod_interfaces": {"type": "list", "elements": "str"},
    "mark": {"type": "str", "default": "0x80"},
    "mask": {"type": "str"},
    "strict": {"type": "bool", "default": False},
    "path": {"type": "path", "default": "/etc/kubenode/return-path.nft"},
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        table = names.table("table", module.params["table"], module.is_present)
        path = boot_files.option(module.params["path"], module.is_present)
        desired = ReturnPath.from_options(module.params) if module.is_present else None
        nft, files, units = Nft(module.run, module.warn), Files(), Units(module.run, module.warn)

        ruleset = replacement(FAMILY, table, desired.table().text()) if desired else ""
        boot = BootTable(files, units, FAMILY, table, path)
        sysctl_path = return_path_table.sysctl_path(table)
        setting = desired.sysctl_text() if desired else None
        entry = text(sysctl_path, setting, return_path_table.sysctl_heading(table))
        placed = ManagedFiles(files, [entry], option="strict", instead="set strict to false")
        changing = placed if module.params["permanent"] else None
        validation, found = desired.validation() if desired else None, configuration(module.warn)
        valid = LiveReversePath(Sysctl(), files, validation, sysctl_path, SRC_VALID_MARK, found, changing)
        live = LiveTable(nft, FAMILY, table, desired.table() if desired else None)
        booted = boot.resources(ruleset if desired else None, accept=nft, starts=module.params["immediate"])
        resources: list[Resource] = [live, valid, *booted, placed] if desired else [placed, *booted, valid, live]
        if kernel.is_own_root() and not module.params["immediate"]:
            resources.insert(0, BootRecord(valid, placed))
        guards: list[Guard] = [UnreadableRecord(files, RECORDS[SRC_VALID_MARK])] if kernel.is_own_root() else []
        if desired:
            guards.append(PrimaryInterface(desired.primary_interface))
        if desired and module.params["immediate"]:
            guards.append(MarkRule(desired))
        if validation and setting and module.params["permanent"]:
            texts = {**found, sysctl_path: setting}
            guards.append(BootOrder(validation, sysctl_path, texts, SRC_VALID_MARK, is_chosen=False))

        outcome = module.converge(resources, guards, Checkpoint)
        result.update(module.report(outcome), ruleset=ruleset, table=table)


if __name__ == "__main__":
    main()
