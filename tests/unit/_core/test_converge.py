# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop, with resources that fail at every point."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import (
    DatapathError,
    Failure,
    Refusal,
    Uncertain,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import (
    ObjectText,
    Outcome,
    Plan,
    Plane,
    Plans,
    Resource,
    Step,
    whole,
)

BOTH = set(Plane)


@dataclasses.dataclass(frozen=True)
class Put:
    """Make the resource's value at ``key`` be ``value``."""

    key: str
    value: str


class Shelf:
    """A resource of keys and values, and its own backend; a test can have it refuse or lose a write, or be interrupted."""

    OPERATIONS = (Put,)

    def __init__(self, name: str, desired: dict[str, str], plane: Plane = Plane.IMMEDIATE) -> None:
        self.backends = (self,)
        self.name = name
        self.plane = plane
        self.desired = desired
        self.values = dict.fromkeys(desired, "old")
        self.performed: list[Put] = []
        self.says_no: set[Put] = set()
        self.loses: set[Put] = set()
        self.dies_after: set[Put] = set()
        self.interrupts: set[Put] = set()

    def observe(self) -> dict[str, str]:
        return dict(self.values)

    def plan(self, observed: dict[str, str]) -> Plan:
        keys = [key for key in self.desired if observed[key] != self.desired[key]]
        steps = [Step(f"put {key}", Put(key, self.desired[key]), Put(key, observed[key])) for key in keys]
        return Plan(tuple(steps), whole(f"{observed}\n", f"{self.desired}\n"))

    def perform(self, operation: Put) -> None:
        self.performed.append(operation)
        if operation in self.interrupts:
            raise KeyboardInterrupt
        if operation in self.says_no:
            raise Failure(f"no to {operation.key}")
        if operation not in self.loses:
            self.values[operation.key] = operation.value
        if operation in self.dies_after:
            raise Uncertain(f"killed at {operation.key}")


def two_shelves() -> list[Shelf]:
    return [Shelf("first", {"a": "1", "b": "2"}), Shelf("second", {"c": "3", "d": "4"}, Plane.PERMANENT)]


EVERY_STEP = [(0, Put("a", "1")), (0, Put("b", "2")), (1, Put("c", "3")), (1, Put("d", "4"))]


def test_a_run_applies_all_steps_in_order() -> None:
    shelves = two_shelves()
    assert converge(shelves, BOTH).changed
    assert [operation for shelf in shelves for operation in shelf.performed] == [put for _index, put in EVERY_STEP]


def test_an_empty_plan_performs_nothing_and_takes_no_lock() -> None:
    shelves = two_shelves()
    converge(shelves, BOTH)
    for shelf in shelves:
        shelf.performed.clear()

    def forbidden() -> t.ContextManager[None]:
        raise AssertionError("a lock was taken for nothing")

    outcome = converge(shelves, BOTH, exclusive=forbidden)
    assert not outcome.changed and outcome.diff() == []
    assert not any(shelf.performed for shelf in shelves)


def test_check_mode_performs_nothing_and_shows_the_diff_of_the_run() -> None:
    shelves = two_shelves()
    predicted = converge(shelves, BOTH, check=True)
    assert not any(shelf.performed for shelf in shelves)
    assert predicted.diff() == converge(shelves, BOTH).diff() != []


def test_a_plane_that_is_not_asked_for_is_not_even_observed() -> None:
    shelves = two_shelves()
    shelves[0].observe = lambda: pytest.fail("observed")  # type: ignore[method-assign]
    outcome = converge(shelves, {Plane.PERMANENT})
    assert [entry["before_header"] for entry in outcome.diff()] == ["permanent: second"]


def test_a_diff_by_object_has_an_entry_for_each_object_of_a_plane() -> None:
    first, second = two_shelves()
    files = (ObjectText("/etc/a", "", "1\n"), ObjectText("/etc/b", "2\n", ""))
    again = (ObjectText("/etc/b", "", "3\n"),)
    plans = ((second, Plan(objects=files)), (first, Plan(objects=whole("old\n", "new\n"))), (second, Plan(objects=again)))
    entries = Outcome(plans).diff_by_object()
    assert [(entry["after_header"], entry["before"], entry["after"]) for entry in entries] == [
        ("immediate: first", "old\n", "new\n"),
        ("permanent: /etc/a", "", "1\n"),
        ("permanent: /etc/b", "2\n", "3\n"),
    ]
    assert [entry["after"] for entry in Outcome(plans).diff()] == ["new\n", "1\n\n3\n"]


