# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nft of Debian 11, 12 and 13 read and write the same table to the same verdict."""

from __future__ import annotations

import pytest

from lab import Lab, nft_versions
from lab.node import NamespaceNode

NFT = "/usr/sbin/nft"
ALTERATIONS = {
    "a rule": "add rule ip6 azureSLBProbe postrouting drop",
    "asleep": "add table ip6 azureSLBProbe { flags dormant; }",
    "a set": "add set ip6 azureSLBProbe mine { type ipv6_addr; flags interval; }",
}


@pytest.fixture(scope="module", params=nft_versions.SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """A Debian release; its root, from which nft is taken, is made once and kept in the cache."""
    nft_versions.wrapper(request.param)
    return str(request.param)


@pytest.fixture
def node(lab: Lab, suite: str) -> NamespaceNode:
    """A node with the nft of that release."""
    node = lab.node("node1")
    node.replace_program(NFT, nft_versions.wrapper(suite))
    assert f"v{nft_versions.SUITES[suite]}" in node.run(["nft", "--version"]).stdout
    return node


def changed(node: NamespaceNode, **options: object) -> bool:
    result = node.module("nftables_probe_snat", options)
    assert not result["failed"], result
    return bool(result["changed"])


def test_a_table_comes_changes_and_goes(lab: Lab, node: NamespaceNode) -> None:
    clean = node.snapshot()
    assert changed(node) and not changed(node)
    assert lab.load_balancer.probe_tcp(lab.pod("pod1").address, 8080)
    assert changed(node, priority=-290) and not changed(node, priority=-290)
    assert changed(node, state="absent") and not changed(node, state="absent")
    assert node.snapshot() == clean


@pytest.mark.parametrize("alteration", ALTERATIONS.values(), ids=ALTERATIONS.keys())
def test_what_was_altered_is_seen_and_put_right(node: NamespaceNode, alteration: str) -> None:
    changed(node)
    good = node.snapshot()
    node.run(["nft", alteration])
    assert changed(node) and not changed(node)
    assert node.snapshot() == good


@pytest.mark.parametrize("reader", nft_versions.SUITES)
def test_every_version_finds_unchanged_what_another_loaded(node: NamespaceNode, reader: str) -> None:
    changed(node)
    with node.replace_program(NFT, nft_versions.wrapper(reader)):
        assert not changed(node)


def test_an_nft_that_dies_of_a_newer_ones_set_is_named(lab: Lab, node: NamespaceNode, suite: str) -> None:
    """Named sets of nft 1.1.2 and newer kill older ones, see kubernetes/kubernetes#136786."""
    with node.replace_program(NFT, nft_versions.wrapper("trixie")):
        node.run(["nft", "add table inet other; add set inet other s { type ipv6_addr; }"])
    result = node.module("nftables_probe_snat")
    if suite == "trixie":
        assert not result["failed"], result
    else:
        assert result["failed"] and "nft was killed by signal 11" in result["msg"]
        assert not node.exists("/etc/kubenode")
