# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tables that both backends of iptables have: each packet passes both, so that a twin has the legacy half beside the other one.

The rules of iptables-legacy are in the same table of nf_tables, whose name extensions check, in chains with a suffix. A base
chain at the hook of each built-in chain leads there.
"""

from __future__ import annotations

import re
import typing as t
import zlib

from .._ruleset.ruleset import Table

SUFFIX, HOOK = ".legacy", "-hook"  # nft takes both in names
LONGEST = 28  # bytes of a chain's name (XT_EXTENSION_MAXNAMELEN, include/uapi/linux/netfilter/x_tables.h)
# By table, and for nat by chain (include/uapi/linux/netfilter_ipv4.h).
_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}
_OF_NAT = {"PREROUTING": -100, "OUTPUT": -100, "INPUT": 100, "POSTROUTING": 100}
_HEAD, _RULE = re.compile(r":(\S+) (\S+)"), re.compile(r"(?P<verb>(?:\[\d+:\d+\] )?-[AI]) (?P<chain>\S+)(?P<rest>.*)")
_JUMP = re.compile(r"(?P<jump> -[jg] )(?P<chain>\S+)")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')


class Hook(t.NamedTuple):
    """A built-in chain of a legacy half. policy: ACCEPT or DROP."""

    family: str
    table: str
    chain: str
    policy: str

    @property
    def base(self) -> str:
        return f"{self.chain}{SUFFIX}{HOOK}"

    @property
    def lines(self) -> str:
        """Return what creates the base chain, for nft."""
        kind = "nat" if self.table == "nat" else "route" if (self.table, self.chain) == ("mangle", "OUTPUT") else "filter"
        priority = _OF_NAT[self.chain] if kind == "nat" else _PRIORITIES[self.table]
        place = f"{self.family} {self.table} {self.base}"
        head = f"type {kind} hook {self.chain.lower()} priority {priority}; policy {self.policy.lower()};"
        return f"add chain {place} {{ {head} }}\nadd rule {place} jump {self.chain}{SUFFIX}\n"


def merged(family: str, table: str, nft: str, legacy: str) -> tuple[str, list[Hook]]:
    """Return the rules of both halves as one table for iptables-restore, and the hooks of the legacy half."""
    heads = {match[1]: match[2] for match in map(_HEAD.match, legacy.splitlines()) if match}
    rules = [_renamed(match, heads) for match in map(_RULE.match, legacy.splitlines()) if match]
    first, *rest = nft.splitlines()
    text = "\n".join([first, *(f":{of_legacy(chain)} - [0:0]" for chain in heads), *rest[:-1], *rules, "COMMIT", ""])
    return text, [Hook(family, table, chain, policy) for chain, policy in heads.items() if policy != "-"]


def hooked(table: Table, hooks: t.Iterable[Hook]) -> Table:
    """Return a table of both halves with the chains to which hooks lead as base chains."""
    own_hooks = (hook for hook in hooks if (hook.family, hook.table) == (table.family, table.name))
    kind = "nat" if table.name == "nat" else "filter"
    bases = {
        of_legacy(hook.chain): table.chains[of_legacy(hook.chain)]._replace(hook=hook.chain.lower(), kind=kind)
        for hook in own_hooks
    }
    return table._replace(chains={**table.chains, **bases}) if bases else table


def of_legacy(chain: str) -> str:
    """Return the name that a chain of the legacy half has in a twin. A long one ends in a number that tells it from others."""
    room = LONGEST - len(SUFFIX)
    short = chain if len(chain) <= room else f"{chain[: room - 9]}-{zlib.crc32(chain.encode()):08x}"
    return f"{short}{SUFFIX}"


def hooked_chain(base: str) -> str:
    """Return the chain to which a base chain of a hook leads, or the name of another base chain."""
    return base[: -len(HOOK)] if base.endswith(f"{SUFFIX}{HOOK}") else base


def names(saved: t.Iterable[str]) -> dict[str, str]:
    """Return the names of chains by those that they have in a twin. saved: tables as iptables-save prints them."""
    chains = (match[1] for text in saved for match in map(_HEAD.match, text.splitlines()) if match)
    return {of_legacy(chain): chain for chain in chains}


def _renamed(match: re.Match[str], chains: t.Container[str]) -> str:
    parts = _QUOTED.split(match["rest"])  # a comment may have the words of a jump
    parts[::2] = [_JUMP.sub(lambda each: _jump(each, chains), part) for part in parts[::2]]
    return f"{match['verb']} {of_legacy(match['chain'])}{''.join(parts)}"


def _jump(match: re.Match[str], chains: t.Container[str]) -> str:
    return f"{match['jump']}{of_legacy(match['chain'])}" if match["chain"] in chains else match[0]
