# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads what marks packets and connections: rules, of CNIs or all, links and sockets. Read only; loads no kernel module.

nf_tables is asked by netlink. Only a program can read the legacy tables, and it is started only if they are in use.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import typing as t

from .._core.errors import Failure
from .._interfaces import link_message
from .._netfilter.chains_backend import LEGACY, legacy_tables
from .._netlink import nfnetlink, packet_marks
from .._platform import kernel, process
from .._routing import routing_backend
from .._ruleset import iptables_save, nft_netlink, ruleset, service_rules
from .._ruleset.ruleset import ALL, Table
from . import foreign_marks
from .foreign_marks import ForeignMark
from .marks import TABLES

UNREAD = "The legacy table {} of iptables is in use, but was not read"
# In the encoding of each rule with a mark: the attribute NFTA_META_KEY or NFTA_CT_KEY with the key mark, or a name of iptables.
ENCODED = (struct.pack("=HH", 8, 2) + struct.pack(">I", nft_netlink.META_MARK), b"mark\0", b"MARK\0")


class Read(t.NamedTuple):
    """unread: why a table could not be read, as a sentence; empty if all were."""

    tables: list[Table]
    unread: str = ""


def read(run: process.Runner) -> Read:
    """Read the tables whose rules may mark connections. run: starts programs. Raises Failure if the kernel does not answer."""
    tables = [_table("ip", name, nfnetlink.rules("ip", name)) for name in TABLES] if kernel.is_ready("nf_tables") else []
    return _with_legacy(tables, {"ip": LEGACY["ip"]}, run)


def read_all(run: process.Runner) -> Read:
    """Read all tables, of those of no CNI the rules with a mark alone. Raises Failure if the kernel does not answer."""
    chains: dict[tuple[str, str], list[str]] = {}
    for chain in nfnetlink.chains() if kernel.is_ready("nf_tables") else ():
        chains.setdefault((chain.family, chain.table), []).append(chain.name)
    return _with_legacy([_marking_table(*table, names) for table, names in chains.items()], LEGACY, run)


def _with_legacy(tables: list[Table], legacy: t.Mapping[str, tuple[str, str]], run: process.Runner) -> Read:
    unread = list[str]()
    for family, (names, program) in legacy.items():
        used = [name for name in legacy_tables(names) if legacy is LEGACY or name in TABLES]
        path = process.find(program) if used else None
        for name in used:
            result = run([path, "-t", name], None) if path else None
            if result is None or result.rc:
                reason = f"{program} failed ({result.stderr.strip()})" if result else f"{program} is not installed"
                unread.append(f"{UNREAD.format(name)}: {reason}.")
            else:
                tables.append(iptables_save.read(family, name, result.stdout, ruleset.LEGACY))
    return Read(tables, " ".join(unread))


def _marking_table(family: str, name: str, chains: t.Sequence[str]) -> Table:
    if name in TABLES:
        return _table(family, name, nfnetlink.rules(family, name))
    several = [chain for chain in chains if not service_rules.is_generated(chain)]
    # Chain by chain only where kube-proxy has thousands: each chain is a request.
    asked = several if len(several) * 2 < len(chains) else [""]
    rules = (rule for chain in asked for rule in nfnetlink.rules(family, name, chain))
    return _table(family, name, (rule for rule in rules if any(part in rule.encoding for part in ENCODED)))


def _table(family: str, name: str, encoded_rules: t.Iterable[nfnetlink.EncodedRule]) -> Table:
    rules: dict[str, list[ruleset.Rule]] = {}
    for encoded in encoded_rules:
        rules.setdefault(encoded.chain, []).append(nft_netlink.rule(*encoded))
    return Table(family, name, chains={chain: ruleset.Chain(rules=listing) for chain, listing in rules.items()})


WIREGUARD = "wireguard"  # the kind of a link
# By the kernel's module that lists the sockets of a protocol, its number and name.
DIAGNOSING = {"tcp_diag": (socket.IPPROTO_TCP, "TCP"), "udp_diag": (socket.IPPROTO_UDP, "UDP")}


def foreign(tables: t.Iterable[Table], protocol: int, own_table: str, comment: str = "") -> list[ForeignMark]:
    """Return the marks. tables: those of the node. The other arguments are those of foreign_marks. Raises Failure."""
    return [
        *foreign_marks.of_rules(routing_backend.listed_rules(), protocol),
        *of_links(),
        *foreign_marks.of_tables(tables, own_table, comment),
        *_of_sockets(),
    ]


def of_links() -> t.Iterator[ForeignMark]:
    """Yield the marks that WireGuard links give to their outer packets. Raises Failure."""
    links = map(link_message.link_from, routing_backend.dump(routing_backend.GETLINK, socket.AF_UNSPEC))
    for link, mark in packet_marks.of_wireguard([link.name for link in links if link.kind == WIREGUARD]).items():
        yield ForeignMark(mark, ALL, f"the WireGuard link {link}")


def _of_sockets() -> t.Iterator[ForeignMark]:
    """Yield the marks of sockets. A kernel without the module of a protocol does not list them."""
    for module, (number, name) in DIAGNOSING.items():
        with contextlib.suppress(Failure):
            for mark, port in (packet_marks.of_sockets(number) if kernel.is_ready(module) else {}).items():
                yield ForeignMark(mark, ALL, f"a {name} socket with port {port}")
