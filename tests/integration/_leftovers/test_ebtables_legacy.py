# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ebtables_cleanup on a kernel with ebtables' own tables, broute among them: in a VM, since many kernels have none.

Rules are judged as in nf_tables, which other tests cover.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lab import Lab, Node, azure_vnet, background
from lab.azure_vnet import BRIDGE, NODE_ADDRESS, AzurePod
from lab.machine import Machine
from lab.vm import VmNode

LEGACY = "ebtables-legacy"
TABLES = ("filter", "nat", "broute")
LIMIT = 300  # seconds for a module in an emulated machine; an idle one takes a few
GONE = [AzurePod(number) for number in range(1, 4)]
BROUTE = [
    "-t broute -A BROUTING -p IPv6 --ip6-dst ff02::1:ff00:0/104 -j ACCEPT",
    "-t broute -A BROUTING -p IPv4 -j redirect --redirect-target ACCEPT",
    "-t broute -A BROUTING -p IPv4 -j redirect --redirect-target ACCEPT",
    "-t broute -A BROUTING -p IPv4 --ip-dst 169.254.20.10 -j redirect --redirect-target ACCEPT",
]
FOREIGN = [
    *(azure_vnet.foreign(rule) for pod in GONE for rule in pod.rules),
    "-t nat -A POSTROUTING -s unicast -o eth1 -j snat --to-src 02:aa:00:00:00:02 --snat-arp --snat-target ACCEPT",
    "-t filter -A FORWARD --among-dst 2:0:0:0:0:9=10.99.0.1,2:0:0:0:0:8 -j DROP",
    '-t filter -A FORWARD --log-level notice --log-prefix "hello world" -j CONTINUE',
    "-t broute -A BROUTING -p IPv6 --ip6-dst 2001:db8:99::/64 -j ACCEPT",
    "-t broute -A BROUTING -p IPv4 --ip-dst 10.99.0.1 -j redirect --redirect-target ACCEPT",
    "-t broute -A BROUTING -p IPv4 --ip-dst 10.99.0.1 -j DROP",
]  # fmt: skip
FOREIGN_CHAINS = [
    "-t filter -N AKS-DEDUP-PROMISC",
    "-t filter -A AKS-DEDUP-PROMISC -p IPv4 -s 02:aa:00:00:00:03 -o veth+ --ip-src 10.99.0.1 -j ACCEPT",
    "-t filter -A OUTPUT -j AKS-DEDUP-PROMISC",
    "-t filter -P FORWARD DROP",
]

# Every second rule is added as by azure-vnet, without the lock.
INSERTER = """
number=0
while :; do
  number=$((number + 1))
  [ $((number % 2)) = 0 ] && lock=--concurrent || lock=
  ebtables-legacy $lock -t nat -I PREROUTING 2 -p IPv4 --ip-dst 10.98.0.$((number % 250)) -j CONTINUE \
    && echo >> /run/inserted
done
"""
# Deletes a rule between the observation of table nat and its change.
MEDDLER = f"""\
#!/bin/bash
script=$(cat)
if [[ $script == "*nat"* ]]; then
  echo >> /run/changes
  mkdir /run/meddled 2> /dev/null && {LEGACY} {GONE[1].rules[0].replace(" -A ", " -D ")}
fi
exec -a "$0" @REAL@ "$@" <<< "$script"
"""
# As if another program had changed the table between the two queries of the first observation.
TORN = """\
#!/bin/bash
[[ " $* " == *" -L "* ]] && mkdir /run/torn 2> /dev/null && { echo "Hmm, what is wrong??? bug#1" >&2; exit 255; }
exec -a "$0" @REAL@ "$@"
"""


@pytest.fixture(scope="module")
def node() -> Iterator[VmNode]:
    with Lab("legacy", nodes=[Node("node1", system="bookworm", vm=True)]) as lab:
        yield lab.node("node1")


def interleaved(azures: Sequence[str], others: Sequence[str]) -> list[str]:
    """The first rules of all lists, then the second ones, and so on; each rule has counters of its own."""
    length = max(len(azures), len(others))
    rules = [rule for number in range(length) for rule in (*azures[number : number + 1], *others[number : number + 1])]
    return [f"{rule} -c {number} {60 * number}" for number, rule in enumerate(rules, 1)]


