# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A policy rule: a selector and an action. Two rules are equal if no packet could tell them apart."""

from __future__ import annotations

import functools
import json
import socket
import struct
import sys
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import ANY, BITS, FAMILIES, IPV4, IPV6, UINT32, Prefix, Range, Unfit
from .._netlink.attributes import ATTRIBUTE, attributes, text, u32
from . import rt_names

# include/uapi/linux/fib_rules.h
LOOKUP, GOTO, BLACKHOLE, UNREACHABLE, PROHIBIT = 1, 2, 6, 7, 8
ACTIONS = {"lookup": LOOKUP, "goto": GOTO, "blackhole": BLACKHOLE, "unreachable": UNREACHABLE, "prohibit": PROHIBIT}
INVERT = 0x2
HEADER = struct.Struct("=BBBBBxxBI")  # fib_rule_hdr: family, dst_len, src_len, tos, table, action, flags
FRA_DST, FRA_SRC, FRA_IIFNAME, FRA_GOTO, FRA_PRIORITY, FRA_FWMARK, FRA_TABLE, FRA_FWMASK = 1, 2, 3, 4, 6, 10, 15, 16
FRA_OIFNAME, FRA_L3MDEV, FRA_UID_RANGE, FRA_PROTOCOL, FRA_IP_PROTO, FRA_SPORT_RANGE, FRA_DPORT_RANGE = (
    17, 19, 20, 21, 22, 23, 24,
)  # fmt: skip
FRA_SUPPRESS_PREFIXLEN, FRA_PAD = 14, 18
# Attributes that have no effect at these values: FRA_FLOW, FRA_SUPPRESS_IFGROUP, FRA_SPORT_MASK, FRA_DPORT_MASK.
NEUTRAL = {11: b"\0\0\0\0", 13: b"\xff\xff\xff\xff", 28: b"\xff\xff", 29: b"\xff\xff"}
UNREAD = {11: "realms", 12: "tun_id", 13: "suppress_ifgroup", 25: "dscp", 26: "flowlabel"}  # names for messages
KNOWN = frozenset(
    (FRA_DST, FRA_SRC, FRA_IIFNAME, FRA_GOTO, FRA_PRIORITY, FRA_FWMARK, FRA_TABLE, FRA_FWMASK, FRA_OIFNAME, FRA_L3MDEV,
     FRA_UID_RANGE, FRA_PROTOCOL, FRA_IP_PROTO, FRA_SPORT_RANGE, FRA_DPORT_RANGE, FRA_SUPPRESS_PREFIXLEN, FRA_PAD)
)  # fmt: skip
UNSET = -1  # suppress_prefixlength; the kernel dumps it as 0xffffffff
_PORTS, _UIDS = struct.Struct("=HH"), struct.Struct("=II")

# /etc/protocols is not on every node.
IP_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ah": 51, "ipv6-icmp": 58, "sctp": 132}


