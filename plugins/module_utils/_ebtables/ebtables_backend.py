# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ebtables rules in the running kernel: in nf_tables, in the legacy tables, or in both.

The rules are listed by a tool, because only the tool knows the encodings of its version. In nf_tables a rule is deleted by its
handle, which the kernel never gives to another rule: whatever other programs insert or delete meanwhile, no other rule is
deleted. The legacy kernel interface only replaces whole tables, so one call of the tool fetches a table, edits it and
replaces it, under the tool's own lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import typing as t

from .._core.errors import Failure, Uncertain
from .._core.plan import UndoBackend
from .._netfilter import chain
from .._netfilter.chain import Chains, ListedRule, Merge, Place, RemovedRules
from .._netlink import nfnetlink
from .._platform import kernel, process
from . import ebtables
from .ebtables import LEGACY, NFT, TABLES, Owned

TRIES = 20  # attempts on a table that another program keeps changing
PATIENCE, PAUSE = 60.0, 0.05  # seconds; ebtables-legacy holds its lock for some milliseconds
BRIDGE = "bridge"  # ebtables' family of nf_tables
ORDERLY = 5  # attempts that must find each restored rule beside its former neighbours
DISORDERED = (
    "Another program kept changing the ebtables rules (nft) while rules were restored. Each is there once, but beside the other"
    " program's rules the order may differ. Compare it with: ebtables-nft-save"
)
RESTLESS = f"the rules changed during each of {TRIES} attempts. Run again when other programs change them less often"
LOCK = "/var/lib/ebtables/lock"  # of ebtables-legacy --concurrent (ebtables.h, LOCKFILE)


class RemoveRules(t.NamedTuple):
    """Remove rules from a backend's chains, all or none."""

    backend: str
    removed: tuple[RemovedRules, ...]


class RestoreRules(t.NamedTuple):
    """Restore removed rules beside their former neighbours, all or none. Rules that exist already are left."""

    backend: str
    removed: tuple[RemovedRules, ...]


Operation = t.Union[RemoveRules, RestoreRules]


class Ebtables(UndoBackend):
    """Reads and edits the rules of both backends. run: starts programs. warn: takes sentences for the operator."""

    OPERATIONS = t.get_args(Operation)
    VALUES = (RemovedRules, Place, ListedRule)

    @classmethod
    def standalone(cls, run: process.Runner, warn: t.Callable[[str], None]) -> Ebtables:
        return cls(run, warn)

    def __init__(self, run: process.Runner, warn: t.Callable[[str], None]) -> None:
        self._backends: dict[str, _Nft | _Legacy] = {NFT: _Nft(run, warn), LEGACY: _Legacy(run, warn)}

    def read(self, backends: t.Iterable[str]) -> dict[Place, tuple[ListedRule, ...]]:
        """Return the rules by chain. An unused backend has none, and reading it loads no kernel module."""
        chains: dict[Place, tuple[ListedRule, ...]] = {}
        for backend in backends:
            chains.update(self._backends[backend].read())
        return chains

    def policies(self) -> dict[Place, str]:
        """Return the policies of the chains that were read last. Parsed only here, because a listing may have 10,000 rules."""
        by_place: dict[Place, str] = {}
        for name, backend in self._backends.items():
            for text in backend.listings.values():
                by_place.update(ebtables.policies(name, text))
        return by_place

    def perform(self, operation: Operation) -> None:
        """Do one operation. Raises Failure with what the tool or the kernel answered."""
        self._backends[operation.backend].perform(operation)

    def verify(self, operation: Operation) -> list[str]:
        """Read the node again and compare it with the operation's result; see UndoBackend."""
        now = self._backends[operation.backend].read()
        current = {(place, rule.text) for place, rules in now.items() for rule in rules}
        is_removal = isinstance(operation, RemoveRules)
        rules = sorted({*chain.texts_by_place(operation.removed)})
        verb = "is still there" if is_removal else "is not there"
        return [f"{rule[0]}: {rule[1]} {verb}" for rule in rules if (rule in current) is is_removal]


