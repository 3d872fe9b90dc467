# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report is divided by its commands, fences and shells; the output of a pod is not the node's; a cut output is not whole."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import commands, pastes

OF_NODE = "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 10.0.0.4/24 scope global eth0\n"
OF_POD = "3: eth0@if8: <UP,LOWER_UP> mtu 1500\n    inet 10.1.0.7/32 scope global eth0\n"


def kinds(text: str) -> list[tuple[str, bool]]:
    return [(part.kind, part.is_pod) for part in commands.parts("report", text) if part.kind]


def addresses(text: str) -> list[str]:
    links: list[dict[str, Any]] = pastes.read({"report": text}).snapshot["links"]
    return [address["address"] for link in links for address in link["addresses"]]


@pytest.mark.parametrize(
    "other",
    [
        "root@node:~# tcpdump -ni eth0 host 10.1.0.7",
        "[root@node ~]# systemctl restart kubelet",
        "$ kubectl get svc,endpoints",
        "# cat /etc/hosts",
        "/ # wget -O- 10.96.0.1",
        "gke-node ~ # conntrack -L -s 10.1.0.7",
    ],
)
def test_the_output_of_another_command_is_no_part_of_the_one_before(other: str) -> None:
    found = pastes.read({"report": f"$ ip route\ndefault via 10.0.0.1 dev eth0\n{other}\n10.9.9.9 words of another tool\n"})
    assert [route["to"] for route in found.snapshot["routes"]] == ["default"]
    assert found.ignored == ["1 line is prose, or the output of another command, and left out."]


@pytest.mark.parametrize(
    "text",
    [
        "It is so:\n```\n$ ip rule\n0: from all lookup local\n```\nand then nothing helps\n",
        "`ip rule`:\n```console\n0: from all lookup local\n```\nand then nothing helps\n",
        "**ip rule**\n<details>\n\n~~~\n0: from all lookup local\n~~~\n</details>\nand then nothing helps\n",
        "<pre><code>$ ip rule\n0: from all <span class='k'>lookup</span> local</code></pre>\nand then nothing helps\n",
    ],
)
def test_a_fence_ends_an_output_and_the_words_around_it_are_none(text: str) -> None:
    found = pastes.read({"report": text})
    assert [rule["priority"] for rule in found.snapshot["rules"]] == [0]
    assert all("prose" in sentence for sentence in found.ignored) and len(found.ignored) == 1


@pytest.mark.parametrize("words", ["iptables rules:", "iptables looks good to me", "route of the packets", "ipset and nft"])
def test_words_that_begin_with_a_programs_name_are_no_command(words: str) -> None:
    text = f"{words}\nChain FORWARD (policy DROP)\ntarget     prot opt source               destination\n"
    assert [kind for kind, _is_pod in kinds(text)] == [commands.IPTABLES_LIST]


def test_a_remark_in_a_ruleset_is_no_command() -> None:
    text = "# nft list ruleset\ntable ip x {\n chain y {\n  # ip rule\n  # cat file\n  tcp dport 22 accept\n }\n}\n"
    text += "# ip rule\n0: from all\n"
    assert [kind for kind, _is_pod in kinds(text)] == [commands.NFT, commands.RULE]


def test_a_command_in_a_pod_does_not_make_the_next_one_a_pods() -> None:
    text = f"$ kubectl exec -it web -- ip a\n{OF_POD}$ ip a\n{OF_NODE}"
    assert kinds(text) == [(commands.LINK, True), (commands.LINK, False)] and addresses(text) == ["10.0.0.4/24"]


@pytest.mark.parametrize(
    ("enter", "prompt", "leave"),
    [
        ("root@node:~# kubectl exec -it web -- sh", "/ # ", "root@node:~# "),
        ("root@node:~# docker exec -it web /bin/bash", "root@3f1c:/# ", "root@node:~# "),
        ("# kubectl exec -ti web -- sh", "/ # ", "/ # exit\n# "),
        ("$ k exec -it web-0 -- sh", "~ $ ", "azureuser@node:~$ "),
        ("user@laptop:~$ kubectl exec -it web -- bash", "root@web:/# ", "root@node:~# "),
        ("$ k -n web exec -it web -- sh", "/ # ", "/ # exit\n$ "),
        ("[root@node ~]# nsenter -t 4711 -n bash", "[root@node ~]# ", "[root@node ~]# exit\n[root@node ~]# "),
    ],
)
def test_the_commands_of_a_shell_in_a_pod_are_the_pods(enter: str, prompt: str, leave: str) -> None:
    text = f"{enter}\n{prompt}ip a\n{OF_POD}{prompt}ip r\ndefault via 169.254.1.1 dev eth0\n{leave}ip a\n{OF_NODE}"
    assert addresses(text) == ["10.0.0.4/24"] and not pastes.read({"report": text}).snapshot["routes"]


