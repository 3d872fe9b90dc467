# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: report
type: aggregate
short_description: Print one line for each node at the end of a run, and write a JSON file
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Reports the outcome of each node of a run, also of nodes that failed, became unreachable, or were not reached because the
    rollout ended before. It prints one line for each node, below Ansible's recap.
  - If the variable C(kubenode_report) of a play names a file or a folder on the controller, the report is also written there as
    JSON, with the results of this collection's modules that changed something.
  - An existing file is replaced. In a folder, each run writes its own file, C(PLAYBOOK-TIME.json). If the last folder of the
    path is missing, it is made. The file C(docs/schema/rollout.json) of the collection is its schema.
  - At the end of the run, files of the same name with the suffixes C(.xml) (JUnit), C(.md) and C(.html) are written beside it.
  - The file is written again and again during the run, by rename, so that it can be read at any time; in check mode as well,
    with C(check_mode) set to true. Writes of a file of thousands of nodes are as rare as it takes that they need a hundredth of
    the run's time.
  - If the file cannot be written, an error is printed, and the run goes on.
  - C(state) is V(ok), V(changed), V(failed), V(unreachable), V(no result), V(not reached), V(no task ran), V(running), or
    V(stopped). A stopped node is one that Ansible stopped because another node of its batch failed (C(max_fail_percentage),
    C(any_errors_fatal)).
  - V(no task ran) means that C(--tags) or C(--skip-tags) selected no task of the node, except tasks tagged C(always).
  - A node is V(failed), too, if a module of this collection has given an answer that it cannot give. The answer is refused, and
    C(trouble) names the key, what was found and what was expected. The other nodes are reported as without it.
  - C(trouble) is the error of a node that failed, and C(action) the module of the task that failed.
  - C(seconds) is the time of a node's tasks, without the time in which tasks of other nodes ran.
  - C(stats) are the statistics that plays and roles set with M(ansible.builtin.set_stats) and C(per_host). The key
    C(checks) is that of the callback, for the connections that were checked.
requirements:
  - It must be enabled with C(callbacks_enabled = kubenode.datapath.report) in the section C([defaults]) of C(ansible.cfg), or by
    E(ANSIBLE_CALLBACKS_ENABLED).
