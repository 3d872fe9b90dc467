# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nft of Debian 11, 12 and 13 write and list the same tables, and the modules come to the same verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import table_names
from lab import Eni, EniLab, Lab, images, nft_versions
from lab.eni import PRIMARY
from lab.node import NamespaceNode
from lab.steps import Steps

NFT = "/usr/sbin/nft"


class Owned(NamedTuple):
    """A module that manages a table. ``others``: sets of options, each of which makes another table."""

    module: str
    table: str
    options: Mapping[str, Any]
    others: tuple[Mapping[str, Any], ...]


TABLES = [
    Owned(
        "nftables_probe_snat",
        "ip6 azureSLBProbe",
        {},
        (
            {"priority": -290},
            {"probes": [{"source": "fe80::10", "translated": "2001:db8::10"}]},
            {"comment": "By the platform team (#42); see https://example.com/ipv6-probes@aks"},
        ),
    ),
    Owned(
        "nftables_connmark",
        "inet kubenodeReturnPath",
        {"primary_interface": "eth0", "pod_interfaces": ["veth-*", "a2345678901234*", "a23456789012345"]},
        (
            {"strict": True},
            {"mark": "0x80", "mask": "0xff", "strict": True},
            {"mark": "0x80000000"},
            {"mark": "0xc0000000", "mask": "0xf0000000"},
            {"mark": "0xfffffffe"},
            {"mark": "0xffffffff"},
            {"mark": "0x80", "mask": "0xffffffff"},
            {"interfaces": [{"name": "eth1", "mark": "0x100"}]},
            {"interfaces": [{"name": "eth2", "mark": "0xc0"}, {"name": "b23456789012345", "mark": "64"}], "strict": True},
            {"interfaces": [{"name": "eth1", "mark": "0x80000000"}], "mark": "0x40000000"},
            {"interfaces": [{"name": "eth1", "mark": "0x1"}], "mask": "0xffffffff"},
            {"service_addresses": ["203.0.113.80"]},
            {"service_addresses": ["203.0.113.80", "203.0.113.82", "203.0.113.83", "203.0.113.84/30", "198.51.100.0/25"]},
            {"service_addresses": ["2001:db8::/64", "2001:db8:0:1::1", "2001:db8:0:1::2", "192.0.2.0/24"], "strict": True},
        ),
    ),
]
ALTERATIONS = (
    "add rule {table} prerouting accept",
    "add table {table} {{ flags dormant; }}",
    "add set {table} mine {{ type ipv6_addr; flags interval; }}",
)


@pytest.fixture(scope="module", params=nft_versions.SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """A Debian release; its root, from which nft is taken, is made once and kept in the cache."""
    nft_versions.wrapper(request.param)
    return str(request.param)


def use(node: NamespaceNode, suite: str) -> NamespaceNode:
    """Put the nft of the release on the node."""
    node.replace_program(NFT, nft_versions.wrapper(suite))
    assert f"v{nft_versions.SUITES[suite]}" in node.run(["nft", "--version"]).stdout
    return node


@pytest.fixture
def node(lab: Lab, suite: str) -> NamespaceNode:
    return use(lab.node("node1"), suite)


@pytest.fixture(params=TABLES, ids=lambda current: current.module)
def current(request: pytest.FixtureRequest) -> Owned:
    found: Owned = request.param
    return found


@pytest.fixture
def steps(node: NamespaceNode, current: Owned) -> Steps:
    return Steps(node, current.module, current.options)


def changed(steps: Steps, **options: Any) -> bool:
    return bool(steps.run(**options)["changed"])


def test_a_table_comes_is_known_to_all_versions_is_put_right_changes_and_goes(
    node: NamespaceNode, current: Owned, steps: Steps
) -> None:
    clean = node.snapshot()
    assert changed(steps) and not changed(steps)
    for reader in nft_versions.SUITES:
        with node.replace_program(NFT, nft_versions.wrapper(reader)):
            assert not changed(steps), reader
    good = node.snapshot()
    for alteration in ALTERATIONS:
        node.run(["nft", alteration.format(table=current.table)])
        assert changed(steps) and not changed(steps), alteration
        assert node.snapshot() == good, alteration
    for other in current.others:
        assert changed(steps, **other) and not changed(steps, **other)
    assert changed(steps, state="absent") and not changed(steps, state="absent")
    assert node.snapshot() == clean


def test_a_probe_is_answered(lab: Lab, node: NamespaceNode) -> None:
    changed(Steps(node, "nftables_probe_snat"))
    assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)


@pytest.fixture
def enis() -> Iterator[EniLab]:
    with EniLab("enis", [Eni("eth1", pods=["pod1"])]) as running:
        yield running


def test_a_node_port_answers(enis: EniLab, suite: str) -> None:
    node = use(enis.node("node1"), suite)
    # By iptables, because the sets of the lab's nft crash an older nft, as below.
    node.service(30080, [enis.pod("pod1").address], "Local", backend="iptables")
    node.ip(["rule add fwmark 0x80/0x80 lookup main priority 1024"])
    changed(Steps(node, "nftables_connmark", {"primary_interface": "eth0", "pod_interfaces": ["veth-*"]}))
    assert enis.client.fetch(PRIMARY.address, 30080)


def test_an_nft_that_dies_of_a_newer_ones_set_is_named(node: NamespaceNode, suite: str) -> None:
    """Named sets of nft 1.1.2 and newer crash an older nft, see kubernetes/kubernetes#136786."""
    with node.replace_program(NFT, nft_versions.wrapper("trixie")):
        node.run(["nft", "add table inet other; add set inet other s { type ipv6_addr; }"])
    result = node.module("nftables_probe_snat")
    if suite == "trixie":
        assert not result["failed"], result
    else:
        assert result["failed"] and "nft was killed by signal 11" in result["msg"]
        assert not node.exists("/etc/kubenode")


# Names of tables

WORD = re.compile(rb"(?<![\w.-])[a-z][a-z0-9-]{1,19}(?![\w.-])")
DECLARATION = "table ip6 {0} {{ }}\n"


def words_in(suite: str) -> set[str]:
    """Every word in nft's library, which contains the names of all keywords of nft's parser."""
    (library,) = images.root(suite).glob("usr/lib/*-linux-gnu/libnftables.so.1.*")
    return {word.decode() for word in WORD.findall(library.read_bytes())}


def refused_by(node: NamespaceNode, words: Iterable[str]) -> set[str]:
    """nft names the lines of a script that it refuses, but only the first ten."""
    rest, refused = sorted(words), set[str]()
    while True:
        result = node.run(["nft", "-c", "-f", "-"], "".join(map(DECLARATION.format, rest)), check=False)
        lines = {int(line) - 1 for line in re.findall(r":(\d+):\d+-\d+: Error: syntax error", result.stderr)}
        if not lines:
            assert result.returncode == 0, result.stderr
            return refused
        refused |= {rest[line] for line in lines}
        rest = [word for number, word in enumerate(rest) if number not in lines]


def test_each_word_that_a_version_takes_for_itself_is_known_and_no_other(lab: Lab) -> None:
    node = lab.node("node1")
    known, refused = set(table_names.NFT_WORDS.split()), set[str]()
    for suite in nft_versions.SUITES:
        with node.replace_program(NFT, nft_versions.wrapper(suite)):
            refused |= refused_by(node, known | words_in(suite))
    assert refused == known
