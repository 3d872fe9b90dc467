# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Text for people: on stdout, or on stderr if stdout may be read by a program, to which it is then left."""

from __future__ import annotations

import typing as t

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.color import ANSIBLE_COLOR

from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import Refused

# Stdout callbacks whose output is for people.
FOR_PEOPLE = {
    *("ansible.builtin.default", "ansible.builtin.minimal", "ansible.builtin.oneline", "ansible.posix.debug"),
    *("ansible.posix.skippy", "community.general.default_without_diff", "community.general.dense", "community.general.diy"),
    *("community.general.selective", "community.general.unixy", "community.general.yaml"),
}
PREFIXES = ("ansible.builtin.", "ansible.legacy.", "ansible.posix.", "community.general.")  # which a name may leave out


def is_for_people() -> bool:
    name = str(C.DEFAULT_STDOUT_CALLBACK)
    return name in FOR_PEOPLE or any(f"{prefix}{name}" in FOR_PEOPLE for prefix in PREFIXES)


def heading(task_vars: t.Mapping[str, t.Any]) -> str:
    """Return the name of the node if the play has several; else empty."""
    return str(task_vars.get("inventory_hostname")) if len(task_vars.get("ansible_play_hosts_all") or ()) > 1 else ""


def written(write: t.Callable[..., str], answer: object) -> str:
    """Return the answer of a module as text for people; an answer that is refused is an error of the task."""
    try:
        return write(answer, colours=ANSIBLE_COLOR)
    except Refused as error:
        raise AnsibleActionFail(f"The answer of the node is refused: {error}.") from None


def show(action: ActionBase, text: str, title: str = "") -> None:
    """Print what a task has found. With no_log, nothing is printed."""
    if not action._task.no_log:
        action._display.display("\n".join(filter(None, (title, text))), stderr=not is_for_people())
