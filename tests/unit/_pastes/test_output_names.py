# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in outputs say what the next boot sets, and nothing about today. Outputs of two states of a node are not one node."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import output_names, pastes, pastes_backend

RULE = "0:\tfrom all lookup local\n"
TOP = "sosreport-node1"
ALL, FORWARD = "net.ipv4.conf.all.rp_filter", "net.ipv4.ip_forward"
FOLDERS = ("/run", "/usr/local/lib", "/usr/lib", "/lib")


def snapshot(**files: str) -> dict[str, Any]:
    """Return the snapshot of outputs and files, by path."""
    return pastes.read({"ip rule": RULE, **{f"cat {path}": text for path, text in files.items()}}).snapshot


def sos(folder: Path, files: dict[str, str], links: dict[str, str]) -> str:
    """Pack a bundle with files and links by their paths on the node."""
    path = folder / f"{TOP}.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name, target in links.items():
            header = tarfile.TarInfo(f"{TOP}/{name}")
            header.type, header.linkname = tarfile.SYMTYPE, target
            archive.addfile(header)
        for name, text in {"sos_commands/networking/ip_-4_rule_list": RULE, **files}.items():
            header = tarfile.TarInfo(f"{TOP}/{name}")
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text.encode()))
    return str(path)


def test_the_first_folder_and_the_last_name_win() -> None:
    files = {
        "/etc/sysctl.d/50-a.conf": f"{ALL}=1\n",
        "/usr/lib/sysctl.d/50-a.conf": f"{ALL}=2\n{FORWARD}=0\n",
        "/run/sysctl.d/60-b.conf": f"{FORWARD}=1\n",
        "/etc/sysctl.conf": f"{FORWARD}=0\n",  # which systemd-sysctl does not read
        "/etc/systemd/networkd.conf": "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
        "/etc/systemd/networkd.conf.d/a.conf": "[Network]\nManageForeignRoutes=yes\n",
    }
    assert snapshot(**files)["boot"] == {
        "settings": {
            ALL: {"value": 1, "file": "/etc/sysctl.d/50-a.conf"},
            FORWARD: {"value": 1, "file": "/run/sysctl.d/60-b.conf"},
        },
        "networkd": {
            "ManageForeignRoutingPolicyRules": {"value": False, "file": "/etc/systemd/networkd.conf"},
            "ManageForeignRoutes": {"value": True, "file": "/etc/systemd/networkd.conf.d/a.conf"},
        },
    }


def test_a_file_tells_nothing_about_the_current_settings() -> None:
    """A remark in it may be a command, and its name may have the word of a state."""
    text = f"# sysctl -w {FORWARD}=1\n{FORWARD} = 1\n"
    read = snapshot(**{"/etc/sysctl.d/99-old.conf": text, "/etc/sysctl.d/99-new.conf": text})
    assert read["settings"] is None
    assert read["boot"]["settings"] == {FORWARD: {"value": 1, "file": "/etc/sysctl.d/99-new.conf"}}


def test_what_no_file_shows_is_null_and_named() -> None:
    assert (snapshot()["boot"], snapshot()["unread"]) == (None, [])
    read = snapshot(**{"/etc/sysctl.d/a.conf": ""})
    assert read["boot"] == {"settings": {}, "networkd": None}
    drop_ins = [f"{folder}/systemd/networkd.conf.d" for folder in ("/etc", *FOLDERS)]
    (unread,) = read["unread"]
    assert (unread["subset"], unread["object"].split(", ")) == ("boot", [f"{folder}/sysctl.d" for folder in FOLDERS] + drop_ins)


