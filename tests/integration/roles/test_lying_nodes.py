# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a node answers, in each playbook and to each module: it is data, and about this node alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab import honest_answers, lies, lying_fleet, playbook
from lab.lying_fleet import Fleet, Run

PACKET = "tcp 10.0.0.1:40000 > 10.96.0.1:443 in eth0"
CNI = {"azure_vnet": {"pods": []}, "cilium_agent": {"not_ready_taint": "node.cilium.io/agent-not-ready"}}
# What a task of each module gets. A lying node runs no module, so that only the arguments of an action are checked.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "azure_vnet_bridge": {},
    "cni_info": {},
    "datapath_audit": {"print": True},
    "datapath_info": {},
    "datapath_rehearsal": {"changes": [], "packets": []},
    "datapath_trace": {"packet": PACKET, "print": True},
    "ebtables_cleanup": {},
    "imds_info": {},
    "link_addresses": {"addresses": []},
    "network_daemons": {},
    "nftables_connmark": {},
    "nftables_package": {},
    "nftables_probe_snat": {},
    "node_mode": {},
    "node_report": {"lines": ["a line"]},
    "node_task": {"name": "find", "arguments": {"paths": ["/etc"]}},
    "node_service": {"state": "out", "name": "{{ inventory_hostname }}", "options": "{{ options }}", "cni": CNI},
    "policy_routes": {"rules": []},
    "profile": {"modules": [{"rp_filter": {"interfaces": ["eth0"]}}], "rehearse": True, "rehearse_packets": [PACKET]},
    "role_variables": {"role": "cilium_migration"},
    "rollout_check": {"role": "cilium_migration"},
    "rp_filter": {"interfaces": ["eth0"]},
}
CHECKS = [{"address": "10.0.0.1", "port": 22}, {"address": "10.0.0.1", "port": 22, "from": "honest2"}]


class Book(NamedTuple):
    """variables: of the inventory. write: makes the playbook, if it is not one of the collection. always: lies of each sample.

    each_core: one playbook of those whose templates and actions are alike suffices on the other ansible-cores.
    """

    variables: dict[str, Any]
    always: tuple[str, ...] = ()
    sample: int = 2  # lies of a sample, besides
    name: str = ""
    write: Callable[[Path], Path] | None = None
    each_core: bool = True


def every_module(path: Path) -> Path:
    """Write a play that gathers facts, from a liar's as well, and then runs each module of the collection."""
    options = {"kubectl": "{{ cilium_migration_kubectl }}", "state": "absent", "drain": True, "restart_daemonset_pods": False}
    tasks = [
        {f"kubenode.datapath.{name}": arguments, "name": name, "ignore_errors": True, "vars": {"options": options}}
        | ({"delegate_to": "localhost"} if name == "node_service" else {})
        for name, arguments in ARGUMENTS.items()
    ]
    path.write_text(json.dumps([{"hosts": "nodes", "gather_facts": True, "tasks": tasks}]))
    return path


def under_checkpoint(path: Path) -> Path:
    """Write a play with a change whose checkpoint the controller confirms."""
    change = {"interfaces": ["eth0"], "checkpoint": 60, "checkpoint_command": "true"}
    return playbook.write(path, [{"kubenode.datapath.rp_filter": change}], "nodes")


