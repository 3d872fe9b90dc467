# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rp_filter on a real kernel: its report, pins, conf/all, foreign changes, boots and packets."""

from __future__ import annotations

import concurrent.futures
import socket
import time
from typing import Any

import pytest

from lab import Lab, steps
from lab.node import LOCK, NamespaceNode
from lab.node_conditions import ANOTHER_ROOT, BOOTED_NOW
from lab.steps import Steps, warnings

PATH = "/etc/sysctl.d/90-kubenode-rp-filter.conf"
OTHER_PATH = "/etc/sysctl.d/91-other.conf"
RECORD = "/run/kubenode/rp-filter.jsonl"
SYSTEMD_SYSCTL = "/usr/lib/systemd/systemd-sysctl"
VLAN = "eth0.100"  # by name; the kernel treats the name in the same way for every kind of link


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node = lab.node("node1")
    node.ip([f"link add {VLAN} type veth peer name eth1"])
    return node


run, refused, four_steps = steps.of("rp_filter")


def loose(node: NamespaceNode, *interfaces: str, **options: Any) -> dict[str, Any]:
    return run(node, interfaces=list(interfaces), mode="loose", **options)


def value(node: NamespaceNode, name: str) -> int:
    return int(node.read(f"/proc/sys/net/ipv4/conf/{name}/rp_filter"))


def write(node: NamespaceNode, **values: int) -> None:
    node.set_sysctls({f"net.ipv4.conf.{name}.rp_filter": number for name, number in values.items()})


def effective(node: NamespaceNode) -> dict[str, int]:
    lines = node.run(["sh", "-c", "cd /proc/sys/net/ipv4/conf; grep . */rp_filter"]).stdout.split()
    values = {line.partition("/")[0]: int(line.partition(":")[2]) for line in lines}
    return {name: max(number, values["all"]) for name, number in values.items() if name not in ("all", "default")}


# The report


def test_create_modify_delete_delete_again(node: NamespaceNode) -> None:
    clean = node.snapshot()
    created = four_steps(node, interfaces=["eth0", f"{VLAN}*"], mode="loose")
    zero, two = {"value": 0, "all": 0, "effective": 0}, {"value": 2, "all": 0, "effective": 2}
    assert created["interfaces"] == {name: {"before": zero, "after": two} for name in ("eth0", VLAN)}
    assert created["diff"][0]["after"] == (
        "net.ipv4.conf.eth0.rp_filter = 2  # effective 2\nnet.ipv4.conf.eth0/100.rp_filter = 2  # effective 2\n"
    )
    assert f"\n-net/ipv4/conf/{VLAN}*/rp_filter = 2\nnet/ipv4/conf/eth0/rp_filter = 2\n" in node.read(PATH)
    changed = four_steps(node, interfaces=[VLAN, "eth1"], mode="strict")
    one = {"value": 1, "all": 0, "effective": 1}
    assert changed["interfaces"] == {  # eth0 has its former value again
        "eth0": {"before": two, "after": zero}, VLAN: {"before": two, "after": one}, "eth1": {"before": zero, "after": one}
    }  # fmt: skip
    assert [value(node, name) for name in ("eth0", VLAN, "eth1")] == [0, 1, 1]
    four_steps(node, state="absent")
    assert node.snapshot() == clean
    assert not run(node, state="absent")["changed"]


# Pins


# In a network of its own, as a node's conf/default was written when the node was made: links made later are pinned from birth.
FOLLOWING_DEFAULT = """
ip link add eth5 type veth peer name eth6
cd /proc/sys/net/ipv4/conf
echo 2 > default/rp_filter
[ "$(cat eth5/rp_filter eth6/rp_filter | tr '\\n' ' ')" = "2 2 " ] || exit 9
"$@" || exit
echo 1 > default/rp_filter
cat eth5/rp_filter eth6/rp_filter > /run/values
"""


