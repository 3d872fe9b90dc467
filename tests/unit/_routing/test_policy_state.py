# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection's rules and routes among foreign ones, on a fake kernel."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import converge
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import (
    DatapathError,
    Failure,
    Invalid,
    Refusal,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import Outcome, Plane
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy, rt_names
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.gateways import Gateways, resolved
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.live_policy import LivePolicy, Report
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import (
    ADD,
    CHANGE,
    DELETE,
    Change,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from unit import strategies
from unit.fake_netlink import FakeNetlink

OURS, THEIRS, KERNEL, UNSPEC = 75, 99, 2, 0
Entries = list[dict[str, t.Any]]


def of(rules: Entries | None = None, routes: Entries | None = None) -> policy.Policy:
    return policy.from_options(OURS, rules, routes, rt_names.TABLES)


def rule(**options: t.Any) -> Rule:
    plain = {key.rstrip("_"): value for key, value in options.items()}
    return (of(rules=[{"priority": 700, "table": "main", **plain}]).rules or ())[0]


def route(**options: t.Any) -> t.Any:
    return (of(routes=[{"table": 1003, "to": "default", "dev": "eth0", **options}]).routes or ())[0]


MAIN = (rule(priority=32766), KERNEL)
NEAR = (route(table="main", to="192.0.2.0/24"), KERNEL)
TO_POD, FROM_POD = rule(to="10.0.1.5"), rule(priority=701, from_="10.0.1.5", table=1003)
GATEWAY, DEFAULT = route(to="192.0.2.1"), route(via="192.0.2.1")
DESIRED = of([one.options() for one in (TO_POD, FROM_POD)], [one.options() for one in (DEFAULT, GATEWAY)])


def hold(kernel: FakeNetlink, desired: policy.Policy, is_present: bool = True, check: bool = False) -> tuple[Outcome, Report]:
    state = LivePolicy(kernel, desired, is_present)
    outcome = converge([state], {Plane.IMMEDIATE}, check=check)
    return outcome, outcome.report(state)


def node(*current: tuple[t.Any, int]) -> FakeNetlink:
    """A fake kernel with the kernel's own rule and route, and these."""
    rules = [one for one in current if isinstance(one[0], Rule)]
    return FakeNetlink([MAIN, *rules], [NEAR, *(one for one in current if not isinstance(one[0], Rule))])


def test_routes_come_first_and_go_last() -> None:
    kernel, made = node(), list[Change]()
    kernel.before = made.append
    hold(kernel, DESIRED)
    hold(kernel, of(rules=[], routes=[]))
    wanted = [(ADD, GATEWAY), (ADD, DEFAULT), (ADD, TO_POD), (ADD, FROM_POD)]
    wanted += [(DELETE, TO_POD), (DELETE, FROM_POD), (DELETE, DEFAULT), (DELETE, GATEWAY)]
    assert [(change.verb, change.item) for change in made] == wanted


def test_a_second_run_sends_nothing() -> None:
    kernel = node()
    assert hold(kernel, DESIRED)[0].changed
    sent = kernel.messages
    outcome, state = hold(kernel, DESIRED)
    assert not outcome.changed and kernel.messages == sent
    assert (state.rules.kept, state.routes.kept) == (2, 2)


def test_a_list_that_is_left_out_is_not_looked_at() -> None:
    kernel = node((GATEWAY, OURS))
    kernel.routes = lambda: pytest.fail("read")  # type: ignore[method-assign]
    hold(kernel, DESIRED._replace(routes=None))
    assert kernel.of(OURS) == {TO_POD, FROM_POD, GATEWAY}


def test_what_carries_the_tag_and_is_not_listed_goes() -> None:
    kernel = node((TO_POD, OURS), (rule(priority=9), OURS), (route(to="10.9.0.0/16"), OURS))
    hold(kernel, DESIRED)
    assert kernel.of(OURS) == {TO_POD, FROM_POD, GATEWAY, DEFAULT}


def test_the_report_of_check_mode_is_that_of_the_run() -> None:
    kernel = node((rule(priority=9), OURS), (TO_POD, THEIRS), (GATEWAY, OURS))
    reports = []
    for check in (True, False):
        _outcome, state = hold(kernel, DESIRED, check=check)
        reports.append((state.rules.report(), state.routes.report()))
    assert reports[0] == reports[1]
    assert reports[0] == (
        {
            "added": [str(FROM_POD)],
            "removed": ["ip rule 9: from all lookup main"],
            "kept": 0,
            "satisfied_by": [
                {"object": "ip rule 700: from all to 10.0.1.5 lookup main", "owner": "protocol openr", "protocol": "openr"}
            ],
        },
        {"added": [str(DEFAULT)], "removed": [], "kept": 1, "satisfied_by": []},
    )


def test_anothers_equal_satisfies_and_absent_leaves_it() -> None:
    kernel = node(*((item, THEIRS) for item in (TO_POD, FROM_POD, GATEWAY, DEFAULT)))
    outcome, state = hold(kernel, DESIRED)
    assert not outcome.changed and len(state.rules.satisfied) == len(state.routes.satisfied) == 2
    assert not hold(kernel, DESIRED, is_present=False)[0].changed
    assert not hold(kernel, of(), is_present=False)[0].changed
    assert kernel.messages == 0


@pytest.mark.parametrize("is_ours_onlink", [False, True])
def test_a_route_with_and_one_without_onlink_send_packets_the_same_way(is_ours_onlink: bool) -> None:
    """A route whose gateway is a neighbour by another route needs no onlink."""
    theirs, ours = (route(via="192.0.2.1", onlink=is_onlink) for is_onlink in (not is_ours_onlink, is_ours_onlink))
    kernel = node((theirs, THEIRS))
    outcome, state = hold(kernel, policy.Policy(OURS, None, (ours,)))
    assert not outcome.changed
    assert state.routes.report()["satisfied_by"] == [{"object": str(ours), "owner": "protocol openr", "protocol": "openr"}]
    kernel = node((theirs, OURS))
    assert hold(kernel, policy.Policy(OURS, None, (ours,)))[0].changed
    assert kernel.of(OURS) == {ours}


def test_ours_stays_beside_anothers_equal() -> None:
    kernel = node((TO_POD, OURS), (TO_POD, THEIRS), (FROM_POD, OURS))
    assert not hold(kernel, DESIRED._replace(routes=None))[0].changed


ELSEWHERE = rule(priority=701, from_="10.0.1.5", table=10001)
THERE = route(via="192.0.2.1", table=10001, metric=513, src="192.0.2.7")


def test_a_foreign_rule_whose_table_leads_the_same_way_satisfies_ours() -> None:
    """As systemd-networkd's on EKS: it has numbers of its own."""
    kernel = node((ELSEWHERE, THEIRS), (THERE, THEIRS))
    _outcome, report = hold(kernel, DESIRED)
    assert kernel.of(OURS) == {TO_POD, GATEWAY, DEFAULT}
    assert report.rules.report()["satisfied_by"] == [{"object": str(ELSEWHERE), "owner": "protocol openr", "protocol": "openr"}]
    sent = kernel.messages
    assert not hold(kernel, DESIRED)[0].changed and kernel.messages == sent
    hold(kernel, of(), is_present=False)
    assert kernel.of(OURS) == set() and kernel.of(THEIRS) == {ELSEWHERE, THERE}


def test_which_rule_came_first_makes_no_difference() -> None:
    kernel = node()
    hold(kernel, DESIRED)
    kernel.held_rules.append((ELSEWHERE, THEIRS))
    kernel.held_routes.append((THERE, THEIRS))
    assert not hold(kernel, DESIRED)[0].changed


@pytest.mark.parametrize(
    "there",
    [
        [],
        [(THERE._replace(table=10002), THEIRS)],
        [(THERE._replace(hops=route(via="192.0.2.9").hops), THEIRS)],
        [(THERE._replace(hops=route(via="192.0.2.1", dev="eth1").hops), THEIRS)],
        [(THERE._replace(unread=("encap",)), THEIRS)],
        [(THERE, OURS)],
    ],
    ids=["no route", "another table", "another gateway", "another link", "an encapsulation", "a route of ours that goes"],
)
def test_a_foreign_rule_whose_table_does_not_lead_the_same_way_is_refused(there: list[t.Any]) -> None:
    kernel = node((ELSEWHERE, THEIRS), *there)
    with pytest.raises(Refusal, match=r"^rules\[1\] cannot be added: .* lookup 10001 is there and belongs to protocol openr"):
        hold(kernel, DESIRED)
    assert kernel.messages == 0


def test_an_error_names_the_index_of_a_rule_also_after_one_that_a_foreign_rule_satisfies() -> None:
    entries = [one.options() for one in (FROM_POD, TO_POD)]
    desired = of(entries, [one.options() for one in (DEFAULT, GATEWAY)])
    other = rule(to="10.0.1.5", table=None, action="prohibit")
    with pytest.raises(Refusal, match=r"^rules\[1\] cannot be added"):
        hold(node((ELSEWHERE, THEIRS), (THERE, THEIRS), (other, THEIRS)), desired)


@pytest.mark.parametrize(
    ("unread", "mtu"), [(("nhid",), 0), (("a lock",), 1400), (("expires",), 0), (("advmss", "nhid"), 0)], ids=str
)
def test_a_foreign_route_that_cannot_be_read_in_full_satisfies_if_it_leads_the_same_way(
    unread: tuple[str, ...], mtu: int
) -> None:
    other = DEFAULT._replace(unread=unread, mtu=mtu)
    kernel = node((other, THEIRS))
    _outcome, report = hold(kernel, DESIRED)
    assert kernel.of(OURS) == {TO_POD, FROM_POD, GATEWAY} and kernel.of(THEIRS) == {other}
    assert report.routes.report()["satisfied_by"] == [{"object": str(other), "owner": "protocol openr", "protocol": "openr"}]
    assert ", ".join(unread) in str(other) and not hold(kernel, DESIRED)[0].changed


@pytest.mark.parametrize(
    "other",
    [
        DEFAULT._replace(unread=("encap",)),
        DEFAULT._replace(unread=("nhid",), hops=route(via="192.0.2.9").hops),
        DEFAULT._replace(unread=("nhid",), src=b"\n\0\0\1"),
    ],
)
def test_a_foreign_route_that_cannot_be_read_in_full_and_leads_elsewhere_does_not_satisfy(other: t.Any) -> None:
    kernel = node((other, THEIRS))
    with pytest.raises(Refusal) as error:
        hold(kernel, DESIRED)
    assert str(other) in str(error.value) and kernel.messages == 0


def test_a_rule_of_a_known_cni_is_named_by_the_cni() -> None:
    ours, theirs = (rule(priority=1536, from_="10.0.1.5", table=number) for number in (1003, 2))
    wanted = policy.Policy(OURS, (ours,), None)
    _outcome, state = hold(node((ours, UNSPEC)), wanted)
    assert state.rules.report()["satisfied_by"] == [
        {"object": str(ours), "owner": "amazon-vpc-cni or hostnic, protocol unspec", "protocol": "unspec"}
    ]
    with pytest.raises(
        Refusal, match=r"lookup 2 is there and belongs to amazon-vpc-cni or hostnic, protocol unspec\. Nothing was"
    ):
        hold(node((theirs, UNSPEC)), wanted)


FOREIGN = {
    "another table": (rule(priority=701, from_="10.0.1.5", table=1009), "rules[1]", "another priority"),
    "another action": (rule(to="10.0.1.5", table=None, action="prohibit"), "rules[0]", "another priority"),
    "another gateway": (route(via="192.0.2.9"), "routes[0]", "another metric or table"),
    "another link": (route(to="192.0.2.1", dev="eth1"), "routes[1]", "another metric or table"),
}


@pytest.mark.parametrize(("item", "option", "advice"), FOREIGN.values(), ids=FOREIGN.keys())
def test_anothers_different_one_is_refused_and_absent_works(item: t.Any, option: str, advice: str) -> None:
    kernel = node((item, THEIRS))
    for check in (True, False):
        with pytest.raises(Refusal) as error:
            hold(kernel, DESIRED, check=check)
        assert str(error.value).startswith(f"{option} cannot be added: ")
        assert f"{item} is there and belongs to protocol openr" in str(error.value) and advice in str(error.value)
    assert kernel.messages == 0
    assert not hold(kernel, of(), is_present=False)[0].changed


def test_a_route_of_ours_is_changed_in_one_message() -> None:
    kernel, made = node((DEFAULT, OURS), (GATEWAY, OURS)), list[Change]()
    kernel.before = made.append
    other = route(via="192.0.2.1", mtu=1400)
    hold(kernel, of(routes=[])._replace(routes=(GATEWAY, other)))
    assert made == [Change(CHANGE, other, DEFAULT)]


def test_of_several_of_ours_at_one_key_the_first_is_changed_and_the_others_go() -> None:
    one, other, third = (route(via=f"192.0.2.{host}") for host in (1, 2, 3))
    kernel = node((one, OURS), (other, OURS))
    hold(kernel, policy.Policy(OURS, None, (third,)))
    assert kernel.of(OURS) == {third}


FAR = {"table": 1003, "to": "default", "via": "10.77.0.1"}
HOPS = {"table": 1003, "to": "10.8.0.0/16", "nexthops": [{"via": "192.0.2.1"}, {"via": "10.77.0.1"}]}
SAME = {"table": 1003, "to": "192.0.2.1", "dev": "eth0"}
IMPOSSIBLE = {
    "no such link": (
        of(routes=[SAME, SAME, {**FAR, "dev": "eth7"}]),
        "routes[2].dev must be a link of this node (for ip route default ",
    ),
    "no such neighbour": (
        of(routes=[{**FAR, "dev": "eth0"}]),
        "routes[0].via must be a neighbour on eth0 by a connected route",
    ),
    "a neighbour elsewhere": (
        of(routes=[{**FAR, "via": "192.0.2.1", "dev": "eth1"}]),
        "routes[0].via must be a neighbour on eth1",
    ),
    "no such target": (
        of(rules=[{"priority": 5, "table": 7}, {"priority": 7, "goto": 900}]),
        "rules[1].goto must be the priority of a listed or existing rule",
    ),
    "a neighbour without an address": (
        of(routes=[SAME, FAR]),
        "routes[1].via must be a neighbour on one link, by a connected route of its own table or of main, or given with dev;"
        " no connected route covers it; '10.77.0.1' was given",
    ),
    "one of several is far": (of(routes=[HOPS]), "routes[0].nexthops.via must be a neighbour on one link"),
}


@pytest.mark.parametrize(("desired", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_the_node_cannot_do_is_said_before_anything_is_changed(desired: policy.Policy, message: str) -> None:
    kernel = node()
    with pytest.raises(Invalid) as error:
        hold(kernel, desired)
    assert str(error.value).startswith(message)
    assert kernel.messages == 0


POSSIBLE = {
    "onlink": (route(via="10.77.0.1", onlink=True),),
    "by a route of the same set": (route(via="10.77.0.1"), route(to="10.77.0.1")),
    "link-local": (route(via="fe80::9"),),
    "by a link that leads everywhere": (route(via="10.77.0.1", metric=5), route()),
}


@pytest.mark.parametrize("routes", POSSIBLE.values(), ids=POSSIBLE.keys())
def test_a_gateway_may_be_near_in_several_ways(routes: tuple[t.Any, ...]) -> None:
    kernel = node()
    hold(kernel, policy.Policy(OURS, None, routes))
    assert kernel.of(OURS) == set(routes)


def connected(to: str, dev: str, **options: t.Any) -> t.Any:
    return route(**{"table": "main", "to": to, "dev": dev, **options})


BARE: dict[str, tuple[list[t.Any], Entries, str]] = {
    "main": ([], [{"via": "192.0.2.1"}], "eth0"),
    "the route's own table before main": (
        [connected("192.0.2.0/24", "eth1", table=1003)],
        [{"via": "192.0.2.1"}],
        "eth1",
    ),
    "no other table": ([connected("192.0.2.1", "eth1", table=1004)], [{"via": "192.0.2.1"}], "eth0"),
    "the longest prefix": ([connected("192.0.2.1", "eth1", metric=9)], [{"via": "192.0.2.1"}], "eth1"),
    "the lowest metric": ([connected("192.0.2.0/24", "eth1", metric=9)], [{"via": "192.0.2.1"}], "eth0"),
    "a link that leads everywhere": ([connected("default", "eth1")], [{"via": "10.77.0.1"}], "eth1"),
    "a route of the same set": ([], [{"via": "10.77.0.1"}, {"to": "10.77.0.1", "dev": "eth1"}], "eth1"),
    "no route by a gateway": ([connected("192.0.2.1", "eth1", via="10.1.1.1")], [{"via": "192.0.2.1"}], "eth0"),
    "no route of a wider scope": ([connected("192.0.2.1", "eth1", scope="global")], [{"via": "192.0.2.1"}], "eth0"),
    "IPv6": ([connected("2001:db8::/64", "eth1")], [{"via": "2001:db8::1"}], "eth1"),
}


@pytest.mark.parametrize(("current", "entries", "link"), BARE.values(), ids=BARE.keys())
def test_a_gateway_without_a_link_is_where_the_kernel_would_look_for_it(
    current: list[t.Any], entries: Entries, link: str
) -> None:
    kernel = node(*((one, KERNEL) for one in current))
    desired = of(routes=[{"table": 1003, "to": "default", **entry} for entry in entries])
    assert hold(kernel, desired)[0].changed
    assert [hop.dev for one in kernel.of(OURS) for hop in one.hops if hop.via] == [link]
    assert not hold(kernel, desired)[0].changed


def test_a_gateway_without_a_link_is_refused_where_two_links_may_have_it() -> None:
    kernel = node(*((connected("10.77.0.0/16", dev), KERNEL) for dev in ("eth0", "eth1")))  # appended
    with pytest.raises(Invalid, match="it is a neighbour on eth0 and on eth1; '10.77.0.1' was given"):
        hold(kernel, of(routes=[FAR]))


def test_a_route_of_ours_that_goes_makes_no_neighbour() -> None:
    """The next boot would not find the route that is removed."""
    kernel = node((connected("10.77.0.0/16", "eth1"), OURS))
    for entry in (FAR, {**FAR, "dev": "eth1"}):
        with pytest.raises(Invalid, match=r"routes\[0\].via must be a neighbour"):
            hold(kernel, of(routes=[entry]))


def test_a_route_follows_its_gateway_to_another_link() -> None:
    kernel, made = node((connected("10.77.0.0/16", "eth0"), KERNEL)), list[Change]()
    hold(kernel, of(routes=[FAR]))
    kernel.held_routes[1] = (connected("10.77.0.0/16", "eth1"), KERNEL)
    kernel.before = made.append
    hold(kernel, of(routes=[FAR]))
    assert [(change.verb, change.item.hops[0].dev) for change in made] == [(CHANGE, "eth1")]


def test_absent_takes_a_route_that_was_given_without_its_link_wherever_it_leads() -> None:
    kernel = node((route(via="10.77.0.1", dev="eth1"), OURS), (route(via="10.77.0.1", metric=5), OURS))
    hold(kernel, of(routes=[FAR]), is_present=False)
    assert kernel.of(OURS) == {route(via="10.77.0.1", metric=5)}


def every_change() -> list[Change]:
    kernel, made = node((rule(priority=9), OURS), (route(to="10.9.0.0/16"), OURS)), list[Change]()
    kernel.before = made.append
    hold(kernel, DESIRED)
    return made


@pytest.mark.parametrize("failing", every_change(), ids=lambda change: f"{change.verb} {change.item}")
@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_messages_that_were_sent_before_a_failure_are_undone(failing: Change, how: str) -> None:
    kernel = node((rule(priority=9), OURS), (route(to="10.9.0.0/16"), OURS))
    before = (set(kernel.held_rules), set(kernel.held_routes))
    if how == "refused":
        kernel.refuses.add(failing)
        with pytest.raises(Failure) as error:
            hold(kernel, DESIRED)
        assert str(failing.item) in str(error.value)
    else:

        def interrupt(change: Change) -> None:
            if change == failing:
                raise KeyboardInterrupt

        kernel.before = interrupt
        with pytest.raises(KeyboardInterrupt):
            hold(kernel, DESIRED)
    assert (set(kernel.held_rules), set(kernel.held_routes)) == before


def test_absent_with_lists_takes_those_alone() -> None:
    kernel = node()
    hold(kernel, DESIRED)
    hold(kernel, policy.Policy(OURS, (TO_POD,)), is_present=False)
    assert kernel.of(OURS) == {FROM_POD, GATEWAY, DEFAULT}
    hold(kernel, of(), is_present=False)
    assert kernel.of(OURS) == set()


# Any current and any desired state


def parsed(entries: Entries, kind: str) -> list[t.Any]:
    """Each entry is parsed alone, so that entries may contradict each other, as those of several programs do."""
    return [getattr(of(**{kind: [entry]}), kind)[0] for entry in entries]


@st.composite
def kernels(draw: st.DrawFn, owners: tuple[int, ...] = (OURS, THEIRS, KERNEL)) -> FakeNetlink:
    """A possible state of the kernel: rules are unique by protocol, routes by key."""
    rules = {
        (one, owner): one
        for one in parsed(draw(st.lists(strategies.rules, max_size=5)), "rules")
        for owner in [draw(st.sampled_from(owners))]
    }
    routes = {
        one.key: (one, draw(st.sampled_from(owners))) for one in parsed(draw(st.lists(strategies.routes, max_size=5)), "routes")
    }
    ipv6_main = (rule(priority=32766, family="ipv6"), KERNEL)
    return FakeNetlink([MAIN, ipv6_main, *((one, owner) for (_identity, owner), one in rules.items())], [NEAR, *routes.values()])


@st.composite
def desired_states(draw: st.DrawFn) -> policy.Policy:
    try:
        return of(
            draw(st.none() | st.lists(strategies.rules, max_size=5)),
            draw(st.none() | st.lists(strategies.desired_routes, max_size=5)),
        )
    except Invalid:
        assume(False)
        raise


@given(kernels(), desired_states())
def test_any_desired_state_holds_and_foreign_objects_stay(kernel: FakeNetlink, desired: policy.Policy) -> None:
    foreign, ours, before = kernel.not_of(OURS), kernel.of(OURS), (kernel.rules(), kernel.routes())
    try:
        outcome, _state = hold(kernel, desired)
    except DatapathError:
        assert (kernel.rules(), kernel.routes()) == before
        return
    assert kernel.not_of(OURS) == foreign
    theirs = {item for item, _owner in foreign}
    desired = resolved(desired, Gateways([NEAR[0]]))  # all gateways are neighbours
    for items, is_rule in ((desired.rules, True), (desired.routes, False)):
        current = {item for item in kernel.of(OURS) if isinstance(item, Rule) == is_rule}
        was = {item for item in ours if isinstance(item, Rule) == is_rule}
        due = was if items is None else set(items)
        assert current <= due <= current | theirs
    sent = kernel.messages
    assert outcome.changed == bool(sent)
    assert not hold(kernel, desired)[0].changed and kernel.messages == sent


@given(kernels((THEIRS, KERNEL)), desired_states())
def test_absent_restores_what_was_there_before(kernel: FakeNetlink, desired: policy.Policy) -> None:
    before = (kernel.rules(), kernel.routes())
    try:
        hold(kernel, desired)
    except DatapathError:
        return
    hold(kernel, of(), is_present=False)
    assert (kernel.rules(), kernel.routes()) == before
