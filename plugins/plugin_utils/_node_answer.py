# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module on a node, and passes on only what its answer may have. No other file of the collection runs a module.

A node may answer anything. Ansible itself obeys some keys of an answer, such as ``ansible_facts``, whose values replace the
defaults of a role. So an answer has the keys and types that the module's RETURN documents, and the common ones below. A key is
promised if it is returned with ``success``, or if it is inside another one without a condition. A value may be null if its
description says so, or if its key has another condition. A key in capitals stands for any name.
"""

from __future__ import annotations

import math
import re
import reprlib
import typing as t
from pathlib import Path

import yaml
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import first_of, in_one_line
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.library import PYROUTE2
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _program

Result = dict[str, t.Any]
Document = t.Mapping[str, t.Any]  # of a value, as in RETURN
Documents = t.Mapping[str, Document]  # by key

FOLDER = Path(__file__).parents[1] / "modules"
MODULES = frozenset(path.stem for path in FOLDER.glob("*.py"))
LITERAL = re.compile(r'^RETURN = r"""(.*?)^"""', re.MULTILINE | re.DOTALL)
TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "bool": ("true or false", (bool,)),
    "dict": ("a dictionary", (dict,)),
    "float": ("a number", (int, float)),
    "int": ("an integer", (int,)),
    "list": ("a list", (list,)),
    "raw": ("a value", (object,)),
    "str": ("a text", (str,)),
}
PROMISED = ("success", "always")
DEEPEST = 40  # levels; Ansible visits an answer by functions that call themselves, in the process of the whole run
LARGEST = 1 << 26  # characters and values; the snapshot of a node with 9,000 rules has a twentieth of that
LEAST, GREATEST = -(1 << 63), (1 << 64) - 1  # numbers of a kernel
MOST = 5  # keys that a warning names


def _optional(kind: str, **more: t.Any) -> Document:
    return {"type": kind, "returned": "sometimes", **more}


_TEXT: Document = {"type": "str"}
COMMON: Documents = {
    "changed": _optional("bool"),
    "failed": _optional("bool"),
    "unreachable": _optional("bool"),
    "msg": _optional("str"),
    "warnings": _optional("list"),
    "deprecations": _optional("list"),
    "exception": _optional("raw"),
    "invocation": _optional("dict"),
    "diff": _optional(
        "list",
        elements="dict",
        contains={name: _TEXT for name in ("before_header", "after_header", "before", "after")},
    ),
    # Of a module that crashed.
    "rc": _optional("int"),
    "module_stdout": _optional("str"),
    "module_stderr": _optional("str"),
    # Set by the controller.
    "_ansible_parsed": _optional("bool"),
    # For _checkpoint and _library.
    "checkpoint_armed": _optional("dict", contains={"id": _TEXT, "life": _TEXT, "left": {"type": "float"}}),
    "missing_library": _optional("str", choices=[PYROUTE2]),
}
WAIT_FOR = "ansible.builtin.wait_for"
# Only what the collection uses of the results of these. Their other keys, diffs included, are left out without a warning.
BUILTIN: dict[str, Documents] = {
    WAIT_FOR: {"elapsed": {"type": "int", "returned": "success"}},
    "ansible.builtin.command": {"stdout": _TEXT, "stderr": _optional("str")},
    "ansible.builtin.copy": {},
    "ansible.builtin.file": {},
    "ansible.builtin.find": {"files": {"type": "list", "elements": "dict", "returned": "success", "contains": {"path": _TEXT}}},
}

_brief = reprlib.Repr()
_brief.maxlevel, _brief.maxstring, _brief.maxother = 2, 60, 60


class Misfit(Exception):
    """A value that an answer must not have. The text is the end of a sentence that begins with module and node."""

    def __init__(self, place: str, expected: str, observed: str) -> None:
        super().__init__(f"answered with {observed} as {place}, and {expected} was expected")


def run(action: ActionBase, task_vars: Result, arguments: Result | None = None, module: str | None = None) -> Result:
    """Run a module on the node and return what of its answer is permitted. module, arguments: by default those of the task."""
    name = module or str(action._task.action)
    node = str(action._task.delegate_to or task_vars.get("inventory_hostname"))
    try:
        answer = _program.carrying(
            action, lambda: action._execute_module(module, arguments, task_vars=task_vars), module not in BUILTIN
        )
    except (AttributeError, RecursionError, TypeError, ValueError):  # Ansible could not handle the answer
        return _refused(name, node, "answered what Ansible cannot read", {})
    interpreter = {action._discovered_interpreter_key: action._discovered_interpreter}
    if None not in interpreter and answer.get("ansible_facts") == interpreter:
        del answer["ansible_facts"]  # of the controller
    result = permitted(answer, name, node)
    return result if None in interpreter else {**result, "ansible_facts": interpreter}


def permitted(answer: Result, module: str, node: str) -> Result:
    """Return what of an answer is permitted, or a failed result that names the value that must not be there, or is missing."""
    if module in BUILTIN:
        answer = {key: value for key, value in answer.items() if key != "diff"}
    reader = _Reader(is_complete=not answer.get("failed"))
    try:
        for key, value in answer.items():
            _require_bounds(_brief.repr(key), value)
        result = reader.fields(answer, {**_documents(module), **COMMON}, "")
    except Misfit as misfit:
        return _refused(module, node, str(misfit), answer)
    if reader.dropped and module not in BUILTIN:
        names = first_of(reader.dropped, MOST)
        Display().warning(
            in_one_line(f"{_short(module)}: {node} answered with keys that are not documented: {names}. They were left out")
        )
    return result


def _refused(module: str, node: str, sentence: str, answer: Result) -> Result:
    said = f"{_short(module)}: {node} {sentence}. Nothing of its answer was used. Run the task again with -vvv to see the answer"
    return {"failed": True, "changed": answer.get("changed") is True, "msg": in_one_line(said)}


def _short(module: str) -> str:
    return module.rpartition(".")[2]


def _documents(module: str) -> Documents:
    """Return the documentation of a module's results."""
    if module in BUILTIN:
        return BUILTIN[module]
    name = _short(module)
    literal = LITERAL.search((FOLDER / f"{name}.py").read_text())
    if literal is None:
        raise AssertionError(f"{name} has no RETURN")
    return t.cast(Documents, yaml.load(literal[1], Loader=_Loader))


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # takes a millisecond for a large RETURN, and the other one ten


