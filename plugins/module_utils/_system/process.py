# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""How programs are started, by the runner that edges are handed by a module or by the boot program."""

from __future__ import annotations

import os
import shutil
import subprocess
import typing as t

# Where a node keeps its administration tools; a login's or a cron job's PATH often lacks them.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Completed(t.NamedTuple):
    """A program that ended: its exit status and what it printed."""

    rc: int
    stdout: str
    stderr: str


Runner = t.Callable[[t.Sequence[str], t.Optional[str]], Completed]


def find(program: str) -> str | None:
    """The program's path, or None where the node does not have it. Starts nothing."""
    return shutil.which(program, path=SEARCH_PATH)


def run(argv: t.Sequence[str], stdin: str | None = None, environment: t.Mapping[str, str] | None = None) -> Completed:
    """The runner. The C locale keeps messages recognisable. Bytes that are no UTF-8 come as surrogates.

    environment: what the program gets besides, where to find programs alone if it is None.
    Raises OSError where the program can not be started.
    """
    # Files, as a daemon that the program leaves behind would hold a pipe open. AnsibleModule.run_command takes some
    # milliseconds longer: it has Python run code between fork and exec, so that all of its memory is mapped again.
    with _in_memory(stdin or "") as given, _in_memory() as out, _in_memory() as error:
        program = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=given,
            stdout=out,
            stderr=error,
            env={**(environment or {"PATH": SEARCH_PATH}), "LC_ALL": "C"},
        )
        return Completed(program.wait(), _text(out), _text(error))


def _in_memory(text: str = "") -> t.BinaryIO:
    file = os.fdopen(os.memfd_create("kubenode"), "w+b")
    file.write(text.encode("utf-8", "surrogateescape"))
    file.seek(0)  # and with it, what was written is flushed
    return file


def _text(file: t.BinaryIO) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "surrogateescape")
