# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of the profile aks_dual_stack, from what the node or the option says of IPv6."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import option
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles import aks_dual_stack
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.aks_dual_stack import Facts, Observation
from ansible_collections.kubenode.datapath.plugins.module_utils._profiles.composition import Step


def options(**given: t.Any) -> dict[str, t.Any]:
    values, errors = option.read(aks_dual_stack.OPTIONS, given, aks_dual_stack.UNDO)
    assert not errors
    return values


def plan(observed: Observation, **given: t.Any) -> list[Step]:
    return aks_dual_stack.plan(options(**given), aks_dual_stack.facts(options(**given), observed))


@pytest.mark.parametrize(
    ("source", "observed", "has_ipv6", "reason"),
    [
        ("imds", Observation(False, ["fd00::4"]), True, "the metadata service names fd00::4 for the primary interface"),
        ("imds", Observation(False), False, "the metadata service names no IPv6 address for the primary interface"),
        ("address", Observation(False, ["fd00::4", "fd00::5"]), True, "eth0 has fd00::4, fd00::5"),
        ("address", Observation(False), False, "eth0 has no global address"),
        ("always", Observation(False), True, "aks_dual_stack_ipv6 says so"),
        ("never", Observation(True), False, "aks_dual_stack_ipv6 says so"),
    ],
)
def test_whether_the_node_has_ipv6_comes_with_its_reason(source: str, observed: Observation, has_ipv6: bool, reason: str) -> None:
    found = aks_dual_stack.facts(options(ipv6=source), observed)
    assert found[:2] == (has_ipv6, f"The node has {'' if has_ipv6 else 'no '}IPv6: {reason}.")
    assert bool(found.backend) is has_ipv6


TAKES = "tc cil_from_netdev of Cilium on eth0 takes them before nftables sees them"


@pytest.mark.parametrize(
    ("backend", "observed", "chosen", "reason"),
    [
        ("auto", Observation(False, bpf_reason=TAKES), "bpf", f"BPF programs: {TAKES}."),
        ("auto", Observation(False), "nftables", "the table: nothing shows that Cilium takes probes on eth0 before nftables."),
        ("auto", Observation(True), "nftables", "the table: an image does not show whether Cilium takes probes. Set"),
        ("bpf", Observation(True), "bpf", "BPF programs: aks_dual_stack_backend says so."),
        ("nftables", Observation(False, bpf_reason=TAKES), "nftables", "the table: aks_dual_stack_backend says so."),
    ],
)
def test_what_translates_comes_with_its_reason(backend: str, observed: Observation, chosen: str, reason: str) -> None:
    facts = aks_dual_stack.facts(options(ipv6="always", backend=backend), observed)
    assert facts.backend == chosen
    assert facts.backend_reason.startswith(f"Probes are translated by {reason}")


def test_programs_need_no_nft_so_that_it_goes_behind_the_table_that_they_replace() -> None:
    planned = plan(Observation(False, bpf_reason=TAKES), ipv6="always")
    states = [(module, one["state"]) for module, one in planned]
    assert states == [("nftables_probe_snat", "present"), ("nftables_package", "absent")]
    assert planned[0][1]["backend"] == "bpf"


@pytest.mark.parametrize("source", ["imds", "address"])
def test_an_image_gets_the_table_and_each_boot_decides(source: str) -> None:
    assert not aks_dual_stack.is_asked(options(ipv6=source), is_image=True)
    assert (
        aks_dual_stack.facts(options(ipv6=source), Observation(True)).ipv6_reason
        == "Each boot decides whether the node has IPv6."
    )
    assert plan(Observation(True), ipv6=source)[1][1]["boot_condition"] == source


@pytest.mark.parametrize("source", ["always", "never"])
def test_a_source_that_the_option_decides_is_not_asked(source: str) -> None:
    assert not aks_dual_stack.is_asked(options(ipv6=source), is_image=False)


def test_a_table_needs_nft_so_that_it_comes_after_the_package_and_goes_before() -> None:
    given: dict[str, t.Any] = {"ipv6": "always", "table": "mine", "comment": "ours", "nftables_lock_timeout": "5"}
    (package, package_options), (table, table_options) = plan(Observation(False), **given)
    assert (package, table) == ("nftables_package", "nftables_probe_snat")
    assert package_options == {"state": "present", "minimum_version": "0.9.8", "service": "ignore", "lock_timeout": 5}
    fields = ("state", "table", "comment", "boot_condition")
    assert [table_options[name] for name in fields] == ["present", "mine", "ours", "none"]
    for undone in (plan(Observation(False), **{**given, "ipv6": "never"}), plan(Observation(False), **given, state="absent")):
        assert [(module, one["state"]) for module, one in undone] == [(table, "absent"), (package, "absent")]


def test_the_state_that_undoes_asks_and_reports_nothing() -> None:
    undone = options(state="absent")
    assert not aks_dual_stack.is_asked(undone, is_image=False)
    assert aks_dual_stack.facts(undone, Observation(False)) == Facts() and Facts().report() == {}
