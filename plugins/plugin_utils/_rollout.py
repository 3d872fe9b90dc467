# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The outcome of each node in a run, as the callback ``report`` prints and writes it. Knows no class of Ansible."""

from __future__ import annotations

import dataclasses
import typing as t
from collections import Counter

from ansible_collections.kubenode.datapath.plugins.module_utils._core import form
from ansible_collections.kubenode.datapath.plugins.module_utils._core.form import said
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line

FORMAT = 1  # of the JSON; docs/schema/rollout.json
FAILED = "failed"
UNREACHABLE = "unreachable"
STOPPED = "stopped"
CHANGED = "changed"
OK = "ok"
RUNNING = "running"
NOT_REACHED = "not reached"
NO_TASK = "no task ran"
UNKNOWN = "no result"
STATES = (FAILED, UNREACHABLE, UNKNOWN, STOPPED, RUNNING, NOT_REACHED, NO_TASK, CHANGED, OK)
IN_CHECK_MODE = {CHANGED: "would change", OK: "no change"}

OURS = "kubenode.datapath."
PROFILE = f"{OURS}profile"
# Keys that Ansible adds to a module's results, or handles itself.
COMMON = {"ansible_facts", "changed", "deprecations", "diff", "exception", "failed", "invocation", "msg", "warnings"}
# Keys of a profile's result that the report has in places of their own.
OF_NODE = {"profile", "variables", "audits", "differences", "report"}
Data = t.Mapping[str, t.Any]

NODE_REPORT, ROLLOUT_CHECK = CHECKED = (f"{OURS}node_report", f"{OURS}rollout_check")
SET_STATS = "ansible.builtin.set_stats"
_SAID = form.Form(lambda value: in_one_line(said(value)))
_WARNINGS = {"warnings": form.perhaps(form.many(_SAID))._replace(default=())}
_CONNECTION = form.record({"address": form.LINE, "port": form.NUMBER})
CHECK = form.record(
    {
        "answers": form.FLAG,
        "moment": form.word("before", "after"),
        "connection": form.Form(lambda value: {**form.FIELDS.read(value), **_CONNECTION.read(value)}),
    }
)
# What the report takes of a result, by actions. Of another one it takes warnings, if they are warnings.
FORMS = {
    PROFILE: form.record(
        {
            **_WARNINGS,
            "node": form.record({"kernel": form.perhaps(form.LINE)}),
            "nftables_package": form.record({"version": form.perhaps(form.LINE)}),
            "profile": form.perhaps(form.LINE),
            "variables": form.perhaps(form.FIELDS),
            "audits": form.perhaps(form.record(dict.fromkeys(("before", "after"), form.perhaps(form.FIELDS)))),
            "differences": form.many(form.record(dict.fromkeys(("before_header", "after_header", "before", "after"), form.TEXT))),
            "report": form.many(_SAID),
        }
    ),
    NODE_REPORT: form.record({**_WARNINGS, "report": form.many(_SAID)}),
    SET_STATS: form.record({**_WARNINGS, "ansible_stats": form.record({"per_host": form.FLAG, "data": form.FIELDS})}),
}
OTHERS = form.record({"warnings": form.Form(lambda value: [*map(_SAID.read, value)] if isinstance(value, list) else [])})


def sentence(result: Data) -> str:
    """Return the error message of a failed task, on one line; for a loop, the messages of its failed items."""
    # ansible-core 2.19 and newer removes "failed" from an item, and gives each failed item an "exception".
    signs = ("failed", "unreachable", "exception")
    failed = [item for item in items(result) if any(map(item.get, signs))]
    words = (said(entry.get(key) or "") for entry in failed or [result] for key in ("msg", "stderr", "censored"))
    return " ".join(" ".join(words).split())


def items(result: Data) -> list[Data]:
    """Return the results of a loop's items. A module may have results of its own under the same key."""
    listed = result.get("results")
    every = listed if isinstance(listed, list) else []
    return [item for item in every if isinstance(item, t.Mapping) and "ansible_loop_var" in item]


def module_results(result: Data, left_out: t.Collection[str] = ()) -> dict[str, t.Any]:
    """Return a module's own results. For a loop, with labels instead of items: an item may contain what its label hides."""
    results = _of_the_result(result, left_out)
    return {**results, "results": [_of_the_result(item, left_out) for item in items(result)]} if items(result) else results


def _of_the_result(result: Data, left_out: t.Collection[str]) -> dict[str, t.Any]:
    variable = result.get("ansible_loop_var")
    hidden = {*COMMON, *left_out, "ansible_loop_var", said(variable)}
    results = {key: value for key, value in result.items() if key not in hidden and not key.startswith("_ansible")}
    return {"label": result.get("_ansible_item_label"), **results} if variable else results


def changes(result: Data, host: str) -> bool:
    """Return whether the task changed the node, and not a host that the task was delegated to."""
    return any(entry.get("changed") and _target(entry) in (None, host) for entry in items(result) or [result])


