# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The listener's decisions, without a node: which message matters, which routes can be loaded, how long to wait."""

from __future__ import annotations

import socket
import struct
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._listener import (
    change_event,
    listener_program,
    readiness,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.change_event import Dependencies, EventFilter
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.schedule import FIRST, FREE, LONGEST, QUIET, Backoff
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy
from unit.netlink_messages import (
    DELADDR,
    DELLINK,
    DELROUTE,
    DELRULE,
    NEWADDR,
    NEWLINK,
    NEWROUTE,
    NEWRULE,
    address,
    link,
    message,
    route,
    rule,
    u32,
)

REPLACE, CLONED, BRIDGE = 0x100, 0x200, 7
SOURCE = (socket.inet_aton("10.0.1.5"), 32)
QUIET_SET = Dependencies({"eth1": (7, True), "eth2": (0, False)}, [1003], ["0a000101"])
OPEN = QUIET_SET._replace(
    open=[
        change_event.rule_key(socket.AF_INET, 700, SOURCE, (b"", 0)),
        change_event.route_key(socket.AF_INET, 1003, (socket.inet_aton("10.9.0.0"), 24), 0),
    ]
)
WAITING = QUIET_SET._replace(waits=True)
UPLINKS = QUIET_SET._replace(uplinks=["eth1", "eth2"])
FOLLOWED = "a route that the uplinks' tables follow changed"


def over(link: int, table: int = 254, length: int = 24, more: dict[int, bytes] | None = None) -> bytes:
    """A new route of another program; RTA_GATEWAY is 5, RTA_MULTIPATH 9."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, length, 0, 0, min(table, 252), 4, 0, 1, 0)
    return message(NEWROUTE, header, {15: u32(table), **({4: u32(link)} if link else {}), **(more or {})})


MATTERS: dict[str, tuple[Dependencies, bytes, str]] = {
    "our rule goes": (QUIET_SET, rule(DELRULE, 75), "a rule was removed"),
    "a rule of our protocol comes": (QUIET_SET, rule(NEWRULE, 75), "a rule with our protocol was added"),
    "our route goes": (QUIET_SET, route(DELROUTE, 75), "a route was removed"),
    "a route of our protocol comes": (QUIET_SET, route(NEWROUTE, 75), "a route with our protocol was added"),
    "a route is replaced in our table": (QUIET_SET, route(NEWROUTE, 4, flags=REPLACE), "a route was replaced"),
    "what did our rule's work goes": (OPEN, rule(DELRULE, 2), "a rule of another program was removed"),
    "what did our route's work goes": (OPEN, route(DELROUTE, 2), "a route of another program was removed"),
    "a link goes down": (QUIET_SET, link(NEWLINK, "eth1", 7, False), "link eth1 went down"),
    "a link comes": (QUIET_SET, link(NEWLINK, "eth2", 9, False), "link eth2 is new"),
    "a link goes": (QUIET_SET, link(DELLINK, "eth1", 7, True), "link eth1 went away"),
    "a link is replaced": (QUIET_SET, link(NEWLINK, "eth1", 8, True), "link eth1 is new"),
    "a link is renamed": (QUIET_SET, link(NEWLINK, "eth9", 7, True), "link eth1 went away"),
    "a link's address goes": (QUIET_SET, address(DELADDR, 7, "10.0.1.9"), "an address of eth1 went away"),
    "a source goes": (QUIET_SET, address(DELADDR, 3, "10.0.1.1"), "a source address went away"),
    "a source comes": (WAITING, address(NEWADDR, 3, "10.0.1.1"), "an address is new"),
    "an address comes": (WAITING, address(NEWADDR, 7, "10.0.1.9"), "an address is new"),
    "a route to a gateway comes": (WAITING, route(NEWROUTE, 2, 254), "a route is new"),
    "an uplink has another network": (UPLINKS, over(7), FOLLOWED),
    "an uplink's default route in another table comes": (UPLINKS, over(7, 200, 0), FOLLOWED),
    "a route by another node comes": (UPLINKS, over(3, more={5: bytes(4)}), FOLLOWED),
    "a route with several next hops comes": (UPLINKS, over(0, more={9: bytes(16)}), FOLLOWED),
    "an uplink's address comes": (UPLINKS, address(NEWADDR, 7, "10.0.1.9"), "an address of an uplink changed"),
    "an uplink's address goes": (UPLINKS, address(DELADDR, 7, "10.0.1.9"), "an address of an uplink changed"),
    "an unknown link's address comes": (
        WAITING._replace(links={change_event.ANY_LINK: (0, False)}),
        address(NEWADDR, 3, "10.0.9.9"),
        "an address is new",
    ),
}
LEAVES: dict[str, tuple[Dependencies, bytes]] = {
    "another's rule goes": (QUIET_SET, rule(DELRULE, 4)),
    "another's rule comes": (OPEN, rule(NEWRULE, 4)),
    "another's rule of another priority goes": (OPEN, rule(DELRULE, 2, 701)),
    "another's rule for another pod goes": (OPEN, rule(DELRULE, 2, src="10.0.1.6")),
    "another's route goes": (QUIET_SET, route(DELROUTE, 2)),
    "another's route comes": (QUIET_SET, route(NEWROUTE, 2)),
    "another's route of another table goes": (OPEN, route(DELROUTE, 2, 254)),
    "a route is replaced in another's table": (QUIET_SET, route(NEWROUTE, 4, 254, flags=REPLACE)),
    "a pod's route comes": (UPLINKS, over(3)),
    "a route of another table over an uplink comes": (UPLINKS, over(7, 200)),
    "a pod's address comes": (UPLINKS, address(NEWADDR, 3, "10.0.7.9")),
    "another link's route comes": (WAITING, route(NEWROUTE, 2, 254, link=3)),
    "a route's copy of our protocol": (QUIET_SET, route(NEWROUTE, 75, route_flags=CLONED)),
    "another link comes": (WAITING, link(NEWLINK, "veth7", 30, True)),
    "another link goes": (WAITING, link(DELLINK, "veth7", 30, True)),
    "a link is as it was": (QUIET_SET, link(NEWLINK, "eth1", 7, True)),
    "a bridge tells of its port": (QUIET_SET, link(DELLINK, "eth1", 7, True, BRIDGE)),
    "an address comes and nothing waits": (QUIET_SET, address(NEWADDR, 7, "10.0.1.9")),
    "another link's address goes": (QUIET_SET, address(DELADDR, 3, "10.0.7.9")),
    "something else": (WAITING, message(28, bytes(12), {})),
}


@pytest.mark.parametrize(("interest", "data", "clause"), MATTERS.values(), ids=MATTERS.keys())
def test_an_event_that_concerns_the_set_is_told_with_its_sender(interest: Dependencies, data: bytes, clause: str) -> None:
    concern = EventFilter(75, interest).concern(data)
    assert concern and concern.clause == clause
    assert concern.port == (0 if data[4] in (NEWLINK, NEWADDR) else 812)


@pytest.mark.parametrize(("interest", "data"), LEAVES.values(), ids=LEAVES.keys())
def test_an_event_that_leaves_the_set_as_it_is_is_ignored(interest: Dependencies, data: bytes) -> None:
    assert EventFilter(75, interest).concern(data) is None


def test_a_link_matters_once_for_each_change() -> None:
    watch = EventFilter(75, QUIET_SET)
    said = [
        watch.concern(link(*one))
        for one in (
            (NEWLINK, "eth1", 7, False),
            (NEWLINK, "eth1", 7, False),
            (NEWLINK, "eth1", 7, True),
            (DELLINK, "eth1", 7, False),
            (DELLINK, "eth1", 7, False),
            (NEWLINK, "eth1", 9, True),
        )
    ]
    assert [bool(one) for one in said] == [True, False, True, True, False, True]


def contests(data: bytes) -> bool:
    concern = EventFilter(75, WAITING).concern(data)
    assert concern
    return concern.is_contest


def test_only_a_program_that_changes_our_rules_and_routes_contests_them() -> None:
    """Routes that the kernel drops with a link or an address are restored with the link or address, however often."""
    programs = [rule(DELRULE, 75), rule(NEWRULE, 75), route(DELROUTE, 75), route(NEWROUTE, 75)]
    programs.append(route(NEWROUTE, 4, flags=REPLACE))
    assert [contests(data) for data in programs] == [True] * 5
    assert not any(contests(data[:12] + u32(0) + data[16:]) for data in programs)  # the port of the kernel
    events = [link(NEWLINK, "eth1", 7, False), link(DELLINK, "eth1", 7, True), address(DELADDR, 7, "10.0.1.1")]
    assert not any(map(contests, [*events, address(NEWADDR, 7, "10.0.1.9"), route(NEWROUTE, 2, 254)]))
    assert not change_event.ChangeEvent("a rule of another program was removed", 812).is_contest


# Pauses


def after(moments: t.Iterable[float]) -> Backoff:
    backoff = Backoff()
    for moment in moments:
        backoff = backoff.restored(moment)
    return backoff


def test_a_few_restorations_come_at_once_and_the_pauses_of_more_double() -> None:
    assert after(range(FREE - 1)).pause == 0
    assert [after(range(FREE + more)).pause for more in range(4)] == [1, 2, 4, 8]
    assert after(range(5000)).pause == LONGEST


def test_a_route_that_went_with_its_link_never_waits_long_for_it() -> None:
    backoff = Backoff(longest=FIRST)
    for moment in range(50):
        backoff = backoff.restored(3.0 * moment)
    assert (backoff.pause, backoff.until) == (1, 148)


def test_a_quiet_time_ends_the_row_of_contests() -> None:
    start = float(FREE + 3)
    assert after([*range(FREE + 4), start + QUIET + 1]).pause == 0
    assert after([*range(FREE + 4), start + QUIET - 1]).pause > 0


def test_a_program_that_keeps_on_never_ends_the_row_by_our_own_pause() -> None:
    backoff, now = Backoff(), 0.0
    pauses = []
    for _round in range(40):
        backoff = backoff.restored(now)
        pauses.append(backoff.pause)
        now += backoff.pause + 1
    assert pauses == sorted(pauses) and pauses[-1] == LONGEST


# Which routes can be loaded

OURS, THEIRS = 75, 2
ROUTES: list[dict[str, t.Any]] = [
    {"table": 1003, "to": "default", "via": "10.0.1.1", "dev": "eth1"},
    {"table": 1003, "to": "10.0.1.1", "dev": "eth1"},
]
RULES: list[dict[str, t.Any]] = [
    {"priority": 701, "from": "10.0.1.5", "table": 1003},
    {"priority": 690, "table": "main"},
]
TABLES = {"main": 254}


def desired(rules: list[dict[str, t.Any]] | None = None, routes: list[dict[str, t.Any]] | None = None) -> policy.Policy:
    return policy.from_options(75, rules, routes, TABLES)


def current(items: t.Iterable[t.Any] | None, protocol: int) -> list[readiness.Owned]:
    return [(item, protocol) for item in items or ()]


def waits(
    full: policy.Policy,
    there: policy.Policy | None = None,
    links: dict[str, bool] | None = None,
    protocol: int = THEIRS,
) -> list[str]:
    found = there or policy.Policy()
    surroundings = readiness.KernelState(current(found.rules, protocol), current(found.routes, protocol), links or {})
    ready = readiness.split(full, surroundings)
    assert len(ready.waiting) + len(ready.policy.rules or ()) + len(ready.policy.routes or ()) == len(
        [*(full.rules or ()), *(full.routes or ())]
    )
    return [reason for _item, reason in ready.waiting]


UP, DOWN = {"eth1": True}, {"eth1": False}
BLACKHOLE = {"table": 1003, "to": "10.8.0.0/16", "type": "blackhole"}
LOCAL = {"table": 255, "to": "10.0.1.9", "type": "local", "dev": "eth1"}
SOURCED = {"table": 1003, "to": "10.7.0.0/16", "dev": "eth1", "src": "10.0.1.9"}
NO_LINK = "there is no link eth1"


def test_all_is_loaded_where_all_is_there() -> None:
    assert waits(desired(RULES, ROUTES), links=UP) == []


def test_without_a_link_its_routes_wait_and_the_rules_that_lead_to_them_alone() -> None:
    assert waits(desired(RULES, ROUTES)) == [NO_LINK, NO_LINK, "table 1003 is empty"]
    assert waits(desired(RULES, ROUTES), links=DOWN)[0] == "link eth1 is down"


def test_a_table_that_is_not_empty_gets_its_rules() -> None:
    assert waits(desired(RULES, [*ROUTES, BLACKHOLE])) == [NO_LINK, NO_LINK]
    assert waits(desired(RULES, ROUTES), desired([], [BLACKHOLE])) == [NO_LINK, NO_LINK]


def test_a_present_rule_or_route_waits_for_nothing() -> None:
    assert waits(desired(RULES, ROUTES), desired(RULES, ROUTES), protocol=OURS) == []
    assert waits(desired(RULES, ROUTES), desired(RULES, None), protocol=OURS) == [NO_LINK, NO_LINK]


def test_a_gateway_must_be_a_neighbour_by_anybodys_route() -> None:
    reason = "no route says that 10.0.1.1 is a neighbour on eth1"
    assert waits(desired(None, ROUTES[:1]), links=UP) == [reason]
    near = {"table": "main", "to": "10.0.1.0/24", "dev": "eth1"}
    assert waits(desired(None, ROUTES[:1]), desired(None, [near]), UP) == []
    assert waits(desired(None, [{**ROUTES[0], "onlink": True}]), links=UP) == []
    assert waits(desired(None, [{**ROUTES[0], "via": "fe80::1"}]), links=UP) == []


def test_a_source_must_be_an_address_of_the_node() -> None:
    assert waits(desired(None, [SOURCED]), links=UP) == ["10.0.1.9 is not an address of this node"]
    assert waits(desired(None, [SOURCED]), desired(None, [LOCAL]), UP) == []


def test_an_ipv6_source_must_be_an_address_of_the_node_and_a_link_local_one_of_the_routes_link() -> None:
    """net/ipv6/addrconf.c, ipv6_chk_addr: only for a link-local address is the link compared."""
    sourced = {"table": 1003, "to": "fd07::/64", "dev": "eth1", "src": "fd01::9"}
    local = {"table": 255, "to": "fd01::9", "type": "local", "dev": "eth0"}
    assert waits(desired(None, [sourced]), links=UP) == ["fd01::9 is not an address of this node"]
    assert waits(desired(None, [sourced]), desired(None, [local]), UP) == []
    sourced, local = {**sourced, "src": "fe80::9"}, {**local, "to": "fe80::9"}
    assert waits(desired(None, [sourced]), desired(None, [local]), UP) == ["fe80::9 is not an address of this node on eth1"]
    assert waits(desired(None, [sourced]), desired(None, [{**local, "dev": "eth1"}]), UP) == []


def test_a_rule_or_route_whose_place_a_foreign_one_has_waits_for_it_to_go() -> None:
    rule_, route_ = {**RULES[0], "table": 1009}, {**ROUTES[1], "dev": "eth0"}
    assert waits(desired(RULES[:1]), desired([rule_])) == [
        "ip rule 701: from 10.0.1.5 lookup 1009 is there and belongs to protocol kernel"
    ]
    (reason,) = waits(desired(None, ROUTES[1:]), desired(None, [route_]), UP)
    assert reason.endswith("is there and belongs to protocol kernel")
    ours, theirs = ([{"priority": 1536, "from": "10.0.1.5", "table": table}] for table in (1003, 2))
    (reason,) = waits(desired(ours), desired(theirs))
    assert reason.endswith("lookup 2 is there and belongs to amazon-vpc-cni or hostnic, protocol kernel")


def test_a_goto_waits_for_where_it_leads() -> None:
    jumps = [{"priority": 10, "goto": 20}, {"priority": 20, "goto": 701}, RULES[0]]
    assert waits(desired(jumps, ROUTES)) == [
        NO_LINK,
        NO_LINK,
        "there is no rule 20",
        "there is no rule 701",
        "table 1003 is empty",
    ]
    assert waits(desired(jumps, ROUTES), links=UP) == []


def test_links_are_those_of_all_hops() -> None:
    several = {
        "table": 9,
        "to": "default",
        "nexthops": [{"via": "10.0.1.1", "dev": "eth1"}, {"via": "10.0.2.1", "dev": "eth2"}],
    }
    assert readiness.links(desired(None, [several, BLACKHOLE]), readiness.KernelState((), (), {})) == {"eth1", "eth2"}


def test_a_listener_that_cannot_ask_systemd_how_often_it_failed_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ansible_collections.kubenode.datapath.plugins.module_utils._platform import process

    monkeypatch.setattr(process, "find", lambda _program: "/nowhere/systemctl")
    listener_program._end_slowly("kubenode-policy-routes-75.service")
    assert "/nowhere/systemctl cannot be started" in capsys.readouterr().out
