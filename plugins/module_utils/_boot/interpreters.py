# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Python that runs a unit's boot program: the one that the unit names already, or a new choice."""

from __future__ import annotations

import os
import stat
import sys
import typing as t
from pathlib import Path

from .._core.errors import Failure, Refusal
from .._files import files, folder_guards
from .._files.managed_files import HEADING
from .._platform import process
from .._systemd import boot_unit, unit_files, units
from .._systemd.boot_unit import BootUnit, UnitVerdict

OLDEST = (3, 9)  # as in program_archive.MAIN, which refuses to run with an older one
# Folders that a boot empties, and homes, which may be mounted late or over the network: at boot they may hold no program, or one
# of another user.
FLEETING = ("/dev/", "/home/", "/proc/", "/run/", "/sys/", "/tmp/", "/var/run/", "/var/tmp/")
ASK = f"import sys; sys.exit(0 if sys.version_info >= {OLDEST} else sys.version.split()[0])"


def is_lasting(path: str) -> bool:
    """Return whether the program exists, will exist at the next boot, and can be replaced only by root. Starts no process."""
    return not _defect(path)


def _defect(path: str) -> str:
    if not os.path.isabs(path):
        return "is not an absolute path"
    real = os.path.realpath(path)
    if any(f"{place}/".startswith(FLEETING) for place in (path, real)):
        return "lies where a boot may not find it"
    try:
        status = os.stat(real)
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISREG(status.st_mode) or not os.access(real, os.X_OK):
        return "is not an executable file"
    # Debian's /usr/local/bin is writable for the group staff.
    exposures = (folder_guards.exposure(folder, trusts_groups=True) for folder in folder_guards.on_the_way(path))
    if status.st_uid != 0 or status.st_mode & 0o022 or any(exposures):
        return "can be replaced by a user other than root"
    return ""


def choose() -> str:
    """Return the interpreter that runs this process, if it lasts; else the first on the node that lasts and is new enough.

    A candidate other than this process's interpreter is started to tell its version, in the environment that systemd gives a
    unit. PATH is not used. Raises Refusal if there is none.
    """
    defects = {}
    for path in _candidates():
        defects[path] = _defect(path) or ("" if _is_this(path) else _too_old(path))
        if not defects[path]:
            return path
    said = "; ".join(f"{path} {defect}" for path, defect in defects.items()) or "the node has no python3"
    wanted = ".".join(map(str, OLDEST))
    raise Refusal(
        f"the node's boot needs a Python {wanted} or newer that only root can replace, but there is none: {said}. Nothing"
        " was changed. Install one (package python3), or set permanent to false"
    )


def _candidates() -> t.Iterator[str]:
    folders = process.SEARCH_PATH.split(":")
    if sys.executable:
        yield _without_version(sys.executable, folders)
    yield from (f"{folder}/python3" for folder in folders if os.path.lexists(f"{folder}/python3"))
    paths = [path for folder in folders for path in Path(folder).glob("python3.*") if path.suffix[1:].isdigit()]
    yield from map(str, sorted(paths, key=lambda path: -int(path.suffix[1:])))


def _without_version(path: str, folders: t.Collection[str]) -> str:
    """Return the path without the version, if that is the same program: /usr/bin/python3 rather than /usr/bin/python3.11.

    The distribution's own name without a version outlives an upgrade.
    """
    folder, plain = os.path.dirname(path), os.path.join(os.path.dirname(path), "python3")
    is_same = folder in folders and os.path.exists(plain) and os.path.samefile(path, plain)
    return plain if is_same else path


def _is_this(path: str) -> bool:
    return bool(sys.executable) and os.path.samefile(path, sys.executable)


def _too_old(path: str) -> str:
    try:
        completed = process.run([path, "-I", "-S", "-B", "-c", ASK])
    except Failure as failure:  # as a stub, a program for another architecture, or one that hangs
        return f"does not start: {failure.__cause__ or failure}"
    if completed.rc == 0:
        return ""
    return f"is not Python {'.'.join(map(str, OLDEST))} or newer: {completed.stderr.strip() or completed.rc}"


def interpreter(backend: files.Files, systemd: units.Units, unit: t.Callable[[str], BootUnit]) -> str:
    """Return the interpreter that the unit on the node names, if it lasts and the unit needs no change; else a new choice.

    So a run by another interpreter changes nothing on a converged node, and a converged run starts no process for the choice.
    If the unit has failed, the choice is made anew, because the interpreter may be the reason.

    unit: gives the unit for an interpreter. Raises Refusal if the node has no suitable interpreter.
    """
    current = backend.read(unit_files.path_of(unit("").name))
    of_unit = boot_unit.interpreter(current.text) if isinstance(current, files.Content) else ""
    if of_unit and current == files.Content(HEADING + unit(of_unit).text) and is_lasting(of_unit):
        name = unit(of_unit).name
        if systemd.is_active(name) or not systemd.is_running() or systemd.verdict(name) is not UnitVerdict.FAILED:
            return of_unit
    return choose()
