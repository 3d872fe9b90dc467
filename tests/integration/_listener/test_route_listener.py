# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The listener of policy_routes: it restores lost rules and routes, yields to runs, and costs nothing meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._listener.change_event import DELRULE, NEWRULE
from ansible_collections.kubenode.datapath.plugins.module_utils._listener.listener_backend import Notifications
from ansible_collections.kubenode.datapath.plugins.module_utils._netlink import attributes
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import rule
from lab import Lab, Node, entering, steps
from lab.node import LOCK, NamespaceNode
from lab.waiting import until

PATH = "/etc/kubenode/policy-routes-75.json"
RECORD = "/run/kubenode/policy-routes-75.json"
ROLLBACK = "/run/kubenode-checkpoint/rollback"
SOON = 8.0  # seconds; two are promised here as well, and less than the pauses of the backoff
ENI = [
    "link add eth1 type veth peer name eni1",
    "link set eni1 up",
    "link set eth1 up",
    "address add 10.0.1.254/24 dev eth1",
    "address add 2001:db8:1::254/64 dev eth1 nodad",
]
RULES: list[dict[str, Any]] = [
    {"priority": 700, "to": "10.0.1.5", "table": "main"},
    {"priority": 701, "from": "10.0.1.5", "table": 1003},
    {"priority": 701, "from": "2001:db8:1::5", "table": 1003},
    {"priority": 690, "fwmark": "0x100000/0x100000", "table": "main"},
]
ROUTES: list[dict[str, Any]] = [
    {"table": 1003, "to": "10.0.1.1", "dev": "eth1"},
    {"table": 1003, "to": "default", "via": "10.0.1.1", "dev": "eth1"},
    {"table": 1003, "to": "default", "via": "fe80::1", "dev": "eth1"},
    {"table": 1003, "to": "10.7.0.0/16", "dev": "eth1", "src": "10.0.1.254"},
    {"table": 1003, "to": "10.8.0.0/16", "via": "10.0.1.9", "dev": "eth1"},
    {"table": 1003, "to": "10.9.0.0/16", "type": "blackhole"},
]
DESIRED: dict[str, Any] = {"rules": RULES, "routes": ROUTES}


class Listener:
    """The program as the unit starts it, on a node where no systemd does."""

    def __init__(self, node: NamespaceNode, folder: Path) -> None:
        self._node = node
        self._log = folder / "log"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, self._log.open("w") as log:
            manager.bind(str(folder / "notify"))
            manager.settimeout(10)
            self._process = subprocess.Popen(
                entering.command(node.pid, node.namespaces, self._command()), stdout=log, stderr=log, cwd="/",
                env={**entering.ENVIRONMENT, "NOTIFY_SOCKET": str(folder / "notify")},
            )  # fmt: skip
            self.said = manager.recv(4096).decode()

    def _command(self) -> list[str]:
        unit = self._node.read("/etc/systemd/system/kubenode-policy-routes-75.service")
        (command,) = re.findall("^ExecStart=(.*)$", unit, re.M)
        return [sys.executable, *command.split()[1:]]  # a Python that has pyroute2

    @property
    def log(self) -> str:
        return self._log.read_text()

    def cpu(self, of_children: bool = False) -> float:
        """CPU seconds, of the listener itself or of its children, which load."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = fields[13:15] if of_children else fields[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """KiB."""
        (resident,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        return int(resident)

    def log_count(self, text: str) -> int:
        return self.log.count(text)

    def last_lines(self) -> str:
        return f"the listener printed:\n{self.log}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def node() -> Iterator[NamespaceNode]:
    with Lab("listener", nodes=[Node("node1")]) as lab:
        node: NamespaceNode = lab.node("node1")
        node.ip(ENI)
        yield node


@contextlib.contextmanager
def listening(node: NamespaceNode, folder: Path) -> Iterator[Listener]:
    listener = Listener(node, folder)
    try:
        yield listener
    finally:
        listener.end()


@pytest.fixture
def listener(node: NamespaceNode, tmp_path: Path) -> Iterator[Listener]:
    run(node, **DESIRED)
    with listening(node, tmp_path) as listener:
        yield listener


run, _refused, four_steps = steps.of("policy_routes")


def own_objects(node: NamespaceNode) -> list[str]:
    """The collection's rules and routes, sorted: a restored rule is the last of its priority."""
    said = [
        node.run_from_host(["ip", family, *what])
        for what in (["rule"], ["route", "show", "table", "all"])
        for family in ("-4", "-6")
    ]
    return sorted(line.strip() for line in "".join(said).splitlines() if re.search(r"\bproto 75\b", line))


