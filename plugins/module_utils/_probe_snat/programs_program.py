# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The program of the unit that attaches the probes' BPF programs, and keeps them in front of all others.

``watch PATH`` attaches them as soon as their link is there, and again whenever they are gone: with a link that comes back, or
because another program took their place. The kernel tells of links and of filters of traffic control; of tcx it does not, so the
program looks every PERIOD seconds.

``rehearse PATH`` only loads them, attached to nothing.
"""

from __future__ import annotations

import select
import socket
import sys
import time
import typing as t

from .._core.errors import Failure
from .._listener.listener_backend import LINK, Notifications, notify
from .._systemd.boot_unit import REHEARSE
from . import programs_unit
from .probe_programs import SetPrograms
from .programs_backend import Programs

TRAFFIC_CONTROL = 4  # RTNLGRP_TC (include/uapi/linux/rtnetlink.h)
PERIOD = 2.0  # seconds
DEBOUNCE = 0.05  # seconds; a program usually makes several changes at once
AT_ONCE = 512  # messages that are read at a time
WARNING = "<4>"  # for the journal, sd-daemon(3)


def main(arguments: t.Sequence[str] = ()) -> int:
    verb, path = arguments or sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        desired = programs_unit.from_text(file.read())
    pairs = tuple((str(source), str(translated)) for source, translated in desired.probes)
    watcher = Watcher(SetPrograms(desired.table, desired.link, pairs))
    if verb == REHEARSE:
        from .._boot import rehearsal_program  # no boot needs it

        rehearsal_program.import_everything()
        watcher.programs.try_loading(watcher.desired)
        return 0
    watcher.run()


class Watcher:
    """Keeps the programs of ``desired`` on their link."""

    def __init__(self, desired: SetPrograms) -> None:
        self.desired = desired
        self.programs = Programs()
        self._told = ""

    def run(self) -> t.NoReturn:
        notifications = Notifications(1 << LINK - 1 | 1 << TRAFFIC_CONTROL - 1)
        poll = select.poll()
        poll.register(notifications, select.POLLIN)
        self.look()
        notify("READY=1")
        while True:
            if poll.poll(PERIOD * 1000):
                time.sleep(DEBOUNCE)
                for _message in notifications.pending(AT_ONCE):
                    pass
            self.look()

    def look(self) -> None:
        """Attach the programs if the link lacks them, and say so, once for each state."""
        try:
            self._tell(self._state())
        except (Failure, OSError) as error:
            self._tell(f"{WARNING}{error}")

    def _state(self) -> str:
        link = self.desired.link
        try:
            socket.if_nametoindex(link)
        except OSError:
            return f"Waiting for the link {link}"
        faults = self.programs.verify(self.desired)
        if faults:
            started = time.monotonic()
            self.programs.perform(self.desired)
            self._tell(f"Attached after {(time.monotonic() - started) * 1000:.0f} ms, as {'; '.join(faults)}")
            faults = self.programs.verify(self.desired)
        return f"{WARNING}{'; '.join(faults)}" if faults else f"The programs are on {link}"

    def _tell(self, state: str) -> None:
        if state != self._told:
            self._told = state
            sys.stdout.write(f"{state}\n")
            sys.stdout.flush()
            notify(f"STATUS={state.replace(WARNING, '')}")
