# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an audit tries in twins: each packet once, and each object of a subject."""

from __future__ import annotations

import ipaddress
import itertools
import time
from collections import Counter
from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.values import Snapshot
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import exchange_backend, trace_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.answer import Answer
from ansible_collections.kubenode.datapath.plugins.module_utils._trace.packet import OUTSIDE
from ansible_collections.kubenode.datapath.plugins.module_utils._twin import work_backend
from lab.eni import CLIENT, PRIMARY

from .._trace import random_nodes
from .._trace import test_cures as scenes
from .._trace.test_cures import ENIS
from .auditing import audited, concluded
from .healthy_nodes import KERNEL, POD, Node, eks_ubuntu, leftovers
from .troubles import ENI, TROUBLES

# An audit sends no packet twice through twins of the same world, and a twin that fails or is slow changes no other answer


def test_remedies_are_looked_for_with_the_answer_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = TROUBLES["reply-by-other-interface"]
    with trouble.node() as node:
        snapshot = trouble.snapshot(node)
    asked: Counter[str] = Counter()
    in_a_twin = trace_backend._in_a_twin

    def counted(snapshot: Snapshot, question: trace_backend.Question, *args: Any) -> Answer:
        if not question.changes:
            asked[repr((snapshot, question))] += 1
        return in_a_twin(snapshot, question, *args)

    monkeypatch.setattr(trace_backend, "_in_a_twin", counted)
    result = concluded(snapshot, "reply-by-other-interface", "rp-strict-asymmetric")
    assert len(asked) > 1 and max(asked.values()) == 1, result["findings"]


def test_a_twin_that_fails_leaves_open_what_it_was_to_tell_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = TROUBLES["reply-by-other-interface"]
    with trouble.node() as node:
        snapshot = trouble.snapshot(node)

    def without_memory(*_args: Any) -> Answer:
        raise Failure("the twin was killed")

    whole = concluded(snapshot)
    monkeypatch.setattr(trace_backend, "_in_a_twin", without_memory)
    failed = concluded(snapshot)
    tried = [finding for finding in failed["findings"] if "the twin was killed" in finding["what"]]
    assert tried and {finding["state"] for finding in tried} == {"cannot_tell"}
    assert {*failed["passed"]} == {*whole["passed"]} - {finding["id"] for finding in tried}


CHECKS = ["reply-by-other-interface", "rp-strict-asymmetric", "path-lost"]


@pytest.fixture(scope="module")
def snapshot() -> dict[str, Any]:
    trouble = TROUBLES["reply-by-other-interface"]
    with trouble.node() as node:
        return trouble.snapshot(node)


