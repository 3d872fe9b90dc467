# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nftables_connmark on a real kernel: the twelve steps, drift, foreign tables, kills and bad input.

Packets are in test_eni_packets.py.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from lab import Lab
from lab.node import LOCK, NamespaceNode
from lab.node_conditions import BOOTED_NOW
from lab.steps import Steps, warnings

TABLE = "kubenodeReturnPath"
PATH = "/etc/kubenode/return-path.nft"
UNIT = f"/etc/systemd/system/kubenode-nft-inet-{TABLE}.service"
LINK = f"/etc/systemd/system/multi-user.target.wants/kubenode-nft-inet-{TABLE}.service"
DROP_IN = f"/etc/systemd/system/nftables.service.d/kubenode-nft-inet-{TABLE}.conf"
SYSCTL = f"/etc/sysctl.d/90-kubenode-nft-inet-{TABLE}.conf"
RECORD = "/run/kubenode/src-valid-mark.jsonl"
SETTING = "net.ipv4.conf.eth0.src_valid_mark"


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    return lab.node("node1")


@pytest.fixture
def connmark(node: NamespaceNode) -> Steps:
    return Steps(node, "nftables_connmark", {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]})


EACH_STRICTNESS = pytest.mark.parametrize("strict", [False, True], ids=["loose", "strict"])


def valid_mark(node: NamespaceNode, link: str = "eth0") -> int:
    return int(node.read(f"/proc/sys/net/ipv4/conf/{link}/src_valid_mark"))


def listing(node: NamespaceNode) -> str:
    return node.run(["nft", "list", "table", "inet", TABLE]).stdout


# The twelve steps


@EACH_STRICTNESS
def test_create_modify_delete_delete_again(node: NamespaceNode, connmark: Steps, strict: bool) -> None:
    clean = node.snapshot()
    created = connmark.four(strict=strict)
    assert [entry["before_header"].split(":")[0] for entry in created["diff"]] == ["immediate", "permanent"]
    assert valid_mark(node) == strict and node.exists(SYSCTL) == strict
    modified = connmark.four(strict=strict, mark="0x10", mask="0xf0", pod_interfaces=["eni*", "veth-pod1"])
    assert all("0x00000010" in entry["after"] for entry in modified["diff"])
    connmark.four(state="absent")
    assert node.snapshot() == clean
    assert not connmark.run(state="absent")["changed"]


def test_strict_comes_and_goes_on_a_node_that_has_the_table(node: NamespaceNode, connmark: Steps) -> None:
    connmark.run()
    loose = node.snapshot()
    connmark.four(strict=True)
    assert valid_mark(node) == 1
    connmark.four()
    assert node.snapshot() == loose


@EACH_STRICTNESS
@pytest.mark.parametrize(("immediate", "permanent"), [(True, False), (False, True)])
def test_each_plane_comes_and_goes_alone(
    node: NamespaceNode, connmark: Steps, immediate: bool, permanent: bool, strict: bool
) -> None:
    clean = node.snapshot()
    planes = {"immediate": immediate, "permanent": permanent}
    done = connmark.four(strict=strict, **planes)
    assert len(done["diff"]) == 1
    assert (node.snapshot()["nft"] == clean["nft"], node.exists(UNIT)) == (permanent, permanent)
    assert (valid_mark(node), node.exists(SYSCTL)) == (immediate and strict, permanent and strict)
    connmark.four(state="absent", **planes)
    assert node.snapshot() == clean


def test_what_the_boot_loads_a_later_run_finds_unchanged(node: NamespaceNode, connmark: Steps) -> None:
    connmark.run()
    node.run(["nft", "flush", "ruleset"])
    assert connmark.run(check=True)["changed"]
    (command,) = re.findall("^ExecStart=(.*)$", node.read(UNIT), re.M)
    node.run(["sh", "-c", command])
    assert not connmark.run()["changed"]


def test_the_boot_sets_what_strict_needs(node: NamespaceNode, connmark: Steps) -> None:
    connmark.run(strict=True)
    node.set_sysctls({SETTING: 0})
    node.run(["sysctl", "-p", SYSCTL])
    assert valid_mark(node) == 1
    assert not connmark.run(strict=True)["changed"]


