# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the tables and sets of nft, iptables, ipset and ebtables, and IPVS. Loads no kernel module, and registers no table."""

from __future__ import annotations

import functools
import os
import re
import typing as t

from .._core import json_object
from .._core.errors import Failure
from .._ebtables import ebtables, ebtables_backend
from .._files import files
from .._netfilter.chains_backend import LEGACY, legacy_tables
from .._netfilter.iptables import PROGRAMS
from .._netlink import nfnetlink
from .._platform import kernel, process
from .._ruleset import generated, inventory, nft_json, nft_text, ruleset
from .._ruleset.generated import Generated, Readers
from .._ruleset.nft_blocks import Place
from .._ruleset.ruleset import Selection
from . import kernel_rules_backend, saved
from .snapshot import Notes

RULESETS = ("iptables", "ebtables", "nftables")  # subsets
NFTABLES_TEXT = "nftables_text"  # a key beside nftables, of a snapshot that stays within a run
ARP_TABLES = "/proc/net/arp_tables_names"
RECENT = "/proc/net/xt_recent"  # only while the module is loaded; a file for each name (net/netfilter/xt_recent.c)
_RECORD = re.compile(r"^src=(\S+) ", re.MULTILINE)
IPVS = "/proc/net/ip_vs"  # only while IPVS is loaded
NOT_INSTALLED = "{} is not installed. Install it and run again."
MANY = 500  # objects of a table, such as that of kube-proxy, from which on its text is read in place of its JSON


def large_tables() -> set[tuple[str, str]]:
    """Return family and name of the tables of nft alone that have many chains or sets.

    To list one, nft needs more than twice as much memory for JSON as for text, and for 15,000 endpoints 500 MiB.
    """
    tables = nfnetlink.tables() if kernel.is_ready("nf_tables") else {}
    return {place for place, count in tables.items() if count >= MANY and not _may_be_saved(*place)}


def _may_be_saved(family: str, name: str) -> bool:
    """Return whether a program of iptables or ebtables may print a table."""
    return family in (*PROGRAMS, "bridge") and name in (*saved.TABLES, "broute")


def nftables_text(run: process.Runner, note: Notes, places: t.Iterable[Place]) -> tuple[str, Generated]:
    """Return tables as nft lists them for users, and what the text lacks of them.

    places: one that was removed meanwhile is left out.
    """
    nft = functools.partial(_printed, run, "nft")
    texts, readings = list[str](), dict[Place, kernel_rules_backend.Reading]()
    for place in sorted(places):
        try:
            reading = kernel_rules_backend.table(nft, place)
            texts.append(reading.text if reading else nft("list", "table", *place))
        except Failure as failure:
            if nfnetlink.has_table(*place):
                note(" ".join(place), str(failure))
        else:
            readings.update({place: reading} if reading else {})

    readers = Readers(
        lambda place, name: kernel_rules_backend.chain(nft, readings[place], place, name),
        lambda place, name: kernel_rules_backend.members(nft, readings[place], place, name),
    )
    left = {place: Selection(reading.chains, reading.sets.keys()) for place, reading in readings.items()}
    return "".join(texts), Generated(left, readers, str([reading.generation for reading in readings.values()]))


def nftables(run: process.Runner, _note: Notes, excluded: t.Collection[tuple[str, str]] = frozenset()) -> list[dict[str, t.Any]]:
    """Return the ruleset in nft's JSON, without the first object, which contains the version of nft. Raises Failure.

    excluded: family and name of tables that are left out. nft needs seconds for the thousands of chains that iptables may have.
    """
    if not kernel.is_ready("nf_tables"):
        return []
    every = nfnetlink.tables()
    tables = [place for place in every if place not in excluded]
    if len(tables) == len(every):
        return _completed(_objects(run, "ruleset") if tables else [])
    objects = []
    for family, name in tables:
        try:
            objects += _objects(run, "table", family, name)
        except Failure:
            if nfnetlink.has_table(family, name):  # otherwise it was removed meanwhile
                raise
    return _completed(objects)


