# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables_cleanup removes links and addresses that are certainly azure-vnet's, keeps all others, and restores them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lab.azure_bridge import enslave
from lab.node import NamespaceNode
from lab.steps import Steps, warnings
from lab.waiting import until

from .azure_rules import AZURE6, apply

BACKUP = "/var/lib/kubenode/backup/azure_vnet.json"
GATEWAY = "fd00:10:241::1/64"
BRIDGE = [
    *("link add azSnatbr address 02:00:00:00:aa:01 mtu 1400 type bridge", "link set azSnatbr up"),
    *("address add 169.254.128.1/17 dev azSnatbr", "address add fd00:5::1/64 dev azSnatbr nodad"),
    "neighbour add 169.254.128.9 lladdr 02:00:00:00:00:09 nud permanent dev azSnatbr",
    "neighbour add fd00:5::9 lladdr 02:00:00:00:00:0a nud permanent dev azSnatbr",
]
PAIR = [
    "link add azSnatveth0 address 02:00:00:00:aa:02 type veth peer name azSnatveth1 address 02:00:00:00:aa:03",
    *("link set azSnatveth0 master azSnatbr up", "link set azSnatveth1 up"),
]


def cleanup(node: NamespaceNode) -> Steps:
    return Steps(node, "ebtables_cleanup", {"links": True})


def state_of(node: NamespaceNode) -> dict[str, Any]:
    """All links and addresses as ip prints them, permanent neighbours, routes, and the settings that the module changes."""
    links = json.loads(node.run(["ip", "-json", "-details", "address"]).stdout)
    fields = ("ifindex", "ifname", "flags", "mtu", "master", "address", "link_index")
    found = {
        one["ifname"]: {
            **{key: one.get(key) for key in fields},
            "kind": one.get("linkinfo", {}).get("info_kind"),
            "addresses": [(a["local"], a["prefixlen"]) for a in one["addr_info"] if a["scope"] == "global"],
        }
        for one in links
    }
    neighbours = sorted(node.run(["ip", "neighbour", "show", "nud", "permanent"]).stdout.splitlines())
    routes = [node.run(["ip", family, "route", "show", "table", "all"]).stdout for family in ("-4", "-6")]
    lines = sorted(line for text in routes for line in text.splitlines() if not re.search("fe80|ff00|multicast|linkdown", line))
    return {"links": found, "neighbours": neighbours, "routes": lines}


def kinds(found: dict[str, Any], which: str = "removed") -> list[tuple[str, str]]:
    return [(one["kind"], one["text"].split()[0]) for one in found["links"][which]]


def test_the_nat_bridge_the_pair_and_the_gateway_go_and_come_back(node: NamespaceNode) -> None:
    enslave(node)
    node.ip(["link add other type bridge", f"address add {GATEWAY} dev azure0 nodad", *BRIDGE, *PAIR])
    node.set_sysctls({"net.ipv4.conf.azSnatbr.proxy_arp": 1, "net.ipv4.conf.azSnatbr.rp_filter": 2})
    apply(node, "ip6tables-nft", AZURE6)
    until("no address is tentative", lambda: "tentative" not in node.run(["ip", "address"]).stdout)
    before = state_of(node)
    result = cleanup(node).four()
    assert kinds(result) == [
        *(("address", GATEWAY), ("neighbor", "169.254.128.9"), ("neighbor", "fd00:5::9"), ("link", "azSnatbr")),
        *(("link", "azSnatveth0"), ("sysctl", "net.ipv4.conf.azSnatbr.proxy_arp")),
    ]
    after = state_of(node)
    assert before["links"].keys() - after["links"].keys() == {"azSnatbr", "azSnatveth0", "azSnatveth1"}
    assert GATEWAY not in str(after) and result["iptables"] == {"removed": [], "kept": []}
    node.set_sysctls({"net.ipv4.conf.default.rp_filter": 0})
    result = cleanup(node).four(state="restored")
    until("all is restored", lambda: state_of(node), expected=before)
    assert warnings(result) == []
    assert [node.read(f"/proc/sys/net/ipv4/conf/azSnatbr/{name}").strip() for name in ("proxy_arp", "rp_filter")] == ["1", "2"]
    assert kinds(result, "restored") == [("link", "azSnatbr"), ("link", "azSnatveth0"), ("address", GATEWAY)]
    assert not node.exists(BACKUP)


def test_the_gateway_is_told_by_a_rule_that_an_earlier_run_removed(node: NamespaceNode) -> None:
    enslave(node)
    node.ip([f"address add {GATEWAY} dev azure0 nodad"])
    apply(node, "ip6tables-nft", AZURE6)
    assert not Steps(node, "ebtables_cleanup", {"iptables": True}).run()["links"]["removed"]
    assert kinds(cleanup(node).run()) == [("address", GATEWAY)]


@pytest.mark.parametrize(
    "used",
    [
        ["link add pod0 type veth peer name pod1", "link set pod0 master azSnatbr"],
        ["route add 10.99.0.0/16 dev azSnatbr"],
    ],
    ids=["port", "route"],
)
def test_a_bridge_in_use_stays_with_all_that_is_on_it(node: NamespaceNode, used: list[str]) -> None:
    node.ip([*BRIDGE, *used])
    before = state_of(node)
    result = cleanup(node).run()
    assert not result["changed"] and state_of(node) == before
    assert kinds(result, "kept") == [("neighbor", "169.254.128.9"), ("neighbor", "fd00:5::9"), ("link", "azSnatbr")]
    assert ("the ports pod0" if "link" in used[0] else "10.99.0.0/16") in result["links"]["kept"][-1]["evidence"]


def test_what_another_link_has_now_stays_in_the_backup(node: NamespaceNode) -> None:
    enslave(node)
    node.ip([f"address add {GATEWAY} dev azure0 nodad", *BRIDGE, "link add azv1234567 type veth peer name eth9"])
    apply(node, "ip6tables-nft", AZURE6)
    assert not cleanup(node).run()["changed"]
    node.ip(["link del azv1234567"])
    before = state_of(node)
    number = before["links"]["azSnatbr"]["ifindex"]
    cleanup(node).run()
    node.ip([f"link add taken index {number} type bridge", "address add 169.254.128.1/32 dev taken"])
    node.ip(["address add fd00:10:241::1/128 dev taken nodad"])
    result = cleanup(node).run(state="restored")
    assert not result["changed"] and sorted(result["differences"]) == [
        f"address {GATEWAY} of azure0: taken has it now",
        "link azSnatbr: taken has its address 169.254.128.1 now",
    ]
    assert BACKUP in str(warnings(result))
    node.ip(["address flush dev taken"])
    cleanup(node).run(state="restored")
    index = state_of(node)["links"]["azSnatbr"]["ifindex"]
    assert index != number and state_of(node)["neighbours"] == before["neighbours"]
    expected = {**before["links"]["azSnatbr"], "ifindex": index}
    until("the bridge is restored", lambda: state_of(node)["links"]["azSnatbr"], expected=expected)
