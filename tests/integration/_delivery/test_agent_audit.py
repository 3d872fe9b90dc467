# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent that audits and listens, in a pod of a node that boots, whose Python is another one: a change becomes a finding."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration._delivery.test_agent_checkpoint import Site

from lab.agent_api import Api, Handler
from lab.inner_pods import routed
from lab.uplinks import V4, UplinkLab
from lab.waiting import until

pytest.importorskip("prometheus_client")

TYPE = "KubenodeDatapathHealthy"
PODS = 3
MASQUERADE = (
    "add table ip pods; add chain ip pods out { type nat hook postrouting priority srcnat; };"
    " add rule ip pods out ip saddr 172.31.0.0/24 oifname eth0 masquerade"
)
SETTINGS = {"KUBENODE_PROFILE": "audit", "KUBENODE_CONDITION": "true", "KUBENODE_INTERVAL": "1440"}  # minutes
STORM = 5000  # rules that are added and deleted again


class Audited(Site):
    @property
    def condition(self) -> dict[str, Any]:
        return next((one for one in self.api.conditions if one["type"] == TYPE), {})

    def until_status(self, status: str, reason: str = "") -> None:
        until(f"{TYPE} is {status}", lambda: self.condition.get("status"), self, expected=status, limit=60)
        assert not reason or self.condition["reason"] == reason

    def until_events(self, words: str) -> list[str]:
        """Wait for events with these words, which the agent sends after the condition, and return them."""

        def messages() -> list[str]:
            return [event["message"] for event in self.api.events if words in event["message"]]

        until(f"an event says {words!r}", messages, self)
        return messages()

    def route(self, verb: str, pod: int) -> None:
        """Add or delete a pod's route by an ip that goes on, so that its name is there to be read."""
        words = f"route {verb} 172.31.0.{pod + 2} dev veth{pod}"
        self.node.run(["sh", "-c", f"(echo {words}; sleep 3) | ip -batch - > /dev/null 2>&1 &"])

    def kill(self) -> None:
        """Kill the agent, and what it has started."""
        of_pod = f"KUBENODE_RUN={self.folder}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if of_pod in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def history(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "changes").read_text())
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Audited]:
    with UplinkLab("listening", system="bookworm") as lab, lab.client.in_network(lambda: Api(tmp_path, V4.client)) as api:
        threading.Thread(target=api.serve_forever, args=(0.01,), daemon=True).start()
        audited = Audited(lab, api, tmp_path)
        audited.node.run(["ip", "link", "del", "veth-pod1"])  # to a pod that is not on the node
        for pod in range(PODS):
            routed(audited.node, f"pod{pod}", f"172.31.0.{pod + 2}", f"02:00:00:00:01:{pod:02x}", f"veth{pod}", "eth0")
        audited.node.run(["nft", MASQUERADE])
        yield audited
        api.shutdown()


def test_a_change_becomes_a_condition_an_event_and_a_metric_with_what_changed_and_who(site: Audited) -> None:
    with site.agent(**SETTINGS):
        site.until_status("True")
        since = site.condition["lastTransitionTime"]
        site.route("del", 1)
        site.until_status("False", "PathLost")
        assert site.condition["lastTransitionTime"] >= since
        (event,) = site.until_events("no route to")
        assert re.search(r"no route to 172.31.0.3 after ip route 172.31.0.3 dev veth1 .* removed by process \d+ \(ip\): ", event)
        assert 'kubenode_datapath_finding{id="path-lost",severity="error"' in site.metrics()
        site.route("add", 1)
        site.until_status("True", "NoErrorFound")
        assert "kubenode_datapath_finding{" not in site.metrics() and len(site.events("PathLost")) == 1
        site.node.run(["nft", "add chain ip pods forward { type filter hook forward priority 0; policy drop; }"])
        site.until_status("False")
        (event,) = site.until_events("the ruleset of nftables")
        assert re.search(r" after the ruleset of nftables changed by process \d+ \(nft\): ", event)
        changes = [(entry["kind"], entry["verb"], entry["program"][-5:]) for entry in site.history()]
        assert changes == [
            *(("route", "removed", " (ip)"), ("route", "added", " (ip)")),
            ("ruleset", "changed", "(nft)"),
        ]


def is_down(request: Handler) -> bool:
    request.answer(503, "down")
    return True


def test_a_kill_a_storm_and_an_api_that_is_down_lose_nothing(site: Audited) -> None:
    with site.agent(**SETTINGS):
        site.until_status("True")
        site.api.behaves = is_down
        before = time.time()
        site.route("del", 1)
        until("the finding is a metric", lambda: "kubenode_datapath_finding{" in site.metrics(), site, limit=60)
        site.api.behaves = lambda _request: False
        site.until_status("False", "PathLost")
        changed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(before))
        assert changed <= site.condition["lastTransitionTime"]
        site.kill()
    with site.agent(**SETTINGS):
        until("an audit has succeeded", lambda: 'kubenode_runs_total{result="ok"} 1.0' in site.metrics(), site, limit=60)
        assert site.condition["status"] == "False"
        rules = [f"rule {verb} priority {20000 + number}" for number in range(STORM) for verb in ("add", "del")]
        site.node.run(["sh", "-c", "ip -batch /dev/stdin"], input="\n".join([*rules, "route add 172.31.0.3 dev veth1"]) + "\n")
        site.until_status("True")
        assert len(site.events("PathLost")) == 1 and len(site.history()) <= 200
