# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The kernel's policy rules, routes and neighbours, through rtnetlink.

Reading needs neither pyroute2 nor a process (_model/attributes.py says why). What changes something is encoded by
pyroute2 and sent in chunks over a socket of our own: the batches of pyroute2 0.9 leave an acknowledgement behind, which
the next dump on the same socket takes for its end. Its calls by keyword are not used either: they fill in a priority, a
scope and flags that differ from version to version.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import typing as t

from .._model import fields, rt_names
from .._model import neighbour as neighbours
from .._model import route as routes
from .._model import rule as rules
from .._model.attributes import attributes
from .._model.fields import ANY, IPV4, IPV6
from .._model.neighbour import Neighbour
from .._model.problem import Failure, Left
from .._model.route import Hop, Route
from .._model.rule import Rule
from . import library

Held = tuple[t.Any, int]  # a rule or a route, and its protocol
Opener = t.Callable[[], socket.socket]

# include/uapi/linux/netlink.h, rtnetlink.h
REQUEST, ACK, DUMP, REPLACE, EXCL, CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
DUMP_INTERRUPTED, ACK_CAPPED, ACK_ATTRIBUTES = 0x10, 0x100, 0x200
ERROR, DONE = 2, 3
NEWROUTE, DELROUTE, GETROUTE, NEWRULE, DELRULE, GETRULE = 24, 25, 26, 32, 33, 34
GETLINK, GETADDR, NEWNEIGH, DELNEIGH, GETNEIGH = 18, 22, 28, 29, 30
LISTED = {GETRULE: "rules", GETROUTE: "routes", GETLINK: "links", GETADDR: "addresses", GETNEIGH: "neighbours"}
SOL_NETLINK, CAP_ACK, EXT_ACK = 270, 10, 11
MESSAGE_TEXT = 1  # NLMSGERR_ATTR_MSG
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
CHUNK = (
    128  # messages; the answers to all of them, were all refused, fit a socket's usual buffer (net.core.rmem_default)
)
TRIES = 20  # dumps in a row that another program's changes may spoil
TIMEOUT = 30.0  # seconds; the kernel answers at once, but the insert takes longer with each rule that is there
BUFFER = 1 << 20  # bytes

MODULES = ("netlink.rtnl.fibmsg", "netlink.rtnl.rtmsg", "netlink.rtnl.ndmsg")  # of pyroute2

ADD, DELETE, CHANGE = "add", "delete", "change"
GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


class Change(t.NamedTuple):
    """One message. former: with CHANGE, the route of ours that ``item`` takes the place of."""

    verb: str
    item: t.Any
    former: t.Any = None

    def inverse(self) -> Change:
        if self.verb == CHANGE:
            return Change(CHANGE, self.former, self.item)
        return Change(DELETE if self.verb == ADD else ADD, self.item)


class Apply(t.NamedTuple):
    """All of ``changes``, in order, to what carries ``protocol``; or none of them. Neighbours carry none."""

    protocol: int
    changes: tuple[Change, ...]

    def inverse(self) -> Restore:
        return Restore(self.protocol, tuple(change.inverse() for change in reversed(self.changes)))


class Restore(t.NamedTuple):
    """As many of ``changes`` as are still to be made; one that can not be made does not keep the others back."""

    protocol: int
    changes: tuple[Change, ...]


Operation = t.Union[Apply, Restore]


class Refused(t.NamedTuple):
    """What the kernel answered to a message."""

    code: int
    text: str