class _Look(t.NamedTuple):
    """A listing. chains: the rules that it shows. owned: those that the kernel had before and after it was made.

    generation: of the kernel's rules, as of nfnetlink.generation(); None if they changed meanwhile.
    """

    chains: dict[Place, tuple[ListedRule, ...]]
    owned: dict[Place, list[Owned]]
    generation: int | None


class _Nft:
    def __init__(self, run: process.Runner, warn: t.Callable[[str], None]) -> None:
        self._run = run
        self._warn = warn
        self.listings: dict[str, str] = {}  # the last one by table; one of all tables has the empty name
        self._last: _Look | None = None  # a listing takes longer than all else

    def read(self) -> dict[Place, tuple[ListedRule, ...]]:
        """Return the rules by chain. Counters are those of the last listing if no rule has changed since."""
        self._last = self._look()
        return self._last.chains

    def _look(self) -> _Look:
        """List the rules, each once; starts no process if there are none, or if they are as the last listing shows them.

        Raises Failure if the listing lacks a table that has rules, or is torn at each attempt: if another program inserts a
        rule while ebtables-nft-save reads, the kernel may list a rule twice, which iptables 1.8.9 prints twice.
        """
        for _try in range(TRIES):
            generation = _generation()
            if self._last and generation is not None and generation == self._last.generation:
                return self._last
            before = _owned()
            tool = self._tool() if before else None
            if tool is None:
                return _Look({}, before, None)
            chains = self._list(tool)
            if _generation() != generation:
                generation = None
            current = before if generation is not None else _lasting(before)
            unlisted = {place.table for place in current} - {place.table for place in chains}
            if unlisted:
                raise Failure(
                    f"{tool} should list {', '.join(sorted(unlisted))} of the bridge family, where the kernel has rules, and did"
                    f" not. Nothing was changed. Run {tool} by hand, and reinstall package iptables if it prints no rules"
                )
            # The policy of a chain without a hook, whatever its name, is a rule at its end, which is not listed (iptables 1.8).
            built_in = {Place(NFT, base.table, base.name) for base in nfnetlink.chains(BRIDGE) if base.has_hook} & chains.keys()
            is_kept = sum(map(len, current.values())) == sum(
                map(len, before.values())
            )  # then a listing of the same length is whole
            if all(
                is_kept and len(rules) == len(chains.get(place, ())) or ebtables.has_each_once(chains.get(place, ()), rules)
                for place, rules in current.items()
                if place in built_in
            ):
                return _Look(chains, current, generation)
        raise Failure(RESTLESS)

    def _tool(self) -> str | None:
        tool = process.find("ebtables-nft-save")
        if tool is None:
            self._warn(
                "Tables of the bridge family have rules, but ebtables-nft-save (package iptables) is not installed, so"
                " these rules were not read. Install the package and run again."
            )
        return tool

    def _list(self, tool: str) -> dict[Place, tuple[ListedRule, ...]]:
        completed = self._run([tool, "-c"], None)
        if completed.rc != 0:
            raise Failure(f"ebtables-nft-save could not list the rules: {completed.stderr.strip() or completed.rc}")
        self.listings[""] = completed.stdout
        chains = ebtables.from_save(NFT, completed.stdout)
        return {place: rules for place, rules in chains.items() if place.table in TABLES}

    def perform(self, operation: Operation) -> None:
        if isinstance(operation, RemoveRules):
            self._remove({*chain.texts_by_place(operation.removed)})
        else:
            self._restore(operation.removed)

    def _remove(self, rules: t.Collection[tuple[Place, str]]) -> None:
        for _try in range(TRIES):
            look, self._last = self._last or self._look(), None
            doomed = self._to_delete(rules, look)
            if doomed is None:
                continue
            code = nfnetlink.delete_rules(BRIDGE, doomed) if doomed else 0
            if code == 0:
                return
            if code not in (errno.ENOENT, errno.ERESTART):  # another program deleted one of them meanwhile
                raise Failure(f"the kernel refused to delete {len(doomed)} rules: {os.strerror(code)}")
        raise Failure(RESTLESS)

    def _to_delete(self, rules: t.Collection[tuple[Place, str]], look: _Look) -> list[nfnetlink.Doomed] | None:
        """Return the handles of the rules to remove; None if one of them is not certain."""
        current = look.owned if look.generation is not None and look.generation == _generation() else _lasting(look.owned)
        doomed = []
        for place in sorted({place for place, _text in rules}):
            listed = look.chains.get(place, ())
            for rule, handle in zip(listed, ebtables.pair(listed, current.get(place, []))):
                if (place, rule.text) in rules:
                    if handle is None:
                        return None
                    doomed.append(nfnetlink.Doomed(place.table, place.chain, handle))
        return doomed

    def _restore(self, removed: t.Sequence[RemovedRules]) -> None:
        """Try again if another program has changed the chains between the listing and the tool's transaction.

        The tool counts positions in the chain as it finds it, so a rule may have come to another place, or be there twice if
        the other program has added it as well. A program that writes all the while would defeat each attempt: after ORDERLY of
        them, that each rule is there once is enough.
        """
        for number in range(TRIES):
            now = self.read()
            merges = _merged(now, removed)
            script = _script(_lines(merges))
            if not script:
                return
            completed = _restore(self._run, "ebtables-nft-restore (package iptables)", script)
            then = self.read()
            if completed.rc == 0 and all(
                chain.is_merged(then.get(removal.place, ()), removal, merges[removal.place]) for removal in removed
            ):
                return
            if _texts(then) == _texts(now):
                raise Failure(f"ebtables-nft-restore refused the rules: {completed.stderr.strip() or completed.rc}")
            is_once = all(chain.has_each_once(then.get(place, ()), merged) for place, merged in merges.items())
            if completed.rc == 0 and number >= ORDERLY and is_once:
                self._warn(DISORDERED)
                return
            self._remove({(place, text) for place, merged in merges.items() for text in merged.texts})
        raise Failure(RESTLESS)


