# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check of a setting is one function, which reads the same value of a running node, of a paste and of a bundle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.finding import Check
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import Node
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.suspicion import NOTE, Remedy, Suspicion
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes, pastes_backend

KEY = "net.ipv4.fib_multipath_hash_policy"


def look(node: Node) -> Iterator[Suspicion]:
    if node.sysctl(KEY) == 0:
        yield Suspicion(KEY, f"{KEY} is 0.", (f"{KEY} = 0",), Remedy(operator=f"Set {KEY} to 1"))


CHECK = Check("toy", NOTE, "Flows share a path.", "The setting.", "Set it to 1.", "https://docs.kernel.org/", look)


def live(value: int, _folder: Path) -> Any:
    return {"settings": {"node": {KEY: value}}}


def paste(value: int, _folder: Path) -> Any:
    return pastes.read({"sysctl": f"{KEY} = {value}\n"}).snapshot


def bundle(value: int, folder: Path) -> Any:
    files = {"kernel/sysctl_-a": f"{KEY} = {value}\n", "networking/ip_-4_rule_list": "0:\tfrom all lookup local\n"}
    for name, text in files.items():
        path = folder / "sos_commands" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return pastes_backend.read(str(folder)).snapshot


def never(*_arguments: Any, **_options: Any) -> Any:
    raise AssertionError("a check of a setting starts no program")


@pytest.mark.parametrize("evidence", [live, paste, bundle])
@pytest.mark.parametrize(("value", "states"), [(0, ["present"]), (1, [])])
def test_a_new_check_reads_a_setting_from_each_kind_of_evidence(
    evidence: Any, value: int, states: list[str], tmp_path: Path
) -> None:
    audit = audit_backend.Audit(evidence(value, tmp_path), [CHECK], does_prove=False)
    result = audit_backend.result(audit, never)
    assert [finding["state"] for finding in result["findings"]] == states
    assert result["passed"] == ([] if states else ["toy"])


def test_a_setting_that_was_not_read_is_open() -> None:
    audit = audit_backend.Audit({"settings": {"node": {}}}, [CHECK], does_prove=False)
    (finding,) = audit_backend.result(audit, never)["findings"]
    assert (finding["state"], finding["ask"]) == ("cannot_tell", f"sysctl {KEY}")
