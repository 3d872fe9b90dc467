# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""policy_routes on a real kernel: order, other programs, kills, any desired state, pyroute2 old, new and absent."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import installation
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy, rt_names, rule_order
from lab import Lab, Node, netlink_recorder, playbook, steps
from lab.node import NamespaceNode
from lab.steps import Steps
from lab.waiting import until
from unit import strategies

PATH = "/etc/kubenode/policy-routes-75.json"
RECORD = "/run/kubenode/policy-routes-75.json"
UNIT = "/etc/systemd/system/kubenode-policy-routes-75.service"
LIBRARY = "/var/lib/kubenode/lib"

RULES: list[dict[str, Any]] = [
    {"priority": 700, "to": "10.0.1.5", "table": "main"},
    {"priority": 701, "from": "10.0.1.5", "table": 1003},
    {"priority": 690, "fwmark": "0x1000/0x1000", "table": "main"},
    {"priority": 690, "fwmark": "0x1000/0x1000", "table": "main", "family": "ipv6"},
    {"priority": 702, "not": True, "from": "10.0.0.0/8", "iif": "eth9", "goto": 32766},
    {
        "priority": 703,
        "ipproto": "tcp",
        "sport": "1-1024",
        "dport": 443,
        "uidrange": "5-9",
        "tos": 16,
        "action": "prohibit",
    },
    {"priority": 704, "to": "2001:db8:9::/48", "oif": "lo", "action": "blackhole"},
    {"priority": 705, "table": "main", "suppress_prefixlength": 0},
    {"priority": 706, "l3mdev": True},
]
ROUTES: list[dict[str, Any]] = [
    {"table": 1003, "to": "default", "via": "10.0.1.1", "dev": "eth1", "mtu": 1400},
    {"table": 1003, "to": "10.0.1.1", "dev": "eth1"},
    {"table": 1003, "to": "default", "via": "fe80::1", "dev": "eth1"},
    {"table": 1003, "to": "10.7.0.0/16", "via": "203.0.113.1", "dev": "eth0", "onlink": True, "metric": 9},
    {"table": 1003, "to": "10.8.0.0/16", "type": "blackhole"},
    {"table": 1003, "to": "fd08::/16", "type": "unreachable"},
    {"table": 1003, "to": "10.9.0.0/16", "type": "local", "dev": "lo"},
    {"table": 1003, "to": "fd09::/64", "dev": "eth0", "src": "2001:db8:0:1::11"},
    {
        "table": 1003,
        "to": "10.10.0.0/16",
        "nexthops": [{"via": "192.0.2.1", "dev": "eth0", "weight": 3}, {"via": "10.0.1.1", "dev": "eth1"}],
    },
    {
        "table": 1003,
        "to": "fd10::/64",
        "nexthops": [{"via": "fe80::1", "dev": "eth0"}, {"via": "fe80::2", "dev": "eth1"}],
    },
    {"table": 1003, "to": "10.11.0.0/16", "via": "10.0.1.1"},
    {"table": 1003, "to": "fd11::/64", "nexthops": [{"via": "2001:db8:0:1::1"}, {"via": "fe80::2", "dev": "eth1"}]},
]
OTHER_RULES = [*RULES[:1], {"priority": 701, "from": "10.0.1.5", "table": 1004}]
OTHER_ROUTES = [
    {"table": 1003, "to": "default", "via": "10.0.1.2", "dev": "eth1", "mtu": 1400},
    {"table": 1003, "to": "default", "via": "fe80::1", "dev": "eth1", "mtu": 1400},
    {"table": 1004, "to": "default", "via": "10.0.1.1", "dev": "eth1"},
]
ENI = [
    "link add eth1 type veth peer name eni1",
    "link set eth1 up",
    "link set eni1 up",
    "address add 10.0.1.254/24 dev eth1",
]


def with_eni(lab: Lab) -> NamespaceNode:
    """The first node, with a second interface, once the kernel has given both of its ends their link-local addresses."""
    node: NamespaceNode = lab.node("node1")
    node.ip(ENI)
    own = ["ip", "-6", "-oneline", "address", "show", "scope", "link", "-tentative"]

    def links() -> set[str]:
        return {line.split()[1] for line in node.run_from_host(own).splitlines()}

    until("the links have their link-local addresses", lambda: links() >= {"eth1", "eni1"})
    return node


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    return with_eni(lab)


run, refused, four_steps = steps.of("policy_routes")


def listing(node: NamespaceNode, what: str = "rule", family: str = "-4") -> list[str]:
    """The output of ``ip``, without blanks at the ends of lines."""
    table = ["show", "table", "all"] if what == "route" else []
    return [line.strip() for line in node.run_from_host(["ip", family, what, *table]).splitlines()]


# The twelve steps


def test_the_kernel_shows_the_desired_state(node: NamespaceNode) -> None:
    run(node, rules=RULES, routes=ROUTES, permanent=False)
    assert "702:\tnot from 10.0.0.0/8 iif eth9 [detached] goto 32766 proto 75" in listing(node)
    assert (
        "703:\tfrom all tos 0x10 uidrange 5-9 ipproto tcp sport 1-1024 dport 443 prohibit proto 75" in listing(node)
    )  # fmt: skip
    assert "704:\tfrom all to 2001:db8:9::/48 oif lo blackhole proto 75" in listing(node, family="-6")
    assert "default via 10.0.1.1 dev eth1 table 1003 proto 75 mtu 1400" in listing(node, "route")


