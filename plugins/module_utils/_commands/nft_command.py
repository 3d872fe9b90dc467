# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Commands of nft that change tables, chains, rules, sets and maps."""

from __future__ import annotations

import typing as t

from .._core.fields import Unfit
from .._ruleset import nft_listing, nft_words
from .._twin.blueprint import OWN_TABLE

_CONTENTS = ("chain", "set", "map", "element")
VERBS: dict[str, tuple[str, ...]] = {
    "add": ("table", "rule", *_CONTENTS),
    "create": ("table", *_CONTENTS),
    "insert": ("rule",),
    "replace": ("rule",),
    "delete": ("table", "rule", *_CONTENTS),
    "destroy": ("table", "rule", *_CONTENTS),
    "flush": ("table", "chain", "set", "map"),
}
_PLACES = ("handle", "index", "position")


def words(arguments: t.Sequence[str]) -> list[str]:
    """Return the one argument of nft: its commands, made from permitted tokens. Raises Unfit that names the token."""
    tokens: list[str] = []
    for command in _divided(nft_words.tokens(" ".join(arguments)), "a command of nft"):
        _check(command)
        tokens += [*([";"] if tokens else []), *command]
    if not tokens:
        raise Unfit(f"a command of nft that begins with one of {', '.join(VERBS)}")
    return [" ".join(tokens)]


def allocated(script: str) -> int:
    """Return the elements for which the kernel allocates memory when it creates the sets of a script, as words() returns it."""
    statements = _divided(nft_words.tokens(script), "a script")
    created = (words for words in statements if words[1] in nft_listing.SETS and "{" in words)
    return sum(nft_listing.allocated(_divided(words[words.index("{") + 1 : -1], "a set")) for words in created)


def _divided(tokens: t.Sequence[str], what: str) -> list[list[str]]:
    """Return the parts between semicolons that are in no braces. Raises Unfit if braces do not match."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth < 0:
            break
        if token == ";" and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    if depth:
        raise Unfit(f"{what} in which each brace has its counterpart")
    return [part for part in parts if part]


def _check(command: t.Sequence[str]) -> None:
    verb, kind = [*command, "", ""][:2]
    if verb not in VERBS:
        raise Unfit(f"a command of nft with one of {', '.join(VERBS)} in place of {verb!r}")
    if kind not in VERBS[verb]:
        raise Unfit(f"nft {verb} with one of {', '.join(VERBS[verb])} in place of {kind!r}")
    rest = command[2:]
    names = rest[1:] if rest[:1] and rest[0] in nft_words.FAMILIES else rest
    wanted = 1 if kind == "table" else 2
    odd = next((name for name in [*names, "", ""][:wanted] if not nft_words.is_name(name) or name == OWN_TABLE), None)
    if odd is not None:
        raise Unfit(f"nft {verb} {kind} with {'the name of a table' if wanted == 1 else 'two names'} in place of {odd!r}")
    _check_contents(verb, kind, names[wanted:])


def _check_contents(verb: str, kind: str, tokens: t.Sequence[str]) -> None:
    """Check what follows the names."""
    if kind == "rule":
        if tokens[:1] and tokens[0] in _PLACES:
            if not tokens[1:2] or not tokens[1].isdecimal():
                raise Unfit(f"{tokens[0]} with a number in place of {''.join(tokens[1:2])!r}")
            tokens = tokens[2:]
        if tokens:
            nft_listing.check("chain", tokens)
    elif tokens and (tokens[0] != "{" or tokens[-1] != "}" or kind == "table" or verb == "flush"):
        raise Unfit(f"nft {verb} {kind} that ends before {tokens[0]!r}")
    elif kind == "element":
        refused = nft_words.refused(tokens)
        if refused is not None:
            raise Unfit(f"elements with permitted words of nft in place of {refused!r}")
    else:
        for statement in _divided(tokens[1:-1], f"a {kind}"):
            nft_listing.check(kind, statement)
