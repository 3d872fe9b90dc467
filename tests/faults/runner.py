# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The promises that must hold after each fault, and the table of the results.

A run is struck once. Then

1. the result is true: "changed" means the desired state, an error that says "undone" means the former one; a killed run
   has no result, and may leave a mixture;
2. the same run again succeeds and leaves the state of an undisturbed one; a further one reports no change and changes nothing;
3. absent, with the options of the run and without any, restores the first snapshot;
4. no process goes on after its run.

2 and 3 start from the state alone. So they are tried once for each state that faults of a run leave, and not at all where that is
the former or the desired one, from which undisturbed runs are tried first.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from faults import kinds
from faults.cases import Case, Operation, Options
from faults.kinds import Fault
from faults.points import Point
from faults.stage import Outcome
from lab import Lab, Node, azure_vnet, collection, entering
from lab.entering import LabError
from lab.node import module_arguments

# Texts of an error that does not claim the former state.
CONFESSIONS = ("could not all be undone", "the node does not read as before")
TEMPORARY = re.compile(r"/\.[^/]+\.kubenode(/|$)|^/run/kubenode\.lock$")
LIMIT = 30.0  # seconds after which a run counts as hung


class Bad(NamedTuple):
    """A promise that was broken."""

    operation: str
    fault: str
    point: str
    seen: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.fault} at {self.point}: {self.seen}"


class Row(NamedTuple):
    """A row of the table."""

    module: str
    operation: str
    points: int
    kills: int
    bad: tuple[Bad, ...]


class Broken(Exception):
    """The promise that was broken, as a sentence."""


State = Mapping[str, Any]


