# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the modules meet Ansible: reads the arguments, calls the loop, returns the results or the error."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import types
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ._core.converge import converge
from ._core.errors import DatapathError, Failure, MissingLibrary, MissingProgram, Refusal, WrongVariables
from ._core.option import Options, spec
from ._core.parts import Parts, Request, loaded
from ._core.plan import Checkpoint, Outcome, Plane
from ._core.printable import all_printable, printable
from ._platform import process
from ._platform.machine_guards import require_own_root

# What another run holds or has left: lock.PATH and checkpoint.FOLDER, of which a run that changes nothing needs no more.
LEFT_IN_RUN = ("/run/kubenode.lock", "/run/kubenode-checkpoint")


class OpenChange(Checkpoint, t.Protocol):
    """waits: what the controller needs in order to confirm the change; None if nothing was armed."""

    waits: dict[str, t.Any] | None


Naming = t.Callable[[t.Mapping[str, t.Any]], t.ContextManager[None]]  # turns errors into those of the options in the parameters


def start(name: str) -> None:
    """Run the main of a module: its own, or that of all modules which change the node."""
    query = f"{__package__}._queries.{name}"
    if importlib.util.find_spec(query):
        importlib.import_module(query).main()
    else:
        run(name)


def run(name: str) -> None:
    """Run a module that changes the node, from its file of ``_parts``."""
    gc.disable()  # there are no reference cycles, and the collector would scan thousands of rules again and again
    part: types.ModuleType = importlib.import_module(f"._parts.{name}", __package__)
    module = Module(part.OPTIONS, getattr(part, "LONG_LISTS", ()))
    naming: Naming = getattr(part, "naming", lambda _params: contextlib.nullcontext())
    with module.reporting() as result, naming(module.params):
        request = module.request()
        parts: Parts = part.parts(request)
        outcome = module.converge(parts, request.planes(), _under_checkpoint if "checkpoint" in part.OPTIONS else None)
        result.update(module.report(outcome, parts), **parts.report(outcome))
        result["changed"] |= module.settle()


def _under_checkpoint(seconds: int, who: str) -> OpenChange:
    from ._checkpoint.checkpoint_resource import Checkpoint  # most runs set no checkpoint

    return Checkpoint(seconds, who)


