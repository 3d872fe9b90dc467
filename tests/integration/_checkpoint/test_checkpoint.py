# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change under a checkpoint, by ssh over the network that is changed: rolled back or confirmed, whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _connection_watch
from lab import Lab, Node, adhoc, netlink_recorder
from lab.container import SystemdNode
from lab.controller import SSH_PACKAGES, Controller
from lab.node import ClusterNode, NamespaceNode

FOLDER = "/run/kubenode-checkpoint"
ONCE = "/run/once"
COMMAND, ARMED, OUTCOME = f"{FOLDER}/rollback", f"{FOLDER}/armed.json", f"{FOLDER}/outcome.json"
GATE, AT_GATE = "/run/lab/go", "/run/lab/waits"
CONNECTED, CONFIRMED = "/run/lab/connected", "/run/lab/confirmed"
WAIT_AT_GATE = f"touch {AT_GATE}; until test -e {GATE}; do sleep 0.05; done"
ENDS = 20.0  # seconds after the deadline within which a play ends
LATE = 2.0  # seconds after the deadline within which a node is rolled back

# This rule blocks the node's replies to the controller.
CUTTING: dict[str, Any] = {"rules": [{"priority": 700, "to": "192.0.2.1", "action": "blackhole"}]}
HARMLESS: dict[str, Any] = {"rules": [{"priority": 700, "to": "203.0.113.1", "action": "blackhole"}]}
FOREIGN = "699:\tfrom 203.0.113.9 lookup main proto static"


def task(module: str = "policy_routes", **options: Any) -> dict[str, Any]:
    return {f"kubenode.datapath.{module}": options}


