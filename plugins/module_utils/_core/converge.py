# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The loop: observe, plan, apply, prove. Check mode, the two planes and roll-back are known here and nowhere else.

A resource is one managed thing (a live table, a file, a boot unit). It observes the node without changing it, plans as
a pure function of what it observed, and performs the operations of its plan. The loop looks at all resources before it
touches the first, applies in the order given, undoes what it did when a later step fails, and looks again when it is
through: a plan that is not empty then is a failure. After an undo it looks again as well: the node must then read as before.
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
)  # a named tuple in the vocabulary of one system edge, as ``files.Write``: data, so that it can be kept


class Step(t.NamedTuple):
    """One act on the node and the act that takes it back.

    summary: what is done, as the middle of a sentence ("write /etc/kubenode/probe-snat.nft").
    do: performed when the plan is applied; None for a step that only matters on the way back.
    undo: performed, in reverse order, when a later step fails, and when this one may have been done although it failed: so it
        must do no harm where nothing was done. None where nothing has to be undone.
    is_record: the step writes down what the other steps of its resource do. Where it can not be undone, these stay done as well:
        a record of another moment would have a later run put back the wrong values.
    is_optional: where it fails, the run goes on without it.
    """

    summary: str
    do: Operation = None
    undo: Operation = None
    is_record: bool = False
    is_optional: bool = False


class Plan(t.NamedTuple):
    """How a resource gets from what was observed to what is wished. Empty, without steps, where it is there already.

    before, after: the resource in its user's own language (nft text, a file's text), for the diff; both empty where there
        is nothing to show.
    report: what the module's result says of this plan, also where it is empty; in the module's own shape.
    """

    steps: tuple[Step, ...] = ()
    before: str = ""
    after: str = ""
    report: t.Any = None


class Backend(t.Protocol):
    """What touches one part of the node: nft, files, systemd. OPERATIONS: the classes of the operations that it performs."""

    @property
    def OPERATIONS(self) -> tuple[type, ...]:
        """Of the class."""

    def perform(self, operation: t.Any) -> None:
        """Does one operation. Raises DatapathError where the node refuses."""


class Resource(t.Protocol):
    """One managed thing. ``name`` is how an operator calls it: "table ip6 azureSLBProbe"."""

    name: str
    plane: Plane

    def observe(self) -> t.Any:
        """Reads the node; changes nothing, loads nothing."""

    def plan(self, observed: t.Any) -> Plan:
        """Pure: the same observation always gives the same plan."""

    @property
    def backends(self) -> t.Sequence[Backend]:
        """Those that perform the operations of its plans. Asked only where there is something to do."""


def perform(resource: Resource, operation: Operation) -> None:
    """By the backend of the resource that has the operation's class among its OPERATIONS. Raises DatapathError."""
    next(backend for backend in resource.backends if type(operation) in backend.OPERATIONS).perform(operation)


class Checkpoint(t.Protocol):
    """Has the node take a run back by itself, should that cut it off, until somebody confirms it."""

    def armed(self, steps: t.Sequence[Step]) -> t.ContextManager[t.Callable[[Step], None]]:
        """Armed before the block, and still after it unless it raises. Gives what notes a step before it is done."""


class Guard(t.Protocol):
    """Looks whether this is the place for the wish."""

    def inspect(self) -> t.Iterable[str]:
        """Returns warnings. Raises Refusal where the wish must not be carried out."""


Plans = tuple[tuple[Resource, Plan], ...]


class Outcome(t.NamedTuple):
    """What a run did, or in check mode would do.

    plans: those that were not empty, in order. surveyed: the plans of all resources, of the observation that was acted upon.
    warnings: of the guards.
    """

    plans: Plans = ()
    surveyed: Plans = ()
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.plans)

    def report(self, resource: Resource) -> t.Any:
        """What the plan of a resource reports; None where its plane was not asked for."""
        return next((plan.report for one, plan in self.surveyed if one is resource), None)

    def operations(self) -> t.Iterator[Operation]:
        """What the plans perform, and what undoes it."""
        return (one for _resource, plan in self.plans for step in plan.steps for one in (step.do, step.undo) if one)

    def diff(self) -> list[dict[str, str]]:
        """Ansible's diff: an entry for each plane that changes, the texts of its resources one below the other."""
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
    """The steps that were done, or may have been, so that they can be undone.

    note: is told of each before it is done; a checkpoint's, which writes it where another program finds it.
    refused: the step that failed, of which the node says that nothing of it was done.
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
        """Undoes what was done, newest first. Returns what could not be undone, as sentences."""
        troubles: list[str] = []
        kept: list[Resource] = []  # whose record could not be undone
        for resource, step in reversed(self.done):
            if resource in kept:
                troubles.append(f"{step.summary}: it is left done, as its record could not be undone")
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
        """Takes the refused step for one that was done. False where there is none."""
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
    """Brings the resources of ``planes`` to what they wish for, or in ``check`` mode only says how.

    exclusive: gives a lock that keeps other runs on the node out. It is taken only when there is something to do, and
        everything is then observed anew, as another run may have done it meanwhile.
    checkpoint: is armed where the immediate plane changes. The run then ends with that: what else there is to do waits for
        the next run, when this one has been confirmed.
    Raises Refusal from a guard, and Failure where a step failed or the result did not hold; both leave the node as it was
    or say what could not be put back.
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
    """Whether it may cut the node off, so that it has to be undone. What can not be undone waits for the confirmation."""
    return resource.plane is Plane.IMMEDIATE and any(step.undo is not None for step in plan.steps)


def _survey(resources: t.Sequence[Resource]) -> Plans:
    """Observes all, then plans all."""
    observed = [(resource, resource.observe()) for resource in resources]
    return tuple((resource, resource.plan(state)) for resource, state in observed)


def _changing(surveyed: Plans) -> Plans:
    """The plans with something to do."""
    return tuple((resource, plan) for resource, plan in surveyed if plan.steps)


def _execute(surveyed: Plans, note: t.Callable[[Step], None] = lambda step: None) -> None:
    """Applies and proves; whatever goes wrong, an interrupt included, what was done is undone."""
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
            f"{resource.name} was applied, but does not read back as wished: {plan.steps[0].summary} is planned again."
            " Another program may be changing it at the same time."
        )


def _undone(journal: _Journal, surveyed: Plans) -> str:
    """Undoes what was done and looks at the node. Returns the error's last sentence: what the node is like now."""
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
    return "What was done before it was undone." if has_done else "Nothing was changed."


def _differences(surveyed: Plans) -> list[str]:
    """How the resources differ from what they were when they were planned: the same state gives the same plan."""
    try:
        again = _survey([resource for resource, _plan in surveyed])
    except DatapathError as error:
        return [f"It could not be looked at: {error}"]
    pairs = [(resource.name, plan, now) for (resource, plan), (_resource, now) in zip(surveyed, again)]
    return [f"{name}: {_difference(plan, now)}" for name, plan, now in pairs if _state(plan) != _state(now)]


def _state(plan: Plan) -> tuple[t.Any, ...]:
    """What a plan tells of the state that it starts from. A step without an undo may have been done for good."""
    return plan.before, [(step.summary, step.do) for step in plan.steps if step.undo is not None]


def _difference(before: Plan, now: Plan) -> str:
    was, is_now = ([*plan.before.splitlines(), *(step.summary for step in plan.steps)] for plan in (before, now))
    gone, new = ([line for line in one if line not in other] for one, other in ((was, is_now), (is_now, was)))
    parts = [f"{word} {', '.join(lines)}" for word, lines in (("before:", gone), ("now:", new)) if lines]
    return "; ".join(parts) or "the order is another"
