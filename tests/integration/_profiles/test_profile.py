# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""profile on a real kernel: all of it or nothing, in the safe order, with one result for each module."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import Lab
from lab.node import NamespaceNode
from lab.steps import Steps, warnings

Modules = list[dict[str, Any]]

RULES = [{"priority": 700, "from": "10.0.1.10", "table": 1003}]
ROUTES = [{"table": 1003, "to": "default", "via": "10.0.1.1", "dev": "eth1", "onlink": True}]
# In an unsafe order.
MODULES: Modules = [
    {"nftables_connmark": {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "strict": True}},
    {"nftables_probe_snat": {"boot_condition": "none"}},
    {"policy_routes": {"rules": RULES, "routes": ROUTES}},
    {"link_addresses": {"addresses": [{"dev": "eth1", "address": "10.0.1.10"}]}},
    {"rp_filter": {"interfaces": ["eth0"], "mode": "loose"}},
    {"network_daemons": {}},
]
ORDER = [
    *("network_daemons", "rp_filter", "link_addresses"),
    *("policy_routes", "nftables_connmark", "nftables_probe_snat"),
]


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    node = lab.node("node1")
    node.ip(["link add eth1 type veth peer name peer1", "link set peer1 up", "link set eth1 up"])
    return node


@pytest.fixture
def profile(node: NamespaceNode) -> Iterator[Steps]:
    """Run the module with a mode: the namespace node has no systemd of its own, and would be taken for an image."""
    yield Steps(node, "profile", {"modules": MODULES, "mode": "runtime"})


def changed(result: dict[str, Any], *names: str) -> list[bool]:
    return [result[name]["changed"] for name in names or ORDER]


def summarized(result: dict[str, Any]) -> list[str]:
    return [line.split()[0] for line in result["summary"]]


def test_create_modify_delete_delete_again(node: NamespaceNode, profile: Steps) -> None:
    clean = node.snapshot()
    result = profile.four()
    assert summarized(result) == ORDER and all(changed(result))
    assert result["policy_routes"]["rules"]["added"] == ["ip rule 700: from 10.0.1.10 lookup 1003"]
    assert result["rp_filter"]["interfaces"]["eth0"]["after"]["effective"] == 2
    planes, names = zip(*(entry["before_header"].split(": ", 1) for entry in result["diff"]))
    assert [*dict.fromkeys(planes)] == ["immediate", "permanent"] and [*planes] == sorted(planes)
    assert "/etc/kubenode/probe-snat.nft" in names and not any(", " in name for name in names)

    fewer = [{**one, "policy_routes": {"rules": [], "routes": []}} if "policy_routes" in one else one for one in MODULES]
    modified = profile.four(modules=fewer)
    assert changed(modified) == [name == "policy_routes" for name in ORDER]

    gone = profile.four(state="absent")
    assert summarized(gone) == ORDER[::-1]
    assert node.snapshot() == clean
    assert not profile.run(state="absent")["changed"]
    assert node.snapshot() == clean


def test_a_module_finds_what_a_profile_has_set_as_desired(node: NamespaceNode, profile: Steps) -> None:
    """The same code runs: a module sets the same alone and in a profile."""
    profile.run()
    for module in MODULES:
        ((name, options),) = module.items()
        given = {"restart": True} if name == "network_daemons" else options
        assert not Steps(node, name, given).run()["changed"], name
    for name in ORDER[::-1]:
        Steps(node, name, {"state": "absent"}).run()
    assert not profile.run(state="absent")["changed"]


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        ("policy_routes", {"rules": [{"priority": 1, "table": 1}], "protocol": 186}, "policy_routes.protocol must be"),
        ("policy_routes", {"rules": [{"priority": 1, "table": 1, "to": "eth9"}]}, "policy_routes.rules[0].to must be"),
        ("policy_routes", {"rules": "no list"}, "policy_routes.rules must be"),
        ("rp_filter", {"interfaces": ["nowhere"], "mode": "loose"}, "nowhere"),
        ("rp_filter", {"interface": "eth0"}, "rp_filter.interface must be left out"),
        ("rp_filter", {"interfaces": ["eth0"], "mode": "lose"}, "rp_filter.mode must be one of"),
        (
            "rp_filter",
            {"checkpoint": 5},
            "modules[0].rp_filter.checkpoint must be left out: set the profile's checkpoint",
        ),
        ("nftables_connmark", {"primary_interface": "eth9", "pod_interfaces": ["veth-*"]}, "eth9"),
        (
            "nftables_connmark",
            {"primary_interface": "eth0", "immediate": False, "permanent": False},
            "immediate must be",
        ),
        ("link_addresses", {"addresses": [{"dev": "eth9", "address": "10.0.1.10"}]}, "eth9"),
        ("nftables_probe_snat", {"path": "/nowhere/at/all.nft"}, "path must be in or below a folder"),
        ("imds_info", {}, "modules[0] must be one of"),
    ],
)
def test_a_wrong_option_of_one_module_changes_nothing_of_any(
    node: NamespaceNode, profile: Steps, module: str, options: dict[str, Any], said: str
) -> None:
    other_modules = [one for one in MODULES if module not in one]
    assert said in profile.refused(modules=[{module: options}, *other_modules])


