# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the options of a module in a twin by its argument spec, as Ansible does for a module that it runs."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.parts import Spec
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import option
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.option import Option

Values = t.Mapping[str, t.Any]


def checked(spec: Spec, values: Values) -> dict[str, t.Any]:
    """Return the options with their types and defaults. Raises Failure."""
    try:
        return _of_dictionary("", spec, values)
    except Invalid as error:
        raise Failure(f"{error}. Nothing was changed") from None


def _of_dictionary(place: str, spec: Spec, values: Values) -> dict[str, t.Any]:
    for name in values:
        if name not in spec:
            raise Invalid(f"{place}{name}", values[name], f"left out; known here are {', '.join(spec)}")
    return {name: _value(f"{place}{name}", about, values.get(name)) for name, about in spec.items()}


def _value(place: str, about: Values, value: t.Any) -> t.Any:
    value = about.get("default") if value is None else value
    if value is None:
        if about.get("required"):
            raise Invalid(place, value, "given")
        return None
    kind = about.get("type", "str")
    if kind == "list":
        element = {**about, "type": about["elements"], "default": None}
        values = option.typed(place, Option(kind, elements=about["elements"]), value)
        return [_value(f"{place}[{number}]", element, entry) for number, entry in enumerate(values)]
    converted = option.typed(place, Option(kind, choices=tuple(about.get("choices", ()))), value)
    return _of_dictionary(f"{place}.", about["options"], converted) if "options" in about else converted
