# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""A set of rules and routes under one protocol: what is wished, and what a file keeps of it."""

from __future__ import annotations

import json
import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from . import route, rt_names, rule
from .route import Hop, Route
from .rule import Rule

PROTOCOL = 75
Item = t.TypeVar("Item", Rule, Route)


class Policy(t.NamedTuple):
    """rules, routes: None for a list that is not managed.

    places: the indexes of both in what was given, where something may have been said twice; for errors.
    enis: by what each boot finds the lists out itself, see discovery; None where it is told them.
    """

    protocol: int = PROTOCOL
    rules: tuple[Rule, ...] | None = None
    routes: tuple[Route, ...] | None = None
    places: tuple[t.Sequence[int], t.Sequence[int]] = ((), ())
    enis: t.Mapping[str, t.Any] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.rules and not self.routes and not self.enis

    @property
    def left_out(self) -> list[str]:
        """The names of the lists that are not managed."""
        return [name for name in ("rules", "routes") if getattr(self, name) is None]

    @property
    def is_known(self) -> bool:
        """Whether it says what is to be held, and not only how that is found out."""
        return not self.enis or self.rules is not None

    def for_boot(self) -> Policy:
        """What a boot is told: not what it finds out itself."""
        return self._replace(rules=None, routes=None) if self.enis else self

    def option(self, item: Rule | Route, hop: Hop | None = None) -> str:
        """The option that gave an item, as ``rules[12]``, or one of a route's next hops. These are sorted, without a number."""
        name = "rules" if isinstance(item, Rule) else "routes"
        place = t.cast("tuple[t.Any, ...]", getattr(self, name)).index(item)
        places = self.places[name == "routes"]
        inner = ".nexthops" if hop and isinstance(item, Route) and len(item.hops) > 1 else ""
        return f"{name}[{places[place] if places else place}]{inner}"

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
        gone = {*taken(self.rules or (), other.rules), *taken(self.routes or (), other.routes)}
        return self._replace(
            rules=tuple(one for one in self.rules or () if one not in gone),
            routes=tuple(one for one in self.routes or () if one not in gone),
        )

    def by(self, links: t.Collection[str]) -> Policy:
        """The routes over these links, and the rules that look up a table of theirs."""
        routes = tuple(one for one in self.routes or () if not one.links.isdisjoint(links))
        tables = {one.table for one in routes}
        return self._replace(rules=tuple(one for one in self.rules or () if one.table in tables), routes=routes)

    def besides(self, other: Policy) -> Policy:
        """Both; of the other only what leads by tables of its own."""
        tables = {one.table for one in self.routes or ()}
        return self._replace(
            rules=(*(self.rules or ()), *(one for one in other.rules or () if one.table not in tables)),
            routes=(*(self.routes or ()), *(one for one in other.routes or () if one.table not in tables)),
        )

    @property
    def beginning(self) -> str:
        """How the text of each set of this protocol begins that is not empty."""
        return f'{{\n"protocol": {self.protocol},\n'

    def text(self) -> str:
        """The file's text: JSON, an entry on a line."""
        lists = {"rules": self.rules, "routes": self.routes}
        parts = [f'"protocol": {self.protocol}']
        if self.enis:
            parts.append(f'"enis": {json.dumps(self.enis)}')
        for name, items in lists.items():
            if items is not None:
                # One call of the encoder, as one for each takes three times as long. No value has a blank in it.
                entries = json.dumps([item.options() for item in items])[1:-1].replace("}, {", "},\n  {")
                parts.append(f'"{name}": [\n  {entries}\n]' if entries else f'"{name}": []')
        return "{\n" + ",\n".join(parts) + "\n}\n"


def taken(items: t.Iterable[Item], by: t.Iterable[Item] | None) -> list[Item]:
    """Those of ``items`` that a list to be removed names; a route also where only one of them says over which link."""
    listed = {item.key: item for item in by or ()}
    return [item for item in items if item.key in listed and item.is_like(listed[item.key])]


def from_options(
    protocol: object,
    rules: t.Sequence[t.Mapping[str, t.Any]] | None,
    routes: t.Sequence[t.Mapping[str, t.Any]] | None,
    tables: t.Mapping[str, int],
) -> Policy:
    """The wish in a module's options or in a file. Raises Invalid for the first that can not be."""
    number = _protocol(protocol)
    of_rules, rule_places = _items("rules", rules or (), rule.from_options, tables)
    of_routes, route_places = _items("routes", routes or (), route.from_options, tables)
    return Policy(
        number,
        None if rules is None else of_rules,
        None if routes is None else of_routes,
        (rule_places, route_places),
    )


def from_text(text: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")) -> Policy:
    """What a file keeps of ``lists``, below its heading. Raises Invalid where it is not what we write."""
    plain = re.sub("^#.*", "", text)
    begins = re.match(r'\s*{\s*"protocol": (\d+),\s*(?:"enis": {.*})?', plain)
    if begins and not any(f'"{name}": [' in plain for name in lists):
        plain = begins[0].rstrip(", \n") + "}"  # thousands of entries of another list are not looked at
    try:
        data = json.loads(plain)
    except (RecursionError, ValueError) as error:
        raise Invalid("path", f"...{plain[-60:]}", f"a file with JSON text: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("enis"), (dict, type(None))):
        raise Invalid("path", plain[:60], "a file with protocol, rules and routes")
    rules, routes = (data.get(name) if name in lists else None for name in ("rules", "routes"))
    return from_options(data.get("protocol"), rules, routes, tables)._replace(enis=data.get("enis"))


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
) -> tuple[tuple[Item, ...], list[int]]:
    """The list without repetitions, in the order given, as of rules of one priority the first decides; and their indexes."""
    if not isinstance(given, (list, tuple)):
        raise Invalid(name, given, "a list")
    items: dict[t.Any, Item] = {}
    places: list[int] = []
    for index, entry in enumerate(given):
        option = f"{name}[{index}]"
        if not isinstance(entry, dict):
            raise Invalid(option, entry, "a dictionary")
        item = parse(option, entry, tables)
        former = items.setdefault(item.key, item)
        if former is item:
            places.append(index)
        elif former != item:
            place = places[list(items.values()).index(former)]
            reason = f"{name}[{place}] has the same {_KEYS[name]} and another meaning"
            raise Invalid(option, str(item), f"the only one of its kind; {reason}")
    return tuple(items.values()), places


_KEYS = {"rules": "priority and selector", "routes": "table, prefix and metric"}
