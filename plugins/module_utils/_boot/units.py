# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""systemd's folders and its manager. Units are enabled by the links that ``systemctl enable`` makes: offline as well."""

from __future__ import annotations

import os
import time
import typing as t
from pathlib import Path

from .._core.errors import Failure, MissingLibrary
from .._platform import kernel, process
from .boot_unit import LACKS_LIBRARY
from .unit_state import UnitState, Verdict

FOLDER = "/etc/systemd/system"
# Where a unit may be and may have been enabled, first come first served, systemd.unit(5).
FOLDERS = (
    FOLDER,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)


class Reload(t.NamedTuple):
    """Have the running manager read its unit files again."""


class Start(t.NamedTuple):
    """Start a unit, and wait until it is active, was skipped or has failed."""

    unit: str


class Restart(t.NamedTuple):
    """Start a unit anew, with the program that is there now, and wait for it as Start does."""

    unit: str


class Forget(t.NamedTuple):
    """Have the manager forget a unit whose file has gone: that it was started, has failed, or shall be tried again."""

    unit: str


class Rehearse(t.NamedTuple):
    """Have a unit's own command import and read all that it needs at boot, in a mode that changes nothing."""

    command: tuple[str, ...]


Operation = t.Union[Reload, Start, Restart, Forget, Rehearse]

# Seconds that a unit may take to start. Ours take 60 (the boot program's deadline) to 90 (TimeoutStartSec=), after a network
# that is waited for: systemd-networkd-wait-online(8) gives up after 120.
PATIENCE = 240.0
PAUSES = (0.01, 0.25)  # seconds between two looks at a unit that starts: at first, and at most
# Seconds for which a job that waits may be about to begin. After that, while the node boots, it waits for something else of
# the boot, which may well wait for the very run that would wait for the job (cloud-init).
GRACE = 2.0
BOOTING = ("initializing", "starting")  # systemctl(1), is-system-running
LINES = 10  # of the journal that an error repeats


def path_of(unit: str) -> str:
    """Where the administrator's file of a unit stands."""
    return f"{FOLDER}/{unit}"


def _unheard(_sentence: str) -> None:
    """What takes warnings where nobody reads them."""


