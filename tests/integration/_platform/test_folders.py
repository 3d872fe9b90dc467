# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders of files that root loads, and a node whose /etc is read-only."""

from __future__ import annotations

from typing import Any

import pytest

from lab.node import NamespaceNode
from lab.steps import Steps

# Folders of files that root loads: a new folder is made and removed. A folder that another user can write, that is a link, or
# that the collection did not make, is refused, and absent works


SYSTEMD = "/etc/systemd/system"
MODULES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nftables_probe_snat": ({}, ["/etc/kubenode", SYSTEMD, "/etc"]),
    "nftables_connmark": (
        {"primary_interface": "eth0", "pod_interfaces": ["veth*"], "strict": True},
        ["/etc/kubenode", SYSTEMD, "/etc/sysctl.d"],
    ),
    "policy_routes": ({"rules": [{"priority": 700, "from": "10.0.1.5", "table": 1003}]}, ["/etc/kubenode", SYSTEMD]),
    "rp_filter": ({"interfaces": ["eth0"], "mode": "loose"}, ["/etc/sysctl.d"]),
    "link_addresses": ({"addresses": [{"dev": "eth0", "address": "10.9.1.10"}]}, [SYSTEMD]),
}


@pytest.mark.parametrize(("module", "folder"), [(module, one) for module, (_more, named) in MODULES.items() for one in named])
def test_a_folder_that_another_user_can_write_is_refused_and_absent_works(node: NamespaceNode, module: str, folder: str) -> None:
    steps = Steps(node, module, MODULES[module][0])
    before = node.snapshot()
    steps.run()
    for command in (["chmod", "0777", folder], ["chown", "7:7", folder]):
        status = node.run(["stat", "-c", "%a %u:%g", folder]).stdout.split()
        node.run(command)
        said = f"{folder} {'has mode 0777' if command[0] == 'chmod' else 'belongs to user 7'}"
        assert said in steps.refused()
        if command[0] == "chmod":
            node.run(["chmod", status[0], folder])
    assert steps.run(state="absent")["changed"]
    node.run(["sh", "-c", f"test ! -e {folder} || chown {status[1]} {folder}"])
    assert node.snapshot() == before


def test_a_folder_that_is_a_link_is_refused_and_absent_works(node: NamespaceNode) -> None:
    steps = Steps(node, "nftables_probe_snat", {"path": "/opt/kubenode/probe.nft"})
    node.run(["ln", "-s", "/etc/cron.d", "/opt/kubenode"])
    before = node.snapshot()
    assert "a symbolic link leads from /opt/kubenode to /etc/cron.d; a folder is expected" in steps.refused()
    assert not steps.run(state="absent")["changed"] and node.snapshot() == before


PATHS = {
    "nftables_probe_snat": "probe.nft",
    "nftables_connmark": "return.nft",
    "policy_routes": "set.json",
    "rp_filter": "rp.conf",
}


@pytest.mark.parametrize("module", PATHS)
def test_a_new_folder_is_made_and_goes_with_its_last_file(node: NamespaceNode, module: str) -> None:
    clean = node.snapshot()
    steps = Steps(node, module, MODULES[module][0])
    path, moved = f"/etc/acme/{PATHS[module]}", f"/etc/elsewhere/{PATHS[module]}"
    steps.four(path=path)
    assert node.exists(path) and node.run(["stat", "-c", "%a %u:%g", "/etc/acme"]).stdout.split() == ["755", "0:0"]
    if module == "rp_filter":  # for which another path is another set
        steps.four(state="absent", path=path)
        assert not node.exists("/etc/acme")
    steps.four(path=moved)
    assert node.exists(moved) and not node.exists("/etc/acme")
    node.write("/etc/elsewhere/site", "theirs")
    steps.four(state="absent", path=moved)
    assert node.read("/etc/elsewhere/site") == "theirs"
    node.run(["rm", "-r", "/etc/elsewhere"])
    assert node.snapshot() == clean


@pytest.mark.parametrize("module", PATHS)
def test_a_folder_that_the_collection_did_not_make_is_refused_and_absent_works(node: NamespaceNode, module: str) -> None:
    steps = Steps(node, module, {**MODULES[module][0], "path": f"/etc/acme/{PATHS[module]}"})
    before = node.snapshot()
    steps.run()
    node.run(["rm", "/etc/acme/.kubenode"])
    error = "/etc/acme exists, and this collection did not make it"
    assert error in steps.refused()
    assert steps.run(state="absent")["changed"] and node.exists("/etc/acme")
    assert error in steps.refused() and "or /etc/kubenode-acme" in steps.refused()
    assert not steps.run(state="absent")["changed"]
    node.run(["rmdir", "/etc/acme"])
    assert node.snapshot() == before


def test_a_remainder_moves_into_no_folder_that_the_collection_did_not_make(node: NamespaceNode) -> None:
    """absent that removes only some rules writes the others to the path."""
    first, second = ({"priority": number, "from": "10.0.1.5", "table": 1003} for number in (700, 701))
    steps = Steps(node, "policy_routes", {"rules": [first]})
    steps.run(rules=[first, second])
    node.run(["mkdir", "/etc/acme"])
    assert "/etc/acme exists, and this" in steps.refused(state="absent", path="/etc/acme/set.json")
    assert steps.run(state="absent", path="/etc/elsewhere/set.json")["changed"] and node.exists("/etc/elsewhere/set.json")


# A node whose /etc is read-only: the permanent plane is refused before anything is changed, the immediate plane works


PERMANENT: dict[str, dict[str, Any]] = {
    "nftables_probe_snat": {},
    "nftables_connmark": {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]},
    "rp_filter": {"interfaces": ["eth0"], "mode": "loose"},
    "policy_routes": {"rules": [{"priority": 1536, "from": "10.0.1.5", "table": 1003}]},
}
REFUSED = (
    "because the file system at /etc is read-only. Nothing was changed. Make it writable, or set permanent to false, and run"
    " this again after each boot"
)


@pytest.mark.parametrize(("module", "options"), PERMANENT.items(), ids=PERMANENT)
def test_a_node_with_a_read_only_etc(node: NamespaceNode, module: str, options: dict[str, Any]) -> None:
    steps = Steps(node, module, options)
    clean = node.snapshot()
    with node.read_only("/etc"):
        assert REFUSED in steps.refused()
        steps.four(permanent=False)
        steps.four(permanent=False, state="absent")
    assert node.snapshot() == clean
    steps.run()
    with node.read_only("/etc"):
        assert not steps.run()["changed"]
        assert REFUSED in steps.refused(state="absent")
