# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables_cleanup removes rules of iptables, links and addresses that are certainly those of azure-vnet, and restores them."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._leftovers import backup_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.chain import ListedRule, RemovedRules
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables import Table
from ansible_collections.kubenode.datapath.plugins.module_utils._netfilter.iptables_backend import RestoreRules
from lab import azure_vnet
from lab.azure_bridge import enslave
from lab.node import NamespaceNode
from lab.steps import Steps, warnings
from lab.waiting import until

from .azure_rules import AZURE, AZURE6, BACKENDS, FOREIGN, NODE, PODS6, SWIFT, UNCERTAIN, apply, saved

# ebtables_cleanup removes rules of iptables that are certainly azure-vnet's, keeps all others, and restores them


BACKUP = "/var/lib/kubenode/backup/azure_vnet.json"
# Foreign rules in the same chains: NPM, Calico, libvirt, kube-proxy, an operator.
OTHERS = [
    *("-N AZURE-NPM", "-A FORWARD -j AZURE-NPM", "-A AZURE-NPM -m comment --comment npm -j RETURN"),
    *("-N cali-FORWARD", "-I FORWARD 1 -m comment --comment cali:x -j cali-FORWARD", "-A cali-FORWARD -i cali+ -j ACCEPT"),
    *("-N LIBVIRT_FWI", "-A FORWARD -j LIBVIRT_FWI", "-A LIBVIRT_FWI -o virbr0 -j REJECT"),
    *("-t nat -N KUBE-SERVICES", "-t nat -A PREROUTING -j KUBE-SERVICES", "-A INPUT -p tcp --dport 22 -j ACCEPT"),
]


