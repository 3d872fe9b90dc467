# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit that loads a table at boot, and the condition that it may check first."""

from __future__ import annotations

import typing as t

from .._kubelet import kubelet_units
from .._systemd.boot_unit import BootUnit, isolated
from .._systemd.program_words import NO, REHEARSE

# Seconds that a boot program has to find out whether the node has IPv6. kubelet waits for it that long at most.
DEADLINES = {"imds": 60, "address": 30}
AGAIN = 120  # seconds after which a unit that the condition has skipped asks again


class BootCondition(t.NamedTuple):
    """The condition that a unit checks before it loads its table.

    kind: "imds" or "address", see ``_probe_snat/ipv6_program.py``. python, program: the paths of the interpreter and of the boot
    program.
    """

    kind: str
    interface: str
    python: str
    program: str

    def command(self, *verb: str) -> tuple[str, ...]:
        """Return the command that asks whether the condition holds. verb: REHEARSE, or none."""
        return isolated(self.python, self.program, *verb, self.kind, self.interface, str(DEADLINES[self.kind]))


def unit(family: str, table: str, path: str, condition: BootCondition | None = None, before: t.Sequence[str] = ()) -> BootUnit:
    """Return the unit that loads ``path`` before kubelet starts. Stopping the unit removes this table alone.

    With default dependencies the unit would come after sysinit.target. On Ubuntu that comes after the network (cloud-init) and so
    after network-pre.target: a cycle. nftables.service, if an operator uses it, flushes every table when it starts, stops and
    reloads. The drop-in for nftables.service loads this table again after each of these, if this unit is active. This unit
    cannot ask for that itself: PartOf= and the like do not reach a unit that is already active when the other one starts.

    condition: decides at each boot whether to load; it needs the network. If it cannot decide, the unit fails. kubelet then
        starts, and systemd tries the unit again.
    before: see kubelet_units.ordering().
    """
    text = f"""\
[Unit]
Description=nftables table {family} {table} of kubenode.datapath
DefaultDependencies=no
{_ordering(condition)}
{kubelet_units.ordering(before)}
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=90
{_asking(condition)}ExecStart=nft -f {path}
ExecReload=nft -f {path}
ExecStop=-nft delete table {family} {table}

[Install]
WantedBy=multi-user.target
"""
    name = f"{_name(family, table)}.service"
    anew = f"-systemctl --no-block try-reload-or-restart {name}"
    drop_in = f"[Service]\nExecStartPost={anew}\nExecReload={anew}\nExecStopPost={anew}\n"
    rehearsal = condition.command(REHEARSE) if condition else ()
    return BootUnit(name, text, drop_in, rehearsal=rehearsal, before=tuple(before))


def timer(family: str, table: str) -> BootUnit:
    """Return the timer that starts a unit with a condition again after it was skipped, so that IPv6 may come after the boot.

    The unit starts its timer. An active unit is not started again: a table on a node that has lost IPv6 meets no packet. Stopping
    the unit stops the timer too (PartOf=), so that an operator's ``systemctl stop`` lasts; a skipped start is no stop.
    """
    name = _name(family, table)
    text = f"""\
[Unit]
Description=Ask again whether nftables table {family} {table} of kubenode.datapath is needed
DefaultDependencies=no
PartOf={name}.service
Conflicts=shutdown.target
Before=shutdown.target

[Timer]
OnUnitInactiveSec={AGAIN}
AccuracySec=10

[Install]
WantedBy={name}.service
"""
    return BootUnit(f"{name}.timer", text, wanted_by=f"{name}.service")


def _name(family: str, table: str) -> str:
    return f"kubenode-nft-{family}-{table}"


def _ordering(condition: BootCondition | None) -> str:
    if condition is None:
        return """\
After=local-fs.target systemd-modules-load.service nftables.service
Wants=network-pre.target
Before=network-pre.target shutdown.target"""
    return """\
After=local-fs.target systemd-modules-load.service nftables.service network.target
Before=shutdown.target"""


def _asking(condition: BootCondition | None) -> str:
    """Return the lines that run the condition's program. Only its exit status NO may skip the unit.

    systemd skips a unit for each exit status of ExecCondition= from 1 to 254. That includes statuses from before the program
    runs: 203 of systemd itself if the interpreter is missing, 127 of the loader, 1 and 2 of a Python that cannot start or does
    not find the program. So a shell script runs the command, and turns each other status into 255, which fails the unit. The
    script is the same in all units: the command is passed as arguments, which the shell neither splits nor expands. systemd
    itself cannot map one status to another (SuccessExitStatus= does not apply to ExecCondition=), and neither ExecStartPre= nor
    ExecStart= can skip a unit.
    """
    if condition is None:
        return ""
    script = f'"$$@"; status=$$?; case $$status in 0|{NO}) exit $$status;; esac; exit 255'
    return f"""\
ExecCondition=/bin/sh -c '{script}' sh {" ".join(condition.command())}
Restart=on-failure
RestartSec=10
"""
