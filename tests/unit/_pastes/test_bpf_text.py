# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes

LINKS = "2: eth0: <UP,LOWER_UP> mtu 1500\n3: lxc1: <UP,LOWER_UP> mtu 1500\n"
FILTER = (
    "filter protocol all pref 1 bpf chain 0 \n"
    "filter protocol all pref 1 bpf chain 0 handle 0x1 cil_from_netdev-eth0 direct-action not_in_hw id 123 tag 0a jited \n"
)
BPFTOOL = "xdp:\n\ntc:\neth0(2) clsact/egress cil_to_netdev-eth0 id 9\nlxc1(3) tcx/ingress cil_from_container prog_id 7\n\n"
OF_BOTH = {("eth0", "egress", "cil_to_netdev-eth0"), ("lxc1", "ingress", "cil_from_container")}
OF_ETH0 = ("eth0", "ingress", "cil_from_netdev-eth0")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("report", f"$ tc filter show dev eth0 ingress\n{FILTER}", {OF_ETH0}),
        ("tc filter show dev eth0 ingress", FILTER, {OF_ETH0}),
        ("report", f"$ tc filter show dev lxc1 egress\n$ tc -s filter show dev eth0 ingress\n{FILTER}", {OF_ETH0}),
        ("report", FILTER, {(link, way, OF_ETH0[2]) for link in ("eth0", "lxc1") for way in ("ingress", "egress")}),
        ("report", f"$ bpftool net show\n{BPFTOOL}", OF_BOTH),
        ("bpftool-net-show.md", BPFTOOL, OF_BOTH),
        ("report", "$ tc filter show dev eth0 ingress\nfilter protocol ip pref 1 u32 chain 0\n", set()),
    ],
    ids=["prompt", "name", "two commands", "no command", "bpftool", "a bugtool", "another filter"],
)  # fmt: skip
def test_programs_are_read_with_their_links(name: str, text: str, expected: set[tuple[str, str, str]]) -> None:
    programs = pastes.read({"ip link": LINKS, name: text}).snapshot["bpf"] or ()
    assert {(program["link"], program["direction"], program["name"]) for program in programs} == expected
