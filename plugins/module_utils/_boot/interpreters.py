# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The Python that a unit of ours runs its boot program with."""

from __future__ import annotations

import os
import stat
import sys
import typing as t
from pathlib import Path

from .._core.errors import Failure, Refusal
from .._platform import process

OLDEST = (3, 9)  # as in boot_program.MAIN, which says so to an older one
# Where a boot may find nothing, or what a user has put there: what it empties, and homes, which may come late or from afar.
FLEETING = ("/dev/", "/home/", "/proc/", "/run/", "/sys/", "/tmp/", "/var/run/", "/var/tmp/")
ASK = f"import sys; sys.exit(0 if sys.version_info >= {OLDEST} else sys.version.split()[0])"


def is_lasting(path: str) -> bool:
    """Whether a program is there, and will be at the next boot, and only root can replace it. Starts nothing."""
    return not _defect(path)


def _defect(path: str) -> str:
    if not os.path.isabs(path):
        return "is no absolute path"
    real = os.path.realpath(path)
    if any(f"{one}/".startswith(FLEETING) for one in (path, real)):
        return "lies where a boot may not find it"
    try:
        status = os.stat(real)
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISREG(status.st_mode) or not os.access(real, os.X_OK):
        return "is no program"
    if status.st_uid != 0 or status.st_mode & 0o022 or any(map(_is_others, _folders(path))):
        return "can be replaced by another user than root"
    return ""


def _folders(path: str) -> t.Iterator[str]:
    """Through which the program is found: those above it, and above what each link on the way leads to."""
    while True:
        folder = os.path.dirname(path)
        for one in (folder, os.path.realpath(folder)):
            yield from (one, *map(str, Path(one).parents))
        if not os.path.islink(path):
            return
        path = os.path.join(folder, os.readlink(path))


def _is_others(folder: str) -> bool:
    """Whether another user can put something else at a name in it; a sticky folder keeps root's names. A group is trusted:

    Debian's /usr/local/bin is writable for group staff.
    """
    status = os.stat(folder)
    return status.st_uid != 0 or bool(status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX)


def choose() -> str:
    """The interpreter that runs this, if it lasts, or else one of the node's that lasts and is new enough.

    Each but the one that runs this is asked by a process of its own, in the environment that systemd gives a unit; PATH plays
    no part. Raises Refusal.
    """
    defects = {}
    for path in _candidates():
        defects[path] = _defect(path) or ("" if _is_this(path) else _too_old(path))
        if not defects[path]:
            return path
    said = "; ".join(f"{path} {defect}" for path, defect in defects.items()) or "there is none"
    wanted = ".".join(map(str, OLDEST))
    raise Refusal(
        f"the node's boot needs a Python {wanted} or newer that only root can replace, and found none: {said}. Nothing was"
        " changed. Install one (package python3), or set permanent to false"
    )


def _candidates() -> t.Iterator[str]:
    folders = process.SEARCH_PATH.split(":")
    if sys.executable:
        yield _without_version(sys.executable, folders)
    yield from (f"{folder}/python3" for folder in folders if os.path.lexists(f"{folder}/python3"))
    found = [path for folder in folders for path in Path(folder).glob("python3.*") if path.suffix[1:].isdigit()]
    yield from map(str, sorted(found, key=lambda path: -int(path.suffix[1:])))


def _without_version(path: str, folders: t.Collection[str]) -> str:
    """The distribution's name for its own Python outlives an upgrade: /usr/bin/python3 rather than /usr/bin/python3.11."""
    folder, plain = os.path.dirname(path), os.path.join(os.path.dirname(path), "python3")
    is_same = folder in folders and os.path.exists(plain) and os.path.samefile(path, plain)
    return plain if is_same else path


def _is_this(path: str) -> bool:
    return bool(sys.executable) and os.path.samefile(path, sys.executable)


def _too_old(path: str) -> str:
    try:
        done = process.run([path, "-I", "-S", "-B", "-c", ASK])
    except Failure as failure:  # a stub, one for another machine, one that hangs: another candidate may do
        return f"does not start: {failure.__cause__ or failure}"
    return "" if done.rc == 0 else f"is no Python {'.'.join(map(str, OLDEST))}: {done.stderr.strip() or done.rc}"
