# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This plugin util is private to the collection: it may change at any time.

"""The controller's side of a checkpoint: comes back to the node over a new connection, and says that the change may stay.

The module changes the running kernel, arms the node's watchdog and returns ``checkpoint_armed``. When that is confirmed it is
run again, which finds the running kernel as wished and writes what the next boot loads.
"""

from __future__ import annotations

import json
import shlex
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.kubenode.datapath.plugins.module_utils._model.checkpoint import seconds
from ansible_collections.kubenode.datapath.plugins.module_utils._model.problem import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._system.checkpoint import COMMAND

Result = dict[str, t.Any]
Run = t.Callable[[dict[str, t.Any]], Result]  # the module, with these arguments

# Connections through the network of the node. What else there is enters by another door, which a change leaves open.
PROVING = ("libssh", "paramiko", "paramiko_ssh", "ssh")
GRACE = 10.0  # seconds after the deadline in which the node rolls back and can be asked what it did
PAUSE = 0.5  # seconds between two tries to connect
# A node that goes away without a word, as one that is reset, must not be waited for longer than this. What the user has said
# of these in other arguments comes first and counts.
KEEP_ALIVE = "-o ServerAliveInterval=5 -o ServerAliveCountMax=2"
TRIES = 3  # of another program that keeps undoing the immediate plane

# The answer of the program, or what tells one life of the node from another where it is not there any more (kernel.life()).
LIFE = ("cat /proc/sys/kernel/random/boot_id", "readlink /proc/self/ns/net", "cut -d ' ' -f 22 /proc/1/stat")
ASK = f"test -e {{command}} && exec sh {{command}} {{words}}; {'; '.join(LIFE)}"

UNPROTECTED = (
    "{name} has changed the node without a checkpoint: connection {transport} does not go through the node's network, so that"
    " to come back over it would prove nothing. Set checkpoint_command to a command that succeeds only where all is well"
)


class Answer(t.NamedTuple):
    """state: one of the program's, "gone" where it is not there, "silent" where the node could not be asked.

    told: a sentence, or the node's life. age: seconds since what is told.
    """

    state: str
    told: str
    age: float = 0.0


def execute(action: ActionBase, run: Run) -> Result:
    """Runs the task's module, under its checkpoint where one is wished."""
    arguments = dict(action._task.args)
    try:
        wished = seconds(arguments.get("checkpoint"))
    except Invalid:
        return run(arguments)  # the module says what is wrong with it
    if not wished or action._task.check_mode or not boolean(arguments.get("immediate", True), strict=False):
        return run(arguments)
    transport = action._connection.transport
    proves = transport.rpartition(".")[2] in PROVING
    if not proves and not arguments.get("checkpoint_command"):
        result = run({**arguments, "checkpoint": 0})
        if result.get("changed") and not result.get("failed"):
            Display().warning(UNPROTECTED.format(name=_name(action), transport=transport))
        return result
    return _Controller(action, run, arguments, wished, proves).execute()


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


def parse(stdout: str) -> Answer:
    """What the node answered to ASK."""
    lines = stdout.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        return Answer(**json.loads(lines[-1]))
    return Answer("gone", "\n".join(lines[-len(LIFE) :]))


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

    def __init__(self, action: ActionBase, run: Run, arguments: dict[str, t.Any], wished: int, proves: bool) -> None:
        self._action = action
        self._run = run
        self._arguments = arguments
        self._command = str(arguments.get("checkpoint_command") or "")
        self._wished = wished
        self._proves = proves
        self._trouble = ""  # what the last try to connect met

    def execute(self) -> Result:
        results: list[Result] = []
        for _try in range(TRIES):
            started = time.monotonic()
            try:
                result = self._run(self._arguments)
            except AnsibleConnectionFailure as failure:
                return self._without_result(failure, started)
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
        if answer.state == "silent":
            return (
                f"the controller could not come back to the node over a new connection within {self._wished} s, nor in the"
                f" {GRACE:.0f} s after that to be told that it has rolled back: {answer.told}"
            )
        if answer.state == "gone" and answer.told != armed["life"]:
            return "the node was started anew before the change was confirmed, and so has lost it"
        # Or nothing is armed, as the answer to a first confirmation was lost. What the node is then, the next run looks itself.
        return ""

    def _without_result(self, failure: AnsibleConnectionFailure, started: float) -> Result:
        """The connection broke under the module, which may have armed the node and be the cause; or there never was one."""
        answer = self._ask(time.monotonic() + self._wished, "status")
        if answer.state == "rolled back" and answer.age < time.monotonic() - started:
            return self._failed(f"{answer.told} The connection broke while the module ran: {failure}")
        raise failure

    def _ask(self, deadline: float, *words: str) -> Answer:
        """Asks over a new connection until the node answers, and has decided, or should have done so long ago."""
        command = ASK.format(command=COMMAND, words=shlex.join(words))
        while True:
            rest = deadline - time.monotonic()
            try:
                done = self._over_a_new_connection(command, rest)
                answer = parse(done["stdout"])
                if done["rc"] == 0 and answer.state != "armed":
                    return answer
                self._trouble = done["stderr"].strip() or answer.told
            except AnsibleConnectionFailure as failure:
                self._trouble = str(failure)
            if time.monotonic() > deadline + GRACE:
                return Answer("silent", self._trouble)
            time.sleep(PAUSE)

    def _over_a_new_connection(self, command: str, rest: float) -> t.Mapping[str, t.Any]:
        connection = self._action._connection
        options: dict[str, t.Any] = {}
        if self._proves:
            connection.reset()
            if connection.has_option("timeout"):
                patience = int(connection.get_option("timeout") or GRACE)
                options["timeout"] = max(1, min(patience, int(max(rest, GRACE / 2))))
            if connection.has_option("ssh_extra_args"):
                options["ssh_extra_args"] = f"{connection.get_option('ssh_extra_args') or ''} {KEEP_ALIVE}".strip()
        former = {name: connection.get_option(name) for name in options}
        try:
            for name, value in options.items():
                connection.set_option(name, value)
            return t.cast("t.Mapping[str, t.Any]", self._action._low_level_execute_command(command))
        finally:
            for name, value in former.items():
                connection.set_option(name, value)

    def _with_what_stays(self, result: Result) -> Result:
        stays = "The running kernel was changed and confirmed before, and stays so; what the next boot loads was not."
        return {**result, "changed": True, "msg": f"{str(result.get('msg', '')).rstrip('.')}. {stays}"}

    def _failed(self, sentence: str) -> Result:
        self._action._connection._shell.tmpdir = None  # it is not worth another wait for a node that may be away
        return {"failed": True, "msg": f"{_name(self._action)}: {sentence}"}
