# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer as a flowchart of Mermaid: its boxes, and labels that no text of a node can end."""

from __future__ import annotations

import html
import re

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._render import mermaid
from unit.answers import DNAT, DROP, FILTER, FILTERED, MASQUERADE, ROUTE, SERVICE, Result, arrived, everywhere, lost, rule

BOX = re.compile(r' {2,4}(\w+)\["((?:[\w .,/=()+-]|#\d+;|<br/>)*)"\](?::::(good|bad|open))?')
LINE = re.compile(
    rf'flowchart TB|  subgraph (?:packet|reply)\["[^"]*"\]|  end|  \w+(?: --> \w+)*|  classDef \w+ [\w:#,]+|{BOX.pattern}'
)


def boxes(value: Result) -> list[tuple[list[str], str]]:
    """Return the lines and the tone of each box, as Mermaid shows them."""
    matches = [BOX.fullmatch(line) for line in mermaid.diagram(value).splitlines()]
    labels = [(match[2].split("<br/>"), match[3] or "") for match in matches if match]
    return [([html.unescape(line.replace("#", "&#")) for line in lines], tone) for lines, tone in labels]


def test_the_boxes_of_a_packet_that_arrives() -> None:
    assert boxes(arrived(rule(), DNAT, ROUTE, MASQUERADE)) == [
        (["sender", "192.0.2.7:40000"], ""),
        (["pod", "10.244.1.2:8080"], "good"),
        (["link eth0"], ""),
        (["netfilter, 2 rules", DNAT["text"], "destination 10.96.0.10:80 → 10.244.1.2:8080"], ""),
        (["routing", ROUTE["text"]], ""),
        (["netfilter, 1 rule", MASQUERADE["text"], "source 192.0.2.7:40000 → 10.0.0.10:40000"], ""),
        (["link veth1"], ""),
    ]
    assert SERVICE not in mermaid.diagram(arrived(rule())), "it neither translates nor decides"


def test_the_culprit_is_a_box_or_a_line_of_one() -> None:
    assert boxes(lost(FILTER, ROUTE, FILTERED))[-1] == (["dropped", f"sysctl: {FILTER['text']}"], "bad")
    received = boxes({**lost(None, ROUTE), "verdict": "delivered"})
    assert received[-1] == (["the node itself receives the packet"], "good")
    guilty = boxes(
        lost({"kind": "rule", "text": f"ip filter: {DROP}"}, rule(), rule("ip filter FORWARD", DROP, "drop"), culprit_step=2)
    )
    assert guilty[-2:] == [(["netfilter, 2 rules", DROP], "bad"), (["dropped"], "bad")]


def test_each_way_is_a_chain_of_its_boxes() -> None:
    text = mermaid.diagram(arrived(ROUTE, reply=lost(FILTER, ROUTE)))
    assert "\n  packetStart --> packet0 --> packet1 --> packet2 --> packet3 --> packetEnd\n" in text
    assert "\n  replyStart --> reply0 --> reply1 --> reply2\n" in text
    assert "reply0" not in mermaid.diagram(arrived(ROUTE, reply={"verdict": "dropped", "reason": "Filtered."}))


HOSTILE = [
    '"]',
    "</pre><script>",
    "a --> b",
    "#quot;",
    "end",
    "%%{init: {}}%%",
    "style x:#f00;",
    "`a`",
    "click a href",
    "\n  x",
    "&lt;",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_in_its_box(name: str) -> None:
    text = mermaid.diagram(everywhere(name))
    assert all(LINE.fullmatch(line) for line in text.splitlines()), text
    assert text.count("\n") == mermaid.diagram(everywhere("name")).count("\n")
    assert name.replace("\n", "\\n") in "\n".join(line for lines, _tone in boxes(everywhere(name)) for line in lines)
