# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The return path: a connection that came in by the primary interface leaves by it, whatever route its pod has.

On a node whose pods share cloud interfaces through policy routing, what a pod sends leaves by its own interface. A reply
to a NodePort, or to a load balancer, has to leave by the one where the request came in. So each packet that enters by the
primary interface for one of its addresses marks its connection, and what a pod sends on a marked connection gets the
mark, by which a rule of the operator's ("fwmark 0x80/0x80 lookup main") routes it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from . import names
from .nftables import Chain, Mangle, Rule, Table, mark_text, match
from .problem import Invalid

MARK_LIMIT = 2**32 - 1  # nf_conn and sk_buff keep marks in 32 bits

# Mangle, -150: after connection tracking (-200), before destination NAT (-100), so that the address is the one that the
# packet came for, and kube-proxy, in iptables or nftables mode, sees what it always sees.
PRIORITY = -150


@dataclass(frozen=True)
class ReturnPath:
    """The wish.

    mark, mask: the bits of a mark that are ours, and how they stand; all others are kept as they are.
    strict: whether the packet is marked when it enters, too, so that strict reverse-path filtering looks its source up
        by the mark's rule (with src_valid_mark, Documentation/networking/ip-sysctl.rst).
    """

    name: str
    primary_interface: str
    pod_interfaces: tuple[str, ...]
    mark: int
    mask: int
    strict: bool = False

    @classmethod
    def from_options(cls, options: t.Mapping[str, t.Any]) -> ReturnPath:
        """The wish in a module's options. Raises Invalid for the first option that can not be used."""
        primary = names.interface("primary_interface", options["primary_interface"] or "")
        mark = _bits("mark", options["mark"])
        mask = _bits("mask", options["mask"]) if options["mask"] is not None else mark
        if mark & ~mask:
            raise Invalid("mark", options["mark"], f"within mask {mark_text(mask)}, as other bits are not ours")
        pods = _patterns(options["pod_interfaces"] or [], primary)
        return cls(names.table("table", options["table"]), primary, pods, mark, mask, options["strict"])

    def table(self) -> Table:
        """The wish as the kernel holds it."""
        entering = (match("iifname", self.primary_interface), match("fib daddr . iif type", "local"))
        marked = match(f"ct mark & {mark_text(self.mask)}", self.mark)
        rules: list[Rule] = [(*entering, self._marking("ct mark"))]
        rules += [(*entering, self._marking("meta mark"))] if self.strict else []
        # What a pod sends, and what an L7 proxy on the node sends in a pod's place, which passes lo.
        rules += [(match("iifname", link), marked, self._marking("meta mark")) for link in (*self.pod_interfaces, "lo")]
        chain = Chain("prerouting", "filter", "prerouting", PRIORITY, tuple(rules))
        return Table("inet", self.name, frozenset({chain}))

    def _marking(self, expression: str) -> Mangle:
        """Sets our bits of a mark. Spelled as the kernel reduces it: bits that are set are not cleared before."""
        kept = ~self.mask & MARK_LIMIT | self.mark
        cleared = expression if kept == MARK_LIMIT else f"{expression} & {mark_text(kept)}"
        return Mangle(expression, f"{cleared} | {mark_text(self.mark)}")


def _bits(option: str, given: object) -> int:
    """A number in any of Python's and nft's spellings: "128", "0x80"."""
    try:
        number = int(str(given), 0)
    except ValueError:
        number = 0
    if not 0 < number <= MARK_LIMIT:
        raise Invalid(option, given, f"a number from 1 to {mark_text(MARK_LIMIT)}, as 128 or 0x80")
    return number


def _patterns(given: t.Sequence[str], primary: str) -> tuple[str, ...]:
    """Each once, in sorted order: in which order the links are asked means nothing."""
    if not given:
        raise Invalid("pod_interfaces", list(given), "a list of at least one link's name or pattern, as eni*")
    patterns = [names.pattern(f"pod_interfaces[{index}]", one) for index, one in enumerate(given)]
    for index, pattern in enumerate(patterns):
        covers_primary = primary.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == primary
        if covers_primary:
            raise Invalid(f"pod_interfaces[{index}]", pattern, f"a pattern that primary_interface {primary} does not match")
        if pattern == "lo":
            raise Invalid(f"pod_interfaces[{index}]", pattern, "a pods' link; lo is always taken")
    return tuple(sorted(set(patterns)))