def cleanup(node: NamespaceNode) -> Steps:
    return Steps(node, "ebtables_cleanup", {"iptables": True})


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_that_is_certain_goes_and_comes_back_where_it_was(node: NamespaceNode, backend: str) -> None:
    apply(node, f"iptables-{backend}", [*OTHERS, *FOREIGN])
    node.ip([f"address add {NODE}/32 dev lo"])
    foreign = saved(node)
    apply(node, f"iptables-{backend}", [*AZURE, *UNCERTAIN, "-A FORWARD -s 192.0.2.77 -j ACCEPT"])
    full, before = saved(node), node.snapshot()
    result = cleanup(node).four()
    gone = [line for line in full if line not in saved(node)]
    assert len(result["iptables"]["removed"]) == len(AZURE) == len(gone)
    assert [one["text"] for one in result["iptables"]["kept"]] == [
        "-d 168.63.129.16/32 -p tcp -m tcp --dport 80 -j DROP",
        "-j ACCEPT",
    ]
    assert [line for line in foreign if line not in saved(node)] == []
    restored = cleanup(node).four(state="restored")
    assert saved(node) == full and len(restored["iptables"]["restored"]) == len(AZURE) and restored["differences"] == []
    assert node.snapshot()["files"] == before["files"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_ipv6_rules_that_their_gateway_tells(node: NamespaceNode, backend: str) -> None:
    enslave(node)
    node.ip(["address add fd00:10:241::1/64 dev azure0 nodad", "address add fd00:10:240::4/128 dev lo nodad"])
    apply(node, f"ip6tables-{backend}", ["-t nat -A POSTROUTING -s fd00:9::/64 -j MASQUERADE", *AZURE6])
    full = saved(node)
    result = cleanup(node).run()
    assert [one["place"] for one in result["iptables"]["removed"]] == [
        f"ip6 mangle POSTROUTING ({backend})",
        f"ip6 nat POSTROUTING ({backend})",
    ]
    assert [line for line in full if line not in saved(node)] == [
        line for line in full if "--set-xmark 0x0/" in line or "-j SNAT" in line
    ]
    cleanup(node).run(state="restored")
    assert saved(node) == full


def test_a_rule_that_translates_to_an_address_that_is_gone_stays_in_the_backup(node: NamespaceNode) -> None:
    apply(node, "iptables-nft", AZURE)
    full = saved(node)
    cleanup(node).run()
    result = cleanup(node).run(state="restored")
    missing = [line for line in full if line not in saved(node)]
    assert len(missing) == 6 and all("--to-source" in line for line in missing)
    assert len(result["differences"]) == 6 and f"{BACKUP} keeps what was not restored" in str(warnings(result))
    assert not cleanup(node).run(state="restored")["changed"]
    node.ip([f"address add {NODE}/32 dev lo"])
    assert cleanup(node).run(state="restored")["changed"] and saved(node) == full


def test_what_another_program_has_added_meanwhile_stays_and_nothing_is_there_twice(node: NamespaceNode) -> None:
    node.ip([f"address add {NODE}/32 dev lo"])
    apply(node, "iptables-nft", [*OTHERS, *AZURE])
    full = saved(node)
    cleanup(node).run()
    apply(
        node,
        "iptables-nft",
        ["-t nat -N SWIFT", "-t nat -A POSTROUTING -j SWIFT", "-t nat -I POSTROUTING 1 -s 192.0.2.9 -j RETURN"],
    )
    cleanup(node).run(state="restored")
    assert sorted(saved(node)) == sorted([*full, "-A POSTROUTING -s 192.0.2.9/32 -j RETURN"])


def test_a_rule_whose_chain_is_gone_stays_in_the_backup(node: NamespaceNode) -> None:
    """The chain had a foreign rule, so it stayed; the other program has removed the chain since."""
    jump = ["-t nat -N SWIFT", "-t nat -A POSTROUTING -j SWIFT"]
    foreign = "-t nat -A SWIFT -d 192.0.2.1 -j RETURN"
    apply(node, "iptables-nft", [*jump, SWIFT[0], foreign, "-N AZURECNIINPUT", "-I INPUT 1 -j AZURECNIINPUT"])
    node.ip([f"address add {NODE}/32 dev lo"])
    full = saved(node)
    cleanup(node).run()
    apply(node, "iptables-nft", ["-t nat -F SWIFT", "-t nat -X SWIFT"])
    result = cleanup(node).run(state="restored")
    assert [one["text"] for one in result["iptables"]["restored"]] == ["AZURECNIINPUT", "-j AZURECNIINPUT"]
    assert sum("the chain SWIFT does not exist now" in one for one in result["differences"]) == 2
    assert not cleanup(node).run(state="restored")["changed"]
    apply(node, "iptables-nft", [jump[0], foreign])
    assert cleanup(node).run(state="restored")["changed"] and saved(node) == full
    assert not node.exists(BACKUP)


def test_a_state_file_in_the_backup_is_evidence(node: NamespaceNode) -> None:
    """A run without the option moves the state file, which shows that the IPv6 subnet was azure-vnet's."""
    state = json.loads(azure_vnet.state_text(node.place.mac(), []))
    (link,) = state["Network"]["ExternalInterfaces"].values()
    prefix = {"IP": "fd00:10:241::", "Mask": base64.b64encode(b"\xff" * 8 + bytes(8)).decode()}
    link["Networks"] = {"azure": {"Subnets": [{"Prefix": prefix}], "Endpoints": {}}}
    node.write(azure_vnet.STATE, json.dumps(state), 0o600)
    apply(node, "ip6tables-nft", AZURE6)
    assert Steps(node, "ebtables_cleanup").run()["files"] == [azure_vnet.STATE]
    assert len(cleanup(node).four()["iptables"]["removed"]) == len(AZURE6)


def test_a_killed_run_is_completed_by_the_next_although_the_only_trace_is_gone(node: NamespaceNode) -> None:
    """The chains were the only evidence of azure-vnet, and are in the backup. Other programs have rules of the same shape."""
    node.ip(["address add fd00:10:240::4/128 dev lo nodad"])
    arp = "ebtables-nft -t nat -A PREROUTING -p ARP --arp-op Request --arp-ip-dst 10.241.0.9 -j arpreply --arpreply-mac {}"
    apply(node, "iptables-nft", AZURE[:2])
    cleanup(node).run()
    apply(node, "ip6tables-nft", AZURE6[1:])  # as after a run that was killed between two tables
    node.run(arp.format("02:00:00:00:00:09").split())
    backup = backup_backend.from_text(node.read(BACKUP))
    (run,), nat = backup.runs, Table("ip6", "nat", "nft")
    rule = ListedRule(f"-s {PODS6} -j SNAT --to-source fd00:10:240::4")
    removed = RemovedRules(nat.at("POSTROUTING"), (rule,), frozenset({0}))
    run = run._replace(undo=(*run.undo, RestoreRules(nat, (removed,))))
    node.write(BACKUP, backup_backend.to_text(backup._replace(runs=(run,))), 0o600)
    result = cleanup(node).run(addresses=["10.241.0.9"])
    assert len(result["iptables"]["removed"]) == 1 and len(result["removed"]) == 1 and warnings(result) == []


def test_without_the_option_and_in_use_nothing_is_removed(node: NamespaceNode) -> None:
    apply(node, "iptables-nft", AZURE)
    before = node.snapshot()
    assert Steps(node, "ebtables_cleanup").run()["iptables"] == {"removed": [], "kept": []}
    node.ip(["link add azv1234567 type veth peer name eth9"])
    result = cleanup(node).run()
    assert not result["changed"] and len(result["iptables"]["kept"]) == len(AZURE)
    assert all("azure-vnet still serves the pod at azv1234567" in one["evidence"] for one in result["iptables"]["kept"])
    node.ip(["link del azv1234567"])
    assert node.snapshot() == before


# ebtables_cleanup removes links and addresses that are certainly azure-vnet's, keeps all others, and restores them


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


def of_links(node: NamespaceNode) -> Steps:
    return Steps(node, "ebtables_cleanup", {"links": True})


def usable(node: NamespaceNode) -> list[str]:
    """The link-local addresses of azure-vnet's links; the kernel gives a link one once it has a carrier, which takes a while."""
    addresses = node.run(["ip", "-o", "-6", "address", "show", "scope", "link", "-tentative"]).stdout.splitlines()
    return [line for line in addresses if "azSnat" in line]


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
    until("each link has a carrier, and so an address", lambda: len(usable(node)), expected=3)
    before = state_of(node)
    result = of_links(node).four()
    assert kinds(result) == [
        *(("address", GATEWAY), ("neighbor", "169.254.128.9"), ("neighbor", "fd00:5::9"), ("link", "azSnatbr")),
        *(("link", "azSnatveth0"), ("sysctl", "net.ipv4.conf.azSnatbr.proxy_arp")),
    ]
    after = state_of(node)
    assert before["links"].keys() - after["links"].keys() == {"azSnatbr", "azSnatveth0", "azSnatveth1"}
    assert GATEWAY not in str(after) and result["iptables"] == {"removed": [], "kept": []}
    node.set_sysctls({"net.ipv4.conf.default.rp_filter": 0})
    result = of_links(node).four(state="restored")
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
    assert kinds(of_links(node).run()) == [("address", GATEWAY)]


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
    result = of_links(node).run()
    assert not result["changed"] and state_of(node) == before
    assert kinds(result, "kept") == [("neighbor", "169.254.128.9"), ("neighbor", "fd00:5::9"), ("link", "azSnatbr")]
    assert ("the ports pod0" if "link" in used[0] else "10.99.0.0/16") in result["links"]["kept"][-1]["evidence"]


def test_what_another_link_has_now_stays_in_the_backup(node: NamespaceNode) -> None:
    enslave(node)
    node.ip([f"address add {GATEWAY} dev azure0 nodad", *BRIDGE, "link add azv1234567 type veth peer name eth9"])
    apply(node, "ip6tables-nft", AZURE6)
    assert not of_links(node).run()["changed"]
    node.ip(["link del azv1234567"])
    before = state_of(node)
    number = before["links"]["azSnatbr"]["ifindex"]
    of_links(node).run()
    node.ip([f"link add taken index {number} type bridge", "address add 169.254.128.1/32 dev taken"])
    node.ip(["address add fd00:10:241::1/128 dev taken nodad"])
    result = of_links(node).run(state="restored")
    assert not result["changed"] and sorted(result["differences"]) == [
        f"address {GATEWAY} of azure0: taken has it now",
        "link azSnatbr: taken has its address 169.254.128.1 now",
    ]
    assert BACKUP in str(warnings(result))
    node.ip(["address flush dev taken"])
    of_links(node).run(state="restored")
    index = state_of(node)["links"]["azSnatbr"]["ifindex"]
    assert index != number and state_of(node)["neighbours"] == before["neighbours"]
    expected = {**before["links"]["azSnatbr"], "ifindex": index}
    until("the bridge is restored", lambda: state_of(node)["links"]["azSnatbr"], expected=expected)
