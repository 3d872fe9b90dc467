# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the node's names of routing tables from iproute2's files."""

from __future__ import annotations

from pathlib import Path

from .._files import files
from . import rt_names

# ip-route(8), /etc/iproute2 before /usr/share/iproute2 (iproute2 6.7 and newer; some distributions use /usr/lib).
FOLDERS = ("/usr/lib/iproute2", "/usr/share/iproute2", "/etc/iproute2")


def tables() -> dict[str, int]:
    """Return table numbers by name. A later folder overrides an earlier one; the kernel's own tables override all."""
    numbers: dict[str, int] = {}
    for folder in FOLDERS:
        for path in (Path(folder, "rt_tables"), *sorted(Path(folder, "rt_tables.d").glob("*.conf"))):
            try:
                numbers.update(rt_names.parse(files.text(str(path))))
            except OSError:
                continue
    return {**numbers, **rt_names.TABLES}
