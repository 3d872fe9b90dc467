# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A backup reads back as it was written, also one of release 1.0.0; what a run can not have undone is an error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._ebtables import ebtables_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import azure_leftovers, backup_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.azure_leftovers import Facts
from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers.backup_backend import Backup, Damaged, Node, Run
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter import iptables_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, RemovedRules
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Rule, Table
from unit._leftovers.backups import BACKUP, FORMER, FRAMES, IPTABLES, LINKS, TEXT


def test_a_written_backup_reads_back() -> None:
    assert backup_backend.from_text(TEXT) == BACKUP and all(text.startswith(backup_backend.SIGNATURE) for text in (TEXT, *FORMER))


def test_a_backup_of_release_1_0_0_is_read_in_full() -> None:
    frames, rules, links = (backup_backend.from_text(text).runs for text in FORMER)
    ((removed, *_others),) = (run.of(ebtables_backend.RestoreRules) for run in frames)
    assert [sorted(chain.gone) for chain in removed.removed] == [[0], [0, 1, 2, 3], [0]]
    assert [chain.rules[0].counters for chain in removed.removed] == [(0, 0), (0, 0), (3, 308)]
    assert [path for path, _content in frames[0].files] == ["/run/azure-vnet.json", "/etc/cni/net.d/10-azure.conflist"]
    assert [str(change.item) for _protocol, change in frames[0].changes] == [
        "10.240.0.25 dev azure0 lladdr a2:96:88:20:00:15 PERMANENT",
        "ip route 10.240.0.25 dev azure0 table main scope link",
    ]
    assert [len(undo.removed) + len(undo.chains) for undo in rules[0].undo] == [4, 1, 1]
    assert [undo.report()["text"] for undo in links[0].undo] == ["azSnatbr", "azSnatveth0", "fd00:10:241::1/64"]


def test_names_in_a_backup_are_those_of_its_version() -> None:
    """A backup outlives the collection that wrote it."""
    assert backup_backend.VERSION == 3
    names = {name: getattr(kind, "_fields", ()) for name, kind in backup_backend.KNOWN.items()}
    assert names == {
        "_leftovers.backup_backend.Backup": ("node", "runs"),
        "_leftovers.backup_backend.Node": ("machine", "macs"),
        "_leftovers.backup_backend.Run": ("undo", "boot"),
        "_netfilter.chain.RemovedRules": ("place", "rules", "gone"),
        "_netfilter.chain.Place": ("backend", "table", "chain"),
        "_netfilter.chain.ListedRule": ("text", "counters"),
        "_netfilter.iptables.Table": ("family", "name", "backend"),
        "_files.files.Content": ("text", "mode", "owner"),
        "_routing.routing_backend.Change": ("verb", "item", "former"),
        "_routing.neighbour.Neighbour": ("address", "link", "mac", "state"),
        "_routing.route.Route": (
            *("family", "table", "dst", "metric", "type", "scope", "src", "mtu", "hops", "unread", "beside"),
        ),
        "_routing.route.Hop": ("dev", "via", "onlink", "weight"),
        "_leftovers.removed_link_backend.End": ("name", "number", "mac", "mtu", "is_up", "master"),
        "_ebtables.ebtables_backend.RestoreRules": ("backend", "removed"),
        "_netfilter.iptables_backend.RestoreRules": ("table", "removed", "chains"),
        "_files.files.Put": ("path", "desired"),
        "_routing.routing_backend.Apply": ("protocol", "changes"),
        "_leftovers.removed_link_backend.RestoreLink": ("ends", "ports", "addresses", "neighbours", "settings"),
        "_leftovers.removed_link_backend.RestoreAddress": ("link", "address", "flags"),
    }


@settings(deadline=None)
@given(st.sampled_from([TEXT, *FORMER]), st.data())
def test_half_a_backup_is_damaged(text: str, data: st.DataObject) -> None:
    with pytest.raises(Damaged):
        backup_backend.from_text(text[: data.draw(st.integers(0, len(text) - 2))])


