# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A packet's trace as text and as a page: the answer first, the culprit marked, and no text of a node is executed as markup."""

from __future__ import annotations

import re
import typing as t
from html.parser import HTMLParser

import pytest

pytest.importorskip("ansible")

from ansible.errors import AnsibleFilterError

from ansible_collections.kubenode.datapath.plugins.filter.trace_html import trace_html
from ansible_collections.kubenode.datapath.plugins.filter.trace_text import trace_text
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import in_one_line
from ansible_collections.kubenode.datapath.plugins.plugin_utils._trace import drawing, result

Result = dict[str, t.Any]

FRAME = {"source_mac": "02:00:00:00:00:01", "destination_mac": "06:00:00:00:00:01"}
LEFT = {"source": "10.0.0.10", "destination": "10.244.1.2", "protocol": "tcp", "source_port": 40000, "destination_port": 8080}
SERVICE = "-A KUBE-SERVICES -d 10.96.0.10/32 -j KUBE-SVC-X"
DROP = "-A FORWARD -d 10.244.1.2 -j DROP"
IN = {"kind": "in", "where": "link eth0", "text": "tcp 192.0.2.7:40000 > 10.96.0.10:80", "verdict": ""}
ROUTE = {"kind": "route", "where": "routing", "text": "ip route 10.244.1.2 dev veth1 table main (0: from all)", "verdict": ""}
OUT = {"kind": "out", "where": "link veth1", "text": "tcp 10.0.0.10:40000 > 10.244.1.2:8080", "verdict": ""}
NOTHING: Result = {"before": None, "branches": [], "cures": [], "unknown": [], "assumed": []}
FILTER = {"kind": "sysctl", "text": "net.ipv4.conf.eth0.rp_filter = 1"}


def rule(where: str = "ip nat KUBE-SERVICES", text: str = SERVICE, verdict: str = "jump KUBE-SVC-X") -> Result:
    return {"kind": "rule", "where": where, "text": text, "verdict": verdict}


def arrived(*steps: Result, **changes: t.Any) -> Result:
    found: Result = {
        "verdict": "delivered", "interface": "veth1", "packet": {**LEFT, **FRAME, "mark": "0x80"}, "culprit": None,
        "reason": "The packet leaves by veth1, to the pod there.", "steps": [IN, *steps, OUT], "reply": None,
    }  # fmt: skip
    return {**NOTHING, **found, **changes}


def lost(culprit: Result | None, *steps: Result, **changes: t.Any) -> Result:
    found: Result = {
        "verdict": "dropped", "interface": "", "packet": None, "culprit": culprit,
        "reason": "The packet is lost.", "steps": [IN, *steps], "reply": None,
    }  # fmt: skip
    return {**NOTHING, **found, **changes}


def lines(given: Result, colors: bool = False) -> list[str]:
    return trace_text(given, colors).splitlines()