def _completed(objects: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Add what nft 1.0.6 leaves out of its JSON: that a table is dormant, and the links of each chain at ingress or egress."""
    asleep = nfnetlink.dormant() if objects else set()
    for table in (entry["table"] for entry in objects if "table" in entry):
        if (table["family"], table["name"]) in asleep:
            table["flags"] = [ruleset.DORMANT]
    lacking = [entry["chain"] for entry in objects if "chain" in entry and saved.lacks_devices(entry["chain"])]
    for family in {chain["family"] for chain in lacking}:
        devices = {(chain.table, chain.name): [*chain.devices] for chain in nfnetlink.chains(family)}
        for chain in lacking:
            if chain["family"] == family:
                chain["dev"] = devices.get((chain["table"], chain["name"]), [])
    return objects


def kernel_chains(excluded: t.Iterable[Place] = ()) -> list[inventory.Chain]:
    """Return the chains of all families. The kernel must have loaded nf_tables. excluded: tables. Raises Failure."""
    chains = nfnetlink.chains(excluded=excluded)
    return [inventory.Chain(each.family, each.table, each.name, each.has_hook, each.policy, each.use) for each in chains]


def kernel_sizes(names: t.Iterable[inventory.NameOfSet]) -> dict[inventory.NameOfSet, int]:
    """Return the number of elements of sets, without those that time or packets change. Raises Failure."""
    counted = ((place, nfnetlink.size(*place)) for place in names)
    return {place: size for place, size in counted if size is not None}


def differences(values: t.Mapping[str, t.Any]) -> list[tuple[str, str]]:
    """Return the tables of which a snapshot has something else than the kernel, with sentences; none if nft listed nothing."""
    if not kernel.is_ready("nf_tables") or values.get("nftables") is None:
        return []
    iptables, ebtables, objects = (values.get(subset) or [] for subset in RULESETS)
    text, lacking = values.get(NFTABLES_TEXT) or "", generated.of(values)
    proved = lacking.blocks if lacking else ()  # tables that were read between two changes
    sizes = kernel_sizes((*nft_json.sizes(objects), *nft_text.sizes(text, proved)))
    return [*inventory.differences(kernel_chains(proved), sizes, iptables, ebtables, objects, text, proved)]


def _objects(run: process.Runner, *words: str) -> list[dict[str, t.Any]]:
    text = _printed(run, "nft", "-j", "list", *words)
    try:
        return [entry for entry in json_object.load(text)["nftables"] if "metainfo" not in entry]
    except (KeyError, TypeError, ValueError) as error:
        raise Failure(f"nft printed no JSON of a ruleset ({error}). Read it with: nft list {' '.join(words)}") from error


def iptables(run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the tables of both backends and families as iptables-save prints them."""
    entries = []
    for family, program in PROGRAMS.items():
        for backend, names in (("nft", _nft_tables(family)), ("legacy", set(legacy_tables(LEGACY[family][0])))):
            texts = _saved(run, note, f"{program}-{backend}-save", f"{family} {{}} ({backend})", names) if names else {}
            entries += [{"family": family, "backend": backend, "table": name, **entry} for name, entry in texts.items()]
    for name in legacy_tables(ARP_TABLES):
        note(f"arp {name} (legacy)", "Legacy tables of arptables are not read. List them with: arptables-legacy -L")
    return entries


def _nft_tables(family: str) -> set[str]:
    tables = nfnetlink.tables() if kernel.is_ready("nf_tables") else {}
    return {name for of_family, name in tables if of_family == family} & set(saved.TABLES)


def _without_chains(family: str, names: t.Collection[str]) -> set[str]:
    """Return those of the tables in nf_tables that have no chain, which no program prints."""
    return {*names} - {chain.table for chain in nfnetlink.chains(family)} if names else set()


def _saved(run: process.Runner, note: Notes, tool: str, place: str, names: t.Collection[str]) -> dict[str, dict[str, t.Any]]:
    """Return the text of each table, and whether another program has chains in it.

    place: with the name of a table, what a note calls it.
    """
    try:
        text = _printed(run, tool)
    except Failure as failure:
        for name in sorted({*names} - (_without_chains(place.partition(" ")[0], names) if "-nft-" in tool else set())):
            note(place.format(name), str(failure))
        return {}
    texts = saved.tables(text)
    missing = {*names} - texts.keys()
    if "-nft-" in tool:
        missing -= _without_chains(place.partition(" ")[0], missing)
    for name in sorted(missing):
        is_nfts = name in saved.incompatible(text)
        note(
            place.format(name),
            f"{tool} cannot print it, because it has rules of nft." if is_nfts else f"{tool} did not print it.",
        )
    shared = saved.shared(text)
    return {name: {"save": text, **({saved.SHARED: True} if name in shared else {})} for name, text in texts.items()}


def ipsets(run: process.Runner, note: Notes) -> list[dict[str, str]]:
    """Return all sets as ``ipset save`` prints them. Raises Failure."""
    names = nfnetlink.ipsets() if kernel.is_ready("ip_set") else []
    try:
        return saved.sets(_printed(run, "ipset", "save"), names) if names else []
    except Failure as failure:
        for name in names:
            note(name, str(failure))
        return []


def ebtables_rules(run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the chains of both backends with their policies and rules. Raises Failure."""
    backend = ebtables_backend.Ebtables(run, lambda sentence: note("", sentence))
    chains = backend.read(ebtables.BACKENDS)
    for module in (f"ebtable_{table}" for table in ebtables.TABLES):
        if kernel.is_loaded(module) and not kernel.is_used(module):
            note(module, "The legacy table has no rules. Its policies were not read, because reading could register the table.")
    policies = backend.policies()
    return [
        {**place._asdict(), "policy": policies[place], "rules": [rule.text for rule in rules]} for place, rules in chains.items()
    ]


def ipvs(_run: process.Runner, _note: Notes) -> list[dict[str, t.Any]]:
    """Return the virtual servers; none if IPVS is not loaded."""
    try:
        return saved.virtual_servers(files.text(IPVS))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Failure(f"{IPVS}: {error.strerror}") from error


def recent(_run: process.Runner, note: Notes) -> list[dict[str, t.Any]]:
    """Return the records of the match recent, without empty ones; none if no rule has the match."""
    try:
        names = sorted(os.listdir(RECENT))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Failure(f"{RECENT}: {error.strerror}") from error
    records = []
    for name in names:
        try:
            addresses = _RECORD.findall(files.text(f"{RECENT}/{name}"))
        except FileNotFoundError:  # its last rule was removed meanwhile
            continue
        except OSError as error:
            note(name, f"The records could not be read: {error.strerror}.")
            continue
        if addresses:
            records.append({"name": name, "addresses": addresses})
    return records


def _printed(run: process.Runner, program: str, *arguments: str) -> str:
    """Return the output of a program. Raises Failure if it is not installed or fails."""
    path = process.find(program)
    if path is None:
        raise Failure(NOT_INSTALLED.format(program))
    completed = run([path, *arguments], None)
    if completed.rc:
        raise Failure(f"{' '.join((program, *arguments))} failed: {completed.stderr.strip() or completed.rc}")
    return completed.stdout
