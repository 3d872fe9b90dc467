# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands for kubelet on a node that runs systemd: it tells what was there when it was started."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.container import SystemdNode

UNIT = "kubelet.service"
_PROGRAM = "/usr/local/bin/kubelet"
_LOG = "/var/log/kubelet-start"

# Type=exec, and the program becomes its own main process: systemd calls the unit started when it runs, as kubelet's.
_SERVICE = f"""\
[Unit]
Description=Stands for kubelet, and tells what was there when it was started
[Service]
Type=exec
ExecStart={_PROGRAM}
[Install]
WantedBy=multi-user.target
"""

# The first field of /proc/uptime is CLOCK_BOOTTIME; the clock is read before nft, which takes its time.
_SCRIPT = f"""\
#!/bin/sh
read -r clock idle < /proc/uptime
echo "$clock $(nft list tables 2>/dev/null | tr '\\n' ';')" >> {_LOG}
exec sleep infinity
"""


@dataclasses.dataclass(frozen=True)
class Start:
    """``clock`` is CLOCK_BOOTTIME in seconds; ``tables`` are nft's, e.g. ``ip6 azureSLBProbe``."""

    clock: float
    tables: tuple[str, ...]


def place(node: SystemdNode) -> None:
    """Write the unit and enable it. It is started by the next boot, or by ``systemctl start kubelet``."""
    node.write(_PROGRAM, _SCRIPT, mode=0o755)
    node.write(f"/etc/systemd/system/{UNIT}", _SERVICE)
    node.run(["systemctl", "daemon-reload"])
    node.run(["systemctl", "enable", "--quiet", UNIT])


def starts(node: SystemdNode) -> list[Start]:
    """All starts of all boots, the newest last."""
    return [_parse(line) for line in node.read(_LOG).splitlines()] if node.exists(_LOG) else []


def _parse(line: str) -> Start:
    clock, _space, tables = line.partition(" ")
    return Start(float(clock), tuple(table.removeprefix("table ") for table in tables.split(";") if table))