def boot(node: NamespaceNode, python: str = "/usr/bin/python3", verb: str = "load") -> subprocess.CompletedProcess[str]:
    """Runs the unit's program with another Python, without the listener."""
    (command,) = re.findall("^ExecStart=(.*)$", node.read(UNIT), re.M)
    *_options, program, protocol, path = shlex.split(command)
    return node.run([python, "-I", "-B", program, verb, protocol, path], check=False)


# Versions of pyroute2, and where each comes from; 0.9.1 is the first release with its new core.
VERSIONS = {
    "0.7.2": "the least, on the oldest Python that a node may have",
    "0.7.7": "Debian 13",
    "0.7.11": "Ubuntu 24.04",
    "0.8.1": "Ubuntu 26.04",
    "0.9.1": "by pip, the oldest",
    "0.9.7": "by pip, the newest",
}


def python_with_pyroute2(version: str) -> str:
    """An interpreter with this pyroute2, in place of the node's own."""
    if f"pyroute2=={version}" in installation.TOOLS:
        return sys.executable
    pythons = installation.interpreters()
    if f"pyroute2=={version}" not in installation.OLDEST_TOOLS:
        return str(installation.venv(pythons[max(pythons)], [f"pyroute2=={version}"]) / "python")
    if installation.OLDEST not in pythons:
        pytest.skip(f"no Python 3.{installation.OLDEST} is here")
    return str(installation.venv(pythons[installation.OLDEST], installation.OLDEST_TOOLS) / "python")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_boot_loads_a_later_run_finds_unchanged(node: NamespaceNode, version: str) -> None:
    python = python_with_pyroute2(version)
    run(node, rules=RULES, routes=ROUTES)
    good = node.snapshot()
    node.run(["sh", "-c", "for f in -4 -6; do ip $f rule flush protocol 75; ip $f route flush table 1003; done"])
    assert node.snapshot() != good
    completed = boot(node, python)
    assert completed.returncode == 0 and "ip rule 700: " in completed.stdout and '"waiting": []' in completed.stdout, completed
    assert node.snapshot() == good
    assert not run(node, rules=RULES, routes=ROUTES)["changed"]
    assert '"added": [], "removed": []' in boot(node, python).stdout
    node.run(["ip", "route", "change", "default", "via", "10.0.1.9", "dev", "eth1", "table", "1003", "protocol", "75"])
    node.run(["ip", "rule", "add", "priority", "9", "lookup", "7", "protocol", "75"])
    assert '"added": ["ip route default via 10.0.1.1' in boot(node, python).stdout
    assert node.snapshot() == good


def test_a_boot_without_a_link_loads_the_rest_and_says_what_waits(node: NamespaceNode) -> None:
    other = {"table": 1004, "to": "default", "via": "192.0.2.1", "dev": "eth0"}
    rules = [*RULES[:2], {"priority": 704, "from": "10.0.1.6", "table": 1004}]
    run(node, rules=rules, routes=[*ROUTES[:2], other], immediate=False)
    node.ip(["link del eth1"])
    completed = boot(node, sys.executable)
    assert completed.returncode == 0, completed
    assert [line.split(":")[0] for line in listing(node) if "proto 75" in line] == ["700", "704"]
    assert [line for line in listing(node, "route") if "proto 75" in line] == [
        "default via 192.0.2.1 dev eth0 table 1004 proto 75"
    ]
    assert "ip rule 701: from 10.0.1.5 lookup 1003 (table 1003 is empty)" in completed.stdout
    assert "ip route 10.0.1.1 dev eth1 table 1003 scope link (there is no link eth1)" in completed.stdout


TERWAY = {"layout": "terway", "cloud": "azure"}


def test_a_set_that_follows_from_enis_is_asked_for_by_the_run_and_the_boot(lab: Lab, node: NamespaceNode) -> None:
    before = node.snapshot()
    with lab.metadata:
        result = four_steps(node, enis=TERWAY)
        (now,) = result["rules"]["added"]
        assert now == "ip rule 600: from all fwmark 0x10/0x10 lookup 100"
        record = policy_file(node, RECORD)
        assert set(record) == {"protocol", "enis", "rules", "routes"}
        assert policy_file(node, PATH) == {"protocol": 75, "enis": TERWAY}
    # A run does not ask for rules and routes that its options have.
    told = {"rules": record["rules"], "routes": record["routes"]}
    assert not run(node, enis=json.dumps(TERWAY), **told)["changed"]
    # Without an answer of the service, the current rules and routes stay.
    loaded = json.loads(boot(node, verb="boot").stdout)
    assert loaded["asked"]["is_answered"] is False and not loaded["removed"]
    assert policy_file(node, RECORD) == record
    # After a run without enis, boots load the rules and routes of its options.
    assert run(node, **told)["changed"] and policy_file(node, PATH) == {"protocol": 75, **told}
    run(node, state="absent")
    assert node.snapshot() == before


def policy_file(node: NamespaceNode, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.sub("^#.*", "", node.read(path)))
    return found


def test_a_second_set_does_not_take_the_path_of_the_first(node: NamespaceNode) -> None:
    run(node, rules=RULES[:2])
    assert "keeps the set of protocol 75" in refused(node, path=PATH, rules=[], protocol=76)


