# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The audit of a support bundle agrees with that of its node: what is present on the node is present in the bundle, or open."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sampling import sampled

from ansible_collections.kubenode.datapath.plugins.plugin_utils import _pastes
from lab.node import NamespaceNode
from lab.steps import Steps

from .._pastes.test_bundles import BUNDLES, PARTIAL, collect, pack
from .._trace import test_cures as scenes
from .troubles import MARKS, OFF, PROBE_TABLE, RESTORED, STRICT, dual_stack

AZURE = {"cloud": "azure"}
MARKING = [f"iptables -t mangle -A PREROUTING {rule}" for rule in (MARKS, RESTORED)]
MARK_RULE = "ip rule add fwmark 0x80/0x80 lookup main priority 1024"
PORT = 30080
Result = dict[str, Any]


@contextmanager
def enis(mode: int, *commands: str) -> Iterator[NamespaceNode]:
    """A node with a Service, whose pods share ENIs, after these commands. Masquerading would choose another port each time."""
    with scenes.shared_enis(mode, *commands) as (lab, node):
        node.service(PORT, [lab.pod("pod1").address], "Local", backend="iptables")
        yield node


@contextmanager
def probed(ruleset: str = "") -> Iterator[NamespaceNode]:
    """A node with a Service that Azure's load balancer probes. ruleset: of nft, beside that of kube-proxy."""
    with dual_stack() as node:
        node.service(PORT, [node.pods[0].address])
        node.run(["nft", "-f", "-"], ruleset)
        yield node


class Case(NamedTuple):
    """checks: that find something on the node. context: of the audit."""

    node: Callable[[], AbstractContextManager[NamespaceNode]]
    checks: frozenset[str] = frozenset()
    context: Mapping[str, str] = {}


CASES = {
    "healthy, marks": Case(lambda: enis(OFF, *MARKING, MARK_RULE)),
    "healthy, probe translated": Case(lambda: probed(PROBE_TABLE), context=AZURE),
    "strict filter": Case(lambda: enis(STRICT), frozenset({"rp-strict-asymmetric", "reply-by-other-interface"})),
    "probe untranslated": Case(probed, frozenset({"probe-untranslated"}), AZURE),
    "mark rule lost": Case(lambda: enis(OFF, *MARKING), frozenset({"mark-without-rule", "reply-by-other-interface"})),
}


def audit(node: NamespaceNode, **options: Any) -> Result:
    result = _pastes.execute("datapath_audit", options, lambda plain: Steps(node, "datapath_audit", plain).call())
    assert not result["failed"], result
    return result


def present(result: Result) -> list[Result]:
    """Return the findings, those of a bundle without what is open there. A collector that lists a table of iptables makes it, so
    that a packet has one step more.
    """
    found = (finding for finding in result["findings"] if finding["state"] == "present")
    return [
        {
            **finding,
            "unless": [],
            "ask": "" if finding["unless"] else finding["ask"],
            "trace": finding["trace"] and finding["trace"]["culprit"],
        }
        for finding in found
    ]


def contradictions(of_node: Result, of_bundle: Result) -> Iterator[str]:
    """Yield what a bundle says against its node. To say that it cannot tell contradicts nothing, nor does a note about what a
    packet shows on the node alone.
    """
    noted = [(each["id"], each["subject"]) for each in present(of_bundle) if each["severity"] == "note"]
    shown = [(each["id"], each["subject"]) for each in present(of_node) if each["packet"]]
    weaker = {*noted} & {*shown}
    unclear = {finding["id"] for finding in of_bundle["findings"]} - {finding["id"] for finding in present(of_bundle)}
    for finding in present(of_bundle):
        if finding not in present(of_node) and (finding["id"], finding["subject"]) not in weaker:
            yield f"{finding['id']} {finding['subject']} is present in the bundle alone, or differs"
    for finding in present(of_node):
        is_weaker = (finding["id"], finding["subject"]) in weaker
        if finding not in present(of_bundle) and finding["id"] not in unclear and not is_weaker:
            yield f"{finding['id']} {finding['subject']} is present on the node alone, or differs"
    yield from (f"{check} passes in the bundle alone" for check in {*of_bundle["passed"]} - {*of_node["passed"]})


