# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent reads in notifications of the kernel, and what of a burst is more than a pod that comes or goes."""

from __future__ import annotations

import os
import socket
import struct
import subprocess

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._listener import listener_backend, node_change
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.node_change import Burst, Change, Reader
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
    message,
    route,
    rule,
    u32,
)

HEADER = 16
UP, CARRIER = 1, 0x10000
REPLACE, CLONED, BRIDGE = 0x100, 0x200, 7
NEWNEIGH, DELNEIGH, NEWNETCONF, NEWGEN = 28, 29, 80, 0x0A0F
PERMANENT, REACHABLE = 0x80, 0x02
IN_MAIN = 254
LATER = 10.0


def link(
    kind: int, name: str, index: int, flags: int = UP | CARRIER, of: str = "veth", mtu: int = 1500, family: int = 0
) -> bytes:
    info = struct.pack("=HH", 4 + len(of) + 1, 1) + of.encode() + bytes(1 + -(len(of) + 5) % 4)
    attributes = {3: name.encode() + b"\0", 4: u32(mtu), 10: u32(0), 1: b"\2\0\0\0\0\1", 18: info}
    return message(kind, struct.pack("=BxHiII", family, 1, index, flags, 0), attributes)


def neighbour(kind: int, state: int) -> bytes:
    header = struct.pack("=BxxxIHBB", socket.AF_INET, 7, state, 0, 1)
    return message(kind, header, {1: socket.inet_aton("10.1.0.9"), 2: b"\2\0\0\0\0\x09"})


def netconf(index: int, values: dict[int, int], family: int = socket.AF_INET) -> bytes:
    return message(
        NEWNETCONF, bytes([family, 0, 0, 0]), {1: struct.pack("=i", index), **{key: u32(values[key]) for key in values}}
    )


def generation(name: bytes = b"nft\0") -> bytes:
    attributes = {1: struct.pack(">I", 9), **({2: struct.pack(">I", 812), 3: name} if name else {})}
    return message(NEWGEN, bytes(4), attributes, port=0)


def reader() -> Reader:
    known = [link(NEWLINK, "eth1", 7, of="")[HEADER:], link(NEWLINK, "veth3", 9)[HEADER:]]
    return Reader(known, [address(NEWADDR, 7, "10.9.0.5")[HEADER:]])


CHANGES = [
    (route(DELROUTE, 4, IN_MAIN), ("route", "removed", "ip route 10.9.0.0/24 dev eth1 table main scope link")),
    (route(NEWROUTE, 4, flags=REPLACE), ("route", "changed", "ip route 10.9.0.0/24 dev eth1 table 1003 scope link")),
    (route(NEWROUTE, 4, link=70), ("route", "added", "ip route 10.9.0.0/24 dev if70 table 1003 scope link")),
    (rule(DELRULE, 3), ("rule", "removed", "ip rule 700: from 10.0.1.5 lookup main")),
    (rule(NEWRULE, 3), ("rule", "added", "ip rule 700: from 10.0.1.5 lookup main")),
    (address(DELADDR, 7, "10.9.0.5"), ("address", "removed", "10.9.0.5/24 dev eth1")),
    (address(NEWADDR, 7, "10.9.0.6"), ("address", "added", "10.9.0.6/24 dev eth1")),
    (link(NEWLINK, "veth8", 8), ("link", "added", "link veth8")),
    (link(DELLINK, "veth3", 9), ("link", "removed", "link veth3")),
    (link(NEWLINK, "eth1", 7, UP, "", 9000), ("link", "changed", "link eth1: state up is without carrier, mtu 1500 is 9000,")),
    (link(NEWLINK, "eth9", 7, 0, ""), ("link", "changed", "link eth1: name eth1 is eth9, state up is down,")),
    (neighbour(NEWNEIGH, PERMANENT), ("neighbour", "added", "10.1.0.9 dev eth1 lladdr 02:00:00:00:00:09 PERMANENT")),
    (neighbour(DELNEIGH, PERMANENT), ("neighbour", "removed", "10.1.0.9 dev eth1 lladdr 02:00:00:00:00:09 PERMANENT")),
    (netconf(7, {3: 1}), ("setting", "changed", "net.ipv4.conf.eth1: rp_filter = 1,")),
    (netconf(-1, {2: 0}, socket.AF_INET6), ("setting", "changed", "net.ipv6.conf.all: forwarding = 0,")),
    (generation(), ("ruleset", "changed", "the ruleset of nftables")),
]  # fmt: skip


