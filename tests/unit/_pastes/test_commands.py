# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A report is divided by its commands, fences and shells, and the output of a pod is not the node's."""

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
        "# cat /etc/sysctl.conf",
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
        ("[root@node ~]# nsenter -t 4711 -n bash", "[root@node ~]# ", "[root@node ~]# exit\n[root@node ~]# "),
    ],
)
def test_the_commands_of_a_shell_in_a_pod_are_the_pods(enter: str, prompt: str, leave: str) -> None:
    text = f"{enter}\n{prompt}ip a\n{OF_POD}{prompt}ip r\ndefault via 169.254.1.1 dev eth0\n{leave}ip a\n{OF_NODE}"
    assert addresses(text) == ["10.0.0.4/24"] and not pastes.read({"report": text}).snapshot["routes"]


@pytest.mark.parametrize(
    "wrapper",
    [
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
