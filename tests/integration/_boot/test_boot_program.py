# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The condition of the boot unit: the program as the module places it, on a node without Ansible."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lab import Lab, Node
from lab.metadata import Behaviour, MetadataServer
from lab.metadata_replies import DUAL_STACK, IPV4_ONLY, NO_IPV6_KEY, Nic
from lab.node import NamespaceNode
from lab.node_conditions import BOOTED_NOW

PROGRAM = "/etc/kubenode/probe-snat.nft.pyz"
UNIT = "/etc/systemd/system/kubenode-nft-ip6-azureSLBProbe.service"
YES, NO, UNKNOWN = 0, 77, 255


@pytest.fixture(scope="module")
def running() -> Iterator[Lab]:
    with Lab("boot", nodes=[Node("node1")]) as lab:
        yield lab


@pytest.fixture(scope="module")
def node(running: Lab) -> NamespaceNode:
    return running.node("node1")


def place(node: NamespaceNode, condition: str) -> None:
    result = node.module("nftables_probe_snat", {"boot_condition": condition, "immediate": False})
    assert not result["failed"], result


def ask(node: NamespaceNode, seconds: float, through: Sequence[str] = BOOTED_NOW) -> subprocess.CompletedProcess[str]:
    """Runs the unit's ExecCondition=, with another deadline, as on a node that boots."""
    (command,) = re.findall("^ExecCondition=(.*)$", node.read(UNIT), re.M)
    *words, _deadline = shlex.split(command.replace("$$", "$"))
    return node.run([*through, *words, str(seconds)], check=False)


METADATA = {"dual stack": (DUAL_STACK, YES), "IPv4 only": (IPV4_ONLY, NO), "no key ipv6": (NO_IPV6_KEY, NO)}
# Metadata of a second interface; the first has its values from METADATA.
SECOND = {
    "none": (),
    "with an empty MAC": (dataclasses.replace(DUAL_STACK, mac=""),),
    "with an empty subnet": (dataclasses.replace(DUAL_STACK, subnet4="/"),),
    "without IPv4": (dataclasses.replace(DUAL_STACK, ipv4=(), subnet4="/"),),
    "with odd values": (Nic(mac="?", ipv4=("nowhere",), ipv6=("10.0.0.4",), subnet4="10.0.0.0/77"),),
}


@pytest.mark.parametrize("second", SECOND.values(), ids=SECOND.keys())
@pytest.mark.parametrize(("nic", "status"), METADATA.values(), ids=METADATA.keys())
def test_metadata_of_the_primary_interface_decides(
    running: Lab, node: NamespaceNode, nic: Nic, status: int, second: tuple[Nic, ...]
) -> None:
    place(node, "imds")
    with MetadataServer(running.load_balancer, nics=(nic, *second)):
        completed = ask(node, 10)
    assert completed.returncode == status, completed
    assert re.search("the metadata service of azure names .* for the primary interface", completed.stdout)


@pytest.mark.parametrize("condition", ["imds", "address"])
def test_a_node_that_has_booted_long_ago_is_asked_without_patience(node: NamespaceNode, condition: str) -> None:
    place(node, condition)
    node.ip([f"address del {node.address}/64 dev eth0"])
    started = time.monotonic()
    status = ask(node, 20, through=[]).returncode
    node.ip([f"address add {node.address}/64 dev eth0 nodad"])
    assert status == {"imds": UNKNOWN, "address": NO}[condition]
    assert time.monotonic() - started < 10
    assert ask(node, 20, through=[]).returncode == {"imds": UNKNOWN, "address": YES}[condition]


def test_metadata_that_comes_late_is_waited_for(running: Lab, node: NamespaceNode) -> None:
    place(node, "imds")
    server = MetadataServer(running.load_balancer)
    server.start(Behaviour(up_after=2.0))
    started = time.monotonic()
    completed = ask(node, 20)
    server.stop()
    assert completed.returncode == YES, completed
    assert 1.5 < time.monotonic() - started < 6


