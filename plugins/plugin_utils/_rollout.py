# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The outcome of each node in a run, as the callback ``report`` prints and writes it. Knows no class of Ansible."""

from __future__ import annotations

import dataclasses
import typing as t
from collections import Counter

from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line, printable

FAILED = "failed"
UNREACHABLE = "unreachable"
STOPPED = "stopped"
CHANGED = "changed"
OK = "ok"
RUNNING = "running"
NOT_REACHED = "not reached"
NO_TASK = "no task ran"
STATES = (FAILED, UNREACHABLE, STOPPED, RUNNING, NOT_REACHED, NO_TASK, CHANGED, OK)

OURS = "kubenode.datapath."
# Keys that Ansible adds to a module's results, or handles itself.
COMMON = {"ansible_facts", "changed", "deprecations", "diff", "exception", "failed", "invocation", "msg", "warnings"}


def sentence(result: t.Mapping[str, t.Any]) -> str:
    """Return the error message of a failed task, on one line; for a loop, the messages of its failed items."""
    # ansible-core 2.19 and newer removes "failed" from an item, and gives each failed item an "exception".
    signs = ("failed", "unreachable", "exception")
    items = [item for item in result.get("results") or () if any(map(item.get, signs))]
    said = [sentence(item) for item in items] or [str(result.get(key) or "") for key in ("msg", "stderr")]
    return printable(" ".join(" ".join(said).split()))


def module_results(result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a module's own results. For a loop, with labels instead of items: an item may contain what its label hides."""
    results = {key: value for key, value in result.items() if key not in COMMON and not key.startswith("_ansible")}
    variable = results.pop("ansible_loop_var", None)
    if variable:
        results = {key: value for key, value in results.items() if key != variable}
        return {"label": result.get("_ansible_item_label"), **results}
    if "results" in results:
        results["results"] = [module_results(item) for item in results["results"]]
    return results


def _modules(change: t.Mapping[str, t.Any]) -> list[str]:
    """Return the modules that have changed something: those of a profile, or the module itself."""
    results = change.get("result", {}).items()
    of_profile = [name for name, result in results if isinstance(result, dict) and result.get("changed")]
    return of_profile or [change["action"].rpartition(".")[2]]


@dataclasses.dataclass
class Node:
    """One node. end: FAILED, UNREACHABLE, STOPPED or NO_TASK if its tasks did not bring it to the end of the run; else empty.

    action: the module of the task that failed.
    has_run: whether a task ran that the user has selected, and not only tasks that always run.
    seconds: the time of its tasks, without the time in which tasks of other nodes ran.
    """

    end: str = ""
    trouble: str = ""
    action: str = ""
    is_begun: bool = False
    has_run: bool = False
    is_over: bool = False
    changes: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    stats: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    @property
    def state(self) -> str:
        if self.end:
            return self.end
        if not self.is_begun:
            return NOT_REACHED
        if not self.is_over:
            return RUNNING
        return CHANGED if self.changes else OK

    def add(self, seconds: float) -> None:
        """Add a task that has ended. If a task before it had failed, that was rescued or ignored."""
        self.end = ""
        self.seconds += seconds

    def change(self, task: str, action: str, result: t.Mapping[str, t.Any]) -> None:
        entry: dict[str, t.Any] = {"task": task, "action": action}
        if action.startswith(OURS):
            entry["result"] = module_results(result)
        self.changes.append(entry)

    def conclude(self, end: str) -> None:
        """Set the final state. ``end`` is empty if all went well."""
        self.end, self.is_over = end, True
        if not end:
            self.trouble = ""

    def line(self) -> str:
        """Return the middle of the node's line: its error, or else what was changed."""
        if self.end:
            return self.trouble
        return ", ".join(dict.fromkeys(name for change in self.changes for name in _modules(change)))

    def data(self) -> dict[str, t.Any]:
        return {
            "state": self.state,
            "trouble": self.trouble if self.end else "",
            "action": self.action if self.end and self.trouble else "",
            "seconds": round(self.seconds, 1),
            "changes": self.changes,
            "stats": self.stats,
        }


@dataclasses.dataclass
class Rollout:
    """A run of a playbook. ``started``, ``ended``: ISO 8601 in UTC, None while it goes on."""

    playbook: str
    is_check: bool
    started: str
    ended: str | None = None
    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        count = Counter(node.state for node in self.nodes.values())
        return {state: count[state] for state in STATES if count[state]}

    def data(self) -> dict[str, t.Any]:
        return {
            "playbook": self.playbook,
            "check_mode": self.is_check,
            "started": self.started,
            "ended": self.ended,
            "totals": self.totals(),
            "nodes": {name: node.data() for name, node in self.nodes.items()},
        }

    def lines(self) -> t.Iterator[tuple[str, str]]:
        """Return each node's state and line."""
        width = max(map(len, self.nodes), default=0)
        for name, node in self.nodes.items():
            seconds = f"{node.seconds:.1f} s" if node.is_begun else ""
            words = [f"{name:{width}}", f"{node.state:11}", node.line(), seconds]
            yield node.state, in_one_line("  ".join(word for word in words if word).rstrip())

    def summary(self) -> str:
        """Summarize the rollout in one sentence: "50 nodes: 1 failed, 48 not reached, 1 changed"."""
        counted = ", ".join(f"{count} {state}" for state, count in self.totals().items())
        return f"{len(self.nodes)} node{'s' * (len(self.nodes) != 1)}: {counted or 'none'}"