class Module(AnsibleModule):
    """A module of this collection. All take check mode.

    long_lists: options whose entries the module checks itself and gets from Request.entries(). AnsibleModule needs 0.1 ms for
        each entry, and repeats all of them in the result.
    """

    def __init__(self, options: Options, long_lists: t.Collection[str] = ()) -> None:
        self._options = options
        self._long_lists = long_lists
        self._checkpoint: OpenChange | None = None
        self._lacking: list[str] = []
        self._data: t.Collection[str] = ()
        self._unchecked: dict[str, t.Any] = {}
        super().__init__(argument_spec=spec(options), supports_check_mode=True)

    def _load_params(self) -> None:
        super()._load_params()
        self._entries = loaded(self.params, self._options, self._long_lists)

    def add_path_info(self, kwargs: dict[str, t.Any]) -> dict[str, t.Any]:
        """Add nothing. Otherwise a result named ``path`` would make Ansible add the file's mode, owner and state."""
        return kwargs

    def _return_formatted(self, kwargs: dict[str, t.Any]) -> None:
        """Print the result or the error. Every text in it is made printable, except data for another program."""
        if self._verbosity >= 3:  # the only verbosity at which Ansible shows the arguments
            kwargs.setdefault("invocation", {"module_args": self.params})
        # Ansible looks for secrets in each part of a result, which takes longer than to print it. There are none.
        is_checked = bool(self.no_log_values)
        self._unchecked = {} if is_checked else {key: kwargs.pop(key) for key in self._data if key in kwargs}
        super()._return_formatted({key: value if key in self._data else all_printable(value) for key, value in kwargs.items()})

    def _record_module_result(self, o: dict[str, t.Any]) -> None:
        super()._record_module_result({**o, **self._unchecked})

    def jsonify(self, data: t.Any) -> t.Any:
        """Encode a result for ansible-core before 2.19, which has no _record_module_result."""
        return super().jsonify({**data, **self._unchecked} if self._unchecked else data)

    def warn(self, warning: str, **more: t.Any) -> None:
        super().warn(printable(warning), **more)

    def request(self) -> Request:
        return Request(self.params, self._entries, self.run, self.warn)

    def run(
        self, argv: t.Sequence[str], stdin: str | None = None, seconds: float | None = None, completes: bool = False
    ) -> process.Completed:
        """Return the runner for the backends. seconds, completes: as for process.run()."""
        return process.run(argv, stdin, os.environ, seconds, completes)

    def converge(
        self, parts: Parts, planes: t.Collection[Plane], under: t.Callable[[int, str], OpenChange] | None = None
    ) -> Outcome:
        """Run the loop in this run's check mode. Raises Refusal if the user is not root.

        under: makes the checkpoint, for a module with the options in CHECKPOINT.
        """
        require_root()
        guards = [require_own_root, *parts.guards] if self.params.get("immediate") else parts.guards
        if under and self.params["checkpoint"]:
            from ._checkpoint import checkpoint

            self._checkpoint = under(checkpoint.seconds(self.params["checkpoint"]), self.name)
        if not self.check_mode and any(map(os.path.lexists, LEFT_IN_RUN)):
            _wait_and_clear()
        outcome = converge(
            parts.resources,
            planes,
            guards=guards,
            groundwork=parts.groundwork,
            stages=parts.stages,
            check=self.check_mode,
            exclusive=_alone,
            permit=_require_libraries,
            checkpoint=self._checkpoint,
        )
        if self.check_mode and outcome.changed:
            self._lacking = _lacking(outcome)
        return outcome

    def settle(self) -> bool:
        """Keep the program on the node, or remove it. Return whether that changes the node. What fails is a warning.

        A change that is not confirmed yet leaves it to the run after the confirmation, as it does what the next boot loads.
        """
        if self._checkpoint and self._checkpoint.waits:
            return False
        from ._platform import placed_program  # modules that change nothing do not need it

        try:
            return placed_program.settle(self.check_mode)
        except Failure as failure:
            self.warn(f"{self.name}: the program of the collection could not be placed or removed: {failure}")
            return False

    @property
    def name(self) -> str:
        """Return the module's name as the operator knows it."""
        return str(self._name.rpartition(".")[2])

    @contextlib.contextmanager
    def reporting(self, data: t.Collection[str] = ()) -> t.Iterator[dict[str, t.Any]]:
        """Collect the module's results, and end the module with them or with the error that was raised.

        data: the results that a program reads again, which must keep each byte.
        """
        self._data = data
        result: dict[str, t.Any] = {}
        try:
            yield result
        except DatapathError as error:
            self.fail_json(msg=self._message(error), **_asked_for(error))
        # Even a disabled collector looks at all modules and classes when Python exits. That takes 10 ms, a quarter of what a run
        # that changes nothing adds to Ansible's own time. Frozen objects are skipped.
        gc.freeze()
        self.exit_json(**result)

    def _message(self, error: DatapathError) -> str:
        """Return the error's text. It begins with the module's name, or with that of a role's variable."""
        return str(error) if isinstance(error, WrongVariables) else f"{self.name}: {error}{_advice(error)}"

    def report(self, outcome: Outcome, parts: Parts) -> dict[str, t.Any]:
        """Return the part of the results that all modules share."""
        for warning in outcome.warnings:
            self.warn(warning)
        diff = {"diff": parts.diff(outcome)} if self._diff else {}
        waits = {"checkpoint_armed": self._checkpoint.waits} if self._checkpoint and self._checkpoint.waits else {}
        # The controller is asked whether it could bring it.
        lacking = {"missing_library": self._lacking[0]} if self._lacking else {}
        return {"changed": outcome.changed, **diff, **waits, **lacking}


def require_root() -> None:
    """Raise Refusal if the user is not root."""
    if os.geteuid() != 0:
        raise Refusal(f"root is needed on the node, and this is user {os.geteuid()}. Nothing was changed. Set become to true")


def _lacking(outcome: Outcome) -> list[str]:
    """Return the libraries that the node lacks for these plans."""
    from ._platform import library

    return library.lacking(outcome.operations())


def _require_libraries(outcome: Outcome) -> None:
    """Raise MissingLibrary, so that the controller carries the library over.

    To find that in the middle of a profile would cost doing and undoing all before it.
    """
    from ._platform import library

    library.require(outcome.operations())


@contextlib.contextmanager
def _alone() -> t.Iterator[None]:
    """Keep other runs out, and refuse if a checkpoint is armed. Not called by a run that finds nothing to do."""
    from ._checkpoint import checkpoint_backend
    from ._platform import lock

    with lock.exclusive() as descriptor, process.sharing(descriptor):
        checkpoint_backend.refuse_change()
        yield


def _wait_and_clear() -> None:
    """Wait for another run, or for a program that a killed run left running; clear what a killed run or a roll-back left.

    A run that then finds nothing to do takes no lock, so what it observes must not be about to change.
    """
    from ._checkpoint import checkpoint_backend
    from ._platform import lock

    with lock.exclusive():
        checkpoint_backend.clear_unless_armed()


def _advice(error: DatapathError) -> str:
    if not isinstance(error, MissingProgram):
        return ""
    return (
        ". Install it, or rebuild the node on the controller: with the playbooks, set trace_on_controller=true or"
        " audit_on_controller=true"
    )


def _asked_for(error: BaseException | None) -> dict[str, str]:
    """Return the result that tells the action plugin which library the node needs."""
    while error is not None:
        if isinstance(error, MissingLibrary):
            return {"missing_library": error.library}
        error = error.__cause__
    return {}
