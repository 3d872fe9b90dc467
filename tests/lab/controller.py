# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that a controller reaches by ssh over their own network, so that a change of their routes can cut them off."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import collection, entering, host, inventory, playbook
from lab.container import SystemdNode
from lab.machine import Machine
from lab.node import ClusterNode

SSH_PACKAGES = ("openssh-server",)
"""What a node that boots needs besides its usual packages."""

_CONFIGURATION = """
HostKey /etc/ssh/lab_host_key
AuthorizedKeysFile /etc/ssh/lab_authorized_keys
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
Subsystem sftp internal-sftp
SetEnv HOME=/run
"""
# HOME: a node of namespaces has the host's files, and the shell that sshd starts would read root's .bashrc of this machine,
# which may do anything, and wait.


class Controller:
    """ansible-playbook on ``machine``, with its files in ``folder``. It may log in to ``nodes`` as root."""

    def __init__(self, machine: Machine, folder: Path, nodes: Iterable[ClusterNode]) -> None:
        self.machine = machine
        self.folder = folder
        self.key = folder / "key"
        self.nodes = list(nodes)
        self._sockets = tempfile.TemporaryDirectory(prefix="lab-")  # a socket's path has at most 107 bytes, unix(7)
        for key in (self.key, folder / "host_key"):
            host.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
        for node in self.nodes:
            self._let_in(node)
        self.inventory = folder / "inventory.json"
        hosts = {node.name: self._variables(node) for node in self.nodes}
        self.inventory.write_text(json.dumps({"all": {"children": {"nodes": {"hosts": hosts}}}}))

    def _let_in(self, node: ClusterNode) -> None:
        node.write("/etc/ssh/lab_host_key", (self.folder / "host_key").read_text(), 0o600)
        node.write("/etc/ssh/lab_authorized_keys", self.key.with_suffix(".pub").read_text())
        if isinstance(node, SystemdNode):
            node.write("/etc/ssh/sshd_config", _CONFIGURATION)
            node.run(["systemctl", "restart", "ssh"])
            return
        node.write("/etc/ssh/lab_sshd_config", _CONFIGURATION)
        node.run(["mkdir", "-p", "/run/sshd"])
        node.run(["/usr/sbin/sshd", "-f", "/etc/ssh/lab_sshd_config"])  # a daemon, which ends with the node's network

    def _variables(self, node: ClusterNode) -> dict[str, Any]:
        return {
            "ansible_host": node.ipv4,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            # The caller's Python has pyroute2, and the node shares the host's files, so the library need not be copied.
            "ansible_python_interpreter": "/usr/bin/python3" if isinstance(node, SystemdNode) else sys.executable,
        }

    def start(
        self,
        tasks: Sequence[Mapping[str, Any]],
        *arguments: str,
        strategy: str = "linear",
        variables: Mapping[str, Any] | None = None,
        name: str = "play",
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Starts a play on all nodes. ``name`` distinguishes it from another one at the same time."""
        play = self.folder / f"{name}.json"
        play.write_text(json.dumps([{"hosts": "nodes", "gather_facts": False, "strategy": strategy, "tasks": list(tasks)}]))
        environment = {
            **(environment or {}),
            **entering.ENVIRONMENT,
            **inventory.environment(),
            "ANSIBLE_CALLBACKS_ENABLED": "lab_record",
            "ANSIBLE_FORKS": "20",
            "ANSIBLE_HOST_KEY_CHECKING": "false",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{self._sockets.name}/{name}",
            "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/dev/null",
            "LAB_RECORD": str(self.folder / f"{name}.record"),
        }
        Path(environment["LAB_RECORD"]).unlink(missing_ok=True)
        command = [
            *(playbook.PROGRAM, "-i", str(self.inventory)),
            *("-e", json.dumps({"ansible_pipelining": True, **(variables or {})}), str(play), *arguments),
        ]
        return subprocess.Popen(
            entering.command(self.machine.pid, self.machine.namespaces, command),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=collection.CHECKOUT, env=environment, start_new_session=True,
        )  # fmt: skip

    def kill(self, play: subprocess.Popen[str], name: str = "play") -> None:
        """Kills the play, all of its processes, which have separate sessions, and its connections."""
        mark = f"LAB_RECORD={self.folder / f'{name}.record'}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
        play.communicate()

    def results(self, play: subprocess.Popen[str], name: str = "play", timeout: float = 120) -> dict[str, dict[str, Any]]:
        """The result of the play's last task on each node, with ``failed``."""
        said, _nothing = play.communicate(timeout=timeout)
        record = self.folder / f"{name}.record"
        assert record.exists(), said
        records = json.loads(record.read_text())["results"]
        return {result["host"]: {**result["result"], "failed": result["failed"]} for result in records}

    def play(self, tasks: Sequence[Mapping[str, Any]], *arguments: str, **options: Any) -> dict[str, dict[str, Any]]:
        return self.results(self.start(tasks, *arguments, **options), options.get("name", "play"))
