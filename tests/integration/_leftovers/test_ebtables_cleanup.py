# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables_cleanup on a real kernel: azure-vnet's leftovers are removed, and nothing else; and restored."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab import Lab, Node, azure_vnet, background, ebtables_versions, node_conditions, playbook
from lab.azure_vnet import BRIDGE, CILIUM, CONFLIST, STATE, AzurePod
from lab.load_balancer import LINK
from lab.machine import Machine
from lab.node import POD_PORT, NamespaceNode
from lab.prober import Prober
from lab.steps import Steps

MODULE = "ebtables_cleanup"
BACKUP = "/var/lib/kubenode/backup/azure_vnet.json"
LIBRARY = "/var/lib/kubenode/lib"

LIVING = AzurePod(0)
# Addresses that no other test has: the module looks at the interfaces of all network namespaces.
GONE = [AzurePod(number) for number in range(21, 24)]
FOREIGN = [
    "-t nat -A PREROUTING -p IPv4 -i eth0 --ip-dst 10.99.0.1 -j dnat --to-dst 02:aa:00:00:00:01 --dnat-target ACCEPT",
    "-t nat -A POSTROUTING -s Unicast -o eth1 -j snat --to-src 02:aa:00:00:00:02 --snat-arp --snat-target ACCEPT",
    "-t nat -A POSTROUTING -p ARP -o br0 --arp-op Request --arp-ip-dst 10.99.0.0/16 -j DROP",
    "-t filter -A FORWARD -p IPv4 --ip-proto tcp --ip-dport 80 -j mark --mark-set 0x5 --mark-target CONTINUE",
    "-t filter -A FORWARD --among-dst 2:0:0:0:0:9=10.99.0.1,2:0:0:0:0:8 -j DROP",
    '-t filter -A FORWARD --log-level notice --log-prefix "hello world" -j CONTINUE',
]  # fmt: skip
# kubenet's rules (ensure-no-dup.sh of AgentBaker).
KUBENET = """
ebtables-nft -t filter -N AKS-DEDUP-PROMISC
ebtables-nft -t filter -A AKS-DEDUP-PROMISC -p IPv4 -s 02:aa:00:00:00:03 -o veth+ --ip-src 10.99.0.1 -j ACCEPT
ebtables-nft -t filter -A OUTPUT -j AKS-DEDUP-PROMISC
ebtables-nft -t filter -P FORWARD DROP
"""


def with_past(lab: Lab) -> NamespaceNode:
    """The first node, of whose pods under azure-vnet one lives: its interface is eth1 of pod1."""
    node: NamespaceNode = lab.node("node1")
    azure_vnet.past(node, node.place.mac(), [LIVING, *GONE])
    azure_vnet.ebtables(node, FOREIGN)
    node.run(["sh", "-ec", KUBENET])
    azure_vnet.attach(node, LIVING, lab.pod("pod1").pid)
    lab.pod("pod1").ip(["link set eth1 up", f"address add {LIVING.address}/16 dev eth1"])
    return node


@pytest.fixture
def node(lab: Lab) -> NamespaceNode:
    return with_past(lab)


@pytest.fixture
def steps(node: NamespaceNode) -> Steps:
    return Steps(node, MODULE)


def end_living(node: NamespaceNode) -> None:
    node.ip([f"link delete {LIVING.host_link}"])


def neighbours(node: NamespaceNode) -> list[str]:
    return sorted(node.run_from_host(["ip", "neighbour", "show", "dev", BRIDGE, "nud", "permanent"]).splitlines())


def state(node: NamespaceNode) -> dict[str, Any]:
    """All that the module may change."""
    return {**node.snapshot(), "ebtables": azure_vnet.listing(node), "neighbours": neighbours(node)}


def is_about(line: str, pods: Sequence[AzurePod]) -> bool:
    return any(re.search(rf"\b{re.escape(pod.address)}\b", line) for pod in pods)


def reasons(rules: list[dict[str, str]], pod: AzurePod) -> set[str]:
    return {one["reason"] for one in rules if is_about(one["rule"], [pod])}


# Twelve steps


def test_leftovers_go_further_ones_go_too_and_all_comes_back(node: NamespaceNode, steps: Steps) -> None:
    before, listed = state(node), azure_vnet.listing(node)
    result = steps.four()
    assert azure_vnet.listing(node) == [line for line in listed if not is_about(line, GONE)]
    assert (len(result["removed"]), len(result["neighbors"]), result["backup_file"]) == (6, 3, BACKUP)
    assert node.run(["stat", "-c", "%a %u", BACKUP]).stdout == "600 0\n"

    after = state(node)
    azure_vnet.restore(node, GONE[0].rules)  # azure-vnet has added the rules again
    node.write(STATE, azure_vnet.state_text(node.place.mac(), [LIVING, *GONE]), 0o600)
    result = steps.four()
    assert (len(result["removed"]), result["neighbors"]) == (2, [])
    assert {**state(node), "files": 0} == {**after, "files": 0}

    result = steps.four(state="restored")
    assert len(result["restored"]) == 6 and result["differences"] == []
    assert state(node) == before


