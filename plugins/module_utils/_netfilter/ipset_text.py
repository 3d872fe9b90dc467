# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of ``ipset save``, and commands of ipset, checked word for word."""

from __future__ import annotations

import re
import typing as t

from .._core.fields import Unfit
from . import rule_words

KINDS = (
    *("bitmap:ip", "bitmap:ip,mac", "bitmap:port", "hash:ip", "hash:ip,mac", "hash:ip,mark", "hash:ip,port", "hash:ip,port,ip"),
    *(
        "hash:ip,port,net",
        "hash:mac",
        "hash:net",
        "hash:net,iface",
        "hash:net,net",
        "hash:net,port",
        "hash:net,port,net",
        "list:set",
    ),
)
_VALUES = {
    **dict.fromkeys(("hashsize", "maxelem", "timeout", "netmask", "size", "bucketsize", "skbqueue"), r"\d{1,10}"),
    **dict.fromkeys(("packets", "bytes"), r"\d{1,20}"),
    "markmask": r"0x[\da-fA-F]{1,8}|\d{1,10}",
    "initval": r"0x[\da-fA-F]{1,8}",
    "bitmask": r"[\da-fA-F.:]{2,45}",
    "family": "inet6?",
    "range": r"[\w.:/]{1,45}(?:-[\w.:/]{1,45})?",
    "skbmark": r"0x[\da-fA-F]{1,8}(?:/0x[\da-fA-F]{1,8})?",
    "skbprio": r"[\da-fA-F]{1,4}:[\da-fA-F]{1,4}",
    "comment": r"[^\"\\]{0,255}",
}
_CREATE = {
    **dict.fromkeys(("counters", "comment", "skbinfo", "forceadd"), False),
    **dict.fromkeys(
        ("family", "hashsize", "maxelem", "timeout", "netmask", "bitmask", "markmask", "bucketsize", "initval", "range", "size"),
        True,
    ),
}  # with whether a value follows
_ADD = {
    **dict.fromkeys(("timeout", "packets", "bytes", "comment", "skbmark", "skbprio", "skbqueue", "before", "after"), True),
    "nomatch": False,
    "wildcard": False,
}
VERBS = ("add", "create", "del", "destroy", "flush", "rename", "swap")
_NAME = re.compile(r"[\w.:+@%=~^][\w.:+@%=~^/-]{0,30}", re.ASCII)
_ENTRY = re.compile(r"[\w.:\[][\w.:,/+@%~\[\]-]{0,180}", re.ASCII)  # an address, a port, a link, a set, or several of these


def read(saved: str) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Return the commands in an output of ``ipset save``, and lines that are left out with what is permitted in their place."""
    commands, refused = list[list[str]](), list[tuple[str, str]]()
    for line in map(str.strip, saved.splitlines()):
        if line and not line.startswith("#"):
            try:
                words = rule_words.split(line)
                if words[0] not in ("create", "add"):
                    raise Unfit("a line of ipset save, which begins with create or add")
                commands.append(command(words))
            except Unfit as unfit:
                refused.append((line, str(unfit)))
    return commands, refused


def command(words: t.Sequence[str]) -> list[str]:
    """Check the words of a command of ipset. Raises Unfit that names the word that is not permitted."""
    if words[-1:] and words[-1] in ("-exist", "-!"):
        return [*command(words[:-1]), "-exist"]
    verb, name, *rest = [*words, "", ""][: max(2, len(words))]
    if verb not in VERBS:
        raise Unfit(f"a command of ipset with one of {', '.join(VERBS)} in place of {verb!r}")
    if not _NAME.fullmatch(name):
        raise Unfit(f"a command of ipset with the name of a set in place of {name!r}")
    if verb == "create":
        if rest[:1] == [] or rest[0] not in KINDS:
            raise Unfit(f"a set of one of the types {', '.join(KINDS)} in place of {''.join(rest[:1])!r}")
        return [verb, name, rest[0], *_options(rest[1:], _CREATE)]
    if verb in ("add", "del"):
        if not rest or not _ENTRY.fullmatch(rest[0]):
            raise Unfit(f"an entry of a set in place of {''.join(rest[:1])!r}")
        return [verb, name, rest[0], *_options(rest[1:], _ADD)]
    if verb in ("rename", "swap"):
        if len(rest) != 1 or not _NAME.fullmatch(rest[0]):
            raise Unfit(f"the name of another set in place of {' '.join(rest)!r}")
        return [verb, name, rest[0]]
    if rest:
        raise Unfit(f"a command of ipset that ends before {rest[0]!r}")
    return [verb, name]


def _options(words: t.Sequence[str], permitted: t.Mapping[str, bool]) -> list[str]:
    checked: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word not in permitted:
            raise Unfit(f"a set or an entry with one of {', '.join(permitted)} in place of {word!r}")
        checked.append(word)
        if permitted[word]:
            value = next(remaining, "")
            pattern = _VALUES.get(word, _NAME.pattern)
            if not re.fullmatch(pattern, value) or not value.isprintable():
                raise Unfit(f"a set or an entry with a value of {word} in place of {value!r}")
            checked.append(value)
    return checked


def render(words: t.Sequence[str]) -> str:
    """Return the words as ``ipset save`` prints them: a comment is in quotes."""
    before = ["", *words]
    is_entry = words[0] in ("add", "del")
    return " ".join(f'"{word}"' if is_entry and last == "comment" else word for last, word in zip(before, words))
