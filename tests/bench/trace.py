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
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import wire
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink.attributes import message
from bench.measure import cpu, in_turn, judge, show_ratio, stopwatch
from lab import Lab, Node, collection, host, kube_proxy
from lab.node import NamespaceNode

ROUNDS = 5
SERVICES = kube_proxy.services(5_000)
MOST_SECONDS, LIVE_ROUNDS = 5, 3  # of a trace of the node itself
ENDPOINTS, MOST_OF_ENDPOINTS = 200, 1.0  # of one Service; seconds
LINKS = 2_000
WAITED = ["env"]  # a process that this one waits for, so that its CPU time counts; the lab's server of modules is none
MOST_WAIT = 0.4  # seconds; without parts, it is 0.7 on an idle machine
TARGET = 1.0  # against another checkout
RTM_NEWLINK, IFF_UP = 16, 1
UPLINK = {"name": "eth0", "index": 2, "flags": ["UP", "LOWER_UP"], "addresses": [{"address": "10.0.0.4/24"}]}
SETTINGS = {"node": {"net.ipv4.ip_forward": 1}, "ipv4": {"all": {"rp_filter": 0}, "eth0": {"rp_filter": 0}}}
ROUTES = [{"family": "ipv4", "table": "254", "to": "default", "via": "10.0.0.1", "dev": "eth0"}]
PACKET = {"source": "10.1.0.5", "destination": "10.96.0.2", "protocol": "tcp", "destination_port": 80, "interface": "eth0"}
OUTGOING = {"destination": "192.0.2.1", "protocol": "tcp", "destination_port": 80}


class LargeService(kube_proxy.Service):
    kind = "plain"

    @property
    def endpoints(self) -> list[str]:
        return [f"10.244.0.{number + 1}" for number in range(ENDPOINTS)]


def main() -> None:
    with Lab("bench", nodes=[Node("node1")]) as lab, tempfile.TemporaryDirectory() as folder:
        node: NamespaceNode = lab.node("node1")
        ours = collection.link()
        other = _link(Path(folder), os.environ.get("BASELINE", ""))
        saved, listed, tables = kube_proxy.iptables(SERVICES), nft_listing(), tables_of(SERVICES)
        cases = {
            "a live node": ({"packet": OUTGOING}, ""),
            f"{len(SERVICES)} Services of iptables": ({"packet": PACKET, "snapshot": snapshot(iptables=tables)}, saved),
            f"{len(SERVICES)} Services of nft": ({"packet": PACKET, "snapshot": snapshot(nftables_text=listed)}, listed),
        }
        for title, (options, text) in cases.items():
            baseline = functools.partial(trace, node, options, other) if other else functools.partial(load, node, text)
            seconds = in_turn(ROUNDS, {"ours": functools.partial(trace, node, options, ours), "baseline": baseline})
            objects = "another checkout's" if other else "datapath_info and the load of its rules"
            show_ratio(f"CPU of a trace, {title} / {objects}", seconds["ours"], seconds["baseline"], TARGET if other else None)
        waits = [longest_wait(node) for _round in range(3)]
        print(f"longest wait for links elsewhere, a twin of {LINKS}: {statistics.median(waits) * 1000:.0f} ms")
        judge(f"wait for links within {MOST_WAIT} s", statistics.median(waits) <= MOST_WAIT)
        to_many = {"packet": PACKET, "snapshot": snapshot(iptables=tables_of([LargeService(1)]))}
        of_many = statistics.median(trace(node, to_many, ours) for _round in range(ROUNDS))
        title = f"CPU of a trace to a Service of {ENDPOINTS} endpoints: {of_many:.2f} s (target: at most {MOST_OF_ENDPOINTS})"
        print(title)
        judge(title, of_many <= MOST_OF_ENDPOINTS)
    for mode in kube_proxy.MODES:
        with Lab("bench", nodes=[Node("node1")]) as lab:
            of_services(lab.node("node1"), mode)


def of_services(node: NamespaceNode, mode: str) -> None:
    """Seconds of a trace of a node with thousands of Services, against those of datapath_info there."""
    kube_proxy.load(node, mode, SERVICES)
    acts: dict[str, Callable[[], object]] = {
        "trace": lambda: trace(node, {"packet": {**PACKET, "source": "192.0.2.1"}}, collection.link()),
        "info": lambda: node.module("datapath_info", diff=False, through=WAITED),
    }
    seconds = in_turn(LIVE_ROUNDS, {name: functools.partial(stopwatch, act) for name, act in acts.items()})
    title = f"trace of a live node with {len(SERVICES)} Services of {mode}"
    show_ratio(f"{title} / datapath_info", seconds["trace"], seconds["info"])
    judge(f"{title} within {MOST_SECONDS} s", statistics.median(seconds["trace"]) <= MOST_SECONDS)


def _link(folder: Path, checkout: str) -> Path | None:
    """The folder of collections that contains only a checkout."""
    if not checkout:
        return None
    (folder / "ansible_collections/kubenode").mkdir(parents=True)
    (folder / "ansible_collections/kubenode/datapath").symlink_to(checkout)
    return folder


def trace(node: NamespaceNode, options: dict[str, Any], collections: Path) -> float:
    def run() -> None:
        result = node.module("datapath_trace", options, diff=False, collections=collections, through=WAITED)
        assert result.get("verdict") == "forwarded", result

    return cpu(run)


def load(node: NamespaceNode, text: str) -> float:
    program = ["iptables-nft-restore"] if text.startswith("*") else ["nft", "-f", "-"]

    def run() -> None:
        node.module("datapath_info", diff=False, through=WAITED)
        node.run_from_host(["unshare", "--net", *program], text)

    return cpu(run)


def snapshot(**more: Any) -> dict[str, Any]:
    return {"links": [UPLINK], "settings": SETTINGS, "routes": ROUTES, **more}


def tables_of(services: Sequence[kube_proxy.Service]) -> list[dict[str, str]]:
    """The tables of iptables of a snapshot."""
    texts = zip(("nat", "filter"), kube_proxy.iptables(services).split("COMMIT\n"))
    return [{"family": "ip", "table": name, "backend": "nft", "save": f"{text}COMMIT\n"} for name, text in texts]


def nft_listing() -> str:
    """The rules as nft lists them."""
    listing = ["unshare", "--net", "sh", "-c", "nft -f - && nft list ruleset"]
    return host.output(listing, kube_proxy.nft(SERVICES).encode()).decode()


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
