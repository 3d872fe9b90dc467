# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Standard output, which may be a pipe that its reader closes, and on standard error what the program does meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process

from .arguments import ALWAYS, AUTO, COMMAND, JSON

PERIOD = 0.5  # seconds
USUAL = 80  # columns of a terminal that does not say its own
CLEAR = "\r\x1b[K"  # the line, of ECMA-48


def has_colours(when: str = AUTO) -> bool:
    """Return whether text has colours. when: as --color. The variables are those of no-color.org and force-color.org."""
    if when != AUTO:
        return when == ALWAYS
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def width() -> int:
    """Return the columns of the terminal; 0 where lines are read by a program, which are not wrapped then."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stdout.fileno()).columns
    return 0


def show(text: str) -> None:
    """Print a text, as the last thing that the program does.

    A reader such as head(1) may close the pipe. The signal then ends the program, as it ends other programs. Before, it would
    also end the program for a socket to a twin that has ended.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.write(text)
    sys.stdout.flush()


def data(value: t.Any, form: str) -> str:
    """Return data as JSON or YAML."""
    return json.dumps(value, indent=2) + "\n" if form == JSON else "".join(f"{line}\n" for line in _yaml(value))


def _yaml(value: t.Any) -> t.Iterator[str]:
    """Yield lines of YAML. A text or an empty value is written as JSON has it, which is YAML."""
    if not value or not isinstance(value, (dict, list)):
        yield json.dumps(value)
        return
    for key, entry in value.items() if isinstance(value, dict) else ((None, entry) for entry in value):
        first, *rest = _yaml(entry)
        if key is None:
            yield from (f"- {first}", *(f"  {line}" for line in rest))
        elif rest or (entry and isinstance(entry, (dict, list))):
            yield from (f"{key}:", *(f"  {line}" for line in (first, *rest)))
        else:
            yield f"{key}: {first}"


class Progress:
    """A line on standard error that says what the program does, and for how long, if a person sees it."""

    def __init__(self) -> None:
        self._text = ""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> t.Callable[[str], None]:
        if sys.stderr.isatty():
            self._thread.start()
        return self._say

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
            self._write("")

    def _say(self, text: str) -> None:
        self._text = text

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, process.ENDINGS)  # the main thread takes them, when it can
        begin = time.monotonic()
        while not self._is_over.wait(PERIOD):
            if self._text:
                self._write(f"{COMMAND}: {self._text}, {time.monotonic() - begin:.0f} s")

    def _write(self, text: str) -> None:
        """Write past Python's streams, whose locks a process that is forked meanwhile would inherit."""
        with contextlib.suppress(OSError):
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or USUAL
            os.write(sys.stderr.fileno(), f"{CLEAR}{text[: columns - 1]}".encode())
