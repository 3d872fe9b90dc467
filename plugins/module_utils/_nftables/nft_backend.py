# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""The kernel's nftables, through the ``nft`` tool. One table at a time is read and replaced; nobody else's is looked at.

The tool is used rather than libnftables' Python binding, because no node image carries the binding, and rather than raw
netlink, because nft's JSON has stayed the same from 0.9.8 to 1.1 while kernels moved.
"""

from __future__ import annotations

import json
import re
import typing as t

from .._core.errors import Failure, Uncertain
from .._platform import kernel, process
from . import nft_table


class Replace(t.NamedTuple):
    """Make the kernel's table be ``text``, in one transaction; an empty text takes the table away."""

    family: str
    name: str
    text: str


class Check(t.NamedTuple):
    """Have nft accept a script, without loading it."""

    script: str


# nft's own words; a loader that misses a library says the same of a file.
NO_TABLE = re.compile(r"^Error: No such file or directory", re.MULTILINE)

# unshare without the right to a namespace; nft whose netlink the kernel does not speak.
NO_CHECK = re.compile(r"^unshare:|[Nn]etlink|Operation not supported|Protocol not supported", re.MULTILINE)


class Nft:
    """The edge. ``run`` starts programs; ``warn`` takes sentences for the operator."""

    OPERATIONS = (Replace, Check)

    def __init__(self, run: process.Runner, warn: t.Callable[[str], None]) -> None:
        self._run = run
        self._warn = warn

    def read(self, family: str, name: str) -> nft_table.Table | None:
        """The table, or None where there is none.

        None as well where the kernel has nf_tables as a module that nobody has loaded: there is no table, and asking would
        load it. Where nft is not installed, a table that is there can not be read, and equals none.
        """
        if not kernel.is_ready("nf_tables"):
            return None
        if process.find("nft") is None:
            return self.unread(family, name)
        listing = self._list(["-j"], family, name)
        if not listing:
            return None
        try:
            return _table(family, name, listing)
        except ValueError as error:
            # nft before 1.1 prints the flags of a flagged table from stray memory, which at times ends the JSON there.
            if re.match(rf"table {family} {re.escape(name)} {{.*\n\tflags ", self.text(family, name)):
                return nft_table.Table(family, name, frozenset(), frozenset({nft_table.FLAGGED}))
            raise Failure(
                f"what {process.find('nft')} lists of table {family} {name} can not be read: {error}; found {_excerpt(listing)}."
                " Install nftables again, or see what stands in its place"
            ) from error

    def unread(self, family: str, name: str) -> nft_table.Table | None:
        """The table without what is in it, for which no nft is needed; None where there is none. Raises Failure."""
        if not kernel.is_ready("nf_tables"):
            return None
        from .._netlink import nfnetlink  # most runs have an nft that reads the table, and do not wait for this

        unread = nft_table.Table(family, name, frozenset(), frozenset({nft_table.UNREAD}))
        return unread if nfnetlink.has_table(family, name) else None

    def text(self, family: str, name: str) -> str:
        """nft's own text of the table; empty where there is none, or no nft."""
        return self._list([], family, name) if process.find("nft") else ""

    def _list(self, flags: t.Sequence[str], family: str, name: str) -> str:
        done = self._nft([*flags, "list", "table", family, name])
        if done.rc == 0 and done.stdout.strip():
            return done.stdout
        if done.rc != 0 and NO_TABLE.search(done.stderr):
            return ""
        raise Failure(f"nft could not list table {family} {name}: {_complaint(done)}")

    def replace(self, operation: Replace) -> None:
        """One ``nft -f``: the kernel takes all of it or nothing. To take a table away, no nft is started: it may be broken."""
        if not operation.text:
            if self.unread(operation.family, operation.name):
                from .._netlink import nfnetlink

                nfnetlink.delete_table(operation.family, operation.name)
            return
        done = self._nft(["-f", "-"], nft_table.replacement(operation.family, operation.name, operation.text))
        if done.rc != 0:
            kind = Uncertain if _was_killed(done) else Failure
            raise kind(f"nft refused table {operation.family} {operation.name}: {_complaint(done)}")

    def warn_without_nft(self, family: str, name: str) -> None:
        """Warns where a table that is to be loaded can not be, as a run would fail by then."""
        if process.find("nft") is None:
            self._warn(
                f"nft is not installed, so table {family} {name} can not be loaded: a run fails before it changes anything."
                " Install it first, as kubenode.datapath.nftables_package does."
            )

    def warn_unread(self, family: str, name: str, why: Failure) -> None:
        """Warns of a table that is to go, and that nft could not tell."""
        self._warn(
            f"Table {family} {name} is removed without having been read, so it can not be put back if this run is undone: {why}"
        )

    def perform(self, operation: Replace | Check) -> None:
        """Does one operation. Raises Failure."""
        if isinstance(operation, Check):
            self.check(operation.script)
        else:
            self.replace(operation)

    def checking(self, text: str) -> Check:
        """What has a text checked before it is written; see managed_files.Checker."""
        return Check(text)

    def verify(self, operation: Replace) -> list[str]:
        """What is not as the operation should have left it; see rollback_program.Backend."""
        table = f"table {operation.family} {operation.name}"
        if not operation.text:
            return [f"{table} is still there"] if self.unread(operation.family, operation.name) else []
        if self.read(operation.family, operation.name) is None:
            return [f"{table} is not there"]
        found = self.text(operation.family, operation.name)
        return [] if without_readings(found) == without_readings(operation.text) else [f"{table} is not as it was"]

    def check(self, script: str) -> None:
        """Has nft accept a script in a network namespace of its own, where it can neither see nor touch the node's tables.

        Warns where that can not be had: without nft, as in an image that gets it later; without unshare, without the right to it,
        or with a kernel that is not the node's.
        """
        unshare = process.find("unshare")
        if process.find("nft") is None:
            lack = "nft is not installed"
        elif unshare is None:
            lack = "unshare (util-linux) is not installed"
        elif not kernel.is_ready("nf_tables"):
            lack = "nf_tables is not loaded, as far as /proc tells"
        else:
            lack = self._check(script, unshare)
        if lack:
            self._warn(f"The ruleset was written without a check by nft: {lack}.")

    def _check(self, script: str, unshare: str) -> str:
        """Why nft could not judge it; empty where it took it. Raises Failure where it did not."""
        done = self._nft(["-c", "-f", "-"], script, through=[unshare, "--net"])
        if done.rc == 0:
            return ""
        if NO_CHECK.search(done.stderr):
            return _complaint(done)
        raise Failure(f"nft refused the ruleset: {_complaint(done)}")

    def _nft(
        self, arguments: t.Sequence[str], stdin: str | None = None, through: t.Sequence[str] = ()
    ) -> process.Completed:
        nft = process.find("nft")
        if nft is None:
            raise Failure("nft is not installed; kubenode.datapath.nftables_package installs it")
        return self._run([*through, nft, *arguments], stdin)


