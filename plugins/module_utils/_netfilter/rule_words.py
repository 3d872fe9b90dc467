# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of iptables-save as words, and rules from elsewhere that are checked word for word."""

from __future__ import annotations

import functools
import re
import typing as t

from .._core.fields import Unfit
from . import rule_options
from .rule_options import Options

LONGEST_CHAIN = 31  # bytes (NFT_CHAIN_MAXNAMELEN, which iptables-nft keeps to)
_CHAIN = re.compile(rf"[\w.:/+@=%~^][\w.:/+@=%~^-]{{0,{LONGEST_CHAIN - 1}}}", re.ASCII)
_BARE = re.compile(r"[\w.,:;/+=!@%~^|&<>{}()\[\]*#?$-]+")
_BARE_TEXT = re.compile(r"[A-Za-z0-9_-]+")
_NAMING = frozenset(("-m", "--match", "-p", "--protocol", "-j", "--jump"))  # options that bring others
_NEVER = re.compile(r"(?!)")
_TEXT = r'[^"\\]*(?:\\.[^"\\]*)*'  # in quotes; matched in linear time
_QUOTED = re.compile(rf'"({_TEXT})"')
_CLOSED = re.compile(rf'[^"]*(?:"{_TEXT}"[^"]*)*')
_ESCAPED = re.compile(r"\\(.)")
_SPECIAL = re.compile(r"[\"'\\]")
_WORD = re.compile(rf'(?:[^\s"]+|"{_TEXT}")+')
# A value that any other may replace: it is no option, no negation and no name of a match, a protocol or a target.
_VALUE = re.compile(
    r" (?<!-m )(?<!-p )(?<!-j )(?<!-g )(?<!! )(?<!--match )(?<!--protocol )(?<!--jump )(?<!--goto )"
    r'(?:"[^"\\!-][^"\\]*"|[\w.,:;/+=@%~^|&<>{}()\[\]*#?$][\w.,:;/+=!@%~^|&<>{}()\[\]*#?$-]*)(?= |$)'
)


def split(line: str) -> list[str]:
    """Divide a line into words as iptables-restore does: a backslash is special in double quotes only. Raises Unfit."""
    if '"' not in line:
        return line.split()
    before, *parts = line.split('"')
    if len(parts) == 2 and before[-1:] == " " and parts[1][:1] in ("", " ") and "\\" not in line:  # most lines with a quote
        return [*before.split(), parts[0], *parts[1].split()]
    if not _CLOSED.fullmatch(line):
        raise Unfit("a line in which each quote ends")
    return [_QUOTED.sub(_unquoted, word) if '"' in word else word for word in _WORD.findall(line)]


def _unquoted(match: re.Match[str]) -> str:
    return _ESCAPED.sub(r"\1", match[1]) if "\\" in match[1] else match[1]


@functools.lru_cache(maxsize=10_000)  # most words are in many lines
def quote(word: str, bare: re.Pattern[str] = _BARE) -> str:
    """Return the word as a line of iptables-save contains it. bare: characters for which no quotes are needed."""
    if bare.fullmatch(word):
        return word
    return '"' + _SPECIAL.sub(r"\\\g<0>", word) + '"'


def is_chain(name: str) -> bool:
    """Return True for a name of a chain that is not an extension's, which iptables would load instead."""
    return bool(_CHAIN.fullmatch(name)) and name not in rule_options.NO_CHAINS


def shape(rule: str) -> str:
    """Reduce the text of a rule to what rule() tests: the text without values that may be any; empty if the text is not that
    simple.

    rule: words of printable characters, each behind a blank. If one rule of a shape is permitted, all are, and each has the
    same words as the text that render() makes of it.
    """
    if "\\" in rule or "  " in rule:
        return ""
    shaped = _VALUE.sub(" ?", rule)
    return "" if '"' in shaped else shaped


class Language(t.NamedTuple):
    """The options of a tool's rules.

    program: its name, for messages. rule: the options that are known without a match or a target. texts: options whose value is
    a text. quoted: those whose value is always in quotes.
    """

    program: str
    tables: t.Sequence[str]
    policies: t.Sequence[str]
    rule: Options
    matches: t.Mapping[str, Options]
    targets: t.Mapping[str, Options]
    texts: frozenset[str]
    quoted: frozenset[str]


IPTABLES = Language(
    "iptables",
    rule_options.TABLES,
    rule_options.POLICIES,
    rule_options.RULE,
    rule_options.MATCHES,
    rule_options.TARGETS,
    rule_options.TEXTS,
    rule_options.QUOTED,
)


def rule(words: t.Sequence[str], language: Language = IPTABLES) -> list[str]:
    """Check the words that follow ``-A CHAIN``. Return them with each option apart from its value. Raises Unfit.

    words: of printable characters.
    An option is permitted by its whole name, and only if the rule has named its match, protocol or target before.
    """
    checked: list[str] = []
    options = [language.rule]
    texts = language.texts | language.quoted
    place, last = 0, len(words)
    while place < last:
        word = words[place]
        place += 1
        if word == "!" and place < last:
            checked.append(word)
            continue
        option, equals, value = word.partition("=") if word[:2] == "--" and "=" in word else (word, "", "")
        arity = _arity(option, options)
        values = [value] if equals else []
        if arity < 0 or len(values) > arity:
            raise Unfit(f"a rule of {language.program} with options of its permitted matches and targets in place of {word!r}")
        is_text = option in texts
        # The older place of a negation. A text is what follows its option, whatever it is.
        if arity and words[place : place + 1] == ["!"] and not (equals or is_text):
            values.append("!")
            arity, place = arity + 1, place + 1
        missing = arity - len(values)
        values += words[place : place + missing]
        place += missing
        if len(values) < arity:
            raise Unfit(f"a rule of {language.program} with the value of {option}")
        for value in values:
            if not is_text and value[:1] in ("", "-"):
                raise Unfit(f"a rule of {language.program} with a value of {option} in place of {value!r}")
        if option in _NAMING:
            options.append(_options_of(option, values[-1], language))
        elif option in ("-g", "--goto") and not is_chain(values[-1]):
            raise Unfit(f"a rule with the name of a chain in place of {values[-1]!r}")
        checked += [option, *values]
    return checked


def _arity(option: str, languages: t.Iterable[Options]) -> int:
    """Return the number of values of an option; -1 for one that is not permitted."""
    for options in languages:
        if option in options:
            return options[option]
    return -1


def _options_of(option: str, name: str, language: Language) -> Options:
    """Return the options of a match, a protocol or a target. Raises Unfit if it is not permitted."""
    if option in ("-p", "--protocol"):
        return language.matches.get(rule_options.PROTOCOLS.get(name.lower(), ""), {})
    if option in ("-m", "--match"):
        if name not in language.matches:
            raise Unfit(f"a rule of {language.program} with a permitted match in place of {name!r}")
        return language.matches[name]
    if name not in language.targets and not is_chain(name):
        raise Unfit(f"a rule of {language.program} with a permitted target or the name of a chain in place of {name!r}")
    return language.targets.get(name, {})


def render(words: t.Iterable[str], language: Language = IPTABLES) -> str:
    """Return the words of a rule as iptables-save prints them."""
    text, option = list[str](), ""
    texts, quoted = language.texts, language.quoted
    for word in words:
        if option in texts or option in quoted:
            # iptables-restore before 1.8.10 overlooks an empty text.
            text.append(quote(word or " ", _BARE_TEXT if option in texts else _NEVER))
            option = ""
        else:
            text.append(quote(word))
            option = word
    return " ".join(text)
