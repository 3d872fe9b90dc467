# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""role_variables: checks the variables of a role on the controller. Nothing is run on the node."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction


class ActionModule(NodeAction):
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        spec = {"role": {"type": "str", "choices": [*_profiles.PROFILES], "required": True}}
        _validated, arguments = self.validate_argument_spec(argument_spec=spec)
        checked = _profiles.check_variables(arguments["role"], self, task_vars or {})
        if checked.errors:
            # Returned instead of raised, so that nothing precedes the variable's name.
            return {**result, "failed": True, "changed": False, "msg": printable("\n".join(checked.errors))}
        return {**result, "changed": False, "options": checked.values}