class Netlink:
    """The edge."""

    def rules(self) -> list[Held]:
        """Rules of both families in the kernel's order. Those that can not be understood are left out."""
        return rules.from_messages(body for family in (IPV4, IPV6) for body in dump(GETRULE, family))

    def routes(self) -> list[Held]:
        """Routes of both families and all tables. Those that can not be understood are left out."""
        names = self.links()
        bodies = [body for family in (IPV4, IPV6) for body in dump(GETROUTE, family)]
        return list(filter(None, (routes.from_message(body, names) for body in bodies)))

    def neighbours(self) -> list[Neighbour]:
        """Neighbours of both families, those that the kernel made up for multicast and the like left out."""
        names = self.links()
        bodies = [body for family in (IPV4, IPV6) for body in dump(GETNEIGH, family)]
        return list(filter(None, (neighbours.from_message(body, names) for body in bodies)))

    def links(self) -> dict[int, str]:
        """Links' names by index."""
        return dict(socket.if_nameindex())

    def perform(self, operation: Operation) -> None:
        """Raises Failure that names what was refused, and Missing where there is no pyroute2."""
        encode = _Encoder(operation.protocol, {name: index for index, name in self.links().items()})
        if isinstance(operation, Apply):
            self._apply(encode, operation)
            return
        changes, left = _without_strangers(operation, self._holders(operation))
        troubles = _insist(encode, self._exact(operation._replace(changes=changes)))
        if troubles:
            raise Failure("; ".join([*troubles, *left]))
        if left:
            raise Left("; ".join(left))

    def _holders(self, operation: Restore) -> dict[t.Any, Held]:
        """The first route at each key, which is the one that the kernel replaces; looked at where a route is to come."""
        if not any(isinstance(change.item, Route) and change.verb != DELETE for change in operation.changes):
            return {}
        return {held[0].key: held for held in reversed(self.routes())}

    def _apply(self, encode: _Encoder, operation: Apply) -> None:
        changes = self._exact(operation)
        sent: list[Change] = []
        try:
            for start in range(0, len(changes), CHUNK):
                chunk = changes[start : start + CHUNK]
                before = len(sent)
                sent += chunk  # an interrupt finds them on the list whether they arrived or not
                refused = _exchange(encode, chunk)
                sent[before:] = [change for number, change in enumerate(chunk) if number not in refused]
                for number, answer in refused.items():
                    if not _is_done(chunk[number], answer):
                        raise Failure(_complaint(chunk[number], answer))
        except BaseException as error:
            try:
                self.perform(operation._replace(changes=tuple(sent)).inverse())
            except (Failure, Left) as trouble:
                raise Failure(f"{error}. It could not be undone: {trouble}") from error
            raise

    def _exact(self, operation: Operation) -> t.Sequence[Change]:
        """The changes in messages that the kernel can not misunderstand; for rules that takes a look at those we have."""
        if not any(isinstance(change.item, Rule) for change in operation.changes):
            return operation.changes
        return _exact([rule for rule, protocol in self.rules() if protocol == operation.protocol], operation.changes)


def _without_strangers(operation: Restore, holders: t.Mapping[t.Any, Held]) -> tuple[tuple[Change, ...], list[str]]:
    """The changes, without the routes whose key another program has taken, which are said; what has gone is added."""
    changes, left = [], []
    for change in operation.changes:
        if change.verb == DELETE or not isinstance(change.item, Route):
            changes.append(change)
            continue
        route, owner = holders.get(change.item.key, (None, operation.protocol))
        if owner != operation.protocol:
            left.append(f"{route} ({rt_names.owner([owner])}), so that {change.item} did not come back")
        else:
            changes.append(Change(ADD, change.item) if route is None else change)
    return tuple(changes), left


def _exact(order: t.Sequence[Rule], changes: t.Sequence[Change]) -> list[Change]:
    """Messages that add what is not there and delete what they mean.

    Told to add a rule and no other like it (NLM_F_EXCL), the kernel refuses one where a rule that names more is there
    (fib4_rule_compare), and told nothing of the kind, it adds it twice: what is there already is left out here.

    The kernel deletes the first rule that has all that the message names, so one that names less may hit another of ours
    that names more, does the same and is to stay. There, all of ours at that priority step behind, the first one first:
    deleting the first is never misunderstood, and what it does is meanwhile done by the one that goes.

    order: our rules as they stand.
    """
    crowded = _crowded([*order, *(change.item for change in changes)])
    near: dict[tuple[int, int], list[Rule]] = {place: [] for place in crowded}
    for rule in order:
        if rule.place in near:
            near[rule.place].append(rule)
    messages: list[Change] = []
    there = set(order)
    for change in changes:
        if (change.item in there) == (change.verb == ADD):
            continue
        there ^= {change.item}
        rules = near.get(change.item.place)
        messages += [change] if rules is None else _exactly(change, rules)
    return messages