@pytest.mark.parametrize("name", sampled(CASES, lambda name: name in ("healthy, probe translated", "strict filter")))
def test_a_bundle_agrees_with_its_node(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    with case.node() as node:
        of_node = audit(node, context=case.context)
        bundles = {}
        for kind, bundle in {**BUNDLES, **PARTIAL}.items():
            path = pack(tmp_path, bundle.name, collect(node, bundle.files))
            bundles[kind] = audit(node, context=case.context, dump=str(path))
    assert {finding["id"] for finding in present(of_node)} == case.checks
    assert {kind: [*contradictions(of_node, result)] for kind, result in bundles.items()} == {kind: [] for kind in bundles}
    assert all(bundles[kind]["passed"] for kind in BUNDLES)
    # Rancher's collector leaves out nothing that these checks need.
    of_rancher = {(each["id"], each["subject"]): each for each in present(bundles["Rancher"])}
    assert of_rancher.keys() == {(each["id"], each["subject"]) for each in present(of_node)}
    assert all(each["severity"] == "note" or each in present(of_node) for each in of_rancher.values())
    if name == "strict filter":
        for kind in ("EKS", "Cilium", "Retina", "AWS CNI"):
            found = [each for each in bundles[kind]["findings"] if each["id"] == "rp-strict-asymmetric"]
            assert found and all(each["unless"] and "nft list ruleset" in each["ask"] for each in found), (kind, found)
            assert bundles[kind]["profile"]["name"] == "eni_policy_routing"
        of_host = [each for each in bundles["troubleshoot.sh"]["findings"] if each["id"] == "rp-strict-asymmetric"]
        assert [(each["state"], each["unless"]) for each in of_host] == [("present", [])]
    if not case.context:
        # That of EKS leaves out the kinds of links and nft's rules, which may decide: its audit says what it suspects.
        pairs = itertools.product(bundles["EKS"]["findings"], (finding["what"] for finding in present(of_node)))
        named = {each["id"] for each, what in pairs if each["what"].startswith(what) or what.startswith(each["what"])}
        assert named == case.checks


ASKING = {
    kind: bundle for kind, bundle in {"AKS": BUNDLES["AKS"], **PARTIAL}.items() if kind not in ("AWS CNI", "troubleshoot.sh")
}


@pytest.mark.parametrize("kind", sampled(ASKING, lambda kind: kind in [*ASKING][::3]))
def test_what_a_bundle_asks_for_leads_to_the_fault(tmp_path: Path, kind: str) -> None:
    """The outputs that the audit asks for are given to it, until it tells."""
    with enis(STRICT) as node:
        path = pack(tmp_path, ASKING[kind].name, collect(node, ASKING[kind].files))
        given: dict[str, str] = {}
        ignored, asked = None, list[str]()
        while True:
            result = audit(node, dump=[str(path), given])
            (found,) = (each for each in result["findings"] if each["id"] == "rp-strict-asymmetric")
            ignored = ignored or result["ignored"]
            if found["state"] == "present":
                break
            commands = [command for command in found["ask"].split("; ") if command not in given]
            assert commands and len(asked) < 10, (asked, found)
            asked.append(found["ask"])
            given.update({command: node.run(["sh", "-c", command], check=False).stdout for command in commands})
    assert (found["subject"], result["profile"]["name"]) == ("eth0", "eni_policy_routing")
    assert [each for each in result["ignored"] if each not in ignored and "There are several outputs" not in each] == []


ASKED = {"nft-list-ruleset.txt": "nft list ruleset", "ip-d-link.txt": "ip -d link"}


def test_what_was_asked_for_counts_wherever_it_stands(tmp_path: Path) -> None:
    with enis(STRICT) as node:
        files, outputs = collect(node, BUNDLES["EKS"].files), collect(node, ASKED)
        for folder in ("top", "within", "beside", "list"):
            (tmp_path / folder).mkdir()
        for folder in ("top", "within"):
            placed = {f"networking/{name}" if folder == "within" else name: content for name, content in outputs.items()}
            for path, content in {**files, **placed}.items():
                (tmp_path / folder / path).parent.mkdir(exist_ok=True)
                (tmp_path / folder / path).write_bytes(content)
        for folder in ("beside", "list"):
            pack(tmp_path / folder, BUNDLES["EKS"].name, files)
            for name, content in outputs.items():
                (tmp_path / folder / name).write_bytes(content)
        several = [str(tmp_path / "list" / name) for name in (BUNDLES["EKS"].name, *ASKED)]
        dumps: list[Any] = [*(str(tmp_path / folder) for folder in ("top", "within", "beside")), several]
        results = [{**audit(node, dump=dump), "node": None} for dump in dumps]  # its name is that of a folder or an archive
    assert all(result == results[0] for result in results) and results[0]["ignored"] == []
    (found,) = (each for each in present(results[0]) if each["id"] == "rp-strict-asymmetric")
    assert found["ask"] == "" and results[0]["profile"]["name"] == "eni_policy_routing"
