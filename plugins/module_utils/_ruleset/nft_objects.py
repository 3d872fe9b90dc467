# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""nft's JSON objects that are loaded elsewhere as they are: their sizes, and what of a rule is left out."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from .._core import memo
from . import nft_json, nft_listing, ruleset

Entry = t.Mapping[str, t.Any]
NFTRACE = "nftrace"  # the field of a packet that makes the kernel report it
_DECIDE_NOTHING = ("comment", "LOG", "NFLOG")  # extensions of iptables
_FILLING = frozenset(("set", "map"))  # statements by which packets fill a set


@memo.of_part
def elements(objects: t.Iterable[Entry]) -> int:
    """Return the number of elements of all sets, with those of the anonymous sets in rules."""
    bodies = [body for entry in objects for body in entry.values() if isinstance(body, dict)]
    return sum(_length(body.get("elem")) + _anonymous(body.get("expr")) for body in bodies)


def _length(value: object) -> int:
    return len(value) if isinstance(value, (list, tuple)) else 0


def _anonymous(value: object) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_anonymous, value))
    return _length(value.get("set")) + sum(map(_anonymous, value.values())) if isinstance(value, dict) else 0


@memo.of_part
def have_packets_fill_sets(objects: t.Iterable[Entry]) -> bool:
    return any(_FILLING & {*statement} for entry in objects for statement in _statements(entry) if isinstance(statement, dict))


def _statements(entry: Entry) -> list[t.Any]:
    rule = entry.get("rule")
    return ruleset.listed(rule.get("expr")) if isinstance(rule, dict) else []


def _with(entry: Entry, statements: list[t.Any]) -> Entry:
    return {"rule": {**entry["rule"], "expr": statements}}


def names_nftrace(part: object) -> bool:
    """Return whether a rule, or a part of one, reads or sets nftrace."""
    if isinstance(part, dict):
        meta = part.get("meta")
        return (isinstance(meta, dict) and meta.get("key") == NFTRACE) or any(map(names_nftrace, part.values()))
    return isinstance(part, list) and any(map(names_nftrace, part))


def without_tracing(entry: Entry) -> Entry | None:
    """Return a rule without the statements that begin or end the kernel's reports about a packet; None if it has no other one."""
    statements = [statement for statement in _statements(entry) if not _is_tracing(statement)]
    return _with(entry, statements) if statements else None


def _is_tracing(statement: object) -> bool:
    """Return True for a statement that sets nftrace. nft overlooks further keys beside those that it knows."""
    mangle = statement.get("mangle") if isinstance(statement, dict) else None
    return isinstance(mangle, dict) and names_nftrace(mangle.get("key")) and not names_nftrace(mangle.get("value"))


def without_extensions(entry: Entry) -> Entry | None:
    """Return a rule without extensions of iptables that decide nothing, and with nft's own word for MASQUERADE.

    Return None if it has another one: nft prints the name of an extension alone. Another object is returned as it is.
    """
    statements = list[t.Any]()
    for statement in _statements(entry):
        extension = statement.get("xt") if isinstance(statement, dict) and "xt" in statement else {}
        name = extension.get("name") if isinstance(extension, dict) else ""
        if name == "MASQUERADE":
            statements.append({"masquerade": None})
        elif extension == {}:
            statements.append(statement)
        elif name not in _DECIDE_NOTHING:
            return None
    return _with(entry, statements) if _statements(entry) else entry


# Kinds of objects. A hardware offload, a tunnel or a command such as flush is none of them.
KINDS = ("table", "element", "rule", *nft_listing.BLOCKS)
OF_LINKS = ("ingress", "egress")  # hooks of chains that get the packets of some links
# nft lists a map before the chains that its elements name.
_LOAD_ORDER = {"table": 0, "set": 2, "map": 2, "element": 3, "rule": 4}


class Loadable(t.NamedTuple):
    """objects: in the order of loading. allocated: elements for which the kernel allocates memory, of each set that it creates.

    flowtables: names of those that are left out. left_out: sentences about other objects. is_untraced: whether statements that
    begin or end the kernel's reports about a packet are left out.
    """

    objects: list[Entry]
    allocated: list[int]
    flowtables: list[str]
    left_out: list[str]
    is_untraced: bool


