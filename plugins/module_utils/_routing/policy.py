# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The desired rules and routes of one protocol, and the file that keeps them.

Rules that route by the source address have exceptions for destinations that the node reaches without its uplinks. The table of an
uplink has no routes to pods, bridges and tunnels. So table main is looked up first, without its default routes: main has a route
to each new pod. It also has the networks of the other uplinks, and would send a reply out by another uplink than the request came
in by. So packets to these networks look up the uplink's table, unless main has a longer prefix there, as for a pod whose address
is in the network of an uplink.
"""

from __future__ import annotations

import functools
import json
import re
import typing as t

from .._core import fields
from .._core.errors import Invalid
from .._core.fields import Unfit
from .._core.option import Option, Options, texts
from . import route, rt_names, rule
from .route import Hop, Route
from .rule import LOOKUP, Rule

MAIN = "main"
EXCEPTIONS = 3  # the number of priorities before the rule's own
Entry = dict[str, t.Any]  # a rule as policy_routes takes it


def source_rules(source: str, table: int, priority: int, networks: t.Iterable[str]) -> t.Iterator[Entry]:
    """Yield the rule by which packets from ``source`` look up ``table``, after its exceptions.

    networks: prefixes of the other uplinks, of any family.
    """
    family = fields.prefix(source)[0]
    for network in networks:
        of_network, (_address, length) = fields.prefix(network)
        if of_network == family and length:
            selector = {"from": source, "to": network}
            yield {"priority": priority - 3, **selector, "table": MAIN, "suppress_prefixlength": length}
            yield {"priority": priority - 2, **selector, "table": table}
    yield {"priority": priority - 1, "from": source, "table": MAIN, "suppress_prefixlength": 0}
    yield {"priority": priority, "from": source, "table": table}


def networks_of_links(routes: t.Iterable[Route]) -> dict[str, list[str]]:
    """Map each link to the prefixes that table main has on it. Single addresses and link-local prefixes are no networks."""
    by_link: dict[str, list[str]] = {}
    for connected in routes:
        address, length = connected.dst
        if connected.table != rt_names.MAIN or not connected.is_connected or not 0 < length < len(address) * 8:
            continue
        if not (len(address) == 16 and fields.is_link_local(address)):
            for hop in connected.hops:
                by_link.setdefault(hop.dev, []).append(fields.show_prefix(connected.dst, ""))
    return by_link


PROTOCOL = 75
SOURCES = {"enis": dict, "uplinks": list}  # the types of the options by which a load finds the rules and routes
UPLINK: Options = {  # an entry of the option uplinks
    **texts("name"),
    "gateway": Option("str"),
    "gateway6": Option("str"),
    "table": Option("int"),
    "mark": Option("str"),
}
Item = t.TypeVar("Item", Rule, Route)


class Query(t.NamedTuple):
    """An option of policy_routes by which each load finds the rules and routes of the node that it runs on.

    source: its name, a key of SOURCES. value: its normal form, plain data.
    """

    source: str
    value: t.Any


class Policy(t.NamedTuple):
    """rules, routes: None for a list that is not managed.

    places: for errors, the index of each rule and each route in the lists as given, which may contain duplicates.
    query: how each boot discovers the lists, or None.
    """

    protocol: int = PROTOCOL
    rules: tuple[Rule, ...] | None = None
    routes: tuple[Route, ...] | None = None
    places: tuple[t.Sequence[int], t.Sequence[int]] = ((), ())
    query: Query | None = None

    @property
    def is_empty(self) -> bool:
        return not self.rules and not self.routes and not self.query

    @property
    def left_out(self) -> list[str]:
        """Return the names of the lists that are not managed."""
        return [name for name in ("rules", "routes") if getattr(self, name) is None]

    @property
    def is_known(self) -> bool:
        """Return False if the policy has only the query for its lists, and not yet the lists."""
        return not self.query or self.rules is not None

    def for_boot(self) -> Policy:
        """Return the policy as the permanent file keeps it: without lists that each boot discovers itself."""
        return self._replace(rules=None, routes=None) if self.query else self

    def option(self, item: Rule | Route, hop: Hop | None = None) -> str:
        """Return the option that gave an item, such as ``rules[12]``. Next hops are sorted, so they have no index."""
        name = "rules" if isinstance(item, Rule) else "routes"
        place = t.cast("tuple[t.Any, ...]", getattr(self, name)).index(item)
        places = self.places[name == "routes"]
        inner = ".nexthops" if hop and isinstance(item, Route) and len(item.hops) > 1 else ""
        return f"{name}[{places[place] if places else place}]{inner}"

    def over(self, former: Policy) -> Policy:
        """Return this policy, with the lists of ``former`` in place of lists that it does not manage."""
        return self._replace(
            rules=former.rules if self.rules is None else self.rules,
            routes=former.routes if self.routes is None else self.routes,
        )

    def without(self, other: Policy) -> Policy:
        """Return what remains when the lists of ``other`` are removed. Nothing remains if ``other`` has no lists."""
        if other.rules is None and other.routes is None:
            return Policy(self.protocol)
        gone = {*taken(self.rules or (), other.rules), *taken(self.routes or (), other.routes)}
        return self._replace(
            rules=tuple(rule for rule in self.rules or () if rule not in gone),
            routes=tuple(route for route in self.routes or () if route not in gone),
        )

    def without_rules(self, gone: t.Container[Rule]) -> Policy:
        """Return this policy without some rules. Errors still name the options of the others by their indexes."""
        places = self.places[0] or range(len(self.rules or ()))
        pairs = [(rule, place) for rule, place in zip(self.rules or (), places) if rule not in gone]
        return self._replace(
            rules=tuple(rule for rule, _place in pairs),
            places=([place for _rule, place in pairs], self.places[1]),
        )

    def by(self, links: t.Collection[str]) -> Policy:
        """Return the tables with routes over these links, and the rules that look these tables up, with their exceptions."""
        tables = {route.table for route in self.routes or () if not route.links.isdisjoint(links)}
        routes = tuple(route for route in self.routes or () if route.table in tables)
        sources = {rule.src for rule in self.rules or () if rule.table in tables} - {fields.ANY}
        rules = tuple(rule for rule in self.rules or () if rule.table in tables or rule.src in sources)
        return self._replace(rules=rules, routes=routes)

    def besides(self, other: Policy) -> Policy:
        """Return this policy, with those rules and routes of ``other`` whose tables and sources are not in this policy."""
        tables = {route.table for route in self.routes or ()}
        sources = {rule.src for rule in self.rules or ()} - {fields.ANY}
        rules = (rule for rule in other.rules or () if rule.table not in tables and rule.src not in sources)
        return self._replace(
            rules=(*(self.rules or ()), *rules),
            routes=(*(self.routes or ()), *(route for route in other.routes or () if route.table not in tables)),
        )

    @property
    def beginning(self) -> str:
        """Return the beginning that the texts of all non-empty policies of this protocol share."""
        return f'{{\n"protocol": {self.protocol},\n'

    def text(self) -> str:
        """Return the file's text: JSON with one entry per line."""
        pieces = [f'{{\n"protocol": {self.protocol}']
        if self.query:
            pieces.append(f',\n"{self.query.source}": {json.dumps(self.query.value)}')
        # One call of the encoder: a call for each route takes three times as long. No value contains a blank.
        of_routes = json.dumps([route.options() for route in self.routes or ()])[1:-1].replace("}, {", "},\n  {")
        for name, items, entries in (("rules", self.rules, rule.texts(self.rules or ())), ("routes", self.routes, [of_routes])):
            if items:
                pieces += [f',\n"{name}": [\n  ', ",\n  ".join(entries), "\n]"]
            elif items is not None:
                pieces.append(f',\n"{name}": []')
        return "".join([*pieces, "\n}\n"])


