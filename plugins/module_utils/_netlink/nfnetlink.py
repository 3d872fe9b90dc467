# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads and deletes nftables objects without the program nft, and tells the names of ipsets.

Looks for a table and deletes it: for a node where nft was removed or is broken and the table remains. Lists and deletes a
table's rules by handle: nft's own listing omits the contents of ebtables extensions, and takes longer than the rest of a run.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import typing as t
from types import MappingProxyType

from .._core.errors import Failure, Uncertain
from . import wire
from .attributes import ATTRIBUTE, TYPE_MASK, attributes, elements, message, pack, text

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
BATCH_BEGIN, BATCH_END = 0x10, 0x11
NFTABLES = 10  # NFNL_SUBSYS_NFTABLES
GET_TABLE, DELETE_TABLE = NFTABLES << 8 | 1, NFTABLES << 8 | 2
GET_CHAIN = NFTABLES << 8 | 4
GET_RULE, DELETE_RULE = NFTABLES << 8 | 7, NFTABLES << 8 | 8
GET_GENERATION, GENERATION = NFTABLES << 8 | 16, 1  # NFT_MSG_GETGEN, NFTA_GEN_ID
GET_SET, GET_ELEMENTS = NFTABLES << 8 | 10, NFTABLES << 8 | 13
SET_TABLE, NAME_OF_SET, FLAGS_OF_SET, ELEMENTS, FLAGS_OF_ELEMENT = 1, 2, 3, 3, 3  # NFTA_SET_..., NFTA_SET_ELEM_...
ANONYMOUS, MAP = 0x1, 0x8  # NFT_SET_ANONYMOUS, NFT_SET_MAP
CHANGES_BY_ITSELF = 0x10 | 0x20  # NFT_SET_TIMEOUT, NFT_SET_EVAL: time and packets change the elements
LIST_ELEMENT, KEY, DATA_VALUE = 1, 1, 1  # NFTA_LIST_ELEM, NFTA_SET_ELEM_KEY, NFTA_DATA_VALUE
INTERVAL_END = 0x1  # NFT_SET_ELEM_INTERVAL_END: no element, but where one ends
TABLE_NAME, TABLE_FLAGS, TABLE_USE, TABLE_USERDATA = 1, 2, 3, 6  # NFTA_TABLE_NAME and others
DORMANT = 0x1  # NFT_TABLE_F_DORMANT
TABLE_COMMENT = 0  # libnftnl/udata.h: NFTNL_UDATA_TABLE_COMMENT, a type that a byte with the length and the text follow
# include/uapi/linux/netfilter/ipset/ip_set.h: NFNL_SUBSYS_IPSET, IPSET_CMD_LIST; protocol, name and flags of a request
LIST_SETS = 6 << 8 | 7
TRACE = NFTABLES << 8 | 17  # NFT_MSG_TRACE, which the kernel sends to the group NFNLGRP_NFTRACE
DELETE_CONNECTIONS = 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
SET_PROTOCOL, SET_NAME, SET_FLAGS = 1, 2, 6
OLDEST_PROTOCOL = b"\x06"  # IPSET_PROTOCOL_MIN, of Linux 2.6.39 and of all since
NAMES_ONLY = struct.pack(">I", 1 << 1)  # IPSET_FLAG_LIST_SETNAME
CHAIN_TABLE, CHAIN_NAME, CHAIN_HOOK, CHAIN_POLICY, CHAIN_USE, CHAIN_KIND = 1, 3, 4, 5, 6, 7
HOOK_NUMBER, HOOK_PRIORITY = 1, 2  # NFTA_HOOK_HOOKNUM and NFTA_HOOK_PRIORITY
POLICIES = {0: "drop", 1: "accept"}  # NF_DROP, NF_ACCEPT
HOOK_DEVICES, DEVICE_NAME = 4, 1  # NFTA_HOOK_DEVS, NFTA_DEVICE_NAME
RULE_CHAIN, RULE_HANDLE, RULE_EXPRESSIONS, RULE_USERDATA = 2, 3, 4, 7
FAMILIES = {"inet": 1, "ip": 2, "arp": 3, "netdev": 5, "bridge": 7, "ip6": 10}
# No such table; before Linux 4.16 a family whose module is not loaded has none (net/netfilter/nf_tables_api.c).
NOT_THERE = (errno.ENOENT, errno.EAFNOSUPPORT)
NOT_PERMITTED = "Another program may own the table (its flags in `nft list tables` say so), or the node blocks changes"
NFGENMSG = struct.Struct("=BBH")  # nfgenmsg: family, version, subsystem
SMALL = 65536  # bytes that every socket sends at once; a batch must go in one piece (net.core.wmem_default is 212992)
SO_SNDBUFFORCE = 32  # include/uapi/asm-generic/socket.h; Python has no name for it


