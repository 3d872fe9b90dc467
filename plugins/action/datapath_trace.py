# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""datapath_trace on the controller: reads pasted outputs, and lends pyroute2 to a node that lacks it, for changes in the twin."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _pastes
from ansible_collections.kubenode.datapath.plugins.plugin_utils._changes import ChangesAction


class ActionModule(ChangesAction):
    def execute(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        run = super().execute
        return _pastes.execute(arguments, lambda given: run(given, task_vars))
