# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of all unit tests."""

from __future__ import annotations

import types
import typing as t

import pytest


def contents(value: object) -> object:
    """A copy of a value's containers; objects that are no containers stay the same."""
    if isinstance(value, dict):
        return {key: contents(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [contents(one) for one in value]
    return set(value) if isinstance(value, (set, frozenset)) else value


def shared(module: types.ModuleType) -> dict[str, object]:
    """The constants of a test module, and the tables with which its tests are parametrized."""
    values = dict(vars(module))
    tables = {name: [mark.args for mark in getattr(value, "pytestmark", ())] for name, value in values.items()}
    constants = {name: value for name, value in values.items() if not name.startswith("__")}
    return {name: contents([value, tables[name]]) for name, value in constants.items()}


@pytest.fixture(autouse=True, scope="module")
def cases_stay_as_they_are(request: pytest.FixtureRequest) -> t.Iterator[None]:
    """If a test changed the data of a later test, the later test would prove nothing."""
    before = shared(request.module)
    yield
    after = shared(request.module)
    changed = [name for name in before if after.get(name) != before[name]]
    assert not changed, f"tests of this file change what they share: {', '.join(changed)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with tables run first: `make mutants`, which stops at the first failure, then finds it early."""
    items.sort(key=lambda item: "hypothesis" in item.keywords)