class Stage:
    """The process that runs modules, on one node at a time. It imports all modules once."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-m", "faults.stage"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**entering.ENVIRONMENT, "PYTHONPATH": f"{collection.link()}:{collection.CHECKOUT}/tests"},
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def enter(self, pid: int) -> None:
        """Run the next modules on the node of process ``pid``."""
        entering.refuse_host(pid)
        self._ask(str(pid))

    def leave(self) -> None:
        self._say("")

    def perform(self, request: Mapping[str, Any]) -> Outcome:
        answer = Outcome(*json.loads(self._ask(json.dumps(request))))
        return answer._replace(points=[Point(*point) for point in answer.points])

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def _ask(self, line: str) -> str:
        assert self._process.stdout is not None
        self._say(line)
        answer = self._process.stdout.readline()
        if not answer:
            raise LabError("the stage has ended; what it said is above")
        return answer


class Site:
    """A node, and the runs on it."""

    def __init__(self, case: Case, stage: Stage) -> None:
        self._stage = stage
        self._case = case
        self._seen: State | None = None
        self._lab = Lab("faults", nodes=[Node("node1", pods=["pod1"])], metadata=case.module == "imds_info")
        self._node = self._lab.node("node1")
        case.prepare(self._lab, self._node)
        self._has_ebtables = bool(azure_vnet.listing(self._node))
        stage.enter(self._node.pid)

    def close(self) -> None:
        self._stage.leave()
        self._lab.close()

    def run(self, options: Options, fault: Fault | None = None) -> Outcome:
        self._seen = None
        module = self._case.module
        arguments = module_arguments(module, options)
        return self._stage.perform({"module": module, "arguments": arguments, "fault": fault, "limit": LIMIT})

    def forget(self) -> None:
        """Read the state afresh, because another program has changed it."""
        self._seen = None

    def state(self) -> State:
        """The state of the node that a module may change."""
        if self._seen is None:
            found: dict[str, Any] = self._node.snapshot()
            permanent = self._node.run_from_host(["ip", "neighbour", "show", "nud", "permanent"])
            found["neighbours"] = sorted(permanent.splitlines())
            if self._has_ebtables:
                found["ebtables"] = azure_vnet.listing(self._node)
            for path in found["files"].keys() & {*self._case.varies}:
                found["files"][path] = found["files"][path].partition("sha256")[0]
            self._seen = found
        return self._seen


class Examination:
    """An operation, struck by each fault that it can meet."""

    def __init__(self, operation: Operation, stage: Stage) -> None:
        self._operation = operation
        self._is_one_way = operation.case.absent is None
        self._stage = stage
        self._site = Site(operation.case, stage)
        self._good: list[State] = []
        self._is_clean = True  # the node is as it was built

    def close(self) -> None:
        self._site.close()

    def rehearse(self) -> Outcome:
        """Runs the operation without a fault; records the states of the new node, before, and after. Raises Broken."""
        operation = self._operation
        self._clean = self._site.state()
        if operation.before is not None:
            self._succeed(operation.before)
        self._former = self._site.state()
        outcome = self._succeed(operation.after)
        self._undisturbed = outcome.points
        self._changes = (outcome.result or {})["changed"]
        self._desired = self._site.state()
        self._good = [self._former, self._desired]
        self._converged()
        for back in operation.backs:
            self._go_back(back)
            self._start()
            self._succeed(operation.after)
        return outcome

    def strike(self, fault: Fault, point: Point | None) -> None:
        """Raises Broken."""
        outcome = self._struck(fault)
        if point is not None and outcome.points[fault.number - 1 : fault.number] != [point]:
            raise Broken(f"the run takes another way than undisturbed: {_parting(outcome.points, self._undisturbed)}")
        if fault.kind == kinds.KILL_MODULE:
            self._mend()  # while the child is held
            for back in self._operation.backs:
                self._struck(fault)
                self._go_back(back)
            return
        here = self._site.state()
        self._expect_truth(outcome, fault, here)
        if here in self._good:
            return
        self._mend()
        for back in self._operation.backs:
            self._struck(fault)
            self._go_back(back)
        self._good.append(here)

    def _struck(self, fault: Fault) -> Outcome:
        """The run with the fault, from the former state."""
        self._start()
        self._is_clean = False
        return self._site.run(self._operation.after, fault)

    def rebuild(self) -> None:
        self.close()
        self._site = Site(self._operation.case, self._stage)
        self._is_clean = True

    # Promises

    def _expect_truth(self, outcome: Outcome, fault: Fault, here: State) -> None:
        if outcome.is_hung:
            raise Broken("the run has no end")
        if outcome.left:
            raise Broken(f"after the run goes on: {'; '.join(outcome.left)}")
        if fault.kind in kinds.KILLS:
            return
        if outcome.result is None:
            raise Broken(f"no result, but {outcome.output.strip().splitlines()[-1:] or outcome.status}")
        if fault.kind == kinds.READ_ONLY:
            here = _removed(here)
        if not outcome.result.get("failed"):
            said = f"the run says changed={outcome.result['changed']}"
            self._expect(here, self._desired, f"{said}, but")
            if outcome.result["changed"] != self._changes:
                raise Broken(f"{said}, and undisturbed changed={self._changes}")
        elif not any(confession in outcome.result["msg"] for confession in CONFESSIONS):
            self._expect(here, self._former, f"the run says {outcome.result['msg']!r}, but")

    def _mend(self) -> None:
        self._succeed(self._operation.after)
        self._expect(self._site.state(), self._desired, "after the next run")
        self._converged()

    def _converged(self) -> None:
        again = self._succeed(self._operation.after)
        changes = [point for point in again.points if point.is_change]
        if (again.result or {})["changed"] or changes:
            raise Broken(f"a further run changes: {_shown(changes) or 'it says so'}")
        self._expect(self._site.state(), self._desired, "after a further run")

    def _go_back(self, options: Options) -> None:
        self._succeed(options)
        self._expect(self._site.state(), self._clean, f"after {dict(options)}")
        self._is_clean = True

    def _succeed(self, options: Options) -> Outcome:
        self._is_clean = False
        outcome = self._site.run(options)
        if outcome.is_hung or outcome.result is None or outcome.result.get("failed"):
            told = (outcome.result or {}).get("msg", outcome.output)
            raise Broken(f"a run with {dict(options)} fails: {told}")
        if outcome.left:
            raise Broken(f"after a run goes on: {'; '.join(outcome.left)}")
        return outcome

    def _start(self) -> None:
        """Brings the node to the former state."""
        if self._is_one_way:
            if not self._is_clean:
                self.rebuild()
        elif self._site.state() == self._former:
            return
        elif not self._is_clean:
            for back in self._operation.backs[-1:]:
                self._go_back(back)
        if self._operation.before is not None:
            self._succeed(self._operation.before)
        self._expect(self._site.state(), self._former, "before the run")

    @staticmethod
    def _expect(here: State, expected: State, when: str) -> None:
        if here != expected:
            raise Broken(f"{when} {_difference(here, expected)}")


def examine(operation: Operation, stage: Stage, every: int = 1) -> Row:
    """Strike the operation with all its faults, or with one of ``every`` so many, always the same ones."""
    bad: list[Bad] = []
    examination = Examination(operation, stage)
    points, struck = 0, 0
    try:
        try:
            rehearsed = examination.rehearse()
        except Broken as broken:
            return Row(operation.case.module, operation.name, 0, 0, (Bad(str(operation), "no fault", "-", str(broken)),))
        points = len(rehearsed.points)
        faults = kinds.possible(rehearsed.points, rehearsed.starts)
        for fault in faults[zlib.crc32(str(operation).encode()) % every :: every]:
            point = None if fault.kind in kinds.CHILDREN else rehearsed.points[fault.number - 1]
            where = f"child {fault.number}" if point is None else f"point {fault.number} ({point})"
            struck += 1
            try:
                examination.strike(fault, point)
            except Broken as broken:
                bad.append(Bad(str(operation), fault.kind, where, str(broken)))
                examination.rebuild()
    finally:
        examination.close()
    return Row(operation.case.module, operation.name, points, struck, tuple(bad))


def _removed(here: State) -> State:
    """The state without what a run can no longer remove from a read-only disk: its lock and its temporary files."""
    return {**here, "files": {path: text for path, text in here["files"].items() if not TEMPORARY.search(path)}}


def _difference(here: State, expected: State) -> str:
    """The first few entries that differ."""
    told = []
    for key in sorted(here.keys() | expected.keys()):
        left, right = here.get(key), expected.get(key)
        if left == right:
            continue
        first, second = (_entries(one) for one in (left, right))
        told += [f"{key} has {entry!r}" for entry in sorted(first - second)]
        told += [f"{key} lacks {entry!r}" for entry in sorted(second - first)]
        if first == second:
            told.append(f"{key} is in another order")
    return "the node differs: " + "; ".join(told[:6]) + (f"; and {len(told) - 6} more" if len(told) > 6 else "")


def _entries(part: Any) -> set[str]:
    if isinstance(part, Mapping):
        return {f"{name}: {value}" for name, value in part.items()}
    return set(part.splitlines() if isinstance(part, str) else part or ())


def _parting(points: Sequence[Point], undisturbed: Sequence[Point]) -> str:
    """Where two runs part, and what each does there."""
    number = next(
        (n for n, pair in enumerate(zip(points, undisturbed)) if pair[0] != pair[1]), min(len(points), len(undisturbed))
    )
    return f"from point {number + 1} on {_shown(points[number:]) or 'nothing'}, not {_shown(undisturbed[number:]) or 'nothing'}"


def _shown(points: Sequence[Point]) -> str:
    return "; ".join(map(str, points[:4]))
