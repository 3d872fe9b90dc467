# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What outputs show of packets that passed a node: counters of rules, tracked connections, captured segments and log lines."""

from __future__ import annotations

import re
import typing as t

COUNTER, UNREPLIED, ASSURED, SYN, SYN_ACK = "counter", "unreplied", "assured", "syn", "syn-ack"
LOGGED, TRACED, REFUSED, REPORTED = TELLING = "logged", "traced", "refused", "reported"  # each tells what stops a packet
KINDS = (COUNTER, UNREPLIED, ASSURED, SYN, SYN_ACK, *TELLING)
PROTOCOLS = ("tcp", "udp", "sctp", "icmp", "icmpv6")  # of connections, as conntrack names them
_OF_COUNTER = re.compile(r"\bcounter packets \d+ bytes \d+")


class Evidence(t.NamedTuple):
    """kind: counter of a rule that drops; connection without a reply, or with traffic both ways; SYN or SYN-ACK seen repeatedly;
    packet that a rule wrote to the kernel's log, that a rule dropped in a trace of nft, to which the kernel refused a route, or
    whose loss the kernel itself reported in its log.

    rule: of a counter and of a trace, as a culprit is named; of a log line, its hook and its prefix; of a refusal, the link by
    which the packet comes in, or ping, and the message; of a report, such a link, or "-", and the message. protocol, source,
    destination, destination_port: of a connection's first packet; empty and 0 where the output lacks them.
    counts: the packets of a counter in each reading, or the number of segments. left_source, left_destination, left_port: of the
    connection's packets after the node translated them, to which the expected reply belongs; empty if that is not known. link: by
    which a capture shows the segments leave; empty if it shows none.
    """

    kind: str
    rule: str = ""
    protocol: str = ""
    source: str = ""
    destination: str = ""
    destination_port: int = 0
    counts: tuple[int, ...] = ()
    left_source: str = ""
    left_destination: str = ""
    left_port: int = 0
    link: str = ""

    def plain(self) -> dict[str, t.Any]:
        return {**self._asdict(), "counts": [*self.counts]}

    @property
    def new_source(self) -> str:
        """Return the source that the node gives to the packets of a connection; empty if it keeps theirs, or if none is known."""
        return "" if self.left_source == self.source else self.left_source

    @property
    def new_destination(self) -> tuple[str, int]:
        """Return the same of the destination, with its port; empty and 0 for none."""
        departure = self.left_destination, self.left_port
        return ("", 0) if departure == (self.destination, self.destination_port) else departure


def without_counter(text: str) -> str:
    """Return a rule of nft without the values of its counter."""
    return _OF_COUNTER.sub("counter", text)
