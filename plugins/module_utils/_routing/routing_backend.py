# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads and changes the kernel's policy rules, routes and neighbours, through rtnetlink.

Reading needs neither pyroute2 nor a process (_netlink/attributes.py gives the reason). Messages that change something are encoded
by pyroute2 and sent in chunks over a socket of our own: the batches of pyroute2 0.9 leave an acknowledgement behind, which the
next dump on the same socket takes for its end. The keyword calls of pyroute2 are not used either: they fill in a priority, a
scope and flags that differ between versions.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import typing as t

from .._core import fields
from .._core.errors import Failure, ForeignChange
from .._core.fields import ANY, IPV4, IPV6
from .._core.plan import UndoBackend
from .._netlink import attributes, wire
from .._netlink.wire import Refused
from .._platform import library
from . import known_programs, rule_order
from . import neighbour as neighbours
from . import route as routes
from . import rule as rules
from .neighbour import Neighbour
from .route import Hop, Route
from .rule import Rule
from .rule_order import Order

Owned = tuple[t.Any, int]  # a rule or a route, and its protocol

# include/uapi/linux/netlink.h, rtnetlink.h
REPLACE, EXCL, CREATE = 0x100, 0x200, 0x400
NEWROUTE, DELROUTE, GETROUTE, NEWRULE, DELRULE, GETRULE = 24, 25, 26, 32, 33, 34
GETNEXTHOP = 106  # Linux 5.3 and newer
GETLINK, GETADDR, NEWNEIGH, DELNEIGH, GETNEIGH = 18, 22, 28, 29, 30
LISTED = {GETRULE: "rules", GETROUTE: "routes", GETLINK: "links", GETADDR: "addresses", GETNEIGH: "neighbours"}
CHUNK = 128  # messages; if all are refused, the answers still fit a socket's default buffer (net.core.rmem_default)

# The route metrics that are numbers.
METRICS = (
    "RTAX_LOCK", "RTAX_MTU", "RTAX_WINDOW", "RTAX_RTT", "RTAX_RTTVAR", "RTAX_SSTHRESH", "RTAX_CWND", "RTAX_ADVMSS",
    "RTAX_REORDERING", "RTAX_HOPLIMIT", "RTAX_INITCWND", "RTAX_FEATURES", "RTAX_RTO_MIN", "RTAX_INITRWND", "RTAX_QUICKACK",
)  # fmt: skip
ADD, DELETE, CHANGE = "add", "delete", "change"
GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


class Change(t.NamedTuple):
    """One message to the kernel. former: with CHANGE, the own route that ``item`` replaces."""

    verb: str
    item: t.Any
    former: t.Any = None

    def inverse(self) -> Change:
        if self.verb == CHANGE:
            return Change(CHANGE, self.former, self.item)
        return Change(DELETE if self.verb == ADD else ADD, self.item)


class Apply(t.NamedTuple):
    """Makes all of ``changes``, in order, or none. protocol: that of the routes; neighbours have none."""

    protocol: int
    changes: tuple[Change, ...]

    @property
    def needs(self) -> str:
        return library.PYROUTE2

    def inverse(self) -> Restore:
        return Restore(self.protocol, tuple(change.inverse() for change in reversed(self.changes)))


class Restore(t.NamedTuple):
    """Makes those of ``changes`` that are still needed. If one fails, the others are made all the same."""

    protocol: int
    changes: tuple[Change, ...]

    @property
    def needs(self) -> str:
        return library.PYROUTE2


class Arrange(t.NamedTuple):
    """Changes the rules with ``protocol`` as ``orders`` say, or changes none."""

    protocol: int
    orders: tuple[Order, ...]

    @property
    def needs(self) -> str:
        return library.PYROUTE2

    def inverse(self) -> Rearrange:
        return Rearrange(self.protocol, tuple(order.inverse() for order in self.orders))


class Rearrange(t.NamedTuple):
    """Undoes an Arrange: changes the rules with ``protocol`` as ``orders`` say, and keeps later changes of other programs.

    A rule that is on both sides of an order, and that another program has removed since, is not added again.
    """

    protocol: int
    orders: tuple[Order, ...]

    @property
    def needs(self) -> str:
        return library.PYROUTE2