def wait_until(condition: Callable[[], Any], condition_name: str, limit: float = 60.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"not after {limit:g} s: {condition_name}"
        time.sleep(0.01)


def is_there(node: ClusterNode, path: str) -> bool:
    """True if the node has the path; starts no process on the node."""
    return Path(f"/proc/{node.pid}/root{path}").exists()


def wait_for(node: ClusterNode, path: str) -> None:
    wait_until(lambda: is_there(node, path), f"{path} on {node.name}")


def report(node: ClusterNode) -> dict[str, Any]:
    """Waits for a roll-back, and returns its report."""
    wait_until(lambda: is_there(node, OUTCOME) and "RolledBack" in node.read(OUTCOME), f"{node.name} is rolled back")
    wait_until(lambda: not is_there(node, ARMED), f"{node.name} is not armed")
    ((_kind, content),) = json.loads(node.read(OUTCOME).rstrip("\0")).items()
    return dict(content)


def state(node: ClusterNode) -> dict[str, Any]:
    """The node's state, without the report of a roll-back, which stays until the next checkpoint."""
    found = node.snapshot()
    files = {path: what for path, what in found["files"].items() if not path.startswith(FOLDER)}
    return {**found, "files": files}


def rules(node: ClusterNode) -> list[str]:
    return [line.rstrip() for line in node.run(["ip", "rule"]).stdout.splitlines()]


def watchdogs(node: ClusterNode) -> list[str]:
    """Processes that wait for a deadline on this node."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if f"{FOLDER}/rollback.pyz" in words and os.path.samefile(process / "ns/net", f"/proc/{node.pid}/ns/net"):
                found.append(" ".join(words))
    return found


def commands_like(words: str) -> list[str]:
    """Processes of this machine with these words in their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            found += [line] if words in line else []
    return found


@contextlib.contextmanager
def fleet(folder: Path, count: int = 1) -> Iterator[Controller]:
    with Lab("checkpoint", nodes=[Node(f"node{number}") for number in range(count)]) as lab:
        yield Controller(lab.load_balancer, folder, lab.nodes)


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """One node of namespaces, and the controller that reaches the node by ssh."""
    with fleet(tmp_path) as one:
        yield one


@pytest.mark.alone
@pytest.mark.parametrize("count", sampled([6, 20], lambda count: count < 20))
def test_changes_that_cut_the_controller_off_are_rolled_back_in_time(tmp_path: Path, count: int) -> None:
    with fleet(tmp_path, count) as controller:
        before = [state(node) for node in controller.nodes]
        play = controller.start([task(**CUTTING, checkpoint=10)], strategy="free")
        coming = list(controller.nodes)

        def add_another_rule_where_it_is_armed() -> bool:
            for node in [node for node in coming if is_there(node, ARMED)]:
                node.ip(["rule add from 203.0.113.9 lookup main priority 699 protocol static"])
                coming.remove(node)
            return not coming

        wait_until(add_another_rule_where_it_is_armed, "armed everywhere", limit=240)
        reports = [report(node) for node in controller.nodes]
        assert [FOREIGN in rules(node) for node in controller.nodes] == [True] * count
        for node in controller.nodes:
            node.ip(["rule delete priority 699"])
        assert [state(node) for node in controller.nodes] == before
        # All nodes share this machine's processors, so that the last ones wait for the others.
        lateness = sorted(told["at"] - told["since"] - 10 for told in reports)
        assert lateness[count // 2] < LATE and lateness[-1] < 3 * LATE, lateness
        for result in controller.results(play).values():
            assert result["failed"]
            assert result["msg"].startswith("policy_routes: the change of policy_routes from 192.0.2.1 was rolled back at ")
            assert "as it was not confirmed over a new connection within 10 s; 3 steps undone." in result["msg"]
        assert [watchdogs(node) for node in controller.nodes] == [[]] * count


def test_a_harmless_change_is_confirmed_and_then_written_for_the_next_boot(tmp_path: Path) -> None:
    """One diff, the same as in check mode; a second connection; and a converged run is one execution without a checkpoint."""
    with fleet(tmp_path, 2) as controller:
        before = [state(node) for node in controller.nodes]
        first, second = "/run/lab/first", "/run/lab/second"
        options: dict[str, Any] = {
            **HARMLESS,
            "checkpoint": "20",
            "checkpoint_command": f"echo $SSH_CONNECTION > {second}",
        }
        predicted = controller.play([task(**options)], "--check", "--diff")
        assert [state(node) for node in controller.nodes] == before
        connect = {"ansible.builtin.raw": f"echo $SSH_CONNECTION > {first}"}
        played = controller.play([connect, task(**options)], "--diff", strategy="free")
        for node in controller.nodes:
            result = played[node.name]
            assert (result["failed"], result["changed"]) == (False, True), result
            assert [result[key] for key in ("diff", "rules")] == [predicted[node.name][key] for key in ("diff", "rules")]
            assert [entry["before_header"].split(":")[0] for entry in result["diff"]] == ["immediate", "permanent"]
            connections = [node.read(path).split() for path in (first, second)]
            assert [len(connection) for connection in connections] == [4, 4] and connections[0] != connections[1]
            assert node.exists("/etc/kubenode/policy-routes-75.json") and not node.exists(FOLDER)
            assert watchdogs(node) == []
            node.remove(second)

        play = controller.start([task(**options)], "-vvvv", "--limit=node0")
        said, _nothing = play.communicate(timeout=60)
        # On a busy machine the run may take so long that the action also asks the node, over a separate connection.
        executions = [line for line in said.splitlines() if "SSH: EXEC" in line and "ControlPath=none" not in line]
        assert "changed=0" in said and len(executions) == 1, said
        assert not controller.nodes[0].exists(second) and not controller.nodes[0].exists(FOLDER)

        options = {"state": "absent", "checkpoint": 20}
        undone = controller.play([task(**options)], "--diff", variables={"ansible_pipelining": False})
        assert [result["changed"] for result in undone.values()] == [True, True]
        assert [state(node) for node in controller.nodes] == before


LOCAL = (
    {"priority": 700, "to": "192.0.2.1", "table": 1003},
    {"table": 1003, "to": "192.0.2.1", "type": "local", "dev": "lo"},
)
SILENCING = {  # the node takes the controller's address for one of its own, and so resets its end of each connection
    "a local route": task("policy_routes", rules=[LOCAL[0]], routes=[LOCAL[1]], checkpoint=10),
    "an address": task("link_addresses", addresses=[{"dev": "eth0", "address": "192.0.2.1"}], checkpoint=10),
}


@pytest.mark.parametrize(
    "ssh_args",
    sampled(["", "-o ControlMaster=no"], lambda ssh_args: not ssh_args),
    ids=["shared connection", "a connection each"],
)
@pytest.mark.parametrize("silencing", SILENCING.values(), ids=SILENCING.keys())
def test_a_play_ends_soon_after_the_deadline_where_the_module_s_own_connection_died_without_a_word(
    controller: Controller, silencing: dict[str, Any], ssh_args: str
) -> None:
    (node,) = controller.nodes
    before = state(node)
    variables = {"ansible_ssh_args": f"{ssh_args} -o UserKnownHostsFile=/dev/null"} if ssh_args else None
    play = controller.start([silencing], variables=variables)
    told = report(node)
    (result,) = controller.results(play, timeout=ENDS).values()
    print("ended", round(time.time() - told["since"] - 10, 1), "s after the deadline")
    assert time.time() - told["since"] - 10 < ENDS
    assert result["failed"] and "as it was not confirmed over a new connection within 10 s" in result["msg"], result
    assert state(node) == before


def test_strict_filtering_where_the_controller_arrives_is_rolled_back(controller: Controller) -> None:
    """The controller's packets come in by eth0, and the node answers by eth1; ssh's master connection is closed meanwhile."""
    (node,) = controller.nodes
    front = controller.machine
    front.ip([f"link add eth1 type veth peer name eth1 netns {node.pid}", "link set eth1 up"])
    node.ip(["link set eth1 up", "route add 192.0.2.1 dev eth1"])
    front.set_sysctls({"net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.eth1.rp_filter": 0})
    before = state(node)
    alive = {"ansible_ssh_common_args": "-o ServerAliveInterval=1 -o ServerAliveCountMax=2"}
    strict = task("rp_filter", interfaces=["eth0"], mode="strict", checkpoint=6)
    (result,) = controller.play([strict], variables=alive).values()
    assert result["failed"] and "rp_filter from 192.0.2.1 was rolled back" in result["msg"], result
    assert state(node) == before


def test_a_command_that_fails_or_hangs_takes_the_change_back(tmp_path: Path) -> None:
    commands = {"node0": "echo no pods; exit 3", "node1": "sleep 60"}
    reasons = {"node0": "answered 3: no pods", "node1": "did not end in time"}
    with fleet(tmp_path, 2) as controller:
        before = [state(node) for node in controller.nodes]
        command = "{{ %s[inventory_hostname] }}" % json.dumps(commands)
        results = controller.play([task(**HARMLESS, checkpoint=6, checkpoint_command=command)])
        for name, result in results.items():
            expected = f"as checkpoint_command, {commands[name]!r}, {reasons[name]}; 3 steps undone."
            assert result["failed"] and expected in result["msg"], result
        assert [state(node) for node in controller.nodes] == before
        assert [watchdogs(node) for node in controller.nodes] == [[], []]


@pytest.mark.thorough
def test_a_controller_that_is_killed_at_any_point_leaves_a_node_that_is_itself_or_confirmed(tmp_path: Path) -> None:
    """Before and while armed, during the command, which goes on and confirms, and before the module's second run."""
    points: list[tuple[str, Callable[[ClusterNode], bool]]] = [
        ("early", lambda node: is_there(node, CONNECTED)),
        ("armed", lambda node: is_there(node, ARMED)),
        ("asked", lambda node: is_there(node, AT_GATE)),
        ("confirmed", lambda node: is_there(node, CONFIRMED)),
    ]
    with fleet(tmp_path, len(points)) as controller:
        before = state(controller.nodes[0])
        for (name, is_reached), node in zip(points, controller.nodes, strict=True):
            command = {"asked": WAIT_AT_GATE, "confirmed": f"touch {CONFIRMED}"}.get(name, "true")
            connect = {"ansible.builtin.raw": f"touch {CONNECTED}"}
            play = controller.start(
                [connect, task(**HARMLESS, checkpoint=6, checkpoint_command=command)], f"--limit={node.name}", name=name
            )
            wait_until(partial(is_reached, node), f"{name} on {node.name}")
            controller.kill(play, name)
            node.write(GATE, "")
        for node in controller.nodes:
            wait_until(partial(lambda node: not is_there(node, ARMED), node), f"{node.name} is not armed")
        report(controller.nodes[1])
        for node in controller.nodes[:2]:
            assert state(node)["rules -4"] == before["rules -4"]
        results = controller.play([task(**HARMLESS, checkpoint=20)])
        assert not any(result["failed"] for result in results.values()), results
        assert all(node.exists("/etc/kubenode/policy-routes-75.json") for node in controller.nodes)
        assert {node.exists(FOLDER) for node in controller.nodes} == {False}


def test_of_two_controllers_the_second_is_refused(controller: Controller) -> None:
    (node,) = controller.nodes
    first = controller.start([task(**HARMLESS, checkpoint=60, checkpoint_command=WAIT_AT_GATE)], name="first")
    wait_for(node, AT_GATE)
    refused = "the checkpoint of policy_routes from 192.0.2.1, armed at 20"
    (result,) = controller.play([task(rules=[], checkpoint=20)], name="second").values()
    assert result["failed"] and refused in result["msg"] and "Nothing was changed" in result["msg"], result
    others = {"rp_filter": {"interfaces": ["eth0"], "mode": "loose"}, "nftables_probe_snat": {}}
    for module, options in others.items():
        assert refused in node.module(module, options)["msg"]
        assert not node.module(module, options, check=True)["failed"]
    node.write(GATE, "")
    (result,) = controller.results(first, "first").values()
    assert not result["failed"], result
    assert not any(node.module(module, options)["failed"] for module, options in others.items())


@pytest.mark.alone
def test_a_node_that_runs_systemd_has_a_scope_and_loses_the_change_with_a_reboot(tmp_path: Path) -> None:
    with Lab("checkpoint", nodes=[Node("node1", system="bookworm", besides=SSH_PACKAGES)]) as lab:
        node = lab.node("node1")
        controller = Controller(lab.load_balancer, tmp_path, lab.nodes)
        scopes = ["systemctl", "list-units", "--all", "--no-legend", "--plain", "kubenode-checkpoint-*"]
        before = state(node)
        play = controller.start(
            [task("rp_filter", interfaces=["eth0"], mode="loose", checkpoint=5, checkpoint_command="sleep 60")]
        )
        wait_for(node, ARMED)
        unit = node.run(scopes).stdout.splitlines()[-1]
        assert re.match(r"kubenode-checkpoint-[0-9a-f]{8}\.scope +loaded +active +running", unit)
        told = report(node)
        assert told["at"] - told["since"] < 5 + LATE
        (result,) = controller.results(play).values()
        assert result["failed"] and "was rolled back at" in result["msg"], result
        assert state(node) == before
        wait_until(lambda: node.run(scopes).stdout == "", "the scope is gone", limit=10)
        assert "was rolled back at" in node.run(["journalctl", "--identifier=kubenode-checkpoint"]).stdout

        armed = task("rp_filter", interfaces=["eth0"], mode="loose", checkpoint=60, checkpoint_command="sleep 50")
        play = controller.start([armed])
        wait_for(node, ARMED)
        node.reboot()
        (result,) = controller.results(play).values()
        assert result["failed"] and "the node was restarted before the change was confirmed" in result["msg"], result
        assert state(node) == before
        wait_until(lambda: node.run(scopes).stdout == "", "the scope is gone", limit=10)

        lost_without_a_word(controller, node)
        assert state(node) == before

        (result,) = controller.play([task("rp_filter", interfaces=["eth0"], mode="loose", checkpoint=30)]).values()
        assert (result["failed"], result["changed"]) == (False, True), result
        assert node.exists("/etc/sysctl.d/90-kubenode-rp-filter.conf") and node.run(scopes).stdout == ""


def lost_without_a_word(controller: Controller, node: ClusterNode) -> None:
    """The node is reset while the module runs. Its link is down before, so the controller gets no packet about the reset."""
    node.run(["mv", "/usr/sbin/nft", "/usr/sbin/nft.real"])
    node.write("/usr/sbin/nft", HANGS.replace("@REAL@", "/usr/sbin/nft.real").replace("/run/lab/once", ONCE), 0o755)
    connmark = task("nftables_connmark", primary_interface="eth0", pod_interfaces=["veth*"], checkpoint=120)
    play = controller.start([connmark])
    wait_for(node, ONCE)
    time.sleep(5)
    controller.machine.ip([f"link set {node.place.port} down"])
    assert isinstance(node, SystemdNode)
    node.reboot()
    booted = time.monotonic()
    (result,) = controller.results(play, timeout=60).values()
    print("ended", round(time.monotonic() - booted, 1), "s after the boot")
    assert time.monotonic() - booted < ENDS
    assert result["failed"] and "the node was restarted while the module ran" in result["msg"], result
    node.run(["mv", "/usr/sbin/nft.real", "/usr/sbin/nft"])


# On the node alone


def arm(node: NamespaceNode, name: str = "policy_routes", **options: Any) -> dict[str, Any]:
    result = node.module(name, {"checkpoint": 5, **options})
    assert not result["failed"] and result["checkpoint_armed"], result
    return result


def ask(node: ClusterNode, *words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(node.run(["sh", COMMAND, *words]).stdout)
    return answer


def test_both_sides_tell_one_life_of_the_node_from_another_alike(node: NamespaceNode) -> None:
    told = node.run(["sh", "-c", "; ".join(_connection_watch.BOOT_IDENTITY)]).stdout.split()
    assert len(told) == 3 and arm(node, **HARMLESS)["checkpoint_armed"]["life"].split() == told


def test_over_a_connection_that_proves_nothing_the_user_is_told_or_names_a_command(node: NamespaceNode) -> None:
    def run(**options: Any) -> dict[str, Any]:
        desired = {"interfaces": ["eth0"], "mode": "loose", "checkpoint": 20, **options}
        return adhoc.run(node, "kubenode.datapath.rp_filter", desired, check=False, diff=True, timeout=120)

    before = state(node)
    failed = run(checkpoint_command="false")
    assert failed["failed"] and "as checkpoint_command, 'false', answered 1" in failed["msg"]
    assert state(node) == before
    confirmed = run(checkpoint_command="test -e /run/kubenode-checkpoint/armed.json")
    assert confirmed["changed"] and "warnings" not in confirmed and len(confirmed["diff"]) == 2
    assert not run()["changed"] and not node.exists(FOLDER)
    unprotected = run(mode="strict")
    assert unprotected["changed"] and not node.exists(FOLDER)
    assert "without a checkpoint: connection lab_node does not go through the node's network" in str(unprotected["warnings"])
    invalid = run(checkpoint=4, mode="loose")
    assert "checkpoint must be 0 for none, or from 5 to 3600 seconds; 4 was given" in invalid["msg"]


def test_a_command_ends_with_its_shell_and_not_with_what_that_leaves_in_the_background(node: NamespaceNode) -> None:
    identity = arm(node, **HARMLESS)["checkpoint_armed"]["id"]
    assert ask(node, "confirm", identity, "sleep 30 & true")["state"] == "confirmed"
    assert any(line.startswith("700:") for line in rules(node)) and not node.exists(FOLDER)


def test_a_command_that_does_not_end_in_time_is_killed_with_all_that_it_started(node: NamespaceNode) -> None:
    identity, hanging = arm(node, **HARMLESS)["checkpoint_armed"]["id"], "sleep 4321.5"
    answer = ask(node, "confirm", identity, f"{hanging} & {hanging}; true")
    assert answer["state"] == "rolled back" and "did not end in time" in answer["told"]
    assert commands_like(hanging) == []


def test_an_asynchronous_task_is_refused_before_anything_is_changed(controller: Controller) -> None:
    (node,) = controller.nodes
    before = state(node)
    (result,) = controller.play([{**task(**HARMLESS, checkpoint=20), "async": 60, "poll": 1}]).values()
    assert result["failed"] and "does not support async" in result["msg"]
    assert state(node) == before and not node.exists(FOLDER)


def test_what_others_have_changed_meanwhile_stays_and_is_said(lab: Lab) -> None:
    first, second = lab.node("node1"), lab.node("node2")
    route = {"table": 1003, "to": "203.0.113.0/24", "dev": "eth0"}
    assert not first.module("policy_routes", {"routes": [{**route, "metric": 1}, {**route, "metric": 2}]})["failed"]
    before = [line for line in state(first)["routes -4"] if "table 1003" in line]
    routes = [{**route, "metric": 1, "mtu": 1400}, {**route, "metric": 2, "mtu": 1400}, {**route, "metric": 3}]
    arm(first, routes=routes)
    first.ip(["route change 203.0.113.0/24 dev eth0 table 1003 metric 1 mtu 1300 protocol static"])
    arm(second, "rp_filter", interfaces=["eth0", "lo*", "veth*"], mode="loose")
    second.set_sysctls({"net.ipv4.conf.eth0.rp_filter": 1})
    reports = [report(one) for one in (first, second)]
    assert "metric 1 mtu 1300 (protocol static)" in reports[0]["left"][0]
    after = [line for line in state(first)["routes -4"] if "table 1003" in line]
    assert len(after) == 2 and after[1] == before[1] and "mtu 1300" in after[0]
    assert reports[1]["left"] == ["net.ipv4.conf.eth0.rp_filter is 1"] and "failed" not in reports[1]
    assert second.read("/proc/sys/net/ipv4/conf/eth0/rp_filter") == "1\n"
    assert ask(second, "status")["state"] == "rolled back"


def test_a_former_table_comes_back(node: NamespaceNode) -> None:
    desired = {"primary_interface": "eth0", "pod_interfaces": ["veth*"]}
    node.run(["nft", "add", "table", "ip", "theirs"])
    assert node.module("nftables_connmark", desired)["changed"]
    before = state(node)
    arm(node, "nftables_connmark", **desired, mark="0x100", strict=True)
    assert state(node)["nft"] != before["nft"]
    assert ask(node, "rollback")["state"] == "rolled back"
    assert state(node) == before and watchdogs(node) == []


SEND = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.bind(("10.0.1.254", 0))
sender.sendto(b"x", ("198.51.100.9", 9))
"""


def leaves_by_eth1(node: NamespaceNode) -> bool:
    """Whether a packet leaves by eth1. The node sends no other packet there, because eth1 has no IPv6."""

    def sent() -> int:
        (link,) = json.loads(node.run(["ip", "-json", "-statistics", "link", "show", "eth1"]).stdout)
        return int(link["stats64"]["tx"]["packets"])

    before = sent()
    result = node.run(["python3", "-c", SEND], check=False)
    return result.returncode == 0 and sent() == before + 1


@pytest.mark.parametrize("desired", [{"rules": []}, {"state": "absent"}], ids=["emptied", "absent"])
def test_a_roll_back_gives_rules_of_one_priority_their_order_back_and_packets_their_way(
    node: NamespaceNode, desired: dict[str, Any]
) -> None:
    overlapping = [
        {"priority": 700, "from": "10.0.1.254", "table": 1003},
        {"priority": 700, "to": "198.51.100.0/24", "action": "prohibit"},
        {"priority": 700, "from": "10.0.0.0/8", "action": "blackhole"},
    ]
    node.ip(["link add eth1 type veth peer name eni1"])
    node.set_sysctls({"net.ipv6.conf.eth1.disable_ipv6": 1})
    node.ip(["link set eth1 up", "link set eni1 up", "address add 10.0.1.254/24 dev eth1"])
    node.ip(["neigh add 10.0.1.1 lladdr 02:00:00:00:00:01 dev eth1 nud permanent"])
    route = [{"table": 1003, "to": "default", "via": "10.0.1.1", "dev": "eth1"}]
    assert not node.module("policy_routes", {"rules": overlapping, "routes": route})["failed"]
    assert leaves_by_eth1(node)
    before = rules(node)
    arm(node, **desired)
    assert rules(node) != before and not leaves_by_eth1(node)
    told = report(node)
    assert rules(node) == before and leaves_by_eth1(node)
    assert "failed" not in told and "left" not in told
    assert not node.module("policy_routes", {"rules": overlapping, "routes": route})["changed"]


OVERLAPPING = [
    {"priority": 700, "from": "10.0.1.254", "table": 1003},
    {"priority": 700, "to": "198.51.100.0/24", "action": "prohibit"},
]


def profile(remedy: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """A profile of all kinds of changes, and the networkd settings that come before the checkpoint is armed."""
    return {
        "mode": "runtime",
        "modules": [
            {"network_daemons": {}},
            {"rp_filter": {"interfaces": ["eth0"], "mode": remedy}},
            {"link_addresses": {"addresses": [{"dev": "eth0", "address": "10.0.1.254"}]}},
            {"policy_routes": {"rules": rules, "routes": []}},
            {"nftables_connmark": {"primary_interface": "eth0", "pod_interfaces": ["veth*"], "strict": True}},
            {"nftables_probe_snat": {}},
        ],
    }


@pytest.mark.parametrize("start", sampled(["clean", "converged", "absent"], lambda start: start == "converged"))
def test_a_profile_that_is_not_confirmed_is_undone_as_a_whole(node: NamespaceNode, start: str) -> None:
    desired = profile("strict", OVERLAPPING[::-1])
    if start != "clean":
        result = node.module("profile", profile("loose", OVERLAPPING))
        assert not result["failed"], result
    before = state(node)
    arm(node, "profile", **({**desired, "state": "absent"} if start == "absent" else desired))
    assert state(node) != before
    told = report(node)
    assert state(node) == before and "failed" not in told and "left" not in told, told
    again = node.module("profile", desired)
    assert again["changed"] and not again["failed"]


@pytest.mark.each_core
def test_a_profile_that_is_confirmed_is_one_result(controller: Controller) -> None:
    (node,) = controller.nodes
    desired = {**profile("loose", OVERLAPPING), "checkpoint": 20}
    before = state(node)
    predicted = controller.play([task("profile", **desired)], "--check", "--diff")[node.name]
    result = controller.play([task("profile", **desired)], "--diff")[node.name]
    assert (result["failed"], result["changed"]) == (False, True), result
    assert result["diff"] == predicted["diff"]
    assert node.exists("/etc/kubenode/return-path.nft") and not node.exists(FOLDER)
    again = controller.play([task("profile", **desired)])[node.name]
    assert (again["failed"], again["changed"]) == (False, False), again
    undone = controller.play([task("profile", **desired, state="absent")])[node.name]
    assert undone["changed"] and state(node) == before


def test_what_reads_back_otherwise_after_a_roll_back_is_reported_and_not_counted(node: NamespaceNode) -> None:
    """Another program has added a rule with the same protocol. The restored rule can only be added behind that rule."""
    wide = {"priority": 700, "from": "10.0.0.0/8", "table": 1003}
    assert not node.module("policy_routes", {"rules": [wide], "permanent": False})["failed"]
    node.ip(["rule add priority 700 from 10.0.1.0/24 prohibit protocol static"])
    arm(node, rules=[], permanent=False)
    told = report(node)
    (failed,) = told["failed"]
    assert "ip rule 700: from 10.0.0.0/8 lookup 1003 stands behind ip rule 700: from 10.0.1.0/24 prohibit" in failed
    assert "(protocol static) now, but came before it earlier" in failed
    assert [line for line in rules(node) if line.startswith("700:")] == [
        "700:\tfrom 10.0.1.0/24 prohibit proto static",
        "700:\tfrom 10.0.0.0/8 lookup 1003 proto 75",
    ]


def test_another_network_namespace_is_not_touched(node: NamespaceNode) -> None:
    identity = arm(node, **HARMLESS)["checkpoint_armed"]["id"]
    elsewhere = node.run(["unshare", "--net", "sh", COMMAND, "rollback", identity]).stdout
    assert json.loads(elsewhere)["state"] == "armed"
    assert len(watchdogs(node)) == 1
    report(node)
    assert not any(line.startswith("700:") for line in rules(node))


def test_the_age_of_a_roll_back_is_the_time_since_then_also_on_a_node_that_was_suspended(node: NamespaceNode) -> None:
    """In a time namespace, the clock that counts a suspended node's time is ahead, and the others are not."""
    identity = arm(node, **HARMLESS)["checkpoint_armed"]["id"]
    assert ask(node, "rollback", identity)["age"] < 5
    told = node.run(["unshare", "--time", "--boottime", "1000", "--fork", "sh", COMMAND, "status", identity]).stdout
    assert 1000 <= json.loads(told)["age"] < 1010


def test_a_node_that_was_suspended_past_the_deadline_is_rolled_back_when_it_runs_again(node: NamespaceNode) -> None:
    before = state(node)
    identity = arm(node, **HARMLESS)["checkpoint_armed"]["id"]
    ((_kind, armed),) = json.loads(node.read(ARMED)).items()
    watchdog = armed["watchdog"][0]
    os.kill(watchdog, signal.SIGSTOP)
    time.sleep(6)
    assert ask(node, "status", identity)["state"] == "armed"
    os.kill(watchdog, signal.SIGCONT)
    assert report(node)["identity"] == identity
    assert state(node) == before


HANGS = """#!/bin/sh
if [ "$*" = "-f -" ] && mkdir /run/lab/once; then
  @REAL@ "$@"
  sleep 60
fi
exec @REAL@ "$@"
"""


@pytest.mark.alone
@pytest.mark.parametrize("is_deaf", sampled([False, True], lambda is_deaf: is_deaf), ids=["ends when told", "is killed"])
def test_a_run_that_hangs_is_ended_at_the_deadline_and_rolled_back(node: NamespaceNode, is_deaf: bool) -> None:
    desired = {"primary_interface": "eth0", "pod_interfaces": ["veth*"], "strict": True, "checkpoint": 5}
    before = state(node)
    started = time.monotonic()
    assert node.module("nftables_connmark", desired, check=True)["changed"]
    usual = time.monotonic() - started  # the work before the deadline is set, and that after it, each take less
    with node.replace_program("/usr/sbin/nft", HANGS):
        started = time.monotonic()
        through = ["sh", "-c", 'trap "" TERM; exec "$@"', "sh"] if is_deaf else []
        result = node.module("nftables_connmark", desired, through=through)
        assert result["failed"] and 4.5 < time.monotonic() - started < 5 + LATE + 2 * usual + (5.5 if is_deaf else 0)
    wait_until(lambda: not is_there(node, ARMED), "not armed")
    assert state(node) == before


# $4 is the Python of the module's own command line.
WATCH = 'watcher=$1 log=$2 last=$3 python=$4; shift 4; exec "$python" "$watcher" "$log" "$last" SIGKILL "$@"'


@pytest.mark.thorough
def test_a_run_killed_at_any_message_is_rolled_back_by_the_node() -> None:
    """All runs at once, because each roll-back takes five seconds."""
    route = {"table": 1003, "dev": "eth0"}
    desired = {**HARMLESS, "routes": [{**route, "to": "203.0.113.0/24"}, {**route, "to": "198.51.100.0/24"}]}
    with Lab("killed", nodes=[Node(f"node{number}") for number in range(3)]) as lab:
        nodes: list[NamespaceNode] = [lab.node(f"node{number}") for number in range(3)]
        before = [state(node) for node in nodes]
        for number, node in enumerate(nodes, 1):
            node.write("/run/messages", "")
            through = ["sh", "-c", WATCH, "sh", netlink_recorder.__file__, "/run/messages", str(number)]
            assert node.module("policy_routes", {**desired, "checkpoint": 5}, through=through)["failed"]
            assert state(node) != before[number - 1]
            node.remove("/run/messages")
        reports = [report(node) for node in lab.nodes]
        assert [told["steps"] for told in reports] == [1, 1, 2]
        assert [state(node) for node in lab.nodes] == before


def test_a_checkpoint_that_cannot_be_read_is_refused_in_a_sentence(node: NamespaceNode) -> None:
    for number, text in enumerate(("", "{", '{"X": {}}', "{}", "[]", "null")):
        node.write(ARMED, text)
        result = node.module("policy_routes", {**HARMLESS, "checkpoint": 10 * (number % 2)})
        assert result["failed"] and f"{ARMED}, the record of a checkpoint, cannot be read" in result["msg"]
    assert "203.0.113.1" not in node.run(["ip", "rule"]).stdout
