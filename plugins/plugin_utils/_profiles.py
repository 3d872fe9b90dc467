# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The profiles on the controller: collects the variables of a role and checks them, before anything is done on the node."""

from __future__ import annotations

import difflib
import reprlib
import typing as t
from types import MappingProxyType

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Options, Values, permitted
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import node_mode
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import (
    aks_dual_stack,
    cilium_migration,
    eni_policy_routing,
    symmetric_routing,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.composition import Model
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import packet
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _vault

# Imported with this file, which Ansible imports before it forks. A worker would repeat a later import for each host, which takes
# up to a tenth of a second.
PROFILES: dict[str, Model] = {
    "aks_dual_stack": aks_dual_stack,
    "cilium_migration": cilium_migration,
    "eni_policy_routing": eni_policy_routing,
    "symmetric_routing": symmetric_routing,
}
# The options of each role that the controller alone needs: a node gets a rehearsal by the module datapath_rehearsal.
# Carried out by the controller; the profile's module on the node does not get them.
CONTROLLER: Options = {
    "audit": permitted("bool", False),
    "rehearse": permitted("bool", False),
    "rehearse_packets": permitted(
        "list",
        [],
        elements="dict",
        entries={name: declared._replace(default=None) for name, declared in packet.OPTIONS.items()},
        check=lambda value, _is_applied: packet.from_list("rehearse_packets", value),
    ),
}
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 100
# Names of the play's roles, with and without their collection.
ROLE_NAMES = ("ansible_play_role_names", "ansible_dependent_role_names", "ansible_role_names")


def options_of(profile: str) -> Options:
    return {**PROFILES[profile].OPTIONS, **CONTROLLER}


def reported(profile: str, values: Values, variables: Values) -> dict[str, t.Any]:
    """Return the values of options for a report, without secrets: those that are encrypted, or are commands.

    variables: of the task, not templated.
    """
    options = options_of(profile)
    return {
        name: value
        for name, value in values.items()
        if options[name].refused not in (option.COMMAND, option.ARGUMENTS)
        and not _vault.is_in(variables.get(f"{profile}_{name}"))
    }


class Checked(t.NamedTuple):
    """values: of all options, with their types. errors: sentences, each of which begins with a variable's name."""

    values: dict[str, t.Any]
    errors: list[str]


def check(
    profile: str,
    raw: Values,
    is_image: t.Callable[[str], bool | None] = {"image": True, "runtime": False}.get,
    unread: t.Mapping[str, str] = MappingProxyType({}),
) -> Checked:
    """Return the values of a profile's options.

    is_image: takes the option ``mode``; None if the node must be asked. unread: options without a value, each with its error.
    """
    options = {name: declared for name, declared in options_of(profile).items() if name not in unread}
    values, errors = option.read(options, raw, PROFILES[profile].UNDO)
    sentences = [*unread.values(), *(f"{profile}_{error}" for error in errors)]
    if not sentences:
        try:
            sentences.extend(PROFILES[profile].conflicts(values, is_image(values["mode"])))
        except Invalid as error:
            sentences.append(f"{profile}_{error}")
    # A type of Python's own, for the arguments of the node's module.
    return Checked({name: [*value] if isinstance(value, option.Parsed) else value for name, value in values.items()}, sentences)


def check_variables(profile: str, action: ActionBase, variables: Values) -> Checked:
    """Return the values of a profile's options from the variables of its role. variables: of the task, not templated."""
    options = {f"{profile}_{name}": name for name in options_of(profile)}
    untemplated = {variable: variables[variable] for variable in options if variable in variables}
    unread: dict[str, str] = {}
    try:
        templated = _vault.templated(action._templar, untemplated)  # leaves out what the keyword omit stands for
    except AnsibleError:
        templated = {}
        for variable, value in untemplated.items():
            try:
                templated.update(_vault.templated(action._templar, {variable: value}))
            except AnsibleError as error:
                unread[options[variable]] = _unreadable(variable, value, str(error))
    raw = {options[variable]: value for variable, value in templated.items()}
    other_roles = {name.rpartition(".")[2] for key in ROLE_NAMES for name in variables.get(key) or ()}
    checked = check(profile, raw, lambda mode: is_image(action, mode, variables), unread)
    return checked._replace(errors=[*unknown(profile, variables, other_roles), *checked.errors])


def check_options(profile: str, raw: Values, action: ActionBase, variables: Values) -> Checked:
    """Return the values of a profile's options as a task gives them."""
    names = {f"{profile}_{name}": None for name in raw}
    checked = check(profile, raw, lambda mode: is_image(action, mode, variables))
    return checked._replace(errors=[*unknown(profile, names), *checked.errors])


def is_image(action: ActionBase, mode: str, variables: Values) -> bool | None:
    """Return whether the node is an image, as node_mode decides; None if that must ask the node."""
    verdict = node_mode.by_controller(mode, action._connection.transport, variables)
    return verdict and verdict.is_image


def unknown(profile: str, variables: Values, other_roles: t.Iterable[str] = ()) -> list[str]:
    """Return a sentence for each variable that has the role's prefix and is none of its variables.

    other_roles: of the play, whose names may begin with this role's.
    """
    prefixes = tuple(f"{other}_" for other in other_roles if other.startswith(f"{profile}_"))
    beside = {variables.get(name) for name in ("ansible_loop_var", "ansible_index_var")}
    options = options_of(profile)
    return [
        _unknown(profile, name, options)
        for name, value in sorted(variables.items())
        if name.startswith(f"{profile}_")
        and name[len(profile) + 1 :] not in options
        and name not in beside
        and not (prefixes and name.startswith(prefixes))
        and not _is_registered(value)
    ]


def _unknown(profile: str, name: str, options: t.Iterable[str]) -> str:
    """Compare what follows the prefix, because the prefix alone would make all names alike."""
    near = difflib.get_close_matches(name[len(profile) + 1 :], [*options], n=1)
    hint = f"Did you mean {profile}_{near[0]}?" if near else f"Remove it; the variables are {', '.join(sorted(options))}."
    return f"{name} is not a variable of the role {profile}. {hint}"


def _is_registered(value: object) -> bool:
    """Return True for the result of a task, which `register` may have put into a variable of any name."""
    return isinstance(value, t.Mapping) and "changed" in value and not {"failed", "skipped", "unreachable"}.isdisjoint(value)


def _unreadable(variable: str, value: object, message: str) -> str:
    """Return a sentence for a variable whose template fails."""
    return f"{variable} must have a value that can be computed; {value!r} was given: {' '.join(message.split())}"


def accepted(role: str, variables: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], list[str]]:
    """Return the variables that a ConfigMap sets with their types, or a sentence for each that cannot be used.

    An account that can write the ConfigMap may choose what the profile does, and may not run anything on the nodes. So each
    option is declared as permitted or refused, and each value must pass the checks of the role before a playbook starts.
    """
    refused = {f"{role}_{name}": option.refused for name, option in options_of(role).items() if option.refused}
    sentences = unknown(role, dict.fromkeys(variables))
    sentences += [_refusal(role, name, value, refused[name]) for name, value in variables.items() if name in refused]
    if sentences:
        return {}, sentences
    values, sentences = check(role, {name[len(role) + 1 :]: value for name, value in variables.items()})
    return {} if sentences else {name: values[name[len(role) + 1 :]] for name in variables}, sentences


def _refusal(role: str, name: str, value: t.Any, why: str) -> str:
    permitted = sorted(name for name, option in options_of(role).items() if not option.refused)
    return (
        f"{name} is not accepted from a ConfigMap, because {why}; {_shown.repr(value)} was given. Remove it. Accepted are {role}_"
        f" followed by {', '.join(permitted)}. A playbook from a controller may set the others"
    )
