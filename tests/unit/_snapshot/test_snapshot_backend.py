# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A snapshot asks the kernel once for what several of its readers need."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces import interfaces_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._interfaces.interfaces_backend import Interfaces
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot_backend

SUBSETS = ["links", "pods", "pod_neighbors"]


def test_the_network_namespaces_are_asked_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer() -> Interfaces:
        asked.append(1)
        return Interfaces(())

    monkeypatch.setattr(interfaces_backend, "_of_other_namespaces", answer)
    assert snapshot_backend.read(process.run, SUBSETS)["unread"] == [] and len(asked) == 1


def test_what_cannot_be_asked_is_noted_by_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Interfaces:
        raise Failure("the kernel refused to list links")

    monkeypatch.setattr(interfaces_backend, "_of_other_namespaces", refuse)
    unread = snapshot_backend.read(process.run, SUBSETS)["unread"]
    assert {entry["subset"] for entry in unread} == {*SUBSETS}
