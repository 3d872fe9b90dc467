# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of the Helm chart's values, with the roles' variables of role_schema.py. Run by ``make docs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _profiles
from generators import role_schema

FILE = Path(__file__).resolve().parents[2] / "deploy/chart/values.schema.json"
Schema = dict[str, Any]

AUDIT = "audit"
TEXT, FLAG, MAPPING = {"type": "string"}, {"type": "boolean"}, {"type": "object"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
MAPPINGS: Schema = {"type": "array", "items": MAPPING}
# Without those by which the pods are found. With `propertyNames`, Helm 4.3 names a wrong place.
LABELS: Schema = {**TEXTS, "patternProperties": {r"^(app\.kubernetes\.io/name|kubenode\.datapath/profile)$": False}}
NAME = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"}
REPOSITORY = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"}
TAG = {"type": "string", "pattern": r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"}
DIGEST = {"type": "string", "pattern": r"^(sha256:[0-9a-f]{64})?$"}
PULL_POLICIES = ["Always", "IfNotPresent", "Never"]
SET_BY_THE_CHART = [f"KUBENODE_{name}" for name in ("NODE", "PROFILE", "STATE", "INTERVAL", "METRICS_PORT", "CONDITION")]
# --set of Helm makes a text of a number with a fraction. The agent checks the bounds of that.
MINUTES = {"type": ["number", "string"], "minimum": 0.1, "maximum": 1440, "pattern": r"^[0-9]+(\.[0-9]+)?$"}
VARIABLE: Schema = {"type": "object", "required": ["name"], "properties": {"name": {**TEXT, "not": {"enum": SET_BY_THE_CHART}}}}


def schema() -> Schema:
    """Return the schema: the chart's values, and for each profile its variables that a ConfigMap may set."""
    values = _strict(
        {
            "profile": {"enum": [*_profiles.PROFILES, AUDIT]},
            "variables": MAPPING,
            "state": {"enum": ["present", "absent"]},
            "interval": MINUTES,
            "image": _strict({"repository": REPOSITORY, "tag": TAG, "digest": DIGEST, "pullPolicy": {"enum": PULL_POLICIES}}),
            "imagePullSecrets": MAPPINGS,
            "nameOverride": NAME,
            "fullnameOverride": NAME,
            "commonLabels": LABELS,
            "podLabels": LABELS,
            "podAnnotations": TEXTS,
            "serviceAccount": _strict({"annotations": TEXTS}),
            "nodeSelector": TEXTS,
            "affinity": MAPPING,
            "tolerations": MAPPINGS,
            "priorityClassName": TEXT,
            "maxUnavailable": {"type": ["integer", "string"], "minimum": 1, "pattern": "^[1-9][0-9]*%$"},
            "resources": MAPPING,
            "env": {"type": "array", "items": VARIABLE},
            "metrics": _strict({"enabled": FLAG, "port": {"type": "integer", "minimum": 0, "maximum": 65535}}),
            "ownNode": FLAG,
            "condition": FLAG,
            "podMonitor": _strict({"enabled": FLAG, "labels": TEXTS}),
            "alerts": _strict({"enabled": FLAG, "labels": TEXTS}),
            "dashboard": _strict({"enabled": FLAG, "labels": TEXTS}),
            "networkPolicy": _strict({"enabled": FLAG, "from": MAPPINGS}),
            "global": MAPPING,
        }
    )
    documented = role_schema.schema()["properties"]
    none = {"const": False}  # a profile finds nothing of which a condition could say
    of_profiles = [
        _of_profile(profile, {"variables": _variables(profile, documented), "condition": none}) for profile in _profiles.PROFILES
    ]
    of_audit = _of_profile(AUDIT, {"variables": {"maxProperties": 0}, "state": {"const": "present"}})
    return {"$schema": "http://json-schema.org/draft-07/schema#", **values, "allOf": [*of_profiles, of_audit]}


def _of_profile(profile: str, properties: Schema) -> Schema:
    return {"if": {"properties": {"profile": {"const": profile}}}, "then": {"properties": properties}}


def _variables(profile: str, documented: Schema) -> Schema:
    permitted = [f"{profile}_{name}" for name, option in _profiles.options_of(profile).items() if not option.refused]
    return _strict({name: _without_template(documented[name]) for name in permitted})


def _without_template(value: Any) -> Any:
    """Return the schema of a variable, which a ConfigMap may set to no template."""
    if isinstance(value, list):
        return [_without_template(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    entries = {name: _without_template(entry) for name, entry in value.items()}
    if role_schema.TEMPLATE not in value.get("anyOf", ()):
        return entries
    typed, _template = entries.pop("anyOf")
    return {**entries, **typed}


def _strict(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
