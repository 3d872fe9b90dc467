# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for kubelet on a node that runs systemd: it records the tables that exist when it is started."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.machine import Machine

UNIT = "kubelet.service"
_PROGRAM = "/usr/local/bin/kubelet"
_LOG = "/var/log/kubelet-start"

# The record is written first, so that it exists once the unit is active. The process that goes on running is called kubelet.
_SERVICE = f"""\
[Unit]
Description=Stands for kubelet, and tells what was there when it was started
[Service]
Type=exec
ExecStartPre={_PROGRAM}
ExecStart={_PROGRAM} stays
[Install]
WantedBy=multi-user.target
"""

# The first field of /proc/uptime is CLOCK_BOOTTIME; the clock is read before nft, which takes its time.
_SCRIPT = f"""\
#!/bin/sh
[ "$1" = stays ] && sleep infinity
read -r clock idle < /proc/uptime
echo "$clock $(nft list tables 2>/dev/null | tr '\\n' ';')" >> {_LOG}
"""


@dataclasses.dataclass(frozen=True)
class Start:
    """``clock`` is CLOCK_BOOTTIME in seconds; ``tables`` are nft's, e.g. ``ip6 azureSLBProbe``."""

    clock: float
    tables: tuple[str, ...]


def place(node: Machine, unit: str = UNIT) -> None:
    """Write the unit and enable it. It is started by the next boot, or by ``systemctl start``."""
    node.write(_PROGRAM, _SCRIPT, mode=0o755)
    node.write(f"/etc/systemd/system/{unit}", _SERVICE)
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "enable", "--quiet", unit])


def starts(node: Machine) -> list[Start]:
    """All starts of all boots, the newest last."""
    return [_parse(line) for line in node.read(_LOG).splitlines()] if node.exists(_LOG) else []


def _parse(line: str) -> Start:
    clock, _space, tables = line.partition(" ")
    return Start(float(clock), tuple(table.removeprefix("table ") for table in tables.split(";") if table))
