# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks systemd whether a unit would be in an ordering cycle of a boot. A boot breaks a cycle by leaving out any unit of it.

``systemd-analyze verify default.target`` builds the transaction of the boot from the unit files by systemd's own code. It needs
no running systemd, and so answers in an image as well. Tried with systemd 247, 252, 257 and 262. Its exit status does not tell
of cycles, only its log does. It makes folders in /run, and the unit must be in a file: both are in a mount namespace of its own,
so that the node is not changed.
"""

from __future__ import annotations

import re
import typing as t

from .._core.errors import Failure
from .._platform import process
from . import unit_files
from .boot_unit import BootUnit

# A target that the units of the option ``before`` must not precede, even if the unit itself starts earlier.
LATE = "kubenode-late.target"
LATE_TEXT = "[Unit]\nDefaultDependencies=no\nAfter=basic.target network-pre.target\nBefore={}\n"
# Two targets in a cycle: an answer that does not name them is no answer.
CONTROL = ("kubenode-cycle-1.target", "kubenode-cycle-2.target")
CONTROL_TEXT = "[Unit]\nDefaultDependencies=no\nAfter={}\n"
# Arguments: the program, and for each unit that the boot wants its name and its text, which is empty for a unit of the node.
# /run/systemd/generator has the mounts of fstab(5), for example.
SCRIPT = """\
program=$1; shift
mount -n -t tmpfs -o mode=0755 kubenode /tmp
cp -a /run/systemd/system /run/systemd/generator /tmp/ 2>/dev/null || :
mount -n -t tmpfs -o mode=0755 kubenode /run
mkdir -p /tmp/asked/multi-user.target.d
printf '[Unit]\n' > /tmp/asked/multi-user.target.d/kubenode.conf
while test $# -gt 0; do
  test -z "$2" || printf %s "$2" > "/tmp/asked/$1"
  printf 'Wants=%s\n' "$1" >> /tmp/asked/multi-user.target.d/kubenode.conf
  shift 2
done
exec "$program" verify --man=no default.target
"""
ENVIRONMENT = {
    "PATH": process.SEARCH_PATH,
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_LOG_LEVEL": "warning",
    "SYSTEMD_LOG_TARGET": "console",
    # The empty component stands for the usual folders.
    "SYSTEMD_UNIT_PATH": f"/tmp/asked:{unit_files.FOLDER}:/tmp/system:/tmp/generator:",
}


class BootOrder(t.NamedTuple):
    """is_known: False if systemd could not be asked. cycle: its units, each of which starts after the next; may be empty."""

    is_known: bool
    cycle: tuple[str, ...] = ()

    @property
    def trouble(self) -> str:
        """Return the end of the sentence "the unit cannot be enabled, because ..."; empty without a cycle."""
        if not self.cycle:
            return ""
        if LATE in self.cycle:
            place = self.cycle.index(LATE)
            chain = self.cycle[place + 1 :] + self.cycle[:place]
            return f"the boot needs {chain[-1]} earlier: {' after '.join(chain)}"
        return (
            "the next boot would have an ordering cycle, and systemd breaks a cycle by leaving out any unit of it:"
            f" {' after '.join((*self.cycle, self.cycle[0]))}"
        )


def read(unit: BootUnit, is_placed: bool) -> BootOrder:
    """Return the order of a boot that starts the unit and the units that it names in ``before``. Starts systemd-analyze.

    is_placed: whether the unit's file is on the node; otherwise its text is taken.
    """
    program, unshare = (process.find(name) for name in ("systemd-analyze", "unshare"))
    if program is None or unshare is None:
        return BootOrder(False)
    texts = _asked(unit, is_placed)
    words = [word for name, text in texts.items() for word in (name, text)]
    try:
        completed = process.run([unshare, "--mount", "sh", "-ec", SCRIPT, "sh", program, *words], None, ENVIRONMENT)
    except Failure:
        return BootOrder(False)
    return of_log(completed.stderr, unit.name)


def _asked(unit: BootUnit, is_placed: bool) -> dict[str, str]:
    """Map the units that the boot wants to their texts."""
    texts = {name: CONTROL_TEXT.format(other) for name, other in zip(CONTROL, CONTROL[::-1])}
    if unit.before:
        texts[LATE] = LATE_TEXT.format(" ".join(unit.before))
    return {**dict.fromkeys(unit.before, ""), **texts, unit.name: "" if is_placed else unit.text}


def of_log(log: str, unit: str) -> BootOrder:
    """Return the first cycle of ``unit``, or of LATE, in the log of systemd-analyze.

    systemd 247 to 257 names one unit of a cycle in each line, systemd 262 all of them in one line.
    """
    told = (text.partition(" deleted to break ")[0] for text in log.split("Found ordering cycle")[1:])
    cycles = [tuple(re.findall(r"(?:on|after|:|dependency on) (\S+)/[a-z-]+", text)) for text in told]
    chosen = (cycle for cycle in cycles if unit in cycle or LATE in cycle)
    return BootOrder(any(CONTROL[0] in cycle for cycle in cycles), next(chosen, ()))
