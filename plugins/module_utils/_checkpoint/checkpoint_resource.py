# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A run whose change the node rolls back by itself, unless the controller confirms it over a new connection."""

from __future__ import annotations

import contextlib
import secrets
import time
import typing as t

from .._core import codec
from .._core.errors import Failure
from .._core.plan import Step
from .._platform import kernel, processes
from . import checkpoint_backend, watchdog_backend
from .checkpoint import Armed, Entry


class Checkpoint:
    """Makes a change by the module ``who`` that is rolled back after ``seconds`` unless it is confirmed.

    waits: what the controller needs in order to confirm the change; None if nothing was armed.
    """

    def __init__(self, seconds: int, who: str) -> None:
        self._seconds = seconds
        self._who = who
        self.waits: dict[str, t.Any] | None = None

    @contextlib.contextmanager
    def armed(self, steps: t.Sequence[Step]) -> t.Iterator[t.Callable[[Step], None]]:
        """Arms the checkpoint before the block. If the block raises, the run has undone its changes, and nothing stays armed.

        Yields a function that notes a step before it is done. Raises Failure or MissingLibrary if the node could not undo
        ``steps``.
        """
        from . import rollback_program  # imports all backends, so not in a run that changes nothing

        found = self._arm(rollback_program.libraries([step.undo for step in steps]))

        def note(step: Step) -> None:
            if step.undo is not None:
                checkpoint_backend.note(codec.encode(Entry(step.summary, step.undo, step.is_backup), rollback_program.KNOWN))

        try:
            yield note
        except BaseException:
            checkpoint_backend.clear()
            watchdog_backend.stop(found.watchdog)
            raise
        self.waits = {"id": found.identity, "left": found.deadline - time.monotonic(), "life": kernel.boot_identity()}

    def _arm(self, libraries: t.Sequence[str]) -> Armed:
        """A run that is killed before the record is written has armed nothing, and its watchdog finds nothing to do."""
        from .._boot.program_archive import archive

        identity = secrets.token_hex(4)
        checkpoint_backend.prepare(archive("_checkpoint.rollback_program"))
        try:
            watchdog, deadline = watchdog_backend.start(identity, self._seconds, libraries)
            found = Armed(
                identity,
                f"{self._who} from {processes.ssh_peer()}",
                time.time(),
                self._seconds,
                deadline,
                processes.myself(),
                processes.network_namespace(),
                watchdog,
            )
            checkpoint_backend.arm(found)
            if (
                time.monotonic() > deadline - watchdog_backend.HEAD_START
            ):  # the watchdog may have looked before the record was written
                raise Failure(f"arming the checkpoint took longer than its {self._seconds} s")
        except BaseException:
            checkpoint_backend.clear()
            raise
        return found
