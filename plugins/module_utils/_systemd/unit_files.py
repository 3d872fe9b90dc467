# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders in which systemd looks for units, and the paths of the collection's own."""

from __future__ import annotations

from pathlib import Path

FOLDER = "/etc/systemd/system"
# The folders of units and of the links that enable them, in the order of precedence of systemd.unit(5).
FOLDERS = (
    FOLDER,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)


def path_of(unit: str) -> str:
    """Return the path of a unit file in the administrator's folder."""
    return f"{FOLDER}/{unit}"


def link_of(unit: str, wanted_by: str = "multi-user.target") -> str:
    """Return the path of the symbolic link that enables a unit."""
    return f"{path_of(wanted_by)}.wants/{unit}"


def own_texts() -> dict[str, str]:
    """Map the units of this collection, which stand in its folder of units, to their texts."""
    return {path.name: path.read_text("utf-8", "replace") for path in Path(FOLDER).glob("kubenode-*.service") if path.is_file()}


def named(pattern: str) -> set[str]:
    """Return the names of the units in the folder of this collection's units that match a shell pattern."""
    return {path.name for path in Path(FOLDER).glob(pattern)}
