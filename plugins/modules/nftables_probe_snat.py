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
  - This module holds one nftables table of family C(ip6), which gives the probe a global source address before routing and
    takes it back on the way out. The table is stateless; it makes no connection tracking entry.
  - Neighbour discovery and router advertisements pass untranslated. The probe's address is also the node's default router,
    whose route would run out after 9000 seconds otherwise.
  - The table is compared by meaning. Counters, handles, the order of a set and how a version of nft prints do not matter; a
    rule, chain, set, hook, priority or flag that is missing, added, moved or altered does. Counters of a table that is as
    wished keep counting.
  - It is replaced in one transaction. No other table is read or changed.
requirements:
  - nftables 0.9.8 or newer on the node, unless in check mode
notes:
  - The permanent plane is the file O(path) and the unit C(kubenode-nft-ip6-TABLE.service), enabled, which loads the file
    before kubelet is up. Where systemd runs, and with O(immediate=true), the unit is started too where it is not active, and
    the run waits until it is active or was skipped by O(boot_condition). A unit that fails fails the run, with the last lines
    of its journal. While the node still boots, a start that systemd has queued is not waited for; a warning says so. A unit
    that is starting already is waited for in check mode as well, for 240 seconds at most.
  - While a run moves or removes the file, C(kubenode-nft-ip6-TABLE.service.files) beside the unit names the paths that are
    concerned. A run that was killed leaves this record, and the next run completes or undoes what it had begun.
  - C(nftables.service), where it is in use, flushes every table of the node when it is started, stopped or reloaded. A drop-in
    for it, C(nftables.service.d/kubenode-nft-ip6-TABLE.conf), has the table loaded again after each of these. This module
    never starts, stops or reloads C(nftables.service).
  - Refused with O(state=present) on a node where Microsoft's ipv6-hp-bpf filters sit on O(interface), and on an eBPF
    host-routing node, known by kubelet's label C(kubernetes.azure.com/ebpf-host-routing=true) or by the pinned programs
    under C(/sys/fs/bpf/azure-block-iptables). There the platform translates probes itself and blocks netfilter rules.
  - On a node whose image brings AgentBaker's C(ipv6_nftables.service), enabled, that unit stays the owner. This module then
    writes no file and no unit, refuses other options than those that make AgentBaker's table, loads that table when it is
    missing, and leaves all of it with O(state=absent). See RV(managed_by).
  - Warns when the node has no IPv6 default route by O(interface), when IPv6 forwarding is off, and when forwarding is on while
    C(accept_ra) is V(1), because the kernel then ignores router advertisements.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.node_group
  - kubenode.datapath._two_planes
options:
  table:
    description:
      - Name of the table, 1 to 128 letters, digits and C(_.-), starting with a letter or C(_).
      - Words of nft's language, as C(accept) or C(counter), are refused. Each version of nft has others; a word counts if 0.9.8,
        1.0.6 or 1.1.3 takes it for itself.
      - A table of this name and family C(ip6) is this module's, whoever made it.
    type: str
    default: azureSLBProbe
  interface:
    description: The link by which probes come in, 1 to 15 letters, digits and C(_.=+@~-), not C(lo). It need not be there yet.
    type: str
    default: eth0
  priority:
    description:
      - Priority of both chains in their hooks, a signed 32-bit integer.
      - Below -200, where connection tracking starts, it works for services; a warning says so otherwise.
    type: int
    default: -300
  probes:
    description:
      - The addresses to translate. The order has no meaning. No address may stand in the list twice.
      - May be given as JSON text.
    type: list
    elements: dict
    default:
      - source: fe80::1234:5678:9abc
        translated: 2603:1062:0:1:fe80:1234:5678:9abc
    suboptions:
      source:
        description: An IPv6 unicast address, from which the load balancer probes.
        type: str
        required: true
      translated:
        description:
          - The IPv6 unicast address that stands for O(probes[].source) inside the node; not link-local.
          - Azure's is owned by Microsoft and assigned for this purpose.
        type: str
        required: true
  path:
    description:
      - The file of the permanent plane, absolute, of letters, digits and C(_.=+@~:,-).
      - Its folder is made when the folder's parent is there, and removed by O(state=absent) when it was made so and is empty.
      - A file that this module did not write for O(table) is not overwritten; the run is refused.
      - When another path was in use before, its file goes. O(state=absent) finds the file of O(table) at any path.
    type: path
    default: /etc/kubenode/probe-snat.nft
  boot_condition:
    description:
      - What the unit asks at each boot before it loads the table.
      - With V(none), nothing; the table is loaded.
      - With V(imds), the cloud's metadata service; the table is loaded where it names an IPv6 address of one of the node's
        interfaces. It is asked for up to 60 seconds. Where it has not answered by then, the unit fails, kubelet starts, and
        systemd tries again after 10 seconds.
      - With V(address), the addresses of O(interface); the table is loaded as soon as it has a global IPv6 address, and not
        loaded where it has none after 30 seconds.
      - The program that asks is O(path) with C(.pyz) appended. It needs Python 3.9 or newer on the node and nothing else. The
        unit names the Python that runs this module, if it will be there at boot, or else another of the node's; a run that
        changes anything of this rehearses the program with it.
      - A run of this module loads the table without asking; M(kubenode.datapath.imds_info) tells what a boot would find.
    type: str
    choices: [imds, address, none]
    default: none