def _crowded(rules: t.Sequence[Rule]) -> set[tuple[int, int]]:
    """Where rules of one priority name different fields; elsewhere none can be taken for another."""
    shapes: dict[tuple[int, int], tuple[bool, ...]] = {}
    return {rule.place for rule in rules if shapes.setdefault(rule.place, rule.shape) != rule.shape}


def _exactly(change: Change, rules: list[Rule]) -> list[Change]:
    """The messages for one change; ``rules``, ours at its priority, is kept up to date."""
    rule = change.item
    if change.verb == ADD:
        rules.append(rule)
        return [change]
    messages = [change]
    if any(rule.catches(other) for other in rules[: rules.index(rule)]):
        stepping = [[Change(DELETE, other), Change(ADD, other)] if other != rule else [change] for other in rules]
        messages = [message for one in stepping for message in one]
    rules.remove(rule)
    return messages


def _insist(encode: _Encoder, changes: t.Sequence[Change]) -> list[str]:
    """Makes all that can be made, and returns what could not. A key that is taken is taken by what shall be, or another's."""
    return [
        _complaint(chunk[number], answer)
        for chunk in (changes[start : start + CHUNK] for start in range(0, len(changes), CHUNK))
        for number, answer in _exchange(encode, chunk).items()
        if not _is_done(chunk[number], answer) and answer.code != errno.EEXIST
    ]


def _is_done(change: Change, answer: Refused) -> bool:
    """What is to go may have gone: with its link, or by a program that deletes without naming a protocol."""
    return change.verb == DELETE and answer.code in GONE


def _complaint(change: Change, answer: Refused) -> str:
    said = os.strerror(answer.code) + (f" ({answer.text.rstrip('.')})" if answer.text else "")
    hint = ""
    if answer.code == errno.EEXIST:
        hint = ". Another program has put one with the same key there meanwhile; run again to be told which"
    elif answer.code == errno.ENETUNREACH or "gateway" in answer.text:
        hint = ". The gateway must be a neighbour on the link, or onlink be true"
    elif answer.code == errno.ENETDOWN:
        hint = ". Set the link up first"
    elif answer.code == errno.EINVAL and not answer.text:
        hint = ". Is an address in src one of this node's"
    return f"{change.verb} {change.item} was refused by the kernel: {said}{hint}"


