# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run whose change the node rolls back by itself, unless the controller confirms it over a new connection."""

from __future__ import annotations

import contextlib
import secrets
import time
import typing as t

from .._core import codec
from .._core.errors import Failure
from .._core.plan import Plans, Resource, Step, UndoBackend, backend_of, changing
from .._files import files
from .._platform import kernel, library, processes
from . import checkpoint_backend, watchdog_backend
from .checkpoint import Armed, JournalEntry, vocabulary


class Checkpoint:
    """Makes a change by the module ``who`` that is rolled back after ``seconds`` unless it is confirmed.

    waits: what the controller needs in order to confirm the change; None if nothing was armed.
    """

    def __init__(self, seconds: int, who: str) -> None:
        self._seconds = seconds
        self._who = who
        self.waits: dict[str, t.Any] | None = None

    @contextlib.contextmanager
    def armed(self, surveyed: Plans) -> t.Iterator[t.Callable[[Resource, Step], None]]:
        """Arm the checkpoint before the block. If the block raises, the run has undone its changes, and nothing stays armed.

        surveyed: the plans of all resources whose steps may be noted. Yields a function that notes a step before it is done.
        Raises Failure or MissingLibrary if the node could not undo the steps of the plans.
        """
        kinds = {
            type(backend) for resource, _plan in surveyed for backend in resource.backends if isinstance(backend, UndoBackend)
        }
        operations = vocabulary(kinds)
        steps = [step for _resource, plan in changing(surveyed) for step in plan.steps]
        record = self._arm(
            sorted({codec.name_of(kind).rpartition(".")[0] for kind in kinds}),
            library.loaded(step.undo for step in steps),
            [len(codec.encode(step.undo, operations)) for step in steps if isinstance(step.undo, t.get_args(files.Operation))],
        )

        def note(resource: Resource, step: Step) -> None:
            if step.undo is not None:
                backend = codec.name_of(type(backend_of(resource, step.undo)))
                checkpoint_backend.note(codec.encode(JournalEntry(step.summary, backend, step.undo, step.is_backup), operations))

        try:
            yield note
        except BaseException:
            try:
                checkpoint_backend.close(record)
            finally:
                watchdog_backend.stop(record.watchdog)
            raise
        self.waits = {"id": record.identity, "left": record.deadline - time.monotonic(), "life": kernel.boot_identity()}

    def _arm(self, backends: t.Sequence[str], libraries: t.Sequence[str], reserve: t.Sequence[int]) -> Armed:
        """Arm the checkpoint.

        A run that is killed before the record is written has armed nothing, and its watchdog finds nothing to do.

        backends: the modules of the backends, which the roll-back program needs. reserve: see checkpoint_backend.prepare().
        """
        from .._boot.program_archive import archive

        identity, watchdog = secrets.token_hex(4), None
        try:
            # A folder and a marker may have to be made anew for a file, so two inodes for each.
            checkpoint_backend.prepare(archive("_checkpoint.rollback_program", backends), [*reserve, *reserve])
            watchdog, deadline = watchdog_backend.start(identity, self._seconds, libraries)
            record = Armed(
                identity,
                f"{self._who} from {processes.ssh_peer()}",
                time.time(),
                self._seconds,
                deadline,
                processes.myself(),
                processes.network_namespace(),
                watchdog,
            )
            checkpoint_backend.arm(record)
            if time.monotonic() > deadline:  # the watchdog may have looked before the record was written
                raise Failure(f"arming the checkpoint took longer than its {self._seconds} s")
        except BaseException:
            checkpoint_backend.clear()
            if watchdog:
                watchdog_backend.stop(watchdog)
            raise
        return record
