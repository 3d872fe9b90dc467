# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The loop: observe, plan, apply, prove. Only this file knows check mode and the two planes.

A resource is one managed thing (a live table, a file, a boot unit). It observes the node without changing it, and plans as
a pure function of its observation. Its backends perform the operations of the plan.

The loop observes all resources before it changes the first, and applies their plans in the order given. If a step fails,
the loop undoes the steps that were done. At the end it observes and plans again: a plan that is not empty is a failure.
After an undo it observes again as well: the node must then read as before.
"""

from __future__ import annotations

import contextlib
import typing as t

from .plan import Checkpoint, Guard, Outcome, Plan, Plane, Plans, Resource, changing, survey


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
        from .transaction import execute  # most runs find nothing to do

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
