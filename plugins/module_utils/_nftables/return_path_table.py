# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The return path: a connection that came in by the primary interface leaves by it, whatever route its pod has.

On a node whose pods share cloud interfaces through policy routing, what a pod sends leaves by its own interface. A reply
to a NodePort, or to a load balancer, has to leave by the one where the request came in. So each packet that enters by the
primary interface for one of its addresses marks its connection, and what a pod sends on a marked connection gets the
mark, by which a rule of the operator's ("fwmark 0x80/0x80 lookup main") routes it.

Replies to what a pod has sent enter there too, when the pod was masqueraded to the node's address. They must not mark the
connection: the pod would go on by the primary interface, and masquerading drops what changes its interface
(net/netfilter/nf_nat_core.c, nf_nat_oif_changed). But under strict filtering the packet itself needs the mark.
"""

from __future__ import annotations

import re
import typing as t

from .._core import fields, names
from .._core.errors import Invalid
from .._routing import rt_names, rule
from .._rp_filter import reverse_path
from .nft_table import Chain, Mangle, Rule, Table, mark_text, match

MARK_LIMIT = 2**32 - 1  # nf_conn and sk_buff keep marks in 32 bits

# Mangle, -150: after connection tracking (-200), before destination NAT (-100), so that the address is the one that the
# packet came for, and kube-proxy, in iptables or nftables mode, sees what it always sees.
PRIORITY = -150


class ReturnPath(t.NamedTuple):
    """The wish.

    mark, mask: the bits of a mark that are ours, and how they stand; all others are kept as they are.
    strict: whether the packet is marked when it enters, too, so that strict reverse-path filtering looks its source up
        by the mark's rule; it needs src_valid_mark (net/ipv4/fib_frontend.c, fib_validate_source).
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
        primary = names.network_interface("primary_interface", options["primary_interface"] or "")
        if primary == "lo":
            raise Invalid("primary_interface", primary, "the link by which requests enter, as eth0")
        if options["strict"] and "=" in primary:
            allowed = (
                "a link's name without = where strict is true, as no line of sysctl.d(5) can set src_valid_mark of it"
            )
            raise Invalid("primary_interface", primary, allowed)
        mark = _bits("mark", options["mark"])
        mask = _bits("mask", options["mask"]) if options["mask"] is not None else mark
        if mark & ~mask:
            raise Invalid("mark", options["mark"], f"within mask {mark_text(mask)}, as other bits are not ours")
        pods = _patterns(options["pod_interfaces"] or [], primary)
        return cls(names.table("table", options["table"]), primary, pods, mark, mask, options["strict"])

    def table(self) -> Table:
        """The wish as the kernel holds it."""
        entering = (match("iifname", self.primary_interface), match("fib daddr . iif type", "local"))
        marked = match("ct mark" if self.mask == MARK_LIMIT else f"ct mark & {mark_text(self.mask)}", self.mark)
        rules: list[Rule] = [(*entering, match("ct direction", "original"), self._marking("ct mark"))]
        rules += [(*entering, self._marking("meta mark"))] if self.strict else []
        # What a pod sends, and what is sent in a pod's place and turned around in lo (github.com/cilium/cilium/pull/47739).
        rules += [(match("iifname", link), marked, self._marking("meta mark")) for link in (*self.pod_interfaces, "lo")]
        # What an L7 proxy on the node sends in a pod's place: from an address that is routed, but not the node's own.
        # Connection tracking puts the client's address back in this hook (-100), so most of it never gets to lo.
        proxied = (match("fib saddr type", "unicast"), marked, self._marking("meta mark"))
        chains = {
            Chain("prerouting", "filter", "prerouting", PRIORITY, tuple(rules)),
            Chain("output", "route", "output", PRIORITY, (proxied,)),
        }
        return Table("inet", self.name, frozenset(chains))

    def validation(self) -> reverse_path.Wish | None:
        """The links whose src_valid_mark has to be 1, as a wish like that for a mode of filtering."""
        return reverse_path.Wish(1, (self.primary_interface,), (), raise_all=False) if self.strict else None

    def sysctl_text(self) -> str | None:
        """The same as a file of sysctl.d(5)."""
        setting = reverse_path.key(self.primary_interface, reverse_path.SRC_VALID_MARK)
        return f"{sysctl_heading(self.name)}{setting} = 1\n" if self.strict else None

    def routing(self, rules: t.Iterable[rule.Rule]) -> Routing:
        """What becomes of marked packets by a family's rules, in the kernel's order."""
        marked: rule.Rule | None = None
        pods: rule.Rule | None = None
        for one in rules:
            if self._asks_for_mark(one):
                marked = one
                break
            if pods is None and self._is_for_pods(one):
                pods = one
        return Routing(marked, pods)

    def _asks_for_mark(self, one: rule.Rule) -> bool:
        """A rule that asks for other bits as well misses packets that others have marked."""
        is_ours = one.fwmark and one.fwmask & ~self.mask == 0 and one.fwmark == self.mark & one.fwmask
        return bool(is_ours) and one.action in (rule.LOOKUP, rule.GOTO) and not one.invert

    def _is_for_pods(self, one: rule.Rule) -> bool:
        """A rule by which what pods send leaves by another interface."""
        is_about_pods = one.src != fields.ANY or any(_covers(pattern, one.iif) for pattern in self.pod_interfaces)
        is_elsewhere = one.action == rule.LOOKUP and one.table not in rt_names.TABLES.values()
        return is_about_pods and is_elsewhere and not one.fwmask and not one.invert

    def _marking(self, expression: str) -> Mangle:
        """Sets our bits of a mark. Spelled as the kernel reduces it: bits that are set are not cleared before."""
        if self.mask == MARK_LIMIT:
            return Mangle(expression, mark_text(self.mark))
        kept = ~self.mask & MARK_LIMIT | self.mark
        cleared = expression if kept == MARK_LIMIT else f"{expression} & {mark_text(kept)}"
        return Mangle(expression, f"{cleared} | {mark_text(self.mark)}")


