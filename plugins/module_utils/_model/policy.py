# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A set of rules and routes under one protocol: what is wished, and what a file keeps of it."""

from __future__ import annotations

import json
import re
import typing as t

from . import fields, route, rt_names, rule
from .fields import Unfit
from .problem import Invalid
from .route import Route
from .rule import Rule

PROTOCOL = 75
Item = t.TypeVar("Item", Rule, Route)


class Policy(t.NamedTuple):
    """rules, routes: None for a list that is not managed."""

    protocol: int = PROTOCOL
    rules: tuple[Rule, ...] | None = None
    routes: tuple[Route, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.rules and not self.routes

    def over(self, former: Policy) -> Policy:
        """This wish, and for a list that it does not manage, what was kept before."""
        return self._replace(
            rules=former.rules if self.rules is None else self.rules,
            routes=former.routes if self.routes is None else self.routes,
        )

    def without(self, other: Policy) -> Policy:
        """What is left when ``other`` goes; without lists, all of it goes."""
        if other.rules is None and other.routes is None:
            return Policy(self.protocol)
        rules, routes = set(other.rules or ()), set(other.routes or ())
        return self._replace(
            rules=tuple(one for one in self.rules or () if one not in rules),
            routes=tuple(one for one in self.routes or () if one not in routes),
        )

    def text(self) -> str:
        """The file's text: JSON, an entry on a line."""
        lists = {"rules": self.rules, "routes": self.routes}
        parts = [f'"protocol": {self.protocol}']
        for name, items in lists.items():
            if items is not None:
                # One call of the encoder, as one for each takes three times as long. No value has a blank in it.
                entries = json.dumps([item.options() for item in items])[1:-1].replace("}, {", "},\n  {")
                parts.append(f'"{name}": [\n  {entries}\n]' if entries else f'"{name}": []')
        return "{\n" + ",\n".join(parts) + "\n}\n"


def from_options(
    protocol: object,
    rules: t.Sequence[t.Mapping[str, t.Any]] | None,
    routes: t.Sequence[t.Mapping[str, t.Any]] | None,
    tables: t.Mapping[str, int],
) -> Policy:
    """The wish in a module's options or in a file. Raises Invalid for the first that can not be."""
    return Policy(
        _protocol(protocol),
        None if rules is None else _items("rules", rules, rule.from_options, tables),
        None if routes is None else _items("routes", routes, route.from_options, tables),
    )


def from_text(text: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")) -> Policy:
    """What a file keeps of ``lists``, below its heading. Raises Invalid where it is not what we write."""
    plain = re.sub("^#.*", "", text)
    try:
        data = json.loads(plain)
    except ValueError as error:
        raise Invalid("path", f"...{plain[-60:]}", f"a file with JSON text: {error}") from None
    if not isinstance(data, dict):
        raise Invalid("path", plain[:60], "a file with protocol, rules and routes")
    rules, routes = (data.get(name) if name in lists else None for name in ("rules", "routes"))
    return from_options(data.get("protocol"), rules, routes, tables)


def _protocol(given: object) -> int:
    try:
        number = fields.number(given, 1, 255)
    except Unfit as unfit:
        raise Invalid("protocol", given, str(unfit)) from None
    if number in rt_names.PROTOCOLS:
        raise Invalid("protocol", given, f"one that nobody else uses; {number} belongs to {rt_names.PROTOCOLS[number]}")
    return number


def _items(
    name: str,
    given: t.Sequence[t.Mapping[str, t.Any]],
    parse: t.Callable[[str, t.Mapping[str, t.Any], t.Mapping[str, int]], Item],
    tables: t.Mapping[str, int],
) -> tuple[Item, ...]:
    """The list without repetitions, in the order given: among rules of one priority the first that matches decides."""
    if not isinstance(given, (list, tuple)):
        raise Invalid(name, given, "a list")
    items: dict[Item, int] = {}
    keys: dict[t.Any, int] = {}
    for index, entry in enumerate(given):
        option = f"{name}[{index}]"
        if not isinstance(entry, dict):
            raise Invalid(option, entry, "a dictionary")
        item = parse(option, entry, tables)
        if item in items:
            continue
        key = item.key
        if key in keys:
            reason = f"{name}[{keys[key]}] has the same {_KEYS[name]} and another meaning"
            raise Invalid(option, str(item), f"the only one of its kind; {reason}")
        keys[key] = items[item] = index
    return tuple(items)


_KEYS = {"rules": "priority and selector", "routes": "table, prefix and metric"}