class Rule(t.NamedTuple):
    """A rule as the kernel has it, without its protocol: that tells the owner, and not what the rule does.

    All fields up to ``dport`` are the selector; () is a range that does not select.

    opaque: the whole message of a rule with attributes that this module cannot read; empty for any other rule. The other fields
        hold the attributes that it can read. An opaque rule equals no desired rule.
    """

    family: int
    priority: int
    src: Prefix = ANY
    dst: Prefix = ANY
    iif: str = ""
    oif: str = ""
    fwmark: int = 0
    fwmask: int = 0
    tos: int = 0
    l3mdev: bool = False
    uidrange: tuple[()] | Range = ()
    ipproto: int = 0
    sport: tuple[()] | Range = ()
    dport: tuple[()] | Range = ()
    invert: bool = False
    action: int = LOOKUP
    table: int = 0
    goto: int = 0
    suppress_prefixlength: int = UNSET
    opaque: bytes = b""

    @property
    def key(self) -> tuple[t.Any, ...]:
        """Return the family, priority and selector. Two rules with the same key and different meanings are in conflict."""
        return self[:SELECTORS]

    @property
    def place(self) -> tuple[int, int]:
        """Return the family and priority, which give its place in the kernel's lists."""
        return self[:2]

    def is_like(self, other: Rule) -> bool:
        """Return whether the rules are equal. Unlike a route, a rule has nothing that is looked up on the node."""
        return self == other

    def __str__(self) -> str:
        """Show the rule as ``ip rule`` prints it."""
        unread = f" with attributes that this collection cannot read: {', '.join(self.unread)}" if self.opaque else ""
        place = f"ip{' -6' if self.family == IPV6 else ''} rule {self.priority}:"
        return f"{place} {self.selector} {self.decision}{unread}"

    @property
    def selector(self) -> str:
        """Show what the rule selects as ``ip rule`` prints it."""
        words = [
            "not" if self.invert else "",
            f"from {fields.show_prefix(self.src, 'all')}",
            f"to {fields.show_prefix(self.dst, '')}" if self.dst != ANY else "",
            f"tos {self.tos:#x}" if self.tos else "",
            f"fwmark {self.fwmark:#x}/{self.fwmask:#x}" if self.fwmask else "",
            f"iif {self.iif}" if self.iif else "",
            f"oif {self.oif}" if self.oif else "",
            f"uidrange {self.uidrange[0]}-{self.uidrange[1]}" if self.uidrange else "",
            f"ipproto {protocol_name(self.ipproto)}" if self.ipproto else "",
            f"sport {fields.show_range(self.sport)}" if self.sport else "",
            f"dport {fields.show_range(self.dport)}" if self.dport else "",
        ]
        return " ".join(filter(None, words))

    @property
    def decision(self) -> str:
        """Show what becomes of a packet that the rule selects, as ``ip rule`` prints it."""
        suppressed = f" suppress_prefixlength {self.suppress_prefixlength}" if self.suppress_prefixlength != UNSET else ""
        return f"{self._verdict()}{suppressed}"

    @property
    def unread(self) -> tuple[str, ...]:
        """Return the names of the attributes of an opaque rule that this module cannot read."""
        kinds = _unknown(attributes(self.opaque, HEADER.size)) if self.opaque else []
        return tuple(UNREAD.get(kind, f"attribute {kind}") for kind in kinds)

    def _verdict(self) -> str:
        if self.action == GOTO:
            return f"goto {self.goto}"
        if self.action != LOOKUP:
            return ("l3mdev " if self.l3mdev else "") + self._action()
        return "lookup [l3mdev-table]" if self.l3mdev else f"lookup {rt_names.table(self.table)}"

    def _action(self) -> str:
        return _ACTION_NAMES.get(self.action, str(self.action))

    def options(self) -> dict[str, t.Any]:
        """Return the options that give this rule, without defaults, as a file keeps them."""
        options: dict[str, t.Any] = {"priority": self.priority, "family": "ipv6" if self.family == IPV6 else "ipv4"}
        if self.src[0]:
            options["from"] = fields.show_prefix(self.src, "all")
        if self.dst[0]:
            options["to"] = fields.show_prefix(self.dst, "all")
        if self.table:
            options["table"] = str(self.table)
        if self[4:16] != _PLAIN or self.goto or self.suppress_prefixlength != UNSET:
            options.update(self._rare_options())
        return options

    def _rare_options(self) -> t.Iterator[tuple[str, t.Any]]:
        rare = {
            "not": self.invert,
            "iif": self.iif,
            "oif": self.oif,
            "fwmark": f"{self.fwmark:#x}/{self.fwmask:#x}" if self.fwmask else "",
            "tos": self.tos,
            "l3mdev": self.l3mdev,
            "uidrange": fields.show_range(self.uidrange) if self.uidrange else "",
            "ipproto": str(self.ipproto or ""),
            "sport": fields.show_range(self.sport) if self.sport else "",
            "dport": fields.show_range(self.dport) if self.dport else "",
            "action": "" if self.action == LOOKUP else self._action(),
            "goto": self.goto,
        }
        yield from ((name, value) for name, value in rare.items() if value)
        if self.suppress_prefixlength != UNSET:
            yield "suppress_prefixlength", self.suppress_prefixlength


SELECTORS = Rule._fields.index("invert") + 1
UNNAMED = Rule(0, 0, action=0)
_PLAIN = Rule(0, 0)[4:16]  # from iif to action
_PLAIN_OPTIONS = {"priority", "family", "from", "to", "table"}
_ACTION_NAMES = {number: name for name, number in ACTIONS.items()}


