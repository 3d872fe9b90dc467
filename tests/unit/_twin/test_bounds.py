# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A snapshot of another form, or one that would exhaust the machine, is refused before anything is built."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import changes_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import blueprint, bounds, snapshot_form

# A snapshot that would exhaust the machine is refused, and the error names the entry and the bound


def sets(*lines: str) -> dict[str, Any]:
    return {"ipsets": [{"save": "\n".join(lines)}]}


SIZE = "type ipv4_addr\nsize 50000000"


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        ({"links": [{"name": "a"}] * 2049}, "snapshot.links must be at most 2048 entries; 2049 was given"),
        ({"links": [{"name": "a", "addresses": [{}] * 16385}]}, "snapshot.links must be at most 16384 addresses"),
        ({"rules": [{}] * 131073}, "snapshot.rules must be at most 131072 entries"),
        ({"routes": [{}] * 2097153}, "snapshot.routes must be at most 2097152 entries"),
        ({"neighbors": [{}] * 131073}, "snapshot.neighbors must be at most 131072 entries"),
        ({"nftables": [{"set": {"elem": [1] * 524289}}]}, "snapshot.nftables must be at most 524288 elements of sets"),
        ({"nftables_text": "1," * 524289}, "snapshot.nftables_text must be at most 524288 elements of sets"),
        ({"nftables_text": "\n" * 524289}, "snapshot.nftables_text must be at most 524288 lines"),
        ({"iptables": [{"save": "\n" * 262145}]}, "snapshot.iptables must be at most 262144 lines"),
        ({"ebtables": [{"rules": ["x" * (65 << 20)]}]}, "snapshot.ebtables must be at most 67108864 bytes"),
        (sets("create s hash:ip hashsize 134217728"), "snapshot.ipsets[0].save must be a set with hashsize of at most 4194304"),
        (sets("create s hash:ip maxelem 4294967295"), "must be a set with maxelem of at most 1048576"),
        (sets(*(f"create s{number} hash:ip hashsize 4194304" for number in range(2))), "together; 'create s1 hash:ip"),
        (sets("create s hash:ip", "add s 10.0.0.0/9"), "at most 524288 elements together, with each address of a range counted"),
        (sets("create s hash:ip,port", "add s 10.0.0.0/24,tcp:1-65535"), "'add s 10.0.0.0/24,tcp:1-65535' was given"),
        (sets("create s hash:ip", "create s hash:net", "add s 10.0.0.0/9"), "at most 524288 elements together"),
        (
            {"nftables_text": "table ip x {\nset s {\n" + SIZE + "\n}\n}"},
            "snapshot.nftables_text must be sets with a hashsize or a",
        ),
        (
            {"nftables_text": "table ip x { map m { elements = { 1 : 2 }; size 0x1000000; }; }"},
            "a size of at most 4194304 together",
        ),
        (
            {"nftables": [{"set": {"table": "x", "size": 2097153}}] * 2},
            "snapshot.nftables must be sets with a hashsize or a size",
        ),
        ({"nftables": [{"map": {"table": "x", "size": "0x9"}}]}, "'size 4294967295' was given"),
    ],
)
def test_a_part_that_is_too_large_is_named_with_its_bound(snapshot: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=re.escape(said)):
        bounds.check(snapshot)
        blueprint.draw(Snapshot.of(snapshot))


@pytest.mark.parametrize("flags", ["dynamic", "interval", "dynamic,timeout"])
def test_a_set_of_nft_that_grows_with_its_elements_may_have_any_size(flags: str) -> None:
    one = {"table": "x", "size": 50000000, "flags": flags.split(",")}
    listed = f"table ip x {{\nset s {{\n{SIZE}\nflags {flags}\n}}\n}}\n"
    blueprint.draw(Snapshot.of({"nftables_text": listed, "nftables": [{"set": one}]}))


# With a set s in the twin.
COMMANDS: list[tuple[str, list[str], str]] = [
    ("hash:ip", ["ipset create t hash:ip hashsize 134217728"], "commands[0] must be a set with hashsize of at most 4194304"),
    ("hash:ip", ["ipset create t hash:ip hashsize 4194304"], "commands[0] must be sets with a hashsize or a size of at most"),
    (
        "hash:ip",
        ["ip link set eth0 up", "ipset add s 10.0.0.0/9"],
        "commands[1] must be sets of at most 524288 elements together",
    ),
    ("hash:ip", ["ipset rename s t", "ipset add t 10.0.0.0/9"], "'add t 10.0.0.0/9' was given"),
    ("hash:net", ["ipset create t hash:ip", "ipset swap s t", "ipset add s 10.0.0.0/9"], "'add s 10.0.0.0/9' was given"),
    ("hash:net", ["ipset add unknown 10.0.0.0/9"], "'add unknown 10.0.0.0/9' was given"),
    ("hash:net", ["ipset add s 10.0.0.0/9", "ipset add s 10.0.0.1 -exist", "nft flush set ip x y"], ""),
    ("hash:ip", ["nft 'add set ip x y { type ipv4_addr ; size 50000000 ; }'"], "'size 50000000' was given"),
    ("hash:ip", ["nft 'add table ip x; create map ip x y { size 0x9; type mark : mark; }'"], "'size 4294967295' was given"),
    ("hash:ip", ["nft 'add set ip x y { type ipv4_addr ; size 50000000 ; flags dynamic ; }'", "nft add rule ip x y drop"], ""),
    ("hash:ip", ["ip link set eth0 up"] * 1025, "commands must be at most 1024 entries"),
    ("hash:ip", ["nft 'add element ip x y { " + "1, " * 350000 + "1 }'"], "commands must be at most 1048576 bytes"),
]


