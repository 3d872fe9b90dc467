# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab can be asked from the outside: words in, plain data out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from lab.cloud import Lab
from lab.metadata import Behaviour
from lab.node import POD_PORT


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
    """let the metadata service behave as the JSON says from now on, e.g. {"fault": "silence"}, {"up_after": 20}, {}"""
    lab.metadata.change(Behaviour(**json.loads(behaviour)))


def kubelet(lab: Lab, node: str) -> None:
    """place what stands for kubelet; it starts at the next boot"""
    lab.node(node).place_kubelet_stand_in()


def kubelet_starts(lab: Lab, node: str) -> list[dict[str, Any]]:
    """when kubelet's stand-in was started, and the tables that were there"""
    return [dataclasses.asdict(start) for start in lab.node(node).kubelet_starts()]


COMMANDS: dict[str, Callable[..., Any]] = {
    command.__name__.replace("_", "-"): command
    for command in (probe, snapshot, reboot, metadata, kubelet, kubelet_starts)
}