@pytest.mark.parametrize("way", [{"state": "absent"}, {"strict": False}], ids=["absent", "not strict"])
def test_what_the_boot_has_set_goes_although_a_boot_forgets_the_record(
    node: NamespaceNode, connmark: Steps, way: dict[str, Any]
) -> None:
    booted = dataclasses.replace(connmark, through=BOOTED_NOW)
    for planes in ({}, {"permanent": False}):
        connmark.run(strict=True)
        boot(node)
        assert not booted.run(strict=True)["changed"]
        booted.four(**way, **planes)
        assert valid_mark(node) == 0
        assert booted.run(strict=True)["changed"]
        assert valid_mark(node) == 1


def test_a_run_on_the_file_alone_keeps_in_mind_what_the_boot_has_set(node: NamespaceNode, connmark: Steps) -> None:
    booted = dataclasses.replace(connmark, through=BOOTED_NOW)
    clean = node.snapshot()
    connmark.run(strict=True)
    boot(node)
    booted.four(state="absent", immediate=False)
    assert valid_mark(node) == 1
    booted.four(state="absent")
    assert node.snapshot() == clean


def boot(node: NamespaceNode) -> None:
    """Boot, as far as the setting is concerned."""
    node.remove("/run/kubenode")
    node.set_sysctls({SETTING: 0})
    node.run(["/usr/lib/systemd/systemd-sysctl"])
    assert valid_mark(node) == 1


def test_two_tables_live_side_by_side(node: NamespaceNode, connmark: Steps) -> None:
    clean = node.snapshot()
    other: dict[str, Any] = {
        "table": "other",
        "primary_interface": "eth1",
        "mark": "0x10",
        "path": "/etc/kubenode/other.nft",
    }
    node.ip(["link add eth1 type bridge"])
    with_link = node.snapshot()
    connmark.run(strict=True)
    connmark.run(strict=True, **other)
    assert not connmark.run(strict=True)["changed"] and not connmark.run(strict=True, **other)["changed"]
    connmark.run(state="absent")
    assert (valid_mark(node), valid_mark(node, "eth1")) == (0, 1)
    assert not connmark.run(strict=True, **other)["changed"]
    connmark.run(state="absent", **other)
    assert node.snapshot() == with_link
    node.ip(["link delete eth1"])
    assert node.snapshot() == clean


def test_two_tables_share_a_primary(node: NamespaceNode, connmark: Steps) -> None:
    clean = node.snapshot()
    other: dict[str, Any] = {"table": "other", "mark": "0x10", "path": "/etc/kubenode/other.nft", "strict": True}
    connmark.run(strict=True)
    connmark.run(**other)
    connmark.run(state="absent")
    assert valid_mark(node) == 1 and not connmark.run(**other)["changed"]
    connmark.run(**{**other, "state": "absent"})
    assert node.snapshot() == clean


def test_options_may_come_as_strings(connmark: Steps) -> None:
    connmark.run(strict=True)
    given: dict[str, Any] = {
        "pod_interfaces": '["veth-*"]',
        "mark": 128,
        "mask": "0x80",
        "strict": "yes",
        "immediate": "true",
    }
    assert not connmark.run(**given)["changed"]
    assert not connmark.run(strict=True, pod_interfaces="veth-*")["changed"]


def test_absent_needs_no_other_option(node: NamespaceNode, connmark: Steps) -> None:
    clean = node.snapshot()
    connmark.run(strict=True)
    Steps(node, "nftables_connmark").four(state="absent")
    assert node.snapshot() == clean


# Drift


ALTERATIONS = {
    "a rule added": f"add rule inet {TABLE} prerouting accept",
    "a rule put first": f"insert rule inet {TABLE} prerouting accept",
    "rules gone": f"flush chain inet {TABLE} prerouting",
    "the output chain's rules gone": f"flush chain inet {TABLE} output",
    "a chain added": f"add chain inet {TABLE} mine",
    "a set added": f"add set inet {TABLE} mine {{ type ipv4_addr; }}",
    "asleep": f"add table inet {TABLE} {{ flags dormant; }}",
    "another policy": f"add chain inet {TABLE} prerouting {{ policy drop; }}",
    "gone": f"delete table inet {TABLE}",
}


