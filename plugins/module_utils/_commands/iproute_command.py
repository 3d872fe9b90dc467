# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands of ip and bridge that change addresses, links, neighbours, routes and rules."""

from __future__ import annotations

import re
import typing as t

from .._core import fields
from .._core.fields import Unfit

Check = t.Callable[[str], object]


def _word(pattern: str, name: str) -> Check:
    expression = re.compile(pattern, re.ASCII)

    def check(word: str) -> None:
        if not expression.fullmatch(word):
            raise Unfit(name)

    return check


def _one_of(words: str) -> Check:
    return _word("|".join(map(re.escape, words.split())), f"one of {', '.join(words.split())}")


def _link(word: str) -> None:
    fields.link(word)
    if word.startswith("-"):
        raise Unfit("a link's name")


def _network(word: str) -> None:
    """Check an address with or without a length; host bits are permitted."""
    host, slash, length = word.partition("/")
    if word not in ("default", "all", "any"):
        fields.address(host)
        if slash:
            fields.number(length, 0, 128)


_NUMBER = _word(r"\d{1,10}|0x[\da-fA-F]{1,8}", "a number")
_NAME = _word(r"[A-Za-z][\w.-]{0,30}|\d{1,10}", "a name or a number")
_MASKED = _word(r"(?:\d{1,10}|0x[\da-fA-F]{1,8})(?:/(?:\d{1,10}|0x[\da-fA-F]{1,8}))?", "MARK or MARK/MASK")
_RANGE = _word(r"\d{1,10}(?:-\d{1,10})?", "a number or a range")
_MAC = _word(r"(?:[\da-fA-F]{1,2}:){5}[\da-fA-F]{1,2}", "a MAC address")
_SECONDS = _word(r"\d{1,10}|forever", "a number of seconds")
_ON = _one_of("on off")
_TYPES = ("unicast", "local", "broadcast", "anycast", "multicast", "throw", "unreachable", "prohibit", "blackhole")


class Verb(t.NamedTuple):
    """What may follow a verb.

    slot: the keyword that may be left out before its value, if any. keywords: with the check of the value, or None for a word
    without a value. kinds: words that may come first. The keyword "to" is not passed on: ip does not take it after a kind.
    """

    slot: str
    keywords: t.Mapping[str, Check | None]
    kinds: tuple[str, ...] = ()


def _keywords(check: Check | None, words: str) -> dict[str, Check | None]:
    return dict.fromkeys(words.split(), check)


_ADDRESS = Verb(
    "local",
    {
        **_keywords(_network, "local peer"),
        **_keywords(fields.address, "anycast"),
        **_keywords(_word(r"[+-]|[\d.]{7,15}", "an address, + or -"), "broadcast brd"),
        **_keywords(_link, "dev"),
        **_keywords(_word(r"\w[\w.:@-]{0,14}", "a label"), "label"),
        **_keywords(_NAME, "scope"),
        **_keywords(_NUMBER, "metric priority"),
        **_keywords(_SECONDS, "valid_lft preferred_lft"),
        **_keywords(None, "nodad noprefixroute home mngtmpaddr autojoin"),
    },
)
_FLUSHED_ADDRESSES = Verb("dev", {"dev": _link, "to": _network, "scope": _NAME})
_HOP = {**_keywords(fields.address, "via src"), "dev": _link, **_keywords(None, "onlink nexthop")}
_ROUTE = Verb(
    "to",
    {
        "to": _network,
        **_HOP,
        **_keywords(_NAME, "table scope protocol proto"),
        **_keywords(_NUMBER, "metric preference weight advmss mtu initcwnd initrwnd tos dsfield hoplimit"),
        "pref": _one_of("low medium high"),
    },
    _TYPES,
)
_FLUSHED_ROUTES = Verb("to", {**_ROUTE.keywords, "cache": None, "type": _one_of(" ".join(_TYPES))})
_RULE = Verb(
    "",
    {
        **_keywords(_network, "from to"),
        **_keywords(_link, "iif oif"),
        **_keywords(_NAME, "table lookup protocol ipproto"),
        **_keywords(_NUMBER, "priority preference pref order goto tos dsfield suppress_prefixlength"),
        **_keywords(_MASKED, "fwmark"),
        **_keywords(_RANGE, "sport dport uidrange"),
        **_keywords(None, "not l3mdev nop unreachable prohibit blackhole"),
    },
)
_LINK = Verb(
    "dev",
    {
        **_keywords(_link, "dev name master"),
        **_keywords(None, "up down nomaster"),
        **_keywords(_NUMBER, "mtu txqueuelen group"),
        **_keywords(_MAC, "address"),
        **_keywords(_ON, "arp multicast allmulticast promisc"),
        "addrgenmode": _one_of("none eui64 random stable_secret"),
    },
)
_NEW_LINK = Verb("name", {"name": _link, "type": _one_of("bridge veth"), "mtu": _NUMBER, "address": _MAC, "up": None})
_NEIGHBOR = Verb(
    "to",
    {
        **_keywords(fields.address, "to proxy"),
        "dev": _link,
        "lladdr": _MAC,
        "nud": _one_of("permanent reachable stale noarp none delay probe failed incomplete"),
        **_keywords(None, "router"),
    },
)
_FLUSHED_NEIGHBORS = Verb("to", {"to": _network, "dev": _link, "nud": _NEIGHBOR.keywords["nud"]})


