# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The options of a profile: their types, what their values must be, and whether a ConfigMap may set them.

Read on the controller and on the node by the same function. Pure: knows no node and no class of Ansible.
"""

from __future__ import annotations

import decimal
import json
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from .._platform import node_mode

Values = t.Mapping[str, t.Any]
# Takes a value and whether it is to be applied: the state that undoes accepts what an earlier version has installed. Raises
# Invalid, whose option is that of the profile or a place in it.
Check = t.Callable[[t.Any, bool], object]

# Why a ConfigMap must not set an option; each ends a sentence with "because". The writer of a ConfigMap must not become root on
# the nodes, so an option that becomes a command, a part of one, or a path is never permitted.
UNMARKED = "it is not marked as permitted"
COMMAND = "it is a command"
ARGUMENTS = "it becomes a part of a command"
PATH = "it is a path"
KUBECTL = "the agent has no kubectl"
HOST = "it is a host of an inventory"
MOST_DIGITS = 30  # of an integer; "1e999999999" would fill the memory


class Option(t.NamedTuple):
    """An option of a profile, a variable of its role. Its documentation is in the role's argument spec.

    type: str, path, int, bool, list or dict. default: None for an option that may be left out. choices: the values, if only
    these are allowed. elements: str or dict, of a list. entries: the options of each dictionary in a list. is_required: of an
    option in ``entries``. is_words: a list that may also be given as words with commas; JSON text is accepted for each list and
    dictionary. refused: why a ConfigMap must not set the option; empty if it may. check: the requirements beyond the type.
    targets: the options of modules that get the value, as MODULE.OPTION; an error of one of them names this option.
    """

    type: str
    default: t.Any = None
    choices: tuple[str, ...] = ()
    elements: str = ""
    entries: t.Mapping[str, Option] | None = None
    is_required: bool = False
    is_words: bool = False
    refused: str = UNMARKED
    check: Check | None = None
    targets: tuple[str, ...] = ()


Options = t.Mapping[str, Option]


def permitted(type: str, default: t.Any = None, **more: t.Any) -> Option:
    """Return an option that a ConfigMap may set."""
    return Option(type, default, refused="", **more)


MODE = permitted("str", "auto", choices=node_mode.MODES)


def applied(check: t.Callable[[str, t.Any], object], option: str) -> Check:
    """Return a check that the state that undoes does not need."""
    return lambda value, is_applied: check(option, value) if is_applied else None


def within(option: str, low: int, high: int) -> Check:
    """Return a check of a number's bounds."""

    def check(value: t.Any, _is_applied: bool) -> None:
        try:
            fields.number(value, low, high)
        except Unfit as unfit:
            raise Invalid(option, value, str(unfit)) from None

    return check


class Read(t.NamedTuple):
    """values: of all options that could be read, those left out with their defaults. errors: one for each wrong option."""

    values: dict[str, t.Any]
    errors: list[Invalid]


def read(options: Options, raw: Values, undo: str) -> Read:
    """Return the values of the options. None is as if the option were left out.

    undo: the value of ``state`` with which the profile undoes its changes.
    """
    values: dict[str, t.Any] = {}
    errors: list[Invalid] = []
    for name, option in options.items():
        value = option.default if raw.get(name) is None else raw[name]
        try:
            values[name] = None if value is None else typed(name, option, value)
        except Invalid as error:
            errors.append(error)
    is_applied = values.get("state") != undo
    for name, option in options.items():
        if option.check and values.get(name) is not None:
            try:
                option.check(values[name], is_applied)
            except Invalid as error:
                errors.append(error)
    return Read(values, errors)


def typed(place: str, option: Option, value: t.Any) -> t.Any:
    """Return the value with the option's type. Raises Invalid, whose option is the place or one in it."""
    is_text = option.type in ("list", "dict") and isinstance(value, str)
    parsed = _from_text(option, value) if is_text else value
    try:
        converted = _CONVERTED[option.type](parsed)
        if option.type == "list":
            converted = [_ELEMENTS[option.elements](element) for element in converted]
    except (TypeError, ValueError, ArithmeticError):
        raise Invalid(place, value, _allowed(option)) from None
    if option.choices and converted not in option.choices:
        raise Invalid(place, value, _allowed(option))
    return converted if option.entries is None else _entries(place, option.entries, converted)


def _from_text(option: Option, text: str) -> t.Any:
    """Return a list or dictionary from its text; the text itself if it is neither JSON nor words."""
    if option.is_words and not text.lstrip().startswith(("[", "{")):
        return [word.strip() for word in text.split(",")]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text(value: t.Any) -> str:
    if not isinstance(value, (str, int, float)):
        raise TypeError
    return str(value)


def _integer(value: t.Any) -> int:
    """Accept integers in each form that Ansible accepts, such as ``30.0``, which a template's division gives."""
    exact = decimal.Decimal(_text(value))
    if isinstance(value, bool) or exact.adjusted() > MOST_DIGITS or exact != exact.to_integral_value():
        raise ValueError
    return int(exact)


def _list(value: t.Any) -> list[t.Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return [*value]


def _dict(value: t.Any) -> dict[str, t.Any]:
    if not isinstance(value, t.Mapping):
        raise TypeError
    return dict(value)


_CONVERTED: dict[str, t.Callable[[t.Any], t.Any]] = {
    "str": _text, "path": _text, "int": _integer, "bool": fields.flag, "list": _list, "dict": _dict,
}  # fmt: skip
_ELEMENTS = {"str": _text, "dict": _dict}
_EXPECTED = {"str": "text", "path": "a path", "int": "an integer", "bool": "true or false", "dict": "a dictionary"}
_ENTRIES = {"dict": "dictionaries", "str": "words"}


def _allowed(option: Option) -> str:
    """Return what the option allows, as the end of the sentence "must be ..."."""
    if option.choices:
        return f"one of {', '.join(option.choices)}"
    if option.type == "list":
        return f"a list of {_ENTRIES[option.elements]}, or JSON text of such a list"
    return _EXPECTED[option.type] + (", or JSON text of one" if option.type == "dict" else "")


def _entries(place: str, options: Options, entries: t.Sequence[Values]) -> list[dict[str, t.Any]]:
    """Return the dictionaries of a list, each with the types of its options. Raises Invalid."""
    for number, entry in enumerate(entries):
        for key, value in entry.items():
            if key not in options:
                raise Invalid(f"{place}[{number}].{key}", value, f"left out; known here are {', '.join(options)}")
        for key, option in options.items():
            if entry.get(key) is None and option.is_required:
                raise Invalid(f"{place}[{number}].{key}", None, "given")
    return [
        {key: value if value is None else typed(f"{place}[{number}].{key}", options[key], value) for key, value in entry.items()}
        for number, entry in enumerate(entries)
    ]


def passed(options: Options, values: Values, module: str) -> dict[str, t.Any]:
    """Return the options of a module that get the value of an option of the profile."""
    places = {place.partition("."): name for name, option in options.items() for place in option.targets}
    return {key: values[name] for (of, _dot, key), name in places.items() if of == module}


def source(options: Options, error: Invalid) -> Invalid | None:
    """Return the error of a module's option, renamed to the option of the profile whose value the module got; None if there is
    none.

    An error that is found only on the node, such as that of a path, may name the option without its module.
    """
    for name, option in options.items():
        for place in (*option.targets, *(place.rpartition(".")[2] for place in option.targets)):
            if f"{error.option}.".startswith((f"{place}.", f"{place}[")):
                return error.renamed(name + error.option[len(place) :])
    return None