@pytest.mark.parametrize("alteration", ALTERATIONS.values(), ids=ALTERATIONS.keys())
def test_whatever_was_altered_is_put_right(node: NamespaceNode, connmark: Steps, alteration: str) -> None:
    connmark.run()
    good = node.snapshot()
    node.run(["nft", alteration])
    connmark.four()
    assert node.snapshot() == good


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("priority mangle", "priority filter"),
        ("type route", "type filter"),
        ("ct direction original ", ""),
        ("| 0x00000080", "| 0x00000081"),
        ('"veth-*"', '"veth-pod1"'),
    ],
)
def test_a_table_that_means_something_else_is_replaced(node: NamespaceNode, connmark: Steps, old: str, new: str) -> None:
    connmark.run()
    good = node.snapshot()
    altered = listing(node).replace(old, new)
    assert altered != listing(node)
    node.run(["nft", "-f", "-"], f"delete table inet {TABLE}\n{altered}")
    connmark.four()
    assert node.snapshot() == good


@pytest.mark.parametrize("path", [PATH, UNIT, LINK, DROP_IN, SYSCTL])
def test_a_file_that_was_removed_comes_back(node: NamespaceNode, connmark: Steps, path: str) -> None:
    connmark.run(strict=True)
    good = node.snapshot()
    node.remove(path)
    connmark.four(strict=True)
    assert node.snapshot() == good


@pytest.mark.parametrize("path", [PATH, UNIT, DROP_IN, SYSCTL])
def test_a_file_that_was_altered_is_put_right(node: NamespaceNode, connmark: Steps, path: str) -> None:
    connmark.run(strict=True)
    good = node.snapshot()
    node.write(path, node.read(path) + "# mine\n")
    connmark.four(strict=True)
    assert node.snapshot() == good


def test_a_setting_that_was_altered_is_put_right_and_one_that_only_reads_right_is_pinned(
    node: NamespaceNode, connmark: Steps
) -> None:
    connmark.run(strict=True)
    node.set_sysctls({SETTING: 0})
    assert connmark.four(strict=True)["changed"]
    node.remove(RECORD)
    assert connmark.four(strict=True)["changed"]
    assert not connmark.run(strict=True)["changed"]


@pytest.mark.parametrize("former", [0, 1])
def test_absent_gives_the_setting_its_former_value(node: NamespaceNode, connmark: Steps, former: int) -> None:
    node.set_sysctls({SETTING: former})
    clean = node.snapshot()
    connmark.four(strict=True)
    assert valid_mark(node) == 1
    connmark.four(state="absent")
    assert node.snapshot() == clean and valid_mark(node) == former


def test_a_primary_that_was_left_gets_its_setting_back(node: NamespaceNode, connmark: Steps) -> None:
    node.ip(["link add eth1 type bridge"])
    connmark.run(strict=True)
    connmark.four(strict=True, primary_interface="eth1")
    assert (valid_mark(node), valid_mark(node, "eth1")) == (0, 1)


# Foreign tables


OTHERS = f"""
table ip aws-cni {{
  chain snat-mark {{ ct mark set ct mark | 0x80; }}
  chain nat-prerouting {{
    type nat hook prerouting priority -90; fib daddr type local return; iifname "eni*" jump snat-mark
    meta mark set ct mark & 0x80
  }}
}}
table ip {TABLE} {{
  chain prerouting {{ type filter hook prerouting priority mangle; iifname "x" counter packets 5 bytes 300; }}
}}
table inet {TABLE}2 {{ flags dormant; }}
"""


def others(node: NamespaceNode) -> str:
    """The listings of all foreign tables, with the values of counters.

    Not by JSON: nft 1.0.6 frees the flags of a dormant table too early, and may crash.
    """
    names = [tuple(line.split()[1:]) for line in node.run(["nft", "list", "tables"]).stdout.splitlines()]
    return "".join(node.run(["nft", "-a", "list", "table", *name]).stdout for name in names if name != ("inet", TABLE))


def test_tables_of_others_survive_byte_for_byte(node: NamespaceNode, connmark: Steps) -> None:
    node.run(["nft", "-f", "-"], OTHERS)
    connection = ["-i", "eth0", "-m", "addrtype", "--dst-type", "LOCAL", "--limit-iface-in"]
    mark = ["-j", "CONNMARK", "--set-mark", "0x80/0x80"]
    node.run(["iptables-nft", "-t", "mangle", "-A", "PREROUTING", *connection, *mark])
    before = others(node)
    for options in ({}, {"strict": True}, {"mark": "0x10"}, {"state": "absent"}):
        assert connmark.run(**options)["changed"]
        assert others(node) == before


# Nothing to do