def _generation() -> int | None:
    """Return a number that each change of the kernel's rules changes; None without nf_tables."""
    return nfnetlink.generation() if kernel.is_ready("nf_tables") else None


def _owned() -> dict[Place, list[Owned]]:
    """Return the kernel's rules by chain."""
    owned: dict[Place, list[Owned]] = {}
    for table in TABLES if kernel.is_ready("nf_tables") else ():
        for rule in nfnetlink.rules(BRIDGE, table):
            owned.setdefault(Place(NFT, table, rule.chain), []).append(Owned(rule.handle, rule.encoding))
    return owned


def _lasting(before: t.Mapping[Place, t.Sequence[Owned]]) -> dict[Place, list[Owned]]:
    """Return the rules that existed ``before`` and still exist."""
    handles = {place: {rule.handle for rule in rules} for place, rules in before.items()}
    return {
        place: lasting
        for place, rules in _owned().items()
        if (lasting := [rule for rule in rules if rule.handle in handles.get(place, ())])
    }


class _Legacy:
    def __init__(self, run: process.Runner, warn: t.Callable[[str], None]) -> None:
        self._run = run
        self._warn = warn
        self.listings: dict[str, str] = {}  # the last one by table; one of all tables has the empty name

    def read(self) -> dict[Place, tuple[ListedRule, ...]]:
        """Read only tables with rules: listing another would load its module, or hook it into the path of bridged frames."""
        # net/bridge/netfilter/ebtables.c, do_replace_finish(): with its first rule a table takes a reference on its module.
        used = [table for table in TABLES if kernel.is_used(f"ebtable_{table}")]
        if used and process.find("ebtables-legacy") is None:
            self._warn(
                f"ebtable_{used[0]} is in use, but ebtables-legacy (package ebtables) is not installed, so the rules of"
                " this backend were not read. Install the package and run again."
            )
            return {}
        chains: dict[Place, tuple[ListedRule, ...]] = {}
        for table in used:
            chains.update(self._list(table))
        return chains

    def _list(self, table: str) -> dict[Place, tuple[ListedRule, ...]]:
        # Not by ebtables-legacy-save, which runs the ebtables of nf_tables if the alternatives say so.
        tool = process.find("ebtables-legacy")
        if tool is None:
            raise Failure("ebtables-legacy (package ebtables) is not installed")
        for _try in range(TRIES):
            completed = self._run([tool, "-t", table, "-L", "--Lmac2", "--Lc"], None)
            if completed.rc == 0:
                break
            time.sleep(PAUSE)  # it asks for sizes, then for rules (communication.c), and fails if a program wrote in between
        else:
            raise Failure(
                f"ebtables-legacy could not list table {table} {TRIES} times: {completed.stderr.strip() or completed.rc}"
            )
        chains = ebtables.from_save(LEGACY, completed.stdout)
        if not chains:
            raise Failure(f"ebtables-legacy should list table {table}, but answered {completed.stdout[:80]!r}")
        self.listings[table] = completed.stdout
        return chains

    def perform(self, operation: Operation) -> None:
        with _lock():
            for number, table in enumerate(sorted({removal.place.table for removal in operation.removed})):
                try:
                    self._replace(table, operation)
                except Failure as failure:
                    if number == 0:
                        raise
                    raise Uncertain(str(failure)) from failure  # earlier tables are edited already

    def _replace(self, table: str, operation: Operation) -> None:
        """Edit a table; try again if a program that does not take the lock has changed it meanwhile.

        The tool takes some milliseconds to fetch, edit and replace the table. The kernel refuses the new table if the number
        of rules has changed since. A change by another program that leaves the number as it is gets lost.
        """
        said = ""
        for _try in range(TRIES):
            lines = _edits(operation, table, self._list(table))
            if not lines:
                return
            completed = _restore(self._run, "ebtables-legacy-restore (package ebtables)", _script({table: lines}))
            if completed.rc == 0 and not _edits(operation, table, self._list(table)):
                return
            said = completed.stderr.strip() or (str(completed.rc) if completed.rc else "it reported success, but changed nothing")
        raise Failure(f"ebtables-legacy-restore refused the changes to table {table} {TRIES} times: {said}")