def test_links_of_a_bundle_mask_and_name_files_as_on_the_node(tmp_path: Path) -> None:
    files = {
        "etc/sysctl.conf": f"{FORWARD}=1\n",
        **{f"usr/lib/sysctl.d/{name}.conf": f"{ALL}=2\n" for name in ("50-masked", "60-elsewhere")},
        "usr/lib/sysctl.d/10-a.conf": f"{ALL}=1\n",
    }
    links = {
        "lib": "usr/lib",
        "etc/sysctl.d/99-sysctl.conf": "../sysctl.conf",
        "etc/sysctl.d/50-masked.conf": "../../dev/null",
        "etc/sysctl.d/60-elsewhere.conf": "../../opt/vendor.conf",
        **{f"etc/systemd/system/multi-user.target.wants/{number}.service": "../x.service" for number in range(300)},
    }
    pasted = pastes_backend.read(sos(tmp_path, files, links))
    assert pasted.snapshot["boot"]["settings"] == {
        ALL: {"value": 1, "file": "/usr/lib/sysctl.d/10-a.conf"},
        FORWARD: {"value": 1, "file": "/etc/sysctl.d/99-sysctl.conf"},
    }
    link = f"{TOP}.tar.xz/{TOP}/etc/sysctl.d/60-elsewhere.conf is a link to ../../opt/vendor.conf, which is not read."
    assert [note for note in pasted.ignored if "link" in note] == [f"{link} It is left out."]
    assert {"/etc/sysctl.d/60-elsewhere.conf"} == {
        entry["object"] for entry in pasted.snapshot["unread"] if "whole" in entry["reason"]
    }


FIRST, SECOND = "default via 192.0.2.1 dev eth0\n", "default via 192.0.2.2 dev eth0\n"
OF_TWO_NODES = f"[root@node1 ~]# ip route\n{FIRST}[root@node2 ~]# ip route\n{SECOND}"


@pytest.mark.parametrize(
    ("name", "command", "state"),
    [
        ("ip-rule-before.txt", "ip-rule", "before"),
        ("iptables-nvL-FORWARD_AFTER.log", "iptables-nvL-FORWARD", "after"),
        ("before ip rule", "ip rule", "before"),
        ("iptables-save.old", "iptables-save", "old"),
        ("iptables-save-2026-11-03T10:12:59.txt", "iptables-save", "2026-11-03t10:12:59"),
        ("ip-route-20261103-101259", "ip-route", "20261103-101259"),
        ("ip-route-2.txt", "ip-route-2", "2"),
        ("ip-route-show-table-7.txt", "ip-route-show-table-7", ""),
        ("ip-route-show-table-1003-after.txt", "ip-route-show-table-1003", "after"),
        ("ip-6-rule.txt", "ip-6-rule", ""),
        ("renewal-beforehand", "renewal-beforehand", ""),
        ("ip netns exec cni-2345-1234-12 ip rule", "ip netns exec cni-2345-1234-12 ip rule", ""),
        ("ip netns exec old ip rule-before", "ip netns exec old ip rule", "before"),
    ],
)
def test_a_name_has_a_command_and_a_state(name: str, command: str, state: str) -> None:
    assert output_names.output_name(name) == (command, state)


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("ip-route-before.txt", "ip-route-after.txt", "after: ip-route-after.txt; before: ip-route-before.txt"),
        ("ip-route.txt", "ip-route.old", "no state in the name: ip-route.txt; old: ip-route.old"),
        ("ip-route-1.txt", "ip-route-2.txt", "1: ip-route-1.txt; 2: ip-route-2.txt"),
        ("ip-route-20261103.txt", "ip-route-20261104.txt", "20261103: ip-route-20261103.txt"),
    ],
)
def test_two_states_are_named_with_their_files(first: str, second: str, shown: str) -> None:
    with pytest.raises(Invalid, match="dump must be outputs of one state. Put the files of each state into a folder") as error:
        pastes.read({first: FIRST, second: SECOND})
    assert shown in str(error.value)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("ip-route-before.txt", "ip-route-after.txt"),
        ("ip-route.old", "ip-route.txt"),
        ("ip-route.txt", "ip-route-new.txt"),
        ("ip-route-working.txt", "ip-route-broken.txt"),
        ("ip-route-20261103.txt", "ip-route-20261104.txt"),
    ],
)
def test_two_states_are_told_apart_for_a_comparison(earlier: str, later: str) -> None:
    divided = output_names.two_states({later: SECOND, earlier: FIRST, "ip-rule.txt": "0: from all lookup local\n"})
    assert divided is not None
    assert [*map(sorted, divided)] == [["ip-route", "ip-rule"]] * 2
    assert [state["ip-route"] for state in divided] == [FIRST, SECOND]