def _table(family: str, name: str, listing: str) -> nft_table.Table:
    """The listing as a value. Raises ValueError where it is none of this table."""
    try:
        found = nft_table.from_listing(json.loads(listing, strict=False))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if (found.family, found.name) != (family, name):
        raise ValueError(f"it is of table {found.family} {found.name}")
    return found


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


def without_readings(text: str) -> str:
    """Counters' values change while one looks: they are no part of a difference."""
    return re.sub(r"counter packets \d+ bytes \d+", "counter", text)


def _was_killed(done: process.Completed) -> bool:
    return done.rc < 0 or done.rc > 128


def _complaint(done: process.Completed) -> str:
    """What nft said, on one line, without the marks under the place of the error."""
    if _was_killed(done):
        # netfilter.org commit be737a1986bf: named sets and maps made by nft 1.1.2 or newer carry data that kills older ones.
        return (
            f"nft was killed by signal {-done.rc if done.rc < 0 else done.rc - 128}. nft before 1.1.2 dies so where another"
            " program, as a container with a newer nft, has made a named set or map; upgrade nftables on the node"
        )
    lines = (line.strip() for line in done.stderr.splitlines())
    complaint = "; ".join(line for line in lines if line.strip("^~ ")) or f"exit status {done.rc}, without a word"
    if "Operation not permitted" in complaint:
        from .._netlink.nfnetlink import NOT_PERMITTED

        complaint += f". {NOT_PERMITTED}"
    return complaint
