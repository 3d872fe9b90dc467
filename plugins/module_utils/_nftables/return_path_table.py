# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The return path: replies on a connection that came in by the primary interface leave by it, whatever route the pod has.

On a node whose pods share cloud interfaces through policy routing, a pod's packets leave by the pod's interface. A reply
to a NodePort or to a load balancer must leave by the interface by which the request came in. So each packet that enters by
the primary interface for one of its addresses marks its connection. A pod's packets on a marked connection get the mark,
and a rule of the operator's ("fwmark 0x80/0x80 lookup main") routes them. Other interfaces may have marks of their own.

Replies to a pod that was masqueraded to the node's address enter by the primary interface, too. They must not mark the
connection: the pod's next packets would then leave by the primary interface, and masquerading drops packets that change
their interface (net/netfilter/nf_nat_core.c, nf_nat_oif_changed). But under strict reverse-path filtering the reply packet
itself needs the mark.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import typing as t

from .._core import fields, names
from .._core.errors import Invalid
from .._routing import rt_names, rule
from .._rp_filter import reverse_path
from . import table_names
from .nft_table import Chain, Mangle, Match, Rule, Table, Verdict, mark_text, match, prefixes, verdict_map

MARK_LIMIT = 2**32 - 1  # nf_conn and sk_buff keep marks in 32 bits

# After connection tracking (-200) and before destination NAT (-100). So the destination is still the original one, and
# kube-proxy, in iptables or nftables mode, sees the same packets as without this table. Also after mangle (-150), where other
# programs restore the whole marks of connections: wg-quick gives them to all packets of UDP.
PRIORITY = -149


class MarkedLink(t.NamedTuple):
    """An interface by which connections come in, and their mark."""

    name: str
    mark: int


