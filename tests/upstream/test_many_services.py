# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with many Services: the trace finds the rules of each, and its time and the audit's are bounded."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from lab import Lab, place
from lab.node import POD_PORT, NamespaceNode
from lab.steps import Steps
from lab.upstream import Endpoint, KubeProxy, Service

_T = TypeVar("_T")


def timed(what: str, work: Callable[[], _T]) -> _T:
    began = time.monotonic()
    result = work()
    print(f"{what}: {time.monotonic() - began:.1f} s")
    return result


def many(lab: Lab, count: int, with_ports: int) -> list[Service]:
    """Return Services of the pods in turn, of which the first have node ports."""
    ends = [Endpoint(pod.address, pod.node.name) for pod in lab.pods]
    return [Service(number, ends[number % 2 :], 30000 + number if number < with_ports else 0) for number in range(count)]


@pytest.mark.parametrize(("count", "with_ports"), [(150, 56), (5000, 500)])
def test_each_of_many_services_is_traced_as_it_is_answered(lab: Lab, proxy: KubeProxy, count: int, with_ports: int) -> None:
    node: NamespaceNode = lab.node("node1")
    services = many(lab, count, with_ports)
    timed(f"{count} Services, {proxy.mode}: rules written", partial(proxy.serve, *services))
    packet = {"source": place.CLIENT, "interface": "eth0", "destination": node.address}
    for service in (services[0], services[with_ports - 1]):
        assert lab.client.fetch(node.address, service.node_port)
        arguments = {"packet": {**packet, "destination_port": str(service.node_port)}}
        result = timed("trace", partial(node.module, "datapath_trace", arguments, timeout=300))
        assert result["verdict"] in ("delivered", "forwarded") and result["reply"]["verdict"] in ("delivered", "forwarded"), (
            result
        )
        assert result["packet"]["destination_port"] == POD_PORT and result["certain"]
    for module in ("datapath_info", "cni_info", "datapath_audit"):
        assert not timed(module, partial(node.module, module, timeout=300))["failed"]
    timed("nftables_probe_snat", Steps(node, "nftables_probe_snat").run)
    assert lab.load_balancer.probe_tcp(node.address, services[0].node_port)
