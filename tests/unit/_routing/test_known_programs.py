# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Marks and tables that collide with those of known programs, and those that are the CNI's own."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._cloud import eni_layout
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import known_programs, policy, route, rule

FULL = 0xFFFFFFFF
UNSPEC = 0


@pytest.mark.parametrize(
    ("mark", "mask", "told"),
    [
        (0x80, 0x80, []),
        (0x10, 0x10, []),
        (0x2000, 0x2000, []),
        (0x1000, 0x1000, []),
        (0x4000, 0x4000, ["the mark of kube-proxy for packets to be masqueraded"]),
        (0x8000, 0x8000, ["the mark of kube-proxy for packets to be dropped"]),
        (0x40, 0x4040, ["the mark of kube-proxy for packets to be masqueraded"]),
        (0x100, 0xF00, ["the mark of Cilium for its magic marks"]),
        (0x10000, 0x10000, ["the mark of Calico for its policies"]),
        (0x80, 0x90, ["the mark of amazon-vpc-cni and Cilium for node port replies", "the mark of Terway for symmetric routing"]),
        (0x1000, FULL, ["the full mask 0xffffffff, which includes the bits of kube-proxy (0x4000, 0x8000)"]),
        (0x539, 0xFFF, ["node port replies", "Terway", "Cilium", "that of Istio's sidecars"]),
    ],
)
def test_a_mark_that_is_set_is_compared_with_those_of_known_programs(mark: int, mask: int, told: list[str]) -> None:
    said = list(known_programs.mark_warnings(mark, mask, mask))
    assert len(said) == len(told) and all(part in sentence for part, sentence in zip(told, said)), said


@pytest.mark.parametrize(
    ("mark", "mask", "cluster", "collides"),
    [
        (0x80, 0x80, 128, True),
        (0x80, 0x80, 255, True),
        (0x80, 0x80, 127, False),
        (0x80, 0x80, 0, False),
        (0x100, 0x100, 256, False),
    ],
)
def test_a_bit_of_the_cluster_id_collides(mark: int, mask: int, cluster: int, collides: bool) -> None:
    said = known_programs.cluster_warning(mark, mask, cluster)
    assert bool(said) == collides and (not collides or f"the ID of the cluster ({cluster})" in said)


def test_the_table_of_an_eni_on_another_card_is_the_cnis_own() -> None:
    enis = [
        {"name": "eth0", "primary": True, "ipv4": ["10.0.0.10"]},
        {"name": "eth1", "ipv4": ["10.0.1.10"], "gateway": {"ipv4": "10.0.1.1"}, "device_number": 1, "network_card": 1},
    ]
    desired = eni_layout.desired("aws_vpc_cni", enis)
    wanted = policy.from_options(75, desired.rules, desired.routes, {"main": 254})
    assert known_programs.warnings(wanted.rules or (), wanted.routes or ()) == []
    (said,) = known_programs.warnings((), wanted.routes or ())
    assert said.startswith("Table 10101 is filled by amazon-ec2-net-utils.")


RULES: dict[str, tuple[dict[str, t.Any], int, str]] = {
    "a pod's rule": ({"priority": 1536, "from": "10.0.1.5", "table": 2}, UNSPEC, "amazon-vpc-cni, protocol unspec"),
    "two CNIs": ({"priority": 512, "to": "10.0.1.5", "table": 254}, UNSPEC, "amazon-vpc-cni or Terway, protocol unspec"),
    "Cilium's": ({"priority": 111, "from": "10.0.1.5", "table": 11}, 2, "Cilium, protocol kernel"),
    "another purpose": ({"priority": 1536, "to": "10.0.1.5", "table": 254}, UNSPEC, "protocol unspec"),
    "an unknown priority": ({"priority": 700, "to": "10.0.1.5", "table": 254}, 3, "protocol boot"),
    "a mark": ({"priority": 700, "fwmark": "0x10/0x10", "table": 100}, UNSPEC, "Terway, protocol unspec"),
    "a mark and another table": ({"priority": 700, "fwmark": "0x10/0x10", "table": 101}, UNSPEC, "protocol unspec"),
    "a range of priorities": ({"priority": 30250, "from": "10.0.1.5", "table": 7}, UNSPEC, "nm-cloud-setup, protocol unspec"),
    "a range of tables": ({"priority": 700, "from": "10.0.1.5", "table": 10001}, 3, "amazon-ec2-net-utils, protocol boot"),
    "a table": ({"priority": 700, "from": "10.0.1.5", "table": 201}, UNSPEC, "Cilium (WireGuard), protocol unspec"),
    "a rule of systemd-networkd": ({"priority": 32765, "from": "10.0.1.5", "table": 10001}, 4, "protocol static"),
    "a protocol that names its program": ({"priority": 1536, "from": "10.0.1.5", "table": 2}, 12, "protocol bird"),
    "an unnamed protocol": ({"priority": 1536, "from": "10.0.1.5", "table": 2}, 75, "protocol 75"),
}


@pytest.mark.parametrize(("options", "protocol", "owner"), RULES.values(), ids=[*RULES])
def test_a_foreign_rule_is_named_by_the_program_that_is_known_for_it(
    options: dict[str, t.Any], protocol: int, owner: str
) -> None:
    assert known_programs.owner(rule.from_options("rules[0]", options, {}), [protocol]) == owner


@pytest.mark.parametrize(
    ("table", "protocols", "owner"),
    [
        (201, [2], "Cilium (WireGuard), protocol kernel"),
        (30250, [0, 3], "nm-cloud-setup, protocol unspec, protocol boot"),
        (30250, [4, 12], "protocol static, protocol bird"),
        (254, [2], "protocol kernel"),
    ],
)
def test_a_foreign_route_is_named_by_the_program_that_fills_its_table(table: int, protocols: list[int], owner: str) -> None:
    default = route.from_options("routes[0]", {"to": "default", "via": "10.0.1.1", "dev": "eth1", "table": table}, {})
    assert known_programs.owner(default, protocols) == owner
