# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The variables of a role that a ConfigMap sets, for the agent of the DaemonSet.

An account that can write the ConfigMap may choose what the profile does, and may not run anything on the nodes. So _role_checks
marks each variable as permitted or refused, and each value must pass the checks of the role before a playbook starts.
"""

from __future__ import annotations

import reprlib
import typing as t

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _role_variables
from ansible_collections.kubenode.datapath.plugins.plugin_utils._role_checks import ROLES
from ansible_collections.kubenode.datapath.plugins.plugin_utils._role_variables import Specs

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 100


def accepted(role: str, specs: Specs, given: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], list[str]]:
    """The given variables with their types, or a sentence for each that cannot be used.

    specs: the options in the role's argument spec.
    """
    permitted = {f"{role}_{name}" for name in ROLES[role].permitted}
    sentences = _role_variables.unknown(role, specs, dict.fromkeys(given))
    sentences += [_refusal(role, name, value) for name, value in given.items() if name in specs and name not in permitted]
    if sentences:
        return {}, sentences
    values, sentences = _role_variables.read(role, specs, given)
    sentences = sentences or _role_variables.unfit_together(role, values, values["mode"] == "image")
    return {} if sentences else {name: values[name[len(role) + 1 :]] for name in given}, sentences


def _refusal(role: str, name: str, value: t.Any) -> str:
    why = ROLES[role].refused.get(name[len(role) + 1 :], "it is not marked as permitted")
    return (
        f"{name} is not accepted from a ConfigMap, because {why}; {_shown.repr(value)} was given. Remove it. Accepted are {role}_"
        f" followed by {', '.join(sorted(ROLES[role].permitted))}. A playbook from a controller may set the others"
    )
