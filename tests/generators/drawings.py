# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawings of the guides in docs/pictures: a request and its reply through a node, as a panel of SVG. Run by ``make docs``.

A trouble and its cure are two files, which a wide screen shows beside each other and a narrow one below each other.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs/pictures"
REQUEST_IN_NODE, REQUEST_BELOW = "request in the node", "request below the node"
REPLY_IN_NODE, REPLY_ABOVE = "reply in the node", "reply above the node"
NOTHING = "nothing"
WIDTH, HEIGHT, LEFT, RIGHT = 420, 372, 90, 320  # of a panel, and where the request and the reply are
TOP_BOX, NODE, BOTTOM_BOX = (44, 44), (134, 134), (314, 44)  # y and height
STYLE = """
svg { color-scheme: light dark; font: 13.5px system-ui, "DejaVu Sans", sans-serif; --ink: #24292f; --card: #f6f8fa;
 --box: #ffffff; --line: #8b95a5; --good: #14693a; --bad: #b3231b; --link: #e3e8ef }
@media (prefers-color-scheme: dark) { svg { --ink: #d7dce3; --card: #15181e; --box: #22272f; --line: #6a7280; --good: #7fdca3;
 --bad: #ff8f85; --link: #343b46 } }
text { fill: var(--ink) } .title { font-weight: bold; font-size: 15px } .small { font-size: 12px } .end { text-anchor: end }
.middle { text-anchor: middle } .card { fill: var(--card) } .pill { fill: var(--link) }
.box { fill: var(--box); stroke: var(--line) }
.good { stroke: var(--good) } .bad { stroke: var(--bad) } .way { fill: none; stroke-width: 2.5 } .lost { stroke-dasharray: 5 4 }
"""


@dataclass(frozen=True)
class Panel:
    """A request goes down on the left, and its reply comes up on the right.

    sender, receiver: the ends above and below the node. links: names of the node's links by which they go, at the edge of the
    sender unless ``links_below``. left, right: lines in the node about the request and the reply. lost: what does not arrive.
    """

    title: str
    sender: str
    receiver: str
    left: tuple[str, ...]
    right: tuple[str, ...] = ()
    links: tuple[str, str] = ("", "")
    lost: str = NOTHING
    links_below: bool = False
    request: str = "request"


PANELS = {
    "probe-trouble": Panel(
        "Trouble: without the table",
        "load balancer fe80::1234:5678:9abc",
        "pod: no probe arrives",
        ("kube-proxy: to the pod", "forward: the source", "is link-local, dropped"),
        request="probe of a node port",
        lost=REQUEST_IN_NODE,
    ),
    "probe-cure": Panel(
        "Cure: with the table",
        "load balancer fe80::1234:5678:9abc",
        "pod: answers the probe",
        ("prerouting -300:", "source becomes", "2603:1062:0:1:fe80:", "1234:5678:9abc", "kube-proxy: to the pod"),
        ("postrouting -300:", "destination becomes", "fe80::1234:5678:9abc"),
        request="probe",
    ),
    "eni-balancer-trouble": Panel(
        "Trouble: the filter of eth0 is strict",
        "pod 10.0.1.11",
        "load balancer",
        ("from 10.0.1.11", "lookup 2: by eth1", "source becomes", "the node's"),
        ("reply to the node:", "the way back is eth1,", "not eth0, dropped"),
        ("eth1", "eth0"),
        REPLY_IN_NODE,
        links_below=True,
    ),
    "eni-balancer-cure": Panel(
        "Cure: loose, or strict with marks",
        "pod 10.0.1.11",
        "load balancer",
        ("from 10.0.1.11", "lookup 2: by eth1", "source becomes", "the node's"),
        ("reply to the node:", "its source has a", "route, by eth1:", "accepted"),
        ("eth1", "eth0"),
        links_below=True,
    ),
    "eni-node-port-trouble": Panel(
        "Trouble: the reply leaves by eth1",
        "client, and the cloud",
        "pod 10.0.1.11",
        ("to the pod", "10.0.1.11"),
        ("from 10.0.1.11", "lookup 2: by eth1,", "where the cloud drops", "an address of eth0"),
        ("eth0", "eth1"),
        REPLY_ABOVE,
    ),
    "eni-node-port-cure": Panel(
        "Cure: the connection is marked on eth0",
        "client, and the cloud",
        "pod 10.0.1.11",
        ("mark 0x80", "to the pod", "10.0.1.11"),
        ("from 10.0.1.11 with", "fwmark 0x80/0x80:", "lookup main, eth0"),
        ("eth0", "eth0"),
    ),
    "symmetric-trouble": Panel(
        "Trouble: the reply leaves by eth0",
        "client, and a router that checks sources",
        "pod here, or on another node",
        ("to the pod", "172.30.5.20"),
        ("default route by eth0,", "where the router drops", "an address of eth1"),
        ("eth1", "eth0"),
        REPLY_ABOVE,
    ),
    "symmetric-cure": Panel(
        "Cure: the connection is marked on eth1",
        "client, and a router that checks sources",
        "pod here, or on another node",
        ("mark 0x4", "to the pod", "172.30.5.20"),
        ("reply with mark 0x4:", "lookup the table of", "eth1, default by eth1"),
        ("eth1", "eth1"),
    ),
    "cilium-trouble": Panel(
        "Trouble: rules outlive their pods",
        "packet to 10.240.0.7, now Cilium's pod B",
        "MAC of pod A, which is gone",
        ("bridge azure0, ebtables:", "for 10.240.0.7 the MAC", "becomes that of pod A"),
        lost=REQUEST_BELOW,
        request="",
    ),
    "cilium-cure": Panel(
        "Cure: the stale rules are removed",
        "packet to 10.240.0.7, now Cilium's pod B",
        "pod B answers",
        ("bridge azure0, ebtables:", "no rule for 10.240.0.7;", "rules of live pods of", "azure-vnet are kept"),
        request="",
    ),
    "filter-strict": Panel(
        "eth0 strict: dropped",
        "client",
        "pod: nothing arrives",
        ("the way back to the", "client is by eth1:", "TcpExtIPReversePath-", "Filter counts"),
        links=("eth0", ""),
        lost=REQUEST_IN_NODE,
        request="packet",
    ),
    "filter-loose": Panel(
        "eth0 loose: delivered",
        "client",
        "pod",
        ("there is a way back", "to the client, by eth1"),
        ("the node's rules send", "the answer out by an", "ENI, eth1"),
        ("eth0", "eth1"),
        request="packet",
    ),
}


