# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Helm chart's files agree with each other and with the collection. tests/integration renders them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ansible")

import yaml

from generators import chart_schema

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/chart"
WHOLE = ("labels", "nodeSelector", "resources")  # values that are objects of Kubernetes


def test_the_schema_is_that_of_the_profiles() -> None:
    assert chart_schema.FILE.read_text() == chart_schema.text(), (
        "run `make docs`, or `python3 tests/toolchain.py run python -m generators.chart_schema`"
    )


def test_the_schema_names_each_value_and_no_other() -> None:
    schema = chart_schema.schema()["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert {*schema} - {"global"} == {*values}
    for name, value in values.items():
        assert not isinstance(value, dict) or {*schema[name].get("properties", value)} == {*value}, name


def defaults(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in WHOLE:
            yield from defaults(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def test_the_table_of_the_readme_has_each_value_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| .+ \|$", (CHART / "README.md").read_text(), re.MULTILINE)
    documented = {name: yaml.safe_load(default) for name, default in rows}
    assert documented == dict(defaults(yaml.safe_load((CHART / "values.yaml").read_text())))


def test_its_version_is_that_of_the_collection() -> None:
    chart, galaxy = (yaml.safe_load(path.read_text()) for path in (CHART / "Chart.yaml", ROOT / "galaxy.yml"))
    assert chart["version"] == chart["appVersion"] == galaxy["version"]


def test_the_examples_of_the_readme_are_accepted() -> None:
    validate = pytest.importorskip("jsonschema").validate
    (example,) = re.findall(r"```yaml\n(.*?)```", (CHART / "README.md").read_text(), re.DOTALL)
    validate(yaml.safe_load(example), json.loads(chart_schema.FILE.read_text()))
