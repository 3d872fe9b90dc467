# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A backup is restored, except for objects that would divert other traffic: these are named, and stay in the backup."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import IPV4
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plan
from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables.ebtables_backend import RestoreRules
from ansible_collections.kubenode.datapath.plugins.module_utils._files import managed_files
from ansible_collections.kubenode.datapath.plugins.module_utils._files.files import Content, Files, Put
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interface import Interface
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.link_message import Link, Scene
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import backup_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.backup_backend import Backup, Node, Run
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.backup_resource import BackupFile, ObservedBackup
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.cleanup_resource import ObservedLeftovers
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.judge import Evidence
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.restoration_resource import (
    ObservedRestoration,
    Restored,
    RestoredLeftovers,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, Place, RemovedRules
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.neighbour import Neighbour
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import LINK, Hop, Route
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import ADD, Apply, Change

POD, MAC, OTHER_MAC = "10.240.0.32", "a2:96:88:20:cb:c6", "3a:d3:5d:06:09:0f"
FOREIGN = ListedRule('--log-prefix "a b" -j CONTINUE')
ARP = ListedRule(f"-p ARP --arp-op Request --arp-ip-dst {POD} -j arpreply --arpreply-mac {MAC}", (5, 6))
DNAT = ListedRule(f"-p IPv4 -i eth0 --ip-dst {POD} -j dnat --to-dst {MAC} --dnat-target ACCEPT", (7, 8))
PREROUTING, POSTROUTING = Place("nft", "nat", "PREROUTING"), Place("nft", "nat", "POSTROUTING")
NODE = Node("0123456789abcdef", ("00:0d:3a:01:02:03",))
BOOT = "a boot"
RULES = RestoreRules("nft", (RemovedRules(PREROUTING, (FOREIGN, ARP, DNAT), frozenset({1, 2})),))
STATE_FILE = Put("/run/azure-vnet.json", Content('{"half \udc80', 0o600, (0, 7)))
CONFIGURATION = Put("/etc/cni/net.d/10-azure.conflist", Content("", 0o644))
NEIGHBOUR = Apply(0, (Change(ADD, Neighbour(POD, "azure0", MAC)),))
ROUTE = Apply(3, (Change(ADD, Route(IPV4, 254, fields.prefix(POD)[1], scope=LINK, hops=(Hop("azure0"),))),))
OBJECTS = (RULES, NEIGHBOUR, ROUTE, STATE_FILE)
PATH = "/var/lib/kubenode/backup/azure_vnet"
BRIDGE = Interface("", "azure0", NODE.macs[0], frozenset({"10.240.0.4"}))
OTHERS = Interface("process 2", "eth0", OTHER_MAC, frozenset({POD}))


def restored(*runs: Run, interfaces: tuple[Interface, ...] = (), files: Any = (), boot: str = BOOT, **evidence: Any) -> Restored:
    """The report of the plan on a node with these interfaces and files."""
    return cast(Restored, planned(*runs, interfaces=interfaces, files=files, boot=boot, **evidence).report)


def planned(*runs: Run, interfaces: tuple[Interface, ...], files: Any, boot: str, **given: Any) -> Plan:
    current = {put.path: dict(files).get(put.path) for run in runs for put in run.of(Put)}
    text = Content(backup_backend.to_text(Backup(NODE, runs)), 0o600)
    of_backup = managed_files.ObservedFiles(
        {f"{PATH}.json": text, f"{PATH}-iptables.json": None, f"{PATH}-links.json": None}, "ours", False, (), ()
    )
    backup = ObservedBackup(NODE, NODE, runs, of_backup, True)
    evidence = Evidence(interfaces=(BRIDGE, *interfaces), former=frozenset({(POD, MAC)}), bridges=frozenset({"azure0"}), **given)
    node = ObservedLeftovers({PREROUTING: (FOREIGN,)}, evidence, {}, (), (), backup, boot, ())
    scene = Scene((Link(2, "azure0", "bridge", 0, b"", b""),))
    resource = RestoredLeftovers(cast(Any, None), BackupFile(Files(), PATH))
    return resource.plan(ObservedRestoration(node, backup, current, {}, scene))


def run(*undo: Any, boot: str = BOOT) -> Run:
    return Run(undo, boot)


def names(report: Restored) -> list[str]:
    rules = [text for removed in report.rules for text in removed.texts]
    return [*rules, *(str(change.item) for _protocol, change in report.changes), *(put.path for put in report.files)]


ALL = [ARP.text, DNAT.text, *(str(apply.changes[0].item) for apply in (NEIGHBOUR, ROUTE)), STATE_FILE.path]


@pytest.mark.parametrize("interfaces", [(), (OTHERS._replace(mac=MAC),)], ids=["no pod", "the pod lives"])
def test_a_backup_is_restored_whole_if_nothing_is_in_its_place(interfaces: tuple[Interface, ...]) -> None:
    report = restored(run(*OBJECTS), interfaces=interfaces)
    assert (names(report), report.runs, report.differences) == (ALL, (), ())


OBSTACLES: dict[str, tuple[tuple[Interface, ...], dict[str, Any], str]] = {
    "another pod has the address": ((OTHERS,), {}, "eth0 of process 2 has the address now, with the MAC 3a:"),
    "the node has the address": ((OTHERS._replace(namespace=""),), {}, "eth0 has the address now"),
    "the node reaches it elsewhere": ((), {"host_routes": {POD: frozenset({"lxc1"})}}, "reaches the address by lxc1 now"),
}


@pytest.mark.parametrize(("interfaces", "evidence", "told"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_would_divert_anothers_traffic_is_named_and_stays_in_the_backup(
    interfaces: tuple[Interface, ...], evidence: dict[str, Any], told: str
) -> None:
    report = restored(run(*OBJECTS), interfaces=interfaces, **evidence)
    assert names(report) == [STATE_FILE.path] and report.runs == (run(*OBJECTS[:-1]),)
    assert len(report.differences) == 4 and all(told in one for one in report.differences)
    again = planned(*report.runs, interfaces=interfaces, files=(), boot=BOOT, **evidence)
    assert again.steps == () and again.report.differences == report.differences and again.report.runs == report.runs


def test_with_a_hidden_namespace_nothing_is_restored() -> None:
    with pytest.raises(Refusal, match="could be read: namespace blue. A live pod there may have an address"):
        restored(run(*OBJECTS), unread=("namespace blue",))
    assert names(restored(run(CONFIGURATION), unread=("namespace blue",))) == [CONFIGURATION.path]


EARLIER = Put(STATE_FILE.path, Content("{}", 0o600, (0, 7)))
FILES = {  # runs, oldest first; the current file; what is restored, what stays in the backup, and why
    "another is there": ([STATE_FILE], Content(""), [], [STATE_FILE], "something else exists there now, and is left"),
    "the same is there": ([STATE_FILE], STATE_FILE.desired, [], [], ""),
    "two runs moved it": ([EARLIER, STATE_FILE], None, [STATE_FILE], [EARLIER], "as the last run moved it, and the backup"),
    "the newer is there": ([EARLIER], STATE_FILE.desired, [], [EARLIER], "something else exists there now"),
    "two runs moved the same": ([STATE_FILE, STATE_FILE], None, [STATE_FILE], [], ""),
}


@pytest.mark.parametrize(("puts", "current", "back", "left", "told"), FILES.values(), ids=FILES)
def test_a_file_is_restored_as_the_last_run_moved_it_and_no_content_is_lost(
    puts: list[Put], current: Content | None, back: list[Put], left: list[Put], told: str
) -> None:
    report = restored(*map(run, puts), files={STATE_FILE.path: current})
    assert ([*report.files], [undo for one in report.runs for undo in one.undo]) == (back, left)
    assert told in "".join(report.differences) and bool(told) == bool(report.differences)


def test_of_an_earlier_boot_the_configuration_alone_is_restored() -> None:
    report = restored(run(*OBJECTS), run(CONFIGURATION, boot="another"), boot="a third")
    assert names(report) == [CONFIGURATION.path] and report.runs == ()
    assert "2 of the clean-ups were before this boot" in report.differences[0]


def test_the_nodes_own_rule_is_not_restored_for_a_link_with_another_mac() -> None:
    source = ListedRule(f"-s Unicast -o azure0 -j snat --to-src {MAC} --snat-arp")
    report = restored(run(RestoreRules("nft", (RemovedRules(POSTROUTING, (source,), frozenset({0})),))))
    assert names(report) == [] and f"azure0 has the MAC {NODE.macs[0]} now" in report.differences[0]
