# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The rehearsal of a boot program: the command of its unit is run now, in a mode that changes nothing."""

from __future__ import annotations

import typing as t

from .._core.errors import Failure, MissingLibrary
from .._platform import library, process
from .boot_unit import LACKS_LIBRARY


class Rehearse(t.NamedTuple):
    """Run ``command``, by which a unit's program imports and reads everything that it needs at boot."""

    command: tuple[str, ...]


def perform(operation: Rehearse) -> None:
    """Runs the command in the environment that systemd gives a unit: a search path, and no variables of the login.

    Raises Failure, and MissingLibrary if the unit's interpreter lacks a library, which this process's interpreter may have.
    """
    command = " ".join(operation.command)
    done = process.run(operation.command)
    if done.rc == LACKS_LIBRARY:
        raise MissingLibrary(library.PYROUTE2, ".".join(map(str, library.MINIMUM[library.PYROUTE2])))
    if done.rc != 0:
        said = done.stderr.strip().splitlines()[-3:] or [f"exit status {done.rc}"]
        raise Failure(f"the next boot would fail. {command} answered {done.rc}: {' | '.join(said)}")
