# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nsenter
short_description: Manage the node from a pod on it
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Runs the modules on the node itself, in the namespaces of its process 1, by nsenter(1). Ansible must run in a pod that shares
    the node's processes (C(hostPID)), such as those of this collection's DaemonSet.
  - Files are copied through the same namespaces, so that no folder of the node has to be mounted into the pod.
  - Refuses to run if the pod does not see the node's processes, because the modules would then change the pod itself.
  - To enter the namespaces, the pod needs root and the capabilities C(SYS_ADMIN), C(SYS_PTRACE) and C(SYS_CHROOT). It also needs
    the capabilities that the modules need on the node.
requirements:
  - The programs C(nsenter) and C(sh).
options:
  pid:
    description: The process of the node whose namespaces are entered.
    type: int
    default: 1
    vars:
      - name: ansible_nsenter_pid
  remote_user:
    description: The user who runs the modules. Only root is supported.
    type: str
    default: root
    vars:
      - name: ansible_user
  checkpoint_proof:
    description:
      - A program in the pod, with its arguments, that succeeds only if the node's network works. It proves a change under
        O(kubenode.datapath.profile#module:checkpoint), which this connection cannot, because it does not use that network.
      - The program starts in the pod's namespaces after the change, again and again until it ends with status 0 or the
        checkpoint's time is over.
      - Only the environment of Ansible sets it. No variable does, because a node may set variables.
    type: str
    env:
      - name: KUBENODE_CHECKPOINT_PROOF
    version_added: 1.1.0
extends_documentation_fragment:
  - connection_pipelining
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable

# mount: files and programs. net: routes, rules, settings. uts: the host's name. ipc: message queues of systemd's units. pid: a
# process that a module starts is the node's, and outlives the pod. cgroup: systemd's view of the units.
NAMESPACES = ("mount", "uts", "ipc", "net", "pid", "cgroup")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LAST_WORDS = 500  # characters of a proof that failed
ENVIRONMENT = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}


class Connection(ConnectionBase):
    transport = "kubenode.datapath.nsenter"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._check()
        self._connected = True  # each command enters anew
        return self

    def _check(self) -> None:
        pid = self.get_option("pid")
        try:
            is_outside = os.stat(f"/proc/{pid}/ns/mnt").st_ino != os.stat("/proc/self/ns/mnt").st_ino
        except OSError as error:
            raise AnsibleConnectionFailure(
                f"nsenter: the namespaces of process {pid} cannot be read: {error.strerror}. Nothing was changed. Run the pod as"
                " root with hostPID, SYS_ADMIN and SYS_PTRACE, and without an AppArmor profile that forbids it"
            ) from error
        if not is_outside:
            raise AnsibleConnectionFailure(
                f"nsenter: process {pid} is in this pod, so that the pod would be changed instead of the node. Nothing was"
                " changed. Set hostPID of the pod to true"
            )
        if shutil.which("nsenter") is None:
            raise AnsibleConnectionFailure("nsenter: the program nsenter (package util-linux) is not installed here. Install it")

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run a shell command on the node. Returns its exit status, stdout and stderr."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        entered = [f"--{name}" for name in NAMESPACES]
        argv = ["nsenter", f"--target={self.get_option('pid')}", *entered, "--", "/bin/sh", "-c", cmd]
        completed = subprocess.run(argv, input=in_data or b"", capture_output=True, check=False, cwd="/", env=ENVIRONMENT)
        return completed.returncode, completed.stdout, completed.stderr

    def prove(self, patience: float) -> str:
        """Try O(checkpoint_proof) for so many seconds. Return why it failed; empty if it succeeded."""
        argv = shlex.split(self.get_option("checkpoint_proof"))
        try:
            completed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=patience)
        except subprocess.TimeoutExpired:
            return f"{argv[0]} did not end within {patience:g} s"
        except OSError as error:
            return f"{argv[0]}: {error.strerror}"
        answer = printable(completed.stderr.decode(errors="replace").strip()[-LAST_WORDS:])
        return "" if completed.returncode == 0 else answer or f"{argv[0]} ended with {completed.returncode}"

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file to the node."""
        super().put_file(in_path, out_path)
        try:
            data = Path(in_path).read_bytes()
        except OSError as error:
            raise AnsibleFileNotFound(f"nsenter: {in_path}: {error.strerror}") from error
        self._transfer(f"cat > {shlex.quote(out_path)}", data)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the node."""
        super().fetch_file(in_path, out_path)
        Path(out_path).write_bytes(self._transfer(f"cat -- {shlex.quote(in_path)}"))

    def close(self) -> None:
        self._connected = False

    def _transfer(self, cmd: str, data: bytes = b"") -> bytes:
        status, out, error = self.exec_command(cmd, in_data=data)
        if status != 0:
            answer = printable(error.decode(errors="replace").strip())
            raise AnsibleConnectionFailure(f"nsenter: {cmd} ended with {status}: {answer}")
        return out
