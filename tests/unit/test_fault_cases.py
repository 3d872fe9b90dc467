# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fault harness changes each option of each module, or gives the reason for leaving it out."""

from __future__ import annotations

import importlib

import pytest

PARTS = "ansible_collections.kubenode.datapath.plugins.module_utils._parts"
OF_EACH_RUN = {"state", "checkpoint", "checkpoint_command"}


def test_each_option_is_changed_or_left_out_with_a_reason() -> None:
    pytest.importorskip("ansible")
    from faults import cases

    for module in {case.module for case in cases.CASES if not case.is_reader}:
        options = importlib.import_module(f"{PARTS}.{module}").OPTIONS
        left_out = cases.LEFT_OUT.get(module, set())
        names = (name for case in cases.CASES if case.module == module for name in case.changes)
        changed = {name.split()[0] for name in names}  # as "path to another folder"
        assert {*options} - OF_EACH_RUN == changed | left_out, module
        assert not left_out & changed, module
