# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Commands of an operator that remove or change the object that stopped a packet, and what else they affect."""

from __future__ import annotations

import re
import typing as t

BUILT_IN = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING", "BROUTING")
PROTECTING = "INPUT"  # the chain that protects the node itself: its rules and its policy stay
FORWARDING = "net.ipv4.ip_forward"  # which sets that of all links
UNREADABLE = "with attributes that this collection cannot read"
_TARGET = re.compile(r" ?-[jg] \S+.*$")
_ACTION = re.compile(r" (?:lookup|goto|blackhole|unreachable|prohibit)\b.*$")
_TABLES = re.compile(r"(ip6?|bridge) (\w+)(?: \S+)?: (-[AP]) (\S+) ?(.*)")
_PROGRAMS = {"ip": "iptables", "ip6": "ip6tables", "bridge": "ebtables"}


class Loss(t.NamedTuple):
    """A packet that was lost, or one that a cloud may drop.

    culprit: as in the result; None for a packet that arrives with a caveat. came_in_by: its link. rules: the policy rule that
    decided about it and that about the way back, as ip(8) prints them; empty for one of the kernel. steps: as in the result.
    """

    culprit: t.Mapping[str, str] | None
    came_in_by: str = ""
    rules: t.Sequence[str] = ()
    steps: t.Sequence[t.Mapping[str, str]] = ()


class Removal(t.NamedTuple):
    """name: of the task. takes_along: a sentence about what else the command affects."""

    name: str
    command: str
    takes_along: str


def of_loss(loss: Loss, kept_tables: t.Collection[str] = ()) -> t.Iterator[Removal]:
    """The commands to try, that for the culprit first. kept_tables: those of ENIs, to which rules of the CNI lead."""
    culprit = loss.culprit or {"kind": "", "text": ""}
    kind, text = culprit["kind"], culprit["text"]
    is_filter = "rp_filter" in text
    if kind == "rule":
        yield from _of_table_rule(text, loss.steps)
    elif kind == "route" and UNREADABLE not in text:
        yield _of_route(text)
    elif kind == "neighbor":
        address, _dev, link, *_rest = text.split()
        command = f"ip{' -6' if ':' in address else ''} neigh del {address} dev {link}"
        yield Removal("Remove the stale neighbour", command, f"The node asks for the MAC address of {address} again.")
    elif kind == "link":
        yield from _of_link(text)
    elif kind == "sysctl" and not is_filter:
        yield _of_setting(text)
    rules = [text] if kind == "rule" else loss.rules[:1] if kind == "route" else loss.rules[1:] if is_filter else []
    for rule in rules:
        yield from _of_policy_rule(rule, kept_tables)


def _of_table_rule(text: str, steps: t.Sequence[t.Mapping[str, str]]) -> t.Iterator[Removal]:
    """For a rule of iptables or ebtables, or the policy of FORWARD. A rule of nft has no text by which it can be removed."""
    match = _TABLES.fullmatch(text)
    if not match or _protects_node(match[1], match[2], match[4], steps):
        return
    family, table, verb, chain, rest = match.groups()
    program = _PROGRAMS[family]
    if verb == "-A":
        matches = _TARGET.sub("", rest)
        takes_along = f"All packets that the rule matches go on to the rule after it in {chain}: {matches or 'every packet'}."
        yield Removal("Remove the rule that stops the packet", f"{program} -t {table} -D {chain} {rest}", takes_along)
    elif (table, chain, rest) == ("filter", "FORWARD", "DROP"):
        takes_along = "All forwarded packets about which no rule of FORWARD decides are accepted."
        yield Removal("Accept forwarded packets", f"{program} -P {chain} ACCEPT", takes_along)


def _protects_node(family: str, table: str, chain: str, steps: t.Sequence[t.Mapping[str, str]]) -> bool:
    """Whether the packet met the rule in the chain INPUT, or in a chain to which INPUT jumps."""
    wheres = [step["where"].split(" ") for step in steps if step["kind"] in ("rule", "policy")]
    chains = [where[2] for where in wheres if where[:2] == [family, table] and where[2] in BUILT_IN]
    return PROTECTING in (chain, *chains[-1:])


def _of_route(text: str) -> Removal:
    words = text.split(" ")
    family, rest = (["-6"], words[3:]) if words[1] == "-6" else ([], words[2:])
    to = next((word for word in rest if word == "default" or word[0].isdigit() or ":" in word), "")
    takes_along = f"All packets to {'any address' if to == 'default' else to} take the next route or policy rule that fits."
    return Removal("Remove the route that stops the packet", " ".join(["ip", *family, "route", "del", *rest]), takes_along)


def _of_policy_rule(text: str, kept_tables: t.Collection[str]) -> t.Iterator[Removal]:
    match = re.fullmatch(r"ip( -6)? rule (\d+): (.*)", text)
    if not match or UNREADABLE in text or "[l3mdev-table]" in text:
        return
    table = re.search(r" lookup (\S+)", text)
    if table and table[1] in kept_tables:
        return
    takes_along = f"The rules after it decide about all packets that it selects: {_ACTION.sub('', match[3])}."
    command = f"ip{match[1] or ''} rule del priority {match[2]} {match[3]}"
    yield Removal("Remove the policy rule that misleads the packet", command, takes_along)


def _of_link(text: str) -> t.Iterator[Removal]:
    link, _blank, trouble = text.partition(" ")
    if trouble == "hairpin off":
        takes_along = f"The bridge sends frames, also to a group, back by {link}, by which they came in."
        yield Removal("Let the bridge send frames back by the port", f"bridge link set dev {link} hairpin on", takes_along)
    elif trouble == "is down":
        yield Removal("Set the link up", f"ip link set dev {link} up", f"All packets pass {link} again.")


def _of_setting(text: str) -> Removal:
    """For a setting that is 0 and should be 1."""
    key, _equals, _value = text.partition(" = ")
    if key.endswith(".forwarding"):
        key = FORWARDING if ".ipv4." in key else key
    if key == FORWARDING or key.endswith(".forwarding"):
        return Removal(
            "Let the node forward packets", f"sysctl -w {key}=1", "The node forwards packets between all of its links."
        )
    return Removal("Change the setting", f"sysctl -w {key}=1", f"All packets are subject to {key} = 1.")
