# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nftables_probe_snat on a real kernel: boots, simultaneous runs, other owners and obstacles to probes."""

from __future__ import annotations

import concurrent.futures
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lab import Lab, agentbaker, bpf, steps
from lab.load_balancer import RouterAdvertisements
from lab.node import NamespaceNode
from lab.node_conditions import ANOTHER_ROOT
from lab.waiting import until

PATH = "/etc/kubenode/probe-snat.nft"
UNIT = "/etc/systemd/system/kubenode-nft-ip6-azureSLBProbe.service"
LINK = "/etc/systemd/system/multi-user.target.wants/kubenode-nft-ip6-azureSLBProbe.service"


run, refused, four_steps = steps.of("nftables_probe_snat")


def warnings(result: dict[str, Any]) -> str:
    return json.dumps(result.get("warnings", []))


# Boots


def test_stopping_the_unit_removes_our_table_alone(node: NamespaceNode) -> None:
    node.run(["nft", "-f", "-"], "table inet azureSLBProbe { flags dormant; }\n")
    before = node.snapshot()["nft"]
    run(node)
    (command,) = re.findall("^ExecStop=-(.*)$", node.read(UNIT), re.M)
    node.run(["sh", "-c", command])
    assert node.snapshot()["nft"] == before


# Meaning, not text


def test_a_table_that_translates_to_every_destination_is_replaced_in_one_transaction(node: NamespaceNode) -> None:
    """AgentBaker's table, without its unit. The first version of this collection's table was the same."""
    run(node)
    good = node.snapshot()
    node.run(["nft", "-f", "-"], agentbaker.TABLE)
    with node.count_processes() as calls:
        four_steps(node)
    assert [call[1:] for call in calls if "-f" in call] == [["-f", "-"]]
    assert node.snapshot() == good
    node.run(["nft", "-f", "-"], agentbaker.TABLE)
    assert run(node, state="absent")["changed"]
    assert "azureSLBProbe" not in node.run(["nft", "list", "tables"]).stdout


def test_counters_of_an_unchanged_table_keep_counting(lab: Lab, node: NamespaceNode) -> None:
    run(node)
    assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)
    counted = node.run(["nft", "list", "table", "ip6", "azureSLBProbe"]).stdout
    assert re.search("counter packets [1-9]", counted)
    assert not run(node)["changed"]
    seen = node.run(["nft", "list", "table", "ip6", "azureSLBProbe"]).stdout
    readings = [[int(reading) for reading in re.findall("counter packets (\\d+)", text)] for text in (counted, seen)]
    assert all(later >= earlier for earlier, later in zip(*readings, strict=True)) and any(readings[1])


def test_a_second_table_does_not_take_the_firsts_path(node: NamespaceNode) -> None:
    run(node)
    assert f"{PATH} may not be replaced by this run: it has another purpose" in refused(node, table="other")
    good = node.snapshot()
    run(node, table="other", state="absent")
    assert node.snapshot() == good


# Two at once


def test_two_runs_with_different_options_leave_one_of_them_whole(node: NamespaceNode) -> None:
    desired_states: list[dict[str, Any]] = [{"priority": -290}, {"priority": -280}]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda desired: node.module("nftables_probe_snat", desired), desired_states * 2))
    assert not [result["msg"] for result in results if result["failed"]]
    assert [run(node, check=True, **desired)["changed"] for desired in desired_states].count(False) == 1


# Failures of the node


def test_a_node_without_nft_is_told_so_and_check_mode_still_says_what_it_will_do(node: NamespaceNode) -> None:
    predicted = run(node, check=True)
    node.run(["mount", "--bind", "/dev/null", "/usr/sbin/nft"])
    without = run(node, check=True)
    assert "nft is not installed, so table ip6 azureSLBProbe cannot be loaded" in warnings(without)
    assert {**without, "warnings": []} == {**predicted, "warnings": []}
    error = node.module("nftables_probe_snat")
    assert error["failed"] and "nft is not installed" in error["msg"]
    image = run(node, immediate=False)
    assert image["changed"] and warnings(image).count("was written but not checked by nft: nft is not installed") == 1
    node.run(["umount", "/usr/sbin/nft"])


def test_a_root_without_proc_gets_its_file_and_a_warning(node: NamespaceNode) -> None:
    node.run(["sh", "-e", "-c", f"{ANOTHER_ROOT} umount --lazy /mnt/proc"])
    with node.count_processes() as calls:
        image = node.module("nftables_probe_snat", {"immediate": False}, through=["chroot", "/mnt"])
    assert image["changed"] and not image["failed"], image
    assert warnings(image).count("nf_tables is not loaded, according to /proc") == 1
    assert calls == []


