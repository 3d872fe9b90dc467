# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How near a line that was not understood is to the output of a command, and whether it is prose."""

from __future__ import annotations

import re
import typing as t

LONGEST = 300  # characters of a line that are looked at
LEAST = 2  # signs of a command's output in a line, from which the line is taken for one
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[\da-f]{1,4}:[\da-f:]*:[\da-f]*")
# The words and forms that a command prints, each of which is a sign, as an address is. Prose seldom has several.
_SIGNS = tuple(
    (command, re.compile(signs))
    for command, signs in (
        ("ip route", r"\bdefault\b|\bvia\b|\bdev \S+|\bscope \w+|\bproto \w+|\bmetric \d+|\bonlink\b|\bsrc \d"),
        ("ip rule", r"^\s*\d+:\s|\bfrom all\b|\blookup \S+|\bfwmark\b|\biif\b"),
        ("ip addr", r"^\s*\d+: \S+:|\binet6?\b|\bmtu \d+|\blink/\w+|\bqdisc\b|<[A-Z]+(?:,[A-Z_]+)+>|\bscope \w+"),
        ("ip neigh", r"\blladdr\b|\bREACHABLE\b|\bSTALE\b|\bFAILED\b|\bdev \S+"),
        ("iptables-save", r"(?:^|\s)-[AIPN] \S+|(?:^|\s)-[jg] \S+|(?:^|\s)-[sdpiom] \S+|--[ds]port\b|^:\S+ [A-Z]+ \["),
        ("iptables -nvL", r"^\s*\d+[KMG]? +\d+[KMG]? |\b(?:ACCEPT|DROP|REJECT|RETURN|DNAT)\b|\banywhere\b|\ball +--|\bChain \S+"),
        ("nft list ruleset", r"\btype \w+ hook\b|\bip6? [sd]addr\b|\b[ds]port \d|\bcounter packets\b|\bpolicy \w+;|[{}]\s*$"),
        ("ipset list", r"\bhash:\S+|\bMembers:|\bmaxelem \d+|\bhashsize \d+"),
        ("ipvsadm -Ln", r"->|\bMasq\b|\b(?:rr|wrr|lc|sh)\b|^\s*(?:TCP|UDP) "),
        ("ebtables-save", r"--to-dst\b|--logical-\w+|-p (?:IPv4|ARP)|\bBridge \w+:"),
        ("sysctl", r"\bnet[./]\w+[./]|\brp_filter\b|\bip_forward\b|= ?-?\d+\s*$"),
    )
)
# Words of sentences, which no command prints, unless it says that it failed.
_WORD = re.compile(
    r"\b(?:a|an|and|are|as|be|because|but|by|can|do|does|for|have|i|if|in|is|it|my|not|of|on|so|that|the|then|there|this|to|was|we"
    r"|when|which|with|you|your)\b(?!-)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r'"[^"]*"|/\*.*?\*/')  # of a rule
_FAILURE = re.compile(
    r"\b(?:cannot|can't|denied|error|failed|fatal|invalid|must be root|no such|not found|not permitted|unable)\b", re.IGNORECASE
)


class Near(t.NamedTuple):
    """command: whose output a line is nearest to; empty if it has none of the signs. signs: that the line has."""

    command: str
    signs: int


def of(line: str) -> Near:
    line = line[:LONGEST]
    counts = [(len({sign.strip() for sign in pattern.findall(line)}), command) for command, pattern in _SIGNS]
    most, command = max(counts, key=lambda count: count[0])
    signs = most + bool(_ADDRESS.search(line))
    return Near(command if signs else "", signs)


def is_prose(line: str) -> bool:
    """Return whether a line is part of a sentence, and does not say that a command failed."""
    line = line[:LONGEST]
    return len(_WORD.findall(_COMMENT.sub("", line))) >= 2 and not _FAILURE.search(line)