@pytest.mark.parametrize(("index", "put"), EVERY_STEP, ids=str)
def test_a_step_that_fails_undoes_all_before_it_and_is_named(index: int, put: Put) -> None:
    shelves = two_shelves()
    shelves[index].says_no.add(put)
    with pytest.raises(Failure, match=f"step . of 4, put {put.key}, failed: no to {put.key}"):
        converge(shelves, BOTH)
    assert [shelf.values for shelf in shelves] == [{"a": "old", "b": "old"}, {"c": "old", "d": "old"}]


@pytest.mark.parametrize(("index", "put"), EVERY_STEP, ids=str)
def test_a_step_that_failed_but_may_have_been_done_is_undone_too(index: int, put: Put) -> None:
    shelves = two_shelves()
    shelves[index].dies_after.add(put)
    with pytest.raises(Failure, match=f"put {put.key}, failed: killed"):
        converge(shelves, BOTH)
    assert {value for shelf in shelves for value in shelf.values.values()} == {"old"}


@pytest.mark.parametrize(("index", "put"), EVERY_STEP, ids=str)
def test_an_interrupt_undoes_all_before_it(index: int, put: Put) -> None:
    shelves = two_shelves()
    shelves[index].interrupts.add(put)
    with pytest.raises(KeyboardInterrupt):
        converge(shelves, BOTH)
    assert {value for shelf in shelves for value in shelf.values.values()} == {"old"}


@pytest.mark.parametrize(("index", "put"), EVERY_STEP, ids=str)
def test_a_result_that_does_not_read_back_is_a_failure_and_undone(index: int, put: Put) -> None:
    shelves = two_shelves()
    shelves[index].loses.add(put)
    with pytest.raises(Failure, match=f"{shelves[index].name} was applied, but does not read back"):
        converge(shelves, BOTH)
    assert {value for shelf in shelves for value in shelf.values.values()} == {"old"}


@pytest.mark.parametrize(("stuck", "failing"), list(itertools.combinations(range(4), 2)), ids=str)
def test_a_step_that_cannot_be_undone_is_told_and_the_rest_is_undone(stuck: int, failing: int) -> None:
    shelves = two_shelves()
    shelves[EVERY_STEP[failing][0]].says_no.add(EVERY_STEP[failing][1])
    stuck_key = EVERY_STEP[stuck][1].key
    shelves[EVERY_STEP[stuck][0]].says_no.add(Put(stuck_key, "old"))
    with pytest.raises(Failure, match=f"could not all be undone. Still to undo: put {stuck_key}: no to {stuck_key}"):
        converge(shelves, BOTH)
    values = {key: value for shelf in shelves for key, value in shelf.values.items()}
    assert [key for key, value in values.items() if value != "old"] == [stuck_key]


def test_a_run_that_waited_for_another_finds_its_work_done() -> None:
    shelves = two_shelves()

    @contextlib.contextmanager
    def behind_another_run() -> t.Iterator[None]:
        converge(shelves, BOTH)
        for shelf in shelves:
            shelf.performed.clear()
        yield

    assert not converge(shelves, BOTH, exclusive=behind_another_run).changed
    assert not any(shelf.performed for shelf in shelves)


class Warns:
    def __call__(self) -> t.Iterable[str]:
        return ["the road is wet"]


class Refuses:
    def __call__(self) -> t.Iterable[str]:
        raise Refusal("not here")


@pytest.mark.parametrize("check", [False, True])
def test_a_guard_that_refuses_comes_before_any_change_in_check_mode_too(check: bool) -> None:
    shelves = two_shelves()
    with pytest.raises(Refusal, match="not here"):
        converge(shelves, BOTH, guards=[Warns(), Refuses()], check=check)
    assert not any(shelf.performed for shelf in shelves)


def test_warnings_are_reported_also_when_nothing_changes() -> None:
    assert converge([], BOTH, guards=[Warns()]).warnings == ("the road is wet",)


def test_a_plan_that_cannot_be_made_changes_nothing() -> None:
    shelves = two_shelves()

    def no_plan(observed: dict[str, str]) -> Plan:
        raise DatapathError("this cannot be")

    shelves[1].plan = no_plan  # type: ignore[method-assign]
    with pytest.raises(DatapathError, match="this cannot be"):
        converge(shelves, BOTH)
    assert shelves[0].performed == []


