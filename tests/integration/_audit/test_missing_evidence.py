# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trouble is never called absent: without a part of the evidence, its check finds it nevertheless, or says what it lacks."""

from __future__ import annotations

import copy
import functools
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import pastes
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import entries, open_facts
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.open_facts import OpenFact

from . import test_healthy_nodes
from .auditing import concluded
from .healthy_nodes import KERNEL, NODES, flannel
from .troubles import TROUBLES, Snapshot, Trouble

SOME = 20  # `make test` takes one case of so many
FAMILIES = {"ipv4": "ip", "ipv6": "ip6"}
OUTPUTS = (
    "ip -d addr",
    "ip neigh",
    "ip -6 neigh",
    "ip rule",
    "ip -6 rule",
    "ip route show table all",
    "ip -6 route show table all",
    "sysctl -a",
    "nft list ruleset",
    "iptables-save",
    "ip6tables-save",
)


def audited(check: str, snapshot: Snapshot, trouble: Trouble) -> dict[str, Any]:
    return concluded(snapshot, check, context=trouble.context)


def trouble_is_kept(check: str, snapshot: Snapshot, trouble: Trouble) -> bool:
    """Whether the check finds the trouble, or asks for what it lacks."""
    findings = audited(check, snapshot, trouble)["findings"]
    is_found = any((finding["state"], finding["subject"]) == ("present", trouble.subject) for finding in findings)
    return is_found or any(finding["state"] == "cannot_tell" and finding["ask"] for finding in findings)


def lack(snapshot: Snapshot, *facts: OpenFact) -> None:
    snapshot["open"] = [*snapshot.get("open", ()), *(fact.plain() for fact in facts)]


def without_addresses(snapshot: Snapshot) -> None:
    for link in snapshot["links"]:
        link["addresses"] = []
    lack(snapshot, *(OpenFact(open_facts.ADDRESSES_OPEN, family) for family in FAMILIES))


def without_rules(snapshot: Snapshot) -> None:
    snapshot["rules"] = [entry for family in FAMILIES for entry in entries.kernels_rules(family)]
    lack(snapshot, *(OpenFact(open_facts.RULES_OPEN, family) for family in FAMILIES))


def without_routes(snapshot: Snapshot) -> None:
    snapshot["routes"] = []
    lack(snapshot, *(OpenFact(open_facts.routes(), family) for family in FAMILIES))


def without_tables_of_rules(snapshot: Snapshot) -> None:
    """Leave the routes of table main."""
    tables = {str(entry["table"]) for entry in snapshot["rules"] if entry.get("table")} - {"254"}
    snapshot["routes"] = [route for route in snapshot["routes"] if str(route.get("table") or 254) not in tables]
    lack(snapshot, *(OpenFact(open_facts.routes(table), family, table) for family in FAMILIES for table in tables))


def without_neighbours(snapshot: Snapshot) -> None:
    snapshot["neighbors"] = []
    lack(snapshot, OpenFact(open_facts.NEIGHBORS_OPEN))


def without_ruleset(snapshot: Snapshot) -> None:
    snapshot["nftables"] = []
    lack(snapshot, OpenFact(open_facts.NFT_OPEN))


def without_iptables(snapshot: Snapshot) -> None:
    snapshot["iptables"] = []
    tables = itertools.product(FAMILIES.items(), ("raw", "mangle", "nat", "filter"))
    lack(snapshot, *(OpenFact(open_facts.table(short, name), family) for (family, short), name in tables))


def without_legacy(snapshot: Snapshot) -> None:
    snapshot["iptables"] = [table for table in snapshot["iptables"] if table["backend"] != "legacy"]
    lack(snapshot, *(OpenFact(open_facts.legacy(short), family) for family, short in FAMILIES.items()))


def without_filters(snapshot: Snapshot) -> None:
    for name, values in snapshot["settings"]["ipv4"].items():
        values.pop("rp_filter", None)
        lack(snapshot, OpenFact(open_facts.rp_filter(name), "ipv4"))


def without_forwarding(snapshot: Snapshot) -> None:
    snapshot["settings"]["node"].pop("net.ipv4.ip_forward", None)
    for family in FAMILIES:
        for values in snapshot["settings"][family].values():
            values.pop("forwarding", None)


MASKS: tuple[Callable[[Snapshot], None], ...] = (
    without_addresses, without_rules, without_routes, without_tables_of_rules, without_neighbours, without_ruleset,
    without_iptables, without_legacy, without_filters, without_forwarding,
)  # fmt: skip