ARP = "-p ARP --arp-op Request --arp-ip-dst 10.240.0.25 -j arpreply --arpreply-mac a2:96:88:20:00:15"
EDITS = {  # of the text of a backup: what is replaced, by what, and a part of the error
    "another version": ('"version": 3', '"version": 4', "its version is 4, and only version 3"),
    "another program": ('"version": 3', '"version": 1', "its version is 1, and only version 3"),
    "no run": ('"_leftovers.backup_backend.Run":', '"_leftovers.backup_backend.Node":', "TypeError"),
    "another class": ("_files.files.Put", "_files.files.Remove", "_files.files.Remove is not in the vocabulary"),
    "a value that is no operation": ('"undo":[', '"undo":[7,', "KeyError"),
    "a step instead of an undo": ('"verb":"add"', '"verb":"delete"', "only an addition restores"),
    "another field": ('"protocol":3', '"protocol":3,"priority":1', "priority"),
    "a protocol as text": ('"protocol":3', '"protocol":"3"', "protocol is '3'"),
    "a MAC of the node": ('"macs":["02:00:00:00:00:00"]', '"macs":["x"]', "'x' is not a MAC"),
    "a table of ebtables": ('"table":"filter"', '"table":"mangle"', "not in a table of the ebtables backend 'nft'"),
    "a backend": ('"backend":"nft","removed"', '"backend":"foo","removed"', "not in a table of the ebtables backend 'foo'"),
    "two lines": (ARP, ARP.replace(" -j", "\\n-j"), "is no rule of azure-vnet"),
    "a foreign rule": (ARP, ARP.replace("-j arpreply", "-j DROP"), "is no rule of azure-vnet"),
    "a foreign chain": ('"chain":"PREROUTING"', '"chain":"INPUT"', "is no rule of azure-vnet"),
    "a position beyond the end": ('"set":[0,1,2,3]', '"set":[0,9]', "at a position that it does not have"),
    "a position before the begin": ('"set":[0,1,2,3]', '"set":[-1]', "at a position that it does not have"),
    "a position as a truth value": ('"set":[0,1,2,3]', '"set":[true]', "gone is"),
    "a counter": ('"counters":[3,308]', '"counters":[-1,308]', "a number from 0 to"),
    "one counter": ('"counters":[3,308]', '"counters":[3]', "counters is (3,)"),
    "a file of another program": ("/run/azure-vnet.json", "/etc/shadow", "'/etc/shadow' is neither a state file"),
    "a file above the folder": ("net.d/10-azure.conflist", "net.d/../x", "/net.d/../x' is neither a state file"),
    "the folder above": ("net.d/10-azure.conflist", "net.d/..", "/net.d/..' is neither a state file"),
    "a mode": ('"mode":384', '"mode":4096', "a number from 0 to 4095"),
    "a mode as text": ('"mode":384', '"mode":"0600"', "mode is '0600'"),
    "an owner": ('"mode":384', '"mode":384,"owner":[0,4294967295]', "a number from 0 to 4294967294"),
    "a link's name": ('"link":"azure0","mac"', '"link":"a b","mac"', "neighbors.link must be"),
    "a neighbour's state": ('"mac":"a2:96:88:20:00:15"}', '"mac":"a2:96:88:20:00:15","state":7}', "7 is not the state"),
    "a neighbour's MAC": ('"mac":"a2:96:88:20:00:15"}', '"mac":"x"}', "'x' is not a MAC"),
    "a route to a subnet": ('{"bytes":"0af00019"},32', '{"bytes":"0af00000"},16', "is not a route to one address"),
    "a route in another table": ('"table":254', '"table":7', "is not a route to one address"),
    "a route that no option gives": ('"scope":253', '"scope":9', "routes.scope must be"),
    "a table of iptables": ('"family":"ip6"', '"family":"inet"', "is not a table of iptables"),
    "options of iptables": ('"family":"ip","name":"nat"', '"family":"ip","name":"nat -F"', "is not a table of iptables"),
    "a foreign chain of iptables": ('"chains":["SWIFT"', '"chains":["OWN"', "'OWN' is not the name of a chain of azure-vnet"),
    "a foreign rule of iptables": ('"-j SWIFT"', '"-j DROP"', "is no rule of azure-vnet"),
    "two rules of iptables": ('"-j SWIFT"', '"-j SWIFT\\nCOMMIT\\n*filter"', "is no rule of azure-vnet"),
    "a chain in another table": ('"table":"ip nat (nft)"', '"table":"ip raw (nft)"', "is not a chain of table ip nat (nft)"),
    "a foreign link": ('"azSnatbr"', '"eth7"', "eth7 is not a link of azure-vnet"),
    "an index": ('"number":5', '"number":0', "a number from 1 to"),
    "an MTU": ('"mtu":1500', '"mtu":67', "a number from 68 to"),
    "an MTU as a truth value": ('"mtu":1500', '"mtu":true', "mtu is True"),
    "a length": ("169.254.128.1/17", "169.254.128.1/33", "a number from 0 to 32"),
    "a setting": ("net/ipv4/conf/azSnatbr/proxy_arp", "kernel/panic", "'kernel/panic' is not a setting of azSnatbr"),
    "an address of the node": ("fd00:10:241::1/64", "10.0.0.4/24", "10.0.0.4/24 is not the gateway of an IPv6 subnet"),
}  # fmt: skip


