# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backup of what was removed: what is written is read; what is damaged says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet import backup
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.backup import File, Run
from ansible_collections.kubenode.datapath.plugins.module_utils._azure_vnet.ebtables import Place, Removed, Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import IPV4, IPV6
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.neighbour import FAILED, Neighbour
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.route import IPV6_METRIC, LINK, Hop, Route

RULES = (Rule('--log-prefix "a b" -j CONTINUE'), Rule("-p ARP -j DROP", (5, 6)), Rule("-j DROP", (7, 8)))
RUNS = (
    Run(
        (Removed(Place("nft", "nat", "PREROUTING"), RULES, frozenset({1, 2})),),
        (File("/run/azure-vnet.json", '{"half \udc80', 0o600, (0, 7)),),
        (Neighbour("10.240.0.32", "azure0", "a2:96:88:20:cb:c6"), Neighbour("fd00::1", "azure0", "", FAILED)),
        (
            (Route(IPV4, 254, fields.prefix("10.240.0.32")[1], scope=LINK, hops=(Hop("azure0"),)), 3),
            (Route(IPV6, 254, fields.prefix("fd00::20")[1], IPV6_METRIC, hops=(Hop("azure0", b"\xfe\x80" + bytes(14)),)), 4),
        ),
    ),
    Run(files=(File("/etc/cni/net.d/10-azure.conflist", "", 0o644, (0, 0)),)),
)  # fmt: skip


def test_what_is_written_is_read() -> None:
    text = backup.to_text(RUNS)
    assert backup.from_text(text) == RUNS and text.startswith(backup.SIGNATURE)


@settings(deadline=None)
@given(st.integers(0, len(backup.to_text(RUNS)) - 2))
def test_half_a_backup_is_damaged(length: int) -> None:
    with pytest.raises(backup.Damaged):
        backup.from_text(backup.to_text(RUNS)[:length])


DAMAGED = [
    "",
    "null",
    "[]",
    "{}",
    '{"version": 2, "runs": []}',
    '{"version": 1, "runs": [{}]}',
    '{"version": 1, "runs": 7}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_what_is_no_backup_is_damaged(text: str) -> None:
    with pytest.raises(backup.Damaged):
        backup.from_text(text)


EDITS: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("AttributeError: 'list'", lambda run: run["chains"][0].update(removed=[])),
    ("IndexError: list index", lambda run: run["chains"][0]["removed"].update({"0": [1]})),
    ("'foo' 'nat' is not a table of an ebtables backend", lambda run: run["chains"][0].update(backend="foo")),
    ("'nft' 'mangle' is not a table of an ebtables backend", lambda run: run["chains"][0].update(table="mangle")),
    ("ValueError: not enough values", lambda run: run["files"][0].update(owner=[])),
    ("'etc/x' is not an absolute path", lambda run: run["files"][0].update(path="etc/x")),
    ("a value of type int is expected, and True was found", lambda run: run["files"][0].update(mode=True)),
    ("a value of type str is expected, and 7 was found", lambda run: run["files"][0].update(text=7)),
    ("Invalid: routes.to must be", lambda run: run["routes"][0].update(to="x")),
]


@pytest.mark.parametrize(("told", "edit"), EDITS, ids=[told for told, _edit in EDITS])
def test_an_edited_backup_is_damaged(told: str, edit: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(backup.to_text(RUNS))
    edit(content["runs"][0])
    with pytest.raises(backup.Damaged) as error:
        backup.from_text(json.dumps(content))
    assert told in str(error.value)


def test_a_chain_of_which_every_rule_was_removed_is_read() -> None:
    runs = (Run((Removed(Place("nft", "nat", "PREROUTING"), RULES, frozenset({0, 1, 2})),)),)
    assert backup.from_text(backup.to_text(runs)) == runs


def test_a_rule_that_the_chain_does_not_have_was_not_removed_from_it() -> None:
    with pytest.raises(backup.Damaged, match="a chain names a removed rule at a position that it does not have"):
        backup.from_text(backup.to_text(RUNS).replace('"2": [', '"9": ['))


def test_a_backup_of_another_version_is_named() -> None:
    with pytest.raises(backup.Damaged, match="its version is 2, and only version 1 is supported"):
        backup.from_text('{"version": 2, "runs": []}')
