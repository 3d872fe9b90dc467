# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes each task's duration to a file, one line a task: name, seconds."""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: durations
type: stdout
short_description: Seconds of each task
description:
  - Appends a line "NAME SECONDS" for each task to the file that BENCH_DURATIONS names. The tasks of a role have its name.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "durations"

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._started = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        seconds = time.monotonic() - self._started
        role = result.task._role
        name = f"role:{role.get_name()}" if role else result.task_name
        with open(os.environ["BENCH_DURATIONS"], "a", encoding="utf-8") as file:
            file.write(f"{name} {seconds:.6f}\n")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._display.error(f"{result.task_name}: {result.result.get('msg')}")
