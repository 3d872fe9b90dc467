# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands of network tools as values: tool, object and verb by whole words from tables of what is permitted.

A command is run from its value, and never from the text that was given.
"""

from __future__ import annotations

import functools
import re
import shlex
import typing as t

from .._core.errors import Invalid
from .._core.fields import Unfit
from .._core.names import DOTTED
from .._ebtables.ebtables_options import EBTABLES
from .._netfilter import ipset_text, rule_words
from .._netfilter.rule_words import IPTABLES, Language
from .._ruleset import nft_listing, nft_words
from .._twin import bounds
from .._twin.blueprint import OWN_TABLE, is_of_network
from . import iproute_command


class Program(t.NamedTuple):
    """A program that is run. name: the file to look for. words: its arguments. shown: the command as an operator writes it."""

    name: str
    words: tuple[str, ...]
    shown: str


class Settings(t.NamedTuple):
    """Settings that are written. values: paths below /proc/sys, with their numbers."""

    values: tuple[tuple[str, int], ...]
    shown: str


Command = t.Union[Program, Settings]

LANGUAGES = {"iptables": IPTABLES, "ip6tables": IPTABLES, "ebtables": EBTABLES}
TABLE_VERBS = {
    "--append": "-A", "--delete": "-D", "--insert": "-I", "--replace": "-R", "--new-chain": "-N", "--delete-chain": "-X",
    "--flush": "-F", "--policy": "-P", "--rename-chain": "-E",
}  # fmt: skip
_WAITS = ("-w", "--wait", "--concurrent")  # no other program changes the tables of a twin
_TABLES = ("-t", "--table")
_CONTENTS = ("chain", "set", "map", "element")
NFT_VERBS: dict[str, tuple[str, ...]] = {
    "add": ("table", "rule", *_CONTENTS),
    "create": ("table", *_CONTENTS),
    "insert": ("rule",),
    "replace": ("rule",),
    "delete": ("table", "rule", *_CONTENTS),
    "destroy": ("table", "rule", *_CONTENTS),
    "flush": ("table", "chain", "set", "map"),
}
_PLACES = ("handle", "index", "position")


def _nft_words(arguments: t.Sequence[str]) -> list[str]:
    """Return the one argument of nft: its commands, made from permitted tokens. Raises Unfit that names the token."""
    tokens: list[str] = []
    for command in _divided(nft_words.tokens(" ".join(arguments)), "a command of nft"):
        _check_nft(command)
        tokens += [*([";"] if tokens else []), *command]
    if not tokens:
        raise Unfit(f"a command of nft that begins with one of {', '.join(NFT_VERBS)}")
    return [" ".join(tokens)]


def _allocated(script: str) -> int:
    """Return the elements for which the kernel allocates memory when it creates the sets of a script."""
    statements = _divided(nft_words.tokens(script), "a script")
    created = (words for words in statements if words[1] in nft_listing.SETS and "{" in words)
    return sum(nft_listing.allocated(_divided(words[words.index("{") + 1 : -1], "a set")) for words in created)


def _divided(tokens: t.Sequence[str], name: str) -> list[list[str]]:
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
        raise Unfit(f"{name} in which each brace has its counterpart")
    return [part for part in parts if part]


def _check_nft(command: t.Sequence[str]) -> None:
    verb, kind = [*command, "", ""][:2]
    if verb not in NFT_VERBS:
        raise Unfit(f"a command of nft with one of {', '.join(NFT_VERBS)} in place of {verb!r}")
    if kind not in NFT_VERBS[verb]:
        raise Unfit(f"nft {verb} with one of {', '.join(NFT_VERBS[verb])} in place of {kind!r}")
    rest = command[2:]
    names = rest[1:] if rest[:1] and rest[0] in nft_words.FAMILIES else rest
    wanted = 1 if kind == "table" else 2
    odd = next((name for name in [*names, "", ""][:wanted] if not nft_words.is_name(name) or name == OWN_TABLE), None)
    if odd is not None:
        raise Unfit(f"nft {verb} {kind} with {'the name of a table' if wanted == 1 else 'two names'} in place of {odd!r}")
    _check_nft_contents(verb, kind, names[wanted:])


def _check_nft_contents(verb: str, kind: str, tokens: t.Sequence[str]) -> None:
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


def _table_words(language: Language, words: t.Sequence[str]) -> list[str]:
    """Return the arguments, with the table first. Raises Unfit that names the word that is not permitted."""
    rest = [*words]
    table = _table_options(rest, language)
    option = rest.pop(0) if rest else ""
    verb = TABLE_VERBS.get(option, option)
    if verb not in TABLE_VERBS.values():
        raise Unfit(f"a command of {language.program} with one of {', '.join(TABLE_VERBS.values())} in place of {option!r}")
    chain = [rest.pop(0)] if rest and not rest[0].startswith("-") else []
    table = _table_options(rest, language) or table
    if not all(map(rule_words.is_chain, chain)) or not (chain or verb in ("-F", "-X")):
        raise Unfit(f"{verb} with the name of a chain in place of {''.join(chain)!r}")
    return [*(["-t", table] if table else []), verb, *chain, *_table_rest(verb, rest, language)]


def _table_options(words: list[str], language: Language) -> str:
    """Take the options that may stand before and after a verb, and return the table."""
    table = ""
    while words and words[0] in (*_TABLES, *_WAITS):
        option = words.pop(0)
        if option in _TABLES:
            table = words.pop(0) if words else ""
            if table not in language.tables:
                raise Unfit(f"one of the tables {', '.join(language.tables)} in place of {table!r}")
        elif words and words[0].isdecimal():
            del words[0]
    return table


def _table_rest(verb: str, words: t.Sequence[str], language: Language) -> list[str]:
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


NFT, IPSET = "nft", "ipset"
# The twin has the tables of both backends in nf_tables.
PROGRAMS = {name: f"{name}-nft" for name in LANGUAGES}
_READERS: dict[str, t.Callable[[t.Sequence[str]], list[str]]] = {
    "ip": iproute_command.ip,
    "bridge": iproute_command.bridge,
    NFT: _nft_words,
    IPSET: ipset_text.command,
    **{name: functools.partial(_table_words, LANGUAGES[name]) for name in LANGUAGES},
}
SYSCTL = "sysctl"
TOOLS = (*_READERS, SYSCTL)
_SETTING = re.compile(r"(?<!\S)(net[./][\w./@-]+) ?= ?(-?\d{1,10})", re.ASCII)


def read(option: str, text: object) -> Command:
    """Read a command. Raises Invalid that names the word that is not permitted.

    option: the name of the option that contains the command.
    """
    try:
        return _read(_words(str(text)))
    except Unfit as unfit:
        raise Invalid(option, text, str(unfit)) from None


def count(option: str, command: Command, sizes: bounds.Sets) -> None:
    """Count the sets that a command creates and fills. Raises Invalid if they are larger than a bound."""
    if isinstance(command, Program) and command.name == IPSET:
        sizes.ipset(option, command.words)
    elif isinstance(command, Program) and command.name == NFT:
        sizes.nft(option, _allocated(command.words[0]))


def _words(text: str) -> list[str]:
    """Return the words, divided as a shell does. A backslash at the end of a line continues it."""
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise Unfit(f"a command line ({error})") from None
    odd = next((word for word in words if not word.isprintable()), None)
    if odd is not None:
        raise Unfit(f"a command line of printable characters in place of {odd!r}")
    return words[1:] if words[:1] == ["sudo"] else words


def _read(words: t.Sequence[str]) -> Command:
    name = words[0].rpartition("/")[2] if words else ""
    if name == SYSCTL:
        return Settings(_settings(words[1:]), shlex.join([name, *words[1:]]))
    if name not in _READERS:
        raise Unfit(f"a command of one of {', '.join(TOOLS)} in place of {name!r}")
    checked = _READERS[name](words[1:])
    return Program(PROGRAMS.get(name, name), tuple(checked), shlex.join([name, *checked]))


def _settings(words: t.Sequence[str]) -> tuple[tuple[str, int], ...]:
    text = " ".join(word for word in words if word not in ("-w", "--write"))
    rest = _SETTING.sub("", text).split()
    if rest or not text:
        raise Unfit(f"sysctl -w and settings net...=NUMBER in place of {' '.join(rest)!r}")
    settings = tuple((_path(key), int(value)) for key, value in _SETTING.findall(text))
    foreign = next((path for path, _value in settings if not is_of_network(path)), None)
    if foreign is not None:
        raise Unfit(f"sysctl -w and settings of a network namespace in place of {foreign!r}")
    return settings


def _path(key: str) -> str:
    """Return the path of a setting below /proc/sys. sysctl(8) takes both separators; the first one tells which is meant."""
    return key if key.startswith("net/") else key.translate(DOTTED)
