# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of the roles' variables: it is as the profiles are, accepts what the roles accept, and knows a wrong value."""

from __future__ import annotations

import json
import typing as t

import pytest

pytest.importorskip("ansible")
pytest.importorskip("jsonschema")

import jsonschema
import yaml

from generators import role_schema

SCHEMA = json.loads(role_schema.SCHEMA.read_text())


def test_the_schema_is_that_of_the_profiles() -> None:
    assert role_schema.SCHEMA.read_text() == role_schema.text(), (
        "run `make docs`, or `python3 tests/toolchain.py run python -m generators.role_schema`"
    )


@pytest.mark.parametrize("role", sorted(path.name for path in (role_schema.ROOT / "roles").iterdir()))
def test_the_defaults_of_a_role_fit(role: str) -> None:
    jsonschema.validate(yaml.safe_load((role_schema.ROOT / f"roles/{role}/defaults/main.yml").read_text()), SCHEMA)


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("eni_policy_routing_remedy", "loose", True),
        ("eni_policy_routing_remedy", "{{ remedies[inventory_hostname] }}", True),
        ("eni_policy_routing_remedy", "lose", False),
        ("eni_policy_routing_mark", 0x80, True),
        ("eni_policy_routing_mark", "0x80/0x80", True),
        ("eni_policy_routing_protocol", "{{ 70 + 5 }}", True),
        ("eni_policy_routing_protocol", "bird", False),
        ("eni_policy_routing_pod_interfaces", "veth-*,eni*", True),
        ("eni_policy_routing_pod_interfaces", {"name": "veth-*"}, False),
        ("symmetric_routing_uplinks", [{"name": "eth0"}, {"name": "eth1", "gateway": "10.9.2.1"}], True),
        ("symmetric_routing_uplinks", [{"gateway": "10.9.2.1"}], False),
        ("symmetric_routing_uplinks", [{"name": "eth0", "gateways": "10.9.2.1"}], False),
        ("a_variable_of_another_role", [1], True),
    ],
)
def test_a_value_fits_if_the_role_takes_it(name: str, value: t.Any, fits: bool) -> None:
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid({name: value}) is fits
