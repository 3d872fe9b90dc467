# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A packet between names: of the pods that a container runtime recorded, and of the Services that kube-proxy's rules name."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import observed
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset.service_rules import services
from lab import inner_pods, kube_proxy
from lab.node import NamespaceNode
from lab.steps import Steps

from . import test_reachable, tracing

RESULTS = "/var/lib/cni/results"


@pytest.mark.parametrize("mode", test_reachable.MODES)
def test_the_services_of_kube_proxy_are_those_of_its_rules(mode: str) -> None:
    ports = services(observed.tables(test_reachable.snapshot(mode)))
    listed = {(port.name, port.address, port.protocol, port.port, port.port_name) for port in ports}
    expected = {(service.name, service.address, "tcp", kube_proxy.PORT, "p80") for service in test_reachable.SERVICES}
    assert listed == expected


@pytest.mark.parametrize("mode", kube_proxy.MODES)
def test_a_packet_of_a_pod_to_a_service(node: NamespaceNode, mode: str) -> None:
    pod = inner_pods.routed(node, "inner", "10.244.9.9", "0a:00:00:00:00:09", "veth-inner", "eth0")
    service = kube_proxy.Service(0)
    kube_proxy.load(node, mode, [service])
    arguments = [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "default"], ["K8S_POD_NAME", "client-0"]]
    record = {"kind": "cniCacheV1", "ifName": "eth0", "cniArgs": arguments, "result": {"ips": [{"address": f"{pod.address}/32"}]}}
    node.write(f"{RESULTS}/pods-1234-eth0", json.dumps(record))
    try:
        snapshot = Steps(node, "datapath_info", {"gather": ["pod_addresses"]}).call()["snapshot"]
        packet = f"client-0 -> {service.name}:p80"
        answer = tracing.trace(node, packet)
    finally:
        node.remove(RESULTS)
    assert snapshot["pod_addresses"] == [{"pod": "default/client-0", "interface": "eth0", "addresses": [pod.address]}]
    assert (answer["came_in_by"], answer["packet"]["destination"]) == (pod.link, service.endpoints[0]), answer