def _target(result: Data) -> t.Any:
    """Return the host that a task was delegated to."""
    delegated = result.get("_ansible_delegated_vars")
    return delegated.get("ansible_delegated_host") if isinstance(delegated, t.Mapping) else None


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
    results: the number of results of tasks.
    refused: a sentence about an answer that its module cannot have returned; empty if there is none.
    is_kept_back: whether the rollout ended before the node was changed.
    seconds: the time of its tasks, without the time in which tasks of other nodes ran.
    about: what the last result of a profile says of the node: its kernel and nft, the profile, its variables and its audits.
    proof: how the outcome was proved, as sentences. report: lines for the operator. diffs: of its objects, to be printed.
    """

    end: str = ""
    trouble: str = ""
    action: str = ""
    refused: str = ""
    is_begun: bool = False
    has_run: bool = False
    is_over: bool = False
    is_kept_back: bool = False
    results: int = 0
    changes: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    stats: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    checks: dict[str, dict[str, list[Data]]] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    warnings: list[str] = dataclasses.field(default_factory=list)
    about: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    proof: list[str] = dataclasses.field(default_factory=list)
    report: list[str] = dataclasses.field(default_factory=list)
    diffs: list[dict[str, str]] = dataclasses.field(default_factory=list)

    @property
    def state(self) -> str:
        if self.is_kept_back or not self.is_begun:
            return NOT_REACHED
        if self.end:
            return self.end
        if not self.is_over:
            return RUNNING
        if not self.results:
            return UNKNOWN
        return CHANGED if self.changes else OK

    def add(self, seconds: float) -> None:
        """Add a task that has ended. If a task before it had failed, that was rescued or ignored."""
        self.end = ""
        self.results += 1
        self.seconds += seconds

    def change(self, task: str, action: str, result: Data) -> None:
        entry: dict[str, t.Any] = {"task": task, "action": action}
        if action.startswith(OURS):
            of_modules = module_results(result, OF_NODE if action == PROFILE else ())
            entry["result"] = self._permitted(action, form.FIELDS, of_modules) or {}
        self.changes.append(entry)

    def note(self, action: str, result: Data, is_check: bool) -> None:
        """Note what a result, or an item of one, says besides the change."""
        self.is_kept_back |= action == ROLLOUT_CHECK and bool(result.get("is_kept_back"))
        noted = self._permitted(action, FORMS.get(action, OTHERS), result)
        if noted is None:
            return
        self.warnings += [text for text in noted.get("warnings") or () if text not in self.warnings]
        self.report += noted.get("report", ())
        self.diffs += noted.get("differences", ())
        self.stats.update({key: value for key, value in _per_host(noted).items() if key != "checks"})
        if action in CHECKED and "answers" in result:
            self._answered(self._permitted(action, CHECK, result))
        if action == PROFILE and "summary" in result:
            self.about = _about(noted)
            self.proof = _proofs({**result, **noted}, is_check)

    def conclude(self, end: str) -> None:
        """Set the final state. ``end`` is empty if all went well."""
        self.trouble = self.trouble if end else self.refused
        self.end, self.is_over = end or (FAILED if self.refused else ""), True

    def _permitted(self, action: str, shape: form.Form, result: Data) -> dict[str, t.Any] | None:
        """Return what of a result has the form; None if it is refused, which is the node's trouble."""
        try:
            return t.cast("dict[str, t.Any]", form.bounded(shape, result))
        except form.Refused as error:
            self.refused, self.action = f"The answer of {action} is refused: {error}.", action
            self.warnings.append(self.refused)
            return None

    def _answered(self, check: Data | None) -> None:
        if check:
            moments = self.checks.setdefault(check["moment"], {"answered": [], "silent": []})
            moments["answered" if check["answers"] else "silent"].append(check["connection"])

    def line(self) -> str:
        """Return the middle of the node's line: its error, or else what was changed."""
        if self.end and not self.is_kept_back:
            return self.trouble
        return ", ".join(dict.fromkeys(name for change in self.changes for name in _modules(change)))

    def data(self) -> dict[str, t.Any]:
        is_troubled = bool(self.end and self.trouble)
        return {
            "state": self.state,
            "trouble": self.trouble if is_troubled else "",
            "action": self.action if is_troubled else "",
            "seconds": round(self.seconds, 1),
            **{key: self.about.get(key) for key in ("kernel", "nft", "profile", "variables", "audit")},
            "warnings": self.warnings,
            "proof": [*self.proof, *self._checked()],
            "changes": self.changes,
            "stats": {**self.stats, **({"checks": self.checks} if self.checks else {})},
        }

    def _checked(self) -> list[str]:
        after = self.checks.get("after", {})
        if not after:
            return []
        return [
            f"{len(after['answered'])} of {len(after['answered']) + len(after['silent'])} checks were answered after the change"
        ]


def _per_host(noted: Data) -> Data:
    """Return the statistics that a task sets for its node."""
    stats = noted.get("ansible_stats") or {}
    return stats["data"] if stats.get("per_host") else {}


