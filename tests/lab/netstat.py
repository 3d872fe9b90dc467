# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's counters of a network namespace."""

from __future__ import annotations

PATH = "/proc/net/netstat"


def tcp_ext(text: str, name: str) -> int:
    """A counter of TcpExt from the text of PATH."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("TcpExt:"))
    return int(values[names.index(name)])