@memo.of_part
def loadable(objects: t.Sequence[Entry], reserved: t.Container[str]) -> Loadable:
    """Return the objects that can be loaded elsewhere, and that packets may meet. reserved: names of tables that are left out."""
    remaining, allocated, flowtables, left_out = list[Entry](), list[int](), list[str](), list[str]()
    is_untraced, asleep = False, nft_json.dormant(objects)  # nft 1.0.6 takes no flags of a table in JSON
    for entry in objects:
        kind = next(iter(entry)) if len(entry) == 1 else ""
        body = entry[kind] if kind in KINDS else None
        if asleep and isinstance(body, dict) and nft_json.place_of(kind, body) in asleep:
            continue
        if kind == "flowtable":
            flowtables.append(str(entry[kind].get("name")))
        elif not isinstance(body, dict) or body.get("name" if kind == "table" else "table") in reserved:
            sentence = "An object of nft is not in the twin, because its kind or its table is not permitted"
            left_out += [] if kind == "metainfo" else [f"{sentence}: {str(dict(entry))[:120]}."]
        elif kind == "rule" and names_nftrace(body):
            untraced = without_tracing(entry)
            if names_nftrace(untraced and untraced["rule"]):  # in the twin, each packet is reported
                sentence = "A rule of nft is not in the twin, because it depends on nftrace"
                left_out.append(f"{sentence}: {str(body)[:120]}.")
            else:
                is_untraced = True
                remaining += [untraced] if untraced else []
        else:
            allocated += [_allocated(body)] if kind in nft_listing.SETS else []
            remaining.append(_without_flags(entry) if kind == "table" else entry)
    remaining.sort(key=lambda entry: _LOAD_ORDER.get(next(iter(entry)), 1))
    return Loadable(remaining, allocated, flowtables, left_out, is_untraced)


def _allocated(body: Entry) -> int:
    size = [["size", str(body["size"])]] if "size" in body else []
    return nft_listing.allocated([*size, ["flags", *map(str, nft_json.flags(body))]])


def _without_flags(entry: Entry) -> Entry:
    """Return a table without the flags that tie it to the process that created it; one that is dormant is left out."""
    return {"table": {key: value for key, value in entry["table"].items() if key != "flags"}}


def of_links(objects: t.Sequence[Entry], links: t.Collection[str]) -> tuple[t.Sequence[Entry], list[str]]:
    """Return the objects with those of the devices of chains that exist, and the chains whose devices were not read.

    A chain without any is left out with its rules: it gets no packet. links: the names of those that exist.
    """
    if not any("chain" in entry and entry["chain"].get("hook") in OF_LINKS for entry in objects):  # nearly all nodes
        return objects, []
    left_out, remaining, unlinked = set[tuple[t.Any, ...]](), list[Entry](), list[str]()
    for entry in objects:
        body = entry.get("chain") or entry.get("rule") or {}
        place = body.get("family"), body.get("table"), body.get("name" if "chain" in entry else "chain")
        if "chain" in entry and body.get("hook") in OF_LINKS:
            patterns = nft_json.devices(body)
            names = [link for link in links if any(fnmatch.fnmatchcase(link, str(pattern)) for pattern in patterns)]
            left_out |= set() if names else {place}
            unlinked += [] if patterns else [" ".join(map(str, place))]
            entry = {"chain": {**body, "dev": names[0] if len(names) == 1 else names}}
        remaining += [] if place in left_out else [entry]
    return remaining, unlinked


def of_several_links(objects: t.Iterable[Entry]) -> tuple[dict[str, Entry], list[Entry]]:
    """Return the chains of several links by texts that add them, and the other objects. The JSON of nft 1.0.6 lacks the links.

    Names with other characters are not quoted in the texts, so that nft refuses them.
    """
    chains, remaining = dict[str, Entry](), list[Entry]()
    for entry in objects:
        chain = entry.get("chain") or {}
        if not isinstance(chain.get("dev"), list):
            remaining.append(entry)
            continue
        family, table, name, hook, policy = (
            re.sub(r"[^\w./-]", "?", str(chain.get(key) or "")) for key in ("family", "table", "name", "hook", "policy")
        )
        head = f"type filter hook {hook} devices = {{ {quoted(map(str, chain['dev']))} }} priority {int(chain.get('prio') or 0)}"
        text = f"add chain {family} {table} {name} {{ {head}; policy {policy or 'accept'}; }}"
        chains[f"add table {family} {table}\n{text}\n"] = entry
    return chains, remaining


def quoted(names: t.Iterable[str]) -> str:
    """Return links as a list of nft."""
    return ", ".join(f'"{name}"' for name in names if not {*name} & {*'"\\'})
