# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report comes as a folder, a dictionary or a text, and shows no other file of the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes, pastes_backend


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"ip rule": "0: x\n"}, {"ip rule": "0: x\n"}),
        ({"ip rule": ["0: x", "1: y"], "ip route": None}, {"ip rule": "0: x\n1: y", "ip route": ""}),
        ('{"ip rule": "0: x"}', {"ip rule": "0: x"}),
        ("$ ip rule\n0: x\n", {"report": "$ ip rule\n0: x\n"}),
    ],
)
def test_the_forms_of_a_report(given: Any, texts: dict[str, str]) -> None:
    assert pastes_backend.report(given) == (texts, [])


@pytest.mark.parametrize("given", [5, ["a"], "", " ", {"ip rule": 5}, {"ip rule": [1]}, "/nowhere/at all"])
def test_another_form_is_an_error(given: Any) -> None:
    with pytest.raises(Invalid, match="^dump"):
        pastes_backend.report(given)


def test_a_folder_shows_its_own_files_only(tmp_path: Path) -> None:
    folder, secret = tmp_path / "report", tmp_path / "secret.txt"
    folder.mkdir()
    secret.write_text("root:x\n")
    (folder / "ip-rule.txt").write_bytes(b"0: \xff\n")
    (folder / "copy.txt").symlink_to("ip-rule.txt")
    (folder / "notes.md").write_text("left out")
    os.mkfifo(folder / "pipe.txt")
    assert pastes_backend.report(str(folder)).texts == {name: "0: \ufffd\n" for name in ("copy.txt", "ip-rule.txt")}
    (folder / "link.txt").symlink_to(secret)
    with pytest.raises(Invalid, match="not with links to files outside of it"):
        pastes_backend.report(str(folder))


def test_a_line_that_is_not_understood_is_shown_in_part_and_harmless() -> None:
    found = pastes.read({"report": "\x1b[2J" + "x" * 500, "ip-route": f"default via {'1' * 500} dev eth0\ndefault dev eth0\n"})
    assert len(found.ignored) == 2 and all(len(one) < 300 and one.isprintable() for one in found.ignored)
