# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a node and what systemd says of units, in outputs, and the script that prints them."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import ASK
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import commands, commands_script, pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import open_facts

PROMPT = "root@node7:~# "


def snapshot(*outputs: str) -> dict[str, Any]:
    return pastes.read(
        {"node.txt": "".join(f"{PROMPT}{output}" for output in ("ip rule\n0:\tfrom all lookup local\n", *outputs))}
    ).snapshot


@pytest.mark.parametrize("command", sorted({command for asked in ASK.values() for command in asked.split("; ")}))
def test_each_command_that_a_check_asks_for_is_read(command: str) -> None:
    of_link = command.replace("LINK", "eth0")
    for name, text in ((of_link, "x\n"), ("report.txt", f"{PROMPT}{of_link}\nx\n")):
        assert [part.kind for part in commands.parts(name, text) if part.lines == ("x",) or part.kind == commands.FILE] != [""]


@pytest.mark.parametrize(
    "fact",
    [
        *("rules", "addresses", "routes", "nft", "neighbors", "ipvs", "legacy", "bridge-ports", "hairpin:v1", "set:S"),
        *("table:ip nat", "cut:ip6 filter", "chain:ip filter X", "jump:ip filter X", "jump:inet own X", "routes:7"),
        *("rp_filter:eth0", "net.ipv4.conf.eth0.forwarding", "policy:ip filter FORWARD"),
    ],
)
def test_each_command_that_an_open_fact_asks_for_is_read(fact: str) -> None:
    for command in open_facts.of_id(fact).ask.split("; "):
        kinds = {part.kind for part in commands.parts("report.txt", f"{PROMPT}{command}\nx\n")} - {""}
        assert kinds, command


def test_cni_configurations_show_names_and_types_alone() -> None:
    whole = '| {"name": "k8s-pod-network", "plugins": [{"type": "calico", "token": "s3cret", "ipam": {"type": "calico-ipam"}}]}\n'
    lines = '| "name": "cbr0"\n| "type": "flannel"\n| "type": "portmap"\n'
    found = snapshot(
        "head -v -n 999 /etc/cni/net.d/*\n"
        f"| ==> /etc/cni/net.d/10-calico.conflist <==\n{whole}| ==> /etc/cni/net.d/20-flannel.conflist.bak <==\n{lines}"
    )
    assert found["cni"] == [
        {"path": "/etc/cni/net.d/10-calico.conflist", "name": "k8s-pod-network", "plugins": ["calico"], "is_inert": False},
        {"path": "/etc/cni/net.d/20-flannel.conflist.bak", "name": "cbr0", "plugins": ["flannel", "portmap"], "is_inert": True},
    ]
    assert snapshot("head -v -n 999 /etc/cni/net.d/*\n")["cni"] == []
    assert snapshot()["cni"] is None


@pytest.mark.parametrize(
    ("subset", "output"),
    [
        ("cni", "head -v -n 999 /etc/cni/net.d/*\n-bash: head: command not found\n"),
        ("cni", "head -v -n 999 /etc/cni/net.d/*\nhead: cannot open '/etc/cni/net.d/a' for reading: Permission denied\n"),
        ("cni", "head -v /etc/cni/net.d/*\n==> /etc/cni/net.d/a.conf <==\n" + '"type": "calico"\n' * 10),
        ("cni", "head -v -n 999 /etc/cni/net.d/* | grep -v type\n==> /etc/cni/net.d/a.conf <==\n"),
        ("units", "systemctl show -p Id 'kubenode-*'\nFailed to connect to bus: No such file or directory\n"),
        ("units", "systemctl show -p Id 'kubenode-*'\n"),
        ("listeners", "head -v -n 9999 /proc/net/tcp /proc/net/tcp6\nhead: cannot open '/proc/net/tcp': Permission denied\n"),
        ("listeners", "cat /proc/net/tcp\ncat: /proc/net/tcp: Permission denied\n" + PROMPT + "cat /proc/net/tcp6\n"),
    ],
)
def test_what_a_command_did_not_print_is_open(subset: str, output: str) -> None:
    assert snapshot(output)[subset] is None


