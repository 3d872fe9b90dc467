# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records each play's results for tests: one JSON line for a run of ansible-playbook or ansible."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: lab_record
type: aggregate
short_description: Results of each run, as JSON
description:
  - For tests only. Appends a line for each run of C(ansible-playbook) or C(ansible) to the file that E(LAB_RECORD) names.
  - It tells the C(playbook), whether it was run in C(check) mode, its C(results), a list of C(task), C(host), C(failed)
    and C(result), and its C(changes), a list of C(task), C(host) and C(diff). Two runs that do the same have equal changes.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "lab_record"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = os.path.basename(playbook._file_name)
        self._results: list[dict[str, Any]] = []

    def v2_runner_on_ok(self, result: Any) -> None:
        self._add(result, failed=False)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._add(result, failed=True)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._add(result, failed=True)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        changes = [
            {"task": record["task"], "host": record["host"], "diff": record["result"].get("diff")}
            for record in self._results
            if record["result"].get("changed")
        ]
        run = {
            "playbook": self._playbook,
            "check": context.CLIARGS["check"],
            "results": self._results,
            "changes": changes,
        }
        with open(os.environ["LAB_RECORD"], "a", encoding="utf-8") as file:
            print(json.dumps(run, default=str), file=file)

    def _add(self, result: Any, failed: bool) -> None:
        # ansible-core before 2.19 has these under private names.
        host, data = (result.host, result.result) if hasattr(result, "result") else (result._host, result._result)
        self._results.append({"task": result.task_name, "host": host.get_name(), "failed": failed, "result": data})
