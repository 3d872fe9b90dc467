# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of datapath_trace, and how long others wait for the kernel's lock for links when a twin of many links ends.

The baseline of a trace is what its tools need for the same rules in a network namespace, and a run of datapath_info. With the
variable BASELINE, it is the trace of another checkout of the collection: ``BASELINE=/PATH make bench``.
"""

from __future__ import annotations

import functools
import os
import resource
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import wire
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import message
from bench.measure import in_turn, judge, show_ratio
from lab import Lab, Node, collection
from lab.node import NamespaceNode

ROUNDS = 7
SERVICES = 2_500
LINKS = 2_000
MOST_WAIT = 0.4  # seconds; without parts, it is 0.7 on an idle machine
TARGET = 1.0  # against another checkout
RTM_NEWLINK, IFF_UP = 16, 1
UPLINK = {"name": "eth0", "index": 2, "flags": ["UP", "LOWER_UP"], "addresses": [{"address": "10.0.0.4/24"}]}
SETTINGS = {"node": {"net.ipv4.ip_forward": 1}, "ipv4": {"all": {"rp_filter": 0}, "eth0": {"rp_filter": 0}}}
ROUTES = [{"family": "ipv4", "table": "254", "to": "default", "via": "10.0.0.1", "dev": "eth0"}]
PACKET = {"source": "10.1.0.5", "destination": "10.96.0.8", "protocol": "tcp", "destination_port": 80, "interface": "eth0"}
OUTGOING = {"destination": "192.0.2.1", "protocol": "tcp", "destination_port": 80}


def main() -> None:
    with Lab("bench", nodes=[Node("node1")]) as lab, tempfile.TemporaryDirectory() as folder:
        node: NamespaceNode = lab.node("node1")
        ours = collection.link()
        other = _link(Path(folder), os.environ.get("BASELINE", ""))
        cases = {
            "a live node": ({"packet": OUTGOING}, ""),
            f"{SERVICES} Services of iptables": ({"packet": PACKET, "snapshot": snapshot(iptables=[_table()])}, iptables()),
            f"{SERVICES} Services of nft": ({"packet": PACKET, "snapshot": snapshot(nftables_text=nft())}, nft()),
        }
        for title, (options, text) in cases.items():
            baseline = functools.partial(trace, node, options, other) if other else functools.partial(load, node, text)
            seconds = in_turn(ROUNDS, {"ours": functools.partial(trace, node, options, ours), "baseline": baseline})
            what = "another checkout's" if other else "datapath_info and the load of its rules"
            show_ratio(f"CPU of a trace, {title} / {what}", seconds["ours"], seconds["baseline"], TARGET if other else None)
        waits = [longest_wait(node) for _round in range(3)]
        print(f"longest wait for links elsewhere, a twin of {LINKS}: {statistics.median(waits) * 1000:.0f} ms")
        judge(f"wait for links within {MOST_WAIT} s", statistics.median(waits) <= MOST_WAIT)


def _link(folder: Path, checkout: str) -> Path | None:
    """The folder of collections that contains only a checkout."""
    if not checkout:
        return None
    (folder / "ansible_collections/kubenode").mkdir(parents=True)
    (folder / "ansible_collections/kubenode/datapath").symlink_to(checkout)
    return folder


def cpu(act: Callable[[], object]) -> float:
    """CPU seconds of the processes that a function starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def trace(node: NamespaceNode, options: dict[str, Any], collections: Path) -> float:
    def run() -> None:
        result = node.module("datapath_trace", options, diff=False, collections=collections)
        assert result.get("verdict") == "forwarded", result

    return cpu(run)


def load(node: NamespaceNode, text: str) -> float:
    program = ["iptables-nft-restore"] if text.startswith("*") else ["nft", "-f", "-"]

    def run() -> None:
        node.module("datapath_info", diff=False)
        node.run_from_host(["unshare", "--net", *program], text)

    return cpu(run)


def snapshot(**more: Any) -> dict[str, Any]:
    return {"links": [UPLINK], "settings": SETTINGS, "routes": ROUTES, **more}


