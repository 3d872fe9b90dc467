# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The profile aks_dual_stack: its options, and the modules that they stand for on a node with or without IPv6."""

from __future__ import annotations

import typing as t

from .._core import fields, option, version
from .._core.option import STATE, Values, applied, permitted, within
from .._platform import node_mode
from .._probe_snat import probe_table

if t.TYPE_CHECKING:
    from .composition import Step

UNDO = "absent"
AT_BOOT = ("imds", "address")  # sources that each boot asks, too


OPTIONS: option.Options = {
    "state": STATE,
    "ipv6": permitted("str", "imds", choices=(*AT_BOOT, "always", "never")),
    "mode": node_mode.MODE,
    **option.targeting("nftables_probe_snat", probe_table.OPTIONS),
    "nftables_minimum_version": permitted(
        "str",
        "0.9.8",
        check=applied(version.wanted, "nftables_minimum_version"),
        targets=("nftables_package.minimum_version",),
    ),
    "nftables_service": permitted("str", "ignore", choices=("masked", "ignore"), targets=("nftables_package.service",)),
    "nftables_lock_timeout": permitted(
        "int", 300, check=within("nftables_lock_timeout", 0, fields.UINT32), targets=("nftables_package.lock_timeout",)
    ),
    "later_interfaces": permitted("bool", False),
}


def checkpoint_of(_options: Values) -> tuple[int, str]:
    """Return no checkpoint: the table does not affect the controller's connection."""
    return 0, ""


def conflicts(_options: Values, _is_image: bool | None) -> t.Iterable[str]:
    return ()


class Observation(t.NamedTuple):
    """addresses: the global IPv6 addresses of the source that the option ``ipv6`` names; empty if it was not asked."""

    is_image: bool
    addresses: t.Sequence[str] = ()


class Facts(t.NamedTuple):
    """has_ipv6: None if that does not matter, because the profile is undone."""

    has_ipv6: bool | None = None
    ipv6_reason: str = ""

    def report(self) -> dict[str, t.Any]:
        return {} if self.has_ipv6 is None else self._asdict()

    def warnings(self) -> list[str]:
        return []


def is_asked(options: Values, is_image: bool) -> bool:
    """Return whether the source of the option ``ipv6`` must be asked in this run."""
    return options["state"] != UNDO and options["ipv6"] in AT_BOOT and not is_image


def facts(options: Values, observed: Observation) -> Facts:
    """Return whether the node has IPv6. An image gets what a node with IPv6 needs, because each boot decides."""
    source = options["ipv6"]
    if options["state"] == UNDO:
        return Facts()
    if source not in AT_BOOT:
        return _verdict(source == "always", "aks_dual_stack_ipv6 says so")
    if observed.is_image:
        return Facts(True, "Each boot decides whether the node has IPv6.")
    listed = ", ".join(observed.addresses)
    if source == "imds":
        reason = f"the metadata service names {listed or 'no IPv6 address'} for the primary interface"
    else:
        reason = f"{options['interface']} has {listed or 'no global address'}"
    return _verdict(bool(listed), reason)


def _verdict(has_ipv6: bool, reason: str) -> Facts:
    return Facts(has_ipv6, f"The node has {'' if has_ipv6 else 'no '}IPv6: {reason}.")


def plan(options: Values, facts: Facts) -> list[Step]:
    """Return the modules with their options, in the order in which they are applied: a table needs nft."""
    state = "present" if facts.has_ipv6 else "absent"
    condition = options["ipv6"] if options["ipv6"] in AT_BOOT else "none"
    package = {"state": state, **option.passed(OPTIONS, options, "nftables_package")}
    table = {"state": state, **option.passed(OPTIONS, options, "nftables_probe_snat"), "boot_condition": condition}
    steps: list[Step] = [("nftables_package", package), ("nftables_probe_snat", table)]
    return steps if facts.has_ipv6 else steps[::-1]
