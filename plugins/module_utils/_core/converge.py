# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop: observe, plan, apply, prove, as one transaction. Only this file knows check mode and the two planes.

A resource is one managed thing (a live table, a file, a boot unit). It observes the node without changing it, and plans as
a pure function of its observation. Its backends perform the operations of the plan.

The loop observes all resources before it changes the first, and applies their plans in the order given. If a step fails,
the loop undoes the steps that were done. At the end it observes and plans again: a plan that is not empty is a failure.
After an undo it observes again as well: the node must then read as before.
"""

from __future__ import annotations

import contextlib
import typing as t

from .errors import DatapathError, Failure, ForeignChange, Uncertain
from .plan import Checkpoint, Guard, Outcome, Plan, Plane, Plans, Resource, Step, changing, perform, survey


def converge(
    resources: t.Sequence[Resource],
    planes: t.Collection[Plane],
    *,
    guards: t.Sequence[Guard] = (),
    groundwork: t.Sequence[Resource] = (),
    stages: t.Sequence[t.Sequence[Resource]] = (),
    check: bool = False,
    exclusive: t.Callable[[], t.ContextManager[t.Any]] = contextlib.nullcontext,
    permit: t.Callable[[Outcome], None] = lambda _outcome: None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Bring the resources of ``planes`` to their desired state, or in ``check`` mode only say how.

    groundwork, stages: see Parts.
    exclusive: gives a lock that keeps other runs on the node out. It is taken only if there is something to do. All
        resources are then observed again, because another run may have changed the node meanwhile.
    permit: called with the steps that are about to be done. An exception that it raises ends the run before the first step.
    checkpoint: armed if the immediate plane changes. The run then applies only the plans that the checkpoint covers, and the
        groundwork before them; the other plans wait for the next run, after this one has been confirmed.
    Raises Refusal from a guard, and Failure if a step failed or the plans are not empty afterwards. After either, the node
    is as it was, or the error says what could not be undone.
    """
    selected = [resource for resource in resources if resource.plane in planes]
    warnings = tuple(warning for guard in guards for warning in guard())
    surveyed = survey(selected)
    if changing(surveyed) and not check:
        with exclusive():
            surveyed = survey(selected)
            permit(Outcome(changing(surveyed), surveyed))
            risky = [resource for resource, plan in surveyed if _is_risky(resource, plan)]
            if checkpoint and risky:
                waiting = _waiting(surveyed, risky, groundwork)
                surveyed = tuple(pair for pair in surveyed if pair[0] not in waiting)
                execute(surveyed, groundwork, stages, checkpoint)
            else:
                execute(surveyed, groundwork, stages)
    return Outcome(changing(surveyed), surveyed, warnings)


def _is_risky(resource: Resource, plan: Plan) -> bool:
    """Return True for a plan that may cut the node off and can be undone.

    A plan that cannot be undone waits for the confirmation.
    """
    return resource.plane is Plane.IMMEDIATE and any(step.undo is not None for step in plan.steps)


def _waiting(surveyed: Plans, risky: t.Sequence[Resource], groundwork: t.Collection[Resource]) -> list[Resource]:
    """Return the resources whose plans wait for the confirmation: all but the risky ones, and the groundwork before these."""
    changed = [resource for resource, _plan in changing(surveyed)]
    before = changed[: changed.index(risky[0])]
    return [resource for resource in changed if resource not in risky and not (resource in groundwork and resource in before)]


def execute(
    surveyed: Plans,
    groundwork: t.Collection[Resource] = (),
    stages: t.Sequence[t.Sequence[Resource]] = (),
    checkpoint: Checkpoint | None = None,
) -> None:
    """Apply and prove the plans. After any exception, an interrupt included, it undoes the steps that were done.

    groundwork, stages: see Parts. checkpoint: armed before the first stage that is not groundwork.
    """
    with contextlib.ExitStack() as armed:
        journal = _Journal()
        try:
            for stage in _staged(surveyed, stages):
                plans = changing(survey([resource for resource, _plan in stage]) if journal.done else stage)
                if checkpoint and any(resource not in groundwork for resource, _plan in plans):
                    journal.note_in(armed.enter_context(checkpoint.armed(surveyed)))
                    checkpoint = None
                journal.apply(plans)
            _prove([resource for resource, _plan in surveyed])
        except DatapathError as error:
            raise Failure(f"{str(error).rstrip('.')}. {_undone(journal, surveyed)}") from error
        except BaseException:
            journal.undo()
            raise


