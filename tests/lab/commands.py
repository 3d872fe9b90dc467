# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of ``python -m lab``: words in, plain data out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from lab import azure_bridge
from lab.azure_vnet import AzurePod
from lab.cloud import Lab
from lab.eni import BACKEND, PRIMARY, EniLab
from lab.metadata import Behaviour
from lab.node import POD_PORT
from lab.uplinks import UplinkLab


def probe(lab: Lab, pod: str) -> bool:
    """whether the pod answers the load balancer's probe"""
    return lab.load_balancer.probe_tcp(lab.pod(pod).address, POD_PORT)


def snapshot(lab: Lab, node: str) -> dict[str, Any]:
    """the state of the node, to be compared"""
    state: dict[str, Any] = lab.node(node).snapshot()
    return state


def reboot(lab: Lab, node: str) -> None:
    """reboot the node, and wait until all its units are started"""
    lab.node(node).reboot()


def metadata(lab: Lab, behaviour: str) -> None:
    """change the metadata service's behaviour to the JSON, e.g. {"fault": "silence"}, {"up_after": 20}, {}"""
    lab.metadata.change(Behaviour(**json.loads(behaviour)))


def kubelet(lab: Lab, node: str) -> None:
    """install the stand-in for kubelet; it starts at the next boot"""
    lab.node(node).place_kubelet_stand_in()


def kubelet_starts(lab: Lab, node: str) -> list[dict[str, Any]]:
    """when kubelet's stand-in was started, and the tables that existed then"""
    return [dataclasses.asdict(start) for start in lab.node(node).kubelet_starts()]


def networks(lab: EniLab, node: str) -> None:
    """let systemd-networkd manage the interfaces; it starts at the next boot"""
    lab.node(node).place_networks()


def unplug(lab: EniLab | UplinkLab, interface: str) -> None:
    """take a secondary interface from the node"""
    lab.unplug(interface)


def plug(lab: EniLab | UplinkLab, interface: str) -> None:
    """attach it again, as a link that is down"""
    lab.plug(interface)


def serve(lab: EniLab, port: str, pod: str) -> None:
    """let the node's kube-proxy serve this pod alone at a node port, with externalTrafficPolicy Local, until the next boot"""
    lab.node("node1").forget_services()
    lab.node("node1").service(int(port), [lab.pod(pod).address], "Local")


def call(lab: EniLab, port: str) -> bool:
    """whether a client from outside is answered at a node port"""
    return lab.client.fetch(PRIMARY.address, int(port)) is not None


def call_server(lab: EniLab, interface: str) -> bool:
    """whether a client from outside is answered by a server of the node itself at the interface's address"""
    node = lab.node("node1")
    address = next(eni.address for eni in node.enis if eni.name == interface)
    server = node.serve(POD_PORT)
    try:
        return lab.client.fetch(address, POD_PORT) is not None
    finally:
        node.stop_serving(server)


def reach(lab: EniLab, pod: str) -> bool:
    """whether the pod reaches a machine outside, with its own address as the source"""
    answer = lab.fetch_from(pod, BACKEND, POD_PORT)
    return answer is not None and answer.peer == lab.pod(pod).address


def serve_uplinks(lab: UplinkLab) -> None:
    """serve the node's address, node ports and virtual addresses by the second uplink, until the next boot"""
    lab.serve()


def lost(lab: UplinkLab) -> list[str]:
    """the requests by the second uplink that are not answered"""
    return lab.lost()


def azure_vnet(lab: Lab, node: str) -> None:
    """make the node one that azure-vnet served and that Cilium serves now"""
    azure_bridge.served(lab.node(node), [AzurePod(1), AzurePod(2)])


def ping(lab: Lab, node: str) -> bool:
    """whether the node answers the client's echo requests"""
    return lab.client.ping(lab.node(node).address)


COMMANDS: dict[str, Callable[..., Any]] = {
    command.__name__.replace("_", "-"): command
    for command in (
        probe,
        snapshot,
        reboot,
        metadata,
        kubelet,
        kubelet_starts,
        networks,
        unplug,
        plug,
        serve,
        call,
        call_server,
        reach,
        serve_uplinks,
        lost,
        azure_vnet,
        ping,
    )
}