# Under a checkpoint


class Watched:
    """A checkpoint that records each call, and the number of operations performed by then."""

    def __init__(self, shelves: list[Shelf]) -> None:
        self._shelves = shelves
        self.foretold: list[str] = []
        self.notes: list[tuple[str, int]] = []
        self.state = "never armed"

    @contextlib.contextmanager
    def armed(self, surveyed: Plans) -> t.Iterator[t.Callable[[Resource, Step], None]]:
        self.foretold = [step.summary for _resource, plan in surveyed for step in plan.steps]
        self.state = "armed"
        try:
            yield lambda _resource, step: self.notes.append((step.summary, sum(len(shelf.performed) for shelf in self._shelves)))
        except BaseException:
            self.state = "disarmed"
            raise


def test_under_a_checkpoint_the_permanent_plane_waits_and_each_step_is_noted_before_it_is_done() -> None:
    shelves = two_shelves()
    checkpoint = Watched(shelves)
    outcome = converge(shelves, BOTH, checkpoint=checkpoint)
    assert (checkpoint.state, checkpoint.foretold) == ("armed", ["put a", "put b"])
    assert checkpoint.notes == [("put a", 0), ("put b", 1)]
    assert [resource.name for resource, _plan in outcome.plans] == ["first"] and outcome.changed
    assert shelves[1].performed == []


def test_with_the_immediate_plane_as_desired_nothing_is_armed_and_the_permanent_plane_written() -> None:
    shelves = two_shelves()
    first, second = Watched(shelves), Watched(shelves)
    planned = converge(shelves, BOTH, check=True, checkpoint=first)
    assert first.state == "never armed"
    outcomes = [converge(shelves, BOTH, checkpoint=checkpoint) for checkpoint in (first, second)]
    assert (first.state, second.state, second.notes) == ("armed", "never armed", [])
    assert [entry for outcome in outcomes for entry in outcome.diff()] == planned.diff()
    assert not converge(shelves, BOTH, checkpoint=second).changed and second.state == "never armed"


@pytest.mark.parametrize("how", ["says_no", "loses", "interrupts"])
def test_a_run_that_rolls_back_itself_leaves_nothing_armed(how: str) -> None:
    shelves = two_shelves()
    getattr(shelves[0], how).add(Put("b", "2"))
    checkpoint = Watched(shelves)
    with pytest.raises((Failure, KeyboardInterrupt)):
        converge(shelves, BOTH, checkpoint=checkpoint)
    assert (checkpoint.state, shelves[0].values) == ("disarmed", {"a": "old", "b": "old"})


def test_a_step_without_undo_waits_as_well() -> None:
    """Such as the removal of a library, which the roll-back may need."""
    shelves = [Shelf("first", {"a": "1"}), Shelf("second", {"b": "2"})]
    plan = shelves[1].plan
    shelves[1].plan = lambda observed: Plan(tuple(step._replace(undo=None) for step in plan(observed).steps))  # type: ignore[method-assign]
    checkpoint = Watched(shelves)
    converge(shelves, BOTH, checkpoint=checkpoint)
    assert (checkpoint.notes, shelves[1].performed) == ([("put a", 0)], [])
    assert converge(shelves, BOTH, checkpoint=Watched(shelves)).changed and shelves[1].values == {"b": "2"}


def test_a_run_goes_on_without_an_optional_step_that_fails() -> None:
    class Lenient(Shelf):
        def plan(self, observed: dict[str, str]) -> Plan:
            plan = super().plan(observed)
            return plan._replace(steps=tuple(step._replace(is_optional=step.do.key == "a") for step in plan.steps))

        def observe(self) -> dict[str, str]:
            return {**self.values, "a": self.desired["a"] if "b" in self.seen else self.values["a"]}

        @property
        def seen(self) -> set[str]:
            return {put.key for put in self.performed}

    shelf = Lenient("first", {"a": "1", "b": "2"})
    shelf.says_no.add(Put("a", "1"))
    assert converge([shelf], BOTH).changed
    assert shelf.values == {"a": "old", "b": "2"}


# The report of an undo that was verified


class Deaf(Shelf):
    """A shelf that accepts an undo and does not perform it: it raises nothing, and keeps the value."""

    def perform(self, operation: Put) -> None:
        if operation.value != "old":
            super().perform(operation)