@EACH_STRICTNESS
def test_an_empty_plan_starts_one_reading_nft_and_nothing_else(node: NamespaceNode, connmark: Steps, strict: bool) -> None:
    connmark.run(strict=strict)
    with node.count_processes() as calls:
        connmark.run(strict=strict)
    assert [call[1:] for call in calls] == [["-j", "list", "table", "inet", TABLE]]


def test_check_mode_starts_nothing_that_changes(node: NamespaceNode, connmark: Steps) -> None:
    node.run(["nft", "-f", "-"], f"table inet {TABLE} {{ chain mine {{ }}; }}")
    with node.count_processes() as calls:
        assert connmark.run(check=True, strict=True)["changed"]
    asking = [call for call in calls if any(word.endswith("systemd-analyze") for word in call)]  # about the order of a boot
    assert {call[-4] for call in calls if call not in asking} == {"list"} and len(asking) == 1


# Failures and kills


@pytest.mark.parametrize("call", [2, 3])
def test_an_nft_that_fails_midway_leaves_the_node_as_it_was(node: NamespaceNode, connmark: Steps, call: int) -> None:
    before = node.snapshot()
    with node.break_program("/usr/sbin/nft", call=call):
        error = connmark.call(strict=True)
    assert error["failed"] and "broken by the lab" in error["msg"]
    assert node.snapshot() == before


@pytest.mark.parametrize("folder", ["/proc/sys", "/etc/sysctl.d", "/run", "/etc"])
def test_a_read_only_place_is_named_and_leaves_the_node_as_it_was(node: NamespaceNode, connmark: Steps, folder: str) -> None:
    with node.read_only(folder):
        before = node.snapshot()
        error = connmark.call(strict=True)
        assert error["failed"] and re.search("[Rr]ead-only", error["msg"]) and folder in error["msg"]
        assert node.snapshot() == before