def protocol_name(number: int) -> str:
    return next((name for name, value in IP_PROTOCOLS.items() if value == number), str(number))


def _unknown(attrs: t.Mapping[int, bytes]) -> list[int]:
    return sorted(kind for kind in attrs.keys() - KNOWN if NEUTRAL.get(kind) != attrs[kind])


def sendable(body: bytes) -> bytes:
    """Return the message without the flags that report missing links: the kernel would store them if they were sent back."""
    *header, flags = HEADER.unpack_from(body)
    return HEADER.pack(*header, flags & INVERT) + body[HEADER.size :]


def priority_in(body: bytes) -> int:
    """Return the priority in a rule's message; 0 if it has none, as the first rule."""
    return u32(attributes(body, HEADER.size), FRA_PRIORITY)


def from_message(body: bytes) -> tuple[Rule, int]:
    """Return the rule and its protocol.

    Newer kernels add selectors (Linux 6.13: dscp, flowlabel). Without ``opaque``, such a rule would seem to match every packet.
    """
    family, dst_len, src_len, tos, table, action, flags = HEADER.unpack_from(body)
    attrs = attributes(body, HEADER.size)
    is_known = KNOWN.issuperset(attrs) or not _unknown(attrs)
    get, number, order = attrs.get, int.from_bytes, sys.byteorder
    suppress = number(get(FRA_SUPPRESS_PREFIXLEN, b"\xff\xff\xff\xff"), order)
    uids, sport, dport = get(FRA_UID_RANGE), get(FRA_SPORT_RANGE), get(FRA_DPORT_RANGE)
    rule = Rule(
        family,
        number(get(FRA_PRIORITY, b""), order),
        (attrs[FRA_SRC], src_len) if src_len else ANY,
        (attrs[FRA_DST], dst_len) if dst_len else ANY,
        text(attrs, FRA_IIFNAME) if FRA_IIFNAME in attrs else "",
        text(attrs, FRA_OIFNAME) if FRA_OIFNAME in attrs else "",
        number(get(FRA_FWMARK, b""), order),
        number(get(FRA_FWMASK, b""), order),
        tos,
        any(get(FRA_L3MDEV, b"")),
        _UIDS.unpack(uids) if uids else (),
        get(FRA_IP_PROTO, b"\0")[0],
        _PORTS.unpack(sport) if sport else (),
        _PORTS.unpack(dport) if dport else (),
        bool(flags & INVERT),
        action,
        (number(get(FRA_TABLE, b""), order) or table) if action == LOOKUP else 0,
        number(get(FRA_GOTO, b""), order) if action == GOTO else 0,
        UNSET if suppress == UINT32 else suppress,
        b"" if is_known else sendable(body),
    )
    return rule, get(FRA_PROTOCOL, b"\0")[0]


# A node has rules of thousands of pods that differ in an address alone, so that the rest of such a rule is parsed and shown once:
# the fields before the prefix, its length, and the fields behind it.
_Frame = tuple[tuple[t.Any, ...], int, tuple[t.Any, ...]]
SRC, DST = Rule._fields.index("src"), Rule._fields.index("dst")
_PLACES = {FRA_SRC: SRC, FRA_DST: DST}
_new = tuple.__new__  # that of Rule takes longer


def _frame(rule: t.Any, place: int) -> _Frame:
    return rule[:place], rule[place][1], rule[place + 1 :]


def from_messages(bodies: t.Iterable[bytes]) -> list[tuple[Rule, int]]:
    """Return the rules and their protocols, as from_message()."""
    read: list[tuple[t.Any, int]] = []
    known: dict[bytes, tuple[_Frame, int]] = {}
    for body in bodies:
        size = 4 if body[0] == IPV4 else 16
        head = body[:-size]  # which has the headers of all attributes
        if head in known:
            (before, length, behind), protocol = known[head]
            read.append((_new(Rule, (*before, (body[-size:], length), *behind)), protocol))
            continue
        read.append(from_message(body))
        rule, protocol = read[-1]
        place = _PLACES.get(_last_kind(body, size))
        if place and rule[place] != ANY and not rule.opaque:
            known[head] = _frame(rule, place), protocol
    return read