def test_an_undo_that_does_not_read_back_is_said_with_what_differs() -> None:
    shelves: list[Shelf] = [Deaf("first", {"a": "1"}), Shelf("second", {"b": "2"})]
    shelves[1].says_no.add(Put("b", "2"))
    with pytest.raises(Failure, match=r"were undone, but the node does not read as before. first: before: .*'a': 'old'.*now:"):
        converge(shelves, BOTH)


def test_an_undo_that_cannot_be_looked_at_is_not_called_done() -> None:
    shelves = two_shelves()
    shelves[1].says_no.add(Put("d", "4"))
    observe = shelves[0].observe
    looks = itertools.count()

    def blind() -> dict[str, str]:
        if next(looks) >= 2:  # the survey, the survey under the lock, and then those after the undo
            raise Failure("first cannot be read")
        return observe()

    shelves[0].observe = blind  # type: ignore[method-assign]
    with pytest.raises(Failure, match="The node could not be observed: first cannot be read"):
        converge(shelves, BOTH)


def test_another_order_is_a_difference() -> None:
    class Row(Shelf):
        """Its values stand in the order in which they were put."""

        def plan(self, observed: dict[str, str]) -> Plan:
            plan = super().plan(observed)
            return plan._replace(objects=whole("".join(f"{key}\n" for key in observed)))

        def perform(self, operation: Put) -> None:
            super().perform(operation)
            self.values[operation.key] = self.values.pop(operation.key)

    shelves = [Row("first", {"a": "1", "b": "2"}), Shelf("second", {"c": "3"})]
    shelves[1].says_no.add(Put("c", "3"))
    with pytest.raises(Failure, match="does not read as before. first: the order differs"):
        converge(shelves, BOTH)


def test_what_a_backup_would_keep_is_no_difference() -> None:
    """A backup has packet counters, which may change between the plan and the observation after the undo."""

    class Counting(Shelf):
        packets = 0

        def plan(self, observed: dict[str, str]) -> Plan:
            self.packets += 1
            put = Step("put counted", Put("counted", str(self.packets)), Put("counted", "old"), is_backup=True)
            plan = super().plan(observed)
            return plan._replace(steps=(put, *plan.steps)) if plan.steps else plan

    shelves: list[Shelf] = [Counting("first", {"a": "1"}), Shelf("second", {"b": "2"})]
    shelves[0].values["counted"] = "old"
    shelves[1].says_no.add(Put("b", "2"))
    with pytest.raises(Failure, match=r"All changes were undone\.$"):
        converge(shelves, BOTH)


# The report belongs to the observation from which the applied plan was made


def test_the_report_is_that_of_the_plan_that_was_applied() -> None:
    class Reports(Shelf):
        def plan(self, observed: dict[str, str]) -> Plan:
            return super().plan(observed)._replace(report=dict(observed))

    first, second = Reports("first", {"a": "1"}), Reports("second", {"b": "2"}, Plane.PERMANENT)

    @contextlib.contextmanager
    def behind_another_run() -> t.Iterator[None]:
        first.values["a"] = "5"  # between the first observation and the lock
        yield

    outcome = converge([first, second], {Plane.IMMEDIATE}, exclusive=behind_another_run)
    assert (outcome.report(first), outcome.report(second)) == ({"a": "5"}, None)
    assert converge([first], BOTH).report(first) == {"a": "1"}  # also for an empty plan


class SaysNoAfterwards(Shelf):
    """Performs the operation, and then raises a failure."""

    def perform(self, operation: Put) -> None:
        super().perform(operation)
        if operation.value != "old":
            raise Failure(f"no to {operation.key}")


@pytest.mark.parametrize("before", [0, 1])
def test_a_step_that_was_done_although_it_was_refused_is_undone_too(before: int) -> None:
    shelves: list[Shelf] = [*two_shelves()[:before], SaysNoAfterwards("last", {"e": "5"})]
    with pytest.raises(Failure, match="put e, failed: no to e. All changes were undone."):
        converge(shelves, BOTH)
    assert {value for shelf in shelves for value in shelf.values.values()} == {"old"}