def _verbs(names: str, verb: Verb) -> dict[str, Verb]:
    return dict.fromkeys(names.split(), verb)


_ADDRESSES = {**_verbs("add change replace del delete", _ADDRESS), "flush": _FLUSHED_ADDRESSES}
_NEIGHBORS = {**_verbs("add change replace del delete", _NEIGHBOR), "flush": _FLUSHED_NEIGHBORS}
IP: dict[str, dict[str, Verb]] = {
    **dict.fromkeys(("address", "addr"), _ADDRESSES),
    "link": {"set": _LINK, "add": _NEW_LINK, **_verbs("del delete", Verb("dev", {"dev": _link}))},
    **dict.fromkeys(("neighbour", "neighbor", "neigh"), _NEIGHBORS),
    "route": {**_verbs("add append change prepend replace del delete", _ROUTE), "flush": _FLUSHED_ROUTES},
    "rule": _verbs("add del delete", _RULE),
}
_PORT = "hairpin isolated learning flood mcast_flood bcast_flood guard root_block proxy_arp neigh_suppress vlan_tunnel fastleave"
_OF_LINK = _keywords(None, "self master")
BRIDGE: dict[str, dict[str, Verb]] = {
    "link": {
        "set": Verb("dev", {"dev": _link, **_keywords(_ON, _PORT), **_keywords(_NUMBER, "cost priority state"), **_OF_LINK})
    },
    "fdb": _verbs(
        "add append replace del delete",
        Verb(
            "to",
            {
                "to": _MAC,
                "dev": _link,
                "vlan": _NUMBER,
                **_keywords(None, "static dynamic local permanent use sticky"),
                **_OF_LINK,
            },
        ),
    ),
    "vlan": _verbs("add del delete", Verb("", {"dev": _link, "vid": _RANGE, **_keywords(None, "pvid untagged"), **_OF_LINK})),
}
_FAMILIES = ("-4", "-6")


def ip(words: t.Sequence[str]) -> list[str]:
    """Return the arguments of a permitted command of ip. Raises Unfit that names the word that is not permitted."""
    families = [*words[:1]] if words[:1] and words[0] in _FAMILIES else []
    return [*families, *_command("ip", IP, words[len(families) :])]


def bridge(words: t.Sequence[str]) -> list[str]:
    """Return the arguments of a permitted command of bridge. Raises Unfit that names the word that is not permitted."""
    return _command("bridge", BRIDGE, words)


def _command(tool: str, objects: t.Mapping[str, t.Mapping[str, Verb]], words: t.Sequence[str]) -> list[str]:
    kind, name = [*words, "", ""][:2]
    if kind not in objects:
        raise Unfit(f"a command of {tool} with one of {', '.join(objects)} in place of {kind!r}")
    if name not in objects[kind]:
        raise Unfit(f"`{tool} {kind}` with one of {', '.join(objects[kind])} in place of {name!r}")
    return [kind, name, *_rest(f"{tool} {kind} {name}", objects[kind][name], words[2:])]


def _rest(command: str, verb: Verb, words: t.Sequence[str]) -> list[str]:
    """Check the words that follow the verb.

    A link's name is given with its keyword, so that the tool takes no name for a keyword.
    """
    checked = [*words[:1]] if words[:1] and words[0] in verb.kinds else []
    remaining, is_filled = iter(words[len(checked) :]), False
    permitted = ", ".join((*verb.kinds, *verb.keywords))
    for word in remaining:
        keyword = word
        if word not in verb.keywords:
            if not verb.slot or is_filled:
                raise Unfit(f"`{command}` with one of {permitted} in place of {word!r}")
            keyword = verb.slot
        is_filled = is_filled or keyword == verb.slot
        check = verb.keywords[keyword]
        checked += [] if keyword == verb.slot == "to" else [keyword]
        if check:
            value = word if keyword != word else next(remaining, "")
            try:
                checked.append(_checked(command, keyword, check, value))
            except Unfit as unfit:
                raise (Unfit(f"{unfit}; or one of {permitted}") if keyword != word else unfit) from None
    return checked


def _checked(command: str, keyword: str, check: Check, word: str) -> str:
    try:
        check(word)
    except Unfit as unfit:
        raise Unfit(f"`{command}` with {keyword} and {unfit} in place of {word!r}") from None
    return word
