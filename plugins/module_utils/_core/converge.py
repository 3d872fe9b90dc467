# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The loop: observe, plan, apply, prove. Only this module knows check mode, the two planes and roll-back.

A resource is one managed thing (a live table, a file, a boot unit). It observes the node without changing it, plans as
a pure function of what it observed. Its backends perform the operations of the plan.

The loop observes all resources before it changes the first, and applies their plans in the order given. If a step fails,
the loop undoes the steps that were done. At the end it observes and plans again: a plan that is not empty is a failure.
After an undo it observes again as well: the node must then read as before.
"""

from __future__ import annotations

import contextlib
import enum
import typing as t

from .errors import DatapathError, Failure, ForeignChange, Uncertain


class Plane(enum.Enum):
    """IMMEDIATE is the running kernel; PERMANENT is what the next boot loads."""

    IMMEDIATE = "immediate"
    PERMANENT = "permanent"


Operation = (
    t.Any
)  # a named tuple of one backend, such as ``files.Put``: plain data, so that it can be written to a journal


class Step(t.NamedTuple):
    """One operation on the node, and the operation that undoes it.

    summary: what is done, as the middle of a sentence ("write /etc/kubenode/probe-snat.nft").
    do: performed when the plan is applied; None for a step that only has an undo.
    undo: performed, in reverse order, when a later step fails, or when this step failed but may have been done. So it must
        do no harm if nothing was done. None if nothing has to be undone.
    is_record: the step records what the other steps of its resource do. If it cannot be undone, those steps stay done as
        well, because a later run would restore wrong values from a record that does not match them.
    is_optional: if the step fails, the run goes on without it.
    """

    summary: str
    do: Operation = None
    undo: Operation = None
    is_record: bool = False
    is_optional: bool = False


class Plan(t.NamedTuple):
    """How a resource gets from its observed to its desired state. Empty (without steps) if the two are equal.

    before, after: the resource in its user's own language (nft text, a file's text), for the diff; both empty if there
        is nothing to show.
    report: what the module's result says about this plan, in the module's own shape; an empty plan may have one, too.
    """

    steps: tuple[Step, ...] = ()
    before: str = ""
    after: str = ""
    report: t.Any = None


class Backend(t.Protocol):
    """What touches one part of the node: nft, files, systemd. OPERATIONS: the classes of the operations that it performs."""

    @property
    def OPERATIONS(self) -> tuple[type, ...]:
        """An attribute of the class."""

    def perform(self, operation: t.Any) -> None:
        """Performs one operation. Raises DatapathError if the node refuses it."""


class Resource(t.Protocol):
    """One managed thing. ``name`` is what an operator calls it: "table ip6 azureSLBProbe"."""

    name: str
    plane: Plane

    def observe(self) -> t.Any:
        """Reads the node. Changes nothing and loads no kernel module."""

    def plan(self, observed: t.Any) -> Plan:
        """Pure: the same observation always gives the same plan."""

    @property
    def backends(self) -> t.Sequence[Backend]:
        """The backends that perform the operations of its plans. Read only if there is something to do."""


def perform(resource: Resource, operation: Operation) -> None:
    """Calls the backend of the resource that has the operation's class in its OPERATIONS. Raises DatapathError."""
    next(backend for backend in resource.backends if type(operation) in backend.OPERATIONS).perform(operation)


class Checkpoint(t.Protocol):
    """Makes the node roll a run back by itself unless the controller confirms it: the run may have cut the node off."""

    def armed(self, steps: t.Sequence[Step]) -> t.ContextManager[t.Callable[[Step], None]]:
        """Arms the checkpoint before the block. It stays armed after the block, unless the block raises.

        Yields a function that notes a step; it is called before the step is done.
        """


class Guard(t.Protocol):
    """Checks whether the desired state may be applied on this node."""

    def inspect(self) -> t.Iterable[str]:
        """Returns warnings. Raises Refusal if the desired state must not be applied."""


Plans = tuple[tuple[Resource, Plan], ...]


