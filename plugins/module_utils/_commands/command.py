# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Commands of network tools as values: tool, object and verb by whole words from tables of what is permitted.

A command is run from its value, and never from the text that was given.
"""

from __future__ import annotations

import re
import shlex
import typing as t

from .._core.errors import Invalid
from .._core.fields import Unfit
from .._core.names import DOTTED
from .._netfilter import ipset_text
from .._twin import bounds
from .._twin.blueprint import is_of_network
from . import iproute_command, table_command


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

NFT, IPSET = "nft", "ipset"
# The twin has the tables of both backends in nf_tables.
PROGRAMS = {name: f"{name}-nft" for name in table_command.LANGUAGES}
_READERS: dict[str, t.Callable[[t.Sequence[str]], list[str]]] = {
    "ip": iproute_command.ip,
    "bridge": iproute_command.bridge,
    NFT: table_command.nft,
    IPSET: ipset_text.command,
    **{name: table_command.reader(name) for name in table_command.LANGUAGES},
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
        sizes.nft(option, table_command.allocated(command.words[0]))


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