def test_a_value_that_merely_reads_right_is_written_once(node: NamespaceNode) -> None:
    through = ["unshare", "--net", "sh", "-c", FOLLOWING_DEFAULT, "sh"]
    options = {"interfaces": ["eth5"], "mode": "loose", "permanent": False}
    result = node.module("rp_filter", options, through=through)
    assert result["diff"][0]["before"] == "net.ipv4.conf.eth5.rp_filter = 2  # effective 2, not pinned\n"
    assert result["diff"][0]["after"] == "net.ipv4.conf.eth5.rp_filter = 2  # effective 2\n"
    assert node.read("/run/values").split() == ["2", "1"]


def test_each_setting_is_written_once(node: NamespaceNode) -> None:
    files = [f"/proc/sys/net/ipv4/conf/{name}/rp_filter" for name in ("all", "default", "eth0", "eth1", "lo")]
    trace = ["strace", "-qq", "-f", "-y", "-o", "/run/lab/trace", "-e", "trace=write"]
    trace += [f"--trace-path={file}" for file in files]
    options = {"interfaces": ["eth0", "eth1"], "mode": "loose", "permanent": False}
    assert node.module("rp_filter", options, through=trace)["changed"]
    assert node.read("/run/lab/trace").count("write(") == 2
    assert not node.module("rp_filter", options, through=trace)["changed"]
    assert node.read("/run/lab/trace") == ""


def test_nothing_is_started_whatever_is_to_do(node: NamespaceNode) -> None:
    with node.count_processes() as calls:
        for check in (True, False, False):
            loose(node, "eth0", "et*", check=check)
        run(node, state="absent")
    assert calls == []


# conf/all


@pytest.mark.parametrize(("all_", "mode", "wanted"), [(1, "off", 0), (2, "off", 0), (2, "strict", 1)])
def test_a_desired_state_that_all_makes_impossible(node: NamespaceNode, all_: int, mode: str, wanted: int) -> None:
    write(node, all=all_)
    clean, before = node.snapshot(), effective(node)
    error = refused(node, interfaces=["eth0"], mode=mode)
    assert f"net.ipv4.conf.all.rp_filter is {all_}" in error and f"mode {mode} ({wanted})" in error and "raise_all" in error
    result = four_steps(node, interfaces=["eth0"], mode=mode, raise_all=True)
    assert result["interfaces"]["eth0"]["after"] == {"value": wanted, "all": wanted, "effective": wanted}
    assert effective(node) == {**before, "eth0": wanted}
    node.ip(["link add eth2 type veth peer name eth3"])
    assert effective(node)["eth2"] == all_
    node.ip(["link del eth2"])
    four_steps(node, state="absent")
    assert node.snapshot() == clean


def test_loose_is_possible_whatever_all_is(node: NamespaceNode) -> None:
    write(node, all=1)
    assert loose(node, "eth0")["interfaces"]["eth0"]["after"] == {"value": 2, "all": 1, "effective": 2}


# Foreign changes


def test_runs_at_once_end_right(node: NamespaceNode) -> None:
    calls: list[dict[str, Any]] = [
        {"interfaces": ["eth0"], "mode": "loose"},
        {"interfaces": ["eth1"], "mode": "strict", "path": OTHER_PATH},
    ]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda options: run(node, **options), calls * 2))
    assert [result["changed"] for result in results].count(True) == 2
    for result in results:
        ((_name, report),) = result["interfaces"].items()
        assert result["changed"] is (report["before"] != report["after"])
    assert not any(run(node, **options)["changed"] for options in calls)
    assert (value(node, "eth0"), value(node, "eth1")) == (2, 1) and not node.exists(LOCK)


# Boot


