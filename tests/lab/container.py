# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that runs systemd: a container that boots, reboots, and keeps /etc and /var over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lab import entering, snapshot
from lab.booting import BOOT_LIMIT, BootingNode
from lab.entering import LabError
from lab.podman import Podman
from lab.waiting import until


class SystemdNode(BootingNode):
    """A node that boots, in a cloud or by itself. Its process 1, its namespaces and its links are new after each boot.

    ``plug`` is called for each boot when the network namespace exists and process 1 waits to be started. It moves links in, which
    the node then finds as hardware. A node that reboots by itself (``systemctl reboot``) does not wait; ``follow_reboot`` plugs
    it in as soon as it sees the reboot.
    ``folders``: path on the node -> folder of this machine that it sees there, read-only.
    """

    def __init__(
        self,
        name: str,
        podman: Podman,
        image: str,
        plug: Callable[[SystemdNode], Any] = lambda node: None,
        folders: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        self._podman = podman
        # podman writes it anew for each boot.
        self.pid_file = podman.folder / f"{name}.pid"
        self._plug = plug
        super().__init__(name, 0, entering.ALL)
        podman.run(
            "create", "--name", name, "--hostname", name,
            "--cgroup-parent", podman.cgroup, "--pidfile", f"/mnt/{name}.pid", "--conmon-pidfile", f"/mnt/{name}.conmon",
            "--systemd", "always", "--privileged", "--network", "none", "--restart", "always",
            *(f"--volume={folder}:{path}:ro" for path, folder in folders.items()), image, "/sbin/init",
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """Process 1 of the node, as the lab sees it. Read for each command: every boot has another."""
        try:
            return int(self.pid_file.read_text())
        except (OSError, ValueError) as error:
            raise LabError(f"{self.name} is not running: {error}") from error

    def start(self) -> None:
        """Power on, with the links plugged in. Returns when process 1 is started; the boot goes on."""
        self._podman.run("init", self.name)
        self._plug_in()
        self._podman.run("start", self.name)

    def stop(self) -> None:
        """Shut down in order, as ``systemctl poweroff`` does.

        When the container ends, conmon, which watches over it, becomes ``podman container cleanup``, which does not wait for
        podman stop: on a busy machine it would tear down the next boot between init and start.
        """
        watcher = Path("/proc", self.pid_file.with_suffix(".conmon").read_text())
        self._podman.run("stop", self.name)
        until(f"podman has tidied up after {self.name} went down", lambda: not watcher.exists(), pause=0.01)
        self.pid_file.unlink(missing_ok=True)  # another process may soon have the process ID

    def reboot(self) -> None:
        """Shut down, boot, and wait until all units are started."""
        self.stop()
        self.start()
        self.wait_until_booted()

    def follow_reboot(self, before: int, timeout: float = BOOT_LIMIT) -> None:
        """Wait until the node, whose ``pid`` was ``before``, has rebooted by itself; plug it in again."""
        until(f"{self.name} reboots", lambda: self._is_another_boot(before), self, limit=timeout, pause=0.02)
        self._plug_in()
        self.wait_until_booted()

    def snapshot(self) -> dict[str, Any]:
        """As of every node; its packages, and its files as they are. Units that are enabled are links among them."""
        root = Path("/proc", str(self.pid), "root")
        return {**snapshot.network(self), "files": snapshot.tree(root), "packages": snapshot.packages(root)}

    def _is_another_boot(self, before: int) -> bool:
        try:
            pid = self.pid
            entering.refuse_host(pid)
        except LabError:  # between two boots
            return False
        return pid != before

    def _plug_in(self) -> None:
        def is_plugged() -> bool:
            self._plug(self)
            return True

        # The kernel takes its time to free the network namespace of the boot before, with links of the same names.
        until(f"the links of {self.name} are plugged in", is_plugged, pause=0.1)