def test_a_list_that_is_left_out_is_not_managed(node: NamespaceNode) -> None:
    run(node, rules=RULES[:2], routes=ROUTES[:2])
    run(node, rules=[])
    assert "1003" in "".join(listing(node, "route")) and "proto 75" not in "".join(listing(node))
    assert "default" in node.read(PATH)
    assert not run(node, rules=[], routes=ROUTES[:2])["changed"]


def test_a_gateway_without_its_link_is_looked_for_at_each_run_and_boot(node: NamespaceNode) -> None:
    desired = [{"table": 1003, "to": "10.11.0.0/16", "via": "10.0.1.1"}]
    result = four_steps(node, routes=desired)
    assert result["routes"]["added"] == ["ip route 10.11.0.0/16 via 10.0.1.1 dev eth1 table 1003"]
    assert '"via": "10.0.1.1", "scope": "global"}' in node.read(PATH)
    node.ip(["route del 10.11.0.0/16 table 1003", "route add 10.0.1.1 dev eth0"])  # by a prefix longer than eth1's
    assert json.loads(boot(node, sys.executable).stdout)["added"]
    assert "10.11.0.0/16 via 10.0.1.1 dev eth0 table 1003 proto 75" in listing(node, "route")
    assert not run(node, routes=desired)["changed"]
    node.ip(["route del 10.0.1.1 dev eth0"])
    assert run(node, routes=desired, check=True)["routes"]["added"] == result["routes"]["added"]
    four_steps(node, state="absent", routes=desired)
    assert "proto 75" not in "".join(listing(node, "route"))


# The owner of the file


def test_the_file_that_our_unit_loads_is_ours_whatever_its_text(node: NamespaceNode) -> None:
    run(node, rules=RULES[:2], routes=ROUTES[:2])
    good = node.snapshot()
    node.write(PATH, node.read(PATH).partition("\n")[2])
    assert run(node, rules=RULES[:2])["changed"]  # the routes are still read from the file
    assert node.snapshot() == good
    node.write(PATH, "gone wrong")
    assert run(node, rules=RULES[:2], routes=ROUTES[:2])["changed"]
    assert node.snapshot() == good


def test_anothers_file_is_not_taken_for_ours(node: NamespaceNode) -> None:
    table = "/etc/kubenode/return-path.nft"
    node.module("nftables_connmark", {"primary_interface": "eth0", "pod_interfaces": ["eth1"]})
    assert f"{table} may not be replaced by this run" in refused(node, rules=RULES[:2], path=table)
    before = node.snapshot()
    assert not run(node, state="absent", path=table)["changed"] and node.snapshot() == before
    assert "path must be in or below" in refused(node, rules=[], path="/etc/systemd/system/kubelet.service")


def test_tables_may_come_by_name(node: NamespaceNode) -> None:
    node.write("/etc/iproute2/rt_tables.d/pods.conf", "1003 pods\n")
    run(node, rules=RULES)
    assert not run(node, rules=[{**rule, **({"table": "pods"} if rule.get("table") == 1003 else {})} for rule in RULES])[
        "changed"
    ]


# The messages of a run


