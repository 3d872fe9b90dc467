# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Standard output, which may be a pipe that its reader closes."""

from __future__ import annotations

import os
import signal
import sys


def has_colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def show(text: str) -> None:
    """Print a text, as the last thing that the program does.

    A reader such as head(1) may close the pipe. The signal then ends the program, as it ends other programs. Before, it would
    also end the program for a socket to a twin that has ended.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.write(text)
    sys.stdout.flush()
