# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of CNIs run where their variables name them."""

from __future__ import annotations

from pathlib import Path

import installation
import pytest
import upstream_programs


def test_only_programs_that_are_named_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_CNI_HOST", raising=False)
    monkeypatch.setenv("AZURE_VNET", "/bin/true")
    assert upstream_programs.cnis() == {"AZURE_VNET": Path("/bin/true")}


def test_a_path_that_is_no_program_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CNI_HOST", str(tmp_path))
    with pytest.raises(installation.NotInstalled, match="AWS_CNI_HOST is .*, which is no program"):
        upstream_programs.cnis()