@pytest.mark.parametrize(("notification", "expected"), CHANGES)
def test_a_notification_is_a_change_with_the_text_of_its_tool(notification: bytes, expected: tuple[str, str, str]) -> None:
    change = reader().change(notification)
    assert change and change[:3] == expected
    assert (change.port, change.program) == ((0, "process 812 (nft)") if change.kind == "ruleset" else (812, ""))


REPETITIONS = [
    link(NEWLINK, "veth3", 9),
    link(NEWLINK, "veth3", 9, 0, family=BRIDGE),
    link(DELLINK, "veth77", 77),
    address(NEWADDR, 7, "10.9.0.5"),
    address(DELADDR, 7, "10.9.0.77"),
    route(NEWROUTE, 2, route_flags=CLONED),
    neighbour(NEWNEIGH, REACHABLE),
    netconf(7, {7: 1}),
    message(99, bytes(12), {}),
]


@pytest.mark.parametrize("notification", REPETITIONS)
def test_what_was_known_or_follows_from_it_is_no_change(notification: bytes) -> None:
    assert reader().change(notification) is None


def test_a_route_that_follows_from_an_address_is_recorded_and_no_reason_for_an_audit() -> None:
    change, burst = reader().change(route(NEWROUTE, 2, 255)), Burst()
    assert change and (change.kind, change.before, [*change.after]) == (node_change.LOCAL_ROUTE, {"routes": []}, ["routes"])
    burst.add(change, 1.0)
    assert not burst


def test_a_setting_has_its_former_value_if_the_kernel_has_listed_it() -> None:
    listed = Reader([], [], [netconf(7, {3: 2, 2: 1})[HEADER:]])
    change = listed.change(netconf(7, {3: 1, 2: 1}))
    assert change and change.before == {"settings": {"ipv4": {"if7": {"rp_filter": 2}}}}
    assert change.after == {"settings": {"ipv4": {"if7": {"rp_filter": 1}}}}
    assert listed.change(netconf(7, {3: 1, 2: 1})) is None
    assert listed.change(link(NEWLINK, "veth9", 7)) and listed.change(link(DELLINK, "veth9", 7))
    again = listed.change(netconf(7, {3: 1}))
    assert again and again.before == {}, "another link may have the number of one that is gone"


def test_a_ruleset_of_a_program_that_the_kernel_does_not_name_is_of_none() -> None:
    change = reader().change(generation(b""))
    assert change and change.sentence == "the ruleset of nftables changed by a program that is not known"


def burst(*notifications: bytes) -> Burst:
    read, noted = reader(), Burst()
    for notification in notifications:
        change = read.change(notification)
        assert change
        noted.add(change, 0.0)
    return noted


def pod_route(kind: int, index: int, host: str = "10.0.1.5") -> bytes:
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, IN_MAIN, 3, 253, 1, 0)
    return message(kind, header, {15: u32(IN_MAIN), 1: socket.inet_aton(host), 4: u32(index)})


COMES = (link(NEWLINK, "veth8", 8), pod_route(NEWROUTE, 8), rule(NEWRULE, 3), netconf(8, {3: 1}))
GOES = (rule(DELRULE, 3), pod_route(DELROUTE, 9), link(DELLINK, "veth3", 9))


