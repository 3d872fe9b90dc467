# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runs before and after the confirmation of a checkpoint give one result."""

from __future__ import annotations

import typing as t

import pytest

pytest.importorskip("ansible")

from ansible_collections.kubenode.datapath.plugins.plugin_utils._checkpoint import merged  # noqa: E402


def entry(plane: str, name: str, after: str) -> dict[str, str]:
    header = f"{plane}: {name}"
    return {"before_header": header, "after_header": header, "before": "", "after": after}


FIRST: dict[str, t.Any] = {
    "changed": True,
    "diff": [entry("immediate", "rules", "rule\n"), entry("permanent", "package", "nft\n")],
    "warnings": ["one"],
    "rp_filter": {"changed": False, "interfaces": {}},
    "policy_routes": {"changed": True, "rules": 1},
    "summary": ["policy_routes (present): changed rules", "rp_filter (present): as desired: filter"],
}
SECOND: dict[str, t.Any] = {
    "changed": True,
    "diff": [entry("permanent", "/etc/x", "text\n")],
    "warnings": ["one", "two"],
    "rp_filter": {"changed": True, "interfaces": {}},
    "policy_routes": {"changed": False, "rules": 0},
    "summary": ["policy_routes (present): as desired: rules", "rp_filter (present): changed /etc/x"],
}


def test_an_object_is_one_entry_of_the_diff_and_a_module_has_changed_if_a_run_of_it_has() -> None:
    result = merged([FIRST, SECOND])
    assert result["diff"] == [
        entry("immediate", "rules", "rule\n"),
        entry("permanent", "package", "nft\n"),
        entry("permanent", "/etc/x", "text\n"),
    ]
    assert result["warnings"] == ["one", "two"]
    assert result["rp_filter"] == {"changed": True, "interfaces": {}}
    assert result["policy_routes"] == {"changed": True, "rules": 1}, "what the first run did"
    assert result["summary"] == [*FIRST["summary"], "after the confirmation, rp_filter (present): changed /etc/x"]


def test_one_run_is_its_own_result() -> None:
    assert merged([FIRST]) == FIRST
