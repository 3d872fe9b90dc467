# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that boot: systemd is their process 1, and their files are their own."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import adhoc, entering, host, kubelet
from lab.entering import LabError
from lab.node import ClusterNode
from lab.waiting import until

BOOT_LIMIT = 120.0  # seconds; an idle machine needs one
_JOURNAL = ("journalctl", "--no-pager", "--output=short-monotonic", "--lines=30")


class BootingNode(ClusterNode):
    """A node that boots, as a container or as a VM."""

    @abc.abstractmethod
    def reboot(self) -> None:
        """Shut down in order, boot, and wait until all units are started."""

    def wait_until_booted(self, states: Sequence[str] = ("running",), timeout: float = BOOT_LIMIT) -> str:
        """Wait until systemd has nothing left to start; returns its state, which has to be one of ``states``."""
        state = ""

        def is_booted() -> bool:
            # The first calls come before D-Bus: they get no answer, or one that changes later.
            nonlocal state
            state = self.run(["systemctl", "is-system-running", "--wait"], check=False, timeout=timeout).stdout.strip()
            return state in (*states, "degraded")

        until(f"{self.name} has booted", is_booted, self, limit=timeout)
        if state not in states:
            failed = self.run(["systemctl", "list-units", "--failed", "--no-legend", "--plain"]).stdout
            names = [line.split()[0] for line in failed.splitlines()]
            output = self.run(["systemctl", "status", "--no-pager", "--full", "--lines=30", *names], check=False).stdout
            raise LabError(f"{self.name} booted, but some units failed:\n{failed}{output}")
        return state

    def last_lines(self) -> str:
        output = self.run(_JOURNAL, check=False, timeout=20)
        return f"the journal of {self.name} ends with:\n{output.stdout}{output.stderr}"

    def module(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        check: bool = False,
        diff: bool = True,
        timeout: float = 60,
    ) -> dict[str, Any]:
        """Run a module by Ansible itself, in a second or two."""
        return adhoc.run(self, f"kubenode.datapath.{name}", arguments or {}, check, diff, timeout)

    def place_kubelet_stand_in(self, unit: str = kubelet.UNIT) -> None:
        """Give the node a service in place of kubelet, which records at each start the tables that exist."""
        kubelet.place(self, unit)

    def kubelet_starts(self) -> list[kubelet.Start]:
        """All starts of all boots, the newest last."""
        return kubelet.starts(self)

    def copy_in(self, source: Path, path: str) -> None:
        """Copy a file or a folder of the host to a new path on the node; its folder is made."""
        archive = host.output(["tar", "-C", source.parent, "-c", source.name])
        unpack = 'mkdir -p "$1" && tar -C "$1" --no-same-owner --transform "s,^[^/]*,$2," -x'
        command = self.command(["sh", "-c", unpack, "sh", *os.path.split(path)])
        host.output(command, archive, cwd="/", env=entering.ENVIRONMENT)
