# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong variables of the roles, one after another on one node: each is an error that names the variable, and nothing changes."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, collection, playbook
from lab.node import NamespaceNode

Wrong = tuple[str, Any]  # a variable without the role's prefix, and its value

PRIMARY = {"name": "eth0", "primary": True, "ipv4": ["192.0.2.10"]}
SECOND = {"name": "eth1", "gateway": {"ipv4": "10.0.1.1"}, "table": 1101, "ipv4": ["10.0.1.10"]}

UPLINKS = [{"name": "eth0", "gateway": "192.0.2.1"}, {"name": "eth1", "gateway": "10.0.1.1"}]


def enis(**changes: Any) -> Wrong:
    return ("enis", [PRIMARY, {**SECOND, **changes}])


RIGHT: dict[str, dict[str, Any]] = {
    "eni_policy_routing": {
        "mode": "runtime",
        "layout": "custom",
        "connmark": "always",
        "pod_interfaces": ["veth-*"],
        "enis": [PRIMARY, SECOND],
    },
    "aks_dual_stack": {"mode": "runtime", "ipv6": "always"},
    "symmetric_routing": {"mode": "runtime", "uplinks": UPLINKS},
}
WRONG: dict[str, list[Wrong]] = {
    "eni_policy_routing": [
        *(("remedi", "loose"), ("enis", "eth0"), ("enis", []), ("enis", [SECOND]), ("enis", [PRIMARY, PRIMARY])),
        *(enis(table=254), enis(table="nowhere"), enis(name="eth9"), enis(gateway={"ipv4": "10.0.1.256"})),
        *(enis(gateway={}), enis(ipv4=["10.0.1.0/24"]), enis(pods=["eth0"]), enis(name="eth0")),
        ("enis", [PRIMARY, SECOND, {**SECOND, "name": "eth2"}]),
        *(("before", ["kubelet"]), ("before", ["network.target"])),
        *(("protocol", 186), ("protocol", 0), ("protocol", 256), ("protocol", "bird")),
        *(("checkpoint", 2), ("checkpoint", 4000), ("checkpoint", "soon")),
        *(("layout", "calico"), ("layout", None), ("remedy", "lose"), ("connmark", "sometimes"), ("state", "gone")),
        *(("mark", "0x100/0x80"), ("mark", "high"), ("priorities", {"mark": 1}), ("priorities", {"pods": 5})),
        *(("pod_interfaces", ["veth *"]), ("pod_interfaces", []), ("primary_interface", "eth9")),
        *(("primary_interface", "a/b"), ("cloud", "gcp"), ("mode", "dream"), ("raise_all", "perhaps")),
        *(("manage", []), ("manage", ["rules"]), ("manage", '["mark_rule", 5]'), ("manage", "tables,filter")),
    ],
    "aks_dual_stack": [
        *(("tabel", "x"), ("table", "1x"), ("table", "accept"), ("interface", "eth9"), ("interface", "eth0;drop")),
        *(("priority", "high"), ("priority", 2**31), ("probes", "fe80::1"), ("probes", [])),
        *(("probes", [{"source": "fe80::1"}]), ("probes", [{"source": "10.0.0.1", "translated": "2001:db8::1"}])),
        *(("path", "probe.nft"), ("path", "/run/probe.nft"), ("path", "/etc/systemd/system/x.nft")),
        *(("path", "/nowhere/at/all.nft"), ("ipv6", "perhaps"), ("nftables_minimum_version", "new")),
        *(("nftables_lock_timeout", -1), ("nftables_service", "stopped"), ("before", ["a b"])),
        *(("state", "gone"), ("agentbaker", "mine"), ("mode", "dream")),
    ],
    "symmetric_routing": [
        *(("uplink", UPLINKS), ("uplinks", "eth0"), ("uplinks", []), ("uplinks", [{"gateway": "192.0.2.1"}])),
        *(
            ("uplinks", [{"name": "eth1"}]),
            ("uplinks", [{"name": "eth9", "gateway": "192.0.2.1"}]),
            ("uplinks", [{"name": "a/b"}]),
        ),
        *(("uplinks", [UPLINKS[0], UPLINKS[0]]), ("uplinks", [{**UPLINKS[0], "gateway": "fd00::1"}])),
        *(("uplinks", [{**UPLINKS[0], "table": 254}]), ("uplinks", [{**UPLINKS[0], "mark": "high"}])),
        *(("uplinks", [{**UPLINKS[0], "metric": 5}]), ("protocol", 186), ("protocol", "bird"), ("mode", "dream")),
        *(("checkpoint", 2), ("state", "gone"), ("before", ["network.target"]), ("raise_all", "perhaps")),
    ],
}
# Values that no variable takes, for every variable that is not free text.
JUNK: Sequence[Any] = ({"a": {"b": 1}}, [["x"]], -5, "\n", "{{ nothing_of_this_name }}", "x" * 300, "[1, 2", 10**20)
FREE = {"checkpoint_command", "restart_networkd", "nftables", "later_interfaces", "raise_all", "rehearse", "state"}


