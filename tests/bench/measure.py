# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures times, and prints and judges results."""

from __future__ import annotations

import os
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab import Lab, host, playbook

HERE = Path(__file__).parent
PING: dict[str, Any] = {"ansible.builtin.ping": {}}


def in_turn(rounds: int, measures: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """The results of each measure, from ``rounds`` rounds in which all take turns. A first round does not count."""
    taken = [{name: measure() for name, measure in measures.items()} for _round in range(rounds + 1)]
    return {name: [one[name] for one in taken[1:]] for name in measures}


def stopwatch(act: Callable[[], object]) -> float:
    """Seconds that a function takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def cpu(act: Callable[[], object]) -> float:
    """CPU seconds of the processes that a function starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    act()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def task_seconds(lab: Lab, rounds: int, tasks: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    """Seconds of processors of each named task on the first node, over ``rounds`` rounds in which they take turns in one play.

    The first round does not count.
    """
    listed = [{"name": name, **task} for _round in range(rounds + 1) for name, task in tasks.items()]
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for task, taken in durations(lab, listed):
        seconds[task].append(taken)
    return {task: taken[1:] for task, taken in seconds.items()}


def durations(lab: Lab, tasks: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    """Plays the tasks on the first node. Returns the name and the seconds of processors of each, by the callback of this name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        play = playbook.write(folder / "play.json", tasks, hosts=lab.nodes[0].name)
        environment = {
            "ANSIBLE_STDOUT_CALLBACK": "durations",
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
            "BENCH_DURATIONS": str(folder / "durations"),
        }
        inventory = lab.write_inventory(folder / "inventory.json")
        command = ["ansible-playbook", "-i", str(inventory), str(play)]
        host.run(command, env={**os.environ, **lab.ansible_environment(), **environment})
        lines = (folder / "durations").read_text().splitlines()
    return [(task, float(taken)) for task, taken in map(str.split, lines)]


PACKETS = 3_000
PAYLOAD = bytes(22)  # a frame of 64 bytes


def packet_seconds(pair: tuple[socket.socket, ...], sender: socket.socket) -> float:
    """CPU seconds of one packet. Packets each way come first: they mark the connection and fill the caches."""
    for one in pair * 300:
        one.send(PAYLOAD)
    started = time.thread_time()
    for _packet in range(PACKETS):
        sender.send(PAYLOAD)
    return (time.thread_time() - started) / PACKETS


MISSED: list[str] = []  # titles of results above their target


def show_ratio(title: str, measured: Sequence[float], baseline: Sequence[float], target: float | None = None) -> None:
    ratios = [one / other for one, other in zip(measured, baseline, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    wanted = f" (target: at most {target})" if target else ""
    print(f"{title}: {middle:.2f}{wanted}, quartiles {low:.2f} to {high:.2f}, {len(ratios)} pairs")
    show_times("measured", measured)
    show_times("baseline", baseline)
    judge(title, target is None or middle <= target)


def judge(title: str, is_met: bool) -> None:
    """Record a missed target, because a bench prints all its figures first."""
    if not is_met:
        MISSED.append(title)


def show_times(name: str, seconds: Sequence[float]) -> None:
    print(
        f"    {name}: median {statistics.median(seconds) * 1000:.0f} ms, fastest {min(seconds) * 1000:.0f} ms",
        flush=True,
    )
