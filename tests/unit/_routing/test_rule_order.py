# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of rules of one priority: compared, changed without a gap, undone."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Outcome, Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy, rt_names, rule_order
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.live_policy import LivePolicy, Report
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import (
    ADD,
    DELETE,
    Arrange,
    Change,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule_order import Order
from unit import strategies
from unit.fake_netlink import FakeNetlink, hits

OURS, THEIRS = 75, 99
MAIN = [(Rule(family, 32766, table=rt_names.MAIN), 2) for family in (2, 10)]


def parsed(entries: list[dict[str, t.Any]]) -> list[Rule]:
    """Each entry is parsed alone, so that entries may contradict each other."""
    return [(policy.from_options(OURS, [entry], None, rt_names.TABLES).rules or ())[0] for entry in entries]


def rule(**options: t.Any) -> Rule:
    return parsed([{"priority": 700, "table": 1003, **{key.rstrip("_"): value for key, value in options.items()}}])[0]


WIDE, NARROW, MARKED = (
    rule(from_="10.0.0.0/8"),
    rule(from_="10.0.1.0/24", table=None, action="prohibit"),
    rule(fwmark=1),
)
THREE = (WIDE, NARROW, MARKED)
PODS = tuple(rule(from_=f"10.0.1.{host}") for host in range(1, 5))


def hold(kernel: FakeNetlink, *rules: Rule, check: bool = False) -> tuple[Outcome, Report]:
    state = LivePolicy(kernel, policy.Policy(OURS, rules))
    outcome = converge([state], {Plane.IMMEDIATE}, check=check)
    return outcome, outcome.report(state)


def own_rules(kernel: FakeNetlink) -> list[Rule]:
    return [one for one, owner in kernel.rules() if owner == OURS]


def node(*rules: Rule, foreign: t.Iterable[Rule] = ()) -> FakeNetlink:
    return FakeNetlink([*MAIN, *((one, OURS) for one in rules), *((one, THEIRS) for one in foreign)])


@dataclasses.dataclass
class Packets:
    """Every packet, as the set of rules that match it; the first of these decides."""

    rules: t.Sequence[Rule]

    def decisions(self, order: t.Sequence[Rule]) -> list[Rule | None]:
        subsets = ([rule for number, rule in enumerate(self.rules) if bits >> number & 1] for bits in range(1 << len(self.rules)))
        return [next((rule for rule in order if rule in subset), None) for subset in subsets]


# The plan


def test_another_order_is_a_change_and_is_reported_as_what_is_done() -> None:
    kernel = node(*THREE)
    outcome, state = hold(kernel, MARKED, WIDE, NARROW)
    assert outcome.changed and own_rules(kernel) == [MARKED, WIDE, NARROW]
    report = state.rules.report()
    assert (report["added"], report["removed"], report["kept"]) == (
        [str(WIDE), str(NARROW)],
        [str(WIDE), str(NARROW)],
        1,
    )
    (entry,) = outcome.diff()
    assert entry["before"].splitlines() == list(map(str, THREE))
    assert entry["after"].splitlines() == list(map(str, (MARKED, WIDE, NARROW)))
    assert not hold(kernel, MARKED, WIDE, NARROW)[0].changed


def test_check_mode_says_the_same() -> None:
    kernel = node(*THREE)
    planned, run = (hold(kernel, MARKED, WIDE, NARROW, check=check) for check in (True, False))
    assert planned[1].rules.report() == run[1].rules.report() and planned[0].diff() == run[0].diff()


def test_a_rule_that_was_deleted_and_added_again_stands_where_it_was() -> None:
    kernel = node(NARROW, MARKED, WIDE)
    _outcome, state = hold(kernel, *THREE)
    assert own_rules(kernel) == list(THREE) and state.rules.kept == 1


def test_rules_of_different_priorities_have_no_order() -> None:
    first, second = rule(priority=700, from_="10.0.0.0/8"), rule(priority=701, fwmark=1)
    kernel = node(first, second)
    assert not hold(kernel, second, first)[0].changed


def test_rules_of_which_no_packet_meets_two_have_no_order() -> None:
    """A new pod in the middle of the list moves no other rule."""
    kernel = node(*PODS[:1], *PODS[2:])
    _outcome, state = hold(kernel, *PODS)
    assert state.rules.report()["added"] == [str(PODS[1])] and state.rules.removed == []
    assert not hold(kernel, *reversed(PODS))[0].changed


COUNTS = {
    "prefixes of two lengths": ([WIDE, rule(from_="10.0.1.0/24")], True),
    "different fields": ([WIDE, MARKED], True),
    "a negation": ([rule(from_="10.0.1.1"), rule(from_="10.0.1.2", not_=True)], True),
    "ranges": ([rule(dport="1-9", ipproto="tcp"), rule(dport="5-6", ipproto="tcp")], True),
    "masks": ([rule(fwmark="0x1/0x1"), rule(fwmark="0x2/0x2")], True),
    "the VRF's own table": ([rule(iif="eth0"), rule(iif="eth0", table=None, l3mdev=True)], True),
    "addresses": (list(PODS), False),
    "marks of one mask": ([rule(fwmark="0x1/0x3"), rule(fwmark="0x2/0x3")], False),
    "links": ([rule(iif="eth0"), rule(iif="eth1")], False),
    "links to leave by": ([rule(oif="eth0"), rule(oif="eth1")], False),
    "types of service": ([rule(tos=2), rule(tos=4)], False),
    "protocols": ([rule(ipproto="tcp"), rule(ipproto="udp")], False),
    "one": ([WIDE], False),
}


@pytest.mark.parametrize(("rules", "expected"), COUNTS.values(), ids=COUNTS.keys())
def test_order_counts_where_a_packet_may_meet_two(rules: list[Rule], expected: bool) -> None:
    assert rule_order.counts(rules) is expected


CONFLICT = {
    "a prefix in another": (WIDE, NARROW, True),
    "the same verdict": (WIDE, rule(from_="10.0.1.0/24"), False),
    "different fields": (MARKED, NARROW, True),
    "disjoint sources": (rule(from_="10.0.1.1", table=7), rule(from_="10.0.1.2"), False),
    "disjoint marks": (rule(fwmark="1/3", table=7), rule(fwmark="2/2"), False),
    "marks of other bits": (rule(fwmark="1/1", table=7), rule(fwmark="2/2"), True),
    "another link": (rule(iif="eth0", table=7), rule(iif="eth1"), False),
    "a link and any": (rule(iif="eth0", table=7), rule(), True),
    "ports apart": (rule(dport="1-5", table=7), rule(dport="6-9"), False),
    "ports that meet": (rule(dport="1-6", table=7), rule(dport="6-9"), True),
    "a negation": (rule(from_="10.0.1.1", table=7), rule(from_="10.0.1.2", not_=True), True),
    "another priority": (rule(table=7), rule(priority=9), False),
}


@pytest.mark.parametrize(("one", "other", "expected"), CONFLICT.values(), ids=CONFLICT.keys())
def test_two_rules_conflict_where_a_packet_meets_both_and_their_order_decides(one: Rule, other: Rule, expected: bool) -> None:
    assert [rule_order.conflict(*pair) for pair in ((one, other), (other, one))] == [expected, expected]


def test_rules_may_be_mistaken_where_one_names_less_than_another() -> None:
    assert rule_order.may_be_mistaken([WIDE, MARKED]) and not rule_order.may_be_mistaken([WIDE, PODS[0]])
    assert not rule_order.may_be_mistaken([WIDE])


def test_a_rule_that_a_killed_run_left_twice_is_there_once_afterwards() -> None:
    current = [WIDE, NARROW, WIDE]
    added, deleted = rule_order.messages(current, [Order((NARROW,), (MARKED,))])
    rest = [*current, *added]
    for one in deleted:
        rest.remove(one)  # the first equal rule, as the kernel does
    assert rest == [WIDE, MARKED]


# Foreign rules


def test_ours_stands_behind_a_foreign_rule_that_does_the_work_of_one_before_it() -> None:
    kernel = node(NARROW, foreign=[WIDE])
    hold(kernel, WIDE, NARROW)
    assert [one for one, _owner in kernel.rules()][:2] == [WIDE, NARROW]
    assert not hold(kernel, WIDE, NARROW)[0].changed


def test_a_rule_that_cannot_come_before_a_foreign_one_is_refused_where_a_packet_would_tell() -> None:
    kernel = node(foreign=[WIDE])
    with pytest.raises(Refusal, match=r"rules\[0\] cannot be placed before rules\[1\], as listed: it is .* protocol openr;"):
        hold(kernel, NARROW, WIDE)
    assert kernel.messages == 0
    harmless = rule(from_="192.0.2.1", table=7)
    hold(kernel, harmless, WIDE)
    assert own_rules(kernel) == [harmless]


def test_a_rule_that_would_step_behind_a_foreign_one_is_refused_before_anything_is_sent() -> None:
    """The kernel would delete the collection's first rule instead of the second, which has fewer selectors."""
    marked = rule(from_="10.0.0.0/8", fwmark=1)
    kernel = node(marked, WIDE, foreign=[NARROW])
    with pytest.raises(Refusal, match=r"rules\[0\] cannot be placed before rules\[1\]"):
        hold(kernel, marked, NARROW)
    assert kernel.messages == 0 and own_rules(kernel) == [marked, WIDE]
    kernel = node(WIDE, marked, foreign=[NARROW])
    hold(kernel, marked, NARROW)
    assert own_rules(kernel) == [marked]


# Rules that cannot be read


UNREADABLE = WIDE._replace(opaque=b"its message")


def note_loss(kernel: FakeNetlink, lost: list[Change]) -> None:
    """Record a deletion of the unreadable rule."""
    if UNREADABLE not in own_rules(kernel):
        lost.append(Change(DELETE, 0))


def test_a_rule_of_our_tag_that_cannot_be_read_is_neither_deleted_nor_taken_for_another() -> None:
    for current in ([UNREADABLE, WIDE], [WIDE, UNREADABLE], [NARROW, UNREADABLE, WIDE, MARKED]):
        kernel = node(*current)
        lost: list[Change] = []
        kernel.after = functools.partial(note_loss, kernel, lost)
        hold(kernel)
        assert own_rules(kernel) == [UNREADABLE] and not lost
        hold(kernel, MARKED)
        assert own_rules(kernel) == [UNREADABLE, MARKED]


@pytest.mark.parametrize("owner", [OURS, THEIRS])
def test_a_rule_that_cannot_be_read_at_our_key_is_refused_by_name(owner: int) -> None:
    kernel = FakeNetlink([*MAIN, (UNREADABLE, owner)])
    with pytest.raises(
        Refusal, match="from 10.0.0.0/8 lookup 1003 with attributes that this collection cannot read: .* belongs to"
    ):
        hold(kernel, WIDE)
    assert kernel.messages == 0


# Any list to any list

rules = st.lists(strategies.rules, max_size=7)


@st.composite
def at_few_priorities(draw: st.DrawFn) -> tuple[list[Rule], list[Rule], list[Rule]]:
    """Current rules of the collection, foreign rules, and desired rules; they share many rules."""
    pool = list({one.key: one for one in parsed(draw(rules))}.values())
    assume(pool)
    chosen = st.lists(st.sampled_from(pool), unique=True)
    return draw(chosen), draw(chosen), draw(st.permutations(draw(chosen)))


@settings(max_examples=50)
@example((list(THREE), [], list(reversed(THREE))))
@given(at_few_priorities())
def test_any_order_is_brought_about_and_undone_and_no_foreign_rule_moves(
    lists: tuple[list[Rule], list[Rule], list[Rule]],
) -> None:
    current, foreign, desired = lists
    kernel = node(*current, foreign=foreign)
    before, foreign_rules = kernel.rules(), kernel.not_of(OURS)
    plan_before = own_rules(kernel)
    try:
        outcome, _state = hold(kernel, *desired)
    except Refusal:
        assert kernel.rules() == before
        return
    wanted = [one for one in desired if one in own_rules(kernel)]
    assert set(desired) - set(wanted) <= set(foreign) - set(current)
    for place in {one.place for one in own_rules(kernel)}:
        found, listed = ([one for one in some if one.place == place] for some in (own_rules(kernel), wanted))
        assert found == listed or (sorted(found) == sorted(listed) and not rule_order.counts(found))
    assert kernel.not_of(OURS) == foreign_rules
    sent = kernel.messages
    assert not hold(kernel, *desired)[0].changed and kernel.messages == sent
    for _resource, plan in outcome.plans:
        for step in reversed(plan.steps):
            try:
                kernel.perform(step.undo)
            except Failure as failure:
                assert "stands behind" in str(failure)
    assert own_rules(kernel) == plan_before and kernel.not_of(OURS) == foreign_rules


@pytest.mark.thorough
@settings(max_examples=50)
@given(at_few_priorities(), st.data())
def test_a_plan_that_is_killed_half_way_is_completed_or_undone(
    lists: tuple[list[Rule], list[Rule], list[Rule]], data: st.DataObject
) -> None:
    current, _foreign, desired = lists
    kernel = node(*current)
    former = own_rules(kernel)
    state = LivePolicy(kernel, policy.Policy(OURS, tuple(desired)))
    steps = state.plan(state.observe()).steps
    assume(steps)
    operation = steps[0].do
    messages = kernel._arranging(operation)
    kernel.sender(OURS)(messages[: data.draw(st.integers(0, len(messages)))])
    if data.draw(st.booleans()):
        hold(kernel, *desired)
        assert sorted(own_rules(kernel)) == sorted(desired)
        assert not hold(kernel, *desired)[0].changed
    else:
        kernel.perform(steps[0].undo)
        assert own_rules(kernel) == former and kernel.verify(steps[0].undo) == []


@pytest.mark.parametrize("sent", range(4))
@pytest.mark.parametrize("is_undone", [True, False])
def test_a_rule_that_only_stepped_behind_is_there_once_after_a_kill(sent: int, is_undone: bool) -> None:
    """Before this step, the kernel would delete this rule instead of the one that is to be removed."""
    kernel = node(WIDE, rule())
    state = LivePolicy(kernel, policy.Policy(OURS, (WIDE,)))
    (step,) = state.plan(state.observe()).steps
    operation = step.do
    messages = kernel._arranging(operation)
    assert messages == [Change(ADD, WIDE), Change(DELETE, WIDE), Change(DELETE, rule())]
    kernel.sender(OURS)(messages[:sent])
    if is_undone:
        kernel.perform(step.undo)
        assert own_rules(kernel) == [WIDE, rule()] and kernel.verify(step.undo) == []
    else:
        hold(kernel, WIDE)
        assert own_rules(kernel) == [WIDE]


def test_undoing_leaves_away_what_another_program_has_removed_since() -> None:
    kernel = node(*THREE)
    step = Arrange(OURS, (Order((WIDE, NARROW, MARKED), (NARROW, MARKED)),))
    kernel.perform(step)
    kernel.held_rules.remove((MARKED, OURS))
    kernel.perform(step.inverse())
    assert own_rules(kernel) == [WIDE, NARROW] and kernel.verify(step.inverse()) == []


def test_a_rule_that_comes_back_behind_a_foreign_one_is_told() -> None:
    kernel = FakeNetlink([*MAIN, (WIDE, OURS), (NARROW, THEIRS)])
    outcome, _state = hold(kernel)
    ((_resource, plan),) = outcome.plans
    undo = plan.steps[0].undo
    said = f"{WIDE} stands behind {NARROW} (protocol openr) now, but came before it earlier"
    with pytest.raises(Failure) as error:
        kernel.perform(undo)
    assert said in str(error.value) and said in kernel.verify(undo)[0]
    assert own_rules(kernel) == [WIDE]


def test_an_order_that_is_not_back_is_said() -> None:
    kernel = node(*reversed(THREE))
    undo = Arrange(OURS, (Order(THREE, (MARKED,)),)).inverse()
    assert kernel.verify(undo) == [f"{NARROW} is not where it was", f"{MARKED} is not where it was"]
    assert node(MARKED, PODS[0]).verify(Arrange(OURS, (Order((), PODS[:1]),)).inverse()) == [f"{PODS[0]} is still there"]


# No packet takes a wrong path


OVERLAPPING: list[dict[str, t.Any]] = [
    {"from_": "10.0.0.0/8"}, {"to": "10.0.0.0/8"}, {"iif": "eth0"}, {"fwmark": 1}, {"tos": 16}, {"ipproto": "tcp"},
]  # fmt: skip


@settings(max_examples=50)
@given(st.permutations(range(6)), st.permutations(range(6)), st.integers(0, 6), st.integers(0, 6))
def test_a_packet_meets_the_old_order_or_the_new_one(one: list[int], other: list[int], first: int, second: int) -> None:
    """All packets that six rules can distinguish, after each message. No deletion of one of the rules matches another one."""
    pool = [rule(**options, table=1000 + number) for number, options in enumerate(OVERLAPPING)]
    assert not any(one != two and hits(one, two) for one in pool for two in pool)
    current, desired = [pool[number] for number in one[:first]], [pool[number] for number in other[:second]]
    kernel, packets = node(*current), Packets(pool)
    old, new = packets.decisions(current), packets.decisions(desired)
    wrong: list[t.Any] = []

    def look() -> None:
        now = packets.decisions(own_rules(kernel))
        wrong.extend(found for found in zip(now, old, new) if found[0] not in found[1:])

    kernel.after = look
    hold(kernel, *desired)
    assert not wrong


def test_a_rule_that_names_less_goes_right_after_those_before_it_that_the_kernel_would_take() -> None:
    general = rule()
    kernel, made = node(WIDE, general), list[Change]()
    kernel.before = made.append
    hold(kernel, general, WIDE)
    assert made == [Change(ADD, WIDE), Change(DELETE, WIDE)]
    made.clear()
    hold(kernel, WIDE)
    assert made == [Change(DELETE, general)]
    kernel = node(WIDE, MARKED, general)
    kernel.before = made.append
    made.clear()
    hold(kernel, WIDE, MARKED)
    assert own_rules(kernel) == [WIDE, MARKED]
    assert made == [Change(ADD, WIDE), Change(ADD, MARKED), *(Change(DELETE, one) for one in (MARKED, WIDE, general))]


def test_rules_of_one_shape_are_deleted_without_ado() -> None:
    many = [rule(from_=f"10.0.{number // 250}.{number % 250}") for number in range(5000)]
    assert rule_order.messages(many, [Order(tuple(many), ())]) == ((), tuple(reversed(many)))


def test_one_rule_that_names_less_among_thousands_is_deleted_after_them() -> None:
    many = [rule(from_=f"10.0.{number // 250}.{number % 250}") for number in range(5000)]
    everyone = (*many, rule())
    assert rule_order.messages(everyone, [Order(everyone, ())]) == ((), (*reversed(many), rule()))