@pytest.mark.parametrize(
    ("prompt", "is_pod"),
    [
        ("azureuser@node7:~$", False),
        ("root@node7:~#", False),
        ("[root@node7 ~]#", False),
        ("root@web-0:/#", True),
        ("/ #", True),
    ],
)
def test_the_name_of_a_file_says_less_than_the_prompts_in_it(prompt: str, is_pod: bool) -> None:
    shown = commands.parts("pod-out.txt", f"{prompt} ip a\n{OF_NODE}{prompt} ip r\ndefault dev eth0\n")
    assert [part.is_pod for part in shown if part.kind] == [is_pod, is_pod]


@pytest.mark.parametrize(
    "wrapper",
    [
        "k exec -n kube-system kube-proxy-x2x -- ",
        "kubectl -n kube-system exec kube-proxy-x2x -- ",
        "docker exec kind-worker2 ",
        "kubectl debug node/n1 -it --image=busybox -- chroot /host ",
        "minikube ssh -- ",
    ],
)
def test_programs_of_the_node_in_pods_see_its_network(wrapper: str) -> None:
    assert kinds(f"$ {wrapper}iptables-save\n*nat\nCOMMIT\n") == [(commands.IPTABLES, False)]


def test_the_rules_of_a_pod_are_left_out_and_named() -> None:
    found = pastes.read({"report": f"$ kubectl exec web -- iptables-save\n*nat\nCOMMIT\n$ ip a\n{OF_NODE}"})
    assert found.snapshot["iptables"] is None
    assert "A pod printed an output of iptables. It is left out: only the links of pods are in the twin." in found.assumed


@pytest.mark.parametrize(("start", "repeated", "end"), [("", " ", "x"), ("2: ", "a@", "")])
def test_a_long_line_takes_no_longer_than_ten_short_ones_of_its_length(start: str, repeated: str, end: str) -> None:
    def seconds(count: int, lines: int) -> float:
        text = f"{start}{repeated * count}{end}\n" * lines
        began = time.process_time()
        commands.parts("report", text)
        return time.process_time() - began

    assert seconds(20_000, 1) < 4 * seconds(2_000, 10) + 0.1


@pytest.mark.parametrize(
    ("line", "rest"),
    [("10.0.0.0/8 dev eth0   <--- this one", "10.0.0.0/8 dev eth0"), ("   // a remark", ""), ("a  b \u2190 c", "a  b")],
)
def test_a_remark_behind_a_line_is_no_part_of_it(line: str, rest: str) -> None:
    assert [part.lines for part in commands.parts("ip route", line)] == [(rest,)]


@pytest.mark.parametrize("line", ["2: eth0: <UP> mtu 1500", "3: veth1@if2: <UP> mtu 1500", "eth0: <UP> mtu 1500", "7: a@b: <UP>"])
def test_a_line_that_begins_a_link_is_recognized(line: str) -> None:
    assert kinds(line) == [(commands.LINK, False)]


RULES = "0:\tfrom all lookup local\n32766:\tfrom all lookup main\n32767:\tfrom all lookup default\n"
ROUTES = "default via 10.0.0.1 dev eth0\n"
LINKS = (
    "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n"
    "2: eth0: <UP,LOWER_UP> mtu 1500\n    inet 10.0.0.4/24 scope global eth0\n"
)
SAVED = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
NFT = "table inet own {\n\tchain one {\n\t\ttype filter hook forward priority 0; policy accept;\n\t}\n}\n"
SET = "Name: deny\nType: hash:ip\nHeader: family inet\nNumber of entries: {}\nMembers:\n10.0.0.9\n"
WHOLE = {
    "ip rule": RULES, "ip route": ROUTES, "ip addr": LINKS, "iptables-save": SAVED, "nft list ruleset": NFT, "ip neigh": "",
    "ip6tables-save": "", "ip -6 rule": "", "ip -6 route": "",
}  # fmt: skip


LOCAL = "local-routes"  # which the table local alone shows


def facts(dump: dict[str, str]) -> set[str]:
    """The ids of the open facts about packets of IPv4, but for LOCAL."""
    return {*_facts(dump)} - {LOCAL}


def _facts(dump: dict[str, str]) -> list[str]:
    listed: list[dict[str, Any]] = pastes.read(dump).snapshot["open"]
    return [str(entry["fact"]) for entry in listed if entry.get("family") in ("", None, "ipv4")]


@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ({}, True),
        ({"ip route show table local": "local 10.0.0.4 dev eth0 proto kernel scope host src 10.0.0.4\n"}, False),
        ({"ip route show table all": f"{ROUTES}local 10.0.0.9 dev eth0 table local proto 66 scope host\n"}, False),
        ({"ip addr": ""}, False),  # which leaves the addresses open
    ],
)
def test_which_routes_to_itself_a_node_has_is_open_without_the_table_local(more: dict[str, str], is_open: bool) -> None:
    assert (LOCAL in _facts(WHOLE | more)) == is_open


