# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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
AUTO, NFTABLES, BPF = "auto", "nftables", "bpf"
_TRANSLATING = {NFTABLES: "the table", BPF: "BPF programs"}

_OF_TABLE = option.targeting("nftables_probe_snat", probe_table.OPTIONS)

OPTIONS: option.Options = {
    "state": STATE,
    "ipv6": permitted("str", "imds", choices=(*AT_BOOT, "always", "never")),
    "mode": node_mode.MODE,
    **_OF_TABLE,
    "backend": _OF_TABLE["backend"]._replace(default=AUTO),
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
    """addresses: the global IPv6 addresses of the source that the option ``ipv6`` names; empty if it was not asked.

    bpf_reason: why BPF programs must translate the probes; empty if a table can, or if the option ``backend`` decides.
    """

    is_image: bool
    addresses: t.Sequence[str] = ()
    bpf_reason: str = ""


class Facts(t.NamedTuple):
    """has_ipv6: None if that does not matter, because the profile is undone.

    backend: what translates the probes; empty on a node without IPv6.
    """

    has_ipv6: bool | None = None
    ipv6_reason: str = ""
    backend: str = ""
    backend_reason: str = ""

    def report(self) -> dict[str, t.Any]:
        return {} if self.has_ipv6 is None else self._asdict()

    def warnings(self) -> list[str]:
        return []


def is_asked(options: Values, is_image: bool) -> bool:
    """Return whether the source of the option ``ipv6`` must be asked in this run."""
    return options["state"] != UNDO and options["ipv6"] in AT_BOOT and not is_image


def facts(options: Values, observed: Observation) -> Facts:
    """Return whether the node has IPv6, and what translates its probes. An image gets what a node with IPv6 needs, because each
    boot decides.
    """
    source = options["ipv6"]
    if options["state"] == UNDO:
        return Facts()
    if source not in AT_BOOT:
        return _verdict(source == "always", "aks_dual_stack_ipv6 says so", options, observed)
    if observed.is_image:
        return Facts(True, "Each boot decides whether the node has IPv6.", *_backend(options, observed))
    listed = ", ".join(observed.addresses)
    if source == "imds":
        reason = f"the metadata service names {listed or 'no IPv6 address'} for the primary interface"
    else:
        reason = f"{options['interface']} has {listed or 'no global address'}"
    return _verdict(bool(listed), reason, options, observed)


def _verdict(has_ipv6: bool, reason: str, options: Values, observed: Observation) -> Facts:
    chosen = _backend(options, observed) if has_ipv6 else ("", "")
    return Facts(has_ipv6, f"The node has {'' if has_ipv6 else 'no '}IPv6: {reason}.", *chosen)


def _backend(options: Values, observed: Observation) -> tuple[str, str]:
    """Return what translates the probes, and the reason as a sentence."""
    chosen = options["backend"]
    if chosen != AUTO:
        reason = "aks_dual_stack_backend says so"
    elif observed.is_image:
        chosen = NFTABLES
        reason = (
            "an image does not show whether Cilium takes probes. Set aks_dual_stack_backend to bpf for nodes on which Cilium"
            " replaces kube-proxy"
        )
    else:
        chosen = BPF if observed.bpf_reason else NFTABLES
        reason = observed.bpf_reason or f"nothing shows that Cilium takes probes on {options['interface']} before nftables"
    return chosen, f"Probes are translated by {_TRANSLATING[chosen]}: {reason}."


def plan(options: Values, facts: Facts) -> list[Step]:
    """Return the modules with their options, in the order in which they are applied.

    A table needs nft before it. BPF programs do not, so that nft goes behind the table that they replace.
    """
    state = "present" if facts.has_ipv6 else "absent"
    needs_nft = facts.backend == NFTABLES
    condition = options["ipv6"] if options["ipv6"] in AT_BOOT else "none"
    package = {
        "state": "present" if needs_nft else "absent",
        **option.passed(OPTIONS, options, "nftables_package"),
    }
    table = {
        "state": state,
        **option.passed(OPTIONS, options, "nftables_probe_snat"),
        "backend": facts.backend or options["backend"],
        "boot_condition": condition,
    }
    steps: list[Step] = [("nftables_package", package), ("nftables_probe_snat", table)]
    return steps if needs_nft else steps[::-1]
