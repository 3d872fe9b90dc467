# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""symmetric_routing beside kube-proxy: each request by the second uplink is answered, of both IP versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.node import NamespaceNode
from lab.uplinks import BOTH, SERVER, V4, V6, UplinkLab, requests
from lab.upstream import Endpoint, KubeProxy, Service
from lab.upstream.kube_proxy import Mode

UPLINKS = [{"name": "eth0"}, {"name": "eth1", "gateway": V4.gateway(1), "gateway6": V6.gateway(1)}]
TRIES = 20


@pytest.fixture
def uplinks(binary: Path, mode: Mode) -> Iterator[UplinkLab]:
    """Node ports are served at all addresses: at that of the second uplink too, which mode nftables leaves out by itself."""
    with UplinkLab("upstream") as lab:
        node: NamespaceNode = lab.node("node1")
        node.serve(SERVER)
        pods = [family.network(family.pods[0]) for family in BOTH]
        proxy = KubeProxy(binary, node, mode, [V4.node(), V6.node()], pods, ["0.0.0.0/0", "::/0"])
        proxy.start()
        virtual = [family.virtual for family in BOTH]
        here, elsewhere = ([Endpoint(family.pod(number), f"node{number + 1}") for family in BOTH] for number in range(2))
        proxy.serve(Service(1, here, 30080, virtual), Service(2, elsewhere, 30081, virtual, port=81))
        yield lab
        proxy.close()


def profile(node: NamespaceNode, **options: Any) -> dict[str, Any]:
    result = node.module("profile", {"name": "symmetric_routing", "options": {"mode": "runtime", **options}})
    assert not result["failed"], result
    return result


def test_each_request_by_the_second_uplink_is_answered(uplinks: UplinkLab) -> None:
    node: NamespaceNode = uplinks.node("node1")
    before = node.snapshot()
    assert [uplinks.lost(family) for family in BOTH] == [[*requests(family)] for family in BOTH]
    assert profile(node, uplinks=UPLINKS)["changed"]
    assert [uplinks.lost(family) for family in BOTH for _try in range(TRIES)] == [[]] * TRIES * len(BOTH)
    assert profile(node, state="absent")["changed"]
    assert node.snapshot() == before
    assert [uplinks.lost(family) for family in BOTH] == [[*requests(family)] for family in BOTH]
