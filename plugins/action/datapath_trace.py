# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""datapath_trace on the controller: reads pasted outputs, lends pyroute2 to a node that lacks it, and prints the answer."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._render import terminal
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _pastes, _stdout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._changes import ChangesAction, is_true


class ActionModule(ChangesAction):
    def execute(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        run = super().execute
        result = _pastes.trace(arguments, lambda options: run(options, task_vars))
        if is_true(arguments.get("print")) and "verdict" in result:
            _stdout.show(self, _stdout.written(terminal.trace, result), _stdout.heading(task_vars))
        return result
