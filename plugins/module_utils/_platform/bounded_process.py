# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Calls a function in a process of its own, which the kernel ends when it exceeds a bound on computation or memory."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import traceback
import typing as t

from .._core.errors import Invalid


class Exceeded(Exception):
    """The function exceeded the bound that the text names."""


def call(work: t.Callable[[], t.Any], seconds: int, size: int) -> t.Any:
    """Return the function's result, which is plain data. Raises Exceeded, and Invalid if the function raises it.

    seconds: of computation. size: bytes of memory.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _child(work, seconds, size, writing)
    os.close(writing)
    with open(reading, "rb") as file:
        text = file.read()
    _pid, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        raise Exceeded(f"{seconds} s of computation")
    if status:  # also where the kernel itself had no memory, and killed the process
        raise Exceeded(f"{size >> 20} MiB of memory")
    answer = json.loads(text)
    if "invalid" in answer:
        raise Invalid(*answer["invalid"])
    if "failure" in answer:
        raise RuntimeError(answer["failure"])
    return answer["result"]


def _child(work: t.Callable[[], t.Any], seconds: int, size: int, writing: int) -> t.NoReturn:
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        # macOS refuses a bound on memory.
        for limit, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0)):
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
        text = json.dumps(_answer(work), default=str).encode()
        with open(writing, "wb") as file:
            file.write(text)
        os._exit(0)
    except BaseException:  # the answer, too, needs memory
        os._exit(1)


def _answer(work: t.Callable[[], t.Any]) -> dict[str, t.Any]:
    try:
        return {"result": work()}
    except Invalid as error:
        return {"invalid": error.values}
    except MemoryError:
        raise
    except Exception:
        return {"failure": traceback.format_exc()}