@pytest.mark.parametrize(("kind", "texts", "error"), COMMANDS)
def test_commands_make_no_larger_sets_than_a_snapshot(kind: str, texts: list[str], error: str) -> None:
    sizes = blueprint.draw(Snapshot.of(sets(f"create s {kind}"))).sizes
    with pytest.raises(Invalid, match=re.escape(error)) if error else contextlib.nullcontext():
        changes_backend.check_sizes(changes_backend.read([], texts), sizes)


@pytest.mark.parametrize(
    ("kind", "element", "count"),
    [
        ("hash:ip", "10.0.0.1", 1),
        ("hash:ip", "10.0.0.0/24", 256),
        ("hash:ip", "10.0.0.0-10.0.1.255", 512),
        ("hash:net", "10.0.0.0/9", 1),
        ("hash:net", "10.0.0.0-10.255.255.255", 1),
        ("hash:ip,port", "10.0.0.0/31,udp:53-54", 4),
        ("hash:ip,port,net", "10.0.0.1,80,10.0.0.0/8", 1),
        ("hash:net,iface", "10.0.0.0/8,eth0-1", 1),
        ("bitmap:port", "80-89", 10),
        ("hash:ip", "fd00::/64", 1),
        ("", "nonsense-x", 1),
    ],
)
def test_a_range_counts_with_each_of_its_elements(kind: str, element: str, count: int) -> None:
    assert bounds.members(kind, element) == count


def test_the_largest_nodes_are_within_the_bounds() -> None:
    rules = "\n".join(f"-A FORWARD -d 10.0.0.1/32 -m comment --comment {number} -j DROP" for number in range(100_000))
    saved = [{"family": "ip", "table": "filter", "save": f"*filter\n:FORWARD ACCEPT [0:0]\n{rules}\nCOMMIT\n"}]
    bounds.check(
        {
            "links": [{"name": f"pod{number}"} for number in range(800)],
            "rules": [{"priority": number} for number in range(10_000)],
            "iptables": saved,
            "nftables_text": "  ip daddr 10.0.0.1 tcp dport 80 goto service\n" * 78_000,
            "nftables": [{"chain": {"name": str(number)}} for number in range(10_000)],
        }
    )
    adds = (f"add s 10.{number}.0.0/24" for number in range(255))
    blueprint.draw(Snapshot.of(sets("create s hash:ip hashsize 65536 maxelem 1048576", *adds)))


# A part of a snapshot that has not the form of datapath_info's is named before anything is built


LINK = {"name": "eth0", "mtu": 1500, "flags": ["UP"], "addresses": [{"address": "10.0.0.4/24"}], "peer": None, "settings": {}}
GOOD: dict[str, Any] = {
    "links": [LINK, {"name": "veth1", "mtu": "1500", "peer": {"addresses": ["10.1.0.5"]}, "settings": {"vlan_filtering": 1}}],
    "settings": {"node": {"net.ipv4.ip_forward": 1}, "ipv4": {"all": {"rp_filter": "2"}}, "ipv6": {}},
    "routes": [{"to": "default", "nexthops": [{"dev": "eth0"}]}],
    "nftables": None,
    "network_daemons": {"daemons": {"systemd-networkd": True}, "networkd_files": {}},
    "boot": {"settings": {"net.ipv4.ip_forward": {"value": None, "file": "/etc/sysctl.conf"}}, "networkd": {}},
    "firewalls": {"nftables.service": {"is_enabled": False}},
    "listeners": [{"address": "::", "port": 10256}],
    "counters": {"packets": {}, "connections": {"count": 1}},
}


def test_what_datapath_info_returns_is_accepted() -> None:
    snapshot_form.check(GOOD)
    snapshot_form.check({})
    snapshot_form.check({**GOOD, "format": 1})