def test_a_module_knows_what_the_modules_before_it_do(node: NamespaceNode, profile: Steps) -> None:
    """The mark's rule is not there yet when the table that needs it is planned."""
    table = {"nftables_connmark": {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]}}
    rule = {"policy_routes": {"rules": [{"priority": 1024, "fwmark": "0x80/0x80", "table": "main"}]}}
    assert "No rule routes by mark" in str(warnings(profile.run(check=True, modules=[table])))
    for check in (True, False):
        assert not warnings(profile.run(check=check, modules=[table, rule]))


@pytest.mark.parametrize(
    ("filters", "is_warned"),
    [({"state": "absent"}, False), ({"mode": "loose"}, False), ({"mode": "strict"}, True)],
    ids=["undone", "loosened", "kept"],
)
def test_a_filter_that_the_profile_loosens_does_not_stay_strict(profile: Steps, filters: dict[str, Any], is_warned: bool) -> None:
    table: dict[str, Any] = {"primary_interface": "eth0", "pod_interfaces": ["veth-*"], "strict": True}
    strict: dict[str, Any] = {"interfaces": ["eth0"], "mode": "strict"}
    profile.run(modules=[{"rp_filter": strict}, {"nftables_connmark": table}])
    modules = [{"rp_filter": {"interfaces": ["eth0"], **filters}}, {"nftables_connmark": {"state": "absent"}}]
    assert bool(warnings(profile.run(check=True, modules=modules))) is is_warned


def test_an_interface_that_comes_later_is_asked_for(node: NamespaceNode, profile: Steps) -> None:
    modules: Modules = [{"rp_filter": {"interfaces": ["eth7", "en*"], "mode": "loose"}}]
    assert "rp_filter.interfaces[0] must be an interface of this node (eth0, " in profile.refused(modules=modules)
    profile.run(modules=modules, later_interfaces=True)
    node.ip(["link add eth7 type veth peer name peer7"])
    assert profile.run(modules=modules)["rp_filter"]["changed"]


def test_the_plan_of_a_profile_may_be_given_as_modules(node: NamespaceNode) -> None:
    """The plan is what a profile does: given as a list of modules, it finds nothing to change."""
    node.ip(["address add 2001:db8::4/64 dev eth0 nodad"])
    options = {"mode": "runtime", "ipv6": "address"}
    result = Steps(node, "profile", {"name": "aks_dual_stack", "options": options}).run()
    assert result["changed"] and result["node"]["has_ipv6"]
    again = Steps(node, "profile", {"modules": result["plan"], "mode": "runtime"}).run()
    assert (again["changed"], again["plan"]) == (False, result["plan"])
    undone = Steps(node, "profile", {"name": "aks_dual_stack", "options": {**options, "state": "absent"}}).run()
    assert [next(iter(one)) for one in undone["plan"]] == ["nftables_probe_snat", "nftables_package"]


def test_an_error_on_the_node_begins_with_the_variable_of_the_role(node: NamespaceNode) -> None:
    def refused(profile: str, **options: Any) -> str:
        return Steps(node, "profile", {"name": profile, "options": {"mode": "runtime", **options}}).refused()

    dual_stack = {"ipv6": "always"}
    assert refused("aks_dual_stack", **dual_stack, interface="eth9").startswith("aks_dual_stack_interface must be an interface")
    assert refused("aks_dual_stack", **dual_stack, table="accept").startswith("aks_dual_stack_table must be a word that")
    assert refused("aks_dual_stack", **dual_stack, tabel="x").startswith("aks_dual_stack_tabel must be left out")
    enis = [{"name": "eth0", "primary": True}]
    custom = {"layout": "custom", "pod_interfaces": ["veth-*"], "enis": enis}
    marks = [{"name": "eth9", "mark": "0x20"}]
    said = refused("eni_policy_routing", **custom, interface_marks=marks)
    assert said.startswith("eni_policy_routing_interface_marks[0].name must be an interface of this node (eth0, ")
    said = refused("eni_policy_routing", **custom, remedy="strict", connmark="never")
    assert said.startswith("eni_policy_routing_remedy is strict and eni_policy_routing_connmark is never")


