# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The outputs of iptables-save and ipset save, and /proc/net/ip_vs, divided into tables, sets and virtual servers."""

from __future__ import annotations

import re
import typing as t

from .._core import fields
from .._ruleset import nft_json, nft_objects

Entry = t.Mapping[str, t.Any]

TABLES = ("raw", "mangle", "nat", "filter", "security")  # of iptables
_TABLE = re.compile(r"^\*(\S+)\n(?:(?!\*).*\n)*?COMMIT\n", re.MULTILINE)
BASES = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")  # chains in which iptables prints each rule right
SHARED = "is_shared"  # a key of a table, for compose()
_SHARED = re.compile(r"^# Table `(\S+)' contains incompatible base-chains", re.MULTILINE)  # iptables 1.8.8 and newer
_INCOMPATIBLE = re.compile(r"^# Table `(\S+)' is incompatible", re.MULTILINE)
_SERVER = re.compile(r"(TCP|UDP|SCTP|FWM) +(\S+) (.*)")
_DESTINATION = re.compile(r" +-> (\S+) +(\S+) +(\d+) ")


def tables(text: str) -> dict[str, str]:
    """Return the text of each table, from its name to COMMIT. Comments around the tables contain dates, and are left out."""
    return {match[1]: match[0] for match in _TABLE.finditer(text)}


def incompatible(text: str) -> list[str]:
    """Return the tables that iptables-nft-save does not print, because they have rules of nft that it does not know."""
    return _INCOMPATIBLE.findall(text)


def shared(text: str) -> list[str]:
    """Return the tables in which another program has base chains of its own, which iptables-nft-save leaves out.

    In chains that these jump to it leaves out the matches that it does not know, so that a rule for one address matches all.
    """
    return _SHARED.findall(text)


def separated(
    iptables: t.Iterable[Entry], ebtables: t.Iterable[Entry], ruleset: t.Sequence[Entry]
) -> tuple[list[Entry], list[Entry]]:
    """Return the tables of iptables, and of nft's objects those that neither iptables nor ebtables prints."""
    tables = list(iptables)
    divided = {number: _divided(table, ruleset) for number, table in enumerate(tables) if SHARED in table}
    places = {(table["family"], table["table"]) for table in tables if SHARED in table}
    objects = without(ruleset, printed(tables, ebtables) | places)
    for number, (table, of_nft) in divided.items():
        tables[number] = table
        objects += of_nft
    return tables, objects


def _divided(table: Entry, ruleset: t.Iterable[Entry]) -> tuple[Entry, list[Entry]]:
    """Divide a shared table: return it as iptables prints it, and the objects that nft has to list.

    A chain with a rule that has an extension of iptables is one of iptables, as nft shows the name of an extension alone.
    """
    bodies = [
        (kind, body) for entry in ruleset for kind, body in entry.items() if _place(body) == (table["family"], table["table"])
    ]
    chains = {_chain(kind, body) for kind, body in bodies if kind == "chain"}
    of_iptables = {_chain(kind, body) for kind, body in bodies if kind == "rule" and nft_json.is_of_iptables(body)}
    of_nft = chains - of_iptables - {*BASES}
    lines = str(table["save"]).splitlines(keepends=True)
    rules = [line for line in lines if not (line.startswith("-A ") and line.split(" ", 2)[1] in of_nft)]
    objects: list[Entry] = [{kind: body} for kind, body in bodies if _chain(kind, body) in ("", *of_nft)]
    return {**{key: value for key, value in table.items() if key != SHARED}, "save": "".join(rules)}, objects


def lacks_devices(chain: Entry) -> bool:
    """Return whether a chain gets packets of some links that nft did not name in its JSON."""
    return chain.get("hook") in nft_objects.OF_LINKS and not chain.get("dev")


def _place(body: Entry) -> tuple[t.Any, t.Any]:
    return body.get("family"), body.get("table") or body.get("name")


def _chain(kind: str, body: Entry) -> str:
    """Return the chain that an object is, or is in; empty for another object, such as a set."""
    return str(body["name" if kind == "chain" else "chain"]) if kind in ("chain", "rule") else ""


def printed(iptables: t.Iterable[Entry], ebtables: t.Iterable[Entry]) -> set[tuple[str, str]]:
    """Return family and name of the tables in nf_tables of which iptables and ebtables print all rules."""
    of_iptables = {(table["family"], table["table"]) for table in iptables if table["backend"] == "nft" and SHARED not in table}
    return of_iptables | {("bridge", table["table"]) for table in ebtables if table["backend"] == "nft"}


def without(ruleset: t.Iterable[Entry], tables: t.Collection[tuple[str, str]]) -> list[Entry]:
    """Return the objects of nft's JSON that are not in ``tables``. An object is a dictionary with its kind as the only key."""
    return [entry for entry in ruleset for body in entry.values() if _place(body) not in tables]


def sets(text: str, names: t.Iterable[str]) -> list[dict[str, str]]:
    """Return the sets in what ``ipset save`` prints, each with its lines. names: of all sets, as a name may contain blanks."""
    entries: list[dict[str, str]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("create "):
            name = max((name for name in names if line.startswith(f"create {name} ")), key=len, default="")
            entries.append({"name": name, "save": line})
        elif entries:
            entries[-1]["save"] += line
    return entries


def virtual_servers(text: str) -> list[dict[str, t.Any]]:
    """Return the virtual servers in /proc/net/ip_vs (net/netfilter/ipvs/ip_vs_ctl.c, ip_vs_info_seq_show)."""
    servers: list[dict[str, t.Any]] = []
    for line in text.splitlines():
        server, destination = _SERVER.match(line), _DESTINATION.match(line)
        if server:
            protocol, place, words = server.groups()
            scheduler, *flags = words.split()
            where = {"fwmark": f"0x{int(place, 16):x}"} if protocol == "FWM" else _endpoint(place)
            servers.append(
                {"protocol": protocol.lower(), **where, "scheduler": scheduler, "flags": " ".join(flags), "destinations": []}
            )
        elif destination and servers:
            place, method, weight = destination.groups()
            servers[-1]["destinations"].append({**_endpoint(place), "method": method, "weight": int(weight)})
    return servers


def _endpoint(place: str) -> dict[str, t.Any]:
    """Return an address and a port, both in hexadecimal digits; an IPv6 address is in brackets and has colons."""
    address, _colon, port = place.rpartition(":")
    return {"address": fields.show(bytes.fromhex(re.sub(r"[\[\]:]", "", address))), "port": int(port, 16)}
