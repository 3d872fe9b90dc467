# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sends many packets through one twin of a node, and says which of them certainly arrive, and which are certainly lost."""

from __future__ import annotations

import functools
import typing as t

from .._core import fields
from .._platform import process
from .._snapshot.assumption import Assumption
from .._snapshot.open_facts import ADDRESSES, NFT, ROUTES, RULES
from .._snapshot.values import Entry, Snapshot
from .._trace import certainty, changes_backend, culprit, exchange_backend
from .._trace.answer import LOST, Answer, Way
from .._trace.certainty import Exploration
from .._trace.culprit import NoRoute
from .._trace.exchange_backend import Changes
from .._trace.packet import Packet
from .._twin import assumptions, build_backend, snapshot_form, worlds
from .._twin.assumptions import Ends
from .._twin.isolation_backend import Isolated
from .._twin.work_backend import Work
from .suspicion import Miss

ARRIVES, IS_LOST, IS_OPEN = "arrives", "lost", "open"


# A packet, and what tells whether it gets where it must; None for one that must only arrive.
Sent = tuple[Packet, t.Optional[t.Callable[[Way], t.Optional[Miss]]]]


class Fate(t.NamedTuple):
    """What becomes of a packet and of its reply: one of ARRIVES, IS_LOST and IS_OPEN.

    decider: the same text for all packets that one object stops. what, ask: of a fact that is open. is_reply: whether the answer
    alone is lost. is_beyond: whether it leaves the node, and a cloud that checks sources may drop it.
    """

    outcome: str
    decider: str = ""
    what: str = ""
    ask: str = ""
    is_reply: bool = False
    is_beyond: bool = False


def fates(
    snapshot: Entry,
    sent: t.Sequence[Sent],
    assume: t.Mapping[str, t.Any],
    run: process.Runner,
    is_own: bool,
    work: Work,
    changes: Changes = (),
) -> list[Fate]:
    """Return the fate of each packet. A packet with a value of an open fact on its path is open: no worlds are tried.

    assume, changes: as of a Question. is_own: whether the snapshot is of the node on which this runs. Raises DatapathError.
    """
    packets = [packet for packet, _missed in sent]
    if not packets:
        return []
    given = snapshot_form.read(snapshot)
    worlds.check(given)
    facts = (entry.fact for entry in given.open or ())
    for fact in (fact for fact in facts if not worlds.is_known(given, fact.fact)):
        if fact.kind in (RULES, ADDRESSES, NFT, *worlds.SETTINGS) or fact.fact == ROUTES:  # which each packet meets
            return [Fate(IS_OPEN, "", fact.what, fact.ask)] * len(packets)
    if is_own:
        build_backend.refuse_to_load_modules(given)
    settings, accepted = worlds.divided(assume)
    whole, assumed = given, list[Assumption]()
    for ends in {end.family: end for end in map(_ends, packets)}.values():  # what a snapshot lacks, it lacks of a family
        whole, of_family = assumptions.complete(whole, settings, ends)
        assumed += of_family
    with changes_backend.prepared(changes, is_own) as root:
        planned = exchange_backend.plan(whole, packets, changes)
        swept = functools.partial(_swept, run, planned, given, sent, assumed, accepted.keys())
        result = work.run(planned.drawn, len(packets), swept, root)
    return [Fate(*each) for each in result["fates"]]


def _swept(
    run: process.Runner,
    planned: exchange_backend.Plan,
    snapshot: Snapshot,
    sent: t.Sequence[Sent],
    assumed: t.Sequence[Assumption],
    accepted: t.Collection[str],
    isolated: Isolated,
) -> dict[str, t.Any]:
    try:
        exchange = exchange_backend.Exchange(isolated, run, planned, quiet=0)
        fates = []
        depends_on_ends = bool(snapshot.open or worlds.recent_chains(snapshot))
        opened: dict[t.Any, dict[str, worlds.Open]] = {}
        for packet, missed in sent:
            answer = exchange.answer(packet)
            # Without open facts of the snapshot and records of sources, nothing that is open depends on a packet's ends.
            place = packet if depends_on_ends else (packet.family, bool(packet.interface))
            if place not in opened:
                opened[place] = worlds.open_for(snapshot, _ends(packet), {packet.source_port, packet.destination_port})
            whole_answer = answer._replace(assumed=(*assumed, *answer.assumed))
            fates.append(_fate(whole_answer, opened[place], _ends(packet).family, accepted, missed))
        return {"fates": fates}
    finally:
        build_backend.remove_links(isolated, len(snapshot.links))


def _ends(packet: Packet) -> Ends:
    return Ends(fields.show(packet.destination), packet.interface, fields.show(packet.source) if packet.source else "")


def _fate(
    answer: Answer,
    opened: t.Mapping[str, worlds.Open],
    family: str,
    accepted: t.Collection[str],
    missed: t.Callable[[Way], Miss | None] | None,
) -> Fate:
    met = [*certainty.on_path(answer, opened)]
    result = certainty.conclusion(Exploration(answer, {(): answer}, True, met), opened, family, (), accepted)
    lost = next((way for first in answer.every_way for way in first.both if way.verdict in LOST), None)
    miss = next(filter(None, map(missed, answer.every_way)), None) if missed else None
    if met or not (miss or result.certain or answer.branches):
        facts = [
            *((opened[name].fact.what, opened[name].fact.ask) for name in met),
            *((each.what, each.ask) for each in result.depends_on),
        ]
        return Fate(IS_OPEN, "", *(facts or [(result.way.reason, "")])[0])
    if lost and not miss:
        return Fate(IS_LOST, cause(lost, family), is_reply=all(lost is not first for first in answer.every_way))
    if answer.caveats and not miss:
        return Fate(IS_LOST, repr(answer.caveats[0]), is_beyond=True)
    return Fate(IS_LOST, repr(miss)) if miss else Fate(ARRIVES)


def cause(lost: Way, family: str) -> str:
    """Return what packets have in common that one object stops, or that lack a route at one place.

    A firewall may be meant to stop new connections, and not the answers by which neighbours are found.
    """
    decider = lost.culprit.object if lost.culprit else None
    if isinstance(decider, NoRoute):
        return f"{family} {decider.place} {lost.came_in_by if decider.place else ''}"
    near = " before the packet is sent" * lost.met.is_unresolved
    return f"{culprit.identity(decider)!r}{near}" if decider else lost.reason