class ReturnPath(t.NamedTuple):
    """The desired state.

    primary_interface: empty if all interfaces are in ``interfaces``; then there is no ``mark``, and ``pod_interfaces`` do not
        matter.
    mark: of the primary interface: the value that is set in the bits of ``mask``. All other bits of a mark are kept.
    strict: if true, the packet is marked as it enters, too, so that strict reverse-path filtering looks up its source with
        the mark's rule. This needs src_valid_mark (net/ipv4/fib_frontend.c, fib_validate_source).
    service_addresses: prefixes whose connections are marked although their addresses are on no interface; the fewest of
        each family that contain the same addresses, sorted.
    interfaces: the other interfaces with a mark of their own, sorted. All connections that are opened from outside by one of them
        get its mark.
    """

    name: str
    primary_interface: str
    pod_interfaces: tuple[str, ...]
    mark: int
    mask: int
    strict: bool = False
    service_addresses: tuple[str, ...] = ()
    interfaces: tuple[MarkedLink, ...] = ()

    @classmethod
    def from_options(cls, options: t.Mapping[str, t.Any]) -> ReturnPath:
        """Return the desired state from a module's options. Raises Invalid for the first option that is not valid."""
        if options.get("interfaces") and not options["primary_interface"]:
            return cls._without_primary(options)
        primary = names.network_interface("primary_interface", options["primary_interface"] or "")
        if primary == "lo":
            raise Invalid("primary_interface", primary, "the link by which requests enter, for example eth0")
        if options["strict"] and "=" in primary:
            allowed = "a link's name without = where strict is true, as no line of sysctl.d(5) can set src_valid_mark of it"
            raise Invalid("primary_interface", primary, allowed)
        whole_mask = _bits("mask", options["mask"]) if options["mask"] is not None else None
        first = MarkedLink(primary, _mark("mark", options["mark"], whole_mask))
        secondary = _marked_links(options.get("interfaces") or [], first, whole_mask)
        mask = functools.reduce(operator.or_, (other.mark for other in secondary), whole_mask or first.mark)
        pods = _patterns(options["pod_interfaces"] or [], primary, [other.name for other in secondary])
        services = service_prefixes(options.get("service_addresses") or [])
        name, marked = table_names.table("table", options["table"]), tuple(sorted(secondary))
        return cls(name, primary, pods, first.mark, mask, options["strict"], services, marked)

    @classmethod
    def _without_primary(cls, options: t.Mapping[str, t.Any]) -> ReturnPath:
        for option in ("strict", "service_addresses"):
            if options.get(option):
                raise Invalid(option, options[option], "left out, unless primary_interface is given")
        whole_mask = _bits("mask", options["mask"]) if options["mask"] is not None else 0
        marked = _marked_links(options["interfaces"], None, whole_mask or None)
        mask = functools.reduce(operator.or_, (interface.mark for interface in marked), whole_mask)
        return cls(table_names.table("table", options["table"]), "", (), 0, mask, interfaces=tuple(sorted(marked)))

    @property
    def marked_links(self) -> tuple[MarkedLink, ...]:
        """Return all interfaces with a mark, the primary first."""
        primary = [MarkedLink(self.primary_interface, self.mark)] if self.primary_interface else []
        return (*primary, *self.interfaces)

    def bits(self) -> t.Iterator[tuple[int, int]]:
        """Yield each mark with its bits. Those of the mask that no mark has are the primary's."""
        marks = functools.reduce(operator.or_, (interface.mark for interface in self.interfaces), 0)
        if self.primary_interface:
            yield self.mark, self.mask if self.mask == MARK_LIMIT else self.mark | self.mask & ~marks
        yield from ((interface.mark, interface.mark) for interface in self.interfaces)

    def table(self) -> Table:
        """Return the desired table.

        However many interfaces there are, one lookup finds the chain of a packet of theirs. Packets of the primary and of pods,
        which are most, are found before it: a comparison with a name costs less.
        """
        connection = "ct mark" if self.mask == MARK_LIMIT else f"ct mark & {mark_text(self.mask)}"
        primary = bool(self.primary_interface)
        entering = {interface.name: f"entering_{interface.mark:#x}" for interface in self.interfaces}
        replies = {interface.mark: f"replies_{interface.mark:#x}" for interface in self.interfaces}
        # After the marking, because requests of a marked connection may come in by another interface than before.
        replied = (_chosen(connection, replies),) if replies else ()
        # With strict the primary's reverse-path filter drops a reply of a pod on another node that has another interface's mark.
        replied_by_primary = () if self.strict else replied
        chains = [
            *(Chain(replies[link.mark], None, None, None, self._replies(link.mark)) for link in self.interfaces),
            *(Chain(entering[link.name], None, None, None, (*self._opened(link.mark), *replied)) for link in self.interfaces),
        ]
        proxied = {self.mark: "proxied"} if primary else {}
        sorting: tuple[Rule, ...] = (_chosen("iifname", entering), *replied) if replies else ()
        if primary:
            links, marked = (*self.pod_interfaces, "lo"), match(connection, self.mark)
            # Packets from pods, and packets sent on behalf of a pod that pass lo (github.com/cilium/cilium/pull/47739).
            leaving = (self._marking("meta mark", self.mark), Verdict("accept"))
            first = (match("iifname", self.primary_interface), Verdict("goto entering"))
            if replies:
                of_pods = tuple((match("iifname", link), Verdict("goto leaving")) for link in links)
                sorting, of_leaving = (first, *of_pods, *sorting), ((marked, *leaving), *replied)
            else:
                sorting = (first, (marked, Verdict("goto leaving")))
                of_leaving = tuple((match("iifname", link), *leaving) for link in links)
            chains += [
                Chain("leaving", None, None, None, of_leaving),
                Chain("proxied", None, None, None, self._proxied()),
                Chain("entering", None, None, None, (*self._entering(marked), *replied_by_primary)),
            ]
        sent = (_chosen(connection, {**proxied, **replies}),)
        chains += [
            Chain("prerouting", "filter", "prerouting", PRIORITY, sorting),
            Chain("output", "route", "output", PRIORITY, sent),
        ]
        return Table("inet", self.name, frozenset(chains))

    def _entering(self, marked: Match) -> tuple[Rule, ...]:
        """Return the rules for packets that enter by the primary interface."""
        marking, accept = self._marking("meta mark", self.mark), Verdict("accept")
        services = [
            match(field, *addresses)
            for field, is_ipv6 in (("ip daddr", False), ("ip6 daddr", True))
            if (addresses := [address for address in self.service_addresses if (":" in address) == is_ipv6])
        ]
        # A route lookup (fib) costs most, so it comes last, and not for connections that are marked already.
        return (
            (marked, marking, accept) if self.strict else (marked, accept),
            *((*self._requested(service), accept) for service in services),
            self._requested(match("fib daddr . iif type", "local")),
        )

    def _opened(self, mark: int) -> tuple[Rule, ...]:
        """Return the rules for packets that enter by another interface.

        Requests to pods have the pods' own addresses as destination, so the rule does not test the destination. The kernel writes
        a mark only if it differs. A request to which another program gave the mark of its connection would be routed as a reply.
        """
        original = match("ct direction", "original")
        is_whole, foreign_bits = self.mask == MARK_LIMIT, mark_text(~self.mask & MARK_LIMIT)
        packet = "meta mark" if is_whole else f"meta mark & {mark_text(self.mask)}"
        return (
            (match(packet, mark), original, Mangle("meta mark", foreign_bits if is_whole else f"meta mark & {foreign_bits}")),
            (original, self._marking("ct mark", mark), Verdict("accept")),
        )

    def _replies(self, mark: int) -> tuple[Rule, ...]:
        """Return the rules for all replies on a connection that came in by another interface: of pods here and on other nodes,
        and of the node itself.

        Except replies to a link-local address, which only the link's own routes reach.
        """
        return (
            (match("ip6 daddr", "fe80::/10"), Verdict("accept")),
            (match("ct direction", "reply"), self._marking("meta mark", mark)),
        )

    def _proxied(self) -> tuple[Rule, ...]:
        """Return the rules for packets that an L7 proxy on the node sends on behalf of a pod: their source is routed, but not the
        node's own.

        Connection tracking restores the client's address in this hook (-100), so most of them never pass lo.
        """
        return ((match("fib saddr type", "unicast"), self._marking("meta mark", self.mark)),)

    def validation(self) -> reverse_path.DesiredFilter | None:
        """Return the desired src_valid_mark, 1 on the primary interface, in the form that the rp_filter resources take."""
        return reverse_path.DesiredFilter(1, (self.primary_interface,), (), raise_all=False) if self.strict else None

    def sysctl_text(self) -> str | None:
        """Return the desired src_valid_mark as a file of sysctl.d(5); None without ``strict``."""
        setting = reverse_path.key(self.primary_interface, reverse_path.SRC_VALID_MARK)
        return f"{sysctl_heading(self.name)}{setting} = 1\n" if self.strict else None

    def routing(
        self,
        rules: t.Sequence[rule.Rule],
        mark: int,
        coming: t.Collection[rule.Rule] = (),
        of_all: t.Collection[rule.Rule] = (),
    ) -> Routing:
        """Return how ``rules``, those of one family in the kernel's order, route packets with ``mark``.

        coming: rules of the same run. One of them is the mark's before a rule of another program. of_all: those of rules by which
        all packets leave.
        """
        asking = [candidate for candidate in rules if self._asks_for_mark(candidate, mark)]
        marked = next((candidate for candidate in asking if candidate in coming), next(iter(asking), None))
        elsewhere = [*of_all, *(candidate for candidate in asking if marked and candidate.table != marked.table)]
        before = itertools.takewhile(lambda candidate: candidate != marked, rules)
        earlier = next((candidate for candidate in before if self._is_for_pods(candidate) or candidate in elsewhere), None)
        return Routing(marked, earlier)

    def _asks_for_mark(self, candidate: rule.Rule, mark: int) -> bool:
        """Return whether the rule routes by the mark. A rule that also tests bits outside the mask would miss some packets."""
        is_ours = candidate.fwmark and candidate.fwmask & ~self.mask == 0 and candidate.fwmark == mark & candidate.fwmask
        return bool(is_ours) and candidate.action in (rule.LOOKUP, rule.GOTO) and not candidate.invert

    def _is_for_pods(self, candidate: rule.Rule) -> bool:
        """Return whether the rule makes packets of pods, or from an address, leave by another interface."""
        is_about_pods = candidate.src != fields.ANY or any(_covers(pattern, candidate.iif) for pattern in self.pod_interfaces)
        is_elsewhere = candidate.action == rule.LOOKUP and candidate.table not in rt_names.TABLES.values()
        return is_about_pods and is_elsewhere and not candidate.fwmask and not candidate.invert

    def _requested(self, destination: Match) -> Rule:
        """Mark a connection to this destination. With ``strict`` its packets are marked, too, and so are replies to a pod:
        the statements before a match that fails have had their effect."""
        original, marking = match("ct direction", "original"), self._marking("ct mark", self.mark)
        if self.strict:
            return (destination, self._marking("meta mark", self.mark), original, marking)
        return (original, destination, marking)

    def _marking(self, expression: str, mark: int) -> Mangle:
        """Set the mask's bits of a mark. Written as the kernel lists it: bits that are then set are not cleared first."""
        if self.mask == MARK_LIMIT:
            return Mangle(expression, mark_text(mark))
        bits = ~self.mask & MARK_LIMIT | mark
        cleared = expression if bits == MARK_LIMIT else f"{expression} & {mark_text(bits)}"
        return Mangle(expression, f"{cleared} | {mark_text(mark)}")


