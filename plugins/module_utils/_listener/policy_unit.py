# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit that loads rules and routes at boot and maintains them."""

from __future__ import annotations

import typing as t

from .._kubelet import kubelet_units
from .._systemd.boot_unit import BootUnit, isolated
from .._systemd.program_words import REHEARSE


def name(protocol: int) -> str:
    """Return the name of the unit that loads the rules and routes of a protocol."""
    return f"kubenode-policy-routes-{protocol}.service"


def unit(protocol: int, path: str, python: str, program: str, digest: str = "", before: t.Sequence[str] = ()) -> BootUnit:
    """Return the unit that loads the rules and routes of ``path`` before kubelet starts, then stays and restores those that are
    lost.

    It is ready once everything is loaded that can be: it waits for the network, and not for further links. It removes nothing
    when it stops, because pods would lose their routes.

    digest: the program's SHA-256. A new program changes the unit's text, and so the unit is restarted.
    before: see kubelet_units.ordering().

    systemd restarts the unit without a limit, one second after each exit. The program itself delays its exit after a failure.
    """
    text = f"""\
[Unit]
Description=Policy routes of protocol {protocol} of kubenode.datapath
Wants=network-online.target
After=network-online.target
{kubelet_units.ordering(before)}
StartLimitIntervalSec=0

[Service]
Type=notify
# SHA-256 {digest}
ExecStart={" ".join(isolated(python, program, str(protocol), path))}
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
    rehearsal = isolated(python, program, REHEARSE, str(protocol), path)
    return BootUnit(name(protocol), text, rehearsal=rehearsal, before=tuple(before))