def parts(snapshot: Snapshot) -> Iterator[tuple[str, Snapshot]]:
    """The snapshot without each subset, and without each part of one that is an open fact."""
    for subset in SUBSETS:
        yield subset, {**copy.deepcopy(snapshot), subset: None}
    for mask in MASKS:
        masked = copy.deepcopy(snapshot)
        mask(masked)
        yield mask.__name__, masked


@functools.cache
def evidence(check: str) -> tuple[Snapshot, dict[str, str]]:
    """The snapshot and the outputs of one node with the trouble."""
    trouble = TROUBLES[check]
    with trouble.node() as node:
        snapshot = trouble.snapshot(node)
        outputs = {command: node.run(shlex.split(command)).stdout for command in OUTPUTS}
    outputs.update((command, outputs.get(command, "") + lines) for command, lines in trouble.reported.items())
    return snapshot, outputs


def each(names: Iterable[str]) -> pytest.MarkDecorator:
    """`make test` takes one part of so many, others for each name, so that each part is missing several times."""
    return pytest.mark.parametrize(("name", "every"), sampled(itertools.product(names, (SOME, 1)), lambda case: case[1] == SOME))


def chosen(cases: Iterable[Any], names: Iterable[str], name: str, every: int) -> Iterator[Any]:
    return itertools.islice(cases, [*names].index(name) % every, None, every)


@each(TROUBLES)
def test_a_trouble_is_not_absent_where_a_part_of_the_snapshot_is_missing(name: str, every: int) -> None:
    missing = chosen(parts(evidence(name)[0]), TROUBLES, name, every)
    assert [part for part, lacking in missing if not trouble_is_kept(name, lacking, TROUBLES[name])] == []


@each(TROUBLES)
def test_a_trouble_is_not_absent_in_a_report_with_some_outputs(name: str, every: int) -> None:
    outputs = evidence(name)[1]
    reports = [outputs, *({command: text} for command, text in outputs.items() if text.strip())]
    reports += [{other: text for other, text in outputs.items() if other != command} for command in outputs]
    pasted = ((report, pastes.read(report).snapshot) for report in chosen(reports, TROUBLES, name, every))
    assert [[*report] for report, snapshot in pasted if not trouble_is_kept(name, snapshot, TROUBLES[name])] == []


@pytest.mark.parametrize("check", sampled(TROUBLES, lambda check: check in [*TROUBLES][::SOME]))
def test_no_two_findings_of_a_trouble_have_one_subject(check: str) -> None:
    found = concluded(evidence(check)[0], context=TROUBLES[check].context)["findings"]
    subjects = [(finding["id"], finding["subject"]) for finding in found]
    assert len(subjects) == len({*subjects})


def test_the_addresses_alone_pass_no_check_but_those_of_links() -> None:
    with TROUBLES["rp-strict-asymmetric"].node() as node:
        addresses = node.run(["ip", "addr"]).stdout
    snapshot = pastes.read({"ip addr": addresses}).snapshot
    result = concluded(snapshot)
    # Links of Cilium and kube-proxy, masters of ports, and names that no tunnel has, are listed with the addresses.
    assert {*result["passed"]} == {"rp-all-with-cilium", "proxy-mode-ipvs", "bridge-netfilter-off", "tunnel-mtu"} and result[
        "profile"
    ]["name"] is None
    assert {(finding["state"], bool(finding["ask"])) for finding in result["findings"]} == {("cannot_tell", True)}


@each(NODES)
def test_what_is_missing_is_no_trouble_of_a_healthy_node(name: str, every: int) -> None:
    snapshot = NODES[name](KERNEL).done()
    alarms = set()
    for part, lacking in chosen(parts(snapshot), NODES, name, every):
        result = concluded(lacking)
        alarms |= {(part, finding["id"]) for finding in result["findings"] if finding["state"] == "present"}
    assert {check for _part, check in alarms} <= test_healthy_nodes.ALWAYS.get(name, set()), alarms


def test_pods_behind_a_bridge_are_not_absent_where_their_addresses_are_not_known() -> None:
    snapshot = flannel(KERNEL).done()
    snapshot["settings"]["node"]["net.ipv4.ip_forward"] = 0
    for values in snapshot["settings"]["ipv4"].values():
        values["forwarding"] = 0
    result = concluded(snapshot, "forwarding-off")
    assert [(finding["state"], finding["proof"]) for finding in result["findings"]] == [("present", "twin")]
    for link in snapshot["links"]:
        link["peer"] = None
    result = concluded(snapshot, "forwarding-off")
    assert [finding["ask"] for finding in result["findings"]] == ["kubectl exec POD -- ip addr"]
