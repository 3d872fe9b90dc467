# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages: nothing is cut, and no text of a node becomes markup. The boxes of an answer show places and not counters;
findings of many nodes are in groups, and two runs are compared."""

from __future__ import annotations

import re
import typing as t
from html.parser import HTMLParser

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._render import audit_page, trace_page
from ansible_collections.kubenode.datapath.plugins.module_utils._render.stylesheet import CSS
from unit.answers import DNAT, DROP, FILTER, FILTERED, IN, MASQUERADE, ROUTE, Result, arrived, cure, everywhere, lost, rule
from unit.audits import PROFILE, TRACE, audit, present, unclear

BOXES = ("place", "node", "link", "stage", "end")


class Page(HTMLParser):
    """A page as a browser reads it. elements: tags with their attributes. texts: of the elements of a class, in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[tuple[str, set[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[set[str], str]] = []
        self.feed(html)
        assert not self.open, "each element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append((tag, {*(dict(attrs).get("class") or "").split()}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((set[str]().union(*(classes for _tag, classes in self.open)), data))

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _attributes in self.elements]

    @property
    def text(self) -> str:
        return "".join(data for _classes, data in self.texts)

    def text_of(self, name: str) -> str:
        """The text within elements of a class."""
        return "".join(data for classes, data in self.texts if name in classes)

    def count(self, name: str) -> int:
        """The number of elements of a class."""
        return sum(name in (attributes.get("class") or "").split() for _tag, attributes in self.elements)


def page_of(value: Result, **about: t.Any) -> Page:
    return Page(trace_page.html(value, about))


def test_the_answer_comes_first_and_has_the_colour_of_its_verdict() -> None:
    reply = lost(FILTER, reason="Strict filtering drops it.")
    read = page_of(
        arrived(rule(), reply=reply, culprit=FILTER, tells_reply=True, reason="It leaves. Its reply is lost: Filtered.")
    )
    classes = [attributes["class"] for _tag, attributes in read.elements if "class" in attributes]
    assert classes[0] == "answer bad"
    for text in ("delivered by veth1, reply dropped", "It leaves. Its reply is lost: Filtered.", FILTER["text"]):
        assert text in read.text_of("answer")


def test_a_translation_shows_what_it_changed() -> None:
    read = page_of(arrived(rule(), DNAT, ROUTE, MASQUERADE))
    assert read.count("change") == 2
    changes = "destination 10.96.0.10:80 → 10.244.1.2:8080", "source 192.0.2.7:40000 → 10.0.0.10:40000"
    assert all(change in read.text_of("change") for change in changes)


def test_what_connection_tracking_translated_is_a_stage() -> None:
    assert "connection tracking" in page_of(arrived(ROUTE)).text_of("stage")
    assert "connection tracking" not in page_of(arrived(DNAT, ROUTE, MASQUERADE)).text_of("stage")


def test_the_boxes_are_places_links_and_stages() -> None:
    reply = arrived(ROUTE, verdict="forwarded", interface="eth0")
    read = page_of(arrived(rule(), rule(), ROUTE, DNAT, MASQUERADE, reply=reply))
    assert {name: read.count(name) for name in BOXES} == {"place": 4, "node": 2, "link": 4, "stage": 5, "end": 0}
    assert "pod10.244.1.2:8080" in read.text_of("place") and "other machine" in read.text_of("place")


def test_a_counter_is_no_box() -> None:
    read = page_of(lost(FILTER, ROUTE, FILTERED))
    assert {name: read.count(name) for name in BOXES} == {"place": 1, "node": 1, "link": 1, "stage": 1, "end": 1}
    assert FILTERED["where"] in read.text_of("end") and FILTERED["where"] not in read.text_of("stage")


def test_a_packet_without_a_reply_has_the_whole_width() -> None:
    for reply in (None, {"verdict": "dropped", "reason": "Filtered.", "culprit": FILTER}):
        assert page_of(arrived(ROUTE, reply=reply)).count("way") == 1
    assert page_of(arrived(ROUTE, reply=arrived(ROUTE))).count("way") == 2
    assert "repeat(auto-fit" in CSS, "a column that is not there takes no room"


def test_a_packet_that_the_node_sends_or_receives_has_no_place_at_that_end() -> None:
    sent = {**IN, "where": "the node", "text": "tcp the node > 10.244.1.2:8080"}
    assert page_of({**arrived(ROUTE), "steps": [sent, ROUTE, arrived()["steps"][-1]]}).count("place") == 1
    received = page_of({**lost(None, ROUTE), "verdict": "delivered"})
    assert received.count("place") == 1 and "the node itself receives the packet" in received.text_of("end")


def test_the_culprit_is_marked_on_the_path() -> None:
    step = page_of(
        lost({"kind": "rule", "text": f"ip filter: {DROP}"}, rule(), rule("ip filter FORWARD", DROP, "drop"), culprit_step=2)
    )
    assert step.count("guilty") == 2 and DROP in step.text_of("guilty"), "the stage and the step"
    assert FILTER["text"] in page_of(lost(FILTER, ROUTE)).text_of("end")


def test_a_packet_that_leaves_and_is_lost_does_not_reach_its_place() -> None:
    assert "not reached" in page_of({**arrived(ROUTE), "verdict": "dropped"}).text_of("place")


def test_nothing_is_cut_and_everything_wraps() -> None:
    rules = [rule(f"ip nat {number}{'C' * 80}", f"-j {number}{'X' * 400}", "jump " + "V" * 80) for number in range(60)]
    read = page_of(arrived(*rules))
    assert all(step[key] in read.text_of("step") for step in rules for key in ("where", "text", "verdict"))
    assert "…" not in read.text and "ellipsis" not in CSS and "overflow-wrap: anywhere" in CSS


def test_what_the_evidence_lacks_is_listed() -> None:
    missing = {"fact": "nft", "what": "There may be rules.", "ask": "nft list ruleset", "outcomes": []}
    read = page_of(lost(None, depends_on=[missing], unknown=["U."], assumed=["A."], ignored=["I."]))
    assert all(text in read.text for text in ("What the evidence lacks", "nft list ruleset", "U.", "A.", "I."))
    assert "What the evidence lacks" not in page_of(lost(None)).text


def test_the_evidence_is_described() -> None:
    versions = {"collection": "0.1.0", "kernel": "6.1.0-28", "iptables": "iptables v1.8.9 (nf_tables)", "ipset": None}
    about = page_of(lost(None), node="node7", time="2026-11-26 12:00 UTC", versions=versions, source="the running node").text_of(
        "about"
    )
    for text in ("node7", "12:00 UTC", "collection 0.1.0, kernel 6.1.0-28, iptables v1.8.9 (nf_tables)", "the running node"):
        assert text in about
    assert page_of(lost(None)).count("about") == 0 and "ipset" not in about


def test_the_first_task_is_open_and_the_others_are_folded() -> None:
    read = page_of(lost(None, cures=[cure("a", 3, takes_along="More."), cure("b", 1, certain=False)]))
    assert [attributes.keys() for tag, attributes in read.elements if tag == "details"] == [{"class", "open"}, {"class"}]
    assert "- line: 0\n- line: 1\n- line: 2" in read.text and "More." in read.text
    assert read.text.count("not certain") == 1


def test_each_branch_has_its_share_and_its_path() -> None:
    branches = [{**arrived(), "share": 0.6667}, {**lost(FILTER, ROUTE), "share": 1 / 3}]
    read = page_of(arrived(branches=branches))
    assert "66.7 % delivered by veth1" in read.text and "33.3 % dropped" in read.text and read.count("way") == 3


def test_the_page_says_of_which_node_and_time_the_snapshot_is() -> None:
    value = {**arrived(rule()), "node": {"name": "node7", "time": "2026-11-27 10:00:00 UTC"}}
    read = page_of(value, versions="nft 1.0.9")
    assert read.text_of("about") == "Nodenode7Time2026-11-27 10:00:00 UTCVersionsnft 1.0.9"
    assert "Node node7" in read.text_of("name")
    assert "Nodepool1-0Time2026-11-27" in page_of(value, node="pool1-0").text_of("about"), "as the inventory calls it"


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title></pre><iframe src='//x'>",
    "]]><!--",
    "&lt;b&gt;",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_on_the_page(name: str) -> None:
    about = dict.fromkeys(trace_page.ABOUT, "name")
    usual, hostile = page_of(everywhere("name"), **about), page_of(everywhere(name), **dict.fromkeys(trace_page.ABOUT, name))
    assert hostile.tags == usual.tags
    assert not any(key.startswith("on") for _tag, attributes in hostile.elements for key in attributes)
    assert name in hostile.text


def test_the_page_runs_and_loads_nothing() -> None:
    html = trace_page.html(arrived(rule(), reply=lost(FILTER)))
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in html
    loading = {"href", "src", "srcset", "data", "action", "xlink:href", "style"}
    for tag, attributes in Page(html).elements:
        assert tag not in ("script", "link", "img", "iframe", "object") and not loading.intersection(attributes)
    assert not re.search(r"@import|url\(", html)
    html.encode()


MARKUP = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[2J"
MOST_BYTES = 3_000_000


def groups(text: str) -> list[tuple[str | None, ...]]:
    found = [attributes for _tag, attributes in Page(text).elements if attributes.get("class") == "card group"]
    return [tuple(group[f"data-{name}"] for name in ("level", "name", "subject", "nodes")) for group in found]


def test_findings_are_grouped_by_check_and_kind_of_subject_errors_first() -> None:
    risk = [present("risk", "pod-rule-missing", f"10.0.0.{number}") for number in range(3)]
    text = audit_page.text({"node1": audit(*risk, present()), "node2": audit(risk[0]), "node3": audit()})
    assert groups(text) == [("error", "rp-strict-asymmetric", "eth0", "1"), ("risk", "pod-rule-missing", "addresses", "2")]
    assert "<h1>5 findings (1 error, 4 risks) in 2 groups on 2 of 3 audited nodes</h1>" in text


def test_two_runs_are_compared_and_what_cannot_be_told_is_not_gone() -> None:
    gone = [present("risk", check) for check in ("waste", "b", "a", "c")]
    earlier = {"node1": audit(present(), *gone), "node2": audit(present()), "node3": audit(present())}
    now: dict[str, Result] = {
        "node1": audit(present()),
        "node2": audit(unclear("rp-strict-asymmetric")),
        "node3": {"msg": "root is needed"},
        "node4": audit(present(), present("risk", "fresh")),
    }
    text = audit_page.text(now, earlier)
    assert re.findall(r'<span class="tag open">(new|still)</span>', text) == ["still", "new"]
    assert "node4 (new)" in text and "node1 (new)" not in text
    assert re.findall(r"gone</span> <code>([\w-]+)</code> eth0: ([\w, ]+)", text) == [
        (check, "node1") for check in ("waste", "b", "a", "c")
    ]
    assert 'tag open">still' not in audit_page.text(now)


@pytest.mark.parametrize("place", ["id", "subject", "what", "packet", "ask", "source"])
def test_no_text_of_a_node_becomes_an_element(place: str) -> None:
    usual = Page(audit_page.text({"node1": audit(present(), profile=PROFILE)})).tags
    text = audit_page.text({"node1": audit(present(**{place: MARKUP}), profile=PROFILE)})
    assert [name for name in Page(text).tags if name != "a"] == [name for name in usual if name != "a"]
    assert "\x1b" not in text and text.count("<script>") == 1


def of_rules(count: int, text: str) -> Result:
    """Return a trace with this many rules."""
    rule = {"kind": "rule", "where": "ip nat KUBE-SERVICES", "text": text, "verdict": "continue", "packet": ""}
    return {**TRACE, "steps": [TRACE["steps"][0], *[rule] * count]}


def test_profiles_are_grouped_by_role_and_not_by_variables_that_have_addresses_of_one_node() -> None:
    variables = [{"eni_policy_routing_enis": [{"name": "eth1", "ipv4": [f"10.0.1.{number}"]}]} for number in (1, 2, 2)]
    nodes = {f"node{number}": audit(profile={**PROFILE, "variables": each}) for number, each in enumerate(variables)}
    text = audit_page.text(nodes)
    of_profiles = text.partition("Which profile the nodes need")[2]
    assert of_profiles.count("<details") == 1 and "<code>eni_policy_routing</code>" in of_profiles
    assert "3 nodes" in of_profiles and "<p>node1, node2</p>" in of_profiles


def test_the_way_of_a_packet_is_drawn_once() -> None:
    text = audit_page.text(
        {"node1": audit(present(), present("risk", "waste"), present(id="other", trace=of_rules(1, "-j DROP")))}
    )
    assert text.count('<div class="ways">') == 2
    (link,) = re.findall(r'<a href="#(\w+)">([^<]*)</a>', text)
    assert link == ("way0", "The same way as that of rp-strict-asymmetric eth0") and text.count('id="way0"') == 1
    assert "<p>Strict reverse-path filtering drops it.</p>" in text and "IPReversePathFilter" in text


def test_an_audit_of_before_has_no_trace() -> None:
    finding = present()
    del finding["trace"]
    assert '<div class="ways">' not in audit_page.text({"node1": audit(finding)}, {"node1": audit(finding)})


def test_what_is_no_trace_is_refused_by_its_place() -> None:
    text = audit_page.text({"node1": audit(present(trace={"verdict": "lost"}))})
    assert "<b>node1</b>: The answer is refused: result.findings[0].trace.verdict is &#x27;lost&#x27;; expected is one of" in text


def test_no_text_of_a_trace_becomes_an_element() -> None:
    usual = Page(audit_page.text({"node1": audit(present(trace=of_rules(1, "-j DROP")))})).tags
    text = audit_page.text({"node1": audit(present(trace=of_rules(1, MARKUP)))})
    assert Page(text).tags == usual and "\x1b" not in text


def test_a_thousand_nodes_fit_a_page() -> None:
    nodes = {}
    for number in range(1000):
        address = f"10.0.{number // 250}.{number % 250}"
        packet = f"tcp 198.51.100.7:40000 > {address}:80"
        traces = [of_rules(60, f"-A KUBE-SERVICES -d {address} --dport {each} -j MARK --set-mark {each}") for each in range(5)]
        findings = [present(id=f"check-{each}", packet=packet, trace=trace) for each, trace in enumerate(traces)]
        nodes[f"ip-{address.replace('.', '-')}.eu-west-1.compute.internal"] = audit(*findings, unclear(), profile=PROFILE)
    text = audit_page.text(nodes)
    assert len(text.encode()) < MOST_BYTES and Page(text).count("group") == 5
    assert text.count('<div class="ways">') > 50