FAULTS = {
    "never": Behaviour(fault="refused"),
    "silence": Behaviour(fault="silence"),
    "an error page": Behaviour(fault="status", status=500),
    "garbage": Behaviour(fault="garbage"),
    "cut off": Behaviour(fault="truncated"),
}


@pytest.mark.parametrize("behaviour", FAULTS.values(), ids=FAULTS.keys())
def test_metadata_that_is_ill_fails_at_the_deadline_and_says_why(running: Lab, node: NamespaceNode, behaviour: Behaviour) -> None:
    place(node, "imds")
    server = MetadataServer(running.load_balancer)
    server.start(behaviour)
    started = time.monotonic()
    completed = ask(node, 3)
    server.stop()
    assert completed.returncode == UNKNOWN, completed
    assert "Cannot determine whether this node has IPv6" in completed.stderr and "metadata" in completed.stderr
    assert 1 < time.monotonic() - started < 5


def test_metadata_that_recovers_is_believed(running: Lab, node: NamespaceNode) -> None:
    place(node, "imds")
    server = MetadataServer(running.load_balancer)
    server.start(Behaviour(fault="garbage"))
    threading.Timer(1.0, lambda: server.change(Behaviour())).start()
    completed = ask(node, 20)
    server.stop()
    assert completed.returncode == YES, completed


def test_an_address_decides_and_is_waited_for(node: NamespaceNode) -> None:
    place(node, "address")
    assert ask(node, 0).returncode == YES
    node.ip([f"address del {node.address}/64 dev eth0"])
    assert ask(node, 0.3).returncode == NO
    node.run(["sh", "-c", f"(sleep 1; ip address add {node.address}/64 dev eth0 nodad) >/dev/null 2>&1 &"])
    assert ask(node, 10).returncode == YES


def test_the_program_needs_no_ansible_no_environment_and_the_oldest_python(node: NamespaceNode) -> None:
    place(node, "address")
    for python in ("/usr/bin/python3", *oldest_pythons()):
        result = node.run(["env", "-i", python, "-I", "-S", "-B", PROGRAM, "address", "eth0", "0"], check=False)
        assert (result.returncode, result.stderr) == (YES, "")
    assert node.run(["find", "/etc/kubenode", "-name", "*.pyc"]).stdout == ""


def oldest_pythons() -> list[str]:
    return [str(path.resolve()) for path in sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))[:1]]


def too_old_pythons() -> list[str]:
    return [str(path) for path in sorted(Path.home().glob(".pyenv/versions/[23].[678].*/bin/python[23].[678]"))]


@pytest.mark.parametrize("python", too_old_pythons())
def test_a_python_that_is_too_old_says_so_in_a_sentence(node: NamespaceNode, python: str) -> None:
    place(node, "address")
    result = node.run([python, PROGRAM, "address", "eth0", "0"], check=False)
    assert result.returncode == UNKNOWN
    assert result.stderr.startswith("kubenode.datapath needs Python 3.9 or newer at boot; ") and result.stderr.count("\n") == 1


def test_the_program_is_the_same_each_time_it_is_made(node: NamespaceNode) -> None:
    place(node, "imds")
    assert not node.module("nftables_probe_snat", {"boot_condition": "imds", "immediate": False})["changed"]


@pytest.mark.parametrize("harm", ["broken", "gone"])
def test_a_program_that_cannot_tell_is_no_program_that_says_no(node: NamespaceNode, harm: str) -> None:
    place(node, "address")
    if harm == "broken":
        node.write(PROGRAM, "syntax error (\n")
    else:
        node.remove(PROGRAM)
    assert ask(node, 1).returncode == UNKNOWN


def test_the_program_goes_with_the_condition(node: NamespaceNode) -> None:
    place(node, "imds")
    place(node, "none")
    assert not node.exists(PROGRAM) and "ExecCondition" not in node.read(UNIT)
    result = node.module("nftables_probe_snat", {"state": "absent"})
    assert not result["failed"] and not node.exists("/etc/kubenode")
