# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects of the loop: resources and their plans, guards and checkpoints, and the outcome of a run."""

from __future__ import annotations

import abc
import enum
import typing as t


class Plane(enum.Enum):
    """IMMEDIATE is the running kernel; PERMANENT is what the next boot loads."""

    IMMEDIATE = "immediate"
    PERMANENT = "permanent"


Operation = t.Any  # a named tuple of one backend, such as ``files.Put``: plain data, so that it can be written to a journal


class Step(t.NamedTuple):
    """One operation on the node, and the operation that undoes it.

    summary: the operation as the middle of a sentence ("write /etc/kubenode/probe-snat.nft").
    do: performed when the plan is applied; None for a step that only has an undo.
    undo: performed, in reverse order, when a later step fails, or when this step failed but may have been done. So it must
        do no harm if nothing was done. None if nothing has to be undone.
    is_record: the step records what the other steps of its resource do. If it cannot be undone, those steps stay done as
        well, because a later run would restore wrong values from a record that does not match them.
    is_backup: the step keeps a copy of what later steps remove. If one of those cannot be undone, this step stays done as well,
        because it may have the only copy.
    is_optional: if the step fails, the run goes on without it.
    """

    summary: str
    do: Operation = None
    undo: Operation = None
    is_record: bool = False
    is_backup: bool = False
    is_optional: bool = False


class ObjectText(t.NamedTuple):
    """An object in its user's own language (nft text, a file's text), for the diff.

    name: the path of a file, or what an operator calls the object; empty if the resource is this object.
    """

    name: str
    before: str
    after: str


class Plan(t.NamedTuple):
    """How a resource gets from its observed to its desired state. Empty (without steps) if the two are equal.

    objects: the texts of those that change; empty if there is nothing to show.
    report: the part of the module's result about this plan, in the module's own form; an empty plan may have one, too.
    """

    steps: tuple[Step, ...] = ()
    objects: tuple[ObjectText, ...] = ()
    report: t.Any = None

    @property
    def before(self) -> str:
        return _joined(object_text.before for object_text in self.objects)

    @property
    def after(self) -> str:
        return _joined(object_text.after for object_text in self.objects)


class Backend(t.Protocol):
    """Reads and changes one part of the node: nft, files, systemd. OPERATIONS: the classes of the operations that it performs."""

    @property
    def OPERATIONS(self) -> tuple[type, ...]:
        """An attribute of the class."""

    def perform(self, operation: t.Any) -> None:
        """Perform one operation. Raises DatapathError if the node refuses it."""


class UndoBackend(abc.ABC):
    """A backend whose operations a journal can hold: the roll-back program performs them on the node, without Ansible.

    VALUES: the classes of the named tuples that its operations contain.
    """

    OPERATIONS: tuple[type, ...]
    VALUES: tuple[type, ...] = ()

    @classmethod
    def standalone(cls, run: t.Callable[..., t.Any], warn: t.Callable[[str], None]) -> UndoBackend:  # noqa: ARG003
        """Make the backend for a program without Ansible. run: as process.run(). warn: takes a sentence for the operator."""
        return cls()

    @abc.abstractmethod
    def perform(self, operation: t.Any) -> None:
        """Perform an operation as Backend.perform() does. Raises ForeignChange if another program has changed the object."""

    @abc.abstractmethod
    def verify(self, operation: t.Any) -> list[str]:
        """Read the node again. Return the differences from the state that the operation should have set, each as a part of a
        sentence.

        Changes that other programs have made since are not included.
        """


class Resource(t.Protocol):
    """One managed thing. ``name`` is what an operator calls it: "table ip6 azureSLBProbe"."""

    name: str
    plane: Plane

    def observe(self) -> t.Any:
        """Read the node. Changes nothing and loads no kernel module."""

    def plan(self, observed: t.Any) -> Plan:
        """Plan the changes. Pure: the same observation always gives the same plan."""

    @property
    def backends(self) -> t.Sequence[Backend]:
        """Return the backends that perform the operations of its plans. Read only if there is something to do."""


@t.runtime_checkable
class Removable(t.Protocol):
    """A resource whose object may be desired absent by a run that undoes nothing, such as a file that its options do not need."""

    @property
    def is_desired(self) -> bool:
        """Return whether the object is desired."""


def is_desired(resource: Resource) -> bool:
    return not isinstance(resource, Removable) or resource.is_desired


