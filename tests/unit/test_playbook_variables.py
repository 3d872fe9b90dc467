# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The public variables of the playbooks: those that are documented, and extra variables that look like one and are none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _batches

pytest.importorskip("ansible")  # which the oldest Python does not have

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _playbook_variables, _profiles

ROOT = Path(__file__).resolve().parents[2]
KNOWN = ["aks_dual_stack_state", "aks_dual_stack_mode"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("targt", "kubenode_target"),
        ("target", "kubenode_target"),
        ("report", "kubenode_report"),
        ("targets", "kubenode_target"),
        ("tagret", "kubenode_target"),
        ("batchs", "kubenode_batches"),
        ("batch", "kubenode_batches"),
        ("max_fail_percentage", "kubenode_max_failed_percentage"),
        ("kubenode_targets", "kubenode_target"),
        ("kubenode_limit", ""),
        ("kubenod_target", "kubenode_target"),
        ("aks_dual_stack_stat", "aks_dual_stack_state"),
        ("aks_dual_stack_region", ""),
    ],
)
def test_a_variable_that_looks_like_a_public_variable_and_is_none(name: str, near: str) -> None:
    (sentence,) = _playbook_variables.unknown("aks_dual_stack", [name, "ansible_user", *KNOWN])
    assert sentence.startswith(f"{name} is not a variable of this playbook. Did you mean ") and near in sentence


@pytest.mark.parametrize("name", ["ansible_user", "port", "region", "zone", "audit_folder", "eni_policy_routing_state"])
def test_other_variables_are_not_meant(name: str) -> None:
    assert _playbook_variables.unknown("aks_dual_stack", [name]) == []


def test_a_playbook_has_its_own_variables() -> None:
    assert _playbook_variables.unknown("audit", ["audit_folder", "kubenode_target"]) == []
    assert "audit_folder?" in _playbook_variables.unknown("audit", ["audit_foldr"])[0]


@pytest.mark.parametrize("playbook", [*_playbook_variables.NAMES, *_profiles.PROFILES])
def test_a_playbook_that_imports_several_may_set_the_variables_of_each(playbook: str) -> None:
    profiles = [f"{name}_{option}" for name in _profiles.PROFILES for option in _profiles.options_of(name)]
    names = [name for others in _playbook_variables.NAMES.values() for name in others]
    extra = [*names, *profiles, *_playbook_variables.ROLLOUT, 1]
    assert _playbook_variables.unknown(playbook, extra) == []


def test_the_documentation_has_the_variables_with_their_defaults() -> None:
    of_rollout = (ROOT / "docs/fleet.md").read_text().partition("| default |")[2].partition("\n\n")[0]
    table = re.findall(r"^\| `(kubenode_\w+)` \|(.*?)\|", of_rollout, re.MULTILINE)
    defaults = {name: option.default for name, option in _playbook_variables.ROLLOUT.items()}
    defaults["kubenode_batches"] = f"[{', '.join(_batches.DEFAULT)}]"
    assert {name: text.strip("` ") for name, text in table} == {name: str(default or "") for name, default in defaults.items()}


@pytest.mark.parametrize("playbook", [*_playbook_variables.NAMES, "common/profile"])
def test_a_playbook_lists_its_variables(playbook: str) -> None:
    head = (ROOT / f"playbooks/{playbook}.yml").read_text().partition("\n- name:")[0]
    assert {name for name in _playbook_variables.names(playbook) if not re.search(rf"\b{name}\b", head)} == set()


@pytest.mark.parametrize(
    ("words", "total", "sizes", "pairs"),
    [
        (["1", "25%"], 3, [1, 1, 1], ["1", "2", "2"]),
        (["1", "25%"], 9, [1, 2, 2, 2, 2], ["1", "2", "2", "2", "2"]),
        (["10"], 3, [3], ["3"]),
        (["100%"], 4, [4], ["4"]),
        (["1", "2"], 1, [1], ["1"]),
    ],
)
def test_batches_are_split_as_ansible_splits_them(words: list[str], total: int, sizes: list[int], pairs: list[str]) -> None:
    assert _batches.sizes(words, total) == sizes and _batches.in_pairs(words, total) == pairs


def test_a_batch_of_a_single_node_in_the_middle() -> None:
    assert [_batches.lonely(words, 3) for words in (["1"], ["1", "2"], ["2", "1"])] == [2, 0, 0]
