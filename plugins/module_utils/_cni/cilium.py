# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Cilium agent's options about node ports, and the names of the agent's BPF programs.

From cilium's sources: pkg/option/config.go, pkg/kpr, pkg/datapath/loader.
"""

from __future__ import annotations

import re
import typing as t

from .._core import json_object

CONFIG_DIR = "config-dir"  # the option that names the folder with one file for each key of the ConfigMap cilium-config
REPLACEMENT, NODE_PORT, IPV6 = "kube-proxy-replacement", "enable-node-port", "enable-ipv6"
CLUSTER = "cluster-id"
HEALTH_PORT, TAINT = "agent-health-port", "agent-not-ready-taint-key"
OPTIONS = (REPLACEMENT, NODE_PORT, IPV6, CLUSTER, HEALTH_PORT, TAINT)
# Values with which the agent takes over node ports: true, and in versions before 1.14 strict and probe.
REPLACING = ("true", "strict", "probe")
# The same options in the agent's state (DaemonConfig.StoreInFile). Versions with pkg/kpr do not store the first two.
STATE_FIELDS = {"KubeProxyReplacement": REPLACEMENT, "EnableNodePort": NODE_PORT, "EnableIPv6": IPV6}
# Since 1.14 cil_from_netdev and cil_xdp_entry, in traffic control with "-eth0"; 1.13 had cilium-eth0; before that
# bpf_host.o:[from-netdev] (removeObsoleteNetdevPrograms in pkg/datapath/loader/netdev.go).
_NUMBER = re.compile("[0-9]{1,5}")
PROGRAM = re.compile(r"cil_.*|cilium-.*|.*\[from-netdev\]")


class Agent(t.NamedTuple):
    """The agent of this node.

    source: where its options were read, for messages; empty if they were not found.
    serves_ipv6_node_ports: whether its BPF programs translate IPv6 node ports; None if its options were not found.
    replaces_kube_proxy: whether they translate node ports at all; None if its options were not found.
    cluster: the ID of its cluster, 1 to 255, or more with max-connected-clusters; 0 if it has none, or if it was not found.
    health_port: where it answers whether it is healthy. taint: the key of the taint that a node has until its agent is ready.
    """

    source: str = ""
    serves_ipv6_node_ports: bool | None = None
    replaces_kube_proxy: bool | None = None
    cluster: int = 0
    health_port: int = 9879
    taint: str = "node.cilium.io/agent-not-ready"


def agent(source: str, options: t.Mapping[str, str]) -> Agent:
    """Return the agent with these options. Those that are missing have the agent's defaults."""
    replaces = options.get(REPLACEMENT) in REPLACING or options.get(NODE_PORT) == "true"
    cluster, port, default = options.get(CLUSTER, ""), options.get(HEALTH_PORT, ""), Agent()
    return Agent(
        source,
        replaces and options.get(IPV6, "true") == "true",
        replaces,
        int(cluster) if _NUMBER.fullmatch(cluster) else default.cluster,
        int(port) if _NUMBER.fullmatch(port) else default.health_port,
        options.get(TAINT) or default.taint,
    )


def arguments(words: t.Sequence[str]) -> dict[str, str]:
    """Return the options on a command line, as --name=value, or as --name for true."""
    options = {}
    for word in words:
        name, _equals, value = word.partition("=")
        if name.startswith("--"):
            options[name[2:]] = value or "true"
    return options


def state(text: str) -> dict[str, str]:
    """Return the options in the text of agent-runtime-config.json; none if they are not in it, or if it is unreadable."""
    stored = json_object.parse(text) or {}
    if not {"KubeProxyReplacement", "EnableNodePort"} & stored.keys():
        return {}
    return {option: str(stored[field]).lower() for field, option in STATE_FIELDS.items() if field in stored}


def is_program(name: str) -> bool:
    """Return whether a BPF program on a link of the node is the agent's, by its name."""
    return bool(PROGRAM.fullmatch(name))
