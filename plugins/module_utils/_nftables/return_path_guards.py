# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards of the return path: warnings about settings without which the mark has no effect."""

from __future__ import annotations

import typing as t

from .._core import fields
from .._files import managed_files
from .._platform import kernel, sysctl, sysctl_files
from .._routing import known_programs, rt_names, rule
from .._routing.routing_backend import Netlink
from .._rp_filter import reverse_path
from .._rp_filter.live_reverse_path import LiveReversePath
from .return_path_table import MarkedLink, ReturnPath

STRICT = reverse_path.MODES["strict"]
PRIORITY = 1024  # AWS's (amazon-vpc-cni-k8s, pkg/networkutils/network.go, hostRulePriority)


def missing_links(desired: ReturnPath) -> t.Iterable[str]:
    """Warn of each interface with a mark that does not exist yet: no connection would be marked."""
    if not kernel.is_own_root():
        return  # in the root of an image, the links are the builder's, not the node's
    existing = sysctl.Sysctl().links()
    for link in (interface.name for interface in desired.marked_links if interface.name not in existing):
        if link == desired.primary_interface:
            yield (
                f"There is no link {link}, so no connection is marked until one appears. Set primary_interface to the"
                " link by which requests to the node's own addresses enter."
            )
        else:
            yield (
                f"There is no link {link}, so no connection gets its mark until one appears. Give interfaces the names of links"
                " by which requests enter."
            )


def mark_rule(desired: ReturnPath, coming: t.Collection[rule.Rule]) -> t.Iterable[str]:
    """Warn if no rule routes by a mark, if one rule routes by the marks of two interfaces, or if another rule precedes it.

    It does not refuse, because a CNI may add its own rule later. coming: rules that the same run adds.
    """
    if not kernel.is_own_root():
        return
    # an opaque rule may have selectors that cannot be parsed
    protocols = {item: protocol for item, protocol in Netlink().rules() if not item.opaque}
    in_order = sorted([*protocols, *coming], key=lambda item: item.priority)
    families = {name: [item for item in in_order if item.family == family] for name, family in fields.FAMILIES.items()}
    of_all = _of_all(protocols)
    used: dict[rule.Rule, MarkedLink] = {}
    preceding: set[rule.Rule] = set()
    for link in _existing(desired):
        routings = {name: desired.routing(rules, link.mark, coming, of_all) for name, rules in families.items()}
        is_routed = any(routing.marked for routing in routings.values())
        for name, routing in routings.items():
            if not routing.marked:
                is_needed = routing.earlier and desired.primary_interface  # otherwise one family may be enough
                if is_needed or (name == "ipv4" and not is_routed):
                    yield _missing_rule(desired, link, name, routing.earlier)
                continue
            marked = _with_owner(routing.marked, protocols)
            if routing.earlier and routing.earlier not in preceding:
                preceding.add(routing.earlier)
                yield (
                    f"{marked} comes after {_with_owner(routing.earlier, protocols)}, by which replies leave before the kernel"
                    f" looks at their mark. Give the mark's rule a priority below {routing.earlier.priority}, or remove the other"
                    " rule."
                )
            other = used.setdefault(routing.marked, link)
            if other is not link:
                yield (
                    f"{marked} routes by mark {link.mark:#x} of {link.name} as by mark {other.mark:#x} of {other.name}, so that"
                    f" replies of both leave by one link. Give each of them a rule, with the mask {desired.mask:#x}."
                )


def _of_all(rules: t.Iterable[rule.Rule]) -> list[rule.Rule]:
    """Return the rules without a selector that look up a table with a default route, other than the kernel's tables."""
    bare = [item for item in rules if item == rule.Rule(item.family, item.priority, table=item.table)]
    bare = [item for item in bare if item.table not in rt_names.TABLES.values()]
    routes = Netlink().routes() if bare else []  # a node may have thousands
    defaults = {(route.family, route.table) for route, _protocol in routes if not route.dst[1]}
    return [item for item in bare if (item.family, item.table) in defaults]


def _existing(desired: ReturnPath) -> list[MarkedLink]:
    """Return the primary interface and the others that exist. missing_links() names the others, whose rules come with them."""
    existing = sysctl.Sysctl().links()
    return [link for link in desired.marked_links if link.name == desired.primary_interface or link.name in existing]


def _missing_rule(desired: ReturnPath, link: MarkedLink, family: str, pods: rule.Rule | None) -> str:
    """Return the warning that no rule routes by a link's mark.

    pods: a rule of the family for pods, which shows that this family needs a rule for the mark, too.
    """
    mark = f"{link.mark:#x}/{desired.mask:#x}"
    priority = min(PRIORITY, pods.priority - 1) if pods else PRIORITY
    is_primary = link.name == desired.primary_interface
    table, which = ("main", "") if is_primary else ("TABLE", f", where TABLE is the one whose default route is by {link.name}")
    return (
        f"No {f'{family} ' if pods else ''}rule routes by mark {mark}, so the mark has no effect. Unless the node's CNI adds"
        " such a rule, add it with kubenode.datapath.policy_routes and rules:"
        f" [{{priority: {priority}, family: {family}, fwmark: {mark}, table: {table}}}]{which}."
    )


def _with_owner(item: rule.Rule, protocols: t.Mapping[rule.Rule, int]) -> str:
    """Show a rule with its owner, or alone if it is not in the kernel yet."""
    return f"{item} ({known_programs.owner(item, [protocols[item]])})" if item in protocols else str(item)


def strict_links_without_marks(valid: LiveReversePath | None, path: str | None, texts: t.Mapping[str, str]) -> t.Iterable[str]:
    """Warn of each link whose filter stays strict although packets that enter by it are no longer marked.

    valid: the links' src_valid_mark in the running kernel, path: of the file that sets it at boot; None for a plane that is not
    managed. texts: of all files of sysctl.d(5), by path.
    """
    times: dict[str, list[str]] = {}
    for time, links in (("in the running kernel", _strict_now(valid)), ("at the next boot", _strict_at_boot(path, texts))):
        for link in links:
            times.setdefault(link, []).append(time)
    for link, when in times.items():
        yield (
            f"Reverse-path filtering of {link} should be loose or off once packets that enter by it are no longer marked, but"
            f" stays strict {' and '.join(when)}: replies to pods whose traffic leaves by another interface are dropped."
            " Make it loose with kubenode.datapath.rp_filter, or remove with state absent what that module has set."
        )


def _strict_now(valid: LiveReversePath | None) -> t.Iterator[str]:
    read = sysctl.Sysctl().read
    for link in valid.released() if valid else ():
        if max(read(reverse_path.key(name)) or 0 for name in (reverse_path.ALL, link)) == STRICT:
            yield link


def _strict_at_boot(path: str | None, texts: t.Mapping[str, str]) -> t.Iterator[str]:
    own_texts = {name: text for name, text in texts.items() if text.startswith(managed_files.HEADING)}
    given_up = {path: own_texts.pop(path)} if path and path in own_texts else {}
    remaining = sysctl_files.by_systemd(own_texts)
    for assignment in sysctl_files.by_systemd(given_up).assignments:
        link = assignment.key.split("/")[3]
        if remaining.value(assignment.key) != assignment.number and reverse_path.at_boot(link, texts) == STRICT:
            yield link
