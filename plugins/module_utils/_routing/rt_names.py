# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of routing tables and routing protocols, as ``ip`` knows them."""

from __future__ import annotations

import typing as t

MAIN = 254
# include/uapi/linux/rtnetlink.h, enum rt_class_t: these need no file.
TABLES = {"default": 253, "main": MAIN, "local": 255}
# include/uapi/linux/rtnetlink.h, RTPROT_*: each belongs to the kernel or to a routing daemon, which treats all objects that
# carry it as its own. 66 is the Google guest agent's (its ethernet_proto_id).
PROTOCOLS = {
    0: "unspec", 1: "redirect", 2: "kernel", 3: "boot", 4: "static", 8: "gated", 9: "ra", 10: "mrt", 11: "zebra",
    12: "bird", 13: "dnrouted", 14: "xorp", 15: "ntk", 16: "dhcp", 17: "mrouted", 18: "keepalived", 42: "babel",
    66: "google-guest-agent", 99: "openr", 186: "bgp", 187: "isis", 188: "ospf", 189: "rip", 192: "eigrp",
}  # fmt: skip
# These name no program: many CNIs set none or, as Cilium, the kernel's. Network daemons set static.
COMMON = frozenset({0, 2, 3})


def parse(text: str) -> dict[str, int]:
    """Return table numbers by name, from the text of an rt_tables(5) file: a number and a name per line.

    Other lines are skipped.
    """
    numbers = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2:
            try:
                numbers[words[1]] = int(words[0], 0)
            except ValueError:
                continue
    return numbers


def table(number: int) -> str:
    """Return a table's name if every node knows it, else its number."""
    return next((name for name, value in TABLES.items() if value == number), str(number))


def protocol(number: int) -> str:
    return PROTOCOLS.get(number, str(number))


_NUMBERS = {protocol(number): number for number in range(256)}


def protocol_number(name: object) -> int:
    """Return the number of a protocol that protocol() named; that of "unspec" for any other value."""
    return _NUMBERS.get(str(name), 0)


def protocols(numbers: t.Iterable[int]) -> str:
    return ", ".join(map(protocol, sorted(numbers)))


def owner(protocols: t.Iterable[int]) -> str:
    """Return the owners of rules or routes with these protocols, for use in a sentence."""
    return ", ".join(f"protocol {protocol(number)}" for number in sorted(protocols))