class Outcome(t.NamedTuple):
    """What a run did, or in check mode would do.

    plans: the plans that were not empty, in order. surveyed: the plans of all resources, from the observation that the run
        acted upon. warnings: the warnings of the guards.
    """

    plans: Plans = ()
    surveyed: Plans = ()
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.plans)

    def report(self, resource: Resource) -> t.Any:
        """Returns the report of a resource's plan; None if its plane was not selected."""
        return next((plan.report for one, plan in self.surveyed if one is resource), None)

    def operations(self) -> t.Iterator[Operation]:
        """Yields the operations of the plans, and the operations that undo them."""
        return (one for _resource, plan in self.plans for step in plan.steps for one in (step.do, step.undo) if one)

    def diff(self) -> list[dict[str, str]]:
        """Returns Ansible's diff: one entry for each plane that changes, with the texts of its resources below one another."""
        return [entry for plane in Plane for entry in self._diff_of(plane)]

    def _diff_of(self, plane: Plane) -> t.Iterator[dict[str, str]]:
        shown = [(resource, plan) for resource, plan in self.plans if plan.before or plan.after]
        changes = [(resource.name, plan) for resource, plan in shown if resource.plane is plane]
        if changes:
            header = f"{plane.value}: {', '.join(name for name, _plan in changes)}"
            yield {
                "before_header": header,
                "after_header": header,
                "before": "\n".join(plan.before for _name, plan in changes if plan.before),
                "after": "\n".join(plan.after for _name, plan in changes if plan.after),
            }


class _Journal:
    """The steps that were done, or may have been done, so that they can be undone.

    note: called with each step before it is done. A checkpoint's function writes the step where another program finds it.
    refused: the step that failed, if the node says that nothing of it was done.
    """

    def __init__(self, note: t.Callable[[Step], None]) -> None:
        self.done: list[tuple[Resource, Step]] = []
        self.refused: list[tuple[Resource, Step]] = []
        self._note = note

    def apply(self, plans: t.Iterable[tuple[Resource, Plan]]) -> None:
        steps = [(resource, step) for resource, plan in plans for step in plan.steps]
        for number, (resource, step) in enumerate(steps, 1):
            self._note(step)
            self.done.append((resource, step))  # before it is done: an interrupt may come at any moment
            try:
                if step.do is not None:
                    perform(resource, step.do)
            except DatapathError as error:
                refused = None if isinstance(error, Uncertain) else self.done.pop()
                if step.is_optional:
                    continue
                self.refused += [refused] if refused else []
                raise Failure(f"step {number} of {len(steps)}, {step.summary}, failed: {error}") from error

    def undo(self) -> list[str]:
        """Undoes the steps, newest first. Returns what could not be undone, as sentences."""
        troubles: list[str] = []
        kept: list[Resource] = []  # whose record could not be undone
        for resource, step in reversed(self.done):
            if resource in kept:
                troubles.append(f"{step.summary}: it stays done, because its record could not be undone")
                continue
            try:
                if step.undo is not None:
                    perform(resource, step.undo)
            except ForeignChange as found:
                troubles.append(f"{step.summary}: another program has changed it since: {found}")
            except DatapathError as error:
                troubles.append(f"{step.summary}: {error}")
                kept += [resource] if step.is_record else []
        return troubles

    def doubt(self) -> bool:
        """Treats the refused step as done. Returns False if there is none."""
        self.done, self.refused = self.refused, []
        return bool(self.done)


