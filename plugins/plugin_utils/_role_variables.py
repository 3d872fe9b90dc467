# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The variables that a role was given, against its argument spec and the checks of _role_checks. Each error is one sentence."""

from __future__ import annotations

import difflib
import json
import re
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubenode.datapath.plugins.module_utils._core import fields
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.fields import Unfit
from ansible_collections.kubenode.datapath.plugins.plugin_utils._role_checks import ROLES, Role

Specs = t.Mapping[str, t.Mapping[str, t.Any]]  # by variable

KINDS = {"str": "text", "path": "a path", "int": "an integer", "float": "a number", "dict": "a dictionary"}
ENTRIES = {"dict": "dictionaries", "str": "words", "int": "integers"}


def unknown(role: str, specs: Specs, variables: t.Mapping[str, t.Any], others: t.Iterable[str] = ()) -> list[str]:
    """A sentence for each variable that has the role's prefix and is none of its variables.

    variables: of the task, not templated. others: names of other roles of the play, whose names may begin with this role's.
    """
    prefixes = tuple(f"{other}_" for other in others if other.startswith(f"{role}_"))
    beside = {variables.get(name) for name in ("ansible_loop_var", "ansible_index_var")}
    return [
        _unknown(role, name, specs)
        for name, value in sorted(variables.items())
        if name.startswith(f"{role}_")
        and name not in specs
        and name not in beside
        and not (prefixes and name.startswith(prefixes))
        and not _is_registered(value)
    ]


def _unknown(role: str, name: str, specs: Specs) -> str:
    """Compares what follows the prefix, because the prefix alone would make all names alike."""
    suffixes = [known[len(role) + 1 :] for known in specs]
    near = difflib.get_close_matches(name[len(role) + 1 :], suffixes, n=1)
    hint = f"Did you mean {role}_{near[0]}?" if near else f"Remove it; the variables are {', '.join(sorted(suffixes))}."
    return f"{name} is not a variable of the role {role}. {hint}"


def _is_registered(value: object) -> bool:
    """True for the result of a task, which `register` may have put into a variable of any name."""
    return isinstance(value, t.Mapping) and "changed" in value and not {"failed", "skipped", "unreachable"}.isdisjoint(value)


def unreadable(name: str, given: object, complaint: str) -> str:
    """A sentence for a variable whose template fails."""
    return f"{name} must have a value that can be computed; {given!r} was given: {' '.join(complaint.split())}"


def read(role: str, specs: Specs, given: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], list[str]]:
    """The values by name without the role's prefix, and a sentence for each variable whose value cannot be used.

    given: the variables that are defined, templated. None is as if the variable were undefined, and has its default.
    """
    known = ROLES.get(role, Role())
    prefix = f"{role}_"
    values: dict[str, t.Any] = {}
    sentences = []
    for name, spec in specs.items():
        suffix = name[len(prefix) :]
        value = spec.get("default") if given.get(name) is None else given[name]
        try:
            real = {**spec, **known.specs.get(suffix, {})}
            values[suffix] = None if value is None else typed(name, real, value, suffix in known.words)
        except Invalid as error:
            sentences.append(str(error))
    is_applied = values.get("state") != known.undo
    for suffix, check in known.checks.items():
        if values.get(suffix) is not None:
            try:
                check(values[suffix], is_applied)
            except Invalid as error:
                sentences.append(prefix + suffix + _after_name(error))
    return values, sentences


def unfit_together(role: str, values: t.Mapping[str, t.Any], is_image: bool | None) -> list[str]:
    """A sentence for each rule on several variables that the values break. values: of read(), which found no errors.

    is_image: whether the node is an image, None if that is not known yet.
    """
    sentences: list[str] = []
    try:
        sentences.extend(ROLES.get(role, Role()).together(values, is_image))
    except Invalid as error:
        sentences.append(f"{role}_{error}")
    return sentences


def _after_name(error: Invalid) -> str:
    """The sentence without the option's name at its beginning; the place inside the option stays."""
    return re.sub(r"^\w+", "", str(error))


def typed(name: str, spec: t.Mapping[str, t.Any], given: t.Any, is_words: bool = False) -> t.Any:
    """The value as Ansible's argument spec converts it. Raises Invalid, whose option is the variable or a place in it.

    is_words: whether text for a list may be other than JSON, as Ansible's type list takes it.
    """
    kind = spec.get("type", "str")
    value, is_text = given, isinstance(given, str)
    if kind in ("list", "dict") and is_text and (given.lstrip().startswith(("[", "{")) or not is_words):
        try:
            value = json.loads(given)
        except (ValueError, RecursionError):
            raise Invalid(name, given, _allowed(spec)) from None
    if _is_misread(kind, value):
        raise Invalid(name, given, _allowed(spec))
    if kind == "bool":
        try:
            return fields.flag(value)  # the filter bool reads some of the texts that Ansible's type bool takes as false
        except Unfit as unfit:
            raise Invalid(name, given, str(unfit)) from None
    found = _validated(name, {key: one for key, one in spec.items() if key != "options"}, value)
    if found.error_messages:
        raise Invalid(name, given, _allowed(spec))
    if "options" in spec:
        return _entries(name, spec, found.validated_parameters[name])
    return found.validated_parameters[name]


def _is_misread(kind: str, value: object) -> bool:
    """True for a value that Ansible would convert to another than its author meant, such as a list to text."""
    if kind == "dict":
        return not isinstance(value, t.Mapping)
    if kind == "list":
        return not isinstance(value, (list, tuple, str))
    return kind in ("str", "path", "int", "float") and isinstance(value, (list, tuple, t.Mapping))


def _entries(name: str, spec: t.Mapping[str, t.Any], entries: t.Sequence[t.Any]) -> list[t.Any]:
    """The entries of a list of dictionaries, each against the options in the spec. Raises Invalid."""
    options = spec["options"]
    for number, entry in enumerate(entries):
        place = f"{name}[{number}]"
        for key, value in entry.items():
            if key not in options:
                raise Invalid(f"{place}.{key}", value, f"left out; known here are {', '.join(options)}")
        for key, option in options.items():
            if entry.get(key) is None and option.get("required"):
                raise Invalid(f"{place}.{key}", None, "given")
    return [
        {key: typed(f"{name}[{number}].{key}", options[key], value) for key, value in entry.items()}
        for number, entry in enumerate(entries)
    ]


def _validated(name: str, spec: t.Mapping[str, t.Any], value: object) -> t.Any:
    return ArgumentSpecValidator({name: spec}).validate({name: value})


def _allowed(spec: t.Mapping[str, t.Any]) -> str:
    """What the spec allows, as the end of the sentence "must be ..."."""
    if spec.get("choices"):
        return f"one of {', '.join(map(str, spec['choices']))}"
    kind = spec.get("type", "str")
    if kind == "list":
        return f"a list of {ENTRIES.get(spec.get('elements', ''), 'values')}, or JSON text of such a list"
    return KINDS.get(kind, f"of type {kind}") + (", or JSON text of one" if kind == "dict" else "")