def test_the_first_load_does_not_wait_for_a_run_that_waits_for_it(node: NamespaceNode, tmp_path: Path) -> None:
    """Such a run holds the lock until the listener is ready."""
    run(node, **DESIRED)
    before = own_objects(node)
    node.ip([f"rule delete priority {DESIRED['rules'][0]['priority']}"])
    current = subprocess.Popen(entering.command(node.pid, node.namespaces, ["flock", "--no-fork", LOCK, "sleep", "60"]))
    try:
        until("the run holds the lock", lambda: node.exists(LOCK))
        with listening(node, tmp_path) as listener:
            assert "READY=1" in listener.said and own_objects(node) != before
            assert "a run holds the lock" in listener.log
            current.kill()
            current.wait()
            until("the listener has loaded all", lambda: own_objects(node), listener, expected=before)
    finally:
        current.kill()
        current.wait()


# Losses as shell commands, run one after the other; after each but the last, the listener reports that it waits.
LOSSES = {
    "rule deleted": ["ip rule del priority 701"],
    "rules flushed": ["for f in -4 -6; do ip $f rule flush protocol 75; done"],
    "routes flushed": ["for f in -4 -6; do ip $f route flush table 1003; done"],
    "route deleted": ["ip route del default table 1003"],
    "route replaced and given up": ["ip route replace default dev eth0 table 1003", "ip route del default dev eth0 table 1003"],
    "link down and up": ["ip link set eth1 down", "ip link set eth1 up"],
    "link replaced": ["ip link del eth1", "; ".join(f"ip {line}" for line in ENI)],
    "link replaced at once": ["ip link del eth1; " + "; ".join(f"ip {line}" for line in ENI)],
    "link renamed and back": [
        "ip link set eth1 down; ip link set eth1 name eth7; ip link set eth7 up",
        "ip link set eth7 down; ip link set eth7 name eth1; ip link set eth1 up",
    ],
    "source gone and back": ["ip address del 10.0.1.254/24 dev eth1", "ip address add 10.0.1.254/24 dev eth1"],
    "a rule of our protocol added": ["ip rule add priority 9 lookup 1003 protocol 75"],
}  # fmt: skip


@pytest.mark.parametrize("commands", LOSSES.values(), ids=LOSSES.keys())
def test_whatever_is_lost_is_back_and_a_later_run_finds_nothing_to_do(
    node: NamespaceNode, listener: Listener, commands: list[str]
) -> None:
    assert "READY=1" in listener.said and "all is in force" in listener.said
    good = own_objects(node)
    for number, command in enumerate(commands, 1):
        node.run(["sh", "-ec", command])
        if number < len(commands):
            until("the listener waits for more", lambda: "Waiting: ip" in listener.log, listener)
    until("the listener has restored all", lambda: own_objects(node), listener, expected=good)
    assert not run(node, **DESIRED)["changed"]


# The program that removed a rule, and the reaction


def test_the_one_who_took_it_is_named(node: NamespaceNode, listener: Listener) -> None:
    """A process that goes on running, as a CNI or a network daemon does."""
    command = entering.command(node.pid, entering.NETWORK_ONLY, ["ip", "-force", "-batch", "-"])
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as culprit:
        assert culprit.stdin is not None
        culprit.stdin.write("rule del priority 700\n")
        culprit.stdin.flush()
        until("the listener restores the rule", lambda: "Restored" in listener.log, listener)
        culprit.stdin.close()
    assert f"as a rule was removed by process {culprit.pid} (ip). added: ip rule 700: from all to 10.0.1.5" in listener.log


