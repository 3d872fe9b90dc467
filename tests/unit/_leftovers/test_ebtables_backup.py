# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backup of removed objects: a written backup reads back; a damaged one is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import IPV4, IPV6
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Plan
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files, managed_files
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interface import Interface
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import (
    backup,
    backup_resource,
    ebtables_backup,
    ebtables_resource,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.backup import Backup, Node
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.backup_resource import BackupFile
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.ebtables_backup import File, Run
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.ebtables_resource import (
    Back,
    ObservedRestoration,
    RestoredLeftovers,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.judge import Evidence
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, Place, RemovedRules
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.neighbour import FAILED, Neighbour
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import IPV6_METRIC, LINK, Hop, Route

POD, MAC, OTHER_MAC = "10.240.0.32", "a2:96:88:20:cb:c6", "3a:d3:5d:06:09:0f"
ARP = ListedRule(f"-p ARP --arp-op Request --arp-ip-dst {POD} -j arpreply --arpreply-mac {MAC}", (5, 6))
DNAT = ListedRule(f"-p IPv4 -i eth0 --ip-dst {POD} -j dnat --to-dst {MAC} --dnat-target ACCEPT", (7, 8))
RULES = (ListedRule('--log-prefix "a b" -j CONTINUE'), ARP, DNAT)
PREROUTING = Place("nft", "nat", "PREROUTING")
NODE = Node("0123456789abcdef", ("00:0d:3a:01:02:03",))
STATE_FILE = File("/run/azure-vnet.json", '{"half \udc80', 0o600, (0, 7))
CONFIGURATION = File("/etc/cni/net.d/10-azure.conflist", "", 0o644, (0, 0))
ROUTE = (Route(IPV4, 254, fields.prefix(POD)[1], scope=LINK, hops=(Hop("azure0"),)), 3)
NEIGHBOUR = Neighbour(POD, "azure0", MAC)
RUNS = (
    Run(
        (RemovedRules(PREROUTING, RULES, frozenset({1, 2})),),
        (STATE_FILE,),
        (NEIGHBOUR, Neighbour("fd00::1", "azure0", "", FAILED)),
        (
            ROUTE,
            (Route(IPV6, 254, fields.prefix("fd00::20")[1], IPV6_METRIC, hops=(Hop("azure0", b"\xfe\x80" + bytes(14)),)), 4),
        ),
        "a boot",
    ),
    Run(files=(CONFIGURATION,), boot="another"),
)  # fmt: skip
KEPT = Backup(NODE, RUNS)


def test_what_is_written_is_read() -> None:
    text = ebtables_backup.to_text(KEPT)
    assert ebtables_backup.from_text(text) == KEPT and text.startswith(ebtables_backup.SIGNATURE)


@settings(deadline=None)
@given(st.integers(0, len(ebtables_backup.to_text(KEPT)) - 2))
def test_half_a_backup_is_damaged(length: int) -> None:
    with pytest.raises(backup.Damaged):
        ebtables_backup.from_text(ebtables_backup.to_text(KEPT)[:length])


DAMAGED = [
    "",
    "null",
    "[]",
    "{}",
    '{"version": 2, "runs": []}',
    '{"made_by": "", "version": 2, "node": {"machine": "", "macs": []}, "runs": [{}]}',
    '{"made_by": "", "version": 2, "node": {"machine": "", "macs": []}, "runs": 7}',
    '{"made_by": "", "version": 2, "node": {"machine": "", "macs": ["x"]}, "runs": []}',
    '{"made_by": "", "version": 2, "node": {"machine": 7, "macs": []}, "runs": []}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_what_is_no_backup_is_damaged(text: str) -> None:
    with pytest.raises(backup.Damaged):
        ebtables_backup.from_text(text)


EDITS: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("AttributeError: 'list'", lambda run: run["chains"][0].update(removed=[])),
    ("not enough values to unpack", lambda run: run["chains"][0]["removed"].update({"1": [1]})),
    ("a number from 0 to", lambda run: run["chains"][0]["removed"].update({"1": [-1, 0]})),
    ("'--log-prefix", lambda run: run["chains"][0]["removed"].update({"0": [1, 1]})),
    ("is no rule of azure-vnet", lambda run: run["chains"][0]["rules"].__setitem__(1, ARP.text.replace(" -j", "\n-j"))),
    ("is no rule of azure-vnet", lambda run: run["chains"][0].update(chain="INPUT")),
    ("'foo' 'nat' is not a table of an ebtables backend", lambda run: run["chains"][0].update(backend="foo")),
    ("'nft' 'mangle' is not a table of an ebtables backend", lambda run: run["chains"][0].update(table="mangle")),
    ("ValueError: not enough values", lambda run: run["files"][0].update(owner=[])),
    ("'etc/x' is neither a state file", lambda run: run["files"][0].update(path="etc/x")),
    ("'/etc/shadow' is neither a state file", lambda run: run["files"][0].update(path="/etc/shadow")),
    ("/net.d/../x' is neither", lambda run: run["files"][0].update(path="/etc/cni/net.d/../x")),
    ("'/etc/cni/net.d/..' is neither", lambda run: run["files"][0].update(path="/etc/cni/net.d/..")),
    ("a number from 0 to 4095", lambda run: run["files"][0].update(mode=0o10000)),
    ("a number from 0 to 4095", lambda run: run["files"][0].update(mode=-1)),
    ("a value of type int is expected, and '0600' was found", lambda run: run["files"][0].update(mode="0600")),
    ("a number from 0 to 4294967294", lambda run: run["files"][0].update(owner=[0, 2**32 - 1])),
    ("the keys path, text, mode, owner are expected", lambda run: run["files"][0].update(acl="")),
    ("the keys chains, files,", lambda run: run.update(more=1)),
    ("neighbors.link must be", lambda run: run["neighbors"][0].update(link="a b")),
    ("7 is not the state of a neighbour", lambda run: run["neighbors"][0].update(state=7)),
    ("'x' is not a MAC", lambda run: run["neighbors"][0].update(mac="x")),
    ("is not a route to one address", lambda run: run["routes"][0].update(to="10.0.0.0/8")),
    ("is not a route to one address", lambda run: run["routes"][0].update(table=7)),
    ("a value of type int is expected, and '3' was found", lambda run: run["routes"][0].update(protocol="3")),
    ("a value of type int is expected, and True was found", lambda run: run["files"][0].update(mode=True)),
    ("a value of type str is expected, and 7 was found", lambda run: run["files"][0].update(text=7)),
    ("Invalid: routes.to must be", lambda run: run["routes"][0].update(to="x")),
]


@pytest.mark.parametrize(("told", "edit"), EDITS, ids=[told for told, _edit in EDITS])
def test_an_edited_backup_is_damaged(told: str, edit: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(ebtables_backup.to_text(KEPT))
    edit(content["runs"][0])
    with pytest.raises(backup.Damaged) as error:
        ebtables_backup.from_text(json.dumps(content))
    assert told in str(error.value)


def test_a_chain_of_which_every_rule_was_removed_is_read() -> None:
    kept = Backup(NODE, (Run((RemovedRules(PREROUTING, RULES[1:], frozenset({0, 1})),)),))
    assert ebtables_backup.from_text(ebtables_backup.to_text(kept)) == kept


def test_a_rule_that_the_chain_does_not_have_was_not_removed_from_it() -> None:
    with pytest.raises(backup.Damaged, match="a chain names a removed rule at a position that it does not have"):
        ebtables_backup.from_text(ebtables_backup.to_text(KEPT).replace('"2": [', '"9": ['))


def test_a_backup_of_another_version_is_named() -> None:
    with pytest.raises(backup.Damaged, match="its version is 1, and only version 2 is supported"):
        ebtables_backup.from_text('{"version": 1, "runs": []}')


NODES = {
    "itself": (NODE, True),
    "with another network interface beside": (NODE._replace(macs=(*NODE.macs, OTHER_MAC)), True),
    "with another network interface": (NODE._replace(macs=(OTHER_MAC,)), False),
    "with another machine-id": (NODE._replace(machine="x"), False),
    "without network interfaces": (NODE._replace(macs=()), False),
}


@pytest.mark.parametrize(("node", "is_same"), NODES.values(), ids=NODES)
def test_a_node_is_known_by_its_machine_id_and_a_mac(node: Node, is_same: bool) -> None:
    assert NODE.is_same(node) == is_same == node.is_same(NODE)


# Restored objects


BRIDGE = Interface("", "azure0", NODE.macs[0], frozenset({"10.240.0.4"}))
OTHERS = Interface("process 2", "eth0", OTHER_MAC, frozenset({POD}))
LIVES = OTHERS._replace(mac=MAC)


PATH = "/var/lib/kubenode/backup/azure_vnet.json"


def restored(*interfaces: Interface, runs: tuple[Run, ...] = RUNS, boot: str = "a boot", **given: Any) -> tuple[Plan, Back]:
    """The plan on a node with these interfaces, and its report. given: Evidence, and files by path."""
    there, former = given.pop("files", {}), frozenset({(POD, MAC)})
    text = files.Content(ebtables_backup.to_text(Backup(NODE, runs)), 0o600)
    kept = backup_resource.ObservedBackup(
        NODE, NODE, runs, managed_files.ObservedFiles({PATH: text}, "ours", False, (), ()), True
    )
    evidence = Evidence(interfaces=(BRIDGE, *interfaces), former=former, bridges=frozenset({"azure0"}), **given)
    chains = {PREROUTING: RULES[:1]}
    node = ebtables_resource.ObservedLeftovers(chains, evidence, {}, (), (), kept, boot, ())
    found = {one.path: there.get(one.path) for run in runs for one in run.files}
    resource = RestoredLeftovers(cast(Any, None), BackupFile(files.Files(), PATH, ebtables_backup))
    plan = resource.plan(ObservedRestoration(node, found, frozenset({"azure0"}), kept))
    return plan, cast(Back, plan.report)


def texts(back: Back) -> list[str]:
    return [text for _place, text in back.rules]


@pytest.mark.parametrize("interfaces", [(), (LIVES,)], ids=["no pod", "the pod lives"])
def test_a_backup_is_restored_whole_if_nothing_is_in_its_place(interfaces: tuple[Interface, ...]) -> None:
    back = restored(*interfaces, runs=RUNS[:1])[1]
    assert (texts(back), back.neighbours, back.left, back.differences) == ([ARP.text, DNAT.text], (NEIGHBOUR,), (), ())
    assert ROUTE in back.routes and back.files == (STATE_FILE,)


OBSTACLES: dict[str, tuple[tuple[Interface, ...], dict[str, Any], str]] = {
    "another pod has the address": ((OTHERS,), {}, "eth0 of process 2 has the address now, with the MAC 3a:"),
    "the node has the address": ((OTHERS._replace(namespace=""),), {}, "eth0 has the address now"),
    "the node reaches it elsewhere": ((), {"host_routes": {POD: frozenset({"lxc1"})}}, "reaches the address by lxc1 now"),
}


@pytest.mark.parametrize(("interfaces", "given", "told"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_would_divert_anothers_traffic_is_named_and_stays_in_the_backup(
    interfaces: tuple[Interface, ...], given: dict[str, Any], told: str
) -> None:
    back = restored(*interfaces, runs=RUNS[:1], **given)[1]
    assert (texts(back), back.neighbours, back.files) == ([], (), (STATE_FILE,))
    assert len(back.differences) == 4 and all(told in one for one in back.differences)
    (left,) = back.left
    assert (left.removed, left.neighbours, left.routes, left.files) == (RUNS[0].removed, (NEIGHBOUR,), (ROUTE,), ())
    plan, again = restored(*interfaces, runs=back.left, **given)
    assert plan.steps == () and again.differences == back.differences and again.left == back.left


def test_with_a_hidden_namespace_nothing_is_restored() -> None:
    with pytest.raises(Refusal, match="could be read: namespace blue. A live pod there may have an address"):
        restored(unread=("namespace blue",))
    assert restored(runs=RUNS[1:], unread=("namespace blue",))[1].files == (CONFIGURATION,)


def test_a_file_in_whose_place_is_another_stays_in_the_backup() -> None:
    empty = {STATE_FILE.path: files.Content("", 0o600)}
    back = restored(runs=RUNS[:1], files=empty)[1]
    assert back.files == () and back.left == (Run(files=(STATE_FILE,), boot="a boot"),)
    assert back.differences == (f"{STATE_FILE.path}: something else exists there now, and is left",)
    same = {STATE_FILE.path: files.Content(STATE_FILE.text, STATE_FILE.mode, STATE_FILE.owner)}
    assert restored(runs=RUNS[:1], files=same)[1].left == ()


def test_of_a_file_that_two_runs_moved_the_newer_content_is_restored_and_the_other_kept() -> None:
    earlier = STATE_FILE._replace(text="{}")
    runs = (Run(files=(earlier,), boot="a boot"), Run(files=(STATE_FILE,), boot="a boot"))
    back = restored(runs=runs)[1]
    assert back.files == (STATE_FILE,) and back.left == runs[:1]
    assert "restored as the last run moved it, and the backup keeps the content" in back.differences[0]
    there = {STATE_FILE.path: files.Content(STATE_FILE.text, STATE_FILE.mode, STATE_FILE.owner)}
    plan, again = restored(runs=back.left, files=there)
    assert plan.steps == () and again.left == back.left and len(again.differences) == 1
    assert restored(runs=(*back.left, runs[1]))[1].files == (STATE_FILE,), "removed and restored once more"
    assert restored(runs=(runs[1], runs[1]))[1].left == (), "the same content needs no other copy"


def test_of_an_earlier_boot_the_configuration_alone_is_restored() -> None:
    back = restored(boot="another boot")[1]
    assert (texts(back), back.neighbours, back.routes, back.files, back.left) == ([], (), (), (CONFIGURATION,), ())
    assert "2 of the clean-ups were before this boot" in back.differences[0]


def test_the_nodes_own_rule_is_not_restored_for_a_link_with_another_mac() -> None:
    place = Place("nft", "nat", "POSTROUTING")
    source = ListedRule(f"-s Unicast -o azure0 -j snat --to-src {MAC} --snat-arp")
    back = restored(runs=(Run((RemovedRules(place, (source,), frozenset({0})),), boot="a boot"),))[1]
    assert texts(back) == [] and f"azure0 has the MAC {NODE.macs[0]} now" in back.differences[0]