FORMER_EDITS = {  # of a file of release 1.0.0, whose objects pass the same checks
    "a version before 1.0.0": (FRAMES, '"version": 2', '"version": 1', "its version is 1"),
    "a version of another kind": (LINKS, '"version": 1', '"version": 2', "its version is 2"),
    "another kind": (LINKS, "cleanup, links", "cleanup, x", "its version is 1"),
    "another field of 1.0.0": (FRAMES, '"mac":', '"lladdr":', "KeyError"),
    "a foreign rule of iptables in 1.0.0": (IPTABLES, '"-j SWIFT"', '"-j DROP"', "is no rule of azure-vnet"),
    "a foreign link in 1.0.0": (LINKS, '"azSnatveth1"', '"eth7"', "azSnatveth0, eth7 is not a link of azure-vnet"),
}  # fmt: skip
ALL_EDITS = {**{name: (TEXT, *edit) for name, edit in EDITS.items()}, **FORMER_EDITS}


@pytest.mark.parametrize(("text", "part", "other", "told"), ALL_EDITS.values(), ids=ALL_EDITS)
def test_an_edited_backup_is_damaged(text: str, part: str, other: str, told: str) -> None:
    edited = text.replace(part, other)
    assert edited != text
    with pytest.raises(Damaged) as error:
        backup_backend.from_text(edited)
    assert told in str(error.value)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"version": 3}', "[" * 100_000, '{"version": 3, "backup": "x"}'])
def test_another_text_is_damaged(text: str) -> None:
    with pytest.raises(Damaged):
        backup_backend.from_text(text)


RAW, MANGLE = Table("ip", "raw", "nft"), Table("ip", "mangle", "nft")
CERTAIN = [
    Rule(RAW, "PREROUTING", "-i eth0 -m set --match-set azure-tt-local-pods src,dst -j CT --notrack"),
    Rule(RAW, "PREROUTING", "-i eth0 -m set --match-set azure-tt-local-pods src,dst -j NOTRACK"),
    Rule(MANGLE, "PREROUTING", "-i azv0123456789a -j MARK --set-xmark 0x3/0xffffffff"),
]


@pytest.mark.parametrize("rule", CERTAIN, ids=lambda rule: rule.text)
def test_what_a_run_removes_may_be_in_its_backup(rule: Rule) -> None:
    """Otherwise the run would write a backup that no later run reads."""
    (found,) = azure_leftovers.find(Facts((rule,)))
    removed = RemovedRules(rule.table.at(rule.chain), (ListedRule(rule.text),), frozenset({0}))
    backup = Backup(BACKUP.node, (Run((iptables_backend.RestoreRules(rule.table, (removed,)),), "a boot"),))
    assert found.is_certain and backup_backend.from_text(backup_backend.to_text(backup)) == backup


NODE = BACKUP.node
NODES = {
    "itself": (NODE, True),
    "with another network interface beside": (NODE._replace(macs=(*NODE.macs, "02:00:00:00:00:09")), True),
    "with another network interface": (NODE._replace(macs=("02:00:00:00:00:09",)), False),
    "with another machine-id": (NODE._replace(machine="x"), False),
    "without network interfaces": (NODE._replace(macs=()), False),
}


@pytest.mark.parametrize(("node", "is_same"), NODES.values(), ids=NODES)
def test_a_node_is_known_by_its_machine_id_and_a_mac(node: Node, is_same: bool) -> None:
    assert NODE.is_same(node) == is_same == node.is_same(NODE)
