# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of many nodes: findings in groups, two runs compared, and no text of a node that becomes an element."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._report import page
from unit.audits import PROFILE, TRACE, Result, audit, present, unclear

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[2J"
MOST_BYTES = 3_000_000


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.groups: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        values = dict(attrs)
        if "group" in str(values.get("class")).split():
            self.groups.append(values)


def groups(text: str) -> list[tuple[str | None, ...]]:
    return [tuple(group[f"data-{name}"] for name in ("severity", "check", "subject", "nodes")) for group in Elements(text).groups]


def test_findings_are_grouped_by_check_and_kind_of_subject_errors_first() -> None:
    risk = [present("risk", "pod-rule-missing", f"10.0.0.{number}") for number in range(3)]
    text = page.text({"node1": audit(*risk, present()), "node2": audit(risk[0]), "node3": audit()})
    assert groups(text) == [("error", "rp-strict-asymmetric", "eth0", "1"), ("risk", "pod-rule-missing", "addresses", "2")]
    assert "<h1>1 error, 1 risk on 2 of 3 nodes</h1>" in text


def test_two_runs_are_compared_and_what_cannot_be_told_is_not_gone() -> None:
    earlier = {"node1": audit(present(), present("risk", "waste")), "node2": audit(present()), "node3": audit(present())}
    now: dict[str, Result] = {
        "node1": audit(present()),
        "node2": audit(unclear("rp-strict-asymmetric")),
        "node3": {"msg": "root is needed"},
        "node4": audit(present(), present("risk", "fresh")),
    }
    text = page.text(now, earlier)
    assert re.findall(r'<span class="tag open">(new|still)</span>', text) == ["still", "new"]
    assert "node4 (new)" in text and "node1 (new)" not in text
    assert re.findall(r"gone</span> <code>([\w-]+)</code> eth0: ([\w, ]+)", text) == [("waste", "node1")]
    assert 'tag open">still' not in page.text(now)


@pytest.mark.parametrize("place", ["id", "subject", "what", "packet", "ask", "source"])
def test_no_text_of_a_node_becomes_an_element(place: str) -> None:
    usual = Elements(page.text({"node1": audit(present(), profile=PROFILE)})).names
    text = page.text({"node1": audit(present(**{place: HOSTILE}), profile=PROFILE)})
    assert [name for name in Elements(text).names if name != "a"] == [name for name in usual if name != "a"]
    assert "\x1b" not in text and text.count("<script>") == 1


def of_rules(count: int, text: str) -> Result:
    """Return a trace with this many rules."""
    rule = {"kind": "rule", "where": "ip nat KUBE-SERVICES", "text": text, "verdict": "continue", "packet": ""}
    return {**TRACE, "steps": [TRACE["steps"][0], *[rule] * count]}


def test_the_way_of_a_packet_is_drawn_once() -> None:
    text = page.text({"node1": audit(present(), present("risk", "waste"), present(id="other", trace=of_rules(1, "-j DROP")))})
    assert text.count('<div class="ways">') == 2
    (link,) = re.findall(r'<a href="#(\w+)">([^<]*)</a>', text)
    assert link == ("way0", "The same way as that of rp-strict-asymmetric eth0") and text.count('id="way0"') == 1
    assert "<p>Strict reverse-path filtering drops it.</p>" in text and "IPReversePathFilter" in text


def test_an_audit_of_before_has_no_trace() -> None:
    finding = present()
    del finding["trace"]
    assert '<div class="ways">' not in page.text({"node1": audit(finding)}, {"node1": audit(finding)})


def test_what_is_no_trace_is_refused_by_its_place() -> None:
    text = page.text({"node1": audit(present(trace={"verdict": "lost"}))})
    assert "<b>node1</b>: The answer is refused: result.findings[0].trace.verdict is &#x27;lost&#x27;; expected is one of" in text


def test_no_text_of_a_trace_becomes_an_element() -> None:
    usual = Elements(page.text({"node1": audit(present(trace=of_rules(1, "-j DROP")))})).names
    text = page.text({"node1": audit(present(trace=of_rules(1, HOSTILE)))})
    assert Elements(text).names == usual and "\x1b" not in text


def test_a_thousand_nodes_fit_a_page() -> None:
    nodes = {}
    for number in range(1000):
        address = f"10.0.{number // 250}.{number % 250}"
        packet = f"tcp 198.51.100.7:40000 > {address}:80"
        traces = [of_rules(60, f"-A KUBE-SERVICES -d {address} --dport {each} -j MARK --set-mark {each}") for each in range(5)]
        findings = [present(id=f"check-{each}", packet=packet, trace=trace) for each, trace in enumerate(traces)]
        nodes[f"ip-{address.replace('.', '-')}.eu-west-1.compute.internal"] = audit(*findings, unclear(), profile=PROFILE)
    text = page.text(nodes)
    assert len(text.encode()) < MOST_BYTES and len(Elements(text).groups) == 5
    assert text.count('<div class="ways">') > 50