@pytest.mark.parametrize(
    ("snapshot", "option"),
    [
        ({"format": 99, "links": [LINK]}, "snapshot"),
        ({"format": None}, "snapshot"),
        ({"links": "eth0"}, "snapshot.links"),
        ({"links": [{**LINK, "mtu": "large"}]}, "snapshot.links[0].mtu"),
        ({"links": [LINK, {**LINK, "flags": "UP"}]}, "snapshot.links[1].flags"),
        ({"links": [{**LINK, "addresses": ["10.0.0.4/24"]}]}, "snapshot.links[0].addresses"),
        ({"links": [{**LINK, "addresses": [{"address": "10.0.0.4/24", "flags": 7}]}]}, "snapshot.links[0].addresses.flags"),
        ({"pods": [{"routes": [{"to": "default", "nexthops": ["eth0"]}]}]}, "snapshot.pods[0].routes.nexthops"),
        ({"pods": [{"rules": [{"priority": 1, "unread": True}]}]}, "snapshot.pods[0].rules.unread"),
        ({"links": [{**LINK, "peer": "eth0"}]}, "snapshot.links[0].peer"),
        ({"links": [{**LINK, "peer": {"addresses": "10.1.0.5"}}]}, "snapshot.links[0].peer.addresses"),
        ({"links": [{**LINK, "settings": {"id": "x"}}]}, "snapshot.links[0].settings.id"),
        ({"settings": [1]}, "snapshot.settings"),
        ({"settings": {"ipv4": {"eth0": 1}}}, "snapshot.settings.ipv4.eth0"),
        ({"settings": {"node": {"net.ipv4.ip_forward": "on"}}}, "snapshot.settings.node.net.ipv4.ip_forward"),
        ({"nftables": [{}]}, "snapshot.nftables[0]"),
        ({"ipvs": [{"destinations": {"address": "10.1.0.5"}}]}, "snapshot.ipvs[0].destinations"),
        ({"ebtables": [{"rules": "-j DROP"}]}, "snapshot.ebtables[0].rules"),
        ({"unread": ["nftables"]}, "snapshot.unread"),
        ({"assumed": [{"sentence": "It is so.", "concerns": ["eth0"]}]}, "snapshot.assumed[0].concerns"),
        ({"links": [{"mtu": 1500}]}, "snapshot.links[0].name"),
        ({"links": [{**LINK, "name": ["eth0"]}]}, "snapshot.links[0].name"),
        ({"links": [{**LINK, "addresses": [None]}]}, "snapshot.links[0].addresses"),
        ({"rules": [{"table": "main"}]}, "snapshot.rules[0].priority"),
        ({"rules": [{"priority": "first"}]}, "snapshot.rules[0].priority"),
        ({"rules": [{"priority": 1, "iif": ["eth0"]}]}, "snapshot.rules[0].iif"),
        ({"nftables": [{"table": "t"}]}, "snapshot.nftables[0].table"),
        ({"ebtables": [{"rules": [None]}]}, "snapshot.ebtables[0].rules"),
        ({"cni": "cilium"}, "snapshot.cni"),
        ({"cni": [{"plugins": "cilium-cni"}]}, "snapshot.cni[0].plugins"),
        ({"units": ["kubelet.service"]}, "snapshot.units"),
        ({"network_daemons": {}}, "snapshot.network_daemons.daemons"),
        ({"network_daemons": {"daemons": ["systemd-networkd"]}}, "snapshot.network_daemons.daemons"),
        (
            {"network_daemons": {"daemons": {}, "networkd_files": {}, "networkd_version": "new"}},
            "snapshot.network_daemons.networkd_version",
        ),
        ({"firewalls": {"nftables.service": "enabled"}}, "snapshot.firewalls.nftables.service"),
        ({"counters": {"packets": {}, "connections": {"max": "many"}}}, "snapshot.counters.connections.max"),
        ({"bpf": [{"name": "kubenode_1_i", "probes": "fe80::1"}]}, "snapshot.bpf[0].probes"),
        ({"bpf": [{"name": "kubenode_1_i", "tag": ["0"]}]}, "snapshot.bpf[0].tag"),
        ({"bpf": [{"probes": [{"source": "fe80::1", "translated": "fe80::1%eth0"}]}]}, "snapshot.bpf[0].probes[0].translated"),
        ({"listeners": [{"address": "::", "port": "http"}]}, "snapshot.listeners[0].port"),
        ({"pod_neighbors": ["10.0.0.1"]}, "snapshot.pod_neighbors"),
        ({"counters": {"packets": {}, "connections": {}, "otherhost": {"eth0": "many"}}}, "snapshot.counters.otherhost.eth0"),
        ({"boot": {"settings": {"key": 1}}}, "snapshot.boot.settings.key"),
        ({"boot": {"settings": {"key": {"value": "on", "file": "f"}}}}, "snapshot.boot.settings.key.value"),
        ({"boot": {"networkd": {"key": {"value": True}}}}, "snapshot.boot.networkd.key.file"),
        ({"evidence": [{"kind": "rumour"}]}, "snapshot.evidence[0].kind"),
        ({"evidence": [{"kind": "syn", "counts": ["many"]}]}, "snapshot.evidence[0].counts"),
    ],
)
def test_a_part_of_another_form_is_named(snapshot: dict[str, Any], option: str) -> None:
    with pytest.raises(Invalid) as caught:
        snapshot_form.check(snapshot)
    assert caught.value.option == option