def test_of_the_table_local_routes_that_come_with_no_address_are_read() -> None:
    lines = [
        "10.0.0.4 dev eth0 proto kernel scope host src 10.0.0.4",
        "10.0.0.9 dev eth0 proto 66 scope host",
        "10.9.0.0/24 dev lo",
    ]
    shown = "".join(f"local {line}\n" for line in lines)
    routes = pastes.read(WHOLE | {"ip route show table local": shown}).snapshot["routes"]
    of_local = [(route["to"], route["dev"], route["protocol"]) for route in routes if route.get("type") == "local"]
    assert of_local == [("10.0.0.9", "eth0", "66"), ("10.9.0.0/24", "lo", "boot")]


def replaced(name: str, **by: str) -> dict[str, str]:
    others = {command: text for command, text in WHOLE.items() if command != name}
    return others | {command.replace("_", "-"): text for command, text in by.items()}


def test_whole_outputs_leave_nothing_open() -> None:
    assert facts(WHOLE) == set()


def in_text(command: str, output: str) -> dict[str, str]:
    return {"report": f"$ {command}\n{output}"}


@pytest.mark.parametrize(
    "command",
    [
        *(
            "ip rule",
            "ip -4 rule show",
            "ip rule list",
            "ip rule | tee rules.txt",
            "ip rule 2>/dev/null",
            "ip rule | sort | less",
        ),
        *("sudo ip ru", "/sbin/ip rule"),
    ],
)
def test_a_command_that_prints_all_rules_is_whole(command: str) -> None:
    assert facts(replaced("ip rule") | in_text(command, RULES)) == set()


@pytest.mark.parametrize(
    "command",
    [
        *("ip rule | grep all", "ip rule |& grep all", "ip rule | /bin/grep all", "ip rule | sudo -n grep all", "ip rule | jq ."),
        *("ip rule | perl -ne print", "ip rule > r; grep all r", "grep all rules.txt", "time ip rule | grep all"),
        *("ssh node1 'ip rule | grep all'", "watch 'ip rule | grep all'", "sudo bash -c 'ip rule | grep all'"),
        *("ip rule show table 100", "for t in main; do ip rule | grep $t; done"),
    ],
)
def test_a_command_that_may_leave_out_lines_is_not_whole(command: str) -> None:
    assert "rules" in facts(replaced("ip rule") | in_text(command, RULES.partition("\n")[2]))


@pytest.mark.parametrize(
    ("name", "by", "fact"),
    [
        ("ip rule", {"ip rule | grep all": RULES}, "rules"),
        ("ip route", {"ip-route-grep-veth.txt": ROUTES}, "routes"),
        ("ip route", {"ip-route-head.txt": ROUTES}, "routes"),
        ("ip route", {"ip route show dev eth0": ROUTES}, "routes"),
        ("ip route", {"report": f"My routes:\n{ROUTES}"}, "routes"),
        ("ip addr", {"ip addr show eth0": LINKS.partition("2:")[2]}, "addresses"),
        ("ip addr", {"ip link": LINKS.replace("    inet", "    link/x")}, "addresses"),
        ("ip addr", {"ip -6 addr": LINKS}, "addresses"),
        ("ip addr", {"ip -br addr": "eth0 UP 10.0.0.4/24\n"}, "bridge-ports"),
        ("nft list ruleset", {"nft list table inet own": NFT}, "nft"),
        ("nft list ruleset", {"nft -t list ruleset": NFT}, "nft"),
        ("nft list ruleset", {"nft list ruleset": f"# 300 lines removed\n{NFT}"}, "nft"),
        ("iptables-save", {}, "legacy"),
        (
            "iptables-save",
            {"iptables-save": f"# Warning: iptables-legacy tables present, use iptables-legacy-save\n{SAVED}"},
            "legacy",
        ),
        ("iptables-save", {"iptables-save": f"# ... 300 lines of cali-* removed\n{SAVED}"}, "cut:ip filter"),
        ("iptables-save", {"iptables -S ts-forward": "-N ts-forward\n-A ts-forward -j ACCEPT\n"}, "cut:ip filter"),
        ("iptables-save", {"iptables-save-filter.txt": SAVED}, "legacy"),
    ],
)
def test_what_an_output_does_not_show_is_open(name: str, by: dict[str, str], fact: str) -> None:
    others = {command: text for command, text in WHOLE.items() if command != name}
    assert fact in facts(others | by)