def test_a_restoration_takes_less_than_a_second_of_a_processor(node: NamespaceNode, listener: Listener) -> None:
    """The listener itself waits a twentieth of a second only, so that two seconds suffice if a processor is free."""
    before = listener.cpu(of_children=True)
    for number in range(1, 5):
        node.run(["ip", "rule", "del", "priority", "701"])
        until("the listener restores the rule", partial(listener.log_count, "Restored"), listener, expected=number)
    assert (listener.cpu(of_children=True) - before) / 4 < 1


def test_against_one_who_keeps_taking_it_the_pauses_grow_and_he_is_named(node: NamespaceNode, listener: Listener) -> None:
    taker = "while :; do ip rule del priority 700 2>/dev/null; sleep 0.01; done"
    events = node.in_network(Notifications)
    with subprocess.Popen(entering.command(node.pid, entering.NETWORK_ONLY, ["sh", "-c", taker])) as culprit:
        try:
            until("the listener names the culprit", lambda: "Restored 6 times in a row" in listener.log, listener)
        finally:
            culprit.kill()
    added = [kind for kind, _port, _when in messages(events)].count(NEWRULE)
    assert added <= 2 * listener.log_count("Restored after") + 2  # at once, and by the load
    assert "the next restoration comes after 2 s at the earliest" in listener.log
    assert re.search(r"as a rule was removed by process \d+(, which has ended| \(ip\))", listener.log)
    good = len(RULES)
    until("all rules are back", lambda: sum("lookup" in line for line in own_objects(node)), listener, expected=good)


def messages(events: Notifications) -> Iterator[tuple[int, int, float]]:
    """The kind of each message about the rules of priority 700, the port of the request, and when it came."""
    for message in filter(None, events.pending(1000)):
        _length, kind, _flags, _number, port = attributes.HEADER.unpack_from(message)
        if kind in (NEWRULE, DELRULE) and rule.priority_in(message[attributes.HEADER.size :]) == 700:
            yield kind, port, time.monotonic()


def deleted_and_back(node: NamespaceNode, events: Notifications) -> float:
    """Seconds from the deletion of a rule until it is back."""
    deleted = None
    node.ip(["rule delete priority 700"])
    while True:
        assert select.select([events], [], [], SOON)[0], "the rule is not back"
        for kind, _port, when in messages(events):
            if kind == DELRULE:
                deleted = when
            elif deleted is not None:
                return when - deleted


def test_a_deleted_rule_is_back_before_a_load_proves_it(node: NamespaceNode, listener: Listener) -> None:
    good, program = own_objects(node), f"{PATH}.pyz"
    events = node.in_network(Notifications)
    node.run(["mv", program, f"{program}.away"])  # so that no load can begin
    seconds = deleted_and_back(node, events)
    print(f"back after {seconds * 1000:.1f} ms")
    assert own_objects(node) == good
    node.run(["mv", f"{program}.away", program])
    until("a load has proved it", lambda: "added: ip rule 700" in listener.log, listener)
    assert not run(node, **DESIRED)["changed"]


