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
        (0x40, 0x4040, ["the mark of kube-proxy for packets to be masqueraded and of netd for hairpins of pods."]),
        (0x2, 0x2, []),
        (0x3, 0x3, ["of 0x3/0xffffffff, the mark of azure-vnet in mode transparent-tunnel for packets between pods"]),
        (0x100, 0xF00, ["the mark of Cilium for its magic marks"]),
        (0x10000, 0x10000, ["the mark of Tailscale for packets of its own", "the mark of Calico for its policies"]),
        (0x1000000, 0x1000000, ["the mark of Calico for its policies"]),
        (0x80, 0x90, ["the mark of amazon-vpc-cni and Cilium for node port replies", "the mark of Terway for symmetric routing"]),
        (0x1000, FULL, ["the full mask 0xffffffff, which includes the bits of kube-proxy (0x4000, 0x8000)"]),
        (
            0x539,
            0xFFF,
            ["node port replies", "Terway", "Cilium", "transparent-tunnel", "that of Istio's sidecars and of its ambient mode"],
        ),
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


def test_the_mark_of_kube_vips_tunnel_collides_with_one_that_has_all_of_its_bits() -> None:
    (said,) = (each for each in known_programs.mark_warnings(0x1CA6C, 0x1FFFF, 0x1FFFF) if "kube-vip" in each)
    assert "0x1ca6c/0xffffffff, the mark of kube-vip for replies by its WireGuard tunnel" in said


def test_the_table_of_an_eni_on_another_card_is_the_cnis_own() -> None:
    enis = [
        {"name": "eth0", "primary": True, "ipv4": ["10.0.0.10"]},
        {"name": "eth1", "ipv4": ["10.0.1.10"], "gateway": {"ipv4": "10.0.1.1"}, "device_number": 1, "network_card": 1},
    ]
    desired = eni_layout.desired("aws_vpc_cni", enis)
    wanted = policy.from_options(75, desired.rules, desired.routes, {"main": 254})
    assert known_programs.warnings(wanted.rules or (), wanted.routes or ()) == []
    (said,) = known_programs.warnings((), wanted.routes or ())
    assert said.startswith("Table 10101 is filled by amazon-ec2-net-utils or amazon-vpc-cni.")