@pytest.mark.parametrize(
    ("command", "rule", "has_values"),
    [
        ("nft list ruleset", "xt match set drop", False),
        ("nft list table inet own", "drop", True),
        ("nft list ruleset | grep x", "drop", True),
    ],
    ids=["a rule that nft does not print", "one table", "some lines"],
)
def test_a_listing_of_all_tables_hides_no_service_even_if_a_rule_was_not_understood(
    command: str, rule: str, has_values: bool
) -> None:
    listed = NFT.replace("policy accept;\n", f"policy accept;\n\t\t{rule}\n")
    snapshot = pastes.read(replaced("nft list ruleset") | in_text(command, listed)).snapshot
    (nft,) = (entry for entry in snapshot["open"] if entry["fact"] == "nft")
    assert bool(nft.get("is_cut")) != has_values


def test_what_iptables_legacy_prints_hides_no_table_of_nft() -> None:
    legacy = replaced("iptables-save") | {"iptables-legacy-save": SAVED}
    assert facts(legacy) == set()  # nft lists no table of iptables
    without = {command: text for command, text in legacy.items() if command != "nft list ruleset"}
    assert {"cut:ip filter", "table:ip nat"} <= facts(without)
    with_table = NFT + NFT.replace("inet own", "ip filter")
    assert facts(legacy | {"nft list ruleset": with_table}) == {"cut:ip filter"}
    assert facts(without | {"iptables-nft-save": SAVED}) == {"nft"}


def test_routes_are_whole_by_table() -> None:
    rules = {"ip rule": RULES + "100:\tfrom 10.1.0.5 lookup 7\n"}
    assert facts(WHOLE | rules | {"ip route show table 7": ROUTES}) == set()
    assert "routes:7" in facts(WHOLE | rules | in_text("ip route show table 7 | grep default", ROUTES))
    assert "routes" in facts(
        replaced("ip route") | rules | {"ip route show table 7": ROUTES} | in_text("ip route | grep d", ROUTES)
    )


def test_a_set_with_fewer_members_than_entries_is_open() -> None:
    saved = {"iptables-save": SAVED.replace("COMMIT", "-A FORWARD -m set --match-set deny src -j DROP\nCOMMIT")}
    assert facts(WHOLE | saved | {"ipset list": SET.format(1)}) == set()
    assert facts(WHOLE | saved | {"ipset list": SET.format(3)}) == {"set:deny"}
    assert facts(WHOLE | saved | {"ipset list deny": SET.format(1)} | {"ipset list": ""}) == {"set:deny"}


def test_equal_rules_of_one_output_stay_and_those_of_two_are_one() -> None:
    rules = "".join(f"-A FORWARD -j MARK --set-xmark 0x{mark}/0xff\n" for mark in (1, 2, 1))
    dump = {"iptables -S": f"-P FORWARD ACCEPT\n{rules}", "iptables-save": f"*filter\n:FORWARD ACCEPT\n{rules}COMMIT\n"}
    (table,) = pastes.read(dump).snapshot["iptables"]
    assert str(table["save"]).count("0x1/0xff") == 2


def test_settings_that_decide_and_that_no_output_has_are_open() -> None:
    marked = {"ip rule": RULES + "100:\tfrom all fwmark 0x80 lookup main\n"}
    assert facts(WHOLE | marked) == {"net.ipv4.conf.all.src_valid_mark"}
    assert facts(WHOLE | marked | {"sysctl": "net.ipv4.conf.all.src_valid_mark = 1\n"}) == {"net.ipv4.conf.all.src_valid_mark"}


def test_a_program_at_xdp_is_in_the_snapshot() -> None:
    links = LINKS.replace("2: eth0: <UP,LOWER_UP> mtu 1500", "2: eth0: <UP,LOWER_UP> mtu 1500 xdpgeneric/id:42")
    snapshot = pastes.read(WHOLE | {"ip addr": links}).snapshot
    assert snapshot["bpf"] == [{"link": "eth0", "hook": "XDP", "direction": "ingress", "name": "XDP"}]


@pytest.mark.parametrize(
    ("pod", "is_node"), [("client-7556", False), ("cilium-x7k2p", True), ("ds/calico-node", True), ("kube-proxy-abcde", True)]
)
def test_a_pod_is_the_nodes_by_its_own_name(pod: str, is_node: bool) -> None:
    command = f"kubectl exec -n cilium-test -c main {pod} -- ip rule"
    assert ("rules" not in facts(replaced("ip rule") | in_text(command, RULES))) == is_node


@pytest.mark.parametrize(
    "name", ["ip-d-link.txt", "ip_-d_link", "ip-d-l", "ip_d_addr.log", "ip-d-a.txt", "ip-s-d-link", "ip-br-a", "ip-o-addr"]
)
def test_an_option_in_a_name_needs_no_dash(name: str) -> None:
    (part, *_rest) = commands.parts(name, "")
    assert (part.kind, part.is_cut) == (commands.LINK, False)