def watched_run(node: NamespaceNode, last: int = 0, signal: str = "SIGKILL", **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The result, and the types of the messages sent, without dumps; the module gets the signal at message ``last``."""
    return netlink_recorder.run(node, "policy_routes", options, last, signal)


@pytest.mark.thorough
def test_killed_between_any_two_messages_the_path_works_and_the_next_run_finishes(node: NamespaceNode) -> None:
    """Two sets of rules and routes that send the same packets by different gateways."""

    def way(table: int, gateway: str, priority: int) -> dict[str, Any]:
        routes = [
            {"table": table, "to": "default", "via": gateway, "dev": "eth1"},
            {"table": 9, "to": "default", "via": gateway, "dev": "eth1"},
        ]
        return {"rules": [{"priority": priority, "from": "10.0.1.254", "table": table}, RULES[2]], "routes": routes}

    one, other = way(1003, "10.0.1.1", 700), way(1004, "10.0.1.2", 710)
    run(node, **one)
    desired_states = [one, other]
    kill, was_killed = 1, True
    while was_killed:
        desired = desired_states[kill % 2]
        result, messages = watched_run(node, kill, **desired)
        was_killed = result["rc"] == -9
        assert was_killed == (len(messages) == kill)
        path = node.run(["ip", "route", "get", "198.51.100.9", "from", "10.0.1.254"]).stdout
        assert re.search("via 10.0.1.[12] dev eth1", path), path
        run(node, **desired)
        assert not run(node, **desired)["changed"]
        kill += 1
    assert kill > 5


def test_interrupted_at_any_message_all_is_undone(node: NamespaceNode) -> None:
    run(node, rules=RULES[:5], routes=ROUTES[:5], permanent=False)
    before = node.snapshot()
    messages, last = ["24"], 0
    while len(messages) > last:
        last += 1
        desired = {"rules": [*RULES[5:], *OTHER_RULES], "routes": [*OTHER_ROUTES, *ROUTES[4:]]}
        result, messages = watched_run(node, last, "SIGINT", permanent=False, **desired)
        assert result["failed"] == (len(messages) > last), result
        if result["failed"]:
            assert node.snapshot() == before
    assert last >= 20


def test_what_the_kernel_refuses_is_named_and_all_is_undone(node: NamespaceNode) -> None:
    run(node, rules=OTHER_RULES, routes=OTHER_ROUTES)
    bad = {"table": 1003, "to": "10.99.0.0/16", "via": "10.0.1.1", "dev": "eth1", "scope": "link"}
    message = refused(node, check_fails=False, rules=RULES, routes=[*ROUTES, bad])
    assert "add ip route 10.99.0.0/16 via 10.0.1.1 dev eth1 table 1003 scope link was refused by the kernel" in message
    assert "Nothing was changed" in message or "were undone" in message
    node.ip(["link set eth1 down"])
    message = refused(node, check_fails=False, routes=ROUTES[1:2])
    assert "Network is down" in message and "Set the link up first" in message


def test_a_deletion_does_not_hit_a_rule_that_names_more(node: NamespaceNode) -> None:
    general = {"priority": 700, "table": 1003}
    special = [{**general, "fwmark": "0x100000/0x100000"}, {**general, "from": "10.0.0.0/8"}]
    run(node, rules=[*special, general])
    before = listing(node)
    run(node, rules=special)
    assert listing(node) == [line for line in before if line != "700:\tfrom all lookup 1003 proto 75"]


# Order


OVERLAPPING: list[dict[str, Any]] = [
    {"priority": 700, "from": "10.0.1.254", "table": 1003},
    {"priority": 700, "to": "198.51.100.0/24", "action": "prohibit"},
    {"priority": 700, "fwmark": "0x1/0x1", "table": "main"},
]


def test_rules_of_one_priority_are_held_in_the_order_given(node: NamespaceNode) -> None:
    """Rules are added, reordered, removed and added again by another program, loaded, undone."""
    clean = node.snapshot()
    four_steps(node, rules=OVERLAPPING)
    first = node.snapshot()
    other = [OVERLAPPING[2], OVERLAPPING[0], OVERLAPPING[1]]
    moved = four_steps(node, rules=other)
    lines = moved["diff"][0]["before"].splitlines(), moved["diff"][0]["after"].splitlines()
    assert lines[0][:3] == [lines[1][1], lines[1][2], lines[1][0]]
    assert moved["rules"]["added"] == moved["rules"]["removed"] and moved["rules"]["kept"] == 1
    assert [line for line in listing(node) if line.startswith("700:")][0].startswith("700:\tfrom all fwmark 0x1/0x1")
    four_steps(node, rules=OVERLAPPING)
    assert node.snapshot() == first
    again = "priority 700 from 10.0.1.254 lookup 1003 protocol 75"
    for restore in (lambda: run(node, rules=OVERLAPPING), lambda: boot(node, sys.executable)):
        node.ip([f"rule del {again}", f"rule add {again}"])
        assert node.snapshot() != first
        restore()
        assert node.snapshot() == first
    four_steps(node, state="absent")
    assert node.snapshot() == clean


def test_a_set_that_moves_is_undone_to_the_former_order_wherever_it_is_interrupted(node: NamespaceNode) -> None:
    run(node, rules=OVERLAPPING, permanent=False)
    before = node.snapshot()
    desired = {
        "rules": [*reversed(OVERLAPPING[1:]), {"priority": 700, "iif": "eth0", "table": 1003}],
        "permanent": False,
    }
    messages, last = ["32"], 0
    while len(messages) > last:
        last += 1
        result, messages = watched_run(node, last, "SIGINT", **desired)
        assert result["failed"] == (len(messages) > last), result
        assert not result["failed"] or node.snapshot() == before
    assert last >= 5


# Foreign rules and routes


def test_what_a_cni_holds_satisfies(node: NamespaceNode) -> None:
    node.ip(
        [
            "rule add priority 700 to 10.0.1.5 lookup main protocol kernel",
            "route add 10.0.1.1 dev eth1 table 1003 protocol kernel",
            "route add default via 10.0.1.1 dev eth1 table 1003 mtu 1400 protocol kernel",
        ]
    )
    before = node.snapshot()
    result = run(node, rules=RULES[:1], routes=ROUTES[:2], permanent=False)
    assert not result["changed"]
    (rule,) = result["rules"]["satisfied_by"]
    assert rule == {"object": "ip rule 700: from all to 10.0.1.5 lookup main", "owner": "protocol kernel", "protocol": "kernel"}
    assert len(result["routes"]["satisfied_by"]) == 2
    assert not run(node, state="absent", rules=RULES[:1], routes=ROUTES[:2], permanent=False)["changed"]
    assert node.snapshot() == before


def test_what_a_cni_holds_satisfies_whether_or_not_its_gateway_is_onlink(node: NamespaceNode) -> None:
    node.ip(
        [
            "route add default via 10.0.1.1 dev eth1 table 1003",
            "route add default via 10.0.1.1 dev eth1 onlink table 1004",
        ]
    )
    before = node.snapshot()
    default = {"to": "default", "via": "10.0.1.1", "dev": "eth1"}
    routes = [{**default, "table": 1003, "onlink": True}, {**default, "table": 1004}]
    result = run(node, routes=routes, permanent=False)
    assert not result["changed"]
    assert [(one["object"], one["protocol"]) for one in result["routes"]["satisfied_by"]] == [
        ("ip route default via 10.0.1.1 dev eth1 onlink table 1003", "boot"),
        ("ip route default via 10.0.1.1 dev eth1 table 1004", "boot"),
    ]
    assert node.snapshot() == before


def test_another_meaning_under_our_key_is_refused_and_absent_works(node: NamespaceNode) -> None:
    run(node, rules=RULES[2:4])
    node.ip(["rule add priority 701 from 10.0.1.5 lookup 1009 protocol static"])
    message = refused(node, rules=RULES, routes=ROUTES)
    assert "ip rule 701: from 10.0.1.5 lookup 1009 is there and belongs to protocol static" in message
    node.ip(["rule del priority 701", "route add default via 10.0.1.9 dev eth1 table 1003 protocol bird"])
    assert "belongs to protocol bird. Nothing was changed. Choose another metric or table" in refused(node, routes=ROUTES)
    assert run(node, state="absent")["changed"]


@pytest.mark.parametrize("options", [{"rules": []}, {"state": "absent"}], ids=["emptied", "absent"])
def test_a_rule_with_attributes_that_we_do_not_know_is_not_deleted_in_place_of_ours(
    node: NamespaceNode, options: dict[str, Any]
) -> None:
    """The rule has the collection's protocol and stands first, so that the kernel would delete it instead."""
    node.ip(["rule add priority 800 from 10.0.1.5 lookup 1003 realms 7 protocol 75"])
    before = node.snapshot()
    mine: list[dict[str, Any]] = [
        {"priority": 800, "table": 1003},
        {"priority": 800, "from": "10.0.1.5", "table": 1003},
    ]
    assert "with attributes that this collection cannot read: realms" in refused(node, rules=mine)
    mine[1]["iif"] = "eth0"
    run(node, rules=mine)
    run(node, **options)
    run(node, state="absent")
    assert node.snapshot() == before


UNREAD = {
    "nhid": (["nexthop add id 5 via 10.0.1.9 dev eth1"], "default nhid 5", ""),
    "advmss": ([], "default via 10.0.1.9 dev eth1 advmss 1400", ""),
    "a lock": ([], "default via 10.0.1.9 dev eth1 mtu lock 1300", ""),
    "expires": ([], "default dev eth1 expires 600", "-6 "),
}


@pytest.mark.parametrize("owner", ["static", "75"])
@pytest.mark.parametrize("name", UNREAD)
def test_a_route_that_cannot_be_read_is_refused_by_name_and_never_replaced(node: NamespaceNode, name: str, owner: str) -> None:
    """The other route was added later, with the same key as the module's route."""
    lines, route, family = UNREAD[name]
    own_route = {"table": 1003, "to": "default", "via": "fe80::1" if family else "10.0.1.1", "dev": "eth1"}
    run(node, routes=[own_route], permanent=False)
    node.ip(lines)
    add = f"ip {family}route {'append' if family else 'prepend'} {route} table 1003 protocol {owner}"
    node.run(add.split())
    if family:  # the kernel keeps a route without a gateway separate
        assert len([line for line in listing(node, "route", "-6") if "table 1003" in line]) == 2
    said = refused(node, routes=[{**own_route, "mtu": 1400}], permanent=False)
    assert f"with attributes that this collection cannot read: {name} is there and belongs to protocol {owner}." in said
    assert not run(node, routes=[own_route], permanent=False)["changed"]
    run(node, state="absent", permanent=False)
    remaining = [line for line in listing(node, "route", family.strip() or "-4") if "table 1003" in line]
    assert len(remaining) == 1 and {"a lock": "lock"}.get(name, name) in remaining[0]


def test_what_another_program_appends_to_an_ipv6_route_of_ours_becomes_a_part_of_it(node: NamespaceNode) -> None:
    """As the documentation says: the kernel keeps one route with one protocol."""
    own_route = {"table": 1003, "to": "fd09::/64", "via": "fe80::1", "dev": "eth1"}
    run(node, routes=[own_route], permanent=False)
    before = node.snapshot()
    words = "fd09::/64 via fe80::2 dev eth1 table 1003 protocol static"
    node.run(["ip", "-6", "route", "append", *words.split()])
    result = run(node, routes=[own_route], permanent=False)
    (removed,) = result["routes"]["removed"]
    assert "nexthop via fe80::1 dev eth1 nexthop via fe80::2 dev eth1" in removed
    assert node.snapshot() == before


# Options that the kernel would refuse


GATEWAYS = {
    "ipv4": [
        *("192.0.2.1", "192.0.2.0", "192.0.2.255", "192.0.2.11", "10.0.1.1", "10.0.1.0", "10.0.1.254", "10.0.1.255"),
        *("255.255.255.255", "224.0.0.1", "127.0.0.1", "127.255.255.255", "240.0.0.1"),
    ],
    "ipv6": [
        *("2001:db8:0:1::11", "2001:db8:0:1::99", "2001:db8:7::1", "fe80::5", "::", "::1", "ff02::1", "@eth0", "@eth1"),
    ],
}
SOURCES = {
    "ipv4": [
        *("192.0.2.11", "10.0.1.254", "10.0.1.9", "127.0.0.1", "127.0.0.9", "10.0.1.255", "224.0.0.1"),
        *("172.16.0.5", "255.255.255.255"),
    ],
    "ipv6": ["2001:db8:0:1::11", "2001:db8:0:1::99", "::1", "fe80::5", "ff02::1", "@eth0", "@eth1"],
}


def candidates(link_local: dict[str, str]) -> Iterator[dict[str, Any]]:
    for family, to in (("ipv4", "203.0.113.0/24"), ("ipv6", "fd77::/64")):
        for table in (77, 1003, "main"):
            for dev in ("eth0", "eth1"):
                common = {"table": table, "to": to, "dev": dev}
                for via in GATEWAYS[family]:
                    address = link_local.get(via, via)
                    yield {**common, "via": address}
                    yield {**common, "via": address, "onlink": True}
                for src in SOURCES[family]:
                    yield {**common, "src": link_local.get(src, src)}


# Runs on the node: the answers of the kernel and of a plan to each entry.
JUDGE = """
import json, subprocess, sys
from ansible_collections.kubenode.datapath.plugins.module_utils._core import errors
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import policy, rt_names
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.live_policy import LivePolicy
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink

def planned(route):
    try:
        state = LivePolicy(Netlink(), policy.from_options(75, None, [route], rt_names.TABLES))
        state.plan(state.observe())
    except errors.Invalid as invalid:
        return str(invalid)
    return ""

def taken(route):
    ip = ["ip", "-6" if ":" in route["to"] else "-4", "route"]
    words = [word for key in ("table", "via", "dev", "src") if key in route for word in (key, str(route[key]))]
    words += ["onlink"] if route.get("onlink") else []
    is_taken = subprocess.run([*ip, "add", route["to"], *words], capture_output=True).returncode == 0
    if is_taken:
        subprocess.run([*ip, "delete", route["to"], "table", str(route["table"])], check=True)
    return is_taken

print(json.dumps([[route, taken(route), planned(route)] for route in json.load(sys.stdin)]))
"""


def test_planning_refuses_the_gateways_and_sources_that_the_kernel_refuses(node: NamespaceNode) -> None:
    """Each entry alone, by the kernel and in check mode."""
    node.ip(["route add 10.0.1.0/24 dev eth1 table 1003", "route add local 172.16.0.0/24 dev lo table 1003"])
    own = json.loads(node.run_from_host(["ip", "-6", "-json", "address", "show", "scope", "link"]))
    link_local = {f"@{one['ifname']}": info["local"] for one in own for info in one.get("addr_info", ()) if info}
    assert {"@eth0", "@eth1"} <= link_local.keys()
    for default in ("", "default dev eth0 metric 1"):  # with this route, every address is a neighbour
        node.ip([f"route add {default}"] if default else [])
        given = json.dumps(list(candidates(link_local)))
        path = f"PYTHONPATH={os.pathsep.join(filter(None, sys.path))}"
        judged = json.loads(node.run(["env", path, sys.executable, "-c", JUDGE], input=given).stdout)
        assert len({is_taken for _route, is_taken, _said in judged}) == 2
        assert [one for one in judged if one[1] == bool(one[2])] == []


def crowd(count: int) -> list[str]:
    owners = ("kernel", "static", "0", "bird", "76")
    lines = []
    for number in range(count // 2):
        host = f"10.{100 + number // 65536}.{number // 256 % 256}.{number % 256}"
        owner, priority = owners[number % len(owners)], (512, 700, 701, 1536)[number % 4]
        lines.append(f"rule add priority {priority} from {host} lookup {1000 + number % 8} protocol {owner}")
        lines.append(
            f"route add {host} dev eth1 table {1000 + number % 8} protocol {owners[number % 3 + 1] if owner == '0' else owner}"
        )
    return lines


def test_ten_thousand_rules_and_routes_of_others_are_not_touched(node: NamespaceNode) -> None:
    node.ip(crowd(10_000))
    before = node.snapshot()
    run(node, rules=RULES, routes=ROUTES)
    run(node, rules=OTHER_RULES, routes=OTHER_ROUTES)
    run(node, state="absent")
    assert node.snapshot() == before


CNI = """
while :; do
  for host in 1 2 3 4 5; do
    ip rule add priority 512 to 10.9.0.$host lookup main
    ip rule add priority 1536 from 10.9.0.$host lookup 1009
  done
  for host in 1 2 3 4 5; do
    ip rule del priority 512 to 10.9.0.$host lookup main || echo lost
    ip rule del priority 1536 from 10.9.0.$host lookup 1009 || echo lost
  done
done
"""


def test_a_cni_that_adds_and_deletes_its_own_meanwhile(node: NamespaceNode) -> None:
    many = [{"priority": 512, "to": f"10.8.{number // 256}.{number % 256}", "table": "main"} for number in range(500)]
    before = node.snapshot()
    node.write("/run/cni", CNI)
    node.run(["sh", "-c", "setsid sh /run/cni > /run/cni.log 2>&1 & echo $! > /run/cni.pid"])
    try:
        for _round in range(3):
            assert run(node, rules=many, routes=ROUTES, permanent=False)["rules"]["kept"] == 0
            assert not run(node, rules=many, routes=ROUTES, permanent=False)["changed"]
            run(node, state="absent", permanent=False)
    finally:
        # Also ends the current ip, which would add a rule after the others are deleted.
        node.run(
            ["sh", "-c", "group=-$(cat /run/cni.pid); kill -- $group; while kill -0 -- $group; do sleep 0.01; done 2> /dev/null"]
        )
    assert node.read("/run/cni.log") == ""
    node.run(
        [
            "sh",
            "-c",
            "for pref in 512 1536; do while ip rule del priority $pref 2>/dev/null; do :; done; done; rm /run/cni*",
        ]
    )
    assert node.snapshot() == before


# Any current and any desired state


@pytest.fixture(scope="module")
def lasting() -> Iterator[NamespaceNode]:
    with Lab("any", nodes=[Node("node1")]) as lab:
        yield with_eni(lab)


def ip_lines(rules: list[dict[str, Any]], routes: list[dict[str, Any]], owner: int) -> list[str]:
    """Lines with which another program adds the entries; the options are words of ``ip``, except these."""
    lines = []
    for rule in rules:
        entry = {key: value for key, value in rule.items() if key not in ("family", "not", "action", "goto")}
        verdict = ["goto", str(rule["goto"])] if "goto" in rule else [rule.get("action", "")]
        words = [str(word) for pair in entry.items() for word in pair]
        family = "-6" if rule["family"] == "ipv6" else "-4"
        lines.append(" ".join([family, "rule add", "not" if rule.get("not") else "", *words, *verdict, f"protocol {owner}"]))
    for route in routes:
        entry = {key: value for key, value in route.items() if key not in ("family", "type", "to")}
        words = [str(word) for pair in entry.items() for word in pair]
        family = "-6" if route["family"] == "ipv6" else "-4"
        lines.append(" ".join([family, "route add", route.get("type", ""), str(route["to"]), *words, f"protocol {owner}"]))
    return lines


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(strategies.rules, st.sampled_from((4, 75, 99))), max_size=6),
    st.lists(st.tuples(strategies.routes, st.sampled_from((4, 75, 99))), max_size=6),
    st.lists(strategies.rules, max_size=6),
    st.lists(strategies.desired_routes, max_size=6),
)
def test_any_desired_state_holds_on_any_current_state(
    lasting: NamespaceNode,
    rules: list[tuple[dict[str, Any], int]],
    routes: list[tuple[dict[str, Any], int]],
    desired_rules: list[dict[str, Any]],
    desired_routes: list[dict[str, Any]],
) -> None:
    node = lasting
    lines = [line for rule, owner in rules for line in ip_lines([rule], [], owner)]
    lines += [line for route, owner in routes for line in ip_lines([], [route], owner)]
    for line in lines:
        with contextlib.suppress(Exception):  # the kernel has an equal one
            node.run_from_host(["ip", *line.split()])
    try:
        foreign = not_ours(node)
        before = node.snapshot()
        result = node.module("policy_routes", {"rules": desired_rules, "routes": desired_routes, "permanent": False})
        if result["failed"]:
            assert {**node.snapshot(), "rules -4": 0, "rules -6": 0} == {**before, "rules -4": 0, "rules -6": 0}, result["msg"]
            assert sorted(not_ours(node)) == sorted(foreign), result["msg"]
            return
        assert not_ours(node) == foreign
        assert not run(node, rules=desired_rules, routes=desired_routes, permanent=False)["changed"]
        assert in_the_order_given(node, desired_rules, result)
        run(node, state="absent", permanent=False)
        assert not_ours(node) == foreign and own_objects(node) == []
    finally:
        node.run(["sh", "-c", SWEEP], check=False)


