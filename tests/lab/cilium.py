# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The traces of a Cilium agent on a node: its links, its process with the ConfigMap in the container's root, its stored state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lab import background
from lab.node import ClusterNode, NamespaceNode
from lab.server import Server

HEALTH_PORT = 9879
STATE = "/var/run/cilium/state/agent-runtime-config.json"
# The folder of the options is on a mount that only the process has, as in a container.
AGENT = """
exec unshare --mount sh -e -c '
    mount -t tmpfs tmpfs /mnt
    mkdir -p /mnt/map/..data
    {options}
    exec /usr/bin/python3 -c "
import time
open(\\"/proc/self/comm\\", \\"w\\").write(\\"cilium-agent\\")
time.sleep(600)" --config-dir=/mnt/map'
"""

WAIT = """
for try in $(seq 500); do
    grep -qx cilium-agent /proc/$(cat /run/background.pid)/comm && exit
    sleep 0.02
done
cat /run/background.log >&2
exit 1
"""


def create_links(node: ClusterNode) -> None:
    node.ip(["link add cilium_host type veth peer name cilium_net"])


def create_routes(node: ClusterNode) -> None:
    """The routes and rules of an agent in tunnel mode: the gateway of all pods is the node's own address on cilium_host."""
    address, networks = "10.244.0.99", ("10.244.0.0/24", "10.244.1.0/24")
    node.ip(
        ["link set cilium_host up", "link set cilium_net up", f"address add {address}/32 dev cilium_host"]
        + [f"route add {address} dev cilium_host scope link"]
        + [f"route add {network} via {address} dev cilium_host src {address} mtu 1450" for network in networks]
        + ["rule add priority 100 lookup local", "rule delete priority 0 lookup local"]
        + ["rule add priority 9 fwmark 0x200/0xf00 lookup 2004", "route add local default dev lo table 2004"]
    )


def start(node: ClusterNode) -> Server:
    """The agent's links and its answer to kubelet, until the node reboots. The result's ``status`` may be set."""
    create_links(node)
    return node.serve(HEALTH_PORT)


def store_state(node: NamespaceNode, **fields: Any) -> None:
    node.write(STATE, json.dumps(fields))


@contextmanager
def agent(node: ClusterNode, options: Mapping[str, str]) -> Iterator[None]:
    """The agent's process for the length of the block. options: the keys of the ConfigMap cilium-config."""
    lines = [f"echo {value} > /mnt/map/..data/{key}; ln -s ..data/{key} /mnt/map/{key}" for key, value in options.items()]
    with background.shell(node, AGENT.format(options="; ".join(lines or ["true"]))):
        node.run(["sh", "-c", WAIT])
        yield
