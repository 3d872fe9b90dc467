# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is taken for granted in place of what a snapshot lacks, as values that travel to the answer."""

from __future__ import annotations

import typing as t

# Kinds of concerns. The rules of a chain matter where a packet enters it, its policy where a packet comes to its end.
LINK, ADDRESS, FAMILY, SETTING, SENDER = "link", "address", "family", "setting", "sender"
CHAIN, JUMP, POLICY, TABLE, SET, ROUTES = "chain", "jump", "policy", "table", "set", "routes"
PREFIX, ROUTE = "prefix", "route"


class Concern(t.NamedTuple):
    """An object of the node.

    name: such as ``ip filter`` of a table, ``ip filter FORWARD`` of a chain or its policy, ``ip filter FORWARD OWN`` of a jump,
    ``254 10.0.0.0/8`` of a route; empty for the node as the sender of a packet.
    """

    kind: str
    name: str


class Assumption(t.NamedTuple):
    """sentence: for the operator. concerns: matters to a packet that meets one of them; to each packet if there are none.

    fact: the id of what is open, because the twin has something else; empty if that changes no answer, or if an open fact of
    the snapshot covers it. ask: the command that shows it; empty if none does.
    """

    sentence: str
    concerns: frozenset[Concern] = frozenset()
    fact: str = ""
    ask: str = ""

    def matters(self, met: t.AbstractSet[Concern]) -> bool:
        """Return whether the assumption matters to a packet that met these objects."""
        return not self.concerns or not self.concerns.isdisjoint(met)

    def plain(self) -> dict[str, t.Any]:
        """Return the entry of a snapshot. What a twin replaces, with its command, is in no snapshot."""
        concerns = [concern._asdict() for concern in sorted(self.concerns)]
        return {"sentence": self.sentence, "concerns": concerns}

    @classmethod
    def from_plain(cls, plain: t.Mapping[str, t.Any]) -> Assumption:
        concerns = (Concern(str(entry.get("kind")), str(entry.get("name"))) for entry in plain.get("concerns") or () if entry)
        return cls(str(plain.get("sentence") or ""), frozenset(concerns))


def about(sentence: str, kind: str, *names: str) -> Assumption:
    """Return the assumption that matters where a packet meets an object of the kind with one of the names."""
    return Assumption(sentence, frozenset(Concern(kind, name) for name in names))
