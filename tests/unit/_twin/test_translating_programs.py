# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A twin has a table in the place of a BPF program whose instructions are known, and nothing in that of another."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._bpf import instructions
from ansible_collections.kubenode.datapath.plugins.module_utils._probe_snat import probe_programs
from ansible_collections.kubenode.datapath.plugins.module_utils._ruleset import inventory
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import netfilter_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, build_backend, translating_programs

PROBES = [
    {"source": "fe80::1234:5678:9abc", "translated": "2603:1062:0:1:fe80:1234:5678:9abc"},
    {"source": "fe80::10", "translated": "2001:db8:ffff::10"},
]
ETH0 = {"name": "eth0", "index": 2, "kind": "", "flags": ["UP", "LOWER_UP"]}
BRIDGE = {"name": "br0", "index": 3, "kind": "bridge", "flags": ["UP", "LOWER_UP"]}


def program(direction: str = "ingress", kernel: int = 1, **fields: Any) -> dict[str, Any]:
    """An entry of a snapshot. kernel: 0 for one older than Linux 6.18."""
    tag = instructions.tags(probe_programs.program(direction, len(PROBES)))[kernel]
    place = {"link": "eth0", "hook": "tcx", "direction": direction, "name": f"kubenode_foax_{direction[0]}"}
    return {**place, "tag": tag, "probes": PROBES, **fields}


def drawn(*programs: dict[str, Any], **link: Any) -> blueprint.Blueprint:
    return blueprint.draw(Snapshot.of({"links": [{**ETH0, **link}, BRIDGE], "bpf": [*programs]}))


def ruleset(*programs: dict[str, Any], **link: Any) -> str:
    return drawn(*programs, **link).ruleset_text.strip()


@pytest.mark.parametrize("kernel", [0, 1])
@pytest.mark.parametrize("hook", ["tcx", "tc"])
def test_each_program_is_a_chain_before_all_others_or_after_them(kernel: int, hook: str) -> None:
    text = ruleset(program("egress", kernel, hook=hook), program("ingress", kernel, hook=hook))
    outward, inward = text.split("table ip6 ")[1:]
    assert "hook prerouting priority -2147483648;" in inward and "postrouting" not in inward
    assert "hook postrouting priority 2147483647;" in outward and "prerouting" not in outward
    for probe in PROBES:
        source, translated = probe["source"], probe["translated"]
        assert f'iifname "eth0" ip6 saddr {source} ' in inward and f"ip6 saddr set {translated} " in inward
        assert f'oifname "eth0" ip6 daddr {translated} ip6 daddr set {source} ' in outward


@pytest.mark.parametrize(
    "fields",
    [
        {"tag": "0123456789abcdef"},
        {"tag": ""},
        {"probes": PROBES[:1]},
        {"probes": []},
        {"probes": PROBES * 600},
        {"probes": [PROBES[0], {**PROBES[1], "source": PROBES[0]["source"]}]},
        {"probes": [PROBES[0], {**PROBES[1], "translated": "192.0.2.1"}]},
        {"name": "cil_from_netdev"},
        {"hook": "XDP"},
        {"direction": "egress"},
        {"direction": ""},
        {"link": "eth1"},
    ],
)
def test_another_program_or_one_elsewhere_has_no_table(fields: dict[str, Any]) -> None:
    assert ruleset({**program(), **fields}) == ""


def test_a_program_of_a_bridges_port_has_no_table() -> None:
    """nftables sees its packets at the bridge, together with those of the other ports."""
    assert ruleset(program(), master="br0") == ""


def test_a_links_name_adds_no_statement() -> None:
    assert ruleset(program(link='e";drop;"'), name='e";drop;"') == ""


def test_the_nodes_tables_are_compared_beside_those_of_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    own = inventory.Chain("ip6", translating_programs.TABLE.format(0), "prerouting", True, "accept", 2)
    chain = inventory.Chain("inet", "t", "c", True, "accept", 1)
    monkeypatch.setattr(netfilter_backend, "kernel_chains", lambda: [own, chain])
    place = {"family": "inet", "table": "t", "name": "c", "type": "filter", "hook": "forward", "prio": 0, "policy": "accept"}
    objects: list[dict[str, Any]] = [{"table": {"family": "inet", "name": "t"}}, {"chain": place}]
    (note,) = build_backend._differences({}, objects, drawn(program()))
    assert "inet t is another one in the twin" in note.sentence
