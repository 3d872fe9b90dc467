# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The base of all actions of the collection.

Facts come from a node, and replace variables of the inventory and defaults of roles: also of a role that runs commands on the
controller or on other hosts. So no action runs for a host whose facts have set a variable of the collection.
"""

from __future__ import annotations

import functools
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import first_of, in_one_line
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _node_answer

Result = dict[str, t.Any]
ROLES = sorted(path.name for path in Path(__file__).parents[2].glob("roles/*"))
OWNERS = (*ROLES, "audit", "kubenode", "trace")
PREFIXES = tuple(f"{marks}{owner}_" for owner in OWNERS for marks in ("", "__"))
# Variables that Ansible sets itself, and that facts replace nevertheless: a task is delegated to a host of this name.
MAGIC = ("group_names", "inventory_dir", "inventory_file", "inventory_hostname", "inventory_hostname_short", "playbook_dir")
MOST = 3  # variables that the error names


def set_by_facts(variables: t.Mapping[str, t.Any]) -> list[str]:
    """Return the variables of the collection that facts of the host have set. variables: of the task.

    A name that begins with ansible_ is among the facts without that, but no variable has the shorter name.
    """
    facts = variables.get("ansible_facts") or {}
    return sorted(name for name in facts if name in variables and (name.startswith(PREFIXES) or name in MAGIC))


def refuse_facts(variables: t.Mapping[str, t.Any]) -> None:
    """Raise AnsibleActionFail if facts of the host have set a variable of the collection."""
    names = set_by_facts(variables)
    if names:
        host = "this host" if "inventory_hostname" in names else variables.get("inventory_hostname")
        text = (
            f"facts of {host} have set {first_of(names, MOST)}, and a node must not set"
            " variables of kubenode.datapath. Nothing was changed. Set them in the inventory, in the play, or by -e. Find the"
            " program that returns these facts on the node, and clear a fact cache by --flush-cache"
        )
        raise AnsibleActionFail(in_one_line(text))


def _returning(run: t.Callable[..., Result]) -> t.Callable[..., Result]:
    """Return a function that returns the errors of run() as results."""

    @functools.wraps(run)
    def returned(self: NodeAction, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        try:
            return run(self, tmp, task_vars)
        except AnsibleConnectionFailure as failure:
            return {"unreachable": True, "changed": False, "msg": str(failure)}
        except AnsibleActionFail as failure:
            return {"failed": True, "changed": False, "msg": str(failure)}

    return returned


class NodeAction(ActionBase):
    def __init_subclass__(cls) -> None:
        """Let run() return its errors: ansible-core before 2.19 marks a result as data, and the text of these errors not.

        The text may be a node's. Once it is registered, Ansible would evaluate it as a template.
        """
        super().__init_subclass__()
        if "run" in vars(cls):
            cls.run = _returning(cls.run)  # type: ignore[method-assign]

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        refuse_facts(task_vars or {})
        result: Result = super().run(tmp, task_vars)
        return result


class ModuleAction(NodeAction):
    """The action of a module that needs nothing of the controller but that its answer is checked."""

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        return {**super().run(tmp, task_vars), **_node_answer.run(self, task_vars or {})}
