# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of a converged role on one node, and that of pings and of its modules called one after another."""

from __future__ import annotations

from typing import Any

from bench.measure import PING, durations, show_ratio, show_times
from lab import Lab, Node
from lab.node import NamespaceNode

ROUNDS = 12
ENIS = [
    {"name": "eth0", "primary": True, "ipv4": ["192.0.2.1"]},
    {"name": "eth1", "ipv4": ["10.0.1.10"], "gateway": {"ipv4": "10.0.1.1"}, "device_number": 1},
]
RULES = [
    {"priority": 1024, "fwmark": "0x80/0x80", "table": "main"},
    {"priority": 32765, "from": "10.0.1.10", "table": 2},
]
ROUTES = [
    {"table": 2, "to": "10.0.1.1", "dev": "eth1"},
    {"table": 2, "to": "default", "via": "10.0.1.1", "dev": "eth1"},
]
Task = dict[str, Any]


def task(name: str, **options: Any) -> Task:
    return {f"kubenode.datapath.{name}": options}


# By role: its variables, and the same modules as a playbook would call them without the role.
ROLES: dict[str, tuple[dict[str, Any], list[Task], float]] = {
    "aks_dual_stack": (
        {"mode": "runtime", "ipv6": "always"},
        [task("node_mode", mode="runtime"), task("nftables_package"), task("nftables_probe_snat")],
        2.0,
    ),
    "eni_policy_routing": (
        {"mode": "runtime", "layout": "aws_vpc_cni", "enis": ENIS, "connmark": "always"},
        [
            task("node_mode", mode="runtime"),
            task("network_daemons"),
            task("rp_filter", interfaces=["eth0"], mode="loose"),
            task("policy_routes", rules=RULES, routes=ROUTES),
            task("nftables_connmark", primary_interface="eth0", pod_interfaces=["eni*", "vlan*"]),
        ],
        2.5,
    ),
}


def main() -> None:
    for role in ROLES:
        with Lab("bench", nodes=[Node("node1")]) as lab:
            node: NamespaceNode = lab.node("node1")
            node.ip(["link add eth1 type veth peer name peer1", "link set peer1 up", "link set eth1 up"])
            _measure(lab, role)


def _measure(lab: Lab, role: str) -> None:
    variables, modules, target = ROLES[role]
    role_task = {
        "ansible.builtin.import_role": {"name": f"kubenode.datapath.{role}"},
        "vars": {f"{role}_{name}": value for name, value in variables.items()},
    }
    row = [{"name": "row", **one} for one in modules]
    rounds = [{"name": "ping", **PING}, role_task, *row] * (ROUNDS + 1)
    taken = _by_round(durations(lab, rounds))[1:]
    show_ratio(f"converged {role} / ping", [one["role"] for one in taken], [one["ping"] for one in taken], target)
    show_times("its modules one after another", [one["row"] for one in taken])


def _by_round(tasks: list[tuple[str, float]]) -> list[dict[str, float]]:
    """For each round, the seconds of its ping, of all tasks of the role, and of the modules one after another."""
    rounds: list[dict[str, float]] = []
    for name, seconds in tasks:
        kind = name.partition(":")[0]
        rounds += [{"ping": 0.0, "role": 0.0, "row": 0.0}] if kind == "ping" else []
        rounds[-1][kind] += seconds
    return rounds
