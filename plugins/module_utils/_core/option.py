# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options of modules and profiles: their types, what their values must be, and whether a ConfigMap may set them.

Ansible's argument specs, the schemas and the documentation follow from them. The same functions read values on the controller, on
the node, in a twin and in the command without Ansible.
"""

from __future__ import annotations

import decimal
import json
import typing as t

from . import fields
from .errors import Invalid
from .fields import Unfit

Values = t.Mapping[str, t.Any]
# Takes a value and whether it is to be applied: the state that undoes accepts what an earlier version has installed. Raises
# Invalid, whose option is that of the profile or a place in it. If it returns Parsed, that is the value.
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
    """An option of a module, or of a profile, which is a variable of its role.

    type: str, path, int, float, bool, list, dict or raw. default: None for an option that may be left out. choices: the values,
    of a list those of its elements, if only these are allowed. elements: str, dict or raw, of a list. entries: the options in a
    dictionary, or in each dictionary of a list. is_words: a list that may also be given as words with commas; JSON text is
    accepted for each list and dictionary. refused: why a ConfigMap must not set the option; empty if it may. check: the
    requirements beyond the type. targets: the options of modules that get the value, as MODULE.OPTION; an error of one of them
    names this option.
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

    def spec(self) -> dict[str, t.Any]:
        """Return the option as Ansible's argument specs declare it."""
        declared = {
            "type": self.type,
            "default": self.default,
            "choices": [*self.choices] or None,
            "elements": self.elements or None,
            "options": spec(self.entries) if self.entries else None,
            "required": self.is_required or None,
        }
        return {name: value for name, value in declared.items() if value is not None}


Options = t.Mapping[str, Option]


def spec(options: Options) -> dict[str, dict[str, t.Any]]:
    """Return Ansible's argument spec of the options."""
    return {name: option.spec() for name, option in options.items()}


def permitted(type: str, default: t.Any = None, **more: t.Any) -> Option:
    """Return an option that a ConfigMap may set."""
    return Option(type, default, refused="", **more)


STATE = permitted("str", "present", choices=("present", "absent"))


def texts(*names: str) -> Options:
    """Return the entries of a dictionary that must have these texts."""
    return {name: Option("str", is_required=True) for name in names}


def targeting(module: str, options: Options) -> dict[str, Option]:
    """Return options of a module as those of a profile that passes their values to the module."""
    return {name: option._replace(targets=(f"{module}.{name}",)) for name, option in options.items()}


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


class Parsed(list[t.Any]):
    """A list as the check of its option returns it. It travels as this value, and is not checked again."""


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
                parsed = option.check(values[name], is_applied)
            except Invalid as error:
                errors.append(error)
            else:
                values[name] = parsed if isinstance(parsed, Parsed) else values[name]
    return Read(values, errors)


def typed(place: str, option: Option, value: t.Any, fills: bool = False) -> t.Any:
    """Return the value with the option's type. Raises Invalid, whose option is the place or one in it.

    fills: add the options of dictionaries that were left out.
    """
    if isinstance(value, Parsed):
        return value
    is_text = option.type in ("list", "dict") and isinstance(value, str)
    parsed = _from_text(option, value) if is_text else value
    try:
        converted = _CONVERTED[option.type](parsed)
        if option.type == "list":
            converted = [_CONVERTED[option.elements or "raw"](element) for element in converted]
    except (TypeError, ValueError, ArithmeticError):
        raise Invalid(place, value, _allowed(option)) from None
    if option.type == "list":
        element = option._replace(type=option.elements or "raw")
        return [typed(f"{place}[{number}]", element, entry, fills) for number, entry in enumerate(converted)]
    if option.choices and converted not in option.choices:
        raise Invalid(place, value, _allowed(option))
    return converted if option.entries is None else _entry(f"{place}.", option.entries, converted, fills)


def of_module(options: Options, values: Values) -> dict[str, t.Any]:
    """Return the values of a module's options with their types and defaults, as Ansible does. Raises Invalid."""
    return _entry("", options, values, fills=True)


def _entry(place: str, options: Options, entry: Values, fills: bool) -> dict[str, t.Any]:
    """Return the values of a dictionary with the types of its options. fills: add those left out. Raises Invalid."""
    for name, value in entry.items():
        if name not in options:
            raise Invalid(f"{place}{name}", value, f"left out; known here are {', '.join(options)}")
    values: dict[str, t.Any] = {}
    for name, option in options.items():
        value = option.default if fills and entry.get(name) is None else entry.get(name)
        if value is None and option.is_required:
            raise Invalid(f"{place}{name}", None, "given")
        if fills or name in entry:
            values[name] = None if value is None else typed(f"{place}{name}", option, value, fills)
    return values


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
    "str": _text, "path": _text, "int": _integer, "float": lambda value: float(_text(value)), "bool": fields.flag,
    "list": _list, "dict": _dict, "raw": lambda value: value,
}  # fmt: skip
_EXPECTED = {
    "str": "text", "path": "a path", "int": "an integer", "float": "a number", "bool": "true or false", "dict": "a dictionary",
}  # fmt: skip
_ENTRIES = {"dict": "dictionaries", "str": "words", "raw": "values"}


def _allowed(option: Option) -> str:
    """Return what the option allows, as the end of the sentence "must be ..."."""
    if option.choices and option.type != "list":
        return f"one of {', '.join(option.choices)}"
    if option.type == "list":
        return f"a list of {_ENTRIES[option.elements]}, or JSON text of such a list"
    return _EXPECTED[option.type] + (", or JSON text of one" if option.type == "dict" else "")


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
