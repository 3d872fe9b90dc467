# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's nftables, through the ``nft`` tool. It reads and replaces one table at a time, and never reads another one.

It runs nft rather than libnftables' Python binding, because no node image has the binding. It does not use raw netlink,
because nft's JSON has stayed the same from 0.9.8 to 1.1 while the kernel's messages changed.
"""

from __future__ import annotations

import re
import typing as t

from .._core import json_object
from .._core.errors import Failure, Uncertain
from .._core.plan import UndoBackend
from .._platform import kernel, process
from . import nft_table


class Replace(t.NamedTuple):
    """Replace the kernel's table by ``text`` in one transaction. An empty text removes the table."""

    family: str
    name: str
    text: str


class Check(t.NamedTuple):
    """Check a script with nft, without loading it."""

    script: str


# nft's own message, anchored: a dynamic loader that lacks a library prints "No such file or directory", too.
NO_TABLE = re.compile(r"^Error: No such file or directory", re.MULTILINE)
# unshare is not permitted to create a namespace, or the kernel does not support nft's netlink messages.
NO_CHECK = re.compile(r"^unshare:|[Nn]etlink|Operation not supported|Protocol not supported", re.MULTILINE)


class Nft(UndoBackend):
    """The backend. ``run`` starts programs; ``warn`` passes a sentence to the operator.

    is_coming: nft is installed before this backend performs its first operation.
    """

    OPERATIONS = (Replace, Check)

    @classmethod
    def standalone(cls, run: process.Runner, warn: t.Callable[[str], None]) -> Nft:
        return cls(run, warn)

    def __init__(self, run: process.Runner, warn: t.Callable[[str], None], is_coming: bool = False) -> None:
        self._start = run
        self.warn = warn
        self._is_coming = is_coming

    def read(self, family: str, name: str) -> nft_table.Table | None:
        """Return the current table, or None if it is absent. Raises Failure if nft cannot list it.

        None also if nf_tables is a kernel module that is not loaded: there is no table then, and a request would load the
        module. If nft is not installed, a table that exists is returned as UNREAD, which equals no desired table.
        """
        if not kernel.is_ready("nf_tables"):
            return None
        if process.find("nft") is None:
            return self.unread(family, name)
        listing = self._list(["-j"], family, name)
        if not listing:
            return None
        from .._netlink import nfnetlink  # a run that finds no table need not import it

        try:
            return _table(family, name, listing)._replace(comment=nfnetlink.table_comment(family, name))
        except ValueError as error:
            # nft before 1.1 prints the flags of a flagged table from uninitialised memory, which may truncate the JSON.
            if re.match(rf"table {family} {re.escape(name)} {{.*\n\tflags ", self.text(family, name)):
                return nft_table.Table(family, name, frozenset(), frozenset({nft_table.FLAGGED}))
            raise Failure(
                f"cannot parse what {process.find('nft')} lists for table {family} {name}: {error}; found {_excerpt(listing)}."
                " Check that this program is nft, or install nftables again"
            ) from error

    def unread(self, family: str, name: str) -> nft_table.Table | None:
        """Return the table as UNREAD, found without nft; None if it is absent. Raises Failure."""
        if not kernel.is_ready("nf_tables"):
            return None
        from .._netlink import nfnetlink  # most runs read the table with nft and need not import it

        unread = nft_table.Table(family, name, frozenset(), frozenset({nft_table.UNREAD}))
        return unread if nfnetlink.has_table(family, name) else None

    def text(self, family: str, name: str) -> str:
        """Return nft's own text of the table; empty if there is no such table or nft is not installed."""
        return self._list([], family, name) if process.find("nft") else ""

    def _list(self, flags: t.Sequence[str], family: str, name: str) -> str:
        completed = self.run([*flags, "list", "table", family, name])
        if completed.rc == 0 and completed.stdout.strip():
            return completed.stdout
        if completed.rc != 0 and NO_TABLE.search(completed.stderr):
            return ""
        raise Failure(f"nft could not list table {family} {name}: {_complaint(completed)}")

    def warn_without_nft(self, family: str, name: str) -> None:
        """Warn if nft is not installed: check mode passes, but a run would fail."""
        if process.find("nft") is None and not self._is_coming:
            self.warn(
                f"nft is not installed, so table {family} {name} cannot be loaded: a run fails before it changes anything."
                " Install nft first, for example with kubenode.datapath.nftables_package."
            )

    def warn_unread(self, family: str, name: str, why: Failure) -> None:
        """Warn that a table is removed that nft could not list."""
        self.warn(f"Table {family} {name} is removed although it could not be read, so undoing this run cannot restore it: {why}")

    def perform(self, operation: Replace | Check) -> None:
        """Load, remove or check. Raises Failure."""
        if isinstance(operation, Check):
            _check(self, operation.script)
        else:
            _replace(self, operation)

    def verify(self, operation: Replace) -> list[str]:
        """Return how the node differs from the operation's result; see UndoBackend."""
        table = f"table {operation.family} {operation.name}"
        if not operation.text:
            return [f"{table} is still there"] if self.unread(operation.family, operation.name) else []
        if self.read(operation.family, operation.name) is None:
            return [f"{table} is not there"]
        current = self.text(operation.family, operation.name)
        return [] if without_readings(current) == without_readings(operation.text) else [f"{table} is not as it was"]

    def checking(self, text: str) -> Check:
        """Return the operation that checks a text before it is written; see managed_files.Checker."""
        return Check(text)

    def run(self, arguments: t.Sequence[str], stdin: str | None = None, through: t.Sequence[str] = ()) -> process.Completed:
        """Run nft. Raises Failure if it is not installed."""
        nft = process.find("nft")
        if nft is None:
            raise Failure("nft is not installed. kubenode.datapath.nftables_package installs it")
        return self._start([*through, nft, *arguments], stdin)