def test_restored_gives_back_the_node_as_it_was_counters_included(node: NamespaceNode, steps: Steps) -> None:
    node.run_from_host(["ebtables-nft", "-t", "nat", "-I", "PREROUTING", *GONE[0].rules[1].split()[4:], "-c", "5", "6"])
    before = state(node)
    (counted,) = (line for line in azure_vnet.listing(node, counters=True) if line.startswith("[5:6]"))
    assert steps.run()["changed"]
    assert state(node) != before
    steps.run(state="restored")
    assert state(node) == before and counted in azure_vnet.listing(node, counters=True)


def test_a_pod_that_lives_and_what_serves_it_is_kept_with_the_reason(node: NamespaceNode, steps: Steps) -> None:
    result = steps.run(check=True)
    (why,) = reasons(result["kept"], LIVING)
    assert "which has the address and the MAC" in why
    assert reasons(result["removed"], LIVING) == set()
    node_wide = [one for one in result["kept"] if "serves all pods" in one["reason"]]
    assert [one["chain"] for one in node_wide] == ["FORWARD", "PREROUTING", "PREROUTING", "POSTROUTING"]
    assert {one["reason"].split(":")[0] for one in result["kept"] if "10.99." in one["rule"]} == {"doubtful"}


def test_with_the_last_pod_go_the_rules_for_the_whole_node(lab: Lab, node: NamespaceNode, steps: Steps) -> None:
    listed = azure_vnet.listing(node)
    steps.run()
    lab.pod("pod1").ip(["link delete eth1"])
    result = steps.four()
    assert len(result["removed"]) == 6 and not node.exists(STATE) and not node.exists(CONFLIST) and node.exists(CILIUM)
    assert (result["files"], result["kept_files"]) == ([STATE, CONFLIST], [])
    expected = [line for line in listed if not is_about(line, [LIVING, *GONE]) and azure_vnet.NODE_ADDRESS not in line]
    own_rules = ("--arp-op Reply -j dnat", f"--to-src {node.place.mac()}", "neighbour-solicitation")
    assert azure_vnet.listing(node) == [line for line in expected if not any(part in line for part in own_rules)]


def test_files_stay_while_a_pod_of_azure_vnet_lives_and_an_empty_one_for_good(node: NamespaceNode, steps: Steps) -> None:
    """Without the files, azure-vnet could not delete the pod, and azure-cns would assign its address again."""
    result = steps.four()
    assert node.exists(STATE) and node.exists(CONFLIST) and result["files"] == []
    assert {one["path"]: one["reason"].rpartition(": ")[2] for one in result["kept_files"]} == dict.fromkeys(
        (STATE, CONFLIST), LIVING.host_link
    )
    end_living(node)
    node.write(STATE, "")  # kubelet creates an empty file for azure-cns
    result = steps.four()
    assert (result["files"], result["kept_files"]) == ([CONFLIST], [{"path": STATE, "reason": "it is empty"}])


def test_the_drop_of_vlan_frames_goes_if_azure_vnets_nat_bridge_is_there(lab: Lab, node: NamespaceNode, steps: Steps) -> None:
    drop = "-A PREROUTING -p 802_1Q -j DROP"
    lab.pod("pod1").ip(["link delete eth1"])
    azure_vnet.ebtables(node, [f"-t nat {drop}"])
    reasons = [one["reason"] for one in steps.run()["kept"] if one["rule"] == "-p 802_1Q -j DROP"]
    assert reasons == ["doubtful: it looks like a rule of azure-vnet, but may belong to another program"]
    node.ip(["link add azSnatbr type bridge"])
    assert [one["rule"] for one in steps.four()["removed"]] == ["-p 802_1Q -j DROP"]
    steps.run(state="restored")
    assert drop in azure_vnet.listing(node)


# Packets


@pytest.fixture
def outside(lab: Lab, node: NamespaceNode) -> Machine:
    """Another host of the pods' subnet."""
    lab.load_balancer.ip([f"address add 10.240.200.1/16 dev {LINK}"])
    return lab.load_balancer


def reaches(machine: Machine, address: str) -> bool:
    return Prober(machine).udp(address, POD_PORT, timeout=1, tries=1)


