# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemd's manager, and whether a unit is enabled: by a symbolic link, which can be made offline, too."""

from __future__ import annotations

import os
import time
import typing as t
from pathlib import Path

from .._core.errors import Failure
from .._core.plan import UndoBackend
from .._platform import kernel, process
from . import unit_files
from .boot_unit import BootUnit, UnitState, UnitVerdict
from .program_words import LACKS_LIBRARY

if t.TYPE_CHECKING:
    from .boot_order import BootOrder


import typing as t

from .._core.plan import Step


class Reload(t.NamedTuple):
    """Make the running manager read its unit files again (daemon-reload)."""


class Start(t.NamedTuple):
    """Start a unit, and wait until it is active, was skipped or has failed."""

    unit: str


class Restart(t.NamedTuple):
    """Restart a unit with its current program, and wait as Start does."""

    unit: str


class Forget(t.NamedTuple):
    """Stop a unit, clear its failure, and cancel a further start. The manager then unloads it if its file is gone."""

    unit: str


class Rehearse(t.NamedTuple):
    """Make a unit's own command import and read everything that it needs at boot, in a mode that changes nothing."""

    command: tuple[str, ...]


class CheckOrder(t.NamedTuple):
    """Check that no boot leaves out the placed unit, or a unit that it precedes. See BootUnit.

    asked: the units of this collection, with their texts, of which systemd was asked before the change. If these are what
        was placed, its answer stands. A run that places several units asks again of all of them.
    """

    unit: BootUnit
    asked: tuple[tuple[str, str], ...] = ()


Operation = t.Union[Reload, Start, Restart, Forget, Rehearse, CheckOrder]

# Seconds that a unit may take to start. A unit of this collection takes up to 60 (the boot program's deadline) or 90
# (TimeoutStartSec=), after it has waited for the network: systemd-networkd-wait-online(8) gives up after 120.
PATIENCE = 240.0
PAUSES = (0.01, 0.25)  # seconds between two queries of a unit that starts: the first pause and the longest
# Seconds within which a queued job begins, unless it waits for another job. While the node boots, that job may itself wait for
# the run that would wait here, as in cloud-init. So the run does not wait longer.
GRACE = 2.0
LINES = 10  # of the journal that an error message repeats
BOOTING = ("initializing", "starting")  # systemctl(1), is-system-running


def _discard(_sentence: str) -> None:
    """Discard a warning."""


class Units(UndoBackend):
    """The backend. ``run`` starts programs; ``warn`` takes sentences for the operator. patience: seconds, see PATIENCE."""

    OPERATIONS = t.get_args(Operation)

    @classmethod
    def standalone(cls, run: process.Runner, warn: t.Callable[[str], None]) -> Units:
        return cls(run)

    def __init__(self, run: process.Runner, warn: t.Callable[[str], None] = _discard, patience: float = PATIENCE) -> None:
        self.run = run
        self.warn = warn
        self.patience = patience

    def is_enabled(self, unit: str) -> bool:
        """Return whether the unit exists, is not masked, and has a symbolic link in a .wants or .requires folder."""
        paths = [path for path in (Path(folder, unit) for folder in unit_files.FOLDERS) if os.path.lexists(path)]
        if not paths or not paths[0].is_file():  # missing, masked by a link to /dev/null, or a dangling link
            return False
        links = (link for folder in unit_files.FOLDERS for link in Path(folder).glob(f"*.[wr]*s/{unit}"))
        return any(link.parent.suffix in (".wants", ".requires") for link in links)

    def named(self, pattern: str) -> set[str]:
        """See unit_files.named()."""
        return unit_files.named(pattern)

    def own_texts(self) -> dict[str, str]:
        """See unit_files.own_texts()."""
        return unit_files.own_texts()

    def is_running(self) -> bool:
        return kernel.is_managed_by_systemd()

    def is_active(self, unit: str) -> bool:
        """Return whether the unit was started and has neither stopped nor failed, by the link that systemd keeps for its
        invocation.

        Also true of a unit that is still starting: ``verdict`` tells the two apart.
        """
        return os.path.lexists(f"/run/systemd/units/invocation:{unit}") and kernel.is_own_root()

    def verdict(self, unit: str) -> UnitVerdict:
        """Return the result of the unit's last start. Waits for a start that is in progress.

        QUEUED if the start cannot end before the node has booted. STARTING if it has not ended within ``patience``. Starts no
        process if systemd's socket answers. Raises Failure if systemctl does not answer either.
        """
        return self.settled(unit)[0]

    def settled(self, unit: str) -> tuple[UnitVerdict, UnitState]:
        """Return the verdict, and the state of the unit that it was taken from."""
        began = time.monotonic()
        pause = PAUSES[0]
        while True:
            state = self.state(unit)
            waited = time.monotonic() - began
            if state.verdict is not UnitVerdict.STARTING or waited >= self.patience:
                return state.verdict, state
            if state.waits_in_queue and waited >= GRACE and self._is_booting():
                return UnitVerdict.QUEUED, state
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])

    def comes_before(self, unit: str) -> list[str]:
        """Return the units that systemd starts after ``unit``, by their own names and not by their aliases. Starts systemctl."""
        return self._show(("Before",), unit)[0].split()

    def boot_order(self, unit: BootUnit, is_placed: bool = False) -> BootOrder:
        """See boot_order.read()."""
        from . import boot_order  # only for runs that place a unit

        return boot_order.read(unit, is_placed)

    def state(self, unit: str) -> UnitState:
        return UnitState(*self._get(("ActiveState", "SubState", "Result", "Job"), unit))

    def _is_booting(self) -> bool:
        return self._get(("SystemState",))[0] in BOOTING

    def _get(self, names: t.Sequence[str], *unit: str) -> list[str]:
        """Return properties from systemd's socket; from systemctl if there is no socket, or its answer cannot be parsed."""
        from . import manager  # only for runs that need the state of a unit

        try:
            return manager.get(names, *unit)
        except (OSError, ValueError):
            return self._show(names, *unit)

    def _show(self, names: t.Sequence[str], *unit: str) -> list[str]:
        result = self.systemctl("show", f"--property={','.join(names)}", *unit)
        properties = dict(line.partition("=")[::2] for line in result.splitlines())
        if not properties.keys() >= {*names}:
            command = f"systemctl show {' '.join(unit)}".rstrip()
            raise Failure(
                f"{command} should print {', '.join(names)}, but printed {result.strip()!r}. Is systemctl systemd's own?"
            )
        return [properties[name] for name in names]

    def perform(self, operation: Operation) -> None:
        """Perform one operation. Raises Failure with systemctl's answer, or with the last journal lines of a failed unit."""
        if isinstance(operation, Forget):
            for verb in ("stop", "reset-failed"):
                self.systemctl(verb, operation.unit, unless="not loaded")
        elif isinstance(operation, (Start, Restart)):
            _start(self, operation)
        elif isinstance(operation, Reload):
            self.systemctl("daemon-reload")
        elif isinstance(operation, Rehearse):
            rehearse(operation)
        elif isinstance(operation, CheckOrder):
            is_answered = self.own_texts() == dict(operation.asked)
            trouble = "" if is_answered else self.boot_order(operation.unit, is_placed=True).trouble
            if trouble:
                raise Failure(f"{operation.unit.name} is placed, and {trouble}")
        else:
            raise TypeError(f"{operation!r} is no operation on units")

    def verify(self, operation: Operation) -> list[str]:
        """Describe differences from the state that the operation leaves; see UndoBackend.

        Empty for a start, which verifies itself.
        """
        if isinstance(operation, Forget) and self.is_active(operation.unit):
            return [f"{operation.unit} is still active"]
        return []

    def systemctl(self, *arguments: str, unless: str = "\0") -> str:
        """Return the output of systemctl. Raises Failure if it fails without ``unless`` in its error message."""
        completed = self.run([process.find("systemctl") or "systemctl", *arguments], None)
        if completed.rc != 0 and unless not in completed.stderr:
            raise Failure(f"systemctl {' '.join(arguments)}: {completed.stderr.strip() or completed.rc}")
        return completed.stdout


