# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Namespaces that end with the lab's process, however that ends.

Each machine's namespaces are held by a child process, a shell, which reads a pipe whose only write end is in the lab's
process. When that process is gone, also by SIGKILL, the pipe is closed, the shell kills what still runs in its network
and ends, and the kernel frees the namespaces with all links, mounts and files in them. Nothing has a name on the host,
so nothing is to be cleaned up.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import entering
from lab.entering import LabError
from lab.machine import Machine

# Children of a command would keep the namespaces, so they are killed first. Shell builtins only, because a program
# that is started here would find itself.
_HOLD = """
echo ready
cat > /dev/null
left=unknown
while [ -n "$left" ]; do
  left=
  for namespace in /proc/[0-9]*/ns/net; do
    if [ "$namespace" -ef /proc/$$/ns/net ] && [ "$namespace" != /proc/$$/ns/net ]; then
      left=${namespace#/proc/}
      kill -KILL "${left%%/*}" 2> /dev/null || true
    fi
  done
done
"""

# No duplicate address detection (its second of waiting), and routers only where a test asks for them.
_NETWORK = """
set -eu
cd /proc/sys/net/ipv6/conf
for conf in all default; do
  echo 0 > $conf/accept_dad
  echo 0 > $conf/accept_ra
done
"""

FORWARDING_NETWORK = f"""{_NETWORK}
echo 1 > all/forwarding
cd /proc/sys/net/ipv4/conf
for conf in all default; do
  echo 1 > $conf/forwarding
  echo 0 > $conf/rp_filter
done
"""
"""A shell script: what a node's network is before it has links. A new namespace may inherit these settings from the host
(net.core.devconf_inherit_init_net), so all are said."""

# The layers lie on a tmpfs that is mounted at /run and then covered by /run's own overlay. File descriptor 3 keeps
# the host's /run as its lower folder; 4 keeps the tmpfs reachable, for the lab as /proc/PID/fd/4 (see LAYERS).
# /run/systemd and /run/dbus are removed: systemctl on a node would talk to process 1 of the host.
# ~/.ansible is ansible's own temporary folder; the mount point is the only thing that may be new on the host.
_NODE_FOLDERS = """
set -eu
exec 3< /run
mkdir -p /root/.ansible
mount -t tmpfs -o mode=0700 lab /root/.ansible
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=0755 lab /run
exec 4< /run
mkdir /run/tools
for folder in etc var/lib run; do
  mkdir -p /run/upper/$folder /run/scratch/$folder
  chmod --reference=/$folder /run/upper/$folder
  lower=/$folder
  [ $folder != run ] || lower=/proc/self/fd/3
  mount -t overlay -o lowerdir=$lower,upperdir=/run/upper/$folder,workdir=/run/scratch/$folder lab /$folder
done
mkdir -p /run/lab
mount --bind /proc/self/fd/4/tools /run/lab
rm -rf /run/systemd /run/dbus
"""

FOLDERS = ("/etc", "/var/lib", "/run")
"""The folders of which a node has its own."""

TOOLS = "/run/lab"
"""The lab's own things inside a node: wrappers around programs, and what they log."""


class Namespace:
    """The namespaces of one machine, and the process that holds them.

    Starting and waiting are two steps, so that many start at once.
    """

    def __init__(self, name: str, unshare: list[str], script: str) -> None:
        self.name = name
        self._holder = subprocess.Popen(
            ["unshare", *unshare, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env=entering.ENVIRONMENT,
            start_new_session=True,  # Ctrl-C is for the lab; the holder waits for its end
        )
        self._pid_memory = os.fdopen(os.memfd_create(f"{name}.pid"), "w")
        print(self.pid, file=self._pid_memory, flush=True)

    @classmethod
    def network(cls, name: str) -> Namespace:
        """A network of its own, on the host's files: a pod, a load balancer, a client."""
        return cls(name, ["--net"], _NETWORK + _HOLD)

    @classmethod
    def node(cls, name: str) -> Namespace:
        """A network, and FOLDERS of its own above the host's."""
        return cls(name, ["--net", "--mount"], _NODE_FOLDERS + _HOLD)

    @property
    def pid(self) -> int:
        return self._holder.pid

    @property
    def layers(self) -> str:
        """The folder in which the lab's process sees the node's changes: ``<layers>/etc`` and so on.

        Overlay keeps a deleted name as a character device 0:0 (Documentation/filesystems/overlayfs.rst).
        """
        return f"/proc/{self.pid}/fd/4/upper"

    @property
    def pid_file(self) -> Path:
        """A file with the pid that ends with the lab's process: it is in memory and has no name on any disk."""
        return Path(f"/proc/{os.getpid()}/fd/{self._pid_memory.fileno()}")

    def wait(self) -> None:
        """Return when the process itself has reported that it is in its own namespaces."""
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != "ready\n":
            raise LabError(f"{self.name}: its namespaces could not be made: {said}{self._holder.stdout.read()}")
        entering.refuse_host(self.pid)

    def end(self) -> None:
        """Tell the holder to end; close() waits for it."""
        assert self._holder.stdin is not None
        self._holder.stdin.close()

    def close(self) -> None:
        """End the holder and all processes of the machine; the kernel frees the rest."""
        assert self._holder.stdout is not None
        self.end()
        self._holder.stdout.close()
        self._holder.wait()
        self._pid_memory.close()


@contextmanager
def machine(name: str) -> Iterator[Machine]:
    """A machine with only a network of its own, for the length of the block."""
    namespace = Namespace.network(name)
    try:
        namespace.wait()
        yield Machine(name, namespace.pid)
    finally:
        namespace.close()