@contextlib.contextmanager
def asking_all_the_while(machine: Machine, address: str) -> Iterator[list[bool]]:
    """Whether each of the requests, which are sent one after the other, was answered."""
    answers: list[bool] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            answers.append(reaches(machine, address))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield answers
    finally:
        ended.set()
        asking.join()


def test_a_pod_with_a_former_pods_address_is_reached_and_one_under_azure_vnet_loses_nothing(
    lab: Lab, node: NamespaceNode, steps: Steps, outside: Machine
) -> None:
    stolen, pod = GONE[0].address, lab.pod("pod2")
    node.run(["ebtables-nft", "-P", "FORWARD", "ACCEPT"])
    node.ip(
        [
            f"link add lxc0 type veth peer name eth2 address 02:bb:00:00:00:01 netns {pod.pid}",
            "link set lxc0 up",
            f"route add {stolen}/32 dev lxc0",
        ]
    )
    node.set_sysctls({"net.ipv4.conf.lxc0.proxy_arp": 1})
    pod.ip(["link set eth2 up", f"address add {stolen}/32 dev eth2", "route add 10.240.200.1 dev eth2"])
    assert reaches(outside, LIVING.address) and not reaches(outside, stolen)
    assert GONE[0].mac in outside.run(["ip", "neighbour", "show", stolen]).stdout  # by azure-vnet's rule
    with asking_all_the_while(outside, LIVING.address) as answers:
        result = steps.run()
    assert len(result["removed"]) == 6 and "has the address now" in next(iter(reasons(result["removed"], GONE[0])))
    assert all(answers) and len(answers) > 20
    outside.ip([f"neighbour replace {stolen} lladdr {node.place.mac()} dev {LINK}"])  # as the cloud's fabric answers
    assert reaches(outside, stolen)


# Foreign rules


CROWD = st.lists(st.booleans(), min_size=1, max_size=40)


def interleaved(flags: Sequence[bool]) -> list[str]:
    """Rules of pods that have gone, and foreign ones of the same and of other shapes, in any order; two for each flag."""
    rules = []
    for number, is_azures in enumerate(flags):
        pod = AzurePod(100 + number)
        foreign_rules = [azure_vnet.foreign(rule) for rule in pod.rules]
        if number % 3 == 0:
            foreign_rules[0] = f"-t filter -A FORWARD -p IPv4 --ip-dst 10.99.7.{number % 250} -j CONTINUE"
        rules += pod.rules if is_azures else foreign_rules
    return rules


