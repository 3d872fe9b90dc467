# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of changes in a node's twin: lends pyroute2 to the module, tells it of an image, rehearses profiles."""

from __future__ import annotations

import contextlib
import json
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields, option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _library
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

REHEARSAL = "kubenode.datapath.datapath_rehearsal"
PROFILES = ("profile", "kubenode.datapath.profile")
CHECKS = option.permitted("list", elements="dict")


def is_true(value: object) -> bool:
    return bool(boolean(value, strict=False))


def rehearsed(
    action: ActionBase, profile: dict[str, t.Any], packets: t.Sequence[t.Any], task_vars: dict[str, t.Any]
) -> dict[str, t.Any]:
    """The result of datapath_rehearsal for a profile. profile: its options."""
    arguments = {"changes": [{"profile": profile}], "packets": packets}
    return _library.lend(action, arguments, task_vars, REHEARSAL)


def packets(arguments: t.Mapping[str, t.Any], node: str) -> list[t.Any]:
    """Return the packets of a rehearsal that a task of the module profile asks for. Raises Invalid.

    node: its name in the inventory.
    """
    value = arguments.get("rehearse_packets") or []
    listed = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            listed = json.loads(value)
    if not isinstance(listed, (list, tuple)):
        raise Invalid("rehearse_packets", value, "a list of packets, or JSON text of such a list")
    return [*listed, *packets_of_checks(arguments.get("rehearse_checks"), node)]


def packets_of_checks(checks: t.Any, node: str) -> list[dict[str, t.Any]]:
    """Return the first packet of each check that the node itself makes at an IP address. Raises Invalid.

    checks: of a rollout, as a list or JSON text of one; None for none. node: its name in the inventory.
    """
    listed = option.typed("rehearse_checks", CHECKS, checks or [])
    of_node = [check for check in listed if check.get("from", node) == node and _is_address(check.get("address"))]
    return [{"destination": check["address"], "destination_port": check.get("port")} for check in of_node]


def _is_address(value: t.Any) -> bool:
    try:
        fields.node(value)
    except fields.Unfit:
        return False
    return True


class ChangesAction(NodeAction):
    """The action of a module with the option ``changes``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        arguments, variables = dict(self._task.args), task_vars or {}
        changes = arguments.get("changes")
        if isinstance(changes, list):
            arguments["changes"] = [self._decided(change, variables) for change in changes]
        result.update(self.execute(arguments, variables))
        return result

    def execute(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run the module on the node."""
        return _library.lend(self, arguments, task_vars)

    def _decided(self, change: t.Any, variables: dict[str, t.Any]) -> t.Any:
        """The change. The mode of a profile is the controller's verdict, if the controller can tell."""
        if not isinstance(change, dict):
            return change
        return {name: self._with_mode(options, variables) if name in PROFILES else options for name, options in change.items()}

    def _with_mode(self, profile: t.Any, variables: dict[str, t.Any]) -> t.Any:
        if not isinstance(profile, dict):
            return profile
        if isinstance(profile.get("options"), dict):
            return {**profile, "options": self._with_mode(profile["options"], variables)}
        verdict = node_mode.by_controller(str(profile.get("mode", "auto")), self._connection.transport, variables)
        return {**profile, "mode": verdict.mode} if verdict else profile
