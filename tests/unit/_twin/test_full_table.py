# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Of a full table, a snapshot has the routes that an address can meet, and the first ones of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import full_table

LINKS = [{"name": "eth0", "addresses": [{"address": "10.0.0.4/24"}]}, {"name": "flannel.1", "kind": "vxlan"}]
FAR = [
    {"family": "ipv4", "table": "254", "to": f"{20 + number // 250}.{number % 250}.0.0/16", "via": "10.0.0.1", "dev": "eth0"}
    for number in range(full_table.FEW + 4)
]
FAR6 = [{**FAR[0], "family": "ipv6", "to": f"2001:db8:{number:x}::/48", "via": "fe80::1"} for number in range(9)]
NEAR = [{"family": "ipv4", "table": "254", "to": "10.0.0.0/24", "dev": "eth0"}]
RANGE = "table ip t {\n\tchain c {\n\t\ttype nat hook prerouting priority -100;\n\t\tdnat to 20.9.0.1-20.9.0.9\n\t}\n}\n"


def part(*texts: str, routes: Any = (), **further: Any) -> list[str]:
    given = {"links": LINKS, "routes": [*FAR, *FAR6, *NEAR, *routes], **further}
    return [route["to"] for route in full_table.part(given, texts)["routes"]]


FIRST = [*(route["to"] for route in (*FAR[:3], *FAR6[:3])), "10.0.0.0/24"]
BY_TUNNEL = [{**FAR[0], "dev": "flannel.1", "to": f"10.{number}.0.0/16"} for number in range(5)]
SEVERAL = [{"to": f"11.{number}.0.0/16", "nexthops": [{"via": "10.0.0.1"}, {"via": "10.0.0.2"}]} for number in range(5)]


@pytest.mark.parametrize(
    ("texts", "options", "expected"),
    [
        ((), {}, []),
        (("20.9.0.1", "2001:db8:7::7"), {}, ["20.9.0.0/16", "2001:db8:7::/48"]),
        (("{'to': '20.9.0.0/13'}",), {}, ["20.9.0.0/16", *(f"20.{number}.0.0/16" for number in (10, 11, 12, 13, 14, 15, 8))]),
        ((), {"neighbors": [{"address": "20.9.0.1", "dev": "eth0"}]}, ["20.9.0.0/16"]),
        ((), {"nftables_text": RANGE.replace("-20.9.0.9", "")}, ["20.9.0.0/16"]),
        ((), {"routes": BY_TUNNEL}, [route["to"] for route in BY_TUNNEL]),
        ((), {"routes": SEVERAL}, [route["to"] for route in SEVERAL[:3]]),
    ],
)
def test_routes_that_contain_a_named_address_remain(texts: Any, options: Any, expected: list[str]) -> None:
    assert sorted(part(*texts, **options)) == sorted([*FIRST, *expected])


@pytest.mark.parametrize("text", [RANGE, RANGE.replace("dnat to 20.9.0.1-20.9.0.9", "dup to 20.9.0.1")])
def test_all_remain_if_a_packet_may_get_any_address(text: str) -> None:
    assert len(part(nftables_text=text)) == len([*FAR, *FAR6, *NEAR])


def test_an_error_has_the_number_of_the_entry_that_was_given() -> None:
    bad = {**FAR[0], "mtu": "large"}
    with pytest.raises(Invalid, match=rf"snapshot.routes\[{len([*FAR, *FAR6, *NEAR])}\].mtu must be"):
        part(routes=[bad])


def test_a_further_address_brings_its_routes() -> None:
    given = {"links": LINKS, "routes": [*FAR, *NEAR]}
    few = full_table.part(given, ())
    more = full_table.with_addresses(few, ["20.9.0.1", "10.0.0.4"])
    assert [route["to"] for route in more["routes"][len(few["routes"]) :]] == ["20.9.0.0/16"]
    assert full_table.with_addresses(more, ["20.9.0.1"]) is more and full_table.with_addresses(given, ["20.9.0.1"]) is given