Operation = t.Union[Apply, Restore, Arrange, Rearrange]
Sender = t.Callable[[t.Sequence[Change]], t.Mapping[int, "Refused"]]  # returns the refusals, by position


class Netlink(UndoBackend):
    """The backend: rtnetlink in the network namespace of this process."""

    OPERATIONS = t.get_args(Operation)
    VALUES = (Change, Order, Rule, Route, Hop, Neighbour)

    def rules(self) -> list[Owned]:
        """Return the rules of both families in the kernel's order."""
        return listed_rules()

    def routes(self) -> list[Owned]:
        """Return the routes of both families and all tables.

        Of several at one key, the first is the one that the kernel would replace.
        """
        return listed_routes(self.links())

    def neighbours(self) -> list[Neighbour]:
        """Return the neighbours of both families, without those that the kernel creates itself, as for multicast."""
        return listed_neighbours(self.links())

    def links(self) -> dict[int, str]:
        """Return link names by index."""
        return dict(socket.if_nameindex())

    def perform(self, operation: Operation) -> None:
        """Raise Failure, which names the refused change, and MissingLibrary if there is no pyroute2."""
        send = self.sender(operation.protocol)
        if isinstance(operation, Apply):
            self._refuse_foreign(operation)
            self._do(send, operation.changes, lambda sent: Apply(operation.protocol, sent).inverse())
        elif isinstance(operation, Arrange):
            self._do(send, self._arranging(operation), lambda sent: operation.inverse())
        elif isinstance(operation, Rearrange):
            troubles = _insist(send, self._arranging(operation)) or self._overtaken(operation)
            if troubles:
                raise Failure("; ".join(troubles))
        else:
            self._restore_own(send, operation)

    def sender(self, protocol: int) -> Sender:
        """Return a function that sends changes, of rules and routes with this protocol."""
        encode = _Encoder(protocol, {name: index for index, name in self.links().items()})
        return lambda changes: _exchange(encode, changes)

    def verify(self, operation: Operation) -> list[str]:
        """Read anew and describe what a Restore or Rearrange has not restored. A key that is foreign by now does not count."""
        if isinstance(operation, (Apply, Restore)):
            return self._differences(operation)
        current = self.rules()
        own_rules = [rule for rule, protocol in current if protocol == operation.protocol]
        orders = _still_meant(operation, own_rules)
        messages = rule_order.messages(own_rules, orders)
        differences = [f"{rule} is not where it was" for rule in messages.added]
        differences += [f"{rule} is still there" for rule in messages.deleted if rule not in messages.added]
        return differences or self._overtaken(operation)

    def _do(self, send: Sender, changes: t.Sequence[Change], inverse: t.Callable[[tuple[Change, ...]], Operation]) -> None:
        """Send all changes, or undo those that were sent. inverse: returns the operation that undoes them."""
        sent: list[Change] = []
        try:
            for start in range(0, len(changes), CHUNK):
                chunk = changes[start : start + CHUNK]
                before = len(sent)
                sent += chunk  # before sending: an interrupt must undo them, whether or not they arrived
                refused = send(chunk)
                sent[before:] = [change for number, change in enumerate(chunk) if number not in refused]
                for number, answer in refused.items():
                    if not _is_done(chunk[number], answer):
                        raise Failure(_complaint(chunk[number], answer))
        except BaseException as error:
            try:
                self.perform(inverse(tuple(sent)))
            except (Failure, ForeignChange) as trouble:
                raise Failure(f"{error}. The preceding changes could not be undone: {trouble}") from error
            raise

    # Rules

    def _arranging(self, operation: Arrange | Rearrange) -> list[Change]:
        """Return the messages, additions first, so that every packet has a rule at any moment (see _routing/rule_order.py)."""
        own_rules = [rule for rule, protocol in self.rules() if protocol == operation.protocol]
        orders = operation.orders if isinstance(operation, Arrange) else _still_meant(operation, own_rules)
        messages = rule_order.messages(own_rules, orders)
        return [Change(ADD, rule) for rule in messages.added] + [Change(DELETE, rule) for rule in messages.deleted]

    def _overtaken(self, operation: Arrange | Rearrange) -> list[str]:
        """Describe own rules that were added again and now stand behind foreign rules that stood behind them before."""
        pairs = [pair for order in operation.orders for pair in order.overtaken]
        if not pairs:
            return []
        places: dict[Rule, tuple[int, int]] = {}
        foreign: dict[Rule, tuple[int, int]] = {}
        for index, (rule, protocol) in enumerate(self.rules()):
            (places if protocol == operation.protocol else foreign)[rule] = (index, protocol)
        return [
            f"{rule} stands behind {other} ({known_programs.owner(other, [foreign[other][1]])}) now, but came before it earlier:"
            " the kernel adds a rule behind the others of its priority"
            for rule, other in pairs
            if rule in places and other in foreign and places[rule] > foreign[other]
        ]

    # Routes

    def _refuse_foreign(self, operation: Apply) -> None:
        """Raise Failure if a foreign route has come to a key since the plan. It stands first, so the kernel would replace it."""
        changed = [change for change in operation.changes if change.verb == CHANGE]
        holders = self._holders(changed)
        for change in changed:
            route, owner = holders.get(change.item.key, (change.former, operation.protocol))
            if route.unread or owner != operation.protocol:
                raise Failure(
                    f"{change.item} cannot be added: {_current(route, owner)} was added meanwhile. Run again to see the conflict"
                )

    def _restore_own(self, send: Sender, operation: Restore) -> None:
        changes, omissions = _without_foreign(operation, self._holders(operation.changes))
        troubles = _insist(send, changes)
        if troubles:
            raise Failure("; ".join([*troubles, *omissions]))
        if omissions:
            raise ForeignChange("; ".join(omissions))

    def _holders(self, changes: t.Iterable[Change]) -> dict[t.Any, Owned]:
        """Return the first route at each key, which the kernel would replace.

        Empty, without reading, if no change adds a route.
        """
        if not any(isinstance(change.item, Route) and change.verb != DELETE for change in changes):
            return {}
        return {current[0].key: current for current in reversed(self.routes())}

    def _differences(self, operation: Apply | Restore) -> list[str]:
        """Describe what differs. A route whose key is foreign by now is no difference: the restoration has reported it."""
        routes_there = self.routes()
        own_routes = {route for route, protocol in routes_there if protocol == operation.protocol}
        foreign = {route.key for route, protocol in routes_there if protocol != operation.protocol or route.unread}
        neighbours_there = set(self.neighbours())
        final = {_identity(change.item): change for change in operation.changes}  # the last change of an item decides
        differences = []
        for change in final.values():
            is_there = change.item in (own_routes if isinstance(change.item, Route) else neighbours_there)
            if is_there == (change.verb == DELETE) and (change.verb == DELETE or _identity(change.item) not in foreign):
                differences.append(f"{change.item} is {'still' if is_there else 'not'} there")
        return differences


