# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A part of a snapshot that has not the form of datapath_info's is named before anything is built."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import snapshot_form

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