# Other owners


def test_microsofts_filters_on_the_interface_refuse_present_but_not_absent(node: NamespaceNode) -> None:
    run(node)
    node.run(["tc", "qdisc", "add", "dev", "eth0", "clsact"])
    # An empty program ("return 0") under the name that Microsoft's loader gives its own.
    bytecode = "1,6 0 0 0"
    node.run(["tc", "filter", "add", "dev", "eth0", "egress", "bpf", "bytecode", bytecode])
    assert not run(node)["changed"]  # a foreign program alone is no reason
    bpf.attach(node, "egress", "ipv6_hp_egress")
    for plane in ("immediate", "permanent"):
        assert "ipv6_hp_egress of ipv6-hp-bpf" in refused(node, **{plane: False})
    assert run(node, state="absent")["changed"]


@pytest.mark.parametrize("sign", ["label", "pin"])
def test_an_ebpf_host_routing_node_refuses_present_but_not_absent(node: NamespaceNode, sign: str) -> None:
    run(node)
    if sign == "label":
        node.write("/etc/default/kubelet", "KUBELET_NODE_LABELS=kubernetes.azure.com/ebpf-host-routing=true,a=b\n")
    else:
        node.run(["mount", "-t", "tmpfs", "tmpfs", "/sys/fs"])
        node.run(["mkdir", "-p", "/sys/fs/bpf/azure-block-iptables/iptables_nftables_block"])
    for plane in ("immediate", "permanent"):
        assert "this is an eBPF host-routing node" in refused(node, **{plane: False})
    assert run(node, state="absent")["changed"]


def test_a_unit_of_the_image_that_cannot_start_owns_nothing(node: NamespaceNode) -> None:
    bring_agentbaker(node)
    node.remove(agentbaker.UNIT)
    assert run(node, check=True)["managed_by"] is None
    node.run(["ln", "-s", "/dev/null", agentbaker.UNIT])
    assert run(node)["managed_by"] is None and node.exists(UNIT)


def test_absent_needs_no_nft(node: NamespaceNode) -> None:
    clean = node.snapshot()
    node.run(["nft", "-f", "-"], "table inet azureSLBProbe { flags dormant; }\n")
    run(node)
    node.run(["mount", "--bind", "/dev/null", "/usr/sbin/nft"])
    assert run(node, state="absent", check=True)["changed"] and run(node, state="absent")["changed"]
    assert not run(node, state="absent")["changed"]
    node.run(["umount", "/usr/sbin/nft"])
    assert "table inet azureSLBProbe" in node.run(["nft", "list", "tables"]).stdout
    node.run(["nft", "flush", "ruleset"])
    assert node.snapshot() == clean


TOO_MUCH = "translates fe80::1234:5678:9abc to 2603:1062:0:1:fe80:1234:5678:9abc in packets to every destination"


def bring_agentbaker(node: NamespaceNode) -> None:
    agentbaker.place(node)
    node.run(["nft", "-f", "-"], agentbaker.TABLE)


def test_agentbakers_unit_stays_the_owner(node: NamespaceNode) -> None:
    bring_agentbaker(node)
    before = node.snapshot()
    for state in ("present", "absent"):
        result = run(node, state=state)
        assert (result["changed"], result["managed_by"]) == (False, "ipv6_nftables.service")
        assert warnings(result).count(TOO_MUCH) == (1 if state == "present" else 0)
        assert node.snapshot() == before
    assert TOO_MUCH not in warnings(run(node, immediate=False))
    assert "ipv6_nftables.service of the node's image is enabled" in refused(node, interface="eth1")


def test_agentbakers_table_is_loaded_as_its_unit_loads_it_where_it_is_missing(node: NamespaceNode) -> None:
    bring_agentbaker(node)
    before = node.snapshot()
    node.run(["nft", "delete table ip6 azureSLBProbe"])
    missing = run(node, check=True)
    assert missing["changed"] and TOO_MUCH not in warnings(missing)  # there is no table to compare
    four_steps(node)
    assert node.snapshot() == before


def test_our_unit_and_file_go_where_agentbakers_unit_has_come(node: NamespaceNode) -> None:
    run(node)
    bring_agentbaker(node)
    four_steps(node)
    assert not node.exists(PATH) and not node.exists(UNIT) and not node.exists(LINK)
    assert "azureSLBProbe" in node.run(["nft", "list", "tables"]).stdout


