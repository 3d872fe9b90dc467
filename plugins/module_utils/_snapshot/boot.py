# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What files set at the next boot: settings of the network, and what systemd-networkd does to foreign rules and routes."""

from __future__ import annotations

import typing as t

from .._core.names import DOTTED
from .._network_daemons import networkd
from .._platform import sysctl_files
from .settings import decides

Files = t.Mapping[str, str]  # texts by path
SETTINGS, NETWORKD = "settings", "networkd"  # the parts of the subset
FOLDERS = {SETTINGS: sysctl_files.FOLDERS, NETWORKD: networkd.DROP_IN_FOLDERS}
MAIN_FILES = {SETTINGS: (sysctl_files.LAST_OF_PROCPS,), NETWORKD: networkd.MAIN_FILES}


def boot(sysctl: Files, of_networkd: Files) -> dict[str, t.Any]:
    """Return the subset of a snapshot. sysctl, of_networkd: the files that systemd-sysctl and networkd may read."""
    return {SETTINGS: _settings(sysctl), NETWORKD: _networkd(of_networkd)}


def part(path: str) -> str:
    """Return the part of the subset about which a file on the node may say something; empty for any other file."""
    folder, is_drop_in = path.rpartition("/")[0], path.endswith(".conf")
    parts = (name for name in FOLDERS if path in MAIN_FILES[name] or (is_drop_in and folder in FOLDERS[name]))
    return next(parts, "")


def _settings(files: Files) -> dict[str, dict[str, t.Any]]:
    """Return the values and their files by key, in the order in which systemd-sysctl writes them. A key may be a pattern.

    The value is None for a key that a line exempts from patterns, also by a value that the kernel refuses.
    """
    lines = (line for line in sysctl_files.by_systemd(files).assignments if decides(line.key))
    return {line.key.translate(DOTTED): {"value": line.number, "file": line.path} for line in lines}


def _networkd(files: Files) -> dict[str, dict[str, t.Any]]:
    settings = {key: networkd.setting(files, key) for key in networkd.SINCE}
    return {key: {"value": setting.value, "file": setting.path} for key, setting in settings.items()}