def _last_kind(body: bytes, size: int) -> int:
    """Return the type of the attribute at the end of a message; 0 if its value has another size."""
    offset, length, kind = HEADER.size, 0, 0
    while offset < len(body):
        length, kind = ATTRIBUTE.unpack_from(body, offset)
        offset += (length + 3) & ~3
    return kind if length == ATTRIBUTE.size + size else 0


def texts(rules: t.Iterable[t.Any]) -> t.Iterator[str]:
    """Yield the options of each rule as JSON."""
    known: dict[_Frame, tuple[str, str]] = {}
    for rule in rules:
        place = SRC if rule[SRC][0] and not rule[DST][0] else DST
        packed, length = rule[place]
        shown = socket.inet_ntop(IPV4 if len(packed) == 4 else IPV6, packed) if packed else ""
        frame = rule[:place], length, rule[place + 1 :]
        if frame not in known:
            text, start = json.dumps(rule.options()), f'"{"from" if place == SRC else "to"}": "'
            before, _address, behind = text.partition(start + shown) if packed else (text, "", "")
            known[frame] = before + start if packed else before, behind
        before, behind = known[frame]
        yield f"{before}{shown}{behind}"


def _fwmark(fwmark: object) -> tuple[int, int]:
    """Parse ``MARK`` or ``MARK/MASK``; without a mask all bits count."""
    mark, slash, mask = str(fwmark).partition("/")
    try:
        value, bits = fields.number(mark, 0, UINT32), fields.number(mask, 1, UINT32) if slash else UINT32
    except Unfit:
        raise Unfit(f"MARK or MARK/MASK: numbers up to {UINT32:#x}, and a mask other than 0") from None
    if value & ~bits:
        raise Unfit(f"a mark within its mask; {value & ~bits:#x} is outside {bits:#x}")
    if not slash and not value:
        raise Unfit("a mark other than 0, or a mark with a mask: to the kernel, 0 without a mask means no mark")
    return value, bits


def _tos(tos: object) -> int:
    """Parse a type of service. The kernel accepts the four bits of RFC 1349 (IPTOS_TOS_MASK)."""
    value = fields.number(tos, 0, 255)
    if value & ~0x1E:
        raise Unfit("a type of service of RFC 1349, 0x02 to 0x1e in steps of 2")
    return value


_PARSERS: dict[str, t.Callable[[t.Any], t.Any]] = {
    "priority": functools.partial(fields.number, low=1, high=UINT32),
    "from": fields.prefix,
    "to": fields.prefix,
    "iif": fields.link,
    "oif": fields.link,
    "fwmark": _fwmark,
    "action": functools.partial(fields.word, allowed=ACTIONS),
    "goto": functools.partial(fields.number, low=1, high=UINT32),
    "ipproto": lambda value: fields.name_or_number(value, IP_PROTOCOLS, "an IP protocol", 1, 255),
    "sport": functools.partial(fields.span, high=65534),
    "dport": functools.partial(fields.span, high=65534),
    "uidrange": functools.partial(fields.span, high=UINT32 - 1),
    "tos": _tos,
    "not": fields.flag,
    "suppress_prefixlength": functools.partial(fields.number, low=0, high=128),
    "l3mdev": fields.flag,
    "family": functools.partial(fields.word, allowed=FAMILIES),
}


def from_options(option: str, entry: t.Mapping[str, t.Any], tables: t.Mapping[str, int]) -> Rule:
    """Parse the rule that an entry describes. ``option`` names the entry (``rules[3]``). Raises Invalid if it cannot be used."""
    parsed: dict[str, t.Any] = {}
    for key, value in entry.items():
        if value is None:
            continue
        try:
            if key == "table":
                parsed[key] = fields.name_or_number(value, tables, "a table that the node knows", 1, UINT32)
            elif key in _PARSERS:
                parsed[key] = _PARSERS[key](value)
            else:
                raise Invalid(f"{option}.{key}", value, f"left out; a rule has {', '.join(sorted([*_PARSERS, 'table']))}")
        except Unfit as unfit:
            raise Invalid(f"{option}.{key}", value, str(unfit)) from None
    if "priority" not in parsed:
        raise Invalid(f"{option}.priority", None, "given; otherwise the kernel would choose one")
    parsed["family"] = _family(option, entry, parsed)
    return _checked(option, entry, parsed)


