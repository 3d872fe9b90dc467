# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing is decided by the words of a sentence: with all of them in other words, an answer says the same."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._render import trace_result
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot.entries import with_kernels_rules
from ansible_collections.kubenode.datapath.plugins.module_utils._trace import answer, entrance, trace_backend

from . import random_nodes

Entry = dict[str, Any]
WORDS = "in other words"
CARD = {"kind": "", "flags": ["UP", "LOWER_UP"]}
LINKS = [
    {**CARD, "name": "eth0", "index": 2, "addresses": [{"address": "10.0.0.4/24"}]},
    {**CARD, "name": "eth1", "index": 3, "addresses": [{"address": "10.0.1.4/24"}]},
]
FROM_POD = {"source": "10.0.1.5", "destination": "198.51.100.9", "destination_port": 80, "interface": "eth1"}
FROM_CLIENT = {"source": "198.51.100.9", "destination": "10.0.1.5", "destination_port": 80, "interface": "eth0"}
DROPPING = "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -d 198.51.100.9/32 -j DROP\nCOMMIT\n"


def node(rp_filter: int | None = 0, forwarding: int = 1, routes: tuple[Entry, ...] = (), **subsets: Any) -> Entry:
    """A snapshot of a node between two networks. rp_filter: of eth0; None if it is open. routes: besides the default route."""
    names = {"all": {"rp_filter": 0}} if rp_filter is not None else {}
    forwards = {"forwarding": forwarding}
    of_eth0 = {**forwards, **({"rp_filter": rp_filter} if names else {})}
    of_links: Entry = {**names, "eth1": {**forwards, "rp_filter": 0}, "eth0": of_eth0}
    default = {"family": "ipv4", "table": "254", "to": "default", "via": "10.0.0.1", "dev": "eth0"}
    neighbors = [
        {"address": address, "dev": dev, "mac": f"02:00:00:00:00:0{number}", "state": "REACHABLE"}
        for number, (address, dev) in enumerate((("10.0.0.1", "eth0"), ("10.0.1.5", "eth1")), 1)
    ]
    settings = {"ipv4": of_links, "node": {"net.ipv4.ip_forward": forwarding}}
    usual = {
        "links": LINKS,
        "routes": [default, *routes],
        "rules": with_kernels_rules([], "ipv4"),
        "settings": settings,
        "neighbors": neighbors,
    }
    return {**usual, **subsets}


def blackhole(table: str) -> Entry:
    return {"family": "ipv4", "table": table, "to": "198.51.100.0/24", "type": "blackhole", "protocol": "boot"}


PROHIBITING = {"priority": 100, "family": "ipv4", "from": "10.0.1.5", "action": "prohibit", "protocol": "boot"}
BACK = {"family": "ipv4", "table": "254", "to": "198.51.100.0/24", "dev": "eth1"}
SAVED: Entry = {"iptables": [{"family": "ip", "backend": "nft", "table": "filter", "save": DROPPING}]}
CASES: dict[str, tuple[Entry, Entry, str, int]] = {  # with the verdict, and how many remedies there are
    "a rule of a chain": (node(**SAVED), FROM_POD, "dropped", 1),
    "the policy of a chain": (
        node(iptables=[{**SAVED["iptables"][0], "save": "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"}]),
        *(FROM_POD, "dropped", 1),
    ),
    "the filter of reverse paths": (node(rp_filter=1, routes=(BACK,)), FROM_CLIENT, "dropped", 1),
    "an open filter": (node(rp_filter=None, routes=(BACK,)), FROM_CLIENT, "unknown", 0),
    "forwarding": (node(forwarding=0), FROM_POD, "dropped", 1),
    "a route": (
        node(routes=(blackhole("254"), {**BACK, "to": "198.51.0.0/16", "via": "10.0.0.1", "dev": "eth0"})),
        *(FROM_POD, "dropped", 1),
    ),
    "a policy rule": (
        node(rules=with_kernels_rules([PROHIBITING], "ipv4")),
        *(FROM_POD, "rejected", 1),
    ),
    "a neighbour": (
        node(neighbors=[{"address": "10.0.0.1", "dev": "eth0", "mac": "", "state": "FAILED"}]),
        *(FROM_POD, "dropped", 0),
    ),
    "a link": (node(links=[{**LINKS[0], "flags": []}, LINKS[1]]), FROM_POD, "dropped", 0),
    "no route": ({**node(), "routes": []}, FROM_POD, "rejected", 0),
    "nothing": (node(), FROM_POD, "forwarded", 0),
}


def reword(patched: pytest.MonkeyPatch) -> None:
    """Replace each text of the values of an answer that says something to people, wherever they are made or changed."""
    for kind, texts in (
        (answer.Way, ["reason"]),
        (answer.Culprit, ["text"]),
        (answer.Caveat, ["sentence"]),
        (answer.Dependency, ["what"]),
        (answer.Outcome, ["clause"]),
    ):
        places = [kind._fields.index(name) for name in texts]

        def made(cls: Any, *values: Any, places: list[int] = places, **named: Any) -> Any:
            fields = {**cls._field_defaults, **dict(zip(cls._fields, values)), **named}
            given = [fields[name] for name in cls._fields]
            return tuple.__new__(cls, [WORDS if number in places else value for number, value in enumerate(given)])

        patched.setattr(kind, "__new__", made)
        patched.setattr(kind, "_make", classmethod(lambda cls, values, made=made: made(cls, *values)))


def asked(snapshot: Entry, described: Entry) -> answer.Answer:
    sent = entrance.packet({"protocol": "tcp", **described}, snapshot)
    return trace_backend.answer(trace_backend.Question(snapshot, sent, {}), random_nodes.run)


def decided(found: answer.Answer) -> list[Any]:
    """All that is decided, as it is in the twin and as who prints it reads it."""
    printed = trace_result.read(found.plain())
    return [
        *((way.verdict, way.reply_verdict, way.interface) for way in found.every_way),
        *((culprit.kind, culprit.object, culprit.step) for culprit in [found.way.culprit] if culprit),
        *(found.certain, [(cure.kind, cure.change, cure.certain, cure.verdicts) for cure in found.cures]),
        [(fact.fact, fact.ask, [outcome.verdicts for outcome in fact.outcomes]) for fact in found.depends_on],
        *([step.is_culprit for step in way.steps] for way in printed.way.both),
        *(len(way.reasons) for way in printed.way.both),
        *(way.missed_culprit is not None for way in printed.way.both),
    ]


@pytest.mark.parametrize("name", CASES)
def test_in_other_words_an_answer_says_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, described, verdict, remedies = CASES[name]
    found = asked(snapshot, described)
    assert (found.way.worst, len(found.cures)) == (verdict, remedies), found.plain()
    reword(monkeypatch)
    reworded = asked(snapshot, described)
    assert {way.reason for way in reworded.way.both} == {WORDS}
    assert decided(reworded) == decided(found)