Place = tuple[str, str]  # family and name of a table


def has_table(family: str, name: str) -> bool:
    """Return whether the kernel has the table. Call it only if the kernel has loaded nf_tables: the question would load it.

    Raises Failure if the kernel does not answer.
    """
    code = _ask([message(GET_TABLE, wire.ACK, _of_table(family, name))])
    if code not in (0, *NOT_THERE):
        raise Failure(f"the kernel does not say whether there is a table {family} {name}: {os.strerror(code)}")
    return code == 0


def tables() -> dict[Place, int]:
    """Return the number of chains, sets and other objects of each table, by family and name; rules do not count.

    The kernel must have loaded nf_tables, as for has_table().
    """
    return {place: int.from_bytes(attrs[TABLE_USE], "big") for place, attrs in _tables()}


def dormant() -> set[Place]:
    """Return the tables whose chains no packet meets. The kernel must have loaded nf_tables."""
    return {place for place, attrs in _tables() if int.from_bytes(attrs.get(TABLE_FLAGS, b""), "big") & DORMANT}


def _tables() -> t.Iterator[tuple[Place, dict[int, bytes]]]:
    names = {number: family for family, number in FAMILIES.items()}
    for body in wire.dump(GET_TABLE, NFGENMSG.pack(socket.AF_UNSPEC, 0, 0), "the tables", _open):
        attrs = attributes(body, 4)
        yield (names.get(body[0], str(body[0])), text(attrs, TABLE_NAME)), attrs


def has_flags(family: str, name: str) -> bool:
    """Return whether a table has flags, such as that it is dormant."""
    return any(_table(family, name).get(TABLE_FLAGS, b""))


def _table(family: str, name: str) -> dict[int, bytes]:
    with wire.connected(_open) as netlink:
        answer = next(wire.answers(netlink, message(GET_TABLE, 0, _of_table(family, name))))
    return {} if answer.kind == wire.ERROR else attributes(answer.body, 4)


def table_comment(family: str, name: str) -> str:
    """Return the comment of a table; empty if it has none or is not there. nft's JSON has it from nft 1.1 on."""
    stored = _table(family, name).get(TABLE_USERDATA, b"")
    while len(stored) > 2:
        kind, length, rest = stored[0], stored[1], stored[2:]
        if kind == TABLE_COMMENT:
            return rest[:length].rstrip(b"\0").decode(errors="replace")
        stored = rest[length:]
    return ""


def delete_table(family: str, name: str) -> None:
    """Delete a table with its contents. Raises Failure if the kernel refuses."""
    begin, end = (_batch(kind, number) for kind, number in ((BATCH_BEGIN, 1), (BATCH_END, 3)))
    code = _ask([begin, message(DELETE_TABLE, wire.ACK, _of_table(family, name), 2), end])
    if code:
        hint = f". {NOT_PERMITTED}" if code == errno.EPERM else ""
        raise Failure(f"the kernel refused to remove table {family} {name}: {os.strerror(code)}{hint}")


class Chain(t.NamedTuple):
    """has_hook: packets come to it from the kernel (a base chain), and not only from rules that jump to it.

    devices: the links of whose packets it gets, at ingress and egress. policy: empty for a chain without one. use: the number of
    its rules and of the jumps to it. kind, hook, priority: of a base chain; the hook by its number.
    """

    table: str
    name: str
    has_hook: bool
    devices: tuple[str, ...] = ()
    family: str = ""
    policy: str = ""
    use: int = 0
    kind: str = ""
    hook: int = 0
    priority: int = 0


def has_rules(opener: wire.Opener) -> bool:
    """Return whether packets may meet a rule, or a policy that drops them, in the namespace of a socket that an opener opens."""
    return any(chain.has_hook and (chain.use or chain.policy == POLICIES[0]) for chain in chains(opener=opener))


def chains(family: str = "", opener: wire.Opener | None = None, excluded: t.Iterable[Place] = ()) -> list[Chain]:
    """Return the chains of a family, or of all. The kernel must have loaded nf_tables, as for has_table().

    opener: opens the socket, which may be one in another network namespace. excluded: tables whose chains are left out.
    """
    header = _family(family) if family else NFGENMSG.pack(socket.AF_UNSPEC, 0, 0)
    bodies = wire.dump(GET_CHAIN, header, f"the chains of {family}", opener or _open)
    names = {number: name for name, number in FAMILIES.items()}
    others = [(FAMILIES[place[0]], pack({CHAIN_TABLE: place[1].encode() + b"\0"})) for place in excluded]  # the first attribute
    return [
        _chain(names.get(body[0], str(body[0])), attributes(body, 4))
        for body in bodies
        if not any(body[0] == number and body.startswith(table, NFGENMSG.size) for number, table in others)
    ]