@pytest.fixture
def past(node: VmNode) -> Iterator[None]:
    """azure-vnet's rules among others. The bridge does not have the NIC, by which the VM is reached: no packet is counted."""
    mac = node.place.mac()
    azures = [*azure_vnet.node_rules(mac), *(rule for pod in GONE for rule in pod.rules), *BROUTE]
    node.ip(
        [
            f"link add {BRIDGE} address {mac} type bridge",
            f"link set {BRIDGE} up",
            f"address add {NODE_ADDRESS}/16 dev {BRIDGE}",
        ]
    )
    azure_vnet.ebtables(node, [*interleaved(azures, FOREIGN), *FOREIGN_CHAINS], LEGACY)
    node.write(azure_vnet.STATE, azure_vnet.state_text(mac, GONE), 0o600)
    node.write(azure_vnet.CILIUM, azure_vnet.conflist("cilium-cni"), 0o600)
    yield
    node.ip([f"link delete {BRIDGE}"])
    azure_vnet.ebtables(node, [f"-t {table} --init-table" for table in TABLES], LEGACY)
    node.run(["nft", "flush", "ruleset"])


def clean_up(node: VmNode, check: bool = False, **options: Any) -> dict[str, Any]:
    result = node.module("ebtables_cleanup", options, check=check, timeout=LIMIT)
    assert not result["failed"], result
    return result


def listing(machine: Machine) -> str:
    return machine.run(["sh", "-ec", f"for table in {' '.join(TABLES)}; do {LEGACY} -t $table -L --Lmac2 --Lc; done"]).stdout


def without_azures(text: str, mac: str) -> list[str]:
    azures = (
        "10.240.",
        mac,
        "ff:ff:ff:ff:ff:ff",
        "neighbour-solicitation",
        "ff02::",
        "169.254.20.10",
        "IPv4 -j redirect",
    )
    return [line for line in without_numbers(text) if not any(part in line for part in azures)]


def without_numbers(text: str) -> list[str]:
    """The listing without the number of rules in each chain's line."""
    return re.sub(r"entries: \d+", "", text).splitlines()


def modules(machine: Machine) -> set[str]:
    return {line.split()[0] for line in machine.read("/proc/modules").splitlines()}


def test_no_module_is_loaded_and_a_table_without_rules_is_not_listed(node: VmNode) -> None:
    node.run(["modprobe", "ebtable_nat"])
    before = modules(node)
    assert "ebtable_nat" in before and not before & {"ebtable_filter", "ebtable_broute", "nf_tables"}
    with node.count_processes(["ebtables-legacy", "ebtables-nft", "nft", "modprobe"]) as calls:
        result = clean_up(node)
    assert (result["changed"], result["removed"], calls) == (False, [], [])
    assert modules(node) == before


@pytest.mark.usefixtures("past")
def test_leftovers_in_both_backends_go_and_all_comes_back(node: VmNode) -> None:
    azure_vnet.ebtables(node, [*GONE[0].rules, *FOREIGN[:2]])
    before, nft = listing(node), azure_vnet.listing(node)
    predicted = clean_up(node, check=True)
    assert listing(node) == before
    result = clean_up(node)
    assert result == predicted
    backends = [one["backend"] for one in result["removed"]]
    assert (backends.count("legacy"), backends.count("nft")) == (4 + 2 * len(GONE) + len(BROUTE), 2)
    remaining = listing(node)
    assert without_numbers(remaining) == without_azures(before, node.place.mac())
    assert not clean_up(node)["changed"] and listing(node) == remaining
    assert clean_up(node, state="restored")["differences"] == []
    assert listing(node) == before and azure_vnet.listing(node) == nft


@pytest.mark.usefixtures("past")
def test_a_listing_that_a_writer_disturbs_is_made_again(node: VmNode) -> None:
    with node.replace_program(f"/usr/sbin/{LEGACY}", TORN):
        predicted = clean_up(node, check=True)
    assert node.run(["test", "-d", "/run/torn"], check=False).returncode == 0
    assert predicted["changed"]


@pytest.mark.thorough
@pytest.mark.usefixtures("past")
def test_other_programs_lose_nothing_with_the_lock_or_without(node: VmNode) -> None:
    before = listing(node)
    with node.replace_program(f"/usr/sbin/{LEGACY}-restore", MEDDLER), background.shell(node, INSERTER):
        clean_up(node)
    assert len(node.read("/run/changes").splitlines()) > 1
    remaining = without_numbers(listing(node))
    inserted = [line for line in remaining if "10.98.0." in line]
    assert [line for line in remaining if line not in inserted] == without_azures(before, node.place.mac())
    assert len(inserted) > 5 and abs(len(inserted) - len(node.read("/run/inserted").splitlines())) <= 1  # its last insertion
