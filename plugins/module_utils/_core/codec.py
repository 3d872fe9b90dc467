# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Named tuples as JSON, for a journal that outlives its writer. Only classes of a given vocabulary are written and read.

A named tuple is ``{"_files.files.Put": {"path": "/etc/x", ...}}``; a field that has its default is left out. Bytes are
``{"bytes": "0a000105"}``; a plain tuple is an array, and a frozenset is ``{"set": [1, 2]}``.
"""

from __future__ import annotations

import functools
import json
import typing as t

T = t.TypeVar("T")
Vocabulary = t.Mapping[str, t.Any]  # named tuples by name, as vocabulary() makes it


class Unreadable(ValueError):
    """The text is not JSON, or names a class outside the vocabulary; ``str()`` says which."""


def vocabulary(*classes: type) -> Vocabulary:
    """Map names to named tuples."""
    return {name_of(kind): kind for kind in classes}


def name_of(kind: type) -> str:
    """Return the last two parts of the module's path, and the class: ``_files.files.Put``.

    So the names are the same in an Ansible module and in a node program.
    """
    return ".".join([*kind.__module__.split(".")[-2:], kind.__name__])


def _unknown(name: str) -> str:
    return f"{name} is not in the vocabulary"


def encode(value: t.Any, classes: Vocabulary) -> str:
    """Return one line of JSON. Raises Unreadable for a value that decode() could not read."""
    return json.dumps(_plain(value, classes), separators=(",", ":"))


def decode(text: str, classes: Vocabulary) -> t.Any:
    """Return the value that encode() was given. Raises Unreadable."""
    try:
        return rebuild(json.loads(text), classes)
    except Unreadable:
        raise
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def exactly(kind: type[T], value: t.Any) -> T:
    """Return the value of a record that another program may have edited, if it is of this type. Raises Unreadable."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):  # bool is a subclass of int
        raise Unreadable(f"a value of type {kind.__name__} is expected, and {value!r} was found")
    return value


_SIMPLE = (str, int, bool, bytes)


def require_types(value: t.Any) -> None:
    """Raise Unreadable if a named tuple, or one inside it, has a value of another type than its annotation says."""
    kind: t.Any = type(value)
    for name, annotation in _annotations(kind).items():
        if not _is_of(annotation, getattr(value, name)):
            raise Unreadable(f"{name_of(kind)}: {name} is {getattr(value, name)!r}")


@functools.cache
def _annotations(kind: t.Any) -> t.Mapping[str, t.Any]:
    return t.get_type_hints(kind) if hasattr(kind, "_fields") else {}


def _is_of(kind: t.Any, value: t.Any) -> bool:
    cls = type(value)
    if cls is kind:  # bool is a subclass of int
        if kind not in _SIMPLE:
            require_types(value)
        return True
    origin, arguments = t.get_origin(kind), t.get_args(kind)
    if origin is t.Union:
        return any(_is_of(argument, value) for argument in arguments)
    if origin in (tuple, frozenset) and cls is origin:
        if origin is frozenset or arguments[-1] is ...:
            return all(_is_of(arguments[0], item) for item in value)
        return len(value) == len(arguments) and all(map(_is_of, arguments, value))
    return kind is t.Any and _is_of(cls, value)


def _plain(value: t.Any, classes: Vocabulary) -> t.Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, frozenset):
        return {"set": [_plain(item, classes) for item in sorted(value)]}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):  # a named tuple is an operation
        return [_plain(item, classes) for item in value]
    name = name_of(type(value))
    kind = classes.get(name)
    if kind is None or not isinstance(value, kind):
        raise Unreadable(_unknown(name))
    usual = kind._field_defaults
    fields = {key: getattr(value, key) for key in kind._fields}
    stored = {key: item for key, item in fields.items() if key not in usual or item != usual[key]}
    return {name: {key: _plain(item, classes) for key, item in stored.items()}}


def rebuild(value: t.Any, classes: Vocabulary) -> t.Any:
    """Return the value of which encode() made this JSON. Raises Unreadable, or what decode() catches."""
    if isinstance(value, list):
        return tuple(rebuild(item, classes) for item in value)
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name == "bytes":
        return bytes.fromhex(content)
    if name == "set":
        return frozenset(rebuild(item, classes) for item in content)
    if name not in classes:
        raise Unreadable(_unknown(name))
    return classes[name](**{key: rebuild(item, classes) for key, item in content.items()})