def _identity(item: Route | Neighbour) -> t.Any:
    return item.key if isinstance(item, Route) else (item.family, item.address, item.link)


def _still_meant(operation: Arrange | Rearrange, current: t.Sequence[Rule]) -> list[Order]:
    """Return the orders without rules that are on both sides and do not exist: another program has removed them."""
    existing = set(current)
    orders = []
    for order in operation.orders:
        former = set(order.before)
        after = tuple(rule for rule in order.after if rule in existing or rule not in former)
        orders.append(order._replace(after=after))
    return [order for order in orders if order.before or order.after]


def _current(item: t.Any, owner: int) -> str:
    return f"{item} ({known_programs.owner(item, [owner])})"


def _without_foreign(operation: Restore, holders: t.Mapping[t.Any, Owned]) -> tuple[tuple[Change, ...], list[str]]:
    """Return the changes to make, and a description of each route that is left out because its key is foreign by now.

    A route to change that no longer exists is added.
    """
    changes, omissions = [], []
    for change in operation.changes:
        if change.verb == DELETE or not isinstance(change.item, Route):
            changes.append(change)
            continue
        route, owner = holders.get(change.item.key, (None, operation.protocol))
        if route is not None and (route.unread or owner != operation.protocol):
            omissions.append(f"{_current(route, owner)} is there now, so {change.item} was not restored")
        else:
            changes.append(Change(ADD, change.item) if route is None else change)
    return tuple(changes), omissions