def open_socket() -> socket.socket:
    """A routing socket of the network namespace that the caller is in."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)


@contextlib.contextmanager
def _socket(opener: Opener = open_socket) -> t.Iterator[socket.socket]:
    with opener() as netlink:
        netlink.settimeout(TIMEOUT)
        for option in (CAP_ACK, EXT_ACK):
            netlink.setsockopt(SOL_NETLINK, option, 1)
        try:
            yield netlink
        except OSError as error:
            raise Failure(f"netlink: {error}") from error


def dump(kind: int, family: int, opener: Opener = open_socket) -> list[bytes]:
    """The bodies of all messages of a kind (GETRULE and its like).

    One family at a time: dumped together they are incomplete (kernel commit c454673da7c1).
    opener: opens the socket, in another network namespace where that one is to be read.
    """
    for _try in range(TRIES):
        with _socket(opener) as netlink:
            # The header of a rule, a route and a neighbour is twelve bytes long and begins with the family. Of a link and
            # an address, whose headers differ, the kernel reads the family alone.
            netlink.send(HEADER.pack(HEADER.size + 12, kind, REQUEST | DUMP, 1, 0) + bytes([family]) + bytes(11))
            bodies = _collect(netlink, family)
            if bodies is not None:
                return bodies
    raise Failure(
        f"the {LISTED[kind]} of this node changed each of {TRIES} times they were read; run again when it is quieter"
    )


def _collect(netlink: socket.socket, family: int) -> list[bytes] | None:
    """None where something was changed while the kernel told us."""
    bodies: list[bytes] = []
    is_whole = True
    while True:
        for kind, flags, _sequence, body in _messages(netlink.recv(BUFFER)):
            is_whole = is_whole and not flags & DUMP_INTERRUPTED
            if kind == DONE:
                return bodies if is_whole else None
            if kind == ERROR:
                code = -struct.unpack_from("=i", body)[0]
                if code in (errno.EAFNOSUPPORT, errno.EOPNOTSUPP):  # a kernel without IPv6, or without policy rules
                    return []
                raise Failure(f"netlink refused to list: {os.strerror(code)}")
            if body[0] == family:  # without IPv6 the kernel answers for the family that it knows
                bodies.append(body)


def _messages(data: bytes) -> t.Iterator[tuple[int, int, int, bytes]]:
    offset, end = 0, len(data)
    while offset < end:
        length, kind, flags, sequence, _port = HEADER.unpack_from(data, offset)
        yield kind, flags, sequence, data[offset + HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _exchange(encode: _Encoder, changes: t.Sequence[Change]) -> dict[int, Refused]:
    """Sends all in one go and returns what was refused, by position."""
    messages, refused = [], {}
    for number, change in enumerate(changes):
        try:
            messages.append(encode.message(change, number))
        except KeyError as error:
            refused[number] = Refused(errno.ENODEV, f"there is no link {error.args[0]}")
    return {**refused, **exchange(messages)}


def exchange(messages: list[bytes]) -> dict[int, Refused]:
    """Sends messages in one go and returns what was refused, by sequence number.

    The kernel goes through them one by one, whether it refuses one or not, and answers each that it refuses; of the others
    only the last asks for an answer.
    """
    if not messages:
        return {}
    refused = {}
    length, kind, flags, last, port = HEADER.unpack_from(messages[-1])
    messages[-1] = HEADER.pack(length, kind, flags | ACK, last, port) + messages[-1][HEADER.size :]
    with _socket() as netlink:
        netlink.send(b"".join(messages))
        while True:
            for kind, flags, number, body in _messages(netlink.recv(BUFFER)):
                if kind == ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    if code:
                        refused[number] = Refused(code, _said(flags, body))
                    if number == last:
                        return refused


def _said(flags: int, body: bytes) -> str:
    """The kernel's own words: after the code comes the header of what we sent, and then attributes."""
    if not (flags & ACK_ATTRIBUTES and flags & ACK_CAPPED):
        return ""
    return attributes(body, 4 + HEADER.size).get(MESSAGE_TEXT, b"").rstrip(b"\0").decode(errors="replace")


