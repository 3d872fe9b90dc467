# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what each task costs to a file, one line a task: name, seconds of processors. Other programs change these little."""

from __future__ import annotations

import multiprocessing
import os
import resource
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: durations
type: stdout
short_description: Seconds of processors of each task
description:
  - Appends a line "NAME SECONDS" for each task to the file that BENCH_DURATIONS names. The tasks of a role have its name.
"""


def _spent() -> float:
    """Seconds of processors of this process, and of all that it started, the nodes of the lab included."""
    for worker in multiprocessing.active_children():
        worker.join()
    own, started = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + started.ru_utime + started.ru_stime


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "durations"

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._started = _spent()

    def v2_runner_on_ok(self, result: Any) -> None:
        seconds = _spent() - self._started
        role = result.task._role
        name = f"role:{role.get_name()}" if role else result.task_name
        with open(os.environ["BENCH_DURATIONS"], "a", encoding="utf-8") as file:
            file.write(f"{name} {seconds:.6f}\n")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._display.error(f"{result.task_name}: {result.result.get('msg')}")
