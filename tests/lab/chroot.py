# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible on an image that is built: ansible-playbook enters the root by chroot, as Packer's chroot builders let it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import installation

from lab import collection, playbook
from lab.build import Build
from lab.playbook import Played


class ImagePlay:
    """A play on a root. ``content`` has its roles or tasks; its files are written into ``folder``."""

    def __init__(self, build: Build, folder: Path, content: Mapping[str, Any]) -> None:
        self._build = build
        self._play, self._inventory = folder / "play.yml", folder / "inventory.json"
        self._play.write_text(json.dumps([{"hosts": "image", "gather_facts": False, **content}]))
        host = {
            "ansible_connection": "community.general.chroot",
            "ansible_host": str(build.root),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_remote_tmp": "/tmp",
        }
        self._inventory.write_text(json.dumps({"all": {"hosts": {"image": host}}}))

    def run(self, *arguments: str, through: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> Played:
        """``through``: a command that runs the command after it, such as strace."""
        command = [*through, playbook.PROGRAM, "-i", str(self._inventory), str(self._play), *arguments]
        trees = {"ANSIBLE_COLLECTIONS_PATH": collection.path(installation.collections())}
        return playbook.run(self._build.around(command), {**trees, **(environment or {})})
