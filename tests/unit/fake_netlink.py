# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fake kernel with policy rules and routes, which refuses the same changes as the kernel."""

from __future__ import annotations

import errno
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._routing.routing_backend import (
    ADD,
    CHANGE,
    DELETE,
    Change,
    Netlink,
    Owned,
    Refused,
    Sender,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import UNNAMED, Rule


def hits(message: Rule, rule: Rule) -> bool:
    """Whether the kernel, on a request to delete the one rule, deletes the other.

    net/core/fib_rules.c, rule_find: it compares the fields of the message, except invert and goto.
    """
    compared = [one._replace(invert=False, goto=0, opaque=b"") for one in (message, rule, UNNAMED)]
    return all(named in (of_rule, unnamed) for named, of_rule, unnamed in zip(*compared))


class FakeNetlink(Netlink):
    """Rules in the kernel's order and routes, each with its protocol. The rest is the real backend's code.

    refuses: changes that fail. before: called with each change before it is made. messages: how many there were.
    after: called after each.
    """

    def __init__(
        self,
        rules: t.Iterable[Owned] = (),
        routes: t.Iterable[Owned] = (),
        names: t.Iterable[str] = ("lo", "eth0", "eth1"),
    ) -> None:
        self.held_rules = sorted(rules, key=lambda current: current[0].priority)
        self.held_routes = list(routes)
        self.names = list(names)
        self.refuses: set[Change] = set()
        self.before: t.Callable[[Change], None] = lambda change: None
        self.after: t.Callable[[], None] = lambda: None
        self.messages = 0

    def __repr__(self) -> str:
        """The expression that makes an equal one, for an example in a test."""
        return f"FakeNetlink({self.held_rules!r}, {self.held_routes!r})"

    def rules(self) -> list[Owned]:
        return [current for family in (2, 10) for current in self.held_rules if current[0].family == family]

    def routes(self) -> list[Owned]:
        return list(self.held_routes)

    def neighbours(self) -> list[t.Any]:
        return []

    def links(self) -> dict[int, str]:
        return dict(enumerate(self.names, 1))

    def sender(self, protocol: int) -> Sender:
        def send(changes: t.Sequence[Change]) -> dict[int, Refused]:
            refused = {}
            for number, change in enumerate(changes):
                self.before(change)
                code = errno.EPERM if change in self.refuses else self._make(change, protocol)
                if code:
                    refused[number] = Refused(code, "")
                self.after()
            return refused

        return send

    def _make(self, change: Change, protocol: int) -> int:
        self.messages += 1
        if isinstance(change.item, Rule):
            return self._make_rule(change, protocol)
        return self._make_route(change, protocol)

    def _make_rule(self, change: Change, protocol: int) -> int:
        """An addition is the last of its priority; a deletion removes the first rule that has all fields of the message."""
        if change.verb == DELETE:
            found = [current for current in self.held_rules if current[1] == protocol and hits(change.item, current[0])]
            if not found:
                return errno.ENOENT
            self.held_rules.remove(found[0])
            return 0
        assert change.verb == ADD
        self.held_rules.append((change.item, protocol))
        self.held_rules.sort(key=lambda current: current[0].priority)  # of equal rules, the newest is last
        return 0

    def _make_route(self, change: Change, protocol: int) -> int:
        at_key = [current for current in self.held_routes if current[0].key == change.item.key]
        if change.verb == DELETE:
            if (change.item, protocol) not in self.held_routes:
                return errno.ESRCH
            self.held_routes.remove((change.item, protocol))
        elif change.verb == ADD:
            if at_key:
                return errno.EEXIST
            self.held_routes.append((change.item, protocol))
        else:
            assert change.verb == CHANGE
            if not at_key:
                return errno.ENOENT
            assert at_key[0] == (change.former, protocol), "the kernel replaces the first, whichever program owns it"
            self.held_routes[self.held_routes.index(at_key[0])] = (change.item, protocol)
        return 0

    def of(self, protocol: int) -> set[t.Any]:
        """The rules and routes with the protocol."""
        return {item for item, owner in [*self.held_rules, *self.held_routes] if owner == protocol}

    def not_of(self, protocol: int) -> list[Owned]:
        """The rules and routes with another protocol."""
        return [(item, owner) for item, owner in [*self.held_rules, *self.held_routes] if owner != protocol]