@pytest.mark.parametrize("tool", [SYSTEMD_SYSCTL, "sysctl -q --system"])
def test_what_the_boot_loads_is_the_desired_state(node: NamespaceNode, tool: str) -> None:
    node.write("/etc/sysctl.d/99-hard.conf", "net.ipv4.conf.*.rp_filter = 1\n-net.ipv4.conf.all.rp_filter\n")
    loose(node, "eth0", VLAN, "nolink")
    good = node.snapshot()["files"]
    node.ip([f"link del {VLAN}", f"link add {VLAN} type veth peer name eth1"])
    write(node, eth0=0)
    result = node.run(["sh", "-c", tool])
    assert "rror" not in result.stderr
    assert [value(node, name) for name in ("eth0", VLAN, "eth1")] == [2, 2, 1]
    assert not loose(node, "eth0", VLAN, "nolink", immediate=False)["changed"] and node.snapshot()["files"] == good


@pytest.mark.parametrize("tool", [SYSTEMD_SYSCTL, "sysctl -q --system"])
def test_a_link_to_come_is_set_by_the_pattern(node: NamespaceNode, tool: str) -> None:
    loose(node, "eni*", "*7")
    before = effective(node)
    node.ip(["link add eni5 type veth peer name veth7"])
    node.run(["sh", "-c", tool])
    assert effective(node) == {**before, "eni5": 2, "veth7": 2}


def test_a_pattern_that_another_file_says_too_is_for_links_to_come_at_boot_and_by_udev(node: NamespaceNode) -> None:
    node.write("/etc/sysctl.d/50-x.conf", "net.ipv4.conf.eni*.rp_filter = 2\nnet.ipv4.conf.e*.rp_filter = 1\n")
    assert not [one for one in warnings(loose(node, "eni*")) if PATH in one.partition(";")[0]]
    node.ip(["link add eni5 type veth peer name eth5"])
    for prefix in ([], ["--prefix=/net/ipv4/conf/eni5"]):
        node.set_sysctls({"net.ipv4.conf.eni5.rp_filter": 0})
        node.run([SYSTEMD_SYSCTL, *prefix])
        assert value(node, "eni5") == 2
    assert value(node, "eth5") == 1


@pytest.mark.parametrize("tool", [SYSTEMD_SYSCTL, "sysctl -q --system"])
def test_a_link_called_like_a_pattern_does_not_stand_for_others(node: NamespaceNode, tool: str) -> None:
    node.ip(["link add x* type veth peer name xyz", "link add xa type veth peer name y"])
    before = effective(node)
    result = four_steps(node, interfaces=["x?"], mode="loose")
    assert [*result["interfaces"]] == ["x*", "xa"]
    wanted = {**before, "x*": 2, "xa": 2}
    assert effective(node) == wanted
    write(node, **{"x*": 0, "xa": 0})
    node.run(["sh", "-c", tool])
    assert effective(node) == wanted


def boot(node: NamespaceNode) -> Steps:
    """Boot, as far as the settings are concerned. Returns the steps after the boot."""
    node.remove("/run/kubenode")
    write(node, **dict.fromkeys(("all", "default", "lo", "eth0", "eth1"), 0))
    node.set_sysctls({"net.ipv4.conf.eth0/100.rp_filter": 0})
    node.run([SYSTEMD_SYSCTL])
    return Steps(node, "rp_filter", {}, through=BOOTED_NOW)


WITHOUT_US = "-net.ipv4.conf.eth*.rp_filter = 1\nnet.ipv4.conf.eth0/100.rp_filter = 2\n"


@pytest.mark.parametrize("others", [WITHOUT_US, f"{WITHOUT_US}net.ipv4.conf.all.rp_filter = 1\n"], ids=["", "all"])
@pytest.mark.parametrize("planes", [["immediate", "permanent"], ["immediate"], ["permanent", "immediate"]], ids=" ".join)
def test_after_a_boot_nothing_is_written_and_absent_leaves_what_a_node_without_us_has(
    node: NamespaceNode, others: str, planes: list[str]
) -> None:
    node.ip(["link delete veth-pod1"])  # after a boot the link would follow conf/default; here it is pinned
    node.write("/etc/sysctl.d/50-others.conf", others)
    boot(node)
    clean = node.snapshot()
    desired: dict[str, Any] = {"interfaces": ["eth0", "eth0*"], "mode": "off", "raise_all": True}
    run(node, **desired)
    booted = boot(node)
    assert effective(node)["eth0"] == 0
    before = node.snapshot()
    assert not booted.run(**desired)["changed"] and node.snapshot() == before
    if planes[0] == "permanent":  # the file, which shows what the boot has set, goes first
        booted.four(state="absent", immediate=False)
        booted.four(state="absent")
    else:
        booted.four(state="absent", permanent="permanent" in planes)
    assert node.snapshot()["sysctls"] == clean["sysctls"]
    assert (node.snapshot() == clean) is (len(planes) == 2)