@pytest.mark.thorough
@pytest.mark.parametrize("action", ["kill caller", "run and kill caller"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_run_killed_around_nft_leaves_the_old_or_the_new(node: NamespaceNode, connmark: Steps, call: int, action: Any) -> None:
    connmark.run()
    old = node.snapshot()["nft"]
    with node.break_program("/usr/sbin/nft", call=call, action=action):
        assert connmark.call(mark="0x10")["failed"]
    between = node.snapshot()["nft"]
    assert connmark.run(mark="0x10")["changed"]
    assert between in (old, node.snapshot()["nft"])
    assert not connmark.run(mark="0x10")["changed"]


@pytest.mark.thorough
@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("call", ["write", "rename", "unlink,unlinkat"])
def test_a_run_killed_at_the_setting_or_its_files_is_mended_by_the_next(
    node: NamespaceNode, connmark: Steps, call: str, state: str
) -> None:
    clean = node.snapshot()
    connmark.run(strict=True)
    made = node.snapshot()
    start, goal = (clean, made) if state == "present" else (made, clean)
    for number in range(1, 20):
        connmark.run(strict=True, state="absent" if state == "present" else "present")
        assert node.snapshot() == start
        if not killed(connmark, call, number, state):
            break
        connmark.run(strict=True, state=state)
        node.run(["rm", "-f", LOCK])  # a killed run leaves it, empty and unlocked; the next change or boot removes it
        assert node.snapshot() == goal
        assert not connmark.run(strict=True, state=state)["changed"]
    else:
        pytest.fail(f"still killed at {call} number {number}")


def killed(connmark: Steps, call: str, number: int, state: str) -> bool:
    """Whether a run was killed before its ``number``-th ``call`` that touches the setting, its record or its file."""
    places = [RECORD, SYSCTL, RECORD.rpartition("/")[0]]
    paths = [path for place in places for path in (place, "/.".join(place.rsplit("/", 1)) + ".kubenode")]
    paths.append(f"/proc/sys/{SETTING.replace('.', '/')}")
    inject = [f"--inject={call}:signal=SIGKILL:when={number}", *(f"--trace-path={path}" for path in paths)]
    options = {**connmark.options, "strict": True, "state": state}
    through = ["strace", "-qq", "-o", "/dev/null", *inject]
    return bool(connmark.node.module("nftables_connmark", options, through=through)["failed"])


# Bad input


BAD_INPUT: list[tuple[str, dict[str, Any]]] = [
    ("immediate must be true if permanent is false", {"immediate": False, "permanent": False}),
    ("primary_interface must be a link's name", {"primary_interface": None}),
    ("primary_interface must be a link's name", {"primary_interface": 'eth0" accept'}),
    ("primary_interface must be a link's name", {"primary_interface": "averylonglinkname"}),
    ("primary_interface must be the name of one network interface", {"primary_interface": "lo"}),
    ("pod_interfaces must be a list of at least one", {"pod_interfaces": None}),
    ("pod_interfaces must be a list of at least one", {"pod_interfaces": []}),
    ("pod_interfaces[0] must be a pattern that primary_interface eth0 does not match", {"pod_interfaces": ["eth*"]}),
    (
        "pod_interfaces[1] must be a pattern that primary_interface eth0 does not match",
        {"pod_interfaces": ["a", "eth0"]},
    ),
    ("pod_interfaces[0] must be a link's name", {"pod_interfaces": ["{ eni1 }"]}),
    ("pod_interfaces[0] must be a link's name", {"pod_interfaces": ["averylonglinkna*"]}),
    ("pod_interfaces[0] must be a name, or eni* for all names with that prefix", {"pod_interfaces": ["eni+"]}),
    ("mark must be a number from 1", {"mark": "0"}),
    ("mark must be a number from 1", {"mark": "0x100000000"}),
    ("mark must be a number from 1", {"mark": "0x80/0x80"}),
    ("mark must be within mask 0x00000040", {"mask": "0x40"}),
    ("mask must be a number from 1", {"mask": "-1"}),
    ("table must be a word", {"table": 'a"; flush ruleset; "'}),
    ("path must be an absolute path", {"path": "/etc/a b"}),
    ("path must be in a folder that exists or whose parent exists", {"path": "/etc/kubenode-one/two/three.nft"}),
    ("path must be in or below a folder that", {"path": "/etc/systemd/system/mine.service"}),
]


@pytest.mark.parametrize(("message", "options"), BAD_INPUT, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_input_is_a_clear_error_and_changes_nothing(connmark: Steps, message: str, options: dict[str, Any]) -> None:
    assert message in connmark.refused(**options)


def test_a_foreign_setting_file_is_refused_and_left(node: NamespaceNode, connmark: Steps) -> None:
    node.write(SYSCTL, "net.ipv4.conf.eth0.src_valid_mark = 0\n")
    assert f"{SYSCTL} may not be replaced by this run" in connmark.refused(strict=True)
    connmark.run()
    connmark.run(state="absent")
    assert node.read(SYSCTL) == "net.ipv4.conf.eth0.src_valid_mark = 0\n"


def test_warns_of_a_primary_that_is_no_link(node: NamespaceNode, connmark: Steps) -> None:
    node.ip([MARK_RULE])
    assert not connmark.run().get("warnings")
    warned = connmark.run(primary_interface="ens5", strict=True)
    assert "There is no link ens5" in json.dumps(warned["warnings"])


MARK_RULE = "rule add fwmark 0x80/0x80 lookup main priority 1024"
RULES: list[tuple[list[str], list[str]]] = [
    ([], ["No rule routes by mark 0x80/0x80, "]),
    ([f"-6 {MARK_RULE}"], []),
    ([MARK_RULE, "-6 rule add from fd00::11 lookup 1001 priority 1000"], ["No ipv6 rule routes by mark 0x80/0x80, "]),
    (
        [MARK_RULE, "rule add from 10.0.1.11 lookup 1001 priority 512"],
        [
            "ip rule 1024: from all fwmark 0x80/0x80 lookup main (amazon-vpc-cni or UCloud's CNI, protocol unspec)"
            " comes after ip rule 512: from 10.0.1.11 lookup 1001 (protocol unspec), "
        ],
    ),
]


@pytest.mark.parametrize(("lines", "expected"), RULES)
def test_warns_where_no_rule_makes_the_mark_do_anything(
    node: NamespaceNode, connmark: Steps, lines: list[str], expected: list[str]
) -> None:
    for line in lines:
        node.run(["ip", *line.split()])
    found = warnings(connmark.run(check=True))
    assert len(found) == len(expected) and all(map(str.startswith, found, expected)), found
    assert not connmark.run(check=True, immediate=False).get("warnings")


def test_the_rule_that_the_warning_names_silences_it(node: NamespaceNode, connmark: Steps) -> None:
    node.ip(["rule add from 10.0.1.11 lookup 1001 priority 512"])
    (warning,) = warnings(connmark.run())
    rule = dict(re.findall(r"(\w+): ([^,}]+)[,}]", warning.partition("rules: ")[2]))
    assert rule == {"priority": "511", "family": "ipv4", "fwmark": "0x80/0x80", "table": "main"}
    Steps(node, "policy_routes").run(rules=[rule])
    assert not warnings(connmark.run())


MARKED: dict[str, Any] = {"interfaces": '[{"name": "eth0", "mark": 2}]', "primary_interface": "lan"}


def test_warns_of_each_other_interface_that_is_no_link_has_no_rule_or_shares_one(node: NamespaceNode, connmark: Steps) -> None:
    """The options as text."""
    node.ip(["link add lan type veth peer name lan-peer", MARK_RULE, "rule add from 10.0.1.11 lookup 1001 priority 2048"])
    (missing,) = warnings(connmark.run(**MARKED))
    assert missing.startswith("No ipv4 rule routes by mark 0x2/0x82, so")
    assert missing.endswith("where TABLE is the one whose default route is by eth0.")
    rule = {"priority": 1024, "fwmark": "0x2/0x82", "table": 1001}
    Steps(node, "policy_routes").run(rules=[rule])
    assert not warnings(connmark.run(**MARKED))
    collision, no_link = sorted(warnings(connmark.run(**{**MARKED, "interfaces": [{"name": "ens6", "mark": "0x82"}]})))
    assert no_link.startswith("There is no link ens6, so no connection gets its mark")
    assert collision.startswith("Mark 0x82/0x82 has bits of 0x80/0x80, the mark of amazon-vpc-cni and Cilium for")
    shared = warnings(connmark.run(**{**MARKED, "interfaces": [{"name": "eth0", "mark": "0x82"}]}))[-1]
    assert shared.startswith(
        "ip rule 1024: from all fwmark 0x80/0x80 lookup main (amazon-vpc-cni or UCloud's CNI, protocol unspec) routes by mark"
        " 0x82 of eth0 as by"
        " mark 0x80 of lan"
    )


def test_warns_of_a_line_that_wins_over_the_setting_at_the_next_boot(node: NamespaceNode, connmark: Steps) -> None:
    node.ip([MARK_RULE])
    node.write("/etc/sysctl.d/99-hard.conf", f"{SETTING} = 0\n-net.ipv4.conf.e*.src_valid_mark = 0\n")
    for planes in ({}, {"immediate": False}):
        (warning,) = warnings(connmark.run(strict=True, **planes))
        assert "line 1 of /etc/sysctl.d/99-hard.conf wins over" in warning
        assert f"{SETTING} would be 0; 1 is expected. Remove that line." in warning
    for options in ({"strict": True, "permanent": False}, {"strict": False}):
        assert not warnings(connmark.run(check=True, **options))


NOW, BOOT = "in the running kernel", "at the next boot"


@pytest.mark.parametrize("way", [{"state": "absent"}, {"strict": False}], ids=["absent", "not strict"])
def test_warns_of_a_filter_that_stays_strict_without_the_marks(node: NamespaceNode, connmark: Steps, way: dict[str, Any]) -> None:
    node.ip([MARK_RULE])
    connmark.run(strict=True)
    assert not warnings(connmark.run(check=True, **way))
    filters = Steps(node, "rp_filter", {"interfaces": ["eth0"], "mode": "strict"})
    for planes, filtered, times in (
        ({}, {}, f"{NOW} and {BOOT}"),
        ({"permanent": False}, {}, NOW),
        ({"immediate": False}, {}, BOOT),
        ({}, {"permanent": False}, NOW),
        ({}, {"immediate": False}, BOOT),
    ):
        filters.run(**filtered)
        (warning,) = warnings(connmark.run(check=True, **way, **planes))
        assert "Reverse-path filtering of eth0 should be loose or off" in warning and f" stays strict {times}: " in warning
        filters.run(state="absent")
    filters.run()
    assert warnings(connmark.run(**way)) and not warnings(connmark.run(**way))


def test_the_filter_may_stay_strict_beside_another_tables_marks(node: NamespaceNode, connmark: Steps) -> None:
    node.ip([MARK_RULE])
    other: dict[str, Any] = {"table": "other", "path": "/etc/kubenode/other.nft"}
    Steps(node, "rp_filter").run(interfaces=["eth0"], mode="strict")
    connmark.run(strict=True)
    connmark.run(strict=True, **other)
    assert not warnings(connmark.run(state="absent"))
    assert warnings(connmark.run(state="absent", **other))