def _about(noted: Data) -> dict[str, t.Any]:
    return {
        "kernel": noted["node"]["kernel"],
        "nft": noted["nftables_package"]["version"],
        "profile": noted["profile"],
        "variables": noted["variables"],
        "audit": noted["audits"],
    }


def _proofs(result: Data, is_check: bool) -> list[str]:
    """Return how a profile's result was proved. The module fails if a change did not converge, so its success is the proof."""
    proofs = ["rehearsed in the node's twin"] if "rehearsed" in result else []
    if is_check:
        return [*proofs, "planned from an observation of the node; nothing was applied"]
    if not result.get("changed"):
        return [*proofs, "observed: the node is as desired"]
    proofs.append("observed again after the change: nothing is left to change")
    if (result.get("audits") or {}).get("after"):
        proofs.append("audited again after the change")
    return proofs


@dataclasses.dataclass
class Rollout:
    """A run of a playbook. ``started``, ``ended``: ISO 8601 in UTC, None while it goes on.

    versions: of the collection and of Ansible. selection: what the first line of the run says of its hosts.
    """

    playbook: str
    is_check: bool
    started: str
    ended: str | None = None
    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        count = Counter(node.state for node in self.nodes.values())
        return {state: count[state] for state in STATES if count[state]}

    def data(self) -> dict[str, t.Any]:
        return {
            "format": FORMAT,
            "playbook": self.playbook,
            **self.versions,
            "check_mode": self.is_check,
            "started": self.started,
            "ended": self.ended,
            "totals": self.totals(),
            "nodes": {name: node.data() for name, node in self.nodes.items()},
        }

    def audits(self) -> dict[str, t.Any]:
        """Return the results of audits by nodes, or by bundles that were audited on the controller."""
        results: dict[str, t.Any] = {}
        for name, node in self.nodes.items():
            results.update(node.stats.get("audits") or {}, **({name: node.stats["audit"]} if "audit" in node.stats else {}))
        return results

    def word(self, state: str) -> str:
        """Return a state for people: in check mode nothing has changed yet, and a node that was audited may have findings."""
        if state == OK and self.audits():
            return "audited"
        return IN_CHECK_MODE.get(state, state) if self.is_check else state

    def groups(self) -> list[dict[str, Node]]:
        """Return the nodes, those with the same state and line together, in the order of the first ones."""
        groups: dict[tuple[str, str], dict[str, Node]] = {}
        for name, node in self.nodes.items():
            groups.setdefault((node.state, node.line()), {})[name] = node
        return [*groups.values()]

    def lines(self) -> t.Iterator[tuple[str, str]]:
        """Return the state and a line of each group of equal nodes, and below it the lines of their reports."""
        groups = self.groups()
        widest = max((len(name) for group in groups if len(group) == 1 for name in group), default=0)
        for group in groups:
            node, *_others = group.values()
            names = ", ".join(group)
            words = [names.ljust(widest), f"{self.word(node.state):12}", node.line(), _seconds(group.values())]
            yield node.state, in_one_line("  ".join(word for word in words if word).rstrip())
            yield from (
                ("", f"  {in_one_line(line)}") for line in common_lines({name: node.report for name, node in group.items()})
            )

    def summary(self) -> str:
        """Summarize the rollout in one sentence: "50 nodes: 1 failed, 48 not reached, 1 changed"."""
        counted = ", ".join(f"{count} {self.word(state)}" for state, count in self.totals().items())
        return f"{len(self.nodes)} node{'s' * (len(self.nodes) != 1)}: {counted or 'none'}"


def _seconds(nodes: t.Collection[Node]) -> str:
    times = sorted(node.seconds for node in nodes if node.is_begun and not node.is_kept_back)
    if not times:
        return ""
    return f"{times[0]:.1f} s" if len(times) == 1 else f"{times[0]:.1f} to {times[-1]:.1f} s"


def common_diffs(nodes: t.Mapping[str, Node]) -> t.Iterator[tuple[list[str], dict[str, str]]]:
    """Yield each diff once, with the names of the nodes that have it, and forget it."""
    names: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, node in nodes.items():
        for diff in node.diffs:
            names.setdefault(tuple(sorted(diff.items())), []).append(name)
        node.diffs = []
    yield from ((nodes_of_diff, dict(diff)) for diff, nodes_of_diff in names.items())


def common_lines(reports: t.Mapping[str, t.Sequence[str]]) -> list[str]:
    """Return the lines of several nodes, each once. Lines that not all have follow, with the names of the nodes."""
    nodes: dict[str, list[str]] = {}
    for name, lines in reports.items():
        for line in dict.fromkeys(lines):
            nodes.setdefault(line, []).append(name)
    common = [line for line, names in nodes.items() if len(names) == len(reports)]
    return [*common, *(f"{', '.join(names)}: {line}" for line, names in nodes.items() if len(names) < len(reports))]