def test_another_mode_after_a_boot(node: NamespaceNode) -> None:
    node.write("/etc/sysctl.d/50-others.conf", "net.ipv4.conf.eth0.rp_filter = 1\n")
    boot(node)
    clean = node.snapshot()
    loose(node, "eth0", "eth1")
    booted = boot(node)
    booted.four(interfaces=["eth1", "eth9"], mode="off")
    assert (value(node, "eth0"), value(node, "eth1")) == (1, 0)
    booted.four(state="absent")
    assert node.snapshot() == clean


def test_another_path_after_a_boot_does_not_lose_what_the_first_has_set(node: NamespaceNode) -> None:
    clean = node.snapshot()
    loose(node, "eth0")
    booted = boot(node)
    other: dict[str, Any] = {"interfaces": ["eth0"], "path": OTHER_PATH}
    assert f"the set whose path is {PATH} keeps it at 2" in booted.refused(**other, mode="strict")
    booted.four(**other, mode="loose")
    booted.four(state="absent")
    assert value(node, "eth0") == 2 and not booted.run(**other, mode="loose")["changed"]
    booted.four(state="absent", path=OTHER_PATH)
    assert node.snapshot() == clean


@pytest.mark.parametrize("by_udev", [True, False])
def test_a_link_that_came_later_is_written_unless_udev_has_set_it_up(node: NamespaceNode, by_udev: bool) -> None:
    clean = node.snapshot()
    loose(node, "eni*")
    node.ip(["link add eni5 type veth peer name veth5"])
    if by_udev:
        node.run([SYSTEMD_SYSCTL, "--prefix=/net/ipv4/conf/eni5"])
        index = node.read("/sys/class/net/eni5/ifindex").strip()
        node.write(f"/run/udev/data/n{index}", f"I:{time.monotonic_ns() // 1000}\nV:1\n")
    result = four_steps(node, interfaces=["eni*"], mode="loose")
    planes = [entry["after_header"].partition(":")[0] for entry in result["diff"]]
    assert planes == (["permanent"] if by_udev else ["immediate", "permanent"])
    four_steps(node, state="absent")
    assert value(node, "eni5") == 0
    node.ip(["link delete eni5"])
    node.remove("/run/udev")
    assert node.snapshot() == clean


def test_a_link_that_is_not_there_is_warned_of_and_written_for_the_boot(node: NamespaceNode) -> None:
    found = warnings(loose(node, "eth9", "eni*", "et*"))
    assert [warning.partition(",")[0] for warning in found] == ["There is no link eth9", "No link matches eni*"]
    assert all(f"{PATH} sets it when it appears" in warning for warning in found)
    assert "net/ipv4/conf/eth9/rp_filter = 2" in node.read(PATH)


def test_a_line_that_wins_at_the_next_boot_is_warned_of(node: NamespaceNode) -> None:
    node.write("/etc/sysctl.d/99-hard.conf", "# hard\nnet.ipv4.conf.eth0.rp_filter = 1\n")
    node.write("/etc/sysctl.conf", "net.ipv4.conf.eth1.rp_filter = 0\n")
    node.remove("/etc/sysctl.d/99-sysctl.conf")
    by_both, by_procps = warnings(loose(node, "eth0", "eth1"))
    assert by_both == (
        "At the next boot (systemd-sysctl) and at the next `sysctl --system`, line 2 of /etc/sysctl.d/99-hard.conf wins over"
        f" {PATH}: net.ipv4.conf.eth0.rp_filter would be 1; 2 is expected. Remove that line, or choose a path whose name"
        " sorts after it."
    )
    assert by_procps.startswith("At the next `sysctl --system`, line 1 of /etc/sysctl.conf wins over")
    assert "eth1.rp_filter would be 0; 2 is expected" in by_procps
    assert not warnings(loose(node, "eth0", path="/etc/sysctl.d/99-z.conf", immediate=False))


