# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tunnel is one of pods only where more than its kind says so."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import purpose
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.context import Context
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS, Node

POD = {"family": "ipv4", "to": "10.244.1.5", "dev": "cali1", "table": "254"}


def node(name: str, kind: str, network: str, protocol: str, **context: Any) -> Node:
    links = [{"name": "cali1", "kind": "veth"}, {"name": name, "kind": kind}]
    route = {"family": "ipv4", "to": network, "dev": name, "table": "254", "protocol": protocol}
    whole: dict[str, Any] = {subset: [] for subset in SUBSETS}
    return Node({**whole, "links": links, "routes": [POD, route]}, Context.from_options(context))


@pytest.mark.parametrize(
    ("name", "kind", "network", "protocol", "expected"),
    [
        ("flannel.1", "vxlan", "10.42.2.0/24", "", ("10.42.2.0/24", True)),
        ("tunl0", "ipip", "172.16.2.0/26", "bird", ("172.16.2.0/26", True)),
        ("vx7", "vxlan", "10.244.0.0/16", "", ("10.244.0.0/16", True)),
        ("vx7", "vxlan", "10.244.2.0/24", "", ("10.244.2.0/24", False)),
        ("it", "vxlan", "172.30.0.0/16", "", None),
        ("it", "ipip", "10.0.0.0/9", "static", None),
        ("eth1", "vlan", "10.244.2.0/24", "", None),
    ],
)
def test_what_a_tunnel_is_for(name: str, kind: str, network: str, protocol: str, expected: tuple[str, bool] | None) -> None:
    found = purpose.pod_networks(node(name, kind, network, protocol), "ipv4")
    assert [(str(each.network), bool(each.reason)) for each in found] == [*filter(None, [expected])]


def test_the_operator_knows_the_networks_of_pods() -> None:
    (found,) = purpose.pod_networks(node("it", "vxlan", "172.30.0.0/16", "", pod_ranges=["10.244.0.0/16"]), "ipv4")
    assert (str(found.network), found.reason) == ("10.244.0.0/16", "context")