ARMED = tuple(f"handled: checkpoint_armed {kind}" for kind in ("null", "text", "dictionary", "nan"))
PROFILE = ("added: everything", "added: library", "template: values")
SERVICE = {"cilium_migration_cordon": True, "cilium_migration_drain": True, "cilium_migration_restart_daemonset_pods": True}
AUDIT = {"audit_folder": "FOLDER", "audit_prove": False}
TRACE = {"trace_packet": PACKET, "trace_html": "FOLDER/"}
BOOKS = {
    "aks_dual_stack": Book({"kubenode_checks": CHECKS}, PROFILE),
    "eni_policy_routing": Book({"eni_policy_routing_layout": "aws_vpc_cni"}, PROFILE[1:2], each_core=False),
    "symmetric_routing": Book(
        {"symmetric_routing_audit": True, "symmetric_routing_rehearse": True}, PROFILE[2:], each_core=False
    ),
    "cilium_migration": Book(
        {**SERVICE, "kubenode_checks": CHECKS[:1]}, ("added: hosts", "added: everything"), 1, each_core=False
    ),
    "an image": Book({"cilium_migration_mode": "image"}, ("template: values",), 0, "cilium_migration"),
    "audit": Book(AUDIT, ("added: paths", "added: everything", "template: values", "type: 1 list")),
    "audit on the controller": Book(
        {**AUDIT, "audit_on_controller": True, "audit_checks": ["own-drift"]}, ("template: values",), 0, "audit", each_core=False
    ),
    "trace": Book(TRACE, ("template: values", "added: templates"), 1, each_core=False),
    "every module": Book({"kubenode_max_failed_percentage": "100"}, ("added: commands", "added: package"), 1, write=every_module),
    "a checkpoint": Book({"lying_node_arms": True}, ARMED, 0, write=under_checkpoint),
}
SLICES = 12
ON_THE_NEWEST = ("trace", "every module", "a checkpoint")  # that make test plays on the newest ansible-core


def chosen(book: str, part: int | None) -> Iterator[str]:
    """Yield the lies of a part of all, or of the sample of a playbook. The samples of several playbooks have other lies."""
    most = max(len(lies.paths(answer)) for answer in honest_answers.answers().values())
    every = [*lies.every(most)]
    if part is not None:
        yield from every[part::SLICES]
        return
    yield from BOOKS[book].always
    place, number = [*BOOKS].index(book), BOOKS[book].sample
    yield from every[len(lies.ADDED) + 7 * place :: len(every) // (number + 1) + place][:number]


def runs(folder: Path, book: str, names: Iterator[str]) -> tuple[Run, Run, dict[str, dict[str, str]]]:
    """Run a playbook without liars, and again with one for each lie."""
    variables, write = BOOKS[book].variables, BOOKS[book].write
    liars = {f"liar{number}": {"lying_node_lie": lie} for number, lie in enumerate(names)}
    shell = {"cilium_migration": lies.SHELL_LIES[:1], "every module": lies.SHELL_LIES[1:2], "a checkpoint": lies.SHELL_LIES}
    liars |= {f"shell{number}": {"lying_node_shell_lie": lie} for number, lie in enumerate(shell.get(book, ()))}
    if book == "every module":
        liars |= {f"facts{kind}": {"lying_node_lie": f"added: {kind}", "lying_node_modules": "setup"} for kind in lies.FACTS}
    fleet = Fleet(folder, write(folder / "book.yml") if write else f"kubenode.datapath.{BOOKS[book].name or book}", variables)
    return fleet.run("alone", {}), fleet.run("together", liars), liars


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a socket, which Ansible has in it, may have 107 bytes (unix(7))."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def case(book: str) -> Any:
    marks = [pytest.mark.each_core] * BOOKS[book].each_core + [pytest.mark.thorough] * (book not in ON_THE_NEWEST)
    return pytest.param(book, marks=marks)


@pytest.mark.parametrize("book", map(case, BOOKS))
def test_the_answers_of_a_lying_node_are_data(folder: Path, book: str) -> None:
    alone, together, liars = runs(folder, book, chosen(book, None))
    assert not lying_fleet.violations(alone, together, liars)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("book", BOOKS)
def test_each_lie_in_each_playbook_is_data(folder: Path, book: str, part: int) -> None:
    alone, together, liars = runs(folder, book, chosen(book, part))
    assert not lying_fleet.violations(alone, together, liars)


def test_each_module_gets_lies() -> None:
    assert {*ARGUMENTS} == {path.stem for path in honest_answers.MODULES.glob("*.py")}