def test_a_path_that_no_boot_reads_is_warned_of(node: NamespaceNode) -> None:
    for path in ("/etc/kubenode/rp.conf", "/etc/sysctl.d/90-rp"):
        (warning,) = warnings(loose(node, "eth0", path=path, immediate=False))
        assert f"{path} is not read at boot" in warning


def test_a_file_that_sets_all_is_warned_of_or_outdone(node: NamespaceNode) -> None:
    node.write("/etc/sysctl.d/10-hard.conf", "net.ipv4.conf.all.rp_filter = 1\n")
    (warning,) = warnings(run(node, interfaces=["eth0"], mode="off"))
    assert "net.ipv4.conf.all.rp_filter would be 1; at most 0 is expected" in warning and "raise_all" in warning
    assert not warnings(run(node, interfaces=["eth0"], mode="off", raise_all=True))
    node.run([SYSTEMD_SYSCTL])
    assert effective(node)["eth0"] == 0 and value(node, "default") == 1


def test_a_root_that_is_not_process_1s_has_a_permanent_plane_only(node: NamespaceNode) -> None:
    node.run(["sh", "-e", "-c", ANOTHER_ROOT])
    before = node.snapshot()
    options = {"interfaces": ["eth0", "et*"], "mode": "loose"}
    error = node.module("rp_filter", options, through=["chroot", "/mnt"])
    assert error["failed"] and "this root is not process 1's" in error["msg"] and node.snapshot() == before
    result = node.module("rp_filter", {**options, "immediate": False}, through=["chroot", "/mnt"])
    assert result["changed"] and result["interfaces"] == {} and not warnings(result) and value(node, "eth0") == 0
    assert node.read(PATH).count("rp_filter = 2") == 2  # the name and the pattern: an image does not have this machine's links


# Packets


@pytest.mark.parametrize(("all_", "mode", "arrives"), [(1, None, False), (1, "loose", True), (0, "strict", False)])
def test_a_packet_whose_reply_would_leave_by_another_link(
    lab: Lab, node: NamespaceNode, all_: int, mode: str | None, arrives: bool
) -> None:
    lab.load_balancer.ip(["address add 198.51.100.1/32 dev lo", "route add 192.0.2.17/32 dev nodes0"])
    node.ip(
        [
            "link set eth1 up",
            f"link set {VLAN} up",
            "address add 203.0.113.1/24 dev eth1",
            "route add 198.51.100.0/24 dev eth1",
        ]
    )
    assert reaches(lab, node)  # the node has answered the load balancer's ARP request, which strict filtering drops too
    write(node, all=all_)
    assert reaches(lab, node) == (all_ == 0)
    if mode:
        run(node, interfaces=["eth0"], mode=mode)
        assert reaches(lab, node) == arrives
        run(node, state="absent")
        assert reaches(lab, node) == (all_ == 0)


def reaches(lab: Lab, node: NamespaceNode) -> bool:
    """Whether a datagram by eth0 arrives that the node would answer by eth1: from 198.51.100.1."""
    with (
        node.socket(socket.AF_INET, socket.SOCK_DGRAM) as inside,
        lab.load_balancer.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside,
    ):
        inside.bind(("192.0.2.17", 5353))
        inside.settimeout(0.3)
        outside.bind(("198.51.100.1", 0))
        outside.sendto(b"x", ("192.0.2.17", 5353))
        try:
            return inside.recv(16) == b"x"
        except socket.timeout:
            return False
