# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What outputs show of packets that passed a node: counters of rules, tracked connections and captured segments."""

from __future__ import annotations

import re
import typing as t

COUNTER, UNREPLIED, ASSURED, SYN, SYN_ACK = "counter", "unreplied", "assured", "syn", "syn-ack"
KINDS = (COUNTER, UNREPLIED, ASSURED, SYN, SYN_ACK)
_OF_COUNTER = re.compile(r"\bcounter packets \d+ bytes \d+")


class Evidence(t.NamedTuple):
    """kind: counter of a rule that drops; connection without a reply, or with traffic both ways; SYN or SYN-ACK seen repeatedly.

    rule: of a counter, as a culprit is named. protocol, source, destination, destination_port: of a connection's first packet.
    counts: the packets of a counter in each reading, or the number of segments.
    """

    kind: str
    rule: str = ""
    protocol: str = ""
    source: str = ""
    destination: str = ""
    destination_port: int = 0
    counts: tuple[int, ...] = ()

    def plain(self) -> dict[str, t.Any]:
        return {**self._asdict(), "counts": [*self.counts]}

    @classmethod
    def from_plain(cls, plain: t.Mapping[str, t.Any]) -> Evidence:
        kind, rule, protocol, source, destination = (str(plain.get(key) or "") for key in cls._fields[:5])
        port, counts = int(plain.get("destination_port") or 0), tuple(map(int, plain.get("counts") or ()))
        return cls(kind, rule, protocol, source, destination, port, counts)


def without_counter(text: str) -> str:
    """Return a rule of nft without the values of its counter."""
    return _OF_COUNTER.sub("counter", text)