def test_a_masked_unit_stays_masked(node: NamespaceNode) -> None:
    node.run(["ln", "-s", "/dev/null", UNIT])
    assert "it is a link to /dev/null and so masks a unit" in refused(node)
    assert run(node, permanent=False)["changed"]
    run(node, state="absent")
    assert node.run(["readlink", UNIT]).stdout.strip() == "/dev/null"


def test_a_root_that_is_not_process_1s_has_a_permanent_plane_only(node: NamespaceNode) -> None:
    chroot = ["chroot", "/mnt"]
    with node.count_processes() as calls:
        node.run(["sh", "-e", "-c", ANOTHER_ROOT])
        before = node.snapshot()
        for state in ("present", "absent"):
            error = node.module("nftables_probe_snat", {"state": state}, through=chroot)
            assert error["failed"] and "this root is not process 1's" in error["msg"]
        assert node.snapshot() == before
        assert node.module("nftables_probe_snat", {"immediate": False}, through=chroot)["changed"]
    checks = [call[1] for call in calls if not any(word.endswith("systemd-analyze") for word in call)]
    assert checks == ["--net", "-c"]  # one check, in a network namespace of its own
    after = node.snapshot()
    assert after["nft"] == before["nft"] and after["files"] != before["files"]


# Obstacles to probes


def test_a_node_that_is_ready_is_not_warned_of(node: NamespaceNode) -> None:
    assert not run(node).get("warnings")


OBSTACLES: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "no default route": (["ip", "-6", "route", "del", "default"], {}, "no IPv6 default route by eth0"),
    "a default route by another link": (["true"], {"interface": "eth1"}, "no IPv6 default route by eth1"),
    "no forwarding": (["sysctl", "net.ipv6.conf.all.forwarding=0"], {}, "net.ipv6.conf.all.forwarding is 0"),
    "advertisements ignored": (["sysctl", "net.ipv6.conf.eth0.accept_ra=1"], {}, "net.ipv6.conf.eth0.accept_ra is 1"),
    "a priority behind connection tracking": (["true"], {"priority": -150}, "not before connection tracking"),
}


@pytest.mark.parametrize(("command", "options", "told"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_an_obstacle_to_probes_is_warned_of(node: NamespaceNode, command: list[str], options: dict[str, Any], told: str) -> None:
    node.run(command)
    assert told in warnings(run(node, **options))


@pytest.fixture
def advertised(lab: Lab, node: NamespaceNode) -> Iterator[NamespaceNode]:
    """A node whose kernel has its only IPv6 default route from a router advertisement."""
    node.run(["ip", "-6", "route", "del", "default"])
    node.run(["sh", "-c", "rm -f /etc/sysctl.d/*; mount -t tmpfs tmpfs /usr/lib/sysctl.d"])
    node.set_sysctls({"net.ipv6.conf.eth0.accept_ra": 2})
    advertisements = RouterAdvertisements(lab.load_balancer, lifetime=1800)
    until("the node has a default route", lambda: "proto ra" in node.run(["ip", "-6", "route", "show", "default"]).stdout)
    yield node
    advertisements.stop()


def test_warns_of_a_default_route_that_no_advertisement_renews(advertised: NamespaceNode) -> None:
    assert warnings(run(advertised)) == "[]"
    advertised.set_sysctls({"net.ipv6.conf.eth0.accept_ra": 0})
    assert "net.ipv6.conf.eth0.accept_ra is 0, and the IPv6 default route by eth0 comes from" in warnings(run(advertised))


@pytest.mark.parametrize("line", ["net.ipv6.conf.default.accept_ra = 0", "net.ipv6.conf.eth0.accept_ra = 1"])
def test_warns_of_a_file_that_costs_the_default_route_at_the_next_boot(advertised: NamespaceNode, line: str) -> None:
    """As Azure Linux 4 has it, in its file of hardening."""
    hardening = "/usr/lib/sysctl.d/70-azurelinux-hardening.conf"
    advertised.write(hardening, f"net.ipv6.conf.all.accept_ra = 0\n{line}\n")
    said = warnings(run(advertised))
    assert f"line 2 of {hardening} sets accept_ra of eth0 to {line[-1]}" in said
    advertised.write("/etc/sysctl.d/90-ra.conf", "net.ipv6.conf.eth0.accept_ra = 2\n")
    assert warnings(run(advertised)) == "[]"