def taken(items: t.Iterable[Item], by: t.Iterable[Item] | None) -> list[Item]:
    """Return the items that the list ``by`` selects for removal. A route also matches if only one of the two names its link."""
    listed = {item.key: item for item in by or ()}
    return [item for item in items if item.key in listed and item.is_like(listed[item.key])]


def from_options(
    protocol: object,
    rules: t.Sequence[t.Mapping[str, t.Any]] | None,
    routes: t.Sequence[t.Mapping[str, t.Any]] | None,
    tables: t.Mapping[str, int],
) -> Policy:
    """Return the policy in a module's options or in a file. Raises Invalid for the first entry that cannot be used."""
    number = _protocol(protocol)
    of_rules, rule_places = _items("rules", rules or (), rule.parser(tables))
    of_routes, route_places = _items("routes", routes or (), functools.partial(route.from_options, tables=tables))
    return Policy(
        number,
        None if rules is None else of_rules,
        None if routes is None else of_routes,
        (rule_places, route_places),
    )


def from_text(text: str, tables: t.Mapping[str, int], lists: t.Collection[str] = ("rules", "routes")) -> Policy:
    """Return the ``lists`` of a policy file; others are None. The heading is skipped. Raises Invalid for any other text."""
    heading = re.match("#.*", text)
    plain = text[heading.end() :] if heading else text
    begins = re.match(r'\s*{\s*"protocol": (\d+),\s*(?:"(?:enis|uplinks)": [\[{].*[\]}])?', plain)
    if begins and not any(f'"{name}": [' in plain for name in lists):
        plain = begins[0].rstrip(", \n") + "}"  # without any of ``lists``, do not parse thousands of entries of another
    try:
        data = json.loads(plain)
    except (RecursionError, ValueError) as error:
        raise Invalid("path", f"...{plain[-60:]}", f"a file with JSON text: {error}") from None
    sources = [source for source in SOURCES if data.get(source) is not None] if isinstance(data, dict) else []
    if not isinstance(data, dict) or not all(isinstance(data[source], SOURCES[source]) for source in sources):
        raise Invalid("path", plain[:60], "a file with protocol, rules and routes")
    rules, routes = (data.get(name) if name in lists else None for name in ("rules", "routes"))
    query = Query(sources[0], data[sources[0]]) if sources else None
    return from_options(data.get("protocol"), rules, routes, tables)._replace(query=query)


