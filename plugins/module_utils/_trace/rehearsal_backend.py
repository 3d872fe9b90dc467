# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes in the node's twin before they are made on the node: which packets arrive before, and not afterwards."""

from __future__ import annotations

import ipaddress
import typing as t

from .._cni.foreign_marks import ForeignMark
from .._core import fields
from .._core.errors import Invalid, Refusal
from .._platform.process import Runner
from .._platform.processes import SshConnection
from .._routing.policy import PROTOCOL
from .._snapshot import values
from .._snapshot.values import Entry
from . import changes_backend, entrance, packet, trace_backend
from .answer import DELIVERED, FORWARDED, UNKNOWN, Answer, Way
from .changes_backend import Change
from .packet import Packet

CONTROLLER = "the controller's SSH connection"
MARKED_PORT = 51820  # of packets with marks of other programs, as those of WireGuard
MOST_MARKS = 8  # each needs a twin
UNREHEARSED = "What becomes of {what} cannot be rehearsed: {reason}"


class Trial(t.NamedTuple):
    """A packet that must not be lost by the changes.

    what: its name in messages. keeps_link: its reply must also leave by the same link as before, because a cloud drops it
    otherwise. keeps_path: packet and reply must leave by the same uplink as before and from the same source, unless the new one
    is that of the source or of the request. is_asked: by the user or for the controller, who read what becomes of it.
    """

    what: str
    packet: Packet
    keeps_link: bool = False
    keeps_path: bool = False
    is_asked: bool = True


class Rehearsal(t.NamedTuple):
    """before, after: what becomes of the packet without and with the changes. loss: why the changes lose the packet."""

    trial: Trial
    before: Way
    after: Answer
    loss: str

    def report(self) -> dict[str, t.Any]:
        ways = {"before": self.before, "after": self.after.way}
        shown = {name: {"verdict": way.verdict, "reason": way.reason} for name, way in ways.items()}
        return {"what": self.trial.what, "packet": str(self.trial.packet), **shown}


def of_connection(connection: SshConnection, snapshot: Entry) -> Trial | None:
    """Return a new connection like the controller's; None if the snapshot does not show by which link it comes in."""
    (source, zone), (destination, own_zone) = (host.partition("%")[::2] for host in (connection.client, connection.server))
    sent = packet.from_options(
        {
            **{"source": source, "source_port": connection.client_port},
            **{"destination": destination, "destination_port": connection.server_port},
            "interface": zone or own_zone or packet.AUTO,
        }
    )
    try:
        return Trial(CONTROLLER, entrance.placed(sent, snapshot, is_guess=True), keeps_link=True)
    except Invalid:
        return None


def of_marks(snapshot: Entry, changes: t.Iterable[Change], marks: t.Iterable[ForeignMark]) -> list[Trial]:
    """Return a packet of the node for each mark by which other programs route, to a destination that the rule's table has.

    changes: whose own rules are no other program's. marks: further ones, of links.
    """
    calls = (change for change in changes if isinstance(change, changes_backend.Call) and change.name == "policy_routes")
    own = {str(call.options.get("protocol") or PROTOCOL) for call in calls}
    destinations: dict[tuple[int, str], tuple[str, str]] = {}
    for rule in (rule for rule in values.rules(snapshot) if rule.protocol not in own):
        mark = int(rule.fwmark.partition("/")[0] or "0", 0)
        if mark:
            destination = _destination(snapshot, rule.family, rule.table)
            destinations.setdefault((mark, rule.family), (destination, f"the policy rule {rule.priority}"))
    for other in marks:
        destinations.setdefault((other.value, "ipv4"), (packet.OUTSIDE["ipv4"], other.owner))
    trials = []
    for (mark, _family), (destination, owner) in [*destinations.items()][:MOST_MARKS]:
        sent = {"destination": destination, "protocol": "udp", "destination_port": MARKED_PORT, "mark": hex(mark)}
        what = f"a packet of the node with {mark:#x}, the mark of {owner},"
        trials.append(Trial(what, packet.from_options(sent), keeps_path=True, is_asked=False))
    return trials


