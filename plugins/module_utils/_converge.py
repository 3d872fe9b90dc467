# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The loop: observe, plan, apply, prove. Check mode, the two planes and roll-back are known here and nowhere else.

A resource is one managed thing (a live table, a file, a boot unit). It observes the node without changing it, plans as
a pure function of what it observed, and performs the operations of its plan. The loop looks at all resources before it
touches the first, applies in the order given, takes back what it did when a later step fails, and looks again when it is
through: a plan that is not empty then is a failure.
"""

from __future__ import annotations

import contextlib
import enum
import typing as t

from ._model.problem import Failure, Left, Problem, Uncertain


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
        must do no harm where nothing was done. None where nothing has to be taken back.
    """

    summary: str
    do: Operation = None
    undo: Operation = None


class Plan(t.NamedTuple):
    """How a resource gets from what was observed to what is wished. Empty, without steps, where it is there already.

    before, after: the resource in its user's own language (nft text, a file's text), for the diff; both empty where there
        is nothing to show.
    """

    steps: tuple[Step, ...] = ()
    before: str = ""
    after: str = ""


class Resource(t.Protocol):
    """One managed thing. ``name`` is how an operator calls it: "table ip6 azureSLBProbe"."""

    name: str
    plane: Plane

    def observe(self) -> t.Any:
        """Reads the node; changes nothing, loads nothing."""

    def plan(self, observed: t.Any) -> Plan:
        """Pure: the same observation always gives the same plan."""

    def perform(self, operation: Operation) -> None:
        """Does one operation of a plan. Raises Problem where the node says no."""


class Checkpoint(t.Protocol):
    """Has the node take a run back by itself, should that cut it off, until somebody confirms it."""

    def armed(self, steps: t.Sequence[Step]) -> t.ContextManager[t.Callable[[Step], None]]:
        """Armed before the block, and still after it unless it raises. Gives what notes a step before it is done."""


class Guard(t.Protocol):
    """Looks whether this is the place for the wish."""

    def inspect(self) -> t.Iterable[str]:
        """Returns warnings. Raises Refusal where the wish must not be carried out."""


class Outcome(t.NamedTuple):
    """What a run did, or in check mode would do: the plans that were not empty, in order, and what the guards warned of."""

    plans: tuple[tuple[Resource, Plan], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.plans)

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
    """The steps that were done, or may have been, so that they can be taken back.

    note: is told of each before it is done; a checkpoint's, which writes it where another program finds it.
    """

    def __init__(self, note: t.Callable[[Step], None]) -> None:
        self.done: list[tuple[Resource, Step]] = []
        self._note = note

    def apply(self, plans: t.Iterable[tuple[Resource, Plan]]) -> None:
        steps = [(resource, step) for resource, plan in plans for step in plan.steps]
        for number, (resource, step) in enumerate(steps, 1):
            self._note(step)
            self.done.append((resource, step))  # before it is done: an interrupt may come at any moment
            try:
                if step.do is not None:
                    resource.perform(step.do)
            except Problem as problem:
                if not isinstance(problem, Uncertain):
                    self.done.pop()
                raise Failure(f"step {number} of {len(steps)}, {step.summary}, failed: {problem}") from problem

    def take_back(self) -> str:
        """Undoes what was done, newest first. Returns the error's last sentence: what the node is like now."""
        troubles, left = [], []
        for resource, step in reversed(self.done):
            try:
                if step.undo is not None:
                    resource.perform(step.undo)
            except Left as found:
                left.append(str(found))
            except Problem as problem:
                troubles.append(f"{step.summary}: {problem}")
        if left:
            troubles.append(f"what somebody else has changed since: {', '.join(left)}")
        if troubles:
            return f"What was done could not all be undone. Still to undo: {'; '.join(troubles)}"
        return "What was done before it was undone." if self.done else "Nothing was changed."


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
    plans = _survey(selected)
    if plans and not check:
        with exclusive():
            plans = _survey(selected)
            risky = [(resource, plan) for resource, plan in plans if _is_risky(resource, plan)]
            if checkpoint and risky:
                waiting = [resource for resource, plan in plans if not _is_risky(resource, plan)]
                plans = tuple(risky)
                with checkpoint.armed([step for _resource, plan in plans for step in plan.steps]) as note:
                    _execute(plans, [resource for resource in selected if resource not in waiting], note)
            else:
                _execute(plans, selected)
    return Outcome(plans, warnings)


def _is_risky(resource: Resource, plan: Plan) -> bool:
    """Whether it may cut the node off, so that it has to be taken back. What can not be, waits as well."""
    return resource.plane is Plane.IMMEDIATE and any(step.undo is not None for step in plan.steps)


def _survey(resources: t.Sequence[Resource]) -> tuple[tuple[Resource, Plan], ...]:
    """Observes all, then plans all; what is left are the plans with something to do."""
    observed = [(resource, resource.observe()) for resource in resources]
    plans = [(resource, resource.plan(state)) for resource, state in observed]
    return tuple((resource, plan) for resource, plan in plans if plan.steps)


def _execute(
    plans: t.Sequence[tuple[Resource, Plan]],
    resources: t.Sequence[Resource],
    note: t.Callable[[Step], None] = lambda step: None,
) -> None:
    """Applies and proves; whatever goes wrong, an interrupt included, what was done is taken back."""
    journal = _Journal(note)
    try:
        journal.apply(plans)
        _prove(resources)
    except Problem as problem:
        raise Failure(f"{str(problem).rstrip('.')}. {journal.take_back()}") from problem
    except BaseException:
        journal.take_back()
        raise


def _prove(resources: t.Sequence[Resource]) -> None:
    for resource, plan in _survey(resources):
        raise Failure(
            f"{resource.name} was applied, but does not read back as wished: {plan.steps[0].summary} is planned again."
            " Another program may be changing it at the same time."
        )
