# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of the Helm chart's values, from the options of the profiles. Run by ``make docs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.option import Option
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles

FILE = Path(__file__).resolve().parent.parent / "deploy/chart/values.schema.json"
Schema = dict[str, Any]

AUDIT = "audit"
TYPES: Schema = {
    **{"str": ["string", "number"], "path": "string", "int": "integer"},
    **{"bool": "boolean", "list": "array", "dict": "object"},
}
TEXT, FLAG, MAPPING = {"type": "string"}, {"type": "boolean"}, {"type": "object"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
MAPPINGS: Schema = {"type": "array", "items": MAPPING}


def schema() -> Schema:
    """Return the schema: the chart's values, and for each profile its variables that a ConfigMap may set."""
    values = _strict(
        {
            "profile": {"enum": [*_profiles.PROFILES, AUDIT]},
            "variables": MAPPING,
            "state": {"enum": ["present", "absent"]},
            "interval": {"type": "number", "minimum": 0.1, "maximum": 1440},
            "image": _strict({"repository": TEXT, "tag": TEXT, "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]}}),
            "imagePullSecrets": MAPPINGS,
            "nodeSelector": TEXTS,
            "affinity": MAPPING,
            "tolerations": MAPPINGS,
            "priorityClassName": TEXT,
            "maxUnavailable": {"type": ["integer", "string"], "minimum": 1, "pattern": "^[1-9][0-9]*%$"},
            "resources": MAPPING,
            "env": MAPPINGS,
            "metrics": _strict({"enabled": FLAG, "port": {"type": "integer", "minimum": 0, "maximum": 65535}}),
            "ownNode": FLAG,
            "podMonitor": _strict({"enabled": FLAG, "labels": TEXTS}),
            "alerts": _strict({"enabled": FLAG, "labels": TEXTS}),
            "dashboard": _strict({"enabled": FLAG, "labels": TEXTS}),
            "networkPolicy": _strict({"enabled": FLAG, "from": MAPPINGS}),
            "global": MAPPING,
        }
    )
    of_profiles = [_of_profile(profile, {"variables": _variables(profile)}) for profile in _profiles.PROFILES]
    of_audit = _of_profile(AUDIT, {"variables": {"maxProperties": 0}, "state": {"const": "present"}})
    return {"$schema": "http://json-schema.org/draft-07/schema#", **values, "allOf": [*of_profiles, of_audit]}


def _of_profile(profile: str, properties: Schema) -> Schema:
    return {"if": {"properties": {"profile": {"const": profile}}}, "then": {"properties": properties}}


def _variables(profile: str) -> Schema:
    options = _profiles.options_of(profile).items()
    return _strict({f"{profile}_{name}": _of_option(option) for name, option in options if not option.refused})


def _of_option(option: Option) -> Schema:
    """Return the schema of a variable's type. Requirements beyond it are checked by the agent."""
    typed: Schema = {"enum": [*option.choices]} if option.choices else {"type": TYPES[option.type]}
    if option.type == "list":
        typed["items"] = _of_entry(option)
    return typed if option.default is None else {**typed, "default": option.default}


def _of_entry(option: Option) -> Schema:
    if option.entries is None:
        return {"type": TYPES[option.elements]}
    required = [name for name, entry in option.entries.items() if entry.is_required]
    return {**_strict({name: _of_option(entry) for name, entry in option.entries.items()}), "required": required}


def _strict(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