def lossy(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return list(concluded(snapshot, *CHECKS)["findings"])


def test_an_audit_finds_the_same_whatever_the_clock_says(snapshot: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, monotonic, seconds = lossy(snapshot), time.monotonic, itertools.count()
    assert [finding["proof"] for finding in quiet] == ["twin"] * len(quiet) and len(quiet) > 1
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + next(seconds))
    assert lossy(snapshot) == quiet
    assert next(seconds) > 100


def test_rules_that_cannot_be_loaded_leave_open_the_packets_that_reach_them(snapshot: dict[str, Any]) -> None:
    whole = {finding["subject"]: finding for finding in lossy(snapshot)}
    pods = {eni.name: eni.pod_address(0) for eni in ENIS}
    refused = "".join(f"-A BAD -p tcp -m tcp --dport {70_000 + number} -j DROP\n" for number in range(45))
    save = f"*filter\n:FORWARD ACCEPT [0:0]\n:BAD - [0:0]\n-A FORWARD -d {pods['eth1']}/32 -j BAD\n{refused}COMMIT\n"
    tables = [entry for entry in snapshot["iptables"] if (entry["family"], entry["table"]) != ("ip", "filter")]
    added = {"family": "ip", "table": "filter", "backend": "nft", "save": save}
    found = {finding["subject"]: finding for finding in lossy({**snapshot, "iptables": [*tables, added]})}
    assert (found["eth1"]["state"], found["eth2"]["state"]) == ("cannot_tell", "present")
    assert "refused more than 40 lines" in found["eth1"]["what"] and whole["eth1"]["state"] == "present"
    assert found["eth2"]["proof"] == "twin" and found["eth2"]["remedy"] is None and whole["eth2"]["remedy"]
    assert "is not offered: Whether it ends other paths was not tried" in found["eth2"]["what"]


def test_a_twin_that_hangs_leaves_open_what_it_was_to_tell_and_is_waited_for_once(
    snapshot: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_backend, "GUARD", 2.0)
    monkeypatch.setattr(exchange_backend.Exchange, "answer", lambda *_args: time.sleep(60))
    started = time.monotonic()
    found = lossy(snapshot)
    assert {finding["state"] for finding in found} == {"cannot_tell"} and time.monotonic() - started < 30
    assert {finding["id"] for finding in found} == {"reply-by-other-interface", "path-lost"}
    assert sum("another twin hung" in finding["what"] for finding in found) == len(found) - 1


def test_a_packet_that_passes_the_node_and_is_missed_is_not_certain_if_its_finding_is_repeated() -> None:
    audit = audit_backend.Audit(leftovers(KERNEL).done(), catalogue.CHECKS)
    found = audit_backend.result(audit, random_nodes.run)["findings"]
    missed = next(finding for finding in found if "wireguard.cali" in finding["subject"])
    traced = audit_backend.repeated(audit, f"{missed['id']}:{missed['subject']}", (), True, random_nodes.run)
    assert traced.way.has_arrived and not traced.certain
    assert traced.unknown[-1].partition(". ")[2] in missed["what"]


# A finding is known by its check and its subject


# By check, the subject of which two objects are wrong on the node below.
TWICE = {
    "networkd-removes-foreign": {"systemd-networkd rules", "systemd-networkd routes"},
    "mark-clobbered": {"ipv4 PREROUTING 0x4"},
    "default-by-secondary": {"eth1"},
    "rule-to-empty-table": {"10.0.1.99"},
    "neighbor-moved": {POD},
    "kubelet-port-taken": {"ipv4 10250"},
    "ra-route-expires": {"eth0"},
    "ebtables-stale": {"10.0.0.77"},
}


def findings(snapshot: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return list(concluded(snapshot, **options)["findings"])


def repeated(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    counts = Counter((finding["id"], finding["subject"]) for finding in found)
    return [name for name, count in counts.items() if count > 1]


def with_each_twice() -> Node:
    node = eks_ubuntu(KERNEL)
    for number in (1, 2):
        node.iptables("ip", "mangle", f"-A PREROUTING -i eni{number} -j MARK --set-xmark 0x4/0xffffffff")
        node.iptables("ip", "nat", f"-A PREROUTING -i eni{number} -p tcp --dport 10250 -j REDIRECT")
        node.route("default", "eth1", via=f"10.0.1.{number}", protocol="dhcp", metric=500 + number)
        node.route("default", "eth0", via=f"fe80::{number}", protocol="ra", metric=500 + number)
        node.route(f"10.9.{number}.0/24", "eth0", protocol="66")
        node.rule(3000 + number, from_="10.0.1.99", table=str(700 + number))
        moved = {"address": POD, "dev": f"eth{number - 1}", "mac": "02:00:00:00:00:77", "state": "PERMANENT"}
        node.snapshot["neighbors"].append(moved)
    rules = [f"-p {kind} -j {target} 02:00:00:00:99:99" for kind, target in (
        ("IPv4 --ip-dst 10.0.0.77", "dnat --to-dst"), ("ARP --arp-ip-dst 10.0.0.77", "arpreply --arpreply-mac"),
    )]  # fmt: skip
    node.snapshot["ebtables"] = [{"table": "nat", "chain": "PREROUTING", "rules": rules}]
    return node


@pytest.mark.parametrize("does_prove", [True, False])
def test_two_objects_of_one_subject_are_one_finding(does_prove: bool) -> None:
    node = with_each_twice()
    snapshot = node.done()
    snapshot["settings"]["ipv6"]["eth0"]["accept_ra"] = 1
    found = findings(snapshot, does_prove=does_prove)
    assert repeated(found) == []
    assert {check: {finding["subject"] for finding in found if finding["id"] == check} for check in TWICE} == TWICE
    for check in ("mark-clobbered", "kubelet-port-taken", "neighbor-moved", "rule-to-empty-table", "default-by-secondary"):
        (finding,) = (finding for finding in found if finding["id"] == check)
        lines = finding["remedy"]["commands"] or finding["evidence"]
        assert len(lines) == 2, finding


def test_a_subject_stays_where_rules_and_interfaces_are_numbered_anew() -> None:
    def subjects(first: int) -> set[tuple[str, str]]:
        node = with_each_twice()
        for entry in node.snapshot["rules"]:
            if 0 < entry["priority"] < 32000:
                entry["priority"] += first
        for link in node.snapshot["links"][1:]:
            link["index"] += first
        return {(finding["id"], finding["subject"]) for finding in findings(node.done())}

    assert subjects(0) == subjects(7)


@pytest.mark.parametrize("check", ["rp-strict-asymmetric", "valid-mark-missing", "mark-rule-late"])
def test_each_secondary_interface_is_tried(check: str) -> None:
    """Replies of the pods behind the first one leave by the primary interface, so that only requests to the others are lost."""
    trouble = TROUBLES[check]
    with trouble.node() as node:
        node.ip([f"rule add from {scenes.POD} to {OUTSIDE['ipv4']} lookup main priority 1000"])
        found = trouble.audit(node, check)
    assert [(finding["subject"], finding["state"], finding["proof"]) for finding in found] == [
        (trouble.subject, "present", "twin")
    ]


@pytest.mark.parametrize("mask", [16, 32])
@pytest.mark.parametrize(("check", "subject"), [("rp-strict-asymmetric", "eth0"), ("reply-by-other-interface", ENI.name)])
def test_a_client_that_the_rule_of_a_pod_is_about_is_tried(check: str, subject: str, mask: int) -> None:
    """Replies to other clients leave by the interface of the request."""
    network = str(ipaddress.ip_interface(f"{CLIENT}/{mask}").network)
    with scenes.node_port(scenes.STRICT, "pod1", PRIMARY.address, "eth0") as scene:
        scene.node.ip([f"rule del from {eni.pod_address(0)} lookup {eni.table}" for eni in scenes.ENIS])
        assert scene.arrives()
        scene.node.ip([f"rule add from {scenes.POD} to {network} lookup {ENI.table} priority 2048"])
        (finding,) = audited(scene.node, check)["findings"]
        client = finding["packet"].split()[1].partition(":")[0]
        assert not scene.arrives() and ipaddress.ip_address(client) in ipaddress.ip_network(network)
        assert (finding["subject"], finding["severity"], finding["proof"]) == (subject, "error", "twin")
        assert f"from {client}" in finding["what"]
