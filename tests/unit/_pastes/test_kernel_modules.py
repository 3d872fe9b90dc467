# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's modules, its names of tables and its settings tell what a node does not have."""

from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes

RULESET = "root@n:~# nft list ruleset\ntable ip nat {\n}\n"
SAVED = "root@n:~# iptables-save\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
HEAD = "Module                  Size  Used by\n"


def open_kinds(text: str) -> set[str]:
    return {
        fact["fact"].partition(":")[0] for fact in pastes.read({"text": text}).snapshot["open"] if fact.get("family") != "ipv6"
    }


@pytest.mark.parametrize(
    ("output", "is_open"),
    [
        ("root@n:~# lsmod\n" + HEAD + "nf_tables 311296 3 nft_compat\n", False),
        ("root@n:~# cat /proc/modules\nnf_tables 311296 3 nft_compat, Live 0x0000000000000000\n", False),
        ("root@n:~# lsmod\n" + HEAD + "nf_tables 311296 0\niptable_nat 16384 1\n", True),
        ("root@n:~# lsmod | grep nf_tables\nnf_tables 311296 3 nft_compat\n", True),
        ("root@n:~# lsmod\n" + HEAD + "overlay 16384 1\n", True),  # of a kernel that has netfilter without modules
        ("root@n:~# cat /proc/net/ip_tables_names\n", False),
        ("root@n:~# cat /proc/net/ip_tables_names\ncat: /proc/net/ip_tables_names: No such file or directory\n", False),
        ("root@n:~# cat /proc/net/ip_tables_names\nnat\n", True),
        ("", True),
    ],
)
def test_rules_of_iptables_legacy_are_open_unless_the_kernel_has_none(output: str, is_open: bool) -> None:
    assert ("legacy" in open_kinds(RULESET + output)) is is_open


@pytest.mark.parametrize(
    ("modules", "is_open"), [("ip_tables 32768 1 iptable_filter\n", False), ("ip_tables 32768 1\nnf_tables 311296 0\n", True)]
)
def test_a_kernel_without_the_module_has_no_rules_of_nft(modules: str, is_open: bool) -> None:
    assert ("nft" in open_kinds(SAVED + "root@n:~# lsmod\n" + HEAD + modules)) is is_open


SETTINGS = "root@n:~# sysctl -a\n" + "".join(
    f"net.ipv4.conf.{link}.forwarding = 1\n" for link in ("all", "default", "lo", "eth0", "pod7")
)
ROUTES = """root@n:~# ip route show table all
default via 10.0.0.1 dev eth0
10.0.1.7 dev pod7 scope link
local 10.0.0.4 dev eth0 table local proto kernel scope host src 10.0.0.4
"""


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        (ROUTES, True),
        (SETTINGS + ROUTES, False),
        (SETTINGS.replace("pod7", "b0") + ROUTES, True),
        (SETTINGS + ROUTES + "10.9.0.0/16 dev pod7 scope link\n", True),
        (SETTINGS.replace("sysctl -a", "sysctl -a | grep forw") + ROUTES, True),
    ],
)
def test_no_link_is_a_bridge_where_routes_lead_to_pods_by_each(text: str, is_open: bool) -> None:
    assert ("bridge-ports" in open_kinds(text)) is is_open


def test_the_settings_have_the_numbers_of_tracked_connections() -> None:
    counts = "root@n:~# sysctl -a\nnet.netfilter.nf_conntrack_count = 100\nnet.netfilter.nf_conntrack_max = 200\n"
    assert pastes.read({"text": counts}).snapshot["counters"]["connections"] == {"count": 100, "max": 200}
