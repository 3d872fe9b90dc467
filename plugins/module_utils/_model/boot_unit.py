# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The systemd units that load at boot what is ours."""

from __future__ import annotations

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
    """A unit's file ``name`` and its ``text``; ``wanted_by`` is the target that starts it."""

    name: str
    text: str
    wanted_by: str = "multi-user.target"


# Seconds that a unit's boot program has to learn whether the node has IPv6. kubelet waits for it that long at the most.
DEADLINES = {"imds": 60, "address": 30}


def loading_table(family: str, table: str, path: str, condition: BootCondition | None = None) -> BootUnit:
    """The unit that loads ``path`` before kubelet is up; stopping it removes this table alone.

    Default dependencies would order it after sysinit.target, which on Ubuntu comes after the network (cloud-init) and so
    after network-pre.target: a cycle. nftables.service, where an operator uses it, flushes every table when it starts,
    stops and reloads: this unit comes after it, and goes through each of these with it, so that the table comes back.

    condition: what decides at each boot whether to load; it needs the network. Where it can not tell, the unit fails, so
        that kubelet goes on, and is tried again.
    """
    text = f"""\
[Unit]
Description=nftables table {family} {table} of kubenode.datapath
DefaultDependencies=no
{_ordering(condition)}
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service
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
    return BootUnit(f"kubenode-nft-{family}-{table}.service", text)


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
    """-I keeps the environment and the user's packages out of it, -B leaves no compiled files."""
    if condition is None:
        return ""
    seconds = DEADLINES[condition.kind]
    return f"""\
ExecCondition={condition.python} -I -B {condition.program} {condition.kind} {condition.interface} {seconds}
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