def in_the_order_given(node: NamespaceNode, rules: list[dict[str, Any]], result: dict[str, Any]) -> bool:
    """True if the module's rules of each priority are in the given order; foreign rules are not ordered."""
    listed = policy.from_options(75, rules, [], rt_names.TABLES).rules or ()
    satisfied = [one["object"] for one in result["rules"]["satisfied_by"]]
    own = [rule for rule in listed if str(rule) not in satisfied]
    path = f"PYTHONPATH={os.pathsep.join(filter(None, sys.path))}"
    found = json.loads(node.run(["env", path, sys.executable, "-c", LIST]).stdout)
    for place in {rule.place for rule in own}:
        of_place = [rule for rule in own if rule.place == place]
        names = [str(rule) for rule in of_place]
        there = [one for one in found if one in names]
        if there != names and (sorted(there) != sorted(names) or rule_order.counts(of_place)):
            return False
    return len(found) == len(own)


# Runs on the node: the module's rules, as the collection's reader names them.
LIST = """
import json
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import Netlink

print(json.dumps([str(rule) for rule, protocol in Netlink().rules() if protocol == 75]))
"""
SWEEP = """
for family in -4 -6; do
  for owner in 4 75 99; do ip $family rule flush protocol $owner; done
  for table in 1003 1004; do ip $family route flush table $table; done
done
"""


