# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit that attaches the probes' BPF programs at boot, and the file that it reads."""

from __future__ import annotations

import ipaddress
import json
import typing as t

from .._core.errors import Failure
from .._kubelet import kubelet_units
from .._systemd.boot_unit import BootUnit, isolated
from .._systemd.program_words import REHEARSE, WATCH
from .probe_table import Probe


class BootPrograms(t.NamedTuple):
    """What the file says: the table by whose name the programs are known, the link, and the probes."""

    table: str
    link: str
    probes: tuple[Probe, ...]

    def text(self) -> str:
        """Return the file below the collection's heading. It begins as no other table's does."""
        probes = [{"source": str(source), "translated": str(translated)} for source, translated in self.probes]
        return f"{beginning(self.table)}{json.dumps({'interface': self.link, 'probes': probes}, indent=2)}\n"


def beginning(table: str) -> str:
    return f"# BPF programs of {table}\n"


def from_text(text: str) -> BootPrograms:
    """Read a file with its heading. Raises Failure."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    try:
        table = comments[-1].rpartition(" ")[2]
        values = json.loads("\n".join(line for line in text.splitlines() if not line.startswith("#")))
        probes = [(each["source"], each["translated"]) for each in values["probes"]]
        return BootPrograms(table, str(values["interface"]), tuple(Probe(*map(ipaddress.IPv6Address, pair)) for pair in probes))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Failure(f"the file of the BPF programs cannot be read: {error}. Run the module again") from error


def name(table: str) -> str:
    return f"kubenode-bpf-{table}.service"


def unit(table: str, path: str, python: str, program: str, digest: str = "", before: t.Sequence[str] = ()) -> BootUnit:
    """Return the unit that attaches the programs of ``path`` before kubelet starts, and stays to attach them again.

    It waits for no link: it attaches the programs as soon as theirs is there. Stopped, it leaves them attached, or each restart
    would leave probes without an answer.

    digest: the SHA-256 of the program and the file. A change of one changes the unit's text, and so the unit is restarted.
    before: see kubelet_units.ordering().
    """
    text = f"""\
[Unit]
Description=BPF programs for the probes of {table} of kubenode.datapath
{kubelet_units.ordering(before)}
StartLimitIntervalSec=0

[Service]
Type=notify
# SHA-256 {digest}
ExecStart={" ".join(isolated(python, program, WATCH, path))}
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
    rehearsal = isolated(python, program, REHEARSE, path)
    return BootUnit(name(table), text, rehearsal=rehearsal, before=tuple(before))
