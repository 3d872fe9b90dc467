# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The variables of a role that a ConfigMap sets, for the agent of the DaemonSet.

An account that can write the ConfigMap may choose what the profile does, and may not run anything on the nodes. So each option of
a profile is declared as permitted or refused, and each value must pass the checks of the role before a playbook starts.
"""

from __future__ import annotations

import reprlib
import typing as t

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 100


def accepted(role: str, variables: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], list[str]]:
    """Return the given variables with their types, or a sentence for each that cannot be used."""
    refused = {f"{role}_{name}": option.refused for name, option in _profiles.options_of(role).items() if option.refused}
    sentences = _profiles.unknown(role, dict.fromkeys(variables))
    sentences += [_refusal(role, name, value, refused[name]) for name, value in variables.items() if name in refused]
    if sentences:
        return {}, sentences
    values, sentences = _profiles.check(role, {name[len(role) + 1 :]: value for name, value in variables.items()})
    return {} if sentences else {name: values[name[len(role) + 1 :]] for name in variables}, sentences


def _refusal(role: str, name: str, value: t.Any, why: str) -> str:
    permitted = sorted(name for name, option in _profiles.options_of(role).items() if not option.refused)
    return (
        f"{name} is not accepted from a ConfigMap, because {why}; {_shown.repr(value)} was given. Remove it. Accepted are {role}_"
        f" followed by {', '.join(permitted)}. A playbook from a controller may set the others"
    )