def _insist(send: Sender, changes: t.Sequence[Change]) -> list[str]:
    """Make as many changes as possible and describe those that failed.

    EEXIST is no failure: the object is there already, or a foreign object has its key.
    """
    return [
        _complaint(chunk[number], answer)
        for chunk in (changes[start : start + CHUNK] for start in range(0, len(changes), CHUNK))
        for number, answer in send(chunk).items()
        if not _is_done(chunk[number], answer) and answer.code != errno.EEXIST
    ]


def _is_done(change: Change, answer: Refused) -> bool:
    """Return whether an object to delete is gone already: with its link, or by a program that deletes without naming a
    protocol."""
    return change.verb == DELETE and answer.code in GONE


def _complaint(change: Change, answer: Refused) -> str:
    said = os.strerror(answer.code) + (f" ({answer.text.rstrip('.')})" if answer.text else "")
    hint = ""
    if answer.code == errno.EEXIST:
        hint = ". Another program has added an object with the same key meanwhile; run again to see which"
    elif answer.code == errno.ENETUNREACH or "gateway" in answer.text:
        hint = ". The gateway must be a neighbour on the link, or onlink must be true"
    elif answer.code == errno.ENETDOWN:
        hint = ". Set the link up first"
    elif answer.code == errno.EINVAL and not answer.text:
        hint = ". If src is given, it must be an address of this node"
    return f"{change.verb} {change.item} was refused by the kernel: {said}{hint}"


def dump(kind: int, family: int, opener: wire.Opener = wire.open_socket) -> list[bytes]:
    """Return the bodies of all messages of a kind (GETRULE, GETROUTE and so on). Raises Failure.

    Each family is dumped alone: a dump of all families is incomplete (kernel commit c454673da7c1).
    """
    # The header of a rule, a route and a neighbour is twelve bytes long and begins with the family. Links and addresses have
    # other headers, of which the kernel reads only the family. A kernel without IPv6 answers with another family.
    bodies = wire.dump(kind, bytes([family]) + bytes(11), f"the {LISTED[kind]} of this node", opener)
    return [body for body in bodies if body[0] == family]


def listed_rules(opener: wire.Opener = wire.open_socket) -> list[Owned]:
    """List the rules of both families in the kernel's order. opener: of another network namespace. Raises Failure."""
    return rules.from_messages(body for family in (IPV4, IPV6) for body in dump(GETRULE, family, opener))


def rules_at(priorities: t.Container[int]) -> list[Owned]:
    """List the rules with these priorities. Others are not parsed, because a node may have thousands. Raises Failure."""
    bodies = (body for family in (IPV4, IPV6) for body in dump(GETRULE, family))
    return rules.from_messages(body for body in bodies if rules.priority_in(body) in priorities)


def listed_routes(links: t.Mapping[int, str], opener: wire.Opener = wire.open_socket) -> list[Owned]:
    """List the routes of both families and all tables. links: names by index. Raises Failure."""
    bodies = [body for family in (IPV4, IPV6) for body in dump(GETROUTE, family, opener)]

    @functools.cache
    def objects() -> dict[int, routes.NextHops]:
        listed = wire.dump(GETNEXTHOP, bytes(routes.NEXTHOP_OBJECT.size), "the nexthop objects of this node", opener)
        return routes.nexthop_objects(listed, links)

    return list(filter(None, (routes.from_message(body, links, lambda number: objects().get(number)) for body in bodies)))


def listed_neighbours(links: t.Mapping[int, str], opener: wire.Opener = wire.open_socket) -> list[Neighbour]:
    """List the neighbours of both families, without the kernel's own. links: names by index. Raises Failure."""
    bodies = [body for family in (IPV4, IPV6) for body in dump(GETNEIGH, family, opener)]
    return list(filter(None, (neighbours.from_message(body, links) for body in bodies)))


