# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of the unit that attaches the probes' BPF programs, and keeps them in front of all others.

``watch PATH`` attaches them as soon as their link is there, and again whenever they are gone: with a link that comes back, or
because another program took their place. The kernel tells of links and of filters of traffic control; of tcx it does not, so the
program looks every PERIOD seconds.

``rehearse PATH`` only loads them, attached to nothing.
"""

from __future__ import annotations

import sys
import typing as t

from .._core.errors import Failure
from .._systemd.program_words import REHEARSE
from . import programs_unit
from .probe_programs import SetPrograms


def main(arguments: t.Sequence[str] = ()) -> int:
    verb, path = arguments or sys.argv[1:]
    try:
        with open(path, encoding="utf-8") as file:
            desired = programs_unit.from_text(file.read())
        from .watcher_backend import Watcher  # needs ctypes

        watcher = Watcher(SetPrograms.of(*desired))
        if verb == REHEARSE:
            from .._boot import rehearsal_program  # no boot needs it

            rehearsal_program.import_everything()
            watcher.rehearse()
            return 0
        watcher.run()
    except (Failure, OSError, ImportError) as error:
        sys.stderr.write(f"<3>{error}\n")
        return 1
