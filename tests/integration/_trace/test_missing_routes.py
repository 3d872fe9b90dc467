# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose addresses lack the routes to their networks, which the kernel adds with an address."""

from __future__ import annotations

import pytest

from lab.network import Connection

from .._audit.layouts import GATEWAYS, PORT, Calico, EniPolicyRouting, Layout
from .built_node import built


@pytest.mark.parametrize("layout", [Calico, EniPolicyRouting])
@pytest.mark.parametrize("family", [4, 6])
def test_a_node_without_any_route_answers_no_one(family: int, layout: type[Layout]) -> None:
    """Its table main is empty, and is no table of which nothing is known."""
    with built(layout(), f"ip -{family} route flush table main") as node:
        connection = Connection("world", GATEWAYS["eth0"][family], layout().own[family], PORT, "eth0")
        assert not node.passes(connection)
        way = node.trace(connection)
        assert not way.is_well(True), way.reason
