# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's side of a checkpoint: connects to the node again, over a new connection, and confirms the change.

The module arms the node's watchdog, changes the running kernel and returns ``checkpoint_armed``. After the confirmation the
module is run again: it finds the running kernel as desired, and writes what the next boot loads.
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
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import printable
from ansible_collections.kubenode.datapath.plugins.plugin_utils import _connection_watch, _node_answer
from ansible_collections.kubenode.datapath.plugins.plugin_utils._connection_watch import SILENT, Answer, ConnectionWatch
from ansible_collections.kubenode.datapath.plugins.plugin_utils._node_action import NodeAction

Result = dict[str, t.Any]
Run = t.Callable[[dict[str, t.Any]], Result]  # the module, with these arguments

# Connections through the node's network. Other connections work whatever becomes of that network, and need a proof of their own.
PROVING = ("libssh", "paramiko", "paramiko_ssh", "ssh")
GRACE = 8.0  # seconds after the deadline, in which the node rolls back and can report it
PAUSE = 0.5  # seconds between two tries to connect
TRIES = 3  # runs of the module, if another program keeps undoing the immediate plane

RETRIES = "reconnection_retries"  # an option of ssh
PROOF = "checkpoint_proof"  # an option of kubenode.datapath.nsenter
PROOF_LIMIT = 15.0  # seconds for one try of a proof

RESTARTED = (
    "the node was restarted while the module ran, so that a change of its running kernel is gone. The files for the next boot"
    " were not written, because no checkpoint was confirmed. Run again"
)
UNPROTECTED = (
    "{name} has changed the node without a checkpoint: connection {transport} does not go through the node's network, so"
    " connecting again over it would prove nothing. Set checkpoint_command to a command that succeeds only if the node works"
)


def execute(action: ActionBase, run: Run, arguments: dict[str, t.Any] | None = None, is_immediate: bool = True) -> Result:
    """Run the task's module, under a checkpoint if the task sets one.

    arguments: of the module, if they are not those of the task. is_immediate: False if the running kernel is not changed.
    """
    arguments = dict(action._task.args) if arguments is None else arguments
    try:
        desired = seconds(arguments.get("checkpoint"))
    except Invalid:
        return run(arguments)  # the module reports the error
    is_immediate = is_immediate and boolean(arguments.get("immediate", True), strict=False)
    if not desired or action._task.check_mode or not is_immediate:
        return run(arguments)
    transport = action._connection.transport
    proves = transport.rpartition(".")[2] in PROVING
    if not (proves or _has_proof(action._connection) or arguments.get("checkpoint_command")):
        result = run({**arguments, "checkpoint": 0})
        if result.get("changed") and not result.get("failed"):
            Display().warning(UNPROTECTED.format(name=_name(action), transport=transport))
        return result
    return _Controller(action, run, arguments, desired, proves).execute()


class CheckpointAction(NodeAction):
    """The action of a module that has a checkpoint and needs nothing else from the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        result.update(execute(self, lambda args: _node_answer.run(self, task_vars or {}, args)))
        return result


def merged(results: t.Sequence[Result]) -> Result:
    """Return the task's result: that of the first run, with what the runs after the confirmation have changed, and all
    warnings."""
    result = dict(results[0])
    if len(results) > 1:
        result["changed"] = True
    for key in ("diff", "warnings", "deprecations"):
        entries = [entry for result in results for entry in result.get(key) or ()]
        if key in result or entries:
            result[key] = _by_header(entries) if key == "diff" else _once(entries)
    for later in results[1:]:
        changed = [name for name, value in later.items() if isinstance(value, dict) and value.get("changed")]
        result.update({name: {**result[name], "changed": True} for name in changed})
        lines = [line for line in later.get("summary", ()) if line.partition(" (")[0] in changed]
        if lines:
            result["summary"] = [*result["summary"], *(f"after the confirmation, {line}" for line in lines)]
    return result


def _by_header(entries: t.Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return one entry of a diff for each plane or object: a later run may have changed more of it."""
    headers: dict[str, dict[str, str]] = {}
    for entry in entries:
        former = headers.get(entry["before_header"])
        texts = {key: "\n".join(filter(None, (former[key], entry[key]))) for key in ("before", "after")} if former else {}
        headers[entry["before_header"]] = {**entry, **texts}
    return list(headers.values())


def _once(entries: t.Iterable[t.Any]) -> list[t.Any]:
    results: list[t.Any] = []
    for entry in entries:
        if entry not in results:
            results.append(entry)
    return results


def _name(action: ActionBase) -> str:
    return str(action._task.action.rpartition(".")[2])


def _has_proof(connection: t.Any) -> bool:
    return bool(connection.has_option(PROOF) and connection.get_option(PROOF))


