# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A run whose change the node takes back by itself, unless the controller confirms it over a new connection."""

from __future__ import annotations

import contextlib
import secrets
import time
import typing as t

from .._converge import Step
from .._model import codec
from .._model.checkpoint import Armed, Entry
from .._model.problem import Failure
from .._system import checkpoint, kernel, processes, watchdog


class Checkpoint:
    """Keeps a change by the module ``who`` open for ``seconds``.

    waits: what the controller has to know to confirm it; None while nothing was armed.
    """

    def __init__(self, seconds: int, who: str) -> None:
        self._seconds = seconds
        self._who = who
        self.waits: dict[str, t.Any] | None = None

    @contextlib.contextmanager
    def armed(self, steps: t.Sequence[Step]) -> t.Iterator[t.Callable[[Step], None]]:
        """Armed from before the block, unless the block raises: whoever raises has taken back by himself.

        Gives what notes a step before it is done. Raises Failure or Missing where the node could not take ``steps`` back.
        """
        from .._agent import rollback  # all the edges: not for a run that has nothing to change

        found = self._arm(rollback.libraries([step.undo for step in steps]))

        def note(step: Step) -> None:
            if step.undo is not None:
                checkpoint.note(codec.encode(Entry(step.summary, step.undo), rollback.KNOWN))

        try:
            yield note
        except BaseException:
            checkpoint.clear()
            watchdog.stop(found.watchdog)
            raise
        self.waits = {
            "id": found.identity,
            "left": found.deadline - time.monotonic(),
            "life": kernel.life(),
        }

    def _arm(self, libraries: t.Sequence[str]) -> Armed:
        """A run that is killed on the way has armed nothing, and its watchdog will find nothing to do."""
        from .boot_program import archive

        identity = secrets.token_hex(4)
        checkpoint.prepare(archive("rollback"))
        try:
            dog, deadline = watchdog.start(identity, self._seconds, libraries)
            found = Armed(
                identity,
                f"{self._who} from {processes.ssh_peer()}",
                time.time(),
                self._seconds,
                deadline,
                processes.myself(),
                processes.network_namespace(),
                dog,
            )
            checkpoint.arm(found)
            if time.monotonic() > deadline - watchdog.HEAD_START:  # it may have been here before, and found nothing
                raise Failure(f"to arm the checkpoint took longer than its {self._seconds} s")
        except BaseException:
            checkpoint.clear()
            raise
        return found