class Page(HTMLParser):
    """A page as a browser reads it: the elements with their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def classes(self, name: str) -> list[str]:
        """The tags of the elements of a class."""
        return [tag for tag, attributes in self.elements if name in (attributes.get("class") or "").split()]


def page(given: Result) -> Page:
    found = Page(trace_html(given))
    assert not found.open, "each element is closed"
    return found


QUALITIES = {"delivered": "good", "forwarded": "good", "dropped": "bad", "rejected": "bad", "unknown": "open"}
COLORS = {"good": "32", "bad": "31", "open": "33"}


@pytest.mark.parametrize("verdict", result.VERDICTS)
def test_each_verdict_is_told_and_has_its_color(verdict: str) -> None:
    given = lost(None, verdict=verdict)
    quality = QUALITIES[verdict]
    assert lines(given)[:2] == ["tcp 192.0.2.7:40000 > 10.96.0.10:80, from link eth0", verdict]
    assert f"\x1b[{COLORS[quality]}m{verdict}\x1b[0m" in trace_text(given, colors=True)
    assert "\x1b" not in trace_text(given)
    assert ("header", {"class": quality}) in page(given).elements
    assert "g" in page(given).classes(quality), "the end of the path"


def test_the_answer_comes_before_the_path() -> None:
    reply = lost(FILTER, reason="Strict filtering drops it.")
    reason = "The packet leaves. Its reply is lost: Strict filtering drops it."
    given = arrived(rule(), reply=reply, culprit=FILTER, reason=reason)
    assert lines(given)[1:4] == [
        "delivered by veth1, reply dropped",
        reason,
        "Culprit sysctl: net.ipv4.conf.eth0.rp_filter = 1",
    ]
    assert ("header", {"class": "bad"}) in page(given).elements


def test_the_path_has_each_step_as_the_kernel_told_it() -> None:
    told = lines(arrived(rule(), ROUTE))
    begin = told.index("Packet: delivered by veth1")
    assert told[begin + 1 :] == [
        "  in       link eth0                    tcp 192.0.2.7:40000 > 10.96.0.10:80",
        f"  rule     ip nat KUBE-SERVICES         {SERVICE}  -> jump KUBE-SVC-X",
        f"  route    routing                      {ROUTE['text']}",
        "  out      link veth1                   tcp 10.0.0.10:40000 > 10.244.1.2:8080",
        "  Left as tcp 10.0.0.10:40000 > 10.244.1.2:8080, MAC 02:00:00:00:00:01 > 06:00:00:00:00:01, mark 0x80",
    ]


@pytest.mark.parametrize(
    ("packet", "told"),
    [
        ({**LEFT, "mark": 128}, "tcp 10.0.0.10:40000 > 10.244.1.2:8080, mark 0x80"),
        ({**LEFT, "mark": 0}, "tcp 10.0.0.10:40000 > 10.244.1.2:8080"),
        ({"source": "fe80::1", "destination": "fd00::2", "protocol": "ipv6-icmp"}, "ipv6-icmp fe80::1 > fd00::2"),
        ({**LEFT, "source": "fd00::1", "destination": "fd00::2"}, "tcp [fd00::1]:40000 > [fd00::2]:8080"),
    ],
)
def test_a_packet_is_told_as_tcpdump_does(packet: Result, told: str) -> None:
    assert result.from_result(arrived(packet=packet)).way.left == told


NEIGHBOR = {"kind": "neighbor", "where": "link veth1", "text": "10.244.1.2", "verdict": "no answer"}
POLICY = {"kind": "policy", "where": "ip filter FORWARD", "text": "", "verdict": "policy drop"}
ACCEPTED = {**POLICY, "where": "ip mangle PREROUTING", "verdict": "policy accept"}


@pytest.mark.parametrize(
    ("culprit", "guilty"),
    [
        ({"kind": "rule", "text": f"ip filter: {DROP}"}, rule("ip filter FORWARD", DROP, "drop")),
        ({"kind": "rule", "text": "ip filter: policy of chain FORWARD is DROP"}, POLICY),
        ({"kind": "rule", "text": "ip filter: -P FORWARD DROP"}, POLICY),
        ({"kind": "neighbor", "text": "10.244.1.2 dev veth1 FAILED"}, NEIGHBOR),
        ({"kind": "route", "text": "ip route 10.244.1.2 dev veth1 table main"}, ROUTE),
    ],
)
def test_the_step_that_stopped_the_packet_is_marked_once(culprit: Result, guilty: Result) -> None:
    given = lost(culprit, ACCEPTED, rule(), guilty)
    assert [step.is_culprit for step in result.from_result(given).way.steps] == [False, False, False, True]
    assert len([line for line in lines(given) if line.startswith("!")]) == 1
    assert page(given).classes("guilty") == ["g", "g", "tr"], "a box, a line in it, and a row of the table"


@pytest.mark.parametrize("kind", ["sysctl", "link", "bpf", "missing", "address", "rule", "a kind of a later version"])
def test_a_culprit_that_is_no_step_ends_the_path(kind: str) -> None:
    given = lost({"kind": kind, "text": "no route to 10.244.1.2"}, rule(), ROUTE)
    assert lines(given)[-1] == f"! {kind}: no route to 10.244.1.2"
    *_path, culprit, verdict = drawing.draw(result.from_result(given).way).boxes
    assert (culprit.kind, culprit.is_culprit, culprit.lines[0].text) == ("culprit", True, "no route to 10.244.1.2")
    assert (verdict.title, verdict.is_culprit) == ("dropped", False)


def test_the_culprit_of_a_reply_is_not_marked_on_the_packets_path() -> None:
    reply = lost(FILTER, ROUTE)
    given = arrived(rule(), ROUTE, reply=reply, culprit=FILTER)
    way = result.from_result(given).way
    assert way.lost_to is None and way.reply and way.reply.lost_to == ("sysctl", FILTER["text"])
    told = lines(given)
    assert told.index(f"! sysctl: {FILTER['text']}") > told.index("Reply: dropped")


def test_a_reply_of_which_only_verdict_reason_and_culprit_are_known() -> None:
    reply = {"verdict": "dropped", "reason": "Filtered.", "culprit": FILTER}
    before = {"verdict": "forwarded", "interface": "eth1", "reason": "It leaves.", "culprit": None, "reply": reply}
    told = lines(arrived(before=before))
    begin = told.index("Before the changes")
    assert told[begin + 1 : begin + 5] == [
        "  forwarded by eth1, reply dropped",
        "  It leaves.",
        "  Reply: Filtered.",
        f"  Culprit sysctl: {FILTER['text']}",
    ]
    assert "Before the changes: forwarded by eth1, reply dropped" in page(arrived(before=before)).text


def test_branches_have_their_shares() -> None:
    branches = [
        {"share": 0.6667, **{key: arrived()[key] for key in ("verdict", "interface", "packet", "reason", "culprit", "reply")}},
        {"share": 1 / 3, "verdict": "dropped", "interface": "", "packet": None, "reason": "Dropped.", "culprit": None},
    ]
    told = lines(arrived(branches=branches))
    begin = told.index("Chance decides")
    assert told[begin + 1] == "  66.7 % delivered by veth1" and "  33.3 % dropped" in told[begin:]
    assert len(page(arrived(branches=branches)).classes("branch")) == 2
    assert "Chance decides" not in lines(arrived())


def test_cures_and_sentences_are_listed_only_if_there_are_some() -> None:
    task = "- name: Filter loosely\n  kubenode.datapath.rp_filter:\n    mode: loose\n"
    cures = [
        {"change": "rp_filter: {mode: loose}", "verdict": "forwarded", "reply_verdict": "delivered", "task": task},
        {"change": "ip neigh del 10.244.1.2 dev veth1", "verdict": "delivered", "reply_verdict": "", "takes_along": "More."},
    ]
    told_task = [f"  {line}" for line in task.splitlines()]
    given = lost(None, cures=cures, unknown=["A."], assumed=["B."], ignored=["C."])
    told, bare = lines(given), lines(lost(None))
    assert task.rstrip() in page(given).text and "More." in page(given).text
    for title, entries in (
        (
            "What helps",
            [
                *(f"{cures[0]['change']}  -> forwarded, reply delivered", *told_task),
                *(f"{cures[1]['change']}  -> delivered", "  More."),
            ],
        ),
        ("Unknown", ["A."]),
        ("Assumed", ["B."]),
        ("Not understood", ["C."]),
    ):
        begin = told.index(title)
        assert told[begin - 1] == "" and told[begin + 1 : begin + 1 + len(entries)] == [f"  {entry}" for entry in entries]
        assert title not in bare and title in page(given).text and title not in page(lost(None)).text


OUTCOMES = [
    {
        "if": "it is 0",
        "verdict": "forwarded",
        "reply_verdict": "delivered",
        "evidence": [],
        "contradicted_by": ["A rule met packets"],
    },
    {"if": "it is 1", "verdict": "dropped", "reply_verdict": "", "evidence": ["A rule met packets"], "contradicted_by": []},
]


def test_the_outcomes_of_a_fact_are_listed_with_their_evidence() -> None:
    given = lost(None, depends_on=[{"fact": "x:y", "what": "It is open.", "ask": "ip x", "outcomes": OUTCOMES}])
    told = lines(given)
    assert told[told.index("Depends on") + 1 :][:5] == [
        "  It is open. Ask for: ip x",
        "    if it is 0: forwarded, reply delivered",
        "      does not fit: A rule met packets",
        "    if it is 1: dropped",
        "      fits: A rule met packets",
    ]
    assert page(given).text.count("fits: A rule met packets") == 1 and "does not fit: A rule met packets" in page(given).text


def test_what_one_output_would_show_is_asked_for_once() -> None:
    asked = (
        ("table:ip raw", "iptables-save"),
        ("cut:ip nat", "iptables-save -t nat"),
        ("nft", "nft list ruleset"),
        ("line:1", ""),
    )
    given = lost(None, depends_on=[{"fact": fact, "what": f"{fact}.", "ask": ask, "outcomes": []} for fact, ask in asked])
    told = lines(given)
    assert told[told.index("Depends on") + 1 :][:2] == ["  line:1.", ""]
    expected = ["iptables-save  (table:ip raw, cut:ip nat)", "nft list ruleset  (nft)"]
    assert told[told.index("Certain only with the output of") + 1 :][:3] == [*(f"  {line}" for line in expected), ""]
    assert "iptables-save (table:ip raw, cut:ip nat)" in page(given).text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title></svg><iframe src='//x'>",
    "{{ 7 * 7 }}{% raw %}",
    "]]><!--",
]


def everywhere(name: str) -> Result:
    """A result with ``name`` in each of its texts."""
    step = dict.fromkeys(("kind", "where", "text", "verdict"), name)
    culprit = {"kind": name, "text": name}
    packet = dict.fromkeys(("source", "destination", "protocol", "source_port", "source_mac", "destination_mac", "mark"), name)
    way: Result = {"verdict": "dropped", "interface": name, "packet": packet, "reason": name, "culprit": culprit}
    way["steps"] = [{**IN, "where": name, "text": name}, step, {**step, "kind": "rule"}, {**step, "kind": "route"}]
    reply = {**way, "verdict": name}
    outcome = {"if": name, "verdict": name, "reply_verdict": name}
    return {
        **way, "reply": reply, "before": {**way, "reply": reply}, "branches": [{**way, "share": name, "reply": None}],
        "cures": [{"change": name, "verdict": name, "reply_verdict": name, "task": in_one_line(name), "takes_along": name}],
        "depends_on": [
            {"fact": name, "what": name, "ask": name, "outcomes": [{**outcome, "evidence": [name], "contradicted_by": [name]}]},
            {"fact": name, "what": name, "ask": name, "outcomes": []},
        ],
        "unknown": [name], "assumed": [name], "ignored": [name],
    }  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_on_the_page(name: str) -> None:
    usual, hostile = page(everywhere("name")), page(everywhere(name))
    assert [tag for tag, _attributes in hostile.elements] == [tag for tag, _attributes in usual.elements]
    assert not any(key.startswith("on") for _tag, attributes in hostile.elements for key in attributes)
    assert name in hostile.text


def test_the_page_runs_and_loads_nothing() -> None:
    html = trace_html(arrived(rule(), reply=lost(FILTER)))
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in html
    loading = {"href", "src", "srcset", "data", "action", "xlink:href"}
    for tag, attributes in page(arrived(rule(), reply=lost(FILTER))).elements:
        assert tag not in ("script", "link", "img", "iframe", "object") and not loading.intersection(attributes)
    assert "@import" not in html and re.findall(r"url\(([^)]*)\)", html) == ["#main-tip"] * html.count("url(")


@pytest.mark.parametrize("name", ["\x1b[2Jgone", "a\nPacket: delivered", "a\rb", "\u202etxt", "\x00", "\x9b31m", "\udc80"])
def test_a_hostile_name_cannot_change_the_terminal(name: str) -> None:
    shown = result.printable(name)
    assert shown.isprintable() and shown.isascii()
    told = trace_text(everywhere(name))
    assert told.replace("\n", "").isprintable() and shown in told
    assert told.count("\n") == trace_text(everywhere("name")).count("\n")
    trace_html(everywhere(name)).encode()


def test_letters_of_all_languages_are_printable() -> None:
    assert result.printable("größe 网络 …") == "größe 网络 …"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"failed": True, "msg": "the kernel refused a user namespace"},
            "'the kernel refused a user namespace' was given in place",
        ),
        ({}, "'nothing' was given in place of a verdict"),
        ({"verdict": "arrived"}, "'arrived' was given in place of a verdict"),
        ("delivered", "result is str; a dictionary was expected"),
        (arrived(steps=["rule"]), "result.steps[0] is str"),
        (arrived(branches=[arrived(steps=[1])]), "result.branches[0].steps[0] is int"),
    ],
)
@pytest.mark.parametrize("render", [trace_text, trace_html])
def test_what_is_no_trace_is_refused(render: t.Callable[[t.Any], str], given: t.Any, told: str) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        render(given)
    assert told in str(error.value) and "kubenode.datapath.datapath_trace" in str(error.value)


# The drawing


def boxes(given: Result) -> list[drawing.Box]:
    return drawing.draw(result.from_result(given).way).boxes


def test_the_path_goes_from_a_link_by_hooks_and_routing_to_a_link() -> None:
    given = arrived(rule(), rule(), ROUTE, POLICY, rule("ip nat POSTROUTING"))
    assert [(box.kind, box.title, len(box.lines)) for box in boxes(given)] == [
        ("link", "in: link eth0", 1),
        ("netfilter", "netfilter", 2),
        ("routing", "routing", 1),
        ("netfilter", "netfilter", 2),
        ("link", "out: link veth1", 1),
        ("verdict", "delivered by veth1", 0),
    ]


@pytest.mark.parametrize("steps", [0, 1, 9])
def test_the_reply_begins_at_the_bottom_where_the_packet_ends_and_no_boxes_overlap(steps: int) -> None:
    given = arrived(rule(), ROUTE, reply=lost(FILTER, *[rule(), ROUTE] * steps))
    drawn = drawing.draw(result.from_result(given).way)
    down = [box for box in drawn.boxes if not box.x]
    back = [box for box in drawn.boxes if box.x]
    assert down[-1].kind == "verdict" and back[0].kind == "verdict" and back[-1].title == "in: link eth0"
    for column in (down, back):
        assert all(above.y + above.height < below.y for above, below in zip(column, column[1:], strict=False))
        assert column[0].y >= 0 and column[-1].y + column[-1].height == drawn.height
        inner = [(line.y, box) for box in column for line in box.lines]
        assert all(box.y < y < box.y + box.height for y, box in inner)
    ups = [arrow for arrow in drawn.arrows if arrow[1] > arrow[3]]
    assert len(ups) == len(back) - 1 and len(drawn.arrows) == len(drawn.boxes) - 2 and drawn.turn


def test_a_long_box_keeps_its_ends_and_its_culprit() -> None:
    for count in (drawing.MOST_LINES, drawing.MOST_LINES + 1, 40):
        many = [rule(f"ip nat C{number}", f"rule {number}.", "continue") for number in range(count)]
        whole = boxes(arrived(*many))[1].lines
        assert len(whole) == drawing.MOST_LINES and (whole[0].text, whole[-1].text) == ("ip nat C0", f"ip nat C{count - 1}")
    assert [line.text for line in whole if "more" in line.text] == ["… 31 more"]
    guilty = boxes(lost({"kind": "rule", "text": "ip nat: rule 20."}, *many))[1]
    assert [line.text for line in guilty.lines if line.is_culprit] == ["rule 20."] and guilty.is_culprit


def test_a_line_fits_its_box_and_has_all_of_its_text_beside() -> None:
    given = arrived(rule("ip nat " + "C" * 80, "-j X", "jump " + "V" * 80))
    (line,) = boxes(given)[1].lines
    assert (len(line.text) + len(line.verdict)) * drawing.CHARACTER < drawing.COLUMN
    assert line.text.endswith("C…") and line.verdict.endswith("V…")
    assert "C" * 80 in line.full and "V" * 80 in line.full
