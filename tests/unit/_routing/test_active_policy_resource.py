# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the active policy, whose text the diff of the rules and routes has already."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Outcome
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import active_policy_resource
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.active_policy_resource import ActivePolicyRecord


def test_the_record_is_in_no_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_policy_resource, "record", lambda protocol: str(tmp_path / f"{protocol}.json"))
    record = ActivePolicyRecord(files.Files(), 186, "{}\n")
    outcome = Outcome(((record, record.plan(record.observe())),))
    assert outcome.plans[0][1].steps and outcome.diff() == outcome.diff_by_object() == []