seealso:
  - module: kubenode.datapath.imds_info
  - name: The table that AKS node images bring
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

- name: Undo it
  kubenode.datapath.nftables_probe_snat:
    state: absent
"""

RETURN = r"""
ruleset:
  description: The script that makes the kernel hold the table, as it is loaded, and as O(path) holds it below a heading; empty
    for O(state=absent).
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
managed_by:
  description: The unit of the node's image that owns the table; null where this module does.
  returned: success
  type: str
  sample: ipv6_nftables.service
diff:
  description: The table and the files before and after, one entry for each plane that changes.
  returned: in diff mode
  type: list
  elements: dict
"""

import typing as t

if t.TYPE_CHECKING:  # so that Ansible brings it to the node, for archive()
    from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import ipv6_program  # noqa: F401

from ansible_collections.kubenode.datapath.plugins.module_utils._boot import boot_files
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.units import Units
from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Guard, Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._module import TWO_PLANES, Module
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import probe_guards
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.boot_table import BootTable
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.live_table import LiveTable
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_backend import Nft
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.nft_table import replacement
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.probe_table import (
    AZURE_SOURCE,
    AZURE_TRANSLATED,
    ProbeSnat,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files

FAMILY = "ip6"
OPTIONS = {
    **TWO_PLANES,
    "table": {"type": "str", "default": "azureSLBProbe"},
    "interface": {"type": "str", "default": "eth0"},
    "priority": {"type": "int", "default": -300},
    "probes": {
        "type": "list",
        "elements": "dict",
        "default": [{"source": AZURE_SOURCE, "translated": AZURE_TRANSLATED}],
        "options": {"source": {"type": "str", "required": True}, "translated": {"type": "str", "required": True}},
    },
    "path": {"type": "path", "default": "/etc/kubenode/probe-snat.nft"},
    "boot_condition": {"type": "str", "choices": ["imds", "address", "none"], "default": "none"},
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        table = names.table("table", module.params["table"], module.is_present)
        path = boot_files.option(module.params["path"], module.is_present)
        desired = ProbeSnat.from_options(module.params) if module.is_present else None
        nft, files, units = Nft(module.run, module.warn), Files(), Units(module.run, module.warn)
        owner = probe_guards.AGENTBAKER_UNIT if units.is_enabled(probe_guards.AGENTBAKER_UNIT) else None

        ruleset = replacement(FAMILY, table, desired.table().text()) if desired else ""
        is_placed = desired is not None and owner is None
        live = LiveTable(nft, FAMILY, table, desired.table() if desired else None)
        boot = BootTable(files, units, FAMILY, table, path)
        is_asking = is_placed and module.params["permanent"] and module.params["boot_condition"] != "none"
        condition = boot.condition(module.params["boot_condition"], module.params["interface"]) if is_asking else None
        placed = boot.resources(
            ruleset if is_placed else None,
            accept=nft,
            starts=module.params["immediate"],
            condition=condition,
            program=_archive() if condition else None,
        )
        resources: list[Resource] = [live, *placed] if desired else [*placed, live]
        if desired is None and owner and table == ProbeSnat().name:
            resources.remove(live)  # it is the owner's

        outcome = module.converge(resources, _guards(desired, owner, module.params["immediate"]))
        result.update(module.report(outcome), ruleset=ruleset, table=table, managed_by=owner)


def _archive() -> str:
    """The boot program. What packs it is imported here, as a run that places none shall not pay for that."""
    from ansible_collections.kubenode.datapath.plugins.module_utils._boot.program_archive import archive

    return archive("_nftables.ipv6_program")


def _guards(desired: ProbeSnat | None, owner: str | None, immediate: bool) -> list[Guard]:
    """What speaks against a table speaks against it in both planes."""
    if desired is None:
        return []
    chosen: list[Guard] = [probe_guards.EbpfHostRouting(), probe_guards.HealthProbeFilters(desired.interface)]
    chosen += [probe_guards.AgentBaker(desired)] if owner else []
    chosen += [probe_guards.ProbePath(desired)] if immediate else []
    return chosen


if __name__ == "__main__":
    main()