def _exchange(encode: _Encoder, changes: t.Sequence[Change]) -> dict[int, Refused]:
    """Encode the changes, send them at once and return the refusals, by position."""
    messages, refused = [], {}
    for number, change in enumerate(changes):
        try:
            messages.append(encode.message(change, number))
        except KeyError as error:
            refused[number] = Refused(errno.ENODEV, f"there is no link {error.args[0]}")
    return {**refused, **wire.exchange(messages)}


# By class: the message types to add and to delete, and the flags to add.
KINDS = {
    # Not EXCL: a rule that moves exists twice meanwhile, and the kernel's search for an equal rule ignores unset fields.
    Rule: (NEWRULE, DELRULE, CREATE),
    Route: (NEWROUTE, DELROUTE, CREATE | EXCL),
    Neighbour: (NEWNEIGH, DELNEIGH, CREATE | EXCL),
}


class _Encoder:
    """Encodes changes with pyroute2. links: link indexes by name."""

    def __init__(self, protocol: int, links: t.Mapping[str, int]) -> None:
        rule_module, route_module, neighbour_module = library.load(library.PYROUTE2)
        self._new_rule, self._new_route = rule_module.fibmsg, route_module.rtmsg
        self._new_neighbour = neighbour_module.ndmsg
        self._protocol = protocol
        self._links = links

    def message(self, change: Change, number: int) -> bytes:
        """Return the encoded message. Raises KeyError with the name of a link that does not exist."""
        new, gone, adding = KINDS[type(change.item)]
        flags = {ADD: adding, DELETE: 0, CHANGE: REPLACE}[change.verb]
        return attributes.message(gone if change.verb == DELETE else new, flags, self._body(change), number)

    def _body(self, change: Change) -> bytes:
        if isinstance(change.item, Rule):
            # An opaque rule goes back in the kernel's own encoding: the other fields do not describe it in full.
            return change.item.opaque or _encoded(self._rule(change.item))
        if isinstance(change.item, Neighbour):
            return _encoded(self._neighbour(change.item))
        message = self._route(change.item)
        if change.verb == DELETE:
            _name_metrics(message)
        return _encoded(message)

    def _rule(self, rule: Rule) -> t.Any:
        message = self._new_rule()
        message["family"] = rule.family
        message["src_len"], message["dst_len"] = rule.src[1], rule.dst[1]
        message["tos"], message["action"] = rule.tos, rule.action
        message["flags"] = rules.INVERT if rule.invert else 0
        uids, sport, dport = (":".join(map(str, span)) for span in (rule.uidrange, rule.sport, rule.dport))
        optional = (
            ("FRA_SRC", _prefix_text(rule.src)),
            ("FRA_DST", _prefix_text(rule.dst)),
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
            ("RTA_DST", _prefix_text(route.dst)),
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


def _encoded(message: t.Any) -> bytes:
    """Return a message of pyroute2 without its header."""
    message.encode()
    return bytes(message.data)[attributes.HEADER.size :]


def _name_metrics(message: t.Any) -> None:
    """Name all metrics in a deletion, with 0 for those that the route does not have.

    A deletion that names no metrics also deletes a route that has some (net/ipv4/fib_semantics.c, fib_metrics_match).
    """
    attributes_ = [pair for pair in message["attrs"] if pair[0] != "RTA_METRICS"]
    by_name = dict(next((value["attrs"] for name, value in message["attrs"] if name == "RTA_METRICS"), ()))
    metrics = [[name, by_name.get(name, 0)] for name in METRICS]
    message["attrs"] = [*attributes_, ["RTA_METRICS", {"attrs": metrics}]]


def _flags(hop: Hop) -> int:
    return routes.RTNH_F_ONLINK if hop.onlink else 0


def _gateway(hop: Hop) -> list[list[t.Any]]:
    return [["RTA_GATEWAY", fields.show(hop.via)]] if hop.via else []


def _prefix_text(prefix: fields.Prefix) -> str:
    return fields.show(prefix[0]) if prefix != ANY else ""