def test_among_500_foreign_rules_500_of_azure_vnet_go_and_come_back(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node2")
    flags = [True, False] * 250
    random.Random(7).shuffle(flags)
    check_crowd(node, flags)


@pytest.fixture(scope="module")
def lasting() -> Iterator[Lab]:
    with Lab("any", nodes=[Node("node1")]) as lab:
        yield lab


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(CROWD)
def test_among_any_foreign_rules_azure_vnets_go_and_come_back(lasting: Lab, flags: list[bool]) -> None:
    check_crowd(lasting.node("node1"), flags)


def check_crowd(node: NamespaceNode, flags: Sequence[bool]) -> None:
    rules = interleaved(flags)
    gone = [AzurePod(100 + number) for number, is_azures in enumerate(flags) if is_azures]
    try:
        azure_vnet.restore(node, [*rules, *FOREIGN[2:]])
        node.run(["sh", "-ec", KUBENET])
        node.write(STATE, azure_vnet.state_text(node.place.mac(), gone), 0o600)
        listed = azure_vnet.listing(node, counters=True)
        before = node.snapshot()
        steps = Steps(node, MODULE)
        predicted = steps.run(check=True)
        assert node.snapshot() == before
        result = steps.run()
        assert result == predicted and len(result["removed"]) == 2 * len(gone)
        assert azure_vnet.listing(node, counters=True) == [line for line in listed if not is_about(line, gone)]
        assert not steps.run()["changed"]
        steps.run(state="restored")
        assert azure_vnet.listing(node, counters=True) == listed and node.snapshot() == before
    finally:
        node.run_from_host(["nft", "flush", "ruleset"])
        node.remove(STATE)


INSERTER = """
number=0
while :; do
  number=$((number + 1))
  ebtables-nft -t nat -I PREROUTING $((number % 5 + 1)) -p IPv4 -i eth0 --ip-dst 10.98.0.$((number % 250)) -j dnat \
    --to-dst 02:cc:00:00:00:01 --dnat-target ACCEPT && echo 10.98.0.$((number % 250)) >> /run/inserted
  if [ $((number % 3)) = 0 ]; then
    ebtables-nft -t nat -D PREROUTING -p IPv4 -i eth0 --ip-dst 10.98.0.$((number % 250)) -j dnat \
      --to-dst 02:cc:00:00:00:01 --dnat-target ACCEPT && sed -i '$d' /run/inserted || echo lost >> /run/lost
  fi
done
"""


def test_another_program_that_inserts_and_deletes_all_the_while_loses_nothing(node: NamespaceNode) -> None:
    many = [AzurePod(number) for number in range(100, 250)]
    azure_vnet.restore(node, [rule for pod in many for rule in (*pod.rules, azure_vnet.foreign(pod.rules[1]))])
    foreign = [line for line in azure_vnet.listing(node) if not is_about(line, [*many, *GONE])]
    addresses = [pod.address for pod in many]
    with background.shell(node, INSERTER):
        for state_given in ("absent", "restored", "absent"):
            result = node.module(MODULE, {"state": state_given, "addresses": addresses})
            assert not result["failed"], result["msg"]
    listing = azure_vnet.listing(node)
    assert not any(is_about(line, [*many, *GONE]) for line in listing)
    inserted = re.findall(r"--ip-dst (10\.98\.0\.\d+) ", "\n".join(listing))
    assert [line for line in listing if "10.98.0." not in line] == foreign
    assert not node.exists("/run/lost") and len(inserted) > 5
    assert abs(len(inserted) - len(node.read("/run/inserted").split())) <= 1  # the last insertion may be unfinished


# As ebtables-nft-save of iptables 1.8.9 does at times, while another program inserts rules.
TWICE = f"""\
#!/bin/bash
[[ $0 == *-save ]] && mkdir /run/torn 2> /dev/null || exec -a "$0" @REAL@ "$@"
(exec -a "$0" @REAL@ "$@") | sed "/--arp-ip-dst {GONE[0].address} /p"
"""
# Adds, between listing and transaction, the rule that is to be restored, and a rule that shifts all positions.
MEDDLER = f"""\
#!/bin/bash
if [[ $0 == *-restore ]] && mkdir /run/meddled 2> /dev/null; then
  (exec -a ebtables-nft @REAL@ {GONE[1].rules[0]})
  (exec -a ebtables-nft @REAL@ -t nat -I PREROUTING 1 -p ARP -j CONTINUE)
fi
exec -a "$0" @REAL@ "$@"
"""


def test_a_rule_that_a_listing_shows_twice_is_there_once(node: NamespaceNode, steps: Steps) -> None:
    with node.replace_program(ebtables_versions.PROGRAM, TWICE):
        assert len(steps.run(check=True)["removed"]) == 2 * len(GONE)
    assert node.exists("/run/torn")


def test_a_chain_of_the_operator_may_have_the_name_of_a_built_in_one(node: NamespaceNode, steps: Steps) -> None:
    """Table nat has no built-in chain INPUT. The policy of the operator's is a rule of the kernel that no listing shows."""
    script = "*nat\n:INPUT ACCEPT\n-A PREROUTING -j INPUT\n-A INPUT -p 802_1Q -j ACCEPT\n"
    node.run_from_host(["ebtables-nft-restore", "--noflush"], script)
    listed = azure_vnet.listing(node)
    assert ":INPUT ACCEPT" in listed
    steps.four()
    assert azure_vnet.listing(node) == [line for line in listed if not is_about(line, GONE)]
    steps.run(state="restored")
    assert azure_vnet.listing(node) == listed


def test_a_rule_is_restored_once_and_to_its_place_while_others_write(node: NamespaceNode, steps: Steps) -> None:
    listed = azure_vnet.listing(node)
    steps.run()
    with node.replace_program(ebtables_versions.PROGRAM, MEDDLER):
        steps.run(state="restored")
    assert node.exists("/run/meddled")
    assert [line for line in azure_vnet.listing(node) if line != "-A PREROUTING -p ARP -j CONTINUE"] == listed


# Evidence


DAMAGE: dict[str, tuple[str | None, bool]] = {
    "no file": (None, False),
    "an empty one": ("", True),
    "half of one": (azure_vnet.state_text("02:00:00:00:00:00", [LIVING, *GONE])[:300], True),
    "of another version": ('{"Network": {"Version": "v9", "Nics": [{"Name": "eth0"}]}}', True),
    "the living pod's address under a dead pod's MAC": (
        azure_vnet.state_text("02:00:00:00:00:00", GONE).replace(GONE[0].address, LIVING.address), False,
    ),
    "the living pod's MAC under a dead pod's address": (
        azure_vnet.state_text("02:00:00:00:00:00", [LIVING]).replace(LIVING.address, GONE[2].address), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "is_damaged"), DAMAGE.values(), ids=DAMAGE.keys())
def test_whatever_the_state_file_says_no_living_pods_rule_goes(
    node: NamespaceNode, steps: Steps, text: str | None, is_damaged: bool
) -> None:
    node.remove(STATE)
    node.ip([f"neighbour flush dev {BRIDGE} nud permanent"])
    if text is not None:
        node.write(STATE, text)
    before = [line for line in azure_vnet.listing(node) if not is_about(line, GONE)]
    result = steps.run()
    assert [line for line in azure_vnet.listing(node) if not is_about(line, GONE)] == before
    told = [*reasons(result["kept"], GONE[2]), *reasons(result["removed"], GONE[2])]
    assert told and (told[0].startswith("doubtful: ") or "state file has" in told[0])
    assert (STATE in json.dumps(result.get("warnings", []))) == is_damaged


RIGHT = [
    "-t nat -A PREROUTING -p ARP --arp-op Request --arp-ip-dst 10.77.0.9 -j arpreply --arpreply-mac 02:77:00:00:00:09",
    "-t nat -A PREROUTING -p ARP --arp-op Request --arp-ip-dst 10.77.0.100 -j arpreply --arpreply-mac 00:00:5e:00:01:0a",
]
WRONG = RIGHT[0].replace("02:77:00:00:00:09", "02:77:00:00:00:08")


def test_an_operators_rules_stay_also_where_azure_vnet_was(node: NamespaceNode, steps: Steps) -> None:
    """An operator's rule that answers for a neighbour, and one that answers for an address that VRRP moves."""
    node.ip(
        [
            "link add lan type veth peer name lan0",
            "link set lan up",
            "address add 10.77.0.100/32 dev lan",
            "neighbour add 10.77.0.9 lladdr 02:77:00:00:00:09 dev lan nud permanent",
        ]
    )
    azure_vnet.ebtables(node, [*RIGHT, WRONG])
    result = steps.run(addresses=["10.77.0.0/16"])
    reasons = [one["reason"] for one in result["kept"] if "10.77." in one["rule"]]
    assert "the node reaches the address by lan" in reasons[0] and "a virtual router (VRRP)" in reasons[1] and len(reasons) == 2
    assert [one["rule"].split()[-1] for one in result["removed"] if "10.77." in one["rule"]] == ["02:77:00:00:00:08"]


def test_where_azure_vnet_never_was_no_rule_is_judged(lab: Lab) -> None:
    """A chain of azure-vnet is sufficient evidence. The module looks for one only if rules have the shape of azure-vnet's."""
    node: NamespaceNode = lab.node("node2")
    steps = Steps(node, MODULE, {"addresses": ["10.77.0.0/16"]})
    azure_vnet.ebtables(node, [*RIGHT, WRONG])
    before = node.snapshot()
    result = steps.run()
    assert (result["changed"], result["removed"], result["kept"]) == (False, [], []) and node.snapshot() == before
    assert "Option addresses had no effect" in json.dumps(result["warnings"])
    node.run(["iptables-nft", "-t", "nat", "-N", "AZURECNIOUTPUT"])
    result = steps.run()
    assert len(result["removed"]) == 2 and "warnings" not in result


def test_a_doubtful_rule_goes_when_its_address_is_named(node: NamespaceNode, steps: Steps) -> None:
    node.remove(STATE)
    node.ip([f"neighbour flush dev {BRIDGE} nud permanent"])
    assert steps.run(check=True)["removed"] == []
    named = json.dumps([GONE[0].address, f"{LIVING.address}/32"])
    result = steps.run(addresses=named)
    assert {is_about(one["rule"], GONE[:1]) for one in result["removed"]} == {True} and len(result["removed"]) == 2
    assert any("serves" in why for why in reasons(result["kept"], LIVING))


NO_NAMESPACES = """
mkdir -p /run/netns/folder
touch /run/netns/plain /run/netns/uts
mkfifo /run/netns/fifo
mount --bind /proc/self/ns/uts /run/netns/uts
"""


def test_a_file_that_is_no_network_namespace_makes_no_rule_doubtful(node: NamespaceNode, steps: Steps) -> None:
    """A killed ``ip netns add`` leaves a plain file."""
    node.run(["sh", "-ec", NO_NAMESPACES])
    try:
        assert len(steps.run(check=True)["removed"]) == 2 * len(GONE)
    finally:
        node.run(["sh", "-ec", "umount /run/netns/uts; cd /run/netns; rm -r folder plain uts fifo"])


NEWCOMER = f"""\
#!/bin/bash
if [[ $0 == *-save ]] && mkdir /run/added 2> /dev/null; then
  ip link add pod9 address {GONE[0].mac} type veth peer name pod9x
  ip address add {GONE[0].address}/32 dev pod9
fi
exec -a "$0" @REAL@ "$@"
"""


def test_a_pod_that_is_added_while_the_node_is_read_loses_nothing(node: NamespaceNode, steps: Steps) -> None:
    with node.replace_program(ebtables_versions.PROGRAM, NEWCOMER):
        result = steps.run(check=True)
    assert len(result["removed"]) == 4 and not any(is_about(one["rule"], GONE[:1]) for one in result["removed"])


def test_evidence_outlives_the_clean_up_and_a_reboot(node: NamespaceNode, steps: Steps) -> None:
    steps.run()
    node.run_from_host(["nft", "flush", "ruleset"])
    azure_vnet.restore(node, GONE[1].rules)  # as by a program that is still active
    result = steps.run()
    assert "azure-vnet's state file has default/pod-22 at the address" in next(iter(reasons(result["removed"], GONE[1])))


def test_a_configuration_that_is_inert_already_is_left(node: NamespaceNode, steps: Steps) -> None:
    node.run(["mv", CONFLIST, f"{CONFLIST}.cilium_bak"])
    steps.run()
    assert node.exists(f"{CONFLIST}.cilium_bak") and not node.exists(CONFLIST)


def test_neighbours_and_routes_go_or_are_left_as_asked(node: NamespaceNode, steps: Steps) -> None:
    node.ip([f"route add {GONE[0].address}/32 dev {BRIDGE}", f"route add {LIVING.address}/32 dev {BRIDGE}"])
    before = neighbours(node)
    listing = steps.run(check=True, neighbors=False, routes=False)
    assert (listing["neighbors"], listing["routes"]) == ([], [])
    result = steps.run()
    assert result["routes"] == [f"ip route {GONE[0].address} dev {BRIDGE} table main scope link"]
    assert neighbours(node) == [line for line in before if not is_about(line, GONE)]
    routes = node.run_from_host(["ip", "route", "show", "dev", BRIDGE])
    assert f"{LIVING.address} " in routes and f"{GONE[0].address} " not in routes
    steps.run(state="restored")
    assert neighbours(node) == before
    assert f"{GONE[0].address} " in node.run_from_host(["ip", "route", "show", "dev", BRIDGE])


def test_a_neighbour_that_failed_goes_too(node: NamespaceNode, steps: Steps) -> None:
    node.ip(
        [
            "link add lxc_health type veth peer name peer0",
            "link set lxc_health up",
            "neighbour add 10.240.0.57 lladdr 3a:d3:5d:06:09:0f dev lxc_health nud reachable",
            f"neighbour add 10.240.0.57 dev {BRIDGE} nud failed",
        ]
    )
    assert f"10.240.0.57 dev {BRIDGE} FAILED" in steps.run()["neighbors"]
    assert not steps.run()["changed"]


def test_a_neighbour_that_failed_is_no_reason_for_a_run(node: NamespaceNode, steps: Steps) -> None:
    """A packet to the address of a removed pod makes such a neighbour; in a cluster, this happens all the time."""
    steps.run()
    node.ip([f"neighbour replace {GONE[0].address} dev {BRIDGE} nud failed"])
    for check in (True, False):
        again = steps.run(check=check)
        assert (again["changed"], again["neighbors"]) == (False, [])


def test_a_difference_after_a_restoration_is_told(node: NamespaceNode, steps: Steps) -> None:
    end_living(node)
    removed = steps.run()["removed"]
    azure_vnet.ebtables(node, [FOREIGN[0].replace("10.99.0.1", "10.99.0.2"), GONE[1].rules[0]])
    node.write(STATE, "{}")
    node.ip([f"link delete {BRIDGE}"])
    result = steps.run(state="restored")
    said = "\n".join(result["differences"])
    assert "nft nat PREROUTING: other rules were added, removed or moved since" in said
    assert f"{GONE[1].address} -j arpreply --arpreply-mac {GONE[1].mac} exists already" in said
    assert f"{STATE}: something else exists there now, and is left" in said and f"there is no link {BRIDGE}" in said
    assert len(result["restored"]) == len(removed) - 1 and node.read(STATE) == "{}"
    assert node.exists(BACKUP) and not steps.run(state="restored")["changed"]
    node.remove(STATE)
    node.ip([f"link add {BRIDGE} type bridge"])
    assert steps.run(state="restored")["differences"] == [] and "pod-21" in node.read(STATE) and not node.exists(BACKUP)


def test_what_a_live_pod_has_now_is_not_restored_and_named(node: NamespaceNode, steps: Steps) -> None:
    """The rules are restored after the pod has gone."""
    before, listed = state(node), azure_vnet.listing(node)
    steps.run()
    node.ip(["link add lxc0 type veth peer name lxc0x", f"address add {GONE[0].address}/32 dev lxc0x"])
    result = steps.four(state="restored")
    assert azure_vnet.listing(node) == [line for line in listed if not is_about(line, GONE[:1])]
    named = [one for one in result["differences"] if "lxc0x has the address now" in one]
    assert len(named) == 3 == len(result["differences"]) and len(result["restored"]) == 4 and node.exists(BACKUP)
    node.ip(["link delete lxc0"])
    assert len(steps.run(state="restored")["restored"]) == 2 and state(node) == before


def test_another_nodes_backup_is_refused(lab: Lab, node: NamespaceNode, steps: Steps) -> None:
    steps.run()
    other: NamespaceNode = lab.node("node2")
    azure_vnet.past(other, other.place.mac(), GONE)
    other.write(BACKUP, node.read(BACKUP), 0o600)
    for desired in ("absent", "restored"):
        told = Steps(other, MODULE).refused(state=desired)
        assert "should be a backup of this node" in told and f"mv {BACKUP} {BACKUP}.old" in told


# Objects that stay unchanged


def test_a_node_that_has_nothing_of_it_is_not_touched_and_no_process_is_started(lab: Lab) -> None:
    node: NamespaceNode = lab.node("node2")
    before = node.snapshot()
    for options in ({}, {"state": "restored"}, {"backend": "legacy"}):
        with node.count_processes(("nft", "ebtables", "ebtables-nft", "ebtables-legacy", "modprobe", "ip")) as calls:
            result = node.module(MODULE, options)
        assert (result["failed"], result["changed"], result["removed"], calls) == (False, False, [], [])
    assert node.snapshot() == before and node.run_from_host(["nft", "list", "ruleset"]) == ""


def test_a_converged_node_is_only_listed(node: NamespaceNode, steps: Steps) -> None:
    steps.run()
    with node.count_processes(("nft", "ebtables-nft", "ebtables-legacy", "modprobe", "ip")) as calls:
        assert not steps.run()["changed"]
    assert [os.path.basename(call[0]) for call in calls] == ["ebtables-nft-save"]


def test_rules_are_listed_again_only_after_a_change(node: NamespaceNode, steps: Steps) -> None:
    """A run reads them before it has the lock, with the lock, around each change, and for the proof."""
    for state in ("absent", "restored"):
        with node.count_processes(("ebtables-nft",)) as calls:
            assert node.module(MODULE, {"state": state})["changed"]
        programs = [os.path.basename(call[0]).removeprefix("ebtables-nft-") for call in calls]
        chains = programs.count("restore")
        assert (programs.count("save"), chains > 0) == (1 + chains if chains else 2, state == "restored")


def test_rules_of_the_other_backend_are_left(node: NamespaceNode, steps: Steps) -> None:
    node.remove(STATE)
    node.remove(CONFLIST)
    result = steps.run(backend="legacy", neighbors=False)
    assert (result["changed"], result["removed"], result["kept"]) == (False, [], [])


# Refusals


def test_where_azure_vnet_is_the_cni_nothing_is_touched(node: NamespaceNode, steps: Steps) -> None:
    node.remove(CILIUM)
    assert f"azure-vnet is this node's CNI: {CONFLIST} is the first configuration" in steps.refused()
    node.write(CILIUM, azure_vnet.conflist("azure-vnet", "cilium-cni"))  # Cilium chained after azure-vnet
    assert f"azure-vnet is this node's CNI: {CILIUM}" in steps.refused()
    assert not steps.run(state="restored")["changed"]


def test_where_the_monitor_runs_nothing_is_touched(node: NamespaceNode, steps: Steps) -> None:
    node.run(["cp", "/bin/sleep", "/run/azure-cnimonitor"])
    with background.shell(node, "exec /run/azure-cnimonitor 600"):
        assert "azure-cnimonito runs here" in steps.refused()
    with background.shell(node, "exec unshare --net /run/azure-cnimonitor 600"):  # another node's, visible here
        assert steps.run()["changed"]


def test_a_backup_that_cannot_be_read_is_not_overwritten(node: NamespaceNode, steps: Steps) -> None:
    end_living(node)
    removed = steps.run()["removed"]
    whole = node.read(BACKUP)
    node.write(BACKUP, whole.replace(f'"{STATE}"', '"/etc/shadow"'), 0o600)
    for state in ("absent", "restored"):
        assert "'/etc/shadow' is neither a state file" in steps.refused(state=state)
    node.write(BACKUP, whole, 0o600)
    assert len(steps.run(state="restored")["restored"]) == len(removed)


def test_another_root_is_refused(node: NamespaceNode) -> None:
    node.run(["sh", "-ec", node_conditions.ANOTHER_ROOT])
    result = node.module(MODULE, {}, through=["chroot", "/mnt"])
    assert result["failed"] and "this root is not process 1's" in result["msg"]


# Other versions of ebtables


@pytest.mark.parametrize("suite", ebtables_versions.SUITES)
def test_rules_that_another_version_of_ebtables_made_and_lists(lab: Lab, suite: str) -> None:
    node: NamespaceNode = lab.node("node2")
    with node.replace_program(ebtables_versions.PROGRAM, ebtables_versions.wrapper(suite)):
        assert ebtables_versions.SUITES[suite] in node.run(["ebtables-nft", "--version"]).stdout
        azure_vnet.past(node, node.place.mac(), GONE, azure_vnet.ebtables)
        dual_stack = GONE[0].rules[1].replace("IPv4", "IPv6").replace(f"--ip-dst {GONE[0].address}", "--ip6-dst fd00::5")
        azure_vnet.ebtables(node, [*FOREIGN[:3], dual_stack])
        before = node.run(["ebtables-nft-save"]).stdout.splitlines()
        steps = Steps(node, MODULE, {"addresses": ["fd00::/64"]})
        assert len(steps.four()["removed"]) == 2 * len(GONE) + 4 + 1
        listing = node.run(["ebtables-nft-save"]).stdout.splitlines()
        azures = (*(pod.mac for pod in GONE), node.place.mac(), "ff:ff:ff:ff:ff:ff", "neighbour-solicitation")
        stays = [line for line in before if not any(part in line for part in azures)]
        assert without_remarks(listing) == without_remarks(stays)
        steps.run(state="restored")
        assert without_remarks(node.run(["ebtables-nft-save"]).stdout.splitlines()) == without_remarks(before)


def without_remarks(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("#")]


# Through ansible-playbook, on a node without pyroute2


def test_pyroute2_is_carried_where_it_is_needed_and_goes_with_the_backup(lab: Lab, node: NamespaceNode, tmp_path: Path) -> None:
    if node.run(["/usr/bin/python3", "-c", "import pyroute2"], check=False).returncode == 0:
        pytest.skip("this machine's /usr/bin/python3 has a pyroute2 of its own")
    before = state(node)
    inventory = lab.write_inventory(tmp_path / "inventory.json")

    def play(**options: Any) -> int:
        tasks = playbook.write(tmp_path / "play.json", [{"kubenode.datapath.ebtables_cleanup": options}])
        return playbook.play(inventory, tasks).well().changed

    def is_carried() -> bool:
        return "pyroute2-" in node.run(["ls", LIBRARY], check=False).stdout

    assert play(neighbors=False) == 1 and not is_carried()
    assert play() == 1 and is_carried()
    assert play() == 0
    assert play(state="restored") == 1
    assert state(node) == before


def test_a_backup_that_is_no_file_is_refused(node: NamespaceNode, steps: Steps) -> None:
    steps.run()
    node.run(["sh", "-ec", f"mv {BACKUP} {BACKUP}.moved && ln -s {BACKUP}.moved {BACKUP}"])
    for state in ("absent", "restored"):
        assert "it is not a regular file" in steps.refused(state=state)


@pytest.mark.parametrize("path", [STATE, CONFLIST])
def test_a_configuration_of_azure_vnet_that_is_a_link_is_refused(node: NamespaceNode, steps: Steps, path: str) -> None:
    node.run(["sh", "-ec", f"mv {path} /etc/elsewhere && ln -s /etc/elsewhere {path}"])
    assert path in [one["path"] for one in steps.run(check=True)["kept_files"]], "while a pod of azure-vnet lives"
    end_living(node)
    assert f"{path} is not a regular file" in steps.refused()


def test_a_backup_may_be_in_a_new_folder_and_in_no_foreign_one(node: NamespaceNode, steps: Steps) -> None:
    end_living(node)
    result = steps.run(backup="/var/lib/acme")
    assert result["backup_file"] == "/var/lib/acme/azure_vnet.json" and node.exists(result["backup_file"])
    assert not steps.run(backup="/var/lib/acme")["changed"]
    node.run(["mkdir", "/var/lib/theirs"])
    assert "/var/lib/theirs exists, and this collection did not make it" in steps.refused(backup="/var/lib/theirs")
    assert steps.run(state="restored", backup="/var/lib/acme")["changed"] and not node.exists("/var/lib/acme")


def test_a_backup_is_not_kept_where_another_user_could_replace_it(node: NamespaceNode, steps: Steps) -> None:
    node.run(["mkdir", "-m", "0777", "/var/lib/kubenode"])
    assert "/var/lib/kubenode has mode 0777" in steps.refused()
    assert not steps.run(state="restored")["changed"]
    end_living(node)
    node.run(["chmod", "0755", "/var/lib/kubenode"])
    steps.run()
    node.run(["chmod", "0777", "/var/lib/kubenode"])
    assert steps.run(state="restored")["changed"]
