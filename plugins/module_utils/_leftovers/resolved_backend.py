# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The DNS servers and search domains that systemd-resolved keeps for a link."""

from __future__ import annotations

import os
import time
import typing as t

from .._core.errors import Failure
from .._core.plan import UndoBackend
from .._platform import process

RUNTIME_SETTINGS = "/run/systemd/resolve/netif"  # one file for each link whose DNS was set at run time
RUNNING = "/run/systemd/resolve/resolv.conf"  # resolved writes it when it starts

PATIENCE, PAUSE = 2.0, 0.1  # seconds


class Dns(t.NamedTuple):
    servers: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()


class Set(t.NamedTuple):
    """Set a link's DNS to exactly this. An empty ``dns`` reverts the link to the DNS of its network daemon."""

    link: str
    dns: Dns


class Resolved(UndoBackend):
    """Reads and sets the DNS of links by resolvectl."""

    OPERATIONS = (Set,)
    VALUES = (Dns,)

    @classmethod
    def standalone(cls, run: process.Runner, warn: t.Callable[[str], None]) -> Resolved:
        return cls(run)

    def __init__(self, run: process.Runner) -> None:
        self._run = run

    def read(self, link: str) -> Dns:
        """Return the link's DNS; empty if resolved does not run or has none for the link. Starts only programs that read."""
        program = process.find("resolvectl")
        if program is None or not os.path.exists(RUNNING):
            return Dns()
        return Dns(*(self._ask(program, verb, link) for verb in ("dns", "domain")))

    def _ask(self, program: str, verb: str, link: str) -> tuple[str, ...]:
        """Return the words after the colon of a line such as ``Link 3 (azure0): 168.63.129.16``."""
        completed = self._run([program, verb, link], None)
        _link, _colon, words = completed.stdout.partition("): ")
        return tuple(words.split()) if completed.rc == 0 else ()

    def is_set_at_run_time(self, index: int) -> bool:
        """Return whether the link's DNS was set at run time. resolved keeps such a setting across its restarts, in a file."""
        return os.path.exists(f"{RUNTIME_SETTINGS}/{index}")

    def perform(self, operation: Set) -> None:
        """Raise Failure with what resolvectl printed.

        Tries for PATIENCE seconds: resolved may not know yet of a link that was just created, or that just left a bridge.
        """
        program, (link, dns) = process.find("resolvectl") or "resolvectl", operation
        commands = [["dns", link, *dns.servers], ["domain", link, *(dns.domains or ("",))]]
        deadline = time.monotonic() + PATIENCE
        while True:
            results = [self._run([program, *words], None) for words in (commands if dns.servers else [["revert", link]])]
            trouble = next((result.stderr.strip() or str(result.rc) for result in results if result.rc != 0), "")
            if not trouble and dns in (Dns(), self.read(link)):
                return
            if time.monotonic() > deadline:
                raise Failure(f"resolvectl could not set the DNS of {link}: {trouble or 'the setting was not kept'}")
            time.sleep(PAUSE)

    def verify(self, operation: Set) -> list[str]:
        """Return a sentence for each difference from what the operation should have left; see UndoBackend."""
        if operation.dns in (Dns(), self.read(operation.link)):
            return []
        return [f"the DNS of {operation.link} is not as it was"]
