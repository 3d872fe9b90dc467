# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cost of a converged role on one node, beside pings, its modules called one after another, and a cluster's Services."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.measure import PING, durations, in_turn, show_ratio, show_times, stopwatch
from lab import Lab, Node, kube_proxy
from lab.node import NamespaceNode

ROUNDS = 12
SERVICES = kube_proxy.services(5_000)
MOST_BESIDE_SERVICES = 1.3  # times the same run on a node without rules
ENIS = [
    {"name": "eth0", "primary": True, "ipv4": ["192.0.2.1"]},
    {"name": "eth1", "ipv4": ["10.0.1.10"], "gateway": {"ipv4": "10.0.1.1"}, "device_number": 1},
]
UPLINKS = [{"name": "eth0", "gateway": "192.0.2.254"}, {"name": "eth1", "gateway": "10.0.1.1"}]
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
        1.5,
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
        1.9,
    ),
    "symmetric_routing": (
        {"mode": "runtime", "uplinks": UPLINKS},
        [
            task("node_mode", mode="runtime"),
            task("network_daemons"),
            task("rp_filter", interfaces=["eth0", "eth1"], mode="loose"),
            task("policy_routes", uplinks=UPLINKS),
            task("nftables_connmark", interfaces=[{"name": "eth0", "mark": "0x2"}, {"name": "eth1", "mark": "0x4"}]),
        ],
        1.9,
    ),
}


def main() -> None:
    for role in ROLES:
        _measure(role)
        for mode in kube_proxy.MODES:
            with Lab("bench", nodes=[Node("node1"), Node("node2")]) as lab:
                _measure_beside_services(lab, role, mode)


def _add_eni(node: NamespaceNode) -> None:
    node.ip(["link add eth1 type veth peer name peer1", "link set peer1 up", "link set eth1 up"])


def _measure_beside_services(lab: Lab, role: str, mode: str) -> None:
    """The role's module on a node with the rules of kube-proxy, and on one without."""
    runs: dict[str, Callable[[], float]] = {}
    for name in ("node1", "node2"):
        node: NamespaceNode = lab.node(name)
        _add_eni(node)
        _applied(node, role)
        runs[name] = partial(stopwatch, partial(_applied, node, role, is_changed=False))
    kube_proxy.load(lab.node("node1"), mode, SERVICES)
    seconds = in_turn(ROUNDS, runs)
    title = f"converged {role} beside {len(SERVICES)} Services of {mode} / without"
    show_ratio(title, seconds["node1"], seconds["node2"], MOST_BESIDE_SERVICES)


def _applied(node: NamespaceNode, role: str, is_changed: bool = True) -> None:
    result = node.module("profile", {"name": role, "options": ROLES[role][0]})
    assert not result["failed"] and result["changed"] == is_changed, result


def _measure(role: str) -> None:
    variables, modules, target = ROLES[role]
    role_task = {
        "ansible.builtin.import_role": {"name": f"kubenode.datapath.{role}"},
        "vars": {f"{role}_{name}": value for name, value in variables.items()},
    }
    with_role = _rounds([role_task])
    # On a node of their own: a module refuses to replace what a role's profile has set.
    without_role = _rounds([{"name": "row", **one} for one in modules])
    show_ratio(f"converged {role} / ping", [one["role"] for one in with_role], [one["ping"] for one in with_role], target)
    show_times("its modules one after another", [one["row"] for one in without_role])


def _rounds(tasks: list[Task]) -> list[dict[str, float]]:
    """For each round but the first, the seconds of a ping, of all tasks of the role, and of the modules one after another."""
    with Lab("bench", nodes=[Node("node1")]) as lab:
        _add_eni(lab.node("node1"))
        measured = durations(lab, [{"name": "ping", **PING}, *tasks] * (ROUNDS + 1))
    rounds: list[dict[str, float]] = []
    for name, seconds in measured:
        kind = name.partition(":")[0]
        rounds += [{"ping": 0.0, "role": 0.0, "row": 0.0}] if kind == "ping" else []
        rounds[-1][kind] += seconds
    return rounds[1:]