class _Encoder:
    """Messages by pyroute2. links: indexes by name."""

    def __init__(self, protocol: int, links: t.Mapping[str, int]) -> None:
        rule_module, route_module, neighbour_module = library.load(library.PYROUTE2, *MODULES)
        self._new_rule, self._new_route = rule_module.fibmsg, route_module.rtmsg
        self._new_neighbour = neighbour_module.ndmsg
        self._protocol = protocol
        self._links = links
        # How it is encoded, the types of message, and what adding takes.
        self._kinds: dict[type, tuple[t.Callable[[t.Any], t.Any], int, int, int]] = {
            Rule: (self._rule, NEWRULE, DELRULE, CREATE),  # see _exact
            Route: (self._route, NEWROUTE, DELROUTE, CREATE | EXCL),
            Neighbour: (self._neighbour, NEWNEIGH, DELNEIGH, CREATE | EXCL),
        }

    def message(self, change: Change, number: int) -> bytes:
        """Raises KeyError with the name of a link that is not there."""
        encode, new, gone, adding = self._kinds[type(change.item)]
        message = encode(change.item)
        header = message["header"]
        header["type"] = gone if change.verb == DELETE else new
        header["flags"] = REQUEST | {ADD: adding, DELETE: 0, CHANGE: REPLACE}[change.verb]
        header["sequence_number"] = number
        message.encode()
        return bytes(message.data)

    def _rule(self, rule: Rule) -> t.Any:
        message = self._new_rule()
        message["family"] = rule.family
        message["src_len"], message["dst_len"] = rule.src[1], rule.dst[1]
        message["tos"], message["action"] = rule.tos, rule.action
        message["flags"] = rules.INVERT if rule.invert else 0
        uids, sport, dport = (":".join(map(str, span)) for span in (rule.uidrange, rule.sport, rule.dport))
        optional = (
            ("FRA_SRC", _shown(rule.src)),
            ("FRA_DST", _shown(rule.dst)),
            ("FRA_IIFNAME", rule.iif),
            ("FRA_OIFNAME", rule.oif),
            ("FRA_L3MDEV", int(rule.l3mdev)),
            ("FRA_UID_RANGE", uids),
            ("FRA_IP_PROTO", rule.ipproto),
            ("FRA_SPORT_RANGE", sport),
            ("FRA_DPORT_RANGE", dport),
            ("FRA_TABLE", rule.table),
            ("FRA_GOTO", rule.goto),
        )
        values = [["FRA_PRIORITY", rule.priority], ["FRA_PROTOCOL", self._protocol]]
        values += [[name, value] for name, value in optional if value]
        if rule.fwmask:
            values += [["FRA_FWMARK", rule.fwmark], ["FRA_FWMASK", rule.fwmask]]
        if rule.suppress_prefixlength != rules.UNSET:
            values.append(["FRA_SUPPRESS_PREFIXLEN", rule.suppress_prefixlength])
        message["attrs"] = values
        return message

    def _route(self, route: Route) -> t.Any:
        message = self._new_route()
        message["family"], message["dst_len"], message["scope"] = route.family, route.dst[1], route.scope
        message["type"], message["proto"] = route.type, self._protocol
        message["table"] = route.table if route.table < 256 else 0
        values: list[list[t.Any]] = [["RTA_TABLE", route.table]]
        optional = (
            ("RTA_DST", _shown(route.dst)),
            ("RTA_PRIORITY", route.metric),
            ("RTA_PREFSRC", fields.show(route.src) if route.src else ""),
        )
        values += [[name, value] for name, value in optional if value]
        if route.mtu:
            values.append(["RTA_METRICS", {"attrs": [["RTAX_MTU", route.mtu]]}])
        if len(route.hops) == 1:
            (hop,) = route.hops
            message["flags"] = _flags(hop)
            values.append(["RTA_OIF", self._links[hop.dev]])
            values += _gateway(hop)
        elif route.hops:
            values.append(["RTA_MULTIPATH", [self._hop(hop) for hop in route.hops]])
        message["attrs"] = values
        return message

    def _neighbour(self, neighbour: Neighbour) -> t.Any:
        message = self._new_neighbour()
        message["family"], message["state"] = neighbour.family, neighbour.state
        message["ifindex"] = self._links[neighbour.link]
        message["attrs"] = [["NDA_DST", neighbour.address]]
        if neighbour.mac:
            message["attrs"].append(["NDA_LLADDR", neighbour.mac])
        return message

    def _hop(self, hop: Hop) -> dict[str, t.Any]:
        return {"oif": self._links[hop.dev], "flags": _flags(hop), "hops": hop.weight - 1, "attrs": _gateway(hop)}


def _flags(hop: Hop) -> int:
    return routes.RTNH_F_ONLINK if hop.onlink else 0


def _gateway(hop: Hop) -> list[list[t.Any]]:
    return [["RTA_GATEWAY", fields.show(hop.via)]] if hop.via else []


def _shown(prefix: fields.Prefix) -> str:
    return fields.show(prefix[0]) if prefix != ANY else ""