"""

import contextlib
import datetime
import json
import os
import tempfile
import threading
import time
import typing as t
from pathlib import Path

import yaml
from ansible import constants as C
from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__
from ansible.template import Templar
from ansible.utils.color import ANSIBLE_COLOR

from ansible_collections.kubenode.datapath.plugins.module_utils._render import fleet_text, rollout
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _report_callback, _rollout, _stdout, _waits
from ansible_collections.kubenode.datapath.plugins.plugin_utils._rollout import Node, Rollout

# The playbooks of the collection set the first; a play may set the second.
VARIABLES = ("__kubenode_report", "kubenode_report")
FORMATS = {".xml": rollout.as_junit, ".md": rollout.as_markdown, ".html": rollout.as_page}  # beside the JSON
INTERVAL = 10  # seconds between two lines about a task that runs
PAUSE = 1.0  # seconds between two writes of the file during the run
RARELY = 99  # times the seconds that a write takes, after which the next one may begin: the file of 4,000 nodes has 70 MB
COLOURS = {
    _rollout.FAILED: C.COLOR_ERROR,
    _rollout.UNREACHABLE: C.COLOR_UNREACHABLE,
    _rollout.STOPPED: C.COLOR_WARN,
    _rollout.NOT_REACHED: C.COLOR_SKIP,
    _rollout.NO_TASK: C.COLOR_SKIP,
    _rollout.CHANGED: C.COLOR_CHANGED,
    _rollout.OK: C.COLOR_OK,
    _rollout.UNKNOWN: C.COLOR_ERROR,
    _rollout.RUNNING: C.COLOR_WARN,
    "": None,  # of a line of a report
}


class Running(t.NamedTuple):
    """A task on a node since a time of time.monotonic()."""

    task: str
    since: float


class Progress:
    """Says every INTERVAL seconds which tasks still run, and what they wait for. print: prints a line."""

    def __init__(self, print: t.Callable[[str], None]) -> None:
        self._print = print
        self._running: dict[str, Running] = {}
        self._said: dict[str, int] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="kubenode-")
        os.environ[_report_callback.FOLDER] = self._folder.name
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, host: str, task: str) -> None:
        self._said[host] = 0
        self._running[host] = Running(task, time.monotonic())

    def end(self, host: str) -> float:
        """Return the seconds that the task ran."""
        now = time.monotonic()
        return now - self._running.pop(host, Running("", now)).since

    def close(self) -> None:
        self._is_over.set()
        os.environ.pop(_report_callback.FOLDER, None)
        self._folder.cleanup()

    def _watch(self) -> None:
        while not self._is_over.wait(1.0):
            for line, hosts in self._due(time.monotonic()).items():
                self._print(f"{', '.join(hosts)}: {line}")

    def _due(self, now: float) -> dict[str, list[str]]:
        """Return the nodes of each line that is to be printed."""
        lines: dict[str, list[str]] = {}
        for host, running in list(self._running.items()):
            times = int((now - running.since) / INTERVAL)
            if times > self._said.get(host, 0):
                self._said[host] = times
                lines.setdefault(_progress(running.task, times * INTERVAL, _waits.noted(host)), []).append(host)
        return lines


def _progress(task: str, seconds: int, text: str) -> str:
    return f"{task}, {seconds} s" + (f": {text}" if text else "")


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kubenode.datapath.report"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        name = Path(playbook._file_name).stem
        self._rollout = Rollout(name, bool(context.CLIARGS.get("check")), _now().isoformat(), versions=_versions())
        self._path: Path | None = None
        self._page: str | None = None  # of the playbook audit; None if its findings are not to be printed
        self._due = 0.0
        self._play: t.Any = None
        self._batch: list[str] = []
        self._is_fatal = False
        self._selects = bool(context.CLIARGS.get("skip_tags")) or "all" not in context.CLIARGS.get("tags", ["all"])
        self._progress = Progress(lambda text: self._print(text, C.COLOR_HIGHLIGHT))

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        """Note the nodes of the play; called before each batch."""
        self._end_batch()
        variables = play.get_variable_manager().get_vars(play=play)
        hosts = variables["ansible_play_hosts_all"]
        for name in hosts:
            self._rollout.nodes.setdefault(name, Node())
        self._play = play
        # If a play's pattern matches nothing, Ansible reports the whole inventory as the batch.
        self._batch = [name for name in variables["ansible_play_batch"] if name in hosts]
        self._is_fatal = bool(play.any_errors_fatal)
        if self._path is None:
            raw = next((variables[name] for name in VARIABLES if variables.get(name)), None)
            desired = Templar(loader=play.get_loader(), variables=variables).template(raw)
            self._path = self._file(str(desired)) if desired else None
        self._write_if_due()

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        node = self._node(host)
        node.is_begun = True
        node.has_run |= not (self._selects and "always" in task.tags)
        self._progress.begin(host.get_name(), str(task.get_name()))

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._add(result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._add(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        self._add(result, "" if ignore_errors else _rollout.FAILED)

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._add(result, _rollout.UNREACHABLE)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """Note that no node remains.

        Also called if max_fail_percentage was exceeded, and Ansible stops the nodes that did not fail.
        """
        self._is_fatal = True

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self._progress.close()
        self._end_batch()
        for name, node in self._rollout.nodes.items():
            if stats.dark.get(name):
                node.conclude(_rollout.UNREACHABLE)
            elif stats.failures.get(name):
                node.conclude(_rollout.FAILED)
        self._rollout.ended = _now().isoformat()
        self._write()
        self._write_others()
        self._print_banner("NODES")
        for state, line in self._rollout.lines():
            self._print(line, COLOURS[state])
        mode = " (check mode: nothing was changed)" if self._rollout.is_check else ""
        place = f"; report: {self._path}" if self._path else ""
        self._print(f"\n{self._rollout.summary()}{mode}{place}")
        self._print_audits()

    def _print_audits(self) -> None:
        """Print what audits found on several nodes, and the path of the page as the last line."""
        if self._page is None:
            return
        self._print_banner("FINDINGS")
        self._print(fleet_text.of_results(self._rollout.audits(), colours=ANSIBLE_COLOR).rstrip("\n"))
        if self._page:
            self._print(f"\n{fleet_text.place(self._page)}")

    def _print(self, text: str, colour: str | None = None) -> None:
        """Print to stdout, or to stderr if stdout may be read by a program."""
        self._display.display(text, color=colour, stderr=not _stdout.is_for_people())

    def _print_diffs(self, nodes: t.Mapping[str, Node]) -> None:
        for names, diff in _rollout.common_diffs(nodes):
            self._print(f"\n{', '.join(names)}:\n{self._get_diff(diff).rstrip()}")

    def _print_banner(self, title: str) -> None:
        if _stdout.is_for_people():
            self._display.banner(title)
        else:
            self._print(f"\n{title}")

    def _node(self, host: t.Any) -> Node:
        return self._rollout.nodes.setdefault(host.get_name(), Node())

    def _add(self, result: t.Any, end: str = "") -> None:
        host, task, said = _parts(result)
        name, node = host.get_name(), self._node(host)
        node.is_begun = True
        node.add(self._progress.end(name))
        action = str(task.resolved_action or task.action)
        if action == _rollout.NODE_REPORT:
            self._page = said.get("page", self._page)
        if end:
            node.end, node.trouble = end, f"{task.name or result.task_name}: {_rollout.sentence(said)}"
            node.action = action
        if _rollout.changes(said, name):
            node.change(result.task_name, action, said)
        for entry in (said, *_rollout.items(said)):
            node.note(action, entry, self._rollout.is_check)
        self._write_if_due()

    def _end_batch(self) -> None:
        nodes = [self._rollout.nodes[name] for name in self._batch]
        for name, node in zip(self._batch, nodes):
            if node.trouble and name in self._play._removed_hosts:
                node.end = node.end or _rollout.FAILED  # only an always section or a handler ran since
        self._print_diffs(dict(zip(self._batch, nodes)))
        is_stopped = self._is_fatal and any(node.end for node in nodes)
        for node in nodes:
            if is_stopped:
                node.conclude(node.end or (_rollout.STOPPED if node.is_begun else ""))
            else:
                node.conclude(node.end or (_rollout.NO_TASK if self._selects and not node.has_run else ""))

    def _write_others(self) -> None:
        """Write the formats beside the JSON file."""
        if self._path is not None:
            for suffix, text in FORMATS.items():
                # A path that does not end in .json may end in a suffix of these, and must not be replaced.
                beside = self._path.with_name(self._path.name.removesuffix(".json") + suffix)
                self._replace(beside, text(self._rollout.data()))

    def _replace(self, path: Path, text: str) -> bool:
        try:
            path.parent.mkdir(exist_ok=True)
            _replace(path, text)
        except OSError as error:
            self._display.error(f"report: {path} cannot be written: {error.strerror}")
            return False
        return True

    def _file(self, desired: str) -> Path:
        path = Path(desired).expanduser().absolute()
        if desired.endswith("/") or path.is_dir():
            return path / f"{self._rollout.playbook}-{_now():%Y%m%dT%H%M%S.%fZ}.json"
        return path

    def _write_if_due(self) -> None:
        if time.monotonic() >= self._due:
            self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        began = time.monotonic()
        text = json.dumps(self._rollout.data(), indent=2, default=str)
        if not self._replace(self._path, f"{text}\n"):
            self._path = None
        ended = time.monotonic()
        self._due = ended + max(PAUSE, RARELY * (ended - began))


def _parts(result: t.Any) -> tuple[t.Any, t.Any, dict[str, t.Any]]:
    """Return the host, the task and the data of a task's result. ansible-core before 2.19 has them under private names."""
    if hasattr(result, "result"):
        return result.host, result.task, result.result
    return result._host, result._task, result._result


def _versions() -> dict[str, str]:
    """Return the versions of the collection and of Ansible."""
    folder = Path(__file__).parents[2]
    for name, keys in (("MANIFEST.json", ("collection_info", "version")), ("galaxy.yml", ("version",))):
        with contextlib.suppress(OSError, KeyError, TypeError, yaml.YAMLError):
            version: t.Any = yaml.safe_load((folder / name).read_text())  # JSON is YAML
            for key in keys:
                version = version[key]
            return {"collection": str(version), "ansible": __version__}
    return {"collection": "", "ansible": __version__}


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _replace(path: Path, text: str) -> None:
    """Replace the file by rename, so that it is complete at any time. Raises OSError."""
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