def junk(role: str, count: int = 24) -> list[Wrong]:
    """Always the same values: a list or dictionary for a text, and a text for a list."""
    specs = (collection.CHECKOUT / "roles" / role / "meta/argument_specs.yml").read_text()
    names = sorted({*re.findall(rf"^      {role}_(\w+):", specs, re.MULTILINE)} - FREE)
    chosen = random.Random(role)
    return [(chosen.choice(names), chosen.choice(JUNK)) for _number in range(count)]


@pytest.mark.parametrize(("role", "every"), sampled(itertools.product(RIGHT, (3, 1)), lambda case: case[1] == 3))
def test_wrong_variables_are_told_by_name_and_leave_the_node_as_it_was(lab: Lab, tmp_path: Path, role: str, every: int) -> None:
    """every: one value of so many; unit tests have each of the models' own."""
    node: NamespaceNode = lab.node("node1")
    node.ip(["link add eth1 type veth peer name peer1", "link set peer1 up", "link set eth1 up"])
    before = node.snapshot()
    wrong = [*WRONG[role], *junk(role)]
    inventory = lab.write_inventory(tmp_path / "inventory.json")
    for arguments, tried in ((["--check"], wrong[:: 6 * every]), ([], wrong[::every])):
        told = played(inventory, tmp_path, role, tried, arguments)
        unnamed = [
            (name, value, said) for (name, value), said in zip(tried, told, strict=True) if not said.startswith(f"{role}_")
        ]
        assert not unnamed
    assert node.snapshot() == before


def played(inventory: Path, folder: Path, role: str, wrong: Sequence[Wrong], arguments: Sequence[str]) -> list[str]:
    """The error about each, from one play."""
    tasks = [task for name, value in wrong for task in attempt(role, {**RIGHT[role], name: value})]
    keep = {"content": "{{ told | to_json }}", "dest": str(folder / "told.json")}
    last = {"ansible.builtin.copy": keep, "delegate_to": "localhost", "check_mode": False}
    play = playbook.write(folder / "play.json", [*tasks, last])
    done = playbook.play(inventory, play, *arguments)
    assert not done.failed, done.output[-3000:]
    said: list[str] = json.loads((folder / "told.json").read_text())
    return said


def attempt(role: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
    """Records the error; none if the role accepted the variable."""
    given = {f"{role}_{name}": value for name, value in variables.items()}
    include = {"ansible.builtin.include_role": {"name": f"kubenode.datapath.{role}"}, "vars": given}
    note = {"ansible.builtin.set_fact": {"told": "{{ told | default([]) + [said] }}"}}
    content = {**note, "vars": {"said": "nothing was said"}}
    refused = {**note, "vars": {"said": "{{ ansible_failed_result.msg }}"}}
    return [{"block": [include, content], "rescue": [refused]}]
