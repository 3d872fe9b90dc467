# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The controller's side of a checkpoint: comes back to the node over a new connection, and says that the change may stay.

The module changes the running kernel, arms the node's watchdog and returns ``checkpoint_armed``. When that is confirmed it is
run again, which finds the running kernel as wished and writes what the next boot loads.
"""

from __future__ import annotations

import contextlib
import shlex
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.kubenode.datapath.plugins.module_utils._checkpoint.checkpoint import seconds
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _lookout
from ansible_collections.kubenode.datapath.plugins.plugin_utils._lookout import SILENT, Answer, Lookout

Result = dict[str, t.Any]
Run = t.Callable[[dict[str, t.Any]], Result]  # the module, with these arguments

# Connections through the network of the node. What else there is enters by another door, which a change leaves open.
PROVING = ("libssh", "paramiko", "paramiko_ssh", "ssh")
GRACE = 8.0  # seconds after the deadline in which the node rolls back and can be asked what it did
PAUSE = 0.5  # seconds between two tries to connect
TRIES = 3  # of another program that keeps undoing the immediate plane

RETRIES = "reconnection_retries"  # an option of ssh

RESTARTED = (
    "the node was restarted while the module ran, so that a change of its running kernel is gone. What the next boot loads is"
    " written when a checkpoint is confirmed, and none was. Run again"
)
UNPROTECTED = (
    "{name} has changed the node without a checkpoint: connection {transport} does not go through the node's network, so that"
    " to come back over it would prove nothing. Set checkpoint_command to a command that succeeds only where all is well"
)


def execute(action: ActionBase, run: Run) -> Result:
    """Runs the task's module, under its checkpoint where one is wished."""
    arguments = dict(action._task.args)
    try:
        desired = seconds(arguments.get("checkpoint"))
    except Invalid:
        return run(arguments)  # the module says what is wrong with it
    if not desired or action._task.check_mode or not boolean(arguments.get("immediate", True), strict=False):
        return run(arguments)
    transport = action._connection.transport
    proves = transport.rpartition(".")[2] in PROVING
    if not proves and not arguments.get("checkpoint_command"):
        result = run({**arguments, "checkpoint": 0})
        if result.get("changed") and not result.get("failed"):
            Display().warning(UNPROTECTED.format(name=_name(action), transport=transport))
        return result
    return _Controller(action, run, arguments, desired, proves).execute()


class CheckpointAction(ActionBase):
    """The action of a module that has a checkpoint and needs nothing else of the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        result.update(execute(self, lambda args: self._execute_module(module_args=args, task_vars=task_vars or {})))
        return result


def merged(results: t.Sequence[Result]) -> Result:
    """One task's result: what the first run found and did, and the diffs and warnings of all."""
    result = dict(results[0])
    if len(results) > 1:
        result["changed"] = True
    for key in ("diff", "warnings", "deprecations"):
        entries = [entry for one in results for entry in one.get(key) or ()]
        if key in result or entries:
            result[key] = entries if key == "diff" else _once(entries)
    return result


def _once(entries: t.Iterable[t.Any]) -> list[t.Any]:
    kept: list[t.Any] = []
    for entry in entries:
        if entry not in kept:
            kept.append(entry)
    return kept


def _name(action: ActionBase) -> str:
    return str(action._task.action.rpartition(".")[2])