class _Controller:
    """One task on one host. Its times are of the controller's clock, but the node's clock decides."""

    def __init__(self, action: ActionBase, run: Run, arguments: dict[str, t.Any], desired: int, proves: bool) -> None:
        self._action = action
        self._run = run
        self._arguments = arguments
        self._command = str(arguments.get("checkpoint_command") or "")
        self._seconds = desired
        self._proves = proves
        self._is_watched = proves and action._connection.has_option("ssh_args")
        self._trouble = ""  # the error of the last try to connect

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
            f"another program undid the change each of {TRIES} times that it was confirmed; find that program, and stop it."
            " The permanent plane was not written"
        )

    def _confirm(self, armed: t.Mapping[str, t.Any]) -> str:
        """Return why the change was not confirmed; empty if it was."""
        end = time.monotonic() + min(armed["left"], self._seconds)
        is_proved = self._prove(end)
        trouble = self._trouble
        confirmation = ("confirm", armed["id"], *([self._command] if self._command else []))
        answer = self._ask(end, *(confirmation if is_proved else ("status", armed["id"])))
        if answer.state == "rolled back":
            trouble = self._trouble if is_proved else trouble
            met = f" The last try to connect before that: {trouble}" if trouble else ""
            return f"{answer.told}{met}"
        if answer.state == SILENT:
            return (
                f"the controller could not connect to the node again within {self._seconds} s, nor in the {GRACE:.0f} s after"
                f" that to ask whether the node has rolled back: {answer.told}"
            )
        if answer.state == "gone" and answer.told != armed["life"]:
            return "the node was restarted before the change was confirmed, and so has lost the change"
        # Or nothing is armed, because the answer to an earlier confirmation was lost. The next run observes the node anyway.
        return ""

    def _prove(self, end: float) -> bool:
        """Try the connection's proof until it succeeds or the time has come. Return whether it succeeded; True without a proof.

        The last try may succeed because the node has rolled back meanwhile, which the node's answer says then.
        """
        connection = self._action._connection
        while _has_proof(connection) and (trouble := connection.prove(PROOF_LIMIT)):
            self._trouble = trouble
            if time.monotonic() >= end:
                return False
            time.sleep(PAUSE)
        return True

    def _module(self) -> Result:
        """Run the module and return its result. Raises AnsibleConnectionFailure.

        If the connection breaks and the module has changed nothing, it is run again, as often as RETRIES allows.
        """
        for retries_left in range(self._retries(), -1, -1):
            watch = ConnectionWatch(self._action, self._seconds) if self._is_watched else None
            began = time.monotonic()
            try:
                with watch or contextlib.nullcontext(), self._once_and_alive():
                    return self._run(self._arguments)
            except AnsibleConnectionFailure as failure:
                answer = self._ask(watch.latest if watch else time.monotonic() + self._seconds, "status")
                # The module may have armed a checkpoint and have cut the connection; or there never was a connection.
                if answer.state == "rolled back" and answer.age < time.monotonic() - began:
                    return self._failed(f"{answer.told} The connection broke while the module ran: {failure}")
                if watch and watch.is_restarted(answer):
                    return self._failed(RESTARTED)
                if answer.state == SILENT:
                    self._forget_folder()
                    unknown = f"{failure}. Whether the node keeps a change is not known: {answer.told}"
                    raise AnsibleConnectionFailure(printable(unknown)) from failure
                if not retries_left:
                    raise
        raise AssertionError("each try returns or raises, the last one certainly")

    def _retries(self) -> int:
        connection = self._action._connection
        return int(connection.get_option(RETRIES) or 0) if self._is_watched and connection.has_option(RETRIES) else 0

    def _once_and_alive(self) -> t.ContextManager[None]:
        """Set options of ssh while the module runs. A retry by ssh's plugin would not check what the previous try did."""
        connection = self._action._connection
        if not self._is_watched:
            return contextlib.nullcontext()
        changed: dict[str, t.Any] = {RETRIES: 0}
        ssh_options = [str(connection.get_option(name) or "") for name in ("ssh_args", "ssh_common_args", "ssh_extra_args")]
        if "controlpersist" not in " ".join(ssh_options).lower():
            # There is no master process that the watch could tell to close the connection.
            changed["ssh_extra_args"] = f"{ssh_options[-1]} {_connection_watch.keep_alive(self._seconds // 3 + 3)}".strip()
        return _connection_watch.options(connection, **changed)

    def _ask(self, deadline: float, *words: str) -> Answer:
        """Ask over new connections, until the node answers that it has decided, or until GRACE after the deadline."""
        command = _connection_watch.question(*map(shlex.quote, words))
        while True:
            rest = deadline - time.monotonic()
            try:
                completed = self._over_a_new_connection(command, rest)
                answer = _connection_watch.parse(completed["stdout"])
                if completed["rc"] == 0 and answer.state != "armed":
                    return answer
                self._trouble = completed["stderr"].strip() or answer.told
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
            if connection.has_option("ssh_args"):  # of several values, the first counts
                alive = _connection_watch.keep_alive(5 if rest > 3 * 5 else 2)
                changed["ssh_args"] = f"{alive} {connection.get_option('ssh_args') or ''}".strip()
        with _connection_watch.options(connection, **changed):
            return t.cast("t.Mapping[str, t.Any]", self._action._low_level_execute_command(command))

    def _with_what_stays(self, result: Result) -> Result:
        stays = "The change of the running kernel was confirmed and stays; the files for the next boot were not changed."
        return {**result, "changed": True, "msg": f"{str(result.get('msg', '')).rstrip('.')}. {stays}"}

    def _failed(self, sentence: str) -> Result:
        self._forget_folder()
        return {"failed": True, "msg": printable(f"{_name(self._action)}: {sentence}")}

    def _forget_folder(self) -> None:
        """Leave the module's temporary folder on the node: removing it could wait for a node that is unreachable."""
        self._action._connection._shell.tmpdir = None
