# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The controller's side of changes in a node's twin: lends pyroute2 to the module, tells it of an image, rehearses profiles."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _library

REHEARSAL = "kubenode.datapath.datapath_rehearsal"
PROFILES = ("profile", "kubenode.datapath.profile")


def rehearsed(action: ActionBase, profile: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
    """The result of datapath_rehearsal for a profile that is to be rehearsed; empty for others.

    profile: its options, from which those of the rehearsal are taken out.
    """
    is_asked, packets = profile.pop("rehearse", False), profile.pop("rehearse_packets", None)
    if not boolean(is_asked, strict=False):
        return {}
    variables = dict(profile.get("variables") or {})
    variables["packets"] = variables.get("rehearse_packets", "rehearse_packets")
    arguments = {"changes": [{"profile": profile}], "packets": packets or [], "variables": variables}
    return _library.lend(action, arguments, task_vars, REHEARSAL)


class ChangesAction(ActionBase):
    """The action of a module with the option ``changes``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        arguments, variables = dict(self._task.args), task_vars or {}
        changes = arguments.get("changes")
        if isinstance(changes, list):
            arguments["changes"] = [self._decided(one, variables) for one in changes]
        result.update(self.execute(arguments, variables))
        return result

    def execute(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module on the node."""
        return _library.lend(self, arguments, task_vars)

    def _decided(self, change: t.Any, variables: dict[str, t.Any]) -> t.Any:
        """The change. The mode of a profile is the controller's verdict, if the controller can tell."""
        if not isinstance(change, dict):
            return change
        decided = {}
        for name, options in change.items():
            if name in PROFILES and isinstance(options, dict):
                verdict = node_mode.by_controller(str(options.get("mode", "auto")), self._connection.transport, variables)
                if verdict:
                    options = {**options, "mode": verdict.mode}
            decided[name] = options
        return decided
