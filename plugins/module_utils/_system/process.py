# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""How the edges start programs: the runner is handed in, by a module or by the boot program."""

from __future__ import annotations

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


def run(argv: t.Sequence[str], stdin: str | None = None) -> Completed:
    """The runner of programs without Ansible. The C locale keeps messages recognisable."""
    done = subprocess.run(  # pylint: disable=ansible-bad-function  # there is no AnsibleModule at boot
        argv, input=stdin, capture_output=True, text=True, env={"PATH": SEARCH_PATH, "LC_ALL": "C"}, check=False
    )
    return Completed(done.returncode, done.stdout, done.stderr)