def test_a_step_that_fails_undoes_the_modules_before_it(node: NamespaceNode, profile: Steps) -> None:
    """The last table's script cannot be written, because a folder is at its path."""
    before = node.snapshot()
    unit = "/etc/systemd/system/kubenode-nft-ip6-azureSLBProbe.service"
    node.run(["mkdir", "-p", f"{unit}/full"])
    blocked = node.snapshot()
    failed = profile.call()
    assert failed["failed"] and unit in failed["msg"], failed
    assert node.snapshot() == blocked
    node.run(["rm", "-r", unit])
    assert node.snapshot() == before


def test_an_image_gets_only_what_its_nodes_load(node: NamespaceNode, profile: Steps) -> None:
    before = node.snapshot()
    result = profile.run(mode="image")
    after = node.snapshot()
    assert result["node"]["is_image"] and not result["node"]["is_running"]
    assert {name for name in after if after[name] != before[name]} == {"files"}
    profile.run(mode="image", state="absent")
    assert node.snapshot() == before


def test_modules_may_be_json_text_and_an_entry_may_be_empty(node: NamespaceNode) -> None:
    text = '[{"rp_filter": {"interfaces": ["eth0"], "mode": "loose"}}, {}]'
    result = Steps(node, "profile", {"modules": text, "mode": "runtime"}).run()
    assert summarized(result) == ["rp_filter"]


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A cgroup with the controller of memory, of version 1 or 2."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    parent = first if first.is_dir() else second
    group = parent / f"lab-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no cgroup can be made here")
    if not any((group / name).exists() for name in LIMITS):
        group.rmdir()
        pytest.skip("this cgroup has no controller of memory")
    yield group
    group.rmdir()


LIMITS = ("memory.limit_in_bytes", "memory.max")


@pytest.mark.thorough
def test_a_profile_that_the_kernel_kills_for_lack_of_memory_is_mended_by_the_next_run(
    node: NamespaceNode, profile: Steps, memory: Path
) -> None:
    before, ends = node.snapshot(), []
    limit = next(memory / name for name in LIMITS if (memory / name).exists())
    enter = ["sh", "-c", f'echo $$ > /proc/{os.getpid()}/root{memory}/cgroup.procs && exec "$@"', "sh"]
    for megabytes in (32, 36, 40, 44, 200):
        limit.write_text(f"{megabytes}M")
        killed = node.module("profile", {"modules": MODULES, "mode": "runtime"}, through=enter)
        ends.append(killed["failed"])
        profile.run()
        assert profile.run()["changed"] is False
        profile.run(state="absent")
        assert node.snapshot() == before
    assert ends[0] and not ends[-1], f"no limit was in the middle: {ends}"


DISK = "/mnt"
ON_DISK = ("/etc/kubenode", "/etc/sysctl.d", "/etc/systemd/system", "/var/lib/kubenode", "/run")


@contextmanager
def small_disk(node: NamespaceNode) -> Iterator[Callable[[int], None]]:
    """All folders that a profile writes to on one small disk. Yields a function that leaves so many pages free on it."""

    def leave(pages: int) -> None:
        used = node.run(["df", "--output=used", "-B4096", DISK]).stdout.split()[-1]
        node.run(["mount", "-o", f"remount,size={(int(used) + pages) * 4096}", DISK])

    node.run(["mount", "-t", "tmpfs", "-o", "size=16m", "disk", DISK])
    for number, folder in enumerate(ON_DISK):
        node.run(["mkdir", "-p", folder, f"{DISK}/{number}"])
        node.run(["cp", "-a", f"{folder}/.", f"{DISK}/{number}/"])
        node.run(["mount", "--bind", f"{DISK}/{number}", folder])
    try:
        yield leave
    finally:
        for folder in (*ON_DISK[::-1], DISK):
            node.run(["umount", "--lazy", folder])


# The first files of the run, of the boot, and those behind the program of the listener, which has some 90 pages.
@pytest.mark.parametrize("pages", [1, 4, 8, 100])
def test_a_disk_that_gets_full_in_the_middle_undoes_all_of_a_profile(node: NamespaceNode, profile: Steps, pages: int) -> None:
    with small_disk(node) as leave:
        leave(pages)
        before = node.snapshot()
        assert re.search(r"No space left on device \(df \S+\)\. All changes were undone", profile.refused(check_fails=False))
        assert node.snapshot() == before


def test_absent_works_on_a_full_disk(node: NamespaceNode, profile: Steps) -> None:
    with small_disk(node) as leave:
        before = node.snapshot()
        profile.run()
        leave(0)
        assert profile.run(state="absent")["changed"]
        assert node.snapshot() == before
