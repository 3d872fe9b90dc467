# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of the roles' variables in docs/schema/roles.json, for editors, from the profiles. Run by ``make docs``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option, Options
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "docs/schema/roles.json"
# As YAML has them. A list or a dictionary may be a text, too: JSON, words, or a template.
TYPES = {
    "str": ["string", "number"],
    "path": "string",
    "int": "integer",
    "bool": "boolean",
    "list": ["array", "string"],
    "dict": ["object", "string"],
}
TEMPLATE = {"type": "string", "pattern": r"\{\{"}
_MARKUP = re.compile(r"\b[A-Z]+\(([^)]*)\)")  # such as V(present), of Ansible's documentation


def schema() -> dict[str, Any]:
    """Return the schema of a file with variables of the roles, which may have other variables too."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Variables of the roles of kubenode.datapath, in a file of group_vars or host_vars",
        "type": "object",
        "properties": {name: entry for role in _profiles.PROFILES for name, entry in _variables(role)},
    }


def _variables(role: str) -> list[tuple[str, dict[str, Any]]]:
    spec = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())
    documented = spec["argument_specs"]["variables"]["options"]
    options = {f"{role}_{name}": option for name, option in _profiles.options_of(role).items()}
    return [(name, {"description": _text(documented[name]["description"]), **_variable(options[name])}) for name in documented]


def _text(description: str | list[str]) -> str:
    sentences = [description] if isinstance(description, str) else description
    return _MARKUP.sub(r"\1", " ".join(sentences))


def _variable(option: Option) -> dict[str, Any]:
    default = {} if option.default is None else {"default": option.default}
    return {**default, **_value(option)}


def _value(option: Option) -> dict[str, Any]:
    if option.choices:
        return {"anyOf": [{"enum": [*option.choices]}, TEMPLATE]}
    if option.type in ("int", "bool"):
        return {"anyOf": [{"type": TYPES[option.type]}, TEMPLATE]}
    entries = {"items": _element(option)} if option.type == "list" else {}
    return {"type": TYPES[option.type], **entries}


def _element(option: Option) -> dict[str, Any]:
    return _entry(option.entries) if option.entries else {"type": TYPES[option.elements]}


def _entry(entries: Options) -> dict[str, Any]:
    required = [name for name, option in entries.items() if option.is_required]
    properties = {name: _value(option) for name, option in entries.items()}
    return {"type": ["object", "string"], "properties": properties, "required": required, "additionalProperties": False}


def text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
