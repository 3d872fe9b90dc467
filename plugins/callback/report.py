# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report
type: aggregate
short_description: One line for each node at the end of a run, and a JSON file
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Tells what became of each node of a run, also of those that failed, went away, or were not reached because the rollout ended
    before. It prints one line for each, below Ansible's recap.
  - Where the variable C(kubenode_report) of a play names a file or a folder on the controller, the same is written there as JSON,
    with what the modules of this collection returned where they changed something. The collection's playbooks take it as
    C(report).
  - A file is replaced. In a folder, each run has its own, C(PLAYBOOK-TIME.json). A last folder that is missing is made.
  - It is written anew while the run goes on, by rename, so that it can be read at any time; in check mode as well, with
    C(check_mode) set to true.
  - What cannot be written is an error message, and stops nothing.
  - C(state) is V(ok), V(changed), V(failed), V(unreachable), V(not reached), V(no task ran), V(running), or V(stopped), which is
    a node that Ansible stopped because another one of its batch failed (C(max_fail_percentage), C(any_errors_fatal)).
  - On a node with V(no task ran), C(--tags) or C(--skip-tags) selected no task, but for those that are tagged C(always).
  - C(seconds) is what a node's tasks took, without the time in which others had their turn.
  - C(stats) is what plays and roles told by M(ansible.builtin.set_stats) with C(per_host).
requirements:
  - To be enabled, as C(callbacks_enabled = kubenode.datapath.report) in the section C([defaults]) of C(ansible.cfg), or by
    E(ANSIBLE_CALLBACKS_ENABLED).
"""

import contextlib
import datetime
import json
import os
import tempfile
import time
import typing as t
from pathlib import Path

from ansible import constants as C
from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _rollout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._rollout import Node, Rollout

VARIABLE = "kubenode_report"
PAUSE = 1.0  # seconds between two times that the file is written while the run goes on
COLOURS = {
    _rollout.FAILED: C.COLOR_ERROR,
    _rollout.UNREACHABLE: C.COLOR_UNREACHABLE,
    _rollout.STOPPED: C.COLOR_WARN,
    _rollout.NOT_REACHED: C.COLOR_SKIP,
    _rollout.NO_TASK: C.COLOR_SKIP,
    _rollout.CHANGED: C.COLOR_CHANGED,
    _rollout.OK: C.COLOR_OK,
}


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kubenode.datapath.report"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        name = Path(playbook._file_name).stem
        self._rollout = Rollout(name, bool(context.CLIARGS.get("check")), _now().isoformat())
        self._path: Path | None = None
        self._written = 0.0
        self._play: t.Any = None
        self._batch: list[str] = []
        self._is_fatal = False
        self._selects = bool(context.CLIARGS.get("skip_tags")) or "all" not in context.CLIARGS.get("tags", ["all"])
        self._began: dict[str, float] = {}

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        """Comes before each batch."""
        self._end_batch()
        variables = play.get_variable_manager().get_vars(play=play)
        hosts = variables["ansible_play_hosts_all"]
        for name in hosts:
            self._rollout.nodes.setdefault(name, Node())
        self._play = play
        # Of a play whose pattern matches nothing, Ansible takes the whole inventory for the batch.
        self._batch = [name for name in variables["ansible_play_batch"] if name in hosts]
        self._is_fatal = bool(play.any_errors_fatal)
        if self._path is None:
            desired = Templar(loader=play.get_loader(), variables=variables).template(variables.get(VARIABLE))
            self._path = self._file(str(desired)) if desired else None
        self._write()

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        node = self._node(host)
        node.is_begun = True
        node.has_run |= not (self._selects and "always" in task.tags)
        self._began[host.get_name()] = time.monotonic()

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._add(result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._add(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._add(result, "" if ignore_errors else _rollout.FAILED)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._add(result, _rollout.UNREACHABLE)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """Also where max_fail_percentage was exceeded, and Ansible stops the nodes that are well."""
        self._is_fatal = True

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self._end_batch()
        for name, node in self._rollout.nodes.items():
            if stats.dark.get(name):
                node.conclude(_rollout.UNREACHABLE)
            elif stats.failures.get(name):
                node.conclude(_rollout.FAILED)
        self._rollout.ended = _now().isoformat()
        self._write()
        self._display.banner("NODES")
        for state, line in self._rollout.lines():
            self._display.display(line, color=COLOURS[state])
        mode = " (check mode: nothing was changed)" if self._rollout.is_check else ""
        place = f"; report: {self._path}" if self._path else ""
        self._display.display(f"\n{self._rollout.summary()}{mode}{place}")

    def _node(self, host: t.Any) -> Node:
        return self._rollout.nodes.setdefault(host.get_name(), Node())

    def _add(self, result: t.Any, end: str = "") -> None:
        node, said = self._node(result.host), result.result
        node.is_begun = True
        node.add(time.monotonic() - self._began.pop(result.host.get_name(), time.monotonic()))
        if end:
            node.end, node.trouble = end, f"{result.task.name or result.task_name}: {_rollout.sentence(said)}"
        if said.get("changed"):
            node.change(result.task_name, result.task.resolved_action or result.task.action, said)
        for one in (said, *(said.get("results") or ())):
            told = one.get("ansible_stats") or {}
            if told.get("per_host"):
                node.stats.update(told["data"])
        if time.monotonic() - self._written > PAUSE:
            self._write()

    def _end_batch(self) -> None:
        nodes = [self._rollout.nodes[name] for name in self._batch]
        for name, node in zip(self._batch, nodes):
            if node.trouble and name in self._play._removed_hosts:
                node.end = node.end or _rollout.FAILED  # what ran since is an always section or a handler
        is_stopped = self._is_fatal and any(node.end for node in nodes)
        for node in nodes:
            if is_stopped:
                node.conclude(node.end or (_rollout.STOPPED if node.is_begun else ""))
            else:
                node.conclude(node.end or (_rollout.NO_TASK if self._selects and not node.has_run else ""))

    def _file(self, desired: str) -> Path:
        path = Path(desired).expanduser().absolute()
        if desired.endswith("/") or path.is_dir():
            return path / f"{self._rollout.playbook}-{_now():%Y%m%dT%H%M%S.%fZ}.json"
        return path

    def _write(self) -> None:
        if self._path is None:
            return
        text = json.dumps(self._rollout.data(), indent=2, default=str)
        try:
            self._path.parent.mkdir(exist_ok=True)
            _replace(self._path, f"{text}\n")
        except OSError as error:
            self._display.error(f"report: {self._path} cannot be written: {error.strerror}")
            self._path = None
        self._written = time.monotonic()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _replace(path: Path, text: str) -> None:
    """The file is there whole, old or new. Raises OSError."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
