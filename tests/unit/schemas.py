# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks JSON against a JSON Schema, for the words that the schemas of the collection use."""

from __future__ import annotations

import typing as t

Schema = dict[str, t.Any]
TYPES: dict[str, t.Any] = {
    "object": dict, "array": list, "string": str, "null": type(None), "number": (int, float), "integer": int, "boolean": bool,
}  # fmt: skip


def errors(value: t.Any, schema: Schema, place: str = "", root: Schema | None = None) -> t.Iterator[str]:
    """Yield what does not fit, for the words of JSON Schema that the schema uses."""
    root = root or schema
    if "$ref" in schema:
        yield from errors(value, root["$defs"][schema["$ref"].rpartition("/")[2]], place, root)
    elif "oneOf" in schema:
        if sum(not [*errors(value, each, place, root)] for each in schema["oneOf"]) != 1:
            yield f"{place} fits not exactly one schema"
    elif "enum" in schema:
        if value not in schema["enum"]:
            yield f"{place} is {value!r}"
    elif not isinstance(value, TYPES[schema["type"]]):
        yield f"{place} is {value!r}"
    elif schema["type"] == "array":
        for number, entry in enumerate(value):
            yield from errors(entry, schema["items"], f"{place}[{number}]", root)
    elif schema["type"] == "object":
        yield from (f"{place}.{key} is missing" for key in schema.get("required", ()) if key not in value)
        for key, entry in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", True))
            if inner is False:
                yield f"{place}.{key} is unknown"
            elif inner is not True:
                yield from errors(entry, inner, f"{place}.{key}", root)