def parser(tables: t.Mapping[str, int]) -> t.Callable[[str, t.Mapping[str, t.Any]], Rule]:
    """Return from_options() for these tables, which parses once what entries of one address each have in common."""
    known: dict[tuple[t.Any, ...], _Frame] = {}

    def parsed(option: str, entry: t.Mapping[str, t.Any]) -> Rule:
        get = entry.get
        priority, table, family, source, destination = get("priority"), get("table"), get("family"), get("from"), get("to")
        address: t.Any = destination if source is None else source
        is_plain = type(priority) in _HASHED and type(table) in _HASHED and family in _FAMILIES and isinstance(address, str)
        if not is_plain or not (source is None or destination is None) or not entry.keys() <= _PLAIN_OPTIONS:
            return from_options(option, entry, tables)
        key = source is None, ":" in address, priority, table, family
        try:
            packed = socket.inet_pton(IPV6 if key[1] else IPV4, address)
        except (OSError, ValueError):  # a prefix, or none
            return from_options(option, entry, tables)
        if key not in known:
            known[key] = _frame(from_options(option, entry, tables), DST if source is None else SRC)
        before, length, behind = known[key]
        return _new(Rule, (*before, (packed, length), *behind))

    return parsed


_HASHED, _FAMILIES = (int, str), (None, *FAMILIES)  # True is 1 to a dictionary


def _family(option: str, entry: t.Mapping[str, t.Any], parsed: dict[str, t.Any]) -> int:
    family: int = parsed.get("family", 0)
    for key in ("from", "to"):
        current = parsed[key][0] if key in parsed else 0
        if current and current != (family or current):
            raise Invalid(f"{option}.{key}", entry[key], "of the same family as the rule's other addresses and its option family")
        family = family or current
    return family or IPV4


def _checked(option: str, entry: t.Mapping[str, t.Any], parsed: dict[str, t.Any]) -> Rule:
    """Make the rule. Raises Invalid if its fields do not fit together."""
    get = parsed.get
    if "table" in parsed and parsed.keys() <= _PLAIN_OPTIONS:  # nearly all rules of a node
        source, destination = get("from", (0, ANY))[1], get("to", (0, ANY))[1]
        return Rule(parsed["family"], parsed["priority"], source, destination, table=parsed["table"])
    action, l3mdev, family = get("action", GOTO if "goto" in parsed else LOOKUP), get("l3mdev", False), parsed["family"]
    if (action == GOTO) != ("goto" in parsed):
        raise Invalid(f"{option}.goto", entry.get("goto"), "given if action is goto, and left out otherwise")
    if "goto" in parsed and parsed["goto"] <= parsed["priority"]:
        raise Invalid(f"{option}.goto", entry["goto"], f"a priority above the rule's own, {parsed['priority']}")
    if ("table" in parsed) != (action == LOOKUP and not l3mdev):
        raise Invalid(
            f"{option}.table",
            entry.get("table"),
            "given if action is lookup and l3mdev is false, and left out otherwise",
        )
    suppress = get("suppress_prefixlength", UNSET)
    if suppress != UNSET and (action != LOOKUP or suppress > BITS[family]):
        raise Invalid(f"{option}.suppress_prefixlength", suppress, f"0 to {BITS[family]}, and left out unless action is lookup")
    for key in ("sport", "dport"):
        if key in parsed and parsed[key][0] == 0:
            raise Invalid(f"{option}.{key}", entry[key], "a port or a range N-M from 1 to 65534, as the kernel requires")
    mark, mask = get("fwmark", (0, 0))
    return Rule(
        family, parsed["priority"], get("from", (0, ANY))[1], get("to", (0, ANY))[1], get("iif", ""), get("oif", ""),
        mark, mask, get("tos", 0), l3mdev, get("uidrange", ()), get("ipproto", 0), get("sport", ()), get("dport", ()),
        get("not", False), action, get("table", 0), get("goto", 0), suppress,
    )  # fmt: skip
