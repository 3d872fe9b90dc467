# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The forms of results: which keys a result of a module may have, and of which types. A result comes from a node, or from a file.

A form copies what it reads: keys that it does not name are left out, and texts are printable.
"""

from __future__ import annotations

import typing as t

from .printable import in_one_line, printable

LONGEST = 1_000_000  # characters of a text
MOST = 10_000_000  # characters and values of a result
DEEPEST = 20  # dictionaries and lists within each other, where a form permits any
LARGEST = 2**64  # bounds a number
FOUND = 100  # characters of a text that a refusal shows


class Refused(Exception):
    """A value does not fit its form. The text is a sentence without its full stop. place: of the value within the result."""

    def __init__(self, found: str, expected: str, place: str = "") -> None:
        super().__init__(f"{place} is {found}; expected is {expected}")
        self._found, self._expected, self._place = found, expected, place

    def inside(self, place: str) -> Refused:
        """Return the same error for a value inside another one."""
        return Refused(self._found, self._expected, f"{place}{self._place}")

    def of(self, module: str) -> Refused:
        """Return the same error, with the module that returns what is expected."""
        return Refused(self._found, f"{self._expected}, as kubenode.datapath.{module} returns it", self._place)


class Form(t.NamedTuple):
    """read: returns the value, or raises Refused. default: is read in place of a key that is missing."""

    read: t.Callable[[t.Any], t.Any]
    default: t.Any = None


def result(form: Form, value: object, key: str, module: str) -> dict[str, t.Any]:
    """Return a result of a module of this collection. key: each result of the module has it. Raises Refused."""
    try:
        if isinstance(value, t.Mapping) and key not in value:
            words = in_one_line(said(value.get("msg"))) or "nothing"
            raise Refused(f"without {key}, and says {words!r}", "one with it", "result")
        return t.cast("dict[str, t.Any]", bounded(form, value))
    except Refused as error:
        raise error.of(module) from None


def bounded(form: Form, value: object) -> t.Any:
    """Return a result of any module. Raises Refused."""
    read = inside("result", form, value)
    if _size(read) > MOST:
        raise Refused("too large", f"a result of at most {MOST} characters and values", "result")
    return read


def said(value: object) -> str:
    """Return any value as printable text: the beginning of a long one, and the type of what is no data."""
    try:
        return "" if value is None else _text(value[:LONGEST]) if isinstance(value, str) else str(_data(value))
    except Refused:
        return type(value).__name__


def record(forms: t.Mapping[str, Form]) -> Form:
    """Return the form of a dictionary with these keys."""

    def read(value: object) -> dict[str, t.Any]:
        fields = _mapping(value)
        return {key: inside(f".{key}", form, fields.get(key, form.default)) for key, form in forms.items()}

    return Form(read, {})


def many(form: Form) -> Form:
    """Accept a list or tuple whose entries all have a form. A refusal names the entry by its index."""

    def read(value: object) -> list[t.Any]:
        if not isinstance(value, (list, tuple)):
            raise _refusal(value, "a list")
        return [inside(f"[{number}]", form, entry) for number, entry in enumerate(value)]

    return Form(read, ())


def perhaps(form: Form) -> Form:
    """Return the form of a value that may be null."""
    return Form(lambda value: None if value is None else form.read(value))


def either(key: str, having: Form, lacking: Form) -> Form:
    """Return the form of a dictionary that has one form with a key, and another one without it."""
    return Form(lambda value: (having if isinstance(value, t.Mapping) and key in value else lacking).read(value))


def word(*choices: str) -> Form:
    """Return the form of one of a few texts."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise _refusal(value, f"one of {', '.join(choices)}")
        return str(value)

    return Form(read)


def inside(place: str, form: Form, value: object) -> t.Any:
    """Return a value that stands at a place. Raises Refused."""
    try:
        return form.read(value)
    except Refused as error:
        raise error.inside(place) from None


def _refusal(value: object, expected: str) -> Refused:
    if isinstance(value, str):
        return Refused(repr(in_one_line(value[:FOUND])), expected)
    return Refused("null" if value is None else type(value).__name__, expected)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _refusal(value, "a text")
    if len(value) > LONGEST:
        raise Refused(f"a text of {len(value)} characters", f"one of at most {LONGEST}")
    return printable(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _refusal(value, "true or false")
    return value


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LARGEST < value < LARGEST:  # NaN is not
        raise _refusal(value, "a number of at most 64 bits")
    return value


def _mapping(value: object) -> t.Mapping[str, t.Any]:
    if not isinstance(value, t.Mapping):
        raise _refusal(value, "a dictionary")
    return value


def _data(value: object, depth: int = 0) -> t.Any:
    """Return what JSON can say, in bounds."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (int, float)):
        return _number(value)
    if depth == DEEPEST or not isinstance(value, (t.Mapping, list, tuple)):
        raise _refusal(value, f"data of JSON in at most {DEEPEST} levels")
    if isinstance(value, t.Mapping):
        return {_text(key): _data(item, depth + 1) for key, item in value.items()}
    return [_data(item, depth + 1) for item in value]


def _size(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value)) + sum(map(_size, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return 1 + (len(value) if isinstance(value, str) else 0)


TEXT = Form(_text, "")
LINE = Form(lambda value: in_one_line(_text(value)), "")
LINES = many(LINE)
FLAG = Form(_flag, False)
NUMBER = Form(_number)
FIELDS = Form(lambda value: _data(_mapping(value)), {})
