# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the role, from the ConfigMap. They are data: Ansible evaluates nothing in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from .settings import Refused

FILE = "variables.yaml"
MARKS = ("{{", "{%", "{#", "#jinja2:")  # of Jinja2; the last one begins a text that names marks of its own
LARGEST = 1 << 20  # characters; a ConfigMap holds no more
LARGEST_NUMBER = 1 << 63


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them stand for more values than any memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="an alias is not allowed", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)


def text_in(folder: Path) -> str:
    """The text of the ConfigMap's key. Raises Refused."""
    try:
        with (folder / FILE).open(encoding="utf-8") as file:
            return file.read(LARGEST + 1)
    except FileNotFoundError as error:
        # Not the role's defaults: a key with a wrong name would undo what the right one has set.
        raise Refused(f"The ConfigMap must have the key {FILE}. Leave it empty for the defaults of the role") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{FILE} of the ConfigMap cannot be read: {error}") from error


def parse(text: str, profile: str) -> dict[str, Any]:
    """The variables, of which each has the profile's prefix. The role checks their names and values. Raises Refused."""
    if len(text) > LARGEST:
        raise Refused(f"{FILE} of the ConfigMap must have at most {LARGEST} characters")
    try:
        found = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Refused(f"{FILE} of the ConfigMap must be YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Refused(f"{FILE} of the ConfigMap must be a dictionary of variables; {type(found).__name__} was given")
    prefix = f"{profile}_"
    for name in found:
        if not isinstance(name, str) or not name.startswith(prefix):
            raise Refused(f"{FILE} of the ConfigMap must have only variables that begin with {prefix}; {name!r} was given")
    for name, value in found.items():
        for one in _texts(value):
            if any(mark in one for mark in MARKS):
                raise Refused(f"{name} must be a value, not a template; {one!r} was given")
            if not _is_unicode(one):
                raise Refused(f"{name} must be text; {one!r} was given")
    return found


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """All texts in a value, the keys of dictionaries too. Raises Refused for what JSON cannot express."""
    if depth > 20:
        raise Refused(f"{FILE} of the ConfigMap must be nested at most 20 deep")
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(key, depth + 1)
            yield from _texts(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, depth + 1)
    elif value is not None and not (isinstance(value, (bool, int, float)) and abs(value) < LARGEST_NUMBER):
        raise Refused(f"{FILE} of the ConfigMap must have only texts, numbers, lists and dictionaries; {_shown(value)} was given")


def _is_unicode(text: str) -> bool:
    """False for half of a pair of UTF-16, which YAML can express and no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    """A number that is too large may be too long to be printed (sys.set_int_max_str_digits)."""
    return "a number of more than 64 bits" if isinstance(value, int) else repr(value)