class _Controller:
    """One task on one host. What it knows of time is its own clock's: it is the node's that decides."""

    def __init__(self, action: ActionBase, run: Run, arguments: dict[str, t.Any], desired: int, proves: bool) -> None:
        self._action = action
        self._run = run
        self._arguments = arguments
        self._command = str(arguments.get("checkpoint_command") or "")
        self._wished = desired
        self._proves = proves
        self._is_watched = proves and action._connection.has_option("ssh_args")
        self._trouble = ""  # what the last try to connect met

    def execute(self) -> Result:
        results: list[Result] = []
        for _try in range(TRIES):
            result = self._module()
            armed = result.pop("checkpoint_armed", None)
            if result.get("failed"):
                return self._with_what_stays(result) if results else result
            results.append(result)
            if armed is None:
                return merged(results)
            sentence = self._confirm(armed)
            if sentence:
                return self._failed(sentence)
        return self._failed(
            f"another program has undone it each of {TRIES} times that it was confirmed; find out which, and stop it."
            " The permanent plane was not written"
        )

    def _confirm(self, armed: t.Mapping[str, t.Any]) -> str:
        """Why it was not confirmed; empty where it was."""
        end = time.monotonic() + armed["left"]
        answer = self._ask(end, "confirm", armed["id"], *([self._command] if self._command else []))
        if answer.state == "rolled back":
            met = f" The last try to connect before that: {self._trouble}" if self._trouble else ""
            return f"{answer.told}{met}"
        if answer.state == SILENT:
            return (
                f"the controller could not come back to the node over a new connection within {self._wished} s, nor in the"
                f" {GRACE:.0f} s after that to be told that it has rolled back: {answer.told}"
            )
        if answer.state == "gone" and answer.told != armed["life"]:
            return "the node was started anew before the change was confirmed, and so has lost it"
        # Or nothing is armed, as the answer to a first confirmation was lost. What the node is then, the next run looks itself.
        return ""

    def _module(self) -> Result:
        """The module's result. Where its connection breaks, and nothing has come of it, it is run again, as ssh's option says.

        Raises AnsibleConnectionFailure.
        """
        for left in range(self._retries(), -1, -1):
            lookout = Lookout(self._action, self._wished) if self._is_watched else None
            began = time.monotonic()
            try:
                with lookout or contextlib.nullcontext(), self._once_and_alive():
                    return self._run(self._arguments)
            except AnsibleConnectionFailure as failure:
                answer = self._ask(lookout.latest if lookout else time.monotonic() + self._wished, "status")
                # The module may have armed the node and be the cause; or there never was a connection.
                if answer.state == "rolled back" and answer.age < time.monotonic() - began:
                    return self._failed(f"{answer.told} The connection broke while the module ran: {failure}")
                if lookout and lookout.is_restarted(answer):
                    return self._failed(RESTARTED)
                if answer.state == SILENT:
                    self._forget_folder()
                    unknown = f"{failure}. What became of a change is not known: {answer.told}"
                    raise AnsibleConnectionFailure(unknown) from failure
                if not left:
                    raise
        raise AssertionError("each try returns or raises, the last one certainly")

    def _retries(self) -> int:
        connection = self._action._connection
        return int(connection.get_option(RETRIES) or 0) if self._is_watched and connection.has_option(RETRIES) else 0

    def _once_and_alive(self) -> t.ContextManager[None]:
        """Options of ssh while the module runs. A retry by ssh itself would not look what came of the try before."""
        connection = self._action._connection
        if not self._is_watched:
            return contextlib.nullcontext()
        changed: dict[str, t.Any] = {RETRIES: 0}
        given = [str(connection.get_option(name) or "") for name in ("ssh_args", "ssh_common_args", "ssh_extra_args")]
        if "controlpersist" not in " ".join(given).lower():
            # There is no master process, which the lookout could tell to hang up.
            changed["ssh_extra_args"] = f"{given[-1]} {_lookout.keep_alive(self._wished // 3 + 3)}".strip()
        return _lookout.options(connection, **changed)

    def _ask(self, deadline: float, *words: str) -> Answer:
        """Asks over a new connection until the node answers, and has decided, or should have done so long ago."""
        command = _lookout.question(*map(shlex.quote, words))
        while True:
            rest = deadline - time.monotonic()
            try:
                done = self._over_a_new_connection(command, rest)
                answer = _lookout.parse(done["stdout"])
                if done["rc"] == 0 and answer.state != "armed":
                    return answer
                self._trouble = done["stderr"].strip() or answer.told
            except AnsibleConnectionFailure as failure:
                self._trouble = str(failure)
            if time.monotonic() > deadline + GRACE:
                return Answer(SILENT, self._trouble)
            time.sleep(PAUSE)

    def _over_a_new_connection(self, command: str, rest: float) -> t.Mapping[str, t.Any]:
        connection = self._action._connection
        changed: dict[str, t.Any] = {}
        if self._proves:
            connection.reset()
            changed[RETRIES] = 0
            if connection.has_option("timeout"):
                patience = int(connection.get_option("timeout") or GRACE)
                changed["timeout"] = max(1, min(patience, int(max(rest, GRACE / 2))))
            if connection.has_option("ssh_args"):  # the first value counts
                alive = _lookout.keep_alive(5 if rest > 3 * 5 else 2)
                changed["ssh_args"] = f"{alive} {connection.get_option('ssh_args') or ''}".strip()
        with _lookout.options(connection, **changed):
            return t.cast("t.Mapping[str, t.Any]", self._action._low_level_execute_command(command))

    def _with_what_stays(self, result: Result) -> Result:
        stays = "The running kernel was changed and confirmed before, and stays so; what the next boot loads was not."
        return {**result, "changed": True, "msg": f"{str(result.get('msg', '')).rstrip('.')}. {stays}"}

    def _failed(self, sentence: str) -> Result:
        self._forget_folder()
        return {"failed": True, "msg": f"{_name(self._action)}: {sentence}"}

    def _forget_folder(self) -> None:
        """Of the module, on the node: to remove it is not worth another wait for a node that may be away."""
        self._action._connection._shell.tmpdir = None