# That of the running kernel, which a boot removes, comes before that of the next boot.
RECORD_FOLDERS, RECORD_FILES = ("/run/kubenode", "/etc/kubenode"), "policy-routes-*.json"


def recorded(files: t.Mapping[str, str], tables: t.Mapping[str, int]) -> tuple[list[Entry], dict[str, str]]:
    """Return the policy of each protocol with the path of its record, and by path why a file is none.

    files: texts by path, of which the first one of a protocol counts. One that a boot discovers has no lists in a file.
    """
    by_protocol: dict[int, Entry] = {}
    refused: dict[str, str] = {}
    for path, text in files.items():
        try:
            found = from_text(text, tables)
        except Invalid as error:
            refused[path] = str(error)
            continue
        if found.is_known and found.protocol not in by_protocol:
            rules, routes = [rule.options() for rule in found.rules or ()], [route.options() for route in found.routes or ()]
            by_protocol[found.protocol] = {"protocol": found.protocol, "path": path, "rules": rules, "routes": routes}
    return [by_protocol[protocol] for protocol in sorted(by_protocol)], refused


def _protocol(value: object) -> int:
    try:
        number = fields.number(value, 1, 255)
    except Unfit as unfit:
        raise Invalid("protocol", value, str(unfit)) from None
    if number in rt_names.PROTOCOLS:
        raise Invalid("protocol", value, f"one that no other program uses; {number} belongs to {rt_names.PROTOCOLS[number]}")
    return number


def _items(
    name: str,
    entries: t.Sequence[t.Mapping[str, t.Any]],
    parse: t.Callable[[str, t.Mapping[str, t.Any]], Item],
) -> tuple[tuple[Item, ...], list[int]]:
    """Return the entries without duplicates, in the order given (of the rules of one priority the first decides), and their
    indexes."""
    if not isinstance(entries, (list, tuple)):
        raise Invalid(name, entries, "a list")
    items: dict[t.Any, Item] = {}
    places: list[int] = []
    for index, entry in enumerate(entries):
        option = f"{name}[{index}]"
        if not isinstance(entry, dict):
            raise Invalid(option, entry, "a dictionary")
        item = parse(option, entry)
        former = items.setdefault(item.key, item)
        if former is item:
            places.append(index)
        elif former != item:
            place = places[list(items.values()).index(former)]
            reason = f"{name}[{place}] has the same {_KEYS[name]} but another meaning"
            raise Invalid(option, str(item), f"unique; {reason}")
    return tuple(items.values()), places


_KEYS = {"rules": "priority and selector", "routes": "table, prefix and metric"}


Owned = tuple[t.Any, int]  # a rule or a route, and its protocol


def served_by_equivalent_tables(
    desired: Policy, missing: t.Iterable[Rule], rules: t.Iterable[Owned], routes: t.Sequence[Owned]
) -> dict[Rule, Owned]:
    """Return the ``missing`` rules of ``desired`` that a foreign rule satisfies, because its table leads to the same gateways.

    rules, routes: those of the kernel.
    """
    wanted = {rule._replace(table=0): rule for rule in missing if rule.action == LOOKUP and rule.table}
    satisfying: dict[Rule, Owned] = {}
    for other, protocol in rules if wanted else ():
        rule = wanted.get(other._replace(table=0))
        if rule and protocol != desired.protocol and rule not in satisfying and _leads_alike(desired, rule, other.table, routes):
            satisfying[rule] = (other, protocol)
    return satisfying


def _leads_alike(desired: Policy, rule: Rule, table: int, routes: t.Iterable[Owned]) -> bool:
    """Return whether foreign routes of ``table`` lead to all gateways to which the desired routes of the rule's table lead."""
    ways = {
        _path_of(route)
        for route in desired.routes or ()
        if (route.family, route.table) == (rule.family, rule.table) and any(hop.via for hop in route.hops)
    }
    foreign = (route for route, protocol in routes if protocol != desired.protocol and route.table == table)
    return bool(ways) and ways.issubset(map(_path_of, foreign))


def _path_of(route: Route) -> t.Any:
    return route.path.unread, route.family, route.dst, route.type, frozenset((hop.dev, hop.via) for hop in route.hops)


def beside(protocols: t.Collection[str]) -> dict[str, int]:
    """Return the option ``protocol`` with which policy_routes removes no rule of a node; empty if the default does.

    protocols: of the node's rules. policy_routes removes those of its own that it does not list, such as a role's.
    """
    numbers = (number for number in range(PROTOCOL, 256) if number not in rt_names.PROTOCOLS and str(number) not in protocols)
    number = next(numbers, PROTOCOL)
    return {} if number == PROTOCOL else {"protocol": number}