def _edits(operation: Operation, table: str, chains: Chains) -> list[str]:
    """Return the lines of a script that does what is left to do of an operation in a table."""
    here = [removal for removal in operation.removed if removal.place.table == table]
    if isinstance(operation, RestoreRules):
        return _lines(_merged(chains, here)).get(table, [])
    doomed = {*chain.texts_by_place(here)}
    return [f"-D {place.chain} {rule.text}" for place in chains for rule in chains[place] if (place, rule.text) in doomed]


@contextlib.contextmanager
def _lock() -> t.Iterator[None]:
    """Hold the lock of ``ebtables-legacy --concurrent``. Without the lock's folder no program can take it."""
    if not os.path.isdir(os.path.dirname(LOCK)):
        yield
        return
    descriptor = os.open(LOCK, os.O_CREAT | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        _take(descriptor, time.monotonic() + PATIENCE)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Failure(
                    f"{LOCK}, the lock of ebtables-legacy, was held by another program for {PATIENCE:g} s. Wait until that"
                    " program ends, or stop it, then run again"
                ) from None
            time.sleep(PAUSE)


def _texts(chains: Chains) -> dict[Place, list[str]]:
    """Return the texts of rules without counters, which packets change."""
    return {place: [rule.text for rule in rules] for place, rules in chains.items()}


def _merged(now: Chains, removed: t.Iterable[RemovedRules]) -> dict[Place, Merge]:
    return {removal.place: chain.merge(now.get(removal.place, ()), removal) for removal in removed}


def _lines(merges: t.Mapping[Place, Merge]) -> dict[str, list[str]]:
    """Return the lines that insert the added rules, by table. Each position counts the rules that earlier lines insert."""
    lines: dict[str, list[str]] = {}
    for place, merged in merges.items():
        for position in merged.added:
            lines.setdefault(place.table, []).append(ebtables.inserted(place.chain, position + 1, merged.rules[position]))
    return lines


def _script(lines: t.Mapping[str, t.Sequence[str]]) -> str:
    return "".join(f"*{table}\n" + "".join(f"{line}\n" for line in listed) for table, listed in lines.items())


def _restore(run: process.Runner, program: str, script: str) -> process.Completed:
    """Restore a table from a script. program: its name, followed by its package for the operator."""
    tool = process.find(program.split()[0])
    if tool is None:
        raise Failure(f"{program} is not installed")
    return run([tool, "--noflush"], script)