def test_no_rule_is_back_that_a_run_deletes_or_that_the_record_lacks(node: NamespaceNode, listener: Listener) -> None:
    good, events = own_objects(node), node.in_network(Notifications)
    holder = subprocess.Popen(entering.command(node.pid, node.namespaces, ["flock", "--no-fork", LOCK, "sleep", "60"]))
    try:
        until("a run holds the lock", lambda: node.exists(LOCK))
        node.ip(["rule delete priority 700"])
        time.sleep(0.5)
        assert [kind for kind, _port, _when in messages(events)] == [DELRULE]
    finally:
        holder.kill()
        holder.wait()
    until("the listener has restored it", lambda: own_objects(node), listener, expected=good)
    list(messages(events))
    node.ip(["rule add priority 700 to 10.9.9.9 lookup main protocol 75", "rule delete priority 700 to 10.9.9.9"])
    time.sleep(0.5)
    assert [kind for kind, _port, _when in messages(events)] == [NEWRULE, DELRULE] and own_objects(node) == good
    assert run(node, state="absent")["changed"]
    time.sleep(0.5)
    assert own_objects(node) == []


def flap(node: NamespaceNode, listener: Listener, good: list[str]) -> float:
    """Seconds from the link's return until its routes are back."""
    node.run(["ip", "link", "set", "eth1", "down"])
    until("routes go with the link", lambda: own_objects(node) != good)
    node.run(["ip", "link", "set", "eth1", "up"])
    returned = time.monotonic()
    until("the routes are back", lambda: own_objects(node), listener, expected=good)
    return time.monotonic() - returned


@pytest.mark.alone
@pytest.mark.parametrize("flaps", sampled((4, 10), lambda flaps: flaps == 4))
def test_a_link_that_flaps_has_its_routes_back_at_once_each_time(node: NamespaceNode, listener: Listener, flaps: int) -> None:
    """No program removed the routes, so a pause would only leave pods without their routes."""
    good = own_objects(node)
    seconds = []
    for _flap in range(flaps):
        seconds.append(flap(node, listener, good))
        time.sleep(1)
    print("back after", [round(one, 2) for one in seconds])
    assert max(seconds) < SOON, seconds
    assert "in a row" not in listener.log


def test_a_link_s_return_is_not_kept_waiting_by_one_who_keeps_taking_a_rule(node: NamespaceNode, listener: Listener) -> None:
    good = own_objects(node)
    taker = "while :; do ip rule del priority 700 2>/dev/null; sleep 0.01; done"
    with subprocess.Popen(entering.command(node.pid, entering.NETWORK_ONLY, ["sh", "-c", taker])) as culprit:
        try:
            until("the listener restores the rule nine times", lambda: "Restored 9 times in a row" in listener.log, listener)
        finally:
            culprit.kill()
    assert flap(node, listener, good) < SOON  # the next removal of a rule by a program would be followed by a pause of 16 s


# Cost


def test_a_burst_of_others_rules_costs_little_and_nothing_costs_nothing(node: NamespaceNode, listener: Listener) -> None:
    assert listener.memory() < 20 * 1024
    before, lines = listener.cpu(), listener.log
    rules = [
        f"priority {512 + number % 2} from 10.{number // 65536}.{number // 256 % 256}.{number % 256}" for number in range(5000)
    ]
    for verb in ("add", "del"):
        node.ip([f"rule {verb} {rule} lookup 1003" for rule in rules])
    time.sleep(0.1)  # the listener reads its messages
    assert listener.cpu() - before < 0.5  # 10,000 messages; a tenth on a machine that does nothing else
    before = listener.cpu()
    time.sleep(2)
    assert listener.cpu() == before
    assert listener.memory() < 20 * 1024
    assert listener.log == lines


# Runs beside the listener


def test_a_run_beside_it_is_not_fought(node: NamespaceNode, listener: Listener) -> None:
    said = listener.log
    for rules in (RULES[:2], RULES, RULES[1:], RULES):
        assert run(node, rules=rules, routes=ROUTES)["changed"]
        assert not run(node, rules=rules, routes=ROUTES)["changed"]
    good = own_objects(node)
    time.sleep(1)  # the listener handles its messages
    assert own_objects(node) == good and listener.log == said