def _table(family: str, name: str, listing: str) -> nft_table.Table:
    """Parse a listing. Raises ValueError if it is not a listing of this table."""
    table = nft_table.from_listing(json_object.load(listing))
    if (table.family, table.name) != (family, name):
        raise ValueError(f"the listing is of table {table.family} {table.name}")
    return table


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


def without_readings(text: str) -> str:
    """Remove counter values: they change between two readings and are not a difference."""
    return re.sub(r"counter packets \d+ bytes \d+", "counter", text)


def _replace(nft: Nft, operation: Replace) -> None:
    """Run one ``nft -f``: the kernel applies all of it or nothing. A table is removed without nft, which may be broken.

    Raises Failure if nft or the kernel refuses the change, Uncertain if nft was killed.
    """
    if not operation.text:
        if nft.unread(operation.family, operation.name):
            from .._netlink import nfnetlink

            nfnetlink.delete_table(operation.family, operation.name)
        return
    completed = nft.run(["-f", "-"], nft_table.replacement(operation.family, operation.name, operation.text))
    if completed.rc != 0:
        kind = Uncertain if _was_killed(completed) else Failure
        raise kind(f"nft refused table {operation.family} {operation.name}: {_complaint(completed)}")


def _check(nft: Nft, script: str) -> None:
    """Check a script with ``nft -c`` in a new network namespace, where nft cannot see or change the node's tables.

    Raises Failure if nft refuses the script. Warns if the check is not possible: nft or unshare is not installed (an
    image may get nft later), unshare is not permitted, or the running kernel is not the node's.
    """
    unshare = process.find("unshare")
    if process.find("nft") is None:
        lack = "nft is not installed"
    elif unshare is None:
        lack = "unshare (util-linux) is not installed"
    elif not kernel.is_ready("nf_tables"):
        lack = "nf_tables is not loaded, according to /proc"
    else:
        lack = _lack(nft, script, unshare)
    if lack:
        nft.warn(f"The ruleset was written but not checked by nft: {lack}.")


def _lack(nft: Nft, script: str, unshare: str) -> str:
    """Return why nft could not check the script; empty if nft accepts it. Raises Failure if nft refuses it."""
    completed = nft.run(["-c", "-f", "-"], script, through=[unshare, "--net"])
    if completed.rc == 0:
        return ""
    if NO_CHECK.search(completed.stderr):
        return _complaint(completed)
    raise Failure(f"nft refused the ruleset: {_complaint(completed)}")


def _was_killed(completed: process.Completed) -> bool:
    return completed.rc < 0 or completed.rc > 128


def _complaint(completed: process.Completed) -> str:
    """Return nft's error messages on one line, without the carets that mark the position of the error."""
    if _was_killed(completed):
        # netfilter.org commit be737a1986bf: named sets and maps made by nft 1.1.2 or newer carry data that crashes older nft.
        return (
            f"nft was killed by signal {-completed.rc if completed.rc < 0 else completed.rc - 128}. nft before 1.1.2 crashes if a"
            " newer nft, for example in a container, has made a named set or map. Upgrade nftables on the node"
        )
    lines = (line.strip() for line in completed.stderr.splitlines())
    said = "; ".join(line for line in lines if line.strip("^~ ")) or f"exit status {completed.rc}, no error message"
    if "Operation not permitted" not in said:
        return said
    from .._netlink import nfnetlink

    return f"{said}. {nfnetlink.NOT_PERMITTED}"
