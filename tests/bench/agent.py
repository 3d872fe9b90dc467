# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent that listens costs on a node with 30 pods, and how soon it finds what a change has broken.

It runs in the network of a node of the lab, without a cluster: what it would send to the API is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.measure import judge
from lab import Eni, EniLab, entering
from lab.collection import CHECKOUT

PODS = 30
ROUNDS = 5
MOST_SECONDS = 2.0  # from a change to the finding
IDLE, MOST_IDLE = 30.0, 0.001  # seconds; share of a processor
CHURN, A_MINUTE, MOST_OF_CHURN = 120.0, 100, 0.01  # seconds, changes of pods, share of a processor
OF_PODS = 0.006  # kubenode_agent/auditor.py: the share of a processor for audits after changes of pods
STORM, MOST_MEBIBYTES = 20_000, 60  # rules; of the process that listens
INTERVAL = 600 * 3  # seconds between two audits of a node on which nothing changes
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 60.0  # seconds

AGENT = """
import json, sys, threading, time
from pathlib import Path
from unittest.mock import Mock
sys.path.append(sys.argv[1])
from kubenode_agent import auditor, child, settings, watch

child.preload()
child.enter = lambda: None  # the machine is a network namespace
watch.OF_NODE = "/proc/self/ns/net"

def audited(result, sentence, seconds):
    present = sorted({f["subject"] for f in result.get("findings", ()) if f["state"] == "present" and f["severity"] == "error"})
    print(json.dumps({"at": time.monotonic(), "errors": present, "failed": sentence}), flush=True)

folder = Path(sys.argv[2])
options = settings.Settings("audit", "node1", state=folder)
node = Mock(room=10, has_condition=None)
auditor.Auditor(options, node, Mock(audited=audited), child.audit, "1", threading.Event(), watch.watching(folder)).work()
"""


def main() -> None:
    names = [f"pod{number}" for number in range(PODS)]
    with EniLab("bench", [Eni("eth1", pods=names, has_address=True)]) as lab, tempfile.TemporaryDirectory() as folder:
        node: Any = lab.node("node1")
        node.filter_reverse_path(2)
        with _agent(node, Path(folder)) as agent:
            agent.wait(lambda turn: True)
            _measure_delay(node, agent)
            _measure_idle(agent)
            _measure_churn(node, agent)
            _measure_storm(node, agent)


class _Agent:
    """A running agent. turns: what its audits have found."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self.turns: list[dict[str, Any]] = []
        self._lines = process.stdout
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._lines or ():
            self.turns.append(json.loads(line))

    def wait(self, accepts: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """Return the first of the audits since some that is accepted."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for turn in self.turns[since:]:
                if accepts(turn):
                    return turn
            time.sleep(0.01)
        raise TimeoutError(f"no audit of {self.turns[since:]} is the one that is waited for")

    def seconds(self) -> tuple[float, float]:
        """Return the seconds of processors of the agent itself, and of its children that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        own, children = ((int(fields[place]) + int(fields[place + 1])) / TICKS for place in (11, 13))
        return own, children

    def mebibytes(self) -> int:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(status["VmRSS"].split()[0]) // 1024


@contextlib.contextmanager
def _agent(node: Any, folder: Path) -> Iterator[_Agent]:
    argv = [
        sys.executable,
        "-c",
        f"import sys; sys.path[:0] = {sys.path!r}\n{AGENT}",
        str(CHECKOUT / "deploy/image"),
        str(folder),
    ]
    with subprocess.Popen(
        node.command(argv, entering.NETWORK_ONLY), stdout=subprocess.PIPE, text=True, env={**os.environ, **entering.ENVIRONMENT}
    ) as process:
        try:
            yield _Agent(process)
        finally:
            process.kill()


def _measure_delay(node: Any, agent: _Agent) -> None:
    """The time from a pod's rule that is gone to the audit that names the pod."""
    rule = next(line for line in node.run(["ip", "rule"]).stdout.splitlines() if " to " in line or "from 10.0.1" in line)
    priority, _colon, words = rule.partition(":")
    taken = []
    for _round in range(ROUNDS):
        since, began = len(agent.turns), time.monotonic()
        node.run(["ip", "rule", "del", *words.split(), "priority", priority])
        taken.append(agent.wait(lambda turn: bool(turn["errors"]), since)["at"] - began)
        since = len(agent.turns)
        node.run(["ip", "rule", "add", *words.split(), "priority", priority])
        agent.wait(lambda turn: not turn["errors"], since)
    shown = f"{min(taken):.1f} to {max(taken):.1f} s"
    print(
        f"a finding after a change, node with {PODS} pods: {statistics.median(taken):.1f} s, {shown} (target: {MOST_SECONDS:g})"
    )
    judge("a finding after a change", statistics.median(taken) <= MOST_SECONDS)


