# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a node answers, in each playbook and to each module: it is data, and about this node alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab import honest_answers, lies, lying_fleet, playbook
from lab.lying_fleet import Fleet, Run
from sampling import sampled

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
    "node_service": {"state": "out", "name": "{{ inventory_hostname }}", "options": "{{ options }}", "cni": CNI},
    "policy_routes": {"rules": []},
    "profile": {"modules": [{"rp_filter": {"interfaces": ["eth0"]}}], "rehearse": True, "rehearse_packets": [PACKET]},
    "profile_aks_dual_stack": {"options": {}},
    "profile_cilium_migration": {"options": {}},
    "profile_eni_policy_routing": {"options": {}},
    "profile_symmetric_routing": {"options": {}},
    "role_variables": {"role": "cilium_migration"},
    "rollout_check": {"role": "cilium_migration"},
    "rp_filter": {"interfaces": ["eth0"]},
}
CHECKS = [{"address": "10.0.0.1", "port": 22}, {"address": "10.0.0.1", "port": 22, "from": "honest2"}]


class Book(NamedTuple):
    """variables: of the inventory. write: makes the playbook, if it is not one of the collection. always: lies of each sample."""

    variables: dict[str, Any]
    always: tuple[str, ...] = ()
    sample: int = 3  # lies of a sample, besides
    name: str = ""
    write: Callable[[Path], Path] | None = None


def every_module(path: Path) -> Path:
    tasks = [
        {f"kubenode.datapath.{name}": arguments, "name": name, "ignore_errors": True, "become": False}
        | ({"delegate_to": "localhost"} if name == "node_service" else {})
        for name, arguments in ARGUMENTS.items()
    ]
    options = {"kubectl": "{{ cilium_migration_kubectl }}", "state": "absent", "drain": True, "restart_daemonset_pods": False}
    return playbook.write(path, [{**task, "vars": {"options": options}} for task in tasks], "nodes")


def gathers_facts(path: Path) -> Path:
    role = {"ansible.builtin.import_role": {"name": "kubenode.datapath.cilium_migration"}}
    playbook.write(path, [role], "nodes")
    path.write_text(path.read_text().replace('"gather_facts": false', '"gather_facts": true'))
    return path


FACTS = tuple(f"added: {kind}" for kind in lies.FACTS)
PROFILE = ("added: commands", "added: library", "template: values")
SERVICE = {"cilium_migration_cordon": True, "cilium_migration_drain": True, "cilium_migration_restart_daemonset_pods": True}
AUDIT = {"audit_folder": "FOLDER", "audit_prove": False}
TRACE = {"trace_packet": PACKET, "trace_html": "FOLDER/"}
BOOKS = {
    "aks_dual_stack": Book({"kubenode_checks": CHECKS}, PROFILE),
    "eni_policy_routing": Book({"eni_policy_routing_layout": "aws_vpc_cni"}, PROFILE),
    "symmetric_routing": Book({"symmetric_routing_audit": True, "symmetric_routing_rehearse": True}, PROFILE),
    "cilium_migration": Book({**SERVICE, "kubenode_checks": CHECKS[:1]}, ("added: commands", "added: hosts", "template: values")),
    "an image": Book({"cilium_migration_mode": "image"}, ("template: values",), 1, "cilium_migration"),
    "audit": Book(AUDIT, ("added: paths", "template: values", "type: 1 list")),
    "audit on the controller": Book({**AUDIT, "audit_on_controller": True}, ("template: values",), 1, "audit"),
    "trace": Book(TRACE, ("added: paths", "template: values"), 2),
    "every module": Book({}, ("added: commands", "added: broken statistics", "template: values"), 2, write=every_module),
    "gathered facts": Book(SERVICE, FACTS, 0, write=gathers_facts),
}
SLICES = 12


def chosen(book: str, part: int | None) -> Iterator[str]:
    """Yield the lies of a part of all, or of the sample of a playbook: the lists of several playbooks begin at other lies."""
    most = max(len(lies.paths(answer)) for answer in honest_answers.answers().values())
    every = [*lies.every(most)]
    if part is not None:
        yield from every[part::SLICES]
        return
    yield from BOOKS[book].always
    start, number = [*BOOKS].index(book), BOOKS[book].sample
    added, others = every[: len(lies.ADDED)], every[len(lies.ADDED) :]
    yield from (added[(start * number + place) % len(added)] for place in range(number // 2))
    step = len(others) // (number + 1) + 1
    yield from others[start * 7 :: step][: number - number // 2]


def runs(folder: Path, book: str, names: Iterator[str]) -> tuple[Run, Run, dict[str, dict[str, str]]]:
    """Run a playbook without liars, and again with one for each lie."""
    variables, write = BOOKS[book].variables, BOOKS[book].write
    is_fact = book == "gathered facts"
    liars = {
        f"liar{number}": {"lying_node_lie": lie, **({"lying_node_modules": "setup"} if is_fact else {})}
        for number, lie in enumerate(names)
    }
    if book != "gathered facts":
        liars |= {f"shell{number}": {"lying_node_shell_lie": lie} for number, lie in enumerate(lies.SHELL_LIES[:2])}
    fleet = Fleet(folder, write(folder / "book.yml") if write else f"kubenode.datapath.{BOOKS[book].name or book}", variables)
    return fleet.run("alone", {}), fleet.run("together", liars), liars


@pytest.mark.each_core
@pytest.mark.parametrize("book", BOOKS)
def test_the_answers_of_a_lying_node_are_data(tmp_path: Path, book: str) -> None:
    alone, together, liars = runs(tmp_path, book, chosen(book, None))
    assert not lying_fleet.violations(alone, together, liars)


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("book", BOOKS)
def test_each_lie_in_each_playbook_is_data(tmp_path: Path, book: str, part: int) -> None:
    alone, together, liars = runs(tmp_path, book, chosen(book, part))
    assert not lying_fleet.violations(alone, together, liars)


def test_each_module_gets_lies() -> None:
    assert {*ARGUMENTS} == {path.stem for path in honest_answers.MODULES.glob("*.py")}


def test_each_added_key_and_each_text_is_in_a_sample() -> None:
    names = {lie for book in BOOKS for lie in chosen(book, None)}
    assert {f"added: {kind}" for kind in lies.ADDED} <= names
