# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The rehearsal of a boot program: what a unit will run, run now, in a mode that changes nothing."""

from __future__ import annotations

import typing as t

from .._core.errors import Failure, MissingLibrary
from .._platform import library, process
from .boot_unit import LACKS_LIBRARY


class Rehearse(t.NamedTuple):
    """Have ``command``, which is a unit's own, import and read all that it needs at boot."""

    command: tuple[str, ...]


def perform(operation: Rehearse) -> None:
    """In the environment that systemd gives a unit: where to find programs, and nothing of the login's.

    Raises Failure, and Missing where the unit's interpreter lacks a library that the one that runs this may well have.
    """
    command = " ".join(operation.command)
    done = process.run(operation.command)
    if done.rc == LACKS_LIBRARY:
        raise MissingLibrary(library.PYROUTE2, ".".join(map(str, library.MINIMUM[library.PYROUTE2])))
    if done.rc != 0:
        said = done.stderr.strip().splitlines()[-3:] or [f"exit status {done.rc}"]
        raise Failure(f"the next boot would fail. {command} answered {done.rc}: {' | '.join(said)}")
