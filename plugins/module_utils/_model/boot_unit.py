# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The systemd units that load at boot what is ours."""

from __future__ import annotations

import re
import typing as t


class BootCondition(t.NamedTuple):
    """What a unit asks before it loads.

    kind: "imds" or "address", see the boot program.
    """

    kind: str
    interface: str
    python: str
    program: str


class BootUnit(t.NamedTuple):
    """A unit's file ``name`` and its ``text``; ``wanted_by`` is the target that starts it.

    drop_in: what the unit adds to the unit ``beside`` it; empty for nothing.
    """

    name: str
    text: str
    drop_in: str = ""
    beside: str = "nftables.service"
    wanted_by: str = "multi-user.target"


# Seconds that a unit's boot program has to learn whether the node has IPv6. kubelet waits for it that long at the most.
DEADLINES = {"imds": 60, "address": 30}
NO = 77  # the boot program's exit status for a node without IPv6; no shell and no Python ends so by itself


def loading_table(family: str, table: str, path: str, condition: BootCondition | None = None) -> BootUnit:
    """The unit that loads ``path`` before kubelet is up; stopping it removes this table alone.

    Default dependencies would order it after sysinit.target, which on Ubuntu comes after the network (cloud-init) and so
    after network-pre.target: a cycle. nftables.service, where an operator uses it, flushes every table when it starts,
    stops and reloads. Its drop-in has the table loaded anew after each of these, where this unit is active; a unit can not
    ask for that by itself, as PartOf= and its like do not reach one that is active when the other is started.

    condition: what decides at each boot whether to load; it needs the network. Where it can not tell, the unit fails, so
        that kubelet goes on, and is tried again.
    """
    text = f"""\
[Unit]
Description=nftables table {family} {table} of kubenode.datapath
DefaultDependencies=no
{_ordering(condition)}
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
{_asking(condition)}ExecStart=nft -f {path}
ExecReload=nft -f {path}
ExecStop=-nft delete table {family} {table}

[Install]
WantedBy=multi-user.target
"""
    name = f"kubenode-nft-{family}-{table}.service"
    anew = f"-systemctl --no-block try-reload-or-restart {name}"
    drop_in = f"[Service]\nExecStartPost={anew}\nExecReload={anew}\nExecStopPost={anew}\n"
    return BootUnit(name, text, drop_in)


def loaded_path(text: str) -> str:
    """The file that a unit of ours loads; empty where the text is no such unit's."""
    found = re.search(r"^ExecStart=nft -f (\S+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _ordering(condition: BootCondition | None) -> str:
    if condition is None:
        return """\
After=local-fs.target systemd-modules-load.service nftables.service
Wants=network-pre.target
Before=network-pre.target kubelet.service shutdown.target"""
    return """\
After=local-fs.target systemd-modules-load.service nftables.service network.target
Before=kubelet.service shutdown.target"""


def _asking(condition: BootCondition | None) -> str:
    """-I keeps the environment and the user's packages out of it, -B leaves no compiled files.

    systemd takes each status from 1 to 254 for "skip". Only the program's own NO may say so: a program that dies, and an
    interpreter that has gone, fail the unit.
    """
    if condition is None:
        return ""
    question = f"{condition.kind} {condition.interface} {DEADLINES[condition.kind]}"
    asks = f"{condition.python} -I -B {condition.program} {question}"
    return f"""\
ExecCondition=/bin/sh -c '{asks}; status=$$?; case $$status in 0|{NO}) exit $$status;; *) exit 255;; esac'
Restart=on-failure
RestartSec=10
"""


def loading_routes(protocol: int, path: str, python: str, program: str) -> BootUnit:
    """The unit that loads the rules and routes of ``path`` before kubelet is up.

    A route needs its link up, so it waits for the network; where a link comes later still, it fails and is tried again.
    It takes nothing away when it stops: pods would lose their way.
    """
    text = f"""\
[Unit]
Description=Policy routes of protocol {protocol} of kubenode.datapath
Wants=network-online.target
After=network-online.target
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} -I -B {program} {path}
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
    return BootUnit(f"kubenode-policy-routes-{protocol}.service", text)