class Routing(t.NamedTuple):
    """The rule of a family that routes by the mark, and the first before it that may route a reply to another table."""

    marked: rule.Rule | None
    earlier: rule.Rule | None


def service_prefixes(entries: t.Sequence[str]) -> tuple[str, ...]:
    """Return the fewest prefixes that contain the same addresses, sorted. Raises Invalid for one that is not of Services."""
    by_family: dict[int, list[str]] = {family: [] for family in fields.BITS}
    for index, entry in enumerate(entries):
        try:
            family, prefix = fields.prefix(entry)
        except fields.Unfit as unfit:
            raise Invalid(f"service_addresses[{index}]", entry, str(unfit)) from None
        if prefix == fields.ANY:
            raise Invalid(
                f"service_addresses[{index}]", entry, "an IP address or a prefix ADDRESS/LENGTH of Services, not of all"
            )
        by_family[family].append(fields.show_prefix(prefix, ""))
    return tuple(sorted(text for values in by_family.values() for text in prefixes(values)))


def sysctl_path(table: str) -> str:
    """Return the path of the file with sysctl_text(), which the next boot reads."""
    return f"/etc/sysctl.d/90-kubenode-nft-inet-{table}.conf"


def sysctl_heading(table: str) -> str:
    """Return the first line of sysctl_text()."""
    return f"# For table inet {table}.\n"


