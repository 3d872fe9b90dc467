# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the role, from the ConfigMap. They are data: Ansible evaluates nothing in them.

The collection says which variables a ConfigMap may set, and to which values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint import OPTION, SHORTEST
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles

from .settings import LONGEST, Refused

FILE = "variables.yaml"
MARKS = ("{{", "{%", "{#", "#jinja2:")  # of Jinja2; the last one begins a text that names marks of its own
LARGEST = 1 << 20  # characters; a ConfigMap holds no more
LARGEST_NUMBER = 1 << 63
LONGEST_TEXT = 1000  # characters of a value; the longest that a role takes is the name of a systemd unit
LONGEST_LIST = 1000  # entries of a list or a dictionary; a node has some hundred pods and a few ENIs
DEEPEST = 20  # lists and dictionaries inside one another


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them stand for more values than any memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="an alias is not allowed", problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)


def text_in(folder: Path) -> str:
    """Return the text of the ConfigMap's key. Raises Refused."""
    try:
        with (folder / FILE).open(encoding="utf-8") as file:
            return file.read(LARGEST + 1)
    except FileNotFoundError as error:
        # Not the role's defaults: a key with a wrong name would undo what the right one has set.
        raise Refused(f"The ConfigMap must have the key {FILE}. Leave it empty for the defaults of the role") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{FILE} of the ConfigMap cannot be read: {error}") from error


def parse(text: str, profile: str) -> dict[str, Any]:
    """Return the variables as they were given, each with the profile's prefix. Raises Refused for anything that is not data."""
    if len(text) > LARGEST:
        raise Refused(f"{FILE} of the ConfigMap must have at most {LARGEST} characters")
    try:
        content = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Refused(f"{FILE} of the ConfigMap must be YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise Refused(f"{FILE} of the ConfigMap must be a dictionary of variables; {type(content).__name__} was given")
    prefix = f"{profile}_"
    for name in content:
        if not isinstance(name, str) or not name.startswith(prefix):
            raise Refused(f"{FILE} of the ConfigMap must have only variables that begin with {prefix}; {name!r} was given")
    _require_data(content)
    return content


def accepted(variables: dict[str, Any], profile: str) -> dict[str, Any]:
    """Return the variables with their types. Raises Refused unless a ConfigMap may set all of them so."""
    try:
        values, sentences = _profiles.accepted(profile, variables)
    except RecursionError as error:
        raise Refused(f"{FILE} of the ConfigMap must be nested at most {DEEPEST} deep") from error
    if sentences:
        raise Refused("; ".join(sentences))
    _require_data(values)  # again: a list may have been given as JSON text, whose escapes hide a template
    for name, value in values.items():
        _require_bounds(name, value)
    return values


def with_checkpoints(variables: dict[str, Any], profile: str, seconds: int, is_undone: bool) -> dict[str, Any]:
    """Return the variables with these seconds for each checkpoint that they do not set.

    Raises Refused if a checkpoint is too long, or is switched off: an account that writes the ConfigMap must not be able to cut
    the node off. is_undone: whether the run removes the profile, which nothing may refuse; it then has these seconds, too.
    """
    values = dict(variables)
    for name in checkpoints(profile) if seconds else ():
        value = variables.get(name)
        if value is not None and not SHORTEST <= value <= LONGEST and not is_undone:
            raise Refused(
                f"{name} must be from {SHORTEST} to {LONGEST} seconds in a ConfigMap; {value} was given. Without it,"
                f" {seconds} s are used. Only KUBENODE_CHECKPOINT=0 of the DaemonSet permits a change without a checkpoint"
            )
        values[name] = value if value and SHORTEST <= value <= LONGEST else seconds
    return values


def checkpoints(profile: str) -> list[str]:
    """Return the profile's variables that are the seconds of a checkpoint."""
    return [f"{profile}_{name}" for name in _profiles.options_of(profile) if name.endswith(OPTION)]


def _require_data(variables: dict[str, Any]) -> None:
    """Raise Refused for a template, and for anything that JSON cannot express."""
    for name, value in variables.items():
        for text in _texts(value):
            if any(mark in text for mark in MARKS):
                raise Refused(f"{name} must be a value, not a template; {text!r} was given")
            if not _is_unicode(text):
                raise Refused(f"{name} must be text; {text!r} was given")


def _require_bounds(place: str, value: Any) -> None:
    """Raise Refused for a text, a list or a dictionary that is too long. place: of the value."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise Refused(f"{place} must have at most {LONGEST_TEXT} characters; {len(value)} were given")
    if isinstance(value, (list, dict)):
        if len(value) > LONGEST_LIST:
            raise Refused(f"{place} must have at most {LONGEST_LIST} entries; {len(value)} were given")
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _require_bounds(f"{place}[{key}]", item)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield all texts in a value, the keys of dictionaries too. Raises Refused for anything that JSON cannot express."""
    if depth > DEEPEST:
        raise Refused(f"{FILE} of the ConfigMap must be nested at most {DEEPEST} deep")
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key, depth + 1)
            yield from _texts(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, depth + 1)
    elif value is not None and not (isinstance(value, (bool, int, float)) and abs(value) < LARGEST_NUMBER):
        raise Refused(f"{FILE} of the ConfigMap must have only texts, numbers, lists and dictionaries; {_shown(value)} was given")


def _is_unicode(text: str) -> bool:
    """Return False for half of a pair of UTF-16, which YAML can express and no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    """Show a value. A number that is too large may be too long to be printed (sys.set_int_max_str_digits)."""
    return "a number of more than 64 bits" if isinstance(value, int) else repr(value)