def test_a_file_that_is_not_there_is_no_file() -> None:
    missing = "head: cannot open '/etc/cni/net.d/*' for reading: No such file or directory\n"
    assert snapshot(f"head -v -n 999 /etc/cni/net.d/*\n{missing}")["cni"] == []
    of_tcp = (f"cat {path}\ncat: {path}: No such file or directory\n" for path in ("/proc/net/tcp", "/proc/net/tcp6"))
    assert snapshot(*of_tcp, "\n")["listeners"] == []


def test_a_remark_in_a_file_is_no_command() -> None:
    text = "cat /etc/sysctl.d/99-own.conf\n# ip rule add is not in here\n# sysctl -a\nnet.ipv4.conf.all.rp_filter = 2\n"
    found = snapshot(text, "ip -6 rule\n0:\tfrom all lookup local\n")
    assert found["boot"]["settings"]["net.ipv4.conf.all.rp_filter"] == {"value": 2, "file": "/etc/sysctl.d/99-own.conf"}
    assert found["settings"] is None and len(found["rules"]) > 1


def test_what_systemd_analyze_prints_is_all_that_the_next_boot_sets() -> None:
    found = snapshot(
        "systemd-analyze cat-config sysctl.d\n# /usr/lib/sysctl.d/50-default.conf\nnet.ipv4.conf.*.rp_filter = 2\n\n"
        "# /etc/sysctl.d/99-own.conf\nnet.ipv4.ip_forward = 1\n",
        "systemd-analyze cat-config systemd/networkd.conf\n# /etc/systemd/networkd.conf\n[Network]\nManageForeignRoutes=no\n",
    )
    assert found["boot"]["settings"]["net.ipv4.ip_forward"] == {"value": 1, "file": "/etc/sysctl.d/99-own.conf"}
    assert found["boot"]["networkd"]["ManageForeignRoutes"]["file"] == "/etc/systemd/networkd.conf"
    assert not [entry for entry in found["unread"] if entry["subset"] == "boot"]


def test_units_and_their_files_show_firewalls() -> None:
    units = (
        "systemctl show --property=Id,LoadState,ActiveState,UnitFileState nftables.service firewalld.service 'kubenode-*'\n"
        "Id=nftables.service\nLoadState=loaded\nActiveState=inactive\nSubState=dead\nUnitFileState=enabled\n\n"
        "Id=firewalld.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n\n"
        "Id=kubenode-probe-snat.service\nLoadState=loaded\nActiveState=active\nSubState=exited\nUnitFileState=enabled\n"
        "Result=success\n"
    )
    file = "head -v -n 99999 /etc/nftables.conf\n| ==> /etc/nftables.conf <==\n| #!/usr/sbin/nft -f\n| flush ruleset\n"
    found = snapshot(units, file)
    state = {"is_enabled": True, "is_active": False, "is_masked": False, "file": "/etc/nftables.conf", "flushes": True}
    assert found["firewalls"] == {"nftables.service": state}
    unit = {"name": "kubenode-probe-snat.service", "is_enabled": True, "active": "active", "sub": "exited", "result": "success"}
    assert found["units"] == [unit]
    without_file = {key: state[key] for key in ("is_enabled", "is_active", "is_masked")}
    assert snapshot(units)["firewalls"] == {"nftables.service": without_file}


NAMES = "systemd-networkd NetworkManager nm-cloud-setup.timer"
LISTED = """  UNIT                          LOAD      ACTIVE   SUB     DESCRIPTION
  kubenode-x.service            loaded    active   exited  A table
* nftables.service              masked    inactive dead    nftables.service
  nm-cloud-setup.timer          loaded    active   waiting Run nm-cloud-setup
  policy-routes@eth1.service    loaded    active   running Set up policy routes for eth1

LOAD   = Reflects whether the unit definition was properly loaded.
4 loaded units listed.
"""
FILES = """UNIT FILE          STATE    PRESET
kubenode-x.service enabled  enabled
nftables.service   masked   enabled

2 unit files listed.
"""
LINKS = """* 1: lo
                Network File: n/a
                       State: carrier (unmanaged)

* 2: eth0
                Network File: /etc/systemd/network/1.network
                       State: routable (configured)
"""


