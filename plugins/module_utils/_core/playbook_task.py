# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks of playbooks as YAML. A node need not have a YAML library, so the text is written here."""

from __future__ import annotations

import json
import re
import typing as t

from .errors import Invalid

_PLAIN = re.compile(r"[A-Za-z_/][\w./*-]*", re.ASCII)  # reads as a string in YAML, unless it is one of _WORDS
_WORDS = ("false", "n", "no", "null", "off", "on", "true", "y", "yes")
_TEMPLATE = re.compile(r"\{[{%#]")


def of_role(name: str, role: str, variables: t.Mapping[str, t.Any]) -> str:
    """Return a task that includes a role of this collection. variables: without their prefix, the role's name."""
    return _task(name, "ansible.builtin.include_role", {"name": f"kubenode.datapath.{role}"}, _prefixed(role, variables))


def of_module(name: str, module: str, options: t.Mapping[str, t.Any]) -> str:
    return _task(name, f"kubenode.datapath.{module}", options)


def of_command(name: str, words: t.Sequence[str]) -> str:
    """Return a task that runs a command whose words stay as they are, such as ``$HOME`` in a rule's comment."""
    return _task(name, "ansible.builtin.command", {"argv": [*words], "expand_argument_vars": False})


def _prefixed(role: str, variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {f"{role}_{name}": value for name, value in variables.items()}


def _task(name: str, action: str, options: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any] | None = None) -> str:
    """Return a task as YAML. Raises Invalid as flow does."""
    parts = {action: options, **({"vars": variables} if variables else {})}
    lines = [f"- name: {flow(name)}"]
    for key, values in parts.items():
        lines.append(f"  {key}:")
        lines += [f"    {line}" for line in block(values)]
    return "\n".join([*lines, ""])


def block(values: t.Mapping[str, t.Any]) -> list[str]:
    """Return the lines of options or variables in YAML's block style. Raises Invalid as flow does."""
    lines = []
    for name, value in values.items():
        lines += [f"{name}: {flow(value)}"] if not _is_long(value) else [f"{name}:", *_items(value)]
    return lines


def _is_long(value: t.Any) -> bool:
    return isinstance(value, list) and any(isinstance(entry, dict) for entry in value)


def _items(values: t.Iterable[t.Any]) -> t.Iterator[str]:
    return (f"  - {flow(value)}" for value in values)


def flow(value: t.Any) -> str:
    """Return a value in YAML's flow style.

    Raises Invalid for a text that Ansible would take for a template, or that is not printable ASCII.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    text = str(value)
    if _TEMPLATE.search(text) or not (text.isascii() and text.isprintable()):
        raise Invalid("task", text, "printable ASCII without a template of Ansible")
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if is_plain else json.dumps(text)
