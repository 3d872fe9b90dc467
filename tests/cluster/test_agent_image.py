# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of the DaemonSet's image, from another program's list of its files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab import image_storage
from lab.kubernetes import agent_image

LARGEST = 280 * 10**6  # bytes; it has 241 MB


@pytest.mark.sample
def test_the_list_of_its_contents_names_what_it_is_made_of(agent: str, tmp_path: Path) -> None:
    root, listed = tmp_path / "root", tmp_path / "contents"
    image_storage.extract(agent, root)
    program = Path(sys.executable).with_name("debsbom")
    subprocess.run([program, "generate", "--root", root, "-t", "cdx", "--out", listed], check=True, capture_output=True)
    (found,) = tmp_path.glob("contents*.json")
    versions = {one["name"]: one["version"] for one in json.loads(found.read_text())["components"] if one["type"] == "library"}
    assert {"ansible-core", "python3-prometheus-client", "python3-pyroute2", "util-linux"} <= set(versions)
    assert all(versions.values()) and tuple(map(int, versions["ansible-core"].split(".")[:2])) >= (2, 19)
    assert "nftables" not in versions, "the node has its own"
    assert sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink()) < LARGEST


def test_a_second_build_is_the_same_to_the_byte(agent: str) -> None:
    assert agent_image.layers(agent_image.build("again", "--no-cache")) == agent_image.layers(agent)
