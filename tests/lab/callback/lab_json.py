# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints the recap of a run as JSON, as callbacks for programs do, such as ansible.posix.json."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: lab_json
type: stdout
short_description: The recap of each run with the headers of its diffs, as JSON
description:
  - For tests only.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "lab_json"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._diffs: dict[str, list[str]] = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        headers = [entry["after_header"] for entry in result.result.get("diff") or ()]
        self._diffs.setdefault(result.host.name, []).extend(headers)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        recap = {host: {**stats.summarize(host), "diffs": self._diffs.get(host, [])} for host in stats.processed}
        self._display.display(json.dumps(recap))