def listed(node: NamespaceNode) -> list[str]:
    return [line for what in ("rule", "route") for family in ("-4", "-6") for line in listing(node, what, family)]


def own_objects(node: NamespaceNode) -> list[str]:
    return [line for line in listed(node) if re.search(r"\bproto 75\b", line)]


def not_ours(node: NamespaceNode) -> list[str]:
    return [line for line in listed(node) if not re.search(r"\bproto 75\b", line)]


# Bad input


def test_warns_of_what_a_cni_uses_otherwise(node: NamespaceNode) -> None:
    result = run(node, rules=[{"priority": 1536, "to": "10.0.1.5", "table": "main"}], check=True)
    assert "amazon-vpc-cni (from a pod lookup its interface's table)" in json.dumps(result["warnings"])
    assert not run(node, rules=RULES, routes=ROUTES, check=True).get("warnings")


# Through ansible-playbook, on a node without pyroute2


@pytest.fixture
def play(lab: Lab, tmp_path: Path) -> Callable[..., int]:
    """Runs one task, and returns the number of changes."""
    inventory = lab.write_inventory(tmp_path / "inventory.json")

    def run_play(*arguments: str, **options: Any) -> int:
        tasks = playbook.write(tmp_path / "play.json", [{"kubenode.datapath.policy_routes": options}])
        return playbook.play(inventory, tasks, *arguments).well().changed

    return run_play


