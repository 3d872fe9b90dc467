# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cni_info says of kube-proxy's rules in each mode, and that its commands remove what kube-proxy --cleanup removes."""

from __future__ import annotations

import re
from typing import Any

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps, warnings
from lab.upstream import Endpoint, KubeProxy, Service

BACKENDS = {"nftables": "kube-proxy (nft)", "iptables": "(nft)"}
KEPT = {"nftables": set(), "iptables": {"KUBE-MARK-MASQ", "KUBE-POSTROUTING", "KUBE-PROXY-CANARY"}}
"""What the commands keep: chains that kubelet may have created as well, and one that is empty."""


def serve(lab: Lab, proxy: KubeProxy) -> None:
    ends = [Endpoint(pod.address, pod.node.name) for pod in lab.pods]
    proxy.serve(
        Service(1, ends, 30080), Service(2, ends, 30081, policy="Local", health_port=32081), Service(3, ends, affinity=True)
    )


def look(node: NamespaceNode) -> dict[str, Any]:
    return Steps(node, "cni_info").run()


def of_kube_proxy(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [leftover for leftover in result["leftovers"] if leftover["owner"] == "kube-proxy"]


def test_rules_are_leftovers_only_once_kube_proxy_has_ended(lab: Lab, proxy: KubeProxy) -> None:
    serve(lab, proxy)
    node: NamespaceNode = lab.node("node1")
    result = look(node)
    assert (result["kube_proxy_leftovers"], of_kube_proxy(result), warnings(result)) == ({}, [], [])
    proxy.stop()
    result = look(node)
    tables = {place.removesuffix(f" {BACKENDS[proxy.mode]}") for place in result["kube_proxy_leftovers"]}
    families = ("ip", "ip6")
    of_mode = {"nftables": set(families), "iptables": {f"{family} {table}" for family in families for table in ("filter", "nat")}}
    assert tables >= of_mode[proxy.mode], result["kube_proxy_leftovers"]
    assert len(of_kube_proxy(result)) == len(result["kube_proxy_leftovers"])


def test_the_commands_remove_what_kube_proxy_removes_but_chains_of_kubelet(lab: Lab, proxy: KubeProxy) -> None:
    node: NamespaceNode = lab.node("node1")
    cleaned = []
    for clean_up in (lambda: remove(node), proxy.clean_up):
        serve(lab, proxy)
        proxy.stop()
        assert look(node)["kube_proxy_leftovers"]
        clean_up()
        assert look(node)["kube_proxy_leftovers"] == {}
        cleaned.append(set(re.findall(r"chain (\S+) {", node.run_from_host(["nft", "list", "ruleset"]))))
        proxy.start()
    by_commands, by_kube_proxy = cleaned
    assert {name for name in by_commands - by_kube_proxy if name.startswith("KUBE-")} <= KEPT[proxy.mode]
    assert by_kube_proxy <= by_commands


def remove(node: NamespaceNode) -> None:
    for leftover in of_kube_proxy(look(node)):
        node.run(["sh", "-e", "-c", leftover["command"]])
