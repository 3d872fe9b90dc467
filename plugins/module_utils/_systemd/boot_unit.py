# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A systemd unit of this collection as a value, the facts in its text, and the command line of its boot program.

Each subject renders the units of its own: ``_nftables/table_unit.py``, ``_listener/policy_unit.py``,
``_interfaces/address_unit.py``.
"""

from __future__ import annotations

import re
import typing as t


class BootUnit(t.NamedTuple):
    """A unit file with its ``name`` and ``text``; ``wanted_by`` is the target or device that starts the unit.

    drop_in: the text of a drop-in for the unit ``beside``; empty for none.
    rehearsal: the command that rehearses the unit's program; empty if it has none.
    before: the units that the operator named, and that this one precedes at boot.
    """

    name: str
    text: str
    drop_in: str = ""
    beside: str = "nftables.service"
    wanted_by: str = "multi-user.target"
    rehearsal: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


# -I ignores the environment and the user's packages, -S the node's packages; -B writes no compiled files.
ISOLATED = ("-I", "-S", "-B")
REHEARSE = "rehearse"  # a boot program's first argument for: try what is needed, and change nothing
LACKS_LIBRARY = 76  # the exit status of a rehearsal if a library that the program needs is missing


def isolated(python: str, program: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a boot program."""
    return (python, *ISOLATED, program, *arguments)


def interpreter(text: str) -> str:
    """Return the Python that a unit of this collection runs; empty if it runs none. text: of the unit file."""
    match = re.search(rf"^Exec(?:Condition|Start)=.*?(\S+) {' '.join(ISOLATED)} ", text, re.MULTILINE)
    return match[1] if match else ""


def loaded_path(text: str) -> str:
    """Return the file that a unit of this collection loads; empty if the text is not that of such a unit."""
    match = re.search(r"^ExecStart=(?:nft -f|\S+ -I -S -B \S+ \d+) (\S+)", text, re.MULTILINE)
    return match[1] if match else ""