def _start(systemd: Units, operation: Start | Restart) -> None:
    """Start with --no-block: systemctl would wait for ever if the unit's job waits for this run."""
    unit = operation.unit
    # Otherwise systemd refuses a start after five in a row (StartLimitBurst=).
    systemd.systemctl("reset-failed", unit, unless="not loaded")
    is_anew = isinstance(operation, Restart) or systemd.state(unit).waits_to_try_again
    systemd.systemctl("--no-block", "restart" if is_anew else "start", unit)
    verdict, state = systemd.settled(unit)
    if verdict is UnitVerdict.QUEUED:
        systemd.warn(
            f"{unit} is enabled, and its start is queued, but was not seen: the node is still booting, and systemd starts"
            f" the unit after the units that come before it. Run again after the boot, or see `systemctl status {unit}`."
        )
    elif verdict not in (UnitVerdict.ACTIVE, UnitVerdict.SKIPPED):
        raise Failure(
            f"{unit} was started and should be active, but is {state}{_limit(systemd, verdict)}. {_last_lines(systemd, unit)}."
            f" See `systemctl status {unit}`, also for drop-ins, and `systemctl list-jobs`"
        )


def _limit(systemd: Units, verdict: UnitVerdict) -> str:
    return f" after {systemd.patience:g} s" if verdict is UnitVerdict.STARTING else ""


def _last_lines(systemd: Units, unit: str) -> str:
    journalctl = process.find("journalctl")
    if journalctl is None:
        return "Its journal cannot be read, because the node has no journalctl"
    systemd.run([journalctl, "--sync"], None)  # the unit's last lines may not be in the journal yet
    completed = systemd.run([journalctl, f"--unit={unit}", f"--lines={LINES}", "--output=cat", "--no-pager", "--quiet"], None)
    lines = [line.strip() for line in completed.stdout.splitlines() if line.strip()]
    return f"Its journal ends with: {' | '.join(lines)}" if lines else "Its journal is empty"


def rehearse(operation: Rehearse) -> None:
    """Run the command in the environment that systemd gives a unit: a search path, and no variables of the login.

    Raises Failure, and MissingLibrary if the unit's interpreter lacks a library, which this process's interpreter may have.
    """
    command = " ".join(operation.command)
    completed = process.run(operation.command)
    if completed.rc == LACKS_LIBRARY:
        from .._platform import library

        raise library.missing(library.PYROUTE2)
    if completed.rc != 0:
        said = completed.stderr.strip().splitlines()[-3:] or [f"exit status {completed.rc}"]
        raise Failure(f"the next boot would fail. {command} answered {completed.rc}: {' | '.join(said)}")


def with_reload(steps: t.Sequence[Step], is_managed: bool) -> tuple[Step, ...]:
    """Return the steps with a reload of systemd after them, and after their roll-back.

    Without reloads if systemd does not run here.
    """
    if not steps or not is_managed:
        return tuple(steps)
    undo = Step("have systemd read its former unit files", undo=Reload())  # the first step is undone last
    return (undo, *steps, Step("have systemd read its unit files", Reload()))