def _staged(surveyed: Plans, stages: t.Sequence[t.Sequence[Resource]]) -> t.Iterator[Plans]:
    """Yield the plans of each stage; all plans are one stage if there are no others."""
    if not stages:
        yield surveyed
    for stage in stages:
        yield tuple((resource, plan) for resource, plan in surveyed if resource in stage)


class _Journal:
    """The steps that were done, or may have been done, so that they can be undone.

    refused: the step that failed, if the node says that nothing of it was done.
    """

    def __init__(self) -> None:
        self.done: list[tuple[Resource, Step]] = []
        self.refused: list[tuple[Resource, Step]] = []
        self._note: t.Callable[[Resource, Step], None] = lambda resource, step: None

    def note_in(self, note: t.Callable[[Resource, Step], None]) -> None:
        """Note the steps that were done, and from now on each step before it is done.

        note: a checkpoint's function, which writes a step where another program finds it. Called before a step is done.
        """
        self._note = note
        for resource, step in self.done:
            note(resource, step)

    def apply(self, plans: t.Iterable[tuple[Resource, Plan]]) -> None:
        steps = [(resource, step) for resource, plan in plans for step in plan.steps]
        for number, (resource, step) in enumerate(steps, 1):
            self._note(resource, step)
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
        """Undo the steps, newest first. Returns what could not be undone, as sentences."""
        troubles: list[str] = []
        unrecorded: list[Resource] = []  # whose record could not be undone
        needed: list[Resource] = []  # whose backup has an object that could not be restored
        for resource, step in reversed(self.done):
            if resource in unrecorded or step.is_backup and resource in needed:
                why = "it has what could not be restored" if step.is_backup else "its record could not be undone"
                troubles.append(f"{step.summary}: it stays done, because {why}")
                continue
            try:
                if step.undo is not None:
                    perform(resource, step.undo)
            except DatapathError as error:
                is_foreign = isinstance(error, ForeignChange)
                troubles.append(f"{step.summary}: {'another program has changed it since: ' if is_foreign else ''}{error}")
                unrecorded += [resource] if step.is_record and not is_foreign else []
                needed.append(resource)
        return troubles

    def doubt(self) -> bool:
        """Treat the refused step as done. Returns False if there is none."""
        self.done, self.refused = self.refused, []
        return bool(self.done)


def _prove(resources: t.Sequence[Resource]) -> None:
    for resource, plan in changing(survey(resources)):
        raise Failure(
            f"{resource.name} was applied, but does not read back as desired: {plan.steps[0].summary} is planned again."
            " Another program may be changing it at the same time."
        )


def _undone(journal: _Journal, surveyed: Plans) -> str:
    """Undo the steps and observe the node. Returns the error's last sentence, which names the node's current state."""
    has_done = bool(journal.done)
    troubles = journal.undo()
    differences = _differences(surveyed)
    if differences and journal.doubt():  # a program that did its work and failed after it
        has_done = True
        troubles += journal.undo()
        differences = _differences(surveyed)
    if troubles:
        return f"The changes could not all be undone. Still to undo: {'; '.join(troubles)}"
    if differences:
        return f"All changes were undone, but the node does not read as before. {'; '.join(differences)}"
    return "All changes were undone." if has_done else "Nothing was changed."


def _differences(surveyed: Plans) -> list[str]:
    """Return how the resources differ from their state at planning time. The same state gives the same plan."""
    try:
        again = survey([resource for resource, _plan in surveyed])
    except DatapathError as error:
        return [f"The node could not be observed: {error}"]
    pairs = [(resource.name, plan, now) for (resource, plan), (_resource, now) in zip(surveyed, again)]
    return [f"{name}: {_difference(plan, now)}" for name, plan, now in pairs if _state(plan) != _state(now)]


def _state(plan: Plan) -> tuple[t.Any, ...]:
    """Return the facts in a plan about the state that it starts from. A step without undo is left out, because it may stay done.

    A backup contains the counters of the rules to be removed, which packets change. So the undo of its step counts, not the step.
    """
    reversible = [step for step in plan.steps if step.undo is not None]
    return plan.before, [(step.summary, step.undo if step.is_backup else step.do) for step in reversible]


def _difference(before: Plan, now: Plan) -> str:
    was, is_now = ([*plan.before.splitlines(), *(step.summary for step in plan.steps)] for plan in (before, now))
    gone, new = ([line for line in lines if line not in other] for lines, other in ((was, is_now), (is_now, was)))
    parts = [f"{word} {', '.join(lines)}" for word, lines in (("before:", gone), ("now:", new)) if lines]
    return "; ".join(parts) or "the order differs"