def svg(panel: Panel) -> str:
    """Return the drawing of a panel."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{html.escape(description(panel))}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        text(20, 27, panel.title, "title"),
        *_box(TOP_BOX, panel.sender),
        *_box(NODE),
        *_box(BOTTOM_BOX, panel.receiver),
        *_ways(panel),
        *_links(panel),
        *(text(34, NODE[0] + 34 + 19 * at, line) for at, line in enumerate(panel.left)),
        *(text(232, NODE[0] + 34 + 19 * at, line) for at, line in enumerate(panel.right)),
    ]
    return "\n".join([*parts, "</svg>\n"])


def description(panel: Panel) -> str:
    """Return the drawing in words, for readers who do not see it."""
    request = f"The {panel.request or 'packet'} of {panel.sender} in the node: {' '.join(panel.left)}."
    reply = f" The reply: {' '.join(panel.right)}." if panel.right else ""
    return f"{panel.title}. {request}{reply} Below the node: {panel.receiver}."


def _box(place: tuple[int, int], words: str = "") -> list[str]:
    top, height = place
    box = f'<rect class="box" x="20" y="{top}" width="{WIDTH - 40}" height="{height}" rx="6"/>'
    return [box, text(WIDTH // 2, top + height // 2 + 5, words, "middle")] if words else [box]


def _ways(panel: Panel) -> list[str]:
    above, below = (sum(TOP_BOX), NODE[0]), (sum(NODE), BOTTOM_BOX[0])
    has_reply = panel.lost in (NOTHING, REPLY_IN_NODE, REPLY_ABOVE)
    ways = [*_way(LEFT, *above), text(LEFT + 12, above[0] + 27, panel.request, "small")]
    if panel.lost == REQUEST_IN_NODE:
        return [*ways, _cross(LEFT, NODE[0] + 112)]
    ways += _way(LEFT, *below, is_lost=panel.lost == REQUEST_BELOW)
    if has_reply:
        ways += _way(RIGHT, below[1], below[0])
        ways += [text(RIGHT - 12, below[0] + 28, "reply", "small end")]
    if panel.lost == REPLY_IN_NODE:
        return [*ways, _cross(RIGHT, NODE[0] + 112)]
    return [*ways, *(_way(RIGHT, above[1], above[0], is_lost=panel.lost == REPLY_ABOVE) if has_reply else [])]


def _way(x: int, start: int, end: int, is_lost: bool = False) -> list[str]:
    """Return an arrow, or a line that ends in a cross halfway."""
    if is_lost:
        middle = (start + end) // 2
        return [f'<path class="way bad lost" d="M{x} {start}V{middle}"/>', _cross(x, middle)]
    back = -7 if end > start else 7
    return [f'<path class="way good" d="M{x} {start}V{end}M{x - 5} {end + back}L{x} {end}L{x + 5} {end + back}"/>']


def _cross(x: int, y: int) -> str:
    return f'<path class="way bad" d="M{x - 7} {y - 7}L{x + 7} {y + 7}M{x + 7} {y - 7}L{x - 7} {y + 7}"/>'


def _links(panel: Panel) -> list[str]:
    y = sum(NODE) if panel.links_below else NODE[0]
    parts = []
    for x, name in zip((LEFT, RIGHT), panel.links):
        if name:
            parts.append(f'<rect class="pill" x="{x + 8}" y="{y - 10}" width="44" height="20" rx="10"/>')
            parts.append(text(x + 30, y + 4, name, "small middle"))
    return parts


def text(x: int, y: int, words: str, classes: str = "") -> str:
    """Return an element with the words, escaped; empty without words. classes: of STYLE."""
    return f'<text class="{classes}" x="{x}" y="{y}">{html.escape(words)}</text>' if words else ""


if __name__ == "__main__":
    for name, panel in PANELS.items():
        (FOLDER / f"{name}.svg").write_text(svg(panel))