def test_what_only_the_running_kernel_shall_hold_is_held_until_the_next_boot(
    node: NamespaceNode, listener: Listener, tmp_path: Path
) -> None:
    stored = node.read(PATH)
    four_steps(node, rules=RULES[:1], permanent=False)
    assert node.read(PATH) == stored
    assert_held(node, listener)
    four_steps(node, state="absent", permanent=False)
    assert_held(node, listener)
    assert own_objects(node) == []
    four_steps(node, immediate=False, rules=RULES[:3])
    assert_held(node, listener)
    listener.end()

    node.remove(RECORD)  # as a boot does
    (tmp_path / "boot").mkdir()
    with listening(node, tmp_path / "boot"):
        assert len([line for line in own_objects(node) if "lookup" in line]) == 3
        four_steps(node, state="absent", routes=ROUTES[:1], permanent=False)
        assert not run(node, rules=RULES[:3], routes=ROUTES[1:], permanent=False)["changed"]
        assert run(node, **DESIRED)["changed"] and not run(node, **DESIRED)["changed"]


def assert_held(node: NamespaceNode, listener: Listener) -> None:
    """The listener restores the current rules and routes."""
    good = own_objects(node)
    node.run(["ip", "rule", "add", "priority", "9", "lookup", "9", "protocol", "75"])
    assert own_objects(node) != good
    until("the listener removes the rule", lambda: own_objects(node) == good, listener)


def test_a_node_without_our_unit_gets_no_record(node: NamespaceNode) -> None:
    run(node, state="absent")
    node.ip(["rule add priority 700 to 10.0.1.5 lookup main protocol kernel"])
    assert not run(node, rules=RULES[:1], permanent=False)["changed"]
    node.ip(["rule del priority 700"])
    run(node, rules=RULES, permanent=False)
    assert not node.exists(RECORD)
    run(node, state="absent")


def test_absent_leaves_nothing(node: NamespaceNode) -> None:
    run(node, state="absent")
    clean = node.snapshot()
    four_steps(node, **DESIRED)
    assert node.exists(RECORD)
    four_steps(node, state="absent")
    assert node.snapshot() == clean
    run(node, **DESIRED)
    run(node, state="absent", immediate=False)
    run(node, state="absent", permanent=False)
    assert node.snapshot() == clean


@pytest.mark.parametrize("nothing", [{"state": "absent"}, {"rules": [], "routes": []}], ids=["absent", "present with nothing"])
def test_what_goes_under_a_checkpoint_stays_away_and_is_back_when_it_is_rolled_back(
    node: NamespaceNode, listener: Listener, nothing: dict[str, Any]
) -> None:
    """Between the run and its confirmation, the boot's rules and routes and the listener are still there."""

    def answer(verb: str) -> str:
        return str(json.loads(node.run(["sh", ROLLBACK, verb]).stdout)["state"])

    good = own_objects(node)
    run(node, **nothing, checkpoint=60)
    time.sleep(1)  # the listener handles its messages
    assert own_objects(node) == [], listener.log
    assert answer("rollback") == "rolled back"
    time.sleep(1)
    assert own_objects(node) == good and not run(node, **DESIRED)["changed"]
    assert_held(node, listener)
    run(node, **nothing, checkpoint=60)
    assert answer("confirm") == "confirmed"
    assert run(node, **nothing, checkpoint=60)["changed"]
    listener.end()
    assert not node.exists(RECORD) and not node.exists(PATH) and own_objects(node) == []
    assert not run(node, **nothing, checkpoint=60)["changed"]


def test_a_set_that_foreign_objects_satisfy_is_known_to_it_although_the_run_changed_no_rule(
    node: NamespaceNode, listener: Listener
) -> None:
    rule = {"priority": 702, "from": "10.0.1.7", "table": 1003}
    node.ip(["rule add priority 702 from 10.0.1.7 lookup 1003 protocol static"])
    assert len(run(node, rules=[*RULES, rule], routes=ROUTES)["rules"]["satisfied_by"]) == 1
    time.sleep(1)
    node.ip(["rule del priority 702"])
    until("the rule is back", lambda: "10.0.1.7" in " ".join(own_objects(node)), listener)