def libraries(node: NamespaceNode) -> list[str]:
    """The libraries that were carried to the node, beside the program."""
    words = ["-mindepth", "1", "-maxdepth", "1", "-name", "pyroute2-*", "-printf", "%f %m %U %T@\n"]
    return node.run(["find", LIBRARY, *words], check=False).stdout.splitlines()


def test_pyroute2_is_carried_once_where_it_is_needed_and_goes_with_the_last_set(
    node: NamespaceNode, play: Callable[..., int]
) -> None:
    if node.run(["/usr/bin/python3", "-c", "import pyroute2"], check=False).returncode == 0:
        pytest.skip("this machine's /usr/bin/python3 has a pyroute2 of its own")
    clean = node.snapshot()
    desired = {"rules": RULES, "routes": ROUTES}
    assert play(state="absent") == 0 and play(rules=[]) == 0 and libraries(node) == []
    assert play("--check", **desired) == 1 and node.snapshot() == clean
    assert play(**desired) == 1
    (carried,) = libraries(node)
    assert re.match(r"pyroute2-[0-9.]+-[0-9a-f]{16} 700 0 ", carried)
    assert play(**desired) == 0
    assert play(rules=RULES[:1]) == 1 and play(rules=RULES[:1], protocol=76) == 1
    assert libraries(node) == [carried]
    assert boot(node).returncode == 0
    assert play(state="absent") == 1 and libraries(node) == [carried]
    assert play(state="absent", protocol=76) == 1 and play(state="absent", protocol=76) == 0
    assert node.snapshot() == clean