def _chain(family: str, attrs: dict[int, bytes]) -> Chain:
    use = int.from_bytes(attrs.get(CHAIN_USE, b""), "big")
    chain = Chain(text(attrs, CHAIN_TABLE), text(attrs, CHAIN_NAME), CHAIN_HOOK in attrs, family=family, use=use)
    if not chain.has_hook:
        return chain
    hook = attributes(attrs[CHAIN_HOOK])
    return chain._replace(
        devices=_devices(hook),
        policy=POLICIES.get(int.from_bytes(attrs[CHAIN_POLICY], "big"), "") if CHAIN_POLICY in attrs else "",
        kind=text(attrs, CHAIN_KIND) if CHAIN_KIND in attrs else "",
        hook=int.from_bytes(hook.get(HOOK_NUMBER, b""), "big"),
        priority=int.from_bytes(hook.get(HOOK_PRIORITY, b""), "big", signed=True),
    )


def _devices(hook: dict[int, bytes]) -> tuple[str, ...]:
    """Return the names of links in a hook. Linux 6.16 and newer may have the beginning of names there (NFTA_DEVICE_PREFIX)."""
    listed, offset = hook.get(HOOK_DEVICES, b""), 0
    names = []
    while offset < len(listed):
        length, kind = ATTRIBUTE.unpack_from(listed, offset)
        name = listed[offset + ATTRIBUTE.size : offset + length].rstrip(b"\0").decode(errors="replace")
        names.append(name if kind & TYPE_MASK == DEVICE_NAME else f"{name}*")
        offset += (length + 3) & ~3
    return tuple(names)


def size(family: str, table: str, name: str) -> int | None:
    """Return the number of elements of a set or map; None without that set, and for one that time or packets change."""
    with wire.connected(_open) as netlink:
        answer = next(wire.answers(netlink, message(GET_SET, 0, _of_set(family, table, name))))
    flags = b"" if answer.kind == wire.ERROR else attributes(answer.body, 4).get(FLAGS_OF_SET, bytes(4))
    if not flags or int.from_bytes(flags, "big") & CHANGES_BY_ITSELF:
        return None
    every = members(family, table, name)
    return sum(not int.from_bytes(each.get(FLAGS_OF_ELEMENT, b""), "big") & INTERVAL_END for each in every)


def _of_set(family: str, table: str, name: str) -> bytes:
    return _family(family) + pack({SET_TABLE: table.encode() + b"\0", NAME_OF_SET: name.encode() + b"\0"})


def _elements(body: bytes) -> t.Iterator[dict[int, bytes]]:
    return map(attributes, elements(attributes(body, 4).get(ELEMENTS, b"")))


def sets(family: str, table: str) -> dict[str, dict[int, bytes]]:
    """Return the attributes of the sets and maps of a table that have a name, by it."""
    bodies = wire.dump(GET_SET, _of_table(family, table), f"the sets of {family} {table}", _open)
    every = (attributes(body, 4) for body in bodies)
    return {text(each, NAME_OF_SET): each for each in every if not _flags_of_set(each) & ANONYMOUS}


def is_map(attrs: dict[int, bytes]) -> bool:
    return bool(_flags_of_set(attrs) & MAP)


def _flags_of_set(attrs: dict[int, bytes]) -> int:
    return int.from_bytes(attrs.get(FLAGS_OF_SET, b""), "big")


def members(family: str, table: str, name: str, keys: t.Sequence[bytes] = ()) -> list[dict[int, bytes]]:
    """Return the attributes of the elements of a set or map. keys: those to ask for, in one request, and no others; none for all.

    The kernel goes through its list of sets once for each request, and three times to list all elements.
    """
    place = _of_set(family, table, name)
    if not keys:
        bodies = wire.dump(GET_ELEMENTS, place, f"the elements of {family} {table} {name}", _open)
        return [each for body in bodies for each in _elements(body)]
    wanted = b"".join(pack({LIST_ELEMENT: pack({KEY: pack({DATA_VALUE: key})})}) for key in keys)
    elements_of_keys = list[dict[int, bytes]]()
    with wire.connected(_open) as netlink:
        for answer in wire.answers(netlink, message(GET_ELEMENTS, wire.ACK, place + pack({ELEMENTS: wanted}))):
            if answer.kind == wire.ERROR:
                break
            elements_of_keys += _elements(answer.body)
    return elements_of_keys


