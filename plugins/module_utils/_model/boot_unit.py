# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The systemd unit that loads a table of ours at boot."""

from __future__ import annotations

import typing as t


class BootUnit(t.NamedTuple):
    """A unit's file ``name`` and its ``text``; ``wanted_by`` is the target that starts it."""

    name: str
    text: str
    wanted_by: str = "multi-user.target"


def loading_table(family: str, table: str, path: str) -> BootUnit:
    """The unit that loads ``path`` before the network and kubelet are up; stopping it removes this table alone.

    Default dependencies would order it after sysinit.target, which on Ubuntu comes after the network (cloud-init) and so
    after network-pre.target: a cycle. nftables.service, where an operator uses it, flushes every table when it starts,
    stops and reloads: this unit comes after it, and goes through each of these with it, so that the table comes back.
    """
    text = f"""\
[Unit]
Description=nftables table {family} {table} of kubenode.datapath
DefaultDependencies=no
After=local-fs.target systemd-modules-load.service nftables.service
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service
Wants=network-pre.target
Before=network-pre.target kubelet.service shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=nft -f {path}
ExecReload=nft -f {path}
ExecStop=-nft delete table {family} {table}

[Install]
WantedBy=multi-user.target
"""
    return BootUnit(f"kubenode-nft-{family}-{table}.service", text)
