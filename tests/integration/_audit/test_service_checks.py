# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of Services on a node with two interfaces: the finding is there where a real client gets no answer."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from lab.eni import CLIENT
from lab.node import NamespaceNode
from lab.uplinks import V4, UplinkLab

from .._trace import test_cures as scenes
from .auditing import audited, findings
from .troubles import ENI, OF_SERVICE, OFF, SERVICE, STRICT, WITHOUT_RULE


def audit(node: NamespaceNode, **context: Any) -> list[dict[str, Any]]:
    return findings(node, "service-reply-by-default", context=context)


def served(lab: Any, node: NamespaceNode) -> Callable[[], bool]:
    """Lead the address of a Service to the node by its ENI; the result tells whether a client gets an answer."""
    lab.router.ip([f"route add {SERVICE} via {ENI.address}"])
    permitted = f"insert rule ip cloud prerouting iifname {ENI.port} ip saddr {SERVICE} accept"
    lab.router.run_from_host(["nft", *permitted.split()])
    for command in OF_SERVICE:
        node.run(shlex.split(command))
    return lambda: lab.client.fetch(SERVICE, 80, 0.3) is not None


@pytest.mark.parametrize(
    ("mode", "is_own", "severity"),
    [(STRICT, False, "error"), (OFF, False, "risk"), (OFF, True, "risk")],
    ids=["strict", "off", "address of the interface"],
)
def test_the_reply_of_a_service_leaves_by_the_default_route(mode: int, is_own: bool, severity: str) -> None:
    with scenes.shared_enis(mode) as (lab, node):
        if is_own:  # as kube-vip makes it
            node.ip([f"address add {SERVICE}/32 dev {ENI.name}"])
        arrives = served(lab, node)

        assert arrives() and audit(node) == []
        node.run(shlex.split(WITHOUT_RULE))
        (finding,) = audit(node)
        assert not arrives()
        assert (finding["subject"], finding["severity"], finding["proof"]) == (ENI.name, severity, "twin")
        assert audit(node, service_ranges=[f"{SERVICE}/32"]) == []
        scenes.apply(node, yaml.safe_load(finding["remedy"]["task"])[0])
        assert arrives() and audit(node) == []


@pytest.mark.parametrize("mode", [STRICT, OFF])
def test_the_gateway_of_an_interface_without_a_route_is_asked_for(mode: int) -> None:
    """The router drops a reply by the other interface, so that a loose filter cures nothing."""
    with scenes.shared_enis(mode) as (lab, node):
        arrives = served(lab, node)
        node.run(shlex.split(WITHOUT_RULE))
        node.ip([f"route flush table {eni.table}" for eni in scenes.ENIS])
        result = audited(node, "service-reply-by-default")
        (finding,) = result["findings"]
        assert not arrives()
        assert (finding["state"], finding["severity"], finding["proof"]) == ("present", "risk", "twin")
        assert finding["remedy"] is None and f"networkctl status {ENI.name}" in finding["ask"], finding
        assert result["profile"]["variables"] == {} and finding["ask"] in result["profile"]["reasons"][-1]


def test_a_load_balancer_gets_no_answer_from_a_node_that_has_its_address() -> None:
    """The client's address is that of the load balancer, which Hetzner's probes come from."""
    with scenes.shared_enis(OFF) as (lab, node):
        arrives = served(lab, node)

        def local() -> list[dict[str, Any]]:
            return findings(node, "lb-address-local")

        assert arrives() and local() == []
        node.run(["ipset", "restore"], f"create KUBE-LOAD-BALANCER hash:ip,port\nadd KUBE-LOAD-BALANCER {CLIENT},tcp:80\n")
        node.ip([f"address add {CLIENT}/32 dev lo"])
        assert not arrives()
        (finding,) = local()
        assert (finding["subject"], finding["severity"], finding["proof"]) == (CLIENT, "note", "configuration")
        for command in finding["remedy"]["commands"]:
            node.run(shlex.split(command))
        assert arrives() and local() == []


def test_node_ports_answer_by_the_default_route_at_an_interface_without_one() -> None:
    """kube-proxy serves them at all addresses, so that only the operator knows whether clients use this one: a note."""
    with UplinkLab("checks") as lab:
        node: NamespaceNode = lab.node("node1")
        node.family = V4.service
        node.service(scenes.NODE_PORT, [V4.pod(0)])
        assert lab.fetch(V4.node(0), scenes.NODE_PORT) is not None and lab.fetch(V4.node(1), scenes.NODE_PORT) is None
        (finding,) = audit(node)
        assert (finding["subject"], finding["severity"], finding["proof"]) == ("eth1", "note", "twin")
        assert finding["packet"] == f"tcp 198.51.100.7:40000 > {V4.node(1)}:{scenes.NODE_PORT} in eth1"
        assert finding["remedy"] is None and "networkctl status eth1" in finding["ask"]
        assert audited(node)["profile"]["name"] is None
        node.ip([f"route add default via {V4.gateway(1)} dev eth1 metric 200"])
        (finding,) = audit(node)
        (task,) = yaml.safe_load(finding["remedy"]["task"])
        assert scenes.apply(node, task) and lab.fetch(V4.node(1), scenes.NODE_PORT) is not None
        assert audit(node) == []


def test_an_address_in_the_networks_of_two_interfaces_may_come_in_by_either() -> None:
    with UplinkLab("checks") as lab:
        node: NamespaceNode = lab.node("node1")
        node.family, served = V4.service, "10.9.2.80"
        node.service(scenes.NODE_PORT, [V4.pod(0)], load_balancer_ip=served)
        severities = []
        for command in ("link show", "address add 10.9.2.9/24 dev eth0"):
            node.ip([command])
            severities += [each["severity"] for each in audit(node) if served in each["evidence"][0]]
        assert severities == ["risk", "note"]