class Units:
    """The edge. ``run`` starts programs; ``warn`` takes sentences for the operator. patience: see PATIENCE."""

    OPERATIONS = t.get_args(Operation)

    def __init__(
        self, run: process.Runner, warn: t.Callable[[str], None] = _unheard, patience: float = PATIENCE
    ) -> None:
        self._run = run
        self._warn = warn
        self._patience = patience

    def is_enabled(self, unit: str) -> bool:
        """Whether the unit is there, not masked, and named by a link in some target's or unit's .wants or .requires."""
        found = [path for path in (Path(folder, unit) for folder in FOLDERS) if os.path.lexists(path)]
        if not found or not found[0].is_file():  # missing, masked by a link to /dev/null, or a link to nowhere
            return False
        links = (link for folder in FOLDERS for link in Path(folder).glob(f"*.[wr]*s/{unit}"))
        return any(link.parent.suffix in (".wants", ".requires") for link in links)

    def named(self, pattern: str) -> set[str]:
        """Units of the operator's folder, and so ours, whose names match a shell pattern."""
        return {path.name for path in Path(FOLDER).glob(pattern)}

    def is_running(self) -> bool:
        """Whether systemd manages this root (sd_booted(3)); not where a chroot has the /run of its builder."""
        return os.path.isdir("/run/systemd/system") and kernel.is_own_root()

    def is_active(self, unit: str) -> bool:
        """Whether the unit was started and neither stopped nor failed: systemd keeps a link to each such unit's invocation.

        True of a unit that is only starting as well: ``verdict`` tells them apart.
        """
        return os.path.lexists(f"/run/systemd/units/invocation:{unit}") and kernel.is_own_root()

    def verdict(self, unit: str) -> Verdict:
        """What became of the unit's last start. One that is under way is waited for; QUEUED where that could not end.

        STARTING where its end has not come within the time that is given to it. Starts no process where systemd's socket
        answers. Raises Failure where systemd does not answer at all.
        """
        return self._settled(unit)[0]

    def _settled(self, unit: str) -> tuple[Verdict, UnitState]:
        began = time.monotonic()
        pause = PAUSES[0]
        while True:
            state = self._state(unit)
            waited = time.monotonic() - began
            if state.verdict is not Verdict.STARTING or waited >= self._patience:
                return state.verdict, state
            if state.waits_in_queue and waited >= GRACE and self._is_booting():
                return Verdict.QUEUED, state
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])

    def _state(self, unit: str) -> UnitState:
        return UnitState(*self._get(("ActiveState", "SubState", "Result", "Job"), unit))

    def _is_booting(self) -> bool:
        return self._get(("SystemState",))[0] in BOOTING

    def _get(self, names: t.Sequence[str], *unit: str) -> list[str]:
        """By systemd's socket, or by systemctl where there is none or it is another than we know."""
        from . import manager  # only for the runs that have a unit to look at

        try:
            return manager.get(names, *unit)
        except (OSError, ValueError):
            return self._show(names, *unit)

    def _show(self, names: t.Sequence[str], *unit: str) -> list[str]:
        shown = self._systemctl("show", f"--property={','.join(names)}", *unit)
        found = dict(line.partition("=")[::2] for line in shown.splitlines())
        if not found.keys() >= {*names}:
            asked = f"systemctl show {' '.join(unit)}".rstrip()
            raise Failure(f"{asked} should tell {', '.join(names)}, but said {shown.strip()!r}. Is it systemd's own?")
        return [found[name] for name in names]

    def perform(self, operation: Operation) -> None:
        """Does one operation. Raises Failure with what systemctl answered, or with what a unit that failed has said."""
        if isinstance(operation, Forget):
            for verb in ("stop", "reset-failed"):
                self._systemctl(verb, operation.unit, unless="not loaded")
        elif isinstance(operation, (Start, Restart)):
            self._start(operation)
        elif isinstance(operation, Reload):
            self._systemctl("daemon-reload")
        elif isinstance(operation, Rehearse):
            _rehearse(operation)
        else:
            raise TypeError(f"{operation!r} is no operation on units")

    def verify(self, operation: Operation) -> list[str]:
        """What is not as the operation should have left it; see rollback_program.Backend. A start tells by itself."""
        if isinstance(operation, Forget) and self.is_active(operation.unit):
            return [f"{operation.unit} is still active"]
        return []

    def _start(self, operation: Start | Restart) -> None:
        """A start that systemctl waited for would have no end where the unit's job waits for this run."""
        unit = operation.unit
        self._systemctl("reset-failed", unit, unless="not loaded")  # or five starts in a row were refused unseen
        is_anew = isinstance(operation, Restart) or self._state(unit).waits_to_try_again
        self._systemctl("--no-block", "restart" if is_anew else "start", unit)
        verdict, state = self._settled(unit)
        if verdict is Verdict.QUEUED:
            self._warn(
                f"{unit} is enabled, and its start is queued, but was not seen: the node is still booting, and systemd starts"
                f" it when what it comes after is through. Run again after the boot, or look at `systemctl status {unit}`."
            )
        elif verdict not in (Verdict.ACTIVE, Verdict.SKIPPED):
            raise Failure(
                f"{unit} was started and should be active, but is {state}{self._limit(verdict)}. {self._last_lines(unit)}."
                f" See `systemctl status {unit}`, also for drop-ins, and `systemctl list-jobs`"
            )

    def _limit(self, verdict: Verdict) -> str:
        return f" after {self._patience:g} s" if verdict is Verdict.STARTING else ""

    def _last_lines(self, unit: str) -> str:
        journalctl = process.find("journalctl")
        if journalctl is None:
            return "There is no journalctl to read its journal with"
        self._run([journalctl, "--sync"], None)  # what it said last may be on its way
        done = self._run(
            [journalctl, f"--unit={unit}", f"--lines={LINES}", "--output=cat", "--no-pager", "--quiet"], None
        )
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return f"Its journal ends with: {' | '.join(lines)}" if lines else "Its journal is empty"

    def _systemctl(self, *arguments: str, unless: str = "\0") -> str:
        done = self._run([process.find("systemctl") or "systemctl", *arguments], None)
        if done.rc != 0 and unless not in done.stderr:
            raise Failure(f"systemctl {' '.join(arguments)}: {done.stderr.strip() or done.rc}")
        return done.stdout


def _rehearse(operation: Rehearse) -> None:
    """In the environment that systemd gives a unit: where to find programs, and nothing of the login's.

    Raises Failure, and Missing where the unit's interpreter lacks a library that the one that runs this may well have.
    """
    from .._platform import library

    command = " ".join(operation.command)
    done = process.run(operation.command)
    if done.rc == LACKS_LIBRARY:
        raise MissingLibrary(library.PYROUTE2, ".".join(map(str, library.MINIMUM[library.PYROUTE2])))
    if done.rc != 0:
        said = done.stderr.strip().splitlines()[-3:] or [f"exit status {done.rc}"]
        raise Failure(f"the next boot would fail. {command} answered {done.rc}: {' | '.join(said)}")