@pytest.mark.parametrize(
    ("output", "daemons"),
    [
        (f"systemctl is-active {NAMES}\nactive\ninactive\nunknown\n", ["systemd-networkd"]),
        (f"systemctl is-active {NAMES}\ninactive\ninactive\nactive\n", ["nm-cloud-setup"]),
        (f"systemctl list-units --all\n{LISTED}", ["nm-cloud-setup", "amazon-ec2-net-utils"]),
        (f"systemctl is-active {NAMES}\nFailed to connect to bus: No such file or directory\n", None),
        (f"systemctl list-units --all | head\n{LISTED}", None),
        ("systemctl is-active systemd-networkd\nactive\n", None),
    ],
)
def test_active_daemons_are_those_that_systemd_names(output: str, daemons: list[str] | None) -> None:
    found = snapshot(output)["network_daemons"]
    assert daemons == (found and [name for name, is_active in found["daemons"].items() if is_active])


def test_links_of_networkd_are_those_with_a_file() -> None:
    found = snapshot(f"networkctl status -a\n{LINKS}", f"systemctl is-active {NAMES}\nactive\ninactive\ninactive\n")
    assert found["network_daemons"]["networkd_files"] == {"eth0": "/etc/systemd/network/1.network"}


def test_lists_of_units_and_of_their_files_show_own_units_and_firewalls_together() -> None:
    found = snapshot(f"systemctl list-units --all\n{LISTED}", f"systemctl list-unit-files\n{FILES}")
    unit = {"name": "kubenode-x.service", "is_enabled": True, "active": "active", "sub": "exited", "result": ""}
    assert found["units"] == [unit]
    assert found["firewalls"] == {"nftables.service": {"is_active": False, "is_enabled": False, "is_masked": True}}
    assert snapshot(f"systemctl list-units --all\n{LISTED}")["units"] is None


def test_counters_and_listeners_are_those_of_proc() -> None:
    tcp = "  sl  local_address rem_address   st\n   0: 0100007F:2809 00000000:0000 0A 00000000:00000000\n"
    files = {
        "snmp": "Ip: InReceives InNoRoutes\nIp: 9 4\n",
        "netstat": "TcpExt: IPReversePathFilter\nTcpExt: 7\n",
        "snmp6": "Ip6InNoRoutes 3\n",
        "stat/rt_cache": "entries  in_martian_src\n00000000  0000000a\n00000000  00000001\n",
        "stat/nf_conntrack": "entries  drop\n00000001  00000002\n",
        "tcp": tcp,
        "tcp6": "",
    }
    outputs = [f"cat /proc/net/{name}\n{text}" for name, text in files.items()]
    found = snapshot(*outputs, "sysctl -a\nnet.netfilter.nf_conntrack_count = 5\nnet.netfilter.nf_conntrack_max = 9\n")
    assert found["counters"] == {
        "packets": {"Ip.InNoRoutes": 4, "Ip6InNoRoutes": 3, "TcpExt.IPReversePathFilter": 7},
        "connections": {"count": 5, "max": 9, "drop": 2},
        "routing": {"in_martian_src": 11},
    }
    assert found["listeners"] == [{"address": "127.0.0.1", "port": 10249}]
    assert snapshot(*outputs[:1])["counters"] is None


def test_each_namespace_of_an_output_is_a_pod() -> None:
    found = snapshot(
        "ip -d addr\n1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n"
        "7: veth7@if2: <UP,LOWER_UP> mtu 1500 link-netns pod-a\n    link/ether 02:00:00:00:00:07\n    veth\n",
        "ip -all netns exec ip -d addr\n\nnetns: pod-a\n2: eth0@if7: <UP,LOWER_UP> mtu 1450\n"
        "    link/ether 02:00:00:00:00:02 brd ff:ff:ff:ff:ff:ff\n    inet 10.244.1.5/32 scope global eth0\n    veth\n",
        "ip -all netns exec ip neigh\n\nnetns: pod-a\n169.254.1.1 dev eth0 lladdr 02:00:00:00:00:09 PERMANENT\n",
        "ip -all netns exec ip -6 neigh\n\nnetns: pod-a\n",
    )
    assert [link["name"] for link in found["links"]] == ["lo", "veth7"]
    assert found["links"][1]["peer"]["addresses"] == ["10.244.1.5"]
    assert found["pod_neighbors"] == [{"link": "veth7", "address": "169.254.1.1", "mac": "02:00:00:00:00:09"}]


def test_the_script_is_one_of_a_plain_shell_and_asks_for_all_that_is_read() -> None:
    text = commands_script.script()
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert not re.search(r"@[A-Z_]+@|\[\[|\bfunction\b", text)
    assert all(f"files '{path}' whole" in text for path in commands_script.FILES)
