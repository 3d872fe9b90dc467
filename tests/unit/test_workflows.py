# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workflows that publish: each of their commands is a target of make, which can be run and tested on any machine."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github/workflows"
COMMAND = re.compile(r"^ +(?:- )?run: (.*)", re.MULTILINE)
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["release", "docs"])
def test_each_command_is_a_target_of_make(name: str) -> None:
    commands = COMMAND.findall((WORKFLOWS / f"{name}.yml").read_text())
    targets = [
        match and match[1]
        for match in (re.fullmatch(r"make ([a-z-]+)( PLACE=\S+| PLACE=\$\{\{.*\}\})?", line) for line in commands)
    ]
    assert targets and set(targets) <= TARGETS, commands


def test_the_release_hands_its_artefacts_to_each_place() -> None:
    """``site`` is published by the workflow docs, for the main branch too."""
    pytest.importorskip("cyclonedx")  # of the SBOM; the oldest Python has no tools of a release
    publication = importlib.import_module("publishing.publication")
    text = "".join((WORKFLOWS / f"{name}.yml").read_text() for name in ("release", "docs"))
    named = set(re.findall(r"PLACE=([a-z]+)|- place: ([a-z]+)", text))
    assert {first or second for first, second in named} == set(publication.PLACES)
