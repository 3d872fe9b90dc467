# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that azure-vnet served in bridge mode: azure-vnet's bridge, rules, state file and neighbours.

The rules are written by the ebtables commands that azure-vnet runs (Azure/azure-container-networking, ebtables/ebtables.go,
network/bridge_networkclient_linux.go, network/bridge_endpointclient_linux.go).
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lab.machine import Machine

BRIDGE = "azure0"
NODE_ADDRESS = "10.240.0.2"
STATE = "/run/azure-vnet.json"
CONFLIST = "/etc/cni/net.d/10-azure.conflist"
CILIUM = "/etc/cni/net.d/05-cilium.conflist"


@dataclasses.dataclass(frozen=True)
class AzurePod:
    """A pod as azure-vnet knows it."""

    number: int

    @property
    def address(self) -> str:
        return f"10.240.{self.number // 250}.{self.number % 250 + 4}"

    @property
    def mac(self) -> str:
        return f"a2:96:88:20:{self.number // 256:02x}:{self.number % 256:02x}"

    @property
    def host_link(self) -> str:
        return f"azv{self.number:011x}"

    @property
    def rules(self) -> list[str]:
        return pod_rules(self.address, self.mac)

    def entry(self) -> dict[str, Any]:
        """The pod's entry in the state file."""
        return {
            "Id": f"{self.number:08x}-eth0",
            "HostIfName": self.host_link,
            "MacAddress": _base64(self.mac),
            "IPAddresses": [{"IP": self.address, "Mask": "//8AAA=="}],
            "PODName": f"pod-{self.number}",
            "PODNameSpace": "default",
            "ContainerID": f"{self.number:064x}",
        }


def pod_rules(address: str, mac: str) -> list[str]:
    """``-t TABLE -A CHAIN RULE``, as AddEndpointRules writes them for a pod."""
    return [
        f"-t nat -A PREROUTING -p ARP --arp-op Request --arp-ip-dst {address}"
        f" -j arpreply --arpreply-mac {mac} --arpreply-target DROP",
        f"-t nat -A PREROUTING -p IPv4 -i eth0 --ip-dst {address} -j dnat --to-dst {mac} --dnat-target ACCEPT",
    ]


def node_rules(mac: str, address: str = NODE_ADDRESS) -> list[str]:
    """The rules for the whole node, as AddL2Rules writes them."""
    return [
        f"-t nat -A POSTROUTING -s unicast -o eth0 -j snat --to-src {mac} --snat-arp --snat-target ACCEPT",
        f"-t nat -A PREROUTING -p ARP --arp-op Request --arp-ip-dst {address}"
        f" -j arpreply --arpreply-mac {mac} --arpreply-target DROP",
        "-t nat -A PREROUTING -p ARP -i eth0 --arp-op Reply -j dnat --to-dst ff:ff:ff:ff:ff:ff --dnat-target ACCEPT",
        "-t filter -A FORWARD -p IPv6 --ip6-proto ipv6-icmp --ip6-icmp-type neighbour-solicitation -o eth0 -j DROP",
    ]


def state_text(mac: str, pods: Iterable[AzurePod]) -> str:
    """The state file of a node whose eth0 has ``mac``."""
    network = {
        "Id": "azure",
        "Mode": "bridge",
        "VlanId": 0,
        "Endpoints": {pod.entry()["Id"]: pod.entry() for pod in pods},
    }
    nic = {"Name": "eth0", "Networks": {"azure": network}, "BridgeName": BRIDGE, "MacAddress": _base64(mac)}
    return json.dumps({"Network": {"Version": "v1.1.3", "ExternalInterfaces": {"eth0": nic}}})


def conflist(*kinds: str) -> str:
    """A CNI configuration with these plugins."""
    return json.dumps({"cniVersion": "0.3.0", "name": "net", "plugins": [{"type": kind, "mode": "bridge"} for kind in kinds]})


def _base64(mac: str) -> str:
    return base64.b64encode(bytes.fromhex(mac.replace(":", ""))).decode()


def ebtables(machine: Machine, rules: Iterable[str], program: str = "ebtables-nft") -> None:
    """One command for each rule, as azure-vnet does it, by the machine's own program."""
    machine.run(["sh", "-ec", "".join(f"{program} {rule}\n" for rule in rules)])


def restore(machine: Machine, rules: Sequence[str]) -> None:
    """Many rules at once, ``-t TABLE -A CHAIN RULE`` each."""
    tables: dict[str, list[str]] = {}
    for rule in rules:
        _flag, table, line = rule.split(" ", 2)
        tables.setdefault(table, []).append(line)
    text = "".join(f"*{table}\n" + "".join(f"{line}\n" for line in lines) for table, lines in tables.items())
    machine.run_from_host(["ebtables-nft-restore", "--noflush"], text)


def listing(machine: Machine, counters: bool = False) -> list[str]:
    """The output of ebtables-save, without comments."""
    flags = ["-c"] if counters else []
    lines = machine.run_from_host(["ebtables-nft-save", *flags]).splitlines()
    return [line for line in lines if not line.startswith("#")]


def rules(machine: Machine) -> list[str]:
    """The rules of that output, without tables and chains."""
    return [line for line in listing(machine) if line.startswith("-A")]


def foreign(rule: str) -> str:
    """A rule of the same shape for an address that azure-vnet never had."""
    return rule.replace("10.240.", "10.99.").replace("a2:96:", "02:aa:")


def past(machine: Machine, mac: str, pods: Sequence[AzurePod], write: Callable[[Machine, Sequence[str]], None] = restore) -> None:
    """Gives a node azure-vnet's leftovers of these pods, which have ended; Cilium serves the node now.

    write: the function that adds the rules.
    """
    machine.ip(
        [
            f"link add {BRIDGE} address {mac} type bridge mcast_snooping 0",
            f"link set {BRIDGE} addrgenmode none",  # the kernel adds no address later
            f"link set {BRIDGE} up",
            f"link set eth0 master {BRIDGE}",
            f"address add {NODE_ADDRESS}/16 dev {BRIDGE}",
            *(f"neighbour add {pod.address} lladdr {pod.mac} nud permanent dev {BRIDGE}" for pod in pods),
        ]
    )
    write(machine, [*node_rules(mac), *(rule for pod in pods for rule in pod.rules)])
    machine.write(STATE, state_text(mac, pods), 0o600)
    machine.write(CONFLIST, conflist("azure-vnet", "portmap"), 0o600)
    machine.write(CILIUM, conflist("cilium-cni"), 0o600)


def attach(machine: Machine, pod: AzurePod, process: int) -> None:
    """Makes the pod live: its interface is eth1 in the network of ``process``, the other end is a port of the bridge."""
    machine.ip(
        [
            f"link add {pod.host_link} type veth peer name eth1 address {pod.mac} netns {process}",
            f"link set {pod.host_link} addrgenmode none",
            f"link set {pod.host_link} master {BRIDGE} up",
        ]
    )
