# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""role_variables: checks the variables of a role on the controller. Nothing is run on the node."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _role_variables
from ansible_collections.kubenode.datapath.plugins.plugin_utils._role_checks import ROLES

OWN_ROLES = Path(__file__).resolve().parents[2] / "roles"
# Names of the play's roles, with and without their collection.
ROLE_NAMES = ("ansible_play_role_names", "ansible_dependent_role_names", "ansible_role_names")


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        own = {"role": {"type": "str", "choices": [*ROLES]}}
        _validated, options = self.validate_argument_spec(argument_spec=own)
        role, specs = self._role(options["role"])
        others = {name.rpartition(".")[2] for key in ROLE_NAMES for name in variables.get(key) or ()}
        sentences = _role_variables.unknown(role, specs, variables, others)
        given, unread = self._given(specs, variables)
        readable = {name: spec for name, spec in specs.items() if name not in unread}
        values, errors = _role_variables.read(role, readable, given)
        sentences += [*unread.values(), *errors]
        if not unread and not errors:
            is_image = self._is_image(values.get("mode"), variables)
            sentences += _role_variables.unfit_together(role, values, is_image)
        if sentences:
            # Returned instead of raised, so that nothing precedes the variable's name.
            return {**result, "failed": True, "changed": False, "msg": printable("\n".join(sentences))}
        return {**result, "changed": False}

    def _role(self, name: str | None) -> tuple[str, _role_variables.Specs]:
        """The name of the role to check, and the options in its argument spec."""
        running = self._task._role
        if name:
            folder = OWN_ROLES / name
        elif running is not None:
            name, folder = running._role_name.rpartition(".")[2], Path(running._role_path)
        else:
            raise AnsibleActionFail(
                f"role must be given outside a role, one of {', '.join(ROLES)}; nothing was given. Nothing was changed"
            )
        path = folder / "meta/argument_specs.yml"
        if not path.is_file():
            raise AnsibleActionFail(f"role {name} has no {path}, which lists its variables. Nothing was changed")
        return name, self._loader.load_from_file(str(path))["argument_specs"]["main"].get("options") or {}

    def _given(self, specs: _role_variables.Specs, variables: dict[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, str]]:
        """The values of the role's variables, and by name a sentence for each whose template fails."""
        given: dict[str, t.Any] = {}
        unread = {}
        for name in specs:
            if name in variables:
                try:
                    given.update(self._templar.template({name: variables[name]}))
                except AnsibleError as error:
                    unread[name] = _role_variables.unreadable(name, variables[name], str(error))
        return given, unread

    def _is_image(self, mode: t.Any, variables: dict[str, t.Any]) -> bool | None:
        """Whether the node is an image, as node_mode decides; None if that must ask the node."""
        verdict = node_mode.by_controller(mode, self._connection.transport, variables)
        return verdict and verdict.is_image
