# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of the checkout, the tree by which Python and Ansible find it as a collection, and the collection's artifact."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from lab import host

CHECKOUT = Path(__file__).resolve().parents[2]
TREE = CHECKOUT / ".build" / "collections"
"""For ANSIBLE_COLLECTIONS_PATH and PYTHONPATH."""


def path(*besides: Path) -> str:
    """For ANSIBLE_COLLECTIONS_PATH, if other trees are needed as well."""
    return ":".join(map(str, [link(), *besides]))


def link() -> Path:
    """Make TREE where it is missing: ``ansible_collections/kubenode/datapath`` is a symlink to the checkout."""
    place = TREE / "ansible_collections" / "kubenode" / "datapath"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another run does it at the same time
            place.symlink_to(CHECKOUT, target_is_directory=True)
    return TREE


def build(folder: Path) -> Path:
    """Writes the collection's artifact, the file for Galaxy, into ``folder``."""
    program = Path(sys.executable).with_name("ansible-galaxy")
    command: list[str | Path] = [program, "collection", "build", "--output-path", folder, CHECKOUT]
    host.run(command)
    (artifact,) = folder.glob("*.tar.gz")
    return artifact