def _addresses(number: int) -> tuple[str, str]:
    """The address of a Service and of its pod."""
    return f"10.96.{number // 250}.{number % 250 + 1}", f"10.244.{number // 250}.{number % 250 + 1}"


def _table() -> dict[str, str]:
    return {"family": "ip", "table": "nat", "backend": "nft", "save": iptables()}


def iptables() -> str:
    """Rules as kube-proxy writes them: five for a Service with one pod."""
    chains, rules = [":PREROUTING ACCEPT [0:0]", ":KUBE-SERVICES - [0:0]", ":KUBE-MARK-MASQ - [0:0]"], []
    for number in range(SERVICES):
        service, pod = _addresses(number)
        own, end, name = f"KUBE-SVC-{number:016d}", f"KUBE-SEP-{number:016d}", f"namespace/service-{number}:http"
        chains += [f":{own} - [0:0]", f":{end} - [0:0]"]
        to_service = f'-d {service}/32 -p tcp -m comment --comment "{name} cluster IP" -m tcp --dport 80'
        rules += [
            f"-A KUBE-SERVICES {to_service} -j {own}",
            f"-A {own} ! -s 10.244.0.0/16 {to_service} -j KUBE-MARK-MASQ",
            f'-A {own} -m comment --comment "{name} -> {pod}:8080" -j {end}',
            f"-A {end} -s {pod}/32 -m comment --comment {name} -j KUBE-MARK-MASQ",
            f"-A {end} -p tcp -m comment --comment {name} -m tcp -j DNAT --to-destination {pod}:8080",
        ]
    first = ["-A PREROUTING -j KUBE-SERVICES", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"]
    return "\n".join(["*nat", *chains, *first, *rules, "COMMIT", ""])


def nft() -> str:
    """Chains and a map as kube-proxy writes them."""
    services = [(number, *_addresses(number)) for number in range(SERVICES)]
    elements = ", ".join(f"{service} . tcp . 80 : goto service-{number}" for number, service, _pod in services)
    chains = "".join(
        f"\tchain service-{number} {{\n\t\tip daddr {service} tcp dport 80 ip saddr != 10.244.0.0/16 jump mark\n"
        f"\t\tgoto endpoint-{number}\n\t}}\n\n\tchain endpoint-{number} {{\n\t\tip saddr {pod} jump mark\n"
        f"\t\tmeta l4proto tcp dnat to {pod}:8080\n\t}}\n\n"
        for number, service, pod in services
    )
    return (
        "table ip kube-proxy {\n\tmap service-ips {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n"
        f"\t\telements = {{ {elements} }}\n\t}}\n\n{chains}\tchain mark {{\n\t\tmeta mark set meta mark | 0x00004000\n\t}}\n\n"
        "\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n"
        "\t\tip daddr . meta l4proto . th dport vmap @service-ips\n\t}\n}\n"
    )


def longest_wait(node: NamespaceNode) -> float:
    """Seconds that a change of a link of another namespace takes at most, from the start of a trace until its links are gone."""
    links = [UPLINK, *({"name": f"v{number}", "index": number, "flags": ["UP", "LOWER_UP"]} for number in range(3, LINKS))]
    options = {"packet": {**PACKET, "destination": "192.0.2.1"}, "snapshot": {**snapshot(), "links": links}}
    waits, is_over = [0.0], threading.Event()

    def wait() -> None:
        up = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, socket.if_nametoindex("lo"), IFF_UP, IFF_UP)
        while not is_over.is_set():
            started = time.monotonic()
            wire.exchange([message(RTM_NEWLINK, 0, up, 1)])
            waits.append(time.monotonic() - started)
            is_over.wait(0.002)

    watcher = threading.Thread(target=wait)
    watcher.start()
    try:
        trace(node, options, collection.link())
        time.sleep(3)  # the kernel removes a namespace after its last process has ended
    finally:
        is_over.set()
        watcher.join()
    return max(waits)