def _chosen(expression: str, chains: t.Mapping[str, str] | t.Mapping[int, str]) -> Rule:
    """Go to the chain of the value that ``expression`` has. The kernel compares with one value faster than it looks one up."""
    verdicts: list[tuple[str | int, Verdict]] = [(key, Verdict(f"goto {chain}")) for key, chain in chains.items()]
    if len(verdicts) > 1:
        return (verdict_map(expression, verdicts),)
    ((key, verdict),) = verdicts
    return (match(expression, key), verdict)


def _marked_links(entries: t.Sequence[t.Mapping[str, t.Any]], primary: MarkedLink | None, mask: int | None) -> list[MarkedLink]:
    """Return the entries of the option ``interfaces``, in their order. primary: None for none. Raises Invalid."""
    marked: list[MarkedLink] = []
    for index, entry in enumerate(entries):
        option = f"interfaces[{index}]"
        name, mark = names.network_interface(f"{option}.name", entry["name"]), _mark(f"{option}.mark", entry["mark"], mask)
        for other in (*([primary] if primary else []), *marked):
            if name == other.name:
                of_primary = "primary_interface, whose mark is the option mark" if other is primary else "another entry"
                raise Invalid(f"{option}.name", name, f"another link than that of {of_primary}")
            if mark == other.mark:
                raise Invalid(f"{option}.mark", entry["mark"], f"another mark than that of {other.name}")
        marked.append(MarkedLink(name, mark))
    return marked


def _mark(option: str, value: object, mask: int | None) -> int:
    number = _bits(option, value)
    if mask is not None and number & ~mask:
        raise Invalid(option, value, f"within mask {mark_text(mask)}, as the table keeps all other bits")
    return number


def _bits(option: str, value: object) -> int:
    """Parse a number in decimal or hexadecimal: "128", "0x80". Raises Invalid."""
    match = re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[1-9][0-9]{0,19}", str(value))
    number = int(match[0], 0) if match else 0
    if not 0 < number <= MARK_LIMIT:
        raise Invalid(option, value, f"a number from 1 to {mark_text(MARK_LIMIT)}, for example 128 or 0x80")
    return number


def _covers(pattern: str, link: str) -> bool:
    return link.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == link


def _patterns(entries: t.Sequence[str], primary: str, marked_links: t.Collection[str]) -> tuple[str, ...]:
    """Return each pattern once, sorted, because their order does not matter. Raises Invalid."""
    if not entries:
        raise Invalid("pod_interfaces", list(entries), "a list of at least one link name or pattern, for example eni*")
    patterns = [names.pattern(f"pod_interfaces[{index}]", entry) for index, entry in enumerate(entries)]
    for index, pattern in enumerate(patterns):
        if _covers(pattern, primary):
            raise Invalid(f"pod_interfaces[{index}]", pattern, f"a pattern that primary_interface {primary} does not match")
        for other in marked_links:
            if _covers(pattern, other):
                raise Invalid(f"pod_interfaces[{index}]", pattern, f"a pattern that {other}, one of interfaces, does not match")
        if pattern.endswith("+"):  # a wildcard in iptables, an ordinary character in nft
            raise Invalid(f"pod_interfaces[{index}]", pattern, f"a name, or {pattern[:-1]}* for all names with that prefix")
        if pattern == "lo":
            raise Invalid(f"pod_interfaces[{index}]", pattern, "a link of pods; lo is always included")
    return tuple(sorted(set(patterns)))