def backend_of(resource: Resource, operation: Operation) -> Backend:
    """Return the backend of the resource that has the operation's class in its OPERATIONS."""
    return next(backend for backend in resource.backends if type(operation) in backend.OPERATIONS)


def perform(resource: Resource, operation: Operation) -> None:
    """Have the resource's backend perform the operation. Raises DatapathError."""
    backend_of(resource, operation).perform(operation)


Plans = tuple[tuple[Resource, Plan], ...]


class Checkpoint(t.Protocol):
    """Makes the node roll a run back by itself unless the controller confirms it: the run may have cut the node off."""

    def armed(self, surveyed: Plans) -> t.ContextManager[t.Callable[[Resource, Step], None]]:
        """Arm the checkpoint before the block. It stays armed after the block, unless the block raises.

        surveyed: the plans of all resources whose steps may be noted. Yields a function that notes a step of a resource; it is
        called before the step is done.
        """


# Checks whether the desired state may be applied on this node. Returns warnings. Raises Refusal if it must not be applied.
Guard = t.Callable[[], t.Iterable[str]]


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
        """Return the report of a resource's plan; None if its plane was not selected."""
        return next((plan.report for planned, plan in self.surveyed if planned is resource), None)

    def of(self, resources: t.Collection[Resource]) -> Outcome:
        """Leave out all other resources."""
        plans, surveyed = (tuple(pair for pair in both if pair[0] in resources) for both in (self.plans, self.surveyed))
        return Outcome(plans, surveyed)

    def operations(self) -> t.Iterator[Operation]:
        """Yield the operations of the plans, and the operations that undo them."""
        return (
            operation for _resource, plan in self.plans for step in plan.steps for operation in (step.do, step.undo) if operation
        )

    def diff(self) -> list[dict[str, str]]:
        """Return Ansible's diff: one entry for each plane that changes, with the texts of its resources below one another."""
        return [entry for plane in Plane for entry in self._diff_of(plane)]

    def _diff_of(self, plane: Plane) -> t.Iterator[dict[str, str]]:
        changing = [(resource, plan) for resource, plan in self.plans if plan.before or plan.after]
        changes = [(resource.name, plan) for resource, plan in changing if resource.plane is plane]
        if changes:
            before, after = (_joined(texts) for texts in zip(*((plan.before, plan.after) for _name, plan in changes)))
            yield _entry(plane, ObjectText(", ".join(name for name, _plan in changes), before, after))

    def diff_by_object(self) -> list[dict[str, str]]:
        """Return Ansible's diff: one entry for each file or other object that changes. Two resources may change one object."""
        entries: dict[tuple[Plane, str], ObjectText] = {}
        for resource, plan in self.plans:
            for object_text in plan.objects:
                name = object_text.name or resource.name
                former = entries.get((resource.plane, name), ObjectText(name, "", ""))
                before, after = (_joined(texts) for texts in zip(former[1:], object_text[1:]))
                entries[resource.plane, name] = ObjectText(name, before, after)
        ordered = sorted(entries.items(), key=lambda entry: [*Plane].index(entry[0][0]))
        return [_entry(plane, object_text) for (plane, _name), object_text in ordered if object_text.before or object_text.after]


def _entry(plane: Plane, object_text: ObjectText) -> dict[str, str]:
    header = f"{plane.value}: {object_text.name}"
    return {"before_header": header, "after_header": header, "before": object_text.before, "after": object_text.after}


def _joined(texts: t.Iterable[str]) -> str:
    return "\n".join(filter(None, texts))


def whole(before: str = "", after: str = "") -> tuple[ObjectText, ...]:
    """Return the texts of a resource that is one object."""
    return (ObjectText("", before, after),)


def objects(plans: t.Iterable[Plan]) -> tuple[ObjectText, ...]:
    """Return the texts of the objects of several plans."""
    return tuple(object_text for plan in plans for object_text in plan.objects)


def survey(resources: t.Sequence[Resource]) -> Plans:
    """Observe all resources, then plan all of them."""
    observed = [(resource, resource.observe()) for resource in resources]
    return tuple((resource, resource.plan(state)) for resource, state in observed)


def changing(surveyed: Plans) -> Plans:
    """Leave out the resources that are as desired: their plans have no step."""
    return tuple((resource, plan) for resource, plan in surveyed if plan.steps)