def test_a_record_that_cannot_be_undone_keeps_what_it_records() -> None:
    class Recorded(Shelf):
        """Its last value is a record of the others; the disk is full when it is written."""

        def plan(self, observed: dict[str, str]) -> Plan:
            plan = super().plan(observed)
            return plan._replace(steps=(*plan.steps[:-1], *(step._replace(is_record=True) for step in plan.steps[-1:])))

    shelves = [
        Shelf("zeroth", {"z": "0"}),
        Recorded("first", {"a": "1", "record": "a is 1"}),
        Shelf("last", {"b": "2"}),
    ]
    shelves[1].says_no.add(Put("record", "old"))
    shelves[2].says_no.add(Put("b", "2"))
    with pytest.raises(Failure, match="put record: no to record; put a: it stays done, because its record"):
        converge(shelves, BOTH)
    assert [shelf.values for shelf in shelves] == [{"z": "old"}, {"a": "1", "record": "a is 1"}, {"b": "old"}]


def test_a_backup_stays_if_what_it_keeps_could_not_be_restored() -> None:
    class BackedUp(Shelf):
        """Its first value is a copy of the others."""

        def plan(self, observed: dict[str, str]) -> Plan:
            plan = super().plan(observed)
            return plan._replace(steps=(*(step._replace(is_backup=True) for step in plan.steps[:1]), *plan.steps[1:]))

    shelves = [BackedUp("first", {"backup": "a was old", "a": "1"}), Shelf("last", {"b": "2"})]
    shelves[0].says_no.add(Put("a", "old"))
    shelves[1].says_no.add(Put("b", "2"))
    with pytest.raises(Failure, match="put a: no to a; put backup: it stays done, because it has what could not be restored"):
        converge(shelves, BOTH)
    assert [shelf.values for shelf in shelves] == [{"backup": "a was old", "a": "1"}, {"b": "old"}]


def test_a_module_is_planned_anew_when_its_turn_comes() -> None:
    """Such as routes that the kernel removes with an address, or a unit that needs a package."""
    first, second = Shelf("first", {"a": "1"}), Shelf("second", {"b": "2"}, Plane.PERMANENT)
    outlooks: list[str] = []
    plan = second.plan

    def looking(observed: dict[str, str]) -> Plan:
        outlooks.append(first.values["a"])
        return plan(observed)

    second.plan = looking  # type: ignore[method-assign]
    outcome = converge([first, second], BOTH, stages=[[first], [second]])
    assert [resource.name for resource, _plan in outcome.plans] == ["first", "second"]
    assert outlooks == ["old", "old", "1", "1"], "planned, with the lock, at its turn, in the proof"
    assert not converge([first, second], BOTH, stages=[[first], [second]]).changed


def test_groundwork_is_undone_with_what_is_built_on_it() -> None:
    ground, built = Shelf("ground", {"a": "1"}, Plane.PERMANENT), Shelf("built", {"b": "2"})
    built.says_no.add(Put("b", "2"))
    with pytest.raises(Failure, match="no to b. All changes were undone"):
        converge([ground, built], BOTH, groundwork=[ground], stages=[[ground], [built]])
    assert ground.performed == [Put("a", "1"), Put("a", "old")]


def test_a_checkpoint_is_armed_after_the_groundwork_and_undoes_that_too() -> None:
    """Other files wait for the confirmation, and so does the removal of groundwork, after the objects that need it."""
    ground, built = Shelf("ground", {"a": "1"}, Plane.PERMANENT), Shelf("built", {"b": "2"})
    file, last = Shelf("file", {"c": "3"}, Plane.PERMANENT), Shelf("last", {"d": "4"}, Plane.PERMANENT)
    shelves = [ground, built, file, last]
    stages = [[ground], [built, file], [last]]
    checkpoint = Watched(shelves)
    outcome = converge(shelves, BOTH, groundwork=[ground, last], stages=stages, checkpoint=checkpoint)
    assert checkpoint.foretold == ["put a", "put b"] and checkpoint.notes == [("put a", 1), ("put b", 1)]
    assert [resource.name for resource, _plan in outcome.plans] == ["ground", "built"]
    again = converge(shelves, BOTH, groundwork=[ground, last], stages=stages, checkpoint=checkpoint)
    assert [resource.name for resource, _plan in again.plans] == ["file", "last"]


def test_an_outcome_is_told_for_some_of_its_resources() -> None:
    shelves = two_shelves()
    outcome = converge(shelves, BOTH)
    converge(shelves[:1], BOTH)
    assert [resource.name for resource, _plan in outcome.of(shelves[1:]).plans] == ["second"]
    assert not outcome.of([]).changed