@pytest.mark.parametrize("notifications", [COMES, GOES, COMES + GOES[1:]])
def test_a_pod_that_comes_or_goes_is_usual_with_its_route_and_rules(notifications: tuple[bytes, ...]) -> None:
    noted = burst(*notifications)
    assert noted.changes and noted.unusual(LATER) == []


@pytest.mark.parametrize(
    "notifications",
    [
        (pod_route(DELROUTE, 9),),
        (*COMES, pod_route(DELROUTE, 9, "10.0.1.77")),
        (rule(DELRULE, 3),),
        (link(DELLINK, "eth1", 7, of=""),),
        (link(NEWLINK, "veth3", 9, 0),),
        (rule(DELRULE, 3), rule(NEWRULE, 3)),
    ],
)
def test_anything_else_is_unusual(notifications: tuple[bytes, ...]) -> None:
    """A rule that was removed and added again is the last of its priority."""
    assert len(burst(*notifications).unusual(LATER)) == 1


def test_what_is_added_and_removed_again_is_nothing() -> None:
    assert not burst(route(NEWROUTE, 4), route(DELROUTE, 4)) and not burst(pod_route(DELROUTE, 9), pod_route(NEWROUTE, 9))


def test_a_program_that_changes_the_ruleset_all_the_time_is_usual() -> None:
    noted = burst(generation(), generation(b"kube-proxy\0"))
    assert [change.program for change in noted.unusual(LATER, {"kube-proxy"})] == ["process 812 (nft)"]


def test_a_burst_is_over_when_it_is_quiet_and_at_the_latest_after_a_time() -> None:
    noted, change = Burst(), Change("route", "added", "a")
    noted.add(change, 10.0)
    noted.add(change._replace(text="b"), 10.3)
    assert noted.over == 10.3 + node_change.QUIET
    for number in range(100):
        noted.add(change._replace(text=str(number)), 10.3 + number / 10)
    assert noted.over == 10.0 + node_change.LONGEST


def test_a_burst_that_is_cut_short_leaves_what_has_just_happened_to_the_next() -> None:
    """A pod's route goes before its link does, and an audit begins between both."""
    read, first = reader(), Burst()
    changes = [change for change in map(read.change, (link(NEWLINK, "veth8", 8), *GOES)) if change]
    for number, change in enumerate(changes[:3]):
        first.add(change, number / 10)
    assert first.unusual(0.3) == []
    second = first.rest(0.3)
    assert second.changes == first.changes and first.has_pods
    second.add(changes[3], 0.4)
    assert second.unusual(LATER) == [] and not second.rest(LATER)
    removed = read.change(pod_route(DELROUTE, 9))
    assert removed
    for after, count in ((1.0, 0), (2 * node_change.OF_A_POD, 1)):
        late = second.rest(after)
        late.add(removed, after)
        assert len(late.unusual(after + 1)) == count, "the link went in the burst before"


def test_a_route_that_goes_a_while_after_its_pod_came_is_unusual_even_if_no_audit_was_made() -> None:
    noted = burst(*COMES)
    removed = reader().change(pod_route(DELROUTE, 8, "10.0.1.77"))
    assert removed
    noted.add(removed, 60.0)
    assert noted.unusual(61.0) == [removed]


def test_a_storm_takes_bounded_memory_and_is_not_forgotten() -> None:
    noted = Burst()
    for number in range(3 * node_change.MOST):
        noted.add(Change("link", "added", f"link veth{number}", number, is_pods=True), 0.0)
    assert noted.is_lost and len(noted.changes) == len(noted._links) == node_change.MOST
    lost = Burst()
    lost.lose(5.0)
    assert lost and lost.over == 5.0 + node_change.QUIET


def test_a_program_that_has_just_ended_is_named_as_long_as_nobody_waited_for_it() -> None:
    with subprocess.Popen(["true"]) as program:
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        assert listener_backend.sender_at_once(program.pid) == f"process {program.pid} (true)"
    assert listener_backend.sender_at_once(program.pid) == ""
