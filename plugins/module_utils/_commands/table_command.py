# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Commands of iptables, ip6tables and ebtables that change rules, chains and policies."""

from __future__ import annotations

import functools
import typing as t

from .._core.fields import Unfit
from .._ebtables.ebtables_options import EBTABLES
from .._netfilter import rule_words
from .._netfilter.rule_words import IPTABLES, Language

LANGUAGES = {"iptables": IPTABLES, "ip6tables": IPTABLES, "ebtables": EBTABLES}
VERBS = {
    "--append": "-A", "--delete": "-D", "--insert": "-I", "--replace": "-R", "--new-chain": "-N", "--delete-chain": "-X",
    "--flush": "-F", "--policy": "-P", "--rename-chain": "-E",
}  # fmt: skip
_WAITS = ("-w", "--wait", "--concurrent")  # no other program changes the tables of a twin
_TABLES = ("-t", "--table")


def reader(tool: str) -> t.Callable[[t.Sequence[str]], list[str]]:
    """Return the function that reads the arguments of a tool."""
    return functools.partial(_words, LANGUAGES[tool])


def _words(language: Language, words: t.Sequence[str]) -> list[str]:
    """Return the arguments, with the table first. Raises Unfit that names the word that is not permitted."""
    left = [*words]
    table = _options(left, language)
    option = left.pop(0) if left else ""
    verb = VERBS.get(option, option)
    if verb not in VERBS.values():
        raise Unfit(f"a command of {language.program} with one of {', '.join(VERBS.values())} in place of {option!r}")
    chain = [left.pop(0)] if left and not left[0].startswith("-") else []
    table = _options(left, language) or table
    if not all(map(rule_words.is_chain, chain)) or not (chain or verb in ("-F", "-X")):
        raise Unfit(f"{verb} with the name of a chain in place of {''.join(chain)!r}")
    return [*(["-t", table] if table else []), verb, *chain, *_rest(verb, left, language)]


def _options(left: list[str], language: Language) -> str:
    """Take the options that may stand before and after a verb, and return the table."""
    table = ""
    while left and left[0] in (*_TABLES, *_WAITS):
        option = left.pop(0)
        if option in _TABLES:
            table = left.pop(0) if left else ""
            if table not in language.tables:
                raise Unfit(f"one of the tables {', '.join(language.tables)} in place of {table!r}")
        elif left and left[0].isdecimal():
            del left[0]
    return table


def _rest(verb: str, words: t.Sequence[str], language: Language) -> list[str]:
    """Check the words that follow the chain."""
    if verb in ("-N", "-X", "-F") and words:
        raise Unfit(f"a command of {language.program} that ends before {words[0]!r}")
    if verb in ("-P", "-E"):
        is_permitted = words[:1] and (words[0] in language.policies if verb == "-P" else rule_words.is_chain(words[0]))
        if not is_permitted or len(words) != 1:
            allowed = f"one of the policies {', '.join(language.policies)}" if verb == "-P" else "a new name"
            raise Unfit(f"{verb} with {allowed} in place of {' '.join(words)!r}")
        return [*words]
    is_numbered = verb != "-A" and words[:1] != [] and words[0].isdecimal()
    if verb == "-R" and not is_numbered:
        raise Unfit(f"{verb} with the number of a rule in place of {''.join(words[:1])!r}")
    return [*words[:is_numbered], *rule_words.rule(words[is_numbered:], language)]
