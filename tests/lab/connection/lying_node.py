# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E402 - Ansible wants the documentation above the imports
from __future__ import annotations

DOCUMENTATION = """
name: lying_node
short_description: A node that answers without running anything, honestly or with a lie
description:
  - For tests only. Answers a module by its documented sample, and an action's shell command by what an honest node prints.
  - Records each request in the file C(requests) of the folder, one JSON list a line.
author: kubenode.datapath contributors
options:
  folder:
    description: The folder with C(honest.json), the honest answers by module, and with C(names.json), names of variables.
    type: path
    required: true
    vars:
      - name: lying_node_folder
  name:
    description: The name of the node.
    type: string
    required: true
    vars:
      - name: lying_node_name
  lie:
    description: The name of a lie of C(lab/lies.py). Empty for an honest node.
    type: string
    default: ""
    vars:
      - name: lying_node_lie
  shell_lie:
    description: The same for the answers to commands of a shell.
    type: string
    default: ""
    vars:
      - name: lying_node_shell_lie
  modules:
    description: The name of the only module to whose answer the lie applies. Empty for all.
    type: string
    default: ""
    vars:
      - name: lying_node_modules
  arms:
    description: Whether the first module arms a checkpoint, as if it had changed the node.
    type: bool
    default: false
    vars:
      - name: lying_node_arms
  victim:
    description: The name of another node, which lies name.
    type: string
    default: victim
    vars:
      - name: lying_node_victim
extends_documentation_fragment:
  - connection_pipelining
"""

import io
import json
import re
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.plugins.connection import ConnectionBase

# Ansible imports this file for each task. The package lab would take longer than the task.
sys.path.append(str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from lab import lies
else:
    import lies

_MODULE = re.compile(rb"ansible_collections\.kubenode\.datapath\.plugins\.modules\.(\w+)|ansible\.(?:legacy|modules)\.(\w+)")


class Connection(ConnectionBase):
    """A node that runs nothing."""

    transport = "lying_node"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Answer a module's payload or a shell command. Returns an exit status, stdout and stderr."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        module = _MODULE.search(in_data or b"")
        if module is None:
            self._record("shell", cmd)
            out = lies.printed(self.get_option("shell_lie"), {}, self._liar(), ()) if self.get_option("shell_lie") else b""
            return 0, out or lies.shell(cmd).encode(), b""
        name = (module[1] or module[2]).decode()
        self._record("module", name)
        honest = {**self._read("honest.json")[name], **self._armed()}
        lie = self.get_option("lie") if self.get_option("modules") in ("", name) else ""
        answer = lies.printed(lie, honest, self._liar(), self._read("names.json"))
        return int(b'"failed": true' in answer[:4096]), answer, b""

    def _armed(self) -> dict[str, Any]:
        armed = Path(self.get_option("folder"), "armed", self.get_option("name"))
        if not self.get_option("arms") or armed.exists():
            return {}
        armed.touch()
        return {"changed": True, "checkpoint_armed": {"id": "1", "life": "boot", "left": 2.0}}

    def put_file(self, in_path: str, out_path: str) -> None:
        """Record the names of the files in an archive, or the path of another file."""
        super().put_file(in_path, out_path)
        data = Path(in_path).read_bytes()
        if data.startswith(b"\x1f\x8b"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                self._record("archive", archive.getnames())
        else:
            self._record("file", out_path)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Write a file of the node."""
        super().fetch_file(in_path, out_path)
        self._record("fetch", in_path)

    def close(self) -> None:
        self._connected = False

    def _liar(self) -> lies.Liar:
        folder, name = self.get_option("folder"), self.get_option("name")
        return lies.Liar(name, self.get_option("victim"), f"{folder}/markers/{name}", f"{folder}/elsewhere")

    def _read(self, name: str) -> Any:
        return json.loads(Path(self.get_option("folder"), name).read_text())

    def _record(self, kind: str, value: object) -> None:
        with Path(self.get_option("folder"), "requests").open("a") as file:
            file.write(json.dumps([self.get_option("name"), kind, value]) + "\n")
