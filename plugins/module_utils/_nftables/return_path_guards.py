# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Guards of the return path: warnings about settings without which the mark has no effect."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._files import managed_files
from .._platform import kernel, sysctl, sysctl_files
from .._routing import known_programs, rule
from .._routing.routing_backend import Netlink
from .._rp_filter import reverse_path
from .._rp_filter.live_reverse_path import LiveReversePath
from .return_path_table import ReturnPath, Way

STRICT = reverse_path.MODES["strict"]
PRIORITY = 1024  # AWS's (amazon-vpc-cni-k8s, pkg/networkutils/network.go, hostRulePriority)


class MissingLinks:
    """Warns of each interface with a mark that does not exist yet: no connection would be marked."""

    def __init__(self, desired: ReturnPath) -> None:
        self._desired = desired

    def __call__(self) -> t.Iterable[str]:
        # In the root of an image, the links are the builder's, not the node's.
        if kernel.is_own_root():
            there = sysctl.Sysctl().links()
            yield from (self._missing(way.name) for way in self._desired.ways if way.name not in there)

    def _missing(self, link: str) -> str:
        if link == self._desired.primary_interface:
            return (
                f"There is no link {link}, so no connection is marked until one appears. Set primary_interface to the"
                " link by which requests to the node's own addresses enter."
            )
        return (
            f"There is no link {link}, so no connection gets its mark until one appears. Give interfaces the names of links by"
            " which requests enter."
        )


class MarkRule:
    """Warns if no rule routes by a mark, if one rule routes by the marks of two interfaces, or if rules for pods precede it.

    It does not refuse, because a CNI may add its own rule later.
    """

    def __init__(self, desired: ReturnPath, coming: t.Iterable[rule.Rule] = ()) -> None:
        """coming: rules that the same run adds."""
        self._desired = desired
        self._coming = coming

    def __call__(self) -> t.Iterable[str]:
        if not kernel.is_own_root():
            return
        # an opaque rule may have selectors that cannot be parsed
        protocols = {item: protocol for item, protocol in Netlink().rules() if not item.opaque}
        in_order = sorted([*protocols, *self._coming], key=lambda item: item.priority)
        families = {name: [item for item in in_order if item.family == family] for name, family in fields.FAMILIES.items()}
        used: dict[rule.Rule, Way] = {}
        for way in self._ways():
            routings = {name: self._desired.routing(rules, way.mark) for name, rules in families.items()}
            is_routed = any(routing.marked for routing in routings.values())
            for name, routing in routings.items():
                if not routing.marked:
                    if routing.pods or (name == "ipv4" and not is_routed):
                        yield self._missing(way, name, routing.pods)
                    continue
                marked = _shown(routing.marked, protocols)
                if routing.pods:
                    yield (
                        f"{marked} comes after {_shown(routing.pods, protocols)}, which sends replies out by the pod's interface"
                        f" before the kernel looks at their mark. Give the mark's rule a priority below {routing.pods.priority}."
                    )
                other = used.setdefault(routing.marked, way)
                if other is not way:
                    yield (
                        f"{marked} routes by mark {way.mark:#x} of {way.name} as by mark {other.mark:#x} of {other.name}, so that"
                        " replies of both leave by one interface. Give each of them a rule, with the mask"
                        f" {self._desired.mask:#x}."
                    )

    def _ways(self) -> list[Way]:
        """Return the primary interface and the others that exist. MissingLinks names the others, whose rules come with them."""
        there = sysctl.Sysctl().links()
        return [way for way in self._desired.ways if way.name == self._desired.primary_interface or way.name in there]

    def _missing(self, way: Way, family: str, pods: rule.Rule | None) -> str:
        """Return the warning that no rule routes by an interface's mark.

        pods: a rule of the family for pods, which shows that this family needs a rule for the mark, too.
        """
        mark = f"{way.mark:#x}/{self._desired.mask:#x}"
        priority = min(PRIORITY, pods.priority - 1) if pods else PRIORITY
        is_primary = way.name == self._desired.primary_interface
        table, which = ("main", "") if is_primary else ("TABLE", f", where TABLE is the one whose default route is by {way.name}")
        return (
            f"No {f'{family} ' if pods else ''}rule routes by mark {mark}, so the mark has no effect. Unless the node's CNI adds"
            " such a rule, add it with kubenode.datapath.policy_routes and rules:"
            f" [{{priority: {priority}, family: {family}, fwmark: {mark}, table: {table}}}]{which}."
        )


def _shown(item: rule.Rule, protocols: t.Mapping[rule.Rule, int]) -> str:
    """Show a rule with its owner, or alone if it is not in the kernel yet."""
    return f"{item} ({known_programs.owner(item, [protocols[item]])})" if item in protocols else str(item)


class StrictFilter:
    """Warns of each link whose filter stays strict although packets that enter by it are no longer marked.

    valid: the links' src_valid_mark in the running kernel, path: of the file that sets it at boot; None for a plane that is not
    managed. files: the texts of all files of sysctl.d(5), by path.
    """

    def __init__(self, valid: LiveReversePath | None, path: str | None, files: t.Mapping[str, str]) -> None:
        self._valid = valid
        self._path = path
        self._files = files

    def __call__(self) -> t.Iterable[str]:
        times: dict[str, list[str]] = {}
        for time, links in (("in the running kernel", self._now()), ("at the next boot", self._at_boot())):
            for link in links:
                times.setdefault(link, []).append(time)
        for link, when in times.items():
            yield (
                f"Reverse-path filtering of {link} should be loose or off once packets that enter by it are no longer marked, but"
                f" stays strict {' and '.join(when)}: replies to pods whose traffic leaves by another interface are dropped."
                " Make it loose with kubenode.datapath.rp_filter, or remove with state absent what that module has set."
            )

    def _now(self) -> t.Iterator[str]:
        read = sysctl.Sysctl().read
        for link in self._valid.released() if self._valid else ():
            if max(read(reverse_path.key(name)) or 0 for name in (reverse_path.ALL, link)) == STRICT:
                yield link

    def _at_boot(self) -> t.Iterator[str]:
        ours = {path: text for path, text in self._files.items() if text.startswith(managed_files.HEADING)}
        given_up = {self._path: ours.pop(self._path)} if self._path in ours else {}
        others = sysctl_files.by_systemd(ours)
        for assignment in sysctl_files.by_systemd(given_up).assignments:
            link = assignment.key.split("/")[3]
            if others.value(assignment.key) != assignment.number and reverse_path.at_boot(link, self._files) == STRICT:
                yield link
