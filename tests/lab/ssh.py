# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH to a node, from a machine of the lab on the same link."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.disk import Disk
from lab.machine import Machine

PORT = 22

_DIAL = str(Path(__file__).with_name("dial.py"))

# One connection serves all commands, while it is used. HostKeyAlias: the VMs of one disk have one host key.
# ServerAliveInterval: a VM that was reset closes no connection by itself.
_CONFIGURATION = """\
Host {name}
  HostName {address}
  HostKeyAlias lab
  User root
  IdentityFile {key}
  IdentitiesOnly yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  LogLevel ERROR
  ConnectTimeout 30
  ServerAliveInterval 5
  ServerAliveCountMax 12
  ProxyCommand {dial} %h %p
  ProxyUseFdpass yes
  ControlMaster auto
  ControlPath {folder}/lab
  ControlPersist 60
"""


class Ssh:
    """The connection to one node. The lab and Ansible have a connection each, so that one can be cut without the other."""

    def __init__(self, name: str, address: str, disk: Disk, origin: Machine) -> None:
        self._name = name
        self._folder = Path(tempfile.mkdtemp(prefix="lab-"))
        self._configuration = self._folder / "ssh_config"
        dial = shlex.join([sys.executable, _DIAL, str(origin.pid)]).replace("%", "%%")
        (self._folder / "known_hosts").write_text(f"lab {disk.host_key}\n")
        self._configuration.write_text(
            _CONFIGURATION.format(name=name, address=address, key=disk.key, folder=self._folder, dial=dial)
        )

    def command(self, argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The command line that runs ``argv`` on the node, in /, with ``environment`` set."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        return [*self._ssh, self._name, shlex.join(["env", "--chdir=/", *variables, *argv])]

    @property
    def variables(self) -> dict[str, Any]:
        """The variables for Ansible's own connection plugin."""
        return {
            "ansible_connection": "ansible.builtin.ssh",
            "ansible_control_path": str(self._folder / "ansible"),
            "ansible_ssh_common_args": shlex.join(["-F", str(self._configuration)]),
        }

    def hang_up(self) -> None:
        """End the connections that are open; the next command makes a new one."""
        for control in ("lab", "ansible"):
            path = self._folder / control
            if path.exists():
                end = [*self._ssh, "-o", f"ControlPath={path}", "-O", "exit", self._name]
                subprocess.run(end, check=False, stdin=subprocess.DEVNULL, capture_output=True)

    def close(self) -> None:
        self.hang_up()
        shutil.rmtree(self._folder)

    @property
    def _ssh(self) -> list[str]:
        return ["ssh", "-F", str(self._configuration)]
