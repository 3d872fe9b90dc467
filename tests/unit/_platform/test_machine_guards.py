# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a machine is that of a Node object."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import machine_guards
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.machine_guards import MACHINE, UUID

A, B = "0a" * 16, "0b" * 16
HERE = {MACHINE: A, UUID: "4C4C4544-0042"}


@pytest.mark.parametrize(
    ("identity", "observed", "reason"),
    [
        ({}, HERE, ""),
        ({"name": "node1", MACHINE: "", UUID: None}, HERE, ""),
        ({MACHINE: A}, HERE, ""),
        ({MACHINE: A.upper(), UUID: "4c4c4544-0042"}, HERE, ""),
        ({MACHINE: A, UUID: "x"}, {MACHINE: A, UUID: ""}, ""),
        ({MACHINE: A, UUID: "4c4c4544-0042"}, {**HERE, MACHINE: ""}, ""),
        ({MACHINE: B}, HERE, f"its machine id is {A}, and that of the Node object is {B}"),
        # A clone of an image that keeps its machine id.
        ({MACHINE: A, UUID: "other"}, HERE, "its system UUID is 4C4C4544-0042, and that of the Node object is other"),
        ({MACHINE: B, UUID: "4c4c4544-0042"}, HERE, f"its machine id is {A}, and"),
        ({MACHINE: A, UUID: "u"}, {MACHINE: "", UUID: ""}, f"machine id {A} and system UUID u cannot be read on it"),
        ({UUID: "u"}, {MACHINE: A, UUID: ""}, "system UUID u cannot be read on it"),
    ],
)
def test_a_machine_is_the_node_if_nothing_differs_and_something_is_equal(
    identity: dict[str, str | None], observed: dict[str, str], reason: str
) -> None:
    difference = machine_guards.difference(identity, observed)
    assert difference.startswith(reason) and bool(difference) is bool(reason)


def test_this_machine_is_itself_and_no_other() -> None:
    here = machine_guards.observe()
    machine_guards.require_node(None)
    machine_guards.require_node(here)
    with pytest.raises(Refusal, match="is not known to be the node node7: .* Nothing was changed. .*--flush-cache"):
        machine_guards.require_node({"name": "node7", MACHINE: B, UUID: "none"})
