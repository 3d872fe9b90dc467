# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs that are killed between two system calls, in the process of the test."""

from __future__ import annotations

import builtins
import functools
import os
import shutil
import typing as t

import pytest

REAL_OPEN = builtins.open


class Killed(BaseException):
    """The run was killed: none of its further operations is performed."""


class Mortal:
    """Kills a run before its ``last``-th system call that changes files."""

    CALLS = [(os, name) for name in ("rename", "unlink", "mkdir", "symlink", "chmod", "fchmod", "fsync")]

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self._left = last
        self._monkeypatch = monkeypatch

    def _counted(self, call: t.Callable[..., t.Any], *arguments: t.Any, **options: t.Any) -> t.Any:
        self._left -= 1
        if self._left <= 0:
            raise Killed
        return call(*arguments, **options)

    def _open(self, path: str, mode: str = "r", **options: t.Any) -> t.Any:
        opening = functools.partial(self._counted, REAL_OPEN) if mode == "x" else REAL_OPEN
        return opening(path, mode, **options)

    def lives(self, run: t.Callable[..., t.Any], *arguments: t.Any) -> bool:
        """Whether ``run`` ended without being killed."""
        with self._monkeypatch.context() as patch:
            patch.setattr(builtins, "open", self._open)
            for module, name in [*self.CALLS, (shutil, "rmtree")]:
                patch.setattr(module, name, functools.partial(self._counted, getattr(module, name)))
            try:
                run(*arguments)
            except Killed:
                return False
            return True