def test_outputs_of_one_state_or_of_three_are_not_two_states() -> None:
    assert output_names.two_states({"ip-route.txt": FIRST}) is None
    assert output_names.two_states({f"ip-route-{word}.txt": FIRST for word in ("before", "after", "new")}) is None


def test_all_files_of_a_state_are_named() -> None:
    dump = {"ip-route-before": FIRST, "ip-route-after": SECOND, "ip-rule-before": "0: from all lookup local\n"}
    with pytest.raises(Invalid, match="before: ip-route-before, ip-rule-before"):
        pastes.read(dump)


LINK = "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 192.0.2.4/24 scope global eth0\n"
COUNTED = "*filter\n:FORWARD DROP [{0}:{1}]\n[{0}:{1}] -A FORWARD -i eth0 -j DROP\nCOMMIT\n"
LISTED = (
    "Chain FORWARD (policy DROP {0} packets, {1} bytes)\n"
    " pkts bytes target     prot opt in     out     source               destination\n"
    "    {0}   {1} DROP       all  --  eth0   *       0.0.0.0/0            0.0.0.0/0\n"
)


@pytest.mark.parametrize(
    "dump",
    [
        {f"ip-addr-{number}": f"{LINK}       valid_lft {number}sec preferred_lft 9sec\n" for number in (1, 2)},
        {"ip-route-before": FIRST, "ip-route-after": FIRST},
        {"ip-route-show-table-7": FIRST, "ip-route-show-table-8": SECOND},
        {"ip-addr-pod-1": "3: eth0@if8: <UP> mtu 1500\n", "ip-addr-pod-2": "3: eth0@if9: <UP> mtu 1500\n", "ip-route": FIRST},
        {"iptables-save-c-before": COUNTED.format(1, 60), "iptables-save-c-after": COUNTED.format(20, 1200)},
        {"iptables-nvL-1": LISTED.format(1, 60), "iptables-nvL-2": LISTED.format("20K", "12M")},
        {f"iptables-save-{day}": f"# Generated by iptables-save on day {day}\n*filter\nCOMMIT\n" for day in (1, 2)},
        {f"ip-neigh-{number}": f"10.0.0.{number} dev eth0 lladdr 02:00:00:00:00:01 STALE\n" for number in (1, 2)}
        | {"ip-route": FIRST},
        {"ip-rule-4": "0: from all lookup local\n", "ip-rule-6": "0: from all lookup local\n32766: from all lookup main\n"},
    ],
    ids=["lifetimes", "identical", "tables", "pods", "counters", "columns of counters", "dates", "neighbours", "families"],
)
def test_one_state_is_read(dump: dict[str, str]) -> None:
    assert not pastes.read(dump).ignored


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ({"ip-route-before": FIRST, "ip-rule-after": "0: from all lookup local\n"}, "outputs of 2 states"),
        ({"ip-route-node1": FIRST, "ip-route-node2": SECOND}, "outputs of 2 states"),
        (
            {"report": OF_TWO_NODES},
            "outputs of the nodes node1, node2",
        ),
        (
            {"report": "# iptables-save\n*filter\n-A FORWARD -j DROP\nCOMMIT\n# iptables-save\n*filter\nCOMMIT\n"},
            "2 different outputs of iptables-save for ipv4 in report",
        ),
    ],
    ids=["states of several commands", "files of nodes", "prompts of nodes", "twice in a text"],
)
def test_outputs_of_several_nodes_or_states_are_refused(dump: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        pastes.read(dump)
