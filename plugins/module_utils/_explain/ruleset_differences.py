# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between the rulesets of two snapshots.

Tables, chains and sets of both are between them: without rules and elements they decide nothing.
"""

from __future__ import annotations

import re
import typing as t

from .._snapshot import values
from .._snapshot.values import Entry
from . import differences, node_objects
from .differences import Applied, Change, Part, Row, Value
from .node_objects import Kind

IPTABLES = {"ip": "iptables", "ip6": "ip6tables"}


def iptables(before: list[Entry], after: list[Entry]) -> Part:
    kind = node_objects.entries("iptables", "table", ("family", "table", "backend"), lambda entry: str(entry["table"]))
    rows = []
    for row in differences.matched(before, after, kind._replace(value=lambda _entry: "")):
        entry = row.before or row.after
        empty = {**entry, "save": f"*{entry['table']}\nCOMMIT\n"}
        rows.append(Row(row.before, row.after, None, _saved(row.before or empty, row.after or empty)))
    return differences.of_rows(before, after, rows)


def nftables(before: list[Entry], after: list[Entry]) -> Part:
    groups: dict[tuple[int, str], tuple[list[Entry], list[Entry]]] = {}
    tables: dict[str, int] = {}
    for side, objects in enumerate((before, after)):
        for entry in objects:
            kind, body = next(iter(entry.items()))
            table = f"{body.get('family')} {body.get('name') if kind == 'table' else body.get('table')}"
            place = tables.setdefault(table, len(tables))
            chain = str(body.get("chain")) if kind == "rule" else ""
            rank = 0 if kind in ("table", "metainfo") else 2 if kind == "chain" else 3 if kind == "rule" else 1
            groups.setdefault((place * 4 + rank, f"{table} {chain}"), ([], []))[side].append(entry)
    parts = [
        _nft_rules(name, *sides) if order % 4 == 3 else _nft_objects(*sides)
        for (order, name), sides in sorted(groups.items(), key=lambda item: item[0][0])
    ]
    return differences.of_rows(
        before, after, [Row(part.before, part.after, None, part) for part in parts], lambda lists: [*sum(lists, [])]
    )


def ipsets(before: list[Entry], after: list[Entry]) -> Part:
    kind = node_objects.entries("ipset", "set", ("name",), lambda entry: str(entry["name"]))
    rows = []
    for row in differences.matched(before, after, kind._replace(value=lambda _entry: "")):
        entry = row.before or row.after
        head = str(entry["save"]).splitlines()[:1]
        empty = {**entry, "save": "\n".join([*head, ""])}
        rows.append(Row(row.before, row.after, None, _set(row.before or empty, row.after or empty)))
    return differences.of_rows(before, after, rows)


def ebtables(before: list[Entry], after: list[Entry]) -> Part:
    kind = node_objects.entries("ebtables", "chain", ("table", "chain", "backend"), lambda entry: str(entry["chain"]))
    rows = []
    for row in differences.matched(before, after, kind._replace(value=lambda _entry: "")):
        entry = row.before or row.after
        empty = {**entry, "rules": [], "policy": "ACCEPT"}
        rows.append(Row(row.before, row.after, None, _frame_chain(row.before or empty, row.after or empty)))
    return differences.of_rows(before, after, rows)


def ipvs(before: list[Entry], after: list[Entry]) -> Part:
    keys = ("address", "protocol", "port", "fwmark")
    kind = node_objects.entries("ipvs", "virtual server", keys, lambda entry: " ".join(str(entry.get(key) or "") for key in keys))
    ends = node_objects.entries("ipvs", "endpoint", ("address", "port"), lambda entry: f"{entry['address']}:{entry.get('port')}")
    rows = []
    for row in differences.matched(before, after, kind._replace(value=lambda _entry: "")):
        if row.before and row.after:
            old, new = (each.get("destinations") or [] for each in (row.before, row.after))
            label = f"endpoint of the virtual server {kind.text(row.before)}:"
            inner = differences.of_rows(old, new, differences.matched(old, new, ends._replace(label=label)))
            rows.append(
                Row(row.before, row.after, None, differences.of_dictionary(row.before, row.after, {"destinations": inner}))
            )
        else:
            rows.append(row)
    return differences.of_rows(before, after, rows)


def bpf(before: list[Entry], after: list[Entry]) -> Part:
    kind = node_objects.entries("bpf", "program", ("link", "hook", "direction", "name"), _program)
    return differences.of_rows(before, after, differences.matched(before, after, kind))


def _program(entry: Entry) -> str:
    program = values.Program.of(entry)
    probes = ", ".join(f"{source} to {translated}" for source, translated in program.probes)
    return f"{program}{f', which translates {probes}' if probes else ''}"


def filters(before: list[Entry], after: list[Entry]) -> Part:
    keys = values.Filter._fields
    kind = node_objects.entries("filter", "", keys, lambda entry: str(values.of_entry(values.Filter, entry)))
    return differences.of_rows(before, after, differences.aligned(before, after, kind))


def _saved(before: Entry, after: Entry) -> Part:
    """Return the part of a table of iptables. Chains of both snapshots are in it, as an empty one decides nothing."""
    program = IPTABLES.get(str(before["family"]), str(before["family"]))
    program = f"{program}-legacy" if before.get("backend") == "legacy" else program
    table, place = str(before["table"]), f"{before['family']} {before['table']}"
    old, new = _chains(str(before["save"])), _chains(str(after["save"]))
    kind = node_objects.chain_rules(program, table, place)
    parts = []
    for chain in {**old, **new}:
        (policy, rules), (later, others) = old.get(chain, ("", [])), new.get(chain, ("", []))
        declared = _policy(program, table, place, chain, policy or "ACCEPT" * (later not in ("", "-")) or "-", later or policy)
        rows = _positioned(differences.aligned(rules, others, kind), f"{program} -t {table}", chain)
        parts.append((chain, declared, differences.of_rows(rules, others, rows)))

    def build(applied: Applied) -> Value:
        heads = [f":{chain} {declared.between(applied)} [0:0]" for chain, declared, _rules in parts]
        lines = [line for _chain, _declared, rules in parts for line in rules.between(applied)]
        return {**before, "save": "\n".join([f"*{table}", *heads, *lines, "COMMIT", ""])}

    changes = {each for _chain, declared, rules in parts for each in (*declared.changes, *rules.changes)}
    return Part(before, after, frozenset(changes), build)


def _positioned(rows: t.Iterable[Row], program: str, chain: str) -> list[Row]:
    """Return rows of rules with commands that put a rule back to its place. program: with the table."""
    result, place = list[Row](), 1
    for row in rows:
        if row.change and row.before:
            verb, words = ("-R" if row.after else "-I"), str(row.before).removeprefix(f"-A {chain}").strip()
            row = row._replace(change=row.change._replace(undo=(f"{program} {verb} {chain} {place} {words}",)))
        place += row.after is not None
        result.append(row)
    return result


def _policy(program: str, table: str, place: str, chain: str, before: str, after: str) -> Part:
    if before == after or after == "-":
        return differences.same(before)
    text = f"policy of {chain} of {place} is {after} instead of {before}"
    return differences.single(before, after, Change("iptables", text, (f"{program} -t {table} -P {chain} {before}",)))


def _chains(save: str) -> dict[str, tuple[str, list[str]]]:
    """Return policy and rules of each chain of one table, as iptables-save prints them."""
    chains: dict[str, tuple[str, list[str]]] = {}
    for line in save.splitlines():
        if line.startswith(":"):
            name, policy, *_counters = f"{line[1:]} -".split()
            chains[name] = (policy, chains.get(name, ("", []))[1])
        elif "-A " in line[:40]:
            rule = line[line.index("-A ") :].strip()
            chains.setdefault(rule.split(" ", 2)[1], ("-", []))[1].append(rule)
    return chains


def _nft_rules(place: str, before: list[Entry], after: list[Entry]) -> Part:
    old, new = [entry["rule"] for entry in before], [entry["rule"] for entry in after]
    kind = node_objects.nft_rules(place)

    def named(row: Row) -> Row:
        if not row.change:
            return row
        texts = (node_objects.whole(body) if body else "" for body in (row.before, row.after))
        return row._replace(change=row.change._replace(source=(place.strip(), *texts)))

    rows = [named(row) for row in differences.aligned(old, new, kind)]
    return differences.of_rows(before, after, rows, lambda rules: [{"rule": rule} for rule in rules])


def _nft_objects(before: list[Entry], after: list[Entry]) -> Part:
    """Return tables, sets and other objects of one table."""
    rows = []
    for row in differences.matched(before, after, _NFT_OBJECTS):
        old, new = row.before, row.after
        if old is None or new is None:
            rows.append(_lone_object(row))
            continue
        ((kind, body),), ((_kind, other),) = old.items(), new.items()
        rows.append(Row(old, new, None, differences.of_dictionary(old, new, {kind: _nft_object(kind, body, other)})))
    part = differences.of_rows(before, after, rows)
    return part._replace(before=part.build(frozenset()))  # with those of the later snapshot alone, which hold its rules


def _object_name(entry: Entry) -> str:
    ((kind, body),) = entry.items()
    names = (kind, body.get("family"), body.get("table"), body.get("name"))
    return " ".join(str(name) for name in names if name)


_NFT_OBJECTS = Kind(
    "nft", "", _object_name, lambda _entry: "", _object_name, lambda _entry: "", lambda entry: f"nft delete {_object_name(entry)}"
)


def _lone_object(row: Row) -> Row:
    """Return an object of one snapshot: always there, but without elements and with the policy accept unless a change is made."""
    entry = row.before or row.after
    ((kind, body),) = entry.items()
    empty = {key: value for key, value in body.items() if key != "elem"}
    empty |= {"policy": "accept"} if body.get("policy") else {}
    old, new = (body, empty) if row.before else (empty, body)
    return Row(
        row.before, row.after, None, differences.of_dictionary({kind: old}, {kind: new}, {kind: _nft_object(kind, old, new)})
    )


def _nft_object(kind: str, before: Entry, after: Entry) -> Part:
    name = _object_name({kind: before})
    parts = {}
    if "dynamic" not in (before.get("flags") or ()):  # packets fill it
        old, new = before.get("elem") or [], after.get("elem") or []
        elements = node_objects.lines("nft", f"element of {name}:")._replace(
            key=lambda element: node_objects.whole(node_objects.without_counters(element)),
            text=lambda element: node_objects.whole(node_objects.without_counters(element)),
        )
        if old or new:
            parts["elem"] = differences.of_rows(old, new, differences.matched(old, new, elements))
    for key in ("policy", "hook", "prio", "type"):
        if before.get(key) != after.get(key) and None not in (before.get(key), after.get(key)):
            text = f"{key} of {name} is {after[key]} instead of {before[key]}"
            parts[key] = differences.single(before[key], after[key], Change("nft", text))
    return differences.of_dictionary(before, after, parts)


def _set(before: Entry, after: Entry) -> Part:
    """Return the part of an ipset: what it is made of, and its members."""
    old, new = (str(each["save"]).splitlines() for each in (before, after))
    head = (
        differences.single(old[:1], new[:1], Change("ipset", f"{new[0]} is in the place of {old[0]}"))
        if _kind_of(old) != _kind_of(new)
        else differences.same(old[:1])
    )
    kind = node_objects.lines(
        "ipset", "member", lambda line: f"ipset {line}", lambda line: line.replace("add ", "ipset del ", 1)
    )._replace(key=lambda line: re.sub(r" (?:timeout|packets|bytes) \d+", "", line))
    members = differences.of_rows(old[1:], new[1:], differences.matched(old[1:], new[1:], kind))

    def build(applied: Applied) -> Value:
        return {**before, "save": "\n".join([*head.between(applied), *members.between(applied), ""])}

    return Part(before, after, head.changes | members.changes, build)


def _kind_of(lines: t.Sequence[str]) -> str:
    return " ".join(lines[0].split()[:4]) if lines else ""


def _frame_chain(before: Entry, after: Entry) -> Part:
    table, chain = str(before["table"]), str(before["chain"])
    old, new = (before.get("rules") or []), (after.get("rules") or [])
    kind = node_objects.chain_rules("ebtables", table, f"bridge {table} {chain}")
    kind = kind._replace(
        add=lambda rule: f"ebtables -t {table} -A {chain} {rule}", remove=lambda rule: f"ebtables -t {table} -D {chain} {rule}"
    )
    parts = {
        "rules": differences.of_rows(old, new, _positioned(differences.aligned(old, new, kind), f"ebtables -t {table}", chain))
    }
    policies = before.get("policy") or "ACCEPT", after.get("policy") or "ACCEPT"
    if policies[0] != policies[1]:
        text = f"policy of {chain} of bridge {table} is {policies[1]} instead of {policies[0]}"
        parts["policy"] = differences.single(
            *policies, Change("ebtables", text, (f"ebtables -t {table} -P {chain} {policies[0]}",))
        )
    return differences.of_dictionary(before, after, parts)


SUBSETS: dict[str, t.Callable[[list[Entry], list[Entry]], Part]] = {
    **{"iptables": iptables, "nftables": nftables, "ipsets": ipsets, "ebtables": ebtables},
    **{"ipvs": ipvs, "bpf": bpf, "filters": filters},
}
