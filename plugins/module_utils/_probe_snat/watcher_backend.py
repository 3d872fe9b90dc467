# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps the probes' BPF programs on their link, in front of all others."""

from __future__ import annotations

import errno
import select
import socket
import sys
import time
import typing as t

from .._core.errors import Failure
from .._listener.listener_backend import LINK, Notifications, notify
from .._listener.schedule import Backoff
from .probe_programs import SetPrograms
from .programs_backend import Programs

TRAFFIC_CONTROL = 4  # RTNLGRP_TC (include/uapi/linux/rtnetlink.h)
PERIOD = 2.0  # seconds
DEBOUNCE = 0.05  # seconds; a program usually makes several changes at once
AT_ONCE = 512  # messages that are read at a time
WARNING = "<4>"  # for the journal, sd-daemon(3)
NOT_PERMITTED = (errno.EPERM, errno.ENOSYS)  # to who builds an image


class Watcher:
    """Keeps the programs of ``desired`` on their link. Where others keep taking their place, it attaches them less often."""

    def __init__(self, desired: SetPrograms) -> None:
        self._desired = desired
        self._programs = Programs()
        self._contests = Backoff()
        self._told = ""

    def rehearse(self) -> None:
        """Load the programs, attached to nothing. Raises Failure.

        Who builds an image may not be permitted to, and its kernel is not that of the node.
        """
        try:
            self._programs.try_loading(self._desired)
        except Failure as failure:
            if not isinstance(failure.__cause__, OSError) or failure.__cause__.errno not in NOT_PERMITTED:
                raise

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
        link, now = self._desired.link, time.monotonic()
        try:
            socket.if_nametoindex(link)
        except OSError:
            return f"Waiting for the link {link}"
        faults = self._programs.verify(self._desired)
        if faults and now < self._contests.until:
            return (
                f"{WARNING}{'; '.join(faults)}. The programs were attached {self._contests.times} times in a row, and so the next"
                f" time is after {self._contests.pause:g} s"
            )
        if faults:
            self._contests = self._contests.restored(now)
            self._programs.perform(self._desired)
            self._tell(f"Attached, as {'; '.join(faults)}")
            faults = self._programs.verify(self._desired)
        return f"{WARNING}{'; '.join(faults)}" if faults else f"The programs are on {link}"

    def _tell(self, state: str) -> None:
        if state != self._told:
            self._told = state
            sys.stdout.write(f"{state}\n")
            sys.stdout.flush()
            notify(f"STATUS={state.replace(WARNING, '')}")
