# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of this machine that make what the lab needs. A failure is a sentence that ends with the program's last lines."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import enclosure

from lab.entering import LabError

ALONE = ("setpriv", "--pdeathsig", "KILL", "--", *enclosure.ALONE)
"""In front of a command that mounts, or that starts others: all of it ends with its starter, however that ended."""

_SHOWN = 15  # lines of a program's output that tell why it failed


def run(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: str | Path | None = None) -> str:
    """Run a program; return its standard output. Raises LabError."""
    return output(argv, env=env, cwd=cwd).decode(errors="surrogateescape")


def output(argv: Sequence[str | Path], input: bytes = b"", **options: Any) -> bytes:
    """Run a program; return its standard output as it is. options: of subprocess.run. Raises LabError."""
    try:
        result = subprocess.run(argv, input=input, capture_output=True, check=False, **options)
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed on this machine, and the lab needs it") from error
    if result.returncode != 0:
        said = b"\n".join([result.stdout, result.stderr]).decode(errors="replace")
        raise LabError(_failure(argv, result.returncode, said))
    return result.stdout


def build(argv: Sequence[str | Path], log: Path, purpose: str, **options: Any) -> None:
    """Run a program that builds something, ALONE, with its output in ``log``, which is removed unless it fails.

    purpose: an infinitive, for the error. options: of subprocess.run. Raises LabError.
    """
    with log.open("a") as sink:
        status = subprocess.run(
            [*ALONE, *argv], check=False, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, **options
        ).returncode
    if status != 0:
        reason = _failure(argv, status, log.read_text(errors="replace"))
        raise LabError(f"could not {purpose}: {reason}\nThe whole log is {log}. Mend what it names, and run again")
    log.unlink()


def reported(main: Callable[[], Any]) -> None:
    """Run the main function of a program, and exit; an error of the lab is a sentence, not a traceback."""
    try:
        sys.exit(main())
    except (LabError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"lab: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _failure(argv: Sequence[str | Path], status: int, output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return "\n".join([f"{shlex.join(map(str, argv))[:300]} answered {status}", *lines[-_SHOWN:]])