def _destination(snapshot: Entry, family: str, table: str) -> str:
    """Return an address that a table has a route to; one outside of the node's networks if it has a default route, or none."""
    of_table = (route for route in values.routes(snapshot) if (route.table, route.family) == (table, family))
    routes = [route.to for route in of_table if route.type in ("", "unicast")]
    if not routes or "default" in routes:
        return packet.OUTSIDE[family]
    network = ipaddress.ip_network(routes[0], strict=False)
    return str(network[1 if network.num_addresses > 1 else 0])


def rehearse(snapshot: Entry, changes: tuple[Change, ...], trials: t.Iterable[Trial], run: Runner) -> list[Rehearsal]:
    """Send each packet through a twin of the snapshot, before and after the changes. Raises DatapathError."""
    rehearsals = []
    for trial in trials:
        question = trace_backend.Question(snapshot, trial.packet, {}, changes, is_own=True)
        try:
            after = trace_backend.answer(question, run)
        except Invalid as error:
            raise error.renamed(error.option.removeprefix("changes.")) from None  # as the modules themselves name it
        if after.before:
            rehearsals.append(compare(trial, after.before, after))
    return rehearsals


def compare(trial: Trial, before: Way, after: Answer) -> Rehearsal:
    return Rehearsal(trial, before, after, _loss(trial, before, after))


def _loss(trial: Trial, before: Way, after: Answer) -> str:
    if not before.is_well() or after.is_unknown:
        return ""
    if not after.way.is_well():
        return after.way.reason
    for name, old, new in zip(("The packet", "Its reply"), before.both, after.way.both):
        is_elsewhere = (old.verdict, old.interface) != (new.verdict, new.interface)
        if old.verdict == DELIVERED and is_elsewhere and not after.branches:  # by chance it may be delivered elsewhere
            return f"{name} is delivered {_place(old)} without them. With them: {new.reason}"
    if trial.keeps_path and not after.branches:
        pairs = zip(("The packet", "Its reply"), before.both, after.way.both)
        moved = [_moved(name, old, new, trial.packet.interface) for name, old, new in pairs]
        if any(moved):
            return next(filter(None, moved))
    links = [way.reply.interface if way.reply else "" for way in (before, after.way)]
    if trial.keeps_link and links[0] != links[1]:
        return f"The node's answer leaves by {links[1]} instead of {links[0]}"
    return ""


def _moved(name: str, old: Way, new: Way, came_in_by: str) -> str:
    """Return what changed of the uplink and the source; empty if nothing did, or if the packet now leaves where it belongs."""
    sources = [fields.show(way.met.frame.packet.source) if way.met.frame else "" for way in (old, new)]
    is_same = (old.interface, sources[0]) == (new.interface, sources[1])
    belongs = new.interface in (came_in_by, new.met.origin) and sources[0] == sources[1]
    if not old.verdict == new.verdict == FORWARDED or is_same or belongs:
        return ""
    return f"{name} leaves by {new.interface} from {sources[1]} instead of by {old.interface} from {sources[0]}"


def _place(delivery: Way) -> str:
    return f"at {delivery.interface}" if delivery.interface else "to the node itself"


def warnings(rehearsals: t.Iterable[Rehearsal]) -> t.Iterator[str]:
    """Yield sentences about packets whose verdict is unknown, or that are lost without the changes too."""
    for trial, before, after, _loss in (rehearsal for rehearsal in rehearsals if rehearsal.trial.is_asked):
        unknown = next((way for way in (before, after.way) if UNKNOWN in (way.verdict, way.reply_verdict)), None)
        if unknown:
            yield UNREHEARSED.format(what=trial.what, reason=unknown.reason)
        elif not before.is_well():
            outcome = "It arrives with them." if after.way.is_well() else f"With them, too: {after.way.reason}"
            yield f"Without the changes, {trial.what} does not arrive: {before.reason} {outcome}"


def refuse_losses(rehearsals: t.Iterable[Rehearsal]) -> None:
    """Raise Refusal if a packet is lost by the changes."""
    lost = [
        f"{rehearsal.trial.what} ({rehearsal.trial.packet}): {rehearsal.loss.rstrip('.')}"
        for rehearsal in rehearsals
        if rehearsal.loss
    ]
    if lost:
        raise Refusal(
            f"in the node's twin the changes lose packets that arrive without them. {'. '.join(lost)}. Nothing was changed."
            " Change the options, or ask datapath_trace with the same packet and changes for each step of the packet's way"
        )