class Routing(t.NamedTuple):
    """The first rule of a family that routes by the mark, and the first before it that decides on what pods send."""

    marked: rule.Rule | None
    pods: rule.Rule | None


def sysctl_path(table: str) -> str:
    """Where the next boot finds sysctl_text()."""
    return f"/etc/sysctl.d/90-kubenode-nft-inet-{table}.conf"


def sysctl_heading(table: str) -> str:
    """How sysctl_text() begins."""
    return f"# For table inet {table}.\n"


def _bits(option: str, given: object) -> int:
    """A number in decimal or hexadecimal: "128", "0x80"."""
    found = re.fullmatch(r"0[xX][0-9a-fA-F]+|[1-9][0-9]*", str(given))
    number = int(found[0], 0) if found else 0
    if not 0 < number <= MARK_LIMIT:
        raise Invalid(option, given, f"a number from 1 to {mark_text(MARK_LIMIT)}, as 128 or 0x80")
    return number


def _covers(pattern: str, link: str) -> bool:
    return link.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == link


def _patterns(given: t.Sequence[str], primary: str) -> tuple[str, ...]:
    """Each once, in sorted order: in which order the links are asked means nothing."""
    if not given:
        raise Invalid("pod_interfaces", list(given), "a list of at least one link's name or pattern, as eni*")
    patterns = [names.pattern(f"pod_interfaces[{index}]", one) for index, one in enumerate(given)]
    for index, pattern in enumerate(patterns):
        if _covers(pattern, primary):
            raise Invalid(
                f"pod_interfaces[{index}]", pattern, f"a pattern that primary_interface {primary} does not match"
            )
        if pattern.endswith("+"):  # iptables' wildcard; to nft a character like another
            raise Invalid(f"pod_interfaces[{index}]", pattern, f"a name, or {pattern[:-1]}* for names that begin so")
        if pattern == "lo":
            raise Invalid(f"pod_interfaces[{index}]", pattern, "a pods' link; lo is always taken")
    return tuple(sorted(set(patterns)))
