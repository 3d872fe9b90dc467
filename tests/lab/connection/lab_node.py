# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ruff: noqa: E402 - Ansible wants the documentation above the imports
from __future__ import annotations

DOCUMENTATION = """
name: lab_node
short_description: enter the namespaces of a node of the lab
description:
  - For tests only. Runs commands in the namespaces of a process, by C(nsenter).
  - Refuses a process that lives in its own network namespace or in that of process 1.
author: kubenode.datapath contributors
options:
  pid_file:
    description: A file with the pid of a process in the node. Read afresh for each command, as a restart changes the pid.
    type: path
    required: true
    vars:
      - name: lab_node_pid_file
  namespaces:
    description:
      - "What to enter, as C(nsenter)'s long options: V(net mount) for a node made of namespaces, V(all) for a container."
    type: string
    default: net mount
    vars:
      - name: lab_node_namespaces
extends_documentation_fragment:
  - connection_pipelining
"""

import shlex
import subprocess
import sys
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase

# Ansible loads this file by its path; the package lab is in tests/.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from lab import entering


class Connection(ConnectionBase):
    """A node of the lab, by the pid of a process in it."""

    transport = "lab_node"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True  # each command enters anew
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run a shell command on the node. Returns its exit status, stdout and stderr."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        try:
            argv = entering.command(self._pid(), self.get_option("namespaces").split(), ["/bin/sh", "-c", cmd])
        except entering.LabError as error:
            raise AnsibleConnectionFailure(f"lab_node: {error}") from error
        result = subprocess.run(argv, input=in_data or b"", capture_output=True, check=False, cwd="/", env=entering.ENVIRONMENT)
        return result.returncode, result.stdout, result.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the controller to the node."""
        super().put_file(in_path, out_path)
        if not Path(in_path).exists():
            raise AnsibleFileNotFound(f"lab_node: no file {in_path} on the controller")
        self._transfer(f"cat > {shlex.quote(out_path)}", Path(in_path).read_bytes())

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the node to the controller."""
        super().fetch_file(in_path, out_path)
        Path(out_path).write_bytes(self._transfer(f"cat -- {shlex.quote(in_path)}"))

    def close(self) -> None:
        self._connected = False

    def _transfer(self, cmd: str, data: bytes = b"") -> bytes:
        status, out, error = self.exec_command(cmd, in_data=data)
        if status != 0:
            raise AnsibleConnectionFailure(f"lab_node: {cmd} answered {status}: {error.decode(errors='replace')}")
        return out

    def _pid(self) -> int:
        path = self.get_option("pid_file")
        try:
            return int(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise AnsibleConnectionFailure(f"lab_node: no pid in {path}: {error}; is the lab still running?") from error
