# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A kernel's policy rules and routes, without the kernel. It says no where the kernel does."""

from __future__ import annotations

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._model.problem import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._model.rule import Rule
from ansible_collections.kubenode.datapath.plugins.module_utils._system.netlink import (
    ADD,
    CHANGE,
    DELETE,
    Apply,
    Change,
    Held,
    Netlink,
)


class FakeNetlink(Netlink):
    """Rules in the kernel's order and routes, each with its protocol.

    refuses: changes that fail. before: called with each change before it is made. messages: how many there were.
    """

    def __init__(
        self,
        rules: t.Iterable[Held] = (),
        routes: t.Iterable[Held] = (),
        names: t.Iterable[str] = ("lo", "eth0", "eth1"),
    ) -> None:
        self.held_rules = sorted(rules, key=lambda held: held[0].priority)
        self.held_routes = list(routes)
        self.names = list(names)
        self.refuses: set[Change] = set()
        self.before: t.Callable[[Change], None] = lambda change: None
        self.messages = 0

    def rules(self) -> list[Held]:
        return [held for family in (2, 10) for held in self.held_rules if held[0].family == family]

    def routes(self) -> list[Held]:
        return list(self.held_routes)

    def links(self) -> dict[int, str]:
        return dict(enumerate(self.names, 1))

    def perform(self, operation: Apply) -> None:
        done: list[Change] = []
        try:
            for change in operation.changes:
                self.before(change)
                self._make(change, operation.protocol)
                done.append(change)
        except BaseException:
            for change in reversed(done):
                self._make(change.inverse(), operation.protocol, insist=True)
            raise

    def _make(self, change: Change, protocol: int, insist: bool = False) -> None:
        if change in self.refuses and not insist:
            raise Failure(f"{change.verb} {change.item} was refused by the kernel: Operation not permitted")
        self.messages += 1
        if isinstance(change.item, Rule):
            self._make_rule(change, protocol)
        else:
            self._make_route(change, protocol)

    def _make_rule(self, change: Change, protocol: int) -> None:
        if change.verb == DELETE:
            if (change.item, protocol) in self.held_rules:  # what is to go may have gone
                self.held_rules.remove((change.item, protocol))
            return
        assert change.verb == ADD
        if (change.item, protocol) in self.held_rules:
            raise Failure(f"add {change.item} was refused by the kernel: File exists")
        self.held_rules.append((change.item, protocol))
        self.held_rules.sort(key=lambda held: held[0].priority)  # among equals the newest is last

    def _make_route(self, change: Change, protocol: int) -> None:
        at_key = [held for held in self.held_routes if held[0].key == change.item.key]
        if change.verb == DELETE:
            if (change.item, protocol) in self.held_routes:
                self.held_routes.remove((change.item, protocol))
        elif change.verb == ADD:
            if at_key:
                raise Failure(f"add {change.item} was refused by the kernel: File exists")
            self.held_routes.append((change.item, protocol))
        else:
            assert change.verb == CHANGE
            if not at_key:
                raise Failure(f"change {change.item} was refused by the kernel: No such file or directory")
            assert at_key[0] == (change.former, protocol), "the kernel replaces the first, whoever owns it"
            self.held_routes[self.held_routes.index(at_key[0])] = (change.item, protocol)

    def of(self, protocol: int) -> set[t.Any]:
        """What carries the protocol."""
        return {item for item, owner in [*self.held_rules, *self.held_routes] if owner == protocol}

    def not_of(self, protocol: int) -> list[Held]:
        """All else."""
        return [(item, owner) for item, owner in [*self.held_rules, *self.held_routes] if owner != protocol]