def _measure_idle(agent: _Agent) -> None:
    time.sleep(PATIENCE / 6)  # the audits of the rounds before are over
    before, turns = agent.seconds(), len(agent.turns)
    time.sleep(IDLE)
    after = agent.seconds()
    audits = after[1] / len(agent.turns)
    share = (after[0] - before[0]) / IDLE + audits / INTERVAL
    assert len(agent.turns) == turns, "nothing changed"
    print(
        f"an idle agent: {share:.2%} of a processor (target: {MOST_IDLE:.1%}), of which an audit of {audits:.2f} s each"
        f" {INTERVAL // 60} minutes is {audits / INTERVAL:.2%}; {agent.mebibytes()} MiB (target: {MOST_MEBIBYTES})"
    )
    judge("an idle agent's processor", share <= MOST_IDLE)
    judge("an idle agent's memory", agent.mebibytes() <= MOST_MEBIBYTES)


def _measure_churn(node: Any, agent: _Agent) -> None:
    """Pods that come and go, each with a link, a route and a rule, for a while after the budget's savings are spent."""
    started, changes, spent = time.monotonic(), 0, agent.seconds()
    turns = len(agent.turns)
    while time.monotonic() < started + CHURN:
        number = changes // 2 % 200
        is_added = changes % 2 == 0
        commands = [
            ["ip", "link", "add", f"churn{number}", "type", "veth", "peer", "name", f"peer{number}"],
            ["ip", "link", "set", f"churn{number}", "up"],
            ["ip", "route", "add", f"10.0.9.{number}", "dev", f"churn{number}"],
            ["ip", "rule", "add", "to", f"10.0.9.{number}", "lookup", "main", "priority", "512"],
        ]
        undo = [
            ["ip", "rule", "del", "to", f"10.0.9.{number}", "lookup", "main", "priority", "512"],
            ["ip", "link", "del", f"churn{number}"],
        ]
        for command in commands if is_added else undo:
            node.run(command)
        changes += 1
        time.sleep(max(0.0, started + changes * 60 / A_MINUTE - time.monotonic()))
    seconds = time.monotonic() - started
    own, children = (after - before for after, before in zip(agent.seconds(), spent))
    audits = len(agent.turns) - turns
    steady = own / seconds + OF_PODS
    print(
        f"an agent at {changes / seconds * 60:.0f} pods a minute: {own / seconds:.2%} of a processor to listen, and"
        f" {audits} audits of {children / max(audits, 1):.2f} s, for which it has {OF_PODS:.1%}: {steady:.2%} (target:"
        f" {MOST_OF_CHURN:.0%})"
    )
    judge("an agent while pods come and go", steady <= MOST_OF_CHURN)


def _measure_storm(node: Any, agent: _Agent) -> None:
    """Many changes at once, the last of which breaks something."""
    before, since = agent.mebibytes(), len(agent.turns)
    lines = [f"rule add to 203.0.{number // 250 % 250}.{number % 250} lookup 77 priority 9000" for number in range(STORM // 2)]
    undone = [line.replace(" add ", " del ") for line in lines]
    began = time.monotonic()
    node.run_from_host(["ip", "-batch", "-"], "\n".join([*lines, *undone, "rule add to 10.0.1.11 blackhole priority 9", ""]))
    taken = time.monotonic() - began
    agent.wait(lambda turn: bool(turn["errors"]), since)
    print(
        f"a storm of {STORM} changes in {taken:.1f} s: its end is found {time.monotonic() - began - taken:.1f} s later,"
        f" {before} MiB before, {agent.mebibytes()} MiB after (target: {MOST_MEBIBYTES})"
    )
    judge("an agent's memory after a storm", agent.mebibytes() <= MOST_MEBIBYTES)