def ipsets() -> list[str]:
    """Return the names of all ipsets. The kernel must have loaded ip_set, as for has_table()."""
    question = NFGENMSG.pack(socket.AF_INET, 0, 0) + pack({SET_PROTOCOL: OLDEST_PROTOCOL, SET_FLAGS: NAMES_ONLY})
    return [text(attributes(body, 4), SET_NAME) for body in wire.dump(LIST_SETS, question, "the ipsets", _open)]


def delete_connections() -> None:
    """End all connections that the kernel tracks in this network namespace, if it tracks any. Raises Failure."""
    _ask([message(DELETE_CONNECTIONS, wire.ACK, NFGENMSG.pack(socket.AF_UNSPEC, 0, 0))])


def generation() -> int:
    """Return the number of the rules' present state. Each transaction, whatever table it is about, gives them the next number.

    The kernel must have loaded nf_tables, as for has_table(). Raises Failure.
    """
    with wire.connected(_open) as netlink:
        answer = next(wire.answers(netlink, message(GET_GENERATION, 0, NFGENMSG.pack(socket.AF_UNSPEC, 0, 0))))
    if answer.kind == wire.ERROR:
        raise Failure(f"the kernel does not tell the generation of its rules: {os.strerror(wire.error_code(answer))}")
    return int.from_bytes(attributes(answer.body, 4)[GENERATION], "big")


class EncodedRule(t.NamedTuple):
    """A rule as the kernel lists it. handle: the kernel never reuses it within the table. encoding: the expressions.

    userdata: what the program that added the rule has stored with it, such as a comment.
    """

    chain: str
    handle: int
    encoding: bytes
    userdata: bytes = b""


def rules(family: str, table: str, chain: str = "") -> list[EncodedRule]:
    """Return the rules of a table, chain by chain, or of one chain, in order; empty if there is no table or no chain.

    Raises Failure if they change at every attempt.
    """
    return [*each_rule(family, table, chain)]


def each_rule(family: str, table: str, chain: str = "") -> t.Iterator[EncodedRule]:
    """Yield what rules() returns, without a value for each of thousands of rules at once."""
    further = {RULE_CHAIN: chain.encode() + b"\0"} if chain else {}
    bodies = wire.dump(GET_RULE, _of_table(family, table, further), f"the rules of table {family} {table}", _open)
    for attrs in (attributes(body, 4) for body in bodies):
        yield EncodedRule(
            attrs[RULE_CHAIN].rstrip(b"\0").decode(),
            int.from_bytes(attrs[RULE_HANDLE], "big"),
            attrs.get(RULE_EXPRESSIONS, b""),
            attrs.get(RULE_USERDATA, b""),
        )


class Doomed(t.NamedTuple):
    """A rule to delete."""

    table: str
    chain: str
    handle: int


def delete_rules(family: str, doomed: t.Sequence[Doomed]) -> int:
    """Delete all rules in one transaction, or none. Returns 0, or the error number of the first rule that is refused."""
    messages = [_batch(BATCH_BEGIN, 0)]
    for number, rule in enumerate(doomed, 1):
        further = {RULE_CHAIN: rule.chain.encode() + b"\0", RULE_HANDLE: rule.handle.to_bytes(8, "big")}
        flags = wire.ACK if number == len(doomed) else 0
        messages.append(message(DELETE_RULE, flags, _of_table(family, rule.table, further), number))
    return _ask([*messages, _batch(BATCH_END, len(doomed) + 1)])


def _family(family: str) -> bytes:
    """Return the header of a message about nftables, nfgenmsg."""
    return NFGENMSG.pack(FAMILIES[family], 0, 0)


def _of_table(family: str, table: str, further: t.Mapping[int, bytes] = MappingProxyType({})) -> bytes:
    """Return the body of a message about a table or a rule: both name the table by the same attribute."""
    return _family(family) + pack({TABLE_NAME: table.encode() + b"\0", **further})


def _batch(kind: int, number: int) -> bytes:
    return message(kind, 0, NFGENMSG.pack(socket.AF_UNSPEC, 0, socket.htons(NFTABLES)), number)


def _open() -> socket.socket:
    return wire.open_socket(wire.NETFILTER)


def _ask(messages: t.Sequence[bytes]) -> int:
    """Return the error number of the first answer; 0 for success, or for a reply with data.

    Raises Uncertain without an answer.
    """
    question = b"".join(messages)
    try:
        with wire.connected(_open) as netlink:
            if len(question) > SMALL:
                netlink.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 2 * len(question))
            answer = next(wire.answers(netlink, question))
    except Failure as error:
        raise Uncertain(str(error)) from error
    return wire.error_code(answer) if answer.kind == wire.ERROR else 0