TUNNEL = "azure-vnet in mode transparent-tunnel"
RULES: dict[str, tuple[dict[str, t.Any], int, str]] = {
    "a pod's rule": ({"priority": 1536, "from": "10.0.1.5", "table": 2}, UNSPEC, "amazon-vpc-cni or hostnic, protocol unspec"),
    "two CNIs": (
        {"priority": 512, "to": "10.0.1.5", "table": 254},
        UNSPEC,
        "amazon-vpc-cni or Terway or UCloud's CNI, protocol unspec",
    ),
    "Cilium's": ({"priority": 111, "from": "10.0.1.5", "table": 11}, 2, "Cilium, protocol kernel"),
    "another purpose": ({"priority": 1536, "to": "10.0.1.5", "table": 254}, UNSPEC, "protocol unspec"),
    "an unknown priority": ({"priority": 800, "to": "10.0.1.5", "table": 254}, 3, "protocol boot"),
    "a mark": ({"priority": 800, "fwmark": "0x10/0x10", "table": 100}, UNSPEC, "Terway, protocol unspec"),
    "a mark and another table": ({"priority": 800, "fwmark": "0x10/0x10", "table": 99}, UNSPEC, "protocol unspec"),
    "a range of priorities": ({"priority": 30250, "from": "10.0.1.5", "table": 7}, UNSPEC, "nm-cloud-setup, protocol unspec"),
    "a range of tables": (
        {"priority": 800, "from": "10.0.1.5", "table": 10001},
        3,
        "perhaps amazon-ec2-net-utils, protocol boot",
    ),
    "a table": ({"priority": 800, "from": "10.0.1.5", "table": 201}, UNSPEC, "perhaps Cilium (WireGuard), protocol unspec"),
    "netd's": ({"priority": 76, "iif": "eth0", "table": 1}, UNSPEC, "netd, protocol unspec"),
    "a packet between pods": ({"priority": 32765, "fwmark": 3, "table": 101}, UNSPEC, f"{TUNNEL}, protocol unspec"),
    "the same at another priority": ({"priority": 99, "fwmark": 3, "table": 101}, UNSPEC, f"{TUNNEL}, protocol unspec"),
    "UCloud's": ({"priority": 2048, "from": "10.0.1.5", "table": 2}, UNSPEC, "Terway or UCloud's CNI, protocol unspec"),
    "Baidu's, to a pod": ({"priority": 640, "to": "10.0.1.5", "table": 254}, UNSPEC, "Baidu CCE, protocol unspec"),
    "Baidu's, from a pod": ({"priority": 1153, "from": "10.0.1.5", "table": 128}, UNSPEC, "Baidu CCE, protocol unspec"),
    "Baidu's, of an address": ({"priority": 1024, "from": "10.0.1.5", "table": 128}, UNSPEC, "Baidu CCE, protocol unspec"),
    "hostnic's": ({"priority": 1535, "to": "10.0.1.5", "table": 10}, UNSPEC, "hostnic, protocol unspec"),
    "kube-router's, by mark": ({"priority": 32764, "fwmark": 99, "table": 78}, UNSPEC, "kube-router, protocol unspec"),
    "kube-router's": ({"priority": 32765, "table": 79}, UNSPEC, "kube-router, protocol unspec"),
    "Tailscale's": ({"priority": 5270, "table": 52}, UNSPEC, "Tailscale, protocol unspec"),
    "kube-vip's": ({"priority": 100, "fwmark": 0x1CA6C, "table": 51820}, UNSPEC, "kube-vip, protocol unspec"),
    "kube-vip's, of another port": ({"priority": 100, "fwmark": 0x1CA6D, "table": 51821}, UNSPEC, "kube-vip, protocol unspec"),
    "kube-vip's mark at another priority": ({"priority": 99, "fwmark": 0x1CA6C, "table": 51820}, 3, "kube-vip, protocol boot"),
    "another mark at its priority": ({"priority": 100, "fwmark": "0x1ca6c/0x1ffff", "table": 51820}, 3, "protocol boot"),
    "Spiderpool's": ({"priority": 1000, "from": "10.0.1.5", "table": 500}, UNSPEC, "perhaps Spiderpool, protocol unspec"),
    "cloud-init's or azure-vnet's": (
        {"priority": 800, "table": 101},
        UNSPEC,
        f"perhaps {TUNNEL} or cloud-init on EC2, protocol unspec",
    ),
    "a further network card": (
        {"priority": 800, "from": "10.0.1.5", "table": 10101},
        UNSPEC,
        "perhaps amazon-ec2-net-utils or amazon-vpc-cni, protocol unspec",
    ),
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
        (201, [2], "perhaps Cilium (WireGuard), protocol kernel"),
        (78, [3], "perhaps kube-router, protocol boot"),
        (30250, [0, 3], "perhaps nm-cloud-setup, protocol unspec, protocol boot"),
        (30250, [4, 12], "protocol static, protocol bird"),
        (254, [2], "protocol kernel"),
    ],
)
def test_a_foreign_route_is_named_by_the_program_that_fills_its_table(table: int, protocols: list[int], owner: str) -> None:
    default = route.from_options("routes[0]", {"to": "default", "via": "10.0.1.1", "dev": "eth1", "table": table}, {})
    assert known_programs.owner(default, protocols) == owner


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 73, "to": "10.0.1.5", "table": 254}, "Priority 73 is in the range 70 to 76, which netd uses for"),
        ({"priority": 5230, "table": 254}, "Priority 5230 is in the range 5210 to 5270, which Tailscale uses for"),
        ({"priority": 640, "from": "10.0.1.5", "table": 99}, "Priority 640 is in the range 639 to 655, which Baidu CCE uses for"),
        ({"priority": 640, "to": "10.0.1.5", "table": 254}, ""),
        ({"priority": 1535, "from": "10.0.1.5", "table": 99}, "1535 has another purpose in amazon-vpc-cni (to external services"),
        ({"priority": 32764, "table": 254}, "32764 has another purpose in kube-router (Services with direct return by mark)."),
        ({"priority": 100, "from": "10.0.1.5", "table": 7}, "in Cilium (the local table) and kube-vip (replies by its WireGuard"),
        ({"priority": 800, "table": 101}, f"Table 101 is filled by {TUNNEL} or cloud-init on EC2. Choose another"),
        ({"priority": 800, "table": 500}, "Table 500 is filled by Spiderpool."),
        ({"priority": 800, "table": 202}, "Table 202 is filled by Cilium (VTEP)."),
        ({"priority": 800, "table": 1003}, ""),
    ],
)
def test_a_collision_names_each_program_that_uses_the_number(options: dict[str, t.Any], message: str) -> None:
    said = known_programs.warnings([rule.from_options("rules[0]", options, {})], ())
    assert (said == []) if not message else (len(said) == 1 and message in said[0]), said