def converge(
    resources: t.Sequence[Resource],
    planes: t.Collection[Plane],
    *,
    guards: t.Sequence[Guard] = (),
    check: bool = False,
    exclusive: t.Callable[[], t.ContextManager[t.Any]] = contextlib.nullcontext,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Brings the resources of ``planes`` to their desired state, or in ``check`` mode only says how.

    exclusive: gives a lock that keeps other runs on the node out. It is taken only if there is something to do. All
        resources are then observed again, because another run may have changed the node meanwhile.
    checkpoint: armed if the immediate plane changes. The run then applies only the plans that the checkpoint covers; the
        other plans wait for the next run, after this one has been confirmed.
    Raises Refusal from a guard, and Failure if a step failed or the plans are not empty afterwards. After either, the node
    is as it was, or the error says what could not be undone.
    """
    selected = [resource for resource in resources if resource.plane in planes]
    warnings = tuple(warning for guard in guards for warning in guard.inspect())
    surveyed = _survey(selected)
    plans = _changing(surveyed)
    if plans and not check:
        with exclusive():
            surveyed = _survey(selected)
            plans = _changing(surveyed)
            risky = tuple((resource, plan) for resource, plan in plans if _is_risky(resource, plan))
            if checkpoint and risky:
                waiting = [resource for resource, plan in plans if not _is_risky(resource, plan)]
                plans, changed = risky, tuple(one for one in surveyed if one[0] not in waiting)
                with checkpoint.armed([step for _resource, plan in plans for step in plan.steps]) as note:
                    _execute(changed, note)
            else:
                _execute(surveyed)
    return Outcome(plans, surveyed, warnings)


def _is_risky(resource: Resource, plan: Plan) -> bool:
    """True for a plan that may cut the node off and can be undone. A plan that cannot be undone waits for the confirmation."""
    return resource.plane is Plane.IMMEDIATE and any(step.undo is not None for step in plan.steps)


def _survey(resources: t.Sequence[Resource]) -> Plans:
    """Observes all resources, then plans all of them."""
    observed = [(resource, resource.observe()) for resource in resources]
    return tuple((resource, resource.plan(state)) for resource, state in observed)


def _changing(surveyed: Plans) -> Plans:
    """The plans that have steps."""
    return tuple((resource, plan) for resource, plan in surveyed if plan.steps)


def _execute(surveyed: Plans, note: t.Callable[[Step], None] = lambda step: None) -> None:
    """Applies and proves the plans. After any exception, an interrupt included, it undoes what was done."""
    journal = _Journal(note)
    try:
        journal.apply(_changing(surveyed))
        _prove([resource for resource, _plan in surveyed])
    except DatapathError as error:
        raise Failure(f"{str(error).rstrip('.')}. {_undone(journal, surveyed)}") from error
    except BaseException:
        journal.undo()
        raise


def _prove(resources: t.Sequence[Resource]) -> None:
    for resource, plan in _changing(_survey(resources)):
        raise Failure(
            f"{resource.name} was applied, but does not read back as desired: {plan.steps[0].summary} is planned again."
            " Another program may be changing it at the same time."
        )


def _undone(journal: _Journal, surveyed: Plans) -> str:
    """Undoes what was done and observes the node. Returns the error's last sentence: the state that the node is in now."""
    has_done = bool(journal.done)
    troubles = journal.undo()
    differences = _differences(surveyed)
    if differences and journal.doubt():  # a program that did its work and failed after it
        has_done = True
        troubles += journal.undo()
        differences = _differences(surveyed)
    if troubles:
        return f"What was done could not all be undone. Still to undo: {'; '.join(troubles)}"
    if differences:
        return f"What was done was undone, but the node does not read as before. {'; '.join(differences)}"
    return "What was done was undone." if has_done else "Nothing was changed."


def _differences(surveyed: Plans) -> list[str]:
    """How the resources differ from their state at planning time. The same state gives the same plan."""
    try:
        again = _survey([resource for resource, _plan in surveyed])
    except DatapathError as error:
        return [f"The node could not be observed: {error}"]
    pairs = [(resource.name, plan, now) for (resource, plan), (_resource, now) in zip(surveyed, again)]
    return [f"{name}: {_difference(plan, now)}" for name, plan, now in pairs if _state(plan) != _state(now)]


def _state(plan: Plan) -> tuple[t.Any, ...]:
    """What a plan tells about the state that it starts from. A step without undo is left out, because it may stay done."""
    return plan.before, [(step.summary, step.do) for step in plan.steps if step.undo is not None]


def _difference(before: Plan, now: Plan) -> str:
    was, is_now = ([*plan.before.splitlines(), *(step.summary for step in plan.steps)] for plan in (before, now))
    gone, new = ([line for line in one if line not in other] for one, other in ((was, is_now), (is_now, was)))
    parts = [f"{word} {', '.join(lines)}" for word, lines in (("before:", gone), ("now:", new)) if lines]
    return "; ".join(parts) or "the order differs"