def _document(key: str, documents: Documents) -> Document | None:
    if "MODULE" in documents and key in MODULES:
        return {"type": "dict", "contains": {"changed": {"type": "bool"}, **_documents(key)}}
    return documents.get(key) or documents.get("NAME")


def _is_promised(key: str, document: Document) -> bool:
    return document.get("returned", "success") in PROMISED and not key.isupper()


def _may_be_null(document: Document) -> bool:
    return document.get("returned", "success") not in PROMISED or "null" in str(document.get("description", "")).lower()


class _Reader:
    """Reads an answer by its documentation. is_complete: whether keys that are promised must be there. dropped: other keys."""

    def __init__(self, is_complete: bool) -> None:
        self._is_complete = is_complete
        self.dropped: list[str] = []

    def fields(self, values: Result, documents: Documents, place: str) -> Result:
        for key, document in documents.items():
            if self._is_complete and key not in values and _is_promised(key, document):
                raise Misfit(f"{place}{key}", _expected(document), "nothing")
        documented = {key: _document(key, documents) for key in values}
        self.dropped += [f"{place}{_brief.repr(key)}" for key, document in documented.items() if document is None]
        return {
            key: self._value(values[key], document, f"{place}{key}")
            for key, document in documented.items()
            if document is not None
        }

    def _value(self, value: t.Any, document: Document, place: str) -> t.Any:
        if value is None and _may_be_null(document):
            return None
        kind, contains = document["type"], document.get("contains")
        is_fit = isinstance(value, TYPES[kind][1]) and isinstance(value, bool) <= (kind in ("bool", "raw"))
        if not is_fit or value not in document.get("choices", (value,)):
            raise Misfit(place, _expected(document), _observed(value))
        if kind == "list" and "elements" in document:
            element = {"type": document["elements"], "contains": contains}
            return [self._value(item, element, f"{place}[{number}]") for number, item in enumerate(value)]
        return self.fields(value, contains, f"{place}.") if kind == "dict" and contains else value


def _require_bounds(place: str, value: t.Any) -> None:
    """Raise Misfit if a value is too deep or too large, or has a number that is none of a kernel's, such as Infinity."""
    level, size = [value], 0
    for _depth in range(DEEPEST):
        below: list[t.Any] = []
        for item in level:
            if isinstance(item, str):
                size += len(item)
            elif isinstance(item, dict):
                size += sum(map(len, item))
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, (int, float)) and not _is_number(item):
                raise Misfit(place, "a number", _brief.repr(item))
        size += len(level)
        if size > LARGEST:
            raise Misfit(place, f"a value of at most {LARGEST} characters", "a larger one")
        if not below:
            return
        level = below
    raise Misfit(place, f"a value of at most {DEEPEST} levels", "a deeper one")


def _is_number(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else LEAST <= value <= GREATEST


def _expected(document: Document) -> str:
    choices = document.get("choices")
    return " or ".join(map(repr, choices)) if choices else TYPES[document["type"]][0]


def _observed(value: t.Any) -> str:
    return "null" if value is None else _brief.repr(value)
