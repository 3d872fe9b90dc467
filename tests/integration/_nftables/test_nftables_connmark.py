# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nftables_connmark on a real kernel: boots, former settings and warnings.

Packets are in test_eni_packets.py.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from lab.node import NamespaceNode
from lab.node_conditions import BOOTED_NOW
from lab.steps import Steps, warnings

TABLE = "kubenodeReturnPath"
UNIT = f"/etc/systemd/system/kubenode-nft-inet-{TABLE}.service"
SYSCTL = f"/etc/sysctl.d/90-kubenode-nft-inet-{TABLE}.conf"
SETTING = "net.ipv4.conf.eth0.src_valid_mark"


@pytest.fixture
def connmark(node: NamespaceNode) -> Steps:
    return Steps(node, "nftables_connmark", {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]})


def valid_mark(node: NamespaceNode, link: str = "eth0") -> int:
    return int(node.read(f"/proc/sys/net/ipv4/conf/{link}/src_valid_mark"))


FORMER = """\
\t\tiifname vmap { "eth0" : goto entering, "eth1" : goto entering_0x1, "eth2" : goto entering_0x2 }
\t\tct mark & 0x00000083 vmap { 0x00000001 : goto replies_0x1, 0x00000002 : goto replies_0x2, 0x00000080 : goto leaving }
"""


def test_the_table_of_a_former_version_is_replaced_in_one_transaction(node: NamespaceNode, connmark: Steps) -> None:
    """It looked the primary interface and pods up in maps. Each packet meets one table, and connections keep their marks."""
    interfaces = [{"name": f"eth{number}", "mark": number} for number in (1, 2)]
    text = connmark.run(interfaces=interfaces)["ruleset"]
    sorting = re.compile(r'\t\tiifname "eth0" goto entering\n(?:\t\t.*\n)+')
    marking = re.compile(r"(chain leaving \{\n)\t\t.* == \S+ (.*\n)\t\t.*\n")
    former = sorting.sub(FORMER, marking.sub(r'\1\t\tiifname "veth-*" \2\t\tiifname "lo" \2', text))
    node.run_from_host(["nft", "-f", "-"], f"delete table inet {TABLE}\n{former}")
    with node.count_processes(("nft",)) as calls:
        assert connmark.run(interfaces=interfaces)["changed"]
    assert former != text and len([call for call in calls if "-f" in call and "-c" not in call]) == 1, calls
    assert not connmark.run(interfaces=interfaces)["changed"]


# Boots


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


# The setting


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


# Warnings


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
