# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Seconds and memory of datapath_audit: on a node with thousands of Services that loses packets, against one datapath_info, and
of the sweep of all paths of a node that is full of pods. And seconds until the guilty one of many changes is named.
"""

from __future__ import annotations

import functools
import resource
import statistics
import sys
import time
from typing import Any

from bench.measure import in_turn, judge, show_ratio, stopwatch
from bench.policy_routes import PEAK
from lab import Eni, EniLab, Lab, Node, kube_proxy

SERVICES = (1_000, 5_000)  # more than 10,000 and 50,000 rules in either mode
ROUNDS = 3
MOST_SECONDS, MOST_MEBIBYTES = {1_000: 5, 5_000: 10}, 300
PODS = 110  # kubelet's default for most pods of a node
CHANGES, MOST_SECONDS_TO_EXPLAIN = 50, 30
MOST_SECONDS_OF_SWEEP = 5  # of processors


def main() -> None:
    sweep()
    for count in SERVICES:
        of_services(count)


def sweep() -> None:
    """Seconds of processors of a sweep, in which each pod sends and gets packets of both families, and its peak memory."""
    with Lab("bench", nodes=[Node("node1")]) as lab:
        node: Any = lab.node("node1")
        options = {"snapshot": full_node(), "checks": ["path-lost"]}
        audit = functools.partial(node.module, "datapath_audit", options, diff=False, through=[sys.executable, "-c", PEAK])
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = audit()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert result["findings"] == [] and result["passed"] == ["path-lost"], result["findings"]
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        peak = int(node.read("/run/peak")) // 1024
        print(f"sweep of {PODS} pods: {seconds:.1f} s of processors, {peak} MiB")
        judge(f"sweep of {PODS} pods within {MOST_SECONDS_OF_SWEEP} s of processors", seconds <= MOST_SECONDS_OF_SWEEP)
        judge(f"sweep of {PODS} pods within {MOST_MEBIBYTES} MiB", peak <= MOST_MEBIBYTES)


def of_services(count: int) -> None:
    for mode in kube_proxy.MODES:
        with EniLab("bench", [Eni(f"eth{number}", pods=[f"pod{number}"], has_address=True) for number in (1, 2)]) as lab:
            node: Any = lab.node("node1")
            node.filter_reverse_path(1)
            kube_proxy.load(node, mode, kube_proxy.services(count))
            acts = {
                name: functools.partial(node.module, f"datapath_{name}", diff=False, through=[sys.executable, "-c", PEAK])
                for name in ("audit", "info")
            }
            result = acts["audit"]()
            assert [finding["proof"] for finding in result["findings"][:3]] == ["twin"] * 3, result
            peak = int(node.read("/run/peak")) // 1024
            seconds = in_turn(ROUNDS, {name: functools.partial(stopwatch, act) for name, act in acts.items()})
            title = f"audit of a node with {count} Services of {mode}"
            show_ratio(f"{title} / datapath_info", seconds["audit"], seconds["info"])
            judge(f"{title} within {MOST_SECONDS[count]} s", statistics.median(seconds["audit"]) <= MOST_SECONDS[count])
            print(f"    peak memory: {peak} MiB (target: at most {MOST_MEBIBYTES})")
            judge(f"{title}: {peak} MiB of at most {MOST_MEBIBYTES}", peak <= MOST_MEBIBYTES)
            if count == SERVICES[0]:
                explain(node, str(lab.pod("pod2").address), f"a node with {count} Services of {mode}")


def explain(node: Any, pod: str, title: str) -> None:
    """Seconds of a trace that names the guilty one of many changes since an earlier snapshot."""
    earlier = node.module("datapath_info", diff=False)["snapshot"]
    for number in range(1, CHANGES):
        node.run(["ip", "rule", "add", "to", f"203.0.113.{number}", "lookup", "77", "priority", "77"])
    node.run(["ip", "rule", "add", "to", pod, "blackhole", "priority", "90"])
    packet = {"source": "198.51.100.7", "destination": pod, "destination_port": 8080, "interface": "eth2"}
    seconds: list[float] = []
    for _round in range(ROUNDS):
        started = time.perf_counter()
        result = node.module("datapath_trace", {"packet": packet, "earlier": earlier}, diff=False)["explanation"]
        seconds.append(time.perf_counter() - started)
        assert [change["text"] for change in result["guilty"]] == [f"ip rule 90: from all to {pod} blackhole is new"], result
    print(f"the guilty one of {result['changes']} changes of {title}: {statistics.median(seconds):.1f} s")
    judge(
        f"the guilty change of {title} within {MOST_SECONDS_TO_EXPLAIN} s", statistics.median(seconds) <= MOST_SECONDS_TO_EXPLAIN
    )


def full_node() -> dict[str, Any]:
    """The snapshot of a healthy node whose pods have links, routes and neighbours as Calico gives them, in both families."""
    near, far = "fe80::ecee:eeff:feee:eeee", "169.254.1.1"
    both = [("ipv4", "10.0.0.4", 24, "10.0.0.1"), ("ipv6", "fd00::4", 64, "fd00::1")]
    links: list[dict[str, Any]] = [
        {
            "name": "lo",
            "index": 1,
            "flags": ["UP", "LOWER_UP", "LOOPBACK"],
            "addresses": [{"address": "127.0.0.1/8"}, {"address": "::1/128"}],
        },
        link("eth0", 2, addresses=[{"address": f"{own}/{length}"} for _family, own, length, _via in both]),
    ]
    routes = [
        entry
        for family, own, length, via in both
        for entry in (
            {"family": family, "table": "254", "to": "default", "via": via, "dev": "eth0"},
            {
                "family": family,
                "table": "254",
                "to": f"{own[:-1]}{'0' if '.' in own else ''}/{length}",
                "dev": "eth0",
                "protocol": "kernel",
                "scope": "link",
            },
        )
    ]
    pods: list[dict[str, Any]] = []
    for number in range(1, PODS + 1):
        name, namespace = f"cali{number}", f"cni-{number}"
        addresses = [f"10.1.0.{number}", f"fd00:1::{number:x}"]
        peer = {
            "namespace": namespace,
            "name": "eth0",
            "mac": f"0a:00:00:00:00:{number:02x}",
            "mtu": 1500,
            "flags": ["UP", "LOWER_UP"],
            "addresses": addresses,
        }
        links.append(link(name, 2 + number, kind="veth", peer=peer, addresses=[{"address": f"{near}/64"}]))
        routes += [
            {"family": "ipv6" if ":" in pod else "ipv4", "table": "254", "to": pod, "dev": name, "scope": "link"}
            for pod in addresses
        ]
        ways = [("ipv4", far), ("ipv6", near)]
        of_pod = [{"family": family, "table": "254", "to": "default", "via": via, "dev": "eth0"} for family, via in ways]
        of_pod.append({"family": "ipv4", "table": "254", "to": far, "dev": "eth0", "scope": "link"})
        pods.append({"namespace": namespace, "addresses": addresses, "rules": [], "routes": of_pod, "neighbors": []})
    forwarding = {"forwarding": 1, "rp_filter": 0, "proxy_arp": 1}
    settings = {
        "node": {"net.ipv4.ip_forward": 1},
        "ipv6": {"all": {"forwarding": 1}},
        "ipv4": dict.fromkeys(["all", *(each["name"] for each in links)], forwarding),
    }
    return {
        "links": links,
        "routes": routes,
        "pods": pods,
        "settings": settings,
        "rules": kernels(),
        "neighbors": [],
        "nftables": [],
        "iptables": [masquerading("ip", "10.1.0.0/24"), masquerading("ip6", "fd00:1::/64")],
        "ebtables": [],
        "ipsets": [],
        "ipvs": [],
        "bpf": [],
        "filters": [],
        "recent": [],
        "listeners": [],
        "pod_neighbors": [],
    }


def link(name: str, index: int, kind: str = "", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "index": index,
        "kind": kind,
        "mtu": 1500,
        "mac": f"02:00:00:00:01:{index:02x}",
        "flags": ["UP", "LOWER_UP", "BROADCAST"],
        **more,
    }


def kernels() -> list[dict[str, Any]]:
    places = [("ipv4", 0, "255"), ("ipv4", 32766, "254"), ("ipv4", 32767, "253"), ("ipv6", 0, "255"), ("ipv6", 32766, "254")]
    return [{"family": family, "priority": priority, "table": table, "protocol": "kernel"} for family, priority, table in places]


def masquerading(family: str, pods: str) -> dict[str, Any]:
    save = f"*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s {pods} ! -d {pods} -j MASQUERADE\nCOMMIT\n"
    return {"family": family, "backend": "nft", "table": "nat", "save": save}
