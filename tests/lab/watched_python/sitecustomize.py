# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records what a Python changes: a line for each program that it starts and each path that it writes (PEP 578).

Python imports this file at its start if its folder is in PYTHONPATH. The variable WATCHED_RECORD names the file of the lines.
"""

from __future__ import annotations

import json
import os
import sys
import typing as t

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PATHS = {"os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
_PROGRAMS = {"os.exec": 1, "os.posix_spawn": 1, "os.system": 0, "subprocess.Popen": 1}  # and the place of the arguments
_record = os.open(os.environ["WATCHED_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _watch(event: str, arguments: tuple[t.Any, ...]) -> None:
    if event == "open":
        if isinstance(arguments[2], int) and arguments[2] & _WRITES and isinstance(arguments[0], (str, bytes)):
            _note("write", os.path.abspath(os.fsdecode(arguments[0])))
    elif event in _PROGRAMS:
        _note("program", arguments[_PROGRAMS[event]])
    elif event in _PATHS:
        descriptor = arguments[-1]  # of the folder to which a path is relative
        is_relative = isinstance(descriptor, int) and descriptor >= 0 and len(arguments) > 1
        folder = os.readlink(f"/proc/self/fd/{descriptor}") if is_relative else os.getcwd()
        for path in arguments[:2]:
            if isinstance(path, (str, bytes)):
                _note("write", os.path.join(folder, os.fsdecode(path)))


def _note(kind: str, value: object) -> None:
    os.write(_record, json.dumps([kind, value], default=str).encode() + b"\n")


sys.addaudithook(_watch)