def test_check_mode_fails_where_the_run_could_not_bring_pyroute2(lab: Lab, node: NamespaceNode, tmp_path: Path) -> None:
    if node.run(["/usr/bin/python3", "-c", "import pyroute2"], check=False).returncode == 0:
        pytest.skip("this machine's /usr/bin/python3 has a pyroute2 of its own")
    inventory = lab.write_inventory(tmp_path / "inventory.json")
    clean = node.snapshot()
    for options in ({"rules": RULES, "routes": ROUTES}, {"rules": RULES[:1], "permanent": False}):
        tasks = playbook.write(tmp_path / "play.json", [{"kubenode.datapath.policy_routes": options}])
        for arguments in (["--check"], []):
            failed = playbook.play(inventory, tasks, *arguments, environment=playbook.without_library(tmp_path, "pyroute2"))
            assert failed.failed and "pyroute2 is needed on the node for this change" in failed.output, failed.output
            assert node.snapshot() == clean


def test_a_library_that_could_not_be_unpacked_leaves_nothing(node: NamespaceNode, play: Callable[..., int]) -> None:
    clean = node.snapshot()
    with (
        node.replace_program("/usr/bin/tar", "#!/bin/sh\nexit 1\n"),
        pytest.raises(AssertionError, match="could not be unpacked on the node"),
    ):
        play(rules=RULES[:2])
    assert node.snapshot() == clean


def test_an_image_is_given_what_its_first_boot_needs(node: NamespaceNode, play: Callable[..., int]) -> None:
    assert play(rules=RULES[:2], immediate=False) == 1
    assert boot(node).returncode == 0
    assert play(rules=RULES[:2]) == 0


def test_a_library_that_others_could_have_written_is_not_used(node: NamespaceNode, play: Callable[..., int]) -> None:
    node.run(["mkdir", "-p", f"{LIBRARY}/pyroute2-99.0-0123456789abcdef/pyroute2"])
    node.run(["chmod", "0777", f"{LIBRARY}/pyroute2-99.0-0123456789abcdef"])
    assert play(rules=RULES[:2]) == 1
    assert len(libraries(node)) == 2


def test_what_only_the_next_boot_forgot_can_be_undone_now(lab: Lab) -> None:
    """The record has outlived the listener, so that either plane could remove the record."""
    node: NamespaceNode = lab.node("node1")
    before, steps = node.snapshot(), Steps(node, "policy_routes")
    steps.run(rules=RULES[:1])
    steps.run(state="absent", immediate=False)
    assert node.exists(RECORD)
    steps.four(state="absent")
    assert node.snapshot() == before


@pytest.mark.parametrize("damaged", [PATH, RECORD])
@pytest.mark.parametrize("remaining", [-20, 0], ids=["cut off", "empty"])
def test_a_list_that_cannot_be_read_is_not_forgotten(lab: Lab, damaged: str, remaining: int) -> None:
    node: NamespaceNode = lab.node("node1")
    before, steps = node.snapshot(), Steps(node, "policy_routes", {"rules": RULES[:1]})
    blackhole = {"table": 1003, "to": "10.8.0.0/16", "type": "blackhole"}
    steps.run(routes=[blackhole])
    whole = node.read(damaged)
    node.write(damaged, whole[:remaining])
    for state in ("present", "absent"):
        assert f"{damaged}, which keeps " in steps.refused(state=state)
    steps.run(routes=[blackhole])
    assert node.read(damaged) == whole
    node.write(damaged, whole[:remaining])
    steps.four(state="absent", rules=None)
    assert node.snapshot() == before
