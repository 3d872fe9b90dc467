# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of a module that another run calls have their types and defaults, and an error names the place of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option

HOP = {**option.texts("dev"), "weight": Option("int", 1)}
OPTIONS = {
    "state": option.STATE,
    "parts": Option("list", elements="str", choices=("rules", "tables"), is_words=True),
    "hops": Option("list", elements="dict", entries=HOP),
    "identity": Option("dict", entries={"name": Option("str")}),
    "timeout": Option("float", 5),
}


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, {"state": "present", "parts": None, "hops": None, "identity": None, "timeout": 5.0}),
        ({"parts": "rules, tables", "timeout": "2.5"}, {"parts": ["rules", "tables"], "timeout": 2.5}),
        ({"hops": '[{"dev": "eth0"}]', "identity": {}}, {"hops": [{"dev": "eth0", "weight": 1}], "identity": {"name": None}}),
    ],
)
def test_an_option_that_is_left_out_has_its_default_at_each_depth(options: dict[str, Any], values: dict[str, Any]) -> None:
    assert values.items() <= option.of_module(OPTIONS, options).items()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stat": "x"}, "stat must be left out; known here are state, parts, hops, identity, timeout; 'x' was given"),
        ({"state": "gone"}, "state must be one of present, absent; 'gone' was given"),
        ({"parts": ["rules", 5]}, "parts[1] must be one of rules, tables; '5' was given"),
        ({"hops": "eth0"}, "hops must be a list of dictionaries, or JSON text of such a list; 'eth0' was given"),
        ({"hops": [{"dev": "eth0"}, {}]}, "hops[1].dev must be given; None was given"),
        ({"hops": [{"dev": "eth0", "weight": "x"}]}, "hops[0].weight must be an integer; 'x' was given"),
        ({"identity": {"id": 1}}, "identity.id must be left out; known here are name; 1 was given"),
        ({"timeout": "soon"}, "timeout must be a number; 'soon' was given"),
    ],
)
def test_an_error_names_the_place_the_value_and_what_is_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as raised:
        option.of_module(OPTIONS, options)
    assert str(raised.value) == message
